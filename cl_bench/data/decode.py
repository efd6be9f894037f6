"""Image files to uint8 arrays, in as many threads as the process has cores; damaged files are named.

`as_seen` is the one convention for images of unknown origin, under the name `CONVENTION`: turned as EXIF
says; transparency over white; gray of more than 8 bits scaled by the bits that are used; the first of several
frames; CMYK and the like as Pillow converts them, without color profiles. What cannot be known, or would
vanish, is refused. `as_published` is what published code does with its own images.
"""

import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from cl_bench.console import bar
from cl_bench.devices import cores
from cl_bench.errors import InputError

CONVENTION = "as seen, 1"  # raise it when the same file is seen otherwise
LARGEST = 200_000_000  # pixels of one image
Image.MAX_IMAGE_PIXELS = LARGEST
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # such images are refused
CHUNK = 256  # images decoded before they are handed on: bounds the memory
ORIENTATION = 0x0112  # EXIF
BIT_DEPTHS = (8, 10, 12, 14, 16)  # of sensors and the files they write
# what may have been done to an image so that it is as seen, in the bits of a number
FEATURES = (
    "turned as EXIF says",
    "laid over white",
    "scaled from more than 8 bits",
    "the first of several frames",
    "converted from CMYK",
)
TURNED, OVER_WHITE, DEEP, FIRST_FRAME, CMYK = (1 << place for place in range(len(FEATURES)))
NO_WHITE = "of which none is known to be white; save it with 8 or 16 bits"


@dataclass(frozen=True)
class Measure:
    """What an image set must know of a file before decoding it."""

    size: tuple[int, int]  # (width, height) as seen
    bits: int = 8  # that its gray values use


def in_threads(function: Callable, items: Sequence, description: str | None) -> Iterator:
    """`function` of each item, in order, with progress where there is a description."""
    shown = bar(description, len(items)) if description else nullcontext(lambda count: None)
    with ThreadPoolExecutor(len(cores())) as pool, shown as advance:
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
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):
            reason = "Pillow knows no such format"
        raise InputError(f"cannot read image {path}: {reason}; repair, convert or remove it") from error


@contextmanager
def opened(path: Path, content: bytes | None = None) -> Iterator[ImageFile.ImageFile]:
    """The image before its pixels are read; `content` are the file's bytes where they are known already."""
    with readable(path), Image.open(path if content is None else io.BytesIO(content)) as image:
        if image.width * image.height > LARGEST:
            pixels = f"{image.width} x {image.height} pixels, more than {LARGEST:,}"
            raise InputError(f"{path} says that it has {pixels}; scale it down or remove it")
        yield image


def size(path: Path) -> tuple[int, int]:
    """(width, height) from the file's header."""
    with opened(path) as image:
        return image.size


def as_published(path: Path, content: bytes | None = None) -> Image.Image:
    """As `Image.open(path).convert("RGB")` of published code: EXIF is ignored, transparency dropped."""
    with opened(path, content) as image:
        return image.convert("RGB")


def measure(path: Path, content: bytes | None = None) -> Measure:
    """Size and depth as `as_seen` will find them, from the header where that tells. Raises InputError."""
    with opened(path, content) as image:
        if content is None:
            content = path.read_bytes() if image.format == "PNG" and image.width != image.height else b""
        turned = image.width != image.height and _is_turned(image, content)
        bits = _bits_used(path, image) if _is_deep(image) else 8
        return Measure(ImageOps.exif_transpose(image).size if turned else image.size, bits)


def as_seen(path: Path, content: bytes, bits: int) -> tuple[Image.Image, int]:
    """The image as RGB, as a person sees it, and what was done for that (a number whose bits are `FEATURES`).

    `bits` is the depth of gray values of more than 8 bits: the largest of the image set. Raises InputError.
    """
    with opened(path, content) as file:
        image: Image.Image = file
        done = FIRST_FRAME if getattr(image, "is_animated", False) else 0
        if done:
            image.seek(0)
        turned = _is_turned(image, content)
        # Pillow keeps the upper 8 of 16 bits a color
        upper_half = image.mode in ("RGB", "RGBA", "CMYK") and ";16" in str(file.tile)
        image.load()
        if turned:
            image, done = ImageOps.exif_transpose(image), done | TURNED
        if _is_deep(image):
            image, done = _shallow(path, image, bits), done | DEEP
        elif upper_half:
            _require_full_range(path, image)
            done |= DEEP
        if _is_transparent(image):
            layered = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
            done |= OVER_WHITE if _extrema(layered)[3][0] < 255 else 0
            return _over_white(path, layered), done
        return image.convert("RGB"), done | (CMYK if image.mode == "CMYK" else 0)


def _is_turned(image: Image.Image, content: bytes) -> bool:
    """Whether EXIF says so. Pillow decodes a PNG to look for it, which is spared where there is none."""
    if image.format == "PNG" and not any(mark in content for mark in (b"eXIf", b"exif", b"adobe.xmp")):
        return False
    return image.getexif().get(ORIENTATION, 1) in range(2, 9)


def _tiff_tags(image: Image.Image) -> Mapping[int, Any]:
    """The tags of a TIFF file; of others, and of images that were made of one, there are none."""
    return getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}


def _extrema(image: Image.Image) -> tuple[tuple[int, int], ...]:
    """Lowest and highest value of every band, of which there are several."""
    return cast(tuple[tuple[int, int], ...], image.getextrema())


def _is_deep(image: Image.Image) -> bool:
    return image.mode.startswith(("I", "F"))


def _gray(path: Path, image: Image.Image) -> np.ndarray:
    """Gray values of more than 8 bits. Raises InputError where it is not known which of them is white."""
    if image.mode == "F":
        raise InputError(f"{path} has floating-point values, {NO_WHITE}")
    if "transparency" in image.info or _tiff_tags(image).get(262) == 0:
        unusual = "16-bit gray values with a transparent one or with white as 0"
        raise InputError(f"{path} has {unusual}; save it with 8 bits")
    values = np.asarray(image)
    if values.min() < 0 or values.max() >= 1 << 16:
        raise InputError(f"{path} has values from {values.min()} to {values.max()}, {NO_WHITE}")
    return values


def _bits_used(path: Path, image: Image.Image) -> int:
    """The smallest usual depth that holds an image's gray values, or the one that its file names."""
    values = _gray(path, image)
    if image.format in ("PPM", "JPEG2000"):  # Pillow has scaled them to 16 bits by the file's own maximum
        return 16
    needed = next(bits for bits in BIT_DEPTHS if values.max() < 1 << bits)
    named = _tiff_tags(image).get(258, (0,))[0]
    return max(needed, named if named < 16 else 0)


def _shallow(path: Path, image: Image.Image, bits: int) -> Image.Image:
    return Image.fromarray((_gray(path, image) >> (bits - 8)).astype(np.uint8))


def _require_full_range(path: Path, image: Image.Image) -> None:
    highest = [high for _, high in _extrema(image)]
    # a shape in the alpha channel alone may be black
    ink_alone = image.mode == "RGBA" and not any(highest[:3]) and highest[3] >= 64
    if max(highest[:3]) < 64 and not ink_alone:
        few = "16-bit colors that use 14 bits or fewer, of which Pillow keeps the upper 8"
        raise InputError(f"{path} has {few}; save it with 8 bits a color")


def _is_transparent(image: Image.Image) -> bool:
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        return True
    return image.mode == "P" and image.palette is not None and image.palette.mode.endswith("A")


def _over_white(path: Path, layered: Image.Image) -> Image.Image:
    """The image laid over white. Raises InputError where all that it shows vanishes there."""
    seen = Image.alpha_composite(Image.new("RGBA", layered.size, "white"), layered).convert("RGB")
    if _is_even(seen) and not _is_even(layered):
        what_to_do = "lay it over another color and save it without transparency"
        raise InputError(f"{path} shows nothing over white, where transparent images are laid; {what_to_do}")
    return seen


def _is_even(image: Image.Image) -> bool:
    return all(low == high for low, high in _extrema(image))


def stream_npy(path: Path, shape: tuple[int, ...], arrays: Iterable[np.ndarray]) -> None:
    """Write uint8 arrays one after the other as one .npy file of the given shape, holding one at a time."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        start = file.tell()
        for array in arrays:
            file.write(np.ascontiguousarray(array).data)
        if file.tell() - start != np.prod(shape):
            raise ValueError(f"{file.tell() - start} bytes written, expected {np.prod(shape)}")
        file.flush()
        os.fsync(file.fileno())
