"""The tables of the ledger for their page: the columns of a fresh SQLite ledger, with the comments of the migrations."""

import re
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from steno.ledger.schema import MIGRATIONS
from steno.ledger.store import open_ledger

ABOUT = {
    "sources": "A file that was imported, and how far.",
    "glances": "A transcript of which only the requests were read, for a report that needed no more.",
    "sessions": "A conversation of an agent.",
    "tasks": "What was asked of `steno run`: one or more runs.",
    "runs": "A process of an agent, from its start to its exit.",
    "requests": "A request to a model.",
    "calls": "A call of a tool.",
    "changes": "A file that was changed.",
    "denials": "A call that was refused.",
    "texts": "A prompt or an answer; full-text search has an index of its own.",
    "pruned": "Requests and calls whose rows are gone while their sums stay.",
    "spend": "Sums of requests by the hour, session and model.",
    "tool_use": "Sums of calls by the hour, agent, project and tool.",
    "notes": "What people wrote down.",
    "budgets": "Limits of spending.",
}
ALIKE = {  # names that mean the same in every table
    "session": "the id in `sessions`",
    "run": "the id in `runs`",
    "task": "the id in `tasks`",
    "agent": "its name, such as `claude`",
    "project": "the folder that the agent worked in",
    "context_used": "of the main thread's last request",
    "kind": "what kind of tool it is, such as `shell` or `file_edit`",
    "cache_write_1h": "the part of `cache_write` that is kept for an hour",
    "saved_nano": "what reading from the cache saved",
    "hour": "hours since 1970 (UTC)",
    "seq": "the order in which the rows came",
    "at": "when",
    "verdict": "a word of [verdicts](verdicts.md)",
    "id": "its name",
    "agent_version": "as the agent tells it",
    "model": "the model's name",
    "prompt": "the beginning of what was asked",
    "parent": "the call of the subagent that it belongs to; NULL: the main thread",
    "started_at": "when it began",
    "ended_at": "when it was over",
    "first_at": "when the first thing happened in it",
    "last_at": "when the last one did",
    "imported_at": "when it was read",
    "set_at": "when it was set",
    "mtime_ns": "when the file was changed last, in nanoseconds",
    "inode": "the file's number on its disk",
    "duration_ms": "how long it took",
    "attempt": "its number within its task, from 1",
    "attempts": "how many runs it took",
    "context_limit": "the window of its model",
    "context_peak": "the fullest that it was",
    "compactions": "how often the conversation was replaced by a summary",
    "requests": "requests to a model",
    "calls": "calls of it",
    "input": "tokens: neither written to the cache nor read from it",
    "cache_write": "tokens written to the cache",
    "cache_read": "tokens read from the cache",
    "output": "tokens that the model wrote",
    "reasoning": "the part of `output` that is reasoning",
    "reported_nano": "what the agents reported",
    "computed_nano": "what was computed from the price table",
    "unpriced_tokens": "their tokens",
    "session_nano": "the session so far, where the agent counts over sessions",
    "denied": "it was refused; in sums: how many were",
    "tools": "calls of tools",
    "tool_errors": "those that failed",
    "files": "files that were changed",
    "denials": "calls that were refused",
    "inside": "whether it lies inside the project",
    "name": "the tool's name",
    "tool": "the tool's name",
    "text": "what was said",
    "limit_nano": "how much may be spent",
    "slowest_ms": "the longest of them",
    "call": "the agent's own id of the call",
    "reason": "the agent's words for it",
    "message": "the agent's own id of it",
    "ok": "whether it ended well; see the [report](report.md)",
    "succeeded": "see the [report](report.md)",
    "complete": "see the [report](report.md)",
    "error": "what went wrong",
    "error_category": "see the [report](report.md)",
    "exit_code": "of its process",
    "signal": "that ended its process",
    "turns": "the agent's own count",
}


class Column(NamedTuple):
    """One column: its name, SQLite's type for it, whether it may be NULL, and what its comment says."""

    name: str
    kind: str
    nullable: bool
    what: str


def comments() -> dict[str, str]:
    """What the migrations say, by `table` and by `table.column`."""
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
    """Every table of a ledger that was just made, in the order in which the migrations make them."""
    said = comments()
    named = [name for _, text in MIGRATIONS for name in re.findall(r"CREATE TABLE (\w+)", text)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        open_ledger(str(path)).close()
        ledger = sqlite3.connect(path)
        found = {}
        for name in named:
            rows = ledger.execute(f"PRAGMA table_info({name})").fetchall()
            found[name] = [
                Column(row[1], row[2], not row[3] and not row[5], _meaning(said, name, row[1]))
                for row in rows
            ]
        ledger.close()
    return {
        name: columns for name, columns in found.items() if columns
    }  # one that a later migration drops is none


def _meaning(said: dict[str, str], table: str, column: str) -> str:
    if table == "glances":
        return said.get(f"{table}.{column}") or "as in [sources](#sources)"
    return said.get(f"{table}.{column}") or ALIKE.get(column, "")


def parts() -> list[tuple[str, str, list[list[str]]]]:
    """Each table with a sentence on it and its rows for the page."""
    found = tables()
    if set(found) - set(ABOUT):
        raise SystemExit(f"ledger.md: no sentence for {sorted(set(found) - set(ABOUT))}")
    return [
        (
            name,
            ABOUT[name],
            [
                [f"`{one.name}`", f"{one.kind}{' or NULL' * one.nullable}", one.what]
                for one in columns
            ],
        )
        for name, columns in found.items()
    ]
