"""A model hub on the loopback address: its paths and headers, and checkpoints with random tensors."""

import hashlib
import io
from collections.abc import Callable

import loopback
import open_clip
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def path(repository: str, name: str) -> str:
    return f"/{repository}/resolve/main/{name}"


def publish(
    served: loopback.Served, repository: str, files: dict[str, bytes | Callable], absent: tuple[str, ...] = ()
) -> None:
    """Have a repository hold these files, and say of others that it has none of that name."""
    for name, content in files.items():
        own = served[path(repository, name)] = content
        named = hashlib.sha256(own if isinstance(own, bytes) else f"{repository}/{name}".encode()).hexdigest()
        served.headers[path(repository, name)] = {"X-Repo-Commit": COMMIT, "ETag": f'"{named}"'}
    for name in absent:
        missing = {"X-Repo-Commit": COMMIT, "X-Error-Code": "EntryNotFound"}
        served.headers[path(repository, name)] = missing


def timm_weights(name: str, seed: int = 0) -> bytes:
    """A safetensors file with a random network of timm's, the head of its checkpoint included."""
    torch.manual_seed(seed)
    return save(timm.create_model(name, pretrained=False).state_dict())


def publish_timm(served: loopback.Served, name: str) -> str:
    """Have timm's repository of a checkpoint hold its file, made when it is asked for; returns its path."""
    publish(served, f"timm/{name}", {"model.safetensors": lambda: timm_weights(name)})
    return path(f"timm/{name}", "model.safetensors")


def publish_open_clip(served: loopback.Served, model: str, tag: str) -> str:
    """As `publish_timm`, of a checkpoint of open_clip's."""
    repository = open_clip.get_pretrained_cfg(model, tag)["hf_hub"].rstrip("/")
    name = "open_clip_model.safetensors"

    def weights() -> bytes:
        torch.manual_seed(0)
        return save(open_clip.create_model(model, load_weights=False).state_dict())

    publish(served, repository, {name: weights})
    return path(repository, name)


def environment(served: loopback.Served) -> dict[str, str]:
    """The variables that point the hub's client at this server."""
    return {"HF_ENDPOINT": served.url, "NO_PROXY": "127.0.0.1", "HF_TOKEN": ""}


def point(monkeypatch, endpoint: str, cache) -> None:
    """Point the client in this process, which has read its variables, at a hub and a cache of its own."""
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def pickled(state: dict[str, torch.Tensor]) -> bytes:
    """The file that torch writes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
