"""Tar shards as webdataset writes them: sides, labels, names, and every fault in one line."""

import gzip
import io
import tarfile

import numpy as np
import pytest
from cl_bench.datasets import webdataset
from listed_archives import content, tar_of
from PIL import Image

from cl_bench.data.images import Ragged
from cl_bench.errors import InputError
from cl_bench.plugins import registry

NAMES = ["bee", "cat", "dog"]
TRAIN, TEST = range(12), range(12, 18)


def samples(numbers) -> dict[str, bytes]:
    """Members of a shard: images of classes 0, 1, 2, 0, ... and a note that nobody asked for."""
    files = {}
    for n in numbers:
        files |= {
            f"pets/{n:03d}.JPG": content(n % 3, n),
            f"pets/{n:03d}.json": b"{}",
            f"pets/{n:03d}.cls": f"{n % 3}\n".encode(),
        }
    return files


def write(root, sides=(("train", TRAIN), ("test", TEST)), names=NAMES):
    """Two shards a side."""
    root.mkdir(parents=True, exist_ok=True)
    for side, numbers in sides:
        half = len(numbers) // 2
        for shard, part in enumerate((numbers[:half], numbers[half:])):
            (root / f"{side}-{shard:03d}.tar").write_bytes(tar_of(samples(part)))
    if names:
        (root / "classes.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    return root


def opened(argument):
    return registry.source_class("webdataset")(str(argument))


@pytest.fixture
def shards(tmp_path, own_data):
    return write(tmp_path / "shards")


def test_sides_labels_and_pixels_are_those_of_the_shards_in_their_order(shards):
    source = opened(shards)
    assert source.class_names == NAMES and source.argument == str(shards)
    for side, numbers in (("train", TRAIN), ("test", TEST)):
        held = source.images(side)
        assert held.labels.tolist() == [n % 3 for n in numbers] and isinstance(held.images, Ragged)
        for row, n in enumerate(numbers):
            if n % 4 < 2:  # others are kept at a shorter side of 256
                [pixels] = held.pixels(np.array([row]))
                assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(content(n % 3, n)))))
    assert source.remarks()[0] == "webdataset:shards train: 12 images of 3 classes in 2 shards"


def test_shards_may_have_other_names_and_classes_none(tmp_path, own_data):
    root = write(tmp_path / "d", (("part", TRAIN), ("val", TEST)), names=None)
    with pytest.raises(InputError, match=r"holds no shards train-\*.tar; .* \?train=GLOB"):
        opened(root)
    source = opened(f"{root}?train=part-00?.tar&test=val*")
    assert source.class_names == ["0", "1", "2"] and len(source.labels("train")) == 12
    assert source.argument == f"{root}?train=part-00?.tar&test=val*"
    with pytest.raises(InputError, match="val-000.tar is a shard of both sides"):
        opened(f"{root}?train=*.tar&test=val*")
    with pytest.raises(InputError, match="holds no shards /"):
        opened(f"{root}?train=/etc/*&test=val*")


def test_the_identity_is_that_of_images_and_labels_not_of_shards_or_place(shards, tmp_path):
    known = opened(shards).manifest_digest()
    one = tmp_path / "one"
    write(one)
    for side, numbers in (("train", TRAIN), ("test", TEST)):
        (one / f"{side}-001.tar").unlink()
        (one / f"{side}-000.tar").write_bytes(tar_of(samples(numbers)))
    assert opened(one).manifest_digest() == known
    files = samples(TRAIN)
    (one / "train-000.tar").write_bytes(tar_of({**files, "pets/000.cls": b"1"}))
    relabeled = opened(one).manifest_digest()
    (one / "train-000.tar").write_bytes(tar_of({**files, "pets/000.JPG": content(2, 0)}))
    assert len({known, relabeled, opened(one).manifest_digest()}) == 3


def test_a_shard_that_changes_after_it_was_known_is_not_used(shards):
    source = opened(shards)
    source.manifest()
    (shards / "test-000.tar").write_bytes(tar_of(samples([12, 13, 20])))
    with pytest.raises(InputError, match="test-000.tar, image of pets/014 changed while it was used"):
        source.images("test")


def spoiled(changes) -> bytes:
    files = {**samples(TRAIN[:6]), **changes}
    return tar_of({name: data for name, data in files.items() if data is not None})


def linked() -> bytes:
    buffer = io.BytesIO(spoiled({}))
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        item = tarfile.TarInfo("pets/900.jpg")
        item.type, item.linkname = tarfile.SYMTYPE, "000.JPG"
        tar.addfile(item)
    return buffer.getvalue()


FAULTS = {
    "no class": (spoiled({"pets/000.cls": None}), r"sample pets/000 has no class \(.cls\)"),
    "no image": (spoiled({"pets/000.JPG": None}), "sample pets/000 has no image"),
    "two images": (spoiled({"pets/000.png": b""}), "sample pets/000 has two images"),
    "words": (spoiled({"pets/000.cls": b"bee"}), "pets/000.cls holds no class; expected a whole number"),
    "negative": (spoiled({"pets/000.cls": b"-1"}), "pets/000.cls holds no class"),
    "no such class": (spoiled({"pets/000.cls": b"3"}), "names 3 classes, and a sample has class 3"),
    "outside": (spoiled({"../../x.jpg": b""}), "holds an unsafe member and is not used"),
    "a link": (linked(), "pets/900.jpg is no plain file"),
    "cut short": (spoiled({})[:2000], "cannot read .*train-000.tar"),
    "compressed": (gzip.compress(spoiled({})), "expected a whole tar without compression"),
    "no image at all": (spoiled({"pets/000.JPG": b"words"}), "train-000.tar, image of pets/000: Pillow"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_named_in_one_line(shards, fault):
    data, message = FAULTS[fault]
    (shards / "train-000.tar").write_bytes(data)
    with pytest.raises(InputError, match=message) as error:
        opened(shards).manifest()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("bee\n\ndog\n", "none empty and none twice"), ("bee\nbee\ndog\n", "none twice"),
     ("bee\ncat\ndog\nemu\n", "no train image of class 'emu'")],
)  # fmt: skip
def test_class_names_are_a_line_each(shards, text, message):
    (shards / "classes.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        opened(shards)


def test_prepare_reads_everything(shards):
    said = []
    webdataset.prepare(str(shards), None, said.append)
    assert f"webdataset:{shards} is complete; digest" in said[-1]
    webdataset.prepare("", shards, said.append)
    assert said[-1] == said[2]
    with pytest.raises(InputError, match="data set webdataset needs a path"):
        webdataset.prepare("", None, said.append)
