"""What other packages add to steno, by the entry points of their metadata. It looks for them; it imports none by itself.

Looking must cost next to nothing where there is nothing: the machinery of Python for this takes longer to load than a
report does. So the folders of the path are asked first whether any package so much as names the group.
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
from .base import Agent, LaunchCommand, LaunchOptions

METADATA_SUFFIXES = (".dist-info", ".egg-info")


class Plugin(Struct, frozen=True):
    """One entry: its name, what it points at, the package that has it, and how to get it."""

    name: str
    value: str
    package: str
    load: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.name} = {self.value}" + (
            f" (package {self.package})" if self.package else ""
        )


def find_plugins(group: str) -> list[Plugin]:
    """Every entry of a group, by the names of the packages: the same on every machine. Nothing of them is loaded."""
    if not any(_mentions_group(place, group.encode()) for place in sys.path):
        return []
    from importlib.metadata import entry_points

    entries = entry_points(group=group)
    plugins = [
        Plugin(one.name, one.value, one.dist.name if one.dist is not None else "", one.load)
        for one in entries
    ]
    return sorted(plugins, key=lambda plugin: (plugin.package, plugin.name))


def _mentions_group(place: str, group: bytes) -> bool:
    """Whether a package in a folder of the path names the group. What is no folder may hold packages too: ask there."""
    place = place or os.curdir
    if not os.path.isdir(place):  # noqa: PTH112  # pathlib costs more than the looking
        return os.path.exists(place)  # noqa: PTH110
    return any(group in data for data in _read_entry_points(place))


def _read_entry_points(place: str) -> Iterator[bytes]:
    try:
        names = [name for name in os.listdir(place) if name.endswith(METADATA_SUFFIXES)]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(place, name, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123
                yield file.read()
        except OSError:
            continue


ENTRY_POINT_GROUP = "steno.agents"
_AGENT_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,39}")
NO_MATCH_PATTERN = "*/no such file/*"  # a pattern that no file has

ErrorReporter = Callable[[str, Exception], None]


class PluginAgents:
    """The agents that other packages add, loaded when the first of them is asked for."""

    def __init__(self, taken: Container[str]) -> None:
        self.problems: dict[
            str, str
        ] = {}  # by what they are about: a name, or a name and what failed
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

        for plugin in find_plugins(ENTRY_POINT_GROUP):
            try:
                if plugin.name in self._reserved_names or plugin.name in agents:
                    whose = (
                        "steno itself" if plugin.name in self._reserved_names else "another package"
                    )
                    raise StenoError(
                        f"the name is taken by {whose}: the package must choose another one"
                    )
                agents[plugin.name] = guard_agent(
                    check_agent(plugin.name, plugin.load()), self._error_reporter(plugin.name)
                )
            except (Exception, SystemExit) as problem:  # whatever its code does
                self.problems[plugin.name] = f"agent {plugin} is left out: {_one_line(problem)}"

    def _error_reporter(self, name: str) -> ErrorReporter:
        def tell(what: str, problem: Exception) -> None:
            self.problems.setdefault(
                f"{name}.{what}", f"agent {name}: its `{what}` failed: {_one_line(problem)}"
            )

        return tell


def _one_line(problem: BaseException) -> str:
    """In one line, whatever it holds."""
    text = " ".join(str(problem).split())[:300]
    return text if isinstance(problem, StenoError) else f"{type(problem).__name__}: {text}"


def check_agent(name: str, given: Any) -> Agent:
    """What an entry point names, as an agent; StenoError if it is none that can be used under this name."""
    agent = given() if not isinstance(given, Agent) and callable(given) else given
    if not isinstance(agent, Agent):
        raise StenoError(
            f"expected a steno.agents.base.Agent, or a function that gives one; found {type(agent).__name__}"
        )
    if agent.name != name:
        raise StenoError(
            f"the agent calls itself {agent.name!r}: it must have the name of its entry point"
        )
    if not _AGENT_NAME_PATTERN.fullmatch(name):
        raise StenoError("a name has lower-case letters, digits, - and _, and begins with a letter")
    return agent


# -- what fails later ----------------------------------------------------------------------------------------------


def guard_agent(agent: Agent, tell: ErrorReporter) -> Agent:
    """The same agent, whose mistakes cost only what was asked of it."""

    def safe(
        what: str, call: Callable[..., Any], instead: Callable[..., Any]
    ) -> Callable[..., Any]:
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
            yield from agent.transcripts.scan_usage(lines)
        except Exception as problem:
            tell("scan_usage", problem)

    def start(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
        try:
            return agent.launch.build_command(ask, program, version)
        except StenoError as problem:
            raise StenoError(f"agent {agent.name}: {problem}") from None
        except Exception as problem:
            raise StenoError(
                f"agent {agent.name}: its `build_command` failed: {_one_line(problem)}"
            ) from problem

    def guarded(part: Any, fallbacks: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
        calls = {name: getattr(part, name) for name in fallbacks}
        return {
            name: safe(name, call, fallbacks[name])
            for name, call in calls.items()
            if call is not None
        }

    replace = msgspec.structs.replace
    return replace(
        agent,
        reader=reader,
        launch=replace(
            agent.launch, build_command=start, **guarded(agent.launch, _LAUNCH_FALLBACKS)
        ),
        transcripts=replace(
            agent.transcripts,
            scan_usage=usages,
            **guarded(agent.transcripts, _TRANSCRIPT_FALLBACKS),
        ),
        **guarded(agent, _AGENT_FALLBACKS),
    )


# What a failing function of a plugin is replaced by: nothing that would be made up.
_AGENT_FALLBACKS: dict[str, Callable[..., Any]] = {
    "context_window": lambda model: None,
    "allow_rule": lambda tool, given, cwd: tool,
    "looks_like": lambda line: False,
    "is_session_id": lambda text: False,
    "classify_exit": lambda code, errors: None,
    "read_stderr": lambda line: [],
}
_LAUNCH_FALLBACKS: dict[str, Callable[..., Any]] = {
    "encode_message": lambda text: b"",
    "supports_schema": lambda schema, version: False,
}
_TRANSCRIPT_FALLBACKS: dict[str, Callable[..., Any]] = {
    "is_line": lambda line: False,
    "folders": lambda environment, home: [],
    "pattern": lambda session: NO_MATCH_PATTERN,
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

    def _guarded_events(
        self, what: str, call: Callable[[], Any], unread: list[Event]
    ) -> list[Event]:
        found = self._guarded_call(what, lambda: _check_events(call()), lambda: unread)
        return found if isinstance(found, list) else unread

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The events of one line."""
        return self._guarded_events(
            "read", lambda: self._inner.read(data, number, at), [_unread_line(data, number, at)]
        )

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]:
        """The events of a line that did not fit."""
        return self._guarded_events(
            "read_lenient",
            lambda: self._inner.read_lenient(data, number, at),
            [_unread_line(data, number, at)],
        )

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
    wrong = next(
        (one for one in found if getattr(event, type(one).__name__, None) is not type(one)), None
    )
    if wrong is not None:
        raise TypeError(f"expected events of steno.event, found {type(wrong).__name__}")
    return found


def _unread_line(data: bytes, number: int, at: datetime | None) -> Event:
    return Unknown(number, None, None, at, "unread", data)
