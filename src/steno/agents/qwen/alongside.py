"""A chat beside the stream of one of its runs: what the run itself used, helpers included. Pure.

The result of a stream sums over the session. The chat has a line of telemetry for each request after the prompt that it
served: the run is where those of the main thread are the ones that the stream told of. Where they never are, the chat says
nothing.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ... import event as ev
from ...decode import DECODE_ERRORS, Count, decode_lenient

TokenCounts = tuple[int, int, int]  # all input, what of it was cached, output


class ApiResponse(Struct, gc=False, rename={"name": "event.name"}):
    name: str | None = None
    model: str | None = None
    input_token_count: Count | None = None
    output_token_count: Count | None = None
    cached_content_token_count: Count | None = 0
    thoughts_token_count: Count | None = 0
    subagent_name: str | None = None


class TelemetryPayload(Struct, gc=False):
    uiEvent: ApiResponse | None = None


class TelemetryLine(Struct, gc=False):
    sessionId: str | None = None
    type: str = ""
    systemPayload: TelemetryPayload | None = None


class QwenStreamSummary(Struct):
    """What the stream told: the requests of its main thread, its last result, and how many results there were."""

    requests: list[TokenCounts] = field(default_factory=list)
    result: ev.Result | None = None
    result_count: int = 0


def enrich(session: str | None, told: QwenStreamSummary, lines: Iterable[bytes]) -> list[ev.Event]:
    """The result once more, with what the run itself used."""
    own = None if told.result is None else _find_run(_requests_by_prompt(session, lines), told)
    if own is None or told.result is None:
        return []
    names = dict.fromkeys(used.model or "unknown" for used in own) if own else told.result.models or {}
    models = {name: _sum_usage([used for used in own if (used.model or "unknown") == name]) for name in names}
    return [replace(told.result, models=models, usage=_sum_usage(own), over_session=False, amends=True)]


def _requests_by_prompt(session: str | None, lines: Iterable[bytes]) -> list[list[ApiResponse]]:
    """The requests that follow each prompt of a session."""
    found: list[list[ApiResponse]] = []
    for data in lines:
        line = _decode_line(data)
        if line.sessionId != session:
            continue
        used = line.systemPayload.uiEvent if line.systemPayload is not None else None
        if line.type == "user":
            found.append([])
        elif used is not None and used.name == "qwen-code.api_response" and found:
            found[-1].append(used)
    return found


def _find_run(prompts: list[list[ApiResponse]], told: QwenStreamSummary) -> list[ApiResponse] | None:
    """The requests of the run, the last that can be it; None where none can."""
    for start in range(len(prompts) - told.result_count, -1, -1):
        own = [used for requests in prompts[start : start + told.result_count] for used in requests]
        if [_token_counts(used) for used in own if used.subagent_name is None] == told.requests:
            return own
    return None


def _decode_line(data: bytes) -> TelemetryLine:
    try:
        return decode_lenient(data, TelemetryLine)
    except (ValueError, *DECODE_ERRORS):
        return TelemetryLine()


def _token_counts(used: ApiResponse) -> TokenCounts:
    return used.input_token_count or 0, used.cached_content_token_count or 0, used.output_token_count or 0


def _sum_usage(own: list[ApiResponse]) -> ev.ModelUsage:
    """Four counters that do not overlap; thoughts are in the output."""

    def added(name: str) -> Any:
        parts = [getattr(used, name) for used in own]
        return None if None in parts else sum(parts)

    given, cached = added("input_token_count"), added("cached_content_token_count")
    fresh = None if given is None or cached is None else max(0, given - cached)
    return ev.ModelUsage(fresh, 0, cached, added("output_token_count"), added("thoughts_token_count"))
