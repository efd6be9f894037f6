"""What methods keep, and their passes at prediction, where the same classes come in more tasks."""

from pathlib import Path

import pytest

from cl_bench.console import size
from cl_bench.plan.cost import costs
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records.store import Store

ROOT = Path(__file__).resolve().parents[2]
TASKS = (10, 50, 100)
# something of every task is kept, or a place for every task of the stream
GROWING = {
    "c-ln", "cl-lora", "cprompt", "dualp-lgcl", "dualprompt", "dualprompt-pgp", "ease", "esn", "hide-prompt",
    "lora-drs", "mos", "sd-lora", "sema", "tuna",
}  # fmt: skip
A_NETWORK_FOR_EACH_TASK = {"cl-lora", "ease", "mos", "tuna"}
WHERE = {"dualp-lgcl": {"backbone": "glyphs-vit+glyphs-words"}}  # reads class names


@pytest.fixture(scope="module")
def kept():
    """Method -> number of tasks -> its cost."""
    found = {}
    for asked in ({"methods": "all"}, {"methods": "dualp-lgcl", **WHERE["dualp-lgcl"]}):
        specs = make_plan(Request(splits=",".join(map(str, TASKS)), **asked)).specs
        for spec, cost in zip(specs, costs(specs).values(), strict=True):
            if not spec.joint:
                found.setdefault(spec.method, {})[len(spec.task_classes)] = cost
    return found


def table(kept):
    """Markdown lines, those that keep most at 100 tasks last."""
    most = TASKS[-1]
    ordered = sorted(kept, key=lambda name: (kept[name][most].stored_bytes, name))
    for name in ordered:
        stored = [size(kept[name][tasks].stored_bytes) for tasks in TASKS]
        passes = dict.fromkeys(str(kept[name][tasks].prediction_passes) for tasks in TASKS)
        yield f"| {name} | {' | '.join(stored)} | {', '.join(passes)} |"


@pytest.mark.slow
def test_what_is_kept_grows_with_the_number_of_tasks_where_said_alone(kept):
    assert set(kept) >= GROWING and len(kept) >= 35
    for name, found in kept.items():
        few, _, most = (found[tasks].stored_bytes for tasks in TASKS)
        if name in GROWING:
            assert most > 1.2 * few, name
        else:  # RanPAC and APER keep a head of the first task's classes alone, which are fewer
            assert most == pytest.approx(few, rel=0.02), name
        passes = [found[tasks].prediction_passes for tasks in TASKS]
        grows = name in A_NETWORK_FOR_EACH_TASK
        assert (passes[0] < passes[1] < passes[2]) == grows and (len(set(passes)) == 1) == (not grows), name


@pytest.mark.slow
def test_the_page_says_it(kept):
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert "\n".join(table(kept)) in page


def test_runs_of_all_lengths_kept_as_much_as_planned():
    """The checkpoints of the reference runs, in values: at 10, 50 and 100 tasks as many."""
    values = {}
    for record in Store(ROOT / "results" / "reference").records():
        tasks = len(record.spec.task_classes)
        if record.spec.label in ("vpt-seq", "vpt-pgp", "vpt-nsp2", "simplecil") and tasks in TASKS:
            values.setdefault(record.spec.label, {}).setdefault(tasks, set()).add(
                record.tasks[-1].stored_values
            )
    assert len(values) == 4
    for label, found in values.items():
        assert set(found) == set(TASKS) and len(set.union(*found.values())) == 1, label
