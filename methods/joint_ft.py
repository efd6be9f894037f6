"""Joint-FT: the whole network, all classes learned as one task.

The bound of everything that starts from the same checkpoint.
"""

from cl_bench.methods.seq_ft import SeqFT

SUMMARY = "the whole network, all classes at once, an upper bound"
FAMILY, VENUE, PASSES = "whole network", "", 1


class JointFT(SeqFT):
    """SeqFT on a stream of one task."""

    display = "FT joint (upper bound)"
    joint = True


METHOD = JointFT
