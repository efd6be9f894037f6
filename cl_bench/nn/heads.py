"""One linear classifier per task, read together when predicting."""

import copy
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# std 0.02 and zero bias (timm), U(-1/sqrt(D), 1/sqrt(D)) (torch.nn.Linear), std 0.001 and zero bias, or
# U(-sqrt(3/D), sqrt(3/D)) and zero bias (kaiming_uniform of torch, linear)
HeadInit = Literal["normal", "uniform", "small", "kaiming"]


def new_head(width: int, classes: int, init: HeadInit, generator: torch.Generator) -> nn.Linear:
    """A classifier (classes, D) with bias, drawn on the CPU."""
    head, bound = nn.utils.skip_init(nn.Linear, width, classes), width**-0.5
    with torch.no_grad():
        head.weight.uniform_(-bound, bound, generator=generator)
        head.bias.uniform_(-bound, bound, generator=generator)
        if init == "normal":
            nn.init.trunc_normal_(head.weight, std=0.02, generator=generator)
        if init == "small":
            head.weight.normal_(std=0.001, generator=generator)
        if init == "kaiming":
            head.weight.mul_(3**0.5)
        if init != "uniform":
            head.bias.zero_()
    return head


def transferred(rows: Tensor, means: Tensor, width: int, temperature: float) -> Tensor:
    """Rows (n, D) of new classes, mixed from the rows (K, D) of old ones, by class means (K + n, D).

    Each group of `width` features is mixed by itself, by the softmax of its cosines over a temperature
    (Kurniawan et al., "Evolving Parameterized Prompt Memory for Continual Learning", AAAI 2024).
    """
    units = F.normalize(means.unflatten(1, (-1, width)), dim=2)  # (K + n, D / width, width)
    old, new = units[: len(rows)], units[len(rows) :]
    weights = (torch.einsum("ngd,kgd->gnk", new, old) / temperature).softmax(dim=2)
    return torch.einsum("gnk,kgd->ngd", weights, rows.unflatten(1, (-1, width))).flatten(1)


class TaskHeads(nn.Module):
    """Heads (c_t, D) with bias; head t is trained in task t only.

    Scores of all heads are concatenated in stream order.
    """

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.heads = nn.ModuleList()

    def grow(
        self, classes: int, generator: torch.Generator, init: HeadInit | Literal["warm"], device: torch.device
    ) -> None:
        """Add a head; earlier ones are frozen.

        `warm`, as NSP2's published code: the first head is "normal"; a head as wide as the first that comes
        second starts from the first; every other one is "uniform".
        """
        first = not self.heads
        drawn = ("normal" if first else "uniform") if init == "warm" else init
        head = new_head(self.width, classes, drawn, generator)
        if init == "warm" and len(self.heads) == 1 and self.heads[0].out_features == classes:
            head = copy.deepcopy(self.heads[0])
        self.heads.requires_grad_(False)
        self.heads.append(head.to(device))

    def tasks(self) -> Tensor:
        """The task of every class, (K_seen,)."""
        weights = [head.weight for head in self.heads]
        parts = [w.new_full((len(w),), task, dtype=torch.long) for task, w in enumerate(weights)]
        return torch.cat(parts)

    def current(self, features: Tensor) -> Tensor:
        """Scores (B, c_t) of the newest head."""
        return self.heads[-1](features)

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, K_seen) of all heads."""
        return torch.cat([head(features) for head in self.heads], dim=1)


class CosineTaskHeads(TaskHeads):
    """s cos(f, w_k), with the same scale s for all heads, which have no bias."""

    def __init__(self, width: int, scale: float):
        super().__init__(width)
        self.scale = scale

    def grow(
        self, classes: int, generator: torch.Generator, init: HeadInit | Literal["warm"], device: torch.device
    ) -> None:
        """Add a head; earlier ones are frozen."""
        super().grow(classes, generator, init, device)
        self.heads[-1].register_parameter("bias", None)

    def current(self, features: Tensor) -> Tensor:
        """Scores (B, c_t) of the newest head."""
        return self._scaled(features, self.heads[-1].weight)

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, K_seen) of all heads."""
        return self._scaled(features, torch.cat([head.weight for head in self.heads]))

    def _scaled(self, features: Tensor, weight: Tensor) -> Tensor:
        return self.scale * F.normalize(features, dim=1) @ F.normalize(weight, dim=1).T


class Decaying(TaskHeads):
    """What makes the optimizer's weight decay shrink old heads too: they go on, with gradients of zero."""

    def grow(
        self, classes: int, generator: torch.Generator, init: HeadInit | Literal["warm"], device: torch.device
    ) -> None:
        """Add a head; all stay trained."""
        super().grow(classes, generator, init, device)
        self.requires_grad_(True)

    def current(self, features: Tensor) -> Tensor:
        """Scores (B, c_t) of the newest head."""
        return self(features)[:, -self.heads[-1].out_features :]


class DecayingHeads(Decaying):
    """Linear heads that decay in all tasks, those of tasks to come too: `left` is what they have kept."""

    def __init__(self, width: int, device: torch.device):
        super().__init__(width)
        self.left = nn.Parameter(torch.ones((), device=device))

    def grow(self, *settings) -> None:
        """Add a head, as it has become."""
        super().grow(*settings)
        with torch.no_grad():
            for part in self.heads[-1].parameters():
                part *= self.left

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, K_seen) of all heads."""
        return super().forward(features) + 0.0 * self.left


class CosineHeads(nn.Module):
    """sigma cos(f, w_k): weights (K, D) of all classes so far, and a learned scale that starts at 1.

    Weights start from U(-1/sqrt(D), 1/sqrt(D)).
    """

    def __init__(self, width: int, device: torch.device):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, width, device=device))
        self.sigma = nn.Parameter(torch.ones((), device=device))

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Add rows for so many classes."""
        bound = self.weight.shape[1] ** -0.5
        rows = torch.empty(classes, self.weight.shape[1]).uniform_(-bound, bound, generator=generator)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), rows.to(self.weight)]))

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, K) of features (B, D)."""
        return self.sigma * F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).T


class ProxyHeads(nn.Module):
    """z_k = sum_j softmax_j(u_kj) u_kj, u = W f + b, with J proxies for each class.

    W is (K J, D), the rows of a class adjacent, b (K J,): all are trained in every task. New rows of W start
    from N(0, 1 / D), new entries of b as zero.
    """

    def __init__(self, width: int, proxies: int, device: torch.device):
        super().__init__()
        self.proxies = proxies
        self.weight = nn.Parameter(torch.zeros(0, width, device=device))
        self.bias = nn.Parameter(torch.zeros(0, device=device))

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Add the proxies of so many classes."""
        rows = torch.empty(classes * self.proxies, self.weight.shape[1])
        rows.normal_(std=self.weight.shape[1] ** -0.5, generator=generator)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), rows.to(self.weight)]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), self.bias.new_zeros(len(rows))]))

    def forward(self, features: Tensor) -> Tensor:
        """Scores (B, K) of features (B, D)."""
        u = F.linear(features, self.weight, self.bias).unflatten(1, (-1, self.proxies))  # (B, K, J)
        return (u.softmax(dim=2) * u).sum(dim=2)


def frozen_linear(weight: Tensor, bias: bool, device: torch.device) -> nn.Linear:
    """A frozen linear map with this weight (E, D), and a bias of zeros or none."""
    head = nn.Linear(*weight.shape[::-1], bias=bias, device=device).requires_grad_(False)
    head.weight.data.copy_(weight)
    if bias:
        head.bias.data.zero_()
    return head


def scaled_cosines(projected: Tensor, text: Tensor, scale: Tensor | float) -> Tensor:
    """Scores (B, K) = scale <v, t> of projected image features (B, E) and unit text features (K, E)."""
    return scale * (F.normalize(projected, dim=1) @ text.T)
