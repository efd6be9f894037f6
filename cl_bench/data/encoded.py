"""Data sets whose encoded images lie in larger files: measured and digested in one pass, known by content."""

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from cl_bench.config import canonical_json
from cl_bench.data.cache import cached_files
from cl_bench.data.decode import CONVENTION, as_seen, in_threads, measure
from cl_bench.data.decoded import Decoded
from cl_bench.errors import InputError

SIDES = ("train", "test")
Key = tuple[str, int]


class Encoded(Decoded):
    """A source of images as seen, whose identity is that of their bytes and labels, wherever these lie.

    Subclasses say how many there are, read the bytes of one, and know the files by their digests.
    """

    @abstractmethod
    def count(self, side: str) -> int:
        """How many images a side has."""

    @abstractmethod
    def content(self, side: str, row: int) -> bytes:
        """The bytes of an image file; called in threads. Raises InputError."""

    @abstractmethod
    def place(self, side: str, row: int) -> str:
        """What errors call an image."""

    @abstractmethod
    def files_key(self) -> dict:
        """JSON values that change whenever a file does that `content` reads."""

    @cached_property
    def _index(self) -> dict[str, np.ndarray]:
        """sha256 (N, 32) and (width, height) (N, 2) of the images of both sides, and the depth of gray."""
        return cached_files({"source": self.name, "index": 1, **self.files_key()}, self._write_index)

    def _write_index(self, folder: Path) -> None:
        bits = [8]
        for side in SIDES:
            digests, sizes = [], []
            for digest, found in in_threads(self._described, self.keys(side), f"reading {self.name} {side}"):
                digests.append(digest)
                sizes.append(found.size)
                bits.append(found.bits)
            np.save(folder / f"{side}_digests.npy", np.array(digests, np.uint8).reshape(-1, 32))
            np.save(folder / f"{side}_sizes.npy", np.array(sizes, np.int64).reshape(-1, 2))
        np.save(folder / "bits.npy", np.array(max(bits)))

    def _described(self, key: Key) -> tuple[np.ndarray, object]:
        content = self.content(*key)
        digest = np.frombuffer(hashlib.sha256(content).digest(), np.uint8)
        return digest, measure(Path(self.place(*key)), content)

    def keys(self, side: str) -> Sequence[Key]:
        """(side, row) of every image."""
        return [(side, row) for row in range(self.count(side))]

    def size(self, key: Key) -> tuple[int, int]:
        """(width, height) as seen."""
        side, row = key
        width, height = self._index[f"{side}_sizes"][row]
        return int(width), int(height)

    def opened(self, key: Key) -> Image.Image:
        """The image as seen. Raises InputError where its bytes are not those of the manifest."""
        side, row = key
        content = self.content(side, row)
        if hashlib.sha256(content).digest() != self._index[f"{side}_digests"][row].tobytes():
            what_to_do = "repeat the command once nothing writes there"
            raise InputError(f"{self.place(side, row)} changed while it was used; {what_to_do}")
        return as_seen(Path(self.place(side, row)), content, int(self._index["bits"]))[0]

    def manifest(self) -> dict:
        """Digest of all images' bytes and labels in order, and by what convention they are decoded."""
        digest = hashlib.sha256(canonical_json(self.class_names).encode())
        for side in SIDES:
            digest.update(np.ascontiguousarray(self._index[f"{side}_digests"]).data)
            digest.update(np.ascontiguousarray(self.labels(side), np.int64).data)
        return {"content": digest.hexdigest(), "classes": len(self.class_names), "decoding": CONVENTION}
