"""Everything that the first day on a GPU is to tell, the most valuable first, within the time given.

    python tests/benchmarks/gpu_day.py --minutes 10 --out DIR [--images cifar100_full.zip] [--device cuda:0]
    python tests/benchmarks/gpu_day.py --smoke --out DIR      # the same on a tiny network and a processor

ViT-B/16 with random weights at 224 pixels on CIFAR-100's images (generated ones where there is no archive
beside the checkout): speed beside the bare network, a short run, the forecast of a whole run, and so on, see
`PARTS`. Nothing is downloaded. After every part `gpu_day.txt` and `gpu_day.json` are written; what does not
fit into the time is left out by name. Exits with 0, with 1 where a part failed, with 2 without a GPU.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import day_parts as parts
import torch
from day_parts import Day, Found

import cl_bench
from cl_bench import environment
from cl_bench.files import write_atomically

ROOT = Path(__file__).resolve().parents[2]

PEAK = 600e12  # operations per second of an H100 in bf16, for which the parts' seconds are meant
RESERVE = 2.0  # seconds for what is left to write


class Part(NamedTuple):
    """One thing to find out, what it is expected to take, and the parts without which it cannot be."""

    name: str
    seconds: float
    find: Callable[[Day, dict], Found]
    needs: tuple[str, ...] = ("inputs",)


PARTS = [
    Part("inputs", 25, parts.inputs, ()),
    Part("peak", 10, parts.peak, ()),
    Part("speed nsp2", 120, partial(parts.speed, method="nsp2")),
    Part("short run nsp2", 75, partial(parts.short_run, method="nsp2")),
    Part("forecast", 8, parts.forecast, ("speed nsp2", "short run nsp2")),
    Part("command", 120, parts.command),
    Part("profile", 45, parts.profiled),
    Part("augmentation", 15, parts.augmentation, ()),
    Part("compile", 120, parts.compilation),
    Part("forecast with compilation", 8, parts.forecast, ("speed nsp2", "short run nsp2", "compile")),
    Part("speed l2p", 90, partial(parts.speed, method="l2p")),
    Part("speed ranpac", 60, partial(parts.speed, method="ranpac")),
    Part("speed nsp2 fp32", 90, partial(parts.speed, method="nsp2", precision="fp32")),
]
SMOKE = {"speed l2p", "speed ranpac", "speed nsp2 fp32"}  # only say again what another part says


@dataclass
class State:
    """A part as it stands in the results."""

    part: Part
    state: str = "not reached"  # done, failed, cut off, left out
    reason: str = ""
    seconds: float = 0.0
    found: Found | None = None

    def lines(self) -> list[str]:
        """For people."""
        what = f"{self.state}, {self.seconds:.0f} s" if self.seconds else self.state
        head = f"{self.part.name}: {what}" + (f" ({self.reason})" if self.reason else "")
        return [head, *(f"  {line}" for line in (self.found.lines if self.found else ()))]

    def values(self) -> dict:
        """For programs."""
        found = self.found.values if self.found else None
        told = {"name": self.part.name, "state": self.state, "reason": self.reason}
        return {**told, "seconds": self.seconds, "expected_seconds": self.part.seconds, "found": found}


def main() -> int:
    """Carry out the parts; the exit code."""
    chosen = _arguments()
    device = "cpu" if chosen.smoke else chosen.device
    if device != "cpu" and not torch.cuda.is_available():
        print("error: no CUDA device is at hand; give --smoke to try it on the processor", file=sys.stderr)
        return 2
    began = time.monotonic()
    package = Path(cl_bench.__file__).resolve().parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for variable in ("CL_BENCH_CACHE", "TORCHINDUCTOR_CACHE_DIR"):  # nothing of earlier days
            os.environ[variable] = str(Path(folder) / variable.lower())
        day = _day(chosen, device, Path(folder))
        states = [State(part) for part in PARTS if not (chosen.smoke and part.name in SMOKE)]
        facts = environment.describe(device, day.threads)
        _carry_out(day, states, began + 60 * chosen.minutes - RESERVE, lambda: _write(chosen, facts, states))
    print("\n".join(line for state in states for line in state.lines()))
    return int(any(state.state == "failed" for state in states))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("gpu_day"))
    parser.add_argument("--images", type=Path, help="archive of CIFAR-100's images as files of folders")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--smoke", action="store_true")
    return parser.parse_args()


def _day(chosen: argparse.Namespace, device: str, folder: Path) -> Day:
    """The sizes of the day, or of its smoke test."""
    where = {"device": device, "folder": chosen.out.resolve(), "inputs": folder / "inputs"}
    if chosen.smoke:
        small = {"batch": 8, "passes": 1, "bottleneck": 4, "projection": 16, "pool_size": 4, "top_k": 2}
        return Day(
            **where, archive=chosen.images, backbone="test_vit", image_size=32, classes=8,
            per_class={"train": 16, "test": 4}, splits=4, pairs=1, set={**small, "layers": 2}, limit=64,
            augmented=4,
        )  # fmt: skip
    places = (ROOT / "shared", ROOT.parent / "shared")
    archives = [place / "data" / "cifar100_full.zip" for place in places]
    archive = chosen.images or next((path for path in archives if path.is_file()), None)
    return Day(
        **where, archive=archive, backbone="vit_base_patch16_224.augreg_in21k", image_size=224, classes=100,
        per_class={"train": 500, "test": 100}, splits=10, pairs=5, short={"passes": 2, "batch": 64},
        limit=3000, augmented=256, threads=4,
    )  # fmt: skip


def _carry_out(day: Day, states: list[State], end: float, write: Callable[[], None]) -> None:
    """Every part that there is time for, each in a process that ends with it."""
    context = multiprocessing.get_context("forkserver")  # which never touches the GPU itself
    context.set_forkserver_preload(["cl_bench.profiling.throughput", "cl_bench.run.runner"])
    slower, earlier = 1.0, {}
    for state in states:
        write()
        lacking = [name for name in state.part.needs if name not in earlier]
        left, needed = end - time.monotonic(), state.part.seconds * slower * day.on_gpu
        if lacking or needed > left or left <= 0:
            state.state = "left out"
            short = f"it takes about {needed:.0f} s, and {max(0, left):.0f} s are left"
            state.reason = f"it needs {' and '.join(lacking)}" if lacking else short
            continue
        print(f"{state.part.name}: about {needed:.0f} s", file=sys.stderr, flush=True)
        _find(context, day, state, earlier, left)
        if state.found:
            earlier[state.part.name] = state.found.values
        if state.part.name == "peak" and state.found:
            slower = max(1.0, PEAK / max(state.found.values.values()))
    write()


def _find(context, day: Day, state: State, earlier: dict, seconds: float) -> None:
    """Let a process find out, for so many seconds at most."""
    here, there = context.Pipe(duplex=False)
    start = time.monotonic()
    process = context.Process(target=_in_process, args=(there, state.part.find, day, earlier))
    process.start()
    there.close()
    try:
        if here.poll(seconds):
            state.state, state.reason, state.found = here.recv()
        else:
            state.state, state.reason = "cut off", "the time is up"
    except EOFError:
        state.state = "failed"
    finally:
        process.join(0 if state.state == "cut off" else 10)
        _end(process.pid)
        process.join()
    if state.state == "failed" and not state.reason:
        state.reason = f"its process ended with {process.exitcode}"
    state.seconds = time.monotonic() - start


def _in_process(there, find: Callable[[Day, dict], Found], day: Day, earlier: dict) -> None:
    os.setsid()  # whatever it starts ends with it
    try:
        there.send(("done", "", find(day, earlier)))
    except Exception as error:
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        there.send(("failed", reason[-2000:], None))


def _end(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _write(chosen: argparse.Namespace, facts: dict, states: list[State]) -> None:
    """Both files as far as the parts are."""
    kind = "smoke test" if chosen.smoke else "GPU day"
    head = f"{kind} of {chosen.minutes:g} minutes on {facts.get('gpu', facts['processor'])}"
    text = "\n".join([head, *(line for state in states for line in state.lines())])
    values = {"smoke": chosen.smoke, "minutes": chosen.minutes, "environment": facts}
    values["parts"] = [state.values() for state in states]
    write_atomically(chosen.out / "gpu_day.txt", (text + "\n").encode())
    write_atomically(chosen.out / "gpu_day.json", (json.dumps(values, indent=1) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
