"""torchvision's sets from small files in their true layouts: sides, labels, names, digests and errors."""

import gzip
import hashlib
import json
import tarfile

import numpy as np
import pytest
import torchvision.datasets as published
import toys
from cl_bench.datasets import torchvision
from listed_archives import content, quiet, tar_of
from PIL import Image
from scipy.io import savemat

from cl_bench.config import Transform
from cl_bench.data.images import Ragged
from cl_bench.errors import InputError
from cl_bench.plugins import registry

CLASSES = ["bee", "cat_fish", "dog"]


def write(root, files: dict[str, bytes | str]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def rows(numbers):
    """(class, number) of images, the classes' last first."""
    return [(c, n) for n in numbers for c in reversed(range(3))]


def food(root, monkeypatch):
    sides = {"train": rows(range(4)), "test": rows(range(4, 6))}
    listed = {
        side: {CLASSES[c]: [f"{CLASSES[c]}/{n}" for k, n in found if k == c] for c in range(3)}
        for side, found in sides.items()
    }
    write(root / "food-101", {f"meta/{side}.json": json.dumps(found) for side, found in listed.items()})
    every = [row for found in sides.values() for row in found]
    write(root / "food-101", {f"images/{CLASSES[c]}/{n}.jpg": content(c, n) for c, n in every})
    return {side: sorted(found) for side, found in sides.items()}  # class after class


def cars(root, monkeypatch):
    sides = {"train": rows(range(4)), "test": rows(range(4, 6))}
    place = root / "stanford_cars"
    for side, found in sides.items():
        names = [f"{c}_{n}.jpg" for c, n in found]
        write(place, {f"cars_{side}/{c}_{n}.jpg": content(c, n) for c, n in found})
        kinds = np.array([(name, c + 1) for name, (c, _) in zip(names, found, strict=True)], "O,i4")
        kinds.dtype.names = ("fname", "class")
        (place / "devkit").mkdir(exist_ok=True)
        file = "devkit/cars_train_annos.mat" if side == "train" else "cars_test_annos_withlabels.mat"
        savemat(place / file, {"annotations": kinds})
    savemat(place / "devkit/cars_meta.mat", {"class_names": np.array(CLASSES, object)})
    return sides


def aircraft(root, monkeypatch):
    sides = {"trainval": rows(range(4)), "test": rows(range(4, 6))}
    place = root / "fgvc-aircraft-2013b/data"
    write(place, {"variants.txt": "\n".join(CLASSES)})
    for side, found in sides.items():
        write(place, {f"images/{c}{n}.jpg": content(c, n) for c, n in found})
        lines = "".join(f"{c}{n} {CLASSES[c]}\n" for c, n in found)
        write(place, {f"images_variant_{side}.txt": lines})
    return {"train": sides["trainval"], "test": sides["test"]}


def flowers(root, monkeypatch):
    """Image 1 is of the last class; parts are a third, a sixth and the rest."""
    every, place = rows(range(6)), root / "flowers-102"
    write(place, {f"jpg/image_{i:05d}.jpg": content(c, n) for i, (c, n) in enumerate(every, 1)})
    parts = {"trnid": np.arange(1, 7), "valid": np.arange(7, 10), "tstid": np.arange(10, 19)}
    savemat(place / "setid.mat", parts)
    savemat(place / "imagelabels.mat", {"labels": np.array([c + 1 for c, _ in every])})
    names = {"label": "imagelabels.mat", "setid": "setid.mat", "image": "102flowers.tgz"}
    digests = {
        key: (name, hashlib.md5((place / name).read_bytes()).hexdigest() if key != "image" else "")
        for key, name in names.items()
    }
    monkeypatch.setattr(published.Flowers102, "_file_dict", digests)
    monkeypatch.setattr(published.Flowers102, "classes", CLASSES)
    return {"train": every[:9], "test": every[9:]}


def textures(root, monkeypatch):
    sides = {"train": rows(range(2)), "val": rows(range(2, 4)), "test": rows(range(4, 6))}
    for side, found in sides.items():
        lines = "".join(f"{CLASSES[c]}/{n}.jpg\n" for c, n in found)
        write(root / "dtd/dtd", {f"labels/{side}1.txt": lines})
        write(root / "dtd/dtd", {f"images/{CLASSES[c]}/{n}.jpg": content(c, n) for c, n in found})
    return {"train": sides["train"] + sides["val"], "test": sides["test"]}


def pets(root, monkeypatch):
    sides, place = {"trainval": rows(range(4)), "test": rows(range(4, 6))}, root / "oxford-iiit-pet"
    for side, found in sides.items():
        lines = "".join(f"{CLASSES[c]}_{n} {c + 1} 1 1\n" for c, n in found)
        write(place, {f"annotations/{side}.txt": lines})
        write(place, {f"images/{CLASSES[c]}_{n}.jpg": content(c, n) for c, n in found})
    return {"train": sides["trainval"], "test": sides["test"]}


def countries(root, monkeypatch):
    parts = {"train": range(2), "valid": range(2, 4), "test": range(4, 6)}
    for part, numbers in parts.items():
        files = {f"{part}/{CLASSES[c]}/{n}.jpg": content(c, n) for c, n in rows(numbers)}
        write(root / "country211", files)
    return {
        "train": sorted(rows(range(2))) + sorted(rows(range(2, 4))),
        "test": sorted(rows(range(4, 6))),
    }


def signs(root, monkeypatch):
    """Without names: classes 0, 1 and 2 in files of a lossless format."""
    place, lines = root / "gtsrb", ["Filename;ClassId"]
    for c, n in rows(range(6)):
        path = place / "GTSRB" / (f"Training/{c:05d}/{n}.ppm" if n < 4 else f"Final_Test/Images/{c}{n}.ppm")
        path.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(_file(root, content(c, n))) as image:
            image.save(path)
        lines += [f"{c}{n}.ppm;{c}"] if n >= 4 else []
    write(place, {"GT-final_test.csv": "\n".join(lines)})
    return {"train": sorted(rows(range(4))), "test": rows(range(4, 6))}


FILES = {
    "Food101": food, "StanfordCars": cars, "FGVCAircraft": aircraft, "Flowers102": flowers, "DTD": textures,
    "OxfordIIITPet": pets, "Country211": countries, "GTSRB": signs,
}  # fmt: skip


def opened(argument):
    return registry.source_class("torchvision")(argument)


@pytest.mark.parametrize("name", FILES)
def test_sides_labels_and_pixels_are_those_of_torchvision(tmp_path, own_data, monkeypatch, name):
    expected = FILES[name](tmp_path / "tv", monkeypatch)
    source = opened(f"{name}?root={tmp_path / 'tv'}")
    own = {"OxfordIIITPet": ["Bee", "Cat Fish", "Dog"], "GTSRB": ["0", "1", "2"]}
    assert source.class_names == own.get(name, CLASSES)
    for side, found in expected.items():
        held = source.images(side)
        assert held.labels.tolist() == [c for c, _ in found] == source.labels(side).tolist()
        assert isinstance(held.images, Ragged) and held.labels.dtype == np.int64
        for row, (c, n) in enumerate(found):
            [pixels] = held.pixels(np.array([row]))
            if n % 4 < 2:  # others are kept at a shorter side of 256
                with Image.open(_file(tmp_path, content(c, n))) as image:
                    assert np.array_equal(pixels, np.asarray(image.convert("RGB")))
    ready = source.evaluated("test", Transform(**source.TRANSFORM), 32)
    assert ready.ready and ready.images.shape == (len(expected["test"]), 32, 32, 3)


def _file(folder, data: bytes):
    path = folder / "image.jpg"
    path.write_bytes(data)
    return path


def digits(root, monkeypatch):
    """MNIST of 30 training and 12 test images in its own format."""
    for prefix, count in (("train", 30), ("t10k", 12)):
        images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        header = np.array([0x803, count, 28, 28], ">i4").tobytes()
        write(root / "MNIST/raw", {f"{prefix}-images-idx3-ubyte": header + images.tobytes()})
        header = np.array([0x801, count], ">i4").tobytes()
        write(root / "MNIST/raw", {f"{prefix}-labels-idx1-ubyte": header + labels.tobytes()})
    return images


def test_sets_of_arrays_keep_their_small_size_and_their_names_lose_numbers(tmp_path, own_data, monkeypatch):
    test = digits(tmp_path, monkeypatch)
    source = opened(f"mnist?root={tmp_path}")
    assert source.argument == f"MNIST?root={tmp_path}" and source.class_names[:2] == ["zero", "one"]
    held = source.images("test")
    assert held.images.shape == (12, 28, 28, 3) and held.labels.tolist() == [*range(10), 0, 1]
    assert np.array_equal(held.images[..., 1], test)
    assert source.evaluated("test", Transform(), 224).images.shape == (12, 28, 28, 3)
    before = source.manifest_digest()
    path = tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    assert opened(f"MNIST?root={tmp_path}").manifest_digest() != before


def test_the_manifest_follows_contents_and_labels_not_the_place(tmp_path, own_data, monkeypatch):
    for place in ("a", "b"):
        textures(tmp_path / place, monkeypatch)
    first, second = (opened(f"DTD?root={tmp_path / place}") for place in ("a", "b"))
    assert first.manifest_digest() == second.manifest_digest()
    assert first.manifest()["torchvision"] == "DTD"
    place = tmp_path / "b/dtd/dtd"
    (place / "images/bee/0.jpg").write_bytes(content(2, 0))
    changed = opened(f"DTD?root={tmp_path / 'b'}").manifest_digest()
    assert changed != first.manifest_digest()
    lines = (place / "labels/train1.txt").read_text(encoding="utf-8").splitlines()
    (place / "labels/train1.txt").write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    assert opened(f"DTD?root={tmp_path / 'b'}").manifest_digest() not in (changed, first.manifest_digest())


def test_an_image_that_changes_after_it_was_known_is_not_used(tmp_path, own_data, monkeypatch):
    textures(tmp_path, monkeypatch)
    source = opened(f"DTD?root={tmp_path}")
    (tmp_path / "dtd/dtd/images/bee/0.jpg").write_bytes(content(2, 0))
    with pytest.raises(InputError, match="bee/0.jpg changed while it was used"):
        source.images("train")


@pytest.mark.parametrize("name", ["food-101", "FOOD101", "food_101"])
def test_names_are_torchvisions_in_any_spelling_and_the_root_may_be_the_sets_own(
    tmp_path, own_data, monkeypatch, name
):
    food(tmp_path, monkeypatch)
    source = opened(f"{name}?root={tmp_path / 'food-101'}")
    assert source.argument == f"Food101?root={tmp_path}"
    assert "Food101 train: 12 images of 3 classes (split=train)" in source.remarks()[0]


def test_without_a_root_it_is_the_data_folder(tmp_path, own_data, monkeypatch):
    food(tmp_path / "data" / "torchvision", monkeypatch)
    assert opened("Food101").argument == "Food101"


WRONG = [
    ("", "needs a name, one of: Food101, "),
    ("Fod101", "unknown set of torchvision 'Fod101'; did you mean 'Food101'?"),
    ("EuroSAT", "torchvision:EuroSAT cannot be used: it has no published training and test sides"),
    ("DTD?rot=x", "unknown option of data set torchvision 'rot'; did you mean 'root'?"),
    ("DTD", "Dataset not found; run `cl-bench prepare torchvision:DTD`, or name the folder that holds dtd "),
    ("StanfordCars", "torchvision cannot download it: place devkit/, cars_train/, .* in .*/stanford_cars"),
    ("ImageNet", "meta.bin is missing; torchvision cannot download it"),
]


@pytest.mark.parametrize(("argument", "message"), WRONG, ids=[argument for argument, _ in WRONG])
def test_what_is_missing_or_misspelled_says_what_to_do(own_data, argument, message):
    with pytest.raises(InputError, match=message.replace("?", "[?]")) as error:
        opened(argument or None)
    assert "\n" not in str(error.value)


def test_a_class_that_one_side_lacks_is_named(tmp_path, own_data, monkeypatch):
    aircraft(tmp_path, monkeypatch)
    path = tmp_path / "fgvc-aircraft-2013b/data/images_variant_test.txt"
    path.write_text("24 dog\n14 cat_fish\n", encoding="utf-8")
    with pytest.raises(InputError, match="no test image of class 'bee'; expected images of every class"):
        opened(f"FGVCAircraft?root={tmp_path}")


def archived(monkeypatch, tmp_path, files: dict[str, bytes]) -> list[str]:
    """Lets torchvision 'download' DTD as a tar of these files; returns what it asked for."""
    asked = []

    def download(url, download_root, md5=None, **_):
        asked.append(url)
        archive = tmp_path / "archive.tar.gz"
        archive.write_bytes(gzip.compress(tar_of(files)))
        with tarfile.open(archive) as tar:
            tar.extractall(download_root)

    monkeypatch.setattr("torchvision.datasets.dtd.download_and_extract_archive", download)
    return asked


def test_only_prepare_downloads_and_it_reads_all_files(tmp_path, own_data, monkeypatch):
    textures(tmp_path / "made", monkeypatch)
    made = tmp_path / "made/dtd"
    files = {str(path.relative_to(made)): path.read_bytes() for path in made.rglob("*.*")}
    asked, said = archived(monkeypatch, tmp_path, files), []
    with pytest.raises(InputError, match="run `cl-bench prepare torchvision:DTD"):
        opened("DTD")
    assert not asked
    torchvision.prepare("dtd", None, said.append)
    assert len(asked) == 1 and "torchvision:DTD is complete" in said[-1]
    torchvision.prepare("DTD", None, quiet)
    assert len(asked) == 1 and len(opened("DTD").labels("train")) == 12
    torchvision.prepare("DTD", tmp_path / "made", quiet)  # what is there is used where it is
    assert len(asked) == 1


def test_archives_cannot_leave_their_folder(tmp_path, own_data, monkeypatch):
    archived(monkeypatch, tmp_path, {"dtd/../../outside.txt": b"no"})
    with pytest.raises(InputError, match="cannot prepare torchvision:DTD .*outside the destination"):
        torchvision.prepare("DTD", tmp_path / "deep" / "root", quiet)
    assert not list(tmp_path.rglob("outside.txt"))


def test_a_root_is_named_once(tmp_path):
    with pytest.raises(InputError, match="names a root already; leave out --root"):
        torchvision.prepare(f"DTD?root={tmp_path}", tmp_path, quiet)


def test_runs_call_the_benchmark_by_the_sets_name(tmp_path, own_data, monkeypatch):
    from cl_bench.plan.plan import make_plan
    from cl_bench.plan.request import Request

    textures(tmp_path / "tv", monkeypatch)
    weights = toys.write_weights(tmp_path / "w.safetensors")
    asked = {"methods": "simplecil", "backbone": "test_vit", "weights": str(weights), "image_size": 32}
    request = Request(dataset=f"torchvision:dtd?root={tmp_path / 'tv'}", splits="3", **asked)
    [spec] = make_plan(request).specs
    assert spec.benchmark_key() == "torchvision:DTD/3" and spec.transform.resize == "short-crop"
