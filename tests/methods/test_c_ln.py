"""C-LN: norms and keys that stay, a head that is trained last, and stages that cost what they say."""

from itertools import pairwise

import pytest
import torch
import toys
from lessons import TASKS, after, lesson

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo

VARIANTS = {
    "query": {},
    "layers": {"routing": "layers"},
    "layers, new keys": {"routing": "layers", "new_keys": True},
    "copied keys": {"new_keys": False},
    "no rectification": {"rectify": False},
    "as up to torch 1.13": {"stale_gradients": True},
}
variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
IMAGES = torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(4))


def of_task(method, index: int) -> dict[str, torch.Tensor]:
    """Norms, keys and rows of the head of one task."""
    return {name: value for name, value in method.state().items() if f".{index}" in name}


@variants
def test_what_an_old_task_has_stays_bit_for_bit(options):
    first, last = after(1, "c-ln", **options), after(3, "c-ln", **options)
    names = {"banks.gamma.0", "banks.beta.0", "banks.keys.0", "head.heads.0.weight", "head.heads.0.bias"}
    names |= {"banks.attention.0"} if "routing" in options else set()
    assert set(of_task(first, 0)) == names and toys.equal(of_task(first, 0), of_task(last, 0))
    assert torch.equal(*(method.backbone.features(IMAGES, first.banks.of_task()) for method in (first, last)))


@variants
def test_an_image_is_predicted_by_itself(options):
    method = after(3, "c-ln", **options)
    together = method.predict(Batch(IMAGES))
    alone = torch.cat([method.predict(Batch(image[None])) for image in IMAGES])
    assert together.shape == (12, 7) and torch.allclose(together, alone, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"routing": "layers"}, {"rectify": False}], ids=str)
@pytest.mark.parametrize("augment", ["none", "crop"])
def test_the_stages_cost_what_they_say(options, augment):
    stream = toys.stream(TASKS, augment=augment)
    for step in lesson(toys.method("c-ln", 3, batch=5, **options), stream):
        method = step.copy()
        assert step.passed_learning == method.forwards(step.task, step.images, augment != "none")
        passes = 1 if options.get("routing") == "layers" else 2
        assert method.prediction_passes == passes
        *_, new = sizes = stream.test_sizes[: step.task.index + 1]  # queries are kept of test images
        assert step.passed_evaluating == sum(sizes) + (passes - 1) * new


def test_all_trained_values_are_the_newest_norms_key_and_rows():
    """Five norms of 32, scales and shifts, a key, and two classes of 32 + 1."""
    trained = after(3, "c-ln").trained()
    assert sum(value.numel() for value in trained.values()) == 5 * 2 * 32 + 32 + 2 * 33
    everywhere = after(3, "c-ln", routing="layers").trained()
    assert sum(value.numel() for value in everywhere.values()) == 5 * 4 * 32 + 2 * 33


def test_keys_do_not_depend_on_norms_and_head():
    first, second = after(3, "c-ln"), after(3, "c-ln", rectify=False, head_init="uniform")
    assert all(torch.equal(*keys) for keys in zip(first.banks.keys, second.banks.keys, strict=True))
    assert not torch.allclose(first.banks.gamma[0], second.banks.gamma[0])


def test_the_head_is_trained_by_rectification_alone():
    fresh = toys.method("c-ln", 3)
    fresh.grow(toys.stream(TASKS).info(0))
    rows = fresh.head.heads[0].weight
    resting, moved = after(1, "c-ln", rectify_rate=1e-12), after(1, "c-ln", rectify=False)
    assert torch.allclose(resting.head.heads[0].weight, rows, atol=1e-9)
    assert not torch.allclose(moved.head.heads[0].weight, rows, atol=1e-3)
    assert torch.equal(resting.banks.gamma[0], moved.banks.gamma[0])  # by the twin, which starts alike


def test_up_to_torch_1_13_keys_go_on_by_their_moments_and_later_norms_make_smaller_first_steps():
    now, then = after(1, "c-ln"), after(1, "c-ln", stale_gradients=True)
    assert torch.equal(now.banks.gamma[0], then.banks.gamma[0])
    assert not torch.allclose(now.banks.keys[0], then.banks.keys[0], atol=1e-3)
    moved = []
    for stale in (False, True):
        method = after(2, "c-ln", stale_gradients=stale, passes=1, batch=100)  # one step a stage
        moved.append((method.banks.gamma[1] - method.banks.gamma[0]).abs().max().item())
    # with moments g / 10 and g^2 / 1000, Adam's second step is by 0.1 / 0.19 over sqrt(0.001 / 0.001999)
    assert moved[0] == pytest.approx(0.02, rel=1e-3)
    assert moved[1] == pytest.approx(0.02 * (0.1 / 0.19) / (0.001 / 0.001999) ** 0.5, rel=1e-3)


def test_keys_are_drawn_where_the_scripts_draw_them_and_copied_where_they_copy():
    stream = toys.stream(TASKS)
    for options, copied in (({}, False), ({"routing": "layers"}, True), ({"new_keys": False}, True)):
        method = toys.method("c-ln", 3, **options)
        for index in range(3):
            method.grow(stream.info(index))
        assert all(torch.equal(*pair) == copied for pair in pairwise(method.banks.keys))


def test_as_published_classes_to_come_compete():
    kind = toys.method_class("c-ln")
    stream = StreamInfo(init_seed=1, num_tasks=3, task_sizes=(2, 3, 2))
    method = kind(kind.Config(eval_classes=kind.AS_PUBLISHED["eval_classes"]), toys.backbone(), stream)
    method.grow(toys.stream(TASKS).info(0))
    assert method.predict(Batch(IMAGES)).shape == (12, 7)


def test_every_norm_chooses_in_full_precision_where_the_network_is_in_bf16():
    method = toys.method("c-ln", 3, routing="layers")
    toys.learn(method, toys.stream(TASKS), precision="bf16")
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in method.state().values())
