"""Bad words on the command line are answered before torch is imported."""

import subprocess
import sys

import pytest

ASK = """
import sys
from cl_bench.cli import main
try:
    main(sys.argv[1:])
finally:
    print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("plan --methods nps2", "did you mean 'nsp2'"),
        ("run --methods nps2", "did you mean 'nsp2'"),
        ("check --dataset glifs", "did you mean 'glyphs'"),
        ("plan --benchmarks glifs/10", "did you mean 'glyphs'"),
        ("plan --splits ten", "expected numbers of tasks"),
        ("plan --base 50", "--base needs --increment"),
        ("check --seeds x", "seeds"),
        ("status --methods nps2", "did you mean 'nsp2'"),
        ("run --track tensorbord", "did you mean 'tensorboard'"),
    ],
)
def test_what_is_misspelt_is_answered_without_torch(words, message):
    found = subprocess.run([sys.executable, "-c", ASK, *words.split()], capture_output=True, text=True)
    assert found.returncode == 2 and message in found.stderr
    assert found.stdout.split()[-1] == "False"
