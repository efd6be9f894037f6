"""What a method costs on this machine, beside the bare frozen network in the same process."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import timm
import torch
from pydantic import BaseModel
from safetensors.torch import save_file

from cl_bench import environment
from cl_bench.console import size
from cl_bench.errors import InputError
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
    # training's images per second over those of the bare forward and input-backward
    training_ratio_to_bare_network: float
    # training's time over that of its own matrix products at the speed of the bare network's
    training_time_to_own_minimum: float | None = None  # older files do not say
    # time of the statistics pass over that of the bare forward, both in full precision
    statistics_ratio_to_forward: float | None
    shares: dict[str, float]
    flops_per_image: float  # of a training step, matrix products alone
    peak_flops: float  # per second, of a large matrix product of the same precision
    utilisation: float  # of those, in training
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
        both = f"the bare network's forward and input-backward ({speed['bare forward and backward']})"
        ratio = ""
        if self.statistics_ratio_to_forward is not None:
            ratio = f"{self.statistics_ratio_to_forward:.2f} x the time of the bare forward"
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        peak, flops = f"{self.peak_flops / 1e9:,.0f} GFLOP/s", f"{self.flops_per_image / 1e9:,.2f} GFLOP"
        lines = [
            f"{self.method} on {self.dataset} with {network}; {where}",
            f"training    {speed['training']:>18}   {self.training_ratio_to_bare_network:.2f} x {both}",
            *self._own(),
            f"statistics  {speed['statistics']:>18}   {ratio}",
            f"evaluation  {speed['evaluation']:>18}   (bare forward: {speed['bare forward']})",
            f"a step      {shares}",
            f"utilisation {self.utilisation:.0%} of {peak}, {flops} an image",
            f"peak memory {size(self.peak_memory_bytes)}, start-up {self.start_up_seconds:.1f} s",
        ]
        return "\n".join(lines)

    def _own(self) -> list[str]:
        if self.training_time_to_own_minimum is None:
            return []
        return [
            f"{'':33}{self.training_time_to_own_minimum:.2f} x the time of its own products at that speed"
        ]


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

    Raises InputError for requests of several, and methods that train nothing.
    """
    torch.set_num_threads(threads)
    compiled = environment.compiles(compiled, device)
    with tempfile.TemporaryDirectory() as folder:
        if random_weights:
            request = _with_random_weights(request, Path(folder))
        specs = make_plan(request, environment.usual_precision([device])).specs
        if len(specs) != 1:
            several = f"bench measures one method on one benchmark, got {len(specs)} runs"
            raise InputError(f"{several}; name one with --methods")
        bench = Stopwatch(specs[0], torch.device(device), compiled)
    assemble.prepare_kernels(compiled, say, assemble.batch_sizes(bench.method, 1, None))
    say(f"{bench.spec.display}: first task")
    statistics = bench.learn_first_task()
    say(f"{bench.spec.display}: second task, {pairs} pairs of {STEPS} steps")
    step = [bench.pair() for _ in range(pairs + 1)][1:]  # the first pair warms up
    memory = environment.peak_memory_bytes(device)
    forward = precise = [bench.seconds(bench.bare_forward) for _ in range(pairs + 1)][1:]
    if bench.spec.precision != "fp32":
        precise = [bench.seconds(partial(bench.bare_forward, True)) for _ in range(pairs + 1)][1:]
    evaluation = [bench.seconds(bench.evaluate) for _ in range(pairs + 1)][1:]
    training, batch = median(own for own, _ in step), bench.batch
    flops, peak, to_bare = bench.flops(), bench.peak(), median(bare / own for own, bare in step)
    return Measured(
        method=bench.spec.label,
        dataset=specs[0].benchmark_name(),
        backbone=bench.spec.backbone.name + (" (random weights)" if random_weights else ""),
        image_size=bench.spec.backbone.image_size,
        batch=batch,
        precision=bench.spec.precision,
        images_per_second={
            "training": 1 / training,
            "statistics": None if statistics is None else 1 / statistics,
            "evaluation": 1 / median(evaluation),
            "bare forward and backward": 1 / median(bare for _, bare in step),
            "bare forward": 1 / median(forward),
        },
        training_ratio_to_bare_network=to_bare,
        training_time_to_own_minimum=bench.bare_flops() / flops / to_bare,
        statistics_ratio_to_forward=None if statistics is None else statistics / median(precise),
        shares=bench.shares(pairs),
        flops_per_image=flops,
        peak_flops=peak,
        utilisation=flops / training / peak,
        peak_memory_bytes=memory,
        start_up_seconds=start_up(),
        environment=environment.describe(device, threads, compiled),
    )


def _with_random_weights(request: Request, folder: Path) -> Request:
    """The request with a file of random weights for its timm backbone: speed does not depend on them."""
    if request.backbone is None or request.weights:
        raise InputError("--random-weights needs --backbone with a timm name, and no --weights")
    architecture = request.backbone.partition(".")[0]
    if architecture not in timm.list_models(module="vision_transformer"):
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
