"""One known session in many variants, each with the agent's own total.

All are derived from the recordings of the tests. The model server of these recordings restarts its
message ids in each process and uses one request id; real ids never repeat. So each process gets
unique ids and each message a request id, unless the variant says otherwise.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers import Figures, Home, figures

RECORDINGS = Path(__file__).resolve().parent.parent / "tests" / "recordings"
OLD, NEW = "2.1.197", "2.1.325"
BASE = "multi_tool_edit"
RESUMED = ("max_turns", "max_turns_resume", "max_turns_resume2")
FORKED = (*RESUMED, "fork_session")
PROJECT = "-tmp-demo-project"
AGO = 3_600.0  # seconds since the end of the sessions; one peer reads only the last days
# Dollars per token of claude-opus-4-8: a cache write for an hour, less one for five minutes.
HOUR_EXTRA = 3.75e-6

Line = dict[str, Any]
Lines = list[Line]


class Variant(NamedTuple):
    """Name, expected totals and writer; `streams`: no transcripts, so not for peers."""

    name: str
    truth: Figures
    write: Callable[[Home], None]
    streams: bool = False


# --- recordings


def decoded(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def stream(version: str, name: str) -> Lines:
    return decoded(RECORDINGS / "claude" / version / name / "stdout")


def transcripts(version: str, name: str) -> dict[str, Lines]:
    """The transcripts of a case, by path below the project."""
    folder = RECORDINGS / "transcripts" / version / name
    return {
        str(path.relative_to(folder)): decoded(path) for path in sorted(folder.rglob("*.jsonl"))
    }


def result(version: str, name: str) -> Line:
    return next(line for line in reversed(stream(version, name)) if line["type"] == "result")


def told(version: str, name: str) -> Figures:
    """The agent's own total of its last result, with subagents and helper models."""
    last = result(version, name)
    models = last["modelUsage"].values()
    keys = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
    return figures((sum(model[key] for model in models) for key in keys), last["total_cost_usd"])


def told_by_all(version: str, names: Iterable[str]) -> Figures:
    """The sum, for a version whose totals are those of one process."""
    total = Figures(0, 0, 0, 0, 0.0)
    for name in names:
        total += told(version, name)
    return total


# --- changing lines


@cache
def shift() -> timedelta:
    """The offset to add to all recorded times."""
    last = max(
        line["timestamp"]
        for lines in transcripts(OLD, BASE).values()
        for line in lines
        if "timestamp" in line
    )
    return datetime.fromtimestamp(time.time() - AGO, timezone.utc) - datetime.fromisoformat(last)


def moved(line: Line) -> Line:
    if not isinstance(line.get("timestamp"), str):
        return line
    at = datetime.fromisoformat(line["timestamp"]) + shift()
    return {**line, "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"}


def named(line: Line, process: int) -> Line:
    """The line with ids unique to this process, and a request id per message."""
    new: Line = json.loads(json.dumps(line).replace("_01Fake", f"_01Run{process}Fake"))
    name = message(new)
    for key in ("requestId", "request_id"):
        if name and key in new:
            new[key] = name.replace("msg_01", "req_011C")
    return new


def message(line: Line) -> str | None:
    """The id of the model's message that the line belongs to."""
    said = line.get("message")
    if line.get("type") != "assistant" or not isinstance(said, dict):
        return None
    name: str = said["id"]
    return name


def told_apart(lines: Lines) -> Lines:
    """A session's transcript with ids per process; each process begins with a prompt."""
    process, new = 0, []
    for line in lines:
        process += line.get("type") == "user" and "permissionMode" in line
        new.append(named(line, process))
    return new


def with_request_ids(lines: Lines) -> Lines:
    names = ((line, message(line)) for line in lines)
    return [
        {**line, "requestId": name.replace("msg_01", "req_011C")} if name else line
        for line, name in names
    ]


def without_request_ids(lines: Lines) -> Lines:
    return [{key: value for key, value in line.items() if key != "requestId"} for line in lines]


def with_usage(line: Line, **counts: Any) -> Line:
    said = line["message"]
    return {**line, "message": {**said, "usage": {**said["usage"], **counts}}}


def kept_for_an_hour(line: Line) -> int:
    """Half of the cache writes of a message, in this variant."""
    return int(line["message"]["usage"]["cache_creation_input_tokens"]) // 2


def with_hours(lines: Lines) -> Lines:
    return [split(line) if message(line) else line for line in lines]


def split(line: Line) -> Line:
    written, hour = line["message"]["usage"]["cache_creation_input_tokens"], kept_for_an_hour(line)
    return with_usage(
        line,
        cache_creation={
            "ephemeral_1h_input_tokens": hour,
            "ephemeral_5m_input_tokens": written - hour,
        },
    )


def hours(lines: Lines) -> int:
    return sum({name: kept_for_an_hour(line) for line in lines if (name := message(line))}.values())


def early(line: Line) -> Line:
    """The first line of a streamed message, with another uuid."""
    return with_usage({**line, "uuid": line["uuid"][:-4] + "0000"}, output_tokens=1)


def growing(lines: Lines) -> Lines:
    """Only the last line of a message has its full output; messages of one line get another."""
    every = Counter(map(message, lines))
    left, new = every.copy(), Lines()
    for line in lines:
        name = message(line)
        left[name] -= 1
        if name and left[name]:
            new.append(with_usage(line, output_tokens=30 - left[name]))
        else:
            new += [early(line), line] if name and every[name] == 1 else [line]
    return new


# --- writing


def close(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def wide(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False)


def save(
    path: Path, lines: Iterable[Line], spell: Callable[[Line], str] = close, torn: int = 0
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(spell(moved(line)) + "\n" for line in lines)
    path.write_text(text[: len(text) - torn], "utf-8")


def keep(
    home: Home, files: dict[str, Lines], spell: Callable[[Line], str] = close, torn: int = 0
) -> None:
    """Write transcripts where the agent does."""
    for name, lines in files.items():
        save(home.projects() / PROJECT / name, lines, spell, torn)


def record(home: Home, version: str, names: Iterable[str]) -> None:
    """Write streams, each in a folder with its exit code."""
    for process, name in enumerate(names, 1):
        folder = home.path / "runs" / f"{process}-{name}"
        save(folder / "stdout", (named(line, process) for line in stream(version, name)))
        code = RECORDINGS / "claude" / version / name / "exit_code"
        (folder / "exit_code").write_bytes(code.read_bytes())


def killed(home: Home) -> None:
    """A stream with partial messages and without a result."""
    lines = [line for line in stream(OLD, "partial_messages") if line["type"] != "result"]
    save(home.path / "runs" / "killed" / "stdout", lines)
    (home.path / "runs" / "killed" / "exit_code").write_text("-9")


def torn(home: Home) -> None:
    """The last line repeats a message and is incomplete, as after a kill."""
    files = base()
    for lines in files.values():
        lines.append(next(line for line in reversed(lines) if message(line)))
    keep(home, files, torn=150)


def odd(home: Home) -> None:
    """Malformed lines in between: empty, text, a list, truncated, of an unknown type."""
    for name, lines in base().items():
        between = [
            "",
            "not JSON",
            "[]",
            "null",
            close(lines[-2])[:99],
            '{"type":"of-tomorrow","message":7}',
        ]
        words = [
            word
            for i, line in enumerate(lines)
            for word in (between[i % len(between)], close(moved(line)))
        ]
        path = home.projects() / PROJECT / name
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(words) + "\n", "utf-8")


# --- the variants


def base() -> dict[str, Lines]:
    return {name: with_request_ids(lines) for name, lines in transcripts(OLD, BASE).items()}


def changed(change: Callable[[Lines], Lines]) -> Callable[[Home], None]:
    return lambda home: keep(home, {name: change(lines) for name, lines in base().items()})


def apart(version: str, name: str) -> Callable[[Home], None]:
    return lambda home: keep(
        home, {file: told_apart(lines) for file, lines in transcripts(version, name).items()}
    )


def streams(version: str, names: tuple[str, ...]) -> Callable[[Home], None]:
    return lambda home: record(home, version, names)


def both(version: str) -> Callable[[Home], None]:
    def write(home: Home) -> None:
        apart(version, RESUMED[-1])(home)
        record(home, version, RESUMED)

    return write


def one_session() -> Iterator[Variant]:
    """The known session in other formats."""
    truth = told(OLD, BASE)
    written = sum(hours(lines) for lines in base().values())
    yield Variant("as recorded", truth, lambda home: keep(home, transcripts(OLD, BASE)))
    yield Variant("a request id for each message", truth, changed(list))
    yield Variant("no request ids", truth, changed(without_request_ids))
    yield Variant(
        "cache writes of 5 minutes and 1 hour", truth + hour_cost(written), changed(with_hours)
    )
    yield Variant("streamed: output grows line by line", truth, changed(growing))
    yield Variant("spaces in the JSON", truth, lambda home: keep(home, base(), wide))
    yield Variant("odd lines between", truth, odd)
    yield Variant("last line torn", truth, torn)


def hour_cost(tokens: int) -> Figures:
    return Figures(0, 0, 0, 0, tokens * HOUR_EXTRA)


def several_processes() -> Iterator[Variant]:
    """A conversation over several processes; costs are cumulative in 2.1.325 only."""
    old, new = told_by_all(OLD, RESUMED), told(NEW, RESUMED[-1])
    yield Variant("resumed, cost per process: streams", old, streams(OLD, RESUMED), streams=True)
    yield Variant("resumed, cost per process: transcript", old, apart(OLD, RESUMED[-1]))
    yield Variant("resumed, cumulative cost: streams", new, streams(NEW, RESUMED), streams=True)
    yield Variant("resumed, cumulative cost: transcript", new, apart(NEW, RESUMED[-1]))
    yield Variant("resumed, cost per process: both together", old, both(OLD))
    yield Variant("resumed, cumulative cost: both together", new, both(NEW))
    yield Variant(
        "forked: the copy repeats messages", told_by_all(OLD, FORKED), apart(OLD, FORKED[-1])
    )
    yield Variant(
        "forked, cumulative cost: streams",
        told(NEW, FORKED[-1]),
        streams(NEW, FORKED),
        streams=True,
    )
    yield Variant(
        "forked, cumulative cost: transcripts", told(NEW, FORKED[-1]), apart(NEW, FORKED[-1])
    )


def others() -> Iterator[Variant]:
    agents = "subagent_sync_env"
    files = {name: with_request_ids(lines) for name, lines in transcripts(OLD, agents).items()}
    yield Variant("subagents: transcripts", told(OLD, agents), lambda home: keep(home, files))
    yield Variant("subagents: stream", told(OLD, agents), streams(OLD, (agents,)), streams=True)
    yield Variant(
        "killed before its result: stream", told(OLD, "partial_messages"), killed, streams=True
    )


def variants() -> list[Variant]:
    return [*one_session(), *several_processes(), *others()]
