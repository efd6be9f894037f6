"""Images in folders: any format and size, every fault named in one line."""

import shutil

import numpy as np
import pytest
import toys
from PIL import Image

from cl_bench.errors import InputError
from cl_bench.plugins import registry


def folder(path):
    return registry.source_class("folder")(str(path))


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".webp", ".tiff"])
def test_lossless_formats_give_their_own_pixels_in_alphabetical_order(tmp_path, suffix):
    source = folder(toys.write_folder(tmp_path, classes=3, suffix=suffix)) if suffix != ".webp" else None
    if source is None:  # Pillow's WebP is lossy unless asked
        toys.write_folder(tmp_path, classes=3)
        for path in tmp_path.glob("*/*/*.png"):
            Image.open(path).save(path.with_suffix(".webp"), lossless=True)
            path.unlink()
        source = folder(tmp_path)
    train = source.images("train")
    expected = toys.images(6, 3, 0, 32)
    assert source.class_names == ["class_0", "class_1", "class_2"]
    assert np.array_equal(train.images, expected.images) and np.array_equal(train.labels, expected.labels)
    assert source.images("test").images.shape == (12, 32, 32, 3)


def test_grey_palette_and_transparent_images_become_rgb(tmp_path):
    toys.write_folder(tmp_path, classes=2)
    target = tmp_path / "train" / "class_0"
    for mode, name in (("L", "000.png"), ("P", "001.png"), ("RGBA", "002.png"), ("1", "003.png")):
        Image.new("RGB", (32, 32), (200, 200, 200)).convert(mode).save(target / name)
    train = folder(tmp_path).images("train")
    assert train.images.shape == (12, 32, 32, 3) and abs(int(train.images[0, 5, 5, 0]) - 200) <= 1


def test_16_bit_grey_keeps_its_levels(tmp_path):
    toys.write_folder(tmp_path, classes=2)
    Image.fromarray(np.full((32, 32), 200 * 256, np.uint16)).save(tmp_path / "train" / "class_0" / "000.png")
    assert folder(tmp_path).images("train").images[0, 5, 5].tolist() == [200, 200, 200]


def test_images_of_differing_sizes_are_brought_to_one(tmp_path):
    toys.write_folder(tmp_path, classes=2)
    Image.new("RGB", (100, 50), (10, 20, 30)).save(tmp_path / "test" / "class_1" / "big.png")
    source = folder(tmp_path)
    assert source.images("train").images.shape[1:] == source.images("test").images.shape[1:] == (256, 256, 3)
    assert source.images("test").images[-1][128, 128].tolist() == [10, 20, 30]


def test_the_identity_is_that_of_the_pixels_not_of_the_files_or_their_place(tmp_path):
    first = toys.write_folder(tmp_path / "a", classes=2)
    second = tmp_path / "b"
    shutil.copytree(first, second)
    for path in second.glob("*/*/*.png"):
        Image.open(path).save(path.with_suffix(".bmp"))
        path.unlink()
    assert folder(first).manifest_digest() == folder(second).manifest_digest()
    (second / "train" / "class_1" / "000.bmp").unlink(missing_ok=True)
    next((second / "train" / "class_1").iterdir()).unlink()
    assert folder(first).manifest_digest() != folder(second).manifest_digest()


def test_a_changed_file_is_noticed_although_the_cache_exists(tmp_path):
    toys.write_folder(tmp_path, classes=2)
    before = folder(tmp_path).manifest_digest()
    path = tmp_path / "test" / "class_0" / "000.png"
    pixels = np.array(Image.open(path))
    pixels[0, 0] ^= 255
    Image.fromarray(pixels).save(path)
    assert folder(tmp_path).manifest_digest() != before


def missing_on_test(root):
    shutil.rmtree(root / "test" / "class_1")


def missing_on_train(root):
    shutil.rmtree(root / "train" / "class_1")


def empty_class(root):
    for path in (root / "train" / "class_1").iterdir():
        path.unlink()


def truncated_image(root):
    path = root / "train" / "class_1" / "008.png"
    path.write_bytes(path.read_bytes()[:200])


def corrupt_image(root):
    (root / "test" / "class_0" / "001.png").write_bytes(b"no image at all")


def no_train_side(root):
    shutil.rmtree(root / "train")


def one_class(root):
    for side in ("train", "test"):
        shutil.rmtree(root / side / "class_1")


FAULTS = [
    (missing_on_test, "class 'class_1' is in train/ but not in test/"),
    (missing_on_train, "class 'class_1' is in test/ but not in train/"),
    (empty_class, "train/class_1 is empty"),
    (truncated_image, "cannot read image .*train/class_1/008.png"),
    (corrupt_image, "cannot read image .*test/class_0/001.png"),
    (no_train_side, "cannot read .*train: No such file"),
    (one_class, "found 1 class under train/, expected at least 2"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_every_fault_is_named_in_one_line(tmp_path, fault, message):
    toys.write_folder(tmp_path, classes=2)
    fault(tmp_path)
    with pytest.raises(InputError, match=message) as error:
        folder(tmp_path).manifest_digest()
    assert "\n" not in str(error.value)


def test_a_cache_that_was_cut_short_is_built_again(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))
    toys.write_folder(tmp_path / "data", classes=2)
    expected = folder(tmp_path / "data").images("train").images.copy()
    for path in (tmp_path / "cache").glob("*/train_images.npy"):
        path.write_bytes(path.read_bytes()[:100])
    assert np.array_equal(folder(tmp_path / "data").images("train").images, expected)


def test_a_cache_that_is_no_array_any_more_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))
    toys.write_folder(tmp_path / "data", classes=2)
    folder(tmp_path / "data").images("train")
    [path] = (tmp_path / "cache").glob("*/train_images.npy")
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(InputError, match="the image cache .* is damaged .*; remove it and repeat"):
        folder(tmp_path / "data").images("train")


def test_an_unwritable_cache_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "file"))
    toys.write_folder(tmp_path / "data", classes=2)
    with pytest.raises(InputError, match="set CL_BENCH_CACHE to a writable folder"):
        folder(tmp_path / "data").images("train")
