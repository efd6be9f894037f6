"""What stands around HiDe-Prompt's prompts: task inference, a head, what is kept of classes, alignment."""

from collections.abc import Callable
from functools import cached_property

import torch
from cl_bench.methods._hide_settings import HiDeConfig
from cl_bench.methods._task_inference import TaskInference
from torch import Tensor, nn

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, require_class_token
from cl_bench.nn.centroids import ClassCentroids
from cl_bench.nn.gaussians import ClassGaussians
from cl_bench.nn.heads import TaskHeads, new_head
from cl_bench.training.alignment import align_in_steps
from cl_bench.training.method import Method
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra

BATCH = 24  # images of a statistics batch


class Inferring(Method):
    """g with its MLP (`tii`), a head h, and what is kept of each class's features q and f."""

    queries = True

    def __init__(self, config: HiDeConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_class_token(backbone, self.display)
        generator = seeds.generator(stream.init_seed, "task inference")
        self.tii = TaskInference(backbone.width, generator).to(self.device)
        self.head = TaskHeads(backbone.width)
        self.of_q, self.of_f = self.new_statistics("q"), self.new_statistics("f")
        self.losses: dict[str, list[float]] = {}  # first and last of both alignments

    def new_statistics(self, space: str) -> ClassCentroids | ClassGaussians:
        """Room for what is kept of classes in one space."""
        config, D = self.config, self.backbone.width
        if config.statistics == "gaussian":
            return ClassGaussians(D, config.ridge, self.device)
        seed = seeds.derived_seed(self.stream.init_seed, "centroids", space)
        return ClassCentroids(D, config.centroids, config.ridge, seed, self.device)

    @property
    def keeps(self) -> str:
        """In both spaces."""
        centroids = "centroids of two features per class, with variances"
        return centroids if self.config.statistics == "centroids" else "two Gaussians of features per class"

    def drawing(self, name: str, index: int) -> torch.Generator:
        """Of the rows of g or h with which a task starts."""
        return seeds.generator(self.stream.init_seed, name, index)

    @cached_property
    def untrained(self) -> list[nn.Linear]:
        """The rows of h with which tasks start."""
        sizes = enumerate(self.stream.task_sizes)
        drawn = (
            new_head(self.backbone.width, size, "normal", self.drawing("h", index)) for index, size in sizes
        )
        return [rows.to(self.device) for rows in drawn]

    def grow(self, task: TaskInfo) -> None:
        """Add the task's rows of g and h, and room for its classes; freeze old rows."""
        self.tii.requires_grad_(True)
        for name, head in (("g", self.tii.head), ("h", self.head)):
            head.grow(len(task.classes), self.drawing(name, task.index), "normal", self.device)
        for known in (self.of_q, self.of_f):
            known.grow(len(task.classes))

    def query(self, batch: Batch) -> Tensor:
        """q (B, D)."""
        return batch.frozen_features(self.backbone)

    def scores(self, f: Tensor) -> Tensor:
        """Of all classes seen, (B, K_seen), or of all of the stream with `eval_classes=all`."""
        if self.config.eval_classes == "seen":
            return self.head(f)
        return torch.cat([self.head(f), *(rows(f) for rows in self.untrained[len(self.head.heads) :])], dim=1)

    def describe(self, task: Task, trainer: Trainer, extract: Callable[[Tensor], Tensor]) -> None:
        """Statistics of the task's classes, where anything needs them; f of images is by `extract`."""
        if self.statistics_images(task, 1):
            both, labels = trainer.features(
                task, lambda batch: torch.stack([self.query(batch), extract(batch.images)], dim=1), BATCH
            )
            self.of_q.describe(both[:, 0], labels)
            self.of_f.describe(both[:, 1], labels)

    def align(self, task: Task, trainer: Trainer) -> None:
        """Train all of g, its MLP and h on draws, by CE over all classes; not in the first task."""
        config, self.losses = self.config, {}
        if task.index and config.align_passes:
            for name, part, known, rate, samples in (
                ("g", self.tii, self.of_q, config.tii_align_rate, config.tii_samples),
                ("h", self.head, self.of_f, config.align_rate, config.samples),
            ):
                key = (self.stream.init_seed, "align", name, task.index)
                steps = task.first_label  # one for each class of earlier tasks
                losses = align_in_steps(part, known, rate, samples, steps, config, task, trainer, key)
                self.losses[name] = losses[:: max(1, len(losses) - 1)]

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Each image once, unless there is but one task."""
        return 0 if task.index == 0 and self.is_last(task) else images

    def forwards(self, task: TaskInfo, images: int, augmented: bool) -> int:
        """As for every method, and q: once an image where images enter unchanged, else when asked for."""
        asked = sum(phase.image_passes(images) for phase in self.phases(task) if phase.asks)
        asked += self.statistics_images(task, images)
        return super().forwards(task, images, augmented) + (asked if augmented else images)

    def extra(self) -> Extra:
        """Prefixes, g and its MLP, and their choice; L_con with what is kept of all classes; draws."""
        config, D, K = self.config, self.backbone.width, len(self.of_f.means)
        M, L, centers = config.prompt_length, config.layers, self.of_f.means.numel() / D
        g, h, tasks = self.tii.products(), float(K * D), len(self.head.heads)
        drawn = config.align_passes * K * (config.tii_samples * g + config.samples * h)
        return Extra(
            keys=dict.fromkeys(range(L), M),
            image=g + 2.0 * tasks * L * M * D,
            step=2 * D * (centers + config.batch) ** 2,
            task=3 * drawn,
        )

    def diagnostics(self) -> dict:
        """The first and the last loss of both alignments."""
        return {"alignment_losses": self.losses}
