"""What is kept of each class in the place of its images: Gaussians of two of its features, and a mean prompt.

Losses on draws of them keep old classes in mind while new ones are learned.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from pydantic import Field
from torch import Tensor, nn

from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.nn.gaussians import ClassGaussians

ROUND = 16  # batches that are drawn at a time


class LibraryConfig(Strict):
    """APG's public code for CIFAR-100, on two GPUs: its rates times 192 / 1024, and twice 128 x 4 draws."""

    samples: int = Field(2000, ge=1)  # pairs of features drawn per class and pass of the refinement
    library_batch: int = Field(1024, ge=1)  # pairs of a step
    ridge: float = Field(1e-5, gt=0)  # added to the diagonal of every covariance
    refine_passes: int = Field(20, ge=1)
    refine_growth: int = Field(5, ge=0)  # more passes for each task before
    refine_learning_rate: float = Field(1.875e-4, gt=0)
    refine_start_rate: float = Field(1.875e-6, gt=0)
    refine_end_rate: float = Field(1.875e-5, gt=0)


class Library(nn.Module):
    """Gaussians of features h and f of K classes, and mean prompts (K, D)."""

    def __init__(self, width: int, ridge: float, device: torch.device):
        super().__init__()
        self.h, self.f = (ClassGaussians(width, ridge, device) for _ in range(2))
        self.register_buffer("prompts", torch.zeros(0, width, device=device))

    def grow(self, classes: int) -> None:
        """Make room for so many more classes."""
        self.h.grow(classes)
        self.f.grow(classes)
        self.prompts = torch.cat([self.prompts, self.prompts.new_zeros(classes, self.prompts.shape[1])])

    def describe(self, h: Tensor, f: Tensor, prompts: Tensor, labels: Tensor) -> None:
        """Take features and prompts (n, D) of images of classes (n,); other classes keep what they have."""
        self.h.describe(h, labels)
        self.f.describe(f, labels)
        for label in labels.unique().tolist():
            self.prompts[label] = prompts[labels == label].double().mean(dim=0)

    def draws(self, classes: int, batch: int, seed: int) -> Iterator[Batch]:
        """Batches without end: pairs h, f (batch, 2, D) of the first so many classes, equally often."""
        device = self.prompts.device
        generator = torch.Generator(device).manual_seed(seed)
        count = -(-ROUND * batch // classes)
        answers = torch.arange(classes, device=device).repeat_interleave(count)
        while True:
            pairs = [part.sample(count, generator, classes).flatten(0, 1) for part in (self.h, self.f)]
            pairs = torch.stack(pairs, dim=1)  # (classes * count, 2, D)
            order = torch.randperm(len(pairs), generator=generator, device=device)
            for chosen in order[: ROUND * batch].split(batch):
                yield Batch(pairs[chosen], answers[chosen])

    def passes(self, config: LibraryConfig, seed: int) -> Callable[[int], Iterator[Batch]]:
        """Pass -> its batches of pairs of all classes, in which each class has `samples`; at least one."""
        classes, batch = len(self.prompts), config.library_batch
        draws = self.draws(classes, batch, seed)
        return lambda done: islice(draws, max(1, classes * config.samples // batch))
