"""Images of CIFAR-100's shape that `gpu_day.py` has written: `--dataset day-images:FOLDER`."""

import hashlib
from pathlib import Path

import numpy as np

from cl_bench.data.images import ImageSet
from cl_bench.data.source import Source, named_path

SUMMARY = "what gpu_day.py has written into a folder"


class DayImages(Source):
    """`train.npy` and `test.npy`, each (N, H, W, 3), equally many images of every class, class by class."""

    name = "day-images"
    smoke = True  # the same pixels as CIFAR-100's may be in it, the network's weights are random
    TRANSFORM = {"augment": "autoaugment-cifar10"}

    def __init__(self, argument: str | None = None):
        self._root = named_path(argument or ".")
        self.argument = str(self._root)
        names = (self._root / "classes.txt").read_text(encoding="utf-8")
        self.class_names = names.splitlines()

    def manifest(self) -> dict:
        """The digests of both files."""
        return {side: _digest(self._root / f"{side}.npy") for side in ("train", "test")}

    def images(self, side: str) -> ImageSet:
        """The images, mapped from disk."""
        images = np.load(self._root / f"{side}.npy", mmap_mode="r")
        classes = len(self.class_names)
        return ImageSet(images, np.repeat(np.arange(classes), len(images) // classes))


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


SOURCE = DayImages
