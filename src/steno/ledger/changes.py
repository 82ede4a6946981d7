"""Changed files to rows of the ledger: what tools say, and what the disk and git show, each change once. Pure."""

from typing import Any

from .. import event as ev
from ..redact import redact
from ..whose import ATTRIBUTION_WINDOW_MS
from .values import ParsedToolCall, part_id, stable_id

Row = tuple[Any, ...]
SessionAndRun = tuple[str, str | None]  # session and run
CALL_INDEX, PATH_INDEX, CHANGE_INDEX = 3, 4, 6  # where they stand in a row


class FileChangeRows:
    """The changes of one file or run."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self._reported_at: dict[str, int] = {}  # when a tool said last that a file changed, by its path
        self._observed: dict[str, dict[int, int]] = {}  # rows of what the disk showed of a file, each with its time

    def backdate(self, now: int) -> None:
        """They were not later than this, whatever was taken for their time."""
        self.rows = {id_: (*row[:-1], now) for id_, row in self.rows.items()}

    def add(self, event: ev.FileChanged, at: int, whose: SessionAndRun, call: ParsedToolCall | None, placed: tuple[str, str, bool]) -> None:
        """A file changed. `call`: its own, or the one that runs; `placed`: see `paths.placed`."""
        path, absolute, inside = placed
        about = (redact(path), int(inside), event.change, event.source, at)
        if event.source == "tool":
            self._add_reported(event, whose, call, absolute, about)
        else:
            self._add_observed(event, whose, None if event.source == "git" else call, absolute, about)

    def _add_reported(self, event: ev.FileChanged, whose: SessionAndRun, call: ParsedToolCall | None, absolute: str, about: Row) -> None:
        path, *_, at = about
        self._reported_at[absolute] = at
        since = call.at if call is not None else at
        for id_ in [id_ for id_, seen in self._observed.get(absolute, {}).items() if self._belongs_to_call(id_, seen, since)]:
            del self._observed[absolute][id_], self.rows[id_]  # the disk showed it while the call ran: one change, told by two
        if call is None:
            id_ = stable_id("change", stable_id(whose[1] or whose[0], at), absolute, event.change)
        else:
            id_ = part_id(call.id, -1)
            if id_ in self.rows and self.rows[id_][PATH_INDEX] != path:
                id_ = stable_id("change", call.id, absolute)  # a call that changes several files
        self.rows.setdefault(id_, (id_, *whose, event.call, *about))

    def _belongs_to_call(self, id_: int, seen: int, since: int) -> bool:
        """Whether what the disk showed is the work of a call; an agent's line may be read a little after what it tells of."""
        return seen >= (since if self.rows[id_][CALL_INDEX] is not None else since - ATTRIBUTION_WINDOW_MS)

    def _add_observed(self, event: ev.FileChanged, whose: SessionAndRun, call: ParsedToolCall | None, absolute: str, about: Row) -> None:
        """The disk shows a change: it is that of the one call that runs. What a tool has just told is known already."""
        by_git, told, at = event.source == "git", self._reported_at.get(absolute), about[-1]
        if (told is not None and (by_git or at - told <= ATTRIBUTION_WINDOW_MS)) or (by_git and self._observed.get(absolute)):
            return
        name = call.call if call is not None else None
        id_ = stable_id("seen", whose[1] or whose[0], name, absolute)
        rows, known = self._observed.setdefault(absolute, {}), self.rows.get(id_)
        if event.change == "deleted" and any(self.rows[row][CHANGE_INDEX] == "created" for row in rows):
            for row in rows:
                del self.rows[row]  # it came and went: nothing is left of it
            rows.clear()
        elif known is None:
            self.rows[id_], rows[id_] = (id_, *whose, name, *about), at
        elif known[CHANGE_INDEX] != "created":
            change = "modified" if (known[CHANGE_INDEX], event.change) == ("deleted", "created") else event.change
            self.rows[id_] = (*known[:CHANGE_INDEX], change, *known[CHANGE_INDEX + 1 :])
