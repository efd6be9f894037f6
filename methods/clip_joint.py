"""CLIP-Joint: prompts in the image tower of CLIP, all classes learned as one task, the upper bound.

NSP2 paper, Table 1, "Upper-bound". Whether the published bound was refined is not stated: off here,
`refine_head=on` for the other reading.
"""

from cl_bench.methods.clip_seq import ClipSeq, ClipTuningConfig

ALIASES = ()
SUMMARY = "CLIP with prompts, all classes at once, the upper bound"
FAMILY, VENUE, PASSES = "CLIP", "", 1


class ClipJointConfig(ClipTuningConfig):
    """As the sequential methods, without refinement."""

    refine_head: bool = False


class ClipJoint(ClipSeq):
    """The common body on a stream of one task."""

    Config = ClipJointConfig
    display = "CLIP joint (upper bound)"
    joint = True


METHOD = ClipJoint
