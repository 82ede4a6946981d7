"""Events that the stream and the rollout have in common. Pure."""

from msgspec import Raw

from ... import event as ev
from ...codec.decode import decode_lenient
from ...event import EventHead
from ..typed_reader import uncached_input
from . import tables
from .wire import FileChange, FileDiff, TokenUsage

ErrorDetails = tuple[str | None, int | None, str]  # kind, HTTP status, text


def model_usage(usage: TokenUsage | None) -> ev.ModelUsage:
    """The usage in counters that do not overlap."""
    if usage is None:
        return ev.ModelUsage(None, None, None, None, None)
    cached = usage.cached_input_tokens
    written = usage.cache_write_input_tokens
    return ev.ModelUsage(
        input=uncached_input(usage.input_tokens, cached, written),
        cache_write=written,
        cache_read=cached,
        output=usage.output_tokens,
        reasoning=usage.reasoning_output_tokens,
    )


def failed_result(head: EventHead, error: ErrorDetails, duration: int | None = None) -> ev.Result:
    """The result of a failed turn."""
    kind, status, text = error
    return ev.Result(
        *head,
        "error",
        is_error=True,
        errors=(text,),
        api_error=kind,
        api_status=status,
        duration_ms=duration,
    )


def retry_events(head: EventHead, text: str) -> list[ev.Event]:
    """An error line that only announces another attempt."""
    known = tables.parse_reconnect(text) or tables.Reconnect(None, None, text)
    status = tables.classify_error(known.reason)[1]
    return [ev.Retry(*head, known.attempt, known.limit, status, known.reason, known.delay_ms)]


def file_change_events(head: EventHead, call: str, changes: Raw) -> list[ev.Event]:
    """The files of an applied patch: a list in the stream, an object in a rollout."""
    return [ev.FileChanged(*head, path, change, call) for path, change in file_changes(changes)]


def file_changes(changes: Raw) -> list[tuple[str, str]]:
    """The paths of a patch, each with created, modified or deleted."""
    if bytes(changes)[:1] == b"[":
        files = decode_lenient(changes, list[FileChange])
        return [(file.path, tables.change_kind(file.kind)) for file in files]
    paths: list[tuple[str, str]] = []
    for path, diff in decode_lenient(changes, dict[str, FileDiff]).items():
        target = diff.move_path or (diff.update.move_path if diff.update is not None else None)
        kind = diff.type or next((name for name in ("add", "delete") if getattr(diff, name)), "")
        if target:
            paths += [(path, "deleted"), (target, "created")]
        else:
            paths.append((path, tables.change_kind(kind)))
    return paths
