"""CLIP-NSP2: prompts in CLIP's image tower, updated in the null space of old tasks' attention.

Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024, arXiv 2406.05658, Table
1 and appendix B. The projection is that of `methods/vpt_nsp2.py`, in the prompted blocks; the logit scale is
not projected. After each task the projection into the common space is refined on class Gaussians, so the
method stores class statistics, which VPT-NSP2 does not. Covariances and Gaussians share one pass.
"""

from cl_bench.methods.clip_seq import ClipSeq, ClipTuningConfig
from cl_bench.methods.vpt_nsp2 import NullSpaceConfig, NullSpaceUpdates
from pydantic import Field

ALIASES = ()
SUMMARY = "CLIP with prompts, updates projected into the null space of old tasks"
FAMILY, VENUE, PASSES, KEEPS = "CLIP", "NeurIPS 2024", 1, "one Gaussian of features per class"


class ClipNSP2Config(NullSpaceConfig, ClipTuningConfig):
    """Defaults: all benchmarks, NSP2 paper, appendix B."""

    eta: float = Field(0.98, ge=0, le=1)  # eta_1 = eta_2


class ClipNSP2(NullSpaceUpdates, ClipSeq):
    """Prompt tuning of CLIP whose prompt updates are P <- P + B2 U B1 from the second task on."""

    Config = ClipNSP2Config
    display = "CLIP-NSP²"
    TRUNK = ClipTuningConfig


METHOD = ClipNSP2
