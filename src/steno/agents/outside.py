"""The agents of other packages: checked when they are loaded, and kept from taking steno down. It never raises for one of them.

Such a package names an `Agent`, or a function that gives one, by the entry point group `steno.agents`. One that cannot be
loaded is left out; one that fails later fails only for what it was asked then. `problems` has a line for each of them.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from .. import event
from ..decode import DECODE_ERRORS
from ..event import Event, Stderr, Unknown
from ..report import StenoError
from .values import Agent, LaunchCommand, LaunchOptions

ENTRY_POINT_GROUP = "steno.agents"
_AGENT_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,39}")
NO_MATCH_PATTERN = "*/no such file/*"  # a pattern that no file has

ErrorReporter = Callable[[str, Exception], None]


class PluginAgents:
    """The agents that other packages add, loaded when the first of them is asked for."""

    def __init__(self, taken: Container[str]) -> None:
        self.problems: dict[str, str] = {}  # by what they are about: a name, or a name and what failed
        self._reserved_names = taken
        self._agents: dict[str, Agent] | None = None

    @property
    def agents(self) -> dict[str, Agent]:
        """Those that can be used, by their names."""
        if self._agents is None:
            self._agents = {}
            self._load(self._agents)
        return self._agents

    def _load(self, agents: dict[str, Agent]) -> None:
        from ..plugins import find_plugins

        for plugin in find_plugins(ENTRY_POINT_GROUP):
            try:
                if plugin.name in self._reserved_names or plugin.name in agents:
                    whose = "steno itself" if plugin.name in self._reserved_names else "another package"
                    raise StenoError(f"the name is taken by {whose}: the package must choose another one")
                agents[plugin.name] = guard_agent(check_agent(plugin.name, plugin.load()), self._error_reporter(plugin.name))
            except (Exception, SystemExit) as problem:  # whatever its code does
                self.problems[plugin.name] = f"agent {plugin} is left out: {_one_line(problem)}"

    def _error_reporter(self, name: str) -> ErrorReporter:
        def tell(what: str, problem: Exception) -> None:
            self.problems.setdefault(f"{name}.{what}", f"agent {name}: its `{what}` failed: {_one_line(problem)}")

        return tell


def _one_line(problem: BaseException) -> str:
    """In one line, whatever it holds."""
    text = " ".join(str(problem).split())[:300]
    return text if isinstance(problem, StenoError) else f"{type(problem).__name__}: {text}"


def check_agent(name: str, given: Any) -> Agent:
    """What an entry point names, as an agent; StenoError if it is none that can be used under this name."""
    agent = given() if not isinstance(given, Agent) and callable(given) else given
    if not isinstance(agent, Agent):
        raise StenoError(f"expected a steno.agents.values.Agent, or a function that gives one; found {type(agent).__name__}")
    if agent.name != name:
        raise StenoError(f"the agent calls itself {agent.name!r}: it must have the name of its entry point")
    if not _AGENT_NAME_PATTERN.fullmatch(name):
        raise StenoError("a name has lower-case letters, digits, - and _, and begins with a letter")
    return agent


# -- what fails later ----------------------------------------------------------------------------------------------


def guard_agent(agent: Agent, tell: ErrorReporter) -> Agent:
    """The same agent, whose mistakes cost only what was asked of it."""

    def safe(what: str, instead: Callable[..., Any]) -> Callable[..., Any]:
        call = getattr(agent, what)

        def asked(*given: Any) -> Any:
            try:
                return call(*given)
            except Exception as problem:
                tell(what, problem)
                return instead(*given)

        return asked

    def reader() -> GuardedReader:
        return GuardedReader(agent, tell)

    def usages(lines: Iterable[bytes]) -> Iterator[Event]:
        try:
            yield from agent.scan_usage(lines)
        except Exception as problem:
            tell("scan_usage", problem)

    def start(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
        try:
            return agent.build_command(ask, program, version)
        except StenoError as problem:
            raise StenoError(f"agent {agent.name}: {problem}") from None
        except Exception as problem:
            raise StenoError(f"agent {agent.name}: its `build_command` failed: {_one_line(problem)}") from problem

    own = {what: safe(what, instead) for what, instead in _FALLBACKS.items() if getattr(agent, what) is not None}
    return msgspec.structs.replace(agent, reader=reader, scan_usage=usages, build_command=start, **own)


# What is said in place of an agent whose function failed: nothing that would be an invention.
_FALLBACKS: dict[str, Callable[..., Any]] = {
    "context_window": lambda model: None,
    "allow_rule": lambda tool, given, cwd: tool,
    "looks_like": lambda line: False,
    "is_transcript_line": lambda line: False,
    "transcript_folders": lambda environment, home: [],
    "encode_message": lambda text: b"",
    "is_session_id": lambda text: False,
    "classify_exit": lambda code, errors: None,
    "read_stderr": lambda line: [],
    "transcript_pattern": lambda session: NO_MATCH_PATTERN,
}


class GuardedReader:
    """The reader of an agent from outside. A line that it fails on is an Unknown with its bytes, and counted as one."""

    def __init__(self, agent: Agent, tell: ErrorReporter) -> None:
        self._report_error = tell
        self._inner: Any = self._guarded_call("reader", agent.reader, lambda: None)

    def _guarded_call(self, what: str, call: Callable[[], Any], instead: Callable[[], Any]) -> Any:
        try:
            return call()
        except DECODE_ERRORS:
            if what == "read":
                raise  # the way of a reader to say that a line does not fit
            return instead()
        except Exception as problem:
            self._report_error(what, problem)
            return instead()

    def _guarded_events(self, what: str, call: Callable[[], Any], unread: list[Event]) -> list[Event]:
        found = self._guarded_call(what, lambda: _check_events(call()), lambda: unread)
        return found if isinstance(found, list) else unread

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The events of one line."""
        return self._guarded_events("read", lambda: self._inner.read(data, number, at), [_unread_line(data, number, at)])

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The events of a line that did not fit."""
        return self._guarded_events("read_lenient", lambda: self._inner.read_lenient(data, number, at), [_unread_line(data, number, at)])

    def state(self) -> bytes:
        """What must be remembered."""
        found = self._guarded_call("state", lambda: self._inner.state(), lambda: b"")
        return found if isinstance(found, bytes) else b""

    def restore(self, state: bytes) -> None:
        """Go on with what was remembered."""
        self._guarded_call("restore", lambda: self._inner.restore(state), lambda: None)

    @property
    def session(self) -> str | None:
        """The stream's session, of a reader that is a Keeper."""
        found = self._guarded_call("session", lambda: self._inner.session, lambda: None)
        return found if isinstance(found, str) else None

    def read_stderr(self, line: Stderr) -> list[Event]:
        """What a line of stderr means, for a Keeper."""
        return self._guarded_events("read_stderr", lambda: self._inner.read_stderr(line), [])

    def enrich(self, lines: Iterable[bytes]) -> list[Event]:
        """What the kept files say more, for a Keeper."""
        return self._guarded_events("enrich", lambda: self._inner.enrich(lines), [])


def _check_events(given: Any) -> list[Event]:
    found = list(given)
    wrong = next((one for one in found if getattr(event, type(one).__name__, None) is not type(one)), None)
    if wrong is not None:
        raise TypeError(f"expected events of steno.event, found {type(wrong).__name__}")
    return found


def _unread_line(data: bytes, number: int, at: datetime | None) -> Event:
    return Unknown(number, None, None, at, "unread", data)
