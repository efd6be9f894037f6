"""A loss that keeps features away from each other and from what is kept of old classes."""

import torch
from torch import Tensor
from torch.nn import functional as F


def contrast(centers: Tensor, features: Tensor, temperature: float) -> Tensor:
    """The mean over i of -log softmax_j(m_i m_j / temperature)_i; m are centers (n, D) and features (B, D).

    Every row is to be more like itself than like any other. Only features get a gradient (public code of
    HiDe-Prompt: Wang et al., NeurIPS 2023).
    """
    m = torch.cat([centers.detach(), features])
    return F.cross_entropy(m @ m.T / temperature, torch.arange(len(m), device=m.device))


def distances(one: Tensor, other: Tensor) -> Tensor:
    """Euclidean distances (n, m) of rows (n, D) and (m, D), at least 1e-6, so that roots have gradients."""
    squares = one.square().sum(1)[:, None] + other.square().sum(1) - 2 * one @ other.T
    return squares.clamp(min=1e-12).sqrt()


def augmented_triplet(features: Tensor, labels: Tensor, old: Tensor, margin: float) -> Tensor:
    """The mean of max(0, d_ap - d_an + margin) over rows f / |f| of features (B, D) as anchors.

    d_ap is the distance of the farthest row of the same class, 1e-6 where there is no other, d_an that of the
    nearest row of another class or direction of an `old` prototype (P, D), which are constants (augmented
    triplet loss: Liu & Chang, "LoRA Subtraction for Drift-Resistant Space in Exemplar-Free Continual
    Learning", CVPR 2025). An anchor with no negative adds 0.
    """
    f, P = F.normalize(features, dim=1), F.normalize(old.detach(), dim=1)
    same, itself = labels[:, None] == labels, torch.eye(len(f), dtype=torch.bool, device=f.device)
    d = distances(f, f).masked_fill(itself, 1e-6)  # whose own gradient is rounding
    d_ap = d.masked_fill(~same, -torch.inf).amax(dim=1)
    negatives = torch.cat([d.masked_fill(same, torch.inf), distances(f, P)], dim=1)  # (B, B + P)
    return (d_ap - negatives.amin(dim=1) + margin).clamp(min=0).mean()
