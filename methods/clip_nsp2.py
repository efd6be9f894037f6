"""CLIP-NSP2: prompts in the image tower of CLIP, their updates projected into the null space of old tasks' attention.

Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, arXiv 2406.05658, Table 1 and appendix B. The projection is
that of `cl_bench.null_space`, in the prompted blocks; the logit scale is not projected. After each task the projection into the common
space is refined on class Gaussians, so the method stores class statistics, which VPT-NSP2 does not. Covariances and Gaussians share one pass.
"""

from pydantic import Field

from cl_bench.clip_tuning import ClipTuning, ClipTuningConfig
from cl_bench.null_space import AS_PUBLISHED, NullSpaceConfig, NullSpaceUpdates

ALIASES = ()
SUMMARY = "CLIP with prompts, updates projected into the null space of old tasks (NeurIPS 2024)"


class ClipNSP2Config(NullSpaceConfig, ClipTuningConfig):
    """Defaults: all benchmarks, NSP2 paper, appendix B."""

    eta: float = Field(0.98, ge=0, le=1)  # eta_1 = eta_2


class ClipNSP2(NullSpaceUpdates, ClipTuning):
    """Prompt tuning of CLIP whose prompt updates are P <- P + B2 U B1 from the second task on."""

    Config = ClipNSP2Config
    display = "CLIP-NSP²"
    TRUNK = ClipTuningConfig
    AS_PUBLISHED = AS_PUBLISHED
    LEFT_DIFFERENT = ("the frozen network computes in fp32 or bf16 (precision), where the code trains in fp16",)


METHOD = ClipNSP2
