"""Write a small ledger row by row for tests of queries: sessions, requests and their sums.

It doesn't use the import, so that queries are tested against independent figures.
"""

import zlib
from collections.abc import Iterable
from typing import Any

from steno.ledger.store import Store
from steno.report import Report

HOUR = 3_600_000
PROJECT = "/home/ada/engine"
MODEL = "claude-opus-5-5"
SPEND = (
    "requests",
    "input",
    "cache_write",
    "cache_read",
    "output",
    "reasoning",
    "cache_write_1h",
    "reported_nano",
    "computed_nano",
    "saved_nano",
    "unpriced",
    "unpriced_tokens",
)


class Book:
    """A ledger being written."""

    def __init__(self, store: Store) -> None:
        tables = ("requests", "calls", "texts")
        used = [store.query(f"SELECT max(id) FROM {table}")[0][0] or 0 for table in tables]
        self.store, self._next = store, max(used)

    def _number(self) -> int:
        self._next += 1
        return self._next

    def insert(self, table: str, **values: Any) -> None:
        """One row."""
        marks = ", ".join("?" * len(values))
        self.store.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", list(values.values())
        )

    def session(self, name: str, **values: Any) -> str:
        """A session; what is not given is plain."""
        given = {
            "agent": "claude",
            "project": PROJECT,
            "prompts": 1,
            "compactions": 0,
            "model": MODEL,
            **values,
        }
        self.insert("sessions", id=name, **given)
        return name

    def request(self, session: str, at: int, **values: Any) -> None:
        """A request of a session, and its part of the sums."""
        given: dict[str, Any] = {
            "agent": "claude",
            "model": MODEL,
            "kind": "request",
            "requests": int(values.get("kind", "request") == "request"),
            "source": "computed",
            "cost_nano": 1_000_000,
        }
        given |= {
            "input": 10,
            "cache_write": 20,
            "cache_read": 70,
            "output": 5,
            "reasoning": 0,
            "cache_write_1h": 0,
        }
        given |= {"saved_nano": 500_000, **values}
        self.insert("requests", id=self._number(), session=session, at=at, **given)
        self._spend(session, at, given)

    def _spend(self, session: str, at: int, given: dict[str, Any]) -> None:
        cost, tokens = (
            given["cost_nano"],
            sum(given[name] for name in ("input", "cache_write", "cache_read", "output")),
        )
        parts = {name: given.get(name, 0) for name in SPEND}
        parts |= {"requests": int(given["kind"] == "request"), "saved_nano": given["saved_nano"]}
        parts |= {"reported_nano": (cost or 0) * (given["source"] == "reported")}
        parts |= {"computed_nano": (cost or 0) * (given["source"] == "computed")}
        parts |= {"unpriced": int(cost is None), "unpriced_tokens": tokens if cost is None else 0}
        project = (
            self.store.query("SELECT project FROM sessions WHERE id = ?", (session,))[0][0] or ""
        )
        row = (session, given["model"], at // HOUR, given["agent"], project, *parts.values())
        added = ", ".join(f"{name} = spend.{name} + excluded.{name}" for name in SPEND)
        columns = ("session", "model", "hour", "agent", "project", *parts)
        self.store.upsert(
            "spend", columns, [row], f"ON CONFLICT (session, model, hour) DO UPDATE SET {added}"
        )

    def call(self, session: str, at: int, name: str = "Bash", **values: Any) -> None:
        """A tool call, and its part of the sums."""
        given: dict[str, Any] = {
            "agent": "claude",
            "kind": "shell",
            "ok": 1,
            "denied": 0,
            "duration_ms": 40,
            **values,
        }
        number = self._number()
        self.insert(
            "calls",
            id=number,
            call=f"call_{number}",
            session=session,
            request=0,
            name=name,
            at=at,
            **given,
        )
        ok, denied, took = given["ok"], given["denied"], given["duration_ms"]
        project = (
            self.store.query("SELECT project FROM sessions WHERE id = ?", (session,))[0][0] or ""
        )
        key = {"hour": at // HOUR, "agent": given["agent"], "project": project, "name": name}
        sums = {
            "calls": 1,
            "errors": int(ok == 0 and not denied),
            "denied": denied,
            "open": int(ok is None and not denied),
        }
        sums |= {"timed": int(took is not None), "total_ms": took or 0}
        added = ", ".join(f"{one} = tool_use.{one} + excluded.{one}" for one in sums)
        larger = (
            "CASE WHEN excluded.slowest_ms > tool_use.slowest_ms "
            "THEN excluded.slowest_ms ELSE tool_use.slowest_ms END"
        )
        columns = (*key, *sums, "slowest_ms")
        clash = (
            f"ON CONFLICT (hour, agent, project, name) DO UPDATE SET {added}, slowest_ms = {larger}"
        )
        self.store.upsert("tool_use", columns, [(*key.values(), *sums.values(), took or 0)], clash)

    def text(self, session: str, at: int, text: str, role: str = "answer") -> None:
        """Something that was said."""
        self.insert("texts", id=self._number(), session=session, role=role, at=at, text=text)

    def run(self, name: str, report: Report | None = None, **values: Any) -> str:
        """A run; with its report, if one is given."""
        given: dict[str, Any] = {
            "agent": "claude",
            "model": MODEL,
            "project": PROJECT,
            "verdict": "success",
            "ok": 1,
            "succeeded": 1,
        }
        given |= {
            "complete": 1,
            "cost_source": "reported",
            "cost_nano": 20_000_000,
            "tools": 0,
            "tool_errors": 0,
            "files": 0,
        }
        given |= {"denials": 0, "unknown": 0, **values}
        packed = None if report is None else zlib.compress(report.to_json())
        self.insert("runs", id=name, report=packed, **given)
        return name

    def source(self, path: str, kind: str = "transcript", **values: Any) -> None:
        """A file that was imported."""
        given = {
            "size": 1,
            "mtime_ns": 1,
            "inode": 1,
            "done": 1,
            "lines": 1,
            "head": "",
            "tail": "",
            "imported_at": 1,
            **values,
        }
        self.insert("sources", path=path, kind=kind, **given)


def hours(first: int, many: int, step: int = HOUR) -> Iterable[int]:
    """Instants at even distances."""
    return range(first, first + many * step, step)
