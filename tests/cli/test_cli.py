"""The commands as a user types them: exit codes, one-line errors, the table at the end."""

import subprocess
import sys

import pytest
import runs
import toys

import cl_bench
from cl_bench import environment
from cl_bench.cli import app, main
from cl_bench.plan.request import Request


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    inputs = toys.command_options(toys.write_inputs(tmp_path_factory.mktemp("cli")))
    settings = [
        part for setting in ("passes=2", "batch=8", "epoch_mode=plain") for part in ("--set", setting)
    ]
    return [*inputs, "--splits", "2", "--device", "cpu", *settings]


def call(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


def test_it_says_its_version_and_h_is_help(capsys):
    assert call(capsys, "--version") == (0, f"cl-bench {cl_bench.__version__}\n", "")
    assert call(capsys, "plan", "-h") == call(capsys, "plan", "--help")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_run_prints_the_table_writes_the_report_and_repeating_it_trains_nothing(capsys, here, base):
    code, out, err = call(capsys, "run", "--methods", "nsp2[eta=0.9|1],joint", "--seeds", "2", *base)
    assert code == 0, err
    table = [line for line in out.splitlines() if line.startswith("| VPT")]
    assert [line.split("|")[1].strip() for line in table] == [
        "VPT-NSP² [eta=0.9]",
        "VPT-NSP² [eta=1]",
        "VPT joint (upper bound)",
    ]
    assert all(line.rstrip(" |").endswith("2") for line in table)
    folder = here / "reports" / "folder-data-2-test_vit-32px"
    figures = {
        f"{name}.{suffix}" for name in ("accuracy", "tradeoff", "cost") for suffix in ("png", "pdf", "csv")
    }
    assert {path.name for path in folder.iterdir()} == {"table.md", "table.tex", *figures}
    assert (folder / "table.md").read_text() in out
    assert "finished: vpt-nsp2" in err

    code, again, err = call(capsys, "run", "--methods", "nsp2[eta=0.9|1],joint", "--seeds", "2", *base)
    assert code == 0 and again == out
    assert "6 of 6 runs are finished already" in err and "nothing to train" in err

    code, out, _ = call(capsys, "ls", "runs")
    assert code == 0 and len(out.splitlines()) == 7 and out.splitlines()[-1] == "6 runs: 6 finished"
    code, out, _ = call(capsys, "report", "--forgetting", "diagonal")
    assert code == 0 and "right after learning it" in out
    code, out, _ = call(capsys, "check", "--methods", "nsp2[eta=1],pgp", *base)
    assert code == 0 and "finished" in out and "missing" in out


@pytest.mark.slow
def test_a_trial_and_a_validation_run_are_marked_in_every_output(capsys, here, base):
    code, out, err = call(capsys, "run", "--methods", "seq", "--limit", 9, "--validation", "0.3", *base)
    assert code == 0, err
    assert "trial: at most 9 training images" in out and "held out and evaluated on" in out
    tex = (here / "reports" / "folder-data-2-test_vit-32px-trial-9-validation" / "table.tex").read_text()
    assert "trial: at most 9 training images" in tex
    assert (
        "trial: at most 9" in call(capsys, "ls", "runs")[1]
        and "trial: at most 9" in call(capsys, "check", "--methods", "seq", "--limit", 9, *base)[1]
    )


@pytest.mark.slow
def test_a_failed_run_leaves_the_others_and_exits_with_1(capsys, here, base):
    code, out, err = call(capsys, "run", "--methods", "seq,seq[learning_rate=1e30,temperature=1e-30]", *base)
    assert code == 1, err
    assert "| VPT-Seq |" in out and "failed: the training loss of task 1 became" in out
    assert "log:" in err and err.splitlines()[-1].startswith("error: 1 of 2 runs did not finish")
    code, out, _ = call(capsys, "ls", "runs")
    assert (
        out.splitlines()[-1] == "2 runs: 1 finished, 1 failed" and "the training loss of task 1 became" in out
    )


@pytest.mark.faults
def test_a_damaged_record_is_set_aside_with_a_warning_and_its_run_starts_again(capsys, here, base):
    code, expected, _ = call(capsys, "run", "--methods", "seq", *base)
    [record] = (here / "results" / "runs").glob("*/record.json")
    record.write_text(record.read_text()[:300])
    code, out, err = call(capsys, "report")
    assert (
        code == 1
        and "left out" in err
        and "truncated" in err
        and "its record is damaged, not in the table" in out
    )
    code, out, err = call(capsys, "run", "--methods", "seq", *base)
    assert code == 0, err
    assert out == expected and "warning: " in err and "the run starts again" in err
    assert "task 1/2" in (record.parent / "log.txt").read_text()


def test_the_command_alone_prints_its_help(capsys):
    assert call(capsys)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--methods", "nps2"], "did you mean 'nsp2'"),
        (["run", "--methods", "seq", "--splits", "3"], "--splits 3 does not divide the 4 classes"),
        (["run", "--methods", "seq", "--splits", "4"], "one class a task"),
        (
            ["run", "--methods", "seq", "--device", "cuda"],
            "--device cuda: this machine has no usable CUDA GPU",
        ),
        (["run", "--methods", "seq", "--device", "gpu"], "is not a device"),
        (["run", "--methods", "seq", "--set", "passes"], "expected KEY=VALUE"),
        (["run", "--methods", "seq", "--jobs", "0"], "--jobs"),
        (["run", "--methods", "seq", "--seeds", "0"], "--seeds '0'"),
        (["run", "none.yaml", "--methods", "seq"], "cannot read none.yaml"),
        (["check", "--methods", "seq[pases=1]"], "did you mean 'passes'"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(capsys, here, base, arguments, message):
    import torch

    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    pairs = zip(base[::2], base[1::2], strict=True)
    code, out, err = call(
        capsys,
        *arguments,
        *(word for pair in pairs if pair[0] == "--set" or pair[0] not in arguments for word in pair),
    )
    told = [
        line for line in err.splitlines() if not line.startswith(("measuring ", "decoding "))
    ]  # where a test is the first to use the images
    assert code == 2 and out == "" and len(told) == 1 and told[0].startswith("error: ") and message in told[0]
    assert not (here / "results" / "runs").exists() or not list((here / "results" / "runs").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "rnu"),
        (["run", "--method", "seq"], "--method"),
        (["ls", "metods"], "metods"),
        (["info", "glyphs/10"], "info takes a benchmark and a method"),
        (["info", "glyphs", "nsp2"], "expected DATASET/SPLITS"),
        (["report"], "there is no results folder results"),
        (["plan", "--backbone", " "], "--backbone is empty; give a value, or leave it out"),
        (["plan", "--weights", ""], "--weights is empty"),
        (["plan", "--order", "²"], "expected a seed, nsp2:SEED, pilot:SEED, natural, or a file"),
        (["plan", "--splits", "١٠"], "expected numbers of tasks"),
        (["plan", "--threads", "9" * 30], "less than or equal to 4096"),
        (["run-one", "none.json"], "is not a run specification"),
    ],
)
def test_usage_errors_are_one_line(capsys, here, arguments, message):
    code, _, err = call(capsys, *arguments)
    assert code == 2 and message in err and len(err.splitlines()) == 1


def test_lists_name_what_there_is(capsys, here):
    assert "vpt-nsp2, nsp2" in call(capsys, "ls", "methods")[1]
    assert {"folder", "glyphs"} <= {
        line.split()[0] for line in call(capsys, "ls", "datasets")[1].splitlines()
    }
    backbones = call(capsys, "ls", "backbones")[1].splitlines()
    assert backbones[0] == "glyphs-vit" and "vit_base_patch16_224.augreg_in21k" in backbones
    assert "no runs" in call(capsys, "ls", "runs")[1]
    assert "torch" in call(capsys, "info")[1]
    settings = call(capsys, "info", "glyphs/10", "nsp2")[1]
    assert any(line.split() == ["eta", "0.97", "default"] for line in settings.splitlines())
    assert any(line.split()[:1] == ["passes"] and "data set glyphs" in line for line in settings.splitlines())


HELP = """
import sys
sys.argv = ["cl-bench", "--help"]
try:
    from cl_bench.cli import main
    main()
except SystemExit:
    assert "torch" not in sys.modules
"""
REPORT = """
import sys
import cl_bench.cli.listing, cl_bench.cli.method_list, cl_bench.report.figures.files
import cl_bench.report.page, cl_bench.report.versus, cl_bench.report.write
cl_bench.cli.method_list.lines(True)
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("code", [HELP, REPORT], ids=["help", "report"])
def test_help_and_reports_do_not_import_torch(here, code):
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("machine", "asked", "precision", "said"),
    [
        ("bf16", [], "bf16", True),
        ("fp32", [], "fp32", False),
        ("bf16", ["--set", "precision=fp32"], "fp32", False),
        ("fp32", ["--set", "precision=bf16"], "bf16", False),
    ],
)
def test_the_precision_is_the_machines_unless_asked_for_and_said_where_it_is_bf16(
    capsys, here, base, monkeypatch, machine, asked, precision, said
):
    monkeypatch.setattr(environment, "usual_precision", lambda devices: machine)
    code, out, err = call(capsys, "check", "--methods", "seq", *base, *asked)
    assert code == 0 and f") in {precision}" in out
    assert ("precision: bf16" in err) == said


def test_runs_that_were_begun_in_the_other_precision_are_pointed_at(capsys, here, toy_request, monkeypatch):
    monkeypatch.setattr(environment, "usual_precision", lambda devices: "fp32")
    [spec] = app.planned(Request(**{**toy_request, "methods": "seq"}), "cpu", here / "results").specs
    assert "precision" not in capsys.readouterr().err
    runs.execute(spec, here / "results")
    monkeypatch.setattr(environment, "usual_precision", lambda devices: "bf16")
    [half] = app.planned(Request(**{**toy_request, "methods": "seq"}), "cpu", here / "results").specs
    assert half.run_id() != spec.run_id()
    said = "warning: 1 of these runs is there in fp32, which is another run than in bf16"
    assert f"{said}; --set precision=fp32 goes on with them" in capsys.readouterr().err
    runs.execute(half, here / "results")
    app.planned(Request(**{**toy_request, "methods": "seq"}), "cpu", here / "results")
    assert "warning" not in capsys.readouterr().err  # both are there
