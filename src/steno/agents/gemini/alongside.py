"""A chat beside the stream of one of its runs: what only it says. Pure.

The stream tells no request and leaves out thoughts. The chat of a session holds all its runs; those requests are this run's
that were answered between its first line and its result. Where they are not as many as the turns of the stream, or add up
to something else than its result, the chat says nothing.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ... import event as ev
from ...decode import DECODE_ERRORS, iter_json_values
from .chats import GeminiTranscriptReader


class GeminiStreamSummary(Struct):
    """What the stream told: when it began, how many turns the model took, and its end."""

    started_at: datetime | None = None
    turns: int = 0
    result: ev.Result | None = None


def enrich(session: str | None, told: GeminiStreamSummary, lines: Iterable[bytes]) -> list[ev.Event]:
    """The events of the run that the stream told of, as far as only its chat knows them."""
    requests: dict[str, ev.Usage] = {}
    files: list[ev.Event] = []
    for event in _transcript_events(lines):
        if isinstance(event, ev.Started) and event.session == session and event.cwd is not None:
            files[:0] = [ev.Started(0, session, None, None, cwd=event.cwd)]
        if event.session != session or not _is_in_run(event, told):
            continue
        if isinstance(event, ev.Usage):
            requests[event.message or ""] = event
        elif isinstance(event, ev.FileChanged) and event.change == "created":
            files.append(replace(event, line=0))
    if not requests or len(requests) != told.turns:
        return []
    found: list[ev.Event] = list(requests.values())
    return found + files + _amended_result(told.result, list(requests.values()))


def _transcript_events(lines: Iterable[bytes]) -> Iterable[ev.Event]:
    chat = GeminiTranscriptReader()
    for data in lines:
        try:
            for value in iter_json_values(data):
                if value[:1] == b"{":
                    yield from chat.read_lenient(value, 0)
        except (ValueError, *DECODE_ERRORS):
            continue


def _is_in_run(event: ev.Event, told: GeminiStreamSummary) -> bool:
    """Whether something in the chat came about while the stream was written."""
    ended = told.result.at if told.result is not None else None
    if event.at is None or told.started_at is None or event.at < told.started_at:
        return False
    return ended is None or event.at <= ended


def _amended_result(end: ev.Result | None, requests: list[ev.Usage]) -> list[ev.Event]:
    """The result once more, with the thoughts: only if it is otherwise the sum of these requests."""
    if end is None or not end.models:
        return []
    models = {name: _sum_usage([request for request in requests if request.model == name]) for name in end.models}
    if any(_comparable_counters(models[name]) != _comparable_counters(share) for name, share in end.models.items()):
        return []
    usage = models.get(requests[-1].model or "", end.usage)
    return [replace(end, models=models, usage=usage, amends=True)]


def _sum_usage(requests: list[ev.Usage]) -> ev.ModelUsage:
    def added(name: str) -> Any:
        parts = [getattr(request, name) for request in requests]
        return None if None in parts else sum(parts)

    return ev.ModelUsage(added("input"), 0, added("cache_read"), added("output"), added("reasoning"))


def _comparable_counters(share: ev.ModelUsage) -> tuple[int | None, int | None, int | None]:
    """The counters that both tell: the stream's output is without thoughts, the chat's share knows how many there are."""
    output = None if share.output is None else share.output - (share.reasoning or 0)
    return share.input, share.cache_read, output
