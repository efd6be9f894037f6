"""What the README promises: its example method is complete, its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from cl_bench.plugins import registry

TEXT = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_method_is_short():
    """That it works is part of the contract in test_methods.py."""
    [code] = re.findall(r"```python\n(\"\"\".*?)```", TEXT, re.DOTALL)
    assert len(code.splitlines()) <= 50


def test_the_example_in_python_runs(toy_request, tmp_path, monkeypatch):
    """On toy images in the place of the benchmark, and without the option that its last line selects."""
    code = re.findall(r"```python\n(import.*?)```", TEXT, re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    benchmark = f"{toy_request['dataset']}/4"
    others = {key: toy_request[key] for key in ("backbone", "weights", "image_size", "set")}
    code = code.replace('benchmark="glyphs/10", seeds=3', f"benchmark={benchmark!r}, **others")
    assert "**others" in code
    exec(code.replace("[eta=0.9]", ""), {"others": others})


def test_every_method_has_its_line_with_its_aliases():
    for plugin in registry.plugins("methods").values():
        aliases = ", ".join(f"`{alias}`" for alias in plugin.aliases)
        assert f"| `{plugin.name}` | {aliases} |" in TEXT


@pytest.mark.parametrize("line", re.findall(r"^(?:cl-bench|.*/cl-bench) .*$", TEXT, re.MULTILINE))
def test_every_command_of_the_readme_has_known_options(line):
    from typer.main import get_command

    from cl_bench.cli import program

    words = shlex.split(line[line.index("cl-bench") :], comments=True)
    command = get_command(program()).commands[words[1]]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_report_specification_can_be_read(tmp_path):
    from cl_bench.report import spec

    [text] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    found = spec.read(tmp_path / "mine.toml")
    assert [table.name for table in found.tables] == ["main"] and [
        figure.kind for figure in found.figures
    ] == ["accuracy"]


@pytest.mark.parametrize(
    "path",
    sorted((Path(__file__).resolve().parents[1] / "results" / "bench").glob("*-cpu*.json")),
    ids=lambda path: path.stem,
)
def test_the_speeds_are_those_that_were_measured(path):
    from cl_bench.profiling.throughput import Measured

    assert Measured.model_validate_json(path.read_text(encoding="utf-8")).text() in TEXT
