"""The report of the reference result is what its records say, in every file and in the README."""

import re
from pathlib import Path

import pytest
import recompute

from cl_bench.records.store import Store
from cl_bench.report import spec, write

ROOT = Path(__file__).resolve().parents[2]
LAYOUT, COMMITTED, RESULTS = (
    ROOT / "reports" / "reference.toml",
    ROOT / "reports" / "reference",
    ROOT / "results" / "reference",
)


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """The report made anew."""
    out = tmp_path_factory.mktemp("reference")
    write.of_layout(LAYOUT, Store(RESULTS), out, None, None)
    return out


def test_the_committed_report_is_that_of_the_committed_records(again):
    made = {path.name for path in again.iterdir()}
    assert {path.name for path in COMMITTED.iterdir() if path.suffix != ".yaml"} - {"main-job.png"} == made
    for path in again.iterdir():
        if path.suffix in (".md", ".tex", ".csv"):
            assert without_intervals(path) == without_intervals(COMMITTED / path.name), path.name


def without_intervals(path):
    """The text; bootstrap intervals depend on numpy's version."""
    return re.sub(r"\[[-+]\d+\.\d+, [-+]\d+\.\d+\]", "[interval]", path.read_text(encoding="utf-8"))


def test_its_numbers_are_those_of_an_independent_computation():
    for name, lines in recompute.cells(LAYOUT, RESULTS).items():
        text = (COMMITTED / f"{name}.md").read_text(encoding="utf-8").partition("Differences")[0]
        rows = [
            line
            for line in text.splitlines()
            if line.startswith("| ") and "Acc." not in line and not line.startswith("| <small>published")
        ]
        plain = [re.sub(r"<sup>.*?</sup>|</?\w+>|\*\*", "", row).strip("|").split("|") for row in rows]
        assert [[cell.strip() for cell in cells[-len(lines[0]) :]] for cells in plain] == lines


def test_every_run_has_three_seeds_and_a_clean_commit_and_is_inductive_unless_published_otherwise():
    records = list(Store(RESULTS).records())
    seeds = {}
    for found in records:
        seeds.setdefault(found.spec.family_id(), []).append(found.spec.order_seed)
        assert found.status == "done" and (found.certificate.inductive or found.spec.as_published)
        assert all(
            place["git_commit"] and "changes" not in place["git_commit"] for place in found.environments
        )
    assert all(sorted(own) == [2024, 2025, 2026] for own in seeds.values()) and len(seeds) >= 9


@pytest.mark.parametrize(
    "name", ["methods", "leaders", "published", "controls", "ablation", "twenty", "long"]
)
def test_the_page_of_results_shows_its_tables(name):
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = (COMMITTED / f"{name}.md").read_text(encoding="utf-8").partition("Differences")[0]
    assert "\n".join(line for line in table.splitlines() if line.startswith("|")) in page


def test_the_reports_that_are_named_are_there():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for name in re.findall(r"\((?:\.\./)?reports/reference/([\w-]+\.\w+)\)", readme + page):
        assert (COMMITTED / name).exists()
    assert spec.read(LAYOUT).tables
