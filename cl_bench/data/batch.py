"""A batch of images on their way into the network."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cl_bench.data.frozen import Known
from cl_bench.nn.backbone import Backbone


@dataclass(frozen=True, eq=False)
class Batch:
    """Network input (B, 3, S, S), labels (B,) as positions in the class order (None where they are to be predicted) and, of images that always
    enter in the same way, where their un-prompted features are `known`. Which images these are is nobody's business: test images come in
    the order of their tasks."""

    images: Tensor
    labels: Tensor | None = None
    known: Known | None = None

    def __len__(self) -> int:
        return len(self.images)

    @torch.no_grad()
    def frozen_features(self, backbone: Backbone) -> Tensor:
        """Features (B, D) of the un-prompted network, without gradient: the query of prompt pools.

        Looked up where they are known, else one more forward pass.
        """
        return backbone.frozen_features(self.images) if self.known is None else self.known.of(backbone)

    def split(self, size: int) -> list["Batch"]:
        """Parts of at most `size` images."""
        parts = [slice(start, start + size) for start in range(0, len(self), size)]
        labels, known = (
            [None if values is None else values[part] for part in parts]
            for values in (self.labels, self.known)
        )
        return [Batch(self.images[part], *rest) for part, *rest in zip(parts, labels, known, strict=True)]
