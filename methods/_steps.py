"""What methods that project finished updates share: the controls that tell direction from size."""

from typing import ClassVar

from cl_bench.config import Strict
from cl_bench.errors import InputError
from cl_bench.nn.projection import Step


class StepConfig(Strict):
    """Controls of a projected step."""

    ADDED: ClassVar = frozenset({"step"})
    # what is kept of projected updates, in each block: all; their direction, as long as before the
    # projection; or their size, in the direction before it
    step: Step = "projected"


def require_step(config: StepConfig, projects: bool, needed: str) -> None:
    """Raise InputError for a control of prompts' projected updates where none are; `needed` makes some."""
    if config.step != "projected" and not projects:
        none = f"step={config.step} is of prompts' projected updates, and there are none"
        raise InputError(f"{none}; give {needed}")
