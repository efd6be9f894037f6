"""An index of a results folder: what listings say of every run, read again only where its record has changed.

The records are the truth: the index may be deleted at any time, and an entry counts only while the record file is the one it was made from.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic_core import from_json

from cl_bench.metrics import final_accuracy
from cl_bench.record import RunSpec
from cl_bench.store import Store, unsealed, write_atomically

VERSION = 1


@dataclass(frozen=True)
class Summary:
    """One run as a line of a listing."""

    folder: str
    run_id: str
    status: str  # done, running (its record says so), failed or damaged
    tasks: int
    of: int  # tasks to learn
    accuracy: float | None  # mean over tasks, after the last task learned
    label: str
    benchmark: str
    seed: str
    failure: str | None


def summaries(store: Store) -> list[Summary]:
    """Every run with a record, by folder name; a record that cannot be believed has the status "damaged" and the reason."""
    path = store.root / "index.json"
    known, found = _read(path), {}
    for entry in sorted(_folders(store), key=lambda entry: entry.name):
        record = Path(entry.path) / "record.json"
        try:
            facts = os.stat(record)
        except OSError:
            continue
        stamp = [facts.st_mtime_ns, facts.st_size, facts.st_ino]
        old = known.get(entry.name)
        found[entry.name] = old if old and old["stamp"] == stamp else {"stamp": stamp, "summary": asdict(_summary(record))}
    if found != known:
        with suppress(OSError):  # the next listing reads the records again
            write_atomically(path, json.dumps({"version": VERSION, "runs": found}).encode())
    return [Summary(**value["summary"]) for value in found.values()]


def _folders(store: Store) -> list[os.DirEntry]:
    try:
        return [entry for entry in os.scandir(store.root / "runs") if entry.is_dir() and ".damaged-" not in entry.name]
    except OSError:
        return []


def _read(path: Path) -> dict:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return values["runs"] if values["version"] == VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _summary(path: Path) -> Summary:
    """From the record file, its seal checked, without validating what it holds: listings of thousands are to be quick."""
    folder = path.parent.name
    try:
        content, run_id, unchanged = unsealed(path.read_bytes())
        if not unchanged or not folder.endswith(run_id):
            raise ValueError("its content does not match its digest")
        record = from_json(content)
        spec = RunSpec.model_construct(**record["spec"])
        correct = [task["correct"] for task in record["tasks"]]
        return Summary(
            folder=folder,
            run_id=run_id,
            status=record["status"],
            tasks=len(correct),
            of=spec.num_learned,
            accuracy=final_accuracy(correct, record["test_sizes"]) if correct else None,
            label=spec.label,
            benchmark=spec.benchmark_name(),
            seed=spec.seed_name(),
            failure=record["failure"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{path} is not a record that was written whole ({error})"
        return Summary(folder, folder.rpartition("-")[2], "damaged", 0, 0, None, folder.rpartition("-")[0], "", "", reason)
