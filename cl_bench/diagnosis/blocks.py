"""Prompts in the first blocks of a network as they are before a task, and what becomes of them in it."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.diagnosis.conditions import BlockConditions, changed_statistics
from cl_bench.diagnosis.spaces import Space
from cl_bench.nn.head_moments import HeadMoments, affinity_covariances
from cl_bench.nn.projection import Nullity
from cl_bench.training.layer_prompts import LayerPrompts
from cl_bench.training.method import Method


@dataclass(frozen=True)
class PromptedBlocks:
    """Prompts P (L, R, D), old images' attention under them, and the spaces that it leaves free."""

    P: Tensor
    moments: HeadMoments
    spaces: dict[str, list[Space | None]]  # "b1" and "b2", block by block

    @classmethod
    def of(cls, method: Method, batches: Iterable[Batch]) -> "PromptedBlocks | None":
        """Those of a method as it is; None where it has no prompts that blocks share."""
        if not isinstance(method, LayerPrompts) or (P := method.layer_prompts) is None:
            return None
        moments, backbone = HeadMoments(P, method.backbone.vit), method.backbone
        for batch in batches:
            backbone.features(batch.images, moments.observing(method.attended(batch)))
        covariances = {
            "b1": affinity_covariances(moments.vit, moments.queries),
            "b2": moments.weights.sum(1),
        }
        rule: Nullity = getattr(method.config, "nullity", "official")
        spaces = {name: [Space.of(C, rule) for C in found] for name, found in covariances.items()}
        return cls(P.detach().clone(), moments, spaces)

    def changed(self, method: Method) -> dict[str, list[float | None]]:
        """What a task has done after which the method is as it is, block by block."""
        assert isinstance(method, LayerPrompts) and (P := method.layer_prompts) is not None
        moments, found = self.moments, []
        for l, (old, new) in enumerate(zip(self.P, P.detach(), strict=True)):
            conditions = BlockConditions(moments.vit.blocks[l], moments.queries[l], moments.weights[l])
            delta = (new - old).double()
            values = {
                **conditions.residuals(old, new),
                "update_length": float(delta.norm()),
                **changed_statistics(old, new),
                **_of_space("b1", self.spaces["b1"][l], delta),
                **_of_space("b2", self.spaces["b2"][l], delta.mT),
            }
            found.append(values)
        return {name: [each[name] for each in found] for name in found[0]}

    def spectra(self) -> dict[str, list[list[float]]]:
        """Of both spaces, block by block."""
        return {
            f"spectrum_{name}": [space.spectrum for space in spaces if space]
            for name, spaces in self.spaces.items()
        }


def _of_space(name: str, space: Space | None, rows: Tensor) -> dict[str, float | None]:
    """How an update whose rows are of a space lies in it."""
    names = (f"inside_{name}", f"inside_{name}_random", f"nullity_{name}", f"rank_{name}")
    if space is None:
        return dict.fromkeys(names)
    values = (space.inside(rows), space.dimensions, float(space.nullity), float(space.rank))
    return dict(zip(names, values, strict=True))
