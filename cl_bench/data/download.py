"""Downloads and archives: fetched once, verified by digest, resumed where possible, unpacked whole."""

import hashlib
import json
import os
import shutil
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterator
from functools import partial
from http.client import PARTIAL_CONTENT, REQUESTED_RANGE_NOT_SATISFIABLE
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import requests

from cl_bench import network
from cl_bench.console import bar, download, size
from cl_bench.errors import UNREADABLE_ARCHIVE, DownloadFailed, InputError
from cl_bench.files import write_atomically

CHUNK_BYTES = 1 << 16
BROKE = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
SILENCE_SECONDS = 60.0  # that a server which answered may take for the next bytes


def fetch(url: str, target: Path, digest: str) -> Path:
    """The file at `target`, downloaded from `url` unless it is there; the digest ("md5:...") must be its own.

    A broken download leaves `<target>.part`, from which the next call goes on. Raises InputError with what to
    do by hand.
    """
    algorithm, _, known = digest.partition(":")
    otherwise = f"its {algorithm} is not {known[:12]}..."
    _download(url, target, lambda: _digest(target, algorithm) == known, otherwise)
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
    return {"size": path.stat().st_size, "sha256": _digest(path, "sha256")}


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _download(url: str, target: Path, is_right: Callable[[], bool], otherwise: str) -> None:
    part = target.with_name(f"{target.name}.part")
    try:
        was_there = target.exists()
        if not was_there:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(url, part)
            os.replace(part, target)
        if is_right():
            return
        if was_there:
            raise InputError(f"{target} is not the expected file ({otherwise}); move it away and repeat")
        target.unlink()
        sent = f"what {url} sent is not the expected file ({otherwise}) and was not kept"
        raise DownloadFailed(f"{sent}; repeat, or place the file yourself as {target}")
    except requests.RequestException as error:
        reason, again = _why(error, url, part)
        what_to_do = f"{again}place the file yourself as {target}"
        raise DownloadFailed(f"cannot download {url} ({reason}); {what_to_do}") from error
    except OSError as error:
        what_to_do = "free space, or choose another folder with --root or $CL_BENCH_DATA"
        raise InputError(f"cannot write {target}: {error.strerror or error}; {what_to_do}") from error


def _why(error: requests.RequestException, url: str, part: Path) -> tuple[str, str]:
    """Why a download failed, and whether to ask again."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        code = error.response.status_code
        again = "repeat later, or " if network.passes(code) else ""
        return f"the server answered {network.status(code)}", again
    if not network.answers(url):
        return f"{urlsplit(url).netloc} does not answer", "repeat to go on, or "
    broke = isinstance(error, BROKE) and not isinstance(error, requests.exceptions.SSLError)
    reason = "the connection broke" if broke else type(error).__name__
    have = part.stat().st_size if part.exists() else 0
    there = f", {size(have)} are kept in {part.name}" if have else ""
    return reason + there, "repeat to go on, or "


def _fetch(url: str, part: Path) -> None:
    """Make a part file of earlier attempts whole, going on at its end where the server sends ranges."""
    if not network.answers(url):
        raise requests.ConnectionError(url)
    have = part.stat().st_size if part.exists() else 0
    wanted = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    timeout = (network.SECONDS, SILENCE_SECONDS)
    with requests.get(url, stream=True, timeout=timeout, headers=wanted) as response:
        if have and response.status_code == REQUESTED_RANGE_NOT_SATISFIABLE:
            if response.headers.get("Content-Range") == f"bytes */{have}":
                return  # all of it is there
            part.unlink()  # it is no beginning of this file
            return _fetch(url, part)
        response.raise_for_status()
        have = have if response.status_code == PARTIAL_CONTENT else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else int(length) + have
        with (
            open(part, "ab" if have else "wb") as file,
            download(part.name.removesuffix(".part"), total, have) as advance,
        ):
            for chunk in response.iter_content(CHUNK_BYTES):
                file.write(chunk)
                advance(len(chunk))
    if total is not None and part.stat().st_size < total:
        raise requests.ConnectionError(f"{url} ended after {part.stat().st_size} of {total} bytes")


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
