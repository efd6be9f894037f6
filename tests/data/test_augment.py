"""Batched augmentation has torchvision's distributions of parameters and, for given ones, Pillow's pixels."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import AutoAugment, InterpolationMode, RandomResizedCrop
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op

from cl_bench.config import Transform
from cl_bench.data import augment_batch, augment_operations
from cl_bench.data.augment_draws import POLICIES, Draws, crops, draw, magnitude, policies

BILINEAR = InterpolationMode.BILINEAR
CIFAR = Transform(augment="autoaugment-cifar10")
NAMES = {name for found in POLICIES.values() for pair in policies(found) for name, *_ in pair}


def pictures(count, height, width, seed=0):
    """Smooth and noisy images, one of a single color, as (count, height, width, 3)."""
    generator = np.random.default_rng(seed)
    smooth = np.linspace(0, 255, height)[:, None, None] * generator.random((count, 1, width, 3)) * 0.8
    found = (smooth + generator.integers(0, 50, (count, height, width, 3))).astype(np.uint8)
    found[0] = 77
    found[1] = generator.integers(0, 256, (height, width, 3))
    return found


def tensor(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def padded(images, height, width):
    out = np.zeros((len(images), height, width, 3), np.uint8)
    for row, image in enumerate(images):
        out[row, : image.shape[0], : image.shape[1]] = image
    return out


def cases(name, sizes):
    """(magnitude as torchvision has it, ours) of all ten bins, both signs where it has them, by image."""
    for row, (height, width) in enumerate(sizes):
        values, signed = AutoAugment()._augmentation_space(10, (height, width))[name]
        for index in range(10 if values.dim() else 1):
            theirs = float(values[index] if values.dim() else 0.0)
            [ours] = magnitude(
                name, np.array([index if values.dim() else None], object), np.array([(height, width)])
            )
            for sign in (1, -1) if signed else (1,):
                yield row, sign * theirs, sign * ours


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_operation_has_torchvisions_magnitudes_and_pillows_pixels(name):
    images = [*pictures(4, 32, 32), *pictures(3, 20, 31, 1), *pictures(3, 33, 24, 2)]
    sizes = np.array([image.shape[:2] for image in images])
    frames = tensor(padded(images, 40, 37))
    for row, theirs, ours in cases(name, sizes):
        assert ours == theirs
        wanted = np.asarray(_apply_op(Image.fromarray(images[row]), name, theirs, BILINEAR, None)).astype(int)
        one = np.array([row])
        found = (
            augment_batch.operated(frames[one], sizes[one], np.array([name], object), np.array([ours]))[0]
            .permute(1, 2, 0)
            .numpy()
            .astype(int)
        )
        height, width = sizes[row]
        apart = np.abs(found[:height, :width] - wanted)
        assert not found[height:].any() and not found[:, width:].any()
        if (
            name in augment_operations.AFFINE
        ):  # a pixel on the very border of the image may fall on either side of it
            assert (apart > 1).mean() < 0.005 and (
                apart == 1
            ).mean() < 0.12  # Pillow also cuts 6.9999999 to 6
        else:
            assert apart.max() == 0


def test_operations_of_a_batch_are_those_of_each_image_alone():
    images, sizes = tensor(pictures(40, 32, 32)), np.full((40, 2), 32)
    drawn = draw(CIFAR, sizes, (1,), np.arange(40))
    whole = augment_batch.augmented(images, sizes, drawn, 48, "bicubic")
    for row in range(40):
        own = Draws(
            drawn.operations[:, [row]], drawn.magnitudes[:, [row]], drawn.boxes[[row]], drawn.mirrored[[row]]
        )
        assert torch.equal(
            augment_batch.augmented(images[[row]], sizes[[row]], own, 48, "bicubic")[0], whole[row]
        )


@pytest.mark.parametrize("name", ["autoaugment-imagenet", "autoaugment-cifar10"])
def test_what_lies_around_a_smaller_image_does_not_touch_it(name):
    images = pictures(48, 64, 85)
    sizes, frames = np.full((48, 2), (64, 85)), np.zeros((48, 130, 97, 3), np.uint8)
    frames[:, :64, :85] = images
    drawn = draw(Transform(augment=name), sizes, (5,), np.arange(48))
    for interpolation in ("bicubic", "bilinear"):
        found = [
            augment_batch.augmented(tensor(pixels), sizes, drawn, 56, interpolation)
            for pixels in (images, frames)
        ]
        assert torch.equal(*found)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 56), (60, 41, 24), (37, 80, 48)])
def test_a_resized_crop_is_pillows(height, width, size, interpolation):
    images = pictures(6, height, width)
    boxes = crops(
        np.full((6, 2), (height, width)),
        0.08,
        *np.random.default_rng(1).random((2, 6, 10)),
        *np.random.default_rng(2).random((2, 6)),
    )
    mirrored = np.arange(6) % 2 == 1
    found = augment_batch.resized_crops(tensor(images).float(), boxes, mirrored, size, interpolation)
    for row, (top, left, h, w) in enumerate(boxes.tolist()):
        mode = InterpolationMode(interpolation)
        across = F.resized_crop(
            Image.fromarray(images[row]), top, left, h, w, [h, size], mode
        )  # newer Pillows would choose which way is first
        wanted = np.asarray(F.resize(across, [size, size], mode))
        wanted = wanted[:, ::-1] if mirrored[row] else wanted
        apart = found[row].permute(1, 2, 0).numpy() - wanted
        assert (
            np.abs(apart).max() <= 1 and (apart != 0).mean() < 0.08 and abs(apart.mean()) < 0.1
        )  # where a sum lies half-way between two levels


def test_every_policy_is_drawn_as_often_as_torchvision_draws_it():
    count = 100_000
    drawn = draw(CIFAR, np.full((count, 2), 32), (0,), np.arange(count))
    table = policies("cifar10")
    for slot in (0, 1):
        for name in NAMES | {""}:
            told = [(entry[slot][1] if entry[slot][0] == name else 0) for entry in table]
            expected = (
                sum(told) / len(table) if name else 1 - sum(entry[slot][1] for entry in table) / len(table)
            )
            assert (drawn.operations[slot] == name).mean() == pytest.approx(expected, abs=0.005)
    rotated = drawn.magnitudes[0][drawn.operations[0] == "Rotate"]
    assert {round(value, 4) for value in rotated.tolist()} == {-6.6667, 6.6667} and np.mean(
        rotated > 0
    ) == pytest.approx(0.5, abs=0.03)
    assert not drawn.mirrored.any()
    assert draw(
        Transform(augment="crop-flip"), np.full((count, 2), 32), (0,), np.arange(count)
    ).mirrored.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (30, 64), (10, 90), (90, 10)])
def test_crops_are_distributed_as_torchvisions(height, width):
    torch.manual_seed(0)
    image, count = Image.new("RGB", (width, height)), 4000
    theirs = np.array(
        [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(count)]
    )
    ours = draw(CIFAR, np.full((count, 2), (height, width)), (0,), np.arange(count)).boxes
    for column in range(4):
        assert np.quantile(ours[:, column], [0.1, 0.5, 0.9]) == pytest.approx(
            np.quantile(theirs[:, column], [0.1, 0.5, 0.9]), abs=0.05 * max(height, width)
        )
        assert ours[:, column].mean() == pytest.approx(
            theirs[:, column].mean(), abs=0.02 * max(height, width)
        )


def test_an_images_draws_depend_on_its_index_and_the_key_alone():
    sizes = np.full((50, 2), 32)
    whole, part = (
        draw(CIFAR, sizes, (1, 2), np.arange(50)),
        draw(CIFAR, sizes[:3], (1, 2), np.array([7, 3, 30])),
    )
    for name in ("operations", "magnitudes"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[:, [7, 3, 30]])
    assert np.array_equal(part.boxes, whole.boxes[[7, 3, 30]])
    other = draw(CIFAR, sizes, (1, 3), np.arange(50))
    assert not np.array_equal(other.boxes, whole.boxes) and not np.array_equal(
        other.operations, whole.operations
    )
