r"""Seq-Adapter: bottleneck adapters beside the MLPs, tuned task after task with nothing against forgetting.

Chen et al., "AdaptFormer: Adapting Vision Transformers for Scalable Visual Recognition", NeurIPS 2022:
\[ MLP(LN(x)) + s \, W_{up} \, relu(W_{down} x). \] The baseline of EASE, MOS, TUNA, SSIAT and their kin; as a
continual method it has no paper.
"""

from pydantic import Field

from cl_bench import seeds
from cl_bench.data.stream import StreamInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.backbone import Backbone
from cl_bench.training.tuning import EditTuning, TuningConfig

SUMMARY = "adapters tuned task after task: the baseline of adapter methods"
FAMILY, VENUE, PASSES = "adapters", "", 1


class SeqAdapterConfig(TuningConfig):
    """Bottleneck, scale and dropout are AdaptFormer's; the rest as for all sequential fine-tuning."""

    bottleneck: int = Field(64, ge=1)  # r
    adapter_scale: float = Field(0.1, gt=0)  # s
    dropout: float = Field(0.1, ge=0, lt=1)  # while training
    layers: int | None = Field(None, ge=1)  # first blocks; None: all


class SeqAdapter(EditTuning):
    """One set of adapters for all tasks."""

    Config = SeqAdapterConfig
    display = "Seq-Adapter"
    SMALL = {"bottleneck": 4, "dropout": 0.0}

    def __init__(self, config: SeqAdapterConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        layers = backbone.first_blocks(config.layers)
        generator = seeds.generator(stream.init_seed, "adapters")
        sizes = (layers, backbone.width, config.bottleneck)
        self.edits = Adapters(*sizes, generator, config.adapter_scale, config.dropout).to(self.device)


METHOD = SeqAdapter
