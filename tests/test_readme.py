"""What the README promises: its example method is complete, its commands exist."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import toys

from cl_bench import registry

TEXT = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def test_the_example_method_works_as_it_stands(tmp_path):
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(code.splitlines()) <= 50
    (tmp_path / "ncm.py").write_text(code)
    spec = importlib.util.spec_from_file_location("ncm", tmp_path / "ncm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stream = toys.stream([[2, 0], [1, 3, 4]])
    method = module.METHOD(module.METHOD.Config(), toys.backbone(), None)
    toys.learn(method, stream)
    assert sum(stream.evaluate(method.predict, 2).correct) / sum(stream.test_sizes) > 0.6
    restored = module.METHOD(module.METHOD.Config(), toys.backbone(), None)
    for index in range(2):
        restored.grow(stream.task(index))
    restored.load_state(method.state())
    assert stream.evaluate(restored.predict, 2).correct == stream.evaluate(method.predict, 2).correct


def test_every_method_has_its_line_with_its_aliases():
    for plugin in registry.plugins("methods").values():
        aliases = ", ".join(f"`{alias}`" for alias in plugin.aliases)
        assert f"| `{plugin.name}` | {aliases} |" in TEXT


@pytest.mark.parametrize("line", re.findall(r"^(?:cl-bench|.*/cl-bench) .*$", TEXT, re.MULTILINE))
def test_every_command_of_the_readme_has_known_options(line):
    from typer.main import get_command

    from cl_bench.cli import app

    words = shlex.split(line[line.index("cl-bench") :], comments=True)
    command = get_command(app).commands[words[1]]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
