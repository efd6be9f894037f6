"""Text is UTF-8 wherever it is read or written, and output that cannot show a character stops no command."""

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import made
import pytest

import cl_bench
from cl_bench.cli import main
from cl_bench.text.natural import natural

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    path for folder in ("cl_bench", "methods", "datasets") for path in sorted((ROOT / folder).rglob("*.py"))
]
OPENERS = {
    "open",
    "read_text",
    "write_text",
    "fdopen",
    "TextIOWrapper",
    "NamedTemporaryFile",
    "TemporaryFile",
}
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def leaves_the_encoding_to_the_locale(call: ast.Call) -> bool:
    """Whether the call may open a text file, or read a process as text, without naming the encoding."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in named:
        return False
    if "text" in named or "universal_newlines" in named:
        return True
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    if name not in OPENERS or ast.unparse(call.func) in ("os.open", "Image.open", "tarfile.open"):
        return False
    words = [
        node.value
        for word in [*call.args, *named.values()]
        for node in ast.walk(word)
        if isinstance(node, ast.Constant)
    ]
    modes = [word for word in words if isinstance(word, str) and set(word) <= set("rwaxb+")]
    if name in ("TemporaryFile", "NamedTemporaryFile"):  # binary unless asked
        return any("b" not in mode for mode in modes)
    return name in ("read_text", "write_text") or not any("b" in mode for mode in modes)


def test_every_text_file_is_opened_with_its_encoding():
    guessed = []
    for path in SOURCES:
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
        ]
        guessed += [
            f"{path.name}:{call.lineno}: {ast.unparse(call)}"
            for call in calls
            if leaves_the_encoding_to_the_locale(call)
        ]
    assert guessed == []


@pytest.fixture
def results(tmp_path):
    made.results(
        tmp_path / "results", [made.record("vpt-nsp2", made.triangle(3, seed), seed) for seed in (1, 2)]
    )
    return tmp_path


def test_a_report_in_a_c_locale_is_written_and_piped_as_utf_8(results):
    package = str(Path(cl_bench.__file__).parents[1])
    words = [sys.executable, "-m", "cl_bench", "report"]
    done = subprocess.run(
        words, cwd=results, env={**os.environ, **C_LOCALE, "PYTHONPATH": package}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    [table] = (results / "reports").rglob("table.md")
    assert "VPT-NSP²" in (written := table.read_text(encoding="utf-8")) and "±" in written
    assert written in done.stdout.decode()


class Terminal(io.TextIOWrapper):
    """A terminal of an encoding."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("kind", [Terminal, io.TextIOWrapper])
def test_output_that_cannot_show_a_character_does_not_stop_a_command(results, monkeypatch, encoding, kind):
    monkeypatch.chdir(results)
    streams = {name: kind(io.BytesIO(), encoding=encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as exit_:
        main(["report"])
    assert not exit_.value.code, streams["stderr"].buffer.getvalue()
    streams["stdout"].flush()
    assert b"VPT-NSP" in streams["stdout"].buffer.getvalue()


def test_a_terminal_keeps_its_encoding_and_gets_a_file_named_in_no_encoding(results, monkeypatch):
    stderr = Terminal(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(SystemExit) as exit_:
        main(["report", "\udcff² no such file"])
    stderr.flush()
    assert (
        exit_.value.code == 2 and rb"\udcff" + "² no such file".encode("latin-1") in stderr.buffer.getvalue()
    )


def ends_with(capsys, *arguments) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit_:
        main([str(argument) for argument in arguments])
    return exit_.value.code, capsys.readouterr().err


@pytest.mark.parametrize("buffering", [-1, 0])
def test_a_full_disk_behind_the_output_is_one_line(results, monkeypatch, capsys, buffering):
    monkeypatch.chdir(results)
    device = open("/dev/full", "wb", buffering=buffering)  # noqa: SIM115
    full = io.TextIOWrapper(device, encoding="utf-8", write_through=not buffering)
    monkeypatch.setattr(sys, "stdout", full)
    assert ends_with(capsys, "status") == (1, "error: cannot write the output: No space left on device\n")


def test_nobody_needs_to_listen_to_warnings(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    monkeypatch.setattr(sys, "stderr", open("/dev/full", "w", encoding="utf-8"))  # noqa: SIM115
    assert ends_with(capsys, "report", "none.toml")[0] == 2 and ends_with(capsys, "report")[0] == 0


def test_a_reader_that_has_gone_is_no_error_to_tell(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", open(writer, "w", encoding="utf-8"))  # noqa: SIM115
    assert ends_with(capsys, "status") == (1, "")


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_closed_output_stops_nothing(results, monkeypatch, closed):
    monkeypatch.chdir(results)
    monkeypatch.setattr(sys, closed, None)
    with pytest.raises(SystemExit) as exit_:
        main(["report"])
    assert not exit_.value.code


FAULTS = [
    KeyError("x"),
    RecursionError(),
    MemoryError(),
    OSError(2, "broken", "f"),
    UnicodeEncodeError("a", "b", 0, 1, "c"),
]


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_a_fault_of_the_program_is_one_line_that_names_the_file_with_its_traceback(
    results, monkeypatch, capsys, error
):
    def fails(*arguments):
        raise error

    monkeypatch.chdir(results)
    monkeypatch.setattr("tempfile.tempdir", str(results))
    monkeypatch.setattr("cl_bench.records.status.of_folder", fails)
    code, said = ends_with(capsys, "status", "--results", "a b")
    assert code == 70 and len(said.splitlines()) == 1
    [path] = results.glob("cl-bench-*.log")
    text = path.read_text(encoding="utf-8")
    assert (
        str(path) in said
        and "Traceback" in text
        and "status --results 'a b'" in text
        and type(error).__name__ in said
    )


def test_a_fault_is_one_line_also_where_its_traceback_cannot_be_written(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    monkeypatch.setattr("cl_bench.records.status.of_folder", lambda *arguments: {}["a\nb"])
    monkeypatch.setattr("tempfile.tempdir", str(results / "none"))
    code, said = ends_with(capsys, "status")
    assert (
        code == 70
        and len(said.splitlines()) == 1
        and "KeyError: 'a\\nb'" in said
        and "could not be written" in said
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--results", "a" * 5000),
        ("merge", "x", "a" * 5000),
        ("report", "a" * 300),
        ("export", "--out", "results/runs"),
        ("ls", "runs", "--results", "file/x"),
    ],
)
def test_paths_that_the_machine_refuses_are_one_line(results, monkeypatch, capsys, arguments):
    monkeypatch.chdir(results)
    (results / "file").write_text("", encoding="utf-8")
    code, said = ends_with(capsys, *arguments)
    assert code in (0, 1, 2) and len(said.splitlines()) <= 1 and len(said) < 6000


@pytest.mark.parametrize(
    "command",
    [
        "run /dev/zero",
        "tune --grid /dev/zero",
        "report /dev/zero",
        "plan --order /dev/zero",
        "import /dev/zero --name N --benchmark glyphs/10 --source s",
    ],
)
def test_a_file_without_end_is_one_line(results, monkeypatch, capsys, command):
    monkeypatch.chdir(results)
    code, said = ends_with(capsys, *command.split())
    assert (
        code == 2 and "/dev/zero: it is longer than 1,000,000 bytes" in said and len(said.splitlines()) == 1
    )


def test_numbers_in_texts_are_ordered_by_their_size():
    names = ["glyphs/100", "glyphs/20", "cifar100/10", "glyphs/B50-Inc10", "nsp2[eta=0.97]", "nsp2[eta=0.9]"]
    assert sorted(names, key=natural) == [
        "cifar100/10", "glyphs/20", "glyphs/100", "glyphs/B50-Inc10", "nsp2[eta=0.9]", "nsp2[eta=0.97]",
    ]  # fmt: skip
