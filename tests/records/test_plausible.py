"""Records that contradict themselves are damaged, whatever their digest, and stop no report of the others."""

import json
import re
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made import record, results

from cl_bench.cli import main
from cl_bench.records import export, status
from cl_bench.records.index import summaries
from cl_bench.records.metrics import Conventions
from cl_bench.records.plausible import contradiction
from cl_bench.records.record import Certificate
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store
from cl_bench.report import build, render, write
from cl_bench.report.grouping import group

COUNTS = [[80], [60, 70], [50, 60, 70]]
WHOLE = record("vpt-seq", COUNTS)
JOINT = record("vpt-joint", [[90, 90, 93]], joint=True)
CERTIFICATE = Certificate(
    images=4,
    batch=2,
    changed_in_batches=0,
    changed_when_shuffled=0,
    right_alone=3,
    right_in_batches=3,
    right_when_shuffled=3,
)


def with_task(number, **changes):
    tasks = list(WHOLE.tasks)
    tasks[number - 1] = tasks[number - 1].model_copy(update=changes)
    return {"tasks": tuple(tasks)}


WRONG = {
    "more right answers than images": (
        with_task(2, correct=(101, 70)),
        "after task 2: correct counts 101 of the 100 test images of task 1",
    ),
    "a negative count": (
        with_task(3, correct_within_task=(1, -1, 2)),
        "correct_within_task counts -1 of the 100 test images of task 2",
    ),
    "a row too long": (with_task(1, correct=(80, 1)), "after task 1: correct has 2 counts, expected 1"),
    "a row too short": (with_task(3, correct=(80, 1)), "after task 3: correct has 2 counts, expected 3"),
    "other classes": (with_task(1, classes=(4, 5)), r"classes \[4, 5\] instead of \[0, 1\]"),
    "seconds that are none": (with_task(1, learn_seconds=float("nan")), "learn_seconds is nan"),
    "negative seconds": (with_task(1, evaluate_seconds=-1.0), "evaluate_seconds is -1.0"),
    "endless seconds": (with_task(1, learn_seconds=1e300), "learn_seconds is 1e"),
    "negative memory": (with_task(1, peak_memory_bytes=-5), "peak_memory_bytes is -5"),
    "parts of no image": (with_task(1, micro_batch=0), "micro_batch is 0"),
    "a prediction without a pass": (with_task(3, prediction_passes=0), "task 3: prediction_passes is 0"),
    "losses of three tasks": (with_task(3, kept_losses=(0.1, 0.2, 0.3)), "3 losses of the first two tasks"),
    "sizes of other tasks": ({"test_sizes": (100, 100)}, r"test sizes \[100, 100\] of 3 tasks"),
    "no test images": ({"test_sizes": (100, 0, 100)}, "test sizes"),
    "done too early": ({"tasks": WHOLE.tasks[:2]}, "2 of 3 tasks learned, status done"),
    "too many tasks": ({"tasks": (*WHOLE.tasks, WHOLE.tasks[-1])}, "4 of 3 tasks learned"),
    "more duplicates than images": ({"duplicates": 301}, "301 duplicates among 300 test images"),
    "no threads": ({"threads": 0}, "0 threads"),
    "devices in words": ({"environments": ({"devices": "two"},)}, "'two' devices"),
    "a certificate of more than all": (
        {"certificate": CERTIFICATE.model_copy(update={"right_alone": 5})},
        r"a certificate of 4 images with counts \[0, 0, 5, 3, 3\]",
    ),
    "classes in two tasks": (
        {"spec": WHOLE.spec.model_copy(update={"task_classes": ((0, 1), (1, 2), (4, 5))})},
        "stand in two tasks",
    ),
    "a task without classes": (
        {"spec": WHOLE.spec.model_copy(update={"task_classes": ((0, 1), (), (4, 5))})},
        "a task without classes",
    ),
    "no tasks": ({"spec": WHOLE.spec.model_copy(update={"task_classes": ()})}, "a task without classes"),
}


def test_what_runs_write_contradicts_nothing():
    assert contradiction(WHOLE) is None and contradiction(JOINT) is None
    assert contradiction(record("vpt-seq", COUNTS[:1], status="running", losses=[[0.1]])) is None
    assert (
        contradiction(
            WHOLE.model_copy(update={"certificate": CERTIFICATE, "environments": ({"devices": 2},)})
        )
        is None
    )


@pytest.mark.parametrize(("changes", "said"), WRONG.values(), ids=WRONG)
def test_a_contradiction_is_named_and_the_record_damaged_though_its_digest_is_right(tmp_path, changes, said):
    store = results(tmp_path, [WHOLE])
    wrong = WHOLE.model_copy(update=changes)
    if "spec" not in changes:
        try:
            store.save(wrong)
        except ValueError:  # a digest is made of numbers alone
            assert "nan" in said
        else:
            [found] = store.records()
            [summary] = summaries(store)
            assert found.kind == summary.status == "damaged" and "contradicts itself" in found.reason
    assert re.search(said, contradiction(wrong))


def test_one_bad_record_never_stops_a_report_of_the_others(tmp_path, capsys):
    store = results(tmp_path, [WHOLE, record("vpt-nsp2", COUNTS)])
    bad = record("vpt-nsp2", [[80], [60, 170], [50, 60, 70]])
    store.save(bad)
    for words in (["report", "--out", tmp_path / "out"], ["export", "--out", tmp_path / "runs.csv"]):
        with pytest.raises(SystemExit) as end:
            main([*map(str, words), "--results", str(tmp_path)])
        told = capsys.readouterr()
        assert end.value.code == 1 and "counts 170 of the 100 test images of task 2" in told.err
    assert "| vpt-seq | 60.00 |" in (tmp_path / "out" / "toy-3-toy_vit-16px" / "table.md").read_text()
    assert (
        "VPT-NSP², seed 2024: its record is damaged, not in the table."
        in (tmp_path / "out" / "toy-3-toy_vit-16px" / "table.md").read_text()
    )
    with pytest.raises(SystemExit) as end:
        main(["status", "--results", str(tmp_path)])
    assert end.value.code in (0, None) and "1 finished, 1 damaged" in capsys.readouterr().out


def test_a_record_whose_label_selects_nothing_is_left_out_of_reports_by_name(tmp_path, capsys):
    results(tmp_path, [WHOLE, record("vpt-nsp2[eta=", COUNTS)])
    with pytest.raises(SystemExit) as end:
        main(["report", "--results", str(tmp_path), "--out", str(tmp_path / "out")])
    told = capsys.readouterr()
    assert (
        end.value.code == 1
        and "'vpt-nsp2[eta=' is not a method with options" in told.err
        and "| vpt-seq |" in told.out
    )
    assert len(list(Store(tmp_path).records())) == 2


STRANGE = [
    None,
    0,
    -1,
    2**70,
    1e300,
    float("nan"),
    "",
    "x",
    "a[b",
    "²",
    [],
    [1],
    [[1]],
    {},
    {"a": 1},
    True,
    "../..",
    -0.5,
]


def places(value, above=()):
    """Where in JSON values something else can be put."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*above, key)
        yield from places(value[key], (*above, key))


@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_stands_in_a_record_it_is_believed_left_out_by_name_or_unreadable(data):
    values = json.loads(record("vpt-nsp2", COUNTS, losses=[[0.1], [0.2, 0.3], [0.4, 0.5]]).model_dump_json())
    for _ in range(data.draw(st.integers(1, 2))):
        *above, key = data.draw(st.sampled_from(list(places(values))))
        inner = values
        for step in above:
            inner = inner[step]
        inner[key] = data.draw(st.sampled_from(STRANGE))
    content = json.dumps(values, sort_keys=True, separators=(",", ":"))
    with tempfile.TemporaryDirectory() as root:
        store = results(Path(root), [WHOLE])
        folder = store.root / "runs" / f"vpt-nsp2-{run_id(values)}"
        folder.mkdir(exist_ok=True)
        seal = (
            f'{{"digest": "{sha256(content.encode()).hexdigest()}", "run_id": "{run_id(values)}", "record":'
        )
        (folder / "record.json").write_text(f"{seal}\n{content}\n}}\n")
        records, left_out = write.read_records(store)
        assert len(records) + len(left_out) == 2 and all(folder.name in found.reason for found in left_out)
        assert len(status.of_folder(store).lines) == len(export.run_lines(records, left_out)) + 1 == 3
        for benchmark in group([*records, *write.standing(left_out)]):
            assert render.markdown(build.of_benchmark(benchmark, Conventions()))


def run_id(values) -> str:
    """Of whatever stands in the place of a specification, if it is one."""
    try:
        return RunSpec.model_validate_json(json.dumps(values["spec"])).run_id()
    except (ValueError, TypeError, KeyError):
        return "0" * 16
