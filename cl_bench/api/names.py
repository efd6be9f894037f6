"""What runs are called in tables: runs that share a label and a benchmark differ in seeds and class order."""

from collections import defaultdict
from collections.abc import Sequence

from cl_bench.records.spec import RunSpec
from cl_bench.report.settings import labels_apart

NAMED = ("run_id", "label", "benchmark", "seed", "family_id", "benchmark_id", "backbone", "image_size")


def named(specs: Sequence[RunSpec]) -> dict[str, dict]:
    """Run id -> the columns `NAMED`.

    Labels of several configurations and names of several benchmarks have what tells them apart in brackets.
    Equal `family_id` are the runs of one mean, equal `benchmark_id` those that may be compared.
    """
    benchmarks: dict[str, RunSpec] = {}  # the first of each
    families: dict[str, dict[str, RunSpec]] = defaultdict(dict)  # those of each
    keys = {spec.run_id(): (spec, spec.benchmark_id(), spec.family_id()) for spec in specs}
    for spec, benchmark, family in keys.values():
        benchmarks.setdefault(benchmark, spec)
        families[benchmark].setdefault(family, spec)
    names = dict(zip(benchmarks, _benchmarks_apart([*benchmarks.values()]), strict=True))
    labels: dict[str, str] = {}
    for of_benchmark in families.values():
        labels |= zip(of_benchmark, labels_apart([*of_benchmark.values()]), strict=True)
    return {
        run_id: {
            "run_id": run_id,
            "label": labels[family],
            "benchmark": names[benchmark],
            "seed": spec.seed_name(),
            "family_id": family,
            "benchmark_id": benchmark,
            "backbone": spec.backbone.name,
            "image_size": spec.backbone.image_size,
        }
        for run_id, (spec, benchmark, family) in keys.items()
    }


def _benchmarks_apart(specs: Sequence[RunSpec]) -> list[str]:
    """The names of benchmarks, a run of each; those of one name say what they differ in, no more."""
    facts = [_facts(spec) for spec in specs]
    alike = defaultdict(list)
    for name, *others in facts:
        alike[name].append(others)
    made = []
    for name, *others in facts:
        marks = [others[place] for place in range(len(others)) if _tells_more(alike[name], place)]
        made.append(f"{name} [{', '.join(marks)}]" if marks else name)
    return made


def _facts(spec: RunSpec) -> tuple[str, ...]:
    """The benchmark's name, and what others of that name may differ in."""
    weights, images = f"weights {spec.weights_sha256[:8]}", f"data {spec.manifest_digest[:8]}"
    return spec.benchmark_name(), spec.backbone.name, f"{spec.backbone.image_size} px", weights, images


def _tells_more(facts: Sequence[Sequence[str]], place: int) -> bool:
    """Whether the fact at a place tells benchmarks apart that those before it do not."""
    before, after = ({tuple(each[:end]) for each in facts} for end in (place, place + 1))
    return len(after) > len(before)
