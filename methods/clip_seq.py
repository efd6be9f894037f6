"""CLIP-Seq: prompts in the image tower of CLIP, tuned task after task with nothing against forgetting.

Baseline of NSP2 (Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, arXiv 2406.05658), Table 1; CLIP
is Radford et al., ICML 2021. As published: prompts in the first 4 blocks where the paper says 3 (`layers`), decay after 40 and 70 % of the
passes (`lr_milestones`), two passes shuffled together (`epoch_mode`). The paper describes the refinement of the projection for "the CLIP
model", and its scripts are those of CLIP-NSP2 alone: whether this row was refined is not known (`refine_head`, report both). A refined
method stores class statistics.
"""

from cl_bench.clip_tuning import ClipTuning, ClipTuningConfig

ALIASES = ()
SUMMARY = "CLIP with prompts, sequential tuning (baseline of NSP2)"


class ClipSeq(ClipTuning):
    """Nothing but the common body."""

    display = "CLIP-Seq"
    TRUNK = ClipTuningConfig


METHOD = ClipSeq
