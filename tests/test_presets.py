"""Settings of published experiments, against the paper's appendix B."""

import pytest

from cl_bench import presets
from cl_bench.cli import main
from cl_bench.config import Transform
from cl_bench.errors import InputError
from cl_bench.plugins import registry
from cl_bench.presets import load, settings_for

PAPER = load("nsp2-paper")


def values(method: str, protocol: str) -> dict:
    return {key: setting.value for key, setting in PAPER.settings(method, protocol).items()}


@pytest.mark.parametrize(
    ("protocol", "temperature", "eta"),
    [
        ("cifar100/10", 28, 0.97),
        ("cifar100/20", 25, 0.95),
        ("imagenet-r/10", 30, 0.94),
        ("domainnet200/10", 30, 0.95),
    ],
)
def test_vpt_has_the_papers_settings_on_its_four_benchmarks(protocol, temperature, eta):
    for method in ("vpt-seq", "vpt-pgp", "vpt-nsp2"):
        found = values(method, protocol)
        assert (found["temperature"], found.get("eta")) == (
            temperature,
            eta if method == "vpt-nsp2" else None,
        )
        assert (
            found["passes"],
            found["batch"],
            found["learning_rate"],
            found["weight_decay"],
            found["prompts"],
        ) == (100, 256, 0.01, 5e-5, 4)
        assert found["backbone"] == "vit_base_patch16_224.augreg_in21k" and found["lr_milestones"] == "code"
        assert not PAPER.settings(method, protocol)["temperature"].open


@pytest.mark.parametrize("protocol", PAPER.benchmarks)
def test_clip_has_the_papers_settings_everywhere(protocol):
    for method in ("clip-seq", "clip-nsp2"):
        found = values(method, protocol)
        assert (
            found["passes"],
            found["batch"],
            found["learning_rate"],
            found["temperature"],
            found["layers"],
        ) == (20, 220, 0.001, 1, 4)
        assert (
            found["refine_passes"],
            found["refine_learning_rate"],
            found["refine_momentum"],
            found["refine_weight_decay"],
        ) == (50, 0.001, 0.9, 1e-4)
        assert found.get("eta") == (0.98 if method == "clip-nsp2" else None)
        assert found["backbone"] == "open_clip:ViT-B-16-quickgelu/openai"
    assert values("clip-joint", protocol)["refine_head"] is False


@pytest.mark.parametrize("name", ["nsp2-paper", "inflora"])
def test_inflora_has_its_codes_settings_and_what_they_leave_open_is_marked(name):
    wanted = {"cifar100": (20, 0.95, 10), "imagenet-r": (50, 0.98, 10), "domainnet200": (5, 0.95, 30)}
    preset = load(name)
    for benchmark in PAPER.benchmarks:
        found = preset.settings("inflora", benchmark)
        chosen = tuple(found[option].value for option in ("passes", "energy", "rank"))
        assert chosen == wanted[benchmark.partition("/")[0]]
        assert (found["batch"].value, found["learning_rate"].value) == (128, 5e-4)
        assert "sigma4_asis" in found["energy"].open
        assert bool(found["passes"].open) == (benchmark not in ("cifar100/10", "imagenet-r/10")), benchmark


@pytest.mark.parametrize("name", presets.names())
def test_every_rule_fits_a_method_and_names_its_source(name):
    preset = load(name)
    methods = {
        plugin: registry.method_class(plugin).Config.model_fields for plugin in registry.plugins("methods")
    }
    every = (*preset.rules, *preset.published)
    assert all(
        set(rule) <= {"methods", "benchmarks", "values", "source", "open"} and rule["source"]
        for rule in every
    )
    for benchmark in preset.benchmarks:
        for method, fields in methods.items():
            found = preset.settings(method, benchmark)
            config = {key: setting.value for key, setting in found.items() if key in fields}
            registry.method_class(method).Config(**config)
            if method.startswith("vpt-"):
                assert {key for key in found if key not in fields} <= {"backbone", *Transform.model_fields}, (
                    method
                )
        for rule in every:
            for option in rule["values"]:
                assert option in ("backbone", *Transform.model_fields) or any(
                    option in fields for fields in methods.values()
                ), option


def test_what_the_paper_leaves_open_is_said():
    for benchmark in ("cifar100/50", "imagenet-r/100", "domainnet200/50"):
        assert (
            "Table 4" in PAPER.settings("vpt-nsp2", benchmark)["eta"].open
            and "Table 4" in PAPER.settings("vpt-seq", benchmark)["temperature"].open
        )
    assert "upper bound" in PAPER.settings("vpt-joint", "imagenet-r/10")["temperature"].open


def test_a_preset_is_used_where_it_covers_and_refused_where_it_does_not():
    assert (
        settings_for(None, "nsp2-paper", "vpt-nsp2", "glyphs/10")
        == {}
        == settings_for("none", "nsp2-paper", "vpt-nsp2", "cifar100/10")
    )
    assert settings_for(None, "nsp2-paper", "vpt-nsp2", "cifar100/10") == settings_for(
        "nsp2-paper", None, "vpt-nsp2", "cifar100/10"
    )
    with pytest.raises(
        InputError,
        match="preset nsp2-paper has no settings for vpt-nsp2 on glyphs/10; its benchmarks are cifar100/10",
    ):
        settings_for("nsp2-paper", "nsp2-paper", "vpt-nsp2", "glyphs/10")
    with pytest.raises(InputError, match="unknown preset 'nsp2paper'; did you mean 'nsp2-paper'"):
        settings_for("nsp2paper", None, "vpt-nsp2", "cifar100/10")


def test_as_published_follows_the_configuration_of_the_benchmark():
    usual = registry.method_class("dualprompt").AS_PUBLISHED

    def votes(benchmark: str) -> tuple:
        found = presets.published_behavior(usual, "nsp2-paper", "dualprompt", benchmark)
        return found["batchwise_train"].value, found["batchwise_eval"].value, found["prefix_reshape"].value

    assert votes("cifar100/10") == votes("glyphs/10") == (True, True, "reshape_asis")
    assert votes("imagenet-r/20") == votes("domainnet200/10") == (False, False, "reshape_asis")
    assert presets.published_behavior({}, "nsp2-paper", "vpt-seq", "cifar100/10") == {}


def test_info_says_what_as_published_sets_and_what_it_leaves_different(capsys):
    with pytest.raises(SystemExit):
        main(["info", "imagenet-r/10", "dualprompt-pgp"])
    text = capsys.readouterr().out
    settings, _, left = text.partition("as_published sets:")[2].partition("and leaves different:")
    assert ["batchwise_eval", "off"] in [line.split()[:2] for line in settings.splitlines()]
    assert "principal components are exact" in left and "natural order" in left


def test_info_prints_every_value_with_its_source(capsys):
    with pytest.raises(SystemExit):
        main(["info", "cifar100/50", "nsp2", "--preset", "nsp2-paper"])
    lines = capsys.readouterr().out.splitlines()
    assert "NeurIPS 2024" in lines[0]
    eta = next(line for line in lines if line[2:].startswith("eta "))
    assert eta.startswith("o eta") and "0.97" in eta and "(open: Table 4 has eta = 1" in eta
    assert any(
        "augment" in line and "autoaugment-cifar10" in line and "data set cifar100" in line for line in lines
    )
    options = registry.method_class("vpt-nsp2").Config.model_fields
    assert all(
        any(line[2:].split()[0] == option for line in lines[1:])
        for option in [*options, *Transform.model_fields, "precision", "backbone"]
    )
