"""Methods that generate each image's prompt in the middle of a network, and keep a library of classes."""

from abc import abstractmethod
from functools import partial

import torch
from pydantic import Field
from torch import Tensor, nn

from cl_bench import seeds
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, require_class_token
from cl_bench.nn.heads import ProxyHeads
from cl_bench.nn.prompt_generator import PromptGenerator
from cl_bench.nn.prompts import JoinedPrompts, StochasticDepth
from cl_bench.training.library import Library
from cl_bench.training.method import Method
from cl_bench.training.phase import Phase
from cl_bench.training.trainer import Trainer
from cl_bench.training.warmed import WarmedConfig, warmed_phase
from cl_bench.training.work import Extra, of_prompt_generator

PROXIES, STATISTICS = 10, 100  # proxies of a class; images of a statistics batch


class GeneratingConfig(WarmedConfig):
    """The sizes of APG's public code for CIFAR-100."""

    first_learning_rate: float | None = Field(None, gt=0)  # of the first task; None: the same
    lower: int | None = Field(None, ge=1)  # blocks below the prompt; None: half of them
    dropout: float = Field(0.1, ge=0, lt=1)  # of the generator while images are learned
    drop_path: float = Field(0.0, ge=0, lt=1)  # of the frozen network meanwhile (published: 0.1)


class Generating(Method):
    """The generator g with a token a class, proxies of all classes that all tasks train, and the library.

    The config has the fields of `LibraryConfig` too.
    """

    def __init__(self, config: GeneratingConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_class_token(backbone, self.display)
        D, self.lower = backbone.width, config.lower or max(1, backbone.depth // 2)
        backbone.require_blocks(self.lower + 1, f"{self.lower} below the prompt and one above it")
        generator = seeds.generator(stream.init_seed, "generator")
        self.generator = PromptGenerator(D, config.dropout, generator).to(self.device)
        self.head, self.library = ProxyHeads(D, PROXIES, self.device), Library(D, config.ridge, self.device)

    def grow(self, task: TaskInfo) -> None:
        """Add the task's tokens and proxies, and room in the library."""
        self.generator.grow(len(task.classes), seeds.generator(self.stream.init_seed, "tokens", task.index))
        self.head.grow(len(task.classes), seeds.generator(self.stream.init_seed, "head", task.index))
        self.library.grow(len(task.classes))

    def phases(self, task: TaskInfo) -> list[Phase]:
        """The passes over images."""
        config, loss = self.config, partial(self.loss, task=task)
        first = config.first_learning_rate if task.index == 0 else None
        rates = (first or config.learning_rate, config.start_rate, config.end_rate)
        return [warmed_phase(config, self.trained_parts, loss, config.passes, rates, "training")]

    @abstractmethod
    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """The scalar to minimize on images."""

    @property
    def trained_parts(self) -> list[nn.Parameter]:
        """g, its tokens, and the proxies."""
        return [*self.generator.parameters(), *self.head.parameters()]

    def edits(self, prompts: dict[int, Tensor]) -> JoinedPrompts:
        """What prompts do in the network, which leaves branches out at random while images are learned."""
        rate = self.config.drop_path if self.training else 0.0
        return StochasticDepth(prompts, rate, self.backbone.depth) if rate else JoinedPrompts(prompts)

    def tokens(self, images: Tensor) -> Tensor:
        """x (B, N, D) behind the lower blocks; the first is h."""
        return self.backbone.hidden(images, self.lower, self.edits({}))

    def features(self, x: Tensor, p: Tensor) -> Tensor:
        """f (B, D) of tokens (B, N, D) which prompts (B, D) join."""
        return self.backbone.finish(x, self.lower, self.edits({self.lower: p[:, None]}))

    def predict(self, batch: Batch) -> Tensor:
        """z (B, K_seen)."""
        x = self.tokens(batch.images)
        return self.head(self.features(x, self.generator(x[:, 0])[0]))

    def describe(self, task: Task, trainer: Trainer) -> None:
        """Gaussians of h and f, and the mean prompt, of each of the task's classes, as g is now."""
        found, labels = [], []
        for batch in trainer.plain(task, STATISTICS):
            x = self.tokens(batch.images)
            p, _ = self.generator(x[:, 0])
            found.append(torch.stack([x[:, 0], self.features(x, p), p], dim=1))  # (B, 3, D)
            labels.append(batch.labels)
        h, f, p = torch.cat(found).unbind(dim=1)
        self.library.describe(h, f, self.averaged(p), torch.cat(labels))

    def averaged(self, p: Tensor) -> Tensor:
        """Prompts (n, D) in the order of the images by whose classes they are averaged."""
        return p

    @abstractmethod
    def library_loss(self, batch: Batch) -> Tensor:
        """The scalar to minimize on pairs of features (B, 2, D) that are drawn from the library."""

    def refinement(self, task: TaskInfo) -> Phase:
        """Passes of that alone."""
        config = self.config
        rates = (config.refine_learning_rate, config.refine_start_rate, config.refine_end_rate)
        passes = self.refine_passes(task.index)
        return warmed_phase(config, self.trained_parts, self.library_loss, passes, rates, "refinement")

    def refine_passes(self, index: int) -> int:
        """How many after task `index`."""
        return self.config.refine_passes + self.config.refine_growth * index

    def extra(self) -> Extra:
        """The generator, the proxies, and the pairs that the refinement draws in the mean task."""
        tasks, seen = self.stream.num_tasks, len(self.library.prompts)
        passes = sum(self.refine_passes(index) * (index + 1) / tasks for index in range(1, tasks))
        pairs = passes / tasks * seen * self.config.samples
        return of_prompt_generator(self.generator, self.head, self.lower, pairs)
