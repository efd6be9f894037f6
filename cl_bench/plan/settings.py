"""Settings of a request by what they mean: options of methods, transforms, published behavior."""

from pydantic import ValidationError

from cl_bench.config import Strict, Transform, build_config, unknown, unusable
from cl_bench.errors import InputError
from cl_bench.notation import AS_PUBLISHED, SYNONYMS, format_option, without_synonyms
from cl_bench.plan.request import Request
from cl_bench.plugins import registry
from cl_bench.presets import Setting
from cl_bench.records.spec import CORE_VERSIONS, Precision
from cl_bench.training.method import Method

RUN_SETTINGS = ("precision",)
Selections = list[tuple[registry.Plugin, dict]]  # methods, and what stands in their brackets


def values(settings: dict[str, Setting]) -> dict:
    """Without the words about where they come from."""
    return {key: setting.value for key, setting in settings.items()}


def as_published(chosen: dict, request: Request, plugin: registry.Plugin) -> bool:
    """Whether a method is to do as its published code; takes the word for it out of its options."""
    asked = chosen.pop(AS_PUBLISHED, None)
    if asked not in (None, True, False):
        raise InputError(f"{plugin.name}: {AS_PUBLISHED}={asked!r} is not usable; expected on or off")
    if asked:
        require_published([plugin])
    return request.as_published if asked is None else asked


def require_published(plugins: list[registry.Plugin]) -> None:
    """Raise InputError where the published code of none of these methods does otherwise than the defaults."""
    if not any(plugin.load().METHOD.AS_PUBLISHED for plugin in plugins):
        names = ", ".join(dict.fromkeys(plugin.name for plugin in plugins))
        raise InputError(
            f"{names}: no published behavior differs from the defaults; leave out {AS_PUBLISHED}"
        )


def transform_of(settings: dict) -> dict:
    """Those of them that are the transform's."""
    return {key: value for key, value in settings.items() if key in Transform.model_fields}


def sort(request: Request, selections: Selections, usual: Precision) -> tuple[dict, dict, Precision]:
    """(augmentation, method options, precision) of --set.

    Raises InputError for a key that means nothing to the run, nor to any of the methods, and for a value that
    cannot be used whatever the data are.
    """
    asked, kinds = without_synonyms(request.set), [plugin.load().METHOD for plugin, _ in selections]
    options = {key for kind in kinds for key in kind.Config.model_fields}
    meaningful = [*options, *Transform.model_fields, *RUN_SETTINGS]
    for key in asked:
        if key not in meaningful:
            raise unknown("--set option", key, meaningful, request.places.get(f"set.{key}"))
    precision = asked.get("precision", usual)
    if precision not in [*CORE_VERSIONS]:
        raise InputError(f"precision={precision!r}: expected fp32 or bf16")
    augmenter = {"augmenter": request.augmenter} if request.augmenter else {}
    chosen = {key: value for key, value in asked.items() if key in options}
    transform = {**augmenter, **transform_of(asked)}
    build_config(Transform, [transform], "the run")
    for (plugin, own), kind in zip(selections, kinds, strict=True):
        _require_usable(plugin, kind, {**chosen, **own})
    return transform, chosen, precision


def _require_usable(plugin: registry.Plugin, kind: type[Method], asked: dict) -> None:
    """Raise InputError for a value that an option of the method cannot have, whatever the others are."""
    asked = known(without_synonyms(asked), kind)
    try:
        kind.Config.model_validate(asked)
    except ValidationError as error:
        for each in error.errors():
            if each["loc"] and each["loc"][0] in asked:
                raise unusable(plugin.name, each) from None


def told(request: Request, selections: Selections) -> list[str]:
    """A sentence for each of --set that some of the methods have, and others do not."""
    lines, kinds = [], {plugin.name: plugin.load().METHOD for plugin, _ in selections}
    for key in without_synonyms(request.set):
        having = [name for name, kind in kinds.items() if key in kind.Config.model_fields]
        lacking = [name for name in kinds if name not in having]
        if having and lacking:
            lines.append(f"--set {key} is an option of {_some(having)}, and none of {_some(lacking)}")
    return lines


def _some(names: list[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")


def known(settings: dict, kind: type[Method]) -> dict:
    """Those of them that are options of a method."""
    return {key: value for key, value in settings.items() if key in kind.Config.model_fields}


def meaning_something(settings: dict, kind: type[Method]) -> dict:
    """Those of --set that change a run of a method."""
    known = {*kind.Config.model_fields, *Transform.model_fields, *RUN_SETTINGS}
    return {key: value for key, value in settings.items() if SYNONYMS.get(key, key) in known}


def shown_once(kind: type[Method], asked: dict) -> dict:
    """The options of a stream that shows every image once. Raises InputError where others are asked for."""
    if "passes" not in kind.Config.model_fields:
        return {}
    if asked.get("passes", 1) != 1:
        raise InputError(f"passes={asked['passes']}: --online shows every training image once; leave it out")
    return {"passes": 1}


def differences(config: Strict, baseline: Strict) -> list[str]:
    """The options that differ from the benchmark's baseline, such as "eta=0.9", in the config's own order."""
    found = {key: getattr(config, key) for key in type(config).model_fields}
    return assignments({key: value for key, value in found.items() if value != getattr(baseline, key)})


def assignments(settings: dict) -> list[str]:
    """Such as "eta=0.9", each."""
    return [f"{key}={format_option(value)}" for key, value in settings.items()]
