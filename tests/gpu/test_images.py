"""Images on a GPU are those on a processor, pixel by pixel, from wherever they come."""

import numpy as np
import pytest
import torch
import toys
from on_device import devices

from cl_bench.config import Transform
from cl_bench.data.device_images import Frames, OnDevice
from cl_bench.data.images import ImageSet, Ragged, resident
from cl_bench.data.preprocess import Preprocess

SIZES = np.array([(20, 31), (33, 24), (18, 18), (33, 31), (20, 31), (64, 48)])
AUGMENTS = ("none", "crop", "crop-flip", "autoaugment-cifar10", "autoaugment-imagenet")
APART = 0.005  # share of pixels that a sum in another order may move to the next level


def ragged() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, int(SIZES.prod(1).sum()) * 3, dtype=np.uint8)
    return ImageSet(Ragged(pixels, SIZES), np.arange(len(SIZES)))


SIDES = {"equal": toys.images(10, 6, 0, size=32), "ragged": ragged()}
sides = pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
augments = pytest.mark.parametrize("augment", AUGMENTS)


def preprocess(augment: str, device: str) -> Preprocess:
    return Preprocess(toys.backbone().spec, Transform(augment=augment), 0, torch.device(device))


def levels(inputs: torch.Tensor) -> torch.Tensor:
    """Network inputs as 8-bit levels: the toy network's mean and deviation are 0.5."""
    return ((inputs.cpu() * 0.5 + 0.5) * 255).round().int()


@devices
@sides
@augments
def test_augmented_images_are_those_of_a_processor(device, side, augment):
    for turn in range(3):
        order = np.random.default_rng(turn).permutation(len(side))
        pixels = side.pixels(order)
        if isinstance(pixels, list) and augment == "none":
            pixels = [pixels[0]]
            order = order[:1]
        here, there = (preprocess(augment, each).augmented(pixels, turn, order) for each in ("cpu", device))
        assert there.device.type == torch.device(device).type and there.shape == here.shape
        apart = (levels(there) - levels(here)).abs()
        assert float((apart > 0).float().mean()) <= APART, int(apart.max())


@devices
@sides
@augments
def test_images_that_lie_on_the_device_are_those_that_are_sent_there(device, side, augment):
    if augment == "none" and side is SIDES["ragged"]:
        pytest.skip("images of differing sizes are resized before they are evaluated")
    [moved] = resident([side], torch.device(device), most=1 << 24)
    assert isinstance(moved.images, OnDevice)
    order, own = np.random.default_rng(1).permutation(len(side)), preprocess(augment, device)
    found = moved.pixels(order)
    assert isinstance(found, Frames) and found.pixels.device.type == torch.device(device).type
    assert torch.equal(own.augmented(found, 2, order), own.augmented(side.pixels(order), 2, order))


@devices
def test_images_go_to_the_device_where_a_quarter_of_its_memory_suffices(device):
    [kept] = resident([SIDES["equal"]], torch.device(device))
    assert isinstance(kept.images, OnDevice) == (device != "cpu")
