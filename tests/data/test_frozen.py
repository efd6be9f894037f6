"""Features of frozen networks: computed once a class, the same whoever asks, kept on disk and verified."""

import json

import numpy as np
import pytest
import torch

from cl_bench.data.feature_store import FeatureStore, features_folder
from cl_bench.data.frozen import BATCH, FrozenFeatures
from cl_bench.errors import InputError

LABELS = np.array([1, 0, 1, 2, 0, 1])


class Counting:
    """A network that gives an image its own number, twice where it is normed, and counts what passes."""

    def __init__(self, weights_sha256="one"):
        self.weights_sha256, self.passed = weights_sha256, 0

    def frozen_features(self, images, normed=True):
        self.passed += len(images)
        return torch.stack([images * (1 + normed), images**2], dim=1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "cache"))


def features(store=None, labels=LABELS):
    return FrozenFeatures(labels, lambda rows: torch.from_numpy(rows).float(), store)


def asked(found, network, rows, normed=True):
    return found.at(np.array(rows)).of(network, normed)[:, 0].tolist()


def test_each_image_passes_once_with_all_of_its_class():
    network, found = Counting(), features()
    assert asked(found, network, [2]) == [4] and network.passed == 3
    assert asked(found, network, [5, 0, 3]) == [10, 0, 6] and network.passed == 4
    assert asked(found, network, [4, 1, 2]) == [8, 2, 4] and network.passed == 6
    assert asked(found, network, [4], normed=False) == [4] and network.passed == 8
    assert found.borrowed_seconds == 0


def test_a_large_class_passes_in_parts():
    network = Counting()
    found = features(labels=np.zeros(2 * BATCH + 1, int))
    assert asked(found, network, [2 * BATCH, 0]) == [4 * BATCH, 0] and network.passed == 2 * BATCH + 1


def test_networks_are_told_apart_and_forgotten_with_them():
    one, two, found = Counting(), Counting("two"), features(FeatureStore({"images": "x"}))
    assert asked(found, one, [3]) == asked(found, two, [3]) and one.passed == two.passed == 1


def test_another_run_takes_what_is_on_disk_and_counts_what_it_took(monkeypatch):
    store, network = FeatureStore({"images": "x"}), Counting()
    slow = network.frozen_features

    def frozen_features(images, normed=True):
        clock[0] += 7.0
        return slow(images, normed)

    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(network, "frozen_features", frozen_features)
    first = features(store)
    assert asked(first, network, [0, 1]) == [0, 2] and first.borrowed_seconds == 0
    again = features(FeatureStore({"images": "x"}))
    assert asked(again, network, [1, 0]) == [2, 0] and network.passed == 5
    assert again.borrowed_seconds == 14.0


@pytest.mark.parametrize(
    ("images", "network", "normed"),
    [({"images": "y"}, "one", True), ({"images": "x"}, "two", True), ({"images": "x"}, "one", False)],
)
def test_other_images_weights_or_layers_find_nothing(images, network, normed):
    asked(features(FeatureStore({"images": "x"})), Counting(), [3])
    other = Counting(network)
    asked(features(FeatureStore(images)), other, [3], normed)
    assert other.passed == 1


def test_a_network_without_a_digest_leaves_no_file():
    asked(features(FeatureStore({"images": "x"})), Counting(None), [3])
    assert not features_folder().exists()


def stored():
    """The only file of features, after class 1 was asked for."""
    asked(features(FeatureStore({"images": "x"})), Counting(), [0])
    [path] = features_folder().glob("*/*.safetensors")
    return path


def changed(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: changed(path, -1),
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no tensors"),
    ],
    ids=["another value", "cut", "empty", "something else"],
)
def test_a_damaged_file_is_made_anew(harm):
    path = stored()
    whole = path.read_bytes()
    harm(path)
    network = Counting()
    assert asked(features(FeatureStore({"images": "x"})), network, [2]) == [4] and network.passed == 3
    assert len(path.read_bytes()) == len(whole)
    again = Counting()
    assert asked(features(FeatureStore({"images": "x"})), again, [2]) == [4] and again.passed == 0


def test_its_folder_says_what_it_holds():
    path = stored()
    assert path.name == "1.safetensors"
    key = json.loads((path.parent / "key.json").read_text())
    assert key == {"images": "x", "weights": "one", "normed": True}


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CL_BENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="cannot keep features in .*; set CL_BENCH_CACHE to a writable"):
        asked(features(FeatureStore({"images": "x"})), Counting(), [0])
