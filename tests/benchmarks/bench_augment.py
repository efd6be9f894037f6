"""What augmenting one image costs, as a ratio of torchvision's Pillow path to the batched one.

    python tests/benchmarks/bench_augment.py [--device cpu] [--threads 1] [--batch 64] [--pairs 7]

Both go from uint8 images to uint8 levels of the network's size, with AutoAugment and a random resized crop.
The rest of a step, copies to the device and normalization, is the same for both. On a GPU the batched path
is timed on the device, torchvision's on one core.
"""

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

from cl_bench.config import Transform
from cl_bench.data import augment_batch, augment_pillow
from cl_bench.data.augment_draws import draw

CASES = {
    "CIFAR-100, 32 -> 224, bicubic": (Transform(augment="autoaugment-cifar10"), 32, 32, 224),
    "ImageNet-R, 256 x 341 -> 224, bilinear": (
        Transform(augment="autoaugment-imagenet", crop_interpolation="bilinear"),
        256,
        341,
        224,
    ),
}


@dataclass(frozen=True)
class Compared:
    """Medians over pairs: seconds of an image both ways, and Pillow's over the batched ones."""

    pillow_seconds: float
    batched_seconds: float
    ratio: float


def compared(case: tuple[Transform, int, int, int], device: str, batch: int, pairs: int) -> Compared:
    """Both ways of a case, in turn, after a pair that warms up."""
    transform, height, width, size = case
    generator, sizes = np.random.default_rng(0), np.full((batch, 2), (height, width))
    images = generator.integers(0, 256, (batch, height, width, 3), dtype=np.uint8)

    def reference(start: int) -> None:
        augment_pillow.augmented(images, transform, size, list(range(start, start + batch)))

    def batched(start: int) -> None:
        drawn = draw(transform, sizes, (0,), np.arange(start, start + batch))
        pixels = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).contiguous()
        augment_batch.augmented(pixels, sizes, drawn, size, transform.crop_interpolation)
        if device != "cpu":
            torch.cuda.synchronize()

    times = []
    for pair in range(pairs + 1):
        row = []
        for run in (reference, batched):
            start = time.perf_counter()
            run(pair * batch)
            row.append((time.perf_counter() - start) / batch)
        times.append(row)
    slow, fast = zip(*times[1:], strict=True)
    ratio = statistics.median(one / other for one, other in zip(slow, fast, strict=True))
    return Compared(statistics.median(slow), statistics.median(fast), ratio)


def main() -> None:
    """Print a line for every case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=7)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    for name, case in CASES.items():
        found = compared(case, chosen.device, chosen.batch, chosen.pairs)
        each = f"{1e3 * found.batched_seconds:.2f} ms against {1e3 * found.pillow_seconds:.2f} ms an image"
        print(f"{name}: batched {found.ratio:.1f} x torchvision ({each})")


if __name__ == "__main__":
    main()
