"""The tables of the NSP² paper from made-up runs of everything: every number, every output."""

import re
import subprocess
import sys

import pytest
import recompute
from made import has_latex, orders, record, results, triangle
from paper_runs import AUGREG, CIFAR, IMAGENET, PAPER, as_published

from cl_bench.report import spec, write

OWN = {"resize": "short-crop", "interpolation": "bicubic"}  # of CLIP


def paper_records(seeds=(2024, 2025, 2026)):
    """A run of every method of the paper's tables on every benchmark, with counts by chance."""
    wanted = spec.read(PAPER)
    for table in wanted.tables:
        for place, row in enumerate(table.rows):
            for column in table.columns if row.select else ():
                name, chosen = spec.selector(row.select)
                dataset, tasks = column.benchmark.split("/")
                for seed in seeds:
                    correct = triangle(int(tasks), seed + 31 * place)
                    joint = name.endswith("joint")
                    label = name + row.select[len(row.select.partition("[")[0]) :]
                    clip, transform = name.startswith("clip"), CIFAR if dataset == "cifar100" else IMAGENET
                    own = {"name": row.backbone} if row.backbone else {}
                    yield record(
                        label, correct[-1:] if joint else correct, seed, joint=joint,
                        options=as_published(name, column.benchmark, **chosen), dataset=dataset,
                        backbone=AUGREG.model_copy(update=own), weights_sha256=row.backbone or "w",
                        transform=transform.model_copy(update=OWN if clip else {}),
                        task_classes=orders(int(tasks), seed),
                    )  # fmt: skip


def shown(path):
    """The cells of a Markdown table's rows and of the published lines below them, without marks."""
    ours, theirs = [], []
    for line in path.read_text(encoding="utf-8").partition("Differences to")[0].splitlines():
        if line.startswith("| ") and "Acc." not in line:
            plain = re.sub(r"<sup>.*?</sup>|</?\w+>|\*\*", "", line)
            cells = [cell.strip() for cell in plain.strip("|").split("|")]
            (theirs if "published" in plain else ours).append(cells)
    return ours, theirs


@pytest.fixture(scope="module")
def paper_report(tmp_path_factory):
    """The paper's tables from made-up runs of everything."""
    root = tmp_path_factory.mktemp("paper")
    unique = {found.spec.run_id(): found for found in paper_records()}
    store = results(root / "results", unique.values())
    return root, write.of_layout(PAPER, store, root / "out", None, None)


@pytest.mark.slow
def test_every_number_of_every_table_of_the_paper_is_what_its_records_say(paper_report):
    root, _ = paper_report
    expected = recompute.cells(PAPER, root / "results")
    assert set(expected) == {"table1", "table2", "table3", "table4", "table5"}
    for name, lines in expected.items():
        ours, _ = shown(root / "out" / f"{name}.md")
        count = len(lines[0])
        assert [cells[-count:] for cells in ours] == lines
    filled = sum(cell != "–" for lines in expected.values() for line in lines for cell in line)
    assert filled > 200  # most of the 310 numbers of the rows that have a method here


def test_where_a_run_may_be_compared_the_difference_to_the_published_number_stands_beside_it(paper_report):
    root, _ = paper_report
    ours, theirs = shown(root / "out" / "table1.md")
    [own] = [cells for cells in ours if cells[0] == "VPT-NSP²"]
    line = theirs[1]
    assert line[:2] == ["published", f"91.74 ({float(own[1].split()[0]) - 91.74:+.2f})"]
    assert line[2] == f"3.28 ({float(own[2].split()[0]) - 3.28:+.2f})"
    text = (root / "out" / "table2.md").read_text(encoding="utf-8")
    # L2P was published with other weights than these runs', and its 20-split number was made by others
    assert (
        "other checkpoint (vit_base_patch16_224.augreg_in21k, published: vit_base_patch16_224.orig_in21k)"
        in text
        and "run by the authors of LAE" in text
    )
    assert "Visual Prompt Tuning in Null Space for Continual Learning (NeurIPS 2024), Table 2" in text
    table = next(table for table in spec.read(PAPER).tables if table.name == "table2")
    for row in table.rows:
        absent = f"| {row.title} | {row.labels[0]} | – |"  # a method that is not here stays in the table
        assert (absent in text) == (row.select is None), row.title
    assert ">89.35<" in text


@pytest.mark.slow
def test_reports_import_neither_torch_nor_a_method(paper_report):
    root, _ = paper_report
    command = ["report", str(PAPER), "--results", str(root / "results"), "--out", str(root / "again")]
    code = (
        "import sys; from cl_bench.cli import main\n"
        f"try: main({command!r})\n"
        "except SystemExit as end: assert end.code == 0\n"
        "names = ('torch', 'timm', 'torchvision', 'cl_bench.methods')\n"
        "heavy = [name for name in sys.modules if name in names or name.startswith('cl_bench.methods.')]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (root / "again" / "report.md").read_bytes() == (root / "out" / "report.md").read_bytes()


def test_the_markdown_renders_as_tables_of_equal_rows_with_emphasis_and_marks(paper_report):
    from markdown_it import MarkdownIt

    root, _ = paper_report
    rendered = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .render((root / "out" / "report.md").read_text(encoding="utf-8"))
    )
    tables = re.findall(r"<table>(.*?)</table>", rendered, re.DOTALL)
    assert len(tables) == 5 + 4  # four of the five have a baseline, and so a table of differences
    for table in tables:
        assert (
            len({len(re.findall(r"<t[hd]", row)) for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)})
            == 1
        )
        assert "**" not in table
    assert (
        "<strong>" in tables[0]
        and "<u>" in tables[0]
        and "<small>published</small>" in tables[0]
        and "<sup>a</sup>" in "".join(tables)
    )


@pytest.mark.skipif(not has_latex(), reason="no LaTeX with booktabs and adjustbox here")
def test_the_papers_tables_compile_as_they_are_and_nothing_sticks_out(paper_report):
    root, _ = paper_report
    folder = root / "out"
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search(r"Missing character|Overfull", done.stdout)
    text = (folder / "report.tex").read_text(encoding="utf-8")
    assert (
        text.count(r"\begin{tabular}") == 5
        and r"\multicolumn{2}{c}{10S-CIFAR-100}" in text
        and r"$\checkmark$" in text
    )
