"""Runs of older versions: listed and reported as ever, and pointed at where equal ones are asked for."""

import shutil
from pathlib import Path

import pytest
from made import record, results

from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plan.versions import hints
from cl_bench.records.metrics import Conventions
from cl_bench.records.store import Store
from cl_bench.report.versus import versus

COUNTS = [[80], [60, 70], [50, 60, 70]]
OLDER = Path(__file__).resolve().parents[2] / "results" / "plain-glyphs"


def twin(spec, **changes):
    """A run that differs from one in these fields."""
    return record("vpt-nsp2", [], status="running").model_copy(
        update={"spec": spec.model_copy(update=changes)}
    )


@pytest.fixture(scope="module")
def asked():
    return make_plan(Request(methods="nsp2,seq", splits="10", losses=True), "fp32").specs


def test_runs_of_an_older_core_are_pointed_at_with_how_to_report_them(asked, tmp_path):
    spec = asked[0]
    store = results(tmp_path, [])
    sizes = {"test_sizes": (400,) * 10}
    store.folder(twin(spec, core_version=2).spec).mkdir()
    store.save(twin(spec, core_version=2).model_copy(update=sizes))
    [line] = hints(asked, store, any_precision=True)
    assert (
        line.startswith("1 of these runs is there under core version 2 (now 3)")
        and "where = { core_version = 2 }" in line
    )
    for changes, said in (
        ({"method_version": 7}, "under method version 7 (now 1)"),
        (
            {"precision": "bf16", "core_version": 4},
            "there in bf16, which is another run than in fp32; --set precision=bf16 goes on with them",
        ),
    ):
        other = twin(spec, **changes).model_copy(update=sizes)
        store = results(tmp_path / str(len(changes)), [other])
        [line] = hints(asked, store, any_precision=True)
        assert said in line
    assert hints(asked, store, any_precision=False) == []  # in a precision that was asked for


def test_other_runs_are_not_taken_for_equal_ones(asked, tmp_path):
    spec = asked[0]
    others = [
        twin(spec, core_version=2, data_seed=9),
        twin(spec, core_version=2, options={**spec.options, "eta": 0.5}),
        twin(spec, core_version=2, method="vpt-pgp"),
        twin(spec, core_version=2, weights_sha256="other"),
    ]
    store = results(tmp_path, [other.model_copy(update={"test_sizes": (400,) * 10}) for other in others])
    assert hints(asked, store, any_precision=True) == []


def test_an_option_that_the_older_version_had_not_counts_with_its_default(asked, tmp_path):
    spec = asked[0]
    options = {key: value for key, value in spec.options.items() if key != "ln_red"}
    store = results(
        tmp_path, [twin(spec, core_version=2, options=options).model_copy(update={"test_sizes": (400,) * 10})]
    )
    assert len(hints(asked, store, any_precision=True)) == 1


def test_a_run_that_is_there_needs_no_hint(asked, tmp_path):
    store = results(tmp_path, [twin(asked[0], core_version=2), twin(asked[0])])
    for found in (twin(asked[0], core_version=2), twin(asked[0])):
        store.save(found.model_copy(update={"test_sizes": (400,) * 10}))
    assert hints(asked[:1], store, any_precision=True) == []


@pytest.fixture
def reference(tmp_path):
    """Some committed runs, which an older core computed, in a folder that may be written.

    Their index is one that another version left.
    """
    for path in sorted((OLDER / "runs").glob("vpt-*"))[::16]:
        shutil.copytree(path, tmp_path / "runs" / path.name)
    (tmp_path / "index.json").write_text(
        '{"version": 1, "runs": {"vpt-seq-0": {"stamp": [1, 2, 3], "summary": {"folder": "x"}}}}',
        encoding="utf-8",
    )
    return tmp_path


def test_a_results_folder_of_an_older_version_is_listed_and_reported(reference, capsys):
    count = len(list((reference / "runs").iterdir()))
    for words in (
        ["ls", "runs"],
        ["status"],
        ["report", "--out", str(reference / "out")],
        ["export", "--out", str(reference / "runs.csv")],
    ):
        with pytest.raises(SystemExit) as end:
            main([*words, "--results", str(reference)])
        told = capsys.readouterr()
        assert not end.value.code, told.err
        if words[0] in ("ls", "status"):
            assert (
                told.out.splitlines()[-1] == f"{count} runs: {count} finished"
                and len(told.out.splitlines()) == count + 1
            )
    assert len((reference / "runs.csv").read_text(encoding="utf-8").splitlines()) == count + 1


def test_all_committed_runs_can_be_believed():
    found = list(Store(OLDER).records())
    assert len(found) == len(list((OLDER / "runs").iterdir())) and all(
        record.status == "done" for record in found
    )


def test_plan_and_status_point_at_runs_of_the_older_core(asked, tmp_path, capsys):
    results(tmp_path, [twin(asked[0], core_version=2).model_copy(update={"test_sizes": (400,) * 10})])
    words = ["--methods", "nsp2", "--splits", "10", "--losses", "--set", "precision=fp32", "--device", "cpu"]
    for command in ("status", "check"):
        with pytest.raises(SystemExit):
            main([command, *words, "--results", str(tmp_path)])
        told = capsys.readouterr()
        assert "missing" in told.out and "1 of these runs is there under core version 2 (now 3)" in told.err


def test_two_core_versions_of_a_method_are_compared_by_name(tmp_path):
    results(
        tmp_path,
        [record("vpt-nsp2", COUNTS, core_version=2), record("vpt-nsp2", [[80], [80, 80], [80, 80, 80]])],
    )
    [difference] = versus("nsp2@core2", "nsp2@1,core3", tmp_path, Conventions()).differences
    assert difference.mean == pytest.approx(20)
    told = {
        ("nsp2", "nsp2@core2"): "its core version, such as vpt-nsp2@core2",
        ("nsp2@core1", "nsp2@core2"): "there are vpt-nsp2@1,core2 and vpt-nsp2@1,core3",
    }
    for names, said in told.items():
        with pytest.raises(InputError, match=said):
            versus(*names, tmp_path, Conventions())
    with pytest.raises(InputError, match="nsp2@core2"):
        versus("nsp2@corex", "nsp2@core2", tmp_path, Conventions())


def test_a_report_file_that_asks_for_a_version_that_is_not_there_is_told_which_are(tmp_path, capsys):
    results(
        tmp_path,
        [
            record("vpt-nsp2", COUNTS, dataset="glyphs", core_version=2),
            record("vpt-seq", COUNTS, dataset="glyphs"),
        ],
    )
    layout = tmp_path / "l.toml"
    row = '{ select = "nsp2", where = { core_version = 3 } }'
    layout.write_text(
        f'title = "T"\n[[table]]\nname = "t"\ntitle = "t"\ncolumns = ["glyphs/3"]\nrows = ["seq", {row}]\n',
        encoding="utf-8",
    )
    with pytest.raises(SystemExit) as end:
        main(["report", str(layout), "--results", str(tmp_path), "--out", str(tmp_path / "out")])
    assert not end.value.code and "there is nsp2 with core_version = 2" in capsys.readouterr().err
