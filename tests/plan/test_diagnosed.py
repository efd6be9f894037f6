"""What is planned with --diagnose: the same runs, and for whom only a part is measured."""

import pytest

from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.report import spec

ASKED = {"methods": "nsp2,simplecil,joint", "splits": "10"}


def test_the_runs_are_the_same_and_methods_without_prompts_in_blocks_are_named():
    plain, asked = make_plan(Request(**ASKED)), make_plan(Request(**ASKED, diagnose=True))
    assert [one.run_id() for one in asked.specs] == [one.run_id() for one in plain.specs]
    assert [one.diagnose for one in asked.specs] == [
        True,
        True,
        False,
    ]  # all classes at once leave no old ones
    assert "--diagnose" in asked.specs[0].command and "--diagnose" not in plain.specs[0].command
    [line] = set(asked.remarks) - set(plain.remarks)
    assert line.startswith("simplecil: without prompts that blocks share, --diagnose measures drift of")


def test_a_figure_of_what_is_not_measured_is_refused_with_the_nearest_name(tmp_path):
    path = tmp_path / "r.toml"
    figure = (
        'name = "f"\nkind = "diagnosis"\nmeasure = "afinity_change"\ncolumns = ["glyphs/10"]\nrows = ["seq"]'
    )
    path.write_text(f'title = "t"\n[[figure]]\n{figure}\n', encoding="utf-8")
    with pytest.raises(
        InputError, match="line 5, figure 'f', measure: unknown measure 'afinity_change'; did"
    ):
        spec.read(path)
