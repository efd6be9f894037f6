"""Times what a method does in the second task of its stream, and the bare frozen network beside it."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cl_bench.data.batch import Batch
from cl_bench.data.stream import Stream, Task
from cl_bench.errors import InputError
from cl_bench.nn.attention import explicit
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.precision import autocast, network_in
from cl_bench.nn.projection import ProjectedAdam
from cl_bench.profiling.probe import batch_of, now, shortened
from cl_bench.records.spec import RunSpec
from cl_bench.run import assemble
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer

STEPS = 4  # batches of a measurement
COUNTED = 16  # images whose operations are counted: without fused attention a whole batch would not fit
# as files of measurements call the parts of a step
PARTS = (
    "transfer", "transform", "forward", "backward", "gradient projection", "optimiser", "update projection",
)  # fmt: skip

Projection = Callable[[Tensor], Tensor]


class _Timed(Trainer):
    """Knows how long the passes took that statistics made; an image counts for each network it passes."""

    seconds, images = 0.0, 0

    def plain(
        self,
        task: Task,
        batch: int,
        chosen: np.ndarray | None = None,
        shared: bool = False,
        networks: int = 1,
    ) -> Iterator[Batch]:
        start = now(self.device)
        for part in super().plain(task, batch, chosen, shared, networks):
            self.images += len(part) * networks
            yield part
        self.seconds += now(self.device) - start


class Stopwatch:
    """A method in the second task of its stream; all times are seconds per image."""

    trains = True  # something in the second task

    def __init__(self, spec: RunSpec, device: torch.device, compiled: bool = False):
        self.benchmark, self.batch, self.spec = spec.benchmark_name(), batch_of(spec), shortened(spec, STEPS)
        self.source = assemble.open_source(self.spec)
        self.stream: Stream = assemble.build_stream(self.spec, self.source, device)
        self.method = assemble.build_method(self.spec, self.source, device, self.stream.num_tasks)
        if self.stream.num_tasks < 2:
            advice = "name a method that learns task after task with --methods"
            raise InputError(f"{spec.method} learns all classes at once, and has no second task; {advice}")
        self.device, self.backbone = device, self.method.backbone
        self.trainer = _Timed(self.spec.data_seed, device, self.spec.precision)
        vit: Any = self.backbone.vit
        tokens = vit.patch_embed.num_patches + vit.num_prefix_tokens
        few = explicit(torch.empty(1, 1, tokens, 1, device=device))
        for block in vit.blocks:  # of the bare network; methods call a block's parts
            block.attn.fused_attn = not few  # whichever of timm's two is the faster
            if compiled:
                block.compile()

    def learn_first_task(self) -> float | None:
        """Seconds per image of the statistics after it; None for methods without."""
        self.method.learn(self.stream.task(0), self.trainer)  # that warms up
        found = [self._end_task() for _ in range(3)]
        statistics = [seconds for seconds in found if seconds is not None]
        self.statistics_flops = _counted(self._end_task) / max(1, self.trainer.images)
        self.task = self.stream.task(1)
        self.method.grow(self.task)
        self.trains = bool(self.method.phases(self.task))
        if self.trains:
            self.method.begin_task(self.task, self.trainer)
        inputs, labels = self.stream.probe(1, 1, self.batch)
        self.inputs = inputs(np.arange(min(self.batch, len(labels))))
        return median(statistics) if len(statistics) == len(found) else None

    def _end_task(self) -> float | None:
        """Seconds per image of what a copy of the method, on the same network, makes of a learned task."""
        first = self.stream.task(0)
        if not self.method.phases(first):  # what it knows of these images is what is measured
            first = assemble.build_stream(self.spec, self.source, self.device).task(0)
        self.trainer.seconds, self.trainer.images = 0.0, 0
        network = {id(module): module for module in self.backbone.modules()}  # what deepcopy takes for copied
        copy.deepcopy(self.method, network).end_task(first, self.trainer)
        return self.trainer.seconds / self.trainer.images if self.trainer.images else None

    def pair(self) -> tuple[float, float]:
        """Seconds per image of the trainer's own passes, and of the bare network's forward and backward."""
        start = now(self.device)
        before = self.trainer.images_seen
        self.method.minimize(self.task, self.trainer)
        own = (now(self.device) - start) / (self.trainer.images_seen - before)
        return own, self.seconds(self.bare_step)

    def seconds(self, step: Callable[[], None]) -> float:
        """Of one image, over as many steps as a measurement of training has."""
        start = now(self.device)
        for _ in range(STEPS):
            step()
        return (now(self.device) - start) / (STEPS * len(self.inputs))

    def bare_step(self) -> None:
        """timm's own forward of all tokens, and its gradient at the patch tokens."""
        hook = self.backbone.vit.patch_embed.register_forward_hook(
            lambda module, inputs, output: output.detach().requires_grad_()
        )
        try:
            with network_in(self.spec.precision), autocast(self.device):
                features = _timm_features(self.backbone, self.inputs)
            features.sum().backward()
        finally:
            hook.remove()

    @torch.no_grad()
    def bare_forward(self, precise: bool = False) -> None:
        """timm's own forward, without gradients; `precise` is in full precision, as statistics are."""
        with network_in("fp32" if precise else self.spec.precision), autocast(self.device):
            _timm_features(self.backbone, self.inputs)

    @torch.inference_mode()
    def evaluate(self) -> None:
        """The method's own prediction."""
        with network_in(self.spec.precision):
            self.method.predict(Batch(self.inputs))

    def shares(self, rounds: int) -> dict[str, float]:
        """The share of each part of a step that waits for the part before it."""
        phase, spent = self.method.phases(self.task)[0], dict.fromkeys(PARTS, 0.0)
        optimizer = phase.optimizer()
        if isinstance(optimizer, ProjectedAdam):
            pairs = optimizer.projections
            optimizer.projections = [(one, self._watched(project, spent)) for one, project in pairs]
        order = np.arange(min(self.batch, len(self.task)))

        @contextmanager
        def part(name: str) -> Iterator[None]:
            start = now(self.device)
            yield
            spent[name] += now(self.device) - start

        for number in range(rounds):
            with part("transfer"):
                self.task.moved(order)
            with part("transform"):
                batch = self.task.augmented(order, number)
            optimizer.zero_grad(set_to_none=True)
            with part("forward"), network_in(self.spec.precision):
                loss = phase.loss(batch)
            with part("backward"):
                loss.backward()
            with part("gradient projection"):
                phase.after_backward()
            with part("optimiser"):
                optimizer.step()
        spent["optimiser"] -= spent["update projection"]  # which is part of it
        spent["transform"] = max(0.0, spent["transform"] - spent["transfer"])  # which is part of it
        total = sum(spent.values())
        return {name: value / total for name, value in spent.items()}

    def _watched(self, project: Projection, spent: dict[str, float]) -> Projection:
        """The projection, which adds its seconds to those spent."""

        def watched(update: Tensor) -> Tensor:
            start = now(self.device)
            projected = project(update)
            spent["update projection"] += now(self.device) - start
            return projected

        return watched

    def flops(self) -> float:
        """Floating-point operations of training per image that passes, over all phases of the task."""
        order, total, images = np.arange(min(self.batch, len(self.task), COUNTED)), 0.0, 0
        for phase in self.method.phases(self.task):
            batch, passing = self.task.augmented(order, 0), phase.image_passes(len(self.task))
            total += passing * _counted(partial(_step, phase, batch)) / len(order)
            images += passing
        return total / images

    def bare_flops(self, step: Callable[[], None]) -> float:
        """The same of one of the bare network's own steps."""
        return _counted(step) / len(self.inputs)

    def peak(self) -> float:
        """Operations per second of the fastest of a few large matrix products."""
        return peak_flops(self.device, self.spec.precision)


def peak_flops(device: torch.device, precision: str) -> float:
    """Operations per second of the fastest of a few large matrix products in a precision."""
    length = 8192 if device.type == "cuda" else 2048
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    matrix = torch.randn(length, length, device=device, dtype=dtype)
    times = []
    for _ in range(5):
        start = now(device)
        matrix @ matrix
        times.append(now(device) - start)
    return 2 * length**3 / min(times)


def _step(phase: Phase, batch: Batch) -> None:
    phase.loss(batch).backward()


class _NoModules(nullcontext):
    """In place of the counter's record of modules, which inference mode does not allow."""

    parents = frozenset({"Global"})


def _counted(step: Callable[[], object]) -> int:
    """Floating-point operations of a step; a CPU's fused attention, which is not counted, is off."""
    counter: Any = FlopCounterMode(display=False)
    counter.mod_tracker = _NoModules()
    with counter, sdpa_kernel(SDPBackend.MATH):
        step()
    return counter.get_total_flops()


def _timm_features(backbone: Backbone, images: Tensor) -> Tensor:
    return backbone.vit.forward_head(backbone.vit.forward_features(images), pre_logits=True)
