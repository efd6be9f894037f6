"""CLIP models of open_clip: the image tower as a timm ViT, and the text tower with its tokenizer."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from timm.layers import QuickGELU
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from cl_bench.config import BackboneSpec, unknown
from cl_bench.errors import InputError
from cl_bench.nn import hub
from cl_bench.nn import weights as weight_files

PREFIX = "open_clip:"
# of a checkpoint, as open_clip asks for them
FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
SENTENCES = 256  # encoded at a time
# what a plain image tower may say about itself; any other key builds a tower that timm's VisionTransformer is
# not
PLAIN_VISION = {"layers", "width", "head_width", "mlp_ratio", "patch_size", "image_size"}


class TextTower(nn.Module):
    """A frozen text encoder, with the logarithm of the logit scale.

    It holds the image tower's projection (E, D) into the common space too; None beside images that are
    another model's.
    """

    def __init__(self, clip: nn.Module, tokenizer, length: int, projection: Tensor | None = None):
        super().__init__()
        self.clip, self._tokenizer = clip, tokenizer
        self.length = length  # E
        self.register_buffer("projection", projection)

    @property
    def scale(self) -> float:
        """s of the checkpoint, ln 100 for OpenAI's."""
        return self.clip.logit_scale.item()

    @torch.no_grad()
    def encode(self, names: Sequence[str], templates: Sequence[str]) -> Tensor:
        """Unit vectors (K, E) of classes: normalized means over templates of normalized sentence features."""
        sentences = [template.replace("{}", name) for name in names for template in templates]
        tokens = self._tokenizer(sentences).to(self.clip.logit_scale.device)
        features = torch.cat(
            [F.normalize(self.clip.encode_text(part), dim=1) for part in tokens.split(SENTENCES)]
        )
        return F.normalize(features.unflatten(0, (len(names), len(templates))).mean(1), dim=1)

    def reads(self, sentence: str) -> bool:
        """Whether a sentence is read to its end: a longer one is cut, and one more word changes nothing."""
        short, long = self._tokenizer([sentence, f"{sentence} more"])
        return not torch.equal(short, long)


def resolve(name: str, image_size: int | None, weights: str | None) -> BackboneSpec:
    """The specification of "open_clip:MODEL/PRETRAINED", or of "open_clip:MODEL" with a weights file.

    Raises InputError for unknown names, and for pairs whose activation is not the one the checkpoint was
    trained with.
    """
    import open_clip

    model, _, tag = name.removeprefix(PREFIX).partition("/")
    if model not in open_clip.list_models():
        raise unknown("open_clip model", model, open_clip.list_models())
    tags = open_clip.list_pretrained_tags_by_model(model)
    if tag and tag not in tags:
        raise unknown(f"checkpoint of open_clip model {model}", tag, tags)
    if not tag and not weights:
        pairs = ", ".join(f"{PREFIX}{model}/{one}" for one in tags)
        pairs = pairs or "none is published: give --weights FILE"
        raise InputError(f"backbone {name!r} names several checkpoints; give one of: {pairs}")
    if weights and not Path(weights).is_file():
        raise InputError(f"no weights file {weights!r}; expected open_clip's own parameter names")
    config, published = open_clip.get_model_config(model), open_clip.get_pretrained_cfg(model, tag) or {}
    if tag and bool(published.get("quick_gelu")) != bool(config.get("quick_gelu")):
        right = f"{model}-quickgelu" if published.get("quick_gelu") else model.removesuffix("-quickgelu")
        pair = f"{name!r} pairs the weights with another activation than they were trained with"
        raise InputError(f"{pair}; use {PREFIX}{right}/{tag}")
    return BackboneSpec(
        name=name,
        weights=weights and str(Path(weights).resolve()),
        image_size=image_size or config["vision_cfg"]["image_size"],
        mean=tuple(published.get("mean") or open_clip.OPENAI_DATASET_MEAN),
        std=tuple(published.get("std") or open_clip.OPENAI_DATASET_STD),
    )


def build(
    spec: BackboneSpec, state: dict[str, Tensor] | None, empty: bool = False
) -> tuple[VisionTransformer, TextTower, dict[str, Tensor]]:
    """An empty timm ViT of the image tower's shape, the text tower, and open_clip's weights by their names.

    `state` are the weights from a file; without them open_clip downloads its own, or there are none with
    `empty`. Raises InputError when they cannot be had or do not fit.
    """
    import open_clip

    model = spec.name.removeprefix(PREFIX).partition("/")[0]
    config = open_clip.get_model_config(model)
    vision = config["vision_cfg"]
    if odd := sorted(set(vision) - PLAIN_VISION):
        raise InputError(f"backbone {spec.name!r} has an image tower that is no plain ViT ({', '.join(odd)})")
    clip = _model(spec, state, empty)
    state = clip.state_dict()
    heads = vision["width"] // vision.get("head_width", 64)
    vit = VisionTransformer(
        img_size=spec.image_size,
        patch_size=vision["patch_size"],
        embed_dim=vision["width"],
        depth=vision["layers"],
        num_heads=heads,
        mlp_ratio=vision.get("mlp_ratio", 4.0),
        num_classes=0,
        pre_norm=True,
        norm_layer=partial(nn.LayerNorm, eps=1e-5),
        act_layer=QuickGELU if config.get("quick_gelu") else nn.GELU,
    )
    projection = state["visual.proj"].T.float().contiguous().clone()
    return vit, _text_tower(clip, model, projection), state


def borrowed(spec: BackboneSpec, state: dict[str, Tensor] | None, empty: bool = False) -> TextTower:
    """The text tower of an open_clip model, for images that are another model's. Raises as `build`."""
    return _text_tower(_model(spec, state, empty), spec.name.removeprefix(PREFIX).partition("/")[0], None)


def _text_tower(clip: nn.Module, model: str, projection: Tensor | None) -> TextTower:
    import open_clip

    clip.visual, length = nn.Identity(), open_clip.get_model_config(model)["embed_dim"]
    return TextTower(clip, open_clip.get_tokenizer(model), length, projection)


def _model(spec: BackboneSpec, state: dict[str, Tensor] | None, empty: bool) -> nn.Module:
    """open_clip's model with weights from a file's `state`, or its own."""
    import open_clip

    model, _, tag = spec.name.removeprefix(PREFIX).partition("/")
    if state is None and not empty:
        return _downloaded(spec.name, model, tag)
    # without values where none are wanted: random ones of a large network take minutes
    where = {"device": "meta"} if empty else {}
    try:
        logging.disable(logging.WARNING)  # it would say that the weights are random
        with torch.device("meta") if empty else nullcontext():
            clip = open_clip.create_model(model, load_weights=False, **where)
    finally:
        logging.disable(logging.NOTSET)
    if state is None:
        clip.logit_scale = nn.Parameter(torch.zeros(()))  # which is looked at
        return clip
    weight_files.require_fit(state, clip.state_dict(), spec)
    clip.load_state_dict(state)
    return clip


def _downloaded(name: str, model: str, tag: str) -> nn.Module:
    import open_clip

    repository, _, file = open_clip.get_pretrained_cfg(model, tag).get("hf_hub", "").rpartition("/")
    if repository and not file:
        hub.fetch(repository, FILES, name)
    try:
        with hub.reached():
            return open_clip.create_model(model, pretrained=tag, precision="fp32")
    except Exception as error:  # open_clip raises whatever it meets
        raise hub.unusable(error, name) from error
