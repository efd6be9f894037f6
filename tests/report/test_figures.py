"""Figures: the numbers written beside them, worked out by hand, and files that journals take."""

import csv
import io
import multiprocessing
import os
import re
import signal
import threading
import zlib
from pathlib import Path

import matplotlib
import pytest
from fontTools.ttLib import TTFont
from made import BETTER, SEQ, TOY_VIT, diagnosed_record, record

from cl_bench.errors import InputError, RunFailed
from cl_bench.records.metrics import Conventions
from cl_bench.report.figures import bars, choose, curves, files, style, workers
from cl_bench.report.figures.pareto import pareto
from cl_bench.report.grouping import group
from cl_bench.report.rows import Panel


def panel(records, rows=None):
    [benchmark] = group(records)
    return Panel(
        "p", [(row.title, row) for row in benchmark.rows if rows is None or row.title in rows], benchmark.rows
    )


@pytest.fixture
def diagnosed():
    """Two seeds whose first blocks change by 0.1 and 0.3, and whose second by 0.3 and 0.5, in every task."""
    return [
        diagnosed_record(seed, {"affinity_change": [value, value + 0.2]})
        for seed, value in ((1, 0.1), (2, 0.3))
    ]


def test_accuracy_after_each_task_is_mean_and_spread_over_seeds():
    drawn = curves.accuracy([panel([record("vpt-seq", SEQ, 1), record("vpt-seq", BETTER, 2)])], Conventions())
    assert drawn.numbers[0] == ("panel", "row", "task", "accuracy_mean", "accuracy_std", "n")
    assert drawn.numbers[1] == ("p", "vpt-seq", 1, 80.0, 0.0, 2)
    assert drawn.numbers[3][3:] == (pytest.approx(65), pytest.approx(50**0.5), 2)  # 60 and 70


@pytest.mark.parametrize("kind", [curves.accuracy, curves.losses, curves.cost])
def test_a_row_has_one_colour_in_all_panels_also_where_others_are_missing(kind):
    followed = [
        record(name, SEQ, losses=[[0.1], [0.2, 0.3], [0.4, 0.5]])
        for name in ("vpt-seq", "vpt-pgp", "vpt-nsp2")
    ]
    drawn = kind([panel(followed), panel([followed[0], followed[2]])], Conventions())
    colours = {}
    for axis in drawn.figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            line = handle if hasattr(handle, "get_color") else handle.lines[0]
            colours.setdefault(label, set()).add(line.get_color())
    assert len(colours) >= 3 and all(len(own) == 1 for own in colours.values())
    assert len({next(iter(own)) for own in colours.values()}) == 3


def test_losses_are_drawn_only_from_runs_that_followed_them():
    followed = record("vpt-seq", SEQ, losses=[[0.1], [0.2, 0.3], [0.4, 0.5]])
    drawn = curves.losses([panel([followed, record("vpt-nsp2", SEQ)])], Conventions())
    assert [line[1:5] for line in drawn.numbers[1:]] == [
        ("vpt-seq", 1, 1, 0.1), ("vpt-seq", 1, 2, 0.2), ("vpt-seq", 1, 3, 0.4), ("vpt-seq", 2, 2, 0.3),
        ("vpt-seq", 2, 3, 0.5),
    ]  # fmt: skip
    assert curves.losses([panel([record("vpt-seq", SEQ)])], Conventions()) is None


def test_a_diagnosis_is_drawn_from_the_second_task_on_of_runs_that_have_it(diagnosed):
    drawn = curves.diagnosis([panel([*diagnosed, record("vpt-nsp2", SEQ)])], Conventions(), "affinity_change")
    assert drawn.numbers[0] == ("panel", "row", "task", "affinity_change_mean", "affinity_change_std", "n")
    assert drawn.numbers[1] == (
        "p",
        "vpt-seq",
        2,
        pytest.approx(0.3),
        pytest.approx(0.02**0.5),
        2,
    )  # 0.2, 0.4
    assert [line[:3] for line in drawn.numbers[2:]] == [("p", "vpt-seq", 3)]
    assert curves.diagnosis([panel(diagnosed)], Conventions(), "feature_cosine") is None
    assert curves.diagnosis([panel([record("vpt-seq", SEQ)])], Conventions(), "affinity_change") is None


def test_the_pareto_front_holds_what_no_other_beats_in_both():
    # (accuracy, forgetting): the third is beaten by the second, the last equals the first
    assert pareto([(90, 5), (88, 3), (87, 4), (91, 9), (90, 5)]) == {0, 1, 3, 4}
    assert pareto([(90, 5), (90, 4)]) == {1} and pareto([]) == set()


def test_the_trade_off_shows_every_value_of_the_option_and_what_differs_in_nothing_else():
    records = [record("vpt-nsp2", SEQ), record("vpt-nsp2[eta=1.0]", BETTER, options={"eta": 1.0})]
    records += [
        record("vpt-nsp2[eta=0.9,batch=4]", BETTER, options={"eta": 0.9, "batch": 4}),
        record("vpt-seq", SEQ, options={"eta": 0.5}),
    ]
    drawn = bars.tradeoff([panel(records, ["VPT-NSP²"])], Conventions())
    assert [line[2:4] + line[5:6] + line[-1:] for line in drawn.numbers[1:]] == [
        (0.97, pytest.approx(60), pytest.approx(20), False),
        (1.0, pytest.approx(70), pytest.approx(-5), True),
    ]
    assert bars.tradeoff([panel([record("vpt-nsp2", SEQ)])], Conventions()) is None


def test_a_trade_off_joins_neither_versions_nor_class_orders_and_needs_numbers():
    records = [
        record("vpt-nsp2", SEQ),
        record("vpt-nsp2[eta=1.0]", BETTER, options={"eta": 1.0}, method_version=2),
    ]
    records += [record("vpt-nsp2[eta=0.9]", BETTER, options={"eta": 0.9}, order="natural")]
    assert bars.tradeoff([panel(records, ["VPT-NSP²"])], Conventions()) is None
    words = [
        record("vpt-nsp2[subspace=iso]", SEQ, options={"subspace": "iso"}),
        record("vpt-nsp2", SEQ, options={"subspace": "nsp"}),
    ]
    with pytest.raises(InputError, match=r"subspace of VPT-NSP².* is not a number \(nsp, iso\)"):
        bars.tradeoff([panel(words)], Conventions(), "subspace")


def test_what_users_name_is_no_formula_and_a_dot_in_a_name_stays(tmp_path):
    shown = panel([record("vpt-seq[a $x$ b $ c_$]", SEQ)])
    shown = Panel("p $ $x_", [(f"{name} $ $", row) for name, row in shown.rows], shown.others)
    paths = [
        files.files("accuracy", "eta", [shown], Conventions(), tmp_path / name)
        for name in ("acc.v1", "acc.v2")
    ]
    assert {path.name for found in paths for path in found} == {
        f"acc.v{n}.{suffix}" for n in (1, 2) for suffix in ("png", "pdf", "csv")
    }


def test_pre_training_bars_need_both_rows_on_a_backbone():
    one = panel([record("vpt-seq", SEQ), record("vpt-nsp2", BETTER)])
    other = panel(
        [record("vpt-seq", SEQ, backbone=TOY_VIT.model_copy(update={"name": "b"}), weights_sha256="w2")]
    )
    drawn = bars.pretraining([one, other], Conventions())
    assert [line[1:4] for line in drawn.numbers[1:]] == [
        ("vpt-seq", "accuracy", pytest.approx(60)), ("VPT-NSP²", "accuracy", pytest.approx(70)),
        ("vpt-seq", "forgetting", pytest.approx(20)), ("VPT-NSP²", "forgetting", pytest.approx(-5)),
    ]  # fmt: skip
    assert bars.pretraining([other], Conventions()) is None


def test_the_heat_map_says_how_far_each_task_is_below_its_best():
    found = record("vpt-nsp2", BETTER)
    assert bars.fallen(found) == [[0], [0, 0], [pytest.approx(5), 0, 0]]  # 80, 80, 75; 60, 75; 60
    drawn = bars.matrix(
        [panel([found, record("vpt-seq", SEQ), record("vpt-joint", [[90, 90, 93]], joint=True)])],
        Conventions(),
    )
    assert len(drawn.numbers) == 1 + 2 * 6 and drawn.numbers[4] == (
        "p",
        "VPT-NSP²",
        "2024",
        3,
        1,
        75.0,
        pytest.approx(5),
    )


def test_cost_is_the_time_of_all_tasks_with_the_machines_it_was_measured_on():
    drawn = curves.cost(
        [panel([record("vpt-seq", SEQ, 1, seconds=2.0), record("vpt-seq", SEQ, 2, seconds=4.0)])],
        Conventions(),
    )
    assert drawn.numbers[1] == (
        "p",
        "vpt-seq",
        9.0,
        pytest.approx(18**0.5),
        pytest.approx(60),
        0.0,
        2,
        "P",
        True,
    )  # 6 and 12 seconds


def test_every_kind_is_written_as_picture_vector_file_and_numbers(tmp_path):
    etas = [
        record(f"vpt-nsp2[eta={eta}]", BETTER, options={"eta": eta}, losses=[[0.1], [0.2, 0.3], [0.4, 0.5]])
        for eta in (0.5, 0.9)
    ]
    losses = [[0.1], [0.2, 0.3], [0.4, 0.5]]
    both = [panel([diagnosed_record(1, {"affinity_change": [0.1]}, losses=losses), *etas])]
    for name in files.KINDS:
        shown = [Panel("p", both[0].rows[:2], both[0].others)]
        along = {"cost": "stored", "diagnosis": "affinity_change"}.get(name, "eta")
        png, pdf, numbers = files.files(name, along, shown, Conventions(), tmp_path / name)
        assert png.read_bytes()[:4] == b"\x89PNG" and pdf.read_bytes()[:5] == b"%PDF-"
        assert b"/Type3" not in pdf.read_bytes() and b"/Type0" in pdf.read_bytes()  # text as text
        with open(numbers, encoding="utf-8") as file:
            lines = list(csv.reader(file))
        assert len(lines) > 1 and len({len(line) for line in lines}) == 1
    assert matplotlib.rcParams["font.size"] == 10  # the style is the figures' own


def test_a_pdf_embeds_its_font_without_the_tables_that_lay_out_text(tmp_path):
    _, pdf, _ = files.files(
        "accuracy", "eta", [panel([record("vpt-seq", SEQ)])], Conventions(), tmp_path / "a"
    )
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf.read_bytes(), re.DOTALL)
    contents = [zlib.decompress(stream) for stream in streams if stream[:1] == b"x"]
    fonts = [TTFont(io.BytesIO(content)) for content in contents if content[:4] == b"\0\1\0\0"]
    assert fonts and all("glyf" in font and not {"GDEF", "GPOS", "GSUB"} & {*font.keys()} for font in fonts)


def test_a_figure_without_chosen_rows_shows_the_most_accurate_and_says_so(tmp_path, monkeypatch):
    records = [
        record(f"vpt-seq[batch={b}]", [[50 + b], [50 + b] * 2, [50 + b] * 3], options={"batch": b})
        for b in range(20)
    ]
    [benchmark] = group(records)
    written = [Path(f"{name}.{suffix}") for name in ("accuracy", "cost") for suffix in ("png", "pdf", "csv")]
    for folder in (tmp_path / "earlier", tmp_path):  # the drawing process keeps the folder it was started in
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        assert [
            path for wait in choose.of_benchmark(benchmark, Conventions(), Path(".")) for path in wait()
        ] == written
    with open(tmp_path / "accuracy.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len({line["row"] for line in lines}) == 12 and {line["panel"] for line in lines} == {
        "toy/3: the 12 most accurate of 20"
    }
    assert min(float(line["accuracy_mean"]) for line in lines) == pytest.approx(58)


def test_a_figure_grows_with_its_legend_and_every_curve_stays_in_sight(recwarn):
    names = [f"VPT-NSP² [b2=off, ln=off, eta=0.{k}]" for k in range(12)]
    rows = panel([record(f"vpt-seq[batch={k}]", SEQ, options={"batch": k}) for k in range(12)]).rows
    title = "glyphs/10 (smoke benchmark): the 12 most accurate of 17"
    with matplotlib.rc_context(style.STYLE):
        drawn = curves.accuracy(
            [Panel(title, [(name, row) for name, (_, row) in zip(names, rows, strict=True)])], Conventions()
        )
        drawn.figure.draw_without_rendering()
    axis, [legend] = drawn.figure.axes[0], drawn.figure.legends
    assert axis.title.get_window_extent().x1 < drawn.figure.bbox.x1
    box = axis.get_window_extent()
    assert box.height > 100 and legend.get_window_extent().y1 < axis.get_tightbbox().y0 + 1
    assert not [warning for warning in recwarn if "constrained_layout" in str(warning.message)]


@pytest.mark.slow
def test_a_figure_is_of_what_its_rows_hold_when_it_is_begun():
    """Rows remember values while tables are made, in the thread that begins figures and goes on."""
    threads = []

    class Row:
        def __reduce__(self):
            threads.append(threading.current_thread())
            return str, ("a row",)

    begun = workers.submit("no kind", "eta", [Row()])
    assert threads == [threading.current_thread()]
    with pytest.raises(TypeError):  # not all that a figure needs
        workers.result(begun)


@pytest.mark.slow
def test_a_drawing_process_that_was_ended_from_outside_is_said_and_another_draws_the_next_figure():
    assert workers.result(workers.submit()) == []
    drawing = multiprocessing.active_children()
    for process in drawing:
        os.kill(process.pid, signal.SIGSTOP)  # so that it is not done before it is ended
    begun = workers.submit()
    for process in drawing:
        process.kill()
    with pytest.raises(RunFailed, match="ended early"):
        workers.result(begun)
    assert workers.result(workers.submit()) == []


def test_characters_that_the_font_lacks_are_named_in_one_line_and_a_name_with_a_low_line_stays_in_the_legend(
    tmp_path, capsys, recwarn
):
    named = panel(
        [record("vpt-seq", SEQ, display="_base"), record("vpt-nsp2", BETTER, display="中文 $x$\x1b")]
    )
    drawn = curves.accuracy([named], Conventions())
    assert [label.strip() for label in drawn.figure.axes[0].get_legend_handles_labels()[1]] == [
        "_base",
        r"中文 \$x\$\x1b",
    ]
    assert len(files.files("accuracy", "eta", [named], Conventions(), tmp_path / "a")) == 3
    assert (
        capsys.readouterr().err
        == "warning: a: the font of figures lacks 中 (U+4E2D), 文 (U+6587); give other titles\n"
        and not recwarn
    )


def test_values_of_eta_that_are_no_numbers_have_no_trade_off_and_stop_no_other_figure(tmp_path):
    records = [record(f"vpt-nsp2[eta={word}]", SEQ, options={"eta": word}) for word in ("low", "high")]
    [benchmark] = group(records)
    begun = choose.of_benchmark(benchmark, Conventions(), tmp_path)
    assert sorted(path.stem for wait in begun for path in wait()) == ["accuracy"] * 3 + ["cost"] * 3


def test_many_curves_are_small_multiples_of_one_range_with_bounds_in_each():
    records = [record(f"vpt-seq[batch={b}]", SEQ, options={"batch": b}) for b in range(1, 18)]
    records.append(record("vpt-joint", [[90, 90, 93]], joint=True))
    [benchmark] = group(records)
    panel = Panel("toy/3", [(row.label, row) for row in benchmark.rows])
    drawn = curves.accuracy([panel], Conventions())
    axes = [axis for axis in drawn.figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in axes] == [f"toy/3, {part} of 3" for part in (1, 2, 3)]
    labels = [[line.get_label() for line in axis.get_lines()] for axis in axes]
    assert [len(found) for found in labels] == [6, 7, 7] and all("vpt-joint" in found for found in labels)
    assert labels[0][0] == "vpt-seq[batch=1]" and labels[0][1] == "vpt-seq[batch=2]"  # not 10
    assert len({axis.get_ylim() for axis in axes}) == 1
    low = axes[0].get_ylim()[0]
    assert f"(axis begins at {low:.0f})" in axes[0].get_ylabel()
    assert {line[0] for line in drawn.numbers[1:]} == {"toy/3"}
