"""Whether a run's number may be compared with a published one, and why not."""

from typing import Any

from cl_bench import presets
from cl_bench.notation import format_option
from cl_bench.records.metrics import Conventions
from cl_bench.records.spec import RunSpec
from cl_bench.report.published import Published, Registry
from cl_bench.report.settings import options_in, settings_of


def why_not(registry: Registry, number: Published, spec: RunSpec, conventions: Conventions) -> list[str]:
    """The reasons why a run's number may not be compared with a published one; none where it may."""
    reasons = ["smoke benchmark"] if spec.smoke else []
    benchmark = f"{spec.dataset}/{spec.split}"  # wherever its files lie
    if benchmark != number.benchmark:
        reasons.append(f"published for {number.benchmark}")
    if spec.limit:
        reasons.append(f"a trial with at most {spec.limit} training images")
    if spec.validation:
        reasons.append("evaluated on held-out training images")
    if spec.smoke or benchmark != number.benchmark:
        return reasons
    reasons += _other_protocol(registry, number, spec) + _other_settings(registry, number, spec)
    if spec.transform.normalisation != "checkpoint":
        reasons.append(f"inputs normalized as {spec.transform.normalisation}")
    used = getattr(conventions, number.metric)
    theirs = registry.known(number, number.metric) or getattr(registry.header, number.metric)
    if used != theirs:
        reasons.append(f"{number.metric} as {used} (published: {theirs})")
    return reasons


def _other_protocol(registry: Registry, number: Published, spec: RunSpec) -> list[str]:
    """What else than options differs from the published runs, or is not known of them."""
    ours = {
        "checkpoint": ("backbone", spec.backbone.name),
        "image size": ("image_size", spec.backbone.image_size),
        "augmentation": ("augment", spec.transform.augment),
        "class order": ("order", spec.order),
        "split list": ("split", "nsp2"),
        "number of passes": ("passes", spec.options.get("passes")),
    }
    reasons = []
    for name, (fact, own) in ours.items():
        theirs = registry.known(number, fact)
        if theirs is None and fact not in ("image_size", "augment"):
            reasons.append(f"the published {name} is not known")
        elif theirs is not None and own is not None and theirs != own:
            reasons.append(f"other {name} ({own}, published: {theirs})")
    return reasons


def _other_settings(registry: Registry, number: Published, spec: RunSpec) -> list[str]:
    """Which options and transforms differ from the published runs, or are named where the paper is silent."""
    settings, theirs = settings_of(spec), _settings(registry, number, spec)
    reasons = [
        f"other {key} ({format_option(settings[key])}, published: {format_option(value)})"
        for key, value in theirs.items()
        if settings.get(key, value) != value
    ]
    stated = {*theirs, *spec.transform.model_dump(), "passes", "as_published"}
    return reasons + [
        f"{key} = {value}, where the published row says nothing"
        for key, value in options_in(spec.label).items()
        if key not in stated
    ]


def _settings(registry: Registry, number: Published, spec: RunSpec) -> dict[str, Any]:
    """The options and transform of the published runs, as far as they are known."""
    found: dict[str, Any] = {}
    if preset := registry.known(number, "preset"):
        settings = presets.load(preset).settings(spec.method, number.benchmark)
        found |= {key: setting.value for key, setting in settings.items()}
    for fact in registry.facts:
        if fact.about(number):
            found |= fact.options | fact.transform
    own = ("backbone", "passes", "augment")  # facts of their own
    return {key: value for key, value in found.items() if key not in own}
