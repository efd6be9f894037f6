"""Toy pieces shared by the tests: a small ViT, a small data set in memory, small specifications."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from cl_bench.backbone import Backbone
from cl_bench.config import BackboneSpec
from cl_bench.preprocess import Preprocess
from cl_bench.record import Transform
from cl_bench.source import ImageSet
from cl_bench.stream import Stream

torch.set_num_threads(1)


def toy_vit(seed: int = 0, **changes) -> VisionTransformer:
    """A ViT of two blocks, 16 pixels, width 32, with LayerNorm scales away from 1."""
    torch.manual_seed(seed)
    settings = {"img_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 0, **changes}
    vit = VisionTransformer(**settings)
    with torch.no_grad():
        for name, parameter in vit.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif parameter.ndim > 1:
                parameter.mul_(3.0)
    return vit.eval()


def toy_backbone(seed: int = 0, **changes) -> Backbone:
    """The toy ViT, frozen."""
    vit = toy_vit(seed, **changes)
    spec = BackboneSpec(name="toy", image_size=vit.patch_embed.img_size[0], mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    return Backbone(vit, spec, "0" * 64)


def toy_images(per_class: list[int], seed: int, size: int = 16) -> ImageSet:
    """Classes that differ in colour and stripe direction, with noise; per_class[c] images of class c."""
    rng = np.random.default_rng([seed, 5])
    colours = np.random.default_rng(7).uniform(40, 215, (len(per_class), 2, 3))
    images, labels = [], np.repeat(np.arange(len(per_class)), per_class)
    for c in labels:
        stripes = (np.arange(size) // (1 + c % 3) % 2).astype(float)
        mask = (stripes[:, None] if c % 2 else stripes[None, :])[..., None] * np.ones((size, size, 1))
        images.append(colours[c, 0] * mask + colours[c, 1] * (1 - mask) + rng.normal(0, 12, (size, size, 3)))
    return ImageSet(np.clip(np.array(images), 0, 255).astype(np.uint8), labels.astype(np.int64))


def toy_stream(tasks: list[list[int]], per_class: int = 12, joint: bool = False, seed: int = 0, test_per_class: int = 6, augment: str = "none") -> Stream:
    """A stream over toy images; tasks are lists of classes, possibly of unequal length."""
    classes = max(c for task in tasks for c in task) + 1
    preprocess = Preprocess(toy_backbone().spec, Transform(augment=augment, crop_scale=0.5), 0, torch.device("cpu"))
    return Stream(toy_images([per_class] * classes, seed), toy_images([test_per_class] * classes, seed + 1), tasks, preprocess, joint)


@pytest.fixture
def backbone() -> Backbone:
    return toy_backbone()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Tests never touch the user's cache folder."""
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
