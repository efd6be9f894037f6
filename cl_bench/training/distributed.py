"""Several processes learn one run together, each on its own device: they share batches and sum gradients.

Prompts and heads are tiny, so one sum of a flat tensor per step is all that passes between them. Every
process holds the same parameters, optimizer and projections; the first one evaluates and saves. Statistics
that a method does not share are computed by all of them alike.
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


class ProcessGroup:
    """The `size` processes of a run as this one sees them, as number `rank`; alone it exchanges nothing."""

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    def share(self, chosen: np.ndarray) -> np.ndarray:
        """This process's part of a batch, without a copy; parts differ by at most one image."""
        return np.array_split(chosen, self.size)[self.rank]

    def all_reduce_sum(self, tensors: Iterable[Tensor]) -> None:
        """Put the sum over all processes in place of every tensor; all name them in the same order."""
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

    def broadcast(self, value=None):
        """The value that the first process gives."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0, device=torch.device("cpu"))
        return values[0]


ALONE = ProcessGroup()


@contextmanager
def process_group(
    devices: tuple[str, ...], threads: int, follow: Callable, *arguments
) -> Iterator[ProcessGroup]:
    """The group of this process on the first device and a helper on each of the others.

    Each helper calls `follow(group, device, *arguments)`. Raises RunFailed when one of them ends before this
    process, and MemoryError when it ran out of memory.
    """
    if len(devices) == 1:
        yield ALONE
        return
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"file://{Path(folder) / 'rendezvous'}"
        gpus, over, whole = devices[0].startswith("cuda"), threading.Event(), False
        helpers, ready = _started(devices, threads, rendezvous, follow, arguments)
        try:
            for process, here in zip(helpers, ready, strict=True):
                connection.wait([here, process.sentinel])
                _require_alive(process, here)
            _initialize(0, devices, rendezvous)
            if gpus:
                threading.Thread(target=end_with, args=(helpers, over), daemon=True).start()
            yield ProcessGroup(0, len(devices))
            whole = True
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            _raise_for_ended(helpers, error)
            raise
        finally:
            over.set()
            _end(helpers, whole, gpus)


def _started(
    devices: tuple[str, ...], threads: int, rendezvous: str, follow: Callable, arguments: tuple
) -> tuple[list, list]:
    """The helpers' processes, and of each the connection on which it says that it is ready."""
    context, helpers, ready = multiprocessing.get_context("spawn"), [], []
    for rank in range(1, len(devices)):
        here, there = context.Pipe(duplex=False)
        given = (there, rank, devices, threads, rendezvous, follow, arguments)
        helpers.append(
            context.Process(target=_help, args=given)
        )  # no daemon: Pillow augments in processes too
        helpers[-1].start()
        there.close()
        ready.append(here)
    return helpers, ready


def _raise_for_ended(helpers: list, error: RuntimeError) -> None:
    """Raise for a helper whose end explains the error of this process; nothing while all of them run."""
    for process in helpers:
        process.join(timeout=2)
    ended = [process.exitcode for process in helpers if process.exitcode]
    if NO_MEMORY in ended:
        raise MemoryError(f"a process of this run ran out of memory ({error})") from error
    if ended:
        raise RunFailed(f"{_ended_with(ended[0])}; what it said stands above ({error})") from error


def _end(helpers: list, whole: bool, gpus: bool) -> None:
    """End the helpers, at once unless the `whole` run went well."""
    if not whole:
        for process in helpers:
            process.kill()
    if dist.is_initialized() and (
        whole or not gpus
    ):  # nccl would wait for sums that no helper joins any more
        dist.destroy_process_group()
    for process in helpers:
        process.join(timeout=2)
        process.kill()


def _ended_with(code: int) -> str:
    return f"a process of this run ended with code {code}"


def end_with(helpers: list, over: threading.Event, end: Callable[[int], None] = os._exit) -> None:
    """End this process with the first helper that fails before all is over.

    It may be inside a sum on the GPU, which nothing else interrupts.
    """
    running = list(helpers)
    while running:
        connection.wait([process.sentinel for process in running])
        for process in [process for process in running if not process.is_alive()]:
            running.remove(process)
            if process.exitcode and not over.is_set():  # one that has learned everything ends with 0
                message = f"error: {_ended_with(process.exitcode)}; what it said stands above"
                print(message, file=sys.stderr, flush=True)
                return end(process.exitcode if process.exitcode > 0 else 1)


def _require_alive(process, here) -> None:
    """Raise RunFailed unless the helper has said that it is ready."""
    try:
        here.recv()
    except EOFError:
        process.join()
        ended = f"{_ended_with(process.exitcode)} before it began"
        raise RunFailed(f"{ended}; what it said stands above") from None


def _initialize(rank: int, devices: tuple[str, ...], rendezvous: str) -> None:
    if devices[rank].startswith("cuda"):
        torch.cuda.set_device(devices[rank])
    backend = "cpu:gloo,cuda:nccl" if devices[0].startswith("cuda") else "gloo"
    dist.init_process_group(
        backend, init_method=rendezvous, rank=rank, world_size=len(devices), timeout=PATIENCE
    )


def _help(
    there,
    rank: int,
    devices: tuple[str, ...],
    threads: int,
    rendezvous: str,
    follow: Callable,
    arguments: tuple,
) -> None:
    """A helper: it ends with the first process, which alone listens to signals."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    there.send("ready")
    _initialize(rank, devices, rendezvous)
    try:
        follow(ProcessGroup(rank, len(devices)), devices[rank], *arguments)
    except (MemoryError, torch.OutOfMemoryError):
        os._exit(NO_MEMORY)
    dist.destroy_process_group()


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)
