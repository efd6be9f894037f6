"""Why a run ended before its end: what its record says of it, and whether it stopped or failed."""

import errno

from cl_bench.errors import CannotRead, CannotWrite, TimeIsUp
from cl_bench.records.record import RunRecord
from cl_bench.records.sealed import DamagedRecord
from cl_bench.records.store import Store

# a disk that is full, gone or broken
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)


def goes_on(error: Exception) -> bool:
    """Whether a run that ended so was stopped and can go on, rather than failed."""
    full = isinstance(error, OSError) and error.errno in FULL
    return full or isinstance(error, TimeIsUp | CannotWrite | CannotRead)


def note(failure: str, error: Exception, record: RunRecord, store: Store) -> str:
    """Save why a run ended with what is saved of it.

    Returns what to add to the failure where it cannot be written, or what is saved cannot be read.
    """
    try:
        saved = store.load(record.spec) or record
        status = "running" if goes_on(error) else "failed"
        facts = {"status": status, "failure": failure, "environments": record.environments}
        store.save(saved.model_copy(update=facts))
    except OSError as full:
        return f"; and the record could not be updated: {full.strerror}"
    except (CannotRead, DamagedRecord) as other:
        return f"; and {other}"
    return ""
