"""The model hub, asked once whether it answers: where it does not, its client uses its cache at once."""

import functools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from huggingface_hub import constants

SECONDS = 5.0
PORTS = {"http": 80, "https": 443}


@contextmanager
def reached() -> Iterator[None]:
    """Inside, what is not in the hub's cache is an error within seconds where the hub does not answer.

    Its client would try again and again, each time with a line.
    """
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not answers(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def reason(error: Exception) -> str:
    """Why something could not be had from the hub, in a few words."""
    if not constants.HF_HUB_OFFLINE and not answers(constants.ENDPOINT):
        return f"{constants.ENDPOINT} does not answer"
    return type(error).__name__


@functools.cache
def answers(endpoint: str) -> bool:
    """Whether something takes a connection at an address, or at the proxy that stands before it."""
    address = urlsplit(endpoint)
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    found = threading.Event()

    def connect() -> None:
        try:
            port = address.port or PORTS.get(address.scheme, 443)
            socket.create_connection((address.hostname or "", port), SECONDS).close()
            found.set()
        except OSError:
            pass

    asking = threading.Thread(target=connect, daemon=True)  # looking up a name has no time limit
    asking.start()
    asking.join(SECONDS)
    return found.is_set()
