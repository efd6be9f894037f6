"""One data set, one backbone: from settings of five origins to fully resolved runs."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from cl_bench import splits
from cl_bench.config import BackboneSpec, Strict, Transform, build_config, canonical_json
from cl_bench.data.declared import declared
from cl_bench.data.names import require_names, sentences
from cl_bench.data.order import cut, resolve
from cl_bench.data.source import Source
from cl_bench.data.stream import StreamInfo
from cl_bench.data.subset import require_image_per_class
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.backbone import Backbone
from cl_bench.notation import AS_PUBLISHED, parse_methods, parse_seeds, without_synonyms
from cl_bench.plan import outline, settings
from cl_bench.plan.request import Request, single_run
from cl_bench.plugins import registry
from cl_bench.presets import published_behavior, settings_for
from cl_bench.records.spec import CORE_VERSIONS, Precision, RunSpec
from cl_bench.training.method import Method

# (mean, std) of inputs that older papers fed to checkpoints whatever these were trained with
NORMALIZATIONS = {
    "unit01": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def open_source(name: str, verify: bool = False, counted: bool = False) -> tuple[str, Source]:
    """ "folder:PATH" -> ("folder", the source at PATH), see `Source.verify`, `Opened`. Raises InputError."""
    base, _, argument = name.partition(":")
    plugin = registry.find("datasets", base)
    kind = plugin.load().SOURCE
    source = declared(kind) if counted and kind.SIZES else kind(argument or None)
    if verify:
        source.verify()
    return plugin.name, source


class Unfit(InputError):
    """A method cannot be run on the backbone, data, splits and preset asked for."""


@contextmanager
def _fitting() -> Iterator[None]:
    """What cannot be used in the body is that the method does not fit."""
    try:
        yield
    except InputError as error:
        raise Unfit(str(error)) from error


class Opened:
    """Data sets and backbones of a plan, each opened and hashed once, and what is said about them."""

    def __init__(self, counted: bool = False):
        self.counted = counted  # data sets as they declare themselves, and networks without weights
        self._sources: dict[tuple, tuple[str, Source]] = {}
        self._trunks: dict[str, Backbone] = {}
        self.named = registry.named_backbones()
        self.remarks: dict[str, None] = {}  # in order, each once
        self.warnings: dict[str, None] = {}
        self._unfit: dict[str, dict[str, None]] = {}  # place and reason -> methods

    def source(self, name: str, verify: bool) -> tuple[str, Source]:
        """As `open_source`."""
        if (name, verify) not in self._sources:
            dataset, source = self._sources[name, verify] = open_source(name, verify, self.counted)
            self.remarks.update(dict.fromkeys(source.remarks()))
        return self._sources[name, verify]

    def trunk(self, spec: BackboneSpec) -> Backbone:
        """The shape of a backbone, with the digest of its weights."""
        key = canonical_json(spec.model_dump())
        if key not in self._trunks:
            self._trunks[key] = outline.of(load.load(spec, self.counted))
        return self._trunks[key]

    def leave_out(self, method: str, benchmark: str, reason: str) -> None:
        """Remember that a method of a group does not fit."""
        self._unfit.setdefault(f"on {benchmark}: {reason}", {})[method] = None

    def refuse(self, spec: RunSpec, grouped: frozenset[str], reason: str, advice: str) -> None:
        """Leave out a run of a method that a group brought; raises InputError for one that was named."""
        if spec.method not in grouped:
            raise InputError(f"{spec.label} on {spec.benchmark_key()} {reason}; {advice}")
        self.leave_out(spec.method, spec.benchmark_key(), reason)

    def left_out(self) -> list[str]:
        """A sentence for every reason, with the methods."""
        return [f"{', '.join(methods)} {why}" for why, methods in self._unfit.items()]

    def mention_sentences(self, source: Source) -> None:
        """Say what sentences a text tower reads, and which names deserve a look."""
        for lines, found in zip((self.remarks, self.warnings), sentences(source), strict=True):
            lines.update(dict.fromkeys(found))


class Resolver:
    """The runs of a request with one data set and one backbone.

    Settings win in this order, the later ones over the earlier: defaults, data set, preset, published
    behavior, `--set`, brackets.
    """

    def __init__(self, request: Request, precision: Precision, opened: Opened):
        self.request, self.opened = request, opened
        methods = parse_methods(request.methods)
        self.selections = [(registry.find("methods", name), options) for name, options in methods]
        self.transform, self.options, self.precision = settings.sort(request, self.selections, precision)
        self.dataset, self.source = opened.source(request.dataset, request.verify)
        if request.limit is not None:
            require_image_per_class(request.limit, len(self.source.class_names))
        opened.remarks.update(dict.fromkeys(settings.told(request, self.selections)))
        if request.as_published:
            settings.require_published([plugin for plugin, _ in self.selections])

    def specs(self) -> list[RunSpec]:
        """Every number of splits, seed and method, but for methods of groups that do not fit.

        Raises InputError for the first that cannot run.
        """
        found = []
        asked = splits.listed(self.request.splits)
        cuts = dict.fromkeys(self._named(each) for each in asked)
        for split, seed in itertools.product(cuts, parse_seeds(self.request.seeds)):
            order, order_seed, classes = resolve(self.request.order, seed, self.source.class_names)
            placed = {"task_classes": cut(classes, split), "order": order, "order_seed": order_seed}
            placed["online"] = splits.is_online(split)
            for plugin, chosen in self.selections:
                try:
                    found.append(self._spec(plugin, chosen, split, seed, placed))
                except Unfit as error:
                    if plugin.name not in self.request.grouped:
                        raise
                    self.opened.leave_out(plugin.name, f"{self.dataset}/{split}", str(error))
        if any(spec.text_sha256 for spec in found):
            self.opened.mention_sentences(self.source)
        return found

    def _named(self, split: str) -> str:
        """A split by its shortest name. Raises InputError where it does not fit the classes."""
        name = splits.name(splits.sizes(split, len(self.source.class_names)))
        return splits.online(name) if splits.is_online(split) else name

    def _spec(self, plugin: registry.Plugin, chosen: dict, split: str, seed: int, placed: dict) -> RunSpec:
        request, kind = self.request, plugin.load().METHOD
        chosen = without_synonyms(chosen)
        benchmark = f"{self.dataset}/{splits.offline(split)}"
        with _fitting():
            _require_gradient(plugin.name, kind, placed["task_classes"])
            usual = settings_for(request.preset, kind.PRESET, plugin.name, benchmark)
        published = settings.values(usual)
        behavior = {}
        if settings.as_published(chosen, request, plugin):
            changes = published_behavior(kind.AS_PUBLISHED, kind.PRESET, plugin.name, benchmark)
            behavior = settings.values(changes)
        transform = self._transform(kind, published, behavior, chosen)
        backbone = self._backbone(published.get("backbone"), transform)
        once = settings.shown_once(kind, {**self.options, **chosen}) if placed["online"] else {}
        config, differing = self._config(plugin.name, kind, {**published, **once}, behavior, chosen)
        init_seed = seed if request.init_seed is None else request.init_seed
        sizes = tuple(len(task) for task in placed["task_classes"])
        trunk = self.opened.trunk(backbone)
        info = StreamInfo(init_seed, len(sizes), self.source.TEMPLATES, sizes)
        with _fitting():  # a method refuses backbones and options here
            if kind.needs_names:
                require_names(self.source, plugin.name)
            built = outline.build(kind, config, trunk, info, plugin.name)
        carried = settings.meaning_something(request.set, kind) | {"precision": self.precision}
        asked, files = {AS_PUBLISHED: True} if behavior else {}, self._files(plugin)
        return RunSpec(
            core_version=CORE_VERSIONS[self.precision],
            method=plugin.name,
            method_version=kind.version,
            options=config.recorded(),
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
            reconstruction=plugin.reconstruction,
            losses=request.losses and not kind.joint,
            diagnose=request.diagnose and not kind.joint,
            command=single_run(request, plugin.name, {**asked, **chosen}, split, seed, carried, bool(files)),
            as_published=tuple(settings.assignments(behavior)),
            **placed,
        )

    def _transform(self, kind: type[Method], published: dict, behavior: dict, chosen: dict) -> Transform:
        origins = (self.source.TRANSFORM, kind.TRANSFORM, published, behavior, self.transform, chosen)
        return build_config(Transform, [settings.transform_of(origin) for origin in origins], "the run")

    def _config(
        self, name: str, kind: type[Method], published: dict, behavior: dict, chosen: dict
    ) -> tuple[Strict, list[str]]:
        """The method's options, and how they differ from the benchmark's own: words of the run's label."""
        usual = settings.known({**self.source.preset(name), **published}, kind)
        baseline = [usual, settings.known(behavior, kind)]
        own = {key: value for key, value in chosen.items() if key not in Transform.model_fields}
        config = build_config(kind.Config, [*baseline, settings.known(self.options, kind), own], name)
        words = [AS_PUBLISHED] if behavior else []
        words += settings.differences(config, build_config(kind.Config, baseline, name))
        return config, words + settings.assignments(settings.transform_of(chosen))

    def _backbone(self, published: str | None, transform: Transform) -> BackboneSpec:
        name = self.request.backbone or published or self.source.default_backbone()
        if name is None:
            advice = "name one with --backbone (`cl-bench ls backbones`)"
            raise InputError(f"data set {self.source.name!r} has no backbone of its own; {advice}")
        spec = load.resolve(name, self.request.image_size, self.request.weights, self.opened.named)
        mean, std = NORMALIZATIONS.get(transform.normalisation, (spec.mean, spec.std))
        return spec.model_copy(update={"mean": mean, "std": std})

    def _files(self, plugin: registry.Plugin) -> dict[str, str]:
        """Digests of the user's own files that a run needs."""
        found = {"methods": plugin.sha256(), "datasets": registry.find("datasets", self.dataset).sha256()}
        return {kind: digest for kind, digest in found.items() if digest}


def _require_gradient(name: str, kind: type[Method], tasks: tuple[tuple[int, ...], ...]) -> None:
    """Raise InputError where a task has one class and the loss looks at no other."""
    sizes = [len(task) for task in tasks]
    single = sizes.count(1)
    if kind.current_task_loss and not kind.joint and single:
        of = "a task" if single == len(tasks) else f"in {single} of {len(tasks)} tasks"
        raise InputError(
            f"{name} compares the classes of the current task only: with one class {of} "
            f"(--splits {splits.name(sizes)}) its loss is always 0 and nothing is learned; "
            "choose fewer splits or a method with a loss over all classes"
        )
