"""Downloads and archives: fetched once, verified by digest, resumed where possible, unpacked whole."""

import json
import shutil
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import pooch
import requests
from rich.console import Console
from rich.progress import DownloadColumn, Progress

from cl_bench.console import bar, columns
from cl_bench.errors import UNREADABLE_ARCHIVE, InputError
from cl_bench.files import write_atomically
from cl_bench.text.escape import visible

CHUNK_BYTES = 1 << 16
pooch.get_logger().setLevel("WARNING")


def fetch(url: str, target: Path, digest: str) -> Path:
    """The file at `target`, downloaded from `url` unless it is there; the digest ("md5:...") must be its own.

    A broken download leaves `<target>.part`, from which the next call goes on. Raises InputError with what to
    do by hand.
    """
    algorithm, _, known = digest.partition(":")
    otherwise = f"its {algorithm} is not {known[:12]}..."
    _download(url, target, lambda: pooch.file_hash(str(target), algorithm) == known, otherwise)
    return target


def fetch_unpublished(url: str, target: Path, manifest: Path) -> Path:
    """As `fetch` where no digest is published: the file must be the one that `remember` knows, if any."""
    known = _known(manifest).get(url)
    otherwise = f"size or sha256 differ from those of its first use, in {manifest}"
    _download(url, target, lambda: known is None or _fingerprint(target) == known, otherwise)
    return target


def remember(url: str, target: Path, manifest: Path) -> None:
    """Record size and sha256 of a file that has proved good, at its first use."""
    known = _known(manifest)
    if url not in known:
        manifest.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(manifest, json.dumps({**known, url: _fingerprint(target)}, indent=1).encode())


def _known(manifest: Path) -> dict:
    try:
        return dict(json.loads(manifest.read_text(encoding="utf-8"))) if manifest.exists() else {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = f"cannot be read ({type(error).__name__}); remove it and repeat"
        raise InputError(f"{manifest}, the notes of archives used before, {reason}") from error


def _fingerprint(path: Path) -> dict:
    return {"size": path.stat().st_size, "sha256": pooch.file_hash(str(path))}


def _download(url: str, target: Path, is_right: Callable[[], bool], otherwise: str) -> None:
    try:
        was_there = target.exists()
        if not was_there:
            target.parent.mkdir(parents=True, exist_ok=True)
            resuming = _Resuming(target.with_name(f"{target.name}.part"))
            pooch.retrieve(url, None, fname=target.name, path=target.parent, downloader=resuming)
        if is_right():
            return
        if was_there:
            raise InputError(f"{target} is not the expected file ({otherwise}); move it away and repeat")
        target.unlink()
        raise InputError(f"what {url} sent is not the expected file ({otherwise}); it was not kept")
    except requests.RequestException as error:
        what_to_do = f"repeat to go on, or place the file yourself as {target}"
        raise InputError(f"cannot download {url} ({type(error).__name__}); {what_to_do}") from error
    except OSError as error:
        reason = f"{error.strerror or error}; free space or choose another --root"
        raise InputError(f"cannot write {target}: {reason}") from error


class _Resuming:
    """A pooch downloader that appends to a part file of an earlier attempt when the server sends ranges."""

    def __init__(self, part: Path):
        self._part = part

    def __call__(self, url: str, output_file: str, pooch_: object) -> None:
        have = self._part.stat().st_size if self._part.exists() else 0
        wanted = {"Range": f"bytes={have}-"} if have else {}
        with requests.get(url, stream=True, timeout=60, headers=wanted) as response:
            if response.status_code == 416:  # the part is not a beginning of this file
                self._part.unlink()
                return self(url, output_file, pooch_)
            response.raise_for_status()
            have = have if response.status_code == 206 else 0
            length = response.headers.get("Content-Length")
            total = None if length is None else int(length) + have
            self._write(response, have, total)
        if total is not None and self._part.stat().st_size < total:
            raise requests.ConnectionError(f"{url} ended after {self._part.stat().st_size} of {total} bytes")
        shutil.move(self._part, output_file)

    def _write(self, response: requests.Response, have: int, total: int | None) -> None:
        """Put what comes behind the `have` bytes that are there, with a bar."""
        name = visible(self._part.name.removesuffix(".part"))
        with (
            open(self._part, "ab" if have else "wb") as file,
            Progress(*columns(DownloadColumn()), console=Console(stderr=True)) as bars,
        ):
            task = bars.add_task(name, total=total, completed=have)
            for chunk in response.iter_content(CHUNK_BYTES):
                file.write(chunk)
                bars.advance(task, len(chunk))


def unpack(archive: Path, folder: str, root: Path, members: Collection[str] | None = None) -> Path:
    """`root/folder` from a tar or zip archive, moved into place once it is whole.

    `members` are the paths within the folder that are wanted (None: all). Raises InputError when the archive
    is damaged, lacks one of them or has a member that would leave its folder, and when `root/folder` exists.
    """
    target = root / folder
    if target.exists():
        what_to_do = "move it away and repeat (nothing of yours is deleted)"
        raise InputError(f"{target} exists but is not complete; {what_to_do}")
    partial = root / f".{folder}.{uuid.uuid4().hex[:8]}.partial"
    wanted = None if members is None else {f"{folder}/{member}" for member in members}
    try:
        with bar(f"unpacking {archive.name}", None if wanted is None else len(wanted)) as advance:
            for name, size, extract in _members(archive):
                if name.startswith(f"{folder}/") and (wanted is None or name in wanted):
                    _require_space(archive, name, size, root)
                    extract(partial)
                    advance(1)
        if not (partial / folder).is_dir():
            raise InputError(f"{archive} does not hold a folder {folder!r}")
        missing = sorted(name for name in wanted or () if not (partial / name).is_file())
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            lacking = f"{missing[0]}{more}, which the split lists name"
            raise InputError(f"{archive} lacks {lacking}; it is not the expected archive")
        (partial / folder).rename(target)
    except tarfile.FilterError as error:
        raise InputError(f"{archive} holds an unsafe member and was not unpacked: {error}") from error
    except UNREADABLE_ARCHIVE as error:
        reason = f"{_reason(error)}; remove it and repeat"
        raise InputError(f"{archive} is damaged or not packed as expected: {reason}") from error
    except OSError as error:
        raise InputError(f"cannot unpack {archive} to {root}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _reason(error: Exception) -> str:
    """What is wrong with an archive, in one line, such as a password or compression that its reader lacks."""
    return " ".join(str(error).split()) or type(error).__name__


def _require_space(archive: Path, name: str, size: int, root: Path) -> None:
    """Raises InputError for a member that says of itself that it is larger than what is free."""
    free = shutil.disk_usage(root).free
    if not 0 <= size <= free:
        sizes = f"{size:,} bytes by its header, and {free:,} are free in {root}"
        raise InputError(f"{archive}: {name!r} has {sizes}; free space or remove the archive")


def _members(archive: Path) -> Iterator[tuple[str, int, Callable[[Path], object]]]:
    """(name, bytes, function that extracts it below a folder) of every file; none leaves that folder."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for item in zipped.infolist():
                path = PurePosixPath(item.filename.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts:
                    outside = f"{item.filename!r} is outside the destination"
                    raise InputError(f"{archive} holds an unsafe member and was not unpacked: {outside}")
                if not item.is_dir():
                    yield item.filename, item.file_size, partial(zipped.extract, item)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            safe = tarfile.data_filter(member, "/destination")
            if safe.isfile():
                name = safe.name.removeprefix("./")
                yield name, safe.size, partial(tar.extract, member, filter="data")
