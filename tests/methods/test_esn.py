"""ESN: classifiers that are left alone, prompts that learn once, and temperatures that vote."""

import pytest
import torch
import toys
from cl_bench.methods.esn import ESN
from lessons import TASKS, after

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.errors import InputError
from cl_bench.nn.energies import majority_vote, surest, with_task_first


def scores(*sizes: int, images: int = 40, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [3 * torch.randn(images, size, generator=generator) for size in sizes]


def of_task(method: ESN, index: int) -> dict[str, torch.Tensor]:
    """All that is one task's."""
    owned = (f"tabs.{index}.", f"head.heads.{index}.")
    return {name: value for name, value in method.state().items() if name.startswith(owned)}


def test_what_an_old_task_has_stays_bit_for_bit_and_prompts_learn_in_the_first_task_alone():
    first, last = after(1, "esn"), after(3, "esn")
    assert toys.equal(of_task(first, 0), of_task(last, 0))
    assert len(of_task(first, 0)) == 18  # token, k, and weight and bias of eight other parts
    assert torch.equal(first.P, last.P) and not torch.equal(first.P, toys.method("esn", 3).P)


def test_as_published_prompts_learn_in_every_task_and_change_what_old_classifiers_say():
    first, last = (after(upto, "esn", freeze_prompts=False) for upto in (1, 3))
    assert toys.equal(of_task(first, 0), of_task(last, 0)) and not torch.equal(first.P, last.P)
    images = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(first.scores(images)[0], last.scores(images)[0])
    meant = [after(upto, "esn").scores(images)[0] for upto in (1, 3)]
    assert torch.equal(*meant)
    assert toys.equal(first.state(), after(1, "esn").state())  # until then they do not differ


def test_a_frozen_prompt_costs_no_pass_backward():
    stream = toys.stream(TASKS)
    for frozen, expected in ((True, (2, 1, 1)), (False, (2, 2, 2))):
        method = toys.method("esn", 3, freeze_prompts=frozen)
        found = [method.phases(stream.info(index))[0].forwards for index in range(3)]
        assert tuple(found) == expected


def test_a_single_task_has_every_vote():
    z = scores(4)
    assert not surest(z, torch.tensor([0.001, 1.0])).any()
    first = after(1, "esn")
    assert first.T.tolist() == pytest.approx([0.001])
    images = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.predict(Batch(images)).argmax(1), first.scores(images)[0].argmax(1))


def test_the_coldest_temperature_compares_the_largest_scores():
    z = scores(3, 5, 2)
    largest = torch.stack([scores.amax(dim=1) for scores in z]).argmax(dim=0)
    assert torch.equal(surest(z, torch.tensor([1e-4]))[0], largest)


def test_a_warm_temperature_prefers_many_good_scores_to_one_that_is_better():
    """log(e^2 + e^0) = 2.13 against log(2 e^1.5) = 2.19; at T = 0.1 it is 20 against 15.69."""
    z = [torch.tensor([[2.0, 0.0]]), torch.tensor([[1.5, 1.5]])]
    assert surest(z, torch.tensor([0.1, 1.0])).tolist() == [[0], [1]]


def test_an_energy_moves_with_all_scores_of_its_task():
    """logsumexp((z + c) / T) = logsumexp(z / T) + c / T: a shift by more than the gap turns the vote."""
    z, T = scores(3, 3, images=1), 0.5
    energies = [torch.logsumexp(scores / T, dim=1) for scores in z]
    gap = (energies[0] - energies[1]).item() * T  # how far the second is behind
    for shift, expected in ((gap + 0.01, 1), (gap - 0.01, 0)):
        assert surest([z[0], z[1] + shift], torch.tensor([T])).tolist() == [[expected]]


def test_of_equally_many_votes_the_oldest_task_has_them():
    votes = torch.tensor([[2, 1, 0, 2], [1, 1, 2, 2], [2, 0, 0, 1], [1, 0, 2, 0]])  # (R, B)
    assert majority_vote(votes, 3).tolist() == [1, 0, 0, 2]


def test_the_chosen_task_has_the_best_class_and_keeps_its_differences():
    z = scores(3, 4, 2)
    chosen = torch.arange(40) % 3
    found = with_task_first(z, chosen).split([3, 4, 2], dim=1)
    for image in range(40):
        task = int(chosen[image])
        best = torch.cat(found, dim=1)[image].argmax()
        assert best == [0, 3, 7][task] + z[task][image].argmax()
        for own, lifted in zip(z, found, strict=True):
            differences = lifted[image] - lifted[image, 0]
            assert torch.allclose(differences, own[image] - own[image, 0], atol=1e-5)


def test_the_energy_is_held_at_the_anchor_from_the_side_that_its_sign_says():
    """At scores (1, 3): -log(e^-1 + e^-3) = 0.8731 in the code, -log(e + e^3) = -3.1269 as usual."""

    class Fixed(ESN):
        def scores(self, images, first=0):
            return [torch.tensor([[1.0, 3.0]])]

    task, batch = toys.stream([[0, 1]]).info(0), Batch(torch.zeros(1, 3, 16, 16), torch.tensor([1]))
    cross_entropy = 0.126928  # log(1 + e^-2)
    for sign, energy in (("code", 0.873072), ("standard", -3.126928)):
        config = ESN.Config(energy_weight=0.5, anchor=-2.0, energy_sign=sign)
        loss = Fixed(config, toys.backbone(), StreamInfo(0, 1)).loss(batch, task)
        assert loss.item() == pytest.approx(cross_entropy + 0.5 * (energy + 2) ** 2, rel=1e-4)


def test_a_backbone_without_class_token_is_refused():
    trunk = toys.backbone(class_token=False, global_pool="avg")
    with pytest.raises(InputError, match="ESN needs a backbone that reads its class token"):
        toys.method("esn", 2, trunk)
