"""Weights come from a hub through its own client, on a server of one's own, or an answer says why not."""

import time

import hub_server
import loopback
import pytest
import torch
import users
from huggingface_hub import constants, file_download
from safetensors.torch import load
from toys import equal

from cl_bench.config import BackboneSpec
from cl_bench.errors import DownloadFailed, InputError
from cl_bench.nn import load as backbones

NAME = "test_vit.r160_in1k"
CLIP = "open_clip:ViT-B-32/laion400m_e32"
HALF = (0.5, 0.5, 0.5)


def loaded(name: str = NAME) -> dict[str, torch.Tensor]:
    return backbones.load(BackboneSpec(name=name, image_size=160, mean=HALF, std=HALF)).vit.state_dict()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def hub(cache, monkeypatch):
    """A hub with the smallest of timm's networks, whose client forgets what it waits for."""
    with loopback.serve() as served:
        hub_server.point(monkeypatch, served.url, cache)
        served.path = hub_server.publish_timm(served, NAME)
        yield served


@pytest.fixture
def at_once(monkeypatch):
    """What waits before it tries again does not."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def published(hub) -> dict[str, torch.Tensor]:
    return {key: value for key, value in load(hub.content(hub.path)).items() if not key.startswith("head.")}


def test_weights_are_those_of_the_repository_and_asked_for_once(hub, capfd):
    found = loaded()
    assert equal(found, published(hub)) and found.keys() == published(hub).keys()
    assert capfd.readouterr().err == f"downloading timm/{NAME}/model.safetensors (1.49 MB)\n"
    loaded()
    assert [path for path, _ in hub.requests if path == hub.path] == [hub.path]
    assert capfd.readouterr().err == ""


def test_on_a_terminal_a_bar_shows_the_time_left(hub, monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    loaded()
    assert f"timm/{NAME}/model.safetensors" in (shown := capfd.readouterr().err) and "1.5/1.5 MB" in shown


def test_a_download_that_breaks_off_goes_on_where_it_stopped(hub, monkeypatch, at_once):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
    hub.cut.add(hub.path)
    assert equal(loaded(), published(hub))
    half = len(hub.content(hub.path)) // 2
    assert [asked for path, asked in hub.requests if path == hub.path] == [None, f"bytes={half >> 16 << 16}-"]


def test_a_hub_that_ignores_ranges_sends_all_of_it_again(hub, monkeypatch, at_once):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
    hub.without_ranges.add(hub.path)
    hub.cut.add(hub.path)
    assert equal(loaded(), published(hub))
    assert [asked is None for path, asked in hub.requests if path == hub.path] == [True, False]


def test_a_connection_that_breaks_again_and_again_is_one_line(hub, at_once, capfd):
    hub.dead.add(hub.path)
    again = "repeat, or download model.safetensors from huggingface.co/timm/test_vit"
    with pytest.raises(DownloadFailed, match=rf"[(]it broke off with \w+[)]; {again}") as error:
        loaded()
    assert "\n" not in str(error.value) and len(capfd.readouterr().err.splitlines()) == 1
    hub.dead.clear()
    assert equal(loaded(), published(hub))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "answered 404 Not Found[)]; download model.safetensors from "),
        (403, "answered 403 Forbidden[)]; download model.safetensors from "),
        (503, "answered 503 Service Unavailable[)]; repeat later, or download model.safetensors from "),
    ],
)
def test_what_the_hub_refuses_with_is_said_in_one_line(hub, at_once, capfd, status, message):
    hub.status[hub.path] = status
    with pytest.raises(DownloadFailed, match=f"cannot download the weights .* [(]{hub.url} {message}"):
        loaded()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("status", [403, 503])
def test_a_hub_that_refuses_keeps_nobody_from_the_cache(hub, at_once, status):
    loaded()
    hub.status[hub.path] = status
    assert equal(loaded(), published(hub))


def test_a_checkpoint_without_safetensors_is_had_as_timm_would(hub):
    state = published(hub)
    repository = f"timm/{NAME}"
    buffer = hub_server.pickled(state)
    hub.clear()
    hub_server.publish(hub, repository, {"pytorch_model.bin": buffer}, absent=("model.safetensors",))
    assert equal(loaded(), state)


@pytest.mark.parametrize("name", ["vit_base_patch16_224.augreg_in21k", CLIP])
@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://hub.invalid"])
def test_a_backbone_that_cannot_be_had_is_told_within_seconds(cache, monkeypatch, name, endpoint, capfd):
    monkeypatch.delenv("http_proxy", raising=False)
    hub_server.point(monkeypatch, endpoint, cache)
    start = time.monotonic()
    with pytest.raises(DownloadFailed, match=f"cannot download .* [(]{endpoint} does not answer[)]; repeat"):
        loaded(name)
    assert time.monotonic() - start < 10 and capfd.readouterr().err == ""
    assert not constants.HF_HUB_OFFLINE


def test_without_a_hub_the_cache_is_used(hub, monkeypatch):
    state = loaded()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert equal(loaded(), state)


def test_whoever_is_offline_stays_so_and_is_told(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        DownloadFailed, match="HF_HUB_OFFLINE is set, and they are not in its cache.; download"
    ):
        loaded()
    assert constants.HF_HUB_OFFLINE and hub.requests == []


def test_a_cache_of_another_user_is_one_line_unless_it_has_the_weights(hub, cache):
    cache.mkdir()
    refused = f"cannot use {cache}.* for weights from the hub: Permission denied; free space, or name"
    with users.read_only(cache), pytest.raises(InputError, match=f"{refused} a folder of yours") as error:
        loaded()
    assert "\n" not in str(error.value)
    state = loaded()
    with users.read_only(cache):
        assert equal(loaded(), state)


def test_a_full_disk_is_one_line(hub, cache, monkeypatch):
    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_download, "http_get", full)
    with pytest.raises(InputError, match=f"cannot use {cache} for .*: No space left on device; free"):
        loaded()


def test_a_damaged_file_in_the_cache_is_named(hub, cache):
    loaded()
    [blob] = cache.glob("models--timm--test_vit*/blobs/*")
    blob.write_bytes(blob.read_bytes()[:100_000])
    with pytest.raises(InputError, match=f"cannot use the weights of .* remove it from {cache} and repeat"):
        loaded()
