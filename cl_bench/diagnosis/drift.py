"""How features, scores and answers of the same images change, whatever the method."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from torch.nn import functional as F

from cl_bench.data.batch import Batch
from cl_bench.training.method import Method


@dataclass(frozen=True)
class Answers:
    """Scores (B, K) of some images, and the features (B, F) that the networks made on the way."""

    scores: Tensor
    features: Tensor | None  # None: no network pooled any

    @classmethod
    def of(cls, method: Method, batch: Batch) -> "Answers":
        """Those of a method as it is; features of networks that never change are left out."""
        with _pooled(method) as found:
            scores = method.predict(batch)
        own = found[method.settled_passes :] or found
        return cls(scores, torch.cat(own, dim=1) if own else None)


@contextmanager
def _pooled(method: Method) -> Iterator[list[Tensor]]:
    """The features that vision transformers pool in the body, in order."""
    found: list[Tensor] = []
    vits = [module for module in method.modules() if isinstance(module, VisionTransformer)]
    hooks = [vit.head_drop.register_forward_hook(lambda _, given, out: found.append(out)) for vit in vits]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def drift(before: Sequence[Answers], after: Sequence[Answers], classes: int) -> dict[str, float | None]:
    """From one list of batches' answers to the other, `classes` of which were known before."""
    scores, new = (torch.cat([each.scores for each in answers]) for answers in (before, after))
    old, kept = scores[:, :classes], new[:, :classes]
    return {
        **_change("feature", *(_features(answers) for answers in (before, after))),
        **_change("score", old, kept),
        "same_answer": float((scores.argmax(1) == new.argmax(1)).double().mean()),
        "same_old_answer": float((old.argmax(1) == kept.argmax(1)).double().mean()),
    }


def _features(answers: Sequence[Answers]) -> Tensor | None:
    """Of all batches, (B, F); None where a batch has none."""
    found = [each.features for each in answers if each.features is not None]
    return torch.cat(found) if len(found) == len(answers) else None


def _change(name: str, old: Tensor | None, new: Tensor | None) -> dict[str, float | None]:
    """Mean cosine, and mean length of the change over that of the old; None where they cannot be compared."""
    if old is None or new is None or old.shape != new.shape:
        return {f"{name}_cosine": None, f"{name}_change": None}
    old, new = old.double(), new.double()
    changes = (new - old).norm(dim=1) / old.norm(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
    return {
        f"{name}_cosine": float(F.cosine_similarity(old, new, dim=1).mean()),
        f"{name}_change": float(changes.mean()),
    }
