"""The scripts of docs/examples run, and their figures are those of the committed records."""

import re
import runpy
import sys

import pytest
from documents import ROOT

EXAMPLES, REFERENCE = ROOT / "docs" / "examples", ROOT / "results" / "reference"


@pytest.fixture
def example(monkeypatch, capsys, tmp_path):
    """Runs a script of the folder with these words in an empty folder; what it prints."""

    def run(name: str, *words: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_all_of_them_are_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "compare_methods.py",
        "forgetting_by_task.py",
        "where_two_methods_differ.py",
    }


@pytest.mark.slow
def test_methods_are_trained_and_compared(example):
    printed = example("compare_methods.py", "--methods", "simplecil", "--limit", 400, "--threads", 1)
    [row] = [line for line in printed.splitlines() if line.startswith("simplecil")]
    assert 0 < float(row.split()[1]) < 100


def committed(row: str, column: int) -> float:
    """The mean in a row of the reference table of methods: accuracy in column 2, forgetting in column 3."""
    text = (ROOT / "reports" / "reference" / "methods.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(f"| {row} |"))
    return float(re.sub(r"[*]|</?u>", "", line.split("|")[column]).split("±")[0])


def test_forgetting_is_that_of_the_committed_table(example, tmp_path):
    printed = example("forgetting_by_task.py", "--results", REFERENCE, "--out", "lost.png")
    for method, row in (("seq", "VPT-Seq"), ("nsp2", "VPT-NSP²")):
        assert f"{method}: {committed(row, 3):.2f} points forgotten" in printed
    assert (tmp_path / "lost.png").stat().st_size > 5000


def test_where_two_methods_differ_adds_up_to_the_difference_of_their_accuracies(example):
    printed = example("where_two_methods_differ.py", "seq", "nsp2", "--results", REFERENCE)
    gained, lost = (int(part.split()[0]) for part in printed.splitlines()[0].split(": ")[1:])
    difference = committed("VPT-NSP²", 2) - committed("VPT-Seq", 2)
    assert 100 * (gained - lost) / (3 * 4000) == pytest.approx(difference, abs=0.02)
