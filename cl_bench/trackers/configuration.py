"""What trackers are told of a run before it begins; paths are left out, but for those in its command."""

from pathlib import Path
from typing import Any

from cl_bench.records.record import RunRecord
from cl_bench.records.spec import name
from cl_bench.trackers.contract import TrackedRun

LEFT_OUT = {"weights", "text_weights", "architecture"}  # of the backbone: files, and what its name says


def tracked(record: RunRecord, folder: Path, fresh: bool, moved: bool) -> TrackedRun:
    """The run of a record, whose last environment is where it goes on."""
    spec = record.spec
    ids = (spec.run_id(), spec.family_id())
    return TrackedRun(*ids, name(spec), configuration(record), folder, fresh, moved)


def configuration(record: RunRecord) -> dict[str, Any]:
    """Options, benchmark, seeds, backbone and environment as nested JSON values."""
    spec = record.spec
    return {
        "run_id": spec.run_id(),
        "family_id": spec.family_id(),
        "method": spec.method,
        "label": spec.label,
        "command": spec.command,
        "benchmark": {
            "name": spec.benchmark_name(),
            "task_sizes": [len(classes) for classes in spec.task_classes],
            "test_sizes": list(record.test_sizes),
            "manifest_digest": spec.manifest_digest,
            "limit": spec.limit,
            "validation": spec.validation,
        },
        "options": spec.options,
        "as_published": list(spec.as_published),
        "seeds": {"order": spec.order_name(), "init": spec.init_seed, "data": spec.data_seed},
        "backbone": {
            **spec.backbone.model_dump(mode="json", exclude=LEFT_OUT),
            "weights_sha256": spec.weights_sha256,
        },
        "transform": spec.transform.model_dump(mode="json"),
        "precision": spec.precision,
        "versions": {"core": spec.core_version, "method": spec.method_version},
        "environment": record.environments[-1],
    }


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"options": {"eta": 0.9}} -> {"options.eta": 0.9}; lists stay."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
