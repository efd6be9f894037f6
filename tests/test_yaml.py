"""What YAML allows and no option means is one line with its place."""

import pytest

from cl_bench import splits
from cl_bench.errors import InputError
from cl_bench.notation import without_synonyms
from cl_bench.plan import tune
from cl_bench.plan.request import parse_settings, request_from
from cl_bench.text import yaml_file

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "a key that stands twice": (
        "methods: seq\nsplits: 2\nmethods: pgp\n",
        "x.yaml, lines 1 and 3: the key 'methods' stands twice; leave out one",
    ),
    "one that stands twice in set": (
        "set:\n  eta: 1\n  eta: 2\n",
        "x.yaml, lines 2 and 3: the key 'eta' stands twice",
    ),
    "an option by both its names": (
        "dataset: glyphs\ndatasets: glyphs\n",
        "x.yaml, line 2: datasets and dataset are one option",
    ),
    "a synonym beside its option": ("set: {input_norm: half, normalisation: half}", None),
    "an alias of itself": ("set: &a {eta: *a}", "what begins on line 1 stands inside itself, by an alias"),
    "a list with itself in it": ("methods: &a [seq, *a]", "stands inside itself"),
    "a billion laughs": (LAUGHS, "it stands for more than 100,000 values"),
    "deep nesting": ("set: " + "[" * 30 + "]" * 30, "more than 20 deep inside each other"),
    "far deeper nesting": ("set: " + "[" * 20_000, "more than 20 deep inside each other"),
    "deep mappings": ("set: " + "{a: " * 5000 + "}" * 5000, "more than 20 deep"),
    "an integer of 5000 digits": (f"seeds: {'9' * 5000}\n", "x.yaml: Exceeds the limit"),
    "a date": (
        "order: 2024-01-02\n",
        "x.yaml, line 1: YAML reads '2024-01-02' as a date; put words in quotes",
    ),
    "a date that is none": ("order: 2024-13-45\n", "as a date"),
    "no as a word": ("order: no\n", "x.yaml, line 1: YAML reads a value of order as 'off'"),
    "yes in a list": ("methods: [seq, yes]\n", "x.yaml, line 1: YAML reads a value of methods as 'on'"),
    "a fraction of a seed": ("seeds: 1.5\n", "YAML reads a value of seeds as '1.5'"),
    "a plural without a value": ("backbones:\n", "x.yaml, line 1: YAML reads a value of backbone as 'null'"),
    "a key that is on": (
        "set: {on: 1}\n",
        "x.yaml, line 1: YAML reads the key 'on' as true or false; put it in quotes",
    ),
    "an empty key": ("~: 1\n", "reads the key '~' as nothing"),
    "a list as a key": ("? [a]\n: 1\n", "the key a list or mapping as a list"),
    "bytes": ("set: {eta: !!binary aGk=}", "as bytes"),
    "a set": ("set: !!set {eta}", "YAML reads this as tag:yaml.org,2002:set"),
    "another language's object": (
        "set: !!python/object:os.system {}",
        "YAML reads this as tag:yaml.org,2002:python/object:os.system",
    ),
    "a word called a number": ("splits: !!int ten", "x.yaml: invalid literal"),
    "a date called a number": ("limit: !!float 2024-01-02", "x.yaml: could not convert"),
    "a bool that is none": ("losses: !!bool maybe", "x.yaml: 'maybe'"),
    "two documents": ("seeds: 1\n---\nseeds: 2\n", "expected a single document"),
    "a tab": ("set:\n\teta: 1\n", "cannot read"),
    "nothing": ("", "must hold a mapping"),
    "a merge of a word": ("<<: x\n", "x.yaml: "),
}


def refused(text: str, tmp_path) -> str:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        without_synonyms(request_from({}, path).set)
    assert len(str(raised.value).splitlines()) == 1 and len(str(raised.value)) < 500
    return str(raised.value)


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_no_option_means_is_refused_in_one_line(tmp_path, text, message):
    assert (message or "input_norm and normalisation are one option") in refused(text, tmp_path)


def test_files_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long.yaml").write_text("#" * 1_000_001, encoding="utf-8")
    for name, message in {
        "bytes.yaml": "not a text file in UTF-8",
        "long.yaml": "longer than 1,000,000 bytes",
        "a\0b": "null byte",
        "": "directory",
    }.items():
        with pytest.raises(InputError, match=message):
            yaml_file.read(tmp_path / name)


def test_aliases_merges_marks_and_numbers_stay_as_yaml_means_them(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "set: &s {eta: 1e-3, passes: 0x10, b1: off}\ngrid: {temperature: [1, 2e1]}\nseeds: [3]\nsplits: 10\n",
        encoding="utf-8-sig",
    )
    request = request_from({}, path)
    assert request.set == {"eta": 0.001, "passes": 16, "b1": False} and request.grid == {
        "temperature": [1, 20.0]
    }
    assert (request.seeds, request.splits) == ("3,", "10")
    path.write_text("x: &x {a: 1}\ny:\n  <<: *x\n  b: *x\n", encoding="utf-8")
    assert yaml_file.read(path).values["y"] == {"a": 1, "b": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eta: [1]\neta: [2]", "lines 1 and 2: the key 'eta' stands twice"),
        ("eta: [&a [*a]]", "inside itself"),
        ("[]", "mapping"),
    ],
)
def test_the_grid_of_tune_is_read_alike(tmp_path, text, message):
    (tmp_path / "grid.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        tune.read_grid(tmp_path / "grid.yaml")


@pytest.mark.parametrize(
    "value",
    [
        "&a [*a]",
        "2024-01-02",
        "!!int x",
        "9" * 5000,
        "[" * 3000,
        "{a: 1, a: 2}",
        "!!binary x",
        "? x",
        "\x00",
        "\udcff",
    ],
)
def test_values_on_the_command_line_are_read_alike(value):
    try:
        parse_settings([f"eta={value}"])
    except InputError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 500


@pytest.mark.parametrize("digits", ["²", "١٠", "1_0", "１０", "10²", "9" * 5000])
def test_numbers_are_of_the_digits_0_to_9(digits):
    with pytest.raises(InputError, match="expected numbers of tasks"):
        splits.listed(digits)
