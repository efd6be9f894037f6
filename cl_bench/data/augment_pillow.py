"""Training transforms of published code on torchvision's own PIL path: the slow reference, image by image, in processes.

An image's random numbers are seeded by (data seed, pass, image index) alone, so neither the batch nor the number of processes matters.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode

from cl_bench.config import Transform
from cl_bench.data.augment_draws import POLICIES


def augmented(images: Sequence[np.ndarray], transform: Transform, size: int, seeds: list[int]) -> np.ndarray:
    """AutoAugment (bilinear; none for "crop"), a random resized crop and, for "crop-flip", a flip: B x (h, w, 3) -> (B, size, size, 3), uint8."""
    policy = POLICIES.get(transform.augment)
    auto_augment = (
        transforms.AutoAugment(AutoAugmentPolicy(policy), InterpolationMode.BILINEAR)
        if policy
        else transforms.Compose([])
    )
    interpolation = InterpolationMode(transform.crop_interpolation if policy else "bilinear")
    crop = transforms.RandomResizedCrop(size, scale=(transform.crop_scale, 1.0), interpolation=interpolation)
    if transform.augment == "crop-flip":
        crop = transforms.Compose([crop, transforms.RandomHorizontalFlip()])
    out = np.empty((len(images), size, size, 3), np.uint8)
    with torch.random.fork_rng(devices=[]):
        for row, (image, seed) in enumerate(zip(images, seeds, strict=True)):
            torch.manual_seed(seed)
            out[row] = np.asarray(crop(auto_augment(Image.fromarray(image))))
    return out


def augmented_batches(
    batches: Iterable[tuple[Sequence[np.ndarray], list[int]]], transform: Transform, size: int, processes: int
) -> Iterator[np.ndarray]:
    """`augmented` of each batch of images and seeds, in processes: they work on the next batch while the caller uses one."""
    if processes == 1:
        yield from (augmented(images, transform, size, seeds) for images, seeds in batches)
        return
    begun: deque[list[Future]] = deque()
    for images, seeds in batches:
        bounds = np.linspace(0, len(images), min(len(images), processes * 2) + 1).astype(int)
        parts = [slice(start, stop) for start, stop in zip(bounds, bounds[1:], strict=False)]
        begun.append(
            [_pool(processes).submit(augmented, images[part], transform, size, seeds[part]) for part in parts]
        )
        if len(begun) > 1:
            yield _collected(begun.popleft())
    while begun:
        yield _collected(begun.popleft())


def _collected(jobs: list[Future]) -> np.ndarray:
    return np.concatenate([job.result() for job in jobs])


@cache
def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )
