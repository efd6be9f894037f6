r"""Seq-LoRA: low-rank updates of attention's maps, tuned task after task with nothing against forgetting.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022: \[ W x + s B A x, \] here beside
queries and values of every block. The baseline of InfLoRA, SD-LoRA and their kin; as a continual method it
has no paper of its own.
"""

from pydantic import Field

from cl_bench import seeds
from cl_bench.data.stream import StreamInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.lora import LoRA
from cl_bench.training.tuning import EditTuning, TuningConfig

SUMMARY = "LoRA tuned task after task: the baseline of low-rank methods"
FAMILY, VENUE, PASSES = "LoRA", "", 1


class SeqLoRAConfig(TuningConfig):
    """Rank and targets usual for vision transformers; the rest as for all sequential fine-tuning."""

    rank: int = Field(10, ge=1)  # r
    targets: str = "qv"  # which of queries, keys and values
    layers: int | None = Field(None, ge=1)  # first blocks; None: all
    lora_scale: float = Field(1.0, gt=0)  # s


class SeqLoRA(EditTuning):
    """One low-rank update for all tasks."""

    Config = SeqLoRAConfig
    display = "Seq-LoRA"
    SMALL = {"rank": 3}

    def __init__(self, config: SeqLoRAConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        layers = backbone.first_blocks(config.layers)
        generator = seeds.generator(stream.init_seed, "lora")
        sizes = (layers, backbone.width, config.rank, config.targets)
        self.edits = LoRA(*sizes, generator, config.lora_scale).to(self.device)


METHOD = SeqLoRA
