"""What the README and the documentation promise: examples run, commands exist, links lead somewhere."""

import re
import shlex

import pytest
from documents import PAGES, ROOT, blocks, commands

from cl_bench.plugins import registry


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 150


def test_the_example_method_is_short():
    """That it works is part of the contract in test_methods.py."""
    [code] = [block for block in blocks("docs/extending.md", "python") if block.startswith('"""')]
    assert len(code.splitlines()) <= 50


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/python.md", marks=pytest.mark.slow)])
def test_the_example_in_python_runs(toy_request, tmp_path, monkeypatch, page):
    """On toy images in the place of the benchmark, and without the option that its last line selects."""
    [code] = [block for block in blocks(page, "python") if block.startswith("import")]
    monkeypatch.chdir(tmp_path)
    benchmark = f"{toy_request['dataset']}/4"
    others = {key: toy_request[key] for key in ("backbone", "weights", "image_size", "set")}
    code = code.replace('benchmark="glyphs/10", seeds=3', f"benchmark={benchmark!r}, **others")
    assert "**others" in code
    exec(code.replace("[eta=0.9]", ""), {"others": others})


def test_every_method_has_its_line_with_its_aliases():
    for plugin in registry.plugins("methods").values():
        aliases = ", ".join(f"`{alias}`" for alias in plugin.aliases)
        assert f"| `{plugin.name}` | {aliases} |" in PAGES["docs/methods.md"]


@pytest.mark.parametrize(("page", "line"), commands())
def test_every_command_is_one_with_known_options_and_names(page, line):
    from typer.main import get_command

    from cl_bench.cli import program
    from cl_bench.plan.expand import require_known
    from cl_bench.plan.request import request_from

    words = shlex.split(line[line.index("cl-bench") :], comments=True)
    command = get_command(program()).commands[words[1]]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    values = dict(zip(words, words[1:], strict=False))
    asked = {
        key: values[f"--{key}"] for key in ("methods", "splits", "benchmarks", "seeds") if f"--{key}" in words
    }
    require_known(request_from(asked, None))


def test_the_experiments_can_be_read(tmp_path):
    from cl_bench.plan.expand import require_known
    from cl_bench.plan.request import request_from

    found = [text for page in PAGES for text in blocks(page, "yaml") if "methods:" in text]
    assert len(found) >= 2
    for text in found:
        (tmp_path / "experiment.yaml").write_text(text, encoding="utf-8")
        require_known(request_from({}, tmp_path / "experiment.yaml"))


def test_the_report_specification_can_be_read(tmp_path):
    from cl_bench.report import spec

    [text] = blocks("docs/reports.md", "toml")
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    found = spec.read(tmp_path / "mine.toml")
    assert [table.name for table in found.tables] == ["main"]
    assert [figure.kind for figure in found.figures] == ["accuracy"]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results" / "bench").glob("*-cpu*.json")), ids=lambda path: path.stem
)
def test_the_speeds_are_those_that_were_measured(path):
    from cl_bench.profiling.throughput import Measured

    measured = Measured.model_validate_json(path.read_text(encoding="utf-8"))
    assert measured.text() in PAGES["docs/speed.md"]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", PAGES[page]):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target
