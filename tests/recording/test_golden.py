"""Every recording gives its checked report, in all ways of reading (S, V, M)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode, encode

import steno
from steno.agents import CLAUDE, LineReader, detect_agent
from steno.agents.sink import feed
from steno.analysis.accumulator import Accumulator
from steno.analysis.build_report import build_report
from steno.codec.decode import DECODE_ERRORS
from steno.ledger.row_sink import LedgerRowSink
from steno.recording.format import Header, Record, Recorder
from steno.report import LineCounts
from tests.golden import CASES, ROOT, comparable, expected, name, reports
from tests.oracle import facts

STREAMS = [case for case in CASES if (case / "stdout").is_file()]
OF_CLAUDE = [case for case in STREAMS if case.parents[1].name == "claude"]


def test_there_are_at_least_two_hundred_cases_of_every_version() -> None:
    """The cases stay spread over the versions and scenarios that were recorded."""
    versions = {case.parent.name for case in STREAMS}
    assert len(STREAMS) >= 200
    assert versions >= {"1.0.100", "2.0.37", "2.1.50", "2.1.197", "2.1.325"}


def test_every_recording_has_an_expectation() -> None:
    """A folder without expected.json would silently test nothing."""
    assert [
        path.parent
        for path in ROOT.rglob("stdout")
        if not (path.parent / "expected.json").is_file()
    ] == []


@pytest.mark.parametrize("case", CASES, ids=name)
def test_reads_to_the_checked_report(case: Path) -> None:
    """The whole report, field by field."""
    assert reports(case) == expected(case)


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_a_tape_of_it_gives_the_same_report(case: Path, tmp_path: Path) -> None:
    """L1: replaying gives the same report as reading."""
    path = tmp_path / "run.tape"
    with Recorder(path, Header(agent=reports(case)[0]["agent"])) as recorder:
        for line in (case / "stdout").read_bytes().splitlines(keepends=True):
            recorder.write(Record(None, "out", line))
        errors = case / "stderr"
        for line in errors.read_bytes().splitlines(keepends=True) if errors.is_file() else []:
            if line.strip():
                recorder.write(Record(None, "err", line))
        recorder.write(Record(None, "exit", number=int((case / "exit_code").read_text())))
        for kept in sorted((case / "sessions").rglob("*.jsonl")):
            recorder.write(Record(None, "kept", kept.read_bytes()))
    assert comparable(steno.read(path)) == reports(case)[0]


@pytest.mark.parametrize("case", STREAMS, ids=name)
def test_in_chunks_it_gives_the_same_report(case: Path) -> None:
    """Chunks of 7 bytes of stdout give the same report as the whole."""
    data = (case / "stdout").read_bytes()
    reading = steno.RunParser()
    for start in range(0, len(data), 7):
        reading.feed(data[start : start + 7])
    reading.close()
    from steno.pricing import price

    assert comparable(reading.report(None, price)) == comparable(steno.read(data))


@pytest.mark.parametrize("case", CASES, ids=name)
def test_line_by_line_and_the_tolerant_way_say_the_same(case: Path) -> None:
    """Two readers: line by line, and field by field. The same events of every line that fits."""
    for lines in _files(case):
        reader = ((detect_agent(lines[0]) if lines else None) or CLAUDE).reader
        single, tolerant = reader(), reader()
        told = [encode(event) for n, line in enumerate(lines, 1) for event in _one(single, line, n)]
        assert [
            encode(event)
            for n, line in enumerate(lines, 1)
            for event in tolerant.read_lenient(line, n)
        ] == told


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_fast_path_feeds_the_same_to_the_accumulator(case: Path) -> None:
    """Batches and single lines give the same report, rows and state."""
    for lines in _files(case):
        agent = (detect_agent(lines[0]) if lines else None) or CLAUDE
        many, single = agent.reader(), agent.reader()
        folds, rows = (
            [Accumulator(agent), Accumulator(agent)],
            [LedgerRowSink(agent, "", 0), LedgerRowSink(agent, "", 0)],
        )
        assert feed(many, lines, 0, many.read_lenient, folds[0]) == len(lines)
        for n, line in enumerate(lines, 1):
            folds[1].add(_one(single, line, n))
        short, whole = (build_report(fold, LineCounts(len(lines))) for fold in folds)
        assert short == whole
        assert many.state() == single.state()
        many, single = agent.reader(), agent.reader()
        feed(many, lines, 0, many.read_lenient, rows[0])
        for n, line in enumerate(lines, 1):
            rows[1].add(_one(single, line, n))
        assert rows[0].batch() == rows[1].batch()
        assert rows[0].state() == rows[1].state()


def _files(case: Path) -> Iterator[list[bytes]]:
    for path in [case / "stdout"] if case in STREAMS else sorted(case.rglob("*.jsonl")):
        yield [
            line for line in path.read_bytes().split(b"\n") if line[:1] == b"{" and _is_json(line)
        ]


def _one(reader: LineReader, line: bytes, number: int) -> list[steno.Event]:
    try:
        return reader.read(line, number)
    except DECODE_ERRORS:
        return reader.read_lenient(line, number)


def _is_json(line: bytes) -> bool:
    try:
        decode(line)
    except DECODE_ERRORS:
        return False
    return True


# Where the oracle and the report differ on purpose; every reason is in docs/decisions.md.


def counted(*counters: int) -> dict[str, int]:
    """Tokens: input, cache write, cache read, output, and their total."""
    names = ("input", "cache_write", "cache_read", "output", "total")
    return dict(zip(names, (*counters, sum(counters)), strict=True))


DIFFERS: dict[tuple[str, str], Any] = {
    (
        "1.0.100/compact_manual",
        "verdict",
    ): "empty",  # nothing in the bytes says that it was a slash command
    ("1.0.100/compact_manual", "ok"): False,
    (
        "1.0.100/compact_manual",
        "malformed",
    ): 0,  # the terminal's control sequence before the object is passed over
    (
        "2.1.197/sse_error_event",
        "cost_usd",
    ): None,  # its account says 0 of everything: computed from the messages
    **{(f"{version}/api_401_text", "verdict"): "auth" for version in ("2.1.197", "2.1.325")},
    **{(f"{version}/max_turns_text", "verdict"): "max_turns" for version in ("2.1.197", "2.1.325")},
    **{(f"{version}/max_turns_text", "malformed"): 1 for version in ("2.1.197", "2.1.325")},
    **{(f"{version}/max_turns_text", "torn"): False for version in ("2.1.197", "2.1.325")},
    # The price and window of a model that the agent doesn't know are guesses.
    ("2.1.325/model_my-custom-model", "cost_usd"): None,
    **{(f"{v}/model_my-custom-model", "context_limit"): None for v in ("2.1.197", "2.1.325")},
    # Nothing was read to its end: there may have been requests.
    ("2.1.325/stdout_closed_early", "requests"): None,
    # Without a request, the agent's own count after /context is what the window holds.
    ("2.1.325/slash_context", "context_used"): 16_889,
    ("2.1.325/slash_context", "context_source"): "measured",
    # A request that is in the stream but in no total is added, and priced.
    ("2.0.70/retry_ok", "cost_usd"): None,
    ("2.0.70/retry_ok", "tokens"): counted(36, 4010, 80000, 110),
    # Totals that include earlier runs, without the new part: priced from the run's requests.
    ("2.1.290/resume_sub2", "cost_usd"): None,
    ("2.1.290/resume_sub2", "tokens"): counted(6, 2003, 40000, 203),
    ("2.1.290/resume_sub3", "cost_usd"): None,
    ("2.1.290/resume_sub3", "tokens"): counted(22, 55018, 100000, 312),  # a lower bound
    ("2.1.290/resume_sub4", "cost_usd"): None,
    ("2.1.290/resume_sub4", "tokens"): counted(0, 0, 0, 0),
    ("2.1.290/resume_sub4", "requests"): 0,
    ("2.1.310/resume_sub_json3", "cost_usd"): None,
    ("2.1.310/resume_sub_json3", "tokens"): counted(0, 0, 0, 0),
    ("2.1.310/resume_sub_json3", "requests"): 0,
    # The session file has the totals before the run.
    ("2.1.290/resume_sub_session", "cost_usd"): 0.445503,
    ("2.1.290/resume_sub_session", "tokens"): counted(22, 55019, 100000, 7516),
    ("2.1.325/resume_sub_json", "cost_usd"): 0.445498,
    ("2.1.325/resume_sub_json", "tokens"): counted(22, 55018, 100000, 7516),
    ("2.1.325/resume_failed_json", "cost_usd"): 0.0,
    ("2.1.325/resume_failed_json", "tokens"): counted(0, 0, 0, 0),
    ("2.1.325/resume_failed_json", "requests"): 0,
}


@pytest.mark.parametrize("case", OF_CLAUDE, ids=name)
def test_an_independent_reading_agrees(case: Path) -> None:
    """The oracle was written from the contract alone, by someone who had not seen this program."""
    key = f"{case.parent.name}/{case.name}"
    told = facts(case)
    got = _facts(steno.read(case), has_result=told["subtype"] is not None)
    wanted = {field: DIFFERS.get((key, field), told[field]) for field in got}
    assert got == wanted


def _facts(report: steno.Report, has_result: bool) -> dict[str, Any]:
    tokens, context = report.tokens, report.context
    return {
        "verdict": report.verdict,
        "ok": report.ok,
        "succeeded": report.succeeded,
        "complete": report.complete,
        "exit_code": report.exit_code,
        "signal": report.signal,
        "subtype": report.subtype,
        "terminal_reason": report.terminal_reason,
        "stop_reason": report.stop_reason
        if has_result
        else None,  # without a result ours is the last message's
        "result": report.result,
        "structured_output": report.structured_output,
        "turns": report.turns,
        "requests": report.requests,
        "tokens": {
            part: getattr(tokens, part)
            for part in ("input", "cache_write", "cache_read", "output", "total")
        },
        "cost_usd": report.cost.usd if report.cost.source == "reported" else None,
        "context_used": context.used,
        "context_limit": context.limit if context.limit_source == "reported" else None,
        "context_source": context.source,
        "compactions": context.compactions,
        "tools": [[tool.id, tool.name, tool.ok] for tool in report.tools],
        "files": sorted([file.absolute, file.change] for file in report.files),
        "denials": [[denial.tool, denial.id] for denial in report.denials],
        "retries": len(report.retries),
        "background_open_calls": [
            task.id for task in report.background if task.status == "running"
        ],
        "malformed": report.lines.malformed,
        "torn": report.lines.torn,
    }
