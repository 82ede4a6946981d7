"""The pages of one run or session: verdict and charts, conversation, files, raw lines."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..analysis.context import CONTEXT_LEVELS
from ..analysis.usage import cache_hit_rate, nano_to_usd
from ..codec.redact import redact
from ..errors import SourceError, StenoError
from ..export.charts import MAX_SPANS, Sample, Span, context_chart, meter, timeline
from ..ledger.change_set import stored_changes
from ..ledger.protocol import Store
from ..ledger.queries import context as context_queries
from ..ledger.queries import runs, sessions
from ..ledger.queries.filters import WhereClause
from ..ledger.results import RunSummary, SessionSummary
from ..recording.lines import lines_from_chunks
from ..recording.replay import ReplaySource
from ..report import VERDICT_MEANINGS, Report, ToolCallSummary
from ..views.formatting import (
    clean_lines,
    format_compact,
    format_duration,
    format_money,
    format_number,
)
from ..views.summary import other_warnings, verdict_reason
from .conversations import STEPS_PER_SLICE, ConversationCache, ConversationReader, Slice
from .url_state import UnknownIdError

MAX_DIRECT_BYTES = 1 << 20  # of a recording; a longer one is read after the page is shown
RAW_LINES_PER_PAGE = 200
MAX_RAW_CHARS = 4_000  # of one line
MAX_PATCH_LINES = 4_000
MAX_ATTEMPTS_SHOWN = 50
STEPS_BEFORE = 5  # of a step that is jumped to
WAIT_ROW = "model and waiting"
MIN_WAIT_MS = 50
Values = dict[str, Any]


class Subject(Struct):
    """A run, or a session: the title and figures that both have, and where its lines are."""

    table: str
    id: str
    run: RunSummary | None
    session: SessionSummary | None
    source: str | None  # path of its recording or transcript, if it is on this machine
    is_active: bool = False

    @property
    def path(self) -> str:
        return f"/{self.table}/{self.id}"

    @property
    def title(self) -> str:
        text: str | None = None
        if self.run is not None:
            text = self.run.title
        elif self.session is not None:
            text = self.session.title
        return (text or "").strip().partition("\n")[0] or f"{self.table[:-1]} {self.id[:8]}"


def find_subject(
    store: Store, table: str, id_: str, active: Sequence[dict[str, Any]] = ()
) -> Subject:
    """The run or session with this ID or prefix. UnknownIdError if there is none."""
    try:
        match = runs.get_by_prefix(store, id_)
    except StenoError as error:
        raise UnknownIdError(str(error)) from None
    tapes = {state["run_id"]: state["recording"] for state in active}
    if match.table == "runs":
        run = runs.get_run(store, match.id)
        session = _session_of(store, run)
        source = tapes.get(run.id) or run.source
        return Subject("runs", run.id, run, session, _existing(source), run.id in tapes)
    paths = sessions.transcript_paths(store, match.id)
    source = next((path for path in paths if _existing(path)), None)
    return Subject("sessions", match.id, None, sessions.get_session(store, match.id), source)


def _session_of(store: Store, run: RunSummary) -> SessionSummary | None:
    where = WhereClause().add("id = ?", run.session)
    return next(iter(sessions.list_sessions(store, where, 1)), None) if run.session else None


def _existing(path: str | None) -> str | None:
    return path if path is not None and Path(path).exists() else None


# -- summary ---------------------------------------------------------------------------------------


def summary_values(store: Store, subject: Subject, conversations: ConversationCache) -> Values:
    """Verdict with evidence, figures, charts, attempts and notes."""
    report = None if subject.run is None else runs.load_report(store, subject.id)
    reader = _ready_conversation(subject, conversations)
    if report is None and reader is not None:
        report = reader.report
    return {
        "subject": subject,
        "report": report,
        "verdict": _verdict(subject, report),
        "evidence": _evidence(report, reader),
        "facts": _facts(subject),
        "context": _context_values(store, subject),
        "timeline": None if report is None else tool_timeline(report, _call_links(subject, reader)),
        "attempts": _attempts(store, subject),
        "notes": runs.list_notes(store, subject.table, subject.id),
        "is_long": subject.source is not None and reader is None,
    }


def _ready_conversation(
    subject: Subject, conversations: ConversationCache
) -> ConversationReader | None:
    """The conversation, unless it has to be read first and is long."""
    if subject.source is None:
        return None
    try:
        file = Path(subject.source)
        size = (file / "stdout" if file.is_dir() else file).stat().st_size
        if size > MAX_DIRECT_BYTES and not conversations.is_ready(subject.source):
            return None
        return conversations.get(subject.source)
    except (OSError, SourceError):
        return None


def _verdict(subject: Subject, report: Report | None) -> Values | None:
    """Verdict, reason and next step; None for a session without a run."""
    if subject.is_active:
        return {"name": "running", "reason": "", "hint": None, "warnings": []}
    if subject.run is None and (report is None or report.verdict == "no_result"):
        return None
    name = subject.run.state if subject.run is not None else report.verdict if report else ""
    if report is None or report.verdict != name:
        reason = subject.run.reason if subject.run is not None else None
        reason = reason or VERDICT_MEANINGS.get(name, "")
        return {"name": name, "reason": reason, "hint": None, "warnings": []}
    return {
        "name": name,
        "reason": verdict_reason(report),
        "hint": report.hint,
        "warnings": other_warnings(report),
    }


def _evidence(report: Report | None, reader: ConversationReader | None) -> list[Values]:
    """The lines that prove the verdict, with the step of each if it is known."""
    if report is None:
        return []
    steps = {} if reader is None else reader.evidence()
    return [{"line": line, "step": steps.get(line)} for line in report.evidence]


def _facts(subject: Subject) -> list[tuple[str, str, str]]:
    """Label, value and explanation of each figure."""
    run = subject.run
    session = subject.session
    if run is not None:
        one: RunSummary | SessionSummary = run
        tokens = run.tokens
        nano = run.cost_nano
        source = run.cost_source if run.cost_source != "unknown" else ""
    elif session is not None:
        one = session
        tokens = session.totals.tokens
        nano = session.totals.cost_nano
        source = ""
    else:
        return []
    facts = [
        ("cost", _or_dash(nano_to_usd(nano), format_money), source),
        ("tokens", _or_dash(tokens.total, format_compact), _cached_part(cache_hit_rate(tokens))),
        ("time", _or_dash(one.duration_ms, format_duration), ""),
        ("turns", _or_dash(one.turns, format_number), ""),
        ("context peak", *_context_fact(one)),
    ]
    if run is not None:
        failed = f"{run.tool_errors:,} failed" if run.tool_errors else ""
        denied = f"{run.denials:,} denied" if run.denials else ""
        facts.append(("tool calls", f"{run.tools:,}", ", ".join(filter(None, (failed, denied)))))
        facts.append(("files changed", f"{run.files:,}", ""))
    return facts


def _cached_part(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.0%} from the cache"


def _or_dash(value: Any, format_value: Any) -> str:
    return "–" if value is None else str(format_value(value))


def _context_fact(one: RunSummary | SessionSummary) -> tuple[str, str]:
    if one.context_peak is None:
        return "–", ""
    limit = f"of {format_compact(one.context_limit)}" if one.context_limit else ""
    return format_compact(one.context_peak), limit


def _context_values(store: Store, subject: Subject) -> Values | None:
    """The chart of the context, with how full it is now."""
    if subject.session is None:
        return None
    run = subject.run.id if subject.run is not None else None
    samples = context_queries.context_history(store, subject.session, run)
    if not samples:
        return None

    def describe(index: int) -> str:
        sample = samples[index]
        used = f"{sample.used:,} tokens ({sample.fraction:.0%})"
        return f"request {index + 1:,}: {used}, {clean_lines(sample.model)}"

    points = [Sample(sample.fraction, sample.compacted) for sample in samples]
    chart = context_chart(points, CONTEXT_LEVELS, describe)
    last = samples[-1]
    compactions = sum(sample.compacted for sample in samples)
    return {
        "chart": chart,
        "requests": len(samples),
        "compactions": compactions,
        "used": last.used,
        "limit": last.limit,
        "fraction": last.fraction,
        "levels": CONTEXT_LEVELS,
    }


def _call_links(subject: Subject, reader: ConversationReader | None) -> Callable[[str], str]:
    """The address of the step of a call; empty if it is not known."""

    def link(call: str) -> str:
        number = None if reader is None else reader.step_of_call(call)
        if number is None:
            return ""
        start = "" if number <= STEPS_PER_SLICE else f"?from={number - STEPS_BEFORE}"
        return f"{subject.path}{start}#step-{number}"

    return link


def tool_timeline(report: Report, link: Callable[[str], str]) -> Any:
    """The calls of each tool over time; parallel calls are stacked, gaps are the first row."""
    start = report.started_at
    calls = [call for call in report.tools if call.started_at is not None]
    if start is None or not calls:
        return None
    times = [_call_times(call, start) for call in calls]
    total = max(float(report.duration_ms or 0), max(end for _, end in times))
    waits = _waits(times, total)
    shown = sorted(zip(times, calls, strict=True), key=lambda item: item[0][0] - item[0][1])
    spans = [
        *(
            _wait_span(*wait)
            for wait in sorted(waits, key=lambda wait: wait[0] - wait[1])[:MAX_SPANS]
        ),
        *(_call_span(call, *span, link(call.id)) for span, call in shown[:MAX_SPANS]),
    ]
    return timeline(spans, total, format_duration, "tool calls")


def _call_times(call: ToolCallSummary, start: datetime) -> tuple[float, float]:
    """Start and end in milliseconds since the start of the run."""
    at = max(0.0, ((call.started_at or start) - start).total_seconds() * 1000)
    return at, at + (call.duration_ms or 0)


def _call_span(call: ToolCallSummary, start: float, end: float, link: str) -> Span:
    kind = ""
    if call.denied:
        kind = "warn"
    elif call.ok is False:
        kind = "bad"
    row = call.name if call.parent is None else f"↳ {call.name}"
    state = "denied" if call.denied else {True: "", False: "failed", None: "no result"}[call.ok]
    length = format_duration(end - start)
    title = " ".join(filter(None, (call.name, length, state, call.error or "")))
    return Span(clean_lines(row), start, end, clean_lines(title), kind, link)


def _waits(times: Sequence[tuple[float, float]], total: float) -> list[tuple[float, float]]:
    """The times in which no tool ran: the model worked, or the run waited."""
    waits = []
    done = 0.0
    for start, end in sorted(times):
        if start - done > MIN_WAIT_MS:
            waits.append((done, start))
        done = max(done, end)
    if total - done > MIN_WAIT_MS:
        waits.append((done, total))
    return waits


def _wait_span(start: float, end: float) -> Span:
    return Span(WAIT_ROW, start, end, f"no tool ran for {format_duration(end - start)}", "wait")


def _attempts(store: Store, subject: Subject) -> list[RunSummary]:
    """The other runs of the task, or the runs of the session, oldest first."""
    where = WhereClause()
    if subject.run is None:
        where.add("session = ?", subject.id)
    elif subject.run.task is None:
        return []
    else:
        where.add("task = ?", subject.run.task)
    found = runs.list_runs(store, where, MAX_ATTEMPTS_SHOWN)[::-1]
    return found if subject.run is None or len(found) > 1 else []


# -- conversation, files, raw lines ----------------------------------------------------------------


def conversation_slice(
    subject: Subject, conversations: ConversationCache, start: int | None
) -> Slice | None:
    """Steps from a number on; by default the first ones, or the last ones of an active run."""
    if subject.source is None:
        return None
    reader = conversations.get(subject.source)
    if start is None:
        start = 1
        if subject.is_active:
            start = max(1, len(reader) - 40)
    return reader.slice(start)


def file_values(store: Store, subject: Subject, conversations: ConversationCache) -> Values:
    """The changed files with their patches; without both contents, what the calls reported."""
    changes = stored_changes(store, subject.table, subject.id)
    patches: dict[str, list[str]] = {}
    text = redact((changes.patch or b"").decode("utf-8", "replace"))
    name = ""
    for line in islice(text.splitlines(), MAX_PATCH_LINES):
        if line.startswith("diff --git "):
            name = line.rpartition(" b/")[2]
        patches.setdefault(name, []).append(line)
    if subject.source is not None and any(one.path not in patches for one in changes.changes):
        patches = {**conversations.get(subject.source).patches(), **patches}
    return {
        "subject": subject,
        "changes": changes.changes,
        "patches": patches,
        "patch_source": changes.patch_source,
        "missing": changes.missing_content,
        "is_cut": text.count("\n") > MAX_PATCH_LINES,
    }


def raw_values(subject: Subject, start: int) -> Values:
    """Lines of the recording, without secrets."""
    lines: list[tuple[int, str]] = []
    has_more = False
    if subject.source is not None:
        found = islice(_stdout_lines(subject.source), start - 1, start + RAW_LINES_PER_PAGE)
        lines = [(number, _raw_text(line)) for number, line in enumerate(found, start)]
        has_more = len(lines) > RAW_LINES_PER_PAGE
    return {
        "subject": subject,
        "lines": lines[:RAW_LINES_PER_PAGE],
        "start": start,
        "next_start": start + RAW_LINES_PER_PAGE if has_more else None,
        "previous_start": max(1, start - RAW_LINES_PER_PAGE) if start > 1 else None,
    }


def _stdout_lines(path: str) -> Iterator[bytes]:
    """The lines that the agent printed. SourceError if the file is no recording."""
    recording = ReplaySource(Path(path))
    if recording.is_unrecognized:
        raise SourceError(f"{path}: not a recording")
    return lines_from_chunks(record.data for record in recording.records() if record.code == "out")


def _raw_text(line: bytes) -> str:
    text = redact(line.rstrip(b"\r\n").decode("utf-8", "replace"))
    if len(text) <= MAX_RAW_CHARS:
        return text
    return f"{text[:MAX_RAW_CHARS]} … ({len(text):,} characters)"


def context_meter(fraction: float) -> Any:
    """A bar with the colour of the level that is reached."""
    kind = "ok" if fraction < 0.7 else "warn" if fraction < 0.95 else "bad"
    return meter(fraction, f"{fraction:.0%} of the context", kind)
