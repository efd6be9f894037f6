"""Data sets of image files named by published split lists: prepared once, decoded once, verified each time.

What published code does with the files is kept: `Image.open(path).convert("RGB")`, without regard for EXIF or
transparency.
"""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from cl_bench.data.cache import data_folder
from cl_bench.data.decode import as_published, size
from cl_bench.data.decoded import Decoded
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.listed_files import Archive, Published, list_path, notes_path, read_notes
from cl_bench.data.source import named_path
from cl_bench.errors import InputError

DECODING = "as published, 1"  # raise it when the same files decode to other pixels


class ListedImages(Decoded[str]):
    """A source whose files and split are given by lists; subclasses say where those are and how they read."""

    SMALL_AS_THEY_ARE = False
    LISTS: ClassVar[dict[str, Published]]  # "train", "test", and what else `name_classes` reads
    ARCHIVES: ClassVar[tuple[Archive, ...]]

    def __init__(self, argument: str | None = None):
        root = data_folder(self.name) if argument is None else named_path(argument)
        self.argument = None if argument is None else str(root)
        again = f"run `cl-bench prepare {self.name}{'' if argument is None else f' --root {root}'}`"
        lists = {side: list_path(self.name, published) for side, published in self.LISTS.items()}
        notes = notes_path(self.name, root)
        if not notes.exists() or not all(path.exists() for path in lists.values()):
            raise InputError(f"{self.name} in {root} has not been prepared; {again}")
        facts = read_notes(notes)
        self._lists = {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in lists.items()}
        for key, path in lists.items():
            if self._lists[key] != (self.LISTS[key].sha256 or facts["lists"].get(key)):
                other = "is not the published list (its sha256 differs)"
                raise InputError(f"{path} {other}; move it away and {again}")
        self._files, self._base = facts["files"], Path(facts["base"])
        self._digest, self._again = facts["digest"], again
        texts = {key: path.read_text(encoding="utf-8") for key, path in lists.items()}
        self._split, self.class_names = self.split(texts), self.name_classes(texts)
        if not self._files.keys() >= {relative for side in self._split.values() for relative, _ in side}:
            raise InputError(f"{self.name} in {root} was prepared for other lists; {again}")
        self._require_sizes()
        self._fingerprints = Fingerprints(self._base)
        self._require_prepared(verify=False)

    def _require_sizes(self) -> None:
        for relative, (length, _) in self._files.items():
            path = self._base / relative
            try:
                found = os.stat(path).st_size
            except OSError:
                raise InputError(f"{path} is missing; put it back or {self._again}") from None
            if found != length:
                sizes = f"{found} bytes, {length} when it was prepared"
                raise InputError(f"{path} has {sizes}; put it back or {self._again}")

    def verify(self) -> None:
        """Read every listed file again."""
        self._require_prepared(verify=True)

    def _require_prepared(self, verify: bool) -> None:
        found = self._fingerprints.digests(list(self._files), verify)
        changed = [relative for relative, (_, digest) in self._files.items() if found[relative] != digest]
        if changed:
            more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
            problem = f"{self._base / changed[0]} has changed since it was prepared{more}"
            raise InputError(f"{problem}; put it back or {self._again}")

    @classmethod
    @abstractmethod
    def split(cls, texts: dict[str, str]) -> dict[str, list[tuple[str, int]]]:
        """(path, beginning with its archive's folder, and class) of every "train" and "test" image."""

    @abstractmethod
    def name_classes(self, texts: dict[str, str]) -> list[str]:
        """Class names in the order of the labels, from the lists' texts."""

    def manifest(self) -> dict:
        """Digests of the split lists and of all listed files' bytes, and how they are decoded."""
        return {
            "lists": self._lists,
            "files": self._digest,
            "decoding": DECODING,
        }

    def labels(self, side: str) -> np.ndarray:
        """Labels in the list's order."""
        return np.array([label for _, label in self._split[side]], np.int64)

    def keys(self, side: str) -> list[str]:
        """Paths in the list's order."""
        return [relative for relative, _ in self._split[side]]

    def opened(self, key: str) -> Image.Image:
        """The image, after its bytes were found to be those that were prepared."""
        return as_published(self._base / key, self._fingerprints.content(key))

    def size(self, key: str) -> tuple[int, int]:
        """(width, height) from the file's header."""
        return size(self._base / key)


def nonempty_lines(text: str) -> Iterator[str]:
    """The lines of a list that say something."""
    return (line.strip() for line in text.splitlines() if line.strip())
