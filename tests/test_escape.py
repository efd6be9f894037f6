"""Text that others chose stands everywhere as it is, and does nothing there."""

import csv
import html
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made import SEQ, has_latex, record, results
from markdown_it import MarkdownIt

from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.records import export
from cl_bench.records.imported import ImportedRecord, ImportedSpec, save
from cl_bench.records.metrics import Conventions
from cl_bench.report import latex, render, write
from cl_bench.report.table import Table
from cl_bench.text import escape, markdown, output

NASTY = [
    "a|b", "a\\|b", "`code`", "[x](http://evil)", "![x](y)", "[x]: y", "[x][y]", "<b>bold</b>", "<!--",
    "&lt;", "*a* **b**", "_a_ __b__", "a_b_c", "~~a~~", "$x$", "# a", "- a", "+ a", "> a", "1. a", "1) a",
    "[ ] a", "a\nb", "a\r\n\r\n| b |", "\\", "\\*", "---", "learning_rate=0.03", "LAE* and LAE*", "=1+1",
]  # fmt: skip
words = st.one_of(
    st.text(max_size=12), st.text("|\\`*_[]()<>&!$~#+->1.) a\n", max_size=10), st.sampled_from(NASTY)
)
fast = settings(max_examples=150, deadline=None, derandomize=True)


def told(page):
    """The text of a page."""
    return html.unescape(re.sub(r"<[^>]*>", "", page)).strip(" \n")


@fast
@given(words)
@example("a_*b*_")
@example("\u00a0")
def test_markdown_shows_the_text_and_does_nothing_with_it(text):
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    shown = escape.one_line(text).strip()  # this parser drops every kind of space at the ends
    table = parser.render(f"| h | i |\n|:--|:--|\n| {escape.markdown(text)} | 1 |\n")
    cell = re.search(r"<tbody>.*?<td[^>]*>(.*?)</td>\s*<td[^>]*>1</td>", table, re.DOTALL)[1]
    assert told(cell).strip() == shown
    item = parser.render(f"- {escape.markdown(text, begins_line=True)}\n")
    assert told(item).strip() == shown and set(re.findall(r"<(\w+)", item)) <= {"ul", "li"}
    image = parser.render(f"![{escape.markdown(text, bracketed=True)}](x.png)")
    assert image.startswith('<p><img src="x.png"')


def test_ordinary_names_stand_in_markdown_as_they_are():
    for name in (
        "VPT-NSP² [b2=off, ln=off]",
        "L2P [learning_rate=0.03, layers=1]",
        "glyphs/10 (smoke benchmark)",
        "Acc. ↑",
        "Mean ± deviation (n - 1).",
    ):
        assert escape.markdown(name) == name


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\n=1", " =1", "＝1", "=cmd|' /C calc'!A0"]
)
def test_a_field_that_a_spreadsheet_would_compute_is_text(text):
    assert escape.csv_field(text).startswith("'")


@pytest.mark.parametrize("value", [-1, -0.5, 3, None, True, "seq", "a=b", "–", "vpt-nsp2[eta=-1]", ""])
def test_numbers_and_ordinary_words_stay_as_they_are_in_csv(value):
    assert escape.csv_field(value) == value and type(escape.csv_field(value)) is type(value)


@fast
@given(st.text(max_size=20))
def test_nothing_that_is_shown_moves_a_terminal_or_turns_its_text(text):
    shown = escape.visible(text)
    assert not any(
        ord(c) < 32
        and c not in "\n\t"
        or 127 <= ord(c) < 160
        or c in escape.UNSEEN
        or 0xD800 <= ord(c) < 0xE000
        for c in shown
    )
    shown.encode()
    if text.isprintable():
        assert shown == text


def test_escapes_say_which_character_was_there():
    assert (
        escape.visible("a\x1b[31mb\x07\x9b\u202e\udcff\x7f²\n")
        == "a\\x1b[31mb\\x07\\x9b\\u202e\\udcff\\x7f²\n"
    )


# --- where it goes

NAME = "=x|\x1b[2J<b>[y](http://z) _w_ 中\u202e`[bold]:x:"


@pytest.fixture
def folder(tmp_path):
    """A results folder with names that want to be more than names."""
    found = record("vpt-seq", SEQ, dataset="folder", dataset_argument=f"/data/{NAME}", display=NAME)
    store = results(tmp_path / "results", [found])
    spec = ImportedSpec(
        display="=theirs|é\x9b", benchmark=found.spec.benchmark_key(), seed="1", source="@them <i>"
    )
    save(
        ImportedRecord(spec=spec, correct=tuple(map(tuple, SEQ)), test_sizes=(100,) * 3, counted=True),
        tmp_path / "results",
    )
    return store, found


def test_every_file_of_a_report_holds_names_as_text(folder, tmp_path):
    store, found = folder
    report = write.of_records([found], store, tmp_path / "out", Conventions())
    [place] = [path for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", place.name)
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in [*place.iterdir(), tmp_path / "out" / "report.html"]
        if path.suffix not in (".png", ".pdf")
    }
    for name, text in texts.items():
        assert not set(text) & {"\x1b", "\x9b", "\u202e"}, name
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(texts["table.md"])
    assert (
        "<a" not in page
        and "<b>" not in page
        and "<em>" not in page
        and "<code>" not in page
        and page.count("<tr>") == 3
    )
    assert "<b>" not in texts["report.html"] and "&lt;b&gt;" in texts["report.html"]
    assert any("table.tex: pdflatex cannot print 中 (U+4E2D)" in line for line in report.warnings)
    with open(place / "accuracy.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["row"][:2] for line in lines} == {"'="} and all(
        float(line["accuracy_mean"]) for line in lines
    )


def test_exported_tables_hold_names_as_text_and_numbers_as_numbers(folder, tmp_path):
    _, found = folder
    found = found.model_copy(update={"spec": found.spec.model_copy(update={"label": "@label"})})
    export.write(export.run_lines([found]), tmp_path / "runs.csv", "csv")
    with open(tmp_path / "runs.csv", encoding="utf-8", newline="") as file:
        [line] = csv.DictReader(file)
    assert line["label"] == "'@label" and float(line["forgetting_chaudhry"]) == pytest.approx(0.2)


def test_the_command_line_shows_names_as_text(folder, capsys):
    for words in (
        ["status"],
        ["ls", "runs"],
        ["report", "--out", str(folder[0].root / "out")],
        ["report", "no\x1bsuch\nfile.toml"],
    ):
        with pytest.raises(SystemExit):
            main([*words, "--results", str(folder[0].root)])
        said = capsys.readouterr()
        assert said.out + said.err and not set(said.out + said.err) & {"\x1b", "\x9b", "\u202e"}
    assert said.err.count("\n") == 1


def test_a_line_of_output_keeps_its_lines(capsys):
    output.say("a\nb\x1b")
    assert capsys.readouterr().out == "a\nb\\x1b\n"


def test_a_listing_keeps_each_entry_in_its_line(tmp_path, capsys):
    results(
        tmp_path / "results",
        [
            record(
                "vpt-seq",
                SEQ,
                dataset="folder",
                dataset_argument="/data/x\ndone     0123456789abcdef",
                display="x",
            )
        ],
    )
    for words in (["status"], ["ls", "runs"]):
        with pytest.raises(SystemExit):
            main([*words, "--results", str(tmp_path / "results")])
        assert sum(line.startswith("done ") for line in capsys.readouterr().out.splitlines()) <= 1


def test_a_folder_whose_name_is_no_text_is_refused_before_anything_is_trained(tmp_path, toy_request):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    os.symlink(toy_request["dataset"].partition(":")[2], folder)
    with pytest.raises(InputError, match=r"\\udcff: the name is not in UTF-8; rename it"):
        make_plan(Request(**{**toy_request, "dataset": f"folder:{folder}", "methods": "seq"}))


# --- LaTeX

PRINTED = {
    "é": r"\'{e}", "ï": r"\"{\i}", "Å": r"\r{A}", "ç": r"\c{c}", "ş": r"\c{s}", "ő": r"\H{o}", "ž": r"\v{z}",
    "ị": r"\d{i}", "ø": r"\o{}", "ß": r"\ss{}", "e\u0301": r"\'{e}", "x\u0304": r"\={x}", "ﬀ": None,
    "x\u0361": None, "Ж\u0301": None, "\u0301": None, "«»": r"$\ll$$\gg$", "½": r"$\frac{1}{2}$",
    "ⁿ": r"\textsuperscript{n}", "⁻¹": r"\textsuperscript{-}\textsuperscript{1}", "ₙ": "$_n$",
    "₁₂": "$_1$$_2$", "a\u00a0b": "a~b", "a\u2009b": "a b", "--set": "-{}-set", "!`": "!{}`", "η": r"$\eta$",
    "≠": r"$\neq$", "Ж": None, "中": None, "🙂": None, "ą": None, "€": None, "ế": None, "👩\u200d💻": None,
    "\u200b": "", "a\nb": "a b", "|": r"\textbar{}",
}  # fmt: skip


@pytest.mark.parametrize("text", PRINTED)
def test_latex_prints_a_character_by_its_standard_command_or_it_is_named(text):
    warning = latex.warning(Table("t", text, [], []), "t.tex")
    if PRINTED[text] is None:
        [line] = warning
        assert "t.tex: pdflatex cannot print" in line and f"U+{ord(text[0]):04X}" in line
        assert latex.escape(text).isascii() and latex.escape(text)
    else:
        assert warning == [] and latex.escape(text) == PRINTED[text]


@fast
@given(
    st.one_of(
        st.text(max_size=12),
        st.text("\\{}$%#&_^~<>|\"'`-", max_size=12),
        st.text("aiöЖ₁ⁿ\u0301\u0304\u0361\u20d7", max_size=6),
    )
)
def test_any_text_is_ascii_in_latex_with_balanced_braces_and_nothing_special_left(text):
    found = latex.escape(text)
    assert found.isascii() and "\n" not in found and found.isprintable()
    bare = re.sub(
        r"\\[a-zA-Z]+|\\[^a-zA-Z]|"
        r"\$(\\[a-zA-Z]+|\^\\circ|_\w|_\{[^}$]*\}|[-<>]|\\frac\{\d\}\{\d\}|\\mathbb\{[RNZ]\})\$",
        "",
        found,
    )
    assert not set(bare) & set("$%#&_^\\") and bare.count("{") == bare.count("}")


@pytest.mark.skipif(not has_latex(), reason="no LaTeX with booktabs and adjustbox here")
def test_every_character_that_is_not_named_compiles(tmp_path):
    everything = "".join(
        chr(code)
        for code in (
            *range(0xA0, 0x250),
            *range(0x370, 0x400),
            *range(0x1E00, 0x1F00),
            *range(0x2000, 0x2300),
        )
    )
    (tmp_path / "t.tex").write_text(
        latex.document([Table("t", everything, [("", ["accuracy"])], [])]), encoding="utf-8"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_json_file_is_not_touched_by_any_of_this(folder):
    [path] = (folder[0].root / "imported").glob("*.json")
    assert json.loads(path.read_text(encoding="utf-8"))["spec"]["display"] == "=theirs|é\x9b"
    assert render.markdown(Table("t", "a|b", [("", ["accuracy"])], [])).startswith("**a\\|b**")


def test_commands_print_through_the_one_function_that_shows_text_as_text():
    folder = Path(output.__file__).parent
    assert [
        path.name for path in folder.rglob("*.py") if "typer.echo" in path.read_text(encoding="utf-8")
    ] == ["output.py"]


def test_a_written_table_is_read_as_one_with_words_to_the_left_and_numbers_to_the_right():
    lines = markdown.table(["Row", "On", "p"], [["a", "b", "1"], [escape.markdown("x|y"), "", "2"]], words=2)
    page = MarkdownIt("commonmark").enable("table").render("\n".join(lines))
    cells = re.findall(r"<t[hd] style=\"text-align:(\w+)\">(.*?)</t[hd]>", page)
    assert [text for _, text in cells] == ["Row", "On", "p", "a", "b", "1", "x|y", "", "2"]
    assert [side for side, _ in cells] == ["left", "left", "right"] * 3
