"""Downloads are shown as a bar with time left on a terminal, and as lines elsewhere."""

import re

import pytest

from cl_bench import console


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when a test says so."""

    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(console, "time", clock)
    return clock


def test_lines_say_how_much_is_there_and_how_long_it_takes_at_the_pace_so_far(clock, capsys):
    with console.download("a.zip", 10_000_000, 2_000_000) as advance:
        for _ in range(4):
            clock.now += 20
            advance(1_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "downloading a.zip (10.00 MB, 2.00 MB are there)",
        "downloading a.zip: 4.00 MB of 10.00 MB, 2:00 left",  # 2 MB came in 40 s, 6 are left
        "downloading a.zip: 6.00 MB of 10.00 MB, 1:20 left",
        "downloaded a.zip (6.00 MB) in 1:20",
    ]


def test_a_short_download_is_one_line_and_an_unknown_size_is_no_time(clock, capsys):
    with console.download("a.zip", 5000) as advance:
        advance(5000)
    with console.download("b.zip", None) as advance:
        clock.now += 31
        advance(5000)
    assert capsys.readouterr().err.splitlines() == [
        "downloading a.zip (5.00 kB)",
        "downloading b.zip (size unknown)",
        "downloading b.zip: 5.00 kB",
        "downloaded b.zip (5.00 kB) in 0:31",
    ]


def test_what_breaks_off_has_no_line_at_its_end(clock, capsys):
    with pytest.raises(OSError), console.download("a.zip", 5000):
        clock.now += 31
        raise OSError
    assert capsys.readouterr().err == "downloading a.zip (5.00 kB)\n"


def test_on_a_terminal_a_bar_has_the_time_left(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with console.download("a.zip", 5_000_000, 1_000_000) as advance:
        advance(4_000_000)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"a.zip ━+ 5.0/5.0 MB \d:\d\d:\d\d", shown)
