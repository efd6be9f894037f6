"""What is measured of a method, and that measuring leaves no trace in it."""

import pytest
import torch
import toys
from lessons import TASKS

from cl_bench.data.batch import Batch
from cl_bench.diagnosis.measure import IMAGES, Measuring
from cl_bench.records.diagnosis import BLOCKS, NETWORK, SPECTRA


def diagnosed(name: str, **options):
    """The method after three tasks, and the diagnosis of each."""
    method, stream, found = toys.method(name, 3, **options), toys.stream(TASKS), []
    measuring = Measuring(method, stream)
    for index in range(3):
        measuring.begin(index)
        toys.learn(method, stream, index + 1, index)
        found.append(measuring.end())
    return method, found


@pytest.mark.parametrize("name", ["vpt-nsp2", "l2p-nsp2"])
def test_methods_with_prompts_in_blocks_have_all_that_is_documented(name):
    _, (first, second, third) = diagnosed(name)
    assert first.images == 0 and not first.network and not first.blocks
    assert (second.images, third.images) == (IMAGES, 2 * IMAGES)
    for found in (second, third):
        assert (
            [*found.network] == [*NETWORK] and {*found.blocks} == {*BLOCKS} and {*found.spectra} == {*SPECTRA}
        )
        assert all(len(values) == 2 for values in found.blocks.values())
        assert all(value is not None for values in found.blocks.values() for value in values)
        assert all(0 <= found.network[share] <= 1 for share in ("same_answer", "same_old_answer"))


@pytest.mark.parametrize(
    ("name", "options"),
    [("simplecil", {}), ("dualprompt", {}), ("vpt-cpg", {}), ("l2p", {"carry": "accumulate"})],
)
def test_other_methods_have_the_general_part_alone(name, options):
    _, (_, second, _) = diagnosed(name, **options)
    assert [*second.network] == [*NETWORK] and not second.blocks and not second.spectra


def test_the_length_of_the_update_and_its_share_in_the_null_space_are_the_methods_own():
    method, stream = toys.method("vpt-seq", 3), toys.stream(TASKS)
    toys.learn(method, stream, upto=1)
    before, measuring = method.P.detach().clone(), Measuring(method, stream)
    measuring.begin(1)
    toys.learn(method, stream, upto=2, start=1)
    found = measuring.end()
    lengths = (method.P.detach() - before).flatten(1).norm(dim=1)
    assert found.blocks["update_length"] == pytest.approx(lengths.tolist(), rel=1e-5)
    with torch.no_grad():
        method.P.copy_(before)
    assert measuring.end().blocks["update_length"] == [0.0, 0.0]
    assert measuring.end().blocks["inside_b1"] == [0.0, 0.0]


@pytest.mark.parametrize("name", ["vpt-nsp2", "l2p-nsp2", "seq-adapter"])
def test_what_is_learned_is_the_same_to_the_last_bit(name):
    plain, (measured, _) = toys.method(name, 3), diagnosed(name)
    toys.learn(plain, toys.stream(TASKS))
    assert toys.equal(plain.state(), measured.state()) and plain.diagnostics() == measured.diagnostics()


def test_nothing_random_is_drawn_and_the_mode_of_every_part_stays():
    method, stream = toys.method("vpt-seq", 3), toys.stream(TASKS)
    toys.learn(method, stream, upto=1)
    method.head.train()
    modes, state = [part.training for part in method.modules()], torch.get_rng_state()
    measuring = Measuring(method, stream)
    measuring.begin(1)
    measuring.end()
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in method.modules()] == modes and True in modes


def test_the_images_are_spread_over_the_training_images_of_every_old_task():
    method, stream, seen = toys.method("vpt-seq", 3), toys.stream(TASKS), []
    toys.learn(method, stream, upto=2)
    predict = method.predict
    method.predict = lambda batch: seen.append(batch) or predict(batch)
    Measuring(method, stream).begin(2)
    assert [len(batch) for batch in seen] == [IMAGES, IMAGES]
    for index, batch in enumerate(seen):
        task = stream.task(index)
        places = [place * (len(task) - 1) // (IMAGES - 1) for place in range(IMAGES)]
        [own] = [each.images[places] for each in task.plain(100)]
        assert torch.equal(batch.images, own)
        assert isinstance(batch, Batch) and batch.labels is None and batch.known is None
