r"""CL-LoRA: low-rank updates that all tasks share in the first blocks, and others of each task in the rest.

He, Duan & Zhu, "CL-LoRA: Continual Low-Rank Adaptation for Rehearsal-Free Class-Incremental Learning", CVPR
2025, arXiv 2505.24816. To queries and values of the first half of the blocks B A x is added: A has random
orthonormal rows and stays, B learns in all tasks. In the other half w_t B_t A_t x is, of each task its own,
with a weight of every block and map. Task t minimizes, over its own classes, by one SGD,
\[ CE(\sigma \cos(f, p), y) + \lambda \, CE\big(softmax(z / \tau), softmax(z' / \tau)\big)
   + \mu \frac{1}{t - 1} \sum_{i<t} |\cos(w_t, w_i)|. \]
\sigma and p are of a head that is then thrown away; z are its scores of the normed tokens behind the first
half, z' those with B as the task before has left it, B'. The gradient of the second term for row j of every
B is multiplied by what the row has of old knowledge, over rows b' of B': \[ D \|b'_j\| / \sum_k \|b'_k\|. \]
Of each class the mean of f under its own task's updates is kept. The score of a class of task i is the cosine
with f under those of task i, and under B as it is now: old means are not renewed.

The paper's loss is one, whose gradient is reassigned. The public code has two steps for a batch, the first of
distillation; this and what else it does stands below the algorithm. At prediction an image passes the shared
blocks anew for every task, in the code and here, where updates are then in the weights.
"""

from functools import partial

import torch
from cl_bench.methods._cl_lora_as_run import CLLoRAConfig, CLLoRAFirstTask, Published
from cl_bench.methods._dual_networks import DualNetworks
from torch import Tensor, nn, optim
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.data.stream import Task, TaskInfo
from cl_bench.nn.dual_lora import likeness
from cl_bench.nn.gradients import steered
from cl_bench.training.phase import Phase, half_cosine
from cl_bench.training.trainer import Trainer

SUMMARY = "low-rank updates that tasks share in the first blocks, and others of each task in the rest"
FAMILY, VENUE, PASSES, KEEPS = "LoRA", "CVPR 2025", "t", "the mean of features per class"
BATCH = 100  # images of a statistics batch


class CLLoRA(DualNetworks):
    """Of its networks and class means see `DualNetworks`."""

    PRESET, keeps = "cl_lora", KEEPS
    SMALL = {"rank": 3}

    def phases(self, task: TaskInfo) -> list[Phase]:
        """One, whose rate falls to 0 as half a cosine."""
        loss, passes = partial(self.loss, task=task), self.config.passes
        return [
            Phase(
                loss=loss,
                optimizer=self.make_optimizer,
                batch=self.config.batch,
                passes=passes,
                rate=lambda done, group: half_cosine(done, passes),
            )
        ]

    def make_optimizer(self) -> optim.Optimizer:
        """A new SGD for B, the task's updates and the head."""
        config, trained = self.config, [*self.trained().values()]
        sgd = {"momentum": config.momentum, "weight_decay": config.weight_decay}
        return optim.SGD(trained, config.learning_rate, **sgd)

    def loss(self, batch: Batch, task: TaskInfo) -> Tensor:
        """From the second task on with distillation, and the gradient that it is to have."""
        tokens = self.backbone.hidden(batch.images, 0)  # (B, N, D)
        x = self.lower(tokens)
        found = self.own_loss(x, batch, task)
        return found + steered(*self.distillation(x, tokens)) if task.index else found

    def own_loss(self, x: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """CE, and mu times the mean |cos|, of tokens x behind the first half."""
        z = self.head(self.upper(x))  # (B, c_t)
        found = F.cross_entropy(z, batch.labels - task.first_label)
        *old, own = (updates.weights for updates in self.specific)
        return found + self.config.orthogonality * likeness(own, old) if old else found

    def distillation(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, list[tuple[nn.Parameter, Tensor]]]:
        """lambda CE(softmax(z' / tau), softmax(z / tau)), z of x, and the gradients of what it moves."""
        tau, moved = self.config.distillation_temperature, [self.shared.B, *self.head.parameters()]
        z, old = self.head(self.exit(x)), self.taught(self.old_exit(tokens))  # (B, c_t)
        value = self.config.distillation * F.cross_entropy(z / tau, (old / tau).softmax(dim=1))
        B, *head = torch.autograd.grad(value, moved, retain_graph=True)  # (L, 2, D, r), ...
        share = self.shared.row_weights()[..., None]  # (L, 2, D, 1)
        return value, [*zip(moved, (share * B, *head), strict=True)]

    def taught(self, features: Tensor) -> Tensor:
        """z' (B, c_t), a constant."""
        return self.head(features).detach()

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Means of the features of the task's classes under its own updates, as at evaluation."""
        for batch in trainer.plain(task, BATCH):
            self.prototypes.add(self.features(batch, task.index), batch.labels)

    def predict(self, batch: Batch) -> Tensor:
        """Cosines (B, K_seen) with the means of a task's classes under its updates."""
        P, scores = F.normalize(self.prototypes.means, dim=1), []
        for index, own in enumerate(self.classes):
            scores.append(F.normalize(self.features(batch, index), dim=1) @ P[own].T)
        return torch.cat(scores, dim=1)


class AsRun(Published, CLLoRA):
    """What the published program does otherwise, each under its own option."""

    display, Config, TRUNK = "CL-LoRA", CLLoRAConfig, CLLoRAFirstTask
    AS_PUBLISHED = {
        "steps": "two_asis", "teacher": "trained_asis", "block_weights": "qkv_asis",
        "normalisation": "unit01",
    }  # fmt: skip
    LEFT_DIFFERENT = (
        "the second step's loss is computed after the first; in the code before it, at which torch stops now "
        "and went on then, with activations and weights of different steps (steps=stale_asis)",
        "class means under updates of other tasks, which the code never reads, are not computed",
        "the published class order is that of PILOT's family, seed 1993 (--order pilot:1993)",
    )


METHOD = AsRun
