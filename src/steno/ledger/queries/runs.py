"""Runs: lists of them, one of them by an id prefix, their reports, and notes."""

import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, structs

from ...analysis.usage import nano_to_usd
from ...codec.redact import redact
from ...errors import StenoError
from ...report import Cost, ModelSummary, Report, Tokens
from ...units import DAY_MS
from ..protocol import Store, chunks, placeholders, query_column, query_value
from ..results import Note, RunSummary
from .filters import (
    FAILED_RUN_SQL,
    RETRIED_TASKS_SQL,
    Filters,
    TimeRange,
    WhereClause,
    select_columns,
)

# Without the last fields. Reserved words of SQL have other names.
RUN_SELECT_COLUMNS = select_columns(RunSummary.__struct_fields__[:-3])
# The report of a failed run that has no error says what was wrong.
UNEXPLAINED_REPORT_SQL = "CASE WHEN ok = 0 AND coalesce(error, '') = '' THEN report END"
RUN_RANKINGS = {
    "cost": "cost_nano",
    "tokens": "input + cache_write + cache_read + output",
    "time": "duration_ms",
    "turns": "turns",
    "context": "context_peak",
}
TOKEN_COLUMNS = ("input", "cache_write", "cache_read", "output", "reasoning")
# Of rows of `runs` and of their sums by day: all, those with a cost, those without success.
RUN_COUNTS_SQL = (
    "count(*), count(cost_nano), coalesce(sum(CASE WHEN verdict <> 'success' THEN 1 ELSE 0 END), 0)"
)
DAILY_COUNTS_SQL = (
    "coalesce(sum(runs), 0), coalesce(sum(priced), 0), "
    "coalesce(sum(CASE WHEN verdict IN ('success', '') THEN 0 ELSE runs END), 0)"
)
SHORT_ID_LENGTH = 8  # shown, unless more characters are needed to be unique
MIN_PREFIX_LENGTH = 4
PREFIXES_PER_QUERY = 100
MAX_DAY = 1 << 40  # after all days since 1970
MAX_MATCHES_SHOWN = 5  # in the message about an ambiguous prefix


class LedgerId(NamedTuple):
    table: str  # runs, sessions or tasks
    id: str


class UnknownEvents(NamedTuple):
    """The number of events of unknown kinds in a run."""

    agent: str | None
    agent_version: str | None
    events: int
    run: str


class SessionFigures(Struct, frozen=True):
    """Figures of a report that may include earlier runs of its session."""

    cost: Cost
    tokens: Tokens
    models: dict[str, ModelSummary]
    cache_hit_rate: float | None
    warnings: list[str]


class StoredReport(Report, kw_only=True):
    """A report in the ledger, reduced to the run's own part as far as earlier runs are known.

    `session_figures` are those before that: an earlier run may be imported later.
    """

    session_figures: SessionFigures | None = None


ReportT = TypeVar("ReportT", bound=Report)


# -- lists ---------------------------------------------------------------------------------------


class RunsWhere(WhereClause):
    """Conditions for runs. `by_day`: the same for their sums by day, where those are enough."""

    by_day: WhereClause | None = None
    time_range = TimeRange()


def runs_where(
    filters: Filters, verdicts: list[str], failed: bool, session: str | None
) -> RunsWhere:
    where = RunsWhere()
    where.add_all(filters.runs_where())
    if failed:
        where.add(FAILED_RUN_SQL)
    if verdicts:
        finished = [verdict for verdict in verdicts if verdict != "running"]
        running = " OR verdict IS NULL" if "running" in verdicts else ""
        where.add(f"(verdict IN ({placeholders(len(finished)) or 'NULL'}){running})", *finished)
    if session is not None:
        where.add("session = ?", session)
    if not (failed or session is not None or filters.needs_runs):
        by_day = WhereClause().add_names(filters)
        names = ["" if verdict == "running" else verdict for verdict in verdicts]
        where.by_day = by_day.add_in("verdict", names or None)
        where.time_range = filters.time_range
    return where


def iterate_runs(
    store: Store,
    where: WhereClause,
    limit: int | None = None,
    top: str | None = None,
    offset: int = 0,
) -> Iterator[RunSummary]:
    """Yield runs, newest first or ranked by `top`; those without the figure come last.

    `offset` skips the first ones, for pages of `limit` runs.
    """
    ranking = f"coalesce({RUN_RANKINGS[top]}, -1) DESC, " if top is not None else ""
    limit_sql = f" LIMIT {limit} OFFSET {offset}" if limit is not None else ""
    sql = (
        f"SELECT {RUN_SELECT_COLUMNS}, {UNEXPLAINED_REPORT_SQL} FROM runs{where.sql} "
        f"ORDER BY {ranking}started_at DESC NULLS LAST, id{limit_sql}"
    )
    for rows in store.stream(sql, where.values):
        runs = [RunSummary(*row) for row in rows]
        prefixes = short_ids(store, "runs", [run.id for run in runs])
        prompts = _task_prompts(store, [run.task for run in runs if (run.attempt or 1) > 1])
        for run in runs:
            run.short_id = prefixes[run.id]
            run.task_prompt = prompts.get(run.task)
        yield from runs


def _task_prompts(store: Store, tasks: Sequence[str | None]) -> dict[str | None, str]:
    """The prompts of tasks by ID: those of later attempts are often only `continue`."""
    prompts: dict[str | None, str] = {}
    for part in chunks(list(dict.fromkeys(filter(None, tasks))), PREFIXES_PER_QUERY):
        sql = f"SELECT id, prompt FROM tasks WHERE id IN ({placeholders(len(part))})"
        prompts.update((id_, prompt) for id_, prompt in store.query(sql, part) if prompt)
    return prompts


def list_runs(
    store: Store,
    where: WhereClause,
    limit: int | None = None,
    top: str | None = None,
    offset: int = 0,
) -> list[RunSummary]:
    """Return runs, newest first or ranked by `top`; those without the figure come last."""
    return list(iterate_runs(store, where, limit, top, offset))


def sum_runs(store: Store, where: WhereClause) -> dict[str, Any]:
    """Return the totals of all matching runs as JSON values."""
    columns = (*TOKEN_COLUMNS, "cost_nano", "turns", "duration_ms")
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in columns)
    count = priced = 0
    repaired = repaired_runs(where)
    sql = f"SELECT count(*) FROM runs{repaired.sql}"
    failed = -int(query_value(store, sql, repaired.values))
    totals = dict.fromkeys(columns, 0)
    for table, part in run_sum_tables(where):
        counts = DAILY_COUNTS_SQL if table == "daily_runs" else RUN_COUNTS_SQL
        sql = f"SELECT {counts}, {sums} FROM {table}{part.sql}"
        ((part_count, part_priced, part_failed, *figures),) = store.query(sql, part.values)
        count += int(part_count)
        priced += int(part_priced)
        failed += int(part_failed)
        for name, figure in zip(columns, figures, strict=True):
            totals[name] += int(figure)
    tokens = {name: totals[name] for name in TOKEN_COLUMNS}
    total_tokens = sum(tokens.values()) - tokens["reasoning"]  # reasoning is part of the output
    return {
        "runs": count,
        "failed": failed,
        "tokens": {**tokens, "total": total_tokens},
        "cost": {
            "usd": nano_to_usd(totals["cost_nano"]) if priced or not count else None,
            "unpriced_runs": count - priced,
        },
        "turns": totals["turns"],
        "duration_ms": totals["duration_ms"],
    }


def count_verdicts(store: Store, where: WhereClause) -> dict[str, int]:
    """Return the number of matching runs by verdict, most frequent first; `running` is one."""
    counts: dict[str, int] = {}
    for table, part in run_sum_tables(where):
        number = "sum(runs)" if table == "daily_runs" else "count(*)"
        sql = f"SELECT coalesce(verdict, ''), {number} FROM {table}{part.sql} GROUP BY 1"
        for verdict, count in store.query(sql, part.values):
            name = verdict or "running"
            counts[name] = counts.get(name, 0) + int(count)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def repaired_runs(where: WhereClause) -> WhereClause:
    """Of these runs, those that failed although another attempt completed their task."""
    return where.copy().add(f"verdict <> 'success' AND task IN ({RETRIED_TASKS_SQL})")


def run_sum_tables(where: WhereClause) -> Iterator[tuple[str, WhereClause]]:
    """The tables with the figures of the runs, and what to select of each.

    Whole days (UTC) have sums; at the ends of the time range runs are added up.
    """
    since = where.time_range.since if isinstance(where, RunsWhere) else None
    until = where.time_range.until if isinstance(where, RunsWhere) else None
    first = 0 if since is None else -(-since // DAY_MS)
    end = MAX_DAY if until is None else until // DAY_MS
    if not isinstance(where, RunsWhere) or where.by_day is None or first >= end:
        yield "runs", where
        return
    days = where.by_day.copy()
    if since is not None or until is not None:  # else also runs whose start is unknown
        days.add_range("day", first, end)
    yield "daily_runs", days
    if since is not None and since < first * DAY_MS:
        yield "runs", where.copy().add("started_at < ?", first * DAY_MS)
    if until is not None and until > end * DAY_MS:
        yield "runs", where.copy().add("started_at >= ?", end * DAY_MS)


def recent_unknown_events(store: Store, limit: int) -> list[UnknownEvents]:
    """Return the counts of the last runs, newest first."""
    sql = (
        "SELECT agent, agent_version, unknown, id FROM runs "
        "ORDER BY started_at DESC NULLS LAST, id LIMIT ?"
    )
    return [UnknownEvents(*row) for row in store.query(sql, (limit,))]


# -- ids -----------------------------------------------------------------------------------------


def short_ids(store: Store, table: str, ids: list[str]) -> dict[str, str]:
    """Return for each id its shortest prefix that is unique in a table."""
    heads = sorted({id_[:SHORT_ID_LENGTH] for id_ in ids})
    others: list[str] = []
    for part in chunks(heads, PREFIXES_PER_QUERY):
        condition = " OR ".join([prefix_sql(store, "id")] * len(part))
        values = [bound for head in part for bound in prefix_bounds(head)]
        others += query_column(store, f"SELECT id FROM {table} WHERE {condition}", values)
    return unique_prefixes(ids, others)


def prefix_sql(store: Store, column: str) -> str:
    """The condition that a column starts with a prefix; its values are `prefix_bounds`.

    A range, which an index answers. On PostgreSQL the order of bytes needs its own index.
    """
    if store.kind == "postgresql":
        column = f'{column} COLLATE "C"'
    return f"({column} >= ? AND {column} < ?)"


def prefix_bounds(prefix: str) -> tuple[str, str]:
    """The first text with the prefix, and one after all of them."""
    return prefix, prefix + chr(sys.maxunicode)


def unique_prefixes(ids: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Return for each id its prefix of at least SHORT_ID_LENGTH that no other id has."""
    by_head: dict[str, list[str]] = {}
    for other in others:
        by_head.setdefault(other[:SHORT_ID_LENGTH], []).append(other)
    prefixes = {}
    for id_ in ids:
        rivals = by_head.get(id_[:SHORT_ID_LENGTH], [])
        length = SHORT_ID_LENGTH
        while length < len(id_) and sum(other.startswith(id_[:length]) for other in rivals) > 1:
            length += 1
        prefixes[id_] = id_[:length]
    return prefixes


def ambiguous_prefix_error(prefix: str, kind: str, matches: Sequence[str]) -> StenoError:
    """Return the error for a prefix of several ids; `kind` is plural, such as `runs`."""
    more = " ..." if len(matches) > MAX_MATCHES_SHOWN else ""
    shown = ", ".join(matches[:MAX_MATCHES_SHOWN])
    return StenoError(f"{prefix}: ambiguous, matches several {kind}: {shown}{more}")


def find_by_prefix(store: Store, prefix: str) -> LedgerId | None:
    """Find a run, else a session, by id or id prefix. StenoError if it is ambiguous."""
    for table in ("runs", "sessions"):
        matches = _ids_with_prefix(store, table, prefix)
        if len(matches) > 1:
            raise ambiguous_prefix_error(prefix, table, matches)
        if matches:
            return LedgerId(table, matches[0])
    return None


def _ids_with_prefix(store: Store, table: str, prefix: str) -> list[str]:
    """Return the exact id, else all ids with the prefix (up to one more than is shown)."""
    exact = query_column(store, f"SELECT id FROM {table} WHERE id = ?", (prefix,))
    if exact or len(prefix) < MIN_PREFIX_LENGTH:
        return exact
    sql = (
        f"SELECT id FROM {table} WHERE {prefix_sql(store, 'id')} "
        f"ORDER BY id LIMIT {MAX_MATCHES_SHOWN + 1}"
    )
    return query_column(store, sql, prefix_bounds(prefix))


def get_by_prefix(store: Store, prefix: str) -> LedgerId:
    """As `find_by_prefix`; StenoError if there is no match."""
    match = find_by_prefix(store, prefix)
    if match is None:
        hint = f" (use at least {MIN_PREFIX_LENGTH} characters of the ID)"
        raise StenoError(
            f"{prefix}: no run or session with this ID in the ledger"
            f"{hint if len(prefix) < MIN_PREFIX_LENGTH else ''}"
        )
    return match


def short_id(store: Store, id_: str) -> str:
    """Return the shortest unique prefix of a run or session that is known to exist."""
    return short_ids(store, get_by_prefix(store, id_).table, [id_])[id_]


def get_session_by_prefix(store: Store, prefix: str) -> str:
    """Return the id of a session, which may be known from its runs only."""
    ids = _ids_with_prefix(store, "sessions", prefix)
    if not ids:
        sql = (
            f"SELECT DISTINCT session FROM runs WHERE {prefix_sql(store, 'session')} "
            "ORDER BY session"
        )
        ids = query_column(store, sql, prefix_bounds(prefix))
    if len(ids) > 1:
        raise ambiguous_prefix_error(f"--session {prefix}", "sessions", ids)
    if not ids:
        raise StenoError(f"--session {prefix}: no session with this ID in the ledger")
    return ids[0]


# -- one run -------------------------------------------------------------------------------------


def find_run(store: Store, id_: str) -> RunSummary | None:
    runs = list_runs(store, WhereClause().add("id = ?", id_), 1)
    return runs[0] if runs else None


def get_run(store: Store, id_: str) -> RunSummary:
    """Return the run with an id that is known to exist."""
    run = find_run(store, id_)
    if run is None:
        raise StenoError(f"{id_}: no run with this ID in the ledger")
    return run


def load_report(store: Store, run: str) -> Report | None:
    """Return the stored report of a run; None if there is none that this version can read."""
    return _load(store, run, Report)


def load_session_report(store: Store, run: str) -> Report | None:
    """Return the report of a run with the figures of its session; None if it has none."""
    report = _load(store, run, StoredReport)
    if report is None or report.session_figures is None:
        return None
    figures = report.session_figures
    own = {name: getattr(report, name) for name in Report.__struct_fields__}
    return Report(**{**own, **structs.asdict(figures)})


def _load(store: Store, run: str, type_: type[ReportT]) -> ReportT | None:
    data = query_value(store, "SELECT report FROM runs WHERE id = ?", (run,))
    if data is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompress(data), type=type_)
    except (zlib.error, msgspec.MsgspecError):
        return None


# -- notes ---------------------------------------------------------------------------------------


def list_notes(store: Store, table: str, id_: str) -> list[Note]:
    """Return the notes on a run or session, oldest first."""
    column = "run" if table == "runs" else "session"
    sql = f"SELECT at, text FROM notes WHERE {column} = ? ORDER BY at, id"
    return [Note(*row) for row in store.query(sql, (id_,))]


def add_note(store: Store, table: str, id_: str, at: int, text: str) -> None:
    """Add a note to a run or session, without secrets. StenoError if it is empty."""
    text = redact(text).strip()
    if not text:
        raise StenoError("the note is empty")
    column = "run" if table == "runs" else "session"
    with store.transaction():
        store.execute(f"INSERT INTO notes ({column}, at, text) VALUES (?, ?, ?)", (id_, at, text))
