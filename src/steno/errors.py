"""The exceptions of steno. A failed agent is a verdict, never an exception.

StenoError
├── SourceError              a recording cannot be opened or read
├── LedgerError              a ledger cannot be opened, read or written
│   ├── LedgerLockedError    another process has locked it
│   └── LedgerValueError     the database does not accept a value
├── RecordingError           a run cannot be recorded and is not started
└── RunFailed                raised by Report.raise_for_verdict() only

SyncError                    a file could not be copied; retried or reported by the sync
OSError
├── MissingFolderError       a folder is gone or was replaced
└── OutsideFolderError       a path is outside its folder or not a regular file
"""

from typing import Any


class StenoError(Exception):
    """Base class of the library's exceptions."""


class SourceError(StenoError):
    """A source cannot be read. The message names it and what was expected.

    `strerror` is the message without the name of the source, as in OSError; None without a name.
    """

    def __init__(self, message: str, strerror: str | None = None) -> None:
        super().__init__(message)
        self.strerror = strerror


class LedgerError(StenoError):
    """The ledger cannot be opened, read or written. The message names it and a fix."""


class RecordingError(StenoError):
    """A run cannot be recorded: disk full, or no permission. Nothing was started."""


class RunFailed(StenoError):  # noqa: N818  # public name; reads well as `except steno.RunFailed`
    """The run did not succeed; `report` says how."""

    def __init__(self, report: Any) -> None:  # a Report; importing it would be a cycle
        super().__init__(f"{report.verdict}: {report.reason}")
        self.report = report


class LedgerLockedError(LedgerError):
    """Another process has locked the ledger, and did not release it in time."""


class LedgerValueError(LedgerError):
    """The database does not accept a value; the caller must change it."""


class SyncError(Exception):
    """A file could not be copied.

    `is_permanent`: a retry helps only after something else changes; `retry_after`: seconds.
    """

    def __init__(self, reason: str, is_permanent: bool = False, after: float | None = None) -> None:
        super().__init__(reason)
        self.is_permanent = is_permanent
        self.retry_after = after


class MissingFolderError(OSError):
    """The folder is gone or was replaced; the state of its files is unknown."""


class OutsideFolderError(OSError):
    """The path is outside the folder or not a regular file."""
