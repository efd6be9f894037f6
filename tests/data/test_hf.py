"""Data sets as Hugging Face keeps them, written here with its notes of columns; nothing asks the hub."""

import io
import json
import sys
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cl_bench.datasets import hf
from listed_archives import content, picture, quiet
from PIL import Image

from cl_bench.data.images import Ragged
from cl_bench.errors import InputError
from cl_bench.plugins import registry

NAMES = ["bee", "cat", "dog"]
LABEL = {"_type": "ClassLabel", "names": NAMES}
REVISION, OTHER = "a" * 40, "b" * 40


def table(numbers, **columns) -> pa.Table:
    """Images of classes 0, 1, 2, 0, ... and numbers; columns are (feature, values), by name."""
    rows = [(n % 3, n) for n in numbers]
    images = [{"bytes": content(c, n), "path": None} for c, n in rows]
    found = {"image": ({"_type": "Image"}, images), "label": (LABEL, [c for c, _ in rows]), **columns}
    found = {name: both for name, both in found.items() if both is not None}
    features = {name: feature for name, (feature, _) in found.items()}
    noted = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    return pa.table({name: values for name, (_, values) in found.items()}).replace_schema_metadata(noted)


def write_parquet(root, **splits):
    root.mkdir(parents=True, exist_ok=True)
    for name, found in splits.items():
        pq.write_table(found, root / f"{name}-00000-of-00001.parquet", row_group_size=4)
    return root


def write_arrow(path, found: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, found.schema) as writer:
        writer.write_table(found, max_chunksize=5)


def write_saved(root, **splits):
    """As DatasetDict.save_to_disk."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}), encoding="utf-8")
    for name, found in splits.items():
        half = len(found) // 2
        files = [f"data-0000{n}-of-00002.arrow" for n in (0, 1)]
        write_arrow(root / name / files[0], found.slice(0, half))
        write_arrow(root / name / files[1], found.slice(half))
        state = {"_data_files": [{"filename": file} for file in files], "_fingerprint": "0"}
        (root / name / "state.json").write_text(json.dumps(state), encoding="utf-8")
    return root


def write_cache(home, revision, config="default", **splits):
    """As the cache of a hub data set Owner/PetPhotos."""
    place = home / "datasets" / "Owner___pet_photos" / config / "0.0.0" / revision
    for name, found in splits.items():
        write_arrow(place / f"pet_photos-{name}.arrow", found)
    (place / "dataset_info.json").write_text(
        json.dumps({"splits": {n: {} for n in splits}}), encoding="utf-8"
    )
    return place


@pytest.fixture
def home(tmp_path, own_data, monkeypatch):
    """An empty home of Hugging Face's caches."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    return tmp_path / "hf"


def opened(argument):
    return registry.source_class("hf")(str(argument))


TRAIN, TEST = range(12), range(12, 18)


def both(**columns):
    return {"train": table(TRAIN, **columns), "test": table(TEST, **columns)}


@pytest.mark.parametrize("write", [write_parquet, write_saved])
def test_sides_labels_and_pixels_are_those_of_the_table(tmp_path, home, write):
    source = opened(write(tmp_path / "d", **both()))
    assert source.class_names == NAMES
    for side, numbers in (("train", TRAIN), ("test", TEST)):
        held = source.images(side)
        assert held.labels.tolist() == [n % 3 for n in numbers] and isinstance(held.images, Ragged)
        for row, n in enumerate(numbers):
            if n % 4 < 2:  # others are kept at a shorter side of 256
                [pixels] = held.pixels(np.array([row]))
                assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(content(n % 3, n)))))
    [remark] = source.remarks()
    assert "images from column 'image', labels from 'label'; train is split 'train' (12 images)" in remark


def test_the_identity_is_that_of_images_and_labels_not_of_files_or_place(tmp_path, home):
    saved, parquet = write_saved(tmp_path / "a", **both()), write_parquet(tmp_path / "b", **both())
    known = opened(saved).manifest_digest()
    assert known == opened(parquet).manifest_digest()
    labels = (LABEL, [1, *(n % 3 for n in TRAIN[1:])])
    write_parquet(parquet, train=table(TRAIN, label=labels))
    assert opened(parquet).manifest_digest() != known
    write_parquet(parquet, train=table([3, *TRAIN[1:]]))
    assert opened(parquet).manifest_digest() != known


def test_images_are_seen_as_a_person_sees_them(tmp_path, home):
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112] = 3  # turned by 180 degrees
    picture(0, 0).save(buffer, "PNG", exif=exif)
    images = [{"bytes": buffer.getvalue(), "path": None}] * 3
    source = opened(write_parquet(tmp_path / "d", train=table(range(3), image=({"_type": "Image"}, images)),
                                  test=table(TEST)))  # fmt: skip
    upright = np.asarray(picture(0, 0))[::-1, ::-1]
    assert np.array_equal(source.images("train").images[0], upright)
    assert source.images("train").images.shape == (3, 30, 40, 3)  # of one small size


def test_an_image_may_be_a_file_that_the_row_names(tmp_path, home):
    found = []
    for n in TRAIN:
        path = tmp_path / f"{n}.jpg"
        path.write_bytes(content(n % 3, n))
        found.append({"bytes": None, "path": str(path)})
    images = pa.array(found, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    named = table(TRAIN, image=({"_type": "Image"}, images))
    root = write_parquet(tmp_path / "d", train=named, test=table(TEST))
    inside = opened(write_parquet(tmp_path / "e", **both()))
    source = opened(root)
    assert source.manifest_digest() == inside.manifest_digest()
    (tmp_path / "0.jpg").write_bytes(content(1, 0))
    with pytest.raises(InputError, match="train row 0 changed while it was used"):
        source.images("train")


COARSE = {"_type": "ClassLabel", "names": ["x", "y"]}


def test_columns_and_splits_can_be_named_and_are_guessed_by_what_they_are(tmp_path, home):
    def found(numbers):
        other = ({"_type": "Value", "dtype": "string"}, [f"k{n % 2}" for n in numbers])
        return table(numbers, label=None, coarse=(COARSE, [n % 2 for n in numbers]), other=other,
                     fine_label=(LABEL, [n % 3 for n in numbers]))  # fmt: skip

    splits = {"train": found(TRAIN), "validation": found(TEST), "extra": found(range(18, 24))}
    root = write_parquet(tmp_path / "d", **splits)
    guessed = opened(root)
    assert guessed.class_names == NAMES and "labels from 'fine_label', not coarse;" in guessed.remarks()[0]
    assert "test is split 'validation'" in guessed.remarks()[0]
    named = opened(f"{root}?label=other&test=extra")
    assert named.class_names == ["k0", "k1"] and named.labels("test").tolist() == [0, 1] * 3
    assert named.argument == f"{root}?label=other&test=extra"


WRONG = [
    ("", "needs a name or path"),
    ("{root}?label=lable", "unknown column 'lable'; did you mean 'label'?"),
    ("{root}?train=trian", "unknown split 'trian'; did you mean 'train'?"),
    ("{root}?lable=x", "unknown option of data set hf 'lable'; did you mean 'label'?"),
    ("{root}?config=x", "which has no configurations"),
    ("{root}/none", "holds no data set that hf reads; expected what save_to_disk or to_parquet write"),
    ("Owner/PetPhotos", "not in Hugging Face's cache .*; run `cl-bench prepare hf:Owner/PetPhotos`"),
    ("Owner/PetPhotos@v1", "run `cl-bench prepare hf:Owner/PetPhotos@v1`"),
]


@pytest.mark.parametrize(("argument", "message"), WRONG, ids=[argument for argument, _ in WRONG])
def test_what_is_missing_or_misspelled_says_what_to_do(tmp_path, home, argument, message):
    root = write_parquet(tmp_path / "d", **both())
    with pytest.raises(InputError, match=message.replace("?", "[?]")) as error:
        opened(argument.format(root=root))
    assert "\n" not in str(error.value)


def test_hidden_labels_and_tables_without_a_column_or_split_are_errors(tmp_path, home):
    hidden = table(TEST, label=(LABEL, [-1] * 6))
    with pytest.raises(InputError, match=r"6 test images have no label; name a split .* with \?test=SPLIT"):
        opened(write_parquet(tmp_path / "a", train=table(TRAIN), test=hidden))
    with pytest.raises(InputError, match=r"which split is the test side\? \?test= one of extra, train"):
        opened(write_parquet(tmp_path / "b", train=table(TRAIN), extra=table(TEST)))
    words = {"image": None, "text": ({"_type": "Value"}, ["a"] * 12)}
    with pytest.raises(InputError, match=r"which column is the image\? \?image= one of label \(ClassLabel\)"):
        opened(write_parquet(tmp_path / "c", train=table(TRAIN, **words), test=table(TEST)))
    with pytest.raises(InputError, match="row 0 of column 'label' holds no image file"):
        opened(f"{write_parquet(tmp_path / 'e', **both())}?image=label").manifest()
    (tmp_path / "d" / "train").mkdir(parents=True)
    (tmp_path / "d" / "train-00000-of-00001.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match="cannot read .*train-00000-of-00001.parquet"):
        opened(write_parquet(tmp_path / "d", test=table(TEST)))


def test_the_cache_of_the_hub_is_read_without_asking_it(tmp_path, home):
    write_cache(home, REVISION, **both())
    source = opened("Owner/PetPhotos")
    assert source.manifest()["revision"] == REVISION and "revision aaaaaaaaaaaa" in source.remarks()[0]
    assert source.argument == "Owner/PetPhotos" and source.labels("test").tolist() == [0, 1, 2] * 2
    local = opened(write_parquet(tmp_path / "d", **both()))
    assert source.manifest()["content"] == local.manifest()["content"]


def test_a_revision_is_the_one_asked_for(home):
    write_cache(home, REVISION, **both())
    write_cache(home, OTHER, train=table(TRAIN[::-1]), test=table(TEST))
    assert opened("Owner/PetPhotos").manifest()["revision"] == OTHER  # the newest
    assert opened(f"Owner/PetPhotos@{REVISION[:8]}").manifest()["revision"] == REVISION
    with pytest.raises(InputError, match="not in Hugging Face's cache"):
        opened(f"Owner/PetPhotos@{'c' * 40}")
    refs = home / "hub" / "datasets--Owner--PetPhotos" / "refs"
    refs.mkdir(parents=True)
    (refs / "v1").write_text(REVISION, encoding="utf-8")
    (refs / "main").write_text(REVISION, encoding="utf-8")
    assert opened("Owner/PetPhotos@v1").manifest()["revision"] == REVISION
    assert opened("Owner/PetPhotos").manifest()["revision"] == REVISION  # what "main" was last


def test_several_configurations_are_told_apart(home):
    for config in ("small", "large"):
        write_cache(home, REVISION, config, **both())
    with pytest.raises(InputError, match=r"several configurations \(large, small\); name one with \?config="):
        opened("Owner/PetPhotos")
    assert opened("Owner/PetPhotos?config=small").argument == "Owner/PetPhotos?config=small"


def test_prepare_asks_the_hub_for_the_revision_and_reads_everything(home, monkeypatch):
    asked, said = [], []

    def load_dataset(name, config, revision):
        asked.append((name, config, revision))
        write_cache(home, REVISION, **both())

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    hf.prepare(f"Owner/PetPhotos@{REVISION}", None, said.append)
    assert asked == [("Owner/PetPhotos", None, REVISION)] and "is complete; digest" in said[-1]
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace())  # a folder of that name
    with pytest.raises(InputError, match=r'pip install "cl-bench\[hf\]"'):
        hf.prepare("Owner/PetPhotos", None, quiet)


def test_prepare_needs_no_hub_for_a_folder_and_has_no_root(tmp_path, home):
    root, said = write_parquet(tmp_path / "d", **both()), []
    hf.prepare(str(root), None, said.append)
    assert f"hf:{root} is complete" in said[-1]
    with pytest.raises(InputError, match="leave out --root"):
        hf.prepare("Owner/PetPhotos", tmp_path, quiet)


def test_what_the_library_writes_is_read(tmp_path, home):
    library = pytest.importorskip("datasets")
    if not hasattr(library, "Dataset"):
        pytest.skip("datasets is a folder here")
    features = library.Features({"image": library.Image(), "label": library.ClassLabel(names=NAMES)})
    sides = {}
    for side, numbers in (("train", TRAIN), ("test", TEST)):
        rows = {"image": [{"bytes": content(n % 3, n)} for n in numbers], "label": [n % 3 for n in numbers]}
        sides[side] = library.Dataset.from_dict(rows, features=features)
    library.DatasetDict(sides).save_to_disk(tmp_path / "saved")
    (tmp_path / "parquet").mkdir()
    for side, found in sides.items():
        found.to_parquet(tmp_path / "parquet" / f"{side}.parquet")
    own = opened(write_parquet(tmp_path / "own", **both())).manifest_digest()
    assert (
        opened(tmp_path / "saved").manifest_digest() == own == opened(tmp_path / "parquet").manifest_digest()
    )
