"""Nothing in a folder of images is dropped in silence, and classes that only look equal are told apart."""

import os
import shutil
import unicodedata
from pathlib import Path

import pytest
import toys
from PIL import Image

from cl_bench.cli import main
from cl_bench.errors import InputError
from cl_bench.plugins import registry


def folder(path, options=""):
    return registry.source_class("folder")(f"{path}{options}")


def said(path, options=""):
    """What is said of the training side."""
    return folder(path, options).remarks()[0]


@pytest.fixture
def root(tmp_path):
    return toys.write_folder(tmp_path / "pets", classes=2)


def hidden(place):
    (place / ".DS_Store").write_bytes(b"x")
    (place / "._000.png").write_bytes(b"x")


def other_files(place):
    (place / "notes.txt").write_text("cats")
    (place / "Thumbs.db").write_bytes(bytes(100))


def broken_link(place):
    (place / "gone.png").symlink_to(place / "nowhere.png")


def pipe(place):
    os.mkfifo(place / "pipe.png")


def empty_folder(place):
    (place / "more").mkdir()
    (place / "more" / "readme").write_text("later")


SKIPPED = [
    (hidden, "skipped 2: 2 hidden (class_0/.DS_Store, class_0/._000.png)"),
    (other_files, "skipped 2: 2 other than images (class_0/Thumbs.db, class_0/notes.txt)"),
    (broken_link, "skipped 1: 1 links to nothing (class_0/gone.png)"),
    (pipe, "skipped 1: 1 neither files nor folders (class_0/pipe.png)"),
    (
        empty_folder,
        "skipped 2: 1 other than images (class_0/more/readme), 1 folders without images (class_0/more)",
    ),
]


@pytest.mark.parametrize(("add", "told"), SKIPPED, ids=[add.__name__ for add, _ in SKIPPED])
def test_what_is_no_image_is_skipped_and_named(root, add, told):
    assert said(root).endswith("train/: 12 images of 2 classes used; nothing skipped")
    add(root / "train" / "class_0")
    assert said(root).endswith(f"train/: 12 images of 2 classes used; {told}")
    assert "nothing skipped" in folder(root).remarks()[1] and len(folder(root).images("train")) == 12


def test_files_beside_the_classes_are_named_and_of_many_the_first_three(root):
    for number in range(5):
        (root / "train" / f"{number}.png").write_bytes(b"x")
    assert "skipped 5: 5 outside the classes' folders (0.png, 1.png, 2.png, 2 more)" in said(root)


def test_links_to_images_and_to_classes_are_followed_and_counted(root, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(root / "train" / "class_1", elsewhere)
    (root / "train" / "class_1").symlink_to(elsewhere)
    (root / "train" / "class_0" / "linked.png").symlink_to(elsewhere / "007.png")
    assert "13 images of 2 classes used, 7 of them through links; nothing skipped" in said(root)


def test_an_image_is_known_by_its_content_where_its_name_says_nothing(root):
    place = root / "train" / "class_0"
    (place / "000.png").rename(place / "image")
    assert "12 images of 2 classes used; nothing skipped" in said(root)


@pytest.mark.parametrize("suffix", [".heic", ".svg", ".NEF"])
def test_an_image_that_pillow_cannot_read_is_an_error_and_is_not_skipped(root, suffix):
    (root / "train" / "class_0" / f"photo{suffix}").write_bytes(b"an image of another kind")
    with pytest.raises(
        InputError,
        match=f"cannot read image .*photo{suffix}: Pillow knows no such format; repair, convert or remove it",
    ):
        folder(root).manifest()


@pytest.mark.parametrize(
    "path",
    ["x" * 5000, "~nobody_of_this_name/x", "a\0b", "x" * 5000 + "?nested", "?nested", "?names=" + "y" * 5000],
)
def test_a_path_that_cannot_be_one_is_one_line(path):
    for name in ("folder", "cifar100", "imagenet-r"):
        with pytest.raises(InputError) as error:
            registry.source_class(name)(path)
        assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_images_in_folders_of_a_class_are_used_when_asked_for_and_refused_otherwise(root):
    place = root / "train" / "class_0" / "more" / "yet"
    place.mkdir(parents=True)
    Image.new("RGB", (32, 32), (1, 2, 3)).save(place / "deep.png")
    with pytest.raises(
        InputError,
        match=r"has 1 images in folders below a class \(class_0/more/yet/deep.png\); "
        r"use them too with folder:PATH\?nested",
    ):
        folder(root)
    source = folder(root, "?nested")
    assert source.images("train").labels.tolist() == [0] * 7 + [1] * 6 and source.images("train").images[
        6, 0, 0
    ].tolist() == [1, 2, 3]
    assert folder(source.argument).manifest_digest() == source.manifest_digest()


def test_a_link_back_to_a_folder_above_ends(root):
    (root / "train" / "class_0" / "loop").symlink_to(root / "train" / "class_0")
    assert "skipped 1: 1 links to a folder above (class_0/loop)" in said(root, "?nested")


def test_a_class_of_skipped_files_alone_says_so(root):
    for path in (root / "test" / "class_1").iterdir():
        path.unlink()
    hidden(root / "test" / "class_1")
    with pytest.raises(
        InputError, match=r"test/class_1 is empty; expected at least one image \(skipped: 2 hidden\)"
    ):
        folder(root)


def test_a_question_mark_may_be_part_of_a_folders_name(root):
    renamed = root.rename(root.with_name("cat?nested"))
    assert len(folder(renamed).images("train")) == 12 and folder(folder(renamed).argument).class_names == [
        "class_0",
        "class_1",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("?nest", "did you mean 'nested'"),
        ("?nested=1", "write nested without a value"),
        ("?names", "expected names=FILE"),
        ("?names=", "expected names=FILE"),
    ],
)
def test_an_option_that_is_none_says_what_there_is(root, options, message):
    with pytest.raises(InputError, match=message):
        folder(root, options)


@pytest.mark.parametrize("entry", ["train", "train/class_0", "train/class_0/image"])
def test_what_may_not_be_read_is_an_error_that_names_it(root, entry, monkeypatch):
    (root / "train" / "class_0" / "000.png").rename(root / "train" / "class_0" / "image")

    def refusing(original):
        def call(path, *arguments, **settings):
            if str(path) == str(root / entry):
                raise PermissionError(13, "Permission denied", str(path))
            return original(path, *arguments, **settings)

        return call

    monkeypatch.setattr(Path, "iterdir", refusing(Path.iterdir))
    monkeypatch.setattr(Image, "open", refusing(Image.open))
    with pytest.raises(
        InputError,
        match=f"cannot read .*{entry}: Permission denied; expected .*train/<class>/\\* with images",
    ):
        folder(root)


ACCENTED = unicodedata.normalize("NFC", "café")


def test_composed_and_decomposed_accents_are_one_class(root):
    (root / "train" / "class_0").rename(root / "train" / ACCENTED)
    (root / "test" / "class_0").rename(root / "test" / unicodedata.normalize("NFD", ACCENTED))
    assert folder(root).class_names == [ACCENTED, "class_1"]


def test_two_folders_of_one_side_whose_names_look_equal_are_refused(root):
    for form in ("NFC", "NFD"):
        shutil.copytree(root / "train" / "class_0", root / "train" / unicodedata.normalize(form, ACCENTED))
    with pytest.raises(InputError, match="two folders called 'café', whose accents are composed in one"):
        folder(root)


@pytest.mark.parametrize("other", ["Class_0", "class_0 ", "class\u200b_0", "class_\uff10"])
def test_classes_that_look_alike_are_explained(root, other):
    (root / "test" / "class_0").rename(root / "test" / other)
    with pytest.raises(
        InputError,
        match="class 'class_0' is in train/ but not in test/; "
        "test/ has .* differs in capitals, spaces or look-alike",
    ):
        folder(root)


def test_a_class_whose_name_is_no_text_is_refused(root):
    os.rename(os.fsencode(root / "train" / "class_0"), os.fsencode(root / "train") + b"/caf\xe9")
    with pytest.raises(InputError, match=r"caf\\udce9 is no text in UTF-8; rename it"):
        folder(root)


def test_every_command_that_opens_a_data_set_says_what_is_skipped(root, tmp_path, capsys):
    hidden(root / "train" / "class_0")
    weights = toys.write_weights(tmp_path / "w.safetensors")
    options = [
        "--methods",
        "joint",
        "--dataset",
        f"folder:{root}",
        "--backbone",
        "test_vit",
        "--weights",
        str(weights),
    ]
    options += ["--image-size", "32", "--splits", "2", "--results", str(tmp_path / "results")]
    for arguments in (
        ["check", *options],
        ["plan", *options],
        ["run", "--dry-run", *options],
        ["prepare", f"folder:{root}"],
    ):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        assert (
            exit_.value.code == 0
            and "12 images of 2 classes used; skipped 2: 2 hidden" in captured.out + captured.err
        ), arguments
