"""Usage limits: observations of status line, events and failed runs; pace; on both databases."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from steno.ledger.importer import import_sources
from steno.ledger.queries.limits import LimitStatus, list_limits
from steno.ledger.rebuild import rebuild
from steno.ledger.rows import LIMIT_COLUMNS
from steno.ledger.store import Store, open_ledger
from tests.support.claude_lines import assistant, failed, init, result, stream, text
from tests.support.ledger_builder import HOUR, Book
from tests.support.scripted_place import Place

NOW = 1_794_746_096_000
MINUTE = 60_000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def observe(
    store: Store,
    window: str,
    minutes_ago: int,
    used: float | None,
    resets_at: int | None,
    source: str = "statusline",
    agent: str = "claude",
) -> None:
    row = (agent, "", window, NOW - minutes_ago * MINUTE, used, resets_at, None, source)
    store.upsert("limits", LIMIT_COLUMNS, [row], "")


def test_the_pace_is_that_of_the_last_hour(book: Book) -> None:
    reset = NOW + 2 * HOUR
    for minutes_ago, used in ((170, 0.05), (50, 0.22), (20, 0.34), (0, 0.42)):
        observe(book.store, "five_hour", minutes_ago, used, reset)
    observe(book.store, "five_hour", 400, 0.99, NOW - 300 * MINUTE)  # of the window before
    (limit,) = list_limits(book.store, NOW)
    assert limit == LimitStatus(
        agent="claude",
        account=None,
        window="five_hour",
        utilization=0.42,
        status=None,
        resets_at=reset,
        observed_at=NOW,
        source="statusline",
        rate_per_hour=limit.rate_per_hour,
        used_up_at=None,  # lasts until the reset
    )
    assert round(limit.rate_per_hour or 0, 9) == 0.24


def test_used_up_before_the_reset(book: Book) -> None:
    """With one observation the pace is the mean since the window began."""
    observe(book.store, "five_hour", 0, 0.6, NOW + 3 * HOUR)
    observe(book.store, "seven_day", 0, 0.5, NOW + 84 * HOUR)
    short, long = list_limits(book.store, NOW)
    assert (short.window, round(short.rate_per_hour or 0, 9)) == ("five_hour", 0.3)
    assert short.used_up_at == NOW + 80 * MINUTE
    assert (long.window, long.used_up_at) == ("seven_day", None)  # exactly at the reset


def test_after_a_reset_nothing_is_known(book: Book) -> None:
    observe(book.store, "five_hour", 90, 1.0, NOW - MINUTE, "error", "codex")
    observe(book.store, "seven_day_opus", 3, None, None, "event")
    observe(book.store, "five_hour", 9 * 24 * 60, 0.5, NOW - 8 * 24 * HOUR)  # too old
    opus, codex = list_limits(book.store, NOW)
    assert (codex.agent, codex.utilization, codex.rate_per_hour) == ("codex", None, None)
    assert (opus.window, opus.utilization, opus.resets_at) == ("seven_day_opus", None, None)


def stored(store: Store) -> list[tuple[object, ...]]:
    return [
        tuple(row)
        for row in store.query(
            "SELECT agent, window_kind, utilization, resets_at, status, source FROM limits "
            "ORDER BY observed_at"
        )
    ]


def test_events_of_a_run_are_stored(place: Place, tmp_path: Path) -> None:
    """Also when the ledger is rebuilt; a recording of somebody else without times is not."""
    event = {
        "type": "rate_limit_event",
        "rate_limit_info": {
            "status": "allowed_warning",
            "resetsAt": 1_899_999_999,
            "rateLimitType": "five_hour",
            "utilization": 0.93,
        },
    }
    place.plan({"out": stream(init(), event, assistant(text("done")), result()).decode()})
    assert place.steno("run", "x").returncode == 0
    with closing(open_ledger(str(place.data / "ledger.db"))) as store:
        wanted = [("claude", "five_hour", 0.93, 1_899_999_999_000, "allowed_warning", "event")]
        assert stored(store) == wanted
        rebuild(store)
        assert stored(store) == wanted
        copy = tmp_path / "copy"
        shutil.copytree(
            Path(__file__).parents[1] / "recordings/claude/2.1.325/ratelimit_headers_oauth", copy
        )
        import_sources(store, [str(copy)])
        assert stored(store) == wanted


def test_a_run_that_a_limit_stopped(place: Place) -> None:
    """The error names the time of the reset; there is no event."""
    lines = stream(init(), failed("Claude AI usage limit reached|1899999999"))
    place.plan({"out": lines.decode(), "exit": 1})
    assert place.steno("run", "--max-wait", "1", "x").returncode == 75
    with closing(open_ledger(str(place.data / "ledger.db"))) as store:
        assert stored(store) == [("claude", "unknown", 1.0, 1_899_999_999_000, "rejected", "error")]
