"""Odd inputs drawn by hypothesis, and what has to come of them: success, or one line that says what is wrong.

The same inputs are drawn in every run. CL_BENCH_FUZZ=N draws N times as many, new ones each time.
"""

import contextlib
import io
import os
from pathlib import Path

import made
import pytest
import toys
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.plugins import search_path

TIMES = int(os.environ.get("CL_BENCH_FUZZ", "0"))
SMALL = [
    "--dataset",
    "folder:data",
    "--backbone",
    "test_vit",
    "--weights",
    "w.safetensors",
    "--image-size",
    "32",
    "--splits",
    "2",
]


def words(text: str) -> list[str]:
    """What stands between spaces."""
    return text.split()


WORDS = words("""
    seq nsp2[eta=0.9|1] nsp2[ l2p[as_published] vpt-nsp2@1 glyphs glyphs/10 folder:data folder: folder:data?x
    folder:none 2 1,2 natural nsp2:3 nsp2:² order.txt w.safetensors test_vit cpu cuda cuda:99 auto results
    results/runs csv matrix report.toml eta=0.9 precision=bf16 augment=crop passes=3 prompts=100000 0.5 2h
    tcp://h:1""")
ODD = [
    *words("0 -1 1 ² ١٠ 1e400 nan null on [ {a *a = , |"),
    "",
    " ",
    "&a [*a]",
    "\x00",
    "\udcff",
    "9" * 40,
    "9" * 5000,
    "a" * 5000,
]


def drawn(examples: int):
    """So many inputs, the same ones in every run, or as many new ones as were asked for."""
    checks = [
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ]
    return settings(
        max_examples=examples * max(1, TIMES),
        derandomize=not TIMES,
        deadline=None,
        database=None,
        suppress_health_check=checks,
    )


def records() -> list:
    """Runs of two methods with two seeds each."""
    return [
        made.record(label, made.triangle(3, seed), seed)
        for label in ("vpt-nsp2", "vpt-seq[eta=0.9]")
        for seed in (1, 2)
    ]


@contextlib.contextmanager
def working_folder(root: Path):
    """A working folder with a small data set, weights and a results folder."""
    toys.write_folder(root / "data", classes=4, per_class=2, test_per_class=1)
    toys.write_weights(root / "w.safetensors")
    made.results(root / "results", records())
    before = Path.cwd()
    os.chdir(root)
    try:
        yield root
    finally:
        os.chdir(before)
        search_path.use()


def ends_well(*arguments: str) -> None:
    """Call the command line: it is done, or says in its last line why it is not."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    err.flush()
    said = err.buffer.getvalue().decode()
    code = exit_.value.code or 0
    assert code in (0, 1, 2), f"{arguments}: exit code {code}, {said}"
    assert "Traceback" not in said
    assert not code or said.splitlines()[-1].startswith("error: "), f"{arguments}: {said}"


def wants_input(function, *arguments) -> None:
    """Call the function: it returns, or says what was expected."""
    try:
        function(*arguments)
    except InputError as error:
        assert str(error)


def write(path: Path, text: str) -> Path:
    """Write text, halves of characters as the bytes that Python reads as them."""
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


@st.composite
def damaged(draw, good: list[str], snippets: list[str]) -> str:
    """A good text in which some places were changed."""
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 5, 40])))
        text = text[:start] + draw(st.one_of(st.sampled_from(snippets), st.text(max_size=5))) + text[end:]
    return text
