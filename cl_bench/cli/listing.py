"""What `ls` and `info` print."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cl_bench
from cl_bench import splits
from cl_bench.cli import setting_help
from cl_bench.config import Transform
from cl_bench.errors import InputError
from cl_bench.notation import format_option
from cl_bench.plugins import registry, search_path
from cl_bench.presets import Setting, load, published_behavior, settings_for


def dataset_lines() -> list[str]:
    """Name, aliases and summary of every data set."""
    found = registry.plugins("datasets").values()
    width = max(len(", ".join((p.name, *p.aliases))) for p in found)
    return [f"{', '.join((p.name, *p.aliases)):<{width}}  {_about(p)}" for p in found]


def _about(plugin: registry.Plugin) -> str:
    if plugin.problem:
        return f"cannot be used: {plugin.problem}"
    return plugin.summary + (f" ({plugin.path})" if plugin.path else "")


def backbone_lines() -> list[str]:
    """The backbones that data sets bring, then every published timm ViT by its full tag."""
    import timm

    unusual = [
        "*_rpn_*",
        "vit_pwee_*",
        "vit_dwee_*",
        "vit_dpwee_*",
        "vit_dlittle_*",
    ]  # other blocks than `backbone.require_plain` accepts
    plain = set(timm.list_models(module="vision_transformer", exclude_filters=unusual))
    plain.update(timm.list_models(module="deit", exclude_filters=["*distilled*"]))
    plain.update(timm.list_models("vit_*dinov3*", module="eva"))
    return [
        *registry.named_backbones(),
        *(tag for tag in timm.list_pretrained() if tag.partition(".")[0] in plain),
    ]


def dataset_values() -> list[dict]:
    """The same as JSON values; `problem` is why one cannot be used."""
    return [
        {"name": each.name, "aliases": list(each.aliases), "summary": each.summary, "problem": each.problem}
        for each in registry.plugins("datasets").values()
    ]


LISTS: dict[str, Callable[[], list[str]]] = {"datasets": dataset_lines, "backbones": backbone_lines}
VALUES: dict[str, Callable[[], list]] = {"datasets": dataset_values, "backbones": backbone_lines}


def system_lines() -> list[str]:
    """Versions, devices and folders."""
    import torch

    from cl_bench.data.cache import cache_folder
    from cl_bench.environment import describe

    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    facts = {
        **describe(device, torch.get_num_threads()),
        "package": Path(cl_bench.__file__).parent,
        "image cache": cache_folder(),
    }
    lines = [f"{key:<12} {value}" for key, value in facts.items()]
    return [*lines, *(f"{'plugins':<12} {folder}" for folder in search_path.outside())]


class SettingRow(NamedTuple):
    """A setting of a method on a benchmark, as `info` prints it."""

    name: str
    value: str
    source: str
    open: str  # what the source leaves open; "" for nothing
    allowed: str
    meaning: str


class _Asked(NamedTuple):
    """A method on a benchmark."""

    source: type[Any]  # a `Source`, and below a `Method`
    plugin: registry.Plugin
    kind: type[Any]
    place: str  # the benchmark as presets name it
    online: bool


def _asked(benchmark: str, method: str) -> _Asked:
    dataset, _, split = benchmark.rpartition("/")
    if not dataset or not splits.is_split(split):
        raise InputError(f"{benchmark!r} is not a benchmark; expected DATASET/SPLITS, such as glyphs/10")
    source, plugin = registry.source_class(dataset.partition(":")[0]), registry.find("methods", method)
    place = f"{source.name}/{splits.offline(split)}"
    return _Asked(source, plugin, plugin.load().METHOD, place, splits.is_online(split))


def setting_rows(benchmark: str, method: str, preset: str | None) -> list[SettingRow]:
    """Every setting of the method on the benchmark. Raises InputError."""
    from cl_bench.devices import devices
    from cl_bench.environment import usual_precision
    from cl_bench.plan.settings import shown_once

    source, plugin, kind, place, online = _asked(benchmark, method)
    published = settings_for(preset, kind.PRESET, plugin.name, place)
    known = {**kind.Config.model_fields, **Transform.model_fields}
    found = {key: Setting(field.default, "default") for key, field in known.items()}
    found["precision"] = Setting(usual_precision(devices("auto")), "this machine")
    for origin, layer in (
        (f"data set {source.name}", {**source.preset(plugin.name), **source.TRANSFORM}),
        (f"method {plugin.name}", kind.TRANSFORM),
    ):
        found.update({key: Setting(value, origin) for key, value in layer.items() if key in known})
    found.update({key: setting for key, setting in published.items() if key in known or key == "backbone"})
    once = shown_once(kind, {}) if online else {}
    found.update({key: Setting(value, "every image is shown once") for key, value in once.items()})
    about = {**setting_help.meanings(Transform), **setting_help.meanings(kind.Config)}
    may_be = {key: setting_help.allowed(field) for key, field in known.items()}
    return [
        SettingRow(
            key, format_option(one.value), one.source, one.open, may_be.get(key, ""), about.get(key, "")
        )
        for key, one in found.items()
    ]


def setting_lines(benchmark: str, method: str, preset: str | None) -> list[str]:
    """Every setting of the method on the benchmark, and where its value comes from.

    An o marks what that source leaves open; below each stands what it may be, and what it means.
    """
    rows, (_, plugin, kind, place, _) = setting_rows(benchmark, method, preset), _asked(benchmark, method)
    published = settings_for(preset, kind.PRESET, plugin.name, place)
    lines = [load(preset or kind.PRESET).title] if published else []
    for row in rows:
        remark = f" (open: {row.open})" if row.open else ""
        lines.append(f"{'o' if row.open else ' '} {row.name:<20} {row.value:<12} {row.source}{remark}")
        if row.allowed:
            lines.append(f"{'':23}{row.allowed}{f'; {row.meaning}' if row.meaning else ''}")
    lines += ["o: its source leaves it open"] if any(row.open for row in rows) else []
    return lines + published_lines(benchmark, method)


def published_lines(benchmark: str, method: str) -> list[str]:
    """What `as_published` sets of the method on the benchmark, and what it leaves different."""
    _, plugin, kind, place, _ = _asked(benchmark, method)
    behavior = published_behavior(kind.AS_PUBLISHED, kind.PRESET, plugin.name, place)
    if not behavior:
        return []
    lines = ["as_published sets:"]
    lines += [f"  {key:<20} {format_option(one.value):<12} {one.source}" for key, one in behavior.items()]
    lines += ["and leaves different:"] if kind.LEFT_DIFFERENT else []
    return lines + [f"  {sentence}" for sentence in kind.LEFT_DIFFERENT]
