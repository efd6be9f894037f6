"""Values that bring a gradient of their own."""

from collections.abc import Iterable

from torch import Tensor


def steered(value: Tensor, gradients: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The same number, whose gradient is as given for each of these parameters, and zero for all else."""
    terms = [
        (gradient.detach() * (parameter - parameter.detach())).sum() for parameter, gradient in gradients
    ]
    return value.detach() + sum(terms)
