"""Which of torchvision's classification sets have published sides, and what these are made of."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cl_bench.errors import InputError

TRAIN, VAL, TEST = {"split": "train"}, {"split": "val"}, {"split": "test"}
TRAINVAL = {"split": "trainval"}
BY_TRAIN = ({"train": True},), ({"train": False},)
BY_SPLIT = (TRAIN,), (TEST,)
THREE = (TRAIN, VAL), (TEST,)  # what is for validation is learned too
CARS = "devkit/, cars_train/, cars_test/ and cars_test_annos_withlabels.mat"
IMAGENET = "meta.bin, train/ and val/, which torchvision.datasets.ImageNet makes of the archives,"


@dataclass(frozen=True)
class TorchvisionSet:
    """A class of torchvision.datasets: arguments of its training and test sides, and where its files are."""

    sides: tuple[tuple[dict, ...], tuple[dict, ...]]  # of each side, arguments of the parts that it joins
    folder: str  # below the root, "" where files lie in the root itself
    # files that hold images as arrays, below the folder; () where every image is a file
    files: tuple[str, ...] = ()
    by_hand: str = ""  # what one has to place in the folder oneself, where torchvision downloads nothing


IDX = ("*-ubyte",)
SETS = {
    "Food101": TorchvisionSet(BY_SPLIT, "food-101"),
    "StanfordCars": TorchvisionSet(BY_SPLIT, "stanford_cars", by_hand=CARS),
    "FGVCAircraft": TorchvisionSet(((TRAINVAL,), (TEST,)), "fgvc-aircraft-2013b"),
    "Flowers102": TorchvisionSet(THREE, "flowers-102"),
    "DTD": TorchvisionSet(THREE, "dtd"),  # the first of its ten partitions
    "OxfordIIITPet": TorchvisionSet(((TRAINVAL,), (TEST,)), "oxford-iiit-pet"),
    "Country211": TorchvisionSet(((TRAIN, {"split": "valid"}), (TEST,)), "country211"),
    "GTSRB": TorchvisionSet(BY_SPLIT, "gtsrb"),
    "RenderedSST2": TorchvisionSet(THREE, "rendered-sst2"),
    # those for tests have no labels
    "CLEVRClassification": TorchvisionSet(((TRAIN,), (VAL,)), "clevr"),
    "Imagenette": TorchvisionSet(((TRAIN,), (VAL,)), "imagenette2"),
    "ImageNet": TorchvisionSet(((TRAIN,), (VAL,)), "", by_hand=IMAGENET),
    "Places365": TorchvisionSet(
        (({"split": "train-standard", "small": True},), ({"split": "val", "small": True},)), ""
    ),
    "CIFAR10": TorchvisionSet(BY_TRAIN, "cifar-10-batches-py", ("data*", "test*", "batches.meta")),
    "CIFAR100": TorchvisionSet(BY_TRAIN, "cifar-100-python", ("train", "test", "meta")),
    "MNIST": TorchvisionSet(BY_TRAIN, "MNIST/raw", IDX),
    "FashionMNIST": TorchvisionSet(BY_TRAIN, "FashionMNIST/raw", IDX),
    "KMNIST": TorchvisionSet(BY_TRAIN, "KMNIST/raw", IDX),
    "EMNIST": TorchvisionSet(
        (({"split": "balanced", "train": True},), ({"split": "balanced", "train": False},)),
        "EMNIST/raw", ("emnist-balanced-*-ubyte",),
    ),
    "SVHN": TorchvisionSet(BY_SPLIT, "", ("train_32x32.mat", "test_32x32.mat")),
    "STL10": TorchvisionSet(BY_SPLIT, "stl10_binary", ("train_*.bin", "test_*.bin", "class_names.txt")),
    "USPS": TorchvisionSet(BY_TRAIN, "", ("usps.bz2", "usps.t.bz2")),
}  # fmt: skip
NO_SIDES = "it has no published training and test sides; make folders of it and use folder:PATH"
NOT_HERE = {
    "Caltech101": NO_SIDES, "Caltech256": NO_SIDES, "EuroSAT": NO_SIDES, "SUN397": NO_SIDES,
    "SEMEION": NO_SIDES, "Omniglot": "its two sides have different classes",
    "INaturalist": "only one of its versions has labels for tests; use folder:PATH",
    "CelebA": "its images have many labels each", "LFWPeople": "its two sides have different classes",
    "QMNIST": "it is MNIST with more test images; use torchvision:MNIST",
    "PCAM": "its images are not files that other libraries than h5py read; use folder:PATH",
    "FER2013": "its test images have no published labels in every edition; use folder:PATH",
}  # fmt: skip
LISTS = ("_image_files", "_images", "_samples", "samples", "imgs")  # of files, in torchvision's classes
LABELS = ("_labels", "targets", "labels")


def paths_of(part: Any) -> list[Path]:
    """The files of a torchvision data set, one an image."""
    found = next(getattr(part, name) for name in LISTS if hasattr(part, name))
    return [Path(item[0] if isinstance(item, tuple) else item) for item in found]


def _labels_of(part: Any) -> np.ndarray:
    for name in LISTS:
        found = getattr(part, name, None)
        if found and isinstance(found[0], tuple):
            return np.array([label for _, label in found])
    return np.asarray(next(getattr(part, name) for name in LABELS if hasattr(part, name)))


def labels_and_names(parts: dict[str, list]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Labels of both sides from 0 on, and the classes' names: torchvision's, or else its numbers."""
    own = {side: np.concatenate([_labels_of(part) for part in each]) for side, each in parts.items()}
    known = {str(getattr(part, "classes", "")): part for part in chain(*parts.values())}
    if len(known) > 1:
        raise InputError("its parts have different classes; unpack its archives anew")
    classes = getattr(parts["train"][0], "classes", None)
    if classes:
        return {side: found.astype(np.int64) for side, found in own.items()}, _names(classes)
    numbers = np.unique(np.concatenate(list(own.values())))
    return {side: np.searchsorted(numbers, found) for side, found in own.items()}, [str(n) for n in numbers]


def _names(classes: Sequence) -> list[str]:
    """One name a class: the first of synonyms, all of them where two are alike, "zero" of "0 - zero"."""
    synonyms = [[name] if isinstance(name, str) else list(name) for name in classes]
    first = [re.sub(r"^\d - ", "", names[0]) for names in synonyms]
    names = [
        ", ".join(names) if first.count(own) > 1 else own for own, names in zip(first, synonyms, strict=True)
    ]
    return [f"{own} ({place})" if names.count(own) > 1 else own for place, own in enumerate(names)]
