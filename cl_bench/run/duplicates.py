"""Evaluation images that are pixel for pixel training images too.

They are found by a digest of every image, which is kept beside the decoded images.
"""

import hashlib
from pathlib import Path

import numpy as np

from cl_bench.data.cache import cached_files
from cl_bench.data.decode import in_threads
from cl_bench.data.device_images import Frames
from cl_bench.data.images import ImageSet
from cl_bench.data.source import Source
from cl_bench.records.spec import RunSpec
from cl_bench.run.assemble import training_rows

PART = 64  # images of which a thread makes digests at a time


def duplicates(spec: RunSpec, source: Source) -> int:
    """How many of a run's evaluation images are among those that it learns, both as they are evaluated."""
    train = _digests(spec, source, "train")
    rows, held = training_rows(spec, source.labels("train"))
    test = _digests(spec, source, "test") if held is None else train[held]
    known = {digest.tobytes() for digest in train[rows]}
    return sum(digest.tobytes() in known for digest in test)


def _digests(spec: RunSpec, source: Source, side: str) -> np.ndarray:
    """sha256 (n, 32) of every image of a side."""
    settings = {
        "resize": spec.transform.resize,
        "interpolation": spec.transform.interpolation,
        "image_size": spec.backbone.image_size,
    }
    key = {"digests of": source.name, "manifest": source.manifest(), "side": side, **settings}

    def write(folder: Path) -> None:
        images = source.evaluated(side, spec.transform, spec.backbone.image_size)
        parts = [np.arange(start, min(start + PART, len(images))) for start in range(0, len(images), PART)]
        found = list(in_threads(lambda rows: _together(images, rows), parts, None))
        np.save(folder / "digests.npy", np.frombuffer(b"".join(found), np.uint8).reshape(-1, 32))

    return cached_files(key, write)["digests"]


def _together(images: ImageSet, rows: np.ndarray) -> bytes:
    found = images.pixels(rows)
    assert not isinstance(found, Frames)  # evaluated images as the data set has them
    return b"".join(
        hashlib.sha256(str(pixels.shape).encode() + pixels.tobytes()).digest() for pixels in found
    )
