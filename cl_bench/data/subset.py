"""Which training images a run learns: limits and held-out parts."""

import numpy as np

from cl_bench.errors import InputError
from cl_bench.seeds import permutation


def require_image_per_class(limit: int, classes: int) -> None:
    """Raise InputError when a limit on training images cannot give every class one."""
    if limit < classes:
        few = f"--limit {limit} leaves classes without a training image"
        raise InputError(f"{few}; give at least {classes}, one a class")


def limited(labels: np.ndarray, limit: int) -> np.ndarray:
    """Rows of at most `limit` images in all, equally many of each class but one more of the first ones."""
    classes = np.unique(labels)
    require_image_per_class(limit, len(classes))
    each, more = divmod(limit, len(classes))
    chosen = []
    for place, c in enumerate(classes):
        rows = np.flatnonzero(labels == c)
        chosen.append(rows[permutation(len(rows), "limit", int(c))[: each + (place < more)]])
    return np.sort(np.concatenate(chosen))


def held_out(labels: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(kept, held-out) rows: of every class round(fraction * n) are held out, at least one on each side."""
    kept, held = [], []
    for c in np.unique(labels):
        rows = np.flatnonzero(labels == c)
        if len(rows) < 2:
            needed = "--validation needs at least two training images of every class"
            raise InputError(f"{needed}; class {c} has {len(rows)}")
        rows = rows[permutation(len(rows), "validation", seed, int(c))]
        count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
        held.append(rows[:count])
        kept.append(rows[count:])
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(held))
