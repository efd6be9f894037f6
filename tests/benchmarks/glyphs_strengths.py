"""What chose the embedded benchmark's rendition: bounds of every candidate, on held-out training images.

    python tests/benchmarks/glyphs_strengths.py [--only ruled-0.2,turned] [--seeds 2024,2025,2026]
        [--measures simplecil,linear-probe,vpt-joint,vpt-seq] [--jobs 2] [--out FILE.json]

The rules stand in `datasets/_glyphs_compose.py`; `results/bench/glyphs-strengths.json` holds the whole grid:
the search, with one seed, settings of its own that stand beside each number, and changes drawn by a first
form of this script (a turn inside the composer, not of the masks), then the chosen one with three seeds.
Of every class's training images a quarter is held out by seed, as with `cl-bench run --validation 0.25`; no
test image is composed. Settings are those of `--dataset glyphs`.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from cl_bench.datasets import _glyphs_compose as composing
from cl_bench.datasets import glyphs

from cl_bench import seeds
from cl_bench.config import Transform
from cl_bench.data.images import ImageSet
from cl_bench.data.order import class_order, cut
from cl_bench.data.preprocess import Preprocess
from cl_bench.data.stream import Sides, Stream, StreamInfo
from cl_bench.data.subset import held_out
from cl_bench.nn import load
from cl_bench.plugins import registry
from cl_bench.records import metrics
from cl_bench.training.trainer import Trainer

SIZE, VALIDATION, TASKS = composing.IMAGE_SIZE, 0.25, 10
MARGIN = 8  # pixels of paper around a mask that is turned, so that no corner is cut
MEASURES = ("simplecil", "linear-probe", "vpt-joint", "vpt-seq")
ROWS, COLUMNS = np.arange(SIZE)[:, None], np.arange(SIZE)[None, :]


def same(array: np.ndarray) -> np.ndarray:
    """Masks or images as they are."""
    return array


def turned(degrees: float, shear: float = 0.0, mirrored: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    """Masks (n, S, S) on a larger square, turned and then sheared."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    plane = np.array([[cosine, -sine], [sine, cosine]]) @ np.array([[1, 0], [shear, 1]])
    plane = plane @ np.diag([1.0, -1.0 if mirrored else 1.0])

    def change(masks: np.ndarray) -> np.ndarray:
        wide = np.pad(masks.astype(np.float64), ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
        middle = (wide.shape[-1] - 1) / 2
        y, x = (place - middle for place in np.mgrid[: wide.shape[-1], : wide.shape[-1]].astype(float))
        places = [row[0] * y + row[1] * x + middle for row in plane]
        return composing.bilinear(wide, *(np.broadcast_to(place, wide.shape) for place in places))

    return change


def outlined(masks: np.ndarray) -> np.ndarray:
    """The difference of the brightest and the darkest of nine neighbors."""
    size, wide = masks.shape[-1], np.pad(masks.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    near = np.stack([wide[:, dy : dy + size, dx : dx + size] for dy in range(3) for dx in range(3)])
    return near.max(0) - near.min(0)


def embossed(masks: np.ndarray) -> np.ndarray:
    """Light from one corner: a mask less itself two pixels away, so that ink is brighter or darker."""
    size, wide = masks.shape[-1], np.pad(masks.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    return wide[:, 2:, 2:][:, :size, :size] - wide[:, :size, :size]


def printed(pattern: np.ndarray, strength: float) -> Callable[[np.ndarray], np.ndarray]:
    """Images with the same pattern (24, 24) of so many gray levels on each."""

    def change(images: np.ndarray) -> np.ndarray:
        levels = (pattern.astype(np.float64) - 0.5)[..., None] * (strength * 255)
        return np.clip(np.rint(images + levels), 0, 255).astype(np.uint8)

    return change


def coarse(images: np.ndarray) -> np.ndarray:
    """Pixels of twice the size."""
    small = images.reshape(len(images), SIZE // 2, 2, SIZE // 2, 2, 3).mean((2, 4))
    return np.rint(small).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)


def cluttered(strokes: int, patch: float) -> Callable[[np.ndarray], np.ndarray]:
    """Images with strokes and a gray patch of their own each: what differs from image to image."""

    def change(images: np.ndarray) -> np.ndarray:
        draw, found = seeds.generator("clutter", int(images[0].astype(np.int64).sum())), images.copy()
        for image in found:
            for (y0, x0), (y1, x1) in (torch.rand(strokes, 2, 2, generator=draw) * SIZE).tolist():
                dy, dx = y1 - y0, x1 - x0
                along = np.clip(((ROWS - y0) * dy + (COLUMNS - x0) * dx) / (dy * dy + dx * dx + 1), 0, 1)
                away = (ROWS - y0 - along * dy) ** 2 + (COLUMNS - x0 - along * dx) ** 2
                image[away < 1] = int(torch.randint(256, (), generator=draw))
            half, middle = (torch.rand(2, 2, generator=draw) * SIZE).tolist()
            inside = abs(ROWS - middle[0]) < half[0] * patch / 2
            image[inside & (abs(COLUMNS - middle[1]) < half[1] * patch / 2)] = 128
        return found

    return change


@dataclass(frozen=True)
class Candidate:
    """How the images of a class come about; several changes of the masks take turns."""

    style: composing.Style = composing.PLAIN
    masks: tuple[Callable[[np.ndarray], np.ndarray], ...] = (same,)
    images: Callable[[np.ndarray], np.ndarray] = same

    def compose(self, code: int, count: int) -> np.ndarray:
        """Training images (count, 24, 24, 3) of a character."""
        codes, gray = glyphs.masks()
        upright, found = gray[int(np.searchsorted(codes, code))], []
        for place, change in enumerate(self.masks):
            masks = change(upright)
            scale = tuple(end * masks.shape[-1] / upright.shape[-1] for end in self.style.scale)
            style, each = replace(self.style, scale=scale), count // len(self.masks)
            uniforms = composing.Uniforms(glyphs.TRAIN_STREAM, place, code)
            found.append(composing.compose(masks, style, each, uniforms))
        return self.images(np.concatenate(found))


SLANTED = turned(120, 0.5)
PATTERNS = {
    "diagonal": (ROWS + COLUMNS) % 6 < 3,
    "checks": (ROWS // 3 + COLUMNS // 3) % 2 == 0,
    "squares": (ROWS % 6 < 2) | (COLUMNS % 6 < 2),
    "stripes": (ROWS + COLUMNS) % 3 == 0,
    "wide": (2 * ROWS + COLUMNS) % 12 < 6,
}
CANDIDATES = {
    "plain": Candidate(),
    "turned 120, sheared 0.5": Candidate(masks=(SLANTED,)),
    "turned 120, sheared 0.7": Candidate(masks=(turned(120, 0.7),)),
    "turned 120, sheared 0.5, mirrored": Candidate(masks=(turned(120, 0.5, True),)),
    "turned 150, sheared 0.6": Candidate(masks=(turned(150, 0.6),)),
    "outline": Candidate(masks=(outlined,)),
    "emboss": Candidate(masks=(embossed,)),
    "hatched": Candidate(images=printed(PATTERNS["stripes"], 0.3)),
    "coarse": Candidate(images=coarse),
    "turned ink and turned outline": Candidate(masks=(SLANTED, lambda masks: outlined(SLANTED(masks)))),
    "turned outline": Candidate(masks=(lambda masks: SLANTED(outlined(masks)),)),
    "turned emboss": Candidate(masks=(lambda masks: SLANTED(embossed(masks)),)),
    "turned coarse": Candidate(masks=(SLANTED,), images=coarse),
    "turned and upright": Candidate(masks=(SLANTED, same)),
    "turned two ways": Candidate(masks=(SLANTED, turned(240, 0.5, True))),
    "turned, 2 strokes": Candidate(masks=(SLANTED,), images=cluttered(2, 0.0)),
    "turned, 1 stroke and a patch": Candidate(masks=(SLANTED,), images=cluttered(1, 0.3)),
    **{
        f"ruled {strength}": Candidate(replace(composing.PLAIN, ruling=strength))
        for strength in (0.1, 0.15, 0.18, 0.2, 0.22, 0.25, 0.3, 0.6)
    },
    **{
        f"{name} {strength}": Candidate(images=printed(pattern, strength))
        for name, pattern in PATTERNS.items()
        for strength in (0.2, 0.6)
    },
}


@cache
def drawn(name: str) -> ImageSet:
    """All training images of a candidate."""
    count, codes = glyphs.Glyphs.train_per_class, glyphs.split_codes()[0]
    images = np.concatenate([CANDIDATES[name].compose(code, count) for code in codes])
    return ImageSet(images, np.repeat(np.arange(len(codes)), count))


def measure(job: tuple[str, str, int]) -> dict:
    """Accuracy and forgetting in percent of a method on a candidate's held-out images."""
    name, method, seed = job
    torch.set_num_threads(1)
    data, start = drawn(name), time.perf_counter()
    kept, held = held_out(data.labels, VALIDATION, seed)
    learned = data.select(kept)
    spec, kind, device = glyphs.glyphs_vit(), registry.method_class(method), torch.device("cpu")
    order = cut(class_order(int(data.labels.max()) + 1, seed), str(TASKS))
    inputs = Preprocess(spec, Transform(), seed, device)
    stream = Stream(Sides(learned, learned, data.select(held)), order, inputs, kind.joint)
    options = {k: v for k, v in glyphs.Glyphs.preset(method).items() if k in kind.Config.model_fields}
    model = kind(kind.Config(**options), load.load(spec), StreamInfo(seed, stream.num_tasks))
    correct = []
    for index in range(stream.num_tasks):
        torch.manual_seed(seeds.derived_seed(seed, "task", index))
        model.learn(stream.task(index), Trainer(seed))
        correct.append(stream.evaluate(model.predict, index + 1).correct)
    forgotten = metrics.forgetting(correct, stream.test_sizes)
    return {
        "candidate": name, "method": method, "seed": seed,
        "accuracy": round(100 * metrics.final_accuracy(correct, stream.test_sizes), 2),
        "forgetting": None if forgotten is None else round(100 * forgotten, 2),
        "options": options, "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


def main() -> None:
    """Measure and print; add to what FILE holds already."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="candidates, split at semicolons")
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--seeds", default="2024")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    chosen = asked.only.split(";") if asked.only else list(CANDIDATES)
    jobs = [
        (name, method, int(seed))
        for name in chosen
        for method in asked.measures.split(",")
        for seed in asked.seeds.split(",")
    ]
    known = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out and asked.out.exists() else []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for found in pool.map(measure, jobs):
            print(*(f"{value}" for key, value in found.items() if key != "options"), sep="\t", flush=True)
            known.append(found)
            if asked.out:
                lines = ",\n".join(json.dumps(each) for each in known)
                asked.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
