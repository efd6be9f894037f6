"""What a method costs on this machine, beside the bare frozen network in the same process."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import timm
import torch
from pydantic import BaseModel
from safetensors.torch import save_file

from cl_bench import environment
from cl_bench.console import size
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.profiling.stopwatch import STEPS, Stopwatch
from cl_bench.run import assemble


class Measured(BaseModel):
    """Throughputs are medians over pairs.

    `shares` are of a step whose parts wait for one another, and add up to 1.
    """

    method: str
    dataset: str
    backbone: str
    image_size: int
    batch: int
    precision: str
    # training, statistics, evaluation, and the bare network's forward and backward, and forward
    images_per_second: dict[str, float | None]
    # training's images per second over those of the bare forward and input-backward; None: it trains nothing
    training_ratio_to_bare_network: float | None
    # training's time over that of its own matrix products at the speed of the bare network's
    training_time_to_own_minimum: float | None = None  # older files do not say
    # time of the statistics pass over that of the bare forward, both in full precision
    statistics_ratio_to_forward: float | None
    # the same over that of its own matrix products at the speed of the bare forward
    statistics_time_to_own_minimum: float | None = None  # older files do not say
    shares: dict[str, float]
    flops_per_image: float | None  # of a training step, matrix products alone
    peak_flops: float  # per second, of a large matrix product of the same precision
    utilisation: float | None  # of those, in training
    peak_memory_bytes: int
    start_up_seconds: float  # until a new process has imported what a run needs
    environment: dict

    def text(self) -> str:
        """For a terminal."""
        speed = {name: _speed(value) for name, value in self.images_per_second.items()}
        processor, threads = self.environment["processor"], self.environment["threads"]
        where = self.environment.get("gpu") or f"{processor}, {threads} threads"
        how = self.precision + (", compiled" if self.environment.get("compiled") else "")
        network = f"{self.backbone}, {self.image_size} px, batch {self.batch}, {how}"
        beside = {"training": self._training(), "statistics": self._statistics()}
        forward, evaluation = self.images_per_second["bare forward"], self.images_per_second["evaluation"]
        assert forward is not None and evaluation is not None
        share = evaluation / forward
        beside["evaluation"] = [f"{share:.2f} x the bare forward ({speed['bare forward']})"]
        lines = [f"{self.method} on {self.dataset} with {network}; {where}"]
        for part, (first, *others) in beside.items():
            lines += [
                f"{part:12}{speed[part]:>18}   {first}".rstrip(),
                *(f"{'':33}{more}" for more in others),
            ]
        if self.training_ratio_to_bare_network is not None and self.flops_per_image is not None:
            shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
            peak, flops = f"{self.peak_flops / 1e9:,.0f} GFLOP/s", f"{self.flops_per_image / 1e9:,.2f} GFLOP"
            lines += [
                f"a step      {shares}",
                f"utilisation {self.utilisation:.0%} of {peak}, {flops} an image",
            ]
        memory = f"peak memory {size(self.peak_memory_bytes)}, start-up {self.start_up_seconds:.1f} s"
        return "\n".join([*lines, memory])

    def _training(self) -> list[str]:
        """What stands beside its speed, a line each."""
        ratio, own = self.training_ratio_to_bare_network, self.training_time_to_own_minimum
        if ratio is None:
            return ["it trains nothing in the second task"]
        bare = _speed(self.images_per_second["bare forward and backward"])
        products = [] if own is None else [f"{own:.2f} x the time of its own products at that speed"]
        return [f"{ratio:.2f} x the bare network's forward and input-backward ({bare})", *products]

    def _statistics(self) -> list[str]:
        ratio, own = self.statistics_ratio_to_forward, self.statistics_time_to_own_minimum
        if ratio is None:
            return [""]
        products = [] if own is None else [f"{own:.2f} x the time of its own products at that speed"]
        return [f"{ratio:.2f} x the time of the bare forward", *products]


def _speed(value: float | None) -> str:
    return "–" if value is None else f"{value:,.{0 if value >= 100 else 2}f} images/s"


def measure(
    request: Request,
    device: str,
    threads: int,
    pairs: int,
    random_weights: bool,
    compiled: bool | None,
    say: Callable[[str], None],
) -> Measured:
    """Measure the one method of a request in its second task.

    Raises InputError for requests of several, and methods that learn all classes at once.
    """
    torch.set_num_threads(threads)
    compiled = environment.compiles(compiled, device)
    bench = _stopwatch(request, device, random_weights, compiled)
    assemble.prepare_kernels(compiled, say, assemble.batch_sizes(bench.method, 1, None))
    say(f"{bench.spec.display}: first task")
    statistics = bench.learn_first_task()
    say(f"{bench.spec.display}: second task, {pairs} pairs of {STEPS} steps")
    trained = _training(bench, pairs) if bench.trains else None
    memory = environment.peak_memory_bytes(device)
    forward = precise = _median(bench, bench.bare_forward, pairs)
    if bench.spec.precision != "fp32":
        precise = _median(bench, partial(bench.bare_forward, True), pairs)
    evaluation, peak = _median(bench, bench.evaluate, pairs), bench.peak()
    products = bench.statistics_flops / bench.bare_flops(bench.bare_forward)
    speeds = {
        "training": trained and 1 / trained.seconds,
        "statistics": None if statistics is None else 1 / statistics,
        "evaluation": 1 / evaluation,
        "bare forward and backward": trained and 1 / trained.bare_seconds,
        "bare forward": 1 / forward,
    }
    return Measured(
        method=bench.spec.label,
        dataset=bench.benchmark,
        backbone=bench.spec.backbone.name + (" (random weights)" if random_weights else ""),
        image_size=bench.spec.backbone.image_size,
        batch=bench.batch,
        precision=bench.spec.precision,
        images_per_second=speeds,
        training_ratio_to_bare_network=trained and trained.to_bare,
        training_time_to_own_minimum=trained and trained.bare_flops / trained.flops / trained.to_bare,
        statistics_ratio_to_forward=None if statistics is None else statistics / precise,
        statistics_time_to_own_minimum=None if statistics is None else statistics / precise / products,
        shares=bench.shares(pairs) if trained else {},
        flops_per_image=trained and trained.flops,
        peak_flops=peak,
        utilisation=trained and trained.flops / trained.seconds / peak,
        peak_memory_bytes=memory,
        start_up_seconds=start_up(),
        environment=environment.describe(device, threads, compiled),
    )


def _stopwatch(request: Request, device: str, random_weights: bool, compiled: bool) -> Stopwatch:
    """For the one run of a request."""
    with tempfile.TemporaryDirectory() as folder:
        if random_weights:
            request = _with_random_weights(request, Path(folder))
        specs = make_plan(request, environment.usual_precision([device])).specs
        if len(specs) != 1:
            several = f"bench measures one method on one benchmark, got {len(specs)} runs"
            raise InputError(f"{several}; name one with --methods")
        return Stopwatch(specs[0], torch.device(device), compiled)


class _Training(NamedTuple):
    """Of an image: seconds of the method and of the bare network, operations of both; their speeds' ratio."""

    seconds: float
    bare_seconds: float
    flops: float
    bare_flops: float
    to_bare: float


def _training(bench: Stopwatch, pairs: int) -> _Training:
    """Medians over pairs, after one that warms up."""
    steps = [bench.pair() for _ in range(pairs + 1)][1:]
    own, bare = (median(seconds) for seconds in zip(*steps, strict=True))
    to_bare = median(bare / own for own, bare in steps)
    return _Training(own, bare, bench.flops(), bench.bare_flops(bench.bare_step), to_bare)


def _median(bench: Stopwatch, step: Callable[[], None], pairs: int) -> float:
    """Seconds of an image, after one measurement that warms up."""
    return median([bench.seconds(step) for _ in range(pairs + 1)][1:])


def _with_random_weights(request: Request, folder: Path) -> Request:
    """The request with a file of random weights for its timm backbone: speed does not depend on them."""
    if request.backbone is None or request.weights:
        raise InputError("--random-weights needs --backbone with a timm name, and no --weights")
    architecture = request.backbone.partition(".")[0]
    if architecture not in load.architectures():
        listing = "`cl-bench ls backbones` lists them"
        raise InputError(f"--random-weights: {architecture!r} is not a timm vision transformer; {listing}")
    path = folder / "random.safetensors"
    save_file(timm.create_model(architecture, pretrained=False, num_classes=0).state_dict(), path)
    return request.model_copy(update={"weights": str(path)})


def start_up() -> float:
    """Seconds until a new process has imported what a run needs."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import cl_bench.run.runner"], check=True)
    return time.perf_counter() - start
