"""Glyphs, the embedded smoke benchmark: 200 classes, each a character of the DejaVu fonts on ruled paper.

There are 60 training and 20 test images a class, 24x24 RGB, colored ink on uneven colored paper, composed
from gray masks that ship with the package (Bitstream Vera / DejaVu font license,
`glyphs_data/LICENSE_DEJAVU`). The backbone was pre-trained on other characters and on plain paper, so that it
has to adapt: `_glyphs_compose.py` says how the ruling was chosen. The benchmark shows that an installation
works and tells methods apart in minutes; its numbers are not comparable with those of photographs.
"""

import hashlib
import tomllib
import unicodedata
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from cl_bench.datasets._glyphs_compose import IMAGE_SIZE, PRETRAINING, RULED, Style, Uniforms, compose

from cl_bench.config import BackboneSpec
from cl_bench.data.cache import cached_arrays
from cl_bench.data.images import ImageSet
from cl_bench.data.source import Source
from cl_bench.errors import InputError

DATA = Path(__file__).resolve().parent / "glyphs_data"
BENCHMARK_CLASSES = 200
TEST_PER_CLASS = 20
TRAIN_STREAM, TEST_STREAM, PRETRAINING_STREAM, PRETRAINING_TEST_STREAM = 1, 2, 3, 4
COMPOSER_VERSION = 2  # raise it when composed pixels change
PASSES = {"passes": 4, "batch": 32}
SUMMARY = "smoke benchmark: 200 DejaVu characters on ruled paper, 24x24, no download"


@cache
def masks() -> tuple[np.ndarray, np.ndarray]:
    """The shipped code points (n,) and gray masks (n, 12 faces, 28, 28) uint8."""
    with np.load(DATA / "masks.npz") as arrays:
        return arrays["codes"], arrays["masks"]


@cache
def masks_digest() -> str:
    """sha256 of the decoded masks and their code points."""
    codes, gray = masks()
    return hashlib.sha256(codes.astype("<i4").tobytes() + gray.tobytes()).hexdigest()


def split_codes() -> tuple[list[int], list[int]]:
    """(benchmark, pre-training) code points, ascending: 200, and all others.

    The 200 are those with the smallest sha256 of their hexadecimal name.
    """
    codes = [int(code) for code in masks()[0]]
    ranked = sorted(codes, key=lambda code: hashlib.sha256(f"{code:04X}".encode()).hexdigest())
    return sorted(ranked[:BENCHMARK_CLASSES]), sorted(ranked[BENCHMARK_CLASSES:])


def class_images(
    code: int, stream: int, count: int, pass_index: int = 0, style: Style = PRETRAINING
) -> np.ndarray:
    """`count` images (count, 24, 24, 3) uint8 of a character; each (stream, pass, character) draws anew."""
    codes, gray = masks()
    return compose(gray[int(np.searchsorted(codes, code))], style, count, Uniforms(stream, pass_index, code))


class Glyphs(Source):
    """The benchmark's images; composing takes seconds, once, and is kept in the user's cache folder."""

    name = "glyphs"
    smoke = True
    TEMPLATES: ClassVar[tuple[str, ...]] = ("{}",)  # words of a sentence are those of names, such as "a"
    style: ClassVar[Style] = RULED
    train_per_class: ClassVar[int] = 60
    # One number of passes for all. Rates are the best of those tried on held-out training images after ten
    # tasks (results/bench/glyphs-rates.csv): 0.001 ... 0.1 in threefold steps, of the plainest method of a
    # family, half of the images learned but for VPT-Seq; of methods that are named below, two to four rates
    # of the method itself (VPT-CPG's is VPT-Seq's, SSIAT's its default). RanPAC's makes no difference, and
    # 128 features need no 10,000 projections.
    # VPT's temperature: 2 and 4 were tried on turned characters, 4 and 8 on ruled paper, with VPT-Joint.
    # APG's other settings are of plain paper; 17 tokens take fewer prompts.
    PRESET = {
        "vpt-*": {**PASSES, "learning_rate": 0.03, "temperature": 4.0, "epoch_mode": "plain"},
        "l2p*": {**PASSES, "learning_rate": 0.01},
        "dualp*": {**PASSES, "learning_rate": 0.03},
        "coda-prompt": {**PASSES, "learning_rate": 0.01},
        **dict.fromkeys(("seq-lora", "joint-lora"), {**PASSES, "learning_rate": 0.003}),
        "seq-adapter": {**PASSES, "learning_rate": 0.03},
        **dict.fromkeys(("seq-ft", "joint-ft", "linear-probe"), {**PASSES, "learning_rate": 0.01}),
        **dict.fromkeys(("aper", "slca", "mos", "tuna"), {**PASSES, "learning_rate": 0.1}),
        "sd-lora": {**PASSES, "learning_rate": 0.08},
        "lora-drs": {**PASSES, "learning_rate": 0.005},
        "cl-lora": {**PASSES, "learning_rate": 0.3},
        "arcl-vit": {**PASSES, "epoch_mode": "plain", "temperature": 4.0, "learning_rate": 0.03},
        "ssiat": {**PASSES, "later_passes": 4},
        "sema": {**PASSES, "learning_rate": 0.05, "descriptor_passes": 4, "scan_batch": 32},
        "hide-prompt": {
            **PASSES,
            "learning_rate": 0.03,
            "tii_rate": 0.0005,
            "tii_passes": 4,
            "step_passes": 2,
        },
        "ranpac": {**PASSES, "learning_rate": 0.01, "projection": 1000},
        "inflora": {**PASSES, "learning_rate": 0.01},
        **dict.fromkeys(("lae", "c-ln"), {**PASSES, "learning_rate": 0.003}),
        "ovor": {**PASSES, "learning_rate": 0.03, "outlier_passes": 1},
        "cprompt": {**PASSES, "learning_rate": 0.1, "prompts": 5},
        "evoprompt": {**PASSES, "learning_rate": 0.01},
        "esn": {**PASSES, "batch": 8, "learning_rate": 0.01, "prompts": 10},
        "ease": {**PASSES, "learning_rate": 0.1},
        "apg": {
            **PASSES,
            "learning_rate": 0.01,
            "start_rate": 1e-4,
            "end_rate": 1e-4,
            "warm_up": 1,
            "samples": 100,
            "library_batch": 512,
            "refine_passes": 5,
            "refine_growth": 1,
            "refine_learning_rate": 0.003,
            "refine_start_rate": 1e-4,
            "refine_end_rate": 1e-4,
        },
    }

    def __init__(self, argument: str | None = None):
        if argument is not None:
            advice = f"write --dataset {self.name}"
            raise InputError(f"data set {self.name} takes no argument, got {argument!r}; {advice}")
        self._codes = split_codes()[0]
        self.class_names = [f"U+{code:04X} {unicodedata.name(chr(code), 'unnamed')}" for code in self._codes]

    def text_names(self) -> list[str]:
        """The characters' Unicode names."""
        return [unicodedata.name(chr(code), "unnamed").lower() for code in self._codes]

    def manifest(self) -> dict:
        """What fixes every pixel: the masks' digest, the composer's version, the style, the counts."""
        return {
            "masks": masks_digest(),
            "composer": COMPOSER_VERSION,
            "style": asdict(self.style),
            "classes": len(self._codes),
            "per_class": [self.train_per_class, TEST_PER_CLASS],
            "image_size": IMAGE_SIZE,
        }

    def images(self, side: str) -> ImageSet:
        """The training or the test images, class after class."""
        sides = {"train": (TRAIN_STREAM, self.train_per_class), "test": (TEST_STREAM, TEST_PER_CLASS)}
        stream, count = sides[side]

        def build() -> dict[str, np.ndarray]:
            parts = [class_images(code, stream, count, style=self.style) for code in self._codes]
            return {"images": np.concatenate(parts)}

        arrays = cached_arrays({"source": self.name, "side": side, **self.manifest()}, build)
        return ImageSet(arrays["images"], np.repeat(np.arange(len(self._codes)), count))

    def default_backbone(self) -> str:
        """The ViT pre-trained on the other characters."""
        return "glyphs-vit"


def glyphs_vit() -> BackboneSpec:
    """The shipped ViT (24 px, patch 6), pre-trained on the other characters as glyphs_data/vit.toml says."""
    recipe = tomllib.loads((DATA / "vit.toml").read_text(encoding="utf-8"))
    return BackboneSpec(
        name="glyphs-vit",
        architecture=recipe["architecture"],
        weights=str(DATA / "vit.safetensors"),
        image_size=IMAGE_SIZE,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    )


def glyphs_vit_and_words() -> BackboneSpec:
    """The same ViT beside a text tower of words in names, made as `_glyphs_words.py` says."""
    alone = glyphs_vit()
    read = {"name": f"{alone.name}+glyphs-words", "text_weights": str(DATA / "words.safetensors")}
    return alone.model_copy(update=read)


SOURCE = Glyphs
BACKBONES = {"glyphs-vit": glyphs_vit, "glyphs-vit+glyphs-words": glyphs_vit_and_words}
