"""What there is and what a plan would do, as lines of text."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

import cl_bench
from cl_bench import plugin_folders, registry
from cl_bench.config import Transform, canonical_json, whole_number
from cl_bench.errors import InputError
from cl_bench.presets import Setting, load, published_behavior, settings_for
from cl_bench.record import RunSpec
from cl_bench.states import State, of_plan
from cl_bench.store import Store


def method_lines(results: Path) -> list[str]:
    """Name, aliases and summary of every method."""
    return _plugin_lines("methods")


def dataset_lines(results: Path) -> list[str]:
    """Name and summary of every data set."""
    return _plugin_lines("datasets")


def _plugin_lines(kind: registry.Kind) -> list[str]:
    found = registry.plugins(kind).values()
    width = max(len(", ".join((p.name, *p.aliases))) for p in found)
    return [f"{', '.join((p.name, *p.aliases)):<{width}}  {_about(p)}" for p in found]


def _about(plugin: registry.Plugin) -> str:
    if plugin.problem:
        return f"cannot be used: {plugin.problem}"
    return plugin.summary + (f" ({plugin.path})" if plugin.path else "")


def backbone_lines(results: Path) -> list[str]:
    """The backbones that data sets bring, then every published timm ViT by its full tag."""
    import timm

    unusual = ["*_rpn_*", "vit_pwee_*", "vit_dwee_*", "vit_dpwee_*", "vit_dlittle_*"]  # other blocks than `backbone.require_plain` accepts
    plain = set(timm.list_models(module="vision_transformer", exclude_filters=unusual))
    return [*registry.named_backbones(), *(tag for tag in timm.list_pretrained() if tag.partition(".")[0] in plain)]


LISTS: dict[str, Callable[[Path], list[str]]] = {"methods": method_lines, "datasets": dataset_lines, "backbones": backbone_lines}


def system_lines() -> list[str]:
    """Versions, devices and folders."""
    import torch

    from cl_bench.environment import describe
    from cl_bench.source import cache_folder

    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    facts = {**describe(device, torch.get_num_threads()), "package": Path(cl_bench.__file__).parent, "image cache": cache_folder()}
    lines = [f"{key:<12} {value}" for key, value in facts.items()]
    return [*lines, *(f"{'plugins':<12} {folder}" for folder in plugin_folders.outside())]


def setting_lines(benchmark: str, method: str, preset: str | None) -> list[str]:
    """Every setting of the method on the benchmark with where its value comes from; what that source leaves open is marked with an o."""
    dataset, _, splits = benchmark.rpartition("/")
    if not dataset or not whole_number(splits):
        raise InputError(f"{benchmark!r} is not a benchmark; expected DATASET/SPLITS, such as glyphs/10")
    from cl_bench.environment import usual_precision
    from cl_bench.places import devices
    from cl_bench.request import format_option

    source, plugin = registry.source_class(dataset.partition(":")[0]), registry.find("methods", method)
    kind = plugin.load().METHOD
    published = settings_for(preset, kind.PRESET, plugin.name, f"{source.name}/{splits}")
    known = {**kind.Config.model_fields, **Transform.model_fields}
    found = {key: Setting(field.default, "default") for key, field in known.items()}
    found["precision"] = Setting(usual_precision(devices("auto")), "this machine")
    for origin, layer in ((f"data set {source.name}", {**source.preset(plugin.name), **source.TRANSFORM}), (f"method {plugin.name}", kind.TRANSFORM)):
        found.update({key: Setting(value, origin) for key, value in layer.items() if key in known})
    found.update({key: setting for key, setting in published.items() if key in known or key == "backbone"})
    lines = [load(preset or kind.PRESET).title] if published else []
    for key, setting in found.items():
        remark = f" (open: {setting.open})" if setting.open else ""
        lines.append(f"{'o' if setting.open else ' '} {key:<20} {format_option(setting.value):<12} {setting.source}{remark}")
    behavior = published_behavior(kind.AS_PUBLISHED, kind.PRESET, plugin.name, f"{source.name}/{splits}")
    lines += ["as_published sets:"] if behavior else []
    lines += [f"  {key:<20} {format_option(setting.value):<12} {setting.source}" for key, setting in behavior.items()]
    lines += ["and leaves different:"] if behavior and kind.LEFT_DIFFERENT else []
    return lines + [f"  {sentence}" for sentence in kind.LEFT_DIFFERENT if behavior]


def plan_lines(plan, store: Store, places: list[str], states: dict[str, State] | None = None) -> list[str]:
    """The runs of a plan with their state, the protocol of every benchmark, and what deserves a look."""
    lines, warnings, states = list(plan.remarks), list(plan.warnings), states or of_plan(plan.specs, store)
    for spec in _one_per_benchmark(plan.specs):
        found, suspicious = _protocol(spec)
        lines += found
        warnings += suspicious
    lines.append(f"{len(plan.specs)} runs on {', '.join(places)}, results in {store.root}:")
    for spec in plan.specs:
        lines.append(f"  {states[spec.run_id()].words:<18} {spec.run_id()}  {spec.label}  {spec.dataset}/{spec.num_tasks}  seed {spec.seed_name()}")
    return [*lines, *(f"warning: {warning}" for warning in warnings)] + ([] if warnings else ["nothing wrong found"])


def _one_per_benchmark(specs: list[RunSpec]) -> list[RunSpec]:
    return list({spec.benchmark_id(): spec for spec in reversed(specs)}.values())[::-1]


def _protocol(spec: RunSpec) -> tuple[list[str], list[str]]:
    """What a benchmark is made of, and what is suspicious about it."""
    from cl_bench.assemble import split_images
    from cl_bench.duplicates import duplicates

    source = registry.source_class(spec.dataset)(spec.dataset_argument)
    sides = split_images(source, spec)
    train, test, name = sides.train_evaluated, sides.test, spec.benchmark_name()
    counts = [[int(np.isin(side.labels, classes).sum()) for classes in spec.task_classes] for side in (train, test)]
    order = hashlib.sha256(canonical_json([c for classes in spec.task_classes for c in classes]).encode()).hexdigest()[:12]
    backbone, transform, batch = spec.backbone, spec.transform, spec.options.get("batch", 1)
    tasks = f"{len(source.class_names)} classes in {spec.num_tasks} tasks of {len(spec.task_classes[0])}"
    lines = [f"{name}: {tasks}, class order {order} ({spec.order_name()})"]
    for side, found in zip(("training", "evaluation"), counts, strict=True):
        spread = f"smallest {min(found)}, median {int(np.median(found))}, largest {max(found)}"
        lines.append(f"  {side} images a task: {spread}; {sum(found)} in all")
    lines.append(f"  backbone {backbone.name} ({spec.weights_sha256[:12]}) in {spec.precision}")
    lines.append(f"  input {backbone.image_size} px, mean {backbone.mean}, std {backbone.std}")
    crop = f", crop_scale={transform.crop_scale:g}" if transform.augment != "none" else ""
    crop += f", augmenter={transform.augmenter}" if transform.augment != "none" else ""
    crop += f", crop_interpolation={transform.crop_interpolation}" if transform.augment.startswith("autoaugment") else ""
    lines.append(f"  training transform: augment={transform.augment}{crop}")
    lines.append(f"  evaluation transform: resize={transform.resize}, interpolation={transform.interpolation}")
    warnings = []
    small = sum(count < batch for count in counts[0])
    if small:
        smallest = f"the smallest has {min(counts[0])}"
        warnings.append(f"{name}: {small} of {spec.num_tasks} tasks have fewer training images than a batch of {batch}; {smallest}")
    for side, labels in (("training", train.labels), ("evaluation", test.labels)):
        absent = [source.class_names[c] for c in sorted({c for classes in spec.task_classes for c in classes} - set(labels.tolist()))]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            warnings.append(f"{name}: {len(absent)} classes have no {side} image: {', '.join(absent[:3])}{more}")
    same = duplicates(spec, source)
    if same:
        warnings.append(f"{name}: {same} evaluation images are pixel for pixel training images too")
    return lines, warnings
