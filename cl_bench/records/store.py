"""The folder that keeps specifications and records of runs."""

import errno
import json
import os
import threading
import time
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cl_bench.errors import UNREADABLE_ARCHIVE, CannotRead, CannotWrite, InputError
from cl_bench.files import write_atomically
from cl_bench.records import file_lock
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord, content_of, is_missing, read_record, seal
from cl_bench.records.spec import RunSpec

# what reading a file of predictions that was cut short or changed raises
BROKEN_ARCHIVE = (*UNREADABLE_ARCHIVE, SyntaxError, TypeError, AttributeError, tokenize.TokenError)
ASIDE = ".damaged-"  # in the name of a folder that holds what was set aside


@dataclass(frozen=True)
class LeftOut:
    """A record that no number is made of, and why."""

    path: Path
    kind: Literal["damaged", "unreadable", "misplaced", "copy"]
    reason: str
    spec: RunSpec | None = None  # its run's, where the one beside it can be believed
    tasks: tuple = ()  # as a record has them, which it stands for in a row of runs
    certificate: None = None
    environments: tuple = ()

    @property
    def status(self) -> str:
        """In place of a record's."""
        return self.kind

    @property
    def folder(self) -> str:
        """The name of the run's folder."""
        return self.path.parent.name

    @property
    def lacking(self) -> bool:
        """Whether a run is missing from numbers because of it: of a copy, the run itself is there."""
        return self.kind != "copy"


def read_spec(path: Path) -> RunSpec:
    """A specification from its JSON file. Raises InputError."""
    try:
        return RunSpec.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a run specification: {str(error).splitlines()[0]}") from error


def write_spec(spec: RunSpec, folder: Path) -> Path:
    """Write spec.json into the run's folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spec.json"
    write_atomically(path, json.dumps(spec.model_dump(mode="json"), indent=1).encode())
    return path


class Store:
    """A results folder: `runs/<method>-<run id>/` has record.json, a checkpoint, predictions.npz, log.txt."""

    def __init__(self, root: Path):
        self.root = Path(root)
        self._known: dict[RunSpec, Path] = {}  # the folders that `records` has read

    def prepare(self) -> None:
        """Create the folder; raises InputError when it cannot be written or locked."""
        runs = self.root / "runs"
        try:
            runs.mkdir(parents=True, exist_ok=True)
            probe = runs / f".writable.{os.getpid()}-{threading.get_ident()}"
            write_atomically(probe, b"")
            try:
                with open(probe, "ab") as file:
                    file_lock.take(file, probe, wait=True)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            reason = f"{error.strerror or error}; free space or choose another with --results"
            raise InputError(f"cannot write the results folder {self.root}: {reason}") from error

    def require_folder(self) -> None:
        """See that the results folder is or can be one.

        Raises InputError where it cannot, CannotRead where it cannot be looked into.
        """
        choose = "choose one with --results"
        for folder in (self.root, self.root / "runs"):
            try:
                if not is_missing(folder) and not os.path.isdir(folder):
                    raise InputError(f"{folder} is not a folder; a results folder holds runs, {choose}")
            except CannotRead as error:
                if error.errno not in (errno.ENAMETOOLONG, errno.ENOTDIR):
                    raise
                named = str(folder)[:100]
                raise InputError(f"{named} cannot be a results folder: {error.reason}; {choose}") from error

    def folder(self, spec: RunSpec) -> Path:
        """The run's own folder (it may not exist yet)."""
        return self._known.get(spec) or self.root / "runs" / f"{spec.method}-{spec.run_id()}"

    def holds(self, spec: RunSpec) -> bool:
        """Whether there is a record of the run, in whatever state. Raises CannotRead."""
        return not is_missing(self.folder(spec) / "record.json")

    def load(self, spec: RunSpec) -> RunRecord | None:
        """The run's record, None if there is none. Raises DamagedRecord and CannotRead."""
        return read_record(self.folder(spec) / "record.json") if self.holds(spec) else None

    def save(self, record: RunRecord) -> None:
        """Write the record atomically, sealed with the digest of its content."""
        write_atomically(self.folder(record.spec) / "record.json", seal(record))

    def folders(self) -> list[Path]:
        """Every folder of a run, by name, also those that cannot be entered.

        Raises CannotRead when the results folder cannot be listed.
        """
        self.require_folder()
        runs = self.root / "runs"
        if is_missing(runs):
            return []
        try:
            shown = [entry for entry in os.scandir(runs) if not entry.name.startswith(".")]
            names = sorted(entry.name for entry in shown if not os.path.isfile(entry))
        except OSError as error:
            raise CannotRead(runs, error) from error
        return [runs / name for name in names if ASIDE not in name]

    def find(self, run: str) -> Path:
        """The folder of the run with this id, unique beginning of an id, or folder. Raises InputError."""
        given, runs = Path(run), os.path.realpath(self.root / "runs")
        ids = {folder: folder.name.rpartition("-")[2] for folder in self.folders() if _has_record(folder)}
        if len(given.parts) > 1 and os.path.realpath(given.absolute().parent) != runs:
            raise InputError(f"{run} is not a run in {self.root}; --results names the results folder")
        found = [folder for folder, run_id in ids.items() if given.name in (folder.name, run_id)]
        if not found and given.name:
            found = [folder for folder, run_id in ids.items() if run_id.startswith(given.name)]
        if len(found) != 1:
            what = f"{len(found)} runs begin with" if found else "no run is called"
            raise InputError(f"{what} {run!r} in {self.root}; `cl-bench ls runs` lists their ids")
        return found[0]

    def found_spec(self, run: str) -> RunSpec:
        """The specification of the recorded run that is called so. Raises InputError and CannotRead."""
        folder = self.find(run)
        try:
            record = read_record(folder / "record.json")
        except DamagedRecord as error:
            raise InputError(f"{error}; `cl-bench run` with its options starts it again") from error
        if folder.name != f"{record.spec.method}-{record.spec.run_id()}":
            raise InputError(f"{folder} is a copy of the run {record.spec.run_id()}; name that one")
        return record.spec

    def set_aside(self, spec: RunSpec) -> Path:
        """Move record, checkpoints and predictions into a new folder beside the run's, which it returns.

        The record goes last.
        """
        folder = self.folder(spec)
        aside = folder.with_name(f"{folder.name}{ASIDE}{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        try:
            aside.mkdir()
            for path in sorted(folder.iterdir(), key=lambda path: path.name == "record.json"):
                if path.name in ("record.json", "predictions.npz") or path.name.startswith("checkpoint-"):
                    path.rename(aside / path.name)
        except OSError as error:
            reason = error.strerror or error
            raise CannotWrite(f"cannot move what is damaged in {folder} to {aside}: {reason}") from error
        return aside

    def records(self) -> Iterator[RunRecord | LeftOut]:
        """Every record in the folder; for one that no number may be made of, which it is and why."""
        for folder in self.folders():
            if (found := self.in_folder(folder)) is not None:
                yield found

    def in_folder(self, folder: Path) -> RunRecord | LeftOut | None:
        """The record in one of `folders`, None where there is none."""
        path = folder / "record.json"
        try:
            if is_missing(path):
                return None
            record = read_record(path)
        except CannotRead as error:
            return LeftOut(path, "unreadable", str(error), _spec_beside(folder))
        except DamagedRecord as error:
            return LeftOut(path, "damaged", str(error), _spec_beside(folder))
        own = f"{record.spec.method}-{record.spec.run_id()}"
        if folder.name == own:
            self._known[record.spec] = folder
            return record
        if _has_record(folder.with_name(own)):  # a copy must not count as another run
            reason = f"{folder} is a copy of the run {own}; merge results folders with `cl-bench merge`"
            return LeftOut(path, "copy", reason)
        reason = f"{folder} holds the run {own}; name the folder so to have it counted"
        return LeftOut(path, "misplaced", reason, record.spec)


def _has_record(folder: Path) -> bool:
    """Whether a run's folder has a record, readable or not."""
    try:
        return not is_missing(folder / "record.json")
    except CannotRead:
        return True


def _spec_beside(folder: Path) -> RunSpec | None:
    """The specification in a run's folder, if the folder's name vouches for it."""
    try:
        spec = RunSpec.model_validate_json(content_of(folder / "spec.json") or b"")
        return spec if folder.name == f"{spec.method}-{spec.run_id()}" else None
    except (CannotRead, ValueError):
        return None
