"""Settings of ARCL-ViT: those of its public code, which has the same for every data set."""

from typing import Literal

from pydantic import Field

from cl_bench.training.refined_method import RefinedConfig


class ARCLConfig(RefinedConfig):
    """Learning and masks; temperature and refinement stand in `RefinedConfig`."""

    learning_rate: float = Field(0.01, gt=0)  # of the newest head
    qkv_share: float = Field(0.01, gt=0)  # rate of W in that
    weight_decay: float = Field(5e-5, ge=0)  # coupled: added to the gradient
    batch: int = Field(100, ge=1)
    passes: int = Field(50, ge=1)
    epoch_mode: Literal["repeat10", "plain"] = "repeat10"  # ten passes shuffled together, or one alone
    margin: float = Field(1e-3, ge=0)  # by which a threshold lies below where the curve turns
    class_row: Literal["masked", "free"] = "masked"
    # what is not as meant, see `AsRun`
    masks_from: Literal["trained", "training_asis"] = "trained"
    thresholds: Literal["own", "window_asis"] = "own"
    lr_decay: Literal["none", "last_fifth_asis"] = "none"
    head_init: Literal["fresh", "refined_asis"] = "fresh"
