"""Settings of runs as rows and selectors compare them."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from cl_bench.config import canonical_json
from cl_bench.notation import parse_methods
from cl_bench.records.spec import RunSpec


def configured(spec: RunSpec, method: str, options: dict) -> bool:
    """Whether a run is of the method with these options.

    Each has its value, whether or not that is the preset's, and the label names no other.
    """
    if spec.method != method:
        return False
    named, settings = options_in(spec.label), settings_of(spec)
    if not all(key in options and same(options[key], value) for key, value in named.items()):
        return False
    others = {key: value for key, value in options.items() if key not in named}
    return all(key in settings and same(settings[key], value) for key, value in others.items())


def on_benchmark(
    spec: RunSpec,
    benchmark: str,
    *,
    limit: int | None = None,
    validation: float | None = None,
    backbone: str | None = None,
    image_size: int | None = None,
) -> bool:
    """Whether a run is meant by a benchmark such as "glyphs/10" and what else is said of it.

    Trials and runs on held-out images are only where their limit and share are said; any backbone and image
    size are where none is said.
    """
    return (
        spec.is_called(benchmark)
        and limit == spec.limit
        and validation == spec.validation
        and backbone in (None, spec.backbone.name)
        and image_size in (None, spec.backbone.image_size)
    )


def same(one, other) -> bool:
    """Whether two settings are equal; a list is what a tuple of the same values is."""
    one, other = (list(value) if isinstance(value, tuple) else value for value in (one, other))
    return one == other


@cache
def options_in(label: str) -> dict:
    """The options of a label such as "vpt-nsp2[eta=1.0]", as values."""
    return parse_methods(label)[0][1]


def settings_of(spec: RunSpec) -> dict:
    """A run's options, transform, backbone, precision and versions, flat."""
    backbone = {
        "text_sha256": spec.text_sha256,
        "backbone": spec.backbone.name,
        "mean": spec.backbone.mean,
        "std": spec.backbone.std,
    }
    versions = {
        "order": spec.order,
        "precision": spec.precision,
        "version": spec.method_version,
        "core_version": spec.core_version,
    }
    plugin = {"plugin": spec.plugins["methods"][:12]} if "methods" in spec.plugins else {}
    return {**spec.options, **spec.transform.model_dump(), **backbone, **versions, **plugin}


def labels_apart(specs: Sequence[RunSpec]) -> list[str]:
    """The labels of configurations, a run of each: those of one label name the settings they differ in."""
    labels, by_label = [spec.label for spec in specs], defaultdict(list)
    for place, label in enumerate(labels):
        by_label[label].append(place)
    for label, places in by_label.items():
        if len(places) < 2:
            continue
        settings = [settings_of(specs[place]) for place in places]
        differing = unlike(settings)
        told = [",".join(f"{key}={found.get(key)}" for key in differing) for found in settings]
        for place, marks in zip(places, told, strict=True):
            if told.count(marks) > 1:  # what they differ in is no setting
                marks = ",".join(filter(None, (marks, f"family={specs[place].family_id()[:8]}")))
            labels[place] = f"{label.rstrip(']')},{marks}]" if "[" in label else f"{label}[{marks}]"
    return labels


def unlike(settings: Sequence[dict]) -> list[str]:
    """In which settings these differ; a precision stands for its core version."""

    def values(*keys: str) -> int:
        return len({canonical_json([found.get(key) for key in keys]) for found in settings})

    keys = dict.fromkeys(key for found in settings for key in found)
    return [
        key
        for key in keys
        if values(key) > 1 and not (key == "core_version" and values("precision", key) == values("precision"))
    ]
