"""A library of classes: draws of its Gaussians in pairs, mean prompts, and courses of the learning rate."""

from itertools import islice

import pytest
import torch

from cl_bench.training.library import Library, LibraryConfig
from cl_bench.training.warmed import WarmedConfig, warmed_cosine, warmed_phase

D, CPU = 3, torch.device("cpu")


def made() -> Library:
    library = Library(D, 1e-5, CPU)
    library.grow(2)
    library.grow(1)
    drawn = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    h, f, p = (torch.randn(60, D, generator=drawn) + 10 * labels[:, None] + shift for shift in (0, 100, 200))
    library.describe(h, f, p, labels)
    return library


def test_mean_prompts_are_those_of_each_class_and_a_class_without_images_keeps_its_own():
    library = made()
    assert [round(value) for value in library.prompts.mean(dim=1).tolist()] == [200, 210, 0]
    before = {key: value.clone() for key, value in library.state_dict().items()}
    p = torch.tensor([[1.0, 2, 3], [3.0, 2, 1]])
    library.describe(torch.randn(2, D), torch.randn(2, D), p, torch.tensor([2, 2]))
    assert library.prompts[2].tolist() == [2, 2, 2]
    for key, value in library.state_dict().items():
        assert torch.equal(value[:2], before[key][:2]), key


def test_pairs_are_drawn_equally_often_of_the_first_classes_alone_each_half_from_its_own_gaussian():
    library = made()
    batches = list(islice(library.draws(2, 500, seed=1), 48))  # three rounds
    pairs, labels = (torch.cat([getattr(one, name) for one in batches]) for name in ("images", "labels"))
    assert pairs.shape == (24_000, 2, D) and labels.bincount().tolist() == [12_000, 12_000]
    for label in range(2):
        own = pairs[labels == label]
        for place, kept in enumerate((library.h, library.f)):
            assert torch.allclose(own[:, place].mean(0), kept.means[label], atol=0.05)
        halves = own.flatten(1).T  # independent of each other
        assert torch.corrcoef(halves)[:D, D:].abs().max() < 0.05
    assert 0 < batches[0].labels.float().mean() < 1  # shuffled


def test_a_pass_has_so_many_pairs_of_a_class_in_whole_batches_but_at_least_one():
    library = made()
    for samples, batch, expected in ((100, 64, 4), (1, 64, 1)):  # three classes
        passes = library.passes(LibraryConfig(samples=samples, library_batch=batch), seed=1)
        for done in range(2):
            assert [len(one) for one in passes(done)] == [batch] * expected


def test_a_rate_rises_in_equal_steps_and_then_falls_as_if_it_had_fallen_all_along():
    found = [warmed_cosine(done, 4, 0.1, 0.5, 2) for done in range(4)]
    assert found == pytest.approx([0.1, 0.55, 0.75, 0.5 + 0.25 * (1 - 0.5**0.5)])
    assert warmed_cosine(0, 4, 0.1, 0.5, 0) == 1


def test_a_lagged_rate_is_that_of_the_pass_before_and_frozen_parameters_are_left_out():
    trained = [torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1), requires_grad=False)]
    meant, late = (
        warmed_phase(WarmedConfig(lr_schedule=name), trained, None, 8, (2.0, 0.2, 1.0), "x")
        for name in ("unlagged", "lagged")
    )
    course = [meant.rate(done, {}) for done in range(8)]
    assert course[:2] == pytest.approx([0.1, 0.28])
    assert [late.rate(done, {}) for done in range(8)] == [course[0], *course[:-1]]
    optimizer = meant.optimizer()
    assert optimizer.param_groups[0]["params"] == trained[:1]
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (2.0, 0.05)
