"""Frozen features are computed once per unchanging image, and are the same bits for whoever asks."""

import numpy as np
import pytest
import torch
import toys

from cl_bench.data.batch import Batch
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
    batch = task.augmented(np.array([30, 2, 17, 2, 8]), 0)
    parts = torch.cat([part.frozen_features(method.backbone) for part in batch.split(2)])
    assert torch.equal(parts, batch.frozen_features(method.backbone)) and counting.images == 24 + 36
    assert [len(part) for part in batch.split(2)] == [2, 2, 1] and torch.cat(
        [part.labels for part in batch.split(2)]
    ).equal(batch.labels)


def test_statistics_of_a_few_images_do_not_query_the_whole_task():
    stream, method = toys.stream(TASKS, augment="crop"), toys.method("l2p-pgp", 3, passes=2, images=10)
    counting = Counting(method.backbone)
    toys.learn(method, stream, upto=1)
    assert counting.images == 2 * 24 + 10


def test_cached_features_are_those_of_the_network_in_any_order():
    task, trunk = toys.stream(TASKS).task(1), toys.backbone()
    chosen = np.array([30, 2, 17, 2])
    batch = task.augmented(chosen, 0)
    assert torch.allclose(batch.frozen_features(trunk), trunk.features(batch.images), atol=1e-5)
    whole = torch.cat([part.frozen_features(trunk) for part in task.plain(7)])
    assert torch.equal(whole[chosen], batch.frozen_features(trunk))


def test_class_tokens_before_the_last_norm_are_kept_beside_features():
    task, trunk = toys.stream(TASKS).task(1), toys.backbone()
    for batch in task.plain(7):
        tokens = batch.frozen_features(trunk, normed=False)
        anew = Batch(batch.images).frozen_features(trunk, normed=False)
        assert torch.allclose(tokens, anew, atol=1e-5)
        assert torch.allclose(trunk.vit.norm(tokens), batch.frozen_features(trunk), atol=1e-6)
        assert not torch.allclose(tokens, batch.frozen_features(trunk), atol=1e-2)


def test_two_networks_never_share_features_and_test_images_tell_neither_label_nor_place():
    stream, one, two = toys.stream(TASKS), toys.backbone(), toys.backbone(seed=3)
    batch = next(stream.task(0).plain(5))
    assert not torch.allclose(batch.frozen_features(one), batch.frozen_features(two), atol=1e-2)
    shown = []
    stream.evaluate(lambda given: shown.append(given) or torch.zeros(len(given), 2), 1)
    assert all(given.labels is None for given in shown)
    assert not [name for given in shown for name in vars(given.known) if not name.startswith("_")]


def test_a_resumed_evaluation_finds_the_same_bits():
    """Test images of later tasks join the earlier ones in a batch: what was computed must not matter."""
    method = toys.method("l2p", 3)
    gradual, at_once = toys.stream(TASKS), toys.stream(TASKS)
    toys.learn(method, gradual)
    seen = {}

    def watching(stream):
        def predict(batch):
            seen.setdefault(stream, []).append(batch.frozen_features(method.backbone))
            return torch.zeros(len(batch), 7)

        return predict

    gradual.evaluate(lambda batch: method.predict(batch)[:, :2], 1)
    gradual.evaluate(lambda batch: method.predict(batch)[:, :5], 2)
    gradual.evaluate(watching(gradual), 3, batch=10)
    at_once.evaluate(watching(at_once), 3, batch=10)
    assert all(torch.equal(a, b) for a, b in zip(seen[gradual], seen[at_once], strict=True))
