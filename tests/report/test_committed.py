"""Committed reports are what their records say, in every file and on the pages that show them."""

import re
from pathlib import Path

import pytest
import recompute

from cl_bench.records.store import Store
from cl_bench.report import spec, write

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ("reference", "direction")


def layout(study):
    return ROOT / "reports" / f"{study}.toml"


def committed(study, name=""):
    return ROOT / "reports" / study / name


def tables(study, name):
    """A file of the report without its differences."""
    return committed(study, f"{name}.md").read_text(encoding="utf-8").partition("Differences")[0]


@pytest.mark.parametrize("study", STUDIES)
def test_the_committed_report_is_that_of_the_committed_records(study, tmp_path):
    write.of_layout(layout(study), Store(ROOT / "results" / study), tmp_path, None, None)
    files = {path.name for path in committed(study).iterdir() if path.suffix != ".yaml"}
    assert files - {"main-job.png"} == {path.name for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        if path.suffix in (".md", ".tex", ".csv"):
            assert without_intervals(path) == without_intervals(committed(study, path.name)), path.name


def without_intervals(path):
    """The text; bootstrap intervals depend on numpy's version."""
    return re.sub(r"\[[-+]\d+\.\d+, [-+]\d+\.\d+\]", "[interval]", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("study", STUDIES)
def test_its_numbers_are_those_of_an_independent_computation(study):
    for name, lines in recompute.cells(layout(study), ROOT / "results" / study).items():
        text = tables(study, name)
        rows = [
            line
            for line in text.splitlines()
            if line.startswith("| ") and "Acc." not in line and not line.startswith("| <small>published")
        ]
        plain = [re.sub(r"<sup>.*?</sup>|</?\w+>|\*\*", "", row).strip("|").split("|") for row in rows]
        assert len(plain) == len(lines)
        for cells, line in zip(plain, lines, strict=True):
            shown = [cell.strip() for cell in cells[-len(line) :]]
            assert all(own in (None, cell) for own, cell in zip(line, shown, strict=True)), (name, cells)


@pytest.mark.parametrize("study", STUDIES)
def test_every_run_has_three_seeds_and_a_clean_commit_and_is_inductive_unless_published_otherwise(study):
    records = list(Store(ROOT / "results" / study).records())
    seeds = {}
    for found in records:
        seeds.setdefault(found.spec.family_id(), []).append(found.spec.order_seed)
        assert found.status == "done" and (found.certificate.inductive or found.spec.as_published)
        assert all(
            place["git_commit"] and "changes" not in place["git_commit"] for place in found.environments
        )
    assert all(sorted(own) == [2024, 2025, 2026] for own in seeds.values()) and len(seeds) >= 9


@pytest.mark.parametrize(
    ("study", "page", "name"),
    [("reference", "results", name) for name in ("methods", "leaders", "published", "controls", "ablation")]
    + [("reference", "results", name) for name in ("twenty", "long")]
    + [("direction", "direction", f"glyphs-{tasks}-t{t}") for tasks in (10, 20) for t in (10, 2)]
    + [("direction", "direction", name) for name in ("cifar", "conditions", "updates")],
)
def test_the_page_of_a_study_shows_its_tables(study, page, name):
    page = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert "\n".join(line for line in tables(study, name).splitlines() if line.startswith("|")) in page


def test_the_reports_that_are_named_are_there():
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for study in STUDIES:
        named = re.findall(rf"\((?:\.\./)?reports/{study}/([\w-]+\.\w+)\)", text)
        assert named and all(committed(study, name).exists() for name in named)
        assert spec.read(layout(study)).tables
