"""Lines, damaged in the ways that pipes, disks, crashes and other versions of a program damage them. Pure."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from .. import agents
from .. import event as ev
from ..agents.backend import Backend
from ..agents.base import Agent, LaunchCommand, LaunchOptions, default_build_command
from ..codec import decode
from ..pricing import price
from ..recording.agent_lines import AGENT_DETECTION_LINES
from ..recording.format import Header, Record, encode_record
from ..recording.open import RecordingInput, open_recording
from ..recording.parse import RunParser
from ..report import VERDICTS, Report

LITERALS = (
    b"null", b"true", b"false", b"0", b"-1", b"1.5", b"1e308", b"1e999", b"9" * 30, b'""', b'"x"', b'"\\ud83d"', b'"\\u0000"',
    b'"\xff"', b"[]", b"[[]]", b"[null]", b'["x"]', b"[{}]", b"{}", b'{"a":1}', b'"0001-01-01T00:00:00Z"', b"-9007199254740993",
)  # fmt: skip
# What no program prints, and a reader must take all the same.
UNEXPECTED_LINES = (
    b"", b" ", b"\x00", b"null", b"0", b'"text"', b"[]", b"{}", b'{"":""}', b'{"type":null}', b'{"type":[]}', b'{"type":{}}',
    b'{"type":{"a":[1]}}', b'{"type":1}', b'{"type":"\\ud800"}', b"{", b"}{", b'{"type":', b"not JSON at all",
    b"[" * 3000 + b"]" * 3000, b'{"a":' * 1500 + b"1" + b"}" * 1500,
)  # fmt: skip
_VALUE_PATTERN = re.compile(
    rb'(?<=:)(?:"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|\[\]|\{\})'
)
_KEY_PATTERN = re.compile(rb'"(?:[^"\\]|\\.)*"(?=:)')


def damage_line(line: bytes, by: Random) -> Iterator[bytes]:
    """One line in several kinds of damage, none of which holds a newline."""
    for damage in (
        _truncate(line, by),
        _flip_bit(line, by),
        _delete_bytes(line, by),
        line + b" " + line,
        _nest_value(line, by),
    ):
        yield damage.replace(b"\n", b" ")
    for _ in range(6):  # a field of a wrong type is what another version brings
        yield _replace_match(line, by, _VALUE_PATTERN, by.choice(LITERALS)).replace(b"\n", b" ")
    yield _replace_match(line, by, _KEY_PATTERN, b'"another_name"')


def _truncate(line: bytes, by: Random) -> bytes:
    return line[: by.randrange(len(line))]


def _flip_bit(line: bytes, by: Random) -> bytes:
    found = bytearray(line)
    found[by.randrange(len(found))] ^= 1 << by.randrange(8)
    return bytes(found)


def _delete_bytes(line: bytes, by: Random) -> bytes:
    start = by.randrange(len(line))
    return line[:start] + line[start + by.choice((1, 5, 50)) :]


def _nest_value(line: bytes, by: Random) -> bytes:
    depth = by.choice((3, 400, 1500))
    return _replace_match(line, by, _VALUE_PATTERN, b"[" * depth + b"1" + b"]" * depth)


def _replace_match(line: bytes, by: Random, what: "re.Pattern[bytes]", value: bytes) -> bytes:
    spans = [found.span() for found in what.finditer(line)]
    if not spans:
        return value
    start, end = by.choice(spans)
    return line[:start] + value + line[end:]


CHUNK_SIZES = (1, 2, 7, 65_536)
MAX_CHUNKED_BYTES = (
    65_536  # bytes of a recording that come in small pieces; what follows comes at once
)
MAX_DAMAGED_LINES = (
    150  # lines of a recording that are damaged, each in several ways: more show nothing new
)
MAX_DAMAGED_LINE_BYTES = 8_000  # bytes of a line that is damaged
UNKNOWN_LINE = b'{"steno.testing":{"a kind":"that nobody knows"}}\n'
COUNTERS = ("input", "cache_write", "cache_read", "output")

Check = Callable[[Agent, Path], Iterator[str]]


# -- reading -------------------------------------------------------------------------------------------------------


def _open_case(folder: Path) -> RecordingInput:
    """A recording by itself: what the agents of this machine keep is none of its business."""
    given = open_recording(folder)
    given.use_local_transcripts = False
    return given


def read_report(agent: Agent | None, folder: Path) -> Report:
    """The report of a recording, read whole; without an agent the bytes tell whose it is."""
    return _open_case(folder).read(agent).report(None, price)


def _read_in_chunks(agent: Agent, folder: Path, size: int) -> Report:
    given, data, reading = _open_case(folder), (folder / "stdout").read_bytes(), RunParser(agent)
    small = data[:MAX_CHUNKED_BYTES] if size < MAX_CHUNKED_BYTES else data
    for start in range(0, len(small), size):
        reading.feed(small[start : start + size])
    reading.feed(data[len(small) :])
    reading.close()
    reading.add_events(given.extra_events)
    reading.accumulator.add(reading.enrich(given.transcript_lines(reading)))
    return reading.report(None, price)


def _read_from_recording(agent: Agent, folder: Path) -> Report:
    given, data = _open_case(folder), (folder / "stdout").read_bytes()
    ticks = [Record(None, "out", data[start : start + 777]) for start in range(0, len(data), 777)]
    code = None
    for event in given.extra_events:
        if isinstance(event, ev.Stderr):
            ticks.append(Record(None, "err", event.text.encode() + b"\n"))
        elif isinstance(event, ev.Exited):
            code = event.code
    own = given.read(agent)
    ticks += [Record(None, "kept", line) for line in _open_case(folder).transcript_lines(own)]
    ticks += [] if code is None else [Record(None, "exit", number=code)]
    header = json.dumps({"schema": Header().schema, "agent": agent.name}).encode() + b"\n"
    tape = [header, *(encode_record(tick) for tick in (*ticks, Record(None, "end")))]
    reading = RunParser(agent)
    reading.feed_lines(tape)
    return reading.report(None, price)


def _as_dict(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.to_json())
    del found["source"]
    return found


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    return "; ".join(
        f"{name} is {_abbreviate(found.get(name))}, not {_abbreviate(wanted.get(name))}"
        for name in names
    )


def _abbreviate(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:160] + "..."


# -- checks --------------------------------------------------------------------------------------------------------


def check_chunk_sizes(agent: Agent, folder: Path) -> Iterator[str]:
    """Live is replay: the pieces in which bytes come change nothing."""
    whole = _as_dict(read_report(agent, folder))
    for size in CHUNK_SIZES:
        found = _as_dict(_read_in_chunks(agent, folder, size))
        if found != whole:
            yield f"in chunks of {size} its report differs: {_differences(found, whole)}"


def check_recording(agent: Agent, folder: Path) -> Iterator[str]:
    """Live is replay: a tape of the same bytes says the same."""
    whole, found = (
        _as_dict(read_report(agent, folder)),
        _as_dict(_read_from_recording(agent, folder)),
    )
    if found != whole:
        yield f"from a tape its report differs: {_differences(found, whole)}"


def check_figures(agent: Agent, folder: Path) -> Iterator[str]:
    """V1 and M1: a word of the table; four counters that are not negative and add up; reasoning within output."""
    report = read_report(agent, folder)
    yield from _figure_problems(report, "its report")
    tokens = report.tokens
    if (
        tokens.reasoning is not None
        and tokens.output is not None
        and tokens.reasoning > tokens.output
    ):
        yield f"reasoning ({tokens.reasoning}) is a part of output ({tokens.output}), and more than that"


def _figure_problems(report: Report, whose: str) -> Iterator[str]:
    if report.verdict not in VERDICTS:
        yield f"{whose}: {report.verdict!r} is no verdict"
    shares = {
        "tokens": report.tokens,
        **report.models,
        **{one.id: one.tokens for one in report.subagents},
    }
    for name, share in shares.items():
        figures = {counter: getattr(share, counter) for counter in COUNTERS}
        negative = [
            f"{counter} {value}"
            for counter, value in figures.items()
            if value is not None and value < 0
        ]
        if negative:
            yield f"{whose}: {name}: a counter is negative: {', '.join(negative)}"
    tokens = report.tokens
    known = [getattr(tokens, counter) for counter in COUNTERS]
    if tokens.total != (None if None in known else sum(known)):
        yield f"{whose}: tokens.total is {tokens.total}, and the four counters are {known}: they must be disjoint and add up"
    if report.cost.usd is not None and report.cost.usd < 0:
        yield f"{whose}: it cost {report.cost.usd}"


def check_expected_report(agent: Agent, folder: Path) -> Iterator[str]:
    """The report that a person has checked still holds. One that names no agent is of bytes that do not tell it."""
    path = folder / "expected.json"
    if not path.is_file():
        return
    kept = json.loads(path.read_text("utf-8"))
    wanted = kept[0] if isinstance(kept, list) else kept
    wanted.pop("source", None)
    found = _as_dict(read_report(agent if wanted.get("agent") is not None else None, folder))
    if found != wanted:
        yield f"expected.json does not hold: {_differences(found, wanted)}"


def check_detection(agent: Agent, folder: Path) -> Iterator[str]:
    """I1: the bytes tell whose they are, and no agent of steno's own takes them for its own."""
    objects = [
        value
        for line in (folder / "stdout").read_bytes().split(b"\n")[:AGENT_DETECTION_LINES]
        for value in _json_objects(line)
    ]
    for value in objects:
        own = agents.detect_builtin(value)
        whose = own if own is not None else agent.name if agent.looks_like(value) else None
        if whose is not None and whose != agent.name:
            yield f"its line would be taken for one of {whose}: {_abbreviate(value)}"
        if whose is not None:
            return
    if objects:
        yield f"looks_like knows none of its first {len(objects)} lines, such as {_abbreviate(objects[0])}"


def _json_objects(line: bytes) -> list[dict[str, Any]]:
    """The object on a line, or the first one of an array; none on a line that is no JSON: nobody is asked whose it is."""
    try:
        value = msgspec.json.decode(line)
    except decode.DECODE_ERRORS:
        return []
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    return [value] if isinstance(value, dict) else []


def check_unknown_lines(agent: Agent, folder: Path) -> Iterator[str]:
    """I4: a line of a kind that nobody knows is one Unknown more, and changes nothing else."""
    lines = (folder / "stdout").read_bytes().splitlines(keepends=True)
    if not lines or not lines[0].startswith(b'{"') or not lines[-1].endswith(b"\n"):
        return  # a document, or cut: a line more would change what it is
    before, after = (_read_lines(agent, given) for given in (lines, [*lines, UNKNOWN_LINE]))
    if after.lines.unknown != before.lines.unknown + 1:
        more = after.lines.unknown - before.lines.unknown
        yield f"a line of a kind that nobody knows must be one `Unknown`; {more} were counted"
    if (after.tokens, after.text, after.tools) != (before.tokens, before.text, before.tools):
        yield "a line of a kind that nobody knows changed the tokens, the text or the tools"


def _read_lines(agent: Agent, lines: list[bytes]) -> Report:
    reading = RunParser(agent, "stream")
    reading.feed_lines(lines)
    return reading.report(None, price)


def check_damaged_lines(agent: Agent, folder: Path) -> Iterator[str]:
    """I3, I6: nothing in the data raises, no line is lost in the counts, and the figures stay sane."""
    by = Random(folder.name)  # noqa: S311  # the same damage every time
    lines = [
        line
        for line in (folder / "stdout").read_bytes().split(b"\n")
        if 0 < len(line) <= MAX_DAMAGED_LINE_BYTES
    ]
    broken = [
        *(damage for line in lines[:MAX_DAMAGED_LINES] for damage in damage_line(line, by)),
        *UNEXPECTED_LINES,
    ]
    for line in broken:
        told = _unexpected_exception(agent, line)
        if told is not None:
            yield told
            return
    data = b"\n".join(broken) + b"\n"
    try:
        reading = RunParser(agent, "stream")
        reading.feed(data)
        reading.close()
        report = reading.report(None, price)
    except Exception as problem:  # every kind of exception is the finding
        yield f"damaged lines, one after the other, raised {type(problem).__name__}: {problem}"
        return
    if report.lines.read != len(broken):
        yield f"of {len(broken)} damaged lines {report.lines.read} were counted"
    yield from _figure_problems(report, "of damaged lines")


def _unexpected_exception(agent: Agent, line: bytes) -> str | None:
    """What one damaged line makes the agent raise that it may not."""
    for name, call in (("read", agent.reader().read), ("salvage", agent.reader().read_lenient)):
        if name == "salvage" and not isinstance(decode.decode_raw(msgspec.Raw(line)), dict):
            continue
        try:
            call(line, 1, None)
        except decode.DECODE_ERRORS:
            continue  # the way to say that a line does not fit
        except Exception as problem:
            return f"{name} raised {type(problem).__name__}: {problem}; only decode.MISFIT may be raised. The line: {line[:300]!r}"
    for value in _json_objects(line):
        try:
            agent.looks_like(value)
            agent.transcripts.is_line(line)
        except Exception as problem:
            return f"looks_like or keeps raised {type(problem).__name__}: {problem}. The line: {line[:300]!r}"
    return None


CHECKS: tuple[Check, ...] = (
    check_detection, check_chunk_sizes, check_recording, check_figures, check_expected_report, check_unknown_lines, check_damaged_lines,
)  # fmt: skip


PROGRAM = "/opt/some where/program"
PROMPT = "-x; rm -rf \"$HOME\" `id` $(id) 'quoted'\nsecond line \u2028 \U0001f99c"
SECRET = "sk-steno-testing-secret"  # noqa: S105  # opens nothing
SHELLS = ("sh", "bash", "dash", "zsh", "cmd", "cmd.exe", "powershell")
MODEL, SERVER, BACKEND_LABEL = (
    "steno-testing-model",
    "http://127.0.0.1:9/steno-testing",
    "the backend",
)
# What a word of the asking must be found in, for an agent that does not list it in `cannot`.
EXPECTED_VALUES = {
    "model": MODEL,
    "system_prompt": "steno testing: the system prompt",
    "add_dirs": ("/steno testing/folder",),
    "extra": ("--steno-testing", "an argument; of its own"),
}


def start_violations(agent: Agent, sessions: tuple[str, ...] = ()) -> list[str]:
    """What does not hold, a sentence each. An agent that cannot be started has nothing to keep."""
    if agent.launch.build_command is default_build_command:
        return []
    return list(_find_violations(agent, sessions))


def _find_violations(agent: Agent, sessions: tuple[str, ...]) -> Iterator[str]:
    strange = [
        name
        for name in agent.launch.unsupported_options
        if name not in LaunchOptions.__struct_fields__
    ]
    if strange:
        yield f"`cannot` names what nobody asks: {', '.join(strange)}"
    asks = {"a prompt": LaunchOptions(prompt=PROMPT)}
    asks |= {
        name: msgspec.structs.replace(LaunchOptions(prompt=PROMPT), **{name: value})
        for name, value in EXPECTED_VALUES.items()
        if _supports(agent, name)
    }
    if sessions and agent.capabilities.resume:
        asks["resume"] = LaunchOptions(prompt=PROMPT, resume=sessions[0])
        yield from (
            f"is_session does not know {session!r}, which it returned itself"
            for session in _unknown_sessions(agent, sessions)
        )
    for kind in agent.launch.backends:
        asks[f"{BACKEND_LABEL} {kind}"] = LaunchOptions(
            prompt=PROMPT, model=MODEL, backend=Backend(kind=kind, url=SERVER, key=SECRET)
        )
    for what, ask in asks.items():
        with _secrets_in_environment(agent):
            try:
                start = agent.launch.build_command(ask, PROGRAM, None)
                again = agent.launch.build_command(ask, PROGRAM, None)
            except Exception as problem:
                yield f"start raised {type(problem).__name__} for {what}: {problem}"
                continue
        yield from (f"for {what}: {wrong}" for wrong in _argv_violations(start, ask))
        if start != again:
            yield f"for {what}: two starts of the same differ: it must depend on what is asked alone"
        yield from _missing_values(start, what, ask)


def _supports(agent: Agent, name: str) -> bool:
    return name not in agent.launch.unsupported_options


def _unknown_sessions(agent: Agent, sessions: tuple[str, ...]) -> list[str]:
    return [session for session in sessions if not agent.is_session_id(session)]


def _argv_violations(start: LaunchCommand, ask: LaunchOptions) -> Iterator[str]:
    words = start.argv
    if (
        not isinstance(words, tuple)
        or not words
        or not all(isinstance(word, str) for word in words)
    ):
        yield f"argv must be a tuple of words, found {words!r}"
        return
    if words[0] != PROGRAM:
        yield f"argv must begin with the program that it was given, found {words[0]!r}"
    if any(os.path.basename(word) in SHELLS for word in words[:3]) and "-c" in words:  # noqa: PTH119
        yield f"it is started by a shell: {words!r}"
    if any("\x00" in word for word in words):
        yield "a word of argv holds a NUL: no system starts that"
    if start.stdout not in ("pipe", "file"):
        yield f"stdout goes to 'pipe' or 'file', not to {start.stdout!r}"
    if SECRET in " ".join(words):
        yield "a key from the environment is in argv, where every user of the machine can read it"
    if (
        PROMPT.encode() not in (start.stdin or b"")
        and PROMPT not in words
        and not _has_prompt_as_json(start.stdin or b"")
    ):
        yield "the prompt is neither on stdin nor one whole word of argv"


def _has_prompt_as_json(stdin: bytes) -> bool:
    """Whether the prompt stands in JSON on stdin."""
    return msgspec.json.encode(PROMPT)[1:-1] in stdin


def _missing_values(start: LaunchCommand, what: str, ask: LaunchOptions) -> Iterator[str]:
    wanted = EXPECTED_VALUES.get(what, ask.resume if what == "resume" else ())
    if what.startswith(BACKEND_LABEL):
        wanted = (MODEL, SERVER)
        if not any(SECRET in value for _, value in start.env):
            yield f"{what}: its key is not in the start's `env`"
    said = "\n".join(
        (
            *start.argv,
            (start.stdin or b"").decode("utf-8", "replace"),
            *(value for _, value in start.env),
        )
    )
    for word in (wanted,) if isinstance(wanted, str) else wanted or ():
        if word not in said and msgspec.json.encode(word).decode()[1:-1] not in said:
            yield f"{what} was asked for and is nowhere in the start; what it has no words for belongs into `cannot`"


@contextmanager
def _secrets_in_environment(agent: Agent) -> Iterator[None]:
    """The agent's keys in the environment, where `start` must not look for them."""
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
