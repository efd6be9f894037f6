"""The splits that suites for pre-trained models share as folders: counts, classes, names, pixels."""

import numpy as np
import pytest
from listed_archives import content, quiet
from PIL import Image

from cl_bench.config import Transform
from cl_bench.data.images import Ragged
from cl_bench.errors import InputError
from cl_bench.plugins import registry

SETS = {
    "imagenet-a": (200, None, "imagenet-a"), "cub-200": (200, (9430, 2358), "cub"),
    "objectnet-200": (200, None, "objectnet"), "omnibenchmark-300": (300, (89697, 5985), "omnibenchmark"),
    "vtab-50": (50, None, "vtab"),
}  # fmt: skip
CLASSES = ["001.Black_footed_Albatross", "002.Crow", "003.Small_Owl"]


def write(root, classes=CLASSES, train=4, test=2):
    for c, name in enumerate(classes):
        for n in range(train + test):
            path = root / ("train" if n < train else "test") / name / f"{n}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(c, n))
    return root


@pytest.fixture
def birds(tmp_path, own_data, monkeypatch):
    """CUB-200 with three classes."""
    kind = registry.source_class("cub-200")
    monkeypatch.setattr(kind, "CLASSES", 3)
    monkeypatch.setattr(kind, "IMAGES", (12, 6))
    return kind


@pytest.mark.parametrize("name", SETS)
def test_another_number_of_classes_or_images_is_another_split(tmp_path, own_data, monkeypatch, name):
    classes, images, folder = SETS[name]
    kind = registry.source_class(name)
    assert (kind.CLASSES, kind.IMAGES, kind.name) == (classes, images, name)
    write(tmp_path / folder)
    with pytest.raises(InputError, match=f"has 3 classes, {name} has {classes}; this is another split"):
        kind(str(tmp_path))
    monkeypatch.setattr(kind, "CLASSES", 3)
    if images:
        with pytest.raises(InputError, match=r"has 12 / 6 training and test images, .* has [\d,]+ / [\d,]+"):
            kind(str(tmp_path))
    else:
        assert len(kind(str(tmp_path)).labels("train")) == 12


@pytest.mark.parametrize("name", SETS)
def test_what_is_not_there_says_where_it_comes_from(own_data, name):
    with pytest.raises(InputError, match=f"{name} is not in .*/data/{name}: expected train/<class>/.*PILOT"):
        registry.source_class(name)()


def test_aliases_are_the_names_of_the_data(own_data):
    for word in ("cub", "objectnet", "omnibenchmark", "vtab"):
        assert registry.find("datasets", word).name.startswith(word)


def test_classes_and_images_are_in_alphabetical_order_and_read_as_published(birds, tmp_path):
    write(tmp_path / "d")
    source = birds(str(tmp_path / "d"))
    assert source.class_names == CLASSES
    assert source.text_names() == ["Black footed Albatross", "Crow", "Small Owl"]
    for side, count in (("train", 4), ("test", 2)):
        held = source.images(side)
        assert held.labels.tolist() == [c for c in range(3) for _ in range(count)]
        assert isinstance(held.images, Ragged)
    with Image.open(tmp_path / "d" / "test" / CLASSES[1] / "4.jpg") as image:
        assert np.array_equal(source.images("test").pixels(np.array([2]))[0], np.asarray(image))
    ready = source.evaluated("test", Transform(**source.TRANSFORM), 32)
    assert ready.ready and ready.images.shape == (6, 32, 32, 3)


def test_the_root_may_be_the_folder_above_or_the_data_folder(birds, tmp_path):
    write(tmp_path / "data" / "cub-200")
    write(tmp_path / "above" / "cub")
    own, named = birds(), birds(str(tmp_path / "above"))
    assert own.argument is None and named.argument == str(tmp_path / "above")
    assert own.manifest_digest() == named.manifest_digest()


def test_the_manifest_changes_with_any_file_and_its_class(birds, tmp_path):
    root = write(tmp_path / "d")
    known = birds(str(root)).manifest_digest()
    path = root / "train" / CLASSES[0] / "0.jpg"
    path.write_bytes(content(1, 1))
    changed = birds(str(root)).manifest_digest()
    (root / "train" / CLASSES[0]).rename(root / "train" / "x")
    (root / "train" / CLASSES[1]).rename(root / "train" / CLASSES[0])
    (root / "train" / "x").rename(root / "train" / CLASSES[1])
    assert len({known, changed, birds(str(root)).manifest_digest()}) == 3


def test_names_can_be_given(birds, tmp_path):
    root = write(tmp_path / "d")
    names = tmp_path / "names.txt"
    names.write_text("".join(f"{folder} bird {n}\n" for n, folder in enumerate(CLASSES)), encoding="utf-8")
    source = birds(f"{root}?names={names}")
    assert source.text_names() == ["bird 0", "bird 1", "bird 2"]
    assert source.argument == f"{root}?names={names}"


def test_prepare_reads_everything_and_says_what_is_used(birds, tmp_path):
    said, plugin = [], registry.find("datasets", "cub").load()
    plugin.PREPARE(write(tmp_path / "d"), said.append)
    assert "cub-200 train/: 12 images of 3 classes used" in said[0] and "complete; digest" in said[-1]
    (tmp_path / "d" / "test" / CLASSES[0] / "4.jpg").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"cannot read image .*4.jpg"):
        birds(str(tmp_path / "d")).images("test")
    with pytest.raises(InputError, match="class '003.Small_Owl' is in train/ but not in test/"):
        for path in (tmp_path / "d" / "test" / CLASSES[2]).iterdir():
            path.unlink()
        (tmp_path / "d" / "test" / CLASSES[2]).rmdir()
        plugin.PREPARE(tmp_path / "d", quiet)
