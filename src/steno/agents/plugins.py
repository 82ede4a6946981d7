"""Agents of other packages, found by their entry points and guarded against their own failures.

`importlib.metadata` takes longer to import than a report takes to build. So the entry point files
are searched for the group's name first, and it is imported only if one contains it.
"""

import os
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from .. import event
from ..codec.decode import DECODE_ERRORS
from ..errors import StenoError
from ..event import Event, Stderr, Unknown
from .base import (
    Agent,
    LaunchCommand,
    LaunchOptions,
    ProgramInfo,
    default_allow_rule,
    default_classify_exit,
    default_context_window,
    default_encode_message,
    default_is_transcript_line,
    default_looks_like,
    default_read_stderr,
    default_supports_schema,
    default_transcript_folders,
)

ENTRY_POINT_GROUP = "steno.agents"
METADATA_SUFFIXES = (".dist-info", ".egg-info")
NO_MATCH_PATTERN = "*/no such file/*"  # a glob that matches nothing
MAX_MESSAGE_CHARS = 300
_AGENT_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,39}")

ErrorReporter = Callable[[str, Exception], None]


# -- discovery -------------------------------------------------------------------------------------


class AgentPlugin(Struct, frozen=True):
    """An entry point, not loaded yet."""

    name: str
    value: str
    package: str
    load: Callable[[], Any]

    def __str__(self) -> str:
        text = f"{self.name} = {self.value}"
        return f"{text} (package {self.package})" if self.package else text


def find_plugins(group: str) -> list[AgentPlugin]:
    """Return the entry points of a group, sorted by package: the same order on every machine."""
    if not any(_mentions_group(path, group.encode()) for path in sys.path):
        return []
    from importlib.metadata import entry_points

    plugins = [
        AgentPlugin(
            name=entry.name,
            value=entry.value,
            package="" if entry.dist is None else entry.dist.name,
            load=entry.load,
        )
        for entry in entry_points(group=group)
    ]
    return sorted(plugins, key=lambda plugin: (plugin.package, plugin.name))


def _mentions_group(path: str, group: bytes) -> bool:
    """Whether a folder of sys.path may contain a package with the group; True for a zip file."""
    path = path or os.curdir
    if not os.path.isdir(path):  # noqa: PTH112  # pathlib is slower
        return os.path.exists(path)  # noqa: PTH110  # pathlib is slower
    return any(group in data for data in _read_entry_points(path))


def _read_entry_points(folder: str) -> Iterator[bytes]:
    try:
        names = os.listdir(folder)  # noqa: PTH208  # pathlib is slower
    except OSError:
        return
    for name in names:
        if not name.endswith(METADATA_SUFFIXES):
            continue
        path = os.path.join(folder, name, "entry_points.txt")  # noqa: PTH118  # pathlib is slower
        try:
            with open(path, "rb") as file:  # noqa: PTH123  # pathlib is slower
                yield file.read()
        except OSError:
            continue


# -- loading ---------------------------------------------------------------------------------------


def load_plugins(
    agents: dict[str, Agent], reserved_names: Container[str], problems: dict[str, str]
) -> None:
    """Add the usable agents of other packages, by name.

    `problems` get a message by agent name, or by `name.function` for a function that fails later.
    """
    for plugin in find_plugins(ENTRY_POINT_GROUP):
        name = plugin.name
        try:
            if name in reserved_names:
                raise StenoError("the name is used by steno itself; choose another name")
            if name in agents:
                raise StenoError("the name is used by another package; choose another name")
            agents[name] = guard_agent(check_agent(name, plugin.load()), problems)
        except (Exception, SystemExit) as error:  # the package's code may raise anything
            problems[name] = f"agent {plugin} ignored: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:MAX_MESSAGE_CHARS]
    return text if isinstance(error, StenoError) else f"{type(error).__name__}: {text}"


def check_agent(name: str, value: Any) -> Agent:
    """Return the agent that an entry point refers to; StenoError if it is not a valid one."""
    agent = value() if not isinstance(value, Agent) and callable(value) else value
    if not isinstance(agent, Agent):
        raise StenoError(
            "expected a steno.agents.base.Agent or a function that returns one, "
            f"got {type(agent).__name__}"
        )
    if agent.name != name:
        raise StenoError(f"the agent's name is {agent.name!r}, its entry point's {name!r}")
    if not _AGENT_NAME_PATTERN.fullmatch(name):
        raise StenoError(
            "invalid name: expected a lower-case letter, then lower-case letters, digits, - or _"
        )
    return agent


# -- guards ----------------------------------------------------------------------------------------


# Results for functions that raise.
_AGENT_FALLBACKS: dict[str, Callable[..., Any]] = {
    "context_window": default_context_window,
    "allow_rule": default_allow_rule,
    "looks_like": default_looks_like,
    "is_session_id": lambda text: False,
    "classify_exit": default_classify_exit,
    "read_stderr": default_read_stderr,
}
_LAUNCH_FALLBACKS: dict[str, Callable[..., Any]] = {
    "encode_message": default_encode_message,
    "supports_schema": default_supports_schema,
}
_TRANSCRIPT_FALLBACKS: dict[str, Callable[..., Any]] = {
    "is_line": default_is_transcript_line,
    "folders": default_transcript_folders,
    "pattern": lambda session: NO_MATCH_PATTERN,
}


def guard_agent(agent: Agent, problems: dict[str, str]) -> Agent:
    """Return the agent with functions that report an exception and return a fallback."""

    def report(function: str, error: Exception) -> None:
        message = f"agent {agent.name}: `{function}` failed: {_one_line(error)}"
        problems.setdefault(f"{agent.name}.{function}", message)

    def scan_usage(lines: Iterable[bytes]) -> Iterator[Event]:
        try:
            yield from agent.transcripts.scan_usage(lines)
        except Exception as error:
            report("scan_usage", error)

    replace = msgspec.structs.replace
    return replace(
        agent,
        reader=lambda: GuardedReader(agent, report),
        launch=replace(
            agent.launch,
            build_command=_guard_build_command(agent),
            **_guard_functions(agent.launch, _LAUNCH_FALLBACKS, report),
        ),
        transcripts=replace(
            agent.transcripts,
            scan_usage=scan_usage,
            **_guard_functions(agent.transcripts, _TRANSCRIPT_FALLBACKS, report),
        ),
        **_guard_functions(agent, _AGENT_FALLBACKS, report),
    )


def _guard_functions(
    part: Struct, fallbacks: Mapping[str, Callable[..., Any]], report: ErrorReporter
) -> dict[str, Any]:
    return {
        name: _guard_function(name, getattr(part, name), fallback, report)
        for name, fallback in fallbacks.items()
        if getattr(part, name) is not None
    }


def _guard_function(
    name: str, function: Callable[..., Any], fallback: Callable[..., Any], report: ErrorReporter
) -> Callable[..., Any]:
    def guarded(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            report(name, error)
            return fallback(*args)

    return guarded


def _guard_build_command(agent: Agent) -> Callable[..., LaunchCommand]:
    """Without a command there is no run, so errors are raised, with the name of the agent."""

    def build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
        try:
            return agent.launch.build_command(options, program, info)
        except StenoError as error:
            raise StenoError(f"agent {agent.name}: {error}") from None
        except Exception as error:
            raise StenoError(
                f"agent {agent.name}: `build_command` failed: {_one_line(error)}"
            ) from error

    return build_command


class GuardedReader:
    """The reader of a plugin. A line that it fails on becomes an Unknown event with its bytes."""

    def __init__(self, agent: Agent, report: ErrorReporter) -> None:
        self._report_error = report
        self._inner: Any = self._call("reader", agent.reader, None)

    def _call(self, name: str, function: Callable[[], Any], fallback: Any) -> Any:
        try:
            return function()
        except DECODE_ERRORS:
            if name == "read":
                raise  # the line does not fit: `read_lenient` is next
            return fallback
        except Exception as error:
            self._report_error(name, error)
            return fallback

    def _call_for_events(
        self, name: str, function: Callable[[], Any], fallback: list[Event]
    ) -> list[Event]:
        events: list[Event] = self._call(name, lambda: _check_events(function()), fallback)
        return events

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """Return the events of one line; raises one of DECODE_ERRORS if it has another shape."""
        return self._call_for_events(
            "read", lambda: self._inner.read(data, number, at), [_unread_line(data, number, at)]
        )

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """Return the events of a line that `read` rejected."""
        return self._call_for_events(
            "read_lenient",
            lambda: self._inner.read_lenient(data, number, at),
            [_unread_line(data, number, at)],
        )

    def state(self) -> bytes:
        """Return the state; empty if there is none."""
        state = self._call("state", lambda: self._inner.state(), b"")
        return state if isinstance(state, bytes) else b""

    def restore(self, state: bytes) -> None:
        """Continue from a stored state."""
        self._call("restore", lambda: self._inner.restore(state), None)

    @property
    def session(self) -> str | None:
        """The stream's session id, of an EnrichingReader."""
        session = self._call("session", lambda: self._inner.session, None)
        return session if isinstance(session, str) else None

    def read_stderr(self, line: Stderr) -> list[Event]:
        """Return the events of a line of stderr, of an EnrichingReader."""
        return self._call_for_events("read_stderr", lambda: self._inner.read_stderr(line), [])

    def enrich(self, lines: Iterable[bytes]) -> list[Event]:
        """Return the events that only the session file has, of an EnrichingReader."""
        return self._call_for_events("enrich", lambda: self._inner.enrich(lines), [])


def _check_events(values: Iterable[Any]) -> list[Event]:
    events = list(values)
    for value in events:
        kind = type(value)
        if getattr(event, kind.__name__, None) is not kind:
            raise TypeError(f"expected events of steno.event, got {kind.__name__}")
    return events


def _unread_line(data: bytes, number: int, at: datetime | None) -> Event:
    return Unknown(number, None, None, at, "unread", data)
