"""What a run ran on: recorded with every start, never part of its identity."""

import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import cl_bench

# whose versions may move a result
LIBRARIES = ("torch", "timm", "open_clip_torch", "torchvision", "numpy", "scipy", "POT")


def describe(device: str, threads: int, compiled: bool = False) -> dict:
    """JSON values: versions, git commit (marked where files changed), hardware, threads, compilation."""
    import torch

    facts = {
        "cl_bench": cl_bench.__version__,
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # with its build, such as +cu130
        **{name: version(name) for name in LIBRARIES[1:]},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "device": device,
        "threads": threads,
    }
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name(device)
    if compiled:
        facts["compiled"] = True
    return facts


def compiles(asked: bool | None, device: str) -> bool:
    """Whether runs on the device compile the frozen blocks; unless asked for or against, on a GPU."""
    return device.startswith("cuda") if asked is None else asked


def has_bf16() -> bool:
    """Whether the processor computes in bf16."""
    import torch

    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def usual_precision(devices: Sequence[str]) -> Literal["fp32", "bf16"]:
    """The precision of runs that name none: "bf16" where all devices multiply matrices in it, else "fp32".

    GPUs do from compute capability 8.0 on, and processors with AMX.
    """
    if devices == ["cpu"]:
        return "bf16" if "amx_bf16" in cpuinfo("flags").split() and has_bf16() else "fp32"
    import torch

    return "bf16" if all(torch.cuda.get_device_capability(device) >= (8, 0) for device in devices) else "fp32"


def machine(device: str, threads: int, compiled: bool = False) -> dict:
    """What the last bits of sums depend on: torch, processor or GPU, threads, compilation."""
    facts = describe(device, threads, compiled)
    names = ("torch", "gpu" if "gpu" in facts else "processor", "threads", "compiled")
    return {name: facts[name] for name in names if name in facts}


def machine_of_worker(threads: int, compiled: bool | None) -> dict:
    """`machine` of the device that "auto" means where this is called."""
    from cl_bench.devices import devices

    device = devices("auto")[0]
    return machine(device, threads, compiles(compiled, device))


def computer(facts: dict) -> str:
    """What a record was computed on, such as "2 x NVIDIA H100": times on different ones are not compared."""
    name, devices = str(facts.get("gpu", facts.get("processor"))), facts.get("devices", 1)
    return f"{devices} x {name}" if devices > 1 else name


def peak_memory_bytes(device: str) -> int:
    """Largest resident memory of this process so far or, on a GPU, the most that torch allocated there."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _git_commit() -> str | None:
    folder = Path(cl_bench.__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip() + ("+changes" if changed.strip() else "")


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, check=True, encoding="utf-8", errors="replace"
    ).stdout


def _processor() -> str:
    return cpuinfo("model name") or platform.processor() or platform.machine()


def cpuinfo(field: str) -> str:
    """What Linux says of the first processor; "" where nothing is said."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    facts = (line.partition(":") for line in lines)
    return next((said.strip() for name, _, said in facts if name.strip() == field), "")
