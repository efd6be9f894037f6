"""From what a user asks for to the list of fully resolved runs, before any training."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from cl_bench import backbone as backbones
from cl_bench import registry
from cl_bench.config import BackboneSpec, Strict, Transform, build_config, canonical_json, parse_scalar, unknown
from cl_bench.errors import InputError
from cl_bench.method import Method
from cl_bench.order import cut, resolve
from cl_bench.presets import settings_for
from cl_bench.record import RunSpec
from cl_bench.source import Source
from cl_bench.stream import StreamInfo, require_image_per_class

FIRST_SEED = 2024  # the published code runs seeds 2024, 2025, 2026
RUN_SETTINGS = ("precision",)
# (mean, std) of inputs that older papers fed to checkpoints whatever these were trained with
NORMALISATIONS = {
    "unit01": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


class Request(Strict):
    """What `cl-bench run` was asked for; every field has the command-line option's name."""

    methods: str = "vpt-nsp2"
    dataset: str = "glyphs"
    splits: str = "10"
    seeds: str = "1"
    order: str | None = None
    init_seed: int | None = Field(None, ge=0)
    data_seed: int | None = Field(None, ge=0)
    backbone: str | None = None
    weights: str | None = None
    image_size: int | None = Field(None, ge=1)
    limit: int | None = Field(None, ge=1)
    validation: float | None = Field(None, gt=0, lt=1)
    preset: str | None = None
    set: dict[str, Any] = {}


@dataclass(frozen=True)
class Plan:
    """The runs, in the order asked for, and what deserves a look before they start."""

    specs: list[RunSpec]
    warnings: list[str]


def request_from(command_line: dict, config_file: Path | None) -> Request:
    """Options from a YAML file overridden by the command line (None means not given). Raises InputError naming what cannot be used."""
    values = _read_yaml(config_file) if config_file is not None else {}
    given = {key: value for key, value in command_line.items() if value is not None}
    settings = {**values.pop("set", {}), **given.pop("set", {})}
    return build_config(Request, [values, given, {"set": settings}], str(config_file or "the command line"))


def _read_yaml(path: Path) -> dict:
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise InputError(f"cannot read {path}: {reason}") from error
    if not isinstance(values, dict) or not isinstance(values.get("set", {}), dict):
        raise InputError(f"{path} must hold a mapping of option to value, and so must its set")
    for key in ("methods", "splits", "seeds", "order"):
        if isinstance(values.get(key), list):  # seeds: [3] is seed 3, as 3, is on the command line
            values[key] = ",".join(map(str, values[key])) + ("," if key == "seeds" else "")
        elif isinstance(values.get(key), int):
            values[key] = str(values[key])
    if "set" in values:  # YAML reads 1e-3 as a word
        values["set"] = {str(key): parse_scalar(value) if isinstance(value, str) else value for key, value in values["set"].items()}
    return values


def parse_settings(items: Sequence[str]) -> dict:
    """["eta=0.9", ...] -> {"eta": 0.9, ...}."""
    settings = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise InputError(f"{item!r} is not an option; expected KEY=VALUE, such as eta=0.9")
        settings[key.strip()] = parse_scalar(value)
    return settings


def parse_methods(text: str) -> list[tuple[str, dict]]:
    """ "nsp2[b1=on,eta=0.9|1],pgp" -> one (name, options) per method and grid point, in order."""
    selections = []
    for item in _split_outside_brackets(text):
        match = re.fullmatch(r"([^\[\]]+?)(?:\[([^\[\]]*)\])?", item.strip())
        if not match:
            raise InputError(f"{item!r} is not a method; expected NAME or NAME[option=value,option=value|value]")
        grid = {}
        for option in filter(None, (part.strip() for part in (match[2] or "").split(","))):
            key, equals, alternatives = option.partition("=")
            if not equals or not all(value.strip() for value in alternatives.split("|")):
                raise InputError(f"{option!r} in {item!r} is not an option; expected KEY=VALUE or KEY=VALUE|VALUE")
            if key.strip() in grid:
                raise InputError(f"option {key.strip()!r} stands twice in {item!r}; for several values write {key.strip()}=A|B")
            grid[key.strip()] = [parse_scalar(value) for value in alternatives.split("|")]
        selections += [(match[1].strip(), dict(zip(grid, point, strict=True))) for point in itertools.product(*grid.values())]
    if not selections:
        raise InputError("--methods is empty; `cl-bench ls methods` lists what there is")
    return selections


def _split_outside_brackets(text: str) -> list[str]:
    parts = re.split(r",(?![^\[]*\])", text)
    return [part for part in parts if part.strip()]


def parse_splits(text: str) -> list[int]:
    """ "10,20" -> [10, 20]."""
    try:
        splits = [int(part) for part in str(text).split(",")]
    except ValueError:
        raise InputError(f"--splits {text!r}: expected numbers of tasks, such as 10 or 10,20") from None
    return list(dict.fromkeys(splits))


def parse_seeds(text: str) -> list[int]:
    """ "3" -> the first three seeds, 2024 to 2026; "2024,2031" -> these (a trailing comma makes a list of one)."""
    try:
        numbers = [int(part) for part in str(text).split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or ("," not in str(text) and not 1 <= numbers[0] <= 1000):
        raise InputError(f"--seeds {text!r}: expected how many (3), or which, with a comma (2024,2031 or 2024,)")
    return numbers if "," in str(text) else list(range(FIRST_SEED, FIRST_SEED + numbers[0]))


def open_source(name: str) -> tuple[str, Source]:
    """ "folder:PATH" -> ("folder", the source at PATH); raises InputError when it cannot be used."""
    base, _, argument = name.partition(":")
    plugin = registry.find("datasets", base)
    return plugin.name, plugin.load().SOURCE(argument or None)


def make_plan(request: Request) -> Plan:
    """Every run of methods x grid x splits x seeds. Raises InputError for the first thing that cannot run."""
    selections = [(registry.find("methods", name), options) for name, options in parse_methods(request.methods)]
    dataset, source = open_source(request.dataset)
    manifest = source.manifest_digest()
    if request.limit is not None:
        require_image_per_class(request.limit, len(source.class_names))
    shared, per_method, precision = _sort_settings(request.set, [plugin.load().METHOD for plugin, _ in selections])
    specs, warnings, trunks, named = [], [], {}, registry.named_backbones()
    for splits, seed in itertools.product(parse_splits(request.splits), parse_seeds(request.seeds)):
        order, order_seed, classes = resolve(request.order, seed, source.class_names)
        tasks = cut(classes, splits)
        for plugin, chosen in selections:
            kind: type[Method] = plugin.load().METHOD
            if kind.current_task_loss and not kind.joint and len(tasks[0]) == 1:
                raise InputError(
                    f"{plugin.name} compares the classes of the current task only: with one class a task (--splits {splits}) its loss is always 0 "
                    "and nothing is learned; choose fewer splits or a method with a loss over all classes"
                )
            published = settings_for(request.preset, kind.PRESET, plugin.name, f"{dataset}/{splits}")
            published = {key: setting.value for key, setting in published.items()}
            transform = build_config(Transform, [source.TRANSFORM, kind.TRANSFORM, _transform_of(published), shared], "the run")
            backbone = _backbone(request, source, published.get("backbone"), transform, named)
            key = canonical_json(backbone.model_dump())
            trunk = trunks[key] if key in trunks else trunks.setdefault(key, backbones.load(backbone))
            preset = {**_known(source.preset(plugin.name), kind), **_known(published, kind)}
            config = build_config(kind.Config, [preset, _known(per_method, kind), chosen], plugin.name)
            spec = RunSpec(
                method=plugin.name,
                method_version=kind.version,
                options=config.model_dump(mode="json"),
                dataset=dataset,
                dataset_argument=source.argument,
                manifest_digest=manifest,
                task_classes=tasks,
                joint=kind.joint,
                order=order,
                order_seed=order_seed,
                init_seed=seed if request.init_seed is None else request.init_seed,
                data_seed=seed if request.data_seed is None else request.data_seed,
                backbone=backbone,
                weights_sha256=trunk.weights_sha256,
                text_sha256=None if trunk.text is None else source.text_digest(),
                transform=transform,
                precision=precision,
                limit=request.limit,
                validation=request.validation,
                label=label(plugin.name, config, build_config(kind.Config, [preset], plugin.name)),
                display=kind.display,
                smoke=source.smoke,
            )
            kind(config, trunk, StreamInfo(spec.init_seed, splits, source.TEMPLATES))  # a method refuses backbones and options that do not fit here
            specs.append(spec)
    unique = {spec.run_id(): spec for spec in specs}
    if len(unique) < len(specs):
        warnings.append(f"{len(specs) - len(unique)} of {len(specs)} runs are asked for twice (equal settings); each runs once")
    return Plan(list(unique.values()), warnings)


def _backbone(request: Request, source: Source, published: str | None, transform: Transform, named: dict) -> BackboneSpec:
    name = request.backbone or published or source.default_backbone()
    if name is None:
        raise InputError(f"data set {source.name!r} has no backbone of its own; name one with --backbone (`cl-bench ls backbones`)")
    spec = backbones.resolve(name, request.image_size, request.weights, named)
    mean, std = NORMALISATIONS.get(transform.normalisation, (spec.mean, spec.std))
    return spec.model_copy(update={"mean": mean, "std": std})


def _transform_of(settings: dict) -> dict:
    return {key: value for key, value in settings.items() if key in Transform.model_fields}


def _sort_settings(settings: dict, kinds: list[type[Method]]) -> tuple[dict, dict, str]:
    """(augmentation, method options, precision) of --set; each key must mean something to the run or to at least one method."""
    options = {key for kind in kinds for key in kind.Config.model_fields}
    for key in settings:
        if key not in options and key not in Transform.model_fields and key not in RUN_SETTINGS:
            raise unknown("--set option", key, [*options, *Transform.model_fields, *RUN_SETTINGS])
    precision = settings.get("precision", "fp32")
    if precision not in ("fp32", "bf16"):
        raise InputError(f"precision={precision!r}: expected fp32 or bf16")
    return _transform_of(settings), {key: value for key, value in settings.items() if key in options}, precision


def _known(settings: dict, kind: type[Method]) -> dict:
    return {key: value for key, value in settings.items() if key in kind.Config.model_fields}


def label(name: str, config: Strict, baseline: Strict) -> str:
    """The method's name with the options that differ from the benchmark's baseline, in the config's own order."""
    differing = [
        f"{key}={format_option(getattr(config, key))}" for key in type(config).model_fields if getattr(config, key) != getattr(baseline, key)
    ]
    return name + (f"[{','.join(differing)}]" if differing else "")


def format_option(value) -> str:
    """An option's value as it is written on the command line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
