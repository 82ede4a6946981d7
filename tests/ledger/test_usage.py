"""Usage reports: sums of `spend` equal those of the requests, in every zone, on both databases."""

import random
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from steno.errors import StenoError
from steno.ledger.queries import filters as where
from steno.ledger.queries import usage as sums
from steno.ledger.queries.filters import (
    Filters,
    TimeRange,
    TimeZone,
    current_period,
    parse_time,
    parse_time_range,
    period_name,
    time_before,
)
from steno.ledger.queries.runs import list_runs, runs_where
from steno.ledger.queries.usage import tool_sums
from steno.ledger.store import Row, Store
from steno.ledger.totals import ContextPeak, ToolCallStats, UsageTotals, WastedCost, sum_totals
from tests.support.ledger_builder import HOUR, MODEL, PROJECT, Book

ZONES = [
    "UTC",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
]


def at(text: str) -> int:
    """Milliseconds since 1970 of a time in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000)


NOW = at("2026-11-15T12:34:56")


# -- time zones and ranges -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ZONES)
def test_offsets_are_those_of_the_zone(name: str) -> None:
    zone, truth = TimeZone(name), ZoneInfo(name)
    first, last = at("2024-01-01"), at("2027-01-01")
    segments = zone.offset_segments(first, last)
    for moment_ in range(first, last, 5 * HOUR + 1_234_567):
        wanted = datetime.fromtimestamp(moment_ / 1000, truth).utcoffset()
        found = [one.offset_minutes for one in segments if one.start_ms <= moment_][-1]
        assert timedelta(minutes=found) == wanted == timedelta(minutes=zone.offset_minutes(moment_))
        assert zone.to_local(moment_) == datetime.fromtimestamp(moment_ / 1000, truth).replace(
            tzinfo=None
        )


def test_changes_of_the_offset_are_found_to_the_minute() -> None:
    segments = TimeZone("America/New_York").offset_segments(at("2026-01-01"), at("2026-12-31"))
    assert [(one.start_ms, one.offset_minutes) for one in segments] == [
        (at("2026-01-01"), -300),
        (at("2026-03-08T07:00"), -240),
        (at("2026-11-01T06:00"), -300),
    ]


@pytest.mark.parametrize("name", [*ZONES, "America/Santiago", "Africa/Cairo"])
def test_a_day_begins_where_the_local_date_changes(name: str) -> None:
    zone = TimeZone(name)
    day = date(2026, 1, 1)
    while day < date(2027, 1, 1):
        begins = zone.start_of_day(day)
        assert (zone.to_local(begins).date(), zone.to_local(begins - 1).date()) == (
            day,
            day - timedelta(days=1),
        )
        day += timedelta(days=1)


def test_a_zone_that_is_none() -> None:
    for name in ("Mars/Olympus", "../../etc/passwd", "Europe", "a\x00b"):
        with pytest.raises(StenoError, match="unknown time zone"):
            TimeZone(name)


def test_the_own_zone_follows_tz(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    for name, minutes in (
        ("Asia/Kathmandu", 345),
        (":America/New_York", -300),
        ("EST5EDT,M3.2.0,M11.1.0", -300),
        ("", 0),
    ):
        monkeypatch.setenv("TZ", name)
        time.tzset()
        assert (TimeZone().offset_minutes(NOW), TimeZone().name) == (
            minutes,
            name.removeprefix(":") or "UTC",
        )
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("24h", "2026-11-14T12:34:56"),
        ("1d", "2026-11-14T12:34:56"),
        ("7d", "2026-11-08T12:34:56"),
        ("3w", "2026-10-25T11:34:56"),  # the wall clock of New York: summer time ended in between
        ("1m", "2026-10-15T11:34:56"),
        ("9m", "2026-02-15T12:34:56"),
        ("11m", "2025-12-15T12:34:56"),
        ("1y", "2025-11-15T12:34:56"),
        ("7days", "2026-11-08T12:34:56"),
        ("99999y", "1970-01-01"),
        ("99999d", "1970-01-01"),
    ],
)
def test_so_long_ago(text: str, wanted: str) -> None:
    assert time_before(TimeZone("America/New_York"), NOW, text) == at(wanted)


def test_a_month_before_the_31st() -> None:
    assert time_before(TimeZone("UTC"), at("2026-03-31T10:00"), "1m") == at("2026-02-28T10:00")
    assert time_before(TimeZone("UTC"), at("2026-12-31T10:00"), "1m") == at("2026-11-30T10:00")


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("2026-11-01", "2026-11-01T04:00", "2026-11-02T05:00"),  # a day of 25 hours
        ("2026-11-01T10:00", "2026-11-01T15:00", "2026-11-01T15:00"),
        ("2026-11-01 10:00", "2026-11-01T15:00", "2026-11-01T15:00"),
        ("2026-11-01T10:00Z", "2026-11-01T10:00", "2026-11-01T10:00"),
        ("2026-11-01T10:00+02:00", "2026-11-01T08:00", "2026-11-01T08:00"),
        ("today", "2026-11-15T05:00", "2026-11-16T05:00"),
        ("Yesterday", "2026-11-14T05:00", "2026-11-15T05:00"),
        ("now", "2026-11-15T12:34:56", "2026-11-15T12:34:56"),
        ("3d", "2026-11-12T12:34:56", "2026-11-12T12:34:56"),
    ],
)
def test_moments(text: str, begins: str, ends: str) -> None:
    assert parse_time(TimeZone("America/New_York"), NOW, text, "--since") == (at(begins), at(ends))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-13-01",
        "10:00",
        "7",
        "7x",
        "2026-11",
        "-3d",
        "1.5d",
        "9999-12-32",
        "1969-12-31T00:00",
    ],
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(StenoError, match="--since"):
        parse_time(TimeZone("UTC"), NOW, text, "--since")


@pytest.mark.parametrize("name", ["UTC", "America/New_York", "Pacific/Kiritimati", None])
def test_the_last_day_of_the_calendar_is_a_day(name: str | None) -> None:
    """It ends with the calendar, in every zone."""
    zone = TimeZone(name)
    begins, ends = parse_time(zone, NOW, "9999-12-31", "--until")
    assert zone.to_local(begins) == datetime(9999, 12, 31)
    assert zone.to_local(ends) == datetime(9999, 12, 31, 23, 59, 59, 999_000)


def test_spans() -> None:
    utc = TimeZone("UTC")
    assert parse_time_range(utc, NOW) == TimeRange()
    assert parse_time_range(utc, NOW, last="1d") == TimeRange(at("2026-11-14T12:34:56"), None)
    assert parse_time_range(utc, NOW, "2026-11-01", "2026-11-03") == TimeRange(
        at("2026-11-01"), at("2026-11-04")
    )
    with pytest.raises(StenoError, match="--last and --since"):
        parse_time_range(utc, NOW, since="2026-11-01", last="3d")
    with pytest.raises(StenoError, match="--until is before"):
        parse_time_range(utc, NOW, "2026-11-05", "2026-11-03")
    with pytest.raises(StenoError, match="--last soon"):
        parse_time_range(utc, NOW, last="soon")


def test_periods_and_their_names() -> None:
    zone = TimeZone("Europe/Berlin")
    assert current_period(zone, NOW, "day") == TimeRange(
        at("2026-11-14T23:00"), at("2026-11-15T23:00")
    )
    assert current_period(zone, NOW, "week") == TimeRange(
        at("2026-11-08T23:00"), at("2026-11-15T23:00")
    )
    assert current_period(zone, NOW, "month") == TimeRange(
        at("2026-10-31T23:00"), at("2026-11-30T23:00")
    )
    assert current_period(zone, at("2026-12-31T12:00"), "month") == TimeRange(
        at("2026-11-30T23:00"), at("2026-12-31T23:00")
    )
    assert [period_name(date(2027, 1, 1), unit) for unit in ("day", "week", "month")] == [
        "2027-01-01",
        "2026-W53",
        "2027-01",
    ]
    assert period_name(None, "week") is None


# -- sums ----------------------------------------------------------------------------------------


SEED = 7
MOMENTS = [
    at("2026-03-01"),
    at("2026-10-20"),
    at("2026-11-10"),
]  # around changes of the clocks in both directions


def scattered(book: Book, many: int) -> list[tuple[int, str, str, dict[str, int | str | None]]]:
    """Requests at odd times, and what each of them is."""
    dice = random.Random(SEED)
    names = [book.session(f"{number:08x}-0000", project=f"/p/{number % 3}") for number in range(6)]
    made = []
    with book.store.transaction():
        for _ in range(many):
            when = dice.choice(MOMENTS) + dice.randrange(14 * 24 * HOUR)
            session, model = (
                dice.choice(names),
                dice.choice([MODEL, "claude-haiku-4-5", "nameless"]),
            )
            cost = None if model == "nameless" else dice.randrange(10**7)
            given: dict[str, int | str | None] = {"model": model, "cost_nano": cost}
            given["source"] = "unknown" if cost is None else dice.choice(["reported", "computed"])
            given |= {
                name: dice.randrange(1000)
                for name in ("input", "cache_write", "cache_read", "output", "saved_nano")
            }
            book.request(session, when, **given)
            made.append((when, session, model, given))
    return made


def added(
    made: list[tuple[int, str, str, dict[str, int | str | None]]], key: object, chosen: TimeRange
) -> dict[str | None, UsageTotals]:
    """The same sums by plain addition."""
    found: dict[str | None, UsageTotals] = {}
    for when, session, model, given in made:
        if (chosen.since or 0) <= when < (chosen.until or 1 << 62):
            name = key(when, session, model)  # type: ignore[operator]
            cost, source = given["cost_nano"], given["source"]
            counters = [
                int(given[one] or 0) for one in ("input", "cache_write", "cache_read", "output")
            ]
            one = UsageTotals(1, *counters)
            one.reported_nano = int(cost or 0) if source == "reported" else 0
            one.computed_nano = int(cost or 0) if source == "computed" else 0
            one.saved_nano = int(given["saved_nano"] or 0)
            one.unpriced, one.unpriced_tokens = (
                int(cost is None),
                sum(counters) if cost is None else 0,
            )
            found[name] = found.get(name, UsageTotals()).plus(one)
    return found


SPANS = [
    TimeRange(),
    TimeRange(at("2026-03-08T05:00"), at("2026-11-12T05:00")),
    TimeRange(at("2026-03-05T10:17:23"), at("2026-11-14T18:45:01")),
    TimeRange(at("2026-10-25T10:10"), at("2026-10-25T10:50")),
    TimeRange(at("2026-10-25T10:10"), None),
    TimeRange(None, at("2026-03-09T03:30")),
]


def test_sums_over_spend_are_those_over_the_requests(book: Book) -> None:
    """Whichever way days and spans cut the hours."""
    made = scattered(book, 700)
    for name in ZONES:
        zone, truth = TimeZone(name), ZoneInfo(name)
        for chosen in SPANS:
            for unit in ("day", "week", "month"):
                wanted = added(
                    made,
                    lambda when, *_, unit=unit, truth=truth: period_name(
                        datetime.fromtimestamp(when / 1000, truth).date(), unit
                    ),
                    chosen,
                )
                lines = sums.group_spend(book.store, unit, zone, Filters(chosen))
                assert {line.key: line.totals for line in lines} == wanted, (name, chosen, unit)
                assert [line.key for line in lines] == sorted(wanted, key=str)


@pytest.mark.parametrize("chosen", SPANS)
def test_sums_by_other_keys(book: Book, chosen: TimeRange) -> None:
    made = scattered(book, 200)
    keys = {
        "session": lambda when, session, model: session,
        "model": lambda when, session, model: model,
        "project": lambda when, session, model: f"/p/{int(session[:8], 16) % 3}",
        "agent": lambda when, session, model: "claude",
    }
    for by, key in keys.items():
        lines = sums.group_spend(book.store, by, TimeZone("UTC"), Filters(chosen))
        assert {line.key: line.totals for line in lines} == added(made, key, chosen)
        costs = [line.totals.cost_nano or 0 for line in lines]
        assert costs == sorted(costs, reverse=True)


def test_filters(book: Book) -> None:
    made = scattered(book, 200)
    utc = TimeZone("UTC")
    chosen = TimeRange(at("2026-03-05T10:17:23"), None)
    filters = Filters(
        chosen,
        where.resolve_projects(book.store, "1"),
        where.resolve_models(book.store, "HAIKU"),
        where.resolve_agents(book.store, "claude"),
    )
    assert (filters.projects, filters.models, filters.agents) == (
        ("/p/1",),
        ("claude-haiku-4-5",),
        ("claude",),
    )
    wanted = added(
        [one for one in made if one[2] == "claude-haiku-4-5" and int(one[1][:8], 16) % 3 == 1],
        lambda *_: "claude",
        chosen,
    )
    assert {
        line.key: line.totals for line in sums.group_spend(book.store, "agent", utc, filters)
    } == wanted
    assert sums.group_spend(book.store, "day", utc, Filters(projects=())) == []


def test_names_of_projects(book: Book) -> None:
    for number, project in enumerate(("/a/app", "/b/app", "/c/app2", None)):
        book.session(f"s{number}", project=project)
    assert where.resolve_projects(book.store, None) is None
    assert where.resolve_projects(book.store, "/a/app/") == ("/a/app",)
    assert where.resolve_projects(book.store, "app") == ("/a/app", "/b/app")
    assert where.resolve_projects(book.store, "pp") == ()
    assert where.resolve_models(book.store, "gpt") == ()


def test_after_pruning_an_hour_counts_as_a_whole(book: Book) -> None:
    """The sums stay exact; an hour that contains midnight then counts for its first day."""
    made = scattered(book, 300)
    book.store.execute("DELETE FROM requests")
    kolkata = TimeZone("Asia/Kolkata")
    lines = sums.group_spend(book.store, "day", kolkata, Filters())
    hourly = added(
        made, lambda when, *_: kolkata.to_local(when // HOUR * HOUR).date().isoformat(), TimeRange()
    )
    assert {line.key: line.totals for line in lines} == hourly


def test_time_that_is_not_known_is_no_day(book: Book) -> None:
    book.session("s")
    book.request("s", 0)
    for name in ("UTC", "Pacific/Auckland", "America/New_York", "Asia/Kolkata"):
        assert [
            line.key for line in sums.group_spend(book.store, "month", TimeZone(name), Filters())
        ] == [None]


# -- runs and sessions ---------------------------------------------------------------------------


def test_usage_says_what_was_wasted_and_what_has_no_price(book: Book) -> None:
    book.session("s1", first_at=NOW - HOUR, last_at=NOW, context_peak=90_000, context_limit=200_000)
    book.session("s2", first_at=NOW - 99 * HOUR, last_at=NOW - 98 * HOUR, context_peak=150_000)
    book.session("s3", first_at=NOW - HOUR, last_at=NOW)
    book.request("s1", NOW)
    book.request("s1", NOW, model="nameless", cost_nano=None, source="unknown", saved_nano=0)
    book.run("r1", started_at=NOW, verdict="max_turns", cost_nano=5)
    book.run("r2", started_at=NOW, verdict="api", cost_nano=None, cost_source="unknown")
    book.run("r3", started_at=NOW, verdict="success", cost_nano=70)
    book.run("r4", started_at=NOW, verdict=None, cost_nano=None)
    book.run("r5", started_at=NOW - 99 * HOUR, verdict="killed", cost_nano=900)
    found = sums.usage_report(
        book.store, "day", TimeZone("UTC"), Filters(TimeRange(NOW - 2 * HOUR, None))
    )
    assert (found.wasted, found.peak_context) == (
        WastedCost(2, 5, 1),
        ContextPeak(90_000, 200_000, "s1"),
    )
    assert [
        (line.key, line.totals.unpriced, line.totals.unpriced_tokens) for line in found.unpriced
    ] == [("nameless", 1, 105)]
    assert (found.total.requests, found.total.cost_nano, found.total.unpriced) == (2, 1_000_000, 1)
    assert sums.usage_report(
        book.store, "day", TimeZone("UTC"), Filters()
    ).peak_context == ContextPeak(150_000, None, "s2")


def test_an_attempt_of_a_task_that_succeeded_is_not_failed(book: Book) -> None:
    """Waste is judged by task; a task that is active or failed has failed attempts."""
    outcomes = {"done": "success", "lost": "max_turns", "active": None}
    for task, verdict in outcomes.items():
        book.insert("tasks", id=task, verdict=verdict, attempts=2)
        book.run(f"{task} 1", started_at=NOW, task=task, verdict="rate_limit", cost_nano=10)
    book.run("done 2", started_at=NOW, task="done", verdict="success", cost_nano=10)
    book.run("lost 2", started_at=NOW, task="lost", verdict="max_turns", cost_nano=10)
    book.run("alone", started_at=NOW, verdict="api", cost_nano=10)
    assert sums.failed_run_cost(book.store, Filters()) == WastedCost(4, 40, 0)
    failed = list_runs(book.store, runs_where(Filters(), [], failed=True, session=None))
    assert sorted(run.id for run in failed) == ["active 1", "alone", "lost 1", "lost 2"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (UsageTotals(), 0),
        (UsageTotals(requests=2, unpriced=2), None),
        (UsageTotals(requests=2, unpriced=1), 0),
        (UsageTotals(requests=2, unpriced=1, computed_nano=5, reported_nano=2), 7),
    ],
)
def test_unknown_cost_is_null_and_never_0(given: UsageTotals, wanted: int | None) -> None:
    assert given.cost_nano == wanted
    assert given.as_json()["cost"]["usd"] == (None if wanted is None else wanted / 1e9)


def test_the_worked_figures_of_the_meter() -> None:
    """M1."""
    one = UsageTotals(input=9, cache_write=12871, cache_read=36391, output=510)
    assert (one.tokens.total, round(one.cache_hit_rate or 0, 3)) == (49_781, 0.739)
    assert UsageTotals(output=5).cache_hit_rate is None


def test_tools(book: Book) -> None:
    book.session("s", first_at=NOW - 9 * HOUR, last_at=NOW)
    book.call("s", NOW, duration_ms=100)
    book.call("s", NOW - HOUR, ok=0, duration_ms=None)
    book.call("s", NOW - 8 * HOUR, ok=0, denied=1, duration_ms=20)
    book.call("s", NOW - 8 * HOUR, ok=None, duration_ms=None)
    book.call("s", NOW, name="Read", duration_ms=0)
    lines, total = tool_sums(book.store, Filters())
    assert lines == [
        ToolCallStats(4, 1, 1, 1, 2, 120, 100, "Bash"),
        ToolCallStats(1, 0, 0, 0, 1, 0, 0, "Read"),
    ]
    assert total == ToolCallStats(5, 1, 1, 1, 3, 120, 100)
    assert (lines[0].error_rate, lines[0].mean_ms, ToolCallStats(2, denied=2).error_rate) == (
        0.5,
        60,
        None,
    )
    assert tool_sums(book.store, Filters(projects=(PROJECT,)))[1] == total
    assert tool_sums(book.store, Filters(projects=("/other",))) == ([], ToolCallStats())
    cut, _ = tool_sums(book.store, Filters(TimeRange(NOW - HOUR, NOW)))
    assert cut == [ToolCallStats(1, 1, 0, 0, 0, 0, None, "Bash")]


# -- speed ---------------------------------------------------------------------------------------


class Watched:
    """A ledger that remembers what it was asked."""

    def __init__(self, store: Store) -> None:
        self._store, self.asked = store, list[tuple[str, list[object]]]()

    def query(self, sql: str, values: list[object] | None = None) -> list[Row]:
        self.asked.append((sql, values or []))
        return self._store.query(sql, values or ())

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.mark.parametrize("by", ["day", "week", "month", "project", "model", "agent", "session"])
@pytest.mark.parametrize("chosen", [TimeRange(), TimeRange(at("2026-11-01"), at("2026-12-01"))])
def test_a_report_never_touches_the_requests(book: Book, by: str, chosen: TimeRange) -> None:
    """Reports only add up sums, and SQLite reads the hours in table order, without sorting."""
    scattered(book, 30)
    store = Watched(book.store)
    zone, filters = TimeZone("America/New_York"), Filters(chosen)
    assert sums.usage_report(store, by, zone, filters).total.requests  # type: ignore[arg-type]
    assert [sql for sql, _ in store.asked if "requests r" in sql or "FROM requests" in sql] == []
    if book.store.kind == "sqlite" and by in ("day", "week", "month"):
        sql, values = store.asked[1]
        plan = " ".join(
            str(row[3]) for row in book.store.query(f"EXPLAIN QUERY PLAN {sql}", values)
        )
        assert plan.count("TEMP B-TREE") == 1  # for the sums by hour, not for the rows


@pytest.mark.parametrize("name", ["UTC", "Asia/Kolkata"])
def test_hours_that_are_cut_are_found_by_an_index(book: Book, name: str) -> None:
    scattered(book, 30)
    store = Watched(book.store)
    since = TimeRange(at("2026-03-02T10:17"), None)
    sums.group_spend(
        store,  # type: ignore[arg-type]  # a wrapper that notes the queries
        "day",
        TimeZone(name),
        Filters(since),
    )
    sql, values = store.asked[-1]
    assert "requests r" in sql
    if book.store.kind == "sqlite":
        plan = " ".join(
            str(row[3]) for row in book.store.query(f"EXPLAIN QUERY PLAN {sql}", values)
        )
        assert "SEARCH r USING INDEX requests_session (session=? AND at>? AND at<?)" in plan


def test_the_course_of_the_cost(book: Book) -> None:
    book.session("s")
    for hour in range(0, 100, 25):
        book.request("s", NOW // HOUR * HOUR + hour * HOUR, cost_nano=hour + 1)
    book.request("s", NOW // HOUR * HOUR + 99 * HOUR, model="other", cost_nano=5)
    first = NOW // HOUR * HOUR
    assert sums.spend_history(book.store, "model", Filters(), 4) == {
        MODEL: [1, 26, 51, 76],
        "other": [0, 0, 0, 5],
    }
    assert (
        sums.spend_history(
            book.store, "agent", Filters(TimeRange(first + 25 * HOUR, first + 76 * HOUR)), 16
        )["claude"][0]
        == 26
    )
    assert (
        sums.spend_history(book.store, "model", Filters(TimeRange(first, first + 3 * HOUR)), 16)
        == {}
    )
    assert sums.spend_history(book.store, "model", Filters(models=()), 16) == {}


# -- models and blocks ---------------------------------------------------------------------------


def test_each_row_has_its_models(book: Book) -> None:
    """By cost, also in hours that midnight cuts; the rows of the models add up to the row."""
    session = book.session("one")
    book.request(session, at("2026-11-14T18:20"), model="cheap", cost_nano=1)
    book.request(session, at("2026-11-14T18:40"), model="dear", cost_nano=7)
    book.request(session, at("2026-11-14T18:50"), model="cheap", cost_nano=2)
    book.request(session, at("2026-11-14T18:50"), model="free", cost_nano=None, source="unknown")
    rows = sums.group_spend(book.store, "day", TimeZone("Asia/Kolkata"), Filters())
    assert [
        (row.key, [(model.key, model.totals.cost_nano) for model in row.models]) for row in rows
    ] == [
        ("2026-11-14", [("cheap", 1)]),
        ("2026-11-15", [("dear", 7), ("cheap", 2), ("free", None)]),
    ]
    assert all(row.totals == sum_totals(m.totals for m in row.models) for row in rows)
    by_model = sums.group_spend(book.store, "model", TimeZone("UTC"), Filters())
    assert [(row.key, row.models) for row in by_model] == [
        ("dear", []),
        ("cheap", []),
        ("free", []),
    ]


def test_blocks_start_with_a_request_and_last_five_hours(book: Book) -> None:
    session = book.session("one")
    for moment in (
        "2026-11-14T01:10",
        "2026-11-14T05:59",
        "2026-11-14T06:00",
        "2026-11-15T11:04:56",
    ):
        book.request(session, at(moment), cost_nano=3 * 10**9)
    book.request(book.session("two"), at("2026-11-15T12:10"), model="other", cost_nano=10**9)
    blocks = sums.usage_blocks(book.store, TimeZone("UTC"), Filters(), NOW)
    assert [(block.start, block.row.totals.requests, block.is_active) for block in blocks] == [
        (at("2026-11-14T01:00"), 2, False),
        (at("2026-11-14T06:00"), 1, False),
        (at("2026-11-15T11:00"), 2, True),
    ]
    active = blocks[-1]
    assert (active.first_at, active.end) == (at("2026-11-15T11:04:56"), at("2026-11-15T16:00"))
    assert [model.key for model in active.row.models] == [MODEL, "other"]
    # 4 dollars and 210 tokens in 90 minutes; 205 minutes and 4 seconds are left.
    assert active.burn_rate.usd_per_hour == pytest.approx(4 / 1.5)
    assert active.burn_rate.tokens_per_minute == pytest.approx(210 / 90)
    left = (at("2026-11-15T16:00") - NOW) / 60_000
    assert active.projection.usd == pytest.approx(4 + 4 / 90 * left)
    assert active.projection.tokens == round(210 + 210 / 90 * left)
    recent = Filters(TimeRange(at("2026-11-14T10:59"), at("2026-11-15T11:00")))
    found = sums.usage_blocks(book.store, TimeZone("UTC"), recent, NOW)
    assert [block.start for block in found] == [at("2026-11-14T06:00")]
    other = sums.usage_blocks(book.store, TimeZone("UTC"), Filters(models=("other",)), NOW)
    assert [(block.start, block.row.totals.requests) for block in other] == [
        (at("2026-11-15T12:00"), 1)
    ]
