"""Images of ImageNet-R from small archives of the true format: read, cached, evaluated, learned."""

import hashlib
import io
import tarfile
import threading

import numpy as np
import pytest
import torch
import toys
from cl_bench.datasets import imagenet_r
from listed_archives import content, picture, quiet, tar_of
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from cl_bench.config import Transform
from cl_bench.data import augment_pillow, decoded
from cl_bench.data.decoded import evaluation_image
from cl_bench.data.images import Ragged
from cl_bench.data.listed_files import Archive
from cl_bench.data.prepare_listed import prepare
from cl_bench.data.preprocess import Preprocess
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store
from cl_bench.run.assemble import open_source, split_images
from cl_bench.run.learning import Conditions
from cl_bench.run.runner import run


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


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(imagenet, tmp_path, monkeypatch):
    prepare(imagenet_r.ImageNetR, None, quiet)

    def full(path, shape, arrays):
        next(iter(arrays))
        path.write_bytes(b"some")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(decoded, "stream_npy", full)
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
    built, original = [], decoded.stream_npy
    monkeypatch.setattr(decoded, "stream_npy", lambda *arguments: (built.append(1), original(*arguments)))
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
