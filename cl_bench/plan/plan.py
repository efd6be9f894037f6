"""From what a user asks for to the list of fully resolved runs, before any training."""

import itertools
import shlex
from dataclasses import dataclass, field

from cl_bench import registry
from cl_bench.config import BackboneSpec, Strict, Transform, build_config, canonical_json, unknown
from cl_bench.data.names import sentences
from cl_bench.data.order import cut, resolve
from cl_bench.data.source import Source
from cl_bench.data.stream import StreamInfo
from cl_bench.data.subset import require_image_per_class
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.notation import AS_PUBLISHED, SYNONYMS, format_option, parse_methods, parse_seeds, parse_splits, without_synonyms
from cl_bench.plan import outline
from cl_bench.plan.expand import parts
from cl_bench.plan.request import Request, single_run
from cl_bench.presets import published_behavior, settings_for
from cl_bench.records.record import CORE_VERSIONS, Precision, RunSpec
from cl_bench.text.escape import visible
from cl_bench.training.method import Method

RUN_SETTINGS = ("precision",)
# (mean, std) of inputs that older papers fed to checkpoints whatever these were trained with
NORMALISATIONS = {
    "unit01": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


@dataclass(frozen=True)
class Plan:
    """The runs, in the order asked for, and what deserves a look before they start."""

    specs: list[RunSpec]
    warnings: list[str]
    remarks: list[str] = field(default_factory=list)  # what the data is, and the sentences made of it


def open_source(name: str, verify: bool = False) -> tuple[str, Source]:
    """ "folder:PATH" -> ("folder", the source at PATH); raises InputError when it cannot be used.

    `verify` reads all its files, whatever their time stamps say."""
    base, _, argument = name.partition(":")
    plugin = registry.find("datasets", base)
    source = plugin.load().SOURCE(argument or None)
    if verify:
        source.verify()
    return plugin.name, source


def make_plan(request: Request, precision: Precision = "fp32") -> Plan:
    """Every run of benchmarks x backbones x splits x seeds x methods x grid, in `precision` unless the request sets another.

    Raises InputError for the first thing that cannot run.
    """
    said: tuple[dict, dict] = ({}, {})
    specs = [spec for part in parts(request) for spec in _specs(part, precision, said)]
    unique = {spec.run_id(): spec for spec in specs}
    for spec in unique.values():
        _require_text(spec)
    remarks, warnings = map(list, said)
    if len(unique) < len(specs):
        warnings.append(f"{len(specs) - len(unique)} of {len(specs)} runs are asked for twice (equal settings); each runs once")
    return Plan(list(unique.values()), warnings, remarks)


def _require_text(spec: RunSpec) -> None:
    """Raise InputError for the name of a file or folder that no record can hold: one with bytes that are no UTF-8."""
    for name in filter(None, (spec.dataset_argument, spec.backbone.weights, *shlex.split(spec.command))):
        if not name.isprintable() and any("\ud800" <= character <= "\udfff" for character in name):
            raise InputError(f"{visible(name)}: the name is not in UTF-8; rename it, or link to it under another name")


def in_precision(spec: RunSpec, precision: Precision) -> RunSpec:
    """The same run with the network in this precision."""
    return spec.model_copy(update={"precision": precision, "core_version": CORE_VERSIONS[precision]})


def _specs(request: Request, precision: Precision, said: tuple[dict, dict]) -> list[RunSpec]:
    """The runs of one data set and backbone; remarks and warnings about the data are put into `said`."""
    selections = [(registry.find("methods", name), options) for name, options in parse_methods(request.methods)]
    dataset, source = open_source(request.dataset, request.verify)
    data_file = registry.find("datasets", dataset).sha256()
    manifest = source.manifest_digest()
    said[0].update(dict.fromkeys(source.remarks()))
    if request.limit is not None:
        require_image_per_class(request.limit, len(source.class_names))
    shared, per_method, precision = _sort_settings(request, [plugin.load().METHOD for plugin, _ in selections], precision)
    specs, trunks, named = [], {}, registry.named_backbones()
    if request.as_published:
        _require_published([plugin for plugin, _ in selections])
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
            chosen = without_synonyms(chosen)
            behaviour = {}
            if _as_published(chosen, request, plugin):
                stated = published_behavior(kind.AS_PUBLISHED, kind.PRESET, plugin.name, f"{dataset}/{splits}")
                behaviour = {key: setting.value for key, setting in stated.items()}
            asked = {AS_PUBLISHED: True} if behaviour else {}
            usual = [source.TRANSFORM, kind.TRANSFORM, _transform_of(published)]
            transform = build_config(Transform, [*usual, _transform_of(behaviour), shared, _transform_of(chosen)], "the run")
            backbone = _backbone(request, source, published.get("backbone"), transform, named)
            key = canonical_json(backbone.model_dump())
            trunk = trunks[key] if key in trunks else trunks.setdefault(key, outline.of(load.load(backbone)))
            preset = {**_known(source.preset(plugin.name), kind), **_known(published, kind)}
            options = {key: value for key, value in chosen.items() if key not in Transform.model_fields}
            baseline = [preset, _known(behaviour, kind)]
            config = build_config(kind.Config, [*baseline, _known(per_method, kind), options], plugin.name)
            differing = [*(["as_published"] if behaviour else []), *differences(config, build_config(kind.Config, baseline, plugin.name))]
            differing += [f"{key}={format_option(value)}" for key, value in _transform_of(chosen).items()]
            carried = _meaning_something(request.set, kind)
            init_seed = seed if request.init_seed is None else request.init_seed
            # a method refuses backbones and options that do not fit here
            info = StreamInfo(init_seed, splits, source.TEMPLATES, tuple(len(task) for task in tasks))
            built = outline.build(kind, config, trunk, info, plugin.name)
            files = {kind: digest for kind, digest in (("methods", plugin.sha256()), ("datasets", data_file)) if digest}
            spec = RunSpec(
                core_version=CORE_VERSIONS[precision],
                method=plugin.name,
                method_version=kind.version,
                options=config.model_dump(mode="json"),
                dataset=dataset,
                dataset_argument=source.argument,
                manifest_digest=manifest,
                data=source.manifest(),
                task_classes=tasks,
                joint=kind.joint,
                order=order,
                order_seed=order_seed,
                init_seed=init_seed,
                data_seed=seed if request.data_seed is None else request.data_seed,
                backbone=backbone,
                weights_sha256=trunk.weights_sha256,
                plugins=files,
                text_sha256=None if trunk.text is None else source.text_digest(),
                transform=transform,
                precision=precision,
                limit=request.limit,
                validation=request.validation,
                label=plugin.name + (f"[{','.join(differing)}]" if differing else ""),
                display=kind.display,
                smoke=source.smoke,
                keeps=built.keeps,
                losses=request.losses and not kind.joint,
                command=single_run(request, plugin.name, {**asked, **chosen}, splits, seed, carried | {"precision": precision}, bool(files)),
                as_published=tuple(f"{key}={format_option(value)}" for key, value in behaviour.items()),
            )
            specs.append(spec)
    if any(spec.text_sha256 for spec in specs):
        for lines, found in zip(said, sentences(source), strict=True):
            lines.update(dict.fromkeys(found))
    return specs


def _as_published(chosen: dict, request: Request, plugin: registry.Plugin) -> bool:
    """Whether a method is to do as its published code; takes the word for it out of its options."""
    asked = chosen.pop(AS_PUBLISHED, None)
    if asked not in (None, True, False):
        raise InputError(f"{plugin.name}: {AS_PUBLISHED}={asked!r} is not usable; expected on or off")
    if asked:
        _require_published([plugin])
    return request.as_published if asked is None else asked


def _require_published(plugins: list[registry.Plugin]) -> None:
    if not any(plugin.load().METHOD.AS_PUBLISHED for plugin in plugins):
        names = ", ".join(dict.fromkeys(plugin.name for plugin in plugins))
        raise InputError(f"{names}: no published behaviour differs from the defaults; leave out {AS_PUBLISHED}")


def _backbone(request: Request, source: Source, published: str | None, transform: Transform, named: dict) -> BackboneSpec:
    name = request.backbone or published or source.default_backbone()
    if name is None:
        raise InputError(f"data set {source.name!r} has no backbone of its own; name one with --backbone (`cl-bench ls backbones`)")
    spec = load.resolve(name, request.image_size, request.weights, named)
    mean, std = NORMALISATIONS.get(transform.normalisation, (spec.mean, spec.std))
    return spec.model_copy(update={"mean": mean, "std": std})


def _transform_of(settings: dict) -> dict:
    return {key: value for key, value in settings.items() if key in Transform.model_fields}


def _sort_settings(request: Request, kinds: list[type[Method]], usual: Precision) -> tuple[dict, dict, Precision]:
    """(augmentation, method options, precision) of --set; each key must mean something to the run or to at least one method."""
    options, settings = {key for kind in kinds for key in kind.Config.model_fields}, without_synonyms(request.set)
    for key in settings:
        if key not in options and key not in Transform.model_fields and key not in RUN_SETTINGS:
            raise unknown("--set option", key, [*options, *Transform.model_fields, *RUN_SETTINGS], request.places.get(f"set.{key}"))
    precision = settings.get("precision", usual)
    if precision not in [*CORE_VERSIONS]:
        raise InputError(f"precision={precision!r}: expected fp32 or bf16")
    augmenter = {"augmenter": request.augment} if request.augment else {}
    return {**augmenter, **_transform_of(settings)}, {key: value for key, value in settings.items() if key in options}, precision


def _known(settings: dict, kind: type[Method]) -> dict:
    return {key: value for key, value in settings.items() if key in kind.Config.model_fields}


def _meaning_something(settings: dict, kind: type[Method]) -> dict:
    known = {*kind.Config.model_fields, *Transform.model_fields, *RUN_SETTINGS}
    return {key: value for key, value in settings.items() if SYNONYMS.get(key, key) in known}


def differences(config: Strict, baseline: Strict) -> list[str]:
    """The options that differ from the benchmark's baseline, such as "eta=0.9", in the config's own order."""
    return [f"{key}={format_option(getattr(config, key))}" for key in type(config).model_fields if getattr(config, key) != getattr(baseline, key)]
