"""Pre-trains the glyph backbone on the characters outside the benchmark.

    python -m cl_bench.datasets._glyphs_pretrain OUTPUT_FOLDER

Run once, the result ships with the package. Two threads, deterministic for a given torch build. Every epoch
sees freshly composed images, none twice.
"""

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from cl_bench.datasets.glyphs import (
    PRETRAINING_STREAM,
    PRETRAINING_TEST_STREAM,
    class_images,
    masks_digest,
    split_codes,
)
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional as F

from cl_bench.nn import weights as weight_files

ARCHITECTURE = {
    "img_size": 24,
    "patch_size": 6,
    "embed_dim": 128,
    "depth": 6,
    "num_heads": 4,
    "num_classes": 0,
}
RECIPE = {
    "seed": 0, "threads": 2, "epochs": 32, "images_per_class_and_epoch": 100, "batch": 128,
    "optimizer": "AdamW", "peak_learning_rate": 1.5e-3, "weight_decay": 0.05, "label_smoothing": 0.1,
    "gradient_norm_limit": 1.0, "schedule": "one-cycle, 10 % warm-up, cosine",
}  # fmt: skip
VALIDATION_PER_CLASS = 20


def epoch_images(stream: int, count: int, pass_index: int) -> np.ndarray:
    """All pre-training classes' images of an epoch, (classes * count, 24, 24, 3) uint8, class after class."""
    return np.concatenate([class_images(code, stream, count, pass_index) for code in split_codes()[1]])


def as_input(images: np.ndarray) -> torch.Tensor:
    """(N, 24, 24, 3) uint8 -> (N, 3, 24, 24) float32 in [-1, 1], the backbone's own normalization."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1.0


def train(epochs: int, report) -> tuple[VisionTransformer, float]:
    """The trained ViT and its accuracy on unseen images of the pre-training classes."""
    torch.manual_seed(RECIPE["seed"])
    torch.set_num_threads(RECIPE["threads"])
    classes, count, batch = len(split_codes()[1]), RECIPE["images_per_class_and_epoch"], RECIPE["batch"]
    vit = VisionTransformer(**ARCHITECTURE)
    head = torch.nn.Linear(vit.num_features, classes)
    parameters = [*vit.parameters(), *head.parameters()]
    rate = RECIPE["peak_learning_rate"]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=RECIPE["weight_decay"])
    steps = classes * count // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * steps, pct_start=0.1)
    labels = torch.arange(classes).repeat_interleave(count)
    with ProcessPoolExecutor(1) as pool:
        coming = pool.submit(epoch_images, PRETRAINING_STREAM, count, 0)
        for epoch in range(epochs):
            images = coming.result()
            coming = pool.submit(epoch_images, PRETRAINING_STREAM, count, epoch + 1)
            order, total = torch.randperm(len(labels)), 0.0
            for step in range(steps):
                chosen = order[step * batch : (step + 1) * batch]
                scores = head(vit(as_input(images[chosen.numpy()])))
                loss = F.cross_entropy(scores, labels[chosen], label_smoothing=RECIPE["label_smoothing"])
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, RECIPE["gradient_norm_limit"])
                optimizer.step()
                schedule.step()
                total += float(loss.detach())
            report(f"epoch {epoch + 1}/{epochs}: training loss {total / steps:.3f}")
        coming.cancel()
    vit.eval()
    test = as_input(epoch_images(PRETRAINING_TEST_STREAM, VALIDATION_PER_CLASS, 0))
    truth = torch.arange(classes).repeat_interleave(VALIDATION_PER_CLASS)
    with torch.inference_mode():
        guesses = torch.cat([head(vit(part)).argmax(1) for part in test.split(500)])
    return vit, float((guesses == truth).double().mean())


def main(folder: Path, epochs: int = RECIPE["epochs"]) -> None:
    """Write vit.safetensors (fp16) and vit.toml (architecture, recipe, accuracy, sha256) into the folder."""
    start = time.perf_counter()

    def report(line: str) -> None:
        print(f"[{time.perf_counter() - start:6.0f} s] {line}", flush=True)

    vit, accuracy = train(epochs, report)
    weights = folder / "vit.safetensors"
    save_file({name: tensor.half().contiguous() for name, tensor in vit.state_dict().items()}, weights)
    lines = ["# Written by `python -m cl_bench.datasets._glyphs_pretrain`: how vit.safetensors was made."]
    facts = {
        "validation_accuracy": round(accuracy, 4),
        "validation_images_per_class": VALIDATION_PER_CLASS,
        "pretraining_classes": len(split_codes()[1]),
        "masks_sha256": masks_digest(),
        "weights_sha256": weight_files.digest(weight_files.read(str(weights))),
        "seconds": round(time.perf_counter() - start),
        "torch": torch.__version__,
    }
    for title, table in (
        ("", facts),
        ("architecture", ARCHITECTURE),
        ("recipe", {**RECIPE, "epochs": epochs}),
    ):
        lines += [f"\n[{title}]"] if title else []
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    (folder / "vit.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print((folder / "vit.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
