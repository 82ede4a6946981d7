"""Copies changed files to other places while an agent works: in order, whole files, with retries.

    sync = FolderSync(root, SyncOptions(destinations=("dir:/backup",)))
    sync.add_event(event)       # for each event; never blocks
    summary = sync.finish()     # at most options.limit seconds

Files that could not be copied are listed in a journal. Only destinations are written to.
"""

from .options import FailedFile, SyncOptions, SyncSummary
from .session import FolderSync

__all__ = ["FailedFile", "FolderSync", "SyncOptions", "SyncSummary"]
