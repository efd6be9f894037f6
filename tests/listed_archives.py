"""Noisy pictures and archives of them, in the formats of ImageNet-R and DomainNet-200."""

import hashlib
import io
import tarfile
import zipfile

import toys
from PIL import Image

from cl_bench.data.listed_files import Published


def picture(c: int, number: int) -> Image.Image:
    """A noisy picture whose size depends on its number: wide, tall, large and small ones."""
    width, height = ((40, 30), (30, 44), (500, 300), (260, 410))[number % 4]
    tile = toys.images(1, 4, 100 * c + number, 32).images[c]
    return Image.fromarray(tile).resize((width, height), Image.Resampling.NEAREST)


def content(c: int, number: int) -> bytes:
    buffer = io.BytesIO()
    picture(c, number).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def published(served, path: str, text: str) -> Published:
    served[path] = text.encode()
    return Published(served.url + path, hashlib.sha256(text.encode()).hexdigest())


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


def quiet(line: str) -> None:
    pass
