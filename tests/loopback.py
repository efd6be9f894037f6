"""A server on the loopback address that sends what a test gives it, breaks off, or ignores ranges."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Served(dict):
    """What it has, by path, and what was asked for.

    Paths break off at half unless a range is asked for, or ignore ranges.
    """

    def __init__(self):
        super().__init__()
        self.requests: list[tuple[str, str | None]] = []
        self.cut: set[str] = set()
        self.without_ranges: set[str] = set()
        self.url = ""


@contextmanager
def serve():
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            served.requests.append((self.path, asked))
            if self.path not in served:
                self.send_error(404)
                return
            content = served[self.path]
            start = (
                int(asked.removeprefix("bytes=").rstrip("-"))
                if asked and self.path not in served.without_ranges
                else 0
            )
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(
                content[start : len(content) // 2 if self.path in served.cut and not start else None]
            )

        def log_message(self, *arguments):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    served.url = f"http://127.0.0.1:{running.server_port}"
    yield served
    running.shutdown()
    running.server_close()
