"""Help in groups, and what shells complete."""

import re

import pytest
import typer.main
from typer.testing import CliRunner

from cl_bench.cli import grouped, program


def helped(command: str) -> str:
    terminal = CliRunner(env={"COLUMNS": "80"})
    return terminal.invoke(program(), [command, "--help"], prog_name="cl-bench").output


def test_every_option_of_run_stands_once_under_a_heading_that_says_what_it_is_for():
    text = helped("run")
    headings = re.findall(r"^(\w[^:\n]*):$", text, re.MULTILINE)
    assert headings == ["Arguments", *grouped.GROUPS, grouped.OTHERS]
    options = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE)
    assert len(options) == len(set(options)) > 40
    last = text[text.index(f"\n{grouped.OTHERS}:") :]
    assert re.findall(r"--[a-z-]+", last) == ["--help"]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", ["plan", "tune", "check", "bench", "status"])
def test_the_commands_that_take_the_same_options_group_them_alike(command):
    text = helped(command)
    assert text.index("\nWhat to run:") < text.index("\nProtocol:") < text.index("\nSettings:")


def test_names_in_the_groups_are_options_of_a_command():
    named = {name for names in grouped.GROUPS.values() for name in names}
    known = {
        parameter.name
        for command in ("run", "plan", "check", "bench", "status", "tune")
        for parameter in typer.main.get_command(program()).commands[command].params
    }
    assert named <= known


def test_the_last_method_of_a_list_is_completed():
    assert "nsp2" in grouped.complete_methods("ns")
    assert grouped.complete_methods("seq,simple") == ["seq,simplecil"]
    assert "paper" in grouped.complete_methods("pa") and grouped.complete_methods("zzz") == []
    assert "glyphs" in grouped.complete_datasets("gly")


def test_a_shell_is_answered():
    typed = {"COMP_WORDS": "cl-bench run --methods coda", "COMP_CWORD": "3"}
    asked = {"_CL_BENCH_COMPLETE": "complete_bash", **typed}
    found = CliRunner(env=asked).invoke(program(), [], prog_name="cl-bench")
    assert "coda-prompt" in found.output.split()
