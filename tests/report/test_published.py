"""The published numbers: entered as printed, and consistent with what the paper says about them."""

import re

import pytest
import toys
from made import orders, record

from cl_bench import presets
from cl_bench.config import BackboneSpec, Transform, build_config
from cl_bench.errors import InputError
from cl_bench.plugins import registry
from cl_bench.records.metrics import Conventions
from cl_bench.report import comparable, published

REGISTRY = published.Path(__file__).resolve().parents[2] / "results" / "published" / "nsp2.toml"
FOUR = ("cifar100/10", "cifar100/20", "imagenet-r/10", "domainnet200/10")
LONG = ("cifar100/50", "imagenet-r/50", "domainnet200/50", "imagenet-r/100", "domainnet200/100")


def numbers(table, row, metric, benchmarks=FOUR):
    registry = published.load(REGISTRY)
    return [registry.number(table, row, benchmark, metric).mean for benchmark in benchmarks]


def gains(table, row, base, metric, benchmarks=FOUR):
    sign = 1 if metric == "accuracy" else -1
    return [
        sign * (a - b)
        for a, b in zip(
            numbers(table, row, metric, benchmarks), numbers(table, base, metric, benchmarks), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("table", "row", "base", "metric", "low", "high"),
    [
        ("tab:bsl", "VPT-NSP²", "VPT-Seq", "accuracy", 4.47, 10.26),
        ("tab:bsl", "VPT-NSP²", "VPT-Seq", "forgetting", 9.05, 17.11),
        ("tab:bsl", "CLIP-NSP²", "CLIP-Seq", "accuracy", 6.48, 9.31),
        ("tab:bsl", "CLIP-NSP²", "CLIP-Seq", "forgetting", 2.68, 17.27),
        ("tab:ablation", "B1", "none", "accuracy", 3.31, 9.03),
        ("tab:ablation", "B1", "none", "forgetting", 5.42, 14.76),
    ],
)
def test_the_gains_that_the_paper_states_are_those_of_its_tables(table, row, base, metric, low, high):
    found = gains(table, row, base, metric)
    assert (round(min(found), 2), round(max(found), 2)) == (low, high)


def test_the_mean_gain_over_the_second_best_and_that_of_plasticity_enhancement_are_as_stated():
    registry = published.load(REGISTRY)
    names = [name for table, name in registry.rows if table == "tab:sota" and name != "VPT-NSP²"]
    best = [
        max(
            found.mean
            for name in names
            if (found := registry.number("tab:sota", name, benchmark, "accuracy"))
        )
        for benchmark in FOUR
    ]
    ahead = [
        own - other for own, other in zip(numbers("tab:sota", "VPT-NSP²", "accuracy"), best, strict=True)
    ]
    assert round(sum(ahead) / 4, 2) == 1.49
    found = gains("tab:long-task", "VPT-NSP² ‡", "VPT-NSP² †", "accuracy", LONG)
    assert (round(min(found), 1), round(max(found), 1)) == (1.1, 2.9)


def test_rows_that_stand_in_several_tables_are_the_same_everywhere():
    for metric in published.METRICS:
        full = numbers("tab:bsl", "VPT-NSP²", metric)
        assert full == numbers("tab:sota", "VPT-NSP²", metric) == numbers("tab:ablation", "B1+B2+LN", metric)
        assert full == numbers("tab:comparison-pgp", "VPT-NSP²", metric)
        assert (
            numbers("tab:bsl", "VPT-Seq", metric)
            == numbers("tab:ablation", "none", metric)
            == numbers("tab:comparison-pgp", "VPT-Seq", metric)
        )
        assert numbers("tab:ablation", "B1", metric) == numbers("tab:comparison-pgp", "VPT-NSP²-B1", metric)


@pytest.mark.skipif(not (toys.SHARED / "paper").is_dir(), reason="the paper's source is not here")
def test_every_number_in_the_source_of_the_papers_tables_is_here_in_its_place_and_no_other():
    source = (toys.SHARED / "paper" / "nsp2_paper.tex").read_text(encoding="utf-8")
    registry = published.load(REGISTRY)
    for label in registry.titles:
        start = source.index(rf"\label{{{label}}}")
        body = source[source.index(r"\midrule", start) : source.index(r"\end{tabular}", start)]
        printed = [re.findall(r"\d+\.\d\d", line) for line in body.split(r"\\") if "&" in line]
        entered = []
        for (table, row), found in registry.rows.items():
            if table == label:
                benchmarks = LONG if label == "tab:long-task" else FOUR
                line = []
                for benchmark in benchmarks:
                    for metric in published.METRICS:
                        number = registry.number(table, row, benchmark, metric)
                        line += (
                            [f"{part:.2f}" for part in (number.mean, number.spread) if part is not None]
                            if number
                            else []
                        )
                assert set(found) <= {"name", "venue", *benchmarks}
                entered.append(line)
        assert entered == printed


def test_what_is_known_about_a_number_is_the_last_fact_that_fits_its_row():
    registry = published.load(REGISTRY)

    def known(name, *place):
        return registry.known(registry.number(*place, "accuracy"), name)

    own = ("tab:bsl", "VPT-NSP²", "cifar100/10")
    assert [known(name, *own) for name in ("backbone", "passes", "order")] == [
        "vit_base_patch16_224.augreg_in21k",
        100,
        "nsp2",
    ]
    assert registry.number("tab:sota", "CODA-P", "cifar100/10", "accuracy").spread == 0.74
    assert (
        known("backbone", "tab:comparison-pgp", "L2P", "cifar100/10") is None
    )  # nobody states it for Table 5
    assert known("backbone", "tab:sota", "L2P", "cifar100/10") == "vit_base_patch16_224.orig_in21k"
    assert (
        known("backbone", "tab:sota", "L2P", "domainnet200/10") is None
    )  # others made these runs, whose code is not L2P's
    assert (
        known("split", "tab:sota", "CODA-P", "imagenet-r/10") == "CODA-Prompt's own list"
        and known("split", "tab:sota", "CODA-P", "cifar100/10") == "nsp2"
    )
    assert registry.number("tab:sota", "L2P", "cifar100/20", "accuracy").by == "LAE"
    assert registry.number("tab:sota", "L2P", "cifar100/20", "forgetting") is None


def test_a_broken_registry_is_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot read the published numbers"):
        published.load(tmp_path / "none.toml")
    (tmp_path / "twice.toml").write_text(
        REGISTRY.read_text(encoding="utf-8") + '\n[[table.row]]\nname = "L2P"\n', encoding="utf-8"
    )
    with pytest.raises(InputError, match="row 'L2P' stands twice in tab:comparison-pgp"):
        published.load(tmp_path / "twice.toml")
    head = REGISTRY.read_text(encoding="utf-8").partition("[[facts]]")[0]
    for text, key in (
        ("[table]\nx = 1", "table"),
        ("table = 3", "table"),
        ("[facts]\nrows = []", "facts"),
        ('[[table]]\nlabel = "t"\nrow = ["x"]', "table.row"),
    ):
        (tmp_path / "r.toml").write_text(f"{head}\n{text}\n", encoding="utf-8")
        published.load.cache_clear()
        with pytest.raises(
            InputError,
            match=rf"r.toml, line 1[345], .*: expected an array of tables, each under \[\[{key}\]\]",
        ):
            published.load(tmp_path / "r.toml")


OWN_ROWS = {
    "vpt-seq": ["VPT-Seq"], "vpt-nsp2": ["VPT-NSP²", "VPT-NSP² ‡", "B1+B2+LN"],
    "vpt-joint": ["Upper-bound (VPT)"], "vpt-pgp": ["VPT-PGP"], "clip-seq": ["CLIP-Seq"],
    "clip-nsp2": ["CLIP-NSP²"], "clip-joint": ["Upper-bound (CLIP)"],
}  # fmt: skip


@pytest.mark.parametrize("benchmark", presets.load("nsp2-paper").benchmarks)
def test_a_run_with_the_papers_settings_may_be_compared_with_the_papers_own_rows(benchmark):
    found, compared = published.load(REGISTRY), 0
    dataset, _, tasks = benchmark.partition("/")
    source = registry.source_class(dataset)
    for (table, row), numbers in found.rows.items():
        for method in (name for name, rows in OWN_ROWS.items() if row in rows and benchmark in numbers):
            kind = registry.method_class(method)
            values = {
                key: setting.value
                for key, setting in presets.settings_for(None, kind.PRESET, method, benchmark).items()
            }
            layers = [
                source.TRANSFORM,
                kind.TRANSFORM,
                {key: value for key, value in values.items() if key in Transform.model_fields},
            ]
            options = [
                {key: value for key, value in layer.items() if key in kind.Config.model_fields}
                for layer in (source.preset(method), values)
            ]
            run = record(
                method, [], dataset=dataset, task_classes=orders(int(tasks), 0),
                transform=build_config(Transform, layers, "t"),
                options=build_config(kind.Config, options, "c").model_dump(mode="json"),
                backbone=BackboneSpec(name=values["backbone"], image_size=224, mean=(0,) * 3, std=(1,) * 3),
            )  # fmt: skip
            number = found.number(table, row, benchmark, "accuracy")
            assert comparable.why_not(found, number, run.spec, Conventions()) == [], (table, row)
            compared += 1
    assert compared >= 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('"glyphs/3" = 87.2', "expected such as"),
        ('"glyphs/3" = { acuracy = 87.2 }', "did you mean 'accuracy'"),
        ('"glyphs/3" = { accuracy = [1.0, 2.0, 3.0] }', r"a list is \[mean, standard deviation\]"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, said):
    head = REGISTRY.read_text(encoding="utf-8").partition("[[facts]]")[0]
    (tmp_path / "r.toml").write_text(
        f'{head}\n[[table]]\nlabel = "t"\n[[table.row]]\nname = "x"\n{row}\n', encoding="utf-8"
    )
    with pytest.raises(InputError, match=said):
        published.load(tmp_path / "r.toml")
