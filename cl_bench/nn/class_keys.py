"""A key for every class: the one that is nearest to an image's query tells its task (CPrompt, CVPR 2024)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench import seeds
from cl_bench.nn.pool import cosines
from cl_bench.nn.subspaces import orthonormal_beside


class ClassKeys(nn.Module):
    """Keys (c_t, D) of the classes of every task.

    They start orthonormal to each other, and to how all before them started, while there is room.
    """

    def __init__(self, width: int, init_seed: int):
        super().__init__()
        self.width, self.init_seed = width, init_seed
        self.K = nn.ParameterList()

    def grow(self, sizes: Sequence[int], device: torch.device) -> None:
        """Add keys for tasks of so many classes."""
        drawn = [self._draw(index, len(K)) for index, K in enumerate(self.K)]
        for size in sizes:
            new, before = self._draw(len(drawn), size), torch.cat([torch.zeros(0, self.width), *drawn])
            room = len(before) + size <= self.width
            K = orthonormal_beside(new[None], before[None], "qr")[0] if room else F.normalize(new, dim=1)
            self.K.append(nn.Parameter(K.to(device)))
            drawn.append(new)

    def trained(self) -> list[nn.Parameter]:
        """Those that have a gradient."""
        return [K for K in self.K if K.requires_grad]

    def _draw(self, index: int, classes: int) -> Tensor:
        generator = seeds.generator(self.init_seed, "keys", index)
        return torch.randn(classes, self.width, generator=generator)

    def similarity(self, q: Tensor, first: int, seen: int) -> Tensor:
        """cos(q_b, K_c) (B, seen); only keys from class `first` on have a gradient."""
        K = torch.cat([*self.K])
        return cosines(q, torch.cat([K[:first].detach(), K[first:seen]]))

    def nearest_task(self, q: Tensor, tasks: int) -> Tensor:
        """The task (B,) of the class whose key is nearest, among the first tasks."""
        sizes = torch.tensor([len(K) for K in self.K][:tasks], device=q.device)
        seen = sum(len(K) for K in self.K[:tasks])
        of_class = torch.arange(tasks, device=q.device).repeat_interleave(sizes, output_size=seen)
        return of_class[self.similarity(q, seen, seen).argmax(dim=1)]
