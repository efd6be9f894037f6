"""Pixels as a person sees them, or a refusal with its reason: whatever image files in folders hold."""

import io
import struct
import zlib

import numpy as np
import pytest
import toys
from PIL import Image

from cl_bench.errors import InputError
from cl_bench.plugins import registry

SIDE = 32
CORNER, CENTER = (0, 0), (SIDE // 2, SIDE // 2)


def folder(path):
    return registry.source_class("folder")(str(path))


def encoded(image: Image.Image, kind: str = "PNG", **settings) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return buffer.getvalue()


def square(inside, outside, dtype=np.uint8) -> np.ndarray:
    """A square of one value in the middle of another."""
    values = np.empty((SIDE, SIDE, *np.shape(inside)), dtype)
    values[:] = outside
    values[8:24, 8:24] = inside
    return values


def seen(tmp_path, content: bytes, suffix: str = ".png", others=()) -> np.ndarray:
    """The first training image of a folder, in place of which these bytes lie; `others` replace the next."""
    toys.write_folder(tmp_path, classes=2)
    for number, data in enumerate((content, *others)):
        place = tmp_path / "train" / "class_0" / f"{number:03d}.png"
        place.unlink()
        place.with_suffix(suffix).write_bytes(data)
    return folder(tmp_path).images("train").images[0]


def at(pixels: np.ndarray, place: tuple[int, int]) -> list[int]:
    return pixels[place].tolist()


@pytest.mark.parametrize(("levels", "bits"), [(200, 8), (800, 10), (3200, 12), (12800, 14), (51200, 16)])
def test_gray_of_more_than_8_bits_is_scaled_by_the_bits_that_are_used(tmp_path, levels, bits):
    pixels = seen(tmp_path, encoded(Image.fromarray(square(levels, 0, np.uint16))))
    assert at(pixels, CENTER) == [200, 200, 200] and at(pixels, CORNER) == [0, 0, 0]
    assert f"are read as {bits} bits" in " ".join(folder(tmp_path).remarks())


def test_all_images_of_a_set_have_the_depth_of_its_brightest(tmp_path):
    dark, bright = (encoded(Image.fromarray(square(level, 0, np.uint16))) for level in (160, 3200))
    assert at(seen(tmp_path, dark, others=[bright]), CENTER) == [10, 10, 10]  # 160 of 4096


def test_the_depth_that_a_file_names_is_believed(tmp_path):
    """A TIFF of 12 bits a sample, two to three bytes, and no value above 255."""
    row = bytes((100 >> 4, (100 & 15) << 4, 100)) * (SIDE // 2)
    entries = [
        (256, 3, SIDE),
        (257, 3, SIDE),
        (258, 3, 12),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 8),
        (277, 3, 1),
        (278, 3, SIDE),
        (279, 4, len(row) * SIDE),
    ]
    pixels = row * SIDE
    head = b"II*\0" + struct.pack("<I", 8 + len(pixels))
    body = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    assert (
        at(seen(tmp_path, head + pixels + struct.pack("<H", len(entries)) + body + bytes(4), ".tiff"), CENTER)
        == [100 >> 4] * 3
    )


def color_png(values: np.ndarray) -> bytes:
    """A PNG of 16 bits a color, which Pillow cannot write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(
        ">IIBBBBB", values.shape[1], values.shape[0], 16, {3: 2, 4: 6}[values.shape[2]], 0, 0, 0
    )
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def test_16_bit_colors_keep_their_upper_8_and_are_refused_where_those_say_nothing(tmp_path):
    assert at(seen(tmp_path / "a", color_png(square((51200, 25600, 0), 0, np.uint16))), CENTER) == [
        200,
        100,
        0,
    ]
    with pytest.raises(InputError, match="000.png has 16-bit colors that use 14 bits or fewer"):
        seen(tmp_path / "b", color_png(square((4000, 2000, 0), 0, np.uint16)))


def test_black_ink_whose_shape_is_in_16_bits_of_alpha_is_seen_over_white(tmp_path):
    pixels = seen(tmp_path, color_png(square((0, 0, 0, 65535), 0, np.uint16)))
    assert at(pixels, CENTER) == [0] * 3 and at(pixels, CORNER) == [255] * 3


@pytest.mark.parametrize("ink", [0, 100])
def test_a_shape_that_is_in_the_alpha_channel_alone_is_seen_over_white(tmp_path, ink):
    rgba = np.dstack([np.full((SIDE, SIDE, 3), ink, np.uint8), square(255, 0)])
    pixels = seen(tmp_path, encoded(Image.fromarray(rgba, "RGBA")))
    assert at(pixels, CENTER) == [ink] * 3 and at(pixels, CORNER) == [255] * 3


def test_half_transparent_ink_is_mixed_with_white(tmp_path):
    rgba = square((0, 100, 200, 51), (9, 9, 9, 255))  # 51 of 255 is a fifth
    assert at(seen(tmp_path, encoded(Image.fromarray(rgba, "RGBA"))), CENTER) == [204, 224, 244]


@pytest.mark.parametrize(
    "hidden",
    [
        np.dstack([np.full((SIDE, SIDE, 3), 255, np.uint8), square(255, 0)]),
        np.dstack([square((9, 9, 9), (0, 0, 0)), square(0, 0)]),
    ],
)
def test_what_would_vanish_over_white_is_refused(tmp_path, hidden):
    with pytest.raises(InputError, match="000.png shows nothing over white"):
        seen(tmp_path, encoded(Image.fromarray(hidden, "RGBA")))


def gray_with_alpha() -> bytes:
    return encoded(Image.merge("LA", [Image.new("L", (SIDE, SIDE), 30), Image.fromarray(square(255, 0))]))


def palette_with_one_transparent_color() -> bytes:
    image = Image.fromarray(square(1, 0), "P")
    image.putpalette([200, 0, 0, 30, 30, 30])
    return encoded(image, transparency=0)


def palette_with_transparencies() -> bytes:
    image = Image.fromarray(square(1, 0), "P")
    image.putpalette([200, 0, 0, 30, 30, 30])
    return encoded(image, transparency=bytes([0, 255]))


def gray_with_a_transparent_value() -> bytes:
    return encoded(Image.fromarray(square(30, 200)), transparency=200)


@pytest.mark.parametrize(
    "made",
    [
        gray_with_alpha,
        palette_with_one_transparent_color,
        palette_with_transparencies,
        gray_with_a_transparent_value,
    ],
)
def test_every_kind_of_transparency_shows_white(tmp_path, made):
    pixels = seen(tmp_path, made())
    assert at(pixels, CENTER) == [30] * 3 and at(pixels, CORNER) == [255] * 3


@pytest.mark.parametrize(
    ("kind", "settings"), [("JPEG", {"quality": 95}), ("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True})]
)
@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_images_are_turned_as_exif_says(tmp_path, kind, settings, orientation):
    """Half black above, half white below: turned by 180, 90 and 270 degrees."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.zeros((SIDE, SIDE, 3), np.uint8)
    stored[SIDE // 2 :] = 255
    pixels = seen(tmp_path, encoded(Image.fromarray(stored), kind, exif=exif, **settings), f".{kind.lower()}")
    white = {3: pixels[4, 16], 6: pixels[16, 4], 8: pixels[16, 28]}[orientation]
    black = {3: pixels[28, 16], 6: pixels[16, 28], 8: pixels[16, 4]}[orientation]
    assert white.min() > 250 and black.max() < 5


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_images_that_are_turned_keep_their_size_where_all_have_one(tmp_path, kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    for side in ("train", "test"):
        for c in "ab":
            (tmp_path / side / c).mkdir(parents=True)
            Image.new("RGB", (20, 30), (c == "a") * 99).save(tmp_path / side / c / "upright.png")
            (tmp_path / side / c / f"turned.{kind.lower()}").write_bytes(
                encoded(Image.new("RGB", (30, 20)), kind, exif=exif)
            )
    source = folder(tmp_path)
    assert source.images("train").images.shape == (4, 30, 20, 3)
    assert "2 turned as EXIF says" in source.remarks()[0]


def test_of_several_frames_the_first_is_taken_and_that_is_said(tmp_path):
    frames = [Image.new("RGB", (SIDE, SIDE), color) for color in ((255, 0, 0), (0, 255, 0))]
    pixels = seen(tmp_path, encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), ".gif")
    assert (
        at(pixels, CENTER) == [255, 0, 0] and "1 the first of several frames" in folder(tmp_path).remarks()[0]
    )


def test_cmyk_is_what_pillow_makes_of_it(tmp_path):
    pixels = seen(tmp_path, encoded(Image.new("CMYK", (SIDE, SIDE), (0, 255, 255, 0)), "TIFF"), ".tiff")
    assert at(pixels, CENTER) == [255, 0, 0] and "1 converted from CMYK" in folder(tmp_path).remarks()[0]


def floats() -> bytes:
    return encoded(Image.fromarray(square(0.5, 0.1, np.float32)), "TIFF")


def large_integers() -> bytes:
    return encoded(Image.fromarray(square(1 << 20, 0, np.int32)), "TIFF")


def negative_integers() -> bytes:
    return encoded(Image.fromarray(square(-5, 0, np.int32)), "TIFF")


@pytest.mark.parametrize("made", [floats, large_integers, negative_integers])
def test_values_without_a_known_white_are_refused(tmp_path, made):
    with pytest.raises(
        InputError, match="000.tiff has .*none is known to be white; save it with 8 or 16 bits"
    ):
        seen(tmp_path, made(), ".tiff")


def bitmap(width: int, height: int) -> bytes:
    return (
        b"BM"
        + struct.pack("<IHHI", 58, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
        + bytes(4)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [(15_000, 15_000), (2_000_000_000, 2_000_000_000), (0, 5), (1, -(2**31))])
def test_an_absurd_size_in_a_header_is_one_line_that_names_the_file(tmp_path, size):
    with pytest.raises(InputError, match="000.bmp") as error:
        seen(tmp_path, bitmap(*size), ".bmp")
    assert "\n" not in str(error.value)


def test_changed_conventions_make_another_manifest(tmp_path, monkeypatch):
    from cl_bench.datasets import folder as module

    toys.write_folder(tmp_path, classes=2)
    before = folder(tmp_path).manifest_digest()
    monkeypatch.setattr(module, "CONVENTION", "seen otherwise")
    assert folder(tmp_path).manifest_digest() != before


@pytest.mark.filterwarnings("ignore")
def test_mangled_images_of_every_format_are_one_line_or_decoded(tmp_path):
    rng = np.random.default_rng(0)
    picture = Image.fromarray(toys.images(1, 2, 0, SIDE).images[0])
    from cl_bench.data.decode import as_seen, measure

    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "ICO", "TGA", "PCX"):
        whole = encoded(picture, kind)
        for attempt in range(12):
            data = bytearray(whole)
            for place in rng.integers(0, min(len(data), 200), 4):
                data[place] = int(rng.integers(256))
            path = tmp_path / f"{attempt}.{kind.lower()}"
            path.write_bytes(data if attempt % 3 else data[: int(rng.integers(len(data)))])
            try:
                measure(path)
                image, _ = as_seen(path, path.read_bytes(), 16)
                assert image.mode == "RGB"
            except InputError as error:
                assert str(path) in str(error) and "\n" not in str(error)
