"""Glyphs on plain paper, as in pre-training: the easy case, where class means of frozen features do well."""

from typing import ClassVar

from cl_bench.datasets._glyphs_compose import PLAIN, Style
from cl_bench.datasets.glyphs import Glyphs

SUMMARY = "the same characters on plain paper: an easy case, where a frozen network does well"


class GlyphsPlain(Glyphs):
    """The same classes and streams of random numbers, without ruled lines."""

    name = "glyphs-plain"
    style: ClassVar[Style] = PLAIN
    train_per_class: ClassVar[int] = 40


SOURCE = GlyphsPlain
