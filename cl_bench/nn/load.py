"""From the name of a backbone to the frozen network with its weights."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import timm
import torch
from timm.models.eva import Eva
from timm.models.eva import checkpoint_filter_fn as eva_filter_fn
from timm.models.vision_transformer import Attention, Block, VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from cl_bench.config import BackboneSpec, unknown
from cl_bench.errors import InputError
from cl_bench.nn import clip, hub
from cl_bench.nn import weights as weight_files
from cl_bench.nn.backbone import Backbone
from cl_bench.nn.rotary import RotaryAttention, is_convertible, of_eva
from cl_bench.nn.words import WordTower

FILES = ("model.safetensors", "pytorch_model.bin")  # of a checkpoint, as timm asks for them
EMPTY = "0" * 64  # in place of the digest of weights that are not there
JOIN = "+"  # between a ViT and the CLIP model that reads text beside it, and between their weights


def require_plain(vit: nn.Module, name: str) -> None:
    """Raise InputError unless the model is built of the blocks that `tokens` reproduces."""
    plain = type(vit) is VisionTransformer and all(
        type(b) is Block and type(b.attn) in (Attention, RotaryAttention) for b in vit.blocks
    )
    if not plain or getattr(vit, "rope", None) is not None:
        odd = f"backbone {name!r} is not a plain timm VisionTransformer ({type(vit).__name__})"
        raise InputError(f"{odd}; expected pre-norm blocks with joint qkv attention")


def architectures() -> list[str]:
    """timm's names of networks that may be plain ones: ViTs, DeiTs, and DINOv3's with rotary positions."""
    plain = timm.list_models(module="vision_transformer")
    plain += timm.list_models(module="deit", exclude_filters=["*distilled*"])
    return plain + timm.list_models("vit_*dinov3*", module="eva")


def resolve(
    name: str, image_size: int | None, weights: str | None, named: dict[str, Callable[[], BackboneSpec]]
) -> BackboneSpec:
    """The full specification of a backbone name; `named` are those that data set plugins bring.

    Raises InputError for unknown names (nearest offered), for bare timm names that stand for several
    checkpoints, and for a missing file.
    """
    if name in named:
        if weights or image_size:
            raise InputError(
                f"backbone {name!r} ships with its weights and size; leave out --weights and --image-size"
            )
        return named[name]()
    if JOIN in name:
        return _resolve_both(name, image_size, weights, named)
    if name.startswith(clip.PREFIX):
        return clip.resolve(name, image_size, weights)
    meant = timm.models.get_deprecated_models().get(name)
    if meant:
        raise InputError(f"backbone {name!r} is timm's old name of {meant!r}; give that")
    known = architectures()
    architecture = name.split(".")[0]
    if architecture not in known:
        raise unknown("backbone", name, [*known, *named])
    tags = timm.list_pretrained(f"{architecture}.*")
    if name != architecture and name not in tags:
        raise unknown("backbone", name, tags)
    twin = name.replace("_clip_", "_clip_quickgelu_")
    if twin != name and "quickgelu" not in name and twin in timm.list_pretrained(f"{twin.split('.')[0]}.*"):
        raise InputError(
            f"backbone {name!r} runs weights trained with QuickGELU on another activation; use {twin}"
        )
    if name == architecture and not weights:
        choice = ", ".join(tags) or "none is published: give --weights FILE"
        raise InputError(f"backbone {name!r} names several checkpoints; give the full tag, one of: {choice}")
    if weights and not Path(weights).is_file():
        raise InputError(
            f"no weights file {weights!r}; expected a .safetensors file with timm's own parameter names"
        )
    configs = [timm.get_pretrained_cfg(tag) for tag in ([name] if name in tags else tags or [name])]
    if len({(config.mean, config.std) for config in configs}) > 1:
        advice = f"give the full tag the weights belong to: {', '.join(tags)}"
        raise InputError(f"the checkpoints of {name!r} expect different input normalizations; {advice}")
    config = configs[0]
    size = image_size or config.input_size[-1]
    return BackboneSpec(
        name=name,
        weights=weights and str(Path(weights).resolve()),
        image_size=size,
        mean=tuple(config.mean),
        std=tuple(config.std),
    )


def _resolve_both(
    name: str, image_size: int | None, weights: str | None, named: dict[str, Callable[[], BackboneSpec]]
) -> BackboneSpec:
    """That of IMAGE+TEXT, with weights FILE or FILE+FILE, where what is left out is downloaded."""
    (image, _, text), (file, _, text_file) = name.partition(JOIN), (weights or "").partition(JOIN)
    if image.startswith(clip.PREFIX) or not text.startswith(clip.PREFIX):
        example = f"vit_base_patch16_224.augreg_in21k{JOIN}{clip.PREFIX}ViT-L-14-quickgelu/openai"
        raise InputError(f"backbone {name!r}: expected a ViT and a CLIP model that reads, such as {example}")
    both = resolve(image, image_size, file or None, named)
    reader = clip.resolve(text, None, text_file or None)
    return both.model_copy(update={"name": f"{both.name}{JOIN}{text}", "text_weights": reader.weights})


def load(spec: BackboneSpec, empty: bool = False) -> Backbone:
    """The frozen backbone with its weights; with `empty` its shape is right, and no value.

    Raises InputError when they cannot be had or do not fit.
    """
    image, joined, reader = spec.name.partition(JOIN)
    if joined:
        own = load(spec.model_copy(update={"name": image, "text_weights": None}), empty)
        read = spec.model_copy(update={"name": reader, "weights": spec.text_weights})
        state = weight_files.read(spec.text_weights) if spec.text_weights else None
        text = clip.borrowed(read, state, empty) if reader.startswith(clip.PREFIX) else WordTower(state)
        digest = EMPTY if empty else weight_files.digest(nn.ModuleList([own.vit, text]).state_dict())
        return Backbone(own.vit, spec, digest, text)
    state = weight_files.read(spec.weights) if spec.weights else None
    digest = EMPTY if empty else None if state is None else weight_files.digest(state)
    text = None
    if spec.name.startswith(clip.PREFIX):
        vit, text, state = clip.build(spec, state, empty)
    elif spec.architecture is not None:
        vit = VisionTransformer(**{**spec.architecture, "img_size": spec.image_size})
    else:
        vit = _create(spec, empty)
    if is_convertible(vit):
        if state is None:
            digest = digest or weight_files.digest(vit.state_dict())
        else:
            _fill(vit, state, spec)
        vit, state = of_eva(vit), None
    require_plain(vit, spec.name)
    patch = vit.patch_embed.patch_size[0]
    if spec.image_size % patch:  # timm would drop the remaining pixels without a word
        patches = f"backbone {spec.name!r} has patches of {patch} pixels"
        raise InputError(f"{patches}; --image-size {spec.image_size} is not a multiple of it")
    if state is not None and not empty:
        _fill(vit, state, spec)
    if digest is None:
        digest = weight_files.digest((vit if text is None else nn.ModuleList([vit, text])).state_dict())
    return Backbone(vit, spec, digest, text)


def _create(spec: BackboneSpec, empty: bool) -> nn.Module:
    published = spec.weights is None and not empty
    if published:
        config = timm.get_pretrained_cfg(spec.name)
        if config.hf_hub_id and not config.hf_hub_filename:
            hub.fetch(config.hf_hub_id, FILES, spec.name)
    try:
        # patches as a sequence, and the feature that DINOv3's own code reads
        eva = {"dynamic_img_size": False, "global_pool": "token"} if "dinov3" in spec.name else {}
        reached = hub.reached() if published else torch.device("meta") if empty else nullcontext()
        with reached:
            return timm.create_model(
                spec.name, pretrained=published, num_classes=0, img_size=spec.image_size, **eva
            )
    except Exception as error:  # timm raises whatever it meets
        if published:
            raise hub.unusable(error, spec.name) from error
        raise InputError(f"cannot build backbone {spec.name!r}: {error}") from error


def _fill(vit: VisionTransformer | Eva, state: dict[str, Tensor], spec: BackboneSpec) -> None:
    """Load timm's or open_clip's weights, whatever position embedding they have; heads are left out."""
    expected = vit.state_dict()
    patch = state.get("patch_embed.proj.weight")
    if isinstance(patch, Tensor) and patch.shape != expected["patch_embed.proj.weight"].shape:
        shapes = f"{tuple(patch.shape)}, expected {tuple(expected['patch_embed.proj.weight'].shape)}"
        raise InputError(
            f"weights {spec.weights} do not fit {spec.name!r}: patch_embed.proj.weight is {shapes}"
        )
    try:
        fitted = eva_filter_fn if isinstance(vit, Eva) else checkpoint_filter_fn
        state = fitted(dict(state), vit)
    except Exception as error:  # it takes shapes for granted
        shapes = [f"{key} is {tuple(value.shape)}" for key, value in state.items() if "pos_embed" in key]
        reason = ", ".join(shapes) or type(error).__name__
        raise InputError(
            f"weights {spec.weights} do not fit {spec.name!r}: "
            f"they cannot be brought to its image size ({reason})"
        ) from error
    # open_clip's own heads have timm's names by now
    state = {key: value for key, value in state.items() if not key.startswith(weight_files.HEADS)}
    weight_files.require_fit(state, expected, spec)
    vit.load_state_dict(state)
