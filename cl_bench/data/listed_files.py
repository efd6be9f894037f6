"""Where a data set of listed image files comes from, and what was noted when it was prepared."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cl_bench.data.cache import data_folder
from cl_bench.errors import InputError


@dataclass(frozen=True)
class Published:
    """A file of the data set's split: where it is published and its sha256.

    Without one it is the file's at its first use, see `cl_bench.data.download.fetch_unpublished`.
    """

    url: str
    sha256: str | None = None


@dataclass(frozen=True)
class Archive:
    """An archive of images: where it is published, and the folder it holds."""

    url: str
    folder: str
    digest: str | None = None  # such as "md5:...", where the authors publish one


def own_folder(name: str) -> Path:
    """Where split lists and notes are kept: apart from the images, whose root may be read-only."""
    return data_folder(".prepared") / name


def archives_path(name: str) -> Path:
    """Sizes and digests of files whose digest nobody publishes, as they were at their first use."""
    return own_folder(name) / "archives.json"


def list_path(name: str, published: Published) -> Path:
    return own_folder(name) / published.url.rsplit("/", 1)[1]


def notes_path(name: str, root: Path) -> Path:
    """What was found at a root when it was prepared."""
    return own_folder(name) / f"files-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]}.json"


def read_notes(path: Path) -> dict:
    """ "files": path -> [bytes, sha256], their "base", and the "digest" of them all. Raises InputError.

    "lists": sha256 of the split lists as they were read.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        files = {str(name): [int(found[0]), str(found[1])] for name, found in facts["files"].items()}
        lists = {str(key): str(digest) for key, digest in facts.get("lists", {}).items()}
        return {"files": files, "base": str(facts["base"]), "digest": str(facts["digest"]), "lists": lists}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        reason = f"cannot be read ({type(error).__name__}); remove it and prepare again"
        raise InputError(f"{path}, the notes of what was prepared, {reason}") from error
