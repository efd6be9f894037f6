"""Small copies of ImageNet-R and DomainNet-200 on a server of one's own."""

import hashlib

import loopback
import pytest
from cl_bench.datasets import domainnet200, imagenet_r
from listed_archives import content, published, tar_of, zip_of

from cl_bench.data.listed_files import Archive

WNIDS = {"n01": "goldfish", "n02": "hotdog", "n03": "tree_frog", "n04": "newt"}


@pytest.fixture
def served():
    with loopback.serve() as running:
        yield running


@pytest.fixture
def own_data(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def imagenet(served, own_data, monkeypatch):
    """ImageNet-R with four classes of five training and two test images, and one image that no list names."""
    sides = {"train": range(5), "test": range(5, 7)}
    files = {f"imagenet-r/{w}/art_{n}.jpg": content(c, n) for c, w in enumerate(WNIDS) for n in range(7)}
    served["/imagenet-r.tar"] = tar_of(
        {"imagenet-r/README.txt": b"hello", **files, "imagenet-r/n09/art_0.jpg": content(0, 0)}
    )
    lines = {
        side: [f"{w}/art_{n}.jpg" for n in numbers for w in reversed(WNIDS)]
        for side, numbers in sides.items()
    }
    monkeypatch.setattr(
        imagenet_r.ImageNetR,
        "LISTS",
        {
            **{
                side: published(served, f"/{side}.txt", "\n".join(found) + "\n")
                for side, found in lines.items()
            },
            "names": published(served, "/names.txt", "".join(f"{w} {name}\n" for w, name in WNIDS.items())),
        },
    )
    digest = hashlib.md5(served["/imagenet-r.tar"]).hexdigest()
    monkeypatch.setattr(
        imagenet_r.ImageNetR,
        "ARCHIVES",
        (Archive(served.url + "/imagenet-r.tar", "imagenet-r", f"md5:{digest}"),),
    )
    return served


@pytest.fixture
def domains(served, own_data, monkeypatch):
    """DomainNet-200 with a class each from two domains."""
    lists, archives = {"train": [], "test": []}, []
    for label, (domain, c) in enumerate({"real": "bee", "sketch": "The_Tower"}.items()):
        names = [f"{domain}/{c}/{domain}_{n}.jpg" for n in range(6)]
        for n, name in enumerate(names):
            lists["train" if n < 4 else "test"].append(f"{name} {label}")
        extra = {f"{domain}/other/{domain}_9.jpg": b"unlisted"}
        served[f"/{domain}.zip"] = zip_of(
            {**{name: content(label, n) for n, name in enumerate(names)}, **extra}
        )
        archives.append(Archive(f"{served.url}/{domain}.zip", domain))
    kinds = {side: published(served, f"/s_{side}.txt", "\n".join(lines)) for side, lines in lists.items()}
    monkeypatch.setattr(domainnet200.DomainNet200, "LISTS", kinds)
    monkeypatch.setattr(domainnet200.DomainNet200, "ARCHIVES", tuple(archives))
    return served
