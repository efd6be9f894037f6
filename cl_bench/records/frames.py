"""Tables of runs as pandas DataFrames, with the type of every column."""

from collections.abc import Sequence

import pandas as pd

TYPES = {  # of columns that are no text; whatever is missing is <NA>
    "Int64": (
        "tasks", "tasks_learned", "order_seed", "init_seed", "data_seed", "image_size", "limit",
        "core_version", "method_version", "images_seen", "peak_memory_bytes", "trainable_parameters",
        "stored_values", "prediction_passes", "after", "on", "n", "correct", "correct_within_task", "image",
        "truth", "predicted", "after_task", "task", "block", "forwards", "images", "trained_parameters",
        "stored_bytes",
    ),
    "Float64": (
        "validation", "accuracy_task_mean", "accuracy_sample", "average_incremental_accuracy_task_mean",
        "average_incremental_accuracy_sample", "forgetting_chaudhry", "forgetting_max_including_last",
        "forgetting_diagonal", "learn_seconds", "evaluate_seconds", "training_seconds", "processor_seconds",
        "certificate_seconds", "stored_values_per_task",
        "stored_values_per_class", "accuracy", "forgetting", "average_incremental_accuracy",
        "backward_transfer", "value",
    ),
    "boolean": ("joint", "online", "smoke", "inductive"),
}  # fmt: skip
_TYPE_OF = {column: kind for kind, columns in TYPES.items() for column in columns}


def frame(lines: Sequence[dict], columns: Sequence[str]) -> pd.DataFrame:
    """A DataFrame of these columns, also where there is no line; None becomes <NA>."""
    made = pd.DataFrame(list(lines), columns=list(columns), dtype=object)
    return made.astype({column: _TYPE_OF.get(column, "string") for column in columns})
