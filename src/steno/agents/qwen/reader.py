"""The lines of Qwen Code's stream: Claude Code's reader tells what they say, and what Qwen Code means by it is told here.

It holds what joins lines besides what that reader holds: ids that are used again, files being written, a failed request.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ... import event as ev
from ...decode import Count, lenient, text_of
from .. import claude
from ..calls import Calls
from . import chats
from .alongside import Told, understand
from .names import ASKS, DECLINED, WRITES, kind_of

_FAILED = re.compile(r"(?s)\[API Error: (.*)\]\s*(?:\n.*)?")  # at a limit, advice follows in the next line
_STATUS = re.compile(r"(?:(?:status|code)\W*)?(\d{3})\b")


class Init(Struct, gc=False):
    qwen_code_version: str | None = None
    permission_mode: str | None = None


class Tokens(Struct, gc=False):
    prompt: Count | None = None
    candidates: Count | None = None
    cached: Count | None = None
    thoughts: Count | None = 0


class Model(Struct, gc=False):
    tokens: Tokens | None = None


class Stats(Struct, gc=False):
    models: dict[str, Model] | None = None


class Ending(Struct, gc=False):
    stats: Stats | None = None


class Reader:
    """Turns the lines of one run, or of one chat, into events."""

    def __init__(self) -> None:
        self._shape = claude.Reader()
        self._chat: chats.Chat | None = None
        self._calls = Calls()
        self._model: str | None = None
        self._failure: str | None = None  # what the last message said in place of an answer
        self.session: str | None = None
        self._told = Told()

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        if self._is_chat(data) and self._chat is not None:
            return self._chat.read(data, number, at)
        return self._meant(self._shape.read(data, number, at), data)

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        if self._is_chat(data) and self._chat is not None:
            return self._chat.salvage(data, number, at)
        return self._meant(self._shape.salvage(data, number, at), data)

    def state(self) -> bytes:
        """Only a chat is read in parts."""
        return b"" if self._chat is None else self._chat.state()

    def go_on(self, state: bytes) -> None:
        """Remember what `state` said."""
        self._chat = chats.Chat()
        self._chat.go_on(state)

    def hear(self, line: ev.Stderr) -> list[ev.Event]:
        """What it writes to stderr means nothing but its words."""
        return []

    def beside(self, lines: Iterable[bytes]) -> list[ev.Event]:
        """What the chat of the same session says that the stream does not."""
        return understand(self.session, self._told, lines)

    def _is_chat(self, data: bytes) -> bool:
        """Whether these are lines of a file that it keeps: the first one says so, for all."""
        if self._chat is None and self._model is None and chats.keeps(data):
            self._chat = chats.Chat()
        return self._chat is not None

    def _meant(self, told: list[ev.Event], data: bytes) -> list[ev.Event]:
        """What Qwen Code means by a line that has Claude Code's shape."""
        spent = any(type(event) is ev.Usage and (event.input or event.output) for event in told)
        found: list[ev.Event] = []
        for event in told:
            make = _MEANINGS.get(type(event))
            if type(event) is ev.Text and not spent:
                found += self._said(event)
            elif make is None:
                found.append(event)
            else:
                found += make(self, event, data)
        return found

    def _started(self, event: ev.Started, data: bytes) -> list[ev.Event]:
        init = lenient(data, Init)
        self._model, self.session = event.model or "", event.session
        return [replace(event, agent_version=init.qwen_code_version, permission_mode=init.permission_mode)]

    def _used(self, event: ev.Usage, data: bytes) -> list[ev.Event]:
        """A message that used nothing is no request of its own; one that used something tells all of it."""
        if not event.input and not event.output:
            return []
        self._failure = None
        if event.parent is None:
            self._told.requests.append((event.input or 0, event.cache_read or 0, event.output or 0))
        return [replace(event, input=_fresh(event.input, event.cache_read), cache_write=0, final=True)]

    def _said(self, event: ev.Text) -> list[ev.Event]:
        """Text of a message that used nothing: the first half of an answer, or the program's word for a failure."""
        found = _FAILED.fullmatch(event.text)
        if found is None:
            return [event]
        self._failure = event.text
        head = (event.line, event.session, event.parent, event.at)
        return [ev.Failure(*head, None, status_of(event.text), event.text)]

    def _called(self, event: ev.ToolCall, data: bytes) -> list[ev.Event]:
        self._failure = None
        name = event.name
        call = self._calls.made(event.id, name, event.input if name in WRITES else ev.NO_JSON)
        return [replace(event, id=call, kind=kind_of(name), asks=name in ASKS, background=_is_away(event))]

    def _answered(self, event: ev.ToolResult, data: bytes) -> list[ev.Event]:
        call = self._calls.answered(event.id)
        head = (event.line, event.session, event.parent, event.at)
        found: list[ev.Event] = [replace(event, id=call.id)]
        text = text_of(event.content)
        if event.is_error:
            denied = text.startswith(DECLINED)
            return [ev.PermissionDenied(*head, call.id, call.tool or None, text), *found] if denied else found
        return found + chats.changed(head, call, text)

    def _ended(self, event: ev.Result, data: bytes) -> list[ev.Event]:
        """The account of the run, with every model's share; a failure that is called a success is put right."""
        usage = event.usage
        more = False  # than the messages tell of: of helpers, or of earlier runs of the session
        if usage is not None:
            seen = sum(given + output for given, _, output in self._told.requests)
            more = (usage.input or 0) + (usage.output or 0) > seen
            usage = replace(usage, input=_fresh(usage.input, usage.cache_read), cache_write=0, reasoning=None)
        models = shares(lenient(data, Ending).stats) or ({self._model: usage} if self._model and usage is not None else None)
        event = replace(event, usage=usage, models=models, over_session=more)
        if self._failure is not None and not event.is_error and event.text == self._failure:
            event = replace(event, is_error=True, text=None, errors=(self._failure,), api_status=status_of(self._failure))
        self._told.end, self._told.ends = event, self._told.ends + 1
        return [event]


def _is_away(event: ev.ToolCall) -> bool:
    """Whether a command was sent to the background on purpose."""
    if event.name not in ("run_shell_command", "agent"):
        return False
    asked = lenient(event.input, _Asked)
    return asked.is_background is True or asked.run_in_background is True


class _Asked(Struct, gc=False):
    is_background: bool | None = None
    run_in_background: bool | None = None


def _fresh(given: int | None, cached: int | None) -> int | None:
    """What was sent anew: the input less what came from the cache."""
    return None if given is None or cached is None else max(0, given - cached)


def status_of(text: str) -> int | None:
    """The HTTP status at the head of "[API Error: 401 ...]"."""
    found = _STATUS.match(text.removeprefix("[API Error: "))
    return int(found[1]) if found is not None and 400 <= int(found[1]) < 600 else None


def shares(stats: Stats | None) -> dict[str, ev.ModelUsage] | None:
    """Every model's share, where the json format tells it."""
    if stats is None or not stats.models:
        return None
    return {name: _share(model.tokens or Tokens()) for name, model in stats.models.items()}


def _share(tokens: Tokens) -> ev.ModelUsage:
    return ev.ModelUsage(_fresh(tokens.prompt, tokens.cached), 0, tokens.cached, tokens.candidates, tokens.thoughts)


_MEANINGS: dict[type[ev.Event], Callable[[Reader, Any, bytes], list[Any]]] = {
    ev.Started: Reader._started,
    ev.Usage: Reader._used,
    ev.ToolCall: Reader._called,
    ev.ToolResult: Reader._answered,
    ev.Result: Reader._ended,
}
