"""Times a few steps of methods that never ran here, from which planning tells the time of whole runs."""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from cl_bench.data.batch import Batch
from cl_bench.data.stream import EVALUATION_BATCH
from cl_bench.errors import InputError, RunFailed
from cl_bench.nn.precision import network_in
from cl_bench.plan.measured import Speed, Spent, kind, speed
from cl_bench.records.spec import RunSpec
from cl_bench.run import assemble
from cl_bench.training.trainer import Trainer

STEPS = 10  # batches of a pass that is timed
WARM_UP = 2  # of the task before it
PLAIN_BATCH = 100  # images of a batch of methods that have no setting for it


def batch_of(spec: RunSpec) -> int:
    """Images of a batch of training."""
    return spec.options.get("batch") or PLAIN_BATCH


def shortened(spec: RunSpec, steps: int) -> RunSpec:
    """The run with tasks of so many batches at most, and one pass where it trains for `passes`."""
    # rounded down: no last batch of a few images
    per_class = steps * batch_of(spec) // max(map(len, spec.task_classes)) or 1
    one_pass = {"passes": 1} if "passes" in spec.options else {}
    limit, options = per_class * len(sum(spec.task_classes, ())), {**spec.options, **one_pass}
    return spec.model_copy(update={"limit": limit, "options": options})


def now(device: torch.device) -> float:
    """Seconds of a clock, once the device has done what it was told before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def measure(
    specs: Sequence[RunSpec], device: str, compiled: bool, say: Callable[[str], None]
) -> Mapping[str, Speed]:
    """The speed of every kind of run, see `cl_bench.plan.measured.kind`, from the first of each.

    What fails is said, and left out.
    """
    first: dict[str, RunSpec] = {}
    for spec in specs:
        first.setdefault(kind(spec), spec)
    found = {}
    for number, (key, spec) in enumerate(first.items(), 1):
        say(f"probe {number}/{len(first)}: {STEPS} steps of {spec.label} on {spec.benchmark_name()}")
        try:
            found[key] = _measured(spec, torch.device(device), compiled, say)
        except (InputError, RunFailed, torch.OutOfMemoryError) as error:
            say(f"warning: the time of {spec.label} stays unknown: {str(error).splitlines()[0]}")
    return found


def _measured(spec: RunSpec, device: torch.device, compiled: bool, say: Callable[[str], None]) -> Speed:
    """Of the second task, after a shorter first one; of all classes at once, after some of their images."""
    source = assemble.open_source(spec)
    parts = [shortened(spec, steps) for steps in (WARM_UP, STEPS)]
    short, timed = (assemble.build_stream(part, source, device) for part in parts)
    method = assemble.build_method(parts[1], source, device, timed.num_tasks)
    assemble.prepare_kernels(compiled, say, assemble.batch_sizes(method, 1, None))
    trainer = Trainer(spec.data_seed, device, spec.precision)
    method.learn(short.task(0), trainer)
    if timed.num_tasks == 1:
        method = assemble.build_method(parts[1], source, device, 1)
    task, passed, start = timed.task(timed.num_tasks > 1), trainer.images_seen, now(device)
    method.learn(task, trainer)
    learned = now(device)
    inputs, labels = timed.probe(task.index + 1, 1, STEPS * batch_of(spec))
    rows, at_once = np.arange(len(labels)), method.predicts_together or EVALUATION_BATCH
    with torch.inference_mode(), network_in(spec.precision):
        for begin in range(0, len(rows), at_once):
            method.predict(Batch(inputs(rows[begin : begin + at_once])))
    seconds = learned - start, now(device) - learned
    images, predicted = trainer.images_seen - passed, len(rows) * method.prediction_passes
    return speed(method, Spent([(task, len(task))], images, seconds[0], predicted, seconds[1]))
