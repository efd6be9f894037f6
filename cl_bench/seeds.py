"""Random numbers that depend on what they are for, never on what was drawn before.

Any task can therefore be resumed without the state of a generator.
"""

import hashlib
from typing import cast

import numpy as np
import torch


def derived_seed(*key: int | str) -> int:
    """A 63-bit seed from the first bytes of the sha256 of the key."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """A CPU generator for this key."""
    return torch.Generator().manual_seed(derived_seed(*key))


def permutation(length: int, *key: int | str) -> np.ndarray:
    """A uniformly random order of 0..length-1 for this key."""
    return np.random.Generator(np.random.PCG64(derived_seed(*key))).permutation(length)


def choices(indices: np.ndarray, choices: int, *key: int | str) -> np.ndarray:
    """One of 0..choices-1 for each index (n,), whatever other indices are asked for beside it."""
    return (choices * uniforms(indices, 1, *key)[:, 0]).astype(np.int64)


def uniforms(indices: np.ndarray, draws: int, *key: int | str | np.ndarray) -> np.ndarray:
    """Counter-based numbers in [0, 1), (len(indices), draws): row i depends on the key and indices[i] alone.

    The last part of the key may be an array with a value for every row. The mixing is splitmix64's.
    """
    counter = indices.astype(np.uint64)[:, None] * np.uint64(draws) + np.arange(draws, dtype=np.uint64)
    first, last = cast(tuple[int | str, ...], key[:-1]), key[-1]
    if isinstance(last, np.ndarray):
        values, rows = np.unique(last, return_inverse=True)
    else:
        values, rows = np.array([last], object), np.zeros(1, int)
    starts = np.array([derived_seed(*first, value) for value in values.tolist()], np.uint64)
    z: np.ndarray = starts[rows.ravel()][:, None] + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
