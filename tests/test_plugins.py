"""Plugins of the user are found beside the work and in named folders, and are part of the run's identity."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import runs

import cl_bench
from cl_bench import presets
from cl_bench.cli import main, method_list
from cl_bench.errors import InputError
from cl_bench.launch.warm_processes import run_environment
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry, search_path
from cl_bench.records.store import Store
from cl_bench.run import assemble

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
[NCM] = re.findall(r"```python\n(\"\"\".*?)```", PAGE, re.DOTALL)
SOURCE = (
    "from cl_bench.datasets.folder import Folder\n\nclass Mine(Folder):\n    name = 'mine'\n\nSOURCE = Mine\n"
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working folder; afterwards nothing of it is known any more."""
    monkeypatch.setenv("CL_BENCH_PLUGINS", "")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    search_path.use()
    yield work
    (work / "nothing").mkdir()
    monkeypatch.chdir(work / "nothing")
    os.environ["CL_BENCH_PLUGINS"] = ""
    search_path.use()


def write(folder: Path, text: str = NCM, name: str = "ncm", kind: str = "methods") -> Path:
    path = folder / kind / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def call(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


def plan(request, **changes):
    return make_plan(Request(**{**request, "methods": "ncm", "set": {}, **changes})).specs


def options(request) -> list[str]:
    return [
        word
        for key in ("dataset", "backbone", "weights", "image_size", "splits")
        for word in (f"--{key.replace('_', '-')}", str(request[key]))
    ]


def test_the_readmes_example_learns_in_the_folder_where_it_was_put_and_processes_are_told_of_it(
    toy_request, here
):
    write(here)
    search_path.use()
    [spec] = plan(toy_request)
    assert runs.execute(spec, here / "results").status == "done"
    assert run_environment(1)["CL_BENCH_PLUGINS"] == str(here)


@pytest.mark.slow
def test_a_process_of_a_run_finds_the_readmes_example(toy_request, here, capsys):
    write(here)
    code, out, err = call(capsys, "run", "--methods", "ncm", "--device", "cpu", *options(toy_request))
    assert code == 0 and "| NCM § |" in out, err
    [log] = here.glob("results/runs/ncm-*/log.txt")  # of the process that learned it
    assert "error" not in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_readme_as_written_with_the_package_elsewhere(toy_request, here):
    write(here)
    environment = {**os.environ, "PYTHONPATH": str(Path(cl_bench.__file__).parents[1]), "PYTHONSAFEPATH": "1"}
    words = [
        sys.executable,
        "-m",
        "cl_bench",
        "run",
        "--methods",
        "ncm",
        "--device",
        "cpu",
        *options(toy_request),
    ]
    done = subprocess.run(words, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0 and "| NCM § |" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "way", ["working folder", "variable", "option", "relative option", "two in the variable"]
)
def test_a_plugin_is_found_wherever_it_may_lie(here, tmp_path, monkeypatch, capsys, way):
    folder = here if way == "working folder" else tmp_path / "elsewhere"
    write(folder)
    write(tmp_path / "other", SOURCE, "mine", "datasets")
    if "variable" in way:
        more = [str(tmp_path / "other")] if way.startswith("two") else []
        monkeypatch.setenv("CL_BENCH_PLUGINS", os.pathsep.join([str(folder), *more]))
    asked = {"option": ["--plugins", folder], "relative option": ["--plugins", os.path.relpath(folder)]}.get(
        way, []
    )
    code, out, err = call(capsys, "ls", "methods", "--details", *asked)
    assert code == 0 and "ncm\n    nearest class mean of frozen features\n" in out, err
    assert re.search(r"^    .*ncm\.py$", out, re.MULTILINE)
    assert ("mine" in call(capsys, "ls", "datasets", *asked)[1]) == way.startswith("two")


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_named_folder_without_plugins_is_refused(here, capsys, monkeypatch, way):
    write(here / "deep")
    asked = []
    if way == "variable":
        monkeypatch.setenv("CL_BENCH_PLUGINS", str(here / "deep" / "methods"))
    else:
        asked = ["--plugins", here / "deep" / "methods"]
    code, _, err = call(capsys, "ls", "methods", *asked)
    assert (
        code == 2
        and "holds neither a folder methods/ nor a folder datasets/; name the folder above them" in err
        and len(err.splitlines()) == 1
    )


def test_a_plugins_file_and_its_helpers_are_part_of_the_runs_identity_and_built_in_ones_have_none(
    here, toy_request
):
    path = write(here)
    write(here, "", "_helper")
    search_path.use()
    [first], [built_in] = plan(toy_request), plan(toy_request, methods="seq")
    assert (
        set(first.plugins) == {"methods"} and built_in.plugins == {} and "plugins" not in built_in.identity()
    )
    path.write_text(NCM + "\n# changed\n", encoding="utf-8")
    [second] = plan(toy_request)
    write(here, "X = 1", "_helper")
    [third] = plan(toy_request)
    assert len({spec.run_id() for spec in (first, second, third)}) == 3
    source = assemble.open_source(first)
    with pytest.raises(InputError, match="not what this run was planned with; plan it again"):
        assemble.build_method(first, source, "cpu", 4)


def test_a_data_sets_file_is_part_of_the_runs_identity(here, toy_request):
    path = write(here, SOURCE, "mine", "datasets")
    search_path.use()
    own = toy_request["dataset"].replace("folder:", "mine:")
    ids = [plan(toy_request, methods="seq", dataset=own)[0].run_id()]
    path.write_text(SOURCE + "# changed", encoding="utf-8")
    [spec] = plan(toy_request, methods="seq", dataset=own)
    assert spec.run_id() not in ids and set(spec.plugins) == {"datasets"}


def test_a_run_whose_plugin_is_not_on_a_machine_says_what_is_missing(
    here, tmp_path, toy_request, monkeypatch
):
    write(here)
    search_path.use()
    [spec] = plan(toy_request)
    monkeypatch.chdir(tmp_path)
    search_path.use()
    with pytest.raises(
        InputError,
        match=r"method 'ncm' is a plugin file that is not here .*name its folder in \$CL_BENCH_PLUGINS",
    ):
        assemble.build_method(spec, assemble.open_source(spec), "cpu", 4)


BROKEN = {
    "syntax": ("def f(:\n", "line 1: SyntaxError"),
    "encoding": ("METHOD = '\udcff'\n", "SyntaxError"),
    "a zero byte": ("METHOD = 1\0\n", "ncm.py"),
    "no method": ("METHODS = 1\n", "sets no METHOD: it is no method"),
    "aliases": ("ALIASES = 'ncm'\nMETHOD = 1\n", "expected ALIASES"),
    "a computed alias": ("ALIASES = tuple('ab')\nMETHOD = 1\n", "ValueError"),
    "a group that is no list": ("GROUPS = 'paper'\nMETHOD = 1\n", 'expected GROUPS = ("name", ...)'),
    "passes of another kind": ("PASSES = 1.5\nMETHOD = 1\n", "PASSES = 1.5: expected such as PASSES = 1"),
    "a group with the name of a method": (
        "GROUPS = ('nsp2',)\nMETHOD = 1\n",
        "the group 'nsp2' has the name of a method; rename the group",
    ),
    "a group with its own name": (
        "GROUPS = ('ncm',)\nMETHOD = 1\n",
        "the group 'ncm' has the name of a method",
    ),
}
BROKEN_WHEN_LOADED = {
    "an import": (
        "\nimport no_such_thing\nMETHOD = 1\n",
        "ncm.py, line 2: ModuleNotFoundError: No module named 'no_such_thing'",
    ),
    "an exit": ("METHOD = 1\nraise SystemExit(3)\n", "ncm.py, line 2: SystemExit: 3"),
    "no class": ("METHOD = 1\n", "METHOD is 1; expected a subclass of cl_bench.training.method.Method"),
    "another class": ("METHOD = int\n", "expected a subclass of cl_bench.training.method.Method"),
}


@pytest.mark.parametrize(
    ("text", "said"), [*BROKEN.values(), *BROKEN_WHEN_LOADED.values()], ids=[*BROKEN, *BROKEN_WHEN_LOADED]
)
def test_a_broken_file_is_one_line_for_who_asks_for_it_and_nothing_for_others(
    here, capsys, toy_request, text, said
):
    path = here / "methods" / "ncm.py"
    path.parent.mkdir()
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    code, out, err = call(capsys, "ls", "methods")
    assert code == 0 and "vpt-seq" in out
    if (text, said) in BROKEN.values():
        assert said in out and "cannot be used" in out
    code, _, err = call(capsys, "check", "--methods", "ncm", *options(toy_request))
    assert code == 2 and said in err and len(err.splitlines()) == 1 and str(path) in err
    assert plan(toy_request, methods="seq")[0].method == "vpt-seq"


def test_a_broken_data_set_does_not_stop_what_needs_other_ones(here, toy_request):
    write(here, "BACKBONES = SOURCE = 1\nimport no_such_thing\n", "mine", "datasets")
    search_path.use()
    assert "glyphs-vit" in registry.named_backbones() and plan(toy_request, methods="seq")
    with pytest.raises(InputError, match=r"mine\.py, line 2: ModuleNotFoundError"):
        registry.source_class("mine")


@pytest.mark.parametrize(
    ("name", "text", "asked"),
    [
        ("vpt_seq", NCM, "seq"),
        ("seq", NCM, "seq"),
        ("ncm", NCM.replace("ALIASES = ()", 'ALIASES = ("seq",)'), "seq"),
    ],
)
def test_names_of_built_in_methods_are_refused(here, toy_request, name, text, asked):
    path = write(here, text, name)
    search_path.use()
    with pytest.raises(
        InputError, match=f"{re.escape(str(path))}: the name '.*' is taken by the method vpt-seq; rename"
    ):
        plan(toy_request, methods=asked)
    assert plan(toy_request, methods="pgp") and "taken by" in "\n".join(method_list.lines(False))


@pytest.mark.parametrize("name", ["all", "paper"])
def test_names_of_groups_are_refused(here, name):
    write(here, NCM, name)
    search_path.use()
    lines = "\n".join(method_list.lines(False))
    assert f"the name {name!r} is taken by a group of methods; rename the file or its alias" in lines


def test_two_plugins_of_one_name_are_refused(here, tmp_path, toy_request):
    first = write(tmp_path / "a")
    write(tmp_path / "b")
    search_path.use([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(InputError, match=f"the name 'ncm' is taken by {re.escape(str(first))}"):
        plan(toy_request)


def test_in_another_checkout_only_new_files_are_plugins(here, toy_request):
    write(here)
    write(here, NCM, "vpt_seq")
    (here / "cl_bench").mkdir()
    for name in ("pyproject.toml", "cl_bench/__init__.py"):
        (here / name).write_text("", encoding="utf-8")
    search_path.use()
    assert plan(toy_request)[0].plugins and not plan(toy_request, methods="seq")[0].plugins


def test_a_preset_beside_a_plugin_is_found_and_may_not_replace_one(here, toy_request):
    write(here)
    rule = '[[rule]]\nmethods = "ncm"\nsource = "me"\nvalues = {batch = 7}\n'
    path = here / "methods" / "presets" / "mine.toml"
    path.parent.mkdir()
    path.write_text(f'title = "Mine"\nbenchmarks = ["folder/4"]\n{rule}', encoding="utf-8")
    search_path.use()
    assert plan(toy_request, preset="mine")[0].options == {"batch": 7}
    path.write_text(rule, encoding="utf-8")
    with pytest.raises(InputError, match="'title' is missing"):
        presets.load("mine")
    path.rename(path.with_name("nsp2-paper.toml"))
    with pytest.raises(InputError, match="there is a preset 'nsp2-paper' already"):
        presets.load("nsp2-paper")


def test_a_repeating_command_names_the_folders_that_were_asked_for(here, tmp_path, toy_request):
    write(tmp_path / "mine")
    search_path.use([tmp_path / "mine"])
    assert plan(toy_request)[0].command.endswith(f"--plugins {tmp_path / 'mine'}")
    assert "--plugins" not in plan(toy_request, methods="seq")[0].command


def test_the_files_are_no_top_level_modules(here, toy_request):
    write(here)
    search_path.use()
    plan(toy_request)
    assert "cl_bench.methods.ncm" in sys.modules and not {"ncm", "methods", "datasets"} & set(sys.modules)


def test_rows_of_two_versions_of_a_plugin_are_told_apart(here, toy_request):
    import made

    from cl_bench.report.grouping import group

    records = [made.record("ncm", made.triangle(3, 1), plugins={"methods": digest * 64}) for digest in "ab"]
    labels = [row.label for row in group(records)[0].rows]
    assert labels == ["ncm[plugin=aaaaaaaaaaaa]", "ncm[plugin=bbbbbbbbbbbb]"]
    made.results(here / "results", records)
    assert len([*Store(here / "results").records()]) == 2
