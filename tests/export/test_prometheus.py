"""Metrics for Prometheus, read by the parser of its own client; on both databases."""

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from steno.export.prometheus import CONTENT_TYPE, prometheus_text
from steno.ledger.queries.budget import set_budget
from steno.ledger.queries.filters import TimeZone
from steno.ledger.rows import LIMIT_COLUMNS
from tests.support.ledger_builder import Book
from tests.support.scripted_place import NEWEST, Place
from tests.web.conftest import fill, serving

NOW = 1_794_746_096_000
HOSTILE = 'a"b\\c\nd\x1b[31m\u202e} 1\n# TYPE x'


def parsed(text: str) -> dict[str, Any]:
    """The families by name: kind, help text, and values by labels."""
    families = {
        family.name: (
            family.type,
            {
                tuple(sample.labels.values()): (sample.name, sample.value)
                for sample in family.samples
            },
        )
        for family in text_string_to_metric_families(text)
    }
    lines = text.splitlines()
    assert sum(line.startswith("# TYPE ") for line in lines) == len(families)
    return families


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, (_, value) in parsed(text)[name][1].items()}


def metrics(book: Book, *active: str) -> str:
    return prometheus_text(book.store, TimeZone("UTC"), NOW, active)


def test_counters(book: Book) -> None:
    session = book.session("s1")
    book.session("s2", agent="codex", project="/other")
    book.request(session, NOW)
    book.request(session, NOW - 40 * 86_400_000, source="reported", cost_nano=2_500_000_000)
    book.request("s2", NOW, agent="codex", cost_nano=None)
    book.run("r1", started_at=NOW, duration_ms=1500)
    book.run("r2", started_at=NOW - 90 * 86_400_000, project="/other", duration_ms=500)
    book.run("r3", started_at=NOW, verdict="timeout", duration_ms=250)
    book.run("r4", started_at=NOW, verdict=None)  # active
    text = metrics(book, "claude", "claude", "gemini")
    families = parsed(text)
    assert families["steno_runs"] == (
        "counter",
        {
            ("claude", "success"): ("steno_runs_total", 2.0),
            ("claude", "timeout"): ("steno_runs_total", 1.0),
        },
    )
    assert values(text, "steno_run_seconds") == {("claude",): 2.25}
    assert values(text, "steno_requests") == {("claude",): 2.0, ("codex",): 1.0}
    assert values(text, "steno_tokens") == {
        ("claude", "input"): 20.0,
        ("claude", "cache_write"): 40.0,
        ("claude", "cache_read"): 140.0,
        ("claude", "output"): 10.0,
        ("codex", "input"): 10.0,
        ("codex", "cache_write"): 20.0,
        ("codex", "cache_read"): 70.0,
        ("codex", "output"): 5.0,
    }
    cost = values(text, "steno_cost_usd")
    assert (cost["claude", "reported"], cost["claude", "computed"]) == (2.5, 0.001)
    assert values(text, "steno_unpriced_requests") == {("claude",): 0.0, ("codex",): 1.0}
    assert families["steno_active_runs"][0] == "gauge"
    active = values(text, "steno_active_runs")
    assert (active["claude",], active["gemini",], active["codex",]) == (2.0, 1.0, 0.0)


def test_budgets_and_limits(book: Book) -> None:
    session = book.session("s1", project="/p")
    book.request(session, NOW, cost_nano=1_500_000_000)
    set_budget(book.store, "day", "", 5 * 10**9, NOW)
    set_budget(book.store, "month", "/p", 20 * 10**9, NOW)
    for account, window, used, resets in (
        ("me", "five_hour", 0.42, NOW + 3_600_000),
        ("", "seven_day", None, NOW + 7_200_000),
    ):
        row = ("claude", account, window, NOW, used, resets, None, "statusline")
        book.store.upsert("limits", LIMIT_COLUMNS, [row], "")
    text = metrics(book)
    budgets = {("day", ""): 5.0, ("month", "/p"): 20.0}
    assert values(text, "steno_budget_limit_usd") == budgets
    assert values(text, "steno_budget_spent_usd") == dict.fromkeys(budgets, 1.5)
    assert values(text, "steno_limit_used_ratio") == {("claude", "me", "five_hour"): 0.42}
    assert values(text, "steno_limit_reset_timestamp_seconds") == {
        ("claude", "me", "five_hour"): (NOW + 3_600_000) / 1000,
        ("claude", "", "seven_day"): (NOW + 7_200_000) / 1000,
    }


def test_hostile_names_add_no_series(book: Book) -> None:
    """Agents and verdicts of another version are one label; a project is escaped."""
    for number in range(300):
        name = f"agent-{number} {HOSTILE}"
        book.run(f"r{number}", agent=name, verdict=name, started_at=NOW, model=name, project=name)
        session = book.session(f"s{number}", agent=name)
        book.request(session, NOW, agent=name, model=name)
        set_budget(book.store, "day", f"/{number:03}{HOSTILE}".replace("\n", ""), 10**9, NOW)
    text = metrics(book, HOSTILE)
    assert values(text, "steno_runs") == {("other", "other"): 300.0}
    assert values(text, "steno_requests") == {("other",): 300.0}
    assert values(text, "steno_active_runs")["other",] == 1.0
    budgets = values(text, "steno_budget_limit_usd")
    assert len(budgets) == 100
    assert ("day", '/000a"b\\cd\\x1b[31m\\u202e} 1# TYPE x') in budgets
    assert "# 200 more budgets are not exported" in text.splitlines()
    assert len(text.splitlines()) < 300


def test_an_empty_ledger(book: Book) -> None:
    text = metrics(book)
    families = parsed(text)
    assert families["steno_runs"] == ("counter", {})
    assert set(values(text, "steno_active_runs").values()) == {0.0}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_textfile_agrees_with_the_reports(place: Place) -> None:
    cases = ("multi_tool_edit", "permission_denied", "api_429_exhausted")
    place.steno("ledger", "import", *(NEWEST / case for case in cases))
    target = place.work / "steno.prom"
    target.write_text("old\n")
    target.chmod(0o640)
    done = place.steno("usage", "--textfile", target, "--no-import")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in place.work.iterdir()] == ["steno.prom"]  # replaced atomically
    text = target.read_text()
    total = json.loads(place.steno("usage", "--json", "--no-import").stdout)["total"]
    tokens = values(text, "steno_tokens")
    for kind in ("input", "cache_write", "cache_read", "output"):
        assert tokens["claude", kind] == total["tokens"][kind]
    assert sum(values(text, "steno_cost_usd").values()) == pytest.approx(total["cost"]["usd"])
    rows = json.loads(place.steno("runs", "--json", "--no-import").stdout)["rows"]
    runs = values(text, "steno_runs")
    assert runs == {("claude", row["verdict"]): 1.0 for row in rows}
    shown = place.steno("usage", "--textfile", "-", "--no-import")
    assert shown.stdout.decode() == text


def test_wrong_use_of_the_textfile(place: Place) -> None:
    for words, label in (
        (("--last", "7d"), "--last"),
        (("--json",), "--json"),
        (("--agent", "claude"), "--agent"),
    ):
        done = place.steno("usage", "--textfile", "-", *words)
        expected = f"--textfile writes the whole ledger and cannot be used with {label}"
        assert (done.returncode, expected in done.stderr.decode()) == (2, True)
    done = place.steno("usage", "--textfile", "no/such/x.prom", "--no-import")
    text = "steno: no/such/x.prom: cannot write: No such file or directory\n"
    assert (done.returncode, done.stderr.decode()) == (2, text)


def test_the_page_has_metrics(tmp_path: Path) -> None:
    """With the page's access rules; an active run is counted."""
    place = Place(tmp_path)
    fill(place)
    with serving(place) as page:
        status, headers, data = page.get("/metrics")
        assert (status, headers["content-type"]) == (200, CONTENT_TYPE)
        assert headers["cache-control"] == "no-store"
        assert values(data.decode(), "steno_runs")["claude", "success"] >= 3
        assert page.get("/metrics", Host="evil.example")[0] == 421
        assert page.get("/metrics", Origin="https://evil.example")[0] == 403
        place.plan({"out": "", "sleep": 60})
        with place.start("run", "--quiet", "hi") as process:
            deadline = time.monotonic() + 30
            active = 0.0
            while not active and time.monotonic() < deadline:
                active = values(page.text("/metrics"), "steno_active_runs")["claude",]
                time.sleep(0.1)
            process.terminate()
            process.communicate(timeout=30)
        assert active == 1.0


def test_the_token_of_the_file_is_enough(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with serving(place) as page:
        assert page.get("/metrics", Authorization="")[0] == 401
        assert page.get("/metrics", Authorization="Bearer wrong")[0] == 401
        token = (place.data / "serve-token").read_text().strip()
        status, _, data = page.get("/metrics", Authorization=f"Bearer {token}")
        assert (status, "steno_build_info" in parsed(data.decode())) == (200, True)
