"""The network of SEMA: what every task may add to it, what it added, and what that costs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cl_bench import seeds
from cl_bench.config import Strict
from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.adapter import Adapters
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.edits import Edits
from cl_bench.nn.heads import TaskHeads
from cl_bench.nn.mixture import Branch, Mixture, Noting
from cl_bench.training.method import Method
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, through

LOOKS = 1_000_000  # beyond the passes of training


class Expanding(Method):
    """Adapters, routers and descriptors, and those that a task may still add: `spare`, by block and task.

    Plans count all that may be added, what has learned only what was.
    """

    current_task_loss = True
    kind: Callable[..., Branch] = Branch

    def __init__(self, config: Strict, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        backbone.require_blocks(config.expandable, f"expandable={config.expandable}")
        first, drawn = backbone.depth - config.expandable, seeds.generator(stream.init_seed, "adapters")
        sizes = (first, backbone.width, config.bottleneck)
        base = Adapters(*sizes, drawn, config.adapter_scale, config.dropout).to(self.device)
        self.mixture, self.spare = Mixture(base, config.expandable), nn.ModuleDict()
        self.expandable = [*range(first, backbone.depth)]
        self.head = TaskHeads(backbone.width)
        self.looks = LOOKS  # passes of scans and for errors, as augmentation numbers them
        self.scanned: dict[int, int] = {}  # images that were looked at before they were learned, by task
        self.largest: dict[int, float] = {}  # deviation of a batch in the task, by block

    def grow(self, task: TaskInfo) -> None:
        """Freeze the adapters so far; a branch of every block, later a spare one; rows of the head."""
        config, seed = self.config, self.stream.init_seed
        self.mixture.requires_grad_(not task.index)
        for l in self.expandable:
            generator = seeds.generator(seed, "branch", l, task.index)
            sizes = (self.backbone.width, config.bottleneck, config.descriptor)
            branch = self.kind(*sizes, config.adapter_scale, config.dropout, generator).to(self.device)
            self.spare[f"{l}_{task.index}"] = branch
            if not task.index:
                self.add(l, task)
        self.head.grow(len(task.classes), seeds.generator(seed, "head", task.index), "uniform", self.device)
        self.head.heads[-1].bias.data.zero_()

    def free(self, task: TaskInfo) -> list[int]:
        """Blocks that may still add an adapter in this task."""
        return [l for l in self.expandable if f"{l}_{task.index}" in self.spare]

    def add(self, l: int, task: TaskInfo) -> None:
        """The spare branch of block l takes part from now on."""
        self.mixture.add(l, task.index, self.spare.pop(f"{l}_{task.index}"))

    def added(self, task: TaskInfo) -> list[int]:
        """Blocks that add an adapter in a task: before it is learned, all that may."""
        index, free = str(task.index), self.free(task)
        return [l for l in self.expandable if l in free or index in self.mixture.branches[str(l)]]

    def branch(self, l: int, task: TaskInfo) -> Branch:
        """The branch of block l that a task adds or may add."""
        key, own = f"{l}_{task.index}", self.mixture.branches[str(l)]
        return self.spare[key] if key in self.spare else own[str(task.index)]

    def features(self, batch: Batch, network: Edits | None = None) -> Tensor:
        """f (B, D) through the mixture; its routers see all tokens, in the last block too."""
        network, depth = network or self.mixture, self.backbone.depth
        return self.backbone.finish(self.backbone.hidden(batch.images, depth, network), depth, network)

    def adapting(self, task: TaskInfo, blocks: list[int]) -> list[nn.Parameter]:
        """New adapters, rows of routers and the head; in the first task the adapters of other blocks too."""
        base = [] if task.index else [*self.mixture.base.parameters()]
        head = [own for own in self.head.parameters() if own.requires_grad]
        return [*base, *(own for l in blocks for own in self.branch(l, task).adapting()), *head]

    def describing(self, task: TaskInfo, blocks: list[int]) -> list[nn.Parameter]:
        """New descriptors."""
        return [own for l in blocks for own in self.branch(l, task).describing()]

    def network(self, task: TaskInfo, blocks: list[int]) -> Edits:
        """What images pass while adapters are trained."""
        return self.mixture

    @torch.no_grad()
    def token_means(self, batch: Batch, until: int | None = None) -> dict[int, Tensor]:
        """The mean tokens (B, D) in each of the last blocks, or of those before block `until`."""
        found: dict[int, Tensor] = {}
        network = Noting(self.mixture, found.__setitem__)
        self.backbone.hidden(batch.images, until or self.backbone.depth, network)
        return found

    @torch.no_grad()
    def settle(self, task: Task, trainer: Trainer, blocks: list[int]) -> None:
        """Mean and deviation of new descriptors' errors, in one more pass over the task's images."""
        found: dict[int, list[Tensor]] = {l: [] for l in blocks}
        self.looks += 1
        for batch in trainer.augmented(task, self.config.scan_batch, None, self.looks) if blocks else ():
            means = self.token_means(batch, max(blocks) + 1)
            for l in blocks:
                found[l].append(self.branch(l, task).errors(means[l]))
        for l in blocks:
            self.branch(l, task).settle(torch.cat(found[l]))

    def load_state(self, state: dict[str, Tensor]) -> None:
        """As of any method, with the branches that the state has."""
        for key in [*self.spare]:
            l, index = map(int, key.split("_"))
            if any(name.startswith(f"mixture.branches.{l}.{index}.") for name in state):
                self.mixture.add(l, index, self.spare[key])
        self.spare.clear()
        super().load_state(state)

    def settling(self, task: TaskInfo) -> int:
        """Passes over a task's images for the errors of trained descriptors."""
        return len(self.added(task)) if task.index else 1

    def statistics_images(self, task: TaskInfo, images: int) -> int:
        """Those for errors, and the scans: at most one for each adapter and one that finds nothing new."""
        added = len(self.added(task))
        scans = min(added + 1, len(self.expandable)) if task.index else 0
        return self.settling(task) * images + self.scanned.get(task.index, scans * images)

    def extra(self) -> Extra:
        """Adapters and routers of all branches, through which every token goes, in the last block too."""
        branches = [one for one in self.modules() if isinstance(one, Branch)]
        adapters = [self.mixture.base, *(branch.adapter for branch in branches)]
        image = sum(through(self.backbone.vit, own) for own in adapters)
        image += self.backbone.width * float(len(branches))
        step = 2.0 * self.config.batch * sum(p.numel() for own in branches[-1:] for p in own.describing())
        return Extra(all_tokens=True, image=image, step=step)

    def diagnostics(self) -> dict:
        """Adapters of each expandable block, and the largest deviation of a batch there in the scans."""
        counts = [len(self.mixture.at(l)) for l in self.expandable]
        return {"adapters": counts, "deviations": [self.largest.get(l) for l in self.expandable]}
