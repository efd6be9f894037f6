"""Fits the text tower that stands beside the glyph backbone, on the characters outside the benchmark.

    python -m cl_bench.datasets._glyphs_words OUTPUT_FOLDER

A character's name is the set of its words, as in "latin small letter a with acute"; ridge regression takes
these to the mean of its images' normalized features in the backbone, on plain paper. So the names of the
benchmark's characters lie near what the backbone makes of characters that share words with them.
"""

import sys
import unicodedata
from pathlib import Path

import torch
from cl_bench.datasets._glyphs_pretrain import as_input
from cl_bench.datasets.glyphs import PRETRAINING_STREAM, class_images, glyphs_vit, split_codes
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from cl_bench.nn import load
from cl_bench.nn.words import WordTower

IMAGES_PER_CLASS = 20
RIDGE = 1.0


def fit(names: list[str], features: Tensor) -> dict[str, Tensor]:
    """The state of a `WordTower` that is nearest to features (K, E) of these names, with a ridge on words."""
    words = sorted({word for name in names for word in name.lower().split()})
    center = features.mean(0)
    state = {
        "words": torch.tensor(list(" ".join(words).encode()), dtype=torch.uint8),
        "vectors": features.new_zeros(len(words), features.shape[1]),
        "center": center,
    }
    x = WordTower(state).counts(names).to(features)
    mean = x.mean(0)
    x = x - mean
    state["vectors"] = torch.linalg.solve(
        x.T @ x + RIDGE * torch.eye(len(words)).to(x), x.T @ (features - center)
    )
    state["center"] = center - mean @ state["vectors"]
    return state


def class_means(codes: list[int]) -> Tensor:
    """Means (K, D), in fp64, of the normalized features of freshly composed images of characters."""
    backbone, means = load.load(glyphs_vit()), []
    with torch.inference_mode():
        for code in codes:
            images = as_input(class_images(code, PRETRAINING_STREAM, IMAGES_PER_CLASS))
            means.append(F.normalize(backbone.features(images).double(), dim=1).mean(0))
    return torch.stack(means)


def main(folder: Path) -> None:
    """Write words.safetensors into the folder, vectors in fp16."""
    codes = split_codes()[1]
    state = fit([unicodedata.name(chr(code), "unnamed") for code in codes], class_means(codes))
    packed = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    save_file({name: value.contiguous() for name, value in packed.items()}, folder / "words.safetensors")
    print(f"{len(state['vectors'])} words of {len(codes)} names")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
