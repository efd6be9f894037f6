"""What `info` says that a setting may be, and means."""

from typing import Literal

from pydantic import Field

from cl_bench.cli import listing, setting_help
from cl_bench.config import Strict


class Sample(Strict):
    """Settings of every kind."""

    mode: Literal["soft", "hard"] = "soft"  # how it decides
    share: float = Field(0.5, gt=0, le=1)
    # what is counted,
    # over two lines
    count: int | None = Field(None, ge=2)
    on: bool = True
    either: str | float = "word"


class Further(Sample):
    """One more, and one that is said anew."""

    share: float = Field(0.9, gt=0, lt=1)  # of all
    last: int = 3


def test_what_a_setting_may_be():
    found = {key: setting_help.allowed(field) for key, field in Sample.model_fields.items()}
    assert found == {
        "mode": "soft | hard",
        "share": "a number above 0 up to 1",
        "count": "a whole number from 2, or null",
        "on": "on | off",
        "either": "a word or a number",
    }
    assert setting_help.allowed(Further.model_fields["share"]) == "a number above 0 below 1"


def test_what_it_means_stands_beside_or_above_it():
    assert setting_help.meanings(Further) == {
        "mode": "how it decides",
        "count": "what is counted, over two lines",
        "share": "of all",
    }


def test_info_has_a_legend_where_there_are_marks():
    lines = listing.setting_lines("cifar100/10", "nsp2", None)
    assert "o: its source leaves it open" in lines
    at = next(index for index, line in enumerate(lines) if line.split()[:1] == ["b1"])
    assert lines[at + 1].strip() == "on | off; projection for affinity, B_1"
    assert not any(line.startswith("o") for line in listing.setting_lines("glyphs/10", "simplecil", "none"))
