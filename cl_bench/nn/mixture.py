"""Adapters of a block that a router mixes for each image, beside autoencoders of what they were trained on.

Wang et al., "Self-Expansion of Pre-trained Models with Mixture of Adapters for Continual Learning", CVPR
2025.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cl_bench.nn.adapter import Adapters
from cl_bench.nn.edits import Edits
from cl_bench.nn.heads import new_head


class Branch(nn.Module):
    """An adapter f of one block, the router's row for it, and its descriptor g.

    g is an autoencoder of m, the mean of an image's tokens where they enter the adapter, through `code`
    linear units. `usual` are the mean of its errors and one over their standard deviation: (0, 0)
    until `settle`, so that nothing deviates.
    """

    def __init__(
        self, width: int, bottleneck: int, code: int, scale: float, dropout: float, generator: torch.Generator
    ):
        super().__init__()
        self.adapter = Adapters(1, width, bottleneck, generator, scale, dropout)
        self.router = new_head(width, 1, "uniform", generator)
        self.encoder = new_head(width, code, "uniform", generator)
        self.decoder = new_head(code, width, "uniform", generator)
        self.register_buffer("usual", torch.zeros(2))

    def adapting(self) -> list[nn.Parameter]:
        """Parameters of the adapter and of the router's row."""
        return [*self.adapter.parameters(), *self.router.parameters()]

    def describing(self) -> list[nn.Parameter]:
        """Parameters of the descriptor."""
        return [*self.encoder.parameters(), *self.decoder.parameters()]

    def errors(self, means: Tensor) -> Tensor:
        """e (B,) = mean (g(m) - m)^2, of m (B, D)."""
        return (self.decoder(self.encoder(means)) - means).square().mean(dim=1)

    def settle(self, errors: Tensor) -> None:
        """Take over mean and deviation (n - 1) of errors (n,); of fewer than three, or equal ones, none."""
        deviation = errors.std() if len(errors) > 2 else torch.zeros(())
        self.usual[0] = errors.mean()
        self.usual[1] = 1 / deviation if deviation > 0 else 0.0

    def deviations(self, means: Tensor) -> Tensor:
        """(e - mu) / sigma (B,), of m (B, D)."""
        return (self.errors(means) - self.usual[0]) * self.usual[1]


class Mixture(nn.Module, Edits):
    """MLP(norm2(x)) + sum_k softmax(router m)_k f_k(x) in the last blocks, + f(x) in those before.

    `base` holds the adapters of these. Branches are named by block and by the task that added them.
    """

    def __init__(self, base: Adapters, blocks: int):
        super().__init__()
        self.base, first = base, len(base.down)
        self.branches = nn.ModuleDict({str(l): nn.ModuleDict() for l in range(first, first + blocks)})

    def add(self, l: int, index: int, branch: Branch) -> None:
        """A branch of block l, of task `index`."""
        self.branches[str(l)][str(index)] = branch

    def at(self, l: int) -> list[Branch]:
        """The branches of block l, oldest first."""
        return [*self.branches[str(l)].values()]

    def weights(self, l: int, means: Tensor) -> Tensor:
        """softmax (B, K) of the router of block l, of m (B, D)."""
        return torch.cat([branch.router(means) for branch in self.at(l)], dim=1).softmax(dim=1)

    def beside_mlp(self, l: int, x: Tensor) -> Tensor:
        """What the adapters of block l add to x (B, N, D), where a router mixes all of the tokens."""
        if str(l) not in self.branches:
            return self.base.beside_mlp(l, x)
        added = torch.stack([branch.adapter.beside_mlp(0, x) for branch in self.at(l)], dim=1)
        return torch.einsum("bk,bknd->bnd", self.weights(l, x.mean(dim=1)).to(added), added)


class Noting(Edits):
    """The mixture, which shows `see` each block and m (B, D) where a router mixes, without gradient."""

    def __init__(self, mixture: Mixture, see: Callable[[int, Tensor], None]):
        self._mixture, self._see = mixture, see

    def beside_mlp(self, l: int, x: Tensor) -> Tensor:
        """The mixture's own."""
        if str(l) in self._mixture.branches:
            with torch.autocast(x.device.type, enabled=False):
                self._see(l, x.detach().float().mean(dim=1))
        return self._mixture.beside_mlp(l, x)
