"""Class orders, tasks, seeds, transforms and evaluation."""

import numpy as np
import pytest
import torch
import toys

from cl_bench import seeds
from cl_bench.config import BackboneSpec, Transform
from cl_bench.data.augment_draws import draw
from cl_bench.data.batch import Batch
from cl_bench.data.images import ImageSet
from cl_bench.data.preprocess import Preprocess
from cl_bench.data.stream import Sides, Stream
from cl_bench.data.subset import held_out, limited
from cl_bench.errors import InputError, RunFailed
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer


def test_a_task_holds_its_own_classes_images_with_labels_counted_in_stream_order():
    stream = toys.stream([[2, 0], [1, 3, 4]])
    task = stream.task(1)
    assert task.classes == (1, 3, 4) and task.first_label == 2 and len(task) == 36
    images, labels = zip(*((batch.images, batch.labels) for batch in task.plain(10)), strict=True)
    assert [len(part) for part in images] == [10, 10, 10, 6]
    source = toys.images(12, 5, 0)
    expected = np.concatenate([source.images[source.labels == c] for c in (1, 3, 4)])
    assert torch.allclose(
        torch.cat(images), torch.tensor(expected).permute(0, 3, 1, 2).float() / 127.5 - 1, atol=1e-6
    )
    assert torch.cat(labels).tolist() == [2] * 12 + [3] * 12 + [4] * 12


def test_evaluation_counts_right_answers_per_task_among_all_and_among_own_classes():
    # two classes a task, one image each; the "image" carries its class as its grey level
    pixels = np.array([10, 20, 30, 40], np.uint8).reshape(4, 1, 1, 1) * np.ones((1, 2, 2, 3), np.uint8)
    side = ImageSet(pixels, np.array([0, 1, 2, 3]))
    spec = BackboneSpec(name="x", image_size=2, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    stream = Stream(
        Sides(side, side, side), [[2, 0], [1, 3]], Preprocess(spec, Transform(), 0, torch.device("cpu"))
    )
    # scores by grey level, columns in stream order (classes 2, 0, 1, 3)
    table = {30: [9, 1, 0, 0], 10: [1, 2, 5, 0], 20: [7, 0, 3, 2], 40: [0, 0, 1, 2]}

    def predict(images, columns):
        return torch.tensor(
            [table[round(float(image[0, 0, 0]) * 255)][:columns] for image in images], dtype=torch.float32
        )

    first = stream.evaluate(lambda batch: predict(batch.images, 2), 1, batch=1)
    assert first.correct == [2] and first.correct_within_task == [2]
    assert first.predictions.tolist() == [0, -1, 2, -1]
    both = stream.evaluate(lambda batch: predict(batch.images, 4), 2, batch=3)
    assert both.correct == [1, 1] and both.correct_within_task == [
        2,
        2,
    ]  # class 0 is taken for 1, class 1 for 2; each is right within its task
    assert both.predictions.tolist() == [1, 2, 2, 3]
    with pytest.raises(RuntimeError, match="expected"):
        stream.evaluate(lambda batch: predict(batch.images, 3), 2)


def test_batches_that_predict_together_hold_one_tasks_images_in_order():
    stream, sizes = toys.stream([[2, 0], [1, 3, 4]]), []  # 12 and 18 test images

    def predict(images):
        sizes.append(len(images))
        return torch.zeros(len(images), 5)

    stream.evaluate(predict, 2, together=8)
    assert sizes == [8, 4, 8, 8, 2]
    sizes.clear()
    stream.evaluate(predict, 2)
    assert sizes == [30]


def test_classes_that_no_task_has_brought_may_compete_and_are_then_wrong():
    stream = toys.stream([[2, 0], [1, 3, 4]])
    scores = torch.tensor(
        [1.0, 0.5, 0.0, 2.0, 0.0]
    )  # the fourth position in the order, class 3, belongs to the second task
    found = stream.evaluate(lambda images: scores.expand(len(images), -1), 1)
    assert found.correct == [0] and found.correct_within_task == [6]
    assert set(found.predictions.tolist()) == {-1, 3}


def test_joint_learns_one_task_and_evaluates_each():
    stream = toys.stream([[2, 0], [1, 3, 4]], joint=True)
    assert (
        stream.num_tasks == 1 and stream.task(0).classes == (2, 0, 1, 3, 4) and stream.test_sizes == (12, 18)
    )


def test_random_numbers_depend_on_their_key_and_index_alone():
    many = seeds.uniforms(np.arange(1000), 4, 5, "crop", 2)
    assert np.array_equal(many[[7, 3]], seeds.uniforms(np.array([7, 3]), 4, 5, "crop", 2))
    mixed = seeds.uniforms(
        np.array([7, 3, 7]), 4, 5, "crop", np.array([1, 2, 2])
    )  # each row with a last part of its own
    assert np.array_equal(mixed[1:], many[[3, 7]]) and np.array_equal(
        mixed[:1], seeds.uniforms(np.array([7]), 4, 5, "crop", 1)
    )
    assert (
        many.min() >= 0
        and many.max() < 1
        and abs(many.mean() - 0.5) < 0.02
        and np.unique(many).size == many.size
    )
    for other in ((6, "crop", 2), (5, "flip", 2), (5, "crop", 3)):
        assert not np.isclose(many, seeds.uniforms(np.arange(1000), 4, *other)).any(axis=1).all()
    assert abs(np.corrcoef(many[:-1, 0], many[1:, 0])[0, 1]) < 0.1
    assert sorted(seeds.permutation(10, 1, "a")) == list(range(10))
    assert seeds.derived_seed(1, 23) != seeds.derived_seed(12, 3)


def preprocess(**transform) -> Preprocess:
    return Preprocess(toys.backbone().spec, Transform(**transform), 3, torch.device("cpu"))


def test_choices_are_uniform_and_belong_to_their_index():
    found = seeds.choices(np.arange(3000), 3, 5, "task")
    assert sorted(set(found.tolist())) == [0, 1, 2] and np.bincount(found).min() > 900
    assert np.array_equal(found[[70, 3]], seeds.choices(np.array([70, 3]), 3, 5, "task"))
    assert not np.array_equal(found, seeds.choices(np.arange(3000), 3, 6, "task"))


@pytest.mark.parametrize("augment", ["none", "crop"])
def test_every_showing_of_a_training_image_has_a_number_of_its_own(augment):
    task = toys.stream([[0, 1]], per_class=3, augment=augment).task(0)
    mixed = task.augmented(np.array([4, 0, 2]), np.array([0, 2, 1]))
    assert mixed.turns.tolist() == [4, 2 * 6 + 0, 6 + 2]
    assert [part.turns.tolist() for part in mixed.split(2)] == [[4, 12], [8]]
    assert all(batch.turns is None for batch in task.plain(4))


def test_an_augmented_image_does_not_depend_on_its_batch_and_changes_with_the_pass():
    images = toys.images(4, 2, 0).images
    crop, rows = preprocess(augment="crop", crop_scale=0.3), np.arange(8)
    whole = crop.augmented(images, 0, rows)
    assert torch.allclose(crop.augmented(images[5:6], 0, rows[5:6])[0], whole[5], atol=1e-6)
    assert not torch.allclose(crop.augmented(images, 1, rows), whole, atol=1e-2)
    assert whole.shape == (8, 3, 16, 16) and whole.abs().max() <= 1


def test_every_second_image_or_so_is_mirrored_and_otherwise_cropped_as_without_flips():
    images, rows = toys.images(20, 4, 0).images, np.arange(80)
    crop, flip = (
        preprocess(augment=kind, crop_scale=0.5).augmented(images, 0, rows) for kind in ("crop", "crop-flip")
    )
    same = torch.stack(
        [torch.allclose(a, b, atol=1e-5) * torch.ones(()) for a, b in zip(crop, flip, strict=True)]
    ).bool()
    assert all(torch.allclose(a.flip(2), b, atol=1e-4) for a, b in zip(crop[~same], flip[~same], strict=True))
    assert 25 < int(same.sum()) < 55


def test_a_crop_of_the_whole_image_is_the_image_as_it_is_evaluated():
    images, rows = toys.images(2, 2, 0, 24).images, np.arange(4)
    built = preprocess(augment="crop", crop_scale=1.0, interpolation="bilinear")
    assert draw(built.transform, np.full((4, 2), 24), (0,), rows).boxes.tolist() == [[0, 0, 24, 24]] * 4
    difference = (built.augmented(images, 0, rows) - built.plain(images)).abs()
    assert difference.max() < 0.02  # two levels: halves may go either way


def test_crops_stay_inside_the_image_and_have_the_area_asked_for():
    top, left, height, width = draw(
        Transform(augment="crop"), np.full((4000, 2), 100), (3,), np.arange(4000)
    ).boxes.T
    assert (
        (top >= 0).all() and (left >= 0).all() and (top + height <= 100).all() and (left + width <= 100).all()
    )
    area = width * height / 1e4
    assert area.min() >= 0.075 and abs(area.mean() - 0.48) < 0.02  # those that do not fit are drawn again
    ratio = width / height
    assert ratio.min() >= 0.73 and ratio.max() <= 1.37


def test_a_crop_of_a_larger_stored_image_is_averaged_not_picked():
    fine = (np.indices((64, 64)).sum(0) % 2 * 255).astype(
        np.uint8
    )  # a checkerboard of single pixels is grey from afar
    images = np.repeat(fine[None, :, :, None], 3, axis=3)
    found = preprocess(augment="crop", crop_scale=1.0).augmented(images, 0, np.arange(1))
    assert found.abs().max() < 0.35


def test_the_checkpoints_own_normalization_is_used():
    spec = BackboneSpec(name="x", image_size=16, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    grey = np.full((1, 16, 16, 3), 128, np.uint8)
    found = Preprocess(spec, Transform(), 0, torch.device("cpu")).plain(grey)[0, :, 0, 0]
    assert torch.allclose(found, (128 / 255 - torch.tensor(spec.mean)) / torch.tensor(spec.std), atol=1e-6)


def test_mid_grey_is_zero_under_the_augreg_normalisation():
    grey = np.stack([np.full((40, 30, 3), value, np.uint8) for value in (127, 128)])  # 127.5 on average
    found = preprocess().plain(grey)
    assert found.shape == (2, 3, 16, 16) and found.abs().max() < 0.004 and abs(found.mean()) < 1e-6


def test_resizing_agrees_with_pillow():
    from PIL import Image

    picture = toys.images(1, 3, 0, size=40).images[2]
    spec = BackboneSpec(name="x", image_size=16, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    found = Preprocess(spec, Transform(), 0, torch.device("cpu")).plain(picture[None])[0] * 255
    expected = (
        torch.from_numpy(np.array(Image.fromarray(picture).resize((16, 16), Image.Resampling.BICUBIC)))
        .permute(2, 0, 1)
        .float()
    )
    assert (found - expected).abs().max() < 1.5


def test_limit_takes_classes_evenly_and_never_more_than_asked():
    labels = np.repeat([0, 1, 2, 3], [10, 10, 10, 2])
    rows = limited(labels, 14)
    assert len(rows) == 13 and np.bincount(labels[rows]).tolist() == [4, 4, 3, 2]
    assert np.array_equal(rows, limited(labels, 14))
    with pytest.raises(InputError, match="at least 4"):
        limited(labels, 3)


def test_held_out_images_are_stratified_seeded_and_disjoint():
    labels = np.repeat([0, 1, 2], [8, 4, 2])
    kept, held = held_out(labels, 0.25, 1)
    assert (
        np.bincount(labels[held]).tolist() == [2, 1, 1]
        and not set(kept) & set(held)
        and len(kept) + len(held) == 14
    )
    assert np.array_equal(held, held_out(labels, 0.25, 1)[1]) and not np.array_equal(
        held, held_out(labels, 0.25, 2)[1]
    )
    with pytest.raises(InputError, match="at least two"):
        held_out(np.array([0, 0, 1]), 0.25, 1)


@pytest.mark.parametrize("shared", [False, True])
def test_an_image_of_statistics_counts_once_for_each_network_that_it_passes(shared):
    task, trainer = toys.stream([[0, 1]], per_class=7).task(0), Trainer(data_seed=0)
    sizes = [len(batch) for batch in trainer.plain(task, 5, shared=shared, networks=3)]
    assert sizes == [5, 5, 4] and trainer.images_seen == 3 * 14


@pytest.mark.parametrize(
    ("lr_milestones", "expected"),
    [("code", [1.0] * 4 + [0.1] * 3 + [0.01] * 3), ("paper", [1] * 5 + [0.1] * 3 + [0.01] * 2)],
)
@pytest.mark.parametrize("repeats", [1, 10])
def test_learning_rates_fall_after_the_stated_share_of_the_passes(lr_milestones, expected, repeats):
    """100 passes in shuffles of ten (published) or one: 1e-2 for 40 passes, 1e-3 for 30, 1e-4 for 30."""
    rate = toys.method("vpt-seq", 1, passes=100, lr_milestones=lr_milestones).rate
    task = toys.stream([[0, 1]], per_class=2).task(0)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    rates = []
    trainer = Trainer(data_seed=0, report=lambda progress: rates.append(optimizer.param_groups[0]["lr"]))
    trainer.fit(
        task,
        Phase(
            lambda batch: weight.sum() * 0,
            lambda: optimizer,
            4,
            100,
            repeats,
            rate=lambda done, group: rate(done),
        ),
    )
    per_pass = np.repeat(rates, repeats)
    assert np.allclose(per_pass, np.repeat(expected, 10))
    assert trainer.images_seen == 400 and len(trainer.pass_losses) == 100


def test_repeated_passes_show_every_image_once_a_pass_each_with_its_own_augmentation():
    task = toys.stream([[0, 1]], per_class=3, augment="crop").task(0)
    shown, asked = [], []
    original = task.augmented_batches

    def watched(parts):
        for chosen, passes in parts:
            asked.extend(zip(chosen.tolist(), passes.tolist(), strict=True))
        return original(parts)

    task.augmented_batches = watched
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    Trainer(data_seed=0).fit(
        task, Phase(lambda batch: shown.append(len(batch)) or weight.sum() * 0, lambda: optimizer, 4, 5, 3)
    )
    assert sorted(asked) == [(row, p) for row in range(6) for p in range(5)]
    assert shown == [4, 4, 4, 4, 2, 4, 4, 4]  # 18 images in the first shuffle, 12 in the second


def test_phases_number_their_passes_on_so_that_none_repeats_the_order_or_the_augmentation_of_another():
    task, weight, asked = (
        toys.stream([[0, 1]], per_class=3, augment="crop").task(0),
        torch.nn.Parameter(torch.zeros(1)),
        [],
    )
    original = task.augmented_batches
    task.augmented_batches = lambda parts: (
        asked.append([(part[0].tolist(), part[1]) for part in parts]) or original(parts)
    )
    trainer, told = Trainer(data_seed=0), []
    trainer.report = lambda progress: told.append((progress.done_passes, progress.passes))
    for passes in (2, 1):
        trainer.fit(
            task,
            Phase(lambda batch: weight.sum() * 0, lambda: torch.optim.SGD([weight], lr=1.0), 6, passes),
            3,
        )
    assert [part[0][1] for part in asked] == [0, 1, 2] and len({tuple(part[0][0]) for part in asked}) == 3
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_drawn_samples_are_fitted_by_the_same_loop():
    task, weight, seen = toys.stream([[0, 1]]).task(0), torch.nn.Parameter(torch.zeros(1)), []

    def draw(done):
        for value in (1.0, 3.0):
            yield Batch(torch.full((2, 1), value + done), torch.zeros(2))

    def loss(batch):
        seen.append(batch.images[0, 0].item())
        return (weight * batch.images).mean()

    phase = Phase(
        loss, lambda: torch.optim.SGD([weight], lr=1.0), batch=2, passes=2, rate=lambda done, group: 0.5**done
    )
    losses = Trainer(data_seed=0).fit_samples(task, draw, phase)
    assert seen == [1.0, 3.0, 2.0, 4.0]
    # weight: 0 -> -1 -> -4 at rate 1, then -4 -> -5 -> -7 at rate 1/2; the loss is weight times image
    assert losses == [(0 - 3) / 2, (-8 - 20) / 2] and weight.item() == -7.0
    seen.clear()
    Trainer(data_seed=0, micro_batch=1).fit_samples(task, draw, phase)
    assert seen == [1.0, 3.0, 2.0, 4.0]  # a batch that does not pass through the network is not cut
    diverging = Phase(
        lambda batch: weight.sum() * torch.inf,
        lambda: torch.optim.SGD([weight], lr=1.0),
        2,
        1,
        name="refinement",
        advice="stop",
    )
    with pytest.raises(RunFailed, match="the refinement loss of task 1 became -inf in pass 1; stop"):
        Trainer(data_seed=0).fit_samples(task, draw, diverging)
