"""The NSP² paper's report, its published numbers, and the settings of runs that may stand beside them."""

from pathlib import Path

from cl_bench import presets
from cl_bench.config import BackboneSpec, Transform

PAPER = Path(__file__).resolve().parents[1] / "reports" / "nsp2-paper.toml"
PUBLISHED = f'published = "{PAPER.parent.parent / "results" / "published" / "nsp2.toml"}"\n'
AUGREG = BackboneSpec(
    name="vit_base_patch16_224.augreg_in21k", image_size=224, mean=(0.5,) * 3, std=(0.5,) * 3
)
CIFAR = Transform(augment="autoaugment-cifar10")
IMAGENET = Transform(
    augment="autoaugment-imagenet",
    crop_interpolation="bilinear",
    resize="squash-crop",
    interpolation="bilinear",
)


def as_published(method, benchmark, **own):
    """The paper's settings of a method, and its own."""
    found = presets.load("nsp2-paper").settings(method, benchmark)
    return {**{key: setting.value for key, setting in found.items() if key != "backbone"}, **own}
