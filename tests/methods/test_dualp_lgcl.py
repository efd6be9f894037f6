"""DualP-LGCL: guidance by texts equals its formula, touches what it may, and without weight is DualPrompt."""

import copy

import pytest
import torch
import toys
from cl_bench.methods.dualp_lgcl import METHOD as LGCL
from cl_bench.methods.dualp_lgcl import LanguageConfig
from text_towers import reader
from torch.nn import functional as F
from toys import equal

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.errors import InputError
from cl_bench.nn import load
from cl_bench.nn.backbone import Backbone
from cl_bench.plan.plan import make_plan
from cl_bench.plan.request import Request

TASKS = [[2, 0], [1, 3, 4], [5, 6]]
IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def learned(upto=None, name="dualp-lgcl", trunk=None, tasks=TASKS, **options):
    method = toys.method(name, len(tasks), trunk or toys.clip_backbone(), **options)
    toys.learn(method, toys.stream(tasks), upto=upto)
    return method


@pytest.fixture(scope="module")
def whole():
    return learned()


def beside(length: int = 32, words: int = 77, width: int = 32) -> Backbone:
    """The toy ViT with a text tower of another model."""
    name, weights = reader(length, words)
    text = load.load(load.resolve(name, None, str(weights), {})).text
    text.projection = None
    return Backbone(toys.vit(embed_dim=width), toys.backbone().spec, "0" * 64, text)


def test_without_weights_it_is_dualprompt_bit_for_bit():
    plain = learned(name="dualprompt").state()
    bare = learned(task_weight=0.0, class_weight=0.0).state()
    assert set(bare) - set(plain) == {"class_texts", "task_texts"} and equal(plain, bare)
    assert not torch.equal(plain["k"], learned(class_weight=0.0).state()["k"])
    assert not torch.equal(plain["E"], learned(task_weight=0.0).state()["E"])


def test_the_first_task_without_guidance_is_that_of_dualprompt():
    plain, first = learned(1, name="dualprompt").state(), learned(1, guide_first=False).state()
    assert equal(plain, first)
    assert not torch.equal(learned(2, name="dualprompt").k, learned(2, guide_first=False).k)


def test_texts_are_unit_vectors_of_class_names_and_their_mean_and_are_not_trained(whole):
    text = toys.clip_backbone().text
    for index, classes in enumerate(TASKS):
        first = sum(map(len, TASKS[:index]))
        own = torch.cat([text.encode([f"class {c}"], ("a photo of a {}.",)) for c in classes])
        found = whole.class_texts[first : first + len(classes)]
        assert torch.allclose(found, own, atol=1e-6)
        assert torch.allclose(whole.task_texts[index], own.mean(0) / own.mean(0).norm(), atol=1e-6)
    for texts in (whole.class_texts, whole.task_texts):
        assert not texts.requires_grad
        assert torch.allclose(texts.norm(dim=1), torch.ones(len(texts)), atol=1e-6)


def test_a_sentence_of_all_names_tells_a_task_where_it_is_asked_for():
    method = learned(1, task_text="sentence")
    told = toys.clip_backbone().text.encode(["class 2 or a class 0"], ("a photo of a {}.",))
    assert torch.allclose(method.task_texts[0], told[0], atol=1e-6)


def cosine(a, b) -> float:
    return float(a @ b / (a.norm() * b.norm()))


@torch.no_grad()
def test_the_loss_is_dualprompts_with_both_terms_by_their_formula(whole):
    """In the third task, over five images: every cosine by itself, in the common space of CLIP."""
    stream = toys.stream(TASKS)
    task, W = stream.info(2), whole.backbone.text.projection
    labels = torch.tensor([5, 6, 5, 5, 6])
    batch = Batch(IMAGES[:5], labels)
    q = whole.backbone.frozen_features(batch.images)
    features = whole.backbone.features(batch.images, whole.chosen_prefixes(torch.full((5,), 2)))
    scores = whole.head.current(features)
    dual = F.cross_entropy(scores, labels - 5) - sum(cosine(each, whole.k[2]) for each in q) / 5
    key, texts, tasks = W @ whole.k[2], whole.class_texts, whole.task_texts
    of_task = 1 - cosine(key, tasks[2]) + (cosine(key, tasks[0]) + cosine(key, tasks[1])) / 2
    of_classes = [
        1 - cosine(W @ f, texts[y]) + sum(cosine(W @ f, texts[n]) for n in range(5)) / 5
        for f, y in zip(features, labels, strict=True)
    ]
    assert all(-1 <= term <= 3 for term in (of_task, *of_classes))
    for first, second in ((1.0, 1.0), (0.5, 2.0)):
        other = copy.deepcopy(whole)
        other.config = whole.config.model_copy(update={"task_weight": first, "class_weight": second})
        expected = dual + first * of_task + second * sum(of_classes) / 5
        assert float(other.loss(batch, task)) == pytest.approx(float(expected), abs=1e-5)


def test_the_task_term_moves_the_tasks_key_alone_and_by_its_closed_form():
    """The gradient of 1 - cos(k, v) by k is -(v - cos(k, v) k / |k|) / |k| for the unit vector v."""
    trunk = beside()
    method = learned(2, trunk=trunk)
    config = {"class_weight": 0.0, "pull": 0.0, "task_weight": 1.0}
    method.config = method.config.model_copy(update=config)
    task = toys.stream(TASKS).info(1)
    method.zero_grad()
    method.loss(Batch(IMAGES[:4], torch.tensor([2, 3, 4, 2])), task).backward()
    k = method.k[1].detach()
    v = method.task_texts[1] - method.task_texts[0]
    unit = k / k.norm()
    assert torch.allclose(method.k.grad[1], -(v - (v @ unit) * unit) / k.norm(), atol=1e-6)
    assert method.k.grad[[0, 2]].abs().max() == 0


def test_keys_of_earlier_tasks_stay(whole):
    before = learned(2)
    assert torch.equal(before.k[:2], whole.k[:2]) and not torch.equal(before.k[2], whole.k[2])


@torch.no_grad()
def test_prediction_uses_no_text(whole):
    other = copy.deepcopy(whole)
    before = other.predict(Batch(IMAGES))
    other.class_texts.fill_(torch.nan)
    other.task_texts.fill_(torch.nan)
    other.backbone.text = None
    assert torch.equal(before, other.predict(Batch(IMAGES)))


def test_beside_a_vit_texts_as_long_as_its_tokens_are_compared_as_they_are():
    trunk = beside()
    method = learned(1, trunk=trunk)
    feature = torch.randn(1, 32, generator=torch.Generator().manual_seed(2))
    expected = 1 - cosine(feature[0], method.class_texts[1])
    found = method.guidance(feature, method.class_texts[1:2], method.class_texts[:0])
    assert float(found) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("trunk", "tasks", "options", "message"),
    [
        (toys.backbone, 3, {}, "backbone 'toy' has no text tower; dualp-lgcl reads class names with one"),
        (lambda: beside(48), 3, {}, "text features of 48 entries and image features of 32; choose one"),
        (beside, 3, {"pool_size": 2, "overflow": "vote"}, "pool_size=2 has no key to guide for each of 3"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(trunk, tasks, options, message):
    sizes = {"g_layers": 1, "e_layers": 1, **options}
    with pytest.raises(InputError, match=message):
        LGCL(LanguageConfig(**sizes), trunk(), StreamInfo(init_seed=1, num_tasks=tasks))


def test_a_sentence_that_the_encoder_would_cut_is_refused():
    with pytest.raises(InputError, match="does not read all of 'class 2 or a class 0'...: too many classes"):
        learned(1, trunk=beside(words=10), task_text="sentence")
    assert learned(1, trunk=beside(words=10)).task_texts.shape == (1, 32)


def test_class_names_that_are_codes_are_refused_and_left_out_of_groups(tmp_path):
    toys.write_folder(tmp_path / "data")
    for side in ("train", "test"):
        (tmp_path / "data" / side / "class_1").rename(tmp_path / "data" / side / "n01440764")
    name, weights = toys.clip_files()
    base = {"backbone": name, "weights": str(weights), "splits": "2", "set": {"g_layers": 1, "e_layers": 1}}
    folder = f"folder:{tmp_path / 'data'}"
    why = (
        r"dualp-lgcl learns from class names, and of folder 1 of 4 class names look like codes \(n01440764\)"
    )
    with pytest.raises(InputError, match=why):
        make_plan(Request(**base, dataset=folder, methods="dualp-lgcl"))
    made = make_plan(Request(**base, dataset=folder, methods="paper,clip-zeroshot"))
    assert any(line.startswith("dualp-lgcl on folder/2: dualp-lgcl learns from") for line in made.left_out)
    names = tmp_path / "names.txt"
    names.write_text("class_0 a\nn01440764 tench\nclass_2 dog\nclass_3 cat\n", encoding="utf-8")
    named = Request(**base, dataset=f"{folder}?names={names}", methods="dualp-lgcl")
    [spec] = make_plan(named).specs
    assert spec.reconstruction and spec.text_sha256
