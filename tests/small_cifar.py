"""CIFAR-100's archive with few images of a few classes, pickled as the authors' is."""

import hashlib
import pickle

import numpy as np
import toys
from cl_bench.datasets.cifar100 import FOLDER
from listed_archives import tar_of

COUNTS = {"train": (3, 0), "test": (2, 1)}  # images a class, and what they are drawn from


def archive(names: list[str]) -> tuple[bytes, dict[str, str]]:
    """The archive, and the md5 of each of its files; class names as many as there are classes."""
    files = {"meta": pickle.dumps({"fine_label_names": names, "coarse_label_names": ["x"]})}
    for side, (count, seed) in COUNTS.items():
        made = toys.images(count, len(names), seed, 32)
        order = np.random.default_rng(seed).permutation(len(made.labels))
        data = made.images[order].transpose(0, 3, 1, 2).reshape(len(order), -1)
        labels = {"fine_labels": made.labels[order].tolist(), "coarse_labels": [0] * len(order)}
        files[side] = pickle.dumps({"data": data, **labels})
    packed = tar_of({f"{FOLDER}/{name}": content for name, content in files.items()}, "w:gz")
    return packed, {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
