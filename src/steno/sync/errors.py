"""Translates errors of the system and of libraries into SyncError."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from zipfile import BadZipFile, LargeZipFile

from ..errors import SyncError

# Waiting does not fix these.
PERMANENT_ERRNOS = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.EILSEQ,
    errno.EINVAL,
)
ARCHIVE_ERRORS = (BadZipFile, LargeZipFile, NotImplementedError, UnicodeError)
PERMANENT_ERRORS = (PermissionError, *ARCHIVE_ERRORS)


@contextmanager
def convert_errors(*others: type[Exception]) -> Iterator[None]:
    """Raise SyncError in place of OSError and `others`."""
    expected: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except SyncError:
        raise
    except expected as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        is_permanent = (
            isinstance(error, PERMANENT_ERRORS) or getattr(error, "errno", None) in PERMANENT_ERRNOS
        )
        raise SyncError(str(text), is_permanent=is_permanent) from error
