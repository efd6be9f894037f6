"""Without the hub an answer comes within seconds and without noise; its cache is used as ever."""

import socket
import time

import pytest
from huggingface_hub import constants

from cl_bench.config import BackboneSpec
from cl_bench.errors import InputError
from cl_bench.nn import hub, load


@pytest.fixture
def closed(monkeypatch):
    """A hub at an address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.delenv("http_proxy", raising=False)
    return endpoint


@pytest.mark.parametrize("name", ["vit_base_patch16_224.augreg_in21k", "open_clip:ViT-B-32/laion400m_e32"])
def test_a_backbone_that_cannot_be_had_is_told_within_seconds(closed, name, capfd):
    half = (0.5, 0.5, 0.5)
    start = time.monotonic()
    with pytest.raises(InputError, match=f"cannot download .* [(]{closed} does not answer[)]; download "):
        load.load(BackboneSpec(name=name, image_size=224, mean=half, std=half))
    assert time.monotonic() - start < 20  # most of which is the network itself
    assert "retry" not in capfd.readouterr().err.lower()
    assert not constants.HF_HUB_OFFLINE


def test_a_hub_that_listens_is_asked(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.delenv("http_proxy", raising=False)
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        with hub.reached():
            assert not constants.HF_HUB_OFFLINE
        assert hub.reason(KeyError()) == "KeyError"


def test_a_proxy_stands_for_the_hub(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert hub.answers("https://hub.invalid")
    assert hub.answers("https://hub.invalid")  # it is asked once


def test_whoever_is_offline_stays_so(monkeypatch, closed):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with hub.reached():
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE
