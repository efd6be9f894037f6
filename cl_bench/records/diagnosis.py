"""What `cl-bench run --diagnose` measures of every task: names, what they mean, and how they are recorded.

Old images are a few training images of every task before; "before" and "after" mean the task.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from cl_bench.config import Strict

# six digits are what a measurement is worth
Rounded = Annotated[float, AfterValidator(lambda value: float(f"{value:.6g}"))]
NETWORK = {  # of the whole network, means over old images
    "feature_cosine": "cosine of an old image's features before and after",
    "feature_change": "length of the change of features, over their length before",
    "score_cosine": "cosine of its scores of old classes before and after",
    "score_change": "length of the change of scores of old classes, over their length before",
    "same_answer": "share of old images that get the same answer",
    "same_old_answer": "share of old images that get the same answer among old classes alone",
}
BLOCKS = {  # of every block with prompts
    "affinity_change": "relative change of Q K_P' of old images",
    "affinity_exact": "change of Q K_P' while LayerNorm keeps the old prompts' mean and deviation",
    "affinity_published": "|Q W_k dP'| over |Q W_k P'|: the condition as published",
    "affinity_random": "|Q W_k dP'| over |Q W_k P'| of a random update as long",
    "aggregation_change": "relative change of S_P V_P of old images, under old attention",
    "aggregation_exact": "change of S_P V_P while LayerNorm keeps the old prompts' mean and deviation",
    "aggregation_published": "|S_P dP| over |S_P P|: the condition as published",
    "aggregation_random": "|S_P dP| over |S_P P| of a random update as long",
    "update_length": "length of the task's update of the block's prompts",
    "mean_change": "change of a prompt's mean, over the prompts' mean deviation",
    "deviation_change": "change of a prompt's deviation, over the prompts' mean deviation",
    "inside_b1": "share of the update's energy outside the null space of the first condition",
    "inside_b1_random": "that share of a random update: dimensions outside it over all",
    "inside_b2": "share of the update's energy outside the null space of the second condition",
    "inside_b2_random": "that share of a random update: dimensions outside it over all",
    "nullity_b1": "dimensions of the null space of the first condition",
    "nullity_b2": "dimensions of the null space of the second condition",
    "rank_b1": "eigenvalues of the first covariance above a millionth of the largest",
    "rank_b2": "eigenvalues of the second covariance above a millionth of the largest",
}
MEASURES = {**NETWORK, **BLOCKS}  # what has one number a task, in figures and tables
SPECTRA = {  # of every block, values at places that are evenly spaced on a logarithmic scale, largest first
    "spectrum_b1": "eigenvalues of the first covariance over the largest",
    "spectrum_b2": "eigenvalues of the second covariance over the largest",
}


class Diagnosis(Strict):
    """What learning one task did to old tasks' images; None where it makes no sense or was not defined."""

    images: int = Field(ge=0)  # old ones; 0 in the first task, where nothing else is known
    network: dict[str, Rounded | None] = {}
    blocks: dict[str, list[Rounded | None]] = {}
    spectra: dict[str, list[list[Rounded]]] = {}

    def lines(self) -> Iterator[tuple[int | None, str, float]]:
        """(block from 1 or None, name, value) of everything that is known; places of spectra from 1."""
        for name, number in self.network.items():
            if number is not None:
                yield None, name, number
        for name, values in self.blocks.items():
            yield from ((l, name, value) for l, value in enumerate(values, 1) if value is not None)
        for name, blocks in self.spectra.items():
            for l, spectrum in enumerate(blocks, 1):
                yield from ((l, f"{name}_{place}", value) for place, value in enumerate(spectrum, 1))

    def mean(self, name: str) -> float | None:
        """A value of the network, or the mean over blocks of one of theirs; None where it is not known."""
        found = self.blocks.get(name, [self.network.get(name)])
        known = [value for value in found if value is not None]
        return sum(known) / len(known) if known else None
