"""Methods whose prompts stand in the first blocks, normalized there as tokens are and attended to."""

from abc import abstractmethod

from torch import Tensor

from cl_bench.data.batch import Batch
from cl_bench.nn.pool import cosines
from cl_bench.nn.prompts import ExtraKeys


class LayerPrompts:
    """Mixed in before a method that can show its prompts to those who measure what becomes of them."""

    @property
    @abstractmethod
    def layer_prompts(self) -> Tensor | None:
        """P (L, R, D) of the first L blocks; None where its options make something else of them."""

    @abstractmethod
    def attended(self, batch: Batch) -> ExtraKeys:
        """What of P these images attend to at prediction."""


class PoolPrompts(LayerPrompts):
    """The same of a pool P with keys K, from which each image is given some."""

    @property
    def layer_prompts(self) -> Tensor | None:
        """The pool, unless its prompts are carried on as tokens."""
        return self.P if self.config.carry == "drop" else None

    def attended(self, batch: Batch) -> ExtraKeys:
        """Those that are chosen at prediction."""
        return self.choose(cosines(self.query(batch), self.K), self.config.batchwise_eval)
