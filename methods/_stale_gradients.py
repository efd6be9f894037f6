"""Gradients that are cleared to zero and not to nothing, as optimizers of torch did up to version 1.13."""

from dataclasses import replace
from functools import cache

import torch
from torch import optim

from cl_bench.training.phase import Phase


def with_stale_gradients(first: Phase, second: Phase, from_the_start: bool) -> list[Phase]:
    """Two stages with one optimizer, which moves all that ever had a gradient by its moments.

    What the second stage trains joins it `from_the_start`, because an earlier task left it gradients of zero,
    or with the second stage.
    """

    @cache
    def shared() -> optim.Optimizer:
        found = first.optimizer()
        if from_the_start:
            found.add_param_group({"params": _trained(second)})
        return found

    def joined() -> optim.Optimizer:
        if not from_the_start:
            shared().add_param_group({"params": _trained(second)})
        return shared()

    def filled(phase: Phase) -> None:
        phase.after_backward()
        for group in shared().param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)

    return [
        replace(first, optimizer=shared, after_backward=lambda: filled(first)),
        replace(second, optimizer=joined, after_backward=lambda: filled(second)),
    ]


def _trained(phase: Phase) -> list[torch.nn.Parameter]:
    return [parameter for group in phase.optimizer().param_groups for parameter in group["params"]]
