"""Every exception that steno raises on purpose.

    StenoError
    ├── SourceError          a recording that cannot be opened or read
    ├── LedgerError          a ledger that cannot be opened, read or written
    │   └── LedgerValueError a value that the database does not accept
    ├── RecordingError       a run that cannot be recorded, and is therefore not started
    └── RunFailed            raised by Report.raise_for_verdict() only

    SyncError                one file that could not be copied; the sync retries or reports it
    MissingFolderError, OutsideFolderError (OSError)    a path that may not be used

How an agent fails is data (a verdict), never an exception.
"""

from typing import Any


class StenoError(Exception):
    """The root of what this library raises."""


class SourceError(StenoError):
    """A source cannot be read. The message names it and says what was expected.

    `strerror` is the same without the name, as an OSError has it; None where the message names no source.
    """

    def __init__(self, message: str, strerror: str | None = None) -> None:
        super().__init__(message)
        self.strerror = strerror


class LedgerError(StenoError):
    """The ledger cannot be opened, read or written. The message names it and says what to do."""


class RecordingError(StenoError):
    """A run cannot be recorded: no room, or no permission. The message names the place. Nothing was started."""


class RunFailed(StenoError):  # noqa: N818  # it reads as what it says: except steno.RunFailed
    """The run did not succeed; `report` says how."""

    def __init__(self, report: Any) -> None:  # a Report: this module imports nothing of ours
        super().__init__(
            f"{report.verdict}: {report.error or report.hint or 'the run did not succeed'}"
        )
        self.report = report


class LedgerValueError(LedgerError):
    """A value that no column takes: the fault of whoever gave it."""


class SyncError(Exception):  # it is no error of ours, and mostly mends itself
    """A file could not be copied. `lasting`: trying again helps only when something else changes; `after`: when to."""

    def __init__(self, reason: str, is_permanent: bool = False, after: float | None = None) -> None:
        super().__init__(reason)
        self.is_permanent, self.retry_after = is_permanent, after


class MissingFolderError(OSError):  # it reads as what it says
    """The folder itself is gone, or another stands in its place: nobody can tell what became of the files in it."""


class OutsideFolderError(OSError):  # it reads as what it says
    """Something that does not lie in the folder, or is no plain file there."""
