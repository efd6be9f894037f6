"""Data sets in numbers alone, as they are published: for plans where their images are not at hand."""

import numpy as np

from cl_bench.data.images import ImageSet
from cl_bench.data.source import Source
from cl_bench.errors import InputError


def declared(kind: type[Source]) -> Source:
    """A data set of as many images as it is published to have, spread evenly over its classes.

    Of other data sets nothing is known without their images.
    """
    assert kind.SIZES is not None
    classes, *counts = kind.SIZES
    sides = dict(zip(("train", "test"), counts, strict=True))

    class Declared(kind):  # type: ignore[valid-type, misc]
        """Labels without images."""

        def __init__(self, argument: str | None = None):
            self.class_names, self.argument = [f"class {index + 1}" for index in range(classes)], argument

        def manifest(self) -> dict:
            return {"declared": kind.SIZES}

        def labels(self, side: str) -> np.ndarray:
            return np.arange(sides[side]) % classes

        def images(self, side: str) -> ImageSet:
            raise InputError(f"{kind.name} is declared, and has no images")

        def remarks(self) -> list[str]:
            both = " and ".join(f"{count:,} {side}" for side, count in sides.items())
            return [f"declared: {kind.name} has {both} images, taken as spread evenly over {classes} classes"]

    return Declared()
