"""VPT-Seq: prompts and the current head are tuned task after task, with nothing against forgetting.

Baseline of NSP2 (Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, arXiv 2406.05658), Tables 1, 3, 4
and 5; VPT itself is Jia et al., ECCV 2022. As published: decay after 40 and 70 % of the passes where the paper says 50 and 80 %
(`lr_milestones`), ten passes shuffled together (`epoch_mode`), the second head started from the first (`head_init`).
"""

from cl_bench.prompt_tuning import PromptTuning, PromptTuningConfig

ALIASES = ("seq",)
SUMMARY = "sequential prompt tuning, the baseline"


class VPTSeq(PromptTuning):
    """Nothing but the common body."""

    display = "VPT-Seq"
    TRUNK = PromptTuningConfig


METHOD = VPTSeq
