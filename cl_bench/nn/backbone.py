"""Frozen timm vision transformers, which run with a method's edits, and what methods require of them."""

import copy
from collections.abc import Callable
from functools import cached_property

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from cl_bench.config import BackboneSpec
from cl_bench.errors import InputError
from cl_bench.nn.edits import NONE, Edits
from cl_bench.nn.forward import embedded, last_norm, through_blocks
from cl_bench.nn.weights import digest


class Backbone(nn.Module):
    """A frozen ViT in evaluation mode, with the size and normalization of its input.

    CLIP models have their frozen text tower too, and others may be given that of a CLIP model.
    """

    def __init__(
        self, vit: VisionTransformer, spec: BackboneSpec, weights_sha256: str, text: nn.Module | None = None
    ):
        super().__init__()
        self.vit = vit.requires_grad_(False).eval()
        self.text = None if text is None else text.requires_grad_(False).eval()
        self.spec = spec
        self.weights_sha256 = weights_sha256

    def train(self, mode: bool = True) -> "Backbone":
        """Stays in evaluation mode whatever the method around it does."""
        return super().train(False)

    @property
    def width(self) -> int:
        """D, the length of a token and of a feature."""
        return self.vit.embed_dim

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.vit.blocks)

    def first_blocks(self, layers: int | None) -> int:
        """How many of the first blocks an option `layers` means; None: all.

        Raises InputError when there are fewer.
        """
        if layers is not None and layers > self.depth:
            raise InputError(f"layers={layers}, but backbone {self.spec.name!r} has {self.depth} blocks")
        return self.depth if layers is None else layers

    def require_blocks(self, needed: int, asked: str) -> None:
        """Raise InputError when there are fewer blocks than `asked` options need."""
        if needed > self.depth:
            has = f"backbone {self.spec.name!r} has {self.depth}"
            raise InputError(f"{asked} need {needed} blocks, {has}; give fewer")

    def features(self, images: Tensor, edits: Edits = NONE) -> Tensor:
        """Features (B, D) of normalized images (B, 3, H, W).

        They are timm's own pooling of the final tokens: the class token where there is one.
        """
        return self.finish(embedded(self.vit, images, edits), 0, edits)

    def class_tokens(self, images: Tensor, edits: Edits = NONE) -> Tensor:
        """The class token (B, D) of images (B, 3, H, W) before the last norm."""
        return through_blocks(self.vit, embedded(self.vit, images, edits), edits, read=1)[:, 0]

    def hidden(self, images: Tensor, until: int, edits: Edits = NONE) -> Tensor:
        """The tokens (B, N, D) that enter block `until`; what a method trains may start there."""
        return through_blocks(self.vit, embedded(self.vit, images, edits), edits, until=until)

    def finish(self, tokens: Tensor, start: int, edits: Edits = NONE) -> Tensor:
        """Features (B, D) of tokens (B, N, D) that enter block `start`."""
        x = through_blocks(self.vit, tokens, edits, first=start, read=self.read)
        return self.vit.forward_head(last_norm(self.vit, x, edits), pre_logits=True)

    def trainable_copy(self, trained: Callable[[str], bool] = lambda name: True) -> "Backbone":
        """A copy of the network, without the text tower, whose parameters of `trained` names are trained.

        They are part of the method's state; the others are this network's own tensors. Full fine-tuning
        trains all.
        """
        kept = {id(value): value for name, value in self.vit.named_parameters() if not trained(name)}
        twin = Backbone(copy.deepcopy(self.vit, kept), self.spec, self.weights_sha256)
        for name, parameter in twin.vit.named_parameters():
            parameter.requires_grad_(trained(name))
        return twin

    @property
    def read(self) -> int | None:
        """How many of the final tokens make the feature: the first, a class token, or all (None)."""
        return 1 if self.vit.has_class_token and self.vit.global_pool == "token" else None

    @torch.no_grad()
    def frozen_features(self, images: Tensor, normed: bool = True) -> Tensor:
        """Features (B, D) of the un-prompted network, without gradient: the query of prompt pools.

        Without `normed` class tokens before the last norm. See `Batch.frozen_features`.
        """
        return self.features(images) if normed else self.class_tokens(images)


class EditedBackbone:
    """A frozen backbone with edits that change no more, once anybody asks: the features can be kept.

    See `Batch.frozen_features`.
    """

    def __init__(self, backbone: Backbone, edits: Edits, on_disk: bool = False):
        """With `on_disk` features are kept for other runs, whose network may be the same."""
        self._backbone, self._edits, self._on_disk = backbone, edits, on_disk

    @cached_property
    def weights_sha256(self) -> str | None:
        """Backbone and edits as they are at the first question; None: features are not kept on disk."""
        if not self._on_disk:
            return None
        own = self._backbone.weights_sha256
        return f"{own}+{digest(self._edits.state_dict())}" if isinstance(self._edits, nn.Module) else own

    @torch.no_grad()
    def frozen_features(self, images: Tensor, normed: bool = True) -> Tensor:
        """Features (B, D) of the edited network, without gradient, or class tokens before the last norm."""
        features = self._backbone.features if normed else self._backbone.class_tokens
        return features(images, self._edits)


def require_class_token(backbone: Backbone, method: str) -> None:
    """Raise InputError unless the backbone's feature is its class token, which prompt pools use as query."""
    if not backbone.vit.has_class_token or backbone.vit.global_pool != "token":
        raise InputError(
            f"{method} needs a backbone that reads its class token, and {backbone.spec.name!r} does not; "
            "choose another, such as --backbone vit_base_patch16_224.augreg_in21k"
        )


def require_class_position(backbone: Backbone) -> None:
    """Raise InputError unless the class token has a position embedding, for prompts that take it too."""
    if backbone.vit.pos_embed is None or backbone.vit.no_embed_class:
        missing = f"backbone {backbone.spec.name!r} has no position embedding of its class token"
        raise InputError(f"position=cls, but {missing}; give position=none")


def require_linear_keys(backbone: Backbone) -> None:
    """Raise InputError where keys are normed, so that they are no linear map of the tokens."""
    if not isinstance(backbone.vit.blocks[0].attn.k_norm, nn.Identity):
        normed = f"backbone {backbone.spec.name!r} normalizes its keys"
        raise InputError(f"{normed}, for which NSP2's first condition is not linear; give b1=off")


def require_text(backbone: Backbone) -> None:
    """Raise InputError for a backbone without a text tower of its own."""
    if backbone.text is None or backbone.text.projection is None:
        needed = "CLIP methods need one, such as --backbone open_clip:ViT-B-16-quickgelu/openai"
        own = " of its own" if backbone.text else ""
        raise InputError(f"backbone {backbone.spec.name!r} has no text tower{own}; {needed}")


def require_reader(backbone: Backbone, method: str) -> None:
    """Raise InputError for a backbone without text tower, or whose text features cannot meet its own."""
    text, example = backbone.text, "vit_base_patch16_224.augreg_in21k+open_clip:ViT-L-14-quickgelu/openai"
    if text is None:
        needed = f"{method} reads class names with one, such as that of --backbone {example}"
        raise InputError(f"backbone {backbone.spec.name!r} has no text tower; {needed}")
    if text.projection is None and text.length != backbone.width:
        lengths = f"text features of {text.length} entries and image features of {backbone.width}"
        raise InputError(f"{method}: {backbone.spec.name!r} has {lengths}; choose one with as long ones")
