"""Generate the page on ledger tables: columns of a new ledger with the migrations' comments."""

import re
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from steno.ledger.schema import MIGRATIONS
from steno.ledger.store import open_ledger

ABOUT = {
    "sources": "Imported files, and the position reached in each.",
    "glances": "Transcripts of which only the requests were read, for a usage report.",
    "sessions": "Conversations of an agent.",
    "tasks": "Tasks of `steno run`: one or more runs each.",
    "runs": "Processes of an agent, from start to exit.",
    "requests": "Requests to a model.",
    "calls": "Tool calls.",
    "changes": "Changed files.",
    "denials": "Denied tool calls.",
    "texts": "Prompts and answers; full-text search has its own index.",
    "pruned": "Ids of deleted rows, so that no import adds them again.",
    "spend": "Sums of requests by hour, session and model.",
    "tool_use": "Sums of tool calls by hour, agent, project and tool.",
    "notes": "Notes on runs and sessions.",
    "budgets": "Spending limits.",
}
COMMON_COLUMNS = {  # the same meaning in every table
    "session": "the id in `sessions`",
    "run": "the id in `runs`",
    "task": "the id in `tasks`",
    "agent": "its name, such as `claude`",
    "project": "the agent's working folder",
    "context_used": "of the main thread's last request",
    "kind": "kind of tool, such as `shell` or `file_edit`",
    "cache_write_1h": "part of `cache_write` cached for an hour",
    "saved_nano": "saved by reading from the cache",
    "hour": "hours since 1970 (UTC)",
    "seq": "order of insertion",
    "at": "time",
    "verdict": "see [verdicts](verdicts.md)",
    "id": "unique id",
    "agent_version": "as reported by the agent",
    "model": "the model's name",
    "prompt": "start of the prompt",
    "parent": "call that started the subagent; NULL: main thread",
    "started_at": "start time",
    "ended_at": "end time",
    "first_at": "first activity",
    "last_at": "last activity",
    "imported_at": "time of the import",
    "set_at": "time of the last change",
    "mtime_ns": "last change of the file, in nanoseconds",
    "inode": "the file's number on its disk",
    "duration_ms": "duration",
    "attempt": "its number within its task, from 1",
    "attempts": "number of runs",
    "context_limit": "the window of its model",
    "context_peak": "largest size",
    "compactions": "number of compactions",
    "requests": "requests to a model",
    "calls": "number of calls",
    "input": "tokens: neither written to the cache nor read from it",
    "cache_write": "tokens written to the cache",
    "cache_read": "tokens read from the cache",
    "output": "tokens written by the model",
    "reasoning": "the part of `output` that is reasoning",
    "reported_nano": "reported by the agents",
    "computed_nano": "computed from the price table",
    "unpriced_tokens": "tokens of requests without a price",
    "session_nano": "the session so far, where the agent counts over sessions",
    "denied": "whether it was denied; in sums: number of denied calls",
    "tools": "number of tool calls",
    "tool_errors": "number of failed tool calls",
    "files": "number of changed files",
    "denials": "number of denied calls",
    "inside": "whether it is inside the project",
    "name": "the tool's name",
    "tool": "the tool's name",
    "text": "the text",
    "limit_nano": "the limit",
    "slowest_ms": "longest duration",
    "call": "the agent's own id of the call",
    "reason": "reason given by the agent",
    "message": "the agent's own id of it",
    "ok": "whether it succeeded; see the [report](report.md)",
    "succeeded": "see the [report](report.md)",
    "complete": "see the [report](report.md)",
    "error": "error message",
    "error_category": "see the [report](report.md)",
    "exit_code": "of the process",
    "signal": "that terminated the process",
    "turns": "the agent's own count",
}


class Column(NamedTuple):
    """One column with its SQLite type and description."""

    name: str
    kind: str
    nullable: bool
    description: str


def comments() -> dict[str, str]:
    """Return the comments in the migrations, by `table` and `table.column`."""
    found, table = {}, ""
    for _, text in MIGRATIONS:
        for line in text.split("\n"):
            made = re.match(r"(?:CREATE|ALTER) TABLE (\w+)(?: ADD COLUMN (\w+))?", line)
            column = made[2] if made else next(iter(re.findall(r"^ +(\w+) ", line)), None)
            table = made[1] if made else table
            if "-- " in line:
                found[f"{table}.{column}" if column else table] = line.partition("-- ")[2].strip()
    return found


def tables() -> dict[str, list[Column]]:
    """Return the columns of each table of a new ledger, in the order of creation."""
    said = comments()
    named = [name for _, text in MIGRATIONS for name in re.findall(r"CREATE TABLE (\w+)", text)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_ledger(str(path)).close()
        ledger = sqlite3.connect(path)
        found = {}
        for name in named:
            info = ledger.execute(f"PRAGMA table_info({name})").fetchall()
            found[name] = [
                Column(column, kind, not (not_null or key), _meaning(said, name, column))
                for _, column, kind, not_null, _default, key in info
            ]
        ledger.close()
    return {name: columns for name, columns in found.items() if columns}  # without dropped ones


def _meaning(said: dict[str, str], table: str, column: str) -> str:
    if table == "glances":
        return said.get(f"{table}.{column}") or "as in [sources](#sources)"
    return said.get(f"{table}.{column}") or COMMON_COLUMNS.get(column, "")


def parts() -> list[tuple[str, str, list[list[str]]]]:
    """Return each table with its description and its rows for the page."""
    found = tables()
    if set(found) - set(ABOUT):
        raise SystemExit(f"ledger.md: no description for {sorted(set(found) - set(ABOUT))}")
    return [
        (
            name,
            ABOUT[name],
            [
                [
                    f"`{column.name}`",
                    f"{column.kind}{' or NULL' * column.nullable}",
                    column.description,
                ]
                for column in columns
            ],
        )
        for name, columns in found.items()
    ]
