"""Runs with --diagnose: the same results, the same numbers when they go on, and out of a method's reach."""

import pytest
from runs import execute, run_until, spec_of

from cl_bench.data.stream import Stream
from cl_bench.diagnosis.drift import Answers
from cl_bench.diagnosis.measure import Measuring
from cl_bench.nn.head_moments import HeadMoments
from cl_bench.plugins import registry
from cl_bench.records.asked import lacking

FORBIDDEN = (Measuring, Stream, Answers, HeadMoments)


@pytest.fixture(scope="module")
def diagnosed(toy_request, tmp_path_factory):
    """The run everything is compared with, diagnosed, and what its method finds that looks for more."""
    spec, looked = spec_of(toy_request, diagnose=True), []

    def look(self, task, trainer):
        reached = within([self, task, trainer], {})
        assert len(reached) > 500  # of the network alone
        looked.append([one for one in reached.values() if isinstance(one, FORBIDDEN)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry.method_class(spec.method), "begin_task", look)
        return spec, execute(spec, tmp_path_factory.mktemp("diagnosed")), looked


def test_results_are_those_of_the_run_without_to_the_last_bit(whole_run, diagnosed):
    (plain_spec, plain, _), (spec, record, _) = whole_run, diagnosed
    assert spec.run_id() == plain_spec.run_id()
    for one, two in zip(record.tasks, plain.tasks, strict=True):
        assert one.checkpoint_sha256 == two.checkpoint_sha256
        assert one.predictions_sha256 == two.predictions_sha256 and one.pass_losses == two.pass_losses
        assert two.diagnosis is None and two.diagnose_seconds is None
    assert [task.diagnosis.images for task in record.tasks] == [0, 8, 16, 24]
    assert all(task.diagnose_seconds >= 0 for task in record.tasks)


def test_an_interrupted_run_has_the_numbers_of_one_that_was_not(diagnosed, tmp_path):
    spec, whole, _ = diagnosed
    run_until(spec, tmp_path, 2)
    assert execute(spec, tmp_path).outcome() == whole.outcome()


def test_runs_begun_without_it_are_said_to_lack_it(whole_run, diagnosed):
    plain, record = whole_run[1], diagnosed[1]
    assert lacking([record], ["diagnose"]) == [] == lacking([plain], [])
    [line] = lacking([plain, record], ["diagnose"])
    assert line.startswith(
        "1 of 2 runs were begun without --diagnose and lack what it measures; `cl-bench clean`"
    )
    partly = record.model_copy(update={"tasks": (*plain.tasks[:2], *record.tasks[2:])})
    assert len(lacking([partly], ["diagnose", "losses"])) == 2


def within(found: list, seen: dict) -> dict:
    """All that attributes and containers lead to from some objects, by id."""
    while found:
        each = found.pop()
        if id(each) in seen or isinstance(each, type | str | int | float):
            continue
        seen[id(each)] = each
        if isinstance(each, dict):
            found += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            found += each
        found += getattr(each, "__dict__", {}).values()
    return seen


def test_a_method_that_looks_for_what_is_measured_does_not_find_it(diagnosed):
    _, record, looked = diagnosed
    assert looked == [[]] * 4 and record.tasks[3].diagnosis.images == 24  # there was something to be found
