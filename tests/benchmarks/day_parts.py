"""The parts of `gpu_day.py`: each measures one thing in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
from bench_augment import CASES, compared
from bench_overhead import a_pass
from day_inputs import write_images, write_weights
from day_profile import shares
from torch.profiler import ProfilerActivity, profile

from cl_bench import environment, presets
from cl_bench.console import duration, size
from cl_bench.nn.kernel import compile_all
from cl_bench.plan.cost import costs
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry, search_path
from cl_bench.profiling import throughput
from cl_bench.profiling.stopwatch import Stopwatch, peak_flops
from cl_bench.records.record import RunRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store
from cl_bench.run import assemble, runner
from cl_bench.run.learning import Conditions

PLUGINS = Path(__file__).resolve().parent / "day_plugins"
MINUTES, RATIO = 25.0, 0.95  # targets: of a whole run on an H100, and of training beside the bare network


@dataclass(frozen=True)
class Day:
    """What is measured: where, on which network, and how much of everything."""

    device: str
    folder: Path  # for results
    inputs: Path  # for images and weights
    archive: Path | None  # of CIFAR-100's images
    backbone: str
    image_size: int
    classes: int
    per_class: dict[str, int]
    splits: int
    pairs: int
    set: dict = field(default_factory=dict)  # in place of the paper's settings
    short: dict = field(default_factory=dict)  # of the short runs, besides
    limit: int | None = None  # training images of the short runs
    augmented: int = 64  # images of a batch that is augmented
    threads: int = 1

    @property
    def on_gpu(self) -> bool:
        """Whether the device is one."""
        return self.device != "cpu"

    def request(self, method: str, changes: dict | None = None, **values) -> Request:
        """The method with the settings that its preset has for 10-split CIFAR-100, on the day's images."""
        search_path.use([PLUGINS])
        found = presets.load("ranpac" if method == "ranpac" else "nsp2-paper").settings(
            {"nsp2": "vpt-nsp2"}.get(method, method), "cifar100/10"
        )
        paper = {name: setting.value for name, setting in found.items() if name != "backbone"}
        known = {*registry.method_class(method).Config.model_fields, "precision"}
        chosen = {name: value for name, value in (self.set | (changes or {})).items() if name in known}
        return Request(
            methods=method,
            dataset=f"day-images:{self.inputs / 'images'}",
            splits=str(self.splits),
            backbone=self.backbone,
            weights=str(self.inputs / "weights.safetensors"),
            image_size=self.image_size,
            set=paper | chosen,
            **values,
        )

    def spec(self, method: str, changes: dict | None = None, **values) -> RunSpec:
        """The one run of such a request."""
        precision = environment.usual_precision([self.device])
        [spec] = make_plan(self.request(method, changes, **values), precision).specs
        return spec


@dataclass(frozen=True)
class Found:
    """What a part found: lines for people, and JSON values."""

    lines: list[str]
    values: dict


def inputs(day: Day, earlier: dict) -> Found:
    """Write the images and the network's weights."""
    what = write_images(day.inputs / "images", day.archive, day.classes, day.per_class)
    write_weights(day.inputs / "weights.safetensors", day.backbone)
    count = day.classes * sum(day.per_class.values())
    return Found([f"{count:,} images {what}; {day.backbone} with random weights"], {"images": what})


def peak(day: Day, earlier: dict) -> Found:
    """Measure the largest matrix products."""
    assemble.prepare_kernels(False, _say)
    device = torch.device(day.device)
    precisions = {"fp32", environment.usual_precision([day.device])}  # others are emulated
    found = {precision: peak_flops(device, precision) for precision in sorted(precisions)}
    speeds = [f"{precision} {flops / 1e12:.3g} TFLOP/s" for precision, flops in found.items()]
    return Found(["largest matrix product: " + ", ".join(speeds)], found)


def speed(day: Day, earlier: dict, method: str, precision: str | None = None) -> Found:
    """Do what `cl-bench bench` of a method does."""
    request = day.request(method, {"precision": precision} if precision else {})
    found = throughput.measure(request, day.device, day.threads, day.pairs, False, None, _say)
    return Found(found.text().splitlines(), json.loads(found.model_dump_json()))


def short_run(day: Day, earlier: dict, method: str) -> Found:
    """Carry out a real run of a method on a few images."""
    spec = day.spec(method, day.short, limit=day.limit)
    torch.set_num_threads(day.threads)
    conditions, start = Conditions(day.device, threads=day.threads), time.perf_counter()
    record = runner.run(spec, Store(day.folder / "results"), conditions, _say, lambda now: None)
    return _described(record, time.perf_counter() - start)


def _described(record: RunRecord, seconds: float) -> Found:
    """Of a run, what each of its tasks took."""
    tasks = [
        {
            "learn_seconds": task.learn_seconds,
            "training_seconds": task.training_seconds,
            "evaluate_seconds": task.evaluate_seconds,
            "training_images": task.training_images,
            "images_seen": task.images_seen,
            "passes": len(task.pass_losses),
            "peak_memory_bytes": task.peak_memory_bytes,
        }
        for task in record.tasks
    ]
    certificate = record.certificate.sentence() if record.certificate else ""
    memory = size(max(task["peak_memory_bytes"] for task in tasks))
    right = sum(record.tasks[-1].correct) / sum(record.test_sizes)
    lines = [
        f"{record.spec.label}: {len(tasks)} tasks in {seconds:.0f} s, peak memory {memory}, "
        f"{right:.1%} of the test images right at last, {certificate}"
    ]
    values = {"status": record.status, "seconds": seconds, "tasks": tasks, "certificate": certificate}
    return Found(lines, {**values, "correct": record.correct})


def command(day: Day, earlier: dict) -> Found:
    """Run l2p and ranpac by the command line, two processes at a time on a GPU."""
    short = {**day.set, **day.short}
    chosen = [word for name, value in short.items() for word in ("--set", f"{name}={_word(value)}")]
    places = ["--per-gpu", "2", "--device", day.device] if day.on_gpu else ["--jobs", "1", "--device", "cpu"]
    words = [
        *("run", "--methods", "l2p,ranpac", "--dataset", f"day-images:{day.inputs / 'images'}"),
        *("--splits", str(day.splits), "--backbone", day.backbone, "--image-size", str(day.image_size)),
        *("--weights", str(day.inputs / "weights.safetensors"), "--plugins", str(PLUGINS), *chosen),
        *("--limit", str(day.limit), "--threads", str(day.threads), *places),
        *("--results", str(day.folder / "results"), "--out", str(day.folder / "reports")),
    ]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "cl_bench", *words], capture_output=True, encoding="utf-8", errors="replace"
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"cl-bench run ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    first = f"cl-bench run --methods l2p,ranpac: {seconds:.0f} s"
    return Found([first, *table], {"seconds": seconds, "table": table})


def _word(value) -> str:
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def forecast(day: Day, earlier: dict) -> Found:
    """Add up a whole run of nsp2 from the measured speeds, and what a short run took besides."""
    spec, speeds = day.spec("nsp2"), earlier["speed nsp2"]["images_per_second"]
    [cost] = costs([spec]).values()
    trained, passed = cost.shared_images * spec.num_tasks, sum(cost.images)
    images = {"training": trained, "statistics": passed - trained, "evaluation": sum(cost.predicted)}
    pieces = {name: count / speeds[name] for name, count in images.items()}
    ran = [_besides(task, speeds["statistics"]) for task in earlier["short run nsp2"]["tasks"][1:-1]]
    pieces["closed forms"] = median(ran) * (spec.num_tasks - 1)
    pieces["compilation"] = max(0.0, earlier.get("compile", {}).get("compile_seconds", 0.0))
    total = sum(pieces.values())
    shown = ", ".join(f"{name} {duration(seconds)}" for name, seconds in pieces.items())
    lines = [f"a whole run of {spec.label} on {spec.num_tasks} tasks: about {duration(total)} ({shown})"]
    ratio = earlier["speed nsp2"]["training_ratio_to_bare_network"]
    targets = {"minutes": total <= 60 * MINUTES, "ratio": ratio >= RATIO} if day.on_gpu else {}
    if targets:
        words = {name: "reached" if reached else "MISSED" for name, reached in targets.items()}
        lines.append(f"target of {MINUTES:g} minutes on an H100: {words['minutes']}")
        lines.append(f"training at {ratio:.2f} of the bare network, target {RATIO}: {words['ratio']}")
    if "compile" not in earlier:
        lines.append("compilation is not in it: that part has not been measured")
    values = {"seconds": total, "pieces": pieces, "images": images, "targets_reached": targets}
    return Found(lines, values)


def _besides(task: dict, statistics: float) -> float:
    """Seconds of a task beyond its training and its pass of statistics."""
    seen = task["images_seen"] - task["training_images"] * task["passes"]
    return max(0.0, task["learn_seconds"] - task["training_seconds"] - max(0, seen) / statistics)


def profiled(day: Day, earlier: dict) -> Found:
    """Profile a pass of training of nsp2 with torch's profiler."""
    watch = _watch(day, compiled=day.on_gpu)
    watch.learn_first_task()
    a_pass(watch)  # warms up
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * day.on_gpu
    with profile(activities=activities) as profiler:
        start = time.perf_counter()
        a_pass(watch)
        seconds = time.perf_counter() - start
    found = shares(profiler.key_averages(), day.on_gpu, seconds)
    kinds = ", ".join(f"{kind} {share:.1%}" for kind, share in found["kinds"].items())
    lines = [f"in kernels {found['busy']:.0%} of the time of a pass: {kinds}"]
    lines += [f"  {share:6.1%} {name}" for name, share in found["largest"].items()]
    return Found(lines, found)


def _watch(day: Day, compiled: bool) -> Stopwatch:
    torch.set_num_threads(day.threads)
    watch = Stopwatch(day.spec("nsp2"), torch.device(day.device))
    assemble.prepare_kernels(False, _say)
    if compiled:  # on a CPU without code generation, which takes minutes
        sizes = assemble.batch_sizes(watch.method, 1, None)
        compile_all(_say, sizes, **({} if day.on_gpu else {"backend": "eager"}))
    return watch


def augmentation(day: Day, earlier: dict) -> Found:
    """Augment on the device, and by Pillow on one core."""
    torch.set_num_threads(1)
    lines, values = [], {}
    for name, case in CASES.items():
        found = compared(case, day.device, day.augmented, day.pairs)
        speeds = f"{1 / found.batched_seconds:,.0f} images/s on the device"
        cores = f"{1 / found.pillow_seconds:,.0f} by Pillow on a core"
        lines.append(f"{name}: {speeds}, {cores}: {found.ratio:.1f} cores' worth")
        values[name] = vars(found)
    return Found(lines, values)


def compilation(day: Day, earlier: dict) -> Found:
    """Time a first task and later steps compiled, with nothing kept from before, and plainly."""
    plain = _learned(day, compiled=False)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        compiled = _learned(day, compiled=True)
    seconds = compiled["first_task_seconds"] - plain["first_task_seconds"]
    gain = compiled["images_per_second"] / plain["images_per_second"]
    line = f"compiling takes {seconds:.0f} s and makes training {gain:.2f} times as fast"
    return Found([line], {"compile_seconds": seconds, "gain": gain, "compiled": compiled, "plain": plain})


def _learned(day: Day, compiled: bool) -> dict:
    watch = _watch(day, compiled)
    start = time.perf_counter()
    watch.learn_first_task()
    first = time.perf_counter() - start
    a_pass(watch)  # compiles what the second task has besides
    seconds = median(a_pass(watch) for _ in range(day.pairs))
    return {"first_task_seconds": first, "images_per_second": 1 / seconds}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
