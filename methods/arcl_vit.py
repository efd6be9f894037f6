r"""ARCL-ViT: attention's input maps learn on, but not through the attention of patches that were looked at.

Lu et al., "Attention Retention for Continual Learning with Vision Transformers", AAAI 2026, arXiv 2602.05454.
The weights W of queries, keys and values learn slowly beside the task's head, by CE(z / \tau, y) over its own
classes. After a task r_l says how much the class token looks at each patch through the first l blocks (a
rollout); where r_l is below a threshold of the image's own it is little, and m_l is the share of all images
so far for which a patch was little looked at. From the second task on g', the gradient of W without what
flows through attention of tokens that matter (rows of A and S times m_l, of the class token times 0), scales
Adam's finished update U of the true gradient g:
\[ \Delta W = \frac{g'}{g} \circ U, \quad \frac{g'}{g} \text{ within } \pm 10. \]
Mean and covariance of each class's features are kept as they are after its task. A copy of all heads is then
trained on draws of all classes, by CE(z / \tau, y), and predicts; the next task goes on from the heads as
they were.

The paper could not be read in full. That the class token's row is 0, which leaves the last block as the first
task made it (`class_row=free` has 1), that thresholds are a little lower, \pm 10, \tau and the draws are its
code's. As published rollouts are those of the last epoch, while it is learned (`masks_from`), thresholds are
those of other numbers (`thresholds`), rates fall in the fifth epoch where they should after it (`lr_decay`),
and the second head starts as the first was aligned (`head_init`).
"""

import torch
from cl_bench.methods._arcl_as_run import Published
from cl_bench.methods._arcl_settings import ARCLConfig
from torch import Tensor, nn, optim

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, Task, TaskInfo
from cl_bench.nn.backbone import Backbone, require_class_token
from cl_bench.nn.edits import NONE
from cl_bench.nn.masked_gradients import MaskedGradients, require_linear_maps
from cl_bench.nn.projection import Projection, adam
from cl_bench.nn.rollout import LowAttention, Rollout
from cl_bench.nn.shown_attention import See, ShownAttention
from cl_bench.training.refined_method import Refined
from cl_bench.training.trainer import Trainer
from cl_bench.training.work import Extra, with_masked_maps

SUMMARY = "attention's input maps tuned slowly, not through patches that were looked at; heads aligned"
FAMILY, VENUE, PASSES, KEEPS = "whole network", "AAAI 2026", 1, "one Gaussian of features per class"


class ARCL(Refined):
    """W of a copy of the network, m as `low`, heads and Gaussians."""

    PRESET = "arcl_vit"
    SMALL = {"qkv_share": 0.1, "refine_passes": 10, "refine_samples": 32, "refine_learning_rate": 0.01}
    masked: MaskedGradients | None = None

    def __init__(self, config: ARCLConfig, backbone: Backbone, stream: StreamInfo):
        super().__init__(config, backbone, stream)
        require_class_token(backbone, self.display)
        require_linear_maps(backbone, self.display)
        self.network = backbone.trainable_copy(lambda name: name.endswith("attn.qkv.weight"))
        self.prefix = self.network.vit.num_prefix_tokens  # tokens before the patches
        patches = self.network.vit.patch_embed.num_patches
        self.low = self.make_low(backbone.depth, patches, config.margin, self.device)

    @property
    def W(self) -> list[nn.Parameter]:
        """(3 D', D) of every block."""
        return [block.attn.qkv.weight for block in self.network.vit.blocks]

    def make_low(self, *sizes) -> LowAttention:
        """m (L, P) as a mean over images."""
        return LowAttention(*sizes)

    def begin_task(self, task: Task, trainer: Trainer) -> None:
        """From the second task on, what rows of attention count in g'."""
        self.group = trainer.group
        if task.index:
            m = self.low.mean()  # (L, P)
            before = m.new_full((len(m), self.prefix), float(self.config.class_row == "free"))
            self.masked = MaskedGradients(self.W, torch.cat([before, m], dim=1))

    def features(self, batch: Batch, *see: See) -> Tensor:
        """Features (B, D) of the network as it is now; its attention is shown."""
        return self.network.features(batch.images, ShownAttention(see) if see else NONE)

    def loss(self, batch: Batch, task: TaskInfo, *see: See) -> Tensor:
        """CE(z / tau, y) over the task's own classes; g' is found on the way back."""
        see += (self.masked.see,) if self.masked else ()
        return self.head_loss(self.features(batch, *see), batch, task)

    def after_backward(self, task: TaskInfo) -> None:
        """g' / g."""
        if self.masked:
            self.group.all_reduce_sum(self.masked.gradients)
            self.ratios = self.masked.ratios()

    def projections(self, task: TaskInfo) -> list[Projection]:
        """(g' / g) U, from the second task on."""
        return [(W, lambda U, l=l: self.ratios[l] * U) for l, W in enumerate(self.W) if task.index]

    def make_optimizer(self, task: TaskInfo) -> optim.Optimizer:
        """A new Adam for W, at a rate of its own, and the newest head."""
        rate, decay = self.config.learning_rate, self.config.weight_decay
        groups = [{"params": self.W, "lr": self.config.qkv_share * rate}]
        groups += [{"params": [*self.head.heads[-1].parameters()]}]
        fused = self.device.type == "cuda"
        return adam(groups, self.projections(task), lr=rate, weight_decay=decay, fused=fused)

    def repeats(self) -> int:
        """Ten passes share a shuffle, or none do."""
        return 10 if self.config.epoch_mode == "repeat10" else 1

    def end_task(self, task: Task, trainer: Trainer) -> None:
        """Rollouts of the task's images join m; Gaussians of their features; refinement."""
        self.masked = None
        looks = self.config.masks_from == "trained" and not self.is_last(task)

        def described(batch: Batch) -> Tensor:
            if not looks:
                return self.features(batch)
            rollout = Rollout(self.prefix)
            f = self.features(batch, rollout.see)
            self.low.add(rollout.rows(), batch.labels)
            return f

        self.refine(task, trainer, described)

    def extra(self) -> Extra:
        """Gradients of W, and masked ones."""
        return with_masked_maps(super().extra(), self.W, self.network.vit, self.config.batch)


class AsRun(Published, ARCL):
    """What the published program does otherwise, each under its own option."""

    display, Config = "ARCL-ViT", ARCLConfig
    AS_PUBLISHED = {
        "masks_from": "training_asis", "thresholds": "window_asis", "lr_decay": "last_fifth_asis",
        "head_init": "refined_asis",
    }  # fmt: skip
    LEFT_DIFFERENT = (
        "the network computes in fp32 or bf16 (precision), where the code trains in fp16",
        "thresholds are found in double precision; in single precision, which the code has with numpy 2, the "
        "second derivative of its curve is rounding",
        "updates of a network of two blocks are scaled too, which the code leaves as they are",
    )


METHOD = AsRun
