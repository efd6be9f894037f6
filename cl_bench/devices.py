"""Where runs can be carried out on this machine: the devices asked for, cut into places for one run each."""

import os
from dataclasses import dataclass

from cl_bench.errors import InputError


@dataclass(frozen=True)
class Place:
    """The device, or devices with commas, and the processor cores of one run on it."""

    device: str
    threads: int
    cores: frozenset[int] | None = None  # None: any


def devices(requested: str) -> list[str]:
    """["cpu"], or the CUDA devices meant by "auto", "cuda", "cuda:1" or "cuda:0,cuda:2".

    Raises InputError for what the machine does not have.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    everything = [f"cuda:{i}" for i in range(count)]
    if requested == "auto":
        return everything or ["cpu"]
    if requested == "cuda" and everything:
        return everything
    wanted = list(dict.fromkeys(part.strip() for part in requested.split(",") if part.strip()))
    for device in wanted:
        if device.startswith("cuda") and device not in everything:
            has = f"devices {', '.join(everything)}" if everything else "no usable CUDA GPU"
            raise InputError(f"--device {device}: this machine has {has}; use --device cpu or auto")
        if device not in ("cpu", *everything):
            raise InputError(f"--device {device!r} is not a device; expected auto, cpu, cuda or cuda:N")
    if not wanted or ("cpu" in wanted and len(wanted) > 1):
        several = "several of the last, such as cuda:0,cuda:2"
        raise InputError(f"--device {requested!r}: expected auto, cpu, cuda, cuda:N or {several}")
    return wanted


def places(
    found: list[str],
    runs: int,
    jobs: int | None = None,
    per_gpu: int = 1,
    threads: int | None = None,
    gpus_per_run: int = 1,
) -> list[Place]:
    """One place for each of `jobs` runs at a time; by default one per core, or `per_gpu` on every GPU.

    There are no more than runs. They have cores of their own where together they take all: others are left to
    the system, since another command may be on the first ones. Raises InputError where a run cannot have
    `gpus_per_run` GPUs of its own.
    """
    if gpus_per_run > 1:
        found = _groups(found, per_gpu, gpus_per_run)
    here = sorted(cores())
    count = jobs or max(1, min(runs, len(here) if found == ["cpu"] else len(found) * per_gpu))
    threads = threads or share(count * gpus_per_run)
    pinned = found == ["cpu"] and count * threads == len(here)
    made = []
    for index in range(min(count, max(1, runs))):
        own = frozenset(here[index * threads : (index + 1) * threads]) if pinned else None
        made.append(Place(found[index % len(found)], threads, own))
    return made


def share(count: int) -> int:
    """Threads of each of so many processes that share this machine's cores."""
    return max(1, len(cores()) // count)


def _groups(found: list[str], per_gpu: int, gpus_per_run: int) -> list[str]:
    if found == ["cpu"] or len(found) < gpus_per_run:
        has = "no usable GPU" if found == ["cpu"] else f"{', '.join(found)} alone"
        raise InputError(f"--gpus-per-run {gpus_per_run}: there is {has}; give fewer, or more with --devices")
    if per_gpu > 1:
        both = f"--gpus-per-run {gpus_per_run} and --per-gpu {per_gpu}"
        raise InputError(f"{both} exclude each other; give one of them")
    starts = range(0, len(found) - gpus_per_run + 1, gpus_per_run)
    return [",".join(found[start : start + gpus_per_run]) for start in starts]


def cores() -> set[int]:
    """The processor cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
