"""All agents in one ledger: runs count their own part, sessions and reports add up.

The first test runs the real programs (`make cli`), the others read recordings.
"""

import csv
import io
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.golden import ROOT
from tests.support import program
from tests.support.all_agents import Place, shell
from tests.support.modelserver import Answer, Text, Usage, say

PARTS = ("input", "cache_write", "cache_read", "output")
# Two runs of each: Codex counts tokens per thread, Claude Code 2.1.325 dollars per session,
# 2.1.197 per process.
RESUMED = ("codex", "claude 2.1.325", "claude 2.1.197")
ONCE = ("copilot", "gemini", "opencode", "qwen")
# Dollars per million tokens: the agents' own prices; for gpt-5.5, the price table's.
PRICES = {
    "codex": (5.0, 5.0, 0.5, 30.0),
    "claude 2.1.325": (4.0, 5.0, 0.2, 20.0),
    "claude 2.1.197": (5.0, 6.25, 0.5, 25.0),
}


def figures(name: str, number: int) -> Usage:
    """What the n-th answer of an agent uses: different for each, so that sums can be told apart."""
    place = [*RESUMED, *ONCE].index(name) + 1
    return Usage(
        1_000 * place + number,
        100 * number if name.startswith("claude") else 0,
        7_000 + number,
        50 * place + number,
    )


def cost(name: str, *usages: Usage) -> float:
    """What these answers cost, in dollars."""
    rows = [(usage.input, usage.cache_write, usage.cache_read, usage.output) for usage in usages]
    return (
        sum(count * price for row in rows for count, price in zip(row, PRICES[name], strict=True))
        / 1e6
    )


def tokens(*usages: Usage) -> dict[str, int]:
    """What the server gave out."""
    return {part: sum(getattr(usage, part) for usage in usages) for part in PARTS}


def told(row: dict[str, Any]) -> dict[str, int]:
    """The four counters of a row."""
    return {part: row["tokens"][part] for part in PARTS}


def added(rows: Iterable[dict[str, Any]]) -> tuple[dict[str, int], float]:
    """Tokens and dollars of many rows; what is unknown adds nothing."""
    given = list(rows)
    sums = {part: sum(row["tokens"][part] or 0 for row in given) for part in PARTS}
    return sums, round(sum(row["cost"]["usd"] or 0.0 for row in given), 9)


def run_twice(name: str, folder: Path) -> list[dict[str, Any]]:
    """The reports of a run and of its resumption."""
    place = Place(name, folder / name.replace(" ", "-"), folder)
    one, two, three = (figures(name, number) for number in (1, 2, 3))
    first = place.run(say("First.", usage=one))
    assert (first.code, first.report["result"]) == (0, "First.")
    check_session(place, first.report)
    command = (Answer((Text("I will."), shell("codex", "true")), two), say("Second.", usage=three))
    steps = command if name == "codex" else (say("Second.", usage=two),)
    second = place.run(*steps, words=("--resume", first.report["session_id"]))
    assert (second.code, second.report["session_id"]) == (0, first.report["session_id"])
    own = (two, three) if name == "codex" else (two,)
    for report, usages in ((first.report, (one,)), (second.report, own)):
        assert told(report) == tokens(*usages), name
        assert report["cost"]["usd"] == pytest.approx(cost(name, *usages), abs=1e-9), name
    (session,) = _sessions(place, first.report["session_id"])
    assert told(session) == tokens(one, *own), name
    assert session["cost"]["usd"] == pytest.approx(cost(name, one, *own), abs=1e-9), name
    return [first.report, second.report]


def check_session(place: Place, report: dict[str, Any]) -> None:
    """Right after a run, its session can be shown, with its prompt, time, turns and answer."""
    session = report["session_id"]
    assert place.ask("show", session, "--text").out.rstrip() == report["result"], place.agent
    summary = " ".join(place.ask("show", session).out.split())
    assert "Do it." in summary, (place.agent, summary)
    assert "prompts 1" in summary or "1 prompt ·" in summary, (place.agent, summary)
    assert report["turns"] is None or "1 turn ·" in summary, (place.agent, summary)
    assert "time unknown" not in summary, (place.agent, summary)


def run_once(name: str, folder: Path) -> list[dict[str, Any]]:
    """The report of a run."""
    place = Place(name, folder / name, folder)
    done = place.run(say("Done.", usage=figures(name, 1)))
    assert (done.code, told(done.report)) == (0, tokens(figures(name, 1))), name
    check_session(place, done.report)
    return [done.report]


def _sessions(place: Place, id_: str) -> list[dict[str, Any]]:
    rows = json.loads(place.ask("sessions", "--json").out)["rows"]
    return [row for row in rows if row["session_id"] == id_]


def test_every_run_is_its_own_part_and_all_of_them_add_up(tmp_path: Path) -> None:
    """M6, M7, L4. Transcripts in the same home are imported too, and nothing counts twice."""
    with ThreadPoolExecutor(2) as pool:  # two programs at a time
        twice = [pool.submit(run_twice, name, tmp_path) for name in RESUMED]
        once = [pool.submit(run_once, name, tmp_path) for name in ONCE]
        reports = [report for done in (*twice, *once) for report in done.result()]
    place = Place("codex", tmp_path / "asking", tmp_path)
    truth = added(reports)
    runs = json.loads(place.ask("runs", "--json").out)["rows"]
    assert {run["run_id"] for run in runs} == {
        attempt["run_id"] for report in reports for attempt in report["attempts"]
    }
    assert added(runs) == truth
    for by in ("agent", "model", "day", "project", "session"):
        answer = json.loads(place.ask("usage", by, "--last", "1d", "--json").out)
        assert added(answer["rows"]) == added([answer["total"]]) == truth, by
        assert answer["untold_runs"] == 0
        assert by == "session" or None not in [
            row[by] for row in answer["rows"]
        ]  # also of agents that do not say where they work
    agents = {
        row["agent"]: row
        for row in json.loads(place.ask("usage", "agent", "--last", "1d", "--json").out)["rows"]
    }
    for agent in agents:
        assert added([agents[agent]]) == added(
            report for report in reports if report["agent"] == agent
        ), agent
    assert agents["qwen"]["cost"]["usd"] is None  # nobody knows the price of its model


# -- recordings ----------------------------------------------------------------------------------


class Desk:
    """A ledger of recordings, and questions to it."""

    def __init__(self, folder: Path, *recordings: Path) -> None:
        self.data = folder
        done = self.ask("ledger", "import", *map(str, recordings))
        assert done.code == 0, done.err

    def ask(self, *words: str) -> program.Ended:
        """A command of steno."""
        return program.steno(self.data, *words)

    def json(self, *words: str) -> dict[str, Any]:
        """Its answer."""
        found: dict[str, Any] = json.loads(self.ask(*words, "--json").out)
        return found

    def table(self, *words: str) -> dict[str, str]:
        """The lines of its table, by their first word."""
        lines = self.ask(*words).out.splitlines()
        return {line.split()[0]: line for line in lines if line.strip()}

    def csv(self, *words: str) -> dict[str, dict[str, str]]:
        """The rows of its CSV, by their first value."""
        rows = list(csv.DictReader(io.StringIO(self.ask(*words, "--csv").out)))
        return {next(iter(row.values())): row for row in rows}


def test_the_reports_of_recordings_add_up(tmp_path: Path) -> None:
    """For recordings of all agents, rows, total and runs add up to the same sum."""
    others = [ROOT / agent for agent in ("codex", "copilot", "gemini", "opencode", "qwen")]
    own = [
        ROOT / "claude" / "2.1.325" / name
        for name in ("multi_tool_edit", "max_turns_resume", "sigint_bg_after_result", "api_401")
    ]
    desk = Desk(tmp_path, *others, *own)
    runs = desk.json("runs")["rows"]
    shown = {run["agent"] for run in runs}
    assert shown >= {"claude", "codex", "copilot", "gemini", "opencode", "qwen"}
    for by in ("agent", "model", "day", "session"):
        answer = desk.json("usage", by)
        assert added(answer["rows"]) == added([answer["total"]]) == added(runs), by
    for row in desk.json("usage", "agent")["rows"]:
        assert added([row]) == added(run for run in runs if run["agent"] == row["agent"]), row[
            "agent"
        ]
    assert answer["untold_runs"] == sum(run["tokens"]["total"] is None for run in runs)
    assert f"no usage reported: {answer['untold_runs']} runs" in desk.ask("usage").out


def test_what_is_unknown_is_nowhere_zero(tmp_path: Path) -> None:
    """No usage (OpenCode, interrupted), no price (Qwen Code), a run without any usage."""
    cases = ("opencode/1.18.33/sigint", "qwen/0.15.10/max_turns", "copilot/1.0.102/success")
    desk = Desk(tmp_path, *(ROOT / case for case in cases))
    rows = {row["agent"]: row for row in desk.json("usage", "agent")["rows"]}
    assert rows["opencode"]["tokens"] == dict.fromkeys((*PARTS, "reasoning", "total"))
    assert [row["cost"]["usd"] for row in rows.values()] == [None, None]
    assert (rows["qwen"]["tokens"]["total"], rows["qwen"]["cost"]["unpriced_tokens"]) == (
        9_062,
        9_062,
    )
    assert rows["opencode"]["cost"]["unpriced_tokens"] is None
    lines = desk.csv("usage", "agent")
    assert (
        lines["opencode"]["tokens_total"],
        lines["opencode"]["cost_usd"],
        lines["qwen"]["cost_usd"],
    ) == ("", "", "")
    table = desk.table("usage", "agent")
    # Model, four counters, total, cost, unpriced requests, requests, hit rate and savings.
    assert table["opencode"].split()[1:12] == [*["unknown"] * 7, "+1", "1", "-", "unknown"]
    assert table["qwen"].split()[1:6] == ["fake-coder", "1.00k", "61", "0", "8.00k"]
    assert " ".join(table["qwen"].split()[6:13]) == "≥9.06k unknown +1 1 88.9 % unknown"
    assert "no usage reported: 2 runs" in desk.ask("usage", "agent").out
    sessions = {row["agent"]: row for row in desk.json("sessions")["rows"]}
    assert [sessions[agent]["tokens"]["total"] for agent in ("opencode", "copilot")] == [None, None]
    assert [sessions[agent]["cost"]["usd"] for agent in ("opencode", "copilot")] == [None, None]
    assert sessions["opencode"]["context"]["used"] is None


def test_a_recording_is_imported_as_what_it_is(tmp_path: Path) -> None:
    """A JSON document and a run with output on stderr only are not assigned to the first agent.

    What is new in a recording is counted as what is new in a transcript.
    """
    cases = ("gemini/0.61.0/tools_json", "gemini/0.61.0/no_key", "codex/0.166.0/invalid_flag")
    desk = Desk(tmp_path, *(ROOT / case for case in cases))
    runs = {
        run["source"].rpartition("/")[2]: (run["agent"], run["verdict"])
        for run in desk.json("runs")["rows"]
    }
    again = desk.ask("ledger", "import", str(ROOT / "qwen" / "0.15.10" / "tools"))
    assert "; 3 new requests, 4 tool calls, 1 runs" in again.out + again.err
    assert runs == {
        "tools_json": ("gemini", "success"),
        "no_key": ("gemini", "auth"),
        "invalid_flag": ("codex", "subprocess"),
    }
