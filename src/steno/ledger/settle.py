"""The agent's own account of a run against the requests that are known of it, so that the sums are what the agent says.

The account is the truth about a run's cost. Requests are booked at their own time and price; what the account says more
or less, for each model, is one row beside them (kind `rest`). A request that only a transcript shows, made while a run with
an account went on in the same session, is in that account: a compaction, a helper, a subagent in the background.
"""

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from ..meter import plain as plain_name
from ..prices import NANO
from ..redact import redact
from ..report import Model, Report
from .store import Row, Store
from .sums import HOUR, REQUEST, SPEND_KEY, SPENT, Sums, adding, replacing, spent
from .values import MOST, Request, number

COUNTERS = ("input", "cache_write", "cache_read", "output")
ACCOUNTS = ("reported", "local")  # where the whole cost of a run is known from: the agent; a server that costs nothing
SLACK = 5_000  # milliseconds around a run in which a request of its session is still its own: a start before the first line
_NAMES = ", ".join(REQUEST)


def nano(usd: float | None) -> int | None:
    """Dollars as nano-dollars; what no column holds is not known."""
    return round(usd * NANO) if usd is not None and abs(usd) * NANO < MOST else None


def stored(store: Store, run: str) -> Report | None:
    """The report of a run, as it was booked; None where there is none that this version can read."""
    rows = store.rows("SELECT report FROM runs WHERE id = ?", (run,))
    if not rows or rows[0][0] is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompress(rows[0][0]), type=Report)
    except (zlib.error, msgspec.MsgspecError):
        return None


def request_row(agent: str, told: Request, cost: int | None, saved: int, source: str, kind: str = "request") -> Row:
    """A row of `requests`."""
    figures = (told.input, told.cache_write, told.cache_read, told.output, told.reasoning, told.cache_write_1h)
    whose = (told.id, agent, told.session, told.run, kind, told.message, told.parent, told.model, told.at)
    return (*whose, *figures, cost, saved, source)


def enter(sums: Sums, row: Row, projects: dict[str, str], sign: int = 1) -> None:
    """Add a row of `requests` to the sums of `spend`, or take it away."""
    projects.setdefault(row[2], "")
    sums.add((row[2], row[7], row[8] // HOUR), spent(row), sign)


def put_spend(store: Store, sums: Sums, agent: str, projects: dict[str, str]) -> None:
    """Carry changes over to `spend`."""
    rows = [(*key, agent, projects[key[0]], *figures) for key, figures in sorted(sums.by_key.items())]
    store.put("spend", (*SPEND_KEY, "agent", "project", *SPENT), rows, adding("spend", SPEND_KEY, SPENT))


# -- whose a request is ------------------------------------------------------------------------------------------


class Running:
    """When the runs with an account went on, of some sessions."""

    def __init__(self, store: Store, sessions: Iterable[str]) -> None:
        names = list(sessions)
        self._spans: dict[str, list[tuple[int, int, str]]] = {}
        self.accounts: dict[str, str] = {}  # of each run, where its cost is known from
        for start in range(0, len(names), 500):
            part = names[start : start + 500]
            marks = ",".join("?" * len(part))
            columns, known = "session, started_at, ended_at, id, cost_source", ", ".join(f"'{name}'" for name in ACCOUNTS)
            asked = f"SELECT {columns} FROM runs WHERE cost_source IN ({known}) AND session IN ({marks})"  # noqa: S608
            for session, begun, ended, run, source in store.rows(asked, part):
                self._spans.setdefault(session, []).append((begun, ended, run))
                self.accounts[run] = source

    def __bool__(self) -> bool:
        return bool(self._spans)

    def at(self, session: str, at: int) -> str | None:
        """The run that went on in a session at a time: the one it lies in, else the nearest within the slack."""
        spans = self._spans.get(session)
        if spans is None:
            return None
        away, run = min((max(begun - at, at - ended, 0), run) for begun, ended, run in spans)
        return run if away <= SLACK else None


def adopt(store: Store, run: str, session: str, agent: str, account: str) -> None:
    """Take requests that a transcript told of before as those of this run, where they were made while it went on."""
    free = f"SELECT {_NAMES} FROM requests WHERE session = ? AND run IS NULL AND kind = 'request'"  # noqa: S608
    running = Running(store, [session])
    own = [row for row in store.rows(free, (session,)) if running.at(session, row[8]) == run]
    if not own:
        return
    sums, projects = Sums(), _projects(store, session)
    local = account == "local"
    rows = [(*row[:3], run, *row[4:15], *((0, 0) if local else (row[15] or 0, row[16])), account) for row in own]
    for old, new in zip(own, rows, strict=True):
        enter(sums, old, projects, -1)
        enter(sums, new, projects)
    store.put("requests", REQUEST, rows, replacing(REQUEST))
    put_spend(store, sums, agent, projects)


def _projects(store: Store, session: str) -> dict[str, str]:
    return dict(store.rows("SELECT id, coalesce(project, '') FROM sessions WHERE id = ?", (session,)))


# -- the rest ----------------------------------------------------------------------------------------------------


def settle(store: Store, runs: Iterable[str], gone: Sequence[Row] = ()) -> None:
    """For each run with an account, book what that says beyond the run's requests that are in the ledger, or were (`gone`)."""
    for run in runs:
        report = stored(store, run)
        if report is not None:
            rows = store.rows(f"SELECT {_NAMES} FROM requests WHERE run = ? AND kind = 'request'", (run,))  # noqa: S608
            put_rest(store, report, run, [*rows, *gone])


def put_rest(store: Store, report: Report, run: str, rows: Iterable[Row]) -> None:
    """Book what a report says beyond these rows of `requests`, model by model."""
    shown: dict[str, list[Row]] = {}
    for row in rows:
        shown.setdefault(row[7], []).append(row)
    at = store.rows("SELECT ended_at FROM runs WHERE id = ?", (run,))[0][0]
    account = _account(report, shown).items()
    _put_rest(store, report, [_rest_row(report, run, name, share, shown.get(name, []), at) for name, share in account])


def _put_rest(store: Store, report: Report, rest: Sequence[Row]) -> None:
    before = store.known("requests", REQUEST, [row[0] for row in rest])
    rest = [row for row in rest if row[0] in before or any(row[9:14]) or row[15]]
    if not rest:
        return
    sums, projects = Sums(), _projects(store, rest[0][2])
    for row in rest:
        if row[0] in before:
            enter(sums, before[row[0]], projects, -1)
        enter(sums, row, projects)
    store.put("requests", REQUEST, rest, replacing(REQUEST))
    put_spend(store, sums, report.agent or "unknown", projects)


def _account(report: Report, shown: dict[str, list[Row]]) -> dict[str, tuple[Model, int | None]]:
    """What the report says of each model: its tokens and its cost in nano-dollars."""
    total = nano(report.cost.usd)
    costs = {name: nano(model.cost_usd) for name, model in report.models.items()}
    if costs and None not in costs.values() and sum(cost or 0 for cost in costs.values()) == total:
        return {_name(name): (model, costs[name]) for name, model in report.models.items()}
    found: dict[str, tuple[Model, int | None]] = {_name(name): (model, None) for name, model in report.models.items()}
    main = _name(report.model or next(iter(report.models), None) or next(iter(shown), "unknown"))
    tokens = report.tokens
    model = found[main][0] if main in found else Model(tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)
    if total is not None:  # only the whole is known: the main model carries what the others' prices do not explain
        others = sum(row[15] or 0 for name, rows in shown.items() if name != main for row in rows)
        found[main] = (model, total - others)
    elif not found:
        found[main] = (model, None)
    return found


def _name(model: str) -> str:
    """A model as the ledger calls it."""
    return plain_name(redact(model))


def _rest_row(report: Report, run: str, name: str, account: tuple[Model, int | None], shown: list[Row], at: int) -> Row:
    share, cost = account
    figures = {}
    for place, counter in enumerate(COUNTERS, 9):
        told = getattr(share, counter)
        figures[counter] = 0 if told is None else told - sum(row[place] for row in shown)
    request = Request(number("rest", run, name), report.session_id or run, run, None, None, name, at, **figures)
    rest = None if cost is None else cost - sum(row[15] or 0 for row in shown)
    if cost is None and not any(figures.values()):
        rest = 0
    source = "unknown" if rest is None else report.cost.source if report.cost.source != "unknown" else "computed"
    return request_row(report.agent or "unknown", request, rest, 0, source, "rest")
