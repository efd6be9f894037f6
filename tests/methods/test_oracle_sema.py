"""SEMA has the public code's numbers in four tasks that add adapters, and where they add fewer."""

from collections.abc import Iterator

import oracle
import pytest
import torch
from cl_bench.methods.sema import METHOD
from torch import Tensor, nn

from cl_bench.data.batch import Batch
from cl_bench.data.stream import StreamInfo, TaskInfo
from cl_bench.nn.mixture import Branch
from cl_bench.training.phase import Phase

pytestmark = oracle.HERE
TASKS, CLASSES, IMAGES, FIRST = 4, 4, 24, 2  # FIRST: the first block that may add adapters
CLOSE = 1e-4  # the page's tolerance
FACTORS = (1.0, 1.3, 1.0, 0.7)  # on images of a task
SETTINGS = {
    "bottleneck": 6, "descriptor": 8, "expandable": 2, "record": 40, "threshold": 1.3, "learning_rate": 0.05,
    "passes": 2, "descriptor_rate": 0.5, "descriptor_passes": 3, "batch": 10, "scan_batch": 12,
    "weight_decay": 0.01,
}  # fmt: skip
PUBLISHED = {key: value for key, value in METHOD.AS_PUBLISHED.items() if key in METHOD.Config.model_fields}


class Place(TaskInfo):
    def __len__(self) -> int:
        return IMAGES


def place(index: int) -> Place:
    return Place(index, tuple(range(CLASSES * index, CLASSES * (index + 1))), CLASSES * index)


def images_of(task: TaskInfo) -> Batch:
    labels = torch.arange(IMAGES) % CLASSES + task.first_label
    return Batch(FACTORS[task.index] * oracle.images(task.index, IMAGES), labels)


def built(**changes) -> METHOD:
    config = METHOD.Config(**{**PUBLISHED, **SETTINGS, **changes})
    return METHOD(config, oracle.backbone(), StreamInfo(0, TASKS))


def of_adapter(adapters, l: int) -> dict[str, Tensor]:
    """An adapter's tensors under the page's names."""
    return {
        "f.down_proj.weight": adapters.down[l],
        "f.down_proj.bias": adapters.down_bias[l],
        "f.up_proj.weight": adapters.up[l],
        "f.up_proj.bias": adapters.up_bias[l],
    }


def of_branch(branch: Branch) -> dict[str, Tensor]:
    parts = {"rd.encoder": branch.encoder, "rd.decoder": branch.decoder}
    own = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.named_parameters()}
    return of_adapter(branch.adapter, 0) | own


@torch.no_grad()
def fill(branch: Branch, l: int, k: int) -> None:
    """The values from which adapter k of block l starts."""
    for name, value in of_branch(branch).items():
        whole = name.replace("f.", "functional.", 1) if name.startswith("f.") else name
        value.copy_(oracle.filled(f"adapter.{l}.{k}.{whole}", tuple(value.shape)))
    for name, value in branch.router.named_parameters():
        value.copy_(oracle.filled(f"router.{l}.{k}.{name}", tuple(value.shape)))


@torch.no_grad()
def begun(method: METHOD, index: int) -> Place:
    """Announce a task, with the page's values; rows of the head have become smaller meanwhile."""
    task = place(index)
    method.grow(task)
    for l in range(FIRST) if index == 0 else ():
        for name, value in of_adapter(method.mixture.base, l).items():
            whole = name.replace("f.", "functional.")
            value.copy_(oracle.filled(f"adapter.{l}.0.{whole}", tuple(value.shape)))
    for l in method.expandable:
        fill(method.branch(l, task), l, len(method.mixture.at(l)) if index else 0)
    rows = slice(CLASSES * index, CLASSES * (index + 1))
    for name, value in method.head.heads[-1].named_parameters():
        shape = (16, 48) if name == "weight" else (16,)
        left = getattr(method.head, "left", 1.0)
        value.copy_(left * oracle.filled(f"fc.{name}", shape)[rows])
    return task


def head_of(method: METHOD, of=lambda parameter: parameter) -> dict[str, Tensor]:
    """The head's rows so far, under the page's names."""
    names = ("weight", "bias")
    return {
        f"fc.{name}": torch.cat([of(getattr(head, name)) for head in method.head.heads]) for name in names
    }


def named(method: METHOD, task: Place) -> dict[str, tuple[nn.Parameter, int]]:
    """What a task may train but the head, under the page's names: a parameter and a row of it."""
    found = {}
    for l in range(FIRST) if task.index == 0 else ():
        base = method.mixture.base
        for name, part in zip(
            of_adapter(base, l), (base.down, base.down_bias, base.up, base.up_bias), strict=True
        ):
            found[f"b{l}.a0.{name}"] = (part, l)
    for l in method.added(task):
        branch = method.branch(l, task)
        if branch not in method.mixture.at(l):
            continue
        k, own = method.mixture.at(l).index(branch), branch.adapter
        parts = (own.down, own.down_bias, own.up, own.up_bias)
        for name, part in zip(of_adapter(own, 0), parts, strict=True):
            found[f"b{l}.a{k}.{name}"] = (part, 0)
        for name in ("encoder", "decoder"):
            for key, part in getattr(branch, name).named_parameters():
                found[f"b{l}.a{k}.rd.{name}.{key}"] = (part, None)
        for key, part in branch.router.named_parameters():
            found[f"b{l}.{'new_router' if task.index else 'router'}.{key}"] = (part, None)
    return found


class Watching(oracle.Plain):
    """A trainer that trains on images in order and compares every stage of a task with the page."""

    def __init__(self, method: METHOD, page: dict, task: Place, prefix: str):
        super().__init__(images_of)
        self.method, self.page, self.task, self.prefix = method, page, task, prefix
        self.stages, self.shown, self.looked = 0, 0, []

    def augmented(self, task, batch, chosen, pass_index, shared=False) -> Iterator[Batch]:
        """The two batches of a scan, in order."""
        whole = images_of(task).split(batch)
        with torch.no_grad():
            yield whole[self.shown % len(whole)]
        self.shown += 1

    def fit(self, task: Place, phase: Phase, planned: int | None = None) -> None:
        name = ("func", "rd")[self.stages % 2] + str(self.stages + 1)
        self.stages += 1
        key, optimizer, losses = f"{self.prefix}_{name}", phase.optimizer(), []
        start, batches = optimizer.param_groups[0]["lr"], images_of(task).split(phase.batch)
        for done in range(phase.passes):
            optimizer.param_groups[0]["lr"] = start * phase.rate(done, {})
            assert optimizer.param_groups[0]["lr"] == pytest.approx(self.rates(key, name)[done])
            for batch in batches:
                optimizer.zero_grad()
                loss = phase.loss(batch)
                loss.backward()
                if not losses:
                    self.compare(f"{key}_grad", gradients=True)
                losses.append(loss.item())
                optimizer.step()
                if len(losses) == 1:
                    self.compare(f"{key}_step1")
        assert losses == pytest.approx(self.page[f"{key}_losses"].tolist(), rel=CLOSE), key
        self.check_trained(optimizer, f"{key}_trained")

    def rates(self, key: str, name: str) -> list[float]:
        return self.page.get(f"{key}_lr", self.page[f"t0_{'func1' if 'func' in name else 'rd2'}_lr"]).tolist()

    def check_trained(self, optimizer: torch.optim.Optimizer, key: str) -> None:
        """The optimizer has what the page's has, but routers of blocks with one adapter, which do nothing."""
        if key in self.page:
            mine = {id(part) for group in optimizer.param_groups for part in group["params"]}
            names = {name for name, (part, _) in named(self.method, self.task).items() if id(part) in mine}
            heads = {id(part) for part in self.method.head.parameters()}
            assert heads <= mine or not heads & mine
            names |= {"fc.weight", "fc.bias"} if heads <= mine else set()
            useless = {f"b{l}.router.{part}" for l in range(FIRST) for part in ("weight", "bias")}
            assert names == {*self.page[key].tolist()} - useless

    def compare(self, prefix: str, gradients: bool = False) -> None:
        """All that the page has of one moment."""

        def of(parameter: Tensor) -> Tensor:
            value = parameter.grad if gradients else parameter
            return torch.zeros_like(parameter) if value is None else value.detach()

        for key in (key for key in self.page if key.startswith(f"{prefix}_")):
            name = key.removeprefix(f"{prefix}_")
            if name.startswith("fc"):
                rows = head_of(self.method, of)[name]
                assert oracle.close(rows, self.page[key][: len(rows)], CLOSE), key
            elif not name.startswith(("b0.router", "b1.router")):
                part, row = named(self.method, self.task)[name]
                value = of(part) if row is None else of(part)[row]
                assert oracle.close(value, self.page[key], CLOSE), key


def compare_end(method: METHOD, page: dict, task: Place, prefix: str) -> None:
    """Tensors, records and predictions after a task."""
    t = f"{prefix}_end"
    for name, (part, row) in named(method, task).items():
        if f"{t}_{name}" in page:
            assert oracle.close(part if row is None else part[row], page[f"{t}_{name}"], CLOSE), name
    for l in method.expandable:
        rows = [branch.router for branch in method.mixture.at(l)]
        if f"{t}_b{l}.router.weight" in page:
            assert oracle.close(
                torch.cat([one.weight for one in rows]), page[f"{t}_b{l}.router.weight"], CLOSE
            )
            assert oracle.close(torch.cat([one.bias for one in rows]), page[f"{t}_b{l}.router.bias"], CLOSE)
        for k, branch in enumerate(method.mixture.at(l)):
            if f"{prefix}_rec_b{l}.a{k}" in page:
                mean, deviation, count = page[f"{prefix}_rec_b{l}.a{k}"]
                assert branch.usual[0].item() == pytest.approx(mean, rel=CLOSE)
                assert 1 / branch.usual[1].item() == pytest.approx(deviation, rel=CLOSE)
                assert len(branch.record) == count
    heads = {name: rows for name, rows in head_of(method).items() if f"{t}_{name}" in page}
    assert heads
    for name, rows in heads.items():
        whole = page[f"{t}_{name}"]
        assert oracle.close(rows, whole[: len(rows)], CLOSE), name
        later = method.head.left.item() * oracle.filled(name, whole.shape)[len(rows) :]
        assert len(rows) == 16 or oracle.close(later, whole[len(rows) :], CLOSE), name


@torch.no_grad()
def compare_predictions(method: METHOD, page: dict, prefix: str) -> None:
    test = Batch(oracle.images(9))
    assert oracle.close(method.predict(test), page[f"{prefix}_test_logits"], CLOSE)
    if f"{prefix}_test_features" in page:
        assert oracle.close(method.features(test), page[f"{prefix}_test_features"], CLOSE)
    for l, means in method.token_means(test).items():
        if f"{prefix}_test_router_b{l}" in page:
            weights = method.mixture.weights(l, means)
            assert oracle.close(weights, page[f"{prefix}_test_router_b{l}"], CLOSE)


def watch_scans(method: METHOD, monkeypatch) -> list[list[tuple[int, int, float]]]:
    """Block, adapter and mean |z| of all that a scan looks at, by forward."""
    seen, means_of = [], method.token_means

    def token_means(batch: Batch, until: int | None = None) -> dict[int, Tensor]:
        found = means_of(batch, until)
        if until is None and not method.training:
            rows = [
                (l, k, branch.deviations(means).abs().mean().item())
                for l, means in found.items()
                for k, branch in enumerate(method.mixture.at(l))
            ]
            seen.append(rows)
        return found

    monkeypatch.setattr(method, "token_means", token_means)
    return seen


def compare_scans(seen: list, page: dict, prefix: str) -> None:
    """Of each forward that there was; of one in which a block adds, the page has what comes before."""
    rows = page[f"{prefix}_scan_z"]
    assert seen
    for forward, found in enumerate(seen):
        expected = {(int(l), int(k)): z for f, l, k, z in rows if f == forward}
        assert expected and set(expected) <= {(l, k) for l, k, _ in found}
        for l, k, z in found:
            if (l, k) in expected:
                assert z == pytest.approx(expected[l, k], rel=CLOSE), (prefix, forward, l, k)


@pytest.mark.parametrize("variant", ["", "B_"])
def test_it_scans_adds_learns_and_predicts_as_the_public_code(variant, monkeypatch):
    """B_ has a higher threshold from the third task on, with which that task adds nothing."""
    page, method = oracle.numbers("methods/sema.npz"), built()
    for index in range(TASKS):
        prefix = f"{variant if index > 1 else ''}t{index}"
        if prefix.startswith("B"):
            method.config = method.config.model_copy(update={"threshold": 1.6})
        task = begun(method, index)
        seen, trainer = watch_scans(method, monkeypatch), Watching(method, page, task, prefix)
        method.minimize(task, trainer)
        added = page[f"{prefix}_scan_added"].reshape(-1, 5)[:, FIRST + 1 :]
        if index:
            compare_scans(seen, page, prefix)
            assert method.added(task) == [l for l in (2, 3) if (added[:, l - FIRST] == 1).any()]
        assert trainer.stages == sum(key.startswith(f"{prefix}_") and key.endswith("_losses") for key in page)
        compare_end(method, page, task, prefix)
        compare_predictions(method, page, prefix)


def test_the_record_is_the_public_codes():
    """It fills with what is first, and then keeps what is last."""
    page, method = oracle.numbers("methods/sema.npz"), built()
    task = begun(method, 0)
    method.minimize(task, Watching(method, page, task, "t0"))
    for l in method.expandable:
        assert oracle.close(method.branch(l, task).record, page[f"t0_recvals_b{l}.a0"], CLOSE)


def test_settled_errors_are_those_of_trained_descriptors_and_change_nothing_else(monkeypatch):
    page, method = oracle.numbers("methods/sema.npz"), built(errors="settled")
    task = begun(method, 0)
    trainer = Watching(method, page, task, "t0")
    monkeypatch.setattr(trainer, "augmented", lambda *args, **options: iter(images_of(task).split(12)))
    method.minimize(task, trainer)
    for l, means in method.token_means(images_of(task)).items():
        errors = method.branch(l, task).errors(means).double()
        usual = method.branch(l, task).usual
        assert usual[0].item() == pytest.approx(errors.mean().item(), rel=CLOSE)
        assert 1 / usual[1].item() == pytest.approx(errors.std().item(), rel=CLOSE)
        assert usual[0].item() != pytest.approx(page[f"t0_rec_b{l}.a0"][0], rel=0.01)
    compare_predictions(method, page, "t0")
