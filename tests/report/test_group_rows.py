"""A row that selects a group stands for its methods; the leaderboard is made of such rows."""

from pathlib import Path

import pytest
from made import BETTER, SEQ, record
from small_reports import line_of, small

from cl_bench.errors import InputError
from cl_bench.plugins import registry
from cl_bench.plugins.groups import groups
from cl_bench.records.metrics import Conventions
from cl_bench.records.store import Store
from cl_bench.report import spec, write
from cl_bench.report.figures import curves
from cl_bench.report.grouping import group
from cl_bench.report.rows import Panel

ROOT = Path(__file__).resolve().parents[2]
LEADERBOARD = ROOT / "reports" / "leaderboard.toml"


def selected(tmp_path, rows: str) -> list[str]:
    path = tmp_path / "report.toml"
    text = f'title = "T"\n[[table]]\nname = "t"\ntitle = "t"\ncolumns = ["glyphs/3"]\nrows = {rows}\n'
    path.write_text(text, encoding="utf-8")
    return [row.select for row in spec.read(path).tables[0].rows]


def test_a_group_is_a_row_for_each_of_its_methods_in_the_order_of_their_years(tmp_path):
    assert selected(tmp_path, '["paper"]') == [plugin.name for plugin in groups()["paper"]]


def test_methods_with_a_row_of_their_own_are_left_out_of_a_group_but_not_for_other_options(tmp_path):
    found = selected(tmp_path, '["paper", "all", "seq", "nsp2[eta=1]"]')
    assert found[-2:] == ["seq", "nsp2[eta=1]"] and "vpt-seq" not in found and "vpt-nsp2" in found
    assert len(set(found)) == len(found) == len(registry.plugins("methods")) + 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('[{ select = "paper", title = "x" }]', "line 6, table 't', row 1, title: the group 'paper'"),
        ('[{ select = "all", labels = ["x"] }]', "stands for several rows; leave labels out"),
        ('[{ select = "seq", by = "family" }]', "'seq' is one method; by puts those of a group in order"),
        ('["papre"]', "unknown method 'papre'; did you mean 'paper'"),
    ],
)
def test_what_a_group_cannot_have_is_refused_with_its_place(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        selected(tmp_path, rows)


def test_a_group_may_stand_family_after_family_with_the_family_and_venue_of_each_method(tmp_path):
    path = tmp_path / "report.toml"
    path.write_text(
        'title = "T"\n[[table]]\nname = "t"\ntitle = "t"\ncolumns = ["glyphs/3"]\n'
        'labels = ["Family", "Venue"]\n'
        'rows = [{ select = "paper", by = "family", labels = ["{family}", "{venue}"] }, '
        '{ select = "simplecil", labels = ["{family}", "none"] }]\n',
        encoding="utf-8",
    )
    *rows, last = spec.read(path).tables[0].rows
    known = {plugin.name: plugin for plugin in groups()["paper"]}
    assert {row.select for row in rows} == set(known) and last.labels == ["prototypes", "none"]
    assert all(row.labels == [known[row.select].family, known[row.select].venue] for row in rows)
    families = [row.labels[0] for row in rows]
    firsts = [number for number, family in enumerate(families) if family not in families[:number]]
    assert len(firsts) == len(set(families)) > 2  # each stands together
    assert [number for number, row in enumerate(rows) if row.rule] == firsts[1:]


def test_settings_of_a_groups_row_are_those_of_all_its_rows(tmp_path):
    records = [record("vpt-nsp2", SEQ), record("vpt-nsp2", BETTER, precision="bf16", core_version=4)]
    text, _ = small(tmp_path, records, '[{ select = "paper", where = { precision = "bf16" } }]')
    assert line_of(text, "VPT-NSP² [precision=bf16]")[0] == "70.00"


def test_rows_without_runs_are_shown_and_named_in_one_line(tmp_path):
    text, warnings = small(tmp_path, [record("vpt-nsp2", SEQ)], '["paper"]')
    absent = [plugin.name for plugin in groups()["paper"] if plugin.name != "vpt-nsp2"]
    assert warnings == [f"t: no run of {', '.join(absent)} on glyphs/3"]
    assert all(line_of(text, name) == ["–", "–"] for name in absent)


def test_the_leaderboard_has_a_row_for_every_method_and_bounds_last(tmp_path):
    [table] = spec.read(LEADERBOARD).tables
    rows = {row.select: row for row in table.rows}
    methods = {select: spec.selector(select)[0] for select in rows if not spec.selector(select)[1]}
    assert sorted(methods.values()) == sorted(registry.plugins("methods"))
    joint = {select: registry.method_class(name).joint for select, name in methods.items()}
    first = next(select for select, bound in joint.items() if bound)
    assert [*joint.values()] == sorted(joint.values()) and rows[first].rule


def test_the_leaderboard_of_the_reference_runs(tmp_path):
    store = Store(ROOT / "results" / "reference")
    ten = [found.spec for found in store.records() if found.spec.benchmark_key() == "glyphs/10"]
    usual = {spec.method for spec in ten if spec.label == spec.method and not (spec.limit or spec.validation)}
    report = write.of_layout(LEADERBOARD, store, tmp_path, None, None)
    [table] = report.tables
    shown = [line for line in table.lines if line.cells[0].value is not None]
    assert {line.cells[0].row.spec.method for line in shown} == usual
    for line in shown:
        kept = [record.tasks[-1].stored_values for record in line.cells[0].row.records]
        assert line.cells[5].value == sum(kept) / len(kept)
        assert len(set(kept)) > 1 or line.cells[5].text == f"{kept[0]:,}"
    assert {"accuracy-against-time.png", "accuracy-against-stored.csv"} <= {
        path.name for path in report.paths
    }


def numbers(records, cost: str) -> list[tuple]:
    [benchmark] = group(records)
    drawn = curves.cost([Panel("p", [(row.title, row) for row in benchmark.rows])], Conventions(), cost)
    return drawn and drawn.numbers


def costing(label: str, values: int, seed: int = 1):
    made = record(label, SEQ, seed)
    tasks = [task.model_copy(update={"stored_values": values}) for task in made.tasks]
    return made.model_copy(update={"tasks": tuple(tasks)})


def test_a_figure_of_costs_may_be_of_another_cost_than_time():
    found = numbers([costing("vpt-seq", 100, 1), costing("vpt-seq", 300, 2), costing("l2p", 0)], "stored")
    assert found[0][2:4] == ("stored_mean", "stored_std")
    assert [line[1:3] for line in found[1:]] == [("vpt-seq", 200), ("l2p", 0)]
    assert found[1][3] == pytest.approx(20000**0.5) and found[2][3] is None


def test_rows_whose_records_do_not_say_a_cost_are_not_drawn():
    assert numbers([costing("vpt-seq", 100)], "passes") is None
