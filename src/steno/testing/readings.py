"""What must hold of a recording that is read: the same however it comes, whatever is damaged, and nothing lost."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from .. import agents, decode
from .. import event as ev
from ..agents.values import Agent
from ..prices import price
from ..reading import LOOKED_AT, Reading
from ..report import VERDICTS, Report
from ..source import Input, open_input
from ..tick import Header, Tick, write_tick
from .damage import ODD, damaged

CHUNKS = (1, 2, 7, 65_536)
SMALL = 65_536  # bytes of a recording that come in small pieces; what follows comes at once
DAMAGED = 150  # lines of a recording that are damaged, each in several ways: more show nothing new
LONGEST = 8_000  # bytes of a line that is damaged
NEVER_SEEN = b'{"steno.testing":{"a kind":"that nobody knows"}}\n'
COUNTERS = ("input", "cache_write", "cache_read", "output")

Check = Callable[[Agent, Path], Iterator[str]]


# -- reading -------------------------------------------------------------------------------------------------------


def _input(folder: Path) -> Input:
    """A recording by itself: what the agents of this machine keep is none of its business."""
    given = open_input(folder)
    given.machine = False
    return given


def read(agent: Agent | None, folder: Path) -> Report:
    """The report of a recording, read whole; without an agent the bytes tell whose it is."""
    return _input(folder).read(agent).report(None, price)


def _in_chunks(agent: Agent, folder: Path, size: int) -> Report:
    given, data, reading = _input(folder), (folder / "stdout").read_bytes(), Reading(agent)
    small = data[:SMALL] if size < SMALL else data
    for start in range(0, len(small), size):
        reading.feed(small[start : start + size])
    reading.feed(data[len(small) :])
    reading.close()
    reading.take_events(given.after)
    reading.fold.add(reading.beside(given.kept(reading)))
    return reading.report(None, price)


def _from_tape(agent: Agent, folder: Path) -> Report:
    given, data = _input(folder), (folder / "stdout").read_bytes()
    ticks = [Tick(None, "out", data[start : start + 777]) for start in range(0, len(data), 777)]
    code = None
    for event in given.after:
        if isinstance(event, ev.Stderr):
            ticks.append(Tick(None, "err", event.text.encode() + b"\n"))
        elif isinstance(event, ev.Exited):
            code = event.code
    own = given.read(agent)
    ticks += [Tick(None, "kept", line) for line in _input(folder).kept(own)]
    ticks += [] if code is None else [Tick(None, "exit", number=code)]
    header = json.dumps({"schema": Header().schema, "agent": agent.name}).encode() + b"\n"
    tape = [header, *(write_tick(tick) for tick in (*ticks, Tick(None, "end")))]
    reading = Reading(agent)
    reading.take(tape)
    return reading.report(None, price)


def _plain(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.to_json())
    del found["source"]
    return found


def _differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    return "; ".join(f"{name} is {_short(found.get(name))}, not {_short(wanted.get(name))}" for name in names)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:160] + "..."


# -- checks --------------------------------------------------------------------------------------------------------


def same_in_chunks(agent: Agent, folder: Path) -> Iterator[str]:
    """Live is replay: the pieces in which bytes come change nothing."""
    whole = _plain(read(agent, folder))
    for size in CHUNKS:
        found = _plain(_in_chunks(agent, folder, size))
        if found != whole:
            yield f"in chunks of {size} its report differs: {_differences(found, whole)}"


def same_from_a_tape(agent: Agent, folder: Path) -> Iterator[str]:
    """Live is replay: a tape of the same bytes says the same."""
    whole, found = _plain(read(agent, folder)), _plain(_from_tape(agent, folder))
    if found != whole:
        yield f"from a tape its report differs: {_differences(found, whole)}"


def sane(agent: Agent, folder: Path) -> Iterator[str]:
    """V1 and M1: a word of the table; four counters that are not negative and add up; reasoning within output."""
    report = read(agent, folder)
    yield from _sane(report, "its report")
    tokens = report.tokens
    if tokens.reasoning is not None and tokens.output is not None and tokens.reasoning > tokens.output:
        yield f"reasoning ({tokens.reasoning}) is a part of output ({tokens.output}), and more than that"


def _sane(report: Report, whose: str) -> Iterator[str]:
    if report.verdict not in VERDICTS:
        yield f"{whose}: {report.verdict!r} is no verdict"
    shares = {"tokens": report.tokens, **report.models, **{one.id: one.tokens for one in report.subagents}}
    for name, share in shares.items():
        figures = {counter: getattr(share, counter) for counter in COUNTERS}
        negative = [f"{counter} {value}" for counter, value in figures.items() if value is not None and value < 0]
        if negative:
            yield f"{whose}: {name}: a counter is negative: {', '.join(negative)}"
    tokens = report.tokens
    known = [getattr(tokens, counter) for counter in COUNTERS]
    if tokens.total != (None if None in known else sum(known)):
        yield f"{whose}: tokens.total is {tokens.total}, and the four counters are {known}: they must be disjoint and add up"
    if report.cost.usd is not None and report.cost.usd < 0:
        yield f"{whose}: it cost {report.cost.usd}"


def expected(agent: Agent, folder: Path) -> Iterator[str]:
    """The report that a person has checked still holds. One that names no agent is of bytes that do not tell it."""
    path = folder / "expected.json"
    if not path.is_file():
        return
    kept = json.loads(path.read_text("utf-8"))
    wanted = kept[0] if isinstance(kept, list) else kept
    wanted.pop("source", None)
    found = _plain(read(agent if wanted.get("agent") is not None else None, folder))
    if found != wanted:
        yield f"expected.json does not hold: {_differences(found, wanted)}"


def sniffed(agent: Agent, folder: Path) -> Iterator[str]:
    """I1: the bytes tell whose they are, and no agent of steno's own takes them for its own."""
    objects = [value for line in (folder / "stdout").read_bytes().split(b"\n")[:LOOKED_AT] for value in _objects(line)]
    for value in objects:
        own = agents.own(value)
        whose = own if own is not None else agent.name if agent.looks_like(value) else None
        if whose is not None and whose != agent.name:
            yield f"its line would be taken for one of {whose}: {_short(value)}"
        if whose is not None:
            return
    if objects:
        yield f"looks_like knows none of its first {len(objects)} lines, such as {_short(objects[0])}"


def _objects(line: bytes) -> list[dict[str, Any]]:
    """The object on a line, or the first one of an array; none on a line that is no JSON: nobody is asked whose it is."""
    try:
        value = msgspec.json.decode(line)
    except decode.MISFIT:
        return []
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    return [value] if isinstance(value, dict) else []


def unknown_is_counted(agent: Agent, folder: Path) -> Iterator[str]:
    """I4: a line of a kind that nobody knows is one Unknown more, and changes nothing else."""
    lines = (folder / "stdout").read_bytes().splitlines(keepends=True)
    if not lines or not lines[0].startswith(b'{"') or not lines[-1].endswith(b"\n"):
        return  # a document, or cut: a line more would change what it is
    before, after = (_stream(agent, given) for given in (lines, [*lines, NEVER_SEEN]))
    if after.lines.unknown != before.lines.unknown + 1:
        more = after.lines.unknown - before.lines.unknown
        yield f"a line of a kind that nobody knows must be one `Unknown`; {more} were counted"
    if (after.tokens, after.text, after.tools) != (before.tokens, before.text, before.tools):
        yield "a line of a kind that nobody knows changed the tokens, the text or the tools"


def _stream(agent: Agent, lines: list[bytes]) -> Report:
    reading = Reading(agent, "stream")
    reading.take(lines)
    return reading.report(None, price)


def survives_damage(agent: Agent, folder: Path) -> Iterator[str]:
    """I3, I6: nothing in the data raises, no line is lost in the counts, and the figures stay sane."""
    by = Random(folder.name)  # noqa: S311  # the same damage every time
    lines = [line for line in (folder / "stdout").read_bytes().split(b"\n") if 0 < len(line) <= LONGEST]
    broken = [*(damage for line in lines[:DAMAGED] for damage in damaged(line, by)), *ODD]
    for line in broken:
        told = _raised(agent, line)
        if told is not None:
            yield told
            return
    data = b"\n".join(broken) + b"\n"
    try:
        reading = Reading(agent, "stream")
        reading.feed(data)
        reading.close()
        report = reading.report(None, price)
    except Exception as problem:  # every kind of exception is the finding
        yield f"damaged lines, one after the other, raised {type(problem).__name__}: {problem}"
        return
    if report.lines.read != len(broken):
        yield f"of {len(broken)} damaged lines {report.lines.read} were counted"
    yield from _sane(report, "of damaged lines")


def _raised(agent: Agent, line: bytes) -> str | None:
    """What one damaged line makes the agent raise that it may not."""
    for name, call in (("read", agent.reader().read), ("salvage", agent.reader().salvage)):
        if name == "salvage" and not isinstance(decode.plain(msgspec.Raw(line)), dict):
            continue
        try:
            call(line, 1, None)
        except decode.MISFIT:
            continue  # the way to say that a line does not fit
        except Exception as problem:
            return (
                f"{name} raised {type(problem).__name__}: {problem}; only decode.MISFIT may be raised. The line: {line[:300]!r}"
            )
    for value in _objects(line):
        try:
            agent.looks_like(value)
            agent.keeps(line)
        except Exception as problem:
            return f"looks_like or keeps raised {type(problem).__name__}: {problem}. The line: {line[:300]!r}"
    return None


CHECKS: tuple[Check, ...] = (
    sniffed, same_in_chunks, same_from_a_tape, sane, expected, unknown_is_counted, survives_damage,
)  # fmt: skip
