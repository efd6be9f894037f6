"""A server on the loopback address that sends what a test gives it, breaks off or refuses."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Served(dict):
    """What it has, by path (bytes, or what makes them when they are first asked for), and what was asked for.

    Paths in `cut` break off at half unless a range is asked for, those in `dead` at half of what is left.
    Others ignore ranges, are compressed for whoever accepts that, or are answered with a status; `headers`
    are sent besides, of missing paths too.
    """

    def __init__(self):
        super().__init__()
        self.requests: list[tuple[str, str | None]] = []  # GETs, with their ranges
        self.cut: set[str] = set()
        self.dead: set[str] = set()
        self.without_ranges: set[str] = set()
        self.compressed: set[str] = set()
        self.status: dict[str, int] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.url = ""

    def content(self, path: str) -> bytes:
        found = self[path]
        if isinstance(found, Callable):
            found = self[path] = found()
        return found

    def code(self, path: str) -> int:
        """What a request for all of a path is answered with."""
        return self.status.get(path, 200 if path in self else 404)


class Handler(BaseHTTPRequestHandler):
    served: Served

    def do_HEAD(self):
        if self._answered_otherwise():
            return
        self._begin(200, {"Content-Length": str(len(self.served.content(self.path)))})

    def do_GET(self):
        served, asked = self.served, self.headers.get("Range")
        served.requests.append((self.path, asked))
        if self._answered_otherwise():
            return
        content = served.content(self.path)
        if self.path in served.compressed and "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content)
            served.headers[self.path] = {"Content-Encoding": "gzip"}
        ranged = asked is not None and self.path not in served.without_ranges
        start = int(asked.removeprefix("bytes=").rstrip("-")) if ranged else 0
        if start and start >= len(content):
            return self._begin(416, {"Content-Range": f"bytes */{len(content)}", "Content-Length": "0"})
        headers = {"Content-Length": str(len(content) - start)}
        if ranged:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._begin(206 if ranged else 200, headers)
        end = None
        if self.path in served.dead or (self.path in served.cut and not asked):
            end = (start + len(content)) // 2
        self.wfile.write(content[start:end])

    def _answered_otherwise(self) -> bool:
        status = self.served.code(self.path)
        if status == 200:
            return False
        self._begin(status, {"Content-Length": "0"})
        return True

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, **self.served.headers.get(self.path, {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@contextmanager
def serve() -> Iterator[Served]:
    served = Served()
    running = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"served": served}))
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    served.url = f"http://127.0.0.1:{running.server_port}"
    yield served
    running.shutdown()
    running.server_close()
