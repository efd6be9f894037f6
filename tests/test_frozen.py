"""Frozen features: computed once per image, the same to the last bit whoever asks, and forgotten for anything that is not the image itself."""

import numpy as np
import pytest
import torch
import toys

from cl_bench.frozen import split
from cl_bench.nn.edits import NONE

TASKS = [[2, 0], [1, 3, 4], [5, 6]]


class Counting:
    """A backbone's `features`, counting the images that pass through without prompts."""

    def __init__(self, backbone):
        self.images, self._original = 0, backbone.features
        backbone.features = self

    def __call__(self, images, edits=NONE):
        self.images += len(images) if edits is NONE else 0
        return self._original(images, edits)


@pytest.mark.parametrize(("augment", "passes"), [("none", 1), ("crop", 5)])
def test_training_and_evaluation_query_each_image_once_where_it_never_changes(augment, passes):
    stream = toys.stream(TASKS, augment=augment)
    method = toys.method("l2p", 3, passes=5)
    counting = Counting(method.backbone)
    for index in range(3):
        toys.learn(method, stream, upto=index + 1, start=index)
        for _ in range(2):
            stream.evaluate(method.predict, index + 1)
    assert counting.images == passes * 7 * 12 + 7 * 6  # training images, then test images


def test_statistics_share_the_queries_of_training():
    stream, method = toys.stream(TASKS), toys.method("l2p-pgp", 3, passes=2)
    counting = Counting(method.backbone)
    toys.learn(method, stream, upto=1)
    assert counting.images == 24


def test_parts_of_a_batch_share_them_too():
    stream, method = toys.stream(TASKS), toys.method("l2p", 3, passes=2, batch=9)
    counting = Counting(method.backbone)
    toys.learn(method, stream, upto=1, micro_batch=4)
    assert counting.images == 24
    task = stream.task(1)
    images, _ = task.augmented(np.array([30, 2, 17, 2, 8]), 0)
    parts = torch.cat([method.backbone.frozen_features(part) for part in split(images, 2)])
    assert torch.equal(parts, method.backbone.frozen_features(images)) and counting.images == 24 + 36
    assert [len(part) for part in split(torch.zeros(5), 2)] == [2, 2, 1]


def test_statistics_of_a_few_images_do_not_query_the_whole_task():
    stream, method = toys.stream(TASKS, augment="crop"), toys.method("l2p-pgp", 3, passes=2, images=10)
    counting = Counting(method.backbone)
    toys.learn(method, stream, upto=1)
    assert counting.images == 2 * 24 + 10


def test_cached_features_are_those_of_the_network_in_any_order():
    task, trunk = toys.stream(TASKS).task(1), toys.backbone()
    chosen = np.array([30, 2, 17, 2])
    images = task.augmented(chosen, 0)[0]
    assert torch.allclose(trunk.frozen_features(images), trunk.features(images), atol=1e-5)
    whole = torch.cat([trunk.frozen_features(x) for x, _ in task.plain(7)])
    assert torch.equal(whole[chosen], trunk.frozen_features(images))


def test_two_networks_and_changed_images_never_share_features():
    task, one, two = toys.stream(TASKS).task(0), toys.backbone(), toys.backbone(seed=3)
    images, _ = next(task.plain(5))
    assert not torch.allclose(one.frozen_features(images), two.frozen_features(images), atol=1e-2)
    for changed in (images.flip(3), images[:2], images + 1.0, images.clone()):
        assert not hasattr(changed, "frozen_features")
        assert torch.allclose(one.frozen_features(changed), one.features(changed), atol=1e-6)


def test_a_resumed_evaluation_finds_the_same_bits():
    """Test images of later tasks join the earlier ones in the same batch: what was computed before must not matter."""
    method = toys.method("l2p", 3)
    gradual, at_once = toys.stream(TASKS), toys.stream(TASKS)
    toys.learn(method, gradual)
    seen = {}

    def watching(stream):
        def predict(images):
            seen.setdefault(stream, []).append(method.backbone.frozen_features(images))
            return torch.zeros(len(images), 7)

        return predict

    gradual.evaluate(lambda images: method.predict(images)[:, :2], 1)
    gradual.evaluate(lambda images: method.predict(images)[:, :5], 2)
    gradual.evaluate(watching(gradual), 3, batch=10)
    at_once.evaluate(watching(at_once), 3, batch=10)
    assert all(torch.equal(a, b) for a, b in zip(seen[gradual], seen[at_once], strict=True))
