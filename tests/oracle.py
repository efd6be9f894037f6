"""Toy networks and inputs of the published implementations' numbers, as in folder `shared/oracle`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from cl_bench.config import BackboneSpec
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.backbone import Backbone
from cl_bench.training.trainer import Trainer

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "oracle"
HERE = pytest.mark.skipif(not FOLDER.is_dir(), reason="the oracle folder is not here")
WIDTH, CLASSES = 48, 3  # features; classes of a task


def numbers(name: str) -> dict:
    """The arrays of one page."""
    return dict(np.load(FOLDER / name))


def drawn(name: str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    """The normal draw that belongs to a name, times `scale`."""
    values = np.random.default_rng([7, sum(name.encode()) * 131 + len(name)]).standard_normal(shape)
    return scale * torch.tensor(values, dtype=torch.float32)


def filled(name: str, shape: tuple[int, ...]) -> Tensor:
    """A parameter of the backbone."""
    if name.endswith(".bias"):
        return drawn(name, shape, 0.02)
    return 1 + drawn(name, shape, 0.1) if "norm" in name else drawn(name, shape, 0.04)


def backbone(depth: int = 4, **changes) -> Backbone:
    """A ViT of 32 pixels, patches of 8, width 48, four heads, frozen."""
    settings = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": WIDTH,
        "depth": depth,
        "num_heads": 4,
        "num_classes": 0,
    }
    vit = VisionTransformer(**{**settings, **changes})
    vit.load_state_dict(
        {name: filled(name, tuple(tensor.shape)) for name, tensor in vit.state_dict().items()}
    )
    return Backbone(
        vit, BackboneSpec(name="oracle", image_size=32, mean=(0.0,) * 3, std=(1.0,) * 3), "0" * 64
    )


def images(number: int, count: int = 8) -> Tensor:
    """A set of images, as they enter the network."""
    return torch.tensor(
        np.random.default_rng([11, int(number)]).standard_normal((count, 3, 32, 32)), dtype=torch.float32
    )


def probe(number: int, rows: int = WIDTH, columns: int = 4) -> Tensor:
    """Z_k of the pages, float64."""
    return torch.tensor(np.random.default_rng([3, number]).standard_normal((rows, columns)))


def stream(tasks: int, known: int) -> StreamInfo:
    """Tasks of three classes, the classes of so many of them known beforehand."""
    return StreamInfo(init_seed=0, num_tasks=tasks, task_sizes=(CLASSES,) * known)


def task(index: int) -> TaskInfo:
    """The place of a task; its images are handed to the method by the test."""
    return TaskInfo(index, tuple(range(CLASSES * index, CLASSES * (index + 1))), CLASSES * index)


def labels(index: int, count: int = 8) -> Tensor:
    """0, 1, 2, 0, ... within the task."""
    return torch.arange(count) % CLASSES + CLASSES * index


class Plain(Trainer):
    """A trainer whose images for statistics are a task's, by a function of it, in order."""

    def __init__(self, images_of: Callable[[TaskInfo], Batch]):
        super().__init__(data_seed=0)
        self.images_of = images_of

    def plain(self, task: TaskInfo, batch: int, chosen=None, shared=False, networks=1) -> Iterator[Batch]:
        with torch.no_grad():
            yield from self.images_of(task).split(batch)


def close(found: Tensor, expected: np.ndarray, tolerance: float) -> bool:
    """Whether the largest difference is at most `tolerance` of the largest expected value."""
    expected = np.asarray(expected, dtype=np.float64)
    found = np.asarray(found.detach() if isinstance(found, Tensor) else found, dtype=np.float64)
    return found.shape == expected.shape and np.abs(found - expected).max() <= tolerance * max(
        np.abs(expected).max(), 1e-12
    )
