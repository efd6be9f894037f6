"""Chooses the glyph classes and renders their gray masks from the DejaVu fonts.

    python -m cl_bench.datasets._glyphs_masks OUTPUT_FOLDER

Run once, the result ships with the package.
"""

import sys
import unicodedata
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter

FACES = [
    f"DejaVu{family}{style}.ttf"
    for family, slant in (("Sans", "Oblique"), ("SansMono", "Oblique"), ("Serif", "Italic"))
    for style in ("", "-Bold", f"-{slant}", f"-Bold{slant}")
]
CATEGORIES = {"Lu", "Ll", "Lo", "Sm", "So", "Sc", "Nd"}
COMPARED_FACES = ("DejaVuSans.ttf", "DejaVuSerif-Bold.ttf")
LARGEST_CORRELATION = 0.80
MASK_SIZE = 28  # pixels
BLUR_SIGMA = 1.5  # pixels


def font_folder() -> Path:
    """Where the installed matplotlib keeps its DejaVu fonts."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def common_characters() -> list[int]:
    """Code points, ascending, of letters, digits, currency signs and symbols that all 12 faces draw."""
    maps = [set(FT2Font(str(font_folder() / face)).get_charmap()) for face in FACES]
    return sorted(code for code in set.intersection(*maps) if unicodedata.category(chr(code)) in CATEGORIES)


def render(code: int, face: str) -> np.ndarray:
    """The glyph's ink box, scaled to a (28, 28) uint8 mask with its aspect kept; all zero without ink."""
    font = ImageFont.truetype(str(font_folder() / face), 112, layout_engine=ImageFont.Layout.BASIC)
    canvas = Image.new("L", (320, 320), 0)
    ImageDraw.Draw(canvas).text((100, 80), chr(code), fill=255, font=font)
    box = canvas.getbbox()
    mask = np.zeros((MASK_SIZE, MASK_SIZE), np.uint8)
    if box is None:
        return mask
    glyph = canvas.crop(box)
    scale = MASK_SIZE / max(glyph.size)
    width, height = (max(2, round(side * scale)) for side in glyph.size)
    glyph = np.asarray(glyph.resize((width, height), Image.Resampling.BOX))
    top, left = (MASK_SIZE - height) // 2, (MASK_SIZE - width) // 2
    mask[top : top + height, left : left + width] = glyph
    return mask // 17 * 17  # 16 gray levels are enough and compress well


def choose(codes: list[int]) -> list[int]:
    """Drop, in ascending order, each character that correlates above 0.80 with one that is kept.

    The correlation is the mean over the compared faces.
    """
    kept_codes, kept = [], np.zeros((0, len(COMPARED_FACES), MASK_SIZE**2))
    for code in codes:
        masks = [render(code, face).astype(float) for face in COMPARED_FACES]
        blurred = np.stack([gaussian_filter(mask, BLUR_SIGMA).ravel() for mask in masks])
        centered = blurred - blurred.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(centered, axis=1, keepdims=True)
        if not norms.all():
            continue
        unit = centered / norms
        if np.einsum("kfp,fp->kf", kept, unit).mean(axis=1).max(initial=-1.0) > LARGEST_CORRELATION:
            continue
        kept_codes.append(code)
        kept = np.concatenate([kept, unit[None]])
    return kept_codes


def main(folder: Path) -> None:
    """Write masks.npz (`codes` (n,) int32, `masks` (n, 12, 28, 28) uint8) into the folder."""
    codes = choose(common_characters())
    masks = np.stack([np.stack([render(code, face) for face in FACES]) for code in codes])
    np.savez_compressed(folder / "masks.npz", codes=np.array(codes, np.int32), masks=masks)
    print(f"{len(codes)} classes x {len(FACES)} faces written to {folder / 'masks.npz'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
