"""The tables of the ledger: columns of a new SQLite ledger, with comments of the migrations."""

import re
import sqlite3
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from steno.ledger.schema import MIGRATIONS
from steno.ledger.store import open_ledger

TABLES = {
    "sources": "Imported files, and how far each was read.",
    "glances": "Transcripts of which only the requests were read, for a usage report.",
    "sessions": "Conversations of agents.",
    "tasks": "Tasks of `steno run`; each has one or more runs.",
    "runs": "Processes of agents, from start to exit.",
    "requests": "Requests to models.",
    "calls": "Tool calls.",
    "changes": "Changed files.",
    "denials": "Denied calls.",
    "texts": "Prompts and answers; full-text search has its own index.",
    "pruned": "Requests and calls whose rows were pruned; their sums remain.",
    "spend": "Sums of requests by hour, session and model.",
    "session_totals": "The agent's own totals of a session, at the end of its processes.",
    "inherited": "Requests that the file of another session repeats, such as that of a fork.",
    "tool_use": "Sums of calls by hour, agent, project and tool.",
    "hourly_spend": "Sums of `spend` by hour and model.",
    "daily_spend": "Sums of `spend` by day, agent, project and model.",
    "session_spend": "Sums of `spend` by session.",
    "daily_runs": "Sums of `runs` by day, agent, project, model and verdict.",
    "row_counts": "Number of rows of large tables.",
    "tool_totals": "Sums of `tool_use` by agent, project and tool.",
    "notes": "Notes written by people.",
    "budgets": "Spending limits.",
    "limits": "Observed usage limits of accounts.",
    "messages": "Messages between runs and people; kept for a week.",
    "message_reads": "Who has read which message.",
    "claims": "Claims on files: the holders and those who wait.",
    "permission_requests": "Calls that a person was asked to permit; kept for a week.",
    "presence": "State of active runs, for other machines.",
}
JOIN_RULES = [
    [
        "request",
        "one row, by the ID of its message and line (Claude Code up to 1.0.85: of its "
        "message and input; Qwen Code: by its figures and time). Counters of several "
        "copies: the largest; time: the earliest. It belongs to the session of the run "
        "that shows it, else to the one with the smaller ID (`inherited` has the others)",
    ],
    [
        "run",
        "two recordings of one process are one run; the one that names its run comes first",
    ],
    [
        "requests that only a session file shows",
        "belong to a run if its total has room for them: consecutive ones that make up "
        "exactly what is left, else those at the time of the run (5 s after its end at "
        "most); else to no run",
    ],
    [
        "total of a run",
        "what it has beyond the requests of the run is one row per model (`kind` rest); "
        "if the requests have more, they count",
    ],
    [
        "running totals of a session",
        "(`session_totals`: `cost-state` of Claude Code, `session.shutdown` of Copilot "
        "CLI, results that count over the session) add what they grew by beyond the "
        "requests and totals since the one before. A fork starts from the total at its "
        "beginning. Interrupted requests and those of killed processes are in none, and "
        "count",
    ],
    [
        "cost",
        "of requests: the price list. Where a run reports less than that for the same "
        "tokens, its total is shared among them; where it reports more, the difference is"
        " part of the rest",
    ],
    [
        "lower bounds",
        "requests without a final output that no total covers, and runs whose report says"
        " so, are `partial`: sums with one of them are marked as at least",
    ],
]
COMMON_COLUMNS = {  # the same meaning in every table
    "session": "id in `sessions`",
    "run": "id in `runs`",
    "task": "id in `tasks`",
    "agent": "name, such as `claude`",
    "project": "working directory of the agent",
    "context_used": "of the main thread's last request",
    "kind": "kind of tool, such as `shell` or `file_edit`",
    "cache_write_1h": "part of `cache_write` that is cached for an hour",
    "saved_nano": "savings from cache reads",
    "hour": "hours since 1970 (UTC)",
    "day": "days since 1970 (UTC); -1: unknown",
    "host": "machine that ran it",
    "user_name": "account, or the person who started the CI job",
    "repository": "git remote: host/path",
    "branch": "git branch at the start",
    "total": "number of rows",
    "seq": "insertion order",
    "at": "time",
    "verdict": "see [verdicts](verdicts.md)",
    "id": "primary key",
    "agent_version": "as reported by the agent",
    "model": "model name",
    "prompt": "start of the prompt",
    "parent": "call of the subagent it belongs to; NULL: main thread",
    "started_at": "start time",
    "ended_at": "end time",
    "first_at": "time of the first activity",
    "last_at": "time of the last activity",
    "imported_at": "time of the import",
    "set_at": "time when it was set",
    "mtime_ns": "modification time in nanoseconds",
    "inode": "inode of the file",
    "duration_ms": "duration",
    "attempt": "number within the task, from 1",
    "attempts": "number of runs",
    "context_limit": "context window of the model",
    "context_peak": "highest context usage",
    "compactions": "number of compactions",
    "requests": "number of requests",
    "calls": "number of calls",
    "input": "input tokens outside the cache",
    "cache_write": "tokens written to the cache",
    "cache_read": "tokens read from the cache",
    "output": "output tokens",
    "reasoning": "part of `output` that is reasoning",
    "reported_nano": "cost reported by the agent",
    "computed_nano": "cost computed from the price table",
    "unpriced": "requests without a price",
    "cost_nano": "cost",
    "tokens": "all tokens",
    "runs": "number of runs",
    "priced": "runs with a known cost",
    "turns": "turns as counted by the agent",
    "errors": "results with an error, without denials",
    "open": "calls without a result",
    "timed": "calls whose duration is known",
    "total_ms": "duration of those",
    "unpriced_tokens": "tokens of unpriced requests",
    "partial": "1 if its figures are a lower bound; in sums: number of those",
    "final": "whether the output is complete; else it is a lower bound",
    "session_nano": "cost of the session so far, if the agent counts per session",
    "denied": "denied; in sums: number of denied calls",
    "tools": "number of tool calls",
    "tool_errors": "number of failed tool calls",
    "files": "number of changed files",
    "denials": "number of denied calls",
    "inside": "whether the path is inside the project",
    "name": "tool name",
    "tool": "tool name",
    "text": "content",
    "limit_nano": "limit",
    "slowest_ms": "longest duration",
    "call": "the agent's id of the call",
    "reason": "reason given by the agent",
    "message": "the agent's id of the message",
    "ok": "success; see [report](report.md)",
    "succeeded": "see [report](report.md)",
    "complete": "see [report](report.md)",
    "error": "error message",
    "error_category": "see [report](report.md)",
    "exit_code": "exit code of the process",
    "signal": "signal that killed the process",
}


class Column(NamedTuple):
    name: str
    type: str
    nullable: bool
    meaning: str


def comments() -> dict[str, str]:
    """Comments of the migrations, by `table` and `table.column`."""
    found = {}
    table = ""
    for _, text in MIGRATIONS:
        for line in text.split("\n"):
            made = re.match(r"(?:CREATE|ALTER) TABLE (\w+)(?: ADD COLUMN (\w+))?", line)
            column = made[2] if made else next(iter(re.findall(r"^ +(\w+) ", line)), None)
            table = made[1] if made else table
            if "-- " in line:
                found[f"{table}.{column}" if column else table] = line.partition("-- ")[2].strip()
    return found


def tables() -> dict[str, list[Column]]:
    """Every table of a new ledger, in the order of the migrations."""
    column_comments = comments()
    names = [name for _, text in MIGRATIONS for name in re.findall(r"CREATE TABLE (\w+)", text)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_ledger(str(path)).close()
        ledger = sqlite3.connect(path)
        found = {}
        for name in names:
            rows = ledger.execute(f"PRAGMA table_info({name})").fetchall()
            found[name] = [
                Column(
                    row[1],
                    row[2],
                    not row[3] and not row[5],
                    column_comments.get(f"{name}.{row[1]}", ""),
                )
                for row in rows
            ]
        ledger.close()
    # A table dropped by a later migration has no columns.
    return {name: columns for name, columns in found.items() if columns}


def parts() -> dict[str, list[Column]]:
    """Each table with its columns; every table has a description."""
    found = tables()
    if missing := sorted(set(found) - set(TABLES)):
        raise SystemExit(f"ledger.md: no description for {missing}")
    return found


def common_columns(found: dict[str, list[Column]]) -> dict[str, str]:
    """Columns that have the same meaning in several tables."""
    shared = Counter(
        column.name
        for table, columns in found.items()
        for column in columns
        if table != "glances" and not column.meaning
    )
    return {name: text for name, text in COMMON_COLUMNS.items() if shared[name] > 1}


def lines(columns: list[Column], common: dict[str, str]) -> list[str]:
    """The columns of one table, aligned."""
    rows = [
        (
            column.name,
            column.type + ("?" if column.nullable else ""),
            column.meaning or ("" if column.name in common else COMMON_COLUMNS[column.name]),
        )
        for column in columns
    ]
    widths = [max(len(row[index]) for row in rows) for index in (0, 1)]
    return [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip() for row in rows]
