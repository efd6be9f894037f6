"""CLIP zero-shot: untouched towers and the benchmark's sentences, the row that every tuned CLIP must beat.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021. Nothing is
learned or forgotten: what accuracy it loses from task to task is the growing number of classes.
"""

import math

import torch
from cl_bench.methods.clip_seq import ClipSeq
from torch import Tensor

from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, require_text
from cl_bench.nn.heads import scaled_cosines
from cl_bench.training.method import Method
from cl_bench.training.trainer import Trainer

ALIASES = ()
SUMMARY = "CLIP as it is: no training"
FAMILY, VENUE, PASSES = "CLIP", "ICML 2021", 1


class ClipZeroShotConfig(Strict):
    """The checkpoint leaves nothing to set."""


class ClipZeroShot(Method):
    """Scores are e^s <v, t_k> with the checkpoint's own s and projection."""

    Config = ClipZeroShotConfig
    PRESET = ClipSeq.PRESET
    TRANSFORM = ClipSeq.TRANSFORM
    display = "CLIP zero-shot"
    frozen = True

    def __init__(self, config: ClipZeroShotConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_text(backbone)
        self.register_buffer(
            "text_features", torch.zeros(0, len(backbone.text.projection), device=self.device)
        )

    def grow(self, task: TaskInfo) -> None:
        """Make room for the task's text features."""
        room = self.text_features.new_zeros(len(task.classes), self.text_features.shape[1])
        self.text_features = torch.cat([self.text_features, room])

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Its class sentences need no image."""
        return 0

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """Encode the task's class names."""
        self.text_features[task.first_label :] = self.backbone.text.encode(task.names, self.stream.templates)

    def predict(self, batch: Batch) -> Tensor:
        """Scores of all classes seen, (B, K_seen)."""
        features, text = batch.frozen_features(self.backbone), self.backbone.text
        return scaled_cosines(features @ text.projection.T, self.text_features, math.exp(text.scale))


METHOD = ClipZeroShot
