"""What lies in the folders of a data set: the images of each class, and what is not used, with the reason."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from PIL import Image

from cl_bench.errors import InputError
from cl_bench.text.user_text import composed, printable

NAMED = 3  # of the entries that are not used, the first ones are named
# of images that Pillow does not read, which are errors to be mended, not files to be skipped
OTHER_SUFFIXES = {
    ".heic", ".heif", ".jxl", ".svg", ".exr", ".hdr", ".dcm",
    ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf",
}  # fmt: skip
NO_IMAGES = ("BUFR", "GRIB", "HDF5", "MPEG", "WMF")  # formats that Pillow recognizes and cannot decode
NESTED = "in a folder below its class"  # images that only `nested` uses


@dataclass
class Side:
    """One side of a data set: the image files of each class, and what is not used."""

    root: Path
    files: dict[str, list[Path]] = field(default_factory=dict)  # by class
    links: int = 0  # how many of the files are reached through links
    skipped: dict[str, list[Path]] = field(default_factory=dict)  # by reason

    def sentence(self) -> str:
        """How much is used, and how much is not and why."""
        count = sum(map(len, self.files.values()))
        linked = f", {self.links} of them through links" if self.links else ""
        left = [f"{len(paths)} {reason} ({self.names(paths)})" for reason, paths in self.skipped.items()]
        count_left = sum(map(len, self.skipped.values()))
        told = f"skipped {count_left}: {', '.join(left)}" if left else "nothing skipped"
        return f"{self.root.name}/: {count} images of {len(self.files)} classes used{linked}; {told}"

    def names(self, paths: list[Path]) -> str:
        """The first of some paths below the side, and how many more there are."""
        first = [printable(path.relative_to(self.root)) for path in paths[:NAMED]]
        return ", ".join([*first, *([f"{len(paths) - NAMED} more"] if len(paths) > NAMED else [])])

    def skip(self, reason: str, path: Path) -> None:
        """Note an entry that is not used."""
        self.skipped.setdefault(reason, []).append(path)


def scan(root: Path, nested: bool) -> Side:
    """The side in a folder: a folder a class, images right in it or, with `nested`, also in folders below.

    Links are followed. Raises InputError for folders that cannot be read, classes without images, classes of
    one name, and, without `nested`, for images in folders below a class.
    """
    side = Side(root)
    try:
        _look_into(side, nested)
    except OSError as error:
        reason = f"{error.strerror}; expected {root}/<class>/* with images"
        raise InputError(f"cannot read {printable(error.filename or root)}: {reason}") from error
    below = side.skipped.get(NESTED)
    if below:
        images = f"{len(below)} images in folders below a class ({side.names(below)})"
        raise InputError(f"{root} has {images}; use them too with folder:PATH?nested, or move them")
    for name, found in side.files.items():
        if not found:
            raise InputError(
                f"class {root / name} is empty; expected at least one image{_skipped(side, name)}"
            )
    return side


def _skipped(side: Side, name: str) -> str:
    """What was skipped of a class, in brackets; "" for nothing."""
    left = []
    for reason, paths in side.skipped.items():
        if any(name in path.parts for path in paths):
            left.append(f"{len(paths)} {reason}")
    return f" (skipped: {', '.join(left)})" if left else ""


def _look_into(side: Side, nested: bool) -> None:
    for entry in sorted(side.root.iterdir()):
        if entry.name.startswith("."):
            side.skip("hidden", entry)
        elif entry.is_symlink() and not entry.exists():
            side.skip("links to nothing", entry)
        elif not entry.is_dir():
            side.skip("outside the classes' folders", entry)
        else:
            name = _class_name(entry, side)
            found = side.files[name] = sorted(_images(entry, nested, side, (entry.resolve(),)))
            side.links += sum(entry.is_symlink() or path.is_symlink() for path in found)


def _class_name(folder: Path, side: Side) -> str:
    """The class that a folder stands for: its name, with accents composed."""
    if printable(folder.name) != folder.name:
        raise InputError(f"the name of the class folder {printable(folder)} is no text in UTF-8; rename it")
    name = composed(folder.name)
    if name in side.files:
        accents = "whose accents are composed in one and not in the other"
        raise InputError(f"{side.root} has two folders called {name!r}, {accents}; rename or join them")
    return name


def _images(folder: Path, nested: bool, side: Side, above: tuple[Path, ...]) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            side.skip("hidden", entry)
        elif entry.is_symlink() and not entry.exists():
            side.skip("links to nothing", entry)
        elif entry.is_dir():
            if (resolved := entry.resolve()) in above:
                side.skip("links to a folder above", entry)
                continue
            found = list(_images(entry, True, side, (*above, resolved)))
            if nested:
                yield from found
            for path in found if not nested else ():
                side.skip(NESTED, path)
            if not found:
                side.skip("folders without images", entry)
        elif not entry.is_file():
            side.skip("neither files nor folders", entry)
        elif _is_image(entry):
            yield entry
        else:
            side.skip("other than images", entry)


@cache
def _suffixes() -> frozenset[str]:
    """Those of image formats, whether Pillow reads them or not."""
    known = Image.registered_extensions()
    read = {suffix for suffix, kind in known.items() if kind in Image.OPEN and kind not in NO_IMAGES}
    return frozenset(read | OTHER_SUFFIXES)


def _is_image(path: Path) -> bool:
    """Whether a file claims to be an image, by its suffix or else by how its content begins."""
    if path.suffix.lower() in _suffixes():
        return True
    try:
        with Image.open(path) as image:
            return image.format not in NO_IMAGES
    except PermissionError:
        raise
    except Exception:  # Pillow's readers raise what they like: this is no image to any of them
        return False


def pairing(sides: dict[str, Side]) -> None:
    """Raises InputError for a class that is on one side only, with one on the other side that is alike."""
    for name, other in zip(sides, reversed(sides), strict=True):
        missing = sorted(set(sides[name].files) - set(sides[other].files))
        if missing:
            alike = next((found for found in sides[other].files if _seen(found) == _seen(missing[0])), None)
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            if alike:
                differs = "which differs in capitals, spaces or look-alike characters only"
                more += f"; {other}/ has {alike!r}, {differs}: rename one"
            lone = f"class {missing[0]!r} is in {name}/ but not in {other}/{more}"
            raise InputError(f"{sides[name].root.parent}: {lone}")


def _seen(name: str) -> str:
    """A name without what is hard to see: capitals, spaces, forms and widths of characters."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(c for c in folded if not c.isspace() and unicodedata.category(c) not in ("Cf", "Cc"))
