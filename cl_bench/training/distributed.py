"""Several processes that learn one run together, each on a device of its own: they share the batches and add up gradients and statistics.

Prompts and heads are tiny, so one sum of a flat tensor per step is all that passes between them. Every process holds the same parameters,
optimiser and projections; the first one evaluates and saves. Statistics that a method does not share are computed by all of them alike.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import connection, parent_process
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, multiprocessing
from torch import distributed as dist

from cl_bench.errors import RunFailed

PATIENCE = timedelta(hours=1)  # for a process that evaluates
NO_MEMORY = 3  # exit code of a helper


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

    Raises RunFailed when one of them ends before this one, and MemoryError when it ran out of memory.
    """
    if len(devices) == 1:
        yield ALONE
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{Path(folder) / 'meeting'}"
        context, others, ready = multiprocessing.get_context("spawn"), [], []
        for rank in range(1, len(devices)):
            here, there = context.Pipe(duplex=False)
            # no daemon: Pillow augments in processes of its own
            others.append(
                context.Process(
                    target=_join, args=(there, rank, devices, threads, meeting, follow, arguments)
                )
            )
            others[-1].start()
            there.close()
            ready.append(here)
        gpus, over, whole = devices[0].startswith("cuda"), threading.Event(), False
        try:
            for process, here in zip(others, ready, strict=True):
                connection.wait([here, process.sentinel])
                _require_alive(process, here)
            _meet(0, devices, meeting)
            if gpus:
                threading.Thread(target=_end_with, args=(others, over), daemon=True).start()
            yield World(0, len(devices))
            whole = True
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            for process in others:
                process.join(timeout=2)
            ended = [process.exitcode for process in others if process.exitcode]
            if NO_MEMORY in ended:
                raise MemoryError(f"a process of this run ran out of memory ({error})") from error
            if ended:
                raise RunFailed(
                    f"a process of this run ended with code {ended[0]}; what it said stands above ({error})"
                ) from error
            raise
        finally:
            over.set()
            if not whole:
                for process in others:
                    process.kill()
            if dist.is_initialized() and (
                whole or not gpus
            ):  # nccl would wait for sums that no helper joins any more
                dist.destroy_process_group()
            for process in others:
                process.join(timeout=2)
                process.kill()


def _end_with(others: list, over: threading.Event, end: Callable[[int], None] = os._exit) -> None:
    """End this process with the first helper that fails before all is over: it may be inside a sum on the GPU, which nothing else interrupts."""
    running = list(others)
    while running:
        connection.wait([process.sentinel for process in running])
        for process in [process for process in running if not process.is_alive()]:
            running.remove(process)
            if process.exitcode and not over.is_set():  # one that has learned everything ends with 0
                print(
                    f"error: a process of this run ended with code {process.exitcode}; what it said stands above",
                    file=sys.stderr,
                    flush=True,
                )
                return end(process.exitcode if process.exitcode > 0 else 1)


def _require_alive(process, here) -> None:
    """Raise RunFailed unless the helper has said that it is ready."""
    try:
        here.recv()
    except EOFError:
        process.join()
        raise RunFailed(
            f"a process of this run ended with code {process.exitcode} before it began; what it said stands above"
        ) from None


def _meet(rank: int, devices: tuple[str, ...], meeting: str) -> None:
    if devices[rank].startswith("cuda"):
        torch.cuda.set_device(devices[rank])
    backend = "cpu:gloo,cuda:nccl" if devices[0].startswith("cuda") else "gloo"
    dist.init_process_group(
        backend, init_method=meeting, rank=rank, world_size=len(devices), timeout=PATIENCE
    )


def _join(
    there, rank: int, devices: tuple[str, ...], threads: int, meeting: str, follow: Callable, arguments: tuple
) -> None:
    """A helper: it ends with the first process, which alone listens to signals."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    there.send("ready")
    _meet(rank, devices, meeting)
    try:
        follow(World(rank, len(devices)), devices[rank], *arguments)
    except (MemoryError, torch.OutOfMemoryError):
        os._exit(NO_MEMORY)
    dist.destroy_process_group()


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)
