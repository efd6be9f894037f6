"""What learns slowly in SLCA: all of a network, or (SLCA++) LoRA and the network's small parameters."""

import math
from collections.abc import Iterable

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.nn.backbone import Backbone
from cl_bench.nn.edits import NONE
from cl_bench.nn.lora import WholeLoRA
from cl_bench.training.aligned_method import AlignedConfig
from cl_bench.training.phase import half_cosine
from cl_bench.training.work import through

Part = tuple[Iterable[nn.Parameter], float]
"""What is trained, and its learning rate in that of the newest head."""
TARGET, P = 1e-4, 1e-7  # the smallest target of RCE, and its smallest probability


class SlowConfig(AlignedConfig):
    """The authors' settings for CIFAR-100; rates are in that of the newest head."""

    slow: float = Field(0.01, ge=0)  # the network's rate
    milestone: float = Field(0.9, gt=0, le=1)  # share of the passes after which rates are a tenth


class HybridConfig(SlowConfig):
    """The same of SLCA++, which uses neither `slow` nor `milestone`."""

    rank: int = Field(4, ge=1)  # r
    lora_scale: float = Field(0.8, gt=0)  # s
    lora_rate: float = Field(0.5, gt=0)  # LoRA's rate in the first task
    hybrid_rate: float = Field(0.1, gt=0)  # LoRA's in later tasks, and that of norms, biases, class token
    hybrid_decay: float = Field(5e-4, ge=0)  # stands for `weight_decay`
    ce_weight: float = Field(1.0, ge=0)  # a
    rce_weight: float = Field(0.1, ge=0)  # b


class Slow(nn.Module):
    """A copy of the network, all of which learns."""

    forwards = 3  # forward-equivalents of an image: all weights get a gradient

    def __init__(self, config: SlowConfig, backbone: Backbone):
        super().__init__()
        self.config, self.network, self.edits = config, backbone.trainable_copy(), NONE

    def start(self) -> None:
        """What comes before the first task."""

    def parts(self, first: bool) -> list[Part]:
        """What is trained, in the first task or a later one."""
        return [(self.network.parameters(), self.config.slow)]

    def rate(self, done: int, share: float) -> float:
        """The factor on the rate of a part after so many passes: a tenth after the milestone."""
        return 0.1 if done >= self.config.milestone * self.config.passes - 1e-9 else 1.0

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """CE of scores (B, c)."""
        return F.cross_entropy(z, y)

    def beside(self) -> float:
        """Multiply-adds of an image besides the network's own."""
        return 0.0


class Hybrid(Slow):
    """LoRA beside maps of these names, and a network whose norms, biases and class token learn."""

    forwards = 2

    def __init__(self, config: HybridConfig, backbone: Backbone, maps: tuple[str, ...]):
        nn.Module.__init__(self)
        self.config, self.network = config, backbone.trainable_copy(is_small)
        self.edits = WholeLoRA(self.network.vit.blocks, config.rank, maps, config.lora_scale)

    def start(self) -> None:
        """A becomes leading right singular vectors."""
        self.edits.start(self.network.vit.blocks)

    def parts(self, first: bool) -> list[Part]:
        """LoRA, faster in the first task, and the small parameters."""
        small = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        lora = self.config.lora_rate if first else self.config.hybrid_rate
        return [(self.edits.parameters(), lora), (small, self.config.hybrid_rate)]

    def rate(self, done: int, share: float) -> float:
        """Half a cosine, which would end at one rate for all parts, a tenth of the small parameters'."""
        end = 0.1 * self.config.hybrid_rate / share
        return end + (1 - end) * half_cosine(done, self.config.passes)

    def loss(self, z: Tensor, y: Tensor) -> Tensor:
        """a CE + b RCE of scores (B, c), RCE = -log(10^-4) (1 - p_y) but for the smallest probabilities."""
        wrong = z.softmax(dim=1).clamp(min=P).scatter(1, y[:, None], 0.0)  # (B, c)
        RCE = -math.log(TARGET) * wrong.sum(dim=1).mean()
        return self.config.ce_weight * F.cross_entropy(z, y) + self.config.rce_weight * RCE

    def beside(self) -> float:
        """LoRA, through which every token goes."""
        return through(self.network.vit, self.edits)


def is_small(name: str) -> bool:
    """Whether SLCA++ trains this parameter of the network: of a norm, a bias, or the class token."""
    return "norm" in name or name.endswith("bias") or name == "cls_token"
