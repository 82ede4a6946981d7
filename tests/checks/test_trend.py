"""`steno trend`: success rate and medians over time, from a ledger of imported recordings."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from steno.recording.format import Header
from tests.support import program
from tests.support.claude_lines import assistant, ended, init, out, result, stop, stream, tape, text

MONDAY = datetime(2026, 11, 16, 9, tzinfo=timezone.utc)
DAY = 86_400.0


class Ledger:
    """Runs at chosen times, imported from recordings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.count = 0

    def add(
        self, day: float, cost: float, ok: bool = True, stopped: bool = False, **header: Any
    ) -> None:
        """A run so many days after a Monday; `stopped`: by Ctrl-C, without a result."""
        self.count += 1
        session = f"{self.count:08d}-2222-4333-8444-555555555555"
        message = f"msg_{self.count}"
        reply = result(
            "Done.", session_id=session, total_cost_usd=cost, num_turns=round(cost * 10), errors=[]
        )
        if not ok:
            reply |= {"is_error": True, "api_error_status": 529, "result": "API Error: 529"}
        parts: list[Any] = [init(session_id=session), assistant(text("Done."), message=message)]
        lines = stream(*parts, *([] if stopped else [reply]))
        task = {"task": f"task{self.count:04d}", "attempt": 1}
        given = {"prompt": "rewrite the parser", "name": "parser", **task, **header}
        tape(
            self.folder / f"{self.count}.steno",
            out(lines),
            *([stop("interrupted", 2)] if stopped else []),
            ended(0 if ok else 1),
            header=Header(
                agent="claude",
                run_id=f"run{self.count:04d}",
                started_at=MONDAY.timestamp() + day * DAY,
                **given,
            ),
        )

    def steno(self, *words: str, columns: int = 80) -> program.Ended:
        return program.steno(self.data, *words, cwd=self.folder, COLUMNS=str(columns))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Two runs on Monday, two on Tuesday, one a week later; one of another name."""
    ledger = Ledger(tmp_path)
    ledger.add(0, 0.2, tags={"repeat": "aaaa"})
    ledger.add(0.1, 0.4, tags={"repeat": "aaaa"})
    ledger.add(1, 0.4, tags={"repeat": "bbbb"})
    ledger.add(1.1, 0.6, ok=False, tags={"repeat": "bbbb"})
    ledger.add(7, 0.8)
    ledger.add(7, 9.0, name="other", prompt="write a poem")
    paths = [str(path) for path in sorted(tmp_path.glob("*.steno"))]
    done = ledger.steno("ledger", "import", *paths)
    assert done.code == 0, done.err
    return ledger


def rows(ledger: Ledger, *words: str) -> list[tuple[str, int, float, float]]:
    """Key, runs, success rate and median cost."""
    done = ledger.steno("trend", "--json", "--no-import", *words)
    assert done.code == 0, done.err
    return [
        (row["key"], row["runs"], row["success_rate"], round(row["cost_usd"]["median"], 6))
        for row in json.loads(done.out)["rows"]
    ]


BY_DAY = [("2026-11-16", 2, 1.0, 0.3), ("2026-11-17", 2, 0.5, 0.5), ("2026-11-23", 1, 1.0, 0.8)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("parser",), BY_DAY),
        (("--name", "parser"), BY_DAY),
        (("the parser",), BY_DAY),  # no name, but a part of the prompt
        (("parser", "--by", "week"), [("2026-W47", 4, 0.75, 0.4), ("2026-W48", 1, 1.0, 0.8)]),
        (("parser", "--by", "month"), [("2026-11", 5, 0.8, 0.4)]),
        (("--by", "repeat"), [("aaaa", 2, 1.0, 0.3), ("bbbb", 2, 0.5, 0.5)]),
        (("--tag", "repeat=bbbb"), BY_DAY[1:2]),
        (("poem",), [("2026-11-23", 1, 1.0, 9.0)]),
        (("parser", "--since", "2026-11-17", "--until", "2026-11-17"), BY_DAY[1:2]),
        (("nothing like it",), []),
    ],
)
def test_groups(
    ledger: Ledger, words: tuple[str, ...], expected: list[tuple[str, int, float, float]]
) -> None:
    assert rows(ledger, *words) == expected


def test_the_page(ledger: Ledger) -> None:
    done = ledger.steno("trend", "--no-import", "parser")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "parser · 5 runs · 2026-11-16 to 2026-11-23 · medians",
        "",
        "success   █▄█  100 % → 100 %           =",
        "cost      ▃▅█  $0.3000 → $0.8000  +167 %",
        "tokens    ███  21.1k → 21.1k           =",
        "turns     ▃▅█  3 → 8              +167 %",
        "duration  ███  120 ms → 120 ms         =",
        "",
        "day         runs  success                 cost  tokens  turns  duration",
        "2026-11-16     2    100 %  ██████████  $0.3000   21.1k      3    120 ms",
        "2026-11-17     2     50 %  █████░░░░░  $0.5000   21.1k      5    120 ms",
        "2026-11-23     1    100 %  ██████████  $0.8000   21.1k      8    120 ms",
        "───────────────────────────────────────────────────────────────────────",
        "all            5     80 %  ████████░░  $0.4000   21.1k      4    120 ms",
    ]


def test_interrupted_runs_are_counted_apart(tmp_path: Path) -> None:
    """`steno runs` lists them; the page says why it has fewer."""
    ledger = Ledger(tmp_path)
    ledger.add(0, 0.2)
    ledger.add(0.1, 0.2, stopped=True)
    ledger.add(0.2, 0.2, stopped=True, name="other", prompt="write a poem")
    ledger.steno("ledger", "import", *(str(path) for path in tmp_path.glob("*.steno")))
    page = ledger.steno("trend", "--no-import").out
    assert page.startswith(
        "all runs · 1 run (2 interrupted runs left out) · 2026-11-16 · medians\n"
    )
    found = json.loads(ledger.steno("trend", "--no-import", "--json").out)
    assert (found["total"]["runs"], found["interrupted"]) == (1, 2)
    assert rows(ledger, "--by", "repeat") == []
    other = ledger.steno("trend", "--no-import", "--name", "other").out
    assert other == "No finished runs (1 interrupted run left out).\n"


def test_attempts_of_a_task_count_once(tmp_path: Path, ledger_url: str) -> None:
    """Cost and turns are added up, and the last verdict counts. On both databases."""
    ledger = Ledger(tmp_path)
    ledger.add(0, 0.2, ok=False, task="task1", attempt=1)
    ledger.add(0.01, 0.4, task="task1", attempt=2, prompt="continue")
    ledger.add(1, 0.4, stopped=True)
    place = ("--ledger", ledger_url)
    assert ledger.steno("ledger", "import", "1.steno", "2.steno", "3.steno", *place).code == 0
    assert rows(ledger, "parser", *place) == [("2026-11-16", 1, 1.0, 0.6)]
    assert rows(ledger, "rewrite the", *place) == [("2026-11-16", 1, 1.0, 0.6)]


def test_baselines_over_time(ledger: Ledger) -> None:
    for name, tag in (("old", "aaaa"), ("new", "bbbb")):
        words = ("check", "--no-import", "--tag", f"repeat={tag}", "--save-baseline", name)
        assert ledger.steno(*words).code == 0
    path = ledger.data / "steno/baselines/old.json"
    path.write_text(path.read_text().replace('"saved_at": "20', '"saved_at": "19'))
    assert rows(ledger, "--by", "baseline") == [("old", 2, 1.0, 0.3), ("new", 2, 0.5, 0.5)]


def test_messages_without_rows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert "The ledger is empty." in ledger.steno("trend", "--no-import").out
    assert ledger.steno("trend", "--by", "baseline").out.startswith("No baselines.")
    done = ledger.steno("trend", "--by", "hour")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
