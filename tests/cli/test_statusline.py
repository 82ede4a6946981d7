"""The status line of Claude Code: its line, the stored limits, CPU time, and the settings file.

The JSON below `statusline/` was written by the real Claude Code 2.1.325: at its start, with an API
key, and with a subscription (which has `rate_limits`).
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steno.cli.statusline import status_line
from steno.ledger.queries.limits import list_limits
from steno.ledger.store import open_ledger
from tests.support.ledger_builder import Book
from tests.support.scripted_place import Done, Place
from tests.views.test_rendering import PAYLOAD, is_safe

RECORDED = Path(__file__).parent / "statusline"
VERSION = "2.1.325"
OBSERVED = 1_794_982_000.0  # seconds; between the recording and the resets
FIVE_HOUR_RESET, SEVEN_DAY_RESET = 1_794_989_991, 1_795_280_991


def recorded(name: str) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((RECORDED / f"{VERSION}-{name}.json").read_bytes())
    return status


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def home(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The same, with this process in it: its folders, UTC, no colours."""
    place.enter(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    time.tzset()
    yield place
    monkeypatch.undo()
    time.tzset()


def ask(place: Place, status: Any, **environ: str) -> Done:
    stdin = status if isinstance(status, bytes) else json.dumps(status).encode()
    return place.steno("statusline", stdin=stdin, cwd=None, NO_COLOR="1", **environ)


def test_the_real_json_without_a_ledger(home: Place) -> None:
    """No ledger is created; without limits the line has none."""
    lines = [status_line(recorded(name), OBSERVED) for name in ("start", "api_key", "subscription")]
    assert lines == [
        "Opus 5.5 · context ░░░░░░░░ 0% of 1.00M · $0.00 session",
        "Opus 5.5 · context █░░░░░░░ 1% of 1.00M · $0.01 session",
        "Sonnet 5.5 · context █░░░░░░░ 1% of 1.00M · 5h 37% until 08:19 · 7d 62% until Sat 17:09"
        " · <$0.01 session",
    ]
    assert not (home.data / "ledger.db").exists()


def test_limits_are_stored_once_and_today_is_added_up(home: Place) -> None:
    status = recorded("subscription")
    path = home.data / "ledger.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    now = int(OBSERVED * 1000)
    with closing(open_ledger(str(path))) as store:
        book = Book(store)
        book.request(book.session("other"), now, cost_nano=2 * 10**9)
        book.request(book.session("old"), now - 30 * 3_600_000, cost_nano=9 * 10**9)
        own = book.session(status["session_id"])  # partly imported: its own total counts
        book.request(own, now, cost_nano=10**6)
        book.insert("budgets", period="day", project="", limit_nano=4 * 10**9, set_at=1)
        book.insert("budgets", period="month", project="", limit_nano=10**12, set_at=1)
    end = " · <$0.01 session · $2.00 today · 50% of $4.00 per day"
    for _ in range(2):
        assert status_line(status, OBSERVED).endswith(end)
    with closing(open_ledger(str(path))) as store:
        limits = list_limits(store, int(OBSERVED * 1000))
        assert [(one.window, one.utilization, one.resets_at, one.source) for one in limits] == [
            ("five_hour", 0.37, FIVE_HOUR_RESET * 1000, "statusline"),
            ("seven_day", 0.62, SEVEN_DAY_RESET * 1000, "statusline"),
        ]
        assert store.query("SELECT count(*) FROM limits") == [(2,)]


def test_a_locked_or_broken_ledger_costs_only_its_figures(home: Place) -> None:
    path = home.data / "ledger.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(open_ledger(str(path))) as store, store.transaction():
        store.execute("INSERT INTO budgets VALUES ('day', '', 1, 1)")
        assert status_line(recorded("subscription"), OBSERVED).endswith("session · <$0.01 today")
    path.write_bytes(b"no database")
    assert status_line(recorded("subscription"), OBSERVED).endswith("<$0.01 session")


def test_hostile_and_odd_input(place: Place) -> None:
    odd: list[Any] = [
        {},
        {"model": {"display_name": f"Opus{PAYLOAD}"}, "session_id": "x' OR '1'='1"},
        {"model": [], "cost": {"total_cost_usd": True}, "context_window": "full"},
        {
            "context_window": {"context_window_size": 0, "total_input_tokens": -5},
            "rate_limits": {"five_hour": {"used_percentage": "9", "resets_at": 10**30}},
        },
        {"rate_limits": {"five_hour": {"used_percentage": 101.5, "resets_at": 10**14}}},
    ]
    for status in odd:
        done = ask(place, status)
        assert (done.returncode, done.stderr) == (0, b""), status
        assert is_safe(done.stdout.decode().removesuffix("\n"))
    for broken in (b"", b"[1]", b"{", b"\xff"):
        done = ask(place, broken)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr == (
            b"steno: statusline: expected a JSON object on stdin, as Claude Code writes it\n"
        )


def test_a_line_loads_no_heavy_module(place: Place) -> None:
    """`benchmarks.statusline` measures the CPU time; these would double it."""
    open_ledger(str(place.folder / "ledger.db")).close()
    code = (
        "import sys; from steno.cli import main; code = main(['statusline'])\n"
        "heavy = {'msgspec', 'argparse', 'pathlib', 'typing', 'steno.ledger.store', 'decimal'}\n"
        "print(code, sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(recorded("subscription")).encode(),
        env={**place.environ, "STENO_LEDGER": str(place.folder / "ledger.db")},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b"0 []\n"


# -- settings ------------------------------------------------------------------------------------

SETTINGS = {
    "empty object": "{}",
    "one line": '{"model":"opus","env":{"A":"1"}}',
    "indented": '{\n    "model": "opus",\n    "hooks": {}\n}\n',
    "windows": '{\r\n\t"model": "opus"\r\n}\r\n',
    "other status line": '{\n  "statusLine": {"type": "command", "command": "x"},\n  "a": 1\n}\n',
    "last entry": '{\n  "a": "}",\n  "statusLine": {\n    "type": "command"\n  }\n}',
    "no file": "",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_install_changes_one_entry_and_uninstall_restores_all(place: Place, name: str) -> None:
    text = SETTINGS[name]
    path = place.home / ".claude" / "settings.json"
    if text:
        path.parent.mkdir()
        path.write_bytes(text.encode())
        path.chmod(0o640)
    dry = place.steno("statusline", "--install")
    assert dry.returncode == 2
    assert b"+" in dry.stdout
    assert (path.read_bytes().decode() if text else "") == text
    assert place.steno("statusline", "--install", "--yes").returncode == 0
    settings = json.loads(path.read_bytes())
    command = settings.pop("statusLine")
    assert (command["type"], command["command"].endswith(" statusline")) == ("command", True)
    others = json.loads(text or "{}")
    others.pop("statusLine", None)
    assert settings == others
    if text:
        assert path.stat().st_mode & 0o777 == 0o640
    again = place.steno("statusline", "--install", "--yes")
    assert again.stdout.decode() == f"{path}: already up to date\n"
    done = subprocess.run(
        command["command"],
        shell=True,
        input=json.dumps(recorded("api_key")).encode(),
        capture_output=True,
        env={**place.environ, "NO_COLOR": "1"},
        check=True,
    )
    assert done.stdout.startswith(b"Opus 5.5 ")
    assert place.steno("statusline", "--uninstall", "--yes").returncode == 0
    assert (path.read_bytes().decode() if path.exists() else "") == text
    assert place.steno("statusline", "--uninstall").stdout.endswith(b": unchanged\n") or text


def test_broken_settings_are_refused(place: Place) -> None:
    path = place.home / ".claude" / "settings.json"
    path.parent.mkdir()
    for text, reason in (
        ('{"a": 1,}', "invalid JSON"),
        ("[]", "expected a JSON object, found list"),
    ):
        path.write_text(text)
        done = place.steno("statusline", "--install", "--yes")
        assert (done.returncode, done.stdout, path.read_text()) == (2, b"", text)
        assert done.stderr.decode().startswith(f"steno: {path}: {reason}")
    path.write_text('{"statusLine": {"type": "command", "command": "mine"}}')
    done = place.steno("statusline", "--uninstall", "--yes")
    reason = "the status line is not steno's; left unchanged"
    assert done.stderr.decode() == f"steno: {path}: {reason}\n"
