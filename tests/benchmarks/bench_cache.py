"""What the image cache saves: seconds, memory and threads to load all images by decoding and from the cache.

python tests/benchmarks/bench_cache.py [--images 1000]
"""

import argparse
import hashlib
import io
import os
import resource
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from PIL import Image


def photograph(rng: np.random.Generator) -> bytes:
    """A JPEG of 500 x 375 pixels with about the detail of a photograph."""
    coarse = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
    picture = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)).astype(
        np.int16
    )
    buffer = io.BytesIO()
    Image.fromarray(np.clip(picture + rng.normal(0, 12, picture.shape), 0, 255).astype(np.uint8)).save(
        buffer, "JPEG", quality=90
    )
    return buffer.getvalue()


def make(root: Path, count: int) -> None:
    """An ImageNet-R in `root`, archive and lists, that the plugin takes for the real one."""
    from cl_bench.datasets import imagenet_r

    from cl_bench.data.listed_files import Archive, Published

    rng = np.random.default_rng(0)
    names = [f"n{c:02d}/{n}.jpg" for n in range(count // 10) for c in range(10)]
    with tarfile.open(root / "imagenet-r.tar", "w") as tar:
        for name in names:
            content = photograph(rng)
            item = tarfile.TarInfo(f"imagenet-r/{name}")
            item.size = len(content)
            tar.addfile(item, io.BytesIO(content))
    texts = {"train": names, "test": names[:10], "names": [f"n{c:02d} c{c}" for c in range(10)]}
    lists = root / ".prepared" / "imagenet-r"
    lists.mkdir(parents=True)
    for key, lines in texts.items():
        (lists / f"{key}.txt").write_text("\n".join(lines), encoding="utf-8")
    digests = {key: hashlib.sha256((lists / f"{key}.txt").read_bytes()).hexdigest() for key in texts}
    imagenet_r.ImageNetR.LISTS = {
        key: Published(f"http://localhost/{key}.txt", digest) for key, digest in digests.items()
    }
    digest = hashlib.md5((root / "imagenet-r.tar").read_bytes()).hexdigest()
    imagenet_r.ImageNetR.ARCHIVES = (
        Archive("http://localhost/imagenet-r.tar", "imagenet-r", f"md5:{digest}"),
    )


def epoch(images) -> int:
    """Touch every pixel in batches of 256, as a pass over the data does; returns the bytes."""
    total = 0
    for start in range(0, len(images), 256):
        for image in images.pixels(np.arange(start, min(start + 256, len(images)))):
            total += np.array(image).nbytes
    return total


def main() -> None:
    """Print both times, their ratio, and the memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1000)
    count = parser.parse_args().images
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.environ["CL_BENCH_DATA"], os.environ["CL_BENCH_CACHE"] = str(root), str(root / "cache")
        make(root, count)
        from cl_bench.datasets import imagenet_r

        from cl_bench.data.prepare_listed import prepare

        prepare(imagenet_r.ImageNetR, root, print)
        source = imagenet_r.ImageNetR(str(root))
        before, most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
        start = time.perf_counter()
        watching = threading.Event()

        def watch() -> None:
            nonlocal most
            while not watching.wait(0.02):
                most = max(most, threading.active_count() - 2)  # without the main thread and this one

        watcher = threading.Thread(target=watch)
        watcher.start()
        images = source.images("train")
        decoding = time.perf_counter() - start
        watching.set()
        watcher.join()
        size = epoch(images)
        start = time.perf_counter()
        epoch(images)
        cached = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{count} images of 500 x 375, {size / 1e6:.0f} MB at a shorter side of 256")
        cores = len(os.sched_getaffinity(0))
        print(f"first epoch, decoding: {decoding:.2f} s with {most} threads on {cores} cores")
        print(
            f"second epoch, from the cache: {cached:.2f} s; ratio {decoding / cached:.1f} (asked: at least 3)"
        )
        print(
            f"peak memory {peak / 1024:.0f} MB, of which {(peak - before) / 1024:.0f} MB "
            "while decoding and reading (mapped pages included)"
        )
        assert decoding >= 3 * cached and (peak - before) < 1_000_000


if __name__ == "__main__":
    main()
