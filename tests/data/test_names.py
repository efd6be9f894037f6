"""What classes are called in a text tower's sentences: shown before a run, and read from a file."""

import pytest
import toys

from cl_bench.cli import main
from cl_bench.data.names import read_names
from cl_bench.errors import InputError
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry

CODES = ("n01440764", "001.Black_footed_Albatross", "class_2", "class_3")


@pytest.fixture
def root(tmp_path):
    """Four classes, two of which bear codes."""
    toys.write_folder(tmp_path / "data")
    for side in ("train", "test"):
        for number, code in enumerate(CODES[:2]):
            (tmp_path / "data" / side / f"class_{number}").rename(tmp_path / "data" / side / code)
    return tmp_path / "data"


def write(tmp_path, text: str):
    path = tmp_path / "names.txt"
    path.write_text(text, encoding="utf-8")
    return path


WHOLE = (
    "n01440764 tench\n001.Black_footed_Albatross\tblack-footed albatross\n\nclass_2   a  dog\nclass_3 cat\n"
)


def plan(root, options=""):
    name, weights = toys.clip_files()
    return make_plan(
        Request(
            methods="clip-zeroshot",
            dataset=f"folder:{root}{options}",
            backbone=name,
            weights=str(weights),
            splits="2",
        )
    )


def test_the_sentences_of_folder_codes_are_shown_with_a_warning(root):
    made = plan(root)
    named = ("001.Black footed Albatross", "class 2", "class 3")
    sentences = ", ".join(f'"a photo of a {name}."' for name in named)
    assert f"the text tower reads {sentences}, ... (4 classes" in made.remarks[-1]
    [warning] = made.warnings
    assert (
        "2 of 4 class names look like codes (001.Black footed Albatross, n01440764)" in warning
        and "folder:PATH?names=FILE" in warning
    )


def test_names_from_a_file_are_read_and_make_another_run_for_text_towers(root, tmp_path):
    options = f"?names={write(tmp_path, WHOLE)}"
    made = plan(root, options)
    assert (
        '"a photo of a black-footed albatross.", "a photo of a a dog.", "a photo of a cat."'
        in made.remarks[-1]
        and not made.warnings
    )
    [named], [bare] = made.specs, plan(root).specs
    assert named.run_id() != bare.run_id() and named.manifest_digest == bare.manifest_digest
    again = registry.source_class("folder")(named.dataset_argument)
    assert (
        again.text_names() == ["black-footed albatross", "a dog", "cat", "tench"]
        and again.text_digest() == named.text_sha256
    )
    assert named.benchmark_key() == "folder:data/2"


def test_methods_without_a_text_tower_say_nothing_of_sentences(root, tmp_path):
    weights = toys.write_weights(tmp_path / "w.safetensors")
    made = make_plan(
        Request(
            methods="joint",
            dataset=f"folder:{root}",
            backbone="test_vit",
            weights=str(weights),
            image_size=32,
            splits="2",
        )
    )
    assert not made.warnings and not any("text tower" in line for line in made.remarks)


def test_the_command_line_shows_sentences_and_warning(root, capsys):
    name, weights = toys.clip_files()
    options = [
        "--methods",
        "clip-zeroshot",
        "--dataset",
        f"folder:{root}",
        "--backbone",
        name,
        "--weights",
        str(weights),
        "--splits",
        "2",
    ]
    for command in ("check", "plan"):
        with pytest.raises(SystemExit):
            main([command, *options])
        captured = capsys.readouterr()
        assert (
            "the text tower reads" in captured.out + captured.err
            and "look like codes" in captured.out + captured.err
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            WHOLE.replace("class_3", "class_4"),
            "names.txt, line 5: unknown class 'class_4'; did you mean 'class_3'",
        ),
        (WHOLE.replace("class_3 cat", "class_2 cat"), "names.txt, line 5: class 'class_2' stands twice"),
        (WHOLE.replace("class_3 cat", "class_3  "), "names.txt, line 5: class 'class_3' has no name"),
        (WHOLE.replace("class_3 cat", ""), "names 3 of 4 classes; 'class_3' is missing"),
        ("", "names 0 of 4 classes"),
    ],
)
def test_a_file_of_names_that_cannot_be_used_says_line_and_reason(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_names(write(tmp_path, text), CODES)


def test_a_file_of_names_that_cannot_be_read_is_one_line(root, tmp_path):
    (tmp_path / "latin").write_bytes(b"class_2 caf\xe9\n")
    for path, reason in (
        (tmp_path / "none", "No such file"),
        (tmp_path / "latin", "not a text file in UTF-8"),
    ):
        with pytest.raises(InputError, match=reason):
            registry.source_class("folder")(f"{root}?names={path}")


def test_class_names_with_spaces_take_the_longest_that_fits(tmp_path):
    assert read_names(write(tmp_path, "ice cream dessert\nice frozen water\n"), ["ice", "ice cream"]) == [
        "frozen water",
        "dessert",
    ]
