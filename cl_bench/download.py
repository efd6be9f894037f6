"""Downloads and archives: fetched once, verified by digest, resumed where the server allows it, unpacked whole or not at all."""

import shutil
import tarfile
import uuid
from pathlib import Path

import pooch
import requests
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from cl_bench.errors import InputError

CHUNK_BYTES = 1 << 20


def fetch(url: str, target: Path, sha256: str) -> Path:
    """The file at `target`, downloaded from `url` unless it is there already; its sha256 is checked either way.

    A broken download leaves `<target>.part`, from which the next call goes on. Raises InputError with what to do by hand.
    """
    try:
        if target.exists():
            if pooch.file_hash(str(target)) != sha256:
                raise InputError(f"{target} is not the expected file (its sha256 is not {sha256[:12]}...); move it away and repeat")
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        pooch.retrieve(url, f"sha256:{sha256}", fname=target.name, path=target.parent, downloader=_Resuming(target.with_name(f"{target.name}.part")))
    except requests.RequestException as error:
        raise InputError(f"cannot download {url} ({type(error).__name__}); repeat to go on, or place the file yourself as {target}") from error
    except ValueError as error:  # pooch's word for another digest; it has removed the file
        raise InputError(f"what {url} sent is not the expected file (its sha256 is not {sha256[:12]}...); it was not kept") from error
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}; free space or choose another --root") from error
    return target


class _Resuming:
    """A pooch downloader that appends to a part file of an earlier attempt when the server sends ranges."""

    def __init__(self, part: Path):
        self._part = part

    def __call__(self, url: str, output_file: str, pooch_: object) -> None:
        have = self._part.stat().st_size if self._part.exists() else 0
        with requests.get(url, stream=True, timeout=60, headers={"Range": f"bytes={have}-"} if have else {}) as response:
            if response.status_code == 416:  # the part is not a beginning of this file
                self._part.unlink()
                return self(url, output_file, pooch_)
            response.raise_for_status()
            resumed = response.status_code == 206
            length = response.headers.get("Content-Length")
            total = None if length is None else int(length) + (have if resumed else 0)
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            with open(self._part, "ab" if resumed else "wb") as file, Progress(*columns) as bars:
                bar = bars.add_task(self._part.name.removesuffix(".part"), total=total, completed=have if resumed else 0)
                for chunk in response.iter_content(CHUNK_BYTES):
                    file.write(chunk)
                    bars.advance(bar, len(chunk))
        if total is not None and self._part.stat().st_size < total:
            raise requests.ConnectionError(f"{url} ended after {self._part.stat().st_size} of {total} bytes")
        shutil.move(self._part, output_file)


def unpack_tar(archive: Path, folder: str, root: Path) -> Path:
    """`root/folder` from the archive, moved into place once it is whole; members that would leave it are refused.

    Raises InputError when the archive is damaged, unsafe, or does not hold the folder, and when `root/folder` exists.
    """
    target = root / folder
    if target.exists():
        raise InputError(f"{target} exists but is not complete; move it away and repeat (nothing of yours is deleted)")
    partial = root / f".{folder}.{uuid.uuid4().hex[:8]}.partial"
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
        if not (partial / folder).is_dir():
            raise InputError(f"{archive} does not hold a folder {folder!r}")
        (partial / folder).rename(target)
    except tarfile.FilterError as error:
        raise InputError(f"{archive} holds an unsafe member and was not unpacked: {error}") from error
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{archive} is damaged: {error}; remove it and repeat") from error
    except OSError as error:
        raise InputError(f"cannot unpack {archive} to {root}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
