"""A first task that several runs share: variants that differ only later train it once and start from it.

What is stored is what training produced and whatever statistics the runs agree on, under the digest of all
that decided it: a method's `trunk`, the data, weights and seeds, and the machine, since sums differ in their
last bits between processors and numbers of threads.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from cl_bench.files import write_atomically
from cl_bench.plugins import registry
from cl_bench.records import file_lock, locks, run_files
from cl_bench.records.first_task_files import FACTS, folder
from cl_bench.records.sealed import content_of
from cl_bench.records.spec import RunSpec, digest
from cl_bench.records.states import state_of
from cl_bench.records.store import Store
from cl_bench.run import shared_first_task
from cl_bench.training.method import Method
from cl_bench.training.trainer import FirstTask, Trainer

UNSHARED = {
    "method",
    "method_version",
    "options",
    "task_classes",
    "order",
    "order_seed",
}  # of a run's identity; see `key`


def key(spec: RunSpec, machine: dict) -> str | None:
    """The digest of what decides a run's first task on this machine; None for methods that share none."""
    kind = registry.method_class(spec.method)
    trunk = kind.trunk(kind.Config.model_validate(spec.options))
    if trunk is None or spec.joint:
        return None
    identity = {name: value for name, value in spec.identity().items() if name not in UNSHARED}
    return digest(
        {
            **identity,
            **trunk,
            "version": spec.method_version,
            "classes": spec.task_classes[0],
            "tasks": spec.num_tasks,
            "machine": machine,
        }
    )


class StoredFirstTask(FirstTask):
    """The stored first task of one key.

    One process at a time trains it or computes from it; a process that dies frees it.
    """

    def __init__(self, place: Path, run_id: str):
        self._place, self._run_id = place, run_id

    @classmethod
    def of(cls, spec: RunSpec, store: Store, machine: dict) -> FirstTask:
        """That of a run on this machine; its own for methods that share none."""
        name = key(spec, machine)
        return FirstTask() if name is None else cls(folder(store, name), spec.run_id())

    def fit(self, method: nn.Module, trainer: Trainer, train: Callable[[], None]) -> None:
        """Bring method and trainer to where `train()` leaves them: from the store, or by training."""
        assert isinstance(method, Method)
        with self._alone() as facts:
            tensors = self._tensors("trained", facts)
            if tensors is None:
                start = time.perf_counter()
                train()
                counted = {"images_seen": trainer.images_seen, "pass_losses": trainer.pass_losses}
                self._store(
                    "trained",
                    method.trained(),
                    {"run": self._run_id, "seconds": time.perf_counter() - start, **counted, "files": {}},
                )
                return
        method.load_trained({name: value.to(method.device) for name, value in tensors.items()})
        trainer.images_seen, trainer.pass_losses = facts["images_seen"], facts["pass_losses"]
        trainer.passes = len(trainer.pass_losses)
        self.trained_by = facts["run"] if facts["run"] != self._run_id else None
        self.borrowed_seconds += facts["seconds"]
        trainer.training_seconds += facts["seconds"]

    def once(
        self, name: str, compute: Callable[[], dict[str, Tensor]], trainer: Trainer
    ) -> dict[str, Tensor]:
        """The tensors that `compute()` returns for the trained first task; `name` says the rest."""
        with self._alone() as facts:
            found = self._tensors(name, facts)
            if found is None:
                before, start = trainer.images_seen, time.perf_counter()
                found = compute()
                facts[name] = {"images": trainer.images_seen - before, "seconds": time.perf_counter() - start}
                self._store(name, found, facts)
                return found
        trainer.images_seen += facts[name]["images"]
        self.borrowed_seconds += facts[name]["seconds"]
        return {key: value.to(trainer.device) for key, value in found.items()}

    @contextmanager
    def _alone(self) -> Iterator[dict]:
        """What is known of the stored first task, while no other process changes it."""
        with ExitStack() as stack:
            try:
                self._place.mkdir(parents=True, exist_ok=True)
                path = self._place / locks.WHOLE_FOLDER
                lock = stack.enter_context(open(path, "ab"))
            except OSError as error:
                raise run_files.cannot_write(self._place, error) from error
            file_lock.take(lock, path, wait=True)
            yield self._facts()

    def _facts(self) -> dict:
        """What is stored, nothing where it is damaged: it is trained again. Raises CannotRead."""
        try:
            facts = json.loads(content_of(self._place / FACTS) or b"{}")
            whole = not facts["files"] or {"run", "seconds", "images_seen", "pass_losses"} <= facts.keys()
            return facts if whole and isinstance(facts["files"], dict) else {"files": {}}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {"files": {}}

    def _tensors(self, name: str, facts: dict) -> dict[str, Tensor] | None:
        """The stored tensors if they are whole. Raises CannotRead."""
        content = content_of(self._place / f"{name}.safetensors")
        if content is None or hashlib.sha256(content).hexdigest() != facts["files"].get(name):
            return None
        try:
            return load(content)
        except SafetensorError:
            return None

    def _store(self, name: str, tensors: dict[str, Tensor], facts: dict) -> None:
        content = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
        facts["files"][name] = hashlib.sha256(content).hexdigest()
        try:
            write_atomically(self._place / f"{name}.safetensors", content)
            write_atomically(self._place / FACTS, json.dumps(facts, indent=1).encode())
        except OSError as error:
            raise run_files.cannot_write(self._place, error) from error


def first_tasks(specs: Sequence[RunSpec], store: Store, machine: dict) -> dict[str, str]:
    """The key of the first task of every run that has yet to learn it on such a machine, by run id."""
    new = [
        spec for spec in specs if (state := state_of(store, spec)).name != "unreadable" and not state.tasks
    ]
    keys = {spec.run_id(): shared_first_task.key(spec, machine) for spec in new}
    return {run_id: key for run_id, key in keys.items() if key}
