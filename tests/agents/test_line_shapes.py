"""Lines of Gemini CLI, OpenCode and Qwen Code: detection, chunks, malformed and unknown lines."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import AGENTS, detect_agent
from tests.agent_cases import CASES, Json, case, dump, lines
from tests.golden import ROOT, name

STREAMS = [path for path in CASES if (path / "stdout").read_bytes().startswith(b'{"')]


@pytest.mark.parametrize(
    "path", [path for path in CASES if (path / "stdout").stat().st_size], ids=name
)
def test_the_agent_is_detected_from_the_bytes(path: Path) -> None:
    """I1: from a file, from bytes, from the json format; never by a name."""
    agent = path.parents[1].name
    assert steno.read((path / "stdout").read_bytes()).agent == agent
    assert steno.read(path / "stdout").agent == agent


def test_claudes_own_lines_stay_claudes() -> None:
    """Qwen Code's stream has the same shape: only what it signs is its."""
    for path in sorted((ROOT / "claude").glob("*/*/stdout")):
        first = path.read_bytes().split(b"\n")[0]
        agent = detect_agent(first)
        assert agent is None or agent.name == "claude", path


def test_transcripts_are_distinguished() -> None:
    found = {
        path.parts[-3]: steno.read(path).agent
        for path in (ROOT / "transcripts").glob("*-*/*/*.jsonl")
    }
    assert {
        folder: agent for folder, agent in found.items() if folder.startswith(("gemini", "qwen"))
    } == {
        "gemini-0.61.0": "gemini",
        "qwen-0.15.10": "qwen",
    }


def test_an_unknown_first_line_does_not_decide() -> None:
    told = steno.read(dump([{"type": "hello_from_the_future"}, *lines(case("gemini", "tools"))]))
    assert (told.agent, told.verdict, told.tokens.total, told.lines.unknown) == (
        "gemini",
        "success",
        28180,
        1,
    )


def test_a_line_of_noise_before_it_does_not_decide() -> None:
    told = steno.read(b"Loading...\n" + dump(lines(case("opencode", "tools"))))
    assert (told.agent, told.verdict, told.lines.malformed) == ("opencode", "success", 1)


# -- unknown kinds ------------------------------------------------------------------


def _with_news(given: list[Json], seed: int) -> tuple[list[Json], int]:
    """One line in twenty of a kind that does not exist, at least one; in the agent's own dress."""
    chance = random.Random(seed)
    count = max(1, round(len(given) * 0.05 / 0.95))
    found = list(given)
    for number in range(count):
        like = dict(chance.choice(given))
        like["type"] = f"novelty_{number % 7}"
        found.insert(chance.randrange(1, len(found) + 1), like)
    return found, count


@pytest.mark.parametrize("path", STREAMS, ids=name)
@pytest.mark.parametrize("seed", range(3))
def test_i4_one_line_in_twenty_of_an_unknown_kind(path: Path, seed: int) -> None:
    """The report is still right, and says how many there were."""
    given = lines(path)
    old, (news, count) = steno.read(dump(given)), _with_news(given, seed)
    new = steno.read(dump(news))
    assert new.lines.unknown == count
    assert f"{count} events of kinds this version does not know" in new.warnings
    assert _without_places(new) == _without_places(old)


def _without_places(report: steno.Report) -> Json:
    found: Json = json.loads(report.to_json())
    for name_ in ("source", "evidence", "lines", "warnings", "duration_ms"):
        del found[name_]
    return found


# -- chunks and malformed lines ------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [path for path in CASES if path.name != "sigint" and (path / "stdout").stat().st_size],
    ids=name,
)
@pytest.mark.parametrize("size", [1, 2, 7, 4096])
def test_i2_in_pieces_it_gives_the_same_report(path: Path, size: int) -> None:
    """Live is replay."""
    from steno.pricing import price

    data = (path / "stdout").read_bytes()
    reading = steno.RunParser()
    for start in range(0, len(data), size):
        reading.feed(data[start : start + size])
    reading.close()
    told = json.loads(reading.report(None, price).to_json())
    assert told == {**json.loads(steno.read(data).to_json()), "source": None}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize(
    "other", [None, True, -1, 1e300, 10**30, "", "x", [], [None], {}, {"a": 1}], ids=repr
)
@pytest.mark.parametrize("agent", ["gemini", "opencode", "qwen"])
def test_i6_any_field_may_be_of_any_type(agent: str, other: Any) -> None:
    """A field of a wrong type costs only itself: nothing raises, and no line is lost."""
    given = lines(case(agent, "tools")) + lines(case(agent, "api_401"))
    for number, line in enumerate(given):
        for path in _places(line):
            around = [
                *given[max(0, number - 2) : number],
                _replaced(line, path, other),
                *given[number + 1 : number + 3],
            ]
            reading = steno.RunParser(AGENTS[agent])
            reading.feed_lines(dump(around).splitlines(keepends=True))
            reading.report().to_json()
            assert reading.lines.read == len(around)


@pytest.mark.parametrize("folder", ["gemini-0.61.0", "qwen-0.15.10"])
def test_i6_any_field_of_a_chat_may_be_of_any_type(folder: str) -> None:
    (path,) = (ROOT / "transcripts" / folder).glob("*/*.jsonl")
    given = [json.loads(line) for line in path.read_text("utf-8").splitlines()][:8]
    for number, line in enumerate(given):
        for place in _places(line):
            for other in (None, "x", [None], {"a": 1}, -1):
                changed = [*given[:number], _replaced(line, place, other), *given[number + 1 :]]
                steno.read(dump(changed)).to_json()


@pytest.mark.parametrize("folder", ["gemini-0.61.0", "qwen-0.15.10"])
def test_l3_a_chat_is_read_on_from_any_line(folder: str) -> None:
    """What is remembered between two readings of a file that grew is enough."""
    (path,) = (ROOT / "transcripts" / folder).glob("*/*.jsonl")
    agent = AGENTS[folder.split("-")[0]]
    data = path.read_bytes().splitlines(keepends=True)
    whole = _all(agent, data)
    for cut in range(1, len(data)):
        first, second = agent.reader(), agent.reader()
        found = [event for n, line in enumerate(data[:cut], 1) for event in _events(first, line, n)]
        second.restore(first.state())
        found += [
            event
            for n, line in enumerate(data[cut:], cut + 1)
            for event in _events(second, line, n)
        ]
        assert found == whole


def _all(agent: Any, data: list[bytes]) -> list[steno.Event]:
    reader = agent.reader()
    return [event for n, line in enumerate(data, 1) for event in _events(reader, line, n)]


def _events(reader: Any, line: bytes, number: int) -> list[steno.Event]:
    found: list[steno.Event] = reader.read(line, number)
    return found


@pytest.mark.parametrize("folder", ["gemini-0.61.0", "qwen-0.15.10"])
def test_the_fast_path_through_a_chat_file_gives_the_same_requests(folder: str) -> None:
    from steno import event

    (path,) = (ROOT / "transcripts" / folder).glob("*/*.jsonl")
    agent, data = AGENTS[folder.split("-")[0]], path.read_bytes().splitlines(keepends=True)
    whole = [
        one
        for one in _all(agent, data)
        if isinstance(one, event.Usage | event.Started | event.UserMessage)
    ]
    assert list(agent.transcripts.scan_usage(data)) == whole
    assert all(agent.transcripts.is_line(line) for line in data[:1])
