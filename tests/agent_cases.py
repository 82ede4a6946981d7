"""Recordings of Gemini CLI, OpenCode and Qwen Code, and streams built from data."""

import json
from pathlib import Path
from typing import Any

import steno
from tests.golden import ROOT

Json = dict[str, Any]
AGENTS = ("gemini", "opencode", "qwen")
VERSIONS = {"gemini": "0.61.0", "opencode": "1.18.33", "qwen": "0.15.10"}  # of most recordings
CASES = [case for agent in AGENTS for case in sorted((ROOT / agent).glob("*/*"))]


def case(agent: str, name: str, version: str | None = None) -> Path:
    """A recording by its name."""
    path = ROOT / agent / (version or VERSIONS[agent]) / name
    assert path.is_dir()
    return path


def lines(path: Path) -> list[Json]:
    """The objects of a recording's stdout, read without steno."""
    text = (path / "stdout").read_text("utf-8")
    if text.startswith("["):
        values: list[Json] = json.loads(text)
        return values
    return [json.loads(line) for line in text.split("\n") if line]


def dump(values: list[Json]) -> bytes:
    """Lines as an agent prints them."""
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in values)


def read(
    values: list[Json], *, code: int | None = None, errors: str = "", agent: str | None = None
) -> steno.Report:
    """The report of a stream, with an exit code and stderr."""
    from steno import agents, event

    parser = steno.RunParser(agents.get_agent(agent))
    parser.feed_lines(dump(values).splitlines(keepends=True))
    events: list[steno.Event] = [
        event.Stderr(0, None, None, None, line) for line in errors.splitlines() if line.strip()
    ]
    if code is not None:
        events.append(event.Exited(0, None, None, None, code))
    parser.add_events(events)
    return parser.report()
