"""Under a table: training that brings nothing, bounds that are none, methods without public code."""

import numpy as np
import pytest
from made import SEQ, TOY_VIT, record, results
from small_reports import line_of, small

from cl_bench.records.metrics import Conventions
from cl_bench.report import build, write
from cl_bench.report.grouping import group

TRUTH = np.repeat(np.arange(6), 50)
HIGH = [[90], [90, 90], [90, 90, 90]]


def flat(level: int) -> list[list[int]]:
    """As many right answers of 100 on every task."""
    return [[level] * (task + 1) for task in range(3)]


def free(label: str, correct, seed: int = 2024, **changes):
    """A run in which nothing was trained."""
    made = record(label, correct, seed, **changes)
    tasks = [task.model_copy(update={"pass_losses": (), "trainable_parameters": 0}) for task in made.tasks]
    return made.model_copy(update={"tasks": tuple(tasks)})


def notes(records, right=None, tmp_path=None) -> list[str]:
    """What stands under the table of a benchmark about rows that train nothing and bounds."""
    if tmp_path is None:
        [table] = [build.of_benchmark(benchmark, Conventions()) for benchmark in group(records)]
    else:
        store = results(tmp_path / "results", records, right)
        [table] = write.of_records(records, store, tmp_path / "out", Conventions()).tables
    return [note for note in table.notes if "trains nothing" in note or "marked as a bound" in note]


def test_without_predictions_a_row_that_trains_nothing_is_above_or_level_by_the_means():
    records = [free("simplecil", flat(60)), record("vpt-seq", SEQ), record("l2p", flat(55))]
    assert notes(records) == [
        "simplecil trains nothing and is above l2p (+5.00).",
        "simplecil trains nothing and is level with vpt-seq (+0.00).",
    ]


def test_a_row_that_trains_nothing_and_is_below_all_others_is_no_remark():
    assert notes([free("simplecil", flat(50)), record("vpt-seq", SEQ)]) == []
    assert notes([free("simplecil", flat(50)), free("clip-zeroshot", flat(40))]) == []


def test_a_row_that_trains_in_its_first_task_alone_is_trained():
    half = free("ranpac", flat(50))
    first = half.tasks[0].model_copy(update={"pass_losses": (1.0,), "trainable_parameters": 3})
    half = half.model_copy(update={"tasks": (first, *half.tasks[1:])})
    assert notes([half, free("simplecil", flat(50))]) == [
        "simplecil trains nothing and is level with ranpac (+0.00)."
    ]


def right_of(spots: list[int]) -> np.ndarray:
    """Right answers at these places of every task's hundred images."""
    per_task = np.zeros(100, bool)
    per_task[spots] = True
    return np.tile(per_task, 3)


def test_with_predictions_zero_in_the_interval_over_test_images_decides(tmp_path):
    """Of a task's 100 images `vpt-seq` has 7 right that simplecil has not, and 4 the other way round.

    The variance of the difference over 100 images drawn anew is 11 - 100 x 0.03^2, that of three tasks three
    times as much.
    """
    level_right = [*range(56), *range(60, 67)]  # 63 of 100: 3 points above
    runs = {
        "simplecil": (free("simplecil", flat(60)), [*range(60)]),
        "vpt-seq": (record("vpt-seq", flat(63)), level_right),
        "l2p": (record("l2p", flat(30)), [*range(30)]),
        "dualprompt": (record("dualprompt", flat(90)), [*range(90)]),
    }
    right = {made.spec.run_id(): (right_of(spots), TRUTH) for made, spots in runs.values()}
    above, level = notes([made for made, _ in runs.values()], right, tmp_path)
    assert above.startswith("simplecil trains nothing and is above l2p (+30.00, 95 % interval over test ")
    start, _, ends = level.partition(", 95 % interval over test images ")
    assert start == "simplecil trains nothing and is level with vpt-seq (-3.00"
    low, high = (float(word.strip(").")) for word in ends.split(" to "))
    half = 1.96 * np.sqrt(3 * (11 - 100 * 0.03**2)) / 3  # images of 300, in points
    assert (low, high) == pytest.approx((-3 - half, -3 + half), abs=0.4)


def test_a_bound_below_a_method_is_told_with_the_methods():
    bound = record("vpt-joint", [[70, 70, 70]], joint=True)
    assert notes([record("vpt-seq", SEQ), record("l2p", flat(75)), bound]) == [
        "vpt-joint is marked as a bound and lies below l2p (-5.00)."
    ]
    assert notes([record("vpt-seq", SEQ), bound]) == []


def test_a_bound_without_seeds_in_common_is_compared_by_the_means():
    bound = record("vpt-joint", [[50, 50, 50]], 7, joint=True)
    assert notes([record("vpt-seq", SEQ), bound]) == [
        "vpt-joint is marked as a bound and lies below vpt-seq (-10.00 of the means, not paired)."
    ]


def over(made, label: str, levels: dict[int, int], **changes) -> list:
    """A run for each seed, with this accuracy in percent."""
    joint = {"joint": True} if label == "vpt-joint" else {}
    return [
        made(label, [[level] * 3] if joint else flat(level), seed, **joint, **changes)
        for seed, level in levels.items()
    ]


@pytest.mark.parametrize(
    ("own", "theirs", "said"),
    [
        # one pair, 1 point above, where the means are 58.67 and 71.67
        ({1: 66, 2: 55, 3: 55}, {1: 65, 4: 75, 5: 75}, None),
        ({1: 66, 2: 60, 3: 60}, {1: 65, 4: 50, 5: 50}, "above l2p (+1.00 over 1 of 3 seeds)"),
        ({1: 66, 2: 60, 3: 60}, {1: 65, 2: 57, 4: 50, 5: 50}, "above l2p (+2.00 over 2 of 3 and 4 seeds)"),
        # one pair below, or level, where the means are 71.33 and 58.33, or 66.67 and 60
        ({1: 64, 2: 75, 3: 75}, {1: 65, 4: 55, 5: 55}, "above l2p (+13.00 of the means, not paired)"),
        ({1: 60, 2: 70, 3: 70}, {1: 60, 4: 60, 5: 60}, "above l2p (+6.67 of the means, not paired)"),
        # one pair above, where the means are the same
        ({1: 62, 2: 60}, {1: 60, 4: 62}, "level with l2p (+0.00 of the means, not paired)"),
        ({1: 62, 2: 60}, {3: 60, 4: 61}, "above l2p (+0.50 of the means, not paired)"),
        ({1: 62, 2: 60}, {1: 60, 2: 61}, "above l2p (+0.50)"),
    ],
)  # fmt: skip
def test_seeds_without_a_partner_are_told_and_no_order_contradicts_the_means(own, theirs, said):
    records = [*over(free, "simplecil", own), *over(record, "l2p", theirs)]
    assert notes(records) == ([f"simplecil trains nothing and is {said}."] if said else [])


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ({1: 64, 2: 75, 3: 75}, None),
        ({1: 64, 2: 45, 3: 45}, "(-1.00 over 1 of 3 seeds)"),
        ({1: 66, 2: 45, 3: 45}, "(-6.33 of the means, not paired)"),  # 52.00 and 58.33
    ],
)
def test_the_same_holds_for_bounds(bound, said):
    records = [*over(record, "l2p", {1: 65, 4: 55, 5: 55}), *over(record, "vpt-joint", bound)]
    assert notes(records) == ([f"vpt-joint is marked as a bound and lies below l2p {said}."] if said else [])


def test_an_interval_over_test_images_stands_behind_the_number_of_pairs(tmp_path):
    records = [*over(free, "simplecil", {1: 90, 2: 60}), *over(record, "l2p", {1: 30, 3: 40})]
    levels = (90, 60, 30, 40)
    right = {
        made.spec.run_id(): (right_of([*range(level)]), TRUTH)
        for made, level in zip(records, levels, strict=True)
    }
    [told] = notes(records, right, tmp_path)
    of = "(+60.00 over 1 of 2 seeds, 95 % interval over test images +"
    assert told.startswith(f"simplecil trains nothing and is above l2p {of}")


def test_rows_that_a_specification_marks_are_bounds_and_columns_are_named(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-nsp2", HIGH)]
    text, _ = small(tmp_path, records, '["nsp2", { select = "seq", bound = true }]')
    assert "- vpt-seq is marked as a bound and lies below VPT-NSP² (-30.00)." in text
    columns = '["glyphs/3", { benchmark = "glyphs/10", title = "ten" }]'
    text, _ = small(tmp_path, records, '["nsp2", { select = "seq", bound = true }]', columns)
    assert "lies below VPT-NSP² (-30.00) on glyphs/3." in text


def test_a_table_without_accuracy_says_nothing_of_it(tmp_path):
    records = [free("simplecil", flat(60)), record("vpt-seq", SEQ)]
    rows, extra = '["seq", "simplecil"]', 'metrics = ["forgetting"]'
    assert "trains nothing" in small(tmp_path, records, rows)[0]
    assert "trains nothing" not in small(tmp_path, records, rows, extra=extra)[0]


def test_rows_on_other_backbones_are_not_held_against_each_other(tmp_path):
    other = {"backbone": TOY_VIT.model_copy(update={"name": "other"}), "weights_sha256": "w2"}
    records = [record("vpt-seq", SEQ), free("simplecil", HIGH, **other)]
    rows = '["seq", { select = "simplecil", backbone = "other" }]'
    text, _ = small(tmp_path, records, rows, '[{ benchmark = "glyphs/3", backbone = "toy_vit" }]')
    assert "| simplecil | **90.00** |" in text and "trains nothing" not in text


def test_methods_without_public_code_carry_a_mark_with_its_meaning_in_every_table(tmp_path):
    records = [
        record("vpt-pgp", SEQ, reconstruction=True), record("l2p-nsp2", HIGH, reconstruction=True),
        record("vpt-seq", SEQ),
    ]  # fmt: skip
    meaning = "¶ Reconstructed from the paper, for want of public code: vpt-pgp, l2p-nsp2."
    [table] = [build.of_benchmark(benchmark, Conventions()) for benchmark in group(records)]
    assert [line.title for line in table.lines] == ["vpt-pgp ¶", "l2p-nsp2 ¶", "vpt-seq"]
    assert meaning in table.notes
    text, _ = small(tmp_path, records, '["pgp", "l2p-nsp2", "seq"]')
    assert line_of(text, "vpt-pgp ¶") and f"- {meaning}" in text
    tex = (tmp_path / "out" / "t.tex").read_text()
    assert r"vpt-pgp \P{}" in tex
