"""Settings of HiDe-Prompt: those of its public code for CIFAR-100, on eight GPUs with 24 images each."""

from typing import Literal

from pydantic import Field

from cl_bench.config import Strict
from cl_bench.training.alignment import StepAlignmentConfig
from cl_bench.training.phase import half_cosine


class InferenceConfig(Strict):
    """Learning of task identities."""

    tii_rate: float = Field(4.6875e-5, gt=0)  # learning rate of g and its MLP: 5e-4 x 24 / 256
    tii_passes: int = Field(20, ge=1)
    batch: int = Field(192, ge=1)
    grad_clip: float = Field(1.0, ge=0)  # largest norm of the gradient of all that is trained; 0: no clipping


class FirstTaskConfig(InferenceConfig):
    """What decides the first task."""

    learning_rate: float = Field(0.0028125, gt=0)  # of prompts: 0.03 x 24 / 256
    head_share: float = Field(0.1, gt=0)  # h's rate in that
    passes: int = Field(50, ge=1)
    schedule: Literal["step", "cosine"] = "step"
    step_passes: int = Field(30, ge=1)  # after as many, and again after as many, the rates fall
    step_decay: float = Field(0.1, gt=0, le=1)  # to this part
    end_rate: float = Field(1e-5, ge=0)  # to which both rates fall along half a cosine
    schedule_lag: Literal["none", "pass_asis"] = "none"  # rates as meant, or (public code) a pass late
    layers: int = Field(5, ge=1)  # first blocks
    prompt_length: int = Field(5, ge=1)  # M keys, and as many values
    contrast: float = Field(0.1, ge=0)  # lambda
    prefix_reshape: Literal["permute", "reshape_asis"] = "permute"  # as chosen, or as the code mixes them


class HiDeConfig(StepAlignmentConfig, FirstTaskConfig):
    """What later tasks and predictions need besides."""

    statistics: Literal["centroids", "gaussian"] = "centroids"
    centroids: int = Field(10, ge=1)  # of each class
    tii_align_rate: float = Field(4.6875e-4, gt=0)  # of g and its MLP: 0.005 x 24 / 256
    tii_samples: int = Field(24, ge=1)  # features of a step, and as many drawn per centroid and pass
    align_rate: float = Field(0.005, gt=0)  # both of h
    samples: int = Field(120, ge=1)
    ensemble: float = Field(0.01, ge=0, le=1)  # alpha
    eval_classes: Literal["seen", "all"] = "seen"  # all: those to come too, by untrained rows (published)
    eval_batch: int = Field(24, ge=1)  # test images of a task predicted together, where the batch matters


def falling(config: FirstTaskConfig, done: int, top: float) -> float:
    """The factor on a learning rate `top` of within-task prediction after so many passes."""
    e = max(0, done - (config.schedule_lag == "pass_asis"))
    if config.schedule == "step":
        return config.step_decay ** (e // config.step_passes)
    end = config.end_rate / top
    return end + (1 - end) * half_cosine(e, config.passes)
