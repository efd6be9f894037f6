"""Columns of costs: what a table that asks for them prints, worked out by hand, and what stands below."""

from pathlib import Path

import pytest
from commands import command
from made import BETTER, SEQ, record, results
from matrices import matrix_spec
from small_reports import asking, line_of, small

from cl_bench.errors import InputError
from cl_bench.records import imported
from cl_bench.records.costs import COSTS, stored_per_class, stored_per_task
from cl_bench.records.export import run_lines
from cl_bench.records.imported import ImportedRecord
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import read_record
from cl_bench.records.store import Store
from cl_bench.report import write

UNEQUAL = ((0, 1, 2), (3,), (4, 5, 6))
OLDER = Path(__file__).resolve().parents[2] / "results" / "plain-glyphs"


def costing(found: RunRecord, **values) -> RunRecord:
    """The record with these values of its tasks, a list of one for each."""
    tasks = [
        task.model_copy(update={name: own[place] for name, own in values.items()})
        for place, task in enumerate(found.tasks)
    ]
    return found.model_copy(update={"tasks": tuple(tasks)})


def test_what_is_stored_grows_with_tasks_and_with_classes():
    """From 100 values to 180: 80 more in two tasks, which brought one class and three."""
    found = costing(record("vpt-seq", SEQ, task_classes=UNEQUAL), stored_values=[100, 130, 180])
    assert (stored_per_task(found), stored_per_class(found)) == (40, 20)
    [line] = run_lines([found])
    assert (line["stored_values"], line["stored_values_per_task"], line["stored_values_per_class"]) == (
        180, 40, 20,
    )  # fmt: skip


def test_what_does_not_grow_is_zero_and_one_task_says_nothing():
    assert stored_per_task(costing(record("vpt-seq", SEQ), stored_values=[7, 7, 7])) == 0
    joint = record("vpt-joint", [[90, 90, 93]], joint=True)
    assert stored_per_task(joint) is None and stored_per_class(joint) is None
    [line] = run_lines([joint])
    assert line["stored_values"] == 1 and line["stored_values_per_task"] is None


def test_a_table_prints_the_costs_it_asks_for_with_what_they_count(tmp_path):
    found = costing(
        record("vpt-seq", SEQ), prediction_passes=[1, 2, 3], stored_values=[2_000, 2_500, 3_002],
        trainable_parameters=[5, 5, 85_798_656], images_seen=[600, 500, 134], learn_seconds=[1.0, 2.25, 4.25],
        peak_memory_bytes=[3, 12_300_000, 7],
    )  # fmt: skip
    text, warnings = small(tmp_path, [found], '["seq"]', extra=asking("accuracy", *COSTS))
    assert "| Acc. ↑ | Passes | Trained values | Stored values | Stored per task | Stored per class |" in text
    assert line_of(text, "vpt-seq") == [
        "60.00", "3", "85,798,656", "3,002", "501", "250.5", "1,234", "7.5", "12.30 MB",
    ]  # fmt: skip
    for note in (
        "- Passes: forward passes of one image through the network at prediction after the last task,",
        "- Stored values: numbers kept besides the backbone after the last task.",
        "- Stored per class: growth of the stored values after the first task, over the classes that follow",
        "- Measured on P.",
    ):
        assert note in text
    assert warnings == []


def test_a_table_that_asks_for_no_cost_explains_none(tmp_path):
    text, _ = small(tmp_path, [record("vpt-seq", SEQ)], '["seq"]')
    assert "Passes" not in text and "Measured on" not in text


def test_a_record_that_is_older_than_a_value_prints_a_dash_and_others_how_many_they_are(tmp_path):
    older, newer = record("vpt-seq", SEQ, 1), costing(record("vpt-seq", SEQ, 2), prediction_passes=[2, 2, 2])
    alone = record("vpt-nsp2", BETTER, 1)
    text, _ = small(tmp_path, [older, newer, alone], extra=asking("accuracy", "passes"))
    assert line_of(text, "vpt-seq")[1] == "2 (1 of 2 seeds)"
    assert line_of(text, "VPT-NSP²")[1] == "–"
    assert [line["prediction_passes"] for line in run_lines([older, newer])] == [None, 2]


def test_committed_records_from_before_the_value_are_read_as_they_are():
    path = sorted((OLDER / "runs").glob("vpt-nsp2-*/record.json"))[0]
    found = read_record(path)
    assert "prediction_passes" not in path.read_text(encoding="utf-8")
    assert found.tasks[-1].prediction_passes is None and COSTS["passes"].of(found) is None
    assert path.parent.name == f"vpt-nsp2-{found.spec.run_id()}"


def test_costs_are_averaged_over_seeds_and_equal_ones_have_no_spread(tmp_path):
    """Seconds 3 and 6: 4.5, and a sample standard deviation of 3 over the root of 2."""
    records = [record("vpt-seq", SEQ, 1, seconds=1.0), record("vpt-seq", SEQ, 2, seconds=2.0)]
    text, _ = small(tmp_path, records, '["seq"]', extra=asking("seconds", "stored"))
    assert line_of(text, "vpt-seq") == ["4.5 ± 2.1", "1"]


def test_costs_are_neither_ranked_nor_tested(tmp_path):
    records = [record("vpt-seq", SEQ, seed, seconds=1.0) for seed in range(6)]
    records += [record("vpt-nsp2", BETTER, seed, seconds=9.0) for seed in range(6)]
    text, _ = small(tmp_path, records, extra=f'baseline = "seq"\n{asking("seconds", "accuracy")}')
    above, below = text.split("Differences to")
    assert line_of(above, "VPT-NSP²") == ["27.0", "**70.00 ± 0.00**<sup>*</sup>"]
    assert line_of(above, "vpt-seq") == ["3.0", "<u>60.00 ± 0.00</u>"]
    assert "Seconds" not in below and "Acc. ↑" in below


def test_seconds_of_several_machines_are_said_not_to_compare(tmp_path):
    other = record("vpt-nsp2", BETTER).model_copy(update={"environments": ({"processor": "Q"},)})
    text, _ = small(tmp_path, [record("vpt-seq", SEQ), other], extra=asking("seconds"))
    assert "- Measured on 2 machines, whose figures do not compare: P; Q." in text


def test_what_is_kept_of_old_classes_is_a_column_of_words(tmp_path):
    records = [record("vpt-nsp2", SEQ, keeps="a|b <i> of old classes"), record("vpt-seq", SEQ)]
    text, _ = small(tmp_path, records, extra=asking("keeps"))
    assert r"| VPT-NSP² § | a\|b &lt;i> of old classes |" in text
    assert line_of(text, "vpt-seq") == ["–"]
    assert "- Keeps: what is kept of old classes besides what is trained, as runs name it; –" in text
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "a|b &lt;i&gt; of old classes</a>" in page


def test_a_run_that_is_not_finished_has_no_cost(tmp_path):
    records = [record("vpt-seq", SEQ), record("vpt-nsp2", BETTER[:1], status="running")]
    text, _ = small(tmp_path, records, extra=asking("accuracy", "seconds", "keeps"))
    assert line_of(text, "VPT-NSP²") == ["unfinished"] * 3


def test_an_imported_matrix_has_no_cost(tmp_path):
    theirs = ImportedRecord(
        spec=matrix_spec(), correct=((80,), (60, 70), (50, 60, 70)), test_sizes=(100,) * 3, counted=True
    )
    imported.save(theirs, tmp_path / "results")
    rows = '["seq", { imported = "Theirs" }]'
    costs = asking("accuracy", "passes", "seconds", "keeps")
    text, _ = small(tmp_path, [record("vpt-seq", SEQ)], rows, extra=costs)
    assert line_of(text, "Theirs ‡") == ["60.00", "–", "–", "–"]


def test_a_cost_that_does_not_exist_is_named_with_those_that_do(tmp_path):
    with pytest.raises(InputError, match="metrics.*'passes'"):
        small(tmp_path, [record("vpt-seq", SEQ)], '["seq"]', extra=asking("pases"))


def test_without_a_specification_tables_have_no_cost_and_exports_have_all(tmp_path):
    found = costing(record("vpt-seq", SEQ, keeps="the mean"), prediction_passes=[1, 1, 1])
    store = results(tmp_path / "r", [found])
    text = write.of_folder(Store(store.root), tmp_path / "out", write.Conventions()).text
    assert "Passes" not in text
    assert command("export", "--results", store.root, "--out", tmp_path / "x.csv") == 0
    head, line = (tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["prediction_passes"], cells["keeps"], cells["stored_values_per_task"]) == (
        "1", "the mean", "0.0",
    )  # fmt: skip
