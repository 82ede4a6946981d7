"""What the tests of the agents besides Claude Code share: their recordings, and lines made from data. It reads no report."""

import json
from pathlib import Path
from typing import Any

import steno
from tests.golden import ROOT

Json = dict[str, Any]
AGENTS = ("gemini", "opencode", "qwen")
CASES = [case for agent in AGENTS for case in sorted((ROOT / agent).glob("*/*"))]


def case(agent: str, name: str) -> Path:
    """A recording by its name."""
    (found,) = (ROOT / agent).glob(f"*/{name}")
    return found


def lines(path: Path) -> list[Json]:
    """The objects of a recording's stdout, read with nothing of ours."""
    text = (path / "stdout").read_text("utf-8")
    return (
        json.loads(text)
        if text.startswith("[")
        else [json.loads(line) for line in text.split("\n") if line]
    )


def dump(given: list[Json]) -> bytes:
    """Lines as an agent prints them."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in given)


def read(
    given: list[Json], *, code: int | None = None, errors: str = "", agent: str | None = None
) -> steno.Report:
    """The report of lines, with an exit code and stderr beside them."""
    from steno import agents, event

    reading = steno.RunParser(agents.get_agent(agent))
    reading.feed_lines(dump(given).splitlines(keepends=True))
    told: list[steno.Event] = [
        event.Stderr(0, None, None, None, line) for line in errors.splitlines() if line.strip()
    ]
    reading.add_events(told + ([] if code is None else [event.Exited(0, None, None, None, code)]))
    return reading.report()
