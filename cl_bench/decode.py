"""Image files to uint8 arrays, in as many threads as the process has cores; damaged files are named."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from cl_bench.bars import bar
from cl_bench.errors import InputError
from cl_bench.places import cores

Image.MAX_IMAGE_PIXELS = 200_000_000
CHUNK = 256  # images decoded before they are handed on: bounds the memory


def in_threads(function: Callable, items: Sequence, description: str) -> Iterator:
    """`function` of each item, in order, with progress."""
    with ThreadPoolExecutor(len(cores())) as pool, bar(description, len(items)) as advance:
        for start in range(0, len(items), CHUNK):
            part = items[start : start + CHUNK]
            yield from pool.map(function, part)
            advance(len(part))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns whatever Pillow raises on a damaged file into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # Pillow's readers raise what they like
        raise InputError(f"cannot read image {path}: {' '.join(str(error).split())}; repair or remove it") from error


def size(path: Path) -> tuple[int, int]:
    """(width, height) from the file's header."""
    with readable(path), Image.open(path) as image:
        return image.size


def rgb(path: Path, content: bytes | None = None) -> Image.Image:
    """The image as RGB; `content` are the file's bytes where they have been read already."""
    with readable(path), Image.open(path if content is None else io.BytesIO(content)) as image:
        if image.mode.startswith("I;16"):  # Pillow would clip 16-bit grey to white
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        return image.convert("RGB")


def stream_npy(path: Path, shape: tuple[int, ...], arrays: Iterable[np.ndarray]) -> None:
    """Write uint8 arrays one after the other as one .npy file of the given shape, without holding more than one of them."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        start = file.tell()
        for array in arrays:
            file.write(np.ascontiguousarray(array).data)
        if file.tell() - start != np.prod(shape):
            raise ValueError(f"{file.tell() - start} bytes written, expected {np.prod(shape)}")
        file.flush()
        os.fsync(file.fileno())
