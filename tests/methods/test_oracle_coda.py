"""CODA-Prompt has the public code's numbers in three tasks of its training loop (folder `shared/oracle`)."""

import oracle
import pytest
import torch
from cl_bench.methods.coda_prompt import CodaPrompt

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo
from cl_bench.nn.subspaces import orthonormal_beside

pytestmark = oracle.HERE
SIZES = {"components": 6, "prompt_length": 4, "layers": 3, "learning_rate": 0.03, "passes": 4}
LAYERS, EPOCHS, BATCHES = 3, 4, 3
EXACT, ADAM = 1e-4, 1e-2  # of the page; the second where Adam divides by gradients near zero


class Coda(CodaPrompt):
    """With the oracle's draws in the place of random ones."""

    def draws(self, name, shape, task):
        own = {"A": "a", "K": "k", "P": "p"}[name]
        return torch.stack(
            [oracle.drawn(f"coda.{task.index}.{layer}.{own}", shape[1:]) for layer in range(LAYERS)]
        )


def built(**options) -> Coda:
    published = {
        key: value for key, value in CodaPrompt.AS_PUBLISHED.items() if key in CodaPrompt.Config.model_fields
    }
    info = StreamInfo(init_seed=0, num_tasks=3)
    return Coda(
        CodaPrompt.Config(**{**published, "drop_last": False, **SIZES, **options}), oracle.backbone(), info
    )


def new_rows(method: Coda, task: int) -> dict:
    """Component of the newest slice by its name in the oracle."""
    found = {}
    for own, parts in (("a", method.A), ("k", method.K), ("p", method.P)):
        for layer in range(LAYERS):
            found[f"l{layer}_{own}"] = parts[task][layer]
    return found


def gradients(method: Coda, task: int) -> dict:
    return {
        f"l{layer}_{own}": parts[task].grad[layer]
        for own, parts in (("a", method.A), ("k", method.K), ("p", method.P))
        for layer in range(LAYERS)
    }


def same(found: torch.Tensor, expected, tolerance: float) -> bool:
    return oracle.close(found.reshape(expected.shape), expected, tolerance)


@pytest.mark.parametrize(("tag", "tasks", "options"), [("pub", 3, {}), ("mu", 2, {"ortho_mu": 0.1})])
def test_components_learn_and_predict_as_in_the_public_code(tag, tasks, options):
    numbers, method = oracle.numbers("methods/coda_prompt.npz"), built(**options)
    assert oracle.close(torch.tensor(float(method.config.learning_rate)), numbers["hyper"][3], 1e-6)
    test = oracle.images(900, 10)
    query = method.backbone.frozen_features(test)
    assert oracle.close(query, numbers["test_query"], EXACT)
    for index in range(tasks):
        task, rows, t = oracle.task(index), slice(3 * index, 3 * index + 3), f"{tag}:t{index}"
        method.grow(task)
        with torch.no_grad():
            method.head.heads[index].weight.copy_(oracle.drawn("last.weight", (9, 48), 0.2)[rows])
            method.head.heads[index].bias.copy_(oracle.drawn("last.bias", (9,), 0.02)[rows])
        for part, found in new_rows(method, index).items():
            assert same(found, numbers[f"{t}_gs_{part}"], ADAM if part.endswith("p") else EXACT), (
                index,
                part,
            )
        method.begin_task(task, None)
        optimizer, losses = method.make_optimizer(task), []
        factors = [method.rate(epoch) for epoch in range(EPOCHS)]
        assert factors == pytest.approx(numbers[f"{t}_lr_factor"].tolist(), abs=1e-6)
        for step in range(EPOCHS * BATCHES):
            optimizer.param_groups[0]["lr"] = 0.03 * factors[step // BATCHES]
            images = oracle.images(3 * index + step % BATCHES)
            optimizer.zero_grad()
            loss = method.loss(Batch(images, oracle.labels(index)), task)
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                for part, grad in gradients(method, index).items():
                    assert same(grad, numbers[f"{t}_grad_{part}"], EXACT), (index, part)
                assert same(method.head.heads[index].weight.grad, numbers[f"{t}_grad_Hw"][rows], EXACT)
            method.after_backward(task)
            optimizer.step()
            if step in (0, EPOCHS * BATCHES - 1):
                key = f"{t}_{'step1' if step == 0 else 'end'}"
                for part, found in new_rows(method, index).items():
                    assert same(found, numbers[f"{key}_{part}"], ADAM), (key, part)
                assert same(method.head.heads[index].weight, numbers[f"{key}_Hw"][rows], ADAM)
        assert losses == pytest.approx(numbers[f"{t}_losses"].tolist(), rel=EXACT)
        with torch.no_grad():
            for layer, pair in method.prefixes(query).blocks.items():
                assert oracle.close(
                    torch.stack(pair) @ oracle.probe(1, columns=2).float(),
                    numbers[f"{t}_test_l{layer}_prefix"],
                    ADAM,
                )
            assert oracle.close(method.represent(test, query), numbers[f"{t}_test_feature"], EXACT)
            assert oracle.close(method.predict(Batch(test)), numbers[f"{t}_test_logits"], EXACT)


@pytest.mark.parametrize("index", [1, 2])
def test_orthogonal_starts_are_those_of_a_qr_of_the_old_rows(index):
    numbers = oracle.numbers("methods/coda_prompt.npz")
    for own, shape in (("a", (2, 48)), ("k", (2, 48)), ("p", (2, 192))):
        for layer in range(LAYERS):
            old = [
                torch.tensor(numbers[f"pub:t{earlier}_end_l{layer}_{own}"]).reshape(shape)
                for earlier in range(index)
            ]
            drawn = oracle.drawn(f"coda.{index}.{layer}.{own}", shape)
            found = orthonormal_beside(drawn[None], torch.cat(old)[None], "qr")[0]
            expected = torch.tensor(numbers[f"fixed:t{index}_gs_l{layer}_{own}"]).reshape(shape)
            signs = (found * expected).sum(1, keepdim=True).sign()
            assert oracle.close(signs * found, expected, EXACT)


@pytest.mark.parametrize("epochs", [2, 4, 5, 20, 50])
@pytest.mark.parametrize("schedule", ["lagged", "unlagged"])
def test_the_rate_follows_the_published_and_the_intended_schedule(epochs, schedule):
    expected = oracle.numbers("methods/coda_prompt.npz")[f"factors_{schedule}_{epochs}"]
    method = built(passes=epochs, lr_schedule=schedule)
    assert [method.rate(epoch) for epoch in range(epochs)] == pytest.approx(expected.tolist(), abs=1e-6)
