"""A file that changed, as one value for the ledger, the disk and git. Values only; it never asks."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from .lists import TimeFormatter


class Change(Struct, kw_only=True):
    """A file that changed. `path` is relative to the folder where it lies inside.

    `change` is created, modified, deleted or renamed (then `was` is its old name); `source` is tool, filesystem or git.
    What only git knows is None elsewhere: lines added and removed (None for a binary file too), the mode.
    """

    path: str
    change: str
    source: str
    call: str | None = None
    tool: str | None = None
    at: datetime | None = None
    inside: bool = True
    was: str | None = None
    binary: bool | None = None
    added: int | None = None
    removed: int | None = None
    mode: str | None = None

    def as_json(self, iso: TimeFormatter) -> dict[str, Any]:
        """The change under fixed names. Bytes of a name that are no UTF-8 are written out."""
        at = None if self.at is None else int(self.at.timestamp() * 1000)
        return {
            "path": _escape_invalid(self.path),
            "change": self.change,
            "was": None if self.was is None else _escape_invalid(self.was),
            "source": self.source,
            "call": self.call,
            "tool": self.tool,
            "at": iso(at),
            "inside": self.inside,
            "binary": self.binary,
            "added": self.added,
            "removed": self.removed,
            "mode": self.mode,
        }


def _escape_invalid(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
