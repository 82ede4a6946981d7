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
from ...decode import MISFIT, Count, lenient

Figures = tuple[int, int, int]  # all input, what of it was cached, output


class Used(Struct, gc=False, rename={"name": "event.name"}):
    name: str | None = None
    model: str | None = None
    input_token_count: Count | None = None
    output_token_count: Count | None = None
    cached_content_token_count: Count | None = 0
    thoughts_token_count: Count | None = 0
    subagent_name: str | None = None


class Payload(Struct, gc=False):
    uiEvent: Used | None = None


class Line(Struct, gc=False):
    sessionId: str | None = None
    type: str = ""
    systemPayload: Payload | None = None


class Told(Struct):
    """What the stream told: the requests of its main thread, its last result, and how many results there were."""

    requests: list[Figures] = field(default_factory=list)
    end: ev.Result | None = None
    ends: int = 0


def understand(session: str | None, told: Told, lines: Iterable[bytes]) -> list[ev.Event]:
    """The result once more, with what the run itself used."""
    own = None if told.end is None else _own(_prompts(session, lines), told)
    if own is None or told.end is None:
        return []
    names = dict.fromkeys(used.model or "unknown" for used in own) if own else told.end.models or {}
    models = {name: _share([used for used in own if (used.model or "unknown") == name]) for name in names}
    return [replace(told.end, models=models, usage=_share(own), over_session=False, amends=True)]


def _prompts(session: str | None, lines: Iterable[bytes]) -> list[list[Used]]:
    """The requests that follow each prompt of a session."""
    found: list[list[Used]] = []
    for data in lines:
        line = _line(data)
        if line.sessionId != session:
            continue
        used = line.systemPayload.uiEvent if line.systemPayload is not None else None
        if line.type == "user":
            found.append([])
        elif used is not None and used.name == "qwen-code.api_response" and found:
            found[-1].append(used)
    return found


def _own(prompts: list[list[Used]], told: Told) -> list[Used] | None:
    """The requests of the run, the last that can be it; None where none can."""
    for start in range(len(prompts) - told.ends, -1, -1):
        own = [used for requests in prompts[start : start + told.ends] for used in requests]
        if [_figures(used) for used in own if used.subagent_name is None] == told.requests:
            return own
    return None


def _line(data: bytes) -> Line:
    try:
        return lenient(data, Line)
    except (ValueError, *MISFIT):
        return Line()


def _figures(used: Used) -> Figures:
    return used.input_token_count or 0, used.cached_content_token_count or 0, used.output_token_count or 0


def _share(own: list[Used]) -> ev.ModelUsage:
    """Four counters that do not overlap; thoughts are in the output."""

    def added(name: str) -> Any:
        parts = [getattr(used, name) for used in own]
        return None if None in parts else sum(parts)

    given, cached = added("input_token_count"), added("cached_content_token_count")
    fresh = None if given is None or cached is None else max(0, given - cached)
    return ev.ModelUsage(fresh, 0, cached, added("output_token_count"), added("thoughts_token_count"))
