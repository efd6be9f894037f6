"""Which of several results no other beats in both of two ways."""

from collections.abc import Sequence


def pareto(points: Sequence[tuple[float, float]]) -> set[int]:
    """Places of the pairs, such as accuracy and forgetting or accuracy and a cost, that no other beats.

    Another beats one whose first value is at least as high and whose second is at most as high, one of them
    better.
    """

    def beats(other: tuple[float, float], own: tuple[float, float]) -> bool:
        return other[0] >= own[0] and other[1] <= own[1] and other != own

    return {i for i, own in enumerate(points) if not any(beats(other, own) for other in points)}
