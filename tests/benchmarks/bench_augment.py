"""What augmenting one image costs, as a ratio of torchvision's Pillow path to the batched one.

    python tests/benchmarks/bench_augment.py [--device cpu] [--threads 1] [--batch 64] [--pairs 7]

Both go from uint8 images to uint8 levels of the network's size, with AutoAugment and a random resized crop.
The rest of a step, copies to the device and normalization, is the same for both. On a GPU the batched path
is timed on the device, torchvision's on one core.
"""

import argparse
import statistics
import time

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


def main() -> None:
    """Print a line for every case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=7)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    for name, (transform, height, width, size) in CASES.items():
        generator, sizes = np.random.default_rng(0), np.full((chosen.batch, 2), (height, width))
        images = generator.integers(0, 256, (chosen.batch, height, width, 3), dtype=np.uint8)

        def reference(start: int, images=images, transform=transform, size=size) -> None:
            augment_pillow.augmented(images, transform, size, list(range(start, start + len(images))))

        def batched(start: int, images=images, transform=transform, size=size, sizes=sizes) -> None:
            drawn = draw(transform, sizes, (0,), np.arange(start, start + len(images)))
            pixels = torch.from_numpy(images).to(chosen.device).permute(0, 3, 1, 2).contiguous()
            augment_batch.augmented(pixels, sizes, drawn, size, transform.crop_interpolation)
            if chosen.device != "cpu":
                torch.cuda.synchronize()

        times = []
        for pair in range(chosen.pairs + 1):
            row = []
            for run in (reference, batched):
                start = time.perf_counter()
                run(pair * chosen.batch)
                row.append((time.perf_counter() - start) / chosen.batch)
            times.append(row)
        times = times[1:]
        ratio = statistics.median(one / other for one, other in times)
        slow, fast = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name}: batched {ratio:.1f} x torchvision ({fast:.2f} ms against {slow:.2f} ms an image)")


if __name__ == "__main__":
    main()
