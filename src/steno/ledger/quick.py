"""The ledger for the status line: a few figures and one write, with the standard library alone.

Claude Code runs its status line several times a minute, so neither the store nor msgspec is loaded
(measured as CPU time: 24 ms, where `steno limits` takes 49 ms). It never creates or migrates a
ledger, waits at most LOCK_SECONDS for other processes, and knows SQLite only: a server would have
to be connected to.
"""

import os
import sqlite3
import time
from contextlib import closing, suppress

LOCK_SECONDS = 0.05
HOUR_SECONDS = 3600
STORE_AFTER_MS = 600_000  # an unchanged observation is stored again after ten minutes
Limits = dict[str, tuple[float, int | None]]  # by window: used part, reset in seconds
SPENT_SQL = "SELECT coalesce(sum(reported_nano + computed_nano), 0) FROM spend WHERE "
LAST_OBSERVATION_SQL = (
    "SELECT utilization, resets_at, observed_at FROM limits WHERE agent = ? AND account = '' "
    "AND window_kind = ? ORDER BY observed_at DESC LIMIT 1"
)
INSERT_SQL = "INSERT OR IGNORE INTO limits VALUES (?, '', ?, ?, ?, ?, NULL, 'statusline')"


def ledger_path() -> str | None:
    """The file of an existing SQLite ledger; None if there is none."""
    path = os.environ.get("STENO_LEDGER")
    if not path:
        from platformdirs import user_data_dir

        path = os.path.join(user_data_dir("steno", appauthor=False), "ledger.db")  # noqa: PTH118
    if path.startswith("sqlite:///"):
        path = path.removeprefix("sqlite://").replace("//", "/", 1)
    return path if "://" not in path and os.path.isfile(path) else None  # noqa: PTH113


class QuickLedger:
    """An open ledger. Every failure counts as "unknown": the status line must not break."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)

    def close(self) -> None:
        self._connection.close()

    def spent_nano(
        self, since: float, session: str, session_nano: int | None, project: str
    ) -> int | None:
        """Spending since a time in a project ("" for all), with this session's own total.

        The session's transcript may not be imported yet: its total replaces what the ledger has,
        less the part before `since`. Whole hours, which is exact unless the zone's offset is not.
        """
        hour = int(since // HOUR_SECONDS)
        own = f"session = '{session}'" if session.replace("-", "").isalnum() else "1 = 0"
        condition = "AND project = ?" if project else ""
        values = (hour, project) if project else (hour,)
        if session_nano is None:
            return self._sum(f"hour >= ? {condition}", values)
        others = self._sum(f"hour >= ? {condition} AND NOT {own}", values)
        before = self._sum(f"{own} AND hour < ?", (hour,))
        if others is None or before is None:
            return None
        return others + max(0, session_nano - before)

    def _sum(self, where: str, values: tuple[object, ...]) -> int | None:
        try:
            ((total,),) = self._connection.execute(SPENT_SQL + where, values)
        except sqlite3.Error:
            return None
        return int(total)

    def budgets(self, project: str) -> list[tuple[str, str, int]]:
        """Period, project and limit of the budgets that apply."""
        sql = "SELECT period, project, limit_nano FROM budgets WHERE project IN ('', ?)"
        try:
            return list(self._connection.execute(sql, (project,)))
        except sqlite3.Error:
            return []

    def store_limits(self, agent: str, limits: Limits) -> None:
        """Store what has changed since the last observation; given up if the ledger is locked."""
        now = int(time.time() * 1000)
        with suppress(sqlite3.Error):
            for window, (used, resets_at) in limits.items():
                resets_ms = None if resets_at is None else resets_at * 1000
                rows = list(self._connection.execute(LAST_OBSERVATION_SQL, (agent, window)))
                is_known = any(
                    row[:2] == (used, resets_ms) and now - row[2] < STORE_AFTER_MS for row in rows
                )
                if not is_known:
                    self._connection.execute(INSERT_SQL, (agent, window, now, used, resets_ms))


def open_quick_ledger() -> "closing[QuickLedger] | None":
    """The ledger for a `with` block; None if there is none, or it cannot be opened."""
    path = ledger_path()
    try:
        return None if path is None else closing(QuickLedger(path))
    except sqlite3.Error:
        return None
