"""The ledger says of a run what its report says, for every recording and by every way in.

`steno show`, `steno ledger import`, `steno watch` and `steno run`: each in a ledger of its own.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

import steno
from steno.agents import LaunchOptions
from steno.analysis.usage import base_model_name
from steno.cli import show
from steno.ledger.importer import import_sources
from steno.ledger.queries.context import context_history
from steno.ledger.queries.filters import Filters, TimeZone, WhereClause
from steno.ledger.queries.runs import list_runs, load_report
from steno.ledger.queries.sessions import list_sessions
from steno.ledger.queries.usage import usage_report
from steno.ledger.results import RunSummary, SessionSummary
from steno.ledger.sqlite import IN_MEMORY
from steno.ledger.store import Store, open_ledger
from steno.ledger.totals import UsageTotals
from steno.pricing import price
from steno.process import GracePeriods, ProcessLoop
from steno.recording.open import find_recordings
from steno.recording.replay import ReplaySource
from steno.report import Report, Tokens
from steno.runner.retry_policy import RetryPolicy
from steno.runner.setup import TaskSetup
from steno.runner.task import Task
from steno.runner.watch import PassThrough, StreamMonitor, StreamRecorder
from tests import postgres
from tests.golden import CASES, ROOT
from tests.support.claude_lines import (
    MODEL,
    REQUEST_COST,
    assistant,
    dump,
    failed,
    init,
    result,
    share,
    spread,
    text,
    usage,
)
from tests.support.transcript_writer import Transcript

COUNTERS = ("input", "cache_write", "cache_read", "output", "reasoning")
PARTS = COUNTERS[:4]  # those that each model has
LONG = 60.0
_numbers = count(1000)
RECORDINGS = [
    path
    for case in CASES
    if not case.is_relative_to(ROOT / "transcripts")
    for path in find_recordings(case)
]
PLAYABLE = [path for path in RECORDINGS if not ReplaySource(path).is_unrecognized]
TRANSCRIPTS = [case for case in CASES if case.is_relative_to(ROOT / "transcripts")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- what both say -------------------------------------------------------------------------------


def told(report: Report) -> dict[str, Any]:
    """The figures of a report; cost in nano-dollars."""
    return {
        "verdict": report.verdict,
        "error_category": report.error_category,
        "model": report.model,
        "turns": report.turns,
        "requests": report.requests,
        "duration_ms": report.duration_ms,
        "tokens": report.tokens,
        "cost": nano(report.cost.usd),
        "cost_source": report.cost.source,
        "context": (report.context.used, report.context.limit, report.context.peak),
    }


def nano(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1e9)


def booked(run: RunSummary, report: Report | None) -> dict[str, Any]:
    """The same figures in the row of a run and in its stored report."""
    assert report is not None
    return {
        "verdict": run.verdict,
        "error_category": report.error_category,
        "model": run.model,
        "turns": run.turns,
        "requests": run.requests,
        "duration_ms": run.duration_ms,
        "tokens": run.tokens,
        "cost": run.cost_nano,
        "cost_source": run.cost_source,
        "context": (run.context_used, run.context_limit, run.context_peak),
    }


def check_run(store: Store, report: Report) -> None:
    """The row of the only run, its session and the usage say what its report says."""
    (run,) = list_runs(store, WhereClause())
    stored = load_report(store, run.id)
    assert booked(run, stored) == told(report)
    assert stored is not None
    assert told(stored) == told(report)
    usage = usage_report(store, "model", TimeZone("UTC"), Filters())
    check_totals(usage.total, report)
    check_models({row.key or "": row.totals for row in usage.rows}, report)
    by_day = usage_report(store, "day", TimeZone("Asia/Kolkata"), Filters())
    assert by_day.total == usage.total
    assert usage.runs_without_usage == (report.tokens.output is None)
    sessions = [
        session for session in list_sessions(store, WhereClause()) if session.id == run.session
    ]
    if report.session_id is not None and (report.turns or report.tokens.total):
        assert [session.id for session in sessions] == [report.session_id]
    for session in sessions:
        check_session(session, report)
    if not sessions:
        assert not report.tokens.total


def check_totals(totals: UsageTotals, report: Report) -> None:
    """Sums of one run; what is unknown adds nothing, and is not a cost of 0."""
    sums = {counter: getattr(totals, counter) for counter in COUNTERS}
    reported = {counter: getattr(report.tokens, counter) or 0 for counter in COUNTERS}
    if any("leave out some requests" in warning for warning in report.warnings):
        # The ledger has each request that the stream shows, also an interrupted one.
        assert all(sums[counter] >= reported[counter] for counter in COUNTERS)
        assert sums["input"] > reported["input"]
        return
    assert sums == reported
    if report.tokens.total:
        assert totals.tokens.total == report.tokens.total
        # The number is unknown if Qwen's total includes hidden requests: those that it shows count.
        is_unknown = report.requests is None and report.agent == "qwen"
        assert is_unknown or totals.known_requests == report.requests
        assert totals.cost_nano == nano(report.cost.usd)
    else:
        assert totals.requests == (report.requests or 0)
        assert totals.cost_nano in (None, nano(report.cost.usd) or 0)


def check_models(booked_models: dict[str, UsageTotals], report: Report) -> None:
    """If the models make up the tokens of the run, each has its own in the ledger."""
    reported: dict[str, dict[str, int]] = {}
    for full_name, model in report.models.items():
        sums = reported.setdefault(base_model_name(full_name), dict.fromkeys(PARTS, 0))
        for part in PARTS:
            sums[part] += getattr(model, part) or 0
    totals = {part: sum(sums[part] for sums in reported.values()) for part in PARTS}
    if len(reported) < 2 or totals != {part: getattr(report.tokens, part) for part in PARTS}:
        return
    assert reported == {
        name: {part: getattr(booked_models[name], part) for part in PARTS} for name in reported
    }


def check_session(session: SessionSummary, report: Report) -> None:
    check_totals(session.totals, report)
    if report.tokens.total is None:
        assert session.totals.tokens == Tokens()
    assert session.turns == report.turns
    assert session.context == report.context or (
        session.context.used,
        session.context.limit,
        session.context.source,
    ) == (report.context.used, report.context.limit, report.context.source)


# -- every way in --------------------------------------------------------------------------------


@pytest.fixture
def ledger() -> Iterator[Store]:
    store = open_ledger(IN_MEMORY)
    yield store
    store.close()


@pytest.fixture
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A ledger that other connections write to; recordings go to the same folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("STENO_LEDGER", str(tmp_path / "ledger.db"))
    store = open_ledger(str(tmp_path / "ledger.db"))
    yield store
    store.close()


def shown(path: Path, capsys: "pytest.CaptureFixture[bytes]") -> Report:
    """The report that `steno show --json` prints."""
    assert show.run(["--json", str(path)]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=Report)


def watched(path: Path) -> Report:
    """The report of `steno watch`, which also writes the run to the ledger."""
    source = os.open(path / "stdout" if path.is_dir() else path, os.O_RDONLY)
    target = os.open(os.devnull, os.O_WRONLY)
    stream = PassThrough(source, target)
    recorder = StreamRecorder(None, os.environ["STENO_LEDGER"])
    monitor = StreamMonitor(stream, None, True, recorder)
    monitor.run()
    os.close(source)  # it leaves /dev/null there
    os.close(target)
    report = monitor.parser.report(str(recorder.recording_path), price)
    recorder.write_to_ledger(report)
    recorder.close()
    assert (monitor.warnings, recorder.warnings) == ([], [])
    return report


def replayed(path: Path) -> Report:
    """The report of `steno run --agent replay`, which also writes the run to the ledger."""
    setup = TaskSetup(
        launch_options=LaunchOptions(prompt="Do it."),
        agent="replay",
        replay_path=str(path),
        replay_speed=0.0,
        policy=RetryPolicy(attempts=1, on_limit="fail"),
        grace=GracePeriods(interrupt=0.5, terminate=0.5),
        ledger=os.environ["STENO_LEDGER"],
    )
    with ProcessLoop() as loop:
        task = Task(loop, setup)
        task.start()
        assert loop.run(loop.clock() + LONG, until=lambda: task.is_finished)
    assert task.report is not None
    return task.report


def check_recording_of_run(report: Report) -> None:
    """The recording that a run left says the same in another ledger."""
    other = open_ledger(IN_MEMORY)
    import_sources(other, [str(report.source)])
    check_run(other, report)
    other.close()


@pytest.mark.parametrize("path", RECORDINGS, ids=name)
def test_show_and_import(
    path: Path, ledger: Store, capsysbinary: "pytest.CaptureFixture[bytes]"
) -> None:
    """Twice: the second import changes nothing."""
    report = shown(path, capsysbinary)
    for _ in range(2):
        import_sources(ledger, [str(path)])
        check_run(ledger, report)


@pytest.mark.parametrize("path", RECORDINGS, ids=name)
def test_watch(path: Path, own_ledger: Store) -> None:
    report = watched(path)
    check_run(own_ledger, report)
    check_recording_of_run(report)


@pytest.mark.parametrize("path", spread(PLAYABLE, 60), ids=name)
def test_run(path: Path, own_ledger: Store) -> None:
    """Spread over all recordings: each starts a process."""
    report = replayed(path)
    check_run(own_ledger, report)
    check_recording_of_run(report)


@pytest.mark.parametrize("path", spread(RECORDINGS, 25), ids=name)
def test_import_into_postgresql(path: Path, postgres_place: str) -> None:
    store = open_ledger(postgres.fresh(postgres_place, f"ledger_{next(_numbers)}"))
    import_sources(store, [str(path)])
    check_run(store, steno.read(path))
    store.close()


# -- documents: one result, in which the parts need not add up to the whole ----------------------

HELPER = "claude-haiku-4-5-20251001"
SMALL = share(0, 0, 0, 407, 0.002035, 200_000)
DOCUMENTS = {
    "one turn": result(),
    "models with output only": result(
        num_turns=2,
        usage=usage(9, 12_871, 36_391, 510),
        modelUsage={HELPER: SMALL, MODEL: share(0, 0, 0, 774, 0.01161)},
        total_cost_usd=0.013645,
    ),
    "one model with output only": result(
        usage=usage(9, 12_871, 36_391, 510),
        modelUsage={MODEL: share(0, 0, 0, 774, 0.01161)},
        total_cost_usd=0.01161,
    ),
    "a total above the models": result(total_cost_usd=1.5),
    "no models": result(modelUsage=None),
    "no cost": result(total_cost_usd=None, modelUsage={"nobody-knows": share(cost=None)}),
    "several turns": result(num_turns=7),
    "a model under two names": result(
        modelUsage={MODEL: share(), f"{MODEL}[1m]": share()},
        total_cost_usd=2 * REQUEST_COST,
    ),
    "no session": result(session_id=None),
    "a failed request": failed(),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_a_document(
    case: str, tmp_path: Path, ledger: Store, capsysbinary: "pytest.CaptureFixture[bytes]"
) -> None:
    path = tmp_path / "answer.json"
    path.write_bytes(dump(DOCUMENTS[case]))
    report = shown(path, capsysbinary)
    import_sources(ledger, [str(path)])
    check_run(ledger, report)


@pytest.mark.parametrize("case", [case for case in DOCUMENTS if case != "no cost"])
def test_a_document_after_its_messages(case: str, tmp_path: Path, ledger: Store) -> None:
    """As `--output-format json --verbose` prints it: the requests are known too."""
    path = tmp_path / "answer.json"
    lines = [init(), assistant(text("Done.")), DOCUMENTS[case]]
    path.write_bytes(b"[" + b",".join(map(dump, lines)) + b"]")
    import_sources(ledger, [str(path)])
    check_run(ledger, steno.read(path))


def test_documents_of_one_session_add_up(tmp_path: Path, ledger: Store) -> None:
    """Tokens, turns, cost and what the cache saved; the session can be looked up."""
    for number in (1, 2):
        path = tmp_path / f"{number}.json"
        path.write_bytes(dump(result(uuid=f"result {number}", num_turns=number)))
    import_sources(ledger, [str(tmp_path)])
    (session,) = list_sessions(ledger, WhereClause())
    runs = list_runs(ledger, WhereClause())
    assert [run.session for run in runs] == [session.id] * 2
    assert session.totals.tokens.total == sum(run.tokens.total or 0 for run in runs) == 42_210
    assert (session.turns, session.totals.cost_nano) == (3, round(2 * REQUEST_COST * 1e9))
    assert session.totals.saved_nano > 0
    assert [sample.used for sample in context_history(ledger, session)] == [21_004]


@pytest.mark.parametrize("order", [1, -1])
def test_a_document_and_its_transcript_count_once(
    tmp_path: Path, ledger: Store, order: int
) -> None:
    """Whichever comes first: the run ended when its document was written."""
    transcript = Transcript("s")
    transcript.prompt("Do it.")
    for number in range(3):
        transcript.at += timedelta(seconds=20)
        transcript.answer(f"m{number}")
    document = tmp_path / "answer.json"
    models = {transcript.model: share(9, 3_000, 60_000, 300, 0.5)}
    line = result(
        session_id="s",
        num_turns=3,
        duration_ms=70_000,
        usage=usage(9, 3_000, 60_000, 300),
        modelUsage=models,
        total_cost_usd=0.5,
    )
    document.write_bytes(dump(line))
    ended = transcript.at.timestamp()
    os.utime(document, (ended, ended))
    for path in [str(document), transcript.write(tmp_path)][::order]:
        import_sources(ledger, [path])
    (session,) = list_sessions(ledger, WhereClause())
    assert (session.totals.tokens.total, session.totals.cost_nano) == (63_309, 500_000_000)
    assert (session.totals.requests, session.prompts, session.turns) == (3, 1, 3)
    assert (session.context.used, session.context.source) == (21_003, "measured")


# -- transcripts: sessions without runs ----------------------------------------------------------

# Resumed on the scripted model, whose message ids start again with each process: the ledger keeps
# such requests apart, a report takes them for copies. Ids of real models are unique.
SAME_IDS = ("resume", "fork_session", "2.0.37/compact_manual")


@pytest.mark.parametrize("case", TRANSCRIPTS, ids=name)
def test_a_transcript(case: Path, ledger: Store) -> None:
    import_sources(ledger, [str(case)])
    sessions = {session.id: session for session in list_sessions(ledger, WhereClause())}
    for path in find_recordings(case):
        report = steno.read(path)
        if report.session_id is None or any(part in name(case) for part in SAME_IDS):
            continue
        session = sessions[report.session_id]
        assert session.totals.requests == report.requests
        assert session.context.used == report.context.used
        if report.cost.source != "reported":  # a total of the agent includes hidden requests
            check_totals(session.totals, report)
