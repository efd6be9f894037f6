"""Prepares a data set of listed image files: all is fetched, unpacked, hashed and noted, or verified."""

import hashlib
import json
from collections.abc import Callable, Collection
from pathlib import Path

from cl_bench.config import canonical_json
from cl_bench.data.cache import data_folder
from cl_bench.data.fingerprints import Fingerprints
from cl_bench.data.listed_files import Archive, archives_path, list_path, notes_path, read_notes
from cl_bench.data.listed_images import ListedImages
from cl_bench.errors import InputError
from cl_bench.files import write_atomically


def prepare(source: type[ListedImages], root: Path | None, say: Callable[[str], None]) -> None:
    """Make every listed file present below `root`, and record its size and sha256 or verify them.

    Files are looked for as the archives hold them, and without the archive's own folder; an archive is
    unpacked, and downloaded first, only when they are not there. Raises InputError for whatever is missing or
    has changed.
    """
    root = (data_folder(source.name) if root is None else root).resolve()
    lists = _fetched_lists(source)
    texts = {key: path.read_text(encoding="utf-8") for key, path in lists.items()}
    wanted = dict.fromkeys(relative for side in source.split(texts).values() for relative, _ in side)
    _remember_lists(source, lists)
    base = _base(root, source, wanted)
    if base is None:
        base = root
        for archive in source.ARCHIVES:
            _complete(source.name, archive, root, wanted, say)
    digests = Fingerprints(base).digests(list(wanted), verify=True)
    files = {relative: [(base / relative).stat().st_size, digest] for relative, digest in digests.items()}
    notes = notes_path(source.name, root)
    if notes.exists():
        _require_unchanged(files, notes, root, base)
    digest = hashlib.sha256(canonical_json(files).encode()).hexdigest()
    read = {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in lists.items()}
    facts = {"base": str(base), "digest": digest, "lists": read, "files": files}
    write_atomically(notes, json.dumps(facts).encode())
    say(f"{base} holds all {len(files)} images of {source.name}; digest {digest[:12]}")


def _fetched_lists(source: type[ListedImages]) -> dict[str, Path]:
    """The split lists, downloaded where they are missing, and verified."""
    from cl_bench.data.download import fetch, fetch_unpublished  # requests takes a while to import

    found = {}
    for key, published in source.LISTS.items():
        path = list_path(source.name, published)
        if published.sha256:
            found[key] = fetch(published.url, path, f"sha256:{published.sha256}")
        else:
            found[key] = fetch_unpublished(published.url, path, archives_path(source.name))
    return found


def _remember_lists(source: type[ListedImages], lists: dict[str, Path]) -> None:
    """Note the digests of lists that nobody publishes one of, once they have proved good."""
    from cl_bench.data.download import remember

    for key, published in source.LISTS.items():
        if not published.sha256:
            remember(published.url, lists[key], archives_path(source.name))


def _base(root: Path, source: type[ListedImages], wanted: Collection[str]) -> Path | None:
    """The folder that every listed file lies below: `root`, or its parent where it is an archive's folder."""
    candidates = [root] + [root.parent for archive in source.ARCHIVES if root.name == archive.folder]
    whole = (base for base in candidates if all((base / relative).is_file() for relative in wanted))
    return next(whole, None)


def _complete(
    name: str, archive: Archive, root: Path, wanted: Collection[str], say: Callable[[str], None]
) -> None:
    """Unpack an archive, downloaded first if need be, unless all listed files of its folder are there."""
    from cl_bench.data.download import fetch, fetch_unpublished, remember, unpack

    inside = f"{archive.folder}/"
    members = [relative.removeprefix(inside) for relative in wanted if relative.startswith(inside)]
    if all((root / archive.folder / member).is_file() for member in members):
        return
    target, manifest = root / archive.url.rsplit("/", 1)[1], archives_path(name)
    if archive.digest:
        fetch(archive.url, target, archive.digest)
    else:
        fetch_unpublished(archive.url, target, manifest)
    unpack(target, archive.folder, root, members)
    remember(archive.url, target, manifest)
    say(f"{root / archive.folder} is unpacked; the archive {target} is no longer needed")


def _require_unchanged(files: dict[str, list], notes: Path, root: Path, base: Path) -> None:
    """Raises InputError where files are not what they were when they were first prepared."""
    known = read_notes(notes)["files"]
    changed = [relative for relative, found in files.items() if known.get(relative) != found]
    if changed:
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        problem = f"{base / changed[0]} is not what it was when {root} was first prepared{more}"
        raise InputError(f"{problem}; put it back, or remove {notes} to accept it")
