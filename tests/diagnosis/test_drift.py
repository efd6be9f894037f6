"""Drift of features, scores and answers, by hand and of methods that pool features in their own ways."""

import pytest
import torch
import toys
from lessons import lesson

from cl_bench.data.batch import Batch
from cl_bench.diagnosis.drift import Answers, drift

TASKS = [[2, 0], [1, 3, 4]]


def test_drift_by_hand():
    old = [Answers(torch.tensor([[3.0, 4], [1, 0]]), torch.tensor([[1.0, 0], [0, 2]]))]
    new = [Answers(torch.tensor([[4.0, 3, 9], [1, 0, 0]]), torch.tensor([[0.0, 1], [0, 3]]))]
    found = drift(old, new, 2)
    assert found["feature_cosine"] == pytest.approx(0.5)  # 0 and 1
    assert found["feature_change"] == pytest.approx((2**0.5 + 0.5) / 2)
    assert found["score_cosine"] == pytest.approx((24 / 25 + 1) / 2)
    assert found["score_change"] == pytest.approx((2**0.5 / 5 + 0) / 2)
    assert found["same_answer"] == 0.5  # the new class takes the first
    assert found["same_old_answer"] == 0.5  # and among old ones it is another too
    only = drift(old, [Answers(torch.tensor([[3.0, 4, 9], [1, 0, 0]]), None)], 2)
    assert only["same_answer"] == 0.5 and only["same_old_answer"] == 1.0
    assert only["feature_cosine"] is None and only["score_change"] == 0


def images(count: int = 3) -> Batch:
    return Batch(torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(5)))


@pytest.mark.parametrize(
    ("name", "same"), [("vpt-nsp2", True), ("l2p", True), ("simplecil", True), ("ease", False)]
)
def test_features_are_those_of_prediction_and_are_compared_where_they_are_as_many(name, same):
    one, two = (step.kept for step in lesson(toys.method(name, 2), toys.stream(TASKS)))
    with torch.no_grad():
        before, after = (Answers.of(method, images()) for method in (one, two))
    assert torch.equal(before.scores, one.predict(images()))
    if name != "ease":  # one network, and no query among its features
        assert before.features.shape == (3, 32)
    found = drift([before], [after], 2)
    assert (found["feature_cosine"] is not None) == same
    if name == "simplecil":
        assert found["feature_change"] == 0 and found["same_old_answer"] == 1


def test_features_of_vpt_are_what_its_heads_read():
    method = toys.method("vpt-seq", 2)
    toys.learn(method, toys.stream(TASKS), upto=1)
    found = Answers.of(method, images())
    assert torch.allclose(method.head(found.features), found.scores, atol=1e-6)
