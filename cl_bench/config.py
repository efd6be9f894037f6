"""Typed configurations: strict pydantic models, canonical JSON, errors that offer the nearest name."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cl_bench.errors import InputError


class Strict(BaseModel):
    """A frozen model that refuses unknown keys and does not guess types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    # options younger than runs of the version, besides its bases'
    ADDED: ClassVar[frozenset[str]] = frozenset()

    def recorded(self) -> dict[str, Any]:
        """The JSON values, without added options that have their default: older runs keep their ids."""
        fields, kinds = type(self).model_fields, type(self).__mro__
        added = {name for kind in kinds for name in vars(kind).get("ADDED", ())}
        unchanged = {name for name in added if getattr(self, name) == fields[name].default}
        return self.model_dump(mode="json", exclude=unchanged)


class BackboneSpec(Strict):
    """Where a vision transformer comes from and how its input is normalized."""

    name: str  # full timm tag, or the name a data set plugin gives
    architecture: dict | None = None  # timm VisionTransformer arguments, where timm has no name for it
    weights: str | None = None  # local file; None means timm's own download
    text_weights: str | None = None  # the same of a text tower that is another model's
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class Transform(Strict):
    """How images reach the network's size S, and how training images are augmented."""

    augment: Literal["none", "crop", "crop-flip", "autoaugment-cifar10", "autoaugment-imagenet"] = "none"
    # whole batches on the device, or image by image with Pillow: the slow reference
    augmenter: Literal["batched", "torchvision"] = "batched"
    crop_scale: float = Field(0.08, gt=0, le=1)  # smallest area of a random crop, as a fraction of the image
    crop_interpolation: Literal["bicubic", "bilinear"] = "bicubic"  # of the random crop after AutoAugment
    # evaluation: squash to S x S; or squash to 8/7 S, shorter side to S, or shorter side to 8/7 S, and then
    # the central S x S
    resize: Literal["squash", "squash-crop", "short-crop", "short-margin-crop"] = "squash"
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"  # of the evaluation resize
    # unit01: values in [0, 1]; half: in [-1, 1]; imagenet: its mean and deviation
    normalisation: Literal["checkpoint", "unit01", "half", "imagenet"] = "checkpoint"


def canonical_json(value) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def unknown(kind: str, name: str, known: Iterable[str], place: str | None = None) -> InputError:
    """The error for a name at `place` that is none of `known`: with the nearest of them, or else with all."""
    known = sorted(known)
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"
    return InputError(f"{place}: " * bool(place) + f"unknown {kind} {name!r}; {hint}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of these that is spelled most alike, None where none is near."""
    spelled = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    return spelled[near[0]] if near else None


def whole_number(text: str) -> int | None:
    """A number of at most 18 digits from 0 to 9, None for what is none: not such as "²", "١٠" or "1_0"."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def number_or_word(text: str) -> float | str:
    """A word that YAML leaves, such as 1e-3, as a number where it is one."""
    try:
        return float(text) if text.isascii() and "_" not in text else text
    except ValueError:
        return text


Model = TypeVar("Model", bound=Strict)


def build_config(model: type[Model], layers: Iterable[Mapping], owner: str) -> Model:
    """`model` from its defaults overridden by each mapping in turn; every later layer wins.

    Raises InputError naming the first unknown key (with the nearest known one) or the first bad value.
    """
    merged: dict = {}
    for layer in layers:
        for key in layer:
            if key not in model.model_fields:
                raise unknown(f"option of {owner}", key, model.model_fields)
        merged.update(layer)
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise unusable(owner, error.errors()[0]) from None


def unusable(owner: str, error: Mapping) -> InputError:
    """The error for a value that pydantic's one says something about."""
    where, said = ".".join(map(str, error["loc"])) or "options", error["msg"].removeprefix("Value error, ")
    return InputError(f"{owner}: {where}={error['input']!r} is not usable: {said}")
