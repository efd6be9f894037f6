"""Images in a device's memory give every network input, and run, to the last bit as images on the host."""

from pathlib import Path

import numpy as np
import pytest
import runs
import torch
import toys

from cl_bench.config import Transform
from cl_bench.data.device_images import Frames, OnDevice, gathered, packed
from cl_bench.data.images import ImageSet, Ragged, resident
from cl_bench.data.preprocess import Preprocess, framed
from cl_bench.run import assemble

CPU = torch.device("cpu")
SIZES = np.array([(20, 31), (33, 24), (18, 18), (33, 31), (20, 31)])


def ragged_side() -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, int(SIZES.prod(1).sum()) * 3, dtype=np.uint8)
    return ImageSet(Ragged(pixels, SIZES), np.arange(5))


def test_images_of_differing_sizes_are_put_into_frames_as_on_the_host():
    images = ragged_side().pixels(np.array([3, 0, 2]))
    pixels, starts = packed(images)
    found = gathered(torch.from_numpy(pixels), torch.from_numpy(starts), SIZES[[3, 0, 2]])
    assert found.dtype == torch.uint8 and np.array_equal(found.numpy(), framed(images))


@pytest.mark.parametrize("side", [ragged_side(), toys.images(3, 4, 0)], ids=["ragged", "equal"])
def test_a_side_on_the_device_holds_the_chosen_images_and_labels(side):
    chosen = side.select(np.array([4, 1, 2]))
    [moved] = resident([chosen], CPU, most=1 << 20)
    assert (
        isinstance(moved.images, OnDevice)
        and len(moved.images) == 3
        and np.array_equal(moved.labels, chosen.labels)
    )
    for rows in ([2], [1, 0], [0, 1, 2, 1]):
        found, images = moved.pixels(np.array(rows)), chosen.pixels(np.array(rows))
        assert isinstance(found, Frames) and np.array_equal(found.pixels.numpy(), framed(images))
        assert np.array_equal(found.sizes, [image.shape[:2] for image in images])
    again = moved.select(np.array([2, 0]))
    assert np.array_equal(again.pixels(np.array([1])).pixels.numpy(), framed(chosen.pixels(np.array([0]))))


@pytest.mark.parametrize("augment", ["autoaugment-imagenet", "crop-flip"])
def test_augmented_inputs_are_the_same_from_the_device(augment):
    side, order = ragged_side(), np.array([1, 3, 0, 4])
    preprocess = Preprocess(toys.backbone().spec, Transform(augment=augment), 0, CPU)
    [moved] = resident([side], CPU, most=1 << 20)
    assert torch.equal(
        preprocess.augmented(moved.pixels(order), 2, order),
        preprocess.augmented(side.pixels(order), 2, order),
    )


def test_sides_go_to_the_device_in_turn_while_they_fit_and_one_side_once():
    small, large, last = toys.images(1, 4, 0), toys.images(50, 4, 0), toys.images(2, 4, 0)
    room = 12 * 16 * 16 * 3
    first, second, third, fourth = resident([small, large, last, small], CPU, most=room)
    assert (
        first is fourth
        and isinstance(first.images, OnDevice)
        and second is large
        and isinstance(third.images, OnDevice)
    )
    assert (
        resident([small], CPU, most=room // 12 * 4 - 1) == [small] == resident([small], CPU)
    )  # no room; nothing to gain without a GPU


@pytest.mark.parametrize("augment", ["none", "autoaugment-cifar10"])
def test_a_run_is_the_same_to_the_last_bit(augment, toy_request, tmp_path: Path, monkeypatch):
    spec = runs.spec_of(toy_request)
    spec = spec.model_copy(update={"transform": spec.transform.model_copy(update={"augment": augment})})
    expected = runs.execute(spec, tmp_path / "host").outcome()
    asked = []

    def all_of_it(sides, device):
        asked.append(moved := resident(sides, device, most=1 << 30))
        return moved

    monkeypatch.setattr(assemble, "resident", all_of_it)
    assert runs.execute(spec, tmp_path / "device").outcome() == expected
    assert all(isinstance(side.images, OnDevice) for side in asked[0]) and (
        asked[0][0] is asked[0][2]
    )  # training images are there once


def test_images_that_pillow_augments_stay_on_the_host(toy_request, monkeypatch):
    spec = runs.spec_of(toy_request)
    spec = spec.model_copy(update={"transform": Transform(augment="crop", augmenter="torchvision")})
    asked = []
    monkeypatch.setattr(assemble, "resident", lambda sides, device: asked.append(sides) or sides)
    assemble.build_stream(spec, assemble.open_source(spec), CPU)
    assert len(asked[0]) == 2
