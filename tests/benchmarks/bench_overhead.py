"""How much of a training step on the CPU is outside torch's kernels: in Python, dispatcher and autograd.

    python tests/benchmarks/bench_overhead.py [--methods nsp2] [--precision bf16,fp32] [--threads 1]
        [--rounds 20]

Measured are the trainer's own passes over the second task of the embedded benchmark, in an environment like
that of a run. The time in kernels is the own time of all torch operators that compute something: those that
only make views, reserve memory or call other operators do not count. It is taken under the profiler, the
time of a pass without it, in turn, and of each the least counts, that of rounds in which nothing else ran.
"""

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from cl_bench.launch.warm_processes import called
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.profiling.stopwatch import Stopwatch


def main() -> None:
    """Print a line for every method and precision."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--methods", default="nsp2")
    parser.add_argument("--precision", default="bf16,fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    called(measure, chosen.threads, chosen)


def measure(chosen: argparse.Namespace) -> None:
    """What `main` prints."""
    torch.set_num_threads(chosen.threads)
    for precision in chosen.precision.split(","):
        for spec in make_plan(Request(methods=chosen.methods), precision).specs:
            watch = Stopwatch(spec, torch.device("cpu"))
            watch.learn_first_task()
            whole, kernels = zip(
                *((a_pass(watch), in_kernels(watch)) for _ in range(chosen.rounds)), strict=True
            )
            print(
                f"{spec.display}, {precision}: {1 - min(kernels) / min(whole):.0%} outside kernels, "
                f"{1 / min(whole):.0f} images/s"
            )


def a_pass(watch: Stopwatch) -> float:
    """Seconds per image of the trainer's pass over the second task."""
    before, start = watch.trainer.images_seen, time.perf_counter()
    watch.method.minimize(watch.task, watch.trainer)
    return (time.perf_counter() - start) / (watch.trainer.images_seen - before)


def in_kernels(watch: Stopwatch) -> float:
    """Seconds per image in kernels, of such a pass under the profiler."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        before = watch.trainer.images_seen
        a_pass(watch)
    seconds = sum(event.self_cpu_time_total for event in profiler.key_averages() if computes(event.key)) / 1e6
    return seconds / (watch.trainer.images_seen - before)


def computes(name: str) -> bool:
    """Whether a profiled event is an operator with a kernel of its own."""
    if not name.startswith("aten::") or name.startswith("aten::empty"):
        return False
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    dispatched = set(torch._C._dispatch_get_all_op_names())  # others are of TorchScript alone
    overloads = [
        overload
        for overload in (getattr(packet, name) for name in packet.overloads())
        if overload.name() in dispatched
    ]
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return not any(
        overload.is_view or overload.has_kernel_for_dispatch_key(composite) for overload in overloads
    )


if __name__ == "__main__":
    main()
