"""Whether a server takes connections is known within seconds."""

import socket
import time

import pytest

from cl_bench import network


@pytest.fixture
def closed() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_closed_port_and_a_name_that_nobody_has_are_known_within_seconds(closed):
    start = time.monotonic()
    assert not network.answers(closed) and not network.answers("https://hub.invalid/some/file")
    assert time.monotonic() - start < 2 * network.SECONDS + 1


def test_what_listens_is_asked_once_in_a_while(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/file"
        assert network.answers(url)
    assert network.answers(url)
    monkeypatch.setattr(network, "ASKED_AGAIN_AFTER", 1e-6)
    assert not network.answers(url)


def test_a_proxy_stands_for_the_server(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert network.answers("https://proxied.invalid")


def test_a_refusal_has_its_words_and_only_some_pass():
    assert [network.status(code) for code in (404, 503, 521)] == [
        "404 Not Found",
        "503 Service Unavailable",
        "521",
    ]
    assert [network.passes(code) for code in (404, 403, 429, 503, 521)] == [False, False, True, True, True]
