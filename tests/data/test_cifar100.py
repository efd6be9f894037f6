"""CIFAR-100 from an archive of the true format, made small, and its published training transform."""

import hashlib
import os

import numpy as np
import pytest
import small_cifar
import torch
import toys
from cl_bench.datasets import cifar100
from PIL import Image
from torchvision import transforms

from cl_bench import seeds
from cl_bench.cli import main
from cl_bench.config import Transform
from cl_bench.data import augment_pillow
from cl_bench.data.preprocess import Preprocess
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry
from cl_bench.records.store import Store
from cl_bench.run.learning import Conditions
from cl_bench.run.runner import run

NAMES = ["apple", "bear", "cloud", "dolphin"]


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive with 3 + 2 images of four classes, with its digests."""
    content, digests = small_cifar.archive(NAMES)
    monkeypatch.setattr(cifar100, "MD5", digests)
    monkeypatch.setattr(cifar100, "SHA256", hashlib.sha256(content).hexdigest())
    path = tmp_path / "root" / "cifar-100-python.tar.gz"
    path.parent.mkdir()
    path.write_bytes(content)
    return path


def test_an_archive_in_place_is_verified_unpacked_and_read(archive):
    said = []
    cifar100.prepare(archive.parent, said.append)
    assert "is complete" in said[0] and archive.exists()
    source = registry.source_class("cifar100")(str(archive.parent))
    train = source.images("train")
    assert (
        source.class_names == NAMES
        and train.images.shape == (12, 32, 32, 3)
        and np.bincount(train.labels).tolist() == [3] * 4
    )
    made = toys.images(3, 4, 0, 32)
    order = np.random.default_rng(0).permutation(12)
    assert np.array_equal(train.images, made.images[order]) and np.array_equal(
        train.labels, made.labels[order]
    )
    cifar100.prepare(archive.parent, said.append)
    assert said[1].endswith("is complete")


def test_faults_are_named_and_nothing_is_deleted(archive, tmp_path):
    with pytest.raises(InputError, match="meta is missing; run `cl-bench prepare cifar100`"):
        registry.source_class("cifar100")(str(tmp_path / "nowhere"))
    cifar100.prepare(archive.parent, lambda line: None)
    path = archive.parent / cifar100.FOLDER / "meta"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(InputError, match="is not the authors' file"):
        registry.source_class("cifar100")(str(archive.parent))
    with pytest.raises(InputError, match="exists but is not complete"):
        cifar100.prepare(archive.parent, lambda line: None)
    assert path.exists()
    archive.write_bytes(b"other")
    path.parent.rename(tmp_path / "away")
    with pytest.raises(InputError, match="is not the expected file"):
        cifar100.prepare(archive.parent, lambda line: None)


def test_a_file_that_changes_after_it_was_decoded_is_noticed(archive):
    cifar100.prepare(archive.parent, lambda line: None)
    source = registry.source_class("cifar100")(str(archive.parent))
    source.images("train")
    path = archive.parent / cifar100.FOLDER / "train"
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for again in (source.verify, lambda: registry.source_class("cifar100")(str(archive.parent))):
        with pytest.raises(
            InputError,
            match="train is not the authors' file .*move it away and run `cl-bench prepare cifar100`",
        ):
            again()


def test_prepare_at_the_command_line(archive, capsys):
    for arguments, code, text in (
        (["prepare", "cifar100", "--root", str(archive.parent)], 0, "is complete"),
        (["prepare", f"cifar100:{archive.parent}"], 0, "is complete"),
        (["prepare", "cifar100:x", "--root", "y"], 2, "names a folder already; leave out --root"),
        (["prepare", "glyphs"], 0, "needs no preparation"),
        (["prepare", "cifar10"], 2, "did you mean 'cifar100'"),
    ):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        assert exit_.value.code == code and text in captured.out + captured.err


def test_the_archive_and_a_folder_of_the_same_images_give_the_same_counts(archive, tmp_path):
    cifar100.prepare(archive.parent, lambda line: None)
    source = registry.source_class("cifar100")(str(archive.parent))
    for side in ("train", "test"):
        data = source.images(side)
        for row, (pixels, c) in enumerate(zip(data.images, data.labels, strict=True)):
            folder = tmp_path / "copy" / side / NAMES[c]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{row:02d}.png")
    weights = toys.write_weights(tmp_path / "w.safetensors")
    settings = {"passes": 3, "batch": 100, "epoch_mode": "plain", "augment": "none", "temperature": 4.0}
    outcomes = []
    for dataset in (f"cifar100:{archive.parent}", f"folder:{tmp_path / 'copy'}"):
        request = {
            "methods": "nsp2",
            "dataset": dataset,
            "backbone": "test_vit",
            "weights": str(weights),
            "image_size": 32,
            "splits": "2",
            "set": settings,
        }
        record = run(
            make_plan(Request(**request)).specs[0],
            Store(tmp_path / "results"),
            Conditions(),
            lambda line: None,
            lambda progress: None,
        )
        outcomes.append((record.correct, record.test_sizes))
    assert outcomes[0] == outcomes[1]


def preprocess(seed: int = 3) -> Preprocess:
    return Preprocess(
        toys.backbone().spec, Transform(augment="autoaugment-cifar10"), seed, torch.device("cpu")
    )


def test_the_training_transform_is_torchvisions_own_with_the_images_seed():
    images = toys.images(4, 3, 0, 32).images
    seeds = list(range(50, 62))
    found = augment_pillow.augmented(images, Transform(augment="autoaugment-cifar10"), 24, seeds)
    reference = transforms.Compose([
        transforms.AutoAugment(transforms.AutoAugmentPolicy.CIFAR10, transforms.InterpolationMode.BILINEAR),
        transforms.RandomResizedCrop(24, (0.08, 1.0), interpolation=transforms.InterpolationMode.BICUBIC),
    ])  # fmt: skip
    for image, seed, result in zip(images, seeds, found, strict=True):
        torch.manual_seed(seed)
        assert np.array_equal(np.asarray(reference(Image.fromarray(image))), result)


@pytest.mark.slow
def test_an_image_augmented_in_any_batch_or_process_is_the_same_and_changes_with_pass_and_seed():
    images, rows = toys.images(2, 4, 0, 32).images, np.arange(100, 108)
    whole = preprocess().augmented(images, 0, rows)
    assert whole.shape == (8, 3, 16, 16) and whole.abs().max() <= 1
    assert torch.equal(preprocess().augmented(images[3:4], 0, rows[3:4])[0], whole[3])
    assert not torch.equal(preprocess().augmented(images, 1, rows), whole) and not torch.equal(
        preprocess(4).augmented(images, 0, rows), whole
    )
    key = (3, "autoaugment-cifar10", 0)
    numbered = [seeds.derived_seed(*key, int(row)) for row in rows]
    policy, batches = (
        Transform(augment="autoaugment-cifar10"),
        [(images, numbered), (images[:3], numbered[:3])],
    )
    one, two = (
        list(augment_pillow.augmented_batches(batches, policy, 16, processes)) for processes in (1, 2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True)) and np.array_equal(
        two[0][:3], two[1]
    )


def test_the_slow_reference_path_is_taken_where_it_is_asked_for():
    images, rows = toys.images(2, 4, 0, 32).images, np.arange(100, 108)
    transform = Transform(augment="autoaugment-cifar10", augmenter="torchvision")
    built = Preprocess(toys.backbone().spec, transform, 3, torch.device("cpu"))
    pixels = augment_pillow.augmented(
        images, transform, 16, [seeds.derived_seed(3, "autoaugment-cifar10", 1, int(row)) for row in rows]
    )
    assert torch.equal(built.augmented(images, 1, rows), built.plain(pixels, ready=True))
    assert not torch.equal(built.augmented(images, 1, rows), preprocess().augmented(images, 1, rows))


def test_augmenting_leaves_the_global_random_numbers_alone():
    built, images = preprocess(), toys.images(1, 2, 0, 32).images
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    built.augmented(images, 0, np.arange(2))
    assert torch.equal(torch.rand(1), expected)
