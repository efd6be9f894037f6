"""ImageNet-R and DomainNet-200 from small archives of the true formats, and the real lists where present."""

import hashlib
import io
import json
import os
import tarfile
import threading
import zipfile
from functools import partial
from pathlib import Path

import loopback
import numpy as np
import pytest
import torch
import toys
from cl_bench.datasets import domainnet200, imagenet_r
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from cl_bench.cli import main
from cl_bench.config import Transform
from cl_bench.data import augment_pillow, cache, fingerprints, listed_images
from cl_bench.data.images import Ragged
from cl_bench.data.listed_files import Archive, Published
from cl_bench.data.listed_images import evaluation_image
from cl_bench.data.prepare_listed import prepare
from cl_bench.data.preprocess import Preprocess
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store
from cl_bench.run.assemble import open_source, split_images
from cl_bench.run.learning import Conditions
from cl_bench.run.runner import run

WNIDS = {"n01": "goldfish", "n02": "hotdog", "n03": "tree_frog", "n04": "newt"}
SPLITS = toys.SHARED / "splits"


def picture(c: int, number: int) -> Image.Image:
    """A noisy picture whose size depends on its number: wide, tall, large and small ones."""
    width, height = ((40, 30), (30, 44), (500, 300), (260, 410))[number % 4]
    tile = toys.images(1, 4, 100 * c + number, 32).images[c]
    return Image.fromarray(tile).resize((width, height), Image.Resampling.NEAREST)


def content(c: int, number: int) -> bytes:
    buffer = io.BytesIO()
    picture(c, number).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def published(served, path: str, text: str) -> Published:
    served[path] = text.encode()
    return Published(served.url + path, hashlib.sha256(text.encode()).hexdigest())


@pytest.fixture
def served():
    with loopback.serve() as running:
        yield running


@pytest.fixture
def own_data(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return buffer.getvalue()


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


def quiet(line: str) -> None:
    pass


def test_imagenet_r_is_downloaded_unpacked_and_read_in_the_lists_order(imagenet, tmp_path):
    said = []
    prepare(imagenet_r.ImageNetR, None, said.append)
    root = tmp_path / "data" / "imagenet-r"
    assert "holds all 28 images" in said[-1] and (root / "imagenet-r.tar").exists()
    assert not (root / "imagenet-r" / "n09").exists() and not (root / "imagenet-r" / "README.txt").exists()
    found = imagenet_r.ImageNetR()
    assert found.class_names == ["goldfish", "hotdog", "tree_frog", "newt"]
    assert found.text_names() == ["goldfish", "hot dog", "tree frog", "smooth newt"]
    train = found.images("train")
    assert (
        train.labels.tolist() == [3, 2, 1, 0] * 5 and found.images("test").labels.tolist() == [3, 2, 1, 0] * 2
    )
    small, large = train.pixels(np.array([1, 11]))  # art_0 of class 2, art_2 of class 0
    assert np.array_equal(small, np.asarray(Image.open(io.BytesIO(content(2, 0)))))
    assert large.shape == (256, 426, 3)  # 500 x 300 at a shorter side of 256
    asked = len(imagenet.requests)
    prepare(imagenet_r.ImageNetR, None, quiet)
    assert len(imagenet.requests) == asked


def test_evaluation_images_are_those_of_torchvision_on_the_original_file(imagenet):
    prepare(imagenet_r.ImageNetR, None, quiet)
    found = imagenet_r.ImageNetR()
    reference = {
        "squash-crop": [
            transforms.Resize((256, 256), InterpolationMode.BILINEAR),
            transforms.CenterCrop(224),
        ],
        "short-crop": [transforms.Resize(224, InterpolationMode.BICUBIC), transforms.CenterCrop(224)],
        "short-margin-crop": [transforms.Resize(256, InterpolationMode.BICUBIC), transforms.CenterCrop(224)],
        "squash": [transforms.Resize((224, 224), InterpolationMode.BICUBIC)],
    }
    for rule, steps in reference.items():
        transform = Transform(resize=rule, interpolation="bilinear" if rule == "squash-crop" else "bicubic")
        test = found.evaluated("test", transform, 224)
        assert test.ready and test.images.shape == (8, 224, 224, 3)
        for row in range(8):
            image = Image.open(io.BytesIO(content(3 - row % 4, 5 + row // 4)))
            assert np.array_equal(test.images[row], np.asarray(transforms.Compose(steps)(image))), rule


@pytest.mark.parametrize("rule", ["squash", "squash-crop", "short-crop", "short-margin-crop"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_device_resizes_as_pillow_does(rule, interpolation):
    transform = Transform(resize=rule, interpolation=interpolation)
    spec = toys.backbone().spec.model_copy(
        update={"image_size": 56, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    )
    for number in range(4):
        image = picture(number, number)
        on_device = (
            Preprocess(spec, transform, 0, torch.device("cpu"))
            .plain(np.array(image)[None])[0]
            .permute(1, 2, 0)
            * 255
        )
        difference = (
            on_device - torch.from_numpy(evaluation_image(image, transform, 56).astype(np.float32))
        ).abs()
        assert difference.max() <= 2.01 and difference.mean() < 0.02  # Pillow computes in fixed point


def test_crop_and_flip_are_torchvisions_own_for_images_of_any_size():
    images = [np.asarray(picture(c, c)) for c in range(4)]
    found = augment_pillow.augmented(
        images, Transform(augment="crop-flip", crop_scale=0.05), 64, [7, 8, 9, 10]
    )
    reference = transforms.Compose(
        [transforms.RandomResizedCrop(64, scale=(0.05, 1.0)), transforms.RandomHorizontalFlip()]
    )
    for image, seed, result in zip(images, [7, 8, 9, 10], found, strict=True):
        torch.manual_seed(seed)
        assert np.array_equal(np.asarray(reference(Image.fromarray(image))), result)


def test_the_training_transform_is_torchvisions_own_for_images_of_any_size():
    images = [np.asarray(picture(c, c)) for c in range(4)]
    found = augment_pillow.augmented(images, Transform(**imagenet_r.ImageNetR.TRANSFORM), 224, [7, 8, 9, 10])
    reference = transforms.Compose([
        transforms.AutoAugment(transforms.AutoAugmentPolicy.IMAGENET, InterpolationMode.BILINEAR),
        transforms.RandomResizedCrop(224, interpolation=InterpolationMode.BILINEAR),
    ])  # fmt: skip
    for image, seed, result in zip(images, [7, 8, 9, 10], found, strict=True):
        torch.manual_seed(seed)
        assert np.array_equal(np.asarray(reference(Image.fromarray(image))), result)


def test_an_unpacked_copy_is_used_where_it_lies_and_never_written_to(imagenet, tmp_path):
    root = tmp_path / "copy"
    with tarfile.open(fileobj=io.BytesIO(imagenet["/imagenet-r.tar"])) as tar:
        tar.extractall(root, filter="data")
    before = sorted(path for path in root.rglob("*"))
    for place in (root, root / "imagenet-r"):
        prepare(imagenet_r.ImageNetR, place, quiet)
        assert imagenet_r.ImageNetR(str(place)).manifest() == imagenet_r.ImageNetR(str(root)).manifest()
    assert (
        sorted(path for path in root.rglob("*")) == before
        and ("/imagenet-r.tar", None) not in imagenet.requests
    )


def test_archives_already_on_disk_are_verified_and_unpacked(imagenet, tmp_path):
    root = tmp_path / "here"
    root.mkdir()
    (root / "imagenet-r.tar").write_bytes(imagenet["/imagenet-r.tar"])
    prepare(imagenet_r.ImageNetR, root, quiet)
    assert ("/imagenet-r.tar", None) not in imagenet.requests and len(
        imagenet_r.ImageNetR(str(root)).images("train")
    ) == 20
    other = tmp_path / "other"
    other.mkdir()
    (other / "imagenet-r.tar").write_bytes(b"not it")
    with pytest.raises(InputError, match="imagenet-r.tar is not the expected file .*move it away"):
        prepare(imagenet_r.ImageNetR, other, quiet)
    assert (other / "imagenet-r.tar").read_bytes() == b"not it"


def test_a_download_cut_at_half_goes_on_and_ends_in_the_same_data(imagenet, tmp_path):
    imagenet.cut.add("/imagenet-r.tar")
    with pytest.raises(InputError, match="repeat to go on"):
        prepare(imagenet_r.ImageNetR, None, quiet)
    assert not (tmp_path / "data" / "imagenet-r" / "imagenet-r").exists()
    with pytest.raises(InputError, match="run `cl-bench prepare imagenet-r`"):
        imagenet_r.ImageNetR()
    prepare(imagenet_r.ImageNetR, None, quiet)
    assert imagenet.requests[-1][1].startswith("bytes=") and len(imagenet_r.ImageNetR().images("train")) == 20


def test_changed_missing_and_other_files_are_named(imagenet, tmp_path):
    prepare(imagenet_r.ImageNetR, None, quiet)
    path = tmp_path / "data" / "imagenet-r" / "imagenet-r" / "n02" / "art_3.jpg"
    original = path.read_bytes()
    path.write_bytes(original[:-1] + b"x")
    with pytest.raises(InputError, match="art_3.jpg is not what it was when"):
        prepare(imagenet_r.ImageNetR, None, quiet)
    with pytest.raises(InputError, match="art_3.jpg has changed since it was prepared"):
        imagenet_r.ImageNetR().images("train")
    path.write_bytes(original + b"x")
    with pytest.raises(InputError, match="art_3.jpg has .* bytes, .* when it was prepared"):
        imagenet_r.ImageNetR()
    path.unlink()
    with pytest.raises(InputError, match="art_3.jpg is missing"):
        imagenet_r.ImageNetR()
    with pytest.raises(InputError, match="imagenet-r exists but is not complete; move it away"):
        prepare(imagenet_r.ImageNetR, None, quiet)


def test_an_image_exchanged_after_it_was_decoded_is_noticed(imagenet, tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "SAMPLE", 0)
    prepare(imagenet_r.ImageNetR, None, quiet)
    imagenet_r.ImageNetR().images("train")
    path = tmp_path / "data" / "imagenet-r" / "imagenet-r" / "n02" / "art_3.jpg"
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(
        InputError,
        match="art_3.jpg has changed since it was prepared; put it back or run `cl-bench prepare imagenet-r`",
    ):
        imagenet_r.ImageNetR()


def test_verify_reads_listed_files_that_look_unchanged(imagenet, monkeypatch):
    prepare(imagenet_r.ImageNetR, None, quiet)
    found, read = imagenet_r.ImageNetR(), []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path.name), original(path))[1])
    found.verify()
    assert len([name for name in read if name.endswith(".jpg")]) == 28


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"files": {}}', '{"files": 1, "base": "x", "digest": "y"}']
)
def test_damaged_notes_of_what_was_prepared_are_named(imagenet, tmp_path, damage):
    prepare(imagenet_r.ImageNetR, None, quiet)
    [notes] = (tmp_path / "data" / ".prepared" / "imagenet-r").glob("files-*.json")
    notes.write_text(damage, encoding="utf-8")
    for open_it in (imagenet_r.ImageNetR, lambda: prepare(imagenet_r.ImageNetR, None, quiet)):
        with pytest.raises(
            InputError,
            match="files-.*.json, the notes of what was prepared, cannot be read "
            ".*remove it and prepare again",
        ):
            open_it()


def test_listed_images_are_decoded_as_published_code_does_without_exif(imagenet, tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    buffer = io.BytesIO()
    picture(2, 0).save(buffer, "JPEG", exif=exif, quality=90)
    with tarfile.open(fileobj=io.BytesIO(imagenet["/imagenet-r.tar"])) as tar:
        files = {item.name: tar.extractfile(item).read() for item in tar}
    imagenet["/imagenet-r.tar"] = tar_of({**files, "imagenet-r/n03/art_0.jpg": buffer.getvalue()})
    digest = hashlib.md5(imagenet["/imagenet-r.tar"]).hexdigest()
    monkeypatch.setattr(
        imagenet_r.ImageNetR,
        "ARCHIVES",
        (Archive(imagenet.url + "/imagenet-r.tar", "imagenet-r", f"md5:{digest}"),),
    )
    prepare(imagenet_r.ImageNetR, None, quiet)
    found = imagenet_r.ImageNetR()
    [first] = found.images("train").pixels(np.array([1]))
    assert np.array_equal(first, np.asarray(Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")))
    assert found.manifest()["decoding"].startswith("as published")


def test_domainnet_unpacks_what_the_lists_name_and_remembers_the_archives(domains, tmp_path):
    prepare(domainnet200.DomainNet200, None, quiet)
    root = tmp_path / "data" / "domainnet200"
    assert not list(root.rglob("*_9.jpg"))
    found = domainnet200.DomainNet200()
    assert found.class_names == ["bee", "The_Tower"] and found.text_names() == ["bee", "The Tower"]
    assert found.images("train").labels.tolist() == [0] * 4 + [1] * 4
    recorded = json.loads(
        (tmp_path / "data" / ".prepared" / "domainnet200" / "archives.json").read_text(encoding="utf-8")
    )
    assert recorded[domains.url + "/real.zip"] == {
        "size": len(domains["/real.zip"]),
        "sha256": hashlib.sha256(domains["/real.zip"]).hexdigest(),
    }
    domains["/real.zip"] += b"x"
    for path in (root / "real", root / "real.zip"):
        path.rename(tmp_path / f"away_{path.name}")
    with pytest.raises(
        InputError, match="real.zip sent is not the expected file .*differ from those of its first use"
    ):
        prepare(domainnet200.DomainNet200, None, quiet)
    assert not (root / "real.zip").exists() and not (root / "real").exists()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            "zip",
            {"sketch/The_Tower/sketch_2.jpg": None},
            "lacks sketch/The_Tower/sketch_2.jpg, which the split lists name",
        ),
        ("zip", {"../evil.txt": b"x"}, "unsafe member .*evil.txt' is outside"),
        ("zip", {"/evil.txt": b"x"}, "unsafe member .*evil.txt' is outside"),
        (
            "tar",
            {"imagenet-r/n01/art_0.jpg": None, "imagenet-r/n02/art_0.jpg": None},
            "lacks imagenet-r/n01/art_0.jpg and 1 more",
        ),
        ("tar", {"../evil.txt": b"x"}, "unsafe member"),
    ],
)
def test_archives_that_lack_a_member_or_reach_outside_leave_nothing(
    kind, changes, message, request, tmp_path, monkeypatch
):
    served = request.getfixturevalue("domains" if kind == "zip" else "imagenet")
    path, kind_of_source = (
        ("/sketch.zip", domainnet200.DomainNet200)
        if kind == "zip"
        else ("/imagenet-r.tar", imagenet_r.ImageNetR)
    )
    if kind == "zip":
        with zipfile.ZipFile(io.BytesIO(served[path])) as zipped:
            files = {name: zipped.read(name) for name in zipped.namelist()}
    else:
        with tarfile.open(fileobj=io.BytesIO(served[path])) as tar:
            files = {item.name: tar.extractfile(item).read() for item in tar}
    changed = {name: data for name, data in {**files, **changes}.items() if data is not None}
    served[path] = (zip_of if kind == "zip" else tar_of)(changed)
    if kind == "tar":
        digest = hashlib.md5(served[path]).hexdigest()
        monkeypatch.setattr(
            kind_of_source, "ARCHIVES", (Archive(served.url + path, "imagenet-r", f"md5:{digest}"),)
        )
    with pytest.raises(InputError, match=message):
        prepare(kind_of_source, tmp_path / "root", quiet)
    assert not list(tmp_path.rglob("evil*")) and not list((tmp_path / "root").glob(".*partial"))
    assert not (tmp_path / "root" / ("sketch" if kind == "zip" else "imagenet-r")).exists()


def test_a_changed_split_list_is_refused(imagenet, tmp_path):
    prepare(imagenet_r.ImageNetR, None, quiet)
    path = tmp_path / "data" / ".prepared" / "imagenet-r" / "test.txt"
    path.write_text(path.read_text(encoding="utf-8") + "n01/art_0.jpg\n", encoding="utf-8")
    with pytest.raises(
        InputError,
        match="test.txt is not the published list .*move it away and run `cl-bench prepare imagenet-r`",
    ):
        imagenet_r.ImageNetR()
    with pytest.raises(InputError, match="test.txt is not the expected file"):
        prepare(imagenet_r.ImageNetR, None, quiet)


def test_an_archive_that_proves_damaged_is_not_remembered(domains, tmp_path):
    whole = domains["/real.zip"]
    domains["/real.zip"] = whole[: len(whole) // 2]
    with pytest.raises(InputError, match="real.zip"):
        prepare(domainnet200.DomainNet200, None, quiet)
    (tmp_path / "data" / "domainnet200" / "real.zip").unlink()
    domains["/real.zip"] = whole
    prepare(domainnet200.DomainNet200, None, quiet)
    assert len(domainnet200.DomainNet200().images("train")) == 8


def test_a_symlink_out_of_the_archive_is_refused(imagenet, tmp_path, monkeypatch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("imagenet-r/n01")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
    imagenet["/imagenet-r.tar"] = buffer.getvalue()
    digest = hashlib.md5(buffer.getvalue()).hexdigest()
    monkeypatch.setattr(
        imagenet_r.ImageNetR,
        "ARCHIVES",
        (Archive(imagenet.url + "/imagenet-r.tar", "imagenet-r", f"md5:{digest}"),),
    )
    with pytest.raises(InputError, match="unsafe member"):
        prepare(imagenet_r.ImageNetR, tmp_path / "root", quiet)


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(imagenet, tmp_path, monkeypatch):
    prepare(imagenet_r.ImageNetR, None, quiet)

    def full(path, shape, arrays):
        next(iter(arrays))
        path.write_bytes(b"some")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(listed_images, "stream_npy", full)
        with pytest.raises(
            InputError, match="cannot write the image cache .*No space left on device; set CL_BENCH_CACHE"
        ):
            imagenet_r.ImageNetR().images("train")
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [
        ".json",
        ".lock",
    ]  # digests of the files; no images
    assert len(imagenet_r.ImageNetR().images("train")) == 20


def test_the_cache_is_built_once_however_many_ask_and_a_killed_build_is_cleared(
    imagenet, tmp_path, monkeypatch
):
    prepare(imagenet_r.ImageNetR, None, quiet)
    built, original = [], listed_images.stream_npy
    monkeypatch.setattr(
        listed_images, "stream_npy", lambda *arguments: (built.append(1), original(*arguments))
    )
    found = imagenet_r.ImageNetR()
    threads = [threading.Thread(target=found.images, args=("train",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    [folder] = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    left = folder.with_name(f"{folder.name}.killed.partial")
    left.mkdir()
    (folder / "key.json").unlink()
    found.images("train")
    assert len(built) == 2 and not left.exists()


def test_ragged_images_are_those_given():
    shapes = np.array([[2, 3], [1, 1], [4, 2]])
    pixels = np.arange(3 * (6 + 1 + 8), dtype=np.uint8)
    ragged = Ragged(pixels, shapes)
    assert len(ragged) == 3 and ragged[1].tolist() == [[[18, 19, 20]]]
    assert [image.shape for image in ragged[np.array([2, 0])]] == [(4, 2, 3), (2, 3, 3)] and ragged[
        2
    ].reshape(-1).tolist() == list(range(21, 45))


def request_for(tmp_path, **changes) -> Request:
    weights = toys.write_weights(tmp_path / "w.safetensors")
    settings = {"passes": 2, "batch": 7, "epoch_mode": "plain", "temperature": 4.0, **changes.pop("set", {})}
    values = {
        "methods": "nsp2",
        "dataset": "imagenet-r",
        "backbone": "test_vit",
        "weights": str(weights),
        "image_size": 32,
        "splits": "2",
    }
    return Request(**{**values, "set": settings, **changes})


def test_a_run_on_images_of_differing_sizes_is_repeatable_and_its_transform_is_in_the_record(
    imagenet, tmp_path
):
    prepare(imagenet_r.ImageNetR, None, quiet)
    outcomes = []
    for attempt in ("a", "b"):
        spec = make_plan(request_for(tmp_path)).specs[0]
        outcomes.append(run(spec, Store(tmp_path / attempt), Conditions(), quiet, quiet).outcome())
    assert outcomes[0] == outcomes[1]
    values = outcomes[0]["spec"]["transform"]
    assert (values["augment"], values["crop_interpolation"], values["resize"], values["interpolation"]) == (
        "autoaugment-imagenet", "bilinear", "squash-crop", "bilinear",
    )  # fmt: skip
    assert make_plan(request_for(tmp_path, set={"resize": "squash"})).specs[0].run_id() != spec.run_id()


def test_validation_and_limit_choose_training_images_alone(imagenet, tmp_path):
    prepare(imagenet_r.ImageNetR, None, quiet)
    spec = make_plan(request_for(tmp_path, validation=0.25, limit=8)).specs[0]
    sides = split_images(open_source(spec), spec)
    assert len(sides.test) == 4 and len(sides.train) == len(sides.train_evaluated) == 8
    assert np.array_equal(sides.train.rows, sides.train_evaluated.rows) and not set(sides.train.rows) & set(
        sides.test.rows
    )
    assert sides.test.images is sides.train_evaluated.images


def test_prepare_and_bare_domainnet_at_the_command_line(imagenet, capsys, monkeypatch):
    monkeypatch.setattr(imagenet_r, "PREPARE", partial(prepare, imagenet_r.ImageNetR))
    for arguments, code, text in (
        (["prepare", "imagenet-r"], 0, "holds all 28 images of imagenet-r"),
        (["prepare", "domainnet"], 2, "three data sets of continual learning bear this name: domainnet200"),
        (["run", "--dataset", "domainnet"], 2, "three data sets"),
        (["prepare", "imagenetr"], 2, "did you mean 'imagenet-r'"),
    ):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        assert exit_.value.code == code and text in captured.out + captured.err


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


def test_the_data_folder_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("CL_BENCH_DATA", str(tmp_path))
    assert cache.data_folder("x") == tmp_path / "x"
