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
