"""The contract checks: reading recordings whole, in pieces and damaged, and building commands."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from random import Random
from typing import Any

import msgspec

from .. import agents
from .. import event as ev
from ..agents.base import (
    EXAMPLE_SESSION_ID,
    NEWEST_PROGRAM,
    Agent,
    Backend,
    LaunchCommand,
    LaunchOptions,
    command_text,
    default_build_command,
)
from ..codec import decode
from ..pricing import price
from ..recording.format import Header, Record, encode_record
from ..recording.open import RecordingInput, open_recording
from ..recording.parse import RunParser
from ..report import VERDICTS, Report

MAX_DETECTION_LINES = 100  # one of them must show the agent

# -- damaged lines -----------------------------------------------------------------------------

# Values of a wrong type or range, in place of any value.
LITERALS = (
    b"null",
    b"true",
    b"false",
    b"0",
    b"-1",
    b"1.5",
    b"1e308",
    b"1e999",
    b"9" * 30,
    b'""',
    b'"x"',
    b'"\\ud83d"',
    b'"\\u0000"',
    b'"\xff"',
    b"[]",
    b"[[]]",
    b"[null]",
    b'["x"]',
    b"[{}]",
    b"{}",
    b'{"a":1}',
    b'"0001-01-01T00:00:00Z"',
    b"-9007199254740993",
)
# Lines that no program prints; a reader must accept them anyway.
UNEXPECTED_LINES = (
    b"",
    b" ",
    b"\x00",
    b"null",
    b"0",
    b'"text"',
    b"[]",
    b"{}",
    b'{"":""}',
    b'{"type":null}',
    b'{"type":[]}',
    b'{"type":{}}',
    b'{"type":{"a":[1]}}',
    b'{"type":1}',
    b'{"type":"\\ud800"}',
    b"{",
    b"}{",
    b'{"type":',
    b"not JSON at all",
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 1500 + b"1" + b"}" * 1500,
)
_VALUE_PATTERN = re.compile(
    rb'(?<=:)(?:"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|\[\]|\{\})'
)
_KEY_PATTERN = re.compile(rb'"(?:[^"\\]|\\.)*"(?=:)')


def damage_line(line: bytes, random: Random) -> Iterator[bytes]:
    """Yield a line with several kinds of damage, never with a newline."""
    for damaged in (
        _truncate(line, random),
        _flip_bit(line, random),
        _delete_bytes(line, random),
        line + b" " + line,
        _nest_value(line, random),
    ):
        yield damaged.replace(b"\n", b" ")
    for _ in range(6):  # the most common damage: another version uses another type
        damaged = _replace_match(line, random, _VALUE_PATTERN, random.choice(LITERALS))
        yield damaged.replace(b"\n", b" ")
    yield _replace_match(line, random, _KEY_PATTERN, b'"another_name"')


def _truncate(line: bytes, random: Random) -> bytes:
    return line[: random.randrange(len(line))]


def _flip_bit(line: bytes, random: Random) -> bytes:
    damaged = bytearray(line)
    damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _delete_bytes(line: bytes, random: Random) -> bytes:
    start = random.randrange(len(line))
    return line[:start] + line[start + random.choice((1, 5, 50)) :]


def _nest_value(line: bytes, random: Random) -> bytes:
    depth = random.choice((3, 400, 1500))
    return _replace_match(line, random, _VALUE_PATTERN, b"[" * depth + b"1" + b"]" * depth)


def _replace_match(
    line: bytes, random: Random, pattern: "re.Pattern[bytes]", value: bytes
) -> bytes:
    spans = [match.span() for match in pattern.finditer(line)]
    if not spans:
        return value
    start, end = random.choice(spans)
    return line[:start] + value + line[end:]


# -- reading a recording -----------------------------------------------------------------------

CHUNK_SIZES = (1, 2, 7, 65_536)
MAX_CHUNKED_BYTES = 65_536  # fed in small chunks; the rest at once
MAX_DAMAGED_LINES = 150  # per recording, each with several kinds of damage
MAX_DAMAGED_LINE_BYTES = 8_000
UNKNOWN_LINE = b'{"steno.testing":{"kind":"unknown"}}\n'
COUNTERS = ("input", "cache_write", "cache_read", "output")

Check = Callable[[Agent, Path], Iterator[str]]


def _open_case(folder: Path) -> RecordingInput:
    """Open a recording without the session files on this machine."""
    recording = open_recording(folder)
    recording.use_local_transcripts = False
    return recording


def read_report(agent: Agent | None, folder: Path) -> Report:
    """Return the report of a recording; without an agent, it is detected."""
    return _open_case(folder).read(agent).report(None, price)


def _read_in_chunks(agent: Agent, folder: Path, size: int) -> Report:
    recording = _open_case(folder)
    data = (folder / "stdout").read_bytes()
    parser = RunParser(agent)
    chunked = data[:MAX_CHUNKED_BYTES] if size < MAX_CHUNKED_BYTES else data
    for start in range(0, len(chunked), size):
        parser.feed(chunked[start : start + size])
    parser.feed(data[len(chunked) :])
    parser.close()
    parser.add_events(recording.extra_events)
    parser.accumulator.add(parser.enrich(recording.transcript_lines(parser)))
    return parser.report(None, price)


def _read_from_recording(agent: Agent, folder: Path) -> Report:
    """Convert the case to a recording file, and read that."""
    case = _open_case(folder)
    data = (folder / "stdout").read_bytes()
    records = [Record(None, "out", data[start : start + 777]) for start in range(0, len(data), 777)]
    exit_code = None
    for event in case.extra_events:
        if isinstance(event, ev.Stderr):
            records.append(Record(None, "err", event.text.encode() + b"\n"))
        elif isinstance(event, ev.Exited):
            exit_code = event.code
    whole = case.read(agent)
    records += [Record(None, "kept", line) for line in _open_case(folder).transcript_lines(whole)]
    if exit_code is not None:
        records.append(Record(None, "exit", number=exit_code))
    records.append(Record(None, "end"))
    header = json.dumps({"schema": Header().schema, "agent": agent.name}).encode() + b"\n"
    parser = RunParser(agent)
    parser.feed_lines([header, *map(encode_record, records)])
    return parser.report(None, price)


def _as_dict(report: Report) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(report.to_json())
    del fields["source"]
    return fields


def _differences(actual: dict[str, Any], expected: dict[str, Any]) -> str:
    names = [name for name in {**expected, **actual} if actual.get(name) != expected.get(name)]
    return "; ".join(
        f"{name} is {_abbreviate(actual.get(name))}, not {_abbreviate(expected.get(name))}"
        for name in names
    )


def _abbreviate(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:160] + "..."


# -- checks of a recording ---------------------------------------------------------------------


def check_chunk_sizes(agent: Agent, folder: Path) -> Iterator[str]:
    """The size of the chunks that bytes arrive in changes nothing."""
    whole = _as_dict(read_report(agent, folder))
    for size in CHUNK_SIZES:
        report = _as_dict(_read_in_chunks(agent, folder, size))
        if report != whole:
            yield f"in chunks of {size} bytes the report differs: {_differences(report, whole)}"


def check_recording(agent: Agent, folder: Path) -> Iterator[str]:
    """A recording file with the same bytes gives the same report."""
    whole = _as_dict(read_report(agent, folder))
    report = _as_dict(_read_from_recording(agent, folder))
    if report != whole:
        yield f"from a recording file the report differs: {_differences(report, whole)}"


def check_figures(agent: Agent, folder: Path) -> Iterator[str]:
    """A known verdict; four counters, none negative, that add up; reasoning within output."""
    report = read_report(agent, folder)
    yield from _figure_problems(report, "report")
    reasoning = report.tokens.reasoning
    output = report.tokens.output
    if reasoning is not None and output is not None and reasoning > output:
        yield f"reasoning ({reasoning}) exceeds output ({output}), which must include it"


def _figure_problems(report: Report, source: str) -> Iterator[str]:
    if report.verdict not in VERDICTS:
        yield f"{source}: unknown verdict {report.verdict!r}"
    subagents = {subagent.id: subagent.tokens for subagent in report.subagents}
    for name, share in {"tokens": report.tokens, **report.models, **subagents}.items():
        counters = {counter: getattr(share, counter) for counter in COUNTERS}
        negative = [
            f"{counter} {value}"
            for counter, value in counters.items()
            if value is not None and value < 0
        ]
        if negative:
            yield f"{source}: {name}: negative counters: {', '.join(negative)}"
    total = report.tokens.total
    parts = [getattr(report.tokens, counter) for counter in COUNTERS]
    if total != (None if None in parts else sum(parts)):
        yield f"{source}: tokens.total is {total}, but the counters are {parts}: they must add up"
    if report.cost.usd is not None and report.cost.usd < 0:
        yield f"{source}: negative cost: {report.cost.usd}"


def check_expected_report(agent: Agent, folder: Path) -> Iterator[str]:
    """The report equals `expected.json`; one without an agent is for bytes that match none.

    Fields that a later version of steno added have their default there; `setup`, the same for all
    runs of a version, is compared where it is kept.
    """
    path = folder / "expected.json"
    if not path.is_file():
        return
    stored = json.loads(path.read_text("utf-8"))
    expected = stored[0] if isinstance(stored, list) else stored
    expected.pop("source", None)
    actual = _as_dict(read_report(agent if expected.get("agent") is not None else None, folder))
    has_setup = "setup" in expected
    try:
        expected = {**expected, **_as_dict(msgspec.convert(expected, Report))}
    except msgspec.ValidationError as error:
        yield f"expected.json is not a report: {error}"
        return
    if not has_setup:
        expected["setup"] = actual["setup"]
    if actual != expected:
        yield f"the report differs from expected.json: {_differences(actual, expected)}"


def check_detection(agent: Agent, folder: Path) -> Iterator[str]:
    """The first lines are detected as this agent's, and not as a built-in agent's."""
    objects = [
        value
        for line in (folder / "stdout").read_bytes().split(b"\n")[:MAX_DETECTION_LINES]
        for value in _json_objects(line)
    ]
    for value in objects:
        detected = agents.detect_builtin(value)
        if detected is None and agent.looks_like(value):
            detected = agent.name
        if detected is not None:
            if detected != agent.name:
                yield f"a line is detected as one of {detected}: {_abbreviate(value)}"
            return
    if objects:
        first = _abbreviate(objects[0])
        yield f"looks_like accepts none of the first {len(objects)} lines, such as {first}"


def _json_objects(line: bytes) -> list[dict[str, Any]]:
    """The object on a line, or the first one of an array; none if it is not JSON."""
    try:
        value = msgspec.json.decode(line)
    except decode.DECODE_ERRORS:
        return []
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    return [value] if isinstance(value, dict) else []


def check_unknown_lines(agent: Agent, folder: Path) -> Iterator[str]:
    """A line of an unknown kind is one Unknown event, and changes nothing else."""
    lines = (folder / "stdout").read_bytes().splitlines(keepends=True)
    if not lines or not lines[0].startswith(b'{"') or not lines[-1].endswith(b"\n"):
        return  # a document, or cut: another line would change its meaning
    before = _read_lines(agent, lines)
    after = _read_lines(agent, [*lines, UNKNOWN_LINE])
    count = after.lines.unknown - before.lines.unknown
    if count != 1:
        yield f"a line of an unknown kind must give one `Unknown` event, but gave {count}"
    if (after.tokens, after.text, after.tools) != (before.tokens, before.text, before.tools):
        yield "a line of an unknown kind changed the tokens, the text or the tools"


def _read_lines(agent: Agent, lines: list[bytes]) -> Report:
    parser = RunParser(agent, "stream")
    parser.feed_lines(lines)
    return parser.report(None, price)


def check_damaged_lines(agent: Agent, folder: Path) -> Iterator[str]:
    """Damaged lines raise nothing, are all counted, and give sane figures."""
    random = Random(folder.name)  # noqa: S311  # not for secrets: the same damage every time
    lines = [
        line
        for line in (folder / "stdout").read_bytes().split(b"\n")
        if 0 < len(line) <= MAX_DAMAGED_LINE_BYTES
    ]
    damaged = [copy for line in lines[:MAX_DAMAGED_LINES] for copy in damage_line(line, random)]
    damaged += UNEXPECTED_LINES
    for line in damaged:
        message = _unexpected_exception(agent, line)
        if message is not None:
            yield message
            return
    try:
        parser = RunParser(agent, "stream")
        parser.feed(b"\n".join(damaged) + b"\n")
        parser.close()
        report = parser.report(None, price)
    except Exception as error:  # the agent's code may raise anything
        yield f"reading all damaged lines raised {type(error).__name__}: {error}"
        return
    if report.lines.read != len(damaged):
        yield f"{report.lines.read} of {len(damaged)} damaged lines were counted"
    yield from _figure_problems(report, "report of damaged lines")


def _unexpected_exception(agent: Agent, line: bytes) -> str | None:
    """What the agent raises for a damaged line, other than the errors it may raise."""
    calls = {"read": agent.reader().read}
    if isinstance(decode.decode_raw(msgspec.Raw(line)), dict):
        calls["read_lenient"] = agent.reader().read_lenient
    for name, call in calls.items():
        try:
            call(line, 1, None)
        except decode.DECODE_ERRORS:
            continue  # how a reader rejects a line
        except Exception as error:  # the agent's code may raise anything
            return (
                f"{name} raised {type(error).__name__}: {error}; allowed: decode.DECODE_ERRORS. "
                f"The line: {line[:300]!r}"
            )
    for value in _json_objects(line):
        try:
            agent.looks_like(value)
            agent.transcripts.is_line(line)
        except Exception as error:  # the agent's code may raise anything
            return (
                f"looks_like or transcripts.is_line raised {type(error).__name__}: {error}. "
                f"The line: {line[:300]!r}"
            )
    return None


CHECKS: tuple[Check, ...] = (
    check_detection,
    check_chunk_sizes,
    check_recording,
    check_figures,
    check_expected_report,
    check_unknown_lines,
    check_damaged_lines,
)


# -- checks of the command ---------------------------------------------------------------------

PROGRAM = "/opt/some where/program"
PROMPT = "-x; rm -rf \"$HOME\" `id` $(id) 'quoted'\nsecond line \u2028 \U0001f99c"
SECRET = "sk-steno-testing-secret"  # noqa: S105  # a placeholder, valid nowhere
SHELLS = ("sh", "bash", "dash", "zsh", "cmd", "cmd.exe", "powershell")
MODEL = "steno-testing-model"
SERVER = "http://127.0.0.1:9/steno-testing"
# Values that the command must contain, unless the option is in `unsupported_options`.
OPTION_VALUES: dict[str, str | tuple[str, ...]] = {
    "model": MODEL,
    "system_prompt": "steno testing: the system prompt",
    "add_dirs": ("/steno testing/folder",),
    "extra": ("--steno-testing", "an argument; of its own"),
}


IGNORED_OPTION = "an option that the agent does not have belongs in `unsupported_options`"


class StartCase(msgspec.Struct, frozen=True):
    """One call of `build_command`, and what the command must contain."""

    name: str
    options: LaunchOptions
    values: tuple[str, ...] = ()
    has_key: bool = False
    differs_from: LaunchOptions | None = None  # their command must be another one


def start_violations(agent: Agent, sessions: tuple[str, ...] = ()) -> list[str]:
    """Return the violations in how it is started; none for an agent that cannot be started."""
    if agent.launch.build_command is default_build_command:
        return []
    return list(_find_start_violations(agent, sessions))


def _find_start_violations(agent: Agent, sessions: tuple[str, ...]) -> Iterator[str]:
    unknown = [
        name
        for name in agent.launch.unsupported_options
        if name not in LaunchOptions.__struct_fields__
    ]
    if unknown:
        yield f"`unsupported_options` contains unknown options: {', '.join(unknown)}"
    if agent.capabilities.resume:
        for session in sessions:
            if not agent.is_session_id(session):
                yield f"is_session_id rejects {session!r}, which the agent itself returned"
    for case in _start_cases(agent, sessions):
        yield from (f"{case.name}: {message}" for message in _case_violations(agent, case))


def _start_cases(agent: Agent, sessions: tuple[str, ...]) -> Iterator[StartCase]:
    base = LaunchOptions(prompt=PROMPT)
    yield StartCase("prompt", base)
    for name, value in OPTION_VALUES.items():
        if name not in agent.launch.unsupported_options:
            options = msgspec.structs.replace(base, **{name: value})
            yield StartCase(name, options, (value,) if isinstance(value, str) else value)
    yield from _session_cases(agent, base, sessions[0] if sessions else EXAMPLE_SESSION_ID)
    for kind in agent.launch.backends:
        backend = Backend(kind=kind, url=SERVER, key=SECRET)
        options = msgspec.structs.replace(base, model=MODEL, backend=backend)
        yield StartCase(f"backend {kind}", options, (MODEL, SERVER), has_key=True)


def _session_cases(agent: Agent, base: LaunchOptions, session: str) -> Iterator[StartCase]:
    """A session that the command does not name is a new one, whose only prompt is "continue"."""
    unsupported = agent.launch.unsupported_options
    replace = msgspec.structs.replace
    if "session_id" not in unsupported:
        options = replace(base, session_id=EXAMPLE_SESSION_ID)
        yield StartCase("session_id", options, (EXAMPLE_SESSION_ID,))
    if "continue_" not in unsupported:
        yield StartCase("continue_", replace(base, continue_=True), differs_from=base)
    if "resume" not in unsupported:
        resume = replace(base, resume=session)
        yield StartCase("resume", resume, (session,), differs_from=base)
        if "fork" not in unsupported:
            fork = replace(resume, fork=True)
            yield StartCase("fork", fork, (session,), differs_from=resume)


def _case_violations(agent: Agent, case: StartCase) -> Iterator[str]:
    with _secrets_in_environment(agent):
        try:
            command = agent.launch.build_command(case.options, PROGRAM, NEWEST_PROGRAM)
            second = agent.launch.build_command(case.options, PROGRAM, NEWEST_PROGRAM)
        except Exception as error:  # the agent's code may raise anything
            yield f"build_command raised {type(error).__name__}: {error}"
            return
        other = None
        if case.differs_from is not None:
            other = agent.launch.build_command(case.differs_from, PROGRAM, NEWEST_PROGRAM)
    yield from _argv_violations(command)
    if command == other:
        yield f"the option changes nothing in the command; {IGNORED_OPTION}"
    if command != second:
        yield "two commands differ: build_command must depend on its arguments only"
    yield from _missing_values(command, case)


def _argv_violations(command: LaunchCommand) -> Iterator[str]:
    argv = command.argv
    is_tuple = isinstance(argv, tuple) and argv and all(isinstance(word, str) for word in argv)
    if not is_tuple:
        yield f"argv must be a tuple of strings, not {argv!r}"
        return
    if argv[0] != PROGRAM:
        yield f"argv must start with the given program, not with {argv[0]!r}"
    if any(PurePath(word).name in SHELLS for word in argv[:3]) and "-c" in argv:
        yield f"the command uses a shell: {argv!r}"
    if any("\x00" in word for word in argv):
        yield "argv contains a NUL, which no system accepts"
    if command.stdout not in ("pipe", "file"):
        yield f"stdout must be 'pipe' or 'file', not {command.stdout!r}"
    if SECRET in " ".join(argv):
        yield "argv contains a key, readable by every user of the machine"
    stdin = command.stdin or b""
    has_prompt = PROMPT in argv or PROMPT.encode() in stdin
    if not has_prompt and msgspec.json.encode(PROMPT)[1:-1] not in stdin:
        yield "the prompt is neither on stdin nor an argument of its own"


def _missing_values(command: LaunchCommand, case: StartCase) -> Iterator[str]:
    if case.has_key and not any(SECRET in value for _, value in command.env):
        yield "the key of the backend is not in `env`"
    text = command_text(command)
    for value in case.values:
        if value not in text and msgspec.json.encode(value).decode()[1:-1] not in text:
            yield f"{value!r} is missing in the command; {IGNORED_OPTION}"


@contextmanager
def _secrets_in_environment(agent: Agent) -> Iterator[None]:
    """Set the agent's key variables, which `build_command` must not read."""
    before = {name: os.environ.get(name) for name in agent.launch.env_policy.api_key_names}
    os.environ.update(dict.fromkeys(before, SECRET))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
