"""Faults that pass by themselves: the same work is tried again, wherever it runs."""

import errno

from pipeline.errors import StageError

# How often a partition is computed before its fault counts as lasting.
TRIES = 3
# Of a file system or network. A full disk does not pass, and trying again only costs time.
PASSING = frozenset(
    {
        *(errno.EIO, errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.EINTR, errno.ETIMEDOUT, errno.ENOLCK),
        *(errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.ENETUNREACH, errno.EHOSTUNREACH),
    }
)


def is_passing(error: BaseException) -> bool:
    """Whether the same work may succeed if it is tried again."""
    cause = error.cause if isinstance(error, StageError) else error
    if isinstance(cause, TimeoutError | ConnectionError):
        return True
    return isinstance(cause, OSError) and cause.errno in PASSING
