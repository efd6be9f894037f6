"""The certificate of a finished run, made anew."""

import torch

from cl_bench.errors import InputError, RunFailed
from cl_bench.records import locks, run_files
from cl_bench.records.record import RunRecord
from cl_bench.records.run_files import Say
from cl_bench.records.sealed import DamagedRecord
from cl_bench.records.spec import RunSpec
from cl_bench.records.store import Store
from cl_bench.run import checkpoints
from cl_bench.run.assemble import build_method, build_stream, open_source, prepare_kernels
from cl_bench.run.learning import certified


def recertify(spec: RunSpec, store: Store, device: str, threads: int, say: Say) -> RunRecord:
    """Make the certificate of a finished run anew, from its checkpoint, which stays where it is.

    Raises InputError when the run is not finished, RunFailed with the name of each damaged file when the
    checkpoint is one of them.
    """
    with locks.sole_owner(store, spec, say):
        record, folder = _finished(spec, store), store.folder(spec)
        if run_files.is_compact(record, folder):
            kept = f"the run {spec.run_id()} was kept without its checkpoint, which a certificate needs"
            raise InputError(f"{kept}; run it again in another folder")
        wrong = run_files.damage(record, folder)
        if any("checkpoint-" in line for line in wrong):
            raise RunFailed(
                f"{'; '.join(wrong)}; nothing was moved, the record keeps the certificate that it has"
            )
        for line in wrong:
            say(f"warning: {line}; the certificate needs the checkpoint alone")
        torch.set_num_threads(threads)
        prepare_kernels(False, say)
        source = open_source(spec)
        stream = build_stream(spec, source, torch.device(device))
        method = build_method(spec, source, torch.device(device), stream.num_tasks)
        checkpoints.load_checkpoint(record, folder, method, stream)
        return certified(record, store, method, stream, say)


def _finished(spec: RunSpec, store: Store) -> RunRecord:
    """The record of a finished run. Raises InputError where there is none, RunFailed where it is damaged."""
    try:
        record = store.load(spec)
    except DamagedRecord as error:
        raise RunFailed(f"{error}; nothing was moved") from error
    if record is None or record.status != "done":
        raise InputError(
            f"the run {spec.run_id()} is not finished; `cl-bench run` with its options continues it"
        )
    return record
