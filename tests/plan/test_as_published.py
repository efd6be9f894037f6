"""All of a method's published choices at once, and each by itself."""

import pytest
from runs import plan

from cl_bench.errors import InputError
from cl_bench.notation import parse_methods
from cl_bench.plan.cost import costs
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request
from cl_bench.plugins import registry


def test_as_published_sets_all_published_choices_and_tells_the_row_by_name(base):
    correct, published = plan(base, methods="l2p,l2p[as_published]").specs
    assert (correct.label, published.label) == (
        "l2p",
        "l2p[as_published]",
    ) and correct.run_id() != published.run_id()
    assert not correct.options["batchwise_eval"] and correct.transform.normalisation == "checkpoint"
    assert (
        published.options["batchwise_eval"]
        and published.options["carry"] == "accumulate"
        and published.options["layers"] == 1
    )
    assert published.transform.normalisation == "unit01" and published.backbone.mean == (0.0, 0.0, 0.0)
    assert (
        "batchwise_eval=on" in published.as_published
        and "normalisation=unit01" in published.as_published
        and not correct.as_published
    )
    [everywhere] = plan(base, methods="l2p", as_published=True).specs
    assert everywhere.run_id() == published.run_id() and everywhere.label == published.label
    assert (
        plan(base, methods="l2p[as_published=off]", as_published=True).specs[0].run_id() == correct.run_id()
    )


def test_a_row_is_as_published_too_where_only_the_inputs_of_published_runs_differ(base, monkeypatch):
    method = registry.method_class("l2p")
    monkeypatch.setattr(method, "AS_PUBLISHED", {"normalisation": "unit01"})
    monkeypatch.setattr(method, "PRESET", None)
    [spec] = plan(base, methods="l2p[as_published]").specs
    assert spec.label == "l2p[as_published]" and spec.as_published == ("normalisation=unit01",)


def test_what_is_given_wins_over_the_published_choice(base):
    [spec] = plan(base, methods="l2p[as_published,batchwise_eval=off,input_norm=half]").specs
    assert (
        not spec.options["batchwise_eval"]
        and spec.transform.normalisation == "half"
        and spec.backbone.mean == (0.5, 0.5, 0.5)
    )
    assert spec.label == "l2p[as_published,batchwise_eval=off,normalisation=half]"
    assert parse_methods(spec.label) == [
        ("l2p", {"as_published": True, "batchwise_eval": False, "normalisation": "half"})
    ]
    [shared] = plan(
        base, methods="l2p", as_published=True, set={"batchwise_eval": False, "input_norm": "imagenet"}
    ).specs
    assert not shared.options["batchwise_eval"] and shared.transform.normalisation == "imagenet"


@pytest.mark.parametrize(
    ("methods", "changes", "message"),
    [
        ("seq", {"as_published": True}, "vpt-seq: no published behavior differs from the defaults"),
        ("l2p,seq[as_published]", {}, "vpt-seq: no published behavior"),
        ("l2p[as_published=maybe]", {}, "as_published='maybe' is not usable; expected on or off"),
        ("l2p[pool_size=3,top_k=4]", {}, "top_k=4 of a pool of 3"),
        ("l2p[prompt_length=0]", {}, "prompt_length=0 is not usable"),
        ("dualprompt[pool_size=1]", {}, "no E-prompt for each of 2 tasks"),
        ("coda[components=1]", {}, "too few for 2 tasks"),
        ("l2p-nsp2[carry=accumulate]", {}, "give carry=drop"),
    ],
)
def test_pools_that_cannot_work_are_one_line_before_any_training(base, methods, changes, message):
    with pytest.raises(InputError, match=message) as raised:
        plan(base, methods=methods, **changes)
    assert "\n" not in str(raised.value)


def test_every_published_choice_of_every_method_is_an_option_it_has(base):
    from cl_bench.config import Transform

    for name in registry.plugins("methods"):
        kind = registry.method_class(name)
        assert set(kind.AS_PUBLISHED) <= {*kind.Config.model_fields, *Transform.model_fields}
        kind.Config(
            **{key: value for key, value in kind.AS_PUBLISHED.items() if key in kind.Config.model_fields}
        )


def test_the_cost_of_every_method_as_published_is_known_without_data():
    own = {name: plugin for name, plugin in registry.plugins("methods").items() if plugin.family != "CLIP"}
    published = [f"{name}[as_published]" for name in own if registry.method_class(name).AS_PUBLISHED]
    specs = make_plan(Request(methods=",".join(published), splits="10")).specs
    found = costs(specs)
    assert len(published) > 20 and all(cost.images[-1] >= 0 and cost.stored_bytes for cost in found.values())
