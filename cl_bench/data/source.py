"""The contract of a data set: class names, a manifest that fixes every pixel, and uint8 images."""

import hashlib
from abc import ABC, abstractmethod
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cl_bench.config import Transform, canonical_json
from cl_bench.data.images import ImageSet
from cl_bench.errors import InputError
from cl_bench.text.user_text import short


class Source(ABC):
    """A data set plugin: a file in `datasets/` that sets `SOURCE` to a subclass of this."""

    name: ClassVar[str]
    smoke: ClassVar[bool] = False  # whether its numbers must never be compared with published ones
    TRANSFORM: ClassVar[dict] = {}  # augmentation of its training images, where it differs from none
    # training settings by pattern of method names, such as {"vpt-*": {"passes": 15}}
    PRESET: ClassVar[dict[str, dict]] = {}
    TEMPLATES: ClassVar[tuple[str, ...]] = ("a photo of a {}.",)  # sentences for text towers, {} is the class
    # classes, training and test images, where these are fixed and published
    SIZES: ClassVar[tuple[int, int, int] | None] = None
    class_names: list[str]
    # what names the data on this machine, such as an absolute path; not part of any run id
    argument: str | None = None

    @abstractmethod
    def __init__(self, argument: str | None = None):
        """`argument` is what stands behind the colon in `--dataset NAME:ARGUMENT`."""

    @abstractmethod
    def manifest(self) -> dict:
        """JSON values that change with any pixel, label or split; their digest is part of every run id."""

    @abstractmethod
    def images(self, side: str) -> ImageSet:
        """The "train" or "test" side."""

    def verify(self) -> None:  # noqa: B027 - most data is fixed
        """Read every file again, whatever its time stamps say. Raises InputError for one that has changed."""

    def remarks(self) -> list[str]:
        """Lines to say before images are used: how many there are, what is left out, what was changed."""
        return []

    def evaluated(self, side: str, transform: Transform, image_size: int) -> ImageSet:
        """The side's images for evaluation, in the order of `images`.

        They are the same ones or, where those differ in size, resized and `ready`.
        """
        return self.images(side)

    def labels(self, side: str) -> np.ndarray:
        """The side's labels, without its pixels where they are not at hand."""
        return self.images(side).labels

    def text_names(self) -> list[str]:
        """What the classes are called in a sentence."""
        return [name.replace("_", " ") for name in self.class_names]

    def text_digest(self) -> str:
        """sha256 of what a text tower reads: class names and sentences."""
        return hashlib.sha256(canonical_json([self.text_names(), self.TEMPLATES]).encode()).hexdigest()

    @classmethod
    def preset(cls, method: str) -> dict:
        """The data set's own training settings for a method."""
        found: dict[str, Any] = {}
        for pattern, values in cls.PRESET.items():
            found |= values if fnmatchcase(method, pattern) else {}
        return found

    def default_backbone(self) -> str | None:
        """Name of the backbone used when the user names none."""
        return None

    def manifest_digest(self) -> str:
        """sha256 of the canonical JSON of the manifest."""
        return hashlib.sha256(canonical_json(self.manifest()).encode()).hexdigest()


def named_path(text: str) -> Path:
    """The path that a data set's argument names, absolute. Raises InputError."""
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
        return path
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{short(text)} is no path that can be used: {reason}") from error
