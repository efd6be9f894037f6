"""A run goes on where its record ends: method and predictions as they were saved."""

import io
from pathlib import Path

import numpy as np
from safetensors.torch import load as load_tensors

from cl_bench.data.stream import Stream
from cl_bench.errors import CannotRead
from cl_bench.records.record import RunRecord
from cl_bench.records.run_files import Say, checkpoint_path
from cl_bench.records.sealed import content_of
from cl_bench.training.method import Method


def restore(
    record: RunRecord, folder: Path, method: Method, stream: Stream, say: Say
) -> dict[str, np.ndarray]:
    """Put the method where the record ends; returns the predictions so far."""
    if not record.tasks:
        return {}
    say(f"resuming after task {len(record.tasks)} of {stream.num_tasks}")
    load_checkpoint(record, folder, method, stream)
    with np.load(io.BytesIO(_present(folder / "predictions.npz"))) as arrays:
        return {name: arrays[name] for name in (f"task_{t + 1:03d}" for t in range(len(record.tasks)))}


def load_checkpoint(record: RunRecord, folder: Path, method: Method, stream: Stream) -> None:
    """Put the method where the record ends."""
    for index in range(len(record.tasks)):
        method.grow(stream.info(index))
    method.load_state(load_tensors(_present(checkpoint_path(folder, len(record.tasks)))))


def _present(path: Path) -> bytes:
    """The content of a file that was there a moment ago."""
    data = content_of(path)
    if data is None:
        raise CannotRead(path, "it is gone")
    return data
