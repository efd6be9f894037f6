"""Classifiers of several tasks against each other: which of them is surest of an image."""

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_bench.nn.pool import nearest


def surest(z: list[Tensor], temperatures: Tensor) -> Tensor:
    """The task whose scores z_i (B, c_i) have the largest logsumexp(z_i / T), (R, B) for R temperatures."""
    energies = [torch.logsumexp(scores / temperatures[:, None, None], dim=2) for scores in z]
    return torch.stack(energies).argmax(dim=0)


def majority_vote(votes: Tensor, tasks: int) -> Tensor:
    """The most frequent task (B,) of votes (R, B); of equally frequent ones the oldest."""
    return nearest(F.one_hot(votes, tasks).sum(dim=0), 1)[:, 0]


def with_task_first(z: list[Tensor], chosen: Tensor) -> Tensor:
    """Scores of all tasks side by side (B, K), those of the chosen one (B,) lifted above all others.

    Differences within a task stay as they are, so that the best class of the chosen task is the best of all.
    """
    best = torch.stack([scores.amax(dim=1) for scores in z], dim=1)  # (B, t)
    lift = best.amax(dim=1) - best.gather(1, chosen[:, None])[:, 0] + 1
    return torch.cat([scores + (lift * (chosen == i))[:, None] for i, scores in enumerate(z)], dim=1)
