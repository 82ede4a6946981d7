"""Copies what changes to other places while an agent works: in order, whole files only, tried again when it fails.

    syncing = Syncing(root, SyncOptions(("dir:/backup",)))
    syncing.event(event)            # for each event; it never waits
    summary = syncing.finish()      # waits, but no longer than options.limit

What could not be copied is kept in a journal. It never prints, and never writes anywhere but in its destinations.
"""

from .options import FailedFile, SyncOptions, SyncSummary
from .session import FolderSync

__all__ = ["FailedFile", "FolderSync", "SyncOptions", "SyncSummary"]
