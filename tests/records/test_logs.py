"""Logs of other suites give the matrix they were made of, or what they know, or one line with the reason."""

import json

import pytest
import suite_logs as logs_of
from commands import command
from hypothesis import given, settings
from hypothesis import strategies as st
from made import BETTER, SEQ, record, results
from matrices import matrix_spec

from cl_bench.errors import InputError
from cl_bench.records import imported, logs, suites
from cl_bench.records.metrics import Conventions, accuracy_matrix, final_accuracy, forgetting
from cl_bench.report import write

ROWS, SIZES = [[812], [700, 333], [601, 250, 499]], (1000, 500, 500)
NAMES = ("pilot", "mammoth", "nsp2", "coda", "avalanche")


def read(tmp_path, suite, text, name="log.txt", sizes=None, **changes):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    spec = matrix_spec(**{"seed": logs.UNNAMED, **changes})
    called, tasks, classes = imported.checked_benchmark(spec.benchmark)
    return logs.read(
        suites.read(suite, path), spec.model_copy(update={"benchmark": called}), tasks, classes, sizes
    )


def only(found):
    assert len(found.records) == 1
    return found.records[0]


def matrix(found):
    return accuracy_matrix(found.correct, found.test_sizes)


WRITERS = {
    "pilot": (logs_of.pilot, 5e-5, "1993", True),
    "pilot with numpy 2": (lambda *made: logs_of.pilot(*made, numpy=True), 5e-5, "1993", True),
    "mammoth file": (logs_of.mammoth_file, 1e-6, "0", False),
    "mammoth print": (logs_of.mammoth_print, 1e-6, "0", False),
    "nsp2": (logs_of.nsp2, 5e-5, logs.UNNAMED, True),
    "coda": (lambda rows, sizes: logs_of.coda([rows], sizes), 1e-6, "0", False),
    "avalanche": (logs_of.avalanche, 5e-5, logs.UNNAMED, False),
    "avalanche seen": (lambda *made: logs_of.avalanche(*made, whole=False), 5e-5, logs.UNNAMED, True),
    "avalanche csv": (logs_of.avalanche_csv, 5e-5, logs.UNNAMED, False),
}


@st.composite
def triangles(draw):
    sizes = draw(st.lists(st.integers(20, 5000), min_size=2, max_size=6))
    rows = [[draw(st.integers(size // 10, size)) for size in sizes[: t + 1]] for t in range(len(sizes))]
    return rows, tuple(sizes)


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(made=triangles())
def test_the_matrix_that_a_suite_logged_is_the_matrix_that_is_read(tmp_path_factory, kind, made):
    (rows, sizes), (writer, tolerance, seed, averaged) = made, WRITERS[kind]
    suite, folder = kind.split()[0], tmp_path_factory.mktemp("log")
    benchmark = f"glyphs/{len(sizes)}"
    found = only(read(folder, suite, writer(rows, sizes), benchmark=benchmark))
    for theirs, ours in zip(matrix(found), accuracy_matrix(rows, sizes), strict=True):
        assert theirs == pytest.approx(ours, abs=tolerance + 1e-6)
    assert found.spec.seed == seed and not found.counted
    assert found.measure("forgetting", Conventions()) == pytest.approx(
        forgetting(rows, sizes), abs=3 * tolerance
    )
    known = found.measure("accuracy", Conventions("sample"))
    assert (known is not None) == averaged
    if averaged:
        assert known == pytest.approx(final_accuracy(rows, sizes, "sample"), abs=tolerance + 1e-6)
    counts = only(read(folder, suite, writer(rows, sizes), benchmark=benchmark, sizes=sizes))
    assert counts.correct == tuple(map(tuple, rows)) and counts.counted


CURVES = {
    "pilot": (lambda *made: logs_of.pilot(*made, groups=False), "sample"),
    "mammoth file": (lambda *made: logs_of.mammoth_file(*made, matrix=False), "task_mean"),
    "mammoth print": (lambda *made: logs_of.mammoth_print(*made, raw=False), "task_mean"),
    "coda": (lambda rows, sizes: logs_of.coda([rows], sizes, averages=True), "task_mean"),
}


@pytest.mark.parametrize("kind", CURVES)
def test_averages_alone_give_what_they_say_and_nothing_else(tmp_path, kind):
    writer, convention = CURVES[kind]
    read_log = read(tmp_path, kind.split()[0], writer(ROWS, SIZES))
    found, other = only(read_log), {"sample": "task_mean", "task_mean": "sample"}[convention]
    assert found.correct == () and found.test_sizes == () and "only averages over" in read_log.told[0]
    whole = final_accuracy(ROWS, SIZES, convention)
    assert found.measure("accuracy", Conventions(convention)) == pytest.approx(whole, abs=6e-5)
    assert found.measure("incremental", Conventions(convention)) is not None
    assert found.measure("accuracy", Conventions(other)) is None
    assert found.measure("forgetting", Conventions()) is found.measure("transfer", Conventions()) is None
    equal = only(read(tmp_path, kind.split()[0], writer(ROWS, SIZES), sizes=(100, 100, 100)))
    assert equal.measure("accuracy", Conventions(other)) == equal.measure("accuracy", Conventions(convention))


def unmarked(report):
    """A report's text without marks of the best and second numbers."""
    return report.text.replace("*", "").replace("<u>", "").replace("</u>", "")


def test_a_curve_stands_in_a_table_with_blanks_and_its_convention_is_said(tmp_path):
    mean = only(read(tmp_path, "coda", logs_of.coda([ROWS], SIZES, averages=True), display="Mean"))
    image = only(read(tmp_path, "pilot", logs_of.pilot(ROWS, SIZES, groups=False), display="Images"))
    store = results(tmp_path / "r", [record("vpt-nsp2", BETTER, dataset="glyphs")])
    logs.save([mean, image], store.root)
    text = write.of_folder(store, tmp_path / "out", Conventions()).text
    lines = {line.split("|")[1].strip(): line.split("|")[2:] for line in text.splitlines() if "|" in line}
    cells = {name: [cell.strip(" *</u>") for cell in line] for name, line in lines.items()}
    expected = f"{100 * final_accuracy(ROWS, SIZES):.2f}"
    assert cells["Mean ‡"][:4] == [expected, "–", cells["Mean ‡"][2], "–"] and cells["Mean ‡"][2] != "–"
    assert cells["Images ‡"][:4] == ["–"] * 4
    assert "log of CODA-Prompt: only averages over tasks, nothing of single" in text
    assert "a single seed." in text and "log of PILOT or PyCIL" in text
    sample = write.of_folder(store, tmp_path / "out2", Conventions("sample"))
    assert f"| Images ‡ | {100 * final_accuracy(ROWS, SIZES, 'sample'):.2f}" in unmarked(sample)
    assert sample.warnings == ["left out: Mean was imported without test sizes"]
    layout = tmp_path / "l.toml"
    layout.write_text(
        'title = "T"\n[[figure]]\nname = "f"\nkind = "matrix"\ncolumns = ["glyphs/3"]\n'
        'rows = ["nsp2", { imported = "Mean" }]\n[[table]]\nname = "t"\ntitle = "t"\ncolumns = ["glyphs/3"]\n'
        'metrics = ["accuracy", "forgetting", "incremental"]\nrows = ["nsp2", { imported = "Mean" }]\n',
        encoding="utf-8",
    )
    report = write.of_layout(layout, store, tmp_path / "o3", None, None)
    assert f"| Mean ‡ | {expected} | – |" in unmarked(report)


def test_several_seeds_are_several_records_and_stopped_runs_are_left_out(tmp_path):
    stopped = logs_of.pilot(ROWS[:2], SIZES, seed=1993)
    whole = [logs_of.pilot(rows, SIZES, seed=seed) for seed, rows in ((1993, ROWS), (7, SEQ))]
    found = read(tmp_path, "pilot", stopped + "".join(whole))
    assert [made.spec.seed for made in found.records] == ["1993", "7"]
    assert "seeds 1993, 7" in found.told[0] and "rounded to 2 digits" in found.told[0]
    [left] = [line for line in found.told if line.startswith("left out")]
    assert left.startswith("left out: seed 1993, 2 of 3 tasks are complete (line ")
    assert [made.spec.seed for made in read(tmp_path, "pilot", "".join(whole), seed="7").records] == ["7"]
    with pytest.raises(InputError, match=r"--seed 8: .* is of seeds 1993, 7"):
        read(tmp_path, "pilot", "".join(whole), seed="8")
    repeats = [ROWS, [[500], [400, 300], [300, 200, 100]]]
    assert [made.spec.seed for made in read(tmp_path, "coda", logs_of.coda(repeats, SIZES)).records] == [
        "0",
        "1",
    ]
    both = logs_of.nsp2(ROWS, SIZES) + logs_of.nsp2(repeats[1], SIZES)
    assert [made.spec.seed for made in read(tmp_path, "nsp2", both).records] == ["run 1", "run 2"]
    runs = [logs_of.mammoth_file(rows, SIZES, seed) for seed, rows in enumerate(repeats)]
    assert len(read(tmp_path, "mammoth", "".join(runs)).records) == 2
    printed = logs_of.avalanche(ROWS, SIZES) + logs_of.avalanche(repeats[1], SIZES)
    assert len(read(tmp_path, "avalanche", printed).records) == 2
    csv = logs_of.avalanche_csv(ROWS[:2], SIZES) + logs_of.avalanche_csv(ROWS, SIZES).split("\n", 1)[1]
    assert len(read(tmp_path, "avalanche", csv).records) == 1


def test_one_seed_twice_is_one_record_and_refused_with_other_numbers(tmp_path):
    one, other = logs_of.pilot(ROWS, SIZES), logs_of.pilot([*ROWS[:2], [602, 250, 499]], SIZES)
    assert len(read(tmp_path, "pilot", one + one).records) == 1
    with pytest.raises(InputError, match=r"line \d+: another complete run of seed 1993 begins here"):
        read(tmp_path, "pilot", one + other)


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(part=st.floats(0, 1))
def test_a_log_cut_anywhere_gives_all_or_nothing(tmp_path_factory, kind, part):
    text = WRITERS[kind][0](ROWS, SIZES)
    cut, folder = text[: int(part * len(text))], tmp_path_factory.mktemp("log")
    whole = only(read(folder, kind.split()[0], text))
    try:
        found = read(folder, kind.split()[0], cut)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert only(found).correct == whole.correct


def test_two_runs_of_which_the_second_is_cut_give_the_first_and_say_so(tmp_path):
    pairs = {
        "pilot": [logs_of.pilot(ROWS, SIZES, seed) for seed in (1, 2)],
        "nsp2": [logs_of.nsp2(ROWS, SIZES)] * 2,
        "mammoth": [logs_of.mammoth_file(ROWS, SIZES, seed) for seed in (1, 2)],
        "avalanche": [logs_of.avalanche(ROWS, SIZES)] * 2,
    }
    for suite, (first, second) in pairs.items():
        found = read(tmp_path, suite, first + second[: int(0.6 * len(second))])
        assert len(found.records) == 1 and found.told[-1].startswith("left out: "), suite


TEXTS = {
    "pilot": logs_of.pilot(ROWS, SIZES),
    "mammoth": logs_of.mammoth_print(ROWS, SIZES),
    "nsp2": logs_of.nsp2(ROWS, SIZES),
    "coda": logs_of.coda([ROWS], SIZES),
    "avalanche": logs_of.avalanche(ROWS, SIZES),
}
FILE, CSV = logs_of.mammoth_file(ROWS, SIZES), logs_of.avalanche_csv(ROWS, SIZES)
PLAIN = "Accuracy for {} task(s): [{}-IL]: 86.5 %\nx\n"


@pytest.mark.parametrize(
    ("suite", "text", "said"),
    [
        ("pilot", "nothing\n", r"has no results of PILOT or PyCIL; expected such as CNN: \{'total'"),
        ("pilot", TEXTS["nsp2"], "it looks like a log for --from nsp2"),
        ("nsp2", TEXTS["mammoth"], "it looks like a log for --from mammoth"),
        (
            "pilot",
            logs_of.pilot(ROWS[:2], SIZES),
            "no complete run of glyphs/3: .* 2 of 3 tasks are complete",
        ),
        ("pilot", logs_of.pilot([*ROWS, [1, 2, 3, 4]], (*SIZES, 10)), r"line \d+: 4 tasks, glyphs/3 has 3"),
        ("pilot", logs_of.pilot(ROWS, SIZES, classes=[50, 10, 10]), "50-10-10 classes, .*glyphs/50-10-10"),
        ("mammoth", PLAIN.format(1, "Domain"), "line 1: no Class-IL accuracy"),
        ("mammoth", PLAIN.format(2, "Class"), "line 1: the accuracy for 2 tasks follows that for 0"),
        ("coda", "history:\n- 1.0\nmean: 1\n", "expected tasks x tasks x repeats"),
        ("coda", TEXTS["coda"].partition("mean:")[0], "was the file cut short"),
        ("avalanche", logs_of.avalanche(ROWS, SIZES, labels=True), "the task was known at test time"),
        ("avalanche", "eval_exp,training_exp,acc\n0,0,1\n", "line 1: expected the columns"),
        ("avalanche", logs_of.avalanche_csv([[0], [0, 0], [0, 0, 0]], SIZES), "it was not monitored"),
    ],
)
def test_a_log_that_cannot_be_used_is_one_line_with_the_reason(tmp_path, suite, text, said):
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, suite, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (TEXTS["pilot"], "'total': 68.87", "'total': 88.87", "line 15: the curve ends with 68.87, 'total'"),
        (TEXTS["pilot"], "81.2", "8100.2", "line 7: 8100.2 is not between 0 and 100"),
        (TEXTS["pilot"], "'new': 81.2}", "'new': 81.2", "line 6: no closing bracket"),
        (TEXTS["pilot"], "'00-09': 81.2", "'00-09': nan", "line 6: 'nan' is not a number"),
        (TEXTS["pilot"], "'10-19'", "'11-20'", "line 14: groups of classes with gaps"),
        (TEXTS["pilot"], "curve: [81.2, 68.87]", "curve: [68.87, 68.87, 1.0]", "a curve of 3 accuracies"),
        (TEXTS["mammoth"], "[Class-IL]: 68", "[Class-IL]: 1", "line 9: the average 1.3 cannot be that of 2"),
        (TEXTS["mammoth"], "Class-IL [81.2]", "Class-IL [81.2, 1.0]", "line 4: 2 raw accuracies for 1 tasks"),
        (TEXTS["mammoth"], "Class-IL [81.2]", "Class-IL 81.2", "line 4: expected such as Raw accuracy"),
        (FILE, "accuracy_2_task2", "other", "line 1: 1 accuracies after task 2, expected 2"),
        (TEXTS["nsp2"], "Eval [2/3]", "Eval [3/3]", r"expected Task \[3/3\]:: Eval \[2/3\]"),
        (TEXTS["nsp2"], "last_acc=68.87%", "last_acc=98.87%", "98.87 cannot be that of 2 tasks"),
        (TEXTS["nsp2"], "Results of task [2]", "Results of task [3]", "results of task 3: 2 evaluations"),
        (TEXTS["avalanche"], "training on experience 1", "training on experience 2", "2 follows 0; expected"),
        (TEXTS["avalanche"], "= 0.8120", "= 81.20", "81.2 is not between 0 and 1; expected fractions"),
        (CSV, "0,1,0.7000", "9,1,0.7000", "line 8: no accuracy of experience 0 after"),
        (CSV, "0,1,0.7000,", "0,1,", "line 6: '0,1,1.2345,0.0123'; expected eval_exp,"),
        (CSV, "0,1,0.7000", "0,x,0.7000", "line 6: training_exp 'x' is not a number"),
    ],
)
def test_a_line_that_no_suite_writes_is_named(tmp_path, text, old, new, said):
    made = {**TEXTS, "mammoth ": FILE, "avalanche ": CSV}
    suite = next(name for name, found in made.items() if found == text).strip()
    assert old in text and len(read(tmp_path, suite, text).records) == 1
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, suite, text.replace(old, new))
    assert "\n" not in str(caught.value)


def test_a_transposed_history_and_results_with_the_task_known_are_refused(tmp_path):
    import yaml

    found = yaml.safe_load(logs_of.coda([ROWS], SIZES))
    turned = {key: [list(line) for line in zip(*values, strict=True)] for key, values in found.items()}
    with pytest.raises(InputError, match="an accuracy on a task not yet learned, expected 0"):
        read(tmp_path, "coda", yaml.dump(turned))
    with pytest.raises(InputError, match="no accuracies without the task known"):
        read(tmp_path, "coda", logs_of.coda([ROWS], SIZES), name="pt-local.yaml")
    text = logs_of.mammoth_file(ROWS, SIZES)
    with pytest.raises(InputError, match="results of task-il; expected those in the folder class-il"):
        read(tmp_path, "mammoth", text, name="task-il/logs.pyd")
    assert not any("taken for" in line for line in read(tmp_path, "mammoth", text, name="class-il/l").told)
    assert any("taken for Class-IL" in line for line in read(tmp_path, "mammoth", text).told)


def test_a_larger_first_task_is_read_by_its_sizes_and_groups_that_are_no_tasks_leave_the_curve(tmp_path):
    text = logs_of.pilot(ROWS, SIZES, classes=[50, 10, 10])
    found = only(read(tmp_path, "pilot", text, benchmark="glyphs/50-10-10"))
    assert found.spec.benchmark == "glyphs/B50-Inc10" and len(found.correct) == 3
    old = text
    for first in ("'00-49': 81.2", "'00-49': 70.0", "'00-49': 60.1"):
        value = first.split(": ")[1]
        cells = ", ".join(f"'{start:02d}-{start + 9:02d}': {value}" for start in range(0, 50, 10))
        old = old.replace(first, cells)
    read_log = read(tmp_path, "pilot", old, benchmark="glyphs/50-10-10")
    assert only(read_log).correct == () and len(only(read_log).curve) == 3
    assert any(
        "groups of classes are not the tasks; only the curve is read" in line for line in read_log.told
    )
    small = logs_of.pilot(ROWS, SIZES, classes=[20, 20, 20]).replace("init_cls: 20", "init_cls: 10")
    assert only(read(tmp_path, "pilot", small)).correct == ()  # groups of 20 classes, a first task of 10
    with pytest.raises(InputError, match="does not say how many tasks it has"):
        imported.checked_benchmark("glyphs/B50-Inc10")


def test_progress_bars_colors_and_doubled_lines_are_no_obstacle(tmp_path):
    text = logs_of.pilot(ROWS, SIZES)
    doubled = "".join(line + line for line in text.splitlines(keepends=True))
    noisy = text.replace("2024", "\r 50%|█████     | 1/2\r\x1b[32m2024")
    for other in (doubled, noisy, text.replace("\n", "\r\n")):
        assert matrix(only(read(tmp_path, "pilot", other))) == matrix(only(read(tmp_path, "pilot", text)))


line = st.one_of(st.text(max_size=30), st.sampled_from("\n".join([*TEXTS.values(), FILE, CSV]).splitlines()))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(NAMES), st.lists(line, max_size=30))
def test_any_log_is_read_or_refused_in_one_line(tmp_path_factory, suite, lines):
    try:
        found = read(tmp_path_factory.getbasetemp(), suite, "\n".join(lines), benchmark="glyphs/1")
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.records and all(len(made.tasks) == 1 for made in found.records)


def test_the_command_tells_what_it_read_and_offers_the_nearest_suite(tmp_path, capsys):
    path = tmp_path / "run.log"
    path.write_text(logs_of.pilot(ROWS, SIZES) + logs_of.pilot(SEQ, SIZES, seed=7), encoding="utf-8")
    usual = ["--name", "T", "--source", "s", "--benchmark", "glyphs/3", "--results", tmp_path / "r"]
    assert command("import", "--from", "pilto", path, *usual) == 2
    assert "--from: unknown suite 'pilto'; did you mean 'pilot'?" in capsys.readouterr().err
    assert command("import", "--from", "pilot", path, *usual, "--percent") == 2
    assert "--percent is for CSV files" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
    assert command("import", "--from", "pilot", path, *usual) == 0
    said = capsys.readouterr()
    assert "3 tasks, seeds 1993, 7; log of PILOT or PyCIL: accuracies per task, and averages" in said.err
    assert said.out.count("written: ") == 2 and "(3 tasks)" in said.out
    assert len(imported.records(tmp_path / "r")) == 2
    assert command("import", "--from", "pilot", path, *usual) == 0  # the same again
    path.write_text(logs_of.pilot(BETTER, SIZES, seed=8) + logs_of.pilot(BETTER, SIZES, seed=7))
    assert command("import", "--from", "pilot", path, *usual) == 2  # seed 7 was another: none is kept
    assert len(imported.records(tmp_path / "r")) == 2 and "another matrix of T" in capsys.readouterr().err
    assert command("import", "--from", "pilot", tmp_path / "no.log", *usual) == 2
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"curve": [0.5]}, {"curve": [0.5, 0.5, 1.5]}, {"convention": None}, {"curve": []}, {"convention": "x"}],
)
def test_a_record_of_a_curve_that_contradicts_itself_is_refused(tmp_path, change):
    [path] = logs.save(read(tmp_path, "pilot", logs_of.pilot(ROWS, SIZES)).records, tmp_path / "r")
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(InputError, match="is not an imported matrix"):
        imported.records(tmp_path / "r")
