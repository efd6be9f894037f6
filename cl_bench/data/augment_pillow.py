"""Training transforms of published code on torchvision's own PIL path, image by image: the slow reference.

An image's random numbers are seeded by (data seed, pass, image index) alone, so neither the batch nor the
number of processes matters.
"""

from collections import deque
from collections.abc import Iterable, Iterator
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

Images = np.ndarray | list[np.ndarray]  # of one size, or of differing sizes


def augmented(images: Images, transform: Transform, size: int, seeds: list[int]) -> np.ndarray:
    """uint8 images B x (h, w, 3) -> (B, size, size, 3).

    AutoAugment (bilinear) if the transform names a policy, a random resized crop and, for "crop-flip", a
    flip.
    """
    policy = POLICIES.get(transform.augment)
    interpolation = InterpolationMode(transform.crop_interpolation if policy else "bilinear")
    steps = [
        transforms.RandomResizedCrop(size, scale=(transform.crop_scale, 1.0), interpolation=interpolation)
    ]
    if policy:
        steps.insert(0, transforms.AutoAugment(AutoAugmentPolicy(policy), InterpolationMode.BILINEAR))
    if transform.augment == "crop-flip":
        steps.append(transforms.RandomHorizontalFlip())
    augment = transforms.Compose(steps)
    out = np.empty((len(images), size, size, 3), np.uint8)
    with torch.random.fork_rng(devices=[]):
        for row, (image, seed) in enumerate(zip(images, seeds, strict=True)):
            torch.manual_seed(seed)
            out[row] = np.asarray(augment(Image.fromarray(image)))
    return out


def augmented_batches(
    batches: Iterable[tuple[Images, list[int]]], transform: Transform, size: int, processes: int
) -> Iterator[np.ndarray]:
    """`augmented` of each batch of images and seeds, in processes that work on the next one meanwhile."""
    if processes == 1:
        yield from (augmented(images, transform, size, seeds) for images, seeds in batches)
        return
    begun: deque[list[Future]] = deque()
    for images, seeds in batches:
        bounds = np.linspace(0, len(images), min(len(images), processes * 2) + 1).astype(int)
        parts = [slice(start, stop) for start, stop in zip(bounds, bounds[1:], strict=False)]
        submit = _pool(processes).submit
        begun.append([submit(augmented, images[part], transform, size, seeds[part]) for part in parts])
        if len(begun) > 1:
            yield _collected(begun.popleft())
    while begun:
        yield _collected(begun.popleft())


def _collected(jobs: list[Future]) -> np.ndarray:
    return np.concatenate([job.result() for job in jobs])


@cache
def _pool(processes: int) -> ProcessPoolExecutor:
    context = get_context("spawn")
    return ProcessPoolExecutor(processes, context, initializer=torch.set_num_threads, initargs=(1,))
