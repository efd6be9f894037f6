"""VPT-NSP2: prompt updates are projected into the null space of old tasks' attention.

Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, arXiv 2406.05658, Tables 1 to 5; the algorithm and
where the published code differs from the paper stand in `cl_bench.null_space`.
"""

from cl_bench.null_space import AS_PUBLISHED, NullSpaceConfig, NullSpaceUpdates
from cl_bench.prompt_tuning import PromptTuning, PromptTuningConfig

ALIASES = ("nsp2",)
SUMMARY = "updates projected into the null space of old tasks (NeurIPS 2024)"


class NSP2Config(NullSpaceConfig, PromptTuningConfig):
    """Defaults: 10-split CIFAR-100, NSP2 paper, appendix B."""


class VPTNSP2(NullSpaceUpdates, PromptTuning):
    """Prompt tuning whose prompt updates are P <- P + B2 U B1 from the second task on."""

    Config = NSP2Config
    display = "VPT-NSP²"
    TRUNK = PromptTuningConfig
    AS_PUBLISHED = AS_PUBLISHED
    LEFT_DIFFERENT = ("the frozen network computes in fp32 or bf16 (precision), where the code trains in fp16",)


METHOD = VPTNSP2
