"""Training transforms of published code on torchvision's own PIL path: the slow reference, image by image, in processes.

An image's random numbers are seeded by (data seed, pass, image index) alone, so neither the batch nor the number of processes matters.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode

from cl_bench.seeds import derived_seed

POLICIES = {"autoaugment-cifar10": AutoAugmentPolicy.CIFAR10}


def augmented(images: np.ndarray, policy: str, crop_scale: float, size: int, seeds: list[int]) -> np.ndarray:
    """AutoAugment (bilinear) at the stored size, then a random resized crop (bicubic): (B, h, w, 3) -> (B, size, size, 3), both uint8."""
    auto_augment = transforms.AutoAugment(POLICIES[policy], InterpolationMode.BILINEAR)
    crop = transforms.RandomResizedCrop(size, scale=(crop_scale, 1.0), interpolation=InterpolationMode.BICUBIC)
    out = np.empty((len(images), size, size, 3), np.uint8)
    with torch.random.fork_rng(devices=[]):
        for row, (image, seed) in enumerate(zip(images, seeds, strict=True)):
            torch.manual_seed(seed)
            out[row] = np.asarray(crop(auto_augment(Image.fromarray(image))))
    return out


def augmented_in_processes(
    images: np.ndarray, policy: str, crop_scale: float, size: int, key: tuple, indices: np.ndarray, processes: int
) -> np.ndarray:
    """As `augmented`, spread over processes; `key` and each image's index make its seed."""
    seeds = [derived_seed(*key, int(index)) for index in indices]
    if processes == 1:
        return augmented(images, policy, crop_scale, size, seeds)
    parts = [part for part in np.array_split(np.arange(len(images)), processes * 2) if len(part)]
    jobs = [_pool(processes).submit(augmented, images[part], policy, crop_scale, size, [seeds[i] for i in part]) for part in parts]
    return np.concatenate([job.result() for job in jobs])


@cache
def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,))
