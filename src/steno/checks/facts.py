"""The facts that rules look at: the report of a run, its tool calls and its patch."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Raw, Struct, field

from .. import event as ev
from ..agents import Agent
from ..analysis.list_price import PriceLookup
from ..codec.decode import DECODE_ERRORS, decoder
from ..recording.open import RecordingInput
from ..report import Report
from ..workspace.changes import PatchBuilder

PATCH_MARKS = (b"+", b"-")
PATCH_HEADERS = (b"+++ ", b"--- ")


class CallFact(NamedTuple):
    """A tool call. `signature` is the same for calls with the same name and input."""

    id: str
    name: str
    kind: str
    command: str | None  # of a shell
    signature: str
    line: int = 0  # of the recording; 0: unknown
    ok: bool | None = None  # None: no result
    denied: bool = False


class RunFacts(Struct):
    """One run. `calls` and `patch` are None if the source does not have them."""

    report: Report
    calls: list[CallFact] | None = None
    changed_lines: int | None = None
    change_lines: dict[str, int] = field(default_factory=dict)  # line of each path's first change


class _ShellInput(Struct, gc=False):
    command: str | list[str] | None = None
    cmd: str | list[str] | None = None


_decode_shell_input = decoder(_ShellInput).decode


def shell_command(kind: str, tool_input: Raw) -> str | None:
    """The command line of a shell call; None for other tools."""
    if kind != "shell" or tool_input is ev.NO_JSON:
        return None
    try:
        fields = _decode_shell_input(tool_input)
    except DECODE_ERRORS:
        return None
    command = fields.command or fields.cmd
    return " ".join(command) if isinstance(command, list) else command


def call_fact(event: ev.ToolCall) -> CallFact:
    """The fact of a call that has just been made."""
    digest = hashlib.blake2b(bytes(event.input), digest_size=8).hexdigest()
    return CallFact(
        id=event.id,
        name=event.name,
        kind=event.kind,
        command=shell_command(event.kind, event.input),
        signature=f"{event.name}:{digest}",
        line=event.line,
    )


class CallCollector:
    """Collects the calls of a run from its events."""

    def __init__(self) -> None:
        self._calls: dict[str, CallFact] = {}
        self.change_lines: dict[str, int] = {}

    @property
    def calls(self) -> list[CallFact]:
        return list(self._calls.values())

    def add(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            if isinstance(event, ev.ToolCall):
                self._calls.setdefault(event.id, call_fact(event))
            elif isinstance(event, ev.ToolResult):
                self._close(event.id, not event.is_error)
            elif isinstance(event, ev.PermissionDenied):
                self._deny(event.call)
            elif isinstance(event, ev.FileChanged):
                self.change_lines.setdefault(event.path, event.line)

    def _close(self, call: str, ok: bool) -> None:
        known = self._calls.get(call)
        if known is not None:
            self._calls[call] = known._replace(ok=ok)

    def _deny(self, call: str | None) -> None:
        known = self._calls.get(call or "")
        if known is not None:
            self._calls[known.id] = known._replace(ok=False, denied=True)


def count_patch_lines(patch: bytes) -> int:
    """The lines that a patch in git's format adds and removes."""
    return sum(
        line[:1] in PATCH_MARKS and not line.startswith(PATCH_HEADERS)
        for line in patch.splitlines()
    )


def read_facts(
    recording: RecordingInput,
    *,
    agent: Agent | None = None,
    price: PriceLookup | None = None,
    with_patch: bool = False,
) -> RunFacts:
    """The facts of a recording, read once."""
    collector = CallCollector()
    patch = PatchBuilder()

    def observe(events: list[ev.Event]) -> None:
        collector.add(events)
        if with_patch:
            for event in events:
                patch.add(event)

    parser = recording.read(agent, None, observe)
    facts = RunFacts(parser.report(recording.name, price), collector.calls)
    facts.change_lines = collector.change_lines
    if with_patch and not patch.files_without_content():
        facts.changed_lines = count_patch_lines(patch.build_patch())
    return facts
