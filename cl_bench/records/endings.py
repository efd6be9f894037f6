"""Why a run ended before its end: what its record says of it, and whether it stopped or failed."""

import errno

from cl_bench.errors import CannotRead, CannotWrite, TimeIsUp
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord
from cl_bench.records.store import Store

FULL = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
)  # a disk that is full, gone or broken


def goes_on(error: Exception) -> bool:
    """Whether a run that ended so was stopped, so that the same command goes on with it, rather than failed."""
    return isinstance(error, TimeIsUp | CannotWrite | CannotRead) or (
        isinstance(error, OSError) and error.errno in FULL
    )


def note(failure: str, error: Exception, record: RunRecord, store: Store) -> str:
    """Save why a run ended with what is saved of it; returns what to add to that where it cannot be written, or what is saved not be read."""
    try:
        saved = store.load(record.spec) or record
        status = "running" if goes_on(error) else "failed"
        store.save(
            saved.model_copy(
                update={"status": status, "failure": failure, "environments": record.environments}
            )
        )
    except OSError as full:
        return f"; and the record could not be updated: {full.strerror}"
    except (CannotRead, DamagedRecord) as other:
        return f"; and {other}"
    return ""
