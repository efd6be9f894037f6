"""Whether a server takes connections, asked before anything waits for it, and what its refusals mean."""

import functools
import socket
import threading
import time
from http.client import REQUEST_TIMEOUT, TOO_MANY_REQUESTS, responses
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

SECONDS = 5.0
ASKED_AGAIN_AFTER = 60.0  # seconds
PORTS = {"http": 80, "https": 443}


def answers(url: str) -> bool:
    """Whether something takes a connection where a URL points, or at the proxy that stands before it.

    It is known within `SECONDS`, and asked at most once in `ASKED_AGAIN_AFTER` seconds.
    """
    address = urlsplit(url)
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = address.port or PORTS.get(address.scheme, 443)
    return _takes(address.hostname or "", port, int(time.monotonic() / ASKED_AGAIN_AFTER))


@functools.cache
def _takes(host: str, port: int, period: int) -> bool:
    """Whether a port takes a connection, asked once in a period."""
    found = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection((host, port), SECONDS).close()
            found.set()
        except OSError:
            pass

    asking = threading.Thread(target=connect, daemon=True)  # looking up a name has no time limit
    asking.start()
    asking.join(SECONDS)
    return found.is_set()


def status(code: int) -> str:
    """Such as "404 Not Found"."""
    return f"{code} {responses.get(code, '')}".strip()


def passes(code: int) -> bool:
    """Whether the same request may be answered later."""
    return code >= 500 or code in (REQUEST_TIMEOUT, TOO_MANY_REQUESTS)
