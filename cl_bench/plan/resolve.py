"""One data set, one backbone: from settings of five origins to fully resolved runs."""

import itertools

from cl_bench import registry
from cl_bench.config import BackboneSpec, Strict, Transform, build_config, canonical_json, unknown
from cl_bench.data.names import sentences
from cl_bench.data.order import cut, resolve
from cl_bench.data.source import Source
from cl_bench.data.stream import StreamInfo
from cl_bench.data.subset import require_image_per_class
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.backbone import Backbone
from cl_bench.notation import (
    AS_PUBLISHED,
    SYNONYMS,
    format_option,
    parse_methods,
    parse_seeds,
    parse_splits,
    without_synonyms,
)  # fmt: skip
from cl_bench.plan import outline
from cl_bench.plan.request import Request, single_run
from cl_bench.presets import published_behavior, settings_for
from cl_bench.records.record import CORE_VERSIONS, Precision, RunSpec
from cl_bench.training.method import Method

RUN_SETTINGS = ("precision",)
# (mean, std) of inputs that older papers fed to checkpoints whatever these were trained with
NORMALISATIONS = {
    "unit01": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def open_source(name: str, verify: bool = False) -> tuple[str, Source]:
    """ "folder:PATH" -> ("folder", the source at PATH); raises InputError when it cannot be used.

    `verify` reads all its files, whatever their time stamps say."""
    base, _, argument = name.partition(":")
    plugin = registry.find("datasets", base)
    source = plugin.load().SOURCE(argument or None)
    if verify:
        source.verify()
    return plugin.name, source


class Opened:
    """Data sets and backbones of a plan, each opened and hashed once, and what is to be said about the data."""

    def __init__(self):
        self._sources: dict[tuple, tuple[str, Source]] = {}
        self._trunks: dict[str, Backbone] = {}
        self.named = registry.named_backbones()
        self.remarks, self.warnings = {}, {}  # in order, each once

    def source(self, name: str, verify: bool) -> tuple[str, Source]:
        """As `open_source`."""
        if (name, verify) not in self._sources:
            dataset, source = self._sources[name, verify] = open_source(name, verify)
            self.remarks.update(dict.fromkeys(source.remarks()))
        return self._sources[name, verify]

    def trunk(self, spec: BackboneSpec) -> Backbone:
        """The shape of a backbone, with the digest of its weights."""
        key = canonical_json(spec.model_dump())
        if key not in self._trunks:
            self._trunks[key] = outline.of(load.load(spec))
        return self._trunks[key]

    def mention_sentences(self, source: Source) -> None:
        """Say what sentences a text tower reads, and which names deserve a look."""
        for lines, found in zip((self.remarks, self.warnings), sentences(source), strict=True):
            lines.update(dict.fromkeys(found))


class Resolver:
    """The runs of a request with one data set and one backbone. Settings win in this order, the later ones over the earlier: defaults, data set,
    preset, published behavior, `--set`, brackets."""

    def __init__(self, request: Request, precision: Precision, opened: Opened):
        self.request, self.opened = request, opened
        self.selections = [
            (registry.find("methods", name), options) for name, options in parse_methods(request.methods)
        ]
        self.dataset, self.source = opened.source(request.dataset, request.verify)
        if request.limit is not None:
            require_image_per_class(request.limit, len(self.source.class_names))
        kinds = [plugin.load().METHOD for plugin, _ in self.selections]
        self.transform, self.options, self.precision = _sort_settings(request, kinds, precision)
        if request.as_published:
            _require_published([plugin for plugin, _ in self.selections])

    def specs(self) -> list[RunSpec]:
        """Every number of splits, seed and method. Raises InputError for the first that cannot run."""
        found = []
        for splits, seed in itertools.product(
            parse_splits(self.request.splits), parse_seeds(self.request.seeds)
        ):
            order, order_seed, classes = resolve(self.request.order, seed, self.source.class_names)
            placed = {"task_classes": cut(classes, splits), "order": order, "order_seed": order_seed}
            found += [self._spec(plugin, chosen, splits, seed, placed) for plugin, chosen in self.selections]
        if any(spec.text_sha256 for spec in found):
            self.opened.mention_sentences(self.source)
        return found

    def _spec(self, plugin: registry.Plugin, chosen: dict, splits: int, seed: int, placed: dict) -> RunSpec:
        request, kind = self.request, plugin.load().METHOD
        _require_gradient(plugin.name, kind, placed["task_classes"])
        chosen = without_synonyms(chosen)
        benchmark = f"{self.dataset}/{splits}"
        published = _values(settings_for(request.preset, kind.PRESET, plugin.name, benchmark))
        behavior = {}
        if _as_published(chosen, request, plugin):
            behavior = _values(published_behavior(kind.AS_PUBLISHED, kind.PRESET, plugin.name, benchmark))
        transform = self._transform(kind, published, behavior, chosen)
        backbone = self._backbone(published.get("backbone"), transform)
        config, differing = self._config(plugin.name, kind, published, behavior, chosen)
        init_seed = seed if request.init_seed is None else request.init_seed
        sizes = tuple(len(task) for task in placed["task_classes"])
        trunk = self.opened.trunk(backbone)
        # a method refuses backbones and options that do not fit here
        built = outline.build(
            kind, config, trunk, StreamInfo(init_seed, splits, self.source.TEMPLATES, sizes), plugin.name
        )
        carried = _meaning_something(request.set, kind) | {"precision": self.precision}
        asked, files = {AS_PUBLISHED: True} if behavior else {}, self._files(plugin)
        return RunSpec(
            core_version=CORE_VERSIONS[self.precision],
            method=plugin.name,
            method_version=kind.version,
            options=config.model_dump(mode="json"),
            dataset=self.dataset,
            dataset_argument=self.source.argument,
            manifest_digest=self.source.manifest_digest(),
            data=self.source.manifest(),
            joint=kind.joint,
            init_seed=init_seed,
            data_seed=seed if request.data_seed is None else request.data_seed,
            backbone=backbone,
            weights_sha256=trunk.weights_sha256,
            plugins=files,
            text_sha256=None if trunk.text is None else self.source.text_digest(),
            transform=transform,
            precision=self.precision,
            limit=request.limit,
            validation=request.validation,
            label=plugin.name + (f"[{','.join(differing)}]" if differing else ""),
            display=kind.display,
            smoke=self.source.smoke,
            keeps=built.keeps,
            losses=request.losses and not kind.joint,
            command=single_run(request, plugin.name, {**asked, **chosen}, splits, seed, carried, bool(files)),
            as_published=tuple(f"{key}={format_option(value)}" for key, value in behavior.items()),
            **placed,
        )

    def _transform(self, kind: type[Method], published: dict, behavior: dict, chosen: dict) -> Transform:
        origins = (self.source.TRANSFORM, kind.TRANSFORM, published, behavior, self.transform, chosen)
        return build_config(Transform, [_transform_of(settings) for settings in origins], "the run")

    def _config(
        self, name: str, kind: type[Method], published: dict, behavior: dict, chosen: dict
    ) -> tuple[Strict, list[str]]:
        """The method's options, and how they differ from the benchmark's own: the words of the run's label."""
        baseline = [
            {**_known(self.source.preset(name), kind), **_known(published, kind)},
            _known(behavior, kind),
        ]
        options = {key: value for key, value in chosen.items() if key not in Transform.model_fields}
        config = build_config(kind.Config, [*baseline, _known(self.options, kind), options], name)
        differing = [AS_PUBLISHED] if behavior else []
        differing += differences(config, build_config(kind.Config, baseline, name))
        return config, differing + [
            f"{key}={format_option(value)}" for key, value in _transform_of(chosen).items()
        ]

    def _backbone(self, published: str | None, transform: Transform) -> BackboneSpec:
        name = self.request.backbone or published or self.source.default_backbone()
        if name is None:
            advice = "name one with --backbone (`cl-bench ls backbones`)"
            raise InputError(f"data set {self.source.name!r} has no backbone of its own; {advice}")
        spec = load.resolve(name, self.request.image_size, self.request.weights, self.opened.named)
        mean, std = NORMALISATIONS.get(transform.normalisation, (spec.mean, spec.std))
        return spec.model_copy(update={"mean": mean, "std": std})

    def _files(self, plugin: registry.Plugin) -> dict[str, str]:
        """Digests of the user's own files that a run needs."""
        found = {"methods": plugin.sha256(), "datasets": registry.find("datasets", self.dataset).sha256()}
        return {kind: digest for kind, digest in found.items() if digest}


def _values(settings: dict) -> dict:
    return {key: setting.value for key, setting in settings.items()}


def _require_gradient(name: str, kind: type[Method], tasks: tuple[tuple[int, ...], ...]) -> None:
    """Raise InputError where a task has one class and the loss looks at no other."""
    if kind.current_task_loss and not kind.joint and len(tasks[0]) == 1:
        raise InputError(
            f"{name} compares the classes of the current task only: with one class a task (--splits {len(tasks)}) its loss "
            "is always 0 and nothing is learned; choose fewer splits or a method with a loss over all classes"
        )


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
        raise InputError(
            f"{names}: no published behaviour differs from the defaults; leave out {AS_PUBLISHED}"
        )


def _transform_of(settings: dict) -> dict:
    return {key: value for key, value in settings.items() if key in Transform.model_fields}


def _sort_settings(
    request: Request, kinds: list[type[Method]], usual: Precision
) -> tuple[dict, dict, Precision]:
    """(augmentation, method options, precision) of --set; each key must mean something to the run or to at least one method."""
    options, settings = (
        {key for kind in kinds for key in kind.Config.model_fields},
        without_synonyms(request.set),
    )
    for key in settings:
        if key not in options and key not in Transform.model_fields and key not in RUN_SETTINGS:
            raise unknown(
                "--set option",
                key,
                [*options, *Transform.model_fields, *RUN_SETTINGS],
                request.places.get(f"set.{key}"),
            )
    precision = settings.get("precision", usual)
    if precision not in [*CORE_VERSIONS]:
        raise InputError(f"precision={precision!r}: expected fp32 or bf16")
    augmenter = {"augmenter": request.augment} if request.augment else {}
    return (
        {**augmenter, **_transform_of(settings)},
        {key: value for key, value in settings.items() if key in options},
        precision,
    )


def _known(settings: dict, kind: type[Method]) -> dict:
    return {key: value for key, value in settings.items() if key in kind.Config.model_fields}


def _meaning_something(settings: dict, kind: type[Method]) -> dict:
    known = {*kind.Config.model_fields, *Transform.model_fields, *RUN_SETTINGS}
    return {key: value for key, value in settings.items() if SYNONYMS.get(key, key) in known}


def differences(config: Strict, baseline: Strict) -> list[str]:
    """The options that differ from the benchmark's baseline, such as "eta=0.9", in the config's own order."""
    return [
        f"{key}={format_option(getattr(config, key))}"
        for key in type(config).model_fields
        if getattr(config, key) != getattr(baseline, key)
    ]
