"""Rows of `changes`: changes reported by tools merged with those observed on disk."""

from msgspec import Struct

from .. import event as ev
from ..analysis.attribution import ATTRIBUTION_WINDOW_MS
from ..codec.redact import redact
from .rows import FileChangeRow, ParsedToolCall, part_id, stable_id


class ChangeContext(Struct, frozen=True):
    """Where a change belongs: its session and run, its time, and the path as resolved."""

    session: str
    run: str | None
    at: int
    path: str
    absolute_path: str
    is_inside: bool

    @property
    def owner(self) -> str:
        return self.run or self.session


class FileChangeRows:
    """The file changes of one file or run."""

    def __init__(self) -> None:
        self.rows: dict[int, FileChangeRow] = {}
        # By absolute path: when a tool last reported a change, and the times of observed ones.
        self._reported_at: dict[str, int] = {}
        self._observed_at: dict[str, dict[int, int]] = {}

    def backdate(self, at: int) -> None:
        """Set the time of all changes: they happened no later than this."""
        for row in self.rows.values():
            row.at = at

    def add(
        self, event: ev.FileChanged, context: ChangeContext, call: ParsedToolCall | None
    ) -> None:
        """Add a change. `call` is the event's own call, or the one running at the time."""
        if event.source == "tool":
            self._add_reported(event, context, call)
        else:
            self._add_observed(event, context, None if event.source == "git" else call)

    def _add_reported(
        self, event: ev.FileChanged, context: ChangeContext, call: ParsedToolCall | None
    ) -> None:
        path = context.absolute_path
        self._reported_at[path] = context.at
        self._remove_observed(path, call.at if call is not None else context.at)
        if call is None:
            moment = stable_id(context.owner, context.at)
            id_ = stable_id("change", moment, path, event.change)
        else:
            id_ = part_id(call.id, -1)
            if id_ in self.rows and self.rows[id_].path != redact(context.path):
                id_ = stable_id("change", call.id, path)  # a call that changes several files
        self.rows.setdefault(id_, _change_row(id_, event, context, event.call))

    def _remove_observed(self, path: str, call_started_at: int) -> None:
        """Remove observations of a change that a tool reports now: one change, seen twice."""
        observed_at = self._observed_at.get(path, {})
        for id_, at in list(observed_at.items()):
            # Without a call: the agent's line may have been read a little later than the change.
            slack = 0 if self.rows[id_].call is not None else ATTRIBUTION_WINDOW_MS
            if at >= call_started_at - slack:
                del observed_at[id_]
                del self.rows[id_]

    def _add_observed(
        self, event: ev.FileChanged, context: ChangeContext, call: ParsedToolCall | None
    ) -> None:
        path = context.absolute_path
        if self._is_known(event, context):
            return
        call_name = call.call if call is not None else None
        id_ = stable_id("seen", context.owner, call_name, path)
        observed_at = self._observed_at.setdefault(path, {})
        known = self.rows.get(id_)
        was_created = any(self.rows[other].change == "created" for other in observed_at)
        if event.change == "deleted" and was_created:
            for other in observed_at:
                del self.rows[other]  # created and deleted again: no change
            observed_at.clear()
        elif known is None:
            self.rows[id_] = _change_row(id_, event, context, call_name)
            observed_at[id_] = context.at
        elif known.change == "deleted" and event.change == "created":
            known.change = "modified"
        elif known.change != "created":
            known.change = event.change

    def _is_known(self, event: ev.FileChanged, context: ChangeContext) -> bool:
        """Whether a tool has just reported this change; git adds only paths not seen before."""
        path = context.absolute_path
        reported_at = self._reported_at.get(path)
        if event.source == "git":
            return reported_at is not None or bool(self._observed_at.get(path))
        return reported_at is not None and context.at - reported_at <= ATTRIBUTION_WINDOW_MS


def _change_row(
    id_: int, event: ev.FileChanged, context: ChangeContext, call: str | None
) -> FileChangeRow:
    return FileChangeRow(
        id=id_,
        session=context.session,
        run=context.run,
        call=call,
        path=redact(context.path),
        inside=int(context.is_inside),
        change=event.change,
        source=event.source,
        at=context.at,
    )
