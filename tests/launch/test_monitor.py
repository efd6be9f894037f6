"""What is shown of running processes: at 80 columns, with seeds, and time left by work."""

import io
import re

import pytest
from rich.console import Console
from runs import plan

from cl_bench.launch import monitor as following
from cl_bench.launch.monitor import EVERY_PASS, QUIET, USUAL, Line, Monitor, short_name
from cl_bench.launch.overall import Overall
from cl_bench.records.spec import Size
from cl_bench.run.progress import Work

FACTS = {
    "done": 0.25, "task": 1, "tasks": 4, "learned": 0, "pass": 1, "passes": 2, "loss": 0.5,
    "accuracy": None, "images_per_second": 1234.0,
}  # fmt: skip


@pytest.fixture
def specs(toy_request):
    return plan({**toy_request, "set": {}}, methods="nsp2[subspace=random,b1=off],seq", seeds="2").specs


@pytest.fixture
def clock(monkeypatch):
    """Each look at it is a second later."""
    now = [100.0]
    monkeypatch.setattr(following.time, "monotonic", lambda: now.append(now[-1] + 1) or now[-1])
    return now


def shown(specs, facts, level=USUAL, terminal=False):
    """What a monitor writes of the first run's facts, one after the other."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80, _environ={"TERM": "xterm"})
    with Monitor(console, specs, level=level) as monitor:
        line = Line(monitor, specs[0])
        for each in facts:
            line.show(each)  # the last picture of a terminal is drawn when the monitor ends
    return text.getvalue()


def test_a_short_name_keeps_its_seed_and_both_ends_of_its_label(specs):
    spec = specs[0]
    assert short_name(spec, 80, False) == f"{spec.label} 2024"
    short = short_name(spec, 24, False)
    assert (
        len(short) == 24 and short.startswith("vpt-nsp2") and short.endswith("=random] 2024") and "…" in short
    )
    assert len({short_name(each, 24, False) for each in specs}) == len(specs)
    assert "data/4 2024" in short_name(spec, 40, True)


def test_no_line_is_wider_than_eighty_columns(specs, clock):
    late = {**FACTS, "done": 0.5, "task": 100, "tasks": 100, "accuracy": 0.7012, "images_per_second": 12345.6}
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(specs, [FACTS, late], terminal=True))
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    overall, run = lines[-2:]
    assert max(map(len, lines)) <= 80
    assert overall.startswith("all runs") and "0/4 runs" in overall and overall.endswith(" left")
    assert " 2024 " in run and re.search(r"50% task 100/100, 70.1%, 12346/s, \d:\d\d left$", run)


def test_without_a_terminal_a_task_is_a_line_with_its_own_accuracy(specs, clock):
    learned = {**FACTS, "done": 0.3, "learned": 1, "accuracy": 0.875}
    text = shown(specs, [FACTS, {**FACTS, "done": 0.28, "pass": 2}, learned])
    first, second = text.splitlines()
    assert "task 1/4 pass 1/2" in first and "accuracy" not in first
    assert "task 1/4 learned" in second and "accuracy 87.5%" in second


def test_quiet_shows_nothing_and_verbose_every_pass(specs, clock):
    facts = [FACTS, {**FACTS, "done": 0.28, "pass": 2}]
    assert shown(specs, facts, QUIET) == "" == shown(specs, facts, QUIET, terminal=True)
    assert len(shown(specs, facts, EVERY_PASS).splitlines()) == 2


def test_all_runs_are_weighed_by_their_work(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("cl_bench.launch.overall.time.monotonic", lambda: now[0])
    overall = Overall(["a", "b"], {"a": Size(300, 3000), "b": Size(100, 1000)})
    assert overall.text() == "0/2 runs, 0/4k images"
    overall.update("a", 0.0)
    now[0] = 60.0
    overall.update("a", 1.0)
    assert overall.done == pytest.approx(0.75)
    assert overall.text() == "1/2 runs, 3k/4k images, 0:20 left"


def test_work_counts_training_statistics_evaluation_and_the_certificate():
    """Two tasks of 2 classes with 10 images each in 3 passes: 20 (2 x 3 + 1); tests 5 and 10, then 3 x 10."""
    work = Work([2, 2], [5, 5], 10, 3, 1)
    total = 140 + 5 + 140 + 10 + 3 * 10
    assert work.done(0, 0.5) == pytest.approx(70 / total)
    assert work.done(1) == pytest.approx(145 / total) and work.done(2) == 1
    assert work.done(1, 1.0) == pytest.approx(285 / total)
