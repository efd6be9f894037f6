"""The published split lists and class names, where they lie beside the checkout."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import toys
from cl_bench.datasets import domainnet200, imagenet_r

SPLITS = toys.SHARED / "splits"


@pytest.mark.skipif(not SPLITS.is_dir(), reason="needs the published split lists")
@pytest.mark.parametrize(
    ("kind", "files", "sizes", "smallest", "largest"),
    [
        (
            imagenet_r.ImageNetR,
            {"train": "imagenet_r_train", "test": "imagenet_r_val", "names": "imagenet_r_classnames"},
            (24000, 6000),
            38,
            354,
        ),
        (
            domainnet200.DomainNet200,
            {"train": "sdomain_train", "test": "sdomain_val"},
            (47532, 20450),
            9,
            586,
        ),
    ],
)
def test_the_published_lists_have_the_pinned_digests_and_read_as_200_classes(
    kind, files, sizes, smallest, largest
):
    paths = {key: SPLITS / f"{name}.txt" for key, name in files.items()}
    assert {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in paths.items()} == {
        k: v.sha256 for k, v in kind.LISTS.items()
    }
    assert all(Path(kind.LISTS[key].url).name == path.name for key, path in paths.items())
    texts = {key: path.read_text(encoding="utf-8") for key, path in paths.items()}
    split = kind.split(texts)
    assert (len(split["train"]), len(split["test"])) == sizes
    counts = np.bincount([label for _, label in split["train"]])
    assert len(counts) == 200 and (counts.min(), counts.max()) == (smallest, largest)
    assert {label for _, label in split["test"]} == set(range(200)) and not {p for p, _ in split["train"]} & {
        p for p, _ in split["test"]
    }
    assert {path.split("/")[0] for path, _ in split["train"]} == {archive.folder for archive in kind.ARCHIVES}
    made = object.__new__(kind)
    made.class_names = made.name_classes(texts)
    text = json.loads((SPLITS / "clip_text.json").read_text(encoding="utf-8"))[
        "imagenet_r" if kind is imagenet_r.ImageNetR else "sdomainet"
    ]
    assert made.text_names() == text["classes"] and list(kind.TEMPLATES) == text["templates"]
    if kind is domainnet200.DomainNet200:
        domains_of = {label: path.split("/")[0] for path, label in split["train"]}
        assert all(path.split("/")[0] == domains_of[label] for side in split.values() for path, label in side)


@pytest.mark.skipif(not SPLITS.is_dir(), reason="needs the published class names")
def test_cifar100_has_the_published_sentences():
    from cl_bench.datasets.cifar100 import CIFAR100

    text = json.loads((SPLITS / "clip_text.json").read_text(encoding="utf-8"))["cifar100"]
    assert list(CIFAR100.TEMPLATES) == text["templates"]
    made = object.__new__(CIFAR100)
    made.class_names = [name.replace(" ", "_") for name in text["classes"]]  # as the archive has them
    assert made.text_names() == text["classes"]
