"""What `gpu_day.py` needs and can make without a network: images, and random weights of its network."""

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

SIDES = ("train", "test")


def write_images(folder: Path, archive: Path | None, classes: int, per_class: dict[str, int]) -> str:
    """Write the files of the data set `day-images`, and say what the images are.

    They are those of an archive of CIFAR-100 (`train/<class>/*.webp` and `test/`) where there is one.
    """
    names, sides = _generated(classes, per_class) if archive is None else _read(archive, classes, per_class)
    folder.mkdir(parents=True)
    (folder / "classes.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    for side, images in zip(SIDES, sides, strict=True):
        np.save(folder / f"{side}.npy", images)
    return "generated" if archive is None else f"of CIFAR-100, from {archive.name}"


def _generated(classes: int, per_class: dict[str, int]) -> tuple[list[str], list[np.ndarray]]:
    """Noise around a color of each class."""
    rng, sides = np.random.default_rng(0), []
    colors = rng.integers(40, 215, (classes, 1, 1, 1, 3))
    for side in SIDES:
        noise = rng.integers(-40, 41, (classes, per_class[side], 32, 32, 3), dtype=np.int16)
        sides.append((colors + noise).astype(np.uint8).reshape(-1, 32, 32, 3))
    return [f"class {index}" for index in range(classes)], sides


def _read(archive: Path, classes: int, per_class: dict[str, int]) -> tuple[list[str], list[np.ndarray]]:
    """The first images of the first classes of an archive."""
    with zipfile.ZipFile(archive) as file, ThreadPoolExecutor() as threads:
        members: dict[tuple[str, str], list[str]] = {}
        for name in file.namelist():
            side, label, _ = name.split("/")
            members.setdefault((side, label), []).append(name)
        labels = sorted({label for _, label in members})[:classes]

        def decoded(name: str) -> np.ndarray:
            return np.asarray(Image.open(io.BytesIO(file.read(name))).convert("RGB"))

        sides = []
        for side in SIDES:
            wanted = [name for label in labels for name in sorted(members[side, label])[: per_class[side]]]
            sides.append(np.stack(list(threads.map(decoded, wanted, chunksize=64))))
    return labels, sides


def write_weights(path: Path, backbone: str) -> None:
    """Random weights of a timm network, on which no speed depends."""
    torch.manual_seed(0)
    model = timm.create_model(backbone.partition(".")[0], pretrained=False, num_classes=0)
    save_file(model.state_dict(), path)
