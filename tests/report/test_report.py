"""Tables and figures recomputed from records made by hand."""

import io
import re
import subprocess

import pytest
from made import SEQ, has_latex, record

from cl_bench.errors import InputError
from cl_bench.records.metrics import Conventions
from cl_bench.records.record import Certificate
from cl_bench.records.store import Store
from cl_bench.report import build, latex, render, terminal, write
from cl_bench.report.figures import bars
from cl_bench.report.grouping import group
from cl_bench.report.table import Cell, Line, Table

NSP2 = [
    [80],
    [80, 60],
    [75, 75, 60],
]  # final 70, chaudhry forgetting (5 - 15) / 2 = -5, diagonal -5, including last 2.5
NSP2_B = [[82], [80, 60], [73, 75, 62]]  # final 70


def cells(text, title):
    [line] = [line for line in text.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_markdown_table_prints_mean_and_sample_deviation_with_best_bold_and_second_underlined():
    records = [
        record("vpt-seq", SEQ),
        record("vpt-nsp2", NSP2),
        record("vpt-nsp2", [[80], [80, 60], [75, 75, 66]], 2025),
        record("vpt-joint", [[90, 90, 93]], joint=True),
    ]
    [benchmark] = group(records)
    text = render.markdown(build.of_benchmark(benchmark, Conventions()))
    assert cells(text, "vpt-seq") == ["<u>60.00</u>", "<u>20.00</u>", "<u>68.33</u>", "<u>-20.00</u>", "1"]
    # accuracies 70 and 72: mean 71, sample deviation sqrt(2)
    assert cells(text, "VPT-NSP²") == [
        "**71.00 ± 1.41**",
        "**-5.00 ± 0.00**",
        "**73.67 ± 0.47**",
        "**5.00 ± 0.00**",
        "2",
    ]
    assert cells(text, "vpt-joint") == ["91.00", "–", "–", "–", "1"]
    assert (
        "(2024, 2025)" in text
        and "vpt-seq: seeds 2024 only" in text
        and "sample standard deviation (n - 1)" in text
    )


@pytest.mark.parametrize(
    ("convention", "expected"), [("chaudhry", "-5.00"), ("diagonal", "-5.00"), ("max_including_last", "2.50")]
)
def test_the_forgetting_convention_is_printed_and_named(convention, expected):
    [benchmark] = group([record("vpt-nsp2", NSP2)])
    text = render.markdown(build.of_benchmark(benchmark, Conventions(forgetting=convention)))
    assert cells(text, "VPT-NSP²")[1] == expected
    assert {
        "chaudhry": "any earlier task",
        "diagonal": "right after learning it",
        "max_including_last": "never negative",
    }[convention] in text


def test_unfinished_and_failed_runs_are_named_not_averaged_and_not_dropped():
    records = [
        record("vpt-seq", SEQ),
        record("vpt-seq", SEQ[:2], 2025, "running"),
        record("vpt-pgp", SEQ[:1], status="failed", options={"eta": 1.0}),
    ]
    [benchmark] = group(records)
    text = render.markdown(build.of_benchmark(benchmark, Conventions()))
    assert cells(text, "vpt-seq")[0] == "60.00" and cells(text, "vpt-seq")[-1] == "1"
    assert cells(text, "vpt-pgp") == ["–"] * 4 + ["0"]
    assert (
        "vpt-seq, seed 2025: not finished (2 tasks done), not in the table." in text
        and "vpt-pgp, seed 2024: failed" in text
    )


def test_other_images_weights_limits_or_task_sizes_are_another_table():
    kinds = [
        {},
        {"manifest_digest": "other"},
        {"weights_sha256": "x"},
        {"limit": 50},
        {"validation": 0.25},
        {"task_classes": ((0, 1, 2), (3,), (4, 5))},
    ]
    found = group([record("vpt-seq", SEQ, **kind) for kind in kinds])
    assert len(found) == len(kinds) and len({benchmark.slug for benchmark in found}) == len(kinds)
    assert "trial: at most 50 training images" in found[3].name and "held out" in found[4].name


def test_rows_of_one_name_but_other_settings_stay_apart_and_say_how():
    records = [
        record("vpt-seq", SEQ),
        record("vpt-seq", SEQ, options={"batch": 16}),
        record("vpt-seq", SEQ, precision="bf16", core_version=4),
    ]
    [benchmark] = group(records)
    assert [row.title for row in benchmark.rows] == [
        "vpt-seq [batch=8, precision=fp32]",
        "vpt-seq [batch=16, precision=fp32]",
        "vpt-seq [batch=8, precision=bf16]",
    ]


def test_options_that_all_rows_share_are_named_once():
    records = [
        record("vpt-seq[passes=3]", SEQ),
        record("vpt-nsp2[passes=3,eta=1]", NSP2, options={"eta": 1.0}),
    ]
    [benchmark] = group(records)
    assert [row.title for row in benchmark.rows] == ["vpt-seq", "VPT-NSP² [eta=1]"]
    assert "All rows: passes=3." in render.markdown(build.of_benchmark(benchmark, Conventions()))


def test_a_smoke_benchmark_says_so_everywhere():
    [benchmark] = group([record("vpt-seq", SEQ, smoke=True)])
    assert "smoke benchmark" in render.markdown(
        build.of_benchmark(benchmark, Conventions())
    ) and "smoke benchmark" in latex.document([build.of_benchmark(benchmark, Conventions())])


def test_latex_special_characters_are_escaped():
    assert latex.escape("a_b & 50% {x} # $ ~ ^ \\ ²") == (
        r"a\_b \& 50\% \{x\} \# \$ \textasciitilde{} \textasciicircum{} \textbackslash{} \textsuperscript{2}"
    )


def test_the_latex_document_is_complete_and_holds_the_numbers():
    records = [
        record("vpt-seq[head_init=fresh]", SEQ),
        record("vpt-nsp2", NSP2),
        record("vpt-joint", [[90, 90, 93]], joint=True),
    ]
    text = latex.document([build.of_benchmark(found, Conventions()) for found in group(records)])
    assert (
        text.count("\\begin{") == text.count("\\end{") == 4
        and r"\toprule" in text
        and r"\midrule" in text
        and r"\bottomrule" in text
    )
    assert r"VPT-NSP\textsuperscript{2} & \textbf{70.00}" in text and r"head\_init=fresh" in text
    columns = {line.count("&") for line in text.splitlines() if line.endswith(r"\\")}
    assert columns == {5}


@pytest.mark.skipif(not has_latex(), reason="no LaTeX with booktabs and adjustbox here")
def test_latex_compiles_whatever_is_in_names_and_notes(tmp_path):
    lines = [
        Line(name, [Cell("1.00", 1.0, metric="accuracy")], labels=["[12]"])
        for name in ("[Ours] x", "*star", "α–λ ≥ ≤ ≈ − ∞ ₃ Ŝ 漢 ‡ §A", "a_b & 50% {x}")
    ]
    table = Table(
        "t", "τ of 100 % § [a]", [("", ["accuracy"])], lines, ["† ‡ § ² “x” 漢字 µ"], labels=["[x]"]
    )
    bare = Table("u", "u", [("", ["accuracy"])], lines, [], labels=["[x]"], method_column=False)
    (tmp_path / "table.tex").write_text(latex.document([table, bare]), encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "Missing character" not in done.stdout, done.stdout[-1500:]


@pytest.mark.skipif(not has_latex(), reason="no LaTeX with booktabs here")
def test_the_latex_document_compiles_as_it_is(tmp_path):
    records = [record("vpt-seq[head_init=fresh]", SEQ, limit=50), record("vpt-nsp2", NSP2, limit=50)]
    (tmp_path / "table.tex").write_text(
        latex.document([build.of_benchmark(found, Conventions()) for found in group(records)]),
        encoding="utf-8",
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search("Missing character|Overfull", done.stdout)


def test_figures_are_written_as_png_and_pdf_with_text_as_text(tmp_path):
    records = [record("vpt-nsp2", NSP2, seed) for seed in (2024, 2025)] + [
        record("vpt-nsp2[eta=1]", NSP2_B, options={"eta": 1.0}),
        record("vpt-joint", [[90, 90, 93]], joint=True),
    ]
    *paths, page = write.of_records(records, Store(tmp_path / "results"), tmp_path, Conventions()).paths
    assert page == tmp_path / "report.html"
    figures = {
        f"{name}{suffix}" for name in ("accuracy", "tradeoff", "cost") for suffix in (".png", ".pdf", ".csv")
    }
    assert {path.name for path in paths} == {"table.md", "table.tex", *figures}
    for path in paths:
        assert path.stat().st_size > 100 and path.parent == tmp_path / "toy-3-toy_vit-16px"
    assert (tmp_path / "toy-3-toy_vit-16px" / "accuracy.png").read_bytes()[:4] == b"\x89PNG"
    assert b"/Type3" not in (tmp_path / "toy-3-toy_vit-16px" / "accuracy.pdf").read_bytes()
    assert {path.name for path in (tmp_path / "toy-3-toy_vit-16px").iterdir()} == {
        path.name for path in paths
    }


def test_the_trade_off_has_a_point_per_eta_and_joins_rows_that_differ_in_nothing_else():
    records = [record(f"vpt-nsp2[eta={eta}]", NSP2, options={"eta": eta}) for eta in (1.0, 0.9, 0.95)]
    records += [
        record("vpt-nsp2[eta=0.9,batch=4]", NSP2, options={"eta": 0.9, "batch": 4}),
        record("vpt-joint", [[90, 90, 93]], joint=True),
    ]
    [benchmark] = group(records)
    start = next(row for row in benchmark.rows if row.label == "vpt-nsp2[eta=1.0]")
    rows = bars.sweep_rows(start, benchmark.rows, "eta")
    assert [row.finished[0].spec.options["eta"] for row in rows] == [0.9, 0.95, 1.0]


def test_nothing_to_report_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="no runs to report"):
        write.of_records([], Store(tmp_path), tmp_path, Conventions())
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot write the report"):
        write.of_records([record("vpt-seq", SEQ)], Store(tmp_path), tmp_path / "file", Conventions())


def certificate(changed):
    right = {"right_alone": 50, "right_in_batches": 80, "right_when_shuffled": 40}
    return Certificate(
        images=100, batch=128, changed_in_batches=changed, changed_when_shuffled=2 * changed, **right
    )


def test_rows_whose_predictions_depend_on_the_batch_carry_a_dagger_with_its_figure():
    leaky = [
        record(
            "l2p[as_published]",
            SEQ,
            seed,
            as_published=("batchwise_eval=on",),
            options={"batchwise_eval": True},
        ).model_copy(update={"certificate": certificate(changed)})
        for seed, changed in ((2024, 10), (2025, 0))
    ]
    honest = record("l2p", SEQ).model_copy(update={"certificate": certificate(0)})
    [benchmark] = group([honest, *leaky, record("vpt-seq", SEQ)])
    table = build.of_benchmark(benchmark, Conventions())
    text, as_latex = render.markdown(table), latex.document([table])
    assert [row.title for row in benchmark.rows] == ["l2p", "l2p [as published] †", "vpt-seq"]
    assert "- l2p [as published]: batchwise_eval=on.\n" in text
    # sums over the two seeds: 200 images; right 100, 160 and 80 of them
    assert "† l2p [as published]: predictions depend on the batch. Of 200 test images" in text
    right = "right: 50.0 % alone, 80.0 % in batches of 128 in stream order, 40.0 %"
    assert f"than alone: 10 in stream order, 20 shuffled; {right}" in text
    assert "Without inductive certificate (cl-bench certify makes it): vpt-seq." in text
    assert r"l2p [as published] $\dagger$ &" in as_latex


def test_records_without_certificates_still_make_a_table():
    [benchmark] = group([record("vpt-seq", SEQ)])
    assert "†" not in render.markdown(build.of_benchmark(benchmark, Conventions()))


def test_a_terminal_shows_the_same_cells_without_markup():
    from rich.console import Console

    console = Console(width=200, file=io.StringIO(), force_terminal=True)
    [benchmark] = group(
        [record("vpt-seq", SEQ), record("vpt-nsp2", NSP2), record("vpt-joint", [[90, 90, 93]], joint=True)]
    )
    terminal.show(build.of_benchmark(benchmark, Conventions()), console)
    shown = console.file.getvalue()
    assert re.search(r"\x1b\[1m *70\.00", shown) and re.search(r"\x1b\[4m *60\.00|\x1b\[4m60\.00", shown)
    assert "<u>" not in shown and "**" not in shown
    assert "sample standard deviation" in shown


def test_a_terminal_prints_brackets_as_they_are_and_markdown_no_markup_of_users():
    from rich.console import Console

    console = Console(width=200, file=io.StringIO())
    table = Table(
        "t",
        "Results [/tmp/x] [eta=1]",
        [("[a]", ["accuracy"])],
        [Line("<b>x</b> [red]", [Cell("1.00", 1.0, metric="accuracy")])],
        ["<i>"],
    )
    terminal.show(table, console)
    assert (
        "Results [/tmp/x] [eta=1]" in console.file.getvalue() and "<b>x</b> [red]" in console.file.getvalue()
    )
    text = render.markdown(table)
    assert "| &lt;b>x&lt;/b> [red] |" in text and "- &lt;i>" in text


def test_rows_that_keep_something_of_old_images_are_marked_with_what_it_is():
    [benchmark] = group(
        [record("clip-nsp2", SEQ, keeps="one Gaussian of features per class"), record("clip-seq", SEQ)]
    )
    text = render.markdown(build.of_benchmark(benchmark, Conventions()))
    assert "| clip-nsp2 § |" in text and "| clip-seq |" in text
    assert "§ clip-nsp2: keeps one Gaussian of features per class of old tasks." in text
