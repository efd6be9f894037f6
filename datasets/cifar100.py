"""CIFAR-100: 100 classes, 500 training and 100 test images each, 32x32 (Krizhevsky 2009).

The images are those of the authors' own archive: `cl-bench prepare cifar100` downloads and verifies it;
`--dataset cifar100:ROOT` reads another place. The training transform is the NSP2 paper's, as its published
code has it: AutoAugment (CIFAR-10 policy, bilinear) on the 32 x 32 image, then a random resized crop of 8 to
100 % of the area (bicubic), no flip; evaluation resizes to the network's size (bicubic).
"""

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cl_bench.data.cache import cached_arrays, data_folder
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.images import ImageSet
from cl_bench.data.source import Source, named_path
from cl_bench.errors import InputError

SUMMARY = "CIFAR-100, the authors' archive; `cl-bench prepare cifar100` first"
URL = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
SHA256 = "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
FOLDER = "cifar-100-python"
# md5 of the unpacked files, the authors' and torchvision's check
MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}


def prepare(root: Path | None, say: Callable[[str], None]) -> None:
    """Make root/cifar-100-python complete: verify it, or unpack the archive, downloaded where missing."""
    from cl_bench.data.download import fetch, unpack  # requests takes a while to import

    root = data_folder("cifar100") if root is None else root
    if (root / FOLDER).exists() and all(_is_whole(root, name) for name in MD5):
        say(f"{root / FOLDER} is complete")
        return
    archive = fetch(URL, root / Path(URL).name, f"sha256:{SHA256}")
    unpack(archive, FOLDER, root, list(MD5))
    for name in MD5:
        _read(root, name)
    say(f"{root / FOLDER} is complete; the archive {archive} is no longer needed")


def _path(root: Path, name: str) -> Path:
    return root / FOLDER / name


def _is_whole(root: Path, name: str) -> bool:
    path = _path(root, name)
    return path.is_file() and hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == MD5[name]


def _other_file(root: Path, name: str) -> InputError:
    other = f"is not the authors' file (its md5 is not {MD5[name][:8]}...)"
    return InputError(f"{_path(root, name)} {other}; move it away and run `cl-bench prepare cifar100`")


def _read(root: Path, name: str) -> dict:
    """The unpickled file, after its md5 was found to be the authors' (pickle runs what it is given)."""
    path = _path(root, name)
    if not path.is_file():
        named = f"name a folder that holds {FOLDER}/ with --dataset cifar100:ROOT"
        raise InputError(f"{path} is missing; run `cl-bench prepare cifar100`, or {named}")
    if not _is_whole(root, name):
        raise _other_file(root, name)
    with open(path, "rb") as file:
        return pickle.load(file, encoding="latin1")


class CIFAR100(Source):
    """Fine labels, in the authors' order."""

    name = "cifar100"
    SIZES = (100, 50_000, 10_000)
    TEMPLATES = tuple(  # 18 sentences, in the published code's order
        f"a {kind}photo of {article} {size}{{}}."
        for article in ("a", "the")
        for kind, size in (
            *(
                (kind, "")
                for kind in (
                    "",
                    "blurry ",
                    "black and white ",
                    "low contrast ",
                    "high contrast ",
                    "bad ",
                    "good ",
                )
            ),
            ("", "small "),
            ("", "big "),
        )
    )
    TRANSFORM = {"augment": "autoaugment-cifar10"}

    def __init__(self, argument: str | None = None):
        self._root = data_folder(self.name) if argument is None else named_path(argument)
        self.argument = None if argument is None else str(self._root)
        self.class_names = list(_read(self._root, "meta")["fine_label_names"])
        self._require_authors(verify=False)

    def verify(self) -> None:
        """Read all three files again."""
        self._require_authors(verify=True)

    def _require_authors(self, verify: bool) -> None:
        found = Fingerprints(self._root / FOLDER, "md5").digests(list(MD5), verify)
        for name, digest in found.items():
            if digest != MD5[name]:
                raise _other_file(self._root, name)

    def manifest(self) -> dict:
        """The md5 of the authors' files."""
        return {"md5": MD5}

    def images(self, side: str) -> ImageSet:
        """50,000 training or 10,000 test images in the file's order."""

        def build() -> dict[str, np.ndarray]:
            data = _read(self._root, side)
            pixels = np.asarray(data["data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            return {
                "images": np.ascontiguousarray(pixels),
                "labels": np.asarray(data["fine_labels"], np.int64),
            }

        arrays = cached_arrays({"source": self.name, "side": side, "md5": MD5[side]}, build)
        return ImageSet(arrays["images"], np.asarray(arrays["labels"]))


SOURCE = CIFAR100
PREPARE = prepare
