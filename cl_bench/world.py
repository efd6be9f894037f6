"""Several processes that learn one run together, each on a device of its own: they share the batches and add up gradients and statistics.

Prompts and heads are tiny, so one sum of a flat tensor per step is all that passes between them. Every process holds the same parameters,
optimiser and projections; the first one evaluates and saves.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, multiprocessing
from torch import distributed as dist

from cl_bench.errors import RunFailed

PATIENCE = timedelta(hours=1)  # for a process that evaluates


class World:
    """This process among `size`; alone it shares nothing."""

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    def share(self, chosen: np.ndarray) -> np.ndarray:
        """This process's part of a batch, without a copy; the parts differ by one image at most and may be empty."""
        return np.array_split(chosen, self.size)[self.rank]

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Put the sum over all processes in place of every tensor; all name tensors of the same shapes in the same order."""
        if self.size == 1:
            return
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_type.setdefault(tensor.dtype, []).append(tensor)
        for found in by_type.values():
            flat = torch.cat([tensor.flatten() for tensor in found])
            dist.all_reduce(flat)
            for tensor, part in zip(found, flat.split([tensor.numel() for tensor in found]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def told(self, value=None):
        """The value that the first process gives."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]


ALONE = World()


@contextmanager
def together(devices: tuple[str, ...], threads: int, follow: Callable, *arguments) -> Iterator[World]:
    """The world of this process on the first device and one more on each of the others, which call `follow(world, device, *arguments)`.

    Raises RunFailed when one of them ends before this one.
    """
    if len(devices) == 1:
        yield ALONE
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{Path(folder) / 'meeting'}"
        context = multiprocessing.get_context("spawn")
        others = [
            context.Process(target=_join, args=(rank, devices, threads, meeting, follow, arguments), daemon=True) for rank in range(1, len(devices))
        ]
        for process in others:
            process.start()
        try:
            _meet(0, devices, meeting)
            yield World(0, len(devices))
        except RuntimeError as error:
            ended = [process.exitcode for process in others if not process.is_alive()]
            if any(ended):
                raise RunFailed(f"a process of this run ended with code {next(filter(None, ended))}; what it said stands above ({error})") from error
            raise
        finally:
            dist.destroy_process_group()
            for process in others:
                process.join(timeout=5)
                process.terminate()


def _meet(rank: int, devices: tuple[str, ...], meeting: str) -> None:
    if devices[rank].startswith("cuda"):
        torch.cuda.set_device(devices[rank])
    backend = "cpu:gloo,cuda:nccl" if devices[0].startswith("cuda") else "gloo"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=len(devices), timeout=PATIENCE)


def _join(rank: int, devices: tuple[str, ...], threads: int, meeting: str, follow: Callable, arguments: tuple) -> None:
    torch.set_num_threads(threads)
    _meet(rank, devices, meeting)
    follow(World(rank, len(devices)), devices[rank], *arguments)
    dist.destroy_process_group()
