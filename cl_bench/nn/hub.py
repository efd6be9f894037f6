"""Weights from the model hub, through its own client: with progress, and what is wrong in one line."""

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import RemoteEntryNotFoundError
from huggingface_hub.utils import logging
from tqdm import tqdm

from cl_bench import network
from cl_bench.console import download
from cl_bench.errors import DownloadFailed, InputError


def fetch(repository: str, names: tuple[str, ...], backbone: str) -> None:
    """Bring the first of these files that a repository has into the hub's cache, unless one is there.

    Raises DownloadFailed where the hub does not send it, InputError where the cache cannot be written.
    """
    try:
        if not any(isinstance(try_to_load_from_cache(repository, name), str) for name in names):
            _download(repository, names)
    except Exception as error:  # the client raises its own, those of what it connects with, and the system's
        if isinstance(error, OSError) and error.errno in errno.errorcode:
            place = error.filename or constants.HF_HUB_CACHE
            refused = f"cannot use {place} for weights from the hub: {os.strerror(error.errno)}"
            raise InputError(f"{refused}; free space, or name a folder of yours with HF_HOME") from error
        reason, again = _why(error)
        by_hand = (
            f"{again}download {names[0]} from huggingface.co/{repository} and give it with --weights FILE"
        )
        raise DownloadFailed(f"cannot download the weights of {backbone!r} ({reason}); {by_hand}") from error


def _download(repository: str, names: tuple[str, ...]) -> None:
    for name in names[:-1]:
        try:
            _download_file(repository, name)
            return
        except RemoteEntryNotFoundError:
            continue
    _download_file(repository, names[-1])


def _download_file(repository: str, name: str) -> None:
    """A file with progress; what the client says of its own attempts is left to the error at their end."""

    class Bar(_Bar):
        NAME = f"{repository}/{name}"

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with reached():
            hf_hub_download(repository, name, tqdm_class=Bar)
    finally:
        logging.set_verbosity(before)


class _Bar(tqdm):
    """The bar that the hub's client moves, shown as that of any download."""

    NAME = ""

    def __init__(self, *, total: int | None = None, initial: int = 0, **others):
        super().__init__(disable=True, total=total, initial=initial)
        self._shown = ExitStack()
        self._advance = self._shown.enter_context(download(self.NAME, total, initial))

    def update(self, n: float | None = 1) -> None:
        """Count bytes that are in the file."""
        self._advance(int(n or 0))

    def update_transfer(self, n: float) -> None:
        """Bytes on their way, for which some of the client's ways to download would show a second bar."""

    def set_transfer_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """As `update_transfer`."""

    def close(self) -> None:
        """The last of what is shown."""
        self._shown.close()


def unusable(error: Exception, backbone: str) -> InputError:
    """What to say of weights that came and cannot be used, such as a damaged file."""
    said = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
    damaged = f"where their file is damaged, remove it from {constants.HF_HUB_CACHE} and repeat"
    return InputError(
        f"cannot use the weights of {backbone!r} ({reason}); {damaged}, or give others with --weights FILE"
    )


def _why(error: Exception) -> tuple[str, str]:
    """Why something could not be had from the hub, and whether to ask again."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set, and they are not in its cache", ""
    if not network.answers(constants.ENDPOINT):
        return f"{constants.ENDPOINT} does not answer", "repeat later, or "
    code = _status(error)
    if code is None:
        return f"it broke off with {type(error).__name__}", "repeat, or "
    again = "repeat later, or " if network.passes(code) else ""
    return f"{constants.ENDPOINT} answered {network.status(code)}", again


def _status(error: BaseException | None) -> int | None:
    """The code of an answer that is an error, or that is behind one."""
    while error is not None:
        code = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(code, int):
            return code
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def reached() -> Iterator[None]:
    """Inside, what is not in the hub's cache is an error within seconds where the hub does not answer.

    Its client would try again and again, each time with a line.
    """
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not network.answers(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
