"""Whatever is in a file that is read, it is taken or refused in one line that says what is wrong."""

import contextlib
import copy
import csv
import hashlib
import io
import itertools
import json
import shutil
from pathlib import Path

import made
import pytest
from fuzz import TIMES, WORDS, damaged, drawn, ends_well, records, wants_input, words, working_folder, write
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cl_bench.config import canonical_json
from cl_bench.errors import InputError
from cl_bench.plan import tune
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import request_from
from cl_bench.plugins import registry


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with working_folder(tmp_path_factory.mktemp("fuzz")) as root:
        yield root


plain = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=6),
        st.dates(),
        st.sampled_from(WORDS),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(), st.booleans()), inner, max_size=3),
    ),
    max_leaves=8,
)
KEYS = words("""
    methods benchmarks dataset datasets splits seeds order init_seed data_seed backbone backbones weights
    image_size limit validation preset as_published losses augment set grid yes verify places x""")
YAML = [
    "methods: [seq, 'nsp2[b2=off|on]']\nbenchmarks: [glyphs/10]\nseeds: 3\n"
    "grid: {eta: [0.9, 0.95]}\nset: {precision: bf16}\n",
    "set: &s\n  eta: 0.9\n  passes: 3\ngrid:\n  <<: *s\norder: natural\nlimit: 8\n",
]
YAML_SNIPPETS = words(
    "[ ] { } - !!int !!binary !!timestamp !!python/name:os ' \" | > # ? --- %YAML ~ on "
    "2024-01-01 0x 1_0 1:30 .nan &a *a *s"
)
YAML_SNIPPETS += [f"{snippet} " for snippet in YAML_SNIPPETS] + [
    "\n",
    "\t",
    ": ",
    "---\n",
    "<<: ",
    "\x00",
    "\udcff",
]


@drawn(60)
@given(
    text=st.one_of(
        damaged(YAML, YAML_SNIPPETS),
        st.dictionaries(st.sampled_from(KEYS), plain, max_size=3).map(
            lambda values: json.dumps(values, default=str)
        ),
    )
)
def test_yaml(place, text):
    write(place / "x.yaml", text)
    wants_input(tune.read_grid, place / "x.yaml")
    try:
        request = request_from({}, place / "x.yaml")
    except InputError:
        return
    small = {
        "dataset": "folder:data",
        "backbone": "test_vit",
        "weights": "w.safetensors",
        "image_size": 32,
        "splits": "2",
        "benchmarks": None,
    }
    wants_input(lambda: make_plan(request.model_copy(update=small)))


TOML = [
    path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).resolve().parents[1] / "reports").glob("*.toml"))
]
TOML += [
    'title = "T"\n[[table]]\nname = "t"\ntitle = "t"\ncolumns = ["toy/3"]\n'
    'rows = ["nsp2", { select = "seq[eta=0.9]" }]\n'
    '[[figure]]\nname = "f"\nkind = "accuracy"\ncolumns = ["toy/3"]\nrows = ["nsp2"]\n'
]
TOML_SNIPPETS = words("= \" ' [ ] { } 1 true nan 1979-05-27 \\u12") + [
    "[[table]]\n",
    "[[figure]]\n",
    "[table]\n",
    "\n",
    "rows = []\n",
    "name = 3\n",
]
TOML_SNIPPETS += ["\x00", "x.y.z = 1\n", "[" * 2000]


@drawn(25)
@given(text=damaged(TOML, TOML_SNIPPETS))
def test_report_specifications(place, text):
    write(place / "x.toml", text)
    ends_well("report", "x.toml", "--out", "out")


def paths_of(node, above=()):
    yield above
    if isinstance(node, dict | list):
        for key, part in node.items() if isinstance(node, dict) else enumerate(node):
            yield from paths_of(part, (*above, key))


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def changed_records(draw) -> bytes:
    """A record in which some value is another one, sealed as if it had been written so, or cut short."""
    content = copy.deepcopy(records()[0].model_dump(mode="json"))
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from([path for path in paths_of(content) if path]))
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = draw(json_values)
    text = canonical_json(content)
    run_id = draw(st.sampled_from([records()[0].spec.run_id(), "0" * 16]))
    digest = hashlib.sha256(text.encode()).hexdigest()
    data = f'{{"digest": "{digest}", "run_id": "{run_id}", "record":\n{text}\n}}\n'.encode()
    cut = draw(st.one_of(st.none(), st.integers(0, len(data))))
    return data[:cut]


@drawn(4)
@given(data=changed_records())
def test_records(place, data):
    root = place / "changed"
    shutil.rmtree(root, ignore_errors=True)
    store = made.results(root, records())
    (store.folder(records()[0].spec) / "record.json").write_bytes(data)
    for command in (
        "status",
        "ls runs",
        "export --out r.csv",
        "export --what matrix --out m.csv",
        "compare nsp2 seq",
        "clean --failed",
    ):
        ends_well(*words(command), "--results", str(root))
    if TIMES:
        ends_well("report", "--results", str(root), "--out", "out")


cells = st.one_of(
    st.sampled_from(
        [
            "",
            "50",
            "50.5",
            "50,5",
            "50%",
            "0.5",
            "NaN",
            "nan",
            "-",
            "–",
            "inf",
            "1e3",
            "²",
            "Task 1",
            "-1",
            "101",
            '"',
        ]
    ),
    st.text(max_size=4),
    st.floats().map(str),
)


@st.composite
def matrices(draw) -> bytes:
    rows = draw(st.lists(st.lists(cells, max_size=5), max_size=5))
    if draw(st.booleans()):
        rows = [["50"] * draw(st.integers(1, 4)) for _ in range(3)] + rows[:1]
    out = io.StringIO()
    csv.writer(out, delimiter=draw(st.sampled_from(",;\t|"))).writerows(rows)
    return out.getvalue().encode(
        draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])), "replace"
    )


@drawn(20)
@given(
    data=matrices(),
    percent=st.booleans(),
    sizes=st.sampled_from([[], ["--test-sizes", "10,10,10"], ["--test-sizes", "0,²"]]),
    tasks=st.sampled_from("1345"),
)
def test_imported_matrices(place, data, percent, sizes, tasks):
    (place / "x.csv").write_bytes(data)
    shutil.rmtree(place / "imports", ignore_errors=True)
    more = [*sizes, *(["--percent"] if percent else [])]
    ends_well(
        "import",
        "x.csv",
        "--name",
        "N",
        "--benchmark",
        f"glyphs/{tasks}",
        "--source",
        "s",
        "--results",
        "imports",
        *more,
    )


def image_bytes() -> list[tuple[str, bytes]]:
    """Small images in many formats and modes."""
    found = []
    formats = {
        "png": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"), "gif": ("P",), "jpg": ("L", "RGB", "CMYK"),
        "bmp": ("RGB",), "tif": ("L", "RGB", "F"), "webp": ("RGB",), "ppm": ("RGB",), "tga": ("RGB",),
    }  # fmt: skip
    for suffix, modes in formats.items():
        for mode in modes:
            out = io.BytesIO()
            with contextlib.suppress(OSError, KeyError, ValueError):
                Image.new(mode, (9, 7)).save(out, {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper()))
                found.append((suffix, out.getvalue()))
    return found


IMAGES = image_bytes()


@st.composite
def changed_images(draw) -> tuple[str, bytes]:
    suffix, data = draw(st.sampled_from(IMAGES))
    data = bytearray(data)
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return draw(st.sampled_from([suffix, suffix, "png", "txt"])), bytes(
        data[: draw(st.one_of(st.none(), st.integers(0, len(data))))]
    )


NUMBERS = itertools.count()


@drawn(40)
@given(image=changed_images())
def test_images(place, image):
    suffix, data = image
    root = place / f"images-{next(NUMBERS)}"
    for side in ("train", "test"):
        for name in ("a", "b"):
            (root / side / name).mkdir(parents=True)
            Image.new("RGB", (9, 7)).save(root / side / name / "good.png")
    (root / "train" / "a" / f"odd.{suffix}").write_bytes(data)

    def read() -> None:
        source = registry.source_class("folder")(str(root))
        source.manifest_digest()
        for side in ("train", "test"):
            source.images(side)
        source.remarks()

    with contextlib.redirect_stderr(io.StringIO()):
        wants_input(read)
    shutil.rmtree(root)
