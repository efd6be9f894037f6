"""Small copies of ImageNet-R and DomainNet-200 on a server of one's own."""

import listed_archives
import loopback
import pytest
from cl_bench.datasets import domainnet200, imagenet_r


@pytest.fixture
def served():
    with loopback.serve() as running:
        yield running


@pytest.fixture
def own_data(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))


def declare(monkeypatch, source, declared: listed_archives.Declared) -> None:
    for name, value in zip(("LISTS", "ARCHIVES"), declared, strict=True):
        monkeypatch.setattr(source, name, value)


@pytest.fixture
def imagenet(served, own_data, monkeypatch):
    declare(monkeypatch, imagenet_r.ImageNetR, listed_archives.imagenet_r(served))
    return served


@pytest.fixture
def domains(served, own_data, monkeypatch):
    declare(monkeypatch, domainnet200.DomainNet200, listed_archives.domainnet200(served))
    return served
