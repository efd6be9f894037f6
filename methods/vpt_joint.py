"""VPT-Joint: all classes learned as one task, the upper bound.

NSP2 paper, Table 1, "Upper-bound". The paper states no temperature for it; the benchmark's own is used unless
`temperature` is given.
"""

from cl_bench.methods.vpt_seq import VPTSeq

ALIASES = ("joint",)
SUMMARY = "all classes at once, the upper bound"
FAMILY, VENUE, PASSES = "prompts", "", 1


class VPTJoint(VPTSeq):
    """The common body on a stream of one task."""

    display = "VPT joint (upper bound)"
    joint = True


METHOD = VPTJoint
