"""Run records made by hand, and results folders of them."""

import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cl_bench.config import BackboneSpec, Transform
from cl_bench.files import write_atomically
from cl_bench.records.diagnosis import Diagnosis
from cl_bench.records.record import RunRecord, TaskRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store, write_spec

TASKS = ((0, 1), (2, 3), (4, 5))
TOY_VIT = BackboneSpec(name="toy_vit", image_size=16, mean=(0, 0, 0), std=(1, 1, 1))
SIZE = 100  # test images of a task
SEQ = [[80], [60, 70], [50, 60, 70]]  # accuracy 80, 65, 60; forgetting 20
BETTER = [[80], [80, 60], [75, 75, 60]]  # accuracy 80, 70, 70; forgetting -5


def record(
    label, correct, seed=2024, status="done", joint=False, losses=None, seconds=1.0, **changes
) -> RunRecord:
    """A run with these counts of right answers out of 100 per task; `changes` are of its specification."""
    options = {"eta": 0.97, "batch": 8, **changes.pop("options", {})}
    name = label.partition("[")[0]
    settings = {
        "core_version": 3, "method": name, "method_version": 1, "options": options, "dataset": "toy",
        "manifest_digest": "m", "task_classes": TASKS, "joint": joint, "order_seed": seed, "init_seed": seed,
        "data_seed": seed, "backbone": TOY_VIT, "weights_sha256": "w", "transform": Transform(),
        "label": label, "display": {"vpt-nsp2": "VPT-NSP²"}.get(name, name),
    }  # fmt: skip
    spec = RunSpec(**{**settings, **changes})
    rows = [
        TaskRecord(
            classes=classes, correct=tuple(row), correct_within_task=tuple(row), training_images=10,
            images_seen=10, pass_losses=(1.0,), trainable_parameters=1, stored_values=1, diagnostics={},
            checkpoint_sha256="", predictions_sha256="", learn_seconds=seconds, evaluate_seconds=1.0,
            peak_memory_bytes=1, kept_losses=losses and tuple(losses[index]),
        )
        for index, (classes, row) in enumerate(zip(spec.task_classes, correct, strict=False))
    ]  # fmt: skip
    return RunRecord(
        spec=spec,
        status=status,
        test_sizes=(SIZE,) * spec.num_tasks,
        tasks=tuple(rows),
        threads=1,
        environments=({"processor": "P"},),
    )


def diagnosed_record(seed: int, blocks: dict, network: dict | None = None, losses=None) -> RunRecord:
    """A run of VPT-Seq in whose every later task this was measured."""
    made = record("vpt-seq", SEQ, seed, losses=losses)
    later = Diagnosis(images=8, network=network or {}, blocks=blocks, spectra={"spectrum_b1": [[1.0, 0.25]]})
    found = [Diagnosis(images=0), later, later]
    tasks = [
        task.model_copy(update={"diagnosis": each}) for task, each in zip(made.tasks, found, strict=True)
    ]
    return made.model_copy(update={"tasks": tuple(tasks)})


def orders(tasks: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """One class per task, in an order of the seed's."""
    return tuple((int(c),) for c in np.random.default_rng(seed).permutation(tasks))


def triangle(tasks: int, seed: int, level: int = 60) -> list[list[int]]:
    """Counts that nobody made up one by one."""
    rng = np.random.default_rng([seed, tasks, level])
    return [
        [int(count) for count in rng.integers(level, min(level + 30, SIZE + 1), t + 1)] for t in range(tasks)
    ]


def results(root, records, right=None) -> Store:
    """A results folder of these records.

    `right` maps a run id to which test images are right after the last task, with the true classes.
    """
    store = Store(root)
    store.prepare()
    for found in records:
        write_spec(found.spec, store.folder(found.spec))
        store.save(found)
        if right and found.spec.run_id() in right:
            correct, truth = right[found.spec.run_id()]
            content = io.BytesIO()
            np.savez_compressed(
                content,
                truth=truth,
                task_001=truth * 0 - 1,
                **{f"task_{len(found.tasks):03d}": np.where(correct, truth, -1)},
            )
            write_atomically(store.folder(found.spec) / "predictions.npz", content.getvalue())
    return store


def in_every_header(data: bytes, place: int, value: bytes) -> bytes:
    """A zip archive with these bytes at a place of its local headers and, two bytes on, of central ones."""
    changed = bytearray(data)
    for mark, start in ((b"PK\x03\x04", place), (b"PK\x01\x02", place + 2)):
        found = data.find(mark)
        while found >= 0:
            changed[found + start : found + start + len(value)] = value
            found = data.find(mark, found + 4)
    return bytes(changed)


def has_latex() -> bool:
    """Whether pdflatex and the packages of our tables are installed."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        return False
    return all(
        subprocess.run(["kpsewhich", f"{name}.sty"], capture_output=True).returncode == 0
        for name in ("booktabs", "adjustbox", "geometry")
    )


def gone(folder: Path) -> None:
    """A run's folder on a network folder that has vanished."""
    folder.rename(folder.parent.parent / f"elsewhere-{folder.name}")
    folder.symlink_to(folder.parent / "vanished" / folder.name)


def _replaced(folder: Path, make: Callable[[Path], object]) -> None:
    path = folder / "record.json"
    path.rename(folder / "moved")
    make(path)


# ways in which a record cannot be read that hold for every user, by what is done to its run's folder
UNREADABLE = {
    "is a folder": lambda folder: _replaced(folder, Path.mkdir),
    "is a link to nothing": lambda folder: _replaced(folder, lambda path: path.symlink_to("nothing")),
    "is a link to itself": lambda folder: _replaced(folder, lambda path: path.symlink_to("record.json")),
    "is in a folder that has vanished": gone,
}


def folder(tmp_path, name, accuracies, **changes):
    """A results folder of vpt-seq with these accuracies, one per seed; the first images are right."""
    records, right = [], {}
    truth = np.repeat(np.arange(6), 50)
    for seed, level in enumerate(accuracies):
        found = record("vpt-seq", [[level], [level] * 2, [level] * 3], seed, **changes)
        records.append(found)
        right[found.spec.run_id()] = (np.tile(np.arange(100) < level, 3), truth)
    return results(tmp_path / name, records, right)
