"""Seq-FT: the whole network tuned task after task, with a rate of its own far below that of the heads.

That the small rate is most of the cure is the finding of Zhang et al., "SLCA: Slow Learner with Classifier
Alignment for Continual Learning on a Pre-trained Model", ICCV 2023, whose slow learner this is, without the
alignment; with the rate of the heads it is the usual lower bound.
"""

from pydantic import Field
from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.training.tuning import Tuning, TuningConfig

SUMMARY = "the whole network tuned task after task, slowly"
FAMILY, VENUE, PASSES = "whole network", "", 1


class SeqFTConfig(TuningConfig):
    """Settings of full fine-tuning."""

    backbone_rate: float = Field(0.0001, gt=0)  # learning rate of the network; the heads have `learning_rate`


class SeqFT(Tuning):
    """A copy of the network is the method's own and part of its state; the frozen one stays as it was."""

    Config = SeqFTConfig
    display = "Seq-FT"

    def __init__(self, config: SeqFTConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        self.network = backbone.trainable_copy()

    def features(self, batch: Batch) -> Tensor:
        """Features of the tuned network."""
        return self.network.features(batch.images)

    def trained_groups(self) -> list[dict]:
        """All of the network, at its own rate."""
        return [{"params": [*self.network.vit.parameters()], "lr": self.config.backbone_rate}]

    def forwards_each(self, task: TaskInfo) -> int:
        """Three: the backward pass also makes the gradients of all weights."""
        return 3


METHOD = SeqFT
