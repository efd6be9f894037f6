"""Draws the figures of a report and writes each as PNG and PDF, with its numbers as CSV."""

import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from fontTools import subset
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf

from cl_bench.files import write_atomically
from cl_bench.records.metrics import Conventions
from cl_bench.report.figures import bars, curves
from cl_bench.report.figures.style import STYLE, Drawn
from cl_bench.report.rows import Panel
from cl_bench.text import output
from cl_bench.text.escape import csv_field

KINDS = {
    "accuracy": curves.accuracy,  # on the classes seen after each task
    "losses": curves.losses,  # of tasks 1 and 2 after each later task
    "tradeoff": bars.tradeoff,  # accuracy and forgetting against one option
    "pretraining": bars.pretraining,  # two methods on several backbones
    "matrix": bars.matrix,  # how far each task is below its best, run by run
    "cost": curves.cost,  # accuracy against training time or another cost
    "diagnosis": curves.diagnosis,  # what each later task does to old images, one measure of it
}
ALONG = ("tradeoff", "cost", "diagnosis")  # kinds that are told what stands along an axis


class _WithoutLayout(subset.Options):
    """Text is laid out before its font is embedded, so a PDF needs no kerning or ligatures of it.

    Cutting those tables down takes as long as drawing.
    """

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.drop_tables += ["GDEF", "GPOS", "GSUB"]


subset.Options = _WithoutLayout  # which matplotlib makes for every font of a PDF


def files(kind: str, along: str, panels: Sequence[Panel], conventions: Conventions, stem: Path) -> list[Path]:
    """The files of a figure; none where no run has what it shows.

    `along` is the option along the axis of a trade-off, the cost along that of a figure of costs, and what a
    diagnosis measures.
    """
    shown = (panels, conventions, along) if kind in ALONG else (panels, conventions)
    with matplotlib.rc_context(STYLE), _naming_missing_glyphs(stem.name):
        drawn = KINDS[kind](*shown)
        return [] if drawn is None else _save(drawn, stem)


@contextmanager
def _naming_missing_glyphs(name: str) -> Iterator[None]:
    """One line on standard error for the characters that no font has, which stand as boxes in the figure.

    matplotlib has several for each.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    glyphs = {}
    for warning in caught:
        if found := re.match(r"Glyph (\d+) ", str(warning.message)):
            glyphs[chr(int(found[1]))] = None
        else:
            warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    if glyphs:
        told = ", ".join(f"{character} (U+{ord(character):04X})" for character in glyphs)
        output.say(f"warning: {name}: the font of figures lacks {told}; give other titles", err=True)


def _save(drawn: Drawn, stem: Path) -> list[Path]:
    """Drawn once for every format: `savefig` would draw twice, the first time to lay out."""
    paths, picture, vectors = [], io.BytesIO(), io.BytesIO()
    drawn.figure.set_dpi(200)
    FigureCanvasAgg(drawn.figure).print_png(picture)
    drawn.figure.set_layout_engine("none")  # drawing laid it out
    FigureCanvasPdf(drawn.figure).print_pdf(vectors, metadata={"CreationDate": None})
    for suffix, content in {".png": picture, ".pdf": vectors}.items():
        paths.append(stem.with_name(stem.name + suffix))
        write_atomically(paths[-1], content.getvalue())
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [["" if value is None else csv_field(value) for value in line] for line in drawn.numbers]
    )
    paths.append(stem.with_name(stem.name + ".csv"))
    write_atomically(paths[-1], text.getvalue().encode())
    return paths
