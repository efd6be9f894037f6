"""Joint-LoRA: LoRA, all classes learned as one task: the bound of Seq-LoRA and of methods built on it."""

from cl_bench.methods.seq_lora import SeqLoRA

SUMMARY = "LoRA, all classes at once, an upper bound"
FAMILY, VENUE, PASSES = "LoRA", "", 1


class JointLoRA(SeqLoRA):
    """SeqLoRA on a stream of one task."""

    display = "LoRA joint (upper bound)"
    joint = True


METHOD = JointLoRA
