"""Tests and intervals against values worked out by hand or by drawing images one by one."""

import io
import itertools
import random
import zipfile

import numpy as np
import pytest
from made import BETTER, SEQ, TASKS, in_every_header, record, results

from cl_bench.records.metrics import Conventions
from cl_bench.records.store import Store
from cl_bench.report import significance
from cl_bench.report.answers import Answered, Answers, tasks_of
from cl_bench.report.grouping import group
from cl_bench.report.significance import holm, permutation_p


def test_the_permutation_test_counts_signs_and_says_nothing_below_six_pairs():
    assert permutation_p([0.1] * 5) is None  # 2 / 2^5 = 0.0625 at best
    assert permutation_p([0.1] * 6) == pytest.approx(2 / 64)
    differences = [0.3, 0.1, -0.2, 0.4, 0.05, 0.2, -0.1]
    signs = np.array(list(itertools.product((-1, 1), repeat=7)))
    at_least = np.abs(signs @ np.array(differences)) >= abs(sum(differences)) - 1e-12
    assert permutation_p(differences) == pytest.approx(at_least.mean())
    assert permutation_p([-value for value in differences]) == pytest.approx(permutation_p(differences))


def test_the_permutation_test_is_exact_for_eighteen_pairs():
    assert permutation_p([0.1] * 18) == pytest.approx(2 / 2**18)
    assert permutation_p([0.1] * 30) <= 2**-18  # beyond 20 pairs signs are drawn


def test_holm_multiplies_the_smallest_by_the_most_and_never_decreases():
    # sorted 0.01, 0.02, 0.03, 0.6: times 4, 3, 2, 1 -> 0.04, 0.06, max(0.06, 0.06), 0.6
    assert holm([0.03, 0.01, 0.6, 0.02]) == pytest.approx([0.06, 0.04, 0.6, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0]) and holm([]) == []


def answered(counts, rng, per_task=100, order=TASKS):
    """Which of 300 test images are right, `counts` of each task's hundred by chance, and their true classes.

    There are 50 images of each of six classes.
    """
    truth = np.repeat(np.arange(6), per_task // 2)
    right = np.zeros(len(truth), bool)
    for classes, count in zip(order, counts, strict=True):
        rows = np.flatnonzero(np.isin(truth, classes))
        right[rng.permutation(rows)[:count]] = True
    return right, truth


def rows_with_answers(tmp_path, seeds=(1, 2), orders=None, spoil=None):
    rng = np.random.default_rng(5)
    records = [
        record(name, correct, seed, task_classes=(orders or {}).get(seed, TASKS))
        for name, correct in (("vpt-seq", SEQ), ("vpt-nsp2", BETTER))
        for seed in seeds
    ]
    right = {
        found.spec.run_id(): answered(found.correct[-1], rng, order=found.spec.task_classes)
        for found in records
    }
    if spoil:
        spoil(records, right)
    store = results(tmp_path, records, right)
    [benchmark] = group(records)
    seq, nsp2 = benchmark.rows
    return seq, nsp2, Answers(store), right, records


@pytest.mark.parametrize("orders", [None, {2: TASKS[::-1]}, {2: ((0, 2), (1, 4), (3, 5))}])
def test_the_interval_is_that_of_drawing_the_test_images_again(tmp_path, orders):
    seq, nsp2, answers, right, records = rows_with_answers(tmp_path, orders=orders)
    found = significance.compare(nsp2, seq, "accuracy", Conventions(), (answers, answers))
    assert found.mean == pytest.approx(0.1) and found.p is None and len(found.differences) == 2
    by_name = {(r.spec.label, r.spec.init_seed): right[r.spec.run_id()][0].astype(float) for r in records}
    per_image = sum(by_name["vpt-nsp2", seed] - by_name["vpt-seq", seed] for seed in (1, 2)) / 2
    assert per_image.mean() == pytest.approx(
        0.1
    )  # all tasks have as many images, so their mean is that of all
    rng, drawn = np.random.default_rng(1), []
    for _ in range(4000):
        if orders is None:
            drawn.append(np.mean([rng.choice(part, 100).mean() for part in per_image.reshape(3, 100)]))
        else:  # the pairs' tasks differ: images of all tasks are drawn together
            drawn.append(rng.choice(per_image, 300).mean())
    assert found.interval == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.006)


def interval(pairs, truth, **changes):
    """Of pairs of answers by (right of A, right of B, class orders), made by hand; B - A."""
    known, found = {}, []
    for seed, (right_a, right_b, order) in enumerate(pairs):
        made = [record(name, SEQ, seed, task_classes=order, **changes) for name in ("a", "b")]
        for one, right in zip(made, (right_a, right_b), strict=True):
            known[one.spec.run_id()] = Answered(right, tasks_of(truth, one), truth)
        found.append((made[1], made[0]))

    def answers(run):
        return known[run.spec.run_id()]

    return significance.image_interval(found, (answers, answers), Conventions())


SIZES = [((0, 1, 2, 3), (4,), (5,)), ((2, 3, 4, 5), (1,), (0,)), ((0, 1, 4, 5), (3,), (2,))]  # 4-1-1 classes


def test_a_draw_is_a_mean_over_tasks_where_their_sizes_and_class_orders_differ():
    """B is right on every image and A on none, whichever images are drawn."""
    truth = np.repeat(np.arange(6), 50)
    none, every = np.zeros(300, bool), np.ones(300, bool)
    for orders in ([SIZES[0]] * 2, SIZES[:2]):
        assert interval([(none, every, order) for order in orders], truth) == pytest.approx((1, 1))


def test_of_unequal_tasks_in_several_orders_as_many_images_of_every_class_are_drawn_as_it_has():
    """B is right on the first images of each class, A on none, in classes of other sizes.

    An image of a class of n in a task of m adds 1 / (3 m) where it is right. Of n draws from a class with a
    share q of right ones the number of right ones has the variance n q (1 - q).
    """
    sizes, share = np.array([200, 100, 300, 50, 150, 400]), np.array([0.5, 0.1, 0.3, 0.9, 0.4, 0.2])
    truth = np.repeat(np.arange(6), sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    right = place < np.round(share * sizes)[truth]
    weights = np.zeros(6)
    for order in SIZES:
        for classes in order:
            weights[list(classes)] += 1 / (3 * sizes[list(classes)].sum()) / 3  # three tasks, three pairs
    mean = (weights * share * sizes).sum()
    spread = np.sqrt((weights**2 * sizes * share * (1 - share)).sum())
    found = interval([(np.zeros(1200, bool), right, order) for order in SIZES], truth)
    assert found == pytest.approx((mean - 1.96 * spread, mean + 1.96 * spread), abs=0.1 * spread)


def test_held_out_images_of_several_data_seeds_are_not_the_same_and_have_no_interval():
    """Their true classes are, where the images are sorted by class."""
    truth = np.repeat(np.arange(6), 50)
    pairs = [(truth < 2, truth < 4, TASKS)] * 2
    assert interval(pairs, truth) is not None
    assert interval(pairs, truth, validation=0.2) is None
    assert interval(pairs, truth, validation=0.2, data_seed=7) is not None
    assert interval(pairs[:1], truth, validation=0.2) is not None


def test_a_row_against_itself_differs_by_nothing(tmp_path):
    seq, _, answers, *_ = rows_with_answers(tmp_path)
    found = significance.compare(seq, seq, "accuracy", Conventions(), (answers, answers))
    assert found.differences == (0, 0) and found.interval == (0, 0)


@pytest.mark.parametrize("spoil", ["no predictions", "other counts", "other images"])
def test_without_predictions_that_belong_to_the_counts_and_images_there_is_no_interval(tmp_path, spoil):
    def change(records, right):
        run = records[0].spec.run_id()
        if spoil == "no predictions":
            del right[run]
        elif spoil == "other counts":
            right[run] = (~right[run][0], right[run][1])
        else:
            right[run] = (
                right[run][0][::-1],
                right[run][1][::-1],
            )  # the same counts of classes, in another order of images

    records = None
    if spoil == "other images":
        # palindromic counts, so that the reversed answers still agree with the record
        records = [[80], [60, 70], [50, 60, 50]]
    seq, nsp2, answers, *_ = (
        rows_with_answers(tmp_path, spoil=change)
        if records is None
        else _palindromic(tmp_path, records, change)
    )
    found = significance.compare(nsp2, seq, "accuracy", Conventions(), (answers, answers))
    assert found.interval is None and found.differences


def _palindromic(tmp_path, counts, change):
    rng = np.random.default_rng(5)
    records = [record(name, counts, 1) for name in ("vpt-seq", "vpt-nsp2")]
    right = {found.spec.run_id(): answered(found.correct[-1], rng) for found in records}
    change(records, right)
    store = results(tmp_path, records, right)
    [benchmark] = group(records)
    return *benchmark.rows, Answers(store)


def test_a_file_of_predictions_that_is_cut_short_gives_no_interval(tmp_path):
    seq, nsp2, answers, _, records = rows_with_answers(tmp_path)
    (Store(tmp_path).folder(records[0].spec) / "predictions.npz").write_bytes(b"")
    assert significance.compare(nsp2, seq, "accuracy", Conventions(), (answers, answers)).interval is None


def test_a_stricter_level_makes_a_wider_interval(tmp_path):
    seq, nsp2, answers, *_ = rows_with_answers(tmp_path)
    wide, usual = (
        significance.compare(nsp2, seq, "accuracy", Conventions(), (answers, answers), level).interval
        for level in (0.005, 0.05)
    )
    assert wide[0] < usual[0] < usual[1] < wide[1]


def test_runs_are_paired_by_benchmark_class_order_and_seeds_alone():
    records = [record("vpt-seq", SEQ, seed) for seed in (1, 2, 3)]
    records += [
        record("vpt-nsp2", BETTER, 2),
        record("vpt-nsp2", BETTER, 3, task_classes=TASKS[::-1]),
        record("vpt-nsp2", BETTER, 4),
    ]
    [benchmark] = group(records)
    found = significance.pairs(benchmark.rows[1], benchmark.rows[0])
    assert [(own.spec.init_seed, other.spec.init_seed) for own, other in found] == [(2, 2)]


def test_six_seeds_that_agree_get_a_p_and_the_forgetting_no_interval(tmp_path):
    seeds = range(6)
    [benchmark] = group(
        [
            record(name, correct, seed)
            for name, correct in (("vpt-seq", SEQ), ("vpt-nsp2", BETTER))
            for seed in seeds
        ]
    )
    answers = Answers(results(tmp_path, []))
    found = significance.compare(
        benchmark.rows[1], benchmark.rows[0], "forgetting", Conventions(), (answers, answers)
    )
    assert found.p == pytest.approx(2 / 64) and found.interval is None
    assert found.mean == pytest.approx(-0.25)  # -5 against 20 points


def absurd_sizes(content: bytes) -> bytes:
    """Numbers of a shape that no memory holds."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as arrays:
        for name in ("truth.npy", "task_003.npy"):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"descr": "<i8", "fortran_order": False, "shape": (1 << 58,)}
            )
            arrays.writestr(name, header.getvalue())
    return buffer.getvalue()


def huge_classes(content: bytes) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, truth=np.full(300, 1 << 60), task_003=np.zeros(300, np.int64))
    return buffer.getvalue()


def words(content: bytes) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, truth=np.array(["a"] * 300), task_003=np.array(["b"] * 300))
    return buffer.getvalue()


def encrypted(content: bytes) -> bytes:
    return in_every_header(content, 6, b"\1\0")


def unknown_compression(content: bytes) -> bytes:
    return in_every_header(content, 8, b"\x61\0")


@pytest.mark.parametrize("damage", [absurd_sizes, huge_classes, words, encrypted, unknown_compression])
def test_damaged_predictions_give_no_interval_and_stop_no_report(tmp_path, damage):
    *_, answers, _, records = rows_with_answers(tmp_path)
    path = answers_path(tmp_path, records[0])
    changed = damage(path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    assert answers(records[0]) is None and answers(records[1]) is not None


def test_mangled_predictions_give_no_interval_or_the_right_one(tmp_path):
    *_, _, records = rows_with_answers(tmp_path)
    path, draw = answers_path(tmp_path, records[0]), random.Random(0)
    whole, right = path.read_bytes(), Answers(Store(tmp_path))(records[0]).right
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 3))):
            data[draw.choice((draw.randrange(len(data)), len(data) - 1 - draw.randrange(120)))] = (
                draw.randrange(256)
            )
        path.write_bytes(data)
        found = Answers(Store(tmp_path))(records[0])
        assert found is None or np.array_equal(found.right, right)


def answers_path(root, record):
    return Store(root).folder(record.spec) / "predictions.npz"
