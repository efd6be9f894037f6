"""The scripts of docs/examples run, and their figures are those of the committed records."""

import re
import runpy
import sys

import numpy as np
import pytest
from documents import ROOT
from made import BETTER, SEQ, TOY_VIT, record, results

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
    assert printed.startswith("glyphs/10 (trial: at most 400 training images; smoke benchmark)")
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


def paired(root, *others):
    """Runs of two methods with one class order and three seeds, and other runs without predictions.

    By seed, the second method alone is right on 100, 90 and 80 images, the first alone on 50, 60 and 76.
    """
    alone = {1: (100, 50), 2: (90, 60), 3: (80, 76)}
    fixed = {"order": "natural", "order_seed": None}
    records = [record(name, SEQ, seed, **fixed) for seed in alone for name in ("vpt-seq", "vpt-nsp2")]
    store, images = results(root, [*records, *others]), np.arange(300)
    truth = np.repeat(np.arange(6), 50)
    for found in records:
        gained, lost = alone[found.spec.init_seed]
        first = found.spec.method == "vpt-seq"
        right = images < lost if first else (images >= lost) & (images < lost + gained)
        predicted = np.where(right, truth, (truth + 1) % 6)
        np.savez(store.folder(found.spec) / "predictions.npz", truth=truth, task_003=predicted)
    return store


def test_runs_of_one_class_order_are_joined_by_all_their_seeds(example, tmp_path):
    unfinished = record("vpt-seq", SEQ[:1], 4, "running", order="natural", order_seed=None)
    paired(tmp_path / "r", unfinished, record("vpt-seq", SEQ, 1, limit=6))
    words = ("seq", "nsp2", "--results", tmp_path / "r", "--benchmark", "toy/3")
    first, second, *_ = example("where_two_methods_differ.py", *words).splitlines()
    assert first == "nsp2 is right where seq is not: 270 images; the other way: 186"
    assert "3 pairs of runs" in second


def test_runs_that_may_not_be_joined_are_refused(example, tmp_path):
    words = ("seq", "nsp2", "--benchmark", "toy/3", "--results")
    paired(tmp_path / "a", record("vpt-seq", SEQ, 1, order="natural", order_seed=None, precision="bf16"))
    with pytest.raises(SystemExit, match=r"seq: expected runs of one .*, found vpt-seq\[precision"):
        example("where_two_methods_differ.py", *words, tmp_path / "a")
    apart = [record("vpt-seq", SEQ, 1), record("vpt-nsp2", SEQ, 2)]
    truth = np.zeros(300, int)
    results(tmp_path / "b", apart, {found.spec.run_id(): (truth == 0, truth) for found in apart})
    with pytest.raises(SystemExit, match="no run of seq has the benchmark and seeds of one of nsp2"):
        example("where_two_methods_differ.py", *words, tmp_path / "b")
    results(tmp_path / "c", [record("vpt-seq", SEQ[:1], 1, "running")])
    with pytest.raises(SystemExit, match="found none that is finished"):
        example("where_two_methods_differ.py", *words, tmp_path / "c")


def test_forgetting_is_of_one_configuration_and_protocol_at_a_time(example, tmp_path):
    big = TOY_VIT.model_copy(update={"name": "big_vit"})
    records = [
        record("vpt-seq", SEQ, 1),
        record("vpt-seq", SEQ[:2], 2, "running"),
        record("vpt-seq", BETTER, 1, backbone=big, weights_sha256="v"),
        record("vpt-seq", [[90], [0, 90], [0, 0, 90]], 1, limit=6),
    ]
    results(tmp_path / "r", records)
    words = ("--results", tmp_path / "r", "--benchmark", "toy/3", "--methods")
    assert set(example("forgetting_by_task.py", *words, "seq").splitlines()) == {
        "vpt-seq: 20.00 points forgotten over 2 tasks, 1 runs on toy/3 [toy_vit]",
        "vpt-seq: -5.00 points forgotten over 2 tasks, 1 runs on toy/3 [big_vit]",
    }
    with pytest.raises(SystemExit, match="no run of nsp2 on toy/3 is finished"):
        example("forgetting_by_task.py", *words, "nsp2")
