"""`cl-bench new` writes plugins that run, and tests that pass."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cl_bench.cli import program
from cl_bench.errors import InputError
from cl_bench.plugins import scaffold


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "module"), [("method", "my_own"), ("dataset", "my_own")])
def test_the_test_that_is_written_passes(kind, module, tmp_path):
    written = ["new", kind, "my-own", "--in", str(tmp_path)]
    found = CliRunner().invoke(program(), written, prog_name="cl-bench")
    assert found.exit_code == 0 and f"test_{module}.py" in found.output
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/test_{module}.py"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [("My", "lower-case words"), ("a_b", "lower-case words"), ("nsp2", "already"), ("vpt-nsp2", "already")],
)
def test_names_that_cannot_be_are_refused(name, message, tmp_path):
    with pytest.raises(InputError, match=message):
        scaffold.start("methods", name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path):
    plugin, test = scaffold.start("datasets", "mine", tmp_path)
    plugin.unlink()
    kept = test.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="test_mine.py is there already"):
        scaffold.start("datasets", "mine", tmp_path)
    assert test.read_text(encoding="utf-8") == kept and not plugin.exists()
