"""Commands that query the ledger: JSON, CSV, narrow terminals, hostile text, exit codes."""

import csv
import io
import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steno.ledger.protocol import now_ms
from steno.ledger.rows import LIMIT_COLUMNS
from steno.ledger.store import open_ledger
from steno.report import Report
from steno.views.formatting import width
from tests.cli.test_commands import Done, refused, run, shown
from tests.support.ledger_builder import HOUR, PROJECT, Book
from tests.views.test_rendering import PAYLOAD, is_safe

NOW = 1_731_674_096_000  # 2024-11-15T12:34:56Z
RECORDINGS = Path(__file__).parents[1] / "recordings"
RECORDING = RECORDINGS / "claude/2.1.325/permission_denied"
LISTS = (
    "usage",
    "runs",
    "sessions",
    "context",
    "budget",
    "search words",
    "usage tool",
    "usage session",
    "usage --breakdown",
    "usage block",
    "limits",
    "compare 3f9a 81d4",
)
FORMS = ("", "--json", "--csv")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with two sessions, two runs and hostile text in every field an agent can set."""
    path = tmp_path / "ledger.db"
    store = open_ledger(str(path))
    book = Book(store)
    evil = f"/p/{PAYLOAD}"
    book.session(
        "81d4e0b7-1",
        first_at=NOW - HOUR,
        last_at=NOW,
        context_used=150_000,
        context_limit=200_000,
        title="words to say",
    )
    book.session(
        "99aa0000-2",
        first_at=NOW - 60 * HOUR,
        last_at=NOW - 50 * HOUR,
        project=evil,
        title=f"=1+1{PAYLOAD}",
    )
    for step in range(30):
        book.request("81d4e0b7-1", NOW - step * 60_000, input=5_000 * (30 - step), cost_nano=10**8)
    book.request(
        "99aa0000-2", NOW - 50 * HOUR, model=f"{PAYLOAD}model", cost_nano=None, source="unknown"
    )
    book.call("81d4e0b7-1", NOW, name=f"mcp{PAYLOAD}", ok=0)
    book.call("81d4e0b7-1", NOW)
    book.text("81d4e0b7-1", NOW, f"words {PAYLOAD} words", "prompt")
    window = f"weekly{PAYLOAD}".replace("\0", "")
    limit = ("claude", "", window, now_ms(), 0.5, None, None, "event")
    store.upsert("limits", LIMIT_COLUMNS, [limit], "")
    report = Report(
        run_id="3f9a21c0aa",
        verdict="max_turns",
        error=f"@limit{PAYLOAD}",
        agent="claude",
        text="half",
    )
    book.run(
        "3f9a21c0aa",
        report,
        started_at=NOW - HOUR,
        verdict="max_turns",
        error=report.error,
        session="81d4e0b7-1",
        turns=3,
    )
    book.run(
        "77bb000000",
        started_at=NOW,
        verdict=None,
        cost_nano=None,
        cost_source="unknown",
        project=evil,
    )
    book.insert("budgets", period="day", project="/p/\x1b[2J", limit_nano=10**9, set_at=1)
    store.close()
    return path


def ask(ledger: Path | str, *words: str, **environment: str) -> Done:
    """A command on this ledger alone, without looking for transcripts."""
    more: tuple[str, ...] = () if words[0] == "ledger" else ("--no-import",)
    return run(*words, *more, "--ledger", ledger, **environment)  # type: ignore[arg-type]


def answer(ledger: Path, *words: str) -> dict[str, Any]:
    """What a command answers in JSON."""
    done = ask(ledger, *words, "--json")
    assert (done.stderr, done.returncode, done.stdout.count(b"\n")) == (b"", 0, 1)
    found: dict[str, Any] = json.loads(done.stdout)
    assert {"rows", "total"} <= found.keys()
    return found


# -- what all of them share --------------------------------------------------------------------


def test_notes_below_a_table_are_wrapped_on_a_terminal_only(tmp_path: Path) -> None:
    """Tables in a pipe have no width either, and grep needs a whole line."""
    path = tmp_path / "ledger.db"
    book = Book(open_ledger(str(path)))
    book.session("s1", last_at=NOW)
    for number in range(3):
        source = ("reported", "computed", "unknown")[number]
        nano = None if source == "unknown" else 10**9
        book.request("s1", NOW - number, cost_nano=nano, source=source)
    book.store.close()
    note = (
        "cost: $1.0000 reported by the agents, $1.0000 computed from the price table, "
        "1 request unpriced"
    )
    assert note in shown(ask(path, "usage"))
    narrow = shown(ask(path, "usage", COLUMNS="80"))
    assert note not in narrow
    assert note in " ".join(narrow)
    open_ledger(str(tmp_path / "empty.db")).close()
    empty = shown(ask(tmp_path / "empty.db", "runs"))
    assert (len(empty), len(shown(ask(tmp_path / "empty.db", "runs", COLUMNS="80")))) == (1, 3)


@pytest.mark.parametrize("words", LISTS)
@pytest.mark.parametrize("columns", ["20", "40", "60", "80", "132", "200"])
def test_pages_keep_to_the_terminal_and_hostile_text_does_nothing(
    ledger: Path, words: str, columns: str
) -> None:
    for line in shown(ask(ledger, *words.split(), COLUMNS=columns)):
        assert is_safe(line)
        assert width(line) <= max(40, int(columns))


@pytest.mark.parametrize("words", LISTS)
def test_colours_only_where_they_are_wanted(ledger: Path, words: str) -> None:
    plain = ask(ledger, *words.split(), COLUMNS="100").stdout.decode()
    assert "\x1b" not in plain
    coloured = ask(ledger, *words.split(), COLUMNS="100", FORCE_COLOR="1").stdout.decode()
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert (
        "\x1b"
        not in ask(
            ledger, *words.split(), COLUMNS="100", FORCE_COLOR="1", NO_COLOR="1"
        ).stdout.decode()
    )


@pytest.mark.parametrize("words", LISTS)
def test_an_ascii_terminal_gets_ascii(ledger: Path, words: str) -> None:
    done = ask(ledger, *words.split(), COLUMNS="100", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout.isascii()) == (0, True)
    assert "\\u" not in re.sub(r"\\u(202e|2028|2066)", "", done.stdout.decode())


@pytest.mark.parametrize("words", LISTS)
def test_csv_has_a_head_and_no_formulas(ledger: Path, words: str) -> None:
    text = ask(ledger, *words.split(), "--csv").stdout.decode()
    head, *rows = list(csv.reader(io.StringIO(text)))
    assert text.endswith("\r\n")
    assert all(len(row) == len(head) for row in rows)
    assert rows
    for cell in (cell for row in rows for cell in row):
        assert not re.match(r"[=+@\t\r]|-[^\d]", cell), cell
        assert is_safe(re.sub(r"[\n\t]", "", cell)), cell


@pytest.mark.parametrize("words", LISTS)
def test_json_moves_no_cursor(ledger: Path, words: str) -> None:
    assert is_safe(ask(ledger, *words.split(), "--json").stdout.decode().removesuffix("\n"))


@pytest.mark.parametrize("words", [*LISTS[:5], "search words", "usage tool"])
@pytest.mark.parametrize("form", FORMS)
def test_an_empty_ledger_is_no_error(tmp_path: Path, words: str, form: str) -> None:
    open_ledger(str(tmp_path / "new.db")).close()
    done = ask(tmp_path / "new.db", *words.split(), *([form] if form else []))
    assert (done.stderr, done.returncode) == (b"", 0)
    if form == "--json":
        found = json.loads(done.stdout)
        assert found["rows"] == []
    elif (
        not form
        and words.split()[0] in ("usage", "runs", "sessions", "context", "search")
        and words != "usage tool"
    ):
        assert b"steno ledger import" in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "usage",
        "runs",
        "sessions",
        "search",
        "compare",
        "context",
        "budget",
        "ledger",
        "ledger import",
        "ledger prune",
        "ledger rebuild",
        "ledger sql",
        "ledger note",
    ],
)
def test_help_has_examples(name: str) -> None:
    lines = shown(run(*name.split(), "--help"))
    assert lines[0].startswith(f"usage: steno {name}")
    assert "examples:" in lines
    assert all(width(line) <= 100 for line in lines)
    assert shown(run("help", *name.split())) == lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["usage", "hour"], "BY: expected one of day, week"),
        (["usage", "--last", "soon"], "--last soon: expected a number and a unit"),
        (["runs", "--last", "-5"], "--last -5: expected a count (100) or a time span (7d)"),
        (["sessions", "--last", "soon"], "--last soon: expected a count (100) or a time span"),
        (["runs", "--last", "0"], "--last 0: expected a count above 0 or a time span (7d)"),
        (["search", "x", "--last", "0"], "--last 0: expected a count above 0 or a time span (7d)"),
        (["usage", "--since", "never"], "--since never: expected a date"),
        (["usage", "--timezone", "Mars/X"], "unknown time zone 'Mars/X'"),
        (["usage", "--top", "0"], "--top: expected a whole number above 0, found '0'"),
        (["usage", "tool", "--model", "x"], "tool calls are not counted by model"),
        (["usage", "tool", "--sort", "saved"], "--sort saved: not available for tool; tools are"),
        (["usage", "tool", "--sort", "tokens"], "--sort tokens: not available for tool; tools are"),
        (["usage", "block", "--sort", "cost"], "--sort: not available for block; blocks are"),
        (["runs", "--verdict", "great"], "--verdict: expected one of success, max_turns"),
        (["runs", "--session", "none"], "no session with this ID"),
        (["search"], "nothing to search for: give TEXT or --regex PATTERN"),
        (["search", "--regex", "("], "invalid regular expression"),
        (["compare", "3f9a", "ffff"], "ffff: no run or session"),
        (["context", "ffff"], "ffff: no run or session"),
        (["budget", "set", "day"], "budget set takes PERIOD and AMOUNT"),
        (["budget", "set", "hour", "5"], "unknown period 'hour': expected day, week or month"),
        (["budget", "set", "day", "lots"], "expected an amount in dollars"),
        (["budget", "remove", "month"], "no budget per month; see: steno budget list"),
        (["ledger", "prune"], "--older-than"),
        (["ledger", "prune", "--older-than", "old"], "--older-than old: expected"),
        (
            ["ledger", "sql", "DELETE FROM runs"],
            "only SELECT, WITH, VALUES and EXPLAIN are allowed",
        ),
        (["ledger", "sql", ""], "sql: empty query; expected one SELECT"),
        (["ledger", "sql", " -- nothing"], "sql: empty query; expected one SELECT"),
        (["runs", "--last", "9" * 20], f"--last {'9' * 20}: expected a number up to 1,000,000,000"),
        (["sessions", "--last", "1000000001"], "--last 1000000001: expected a number up to"),
        (["ledger", "note", "ffff", "x"], "no run or session"),
        (["ledger", "note", "3f9a", " "], "the note is empty"),
        (["runs", "--json", "--csv"], "not allowed with"),
        (["compare", "a\udcffff", "b"], "no run or session"),
    ],
)
def test_wrong_use_is_one_line(ledger: Path, words: list[str], said: str) -> None:
    assert said in refused(ask(ledger, *words))


def test_a_ledger_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text(
        "not a database, certainly not one that is long enough to look like one" * 20
    )
    assert ": not a ledger" in refused(ask(tmp_path / "text.db", "usage"))
    assert "no such ledger (--ledger)" in refused(
        ask(tmp_path / "none.db", "ledger", "sql", "SELECT 1")
    )
    assert not (tmp_path / "none.db").exists()


# -- one by one --------------------------------------------------------------------------------


def test_report_json(ledger: Path) -> None:
    found = answer(
        ledger,
        "usage",
        "day",
        "--timezone",
        "America/New_York",
        "--since",
        "2024-11-01",
        "--until",
        "2024-11-30",
    )
    assert [row["day"] for row in found["rows"]] == ["2024-11-13", "2024-11-15"]
    assert found["rows"][0]["cost"] == {
        "usd": None,
        "reported_usd": 0.0,
        "computed_usd": 0.0,
        "unpriced_requests": 1,
        "unpriced_tokens": 105,
        "saved_usd": 0.0005,
    }
    assert (found["timezone"], found["since"], found["until"]) == (
        "America/New_York",
        "2024-11-01T00:00:00-04:00",
        "2024-12-01T00:00:00-05:00",
    )
    assert found["total"]["requests"] == 31
    assert set(found["total"]["tokens"]) == {
        "input",
        "cache_write",
        "cache_read",
        "output",
        "reasoning",
        "total",
    }
    assert found["wasted"] == {"runs": 1, "usd": 0.02, "unpriced_runs": 0}
    assert found["query_ms"] > 0


def test_report_orders_and_cuts(ledger: Path) -> None:
    days = [row["week"] for row in answer(ledger, "usage", "week", "--top", "1")["rows"]]
    assert days == ["2024-W46"]
    models = answer(ledger, "usage", "model", "--sort", "name", "--top", "1")
    assert (len(models["rows"]), models["left_off"], models["total"]["requests"]) == (1, 1, 31)
    assert [row["session"] for row in answer(ledger, "usage", "session")["rows"]] == [
        "81d4e0b7-1",
        "99aa0000-2",
    ]
    assert answer(ledger, "usage", "--project", "engine")["total"]["requests"] == 30
    nothing = ask(ledger, "usage", "--project", "nowhere")
    assert (nothing.returncode, nothing.stderr) == (
        0,
        b"steno: no project 'nowhere' in the ledger\n",
    )


def test_report_for_people(ledger: Path) -> None:
    text = "\n".join(shown(ask(ledger, "usage", "model", COLUMNS="100")))
    assert "unpriced: " in text
    assert "(1 request, 105 tokens)" in text
    assert "wasted: $0.0200 on 1 run that did not succeed" in text


def test_report_of_files_that_are_not_kept(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    (line,) = shown(run("usage", "model", "--json", "--no-ledger", RECORDING, "--ledger", ledger))
    found = json.loads(line)
    assert (found["total"]["requests"], round(found["total"]["cost"]["usd"], 4)) == (2, 0.0221)
    assert not ledger.exists()


def test_runs(ledger: Path) -> None:
    found = answer(ledger, "runs")
    assert [(row["run_id"], row["verdict"], row["cost"]["usd"]) for row in found["rows"]] == [
        ("77bb000000", None, None),
        ("3f9a21c0aa", "max_turns", 0.02),
    ]
    assert answer(ledger, "runs", "--last", "1")["left_off"] == 1
    assert [row["run_id"] for row in answer(ledger, "runs", "--failed")["rows"]] == ["3f9a21c0aa"]
    assert [row["run_id"] for row in answer(ledger, "runs", "--session", "81d4")["rows"]] == [
        "3f9a21c0aa"
    ]
    lines = shown(ask(ledger, "runs", COLUMNS="100"))
    assert re.match(r"77bb0000  11-15 12:34  claude  running ", lines[1])
    assert re.match(r"3f9a21c0  11-15 11:34  claude  max_turns +\$0.0200 ", lines[2])
    assert lines[-1] == "2 runs (1 failed): $0.0200 (unknown for 1 run), 0 tokens"


def test_attempts_of_a_task_are_grouped(ledger: Path) -> None:
    """Earlier attempts follow the last one, and are not failed if the task succeeded."""
    with closing(open_ledger(str(ledger))) as store:
        book = Book(store)
        first: dict[str, Any] = {
            "task": "task1",
            "prompt": "Fix the parser\nnow",
            "started_at": NOW + HOUR,
        }
        book.run("aaaa00000001", attempt=1, verdict="api", error="API error 500", **first)
        later = {**first, "started_at": NOW + 3 * HOUR, "prompt": "continue"}
        book.run("bbbb00000002", attempt=2, **later)
        book.run("cccc00000003", started_at=NOW + 2 * HOUR, prompt="Other work")
        book.insert("tasks", id="task1", verdict="success", attempts=2, prompt="Fix the parser")
    lines = shown(ask(ledger, "runs", "--last", "3", COLUMNS="90"))
    assert lines[:4] == [
        "id        when         agent   verdict     cost  project           prompt or error",
        "bbbb0000  11-15 15:34  claude  success  $0.0200  /home/ada/engine  Fix the parser",
        "aaaa0000  └ attempt 1  claude  api      $0.0200  /home/ada/engine  API error 500",
        "cccc0000  11-15 14:34  claude  success  $0.0200  /home/ada/engine  Other work",
    ]
    assert lines[-2].startswith("5 runs (1 failed): ")
    assert answer(ledger, "usage")["wasted"]["runs"] == 1
    ranked = shown(ask(ledger, "runs", "--top", "cost", "--last", "2", COLUMNS="80"))
    assert "attempt" not in "".join(ranked)  # by rank, not by task


def test_a_run_without_an_error_shows_its_reason(ledger: Path) -> None:
    """Denied calls and open questions are in the report only; colours of errors are dropped."""
    with closing(open_ledger(str(ledger))) as store:
        book = Book(store)
        denied = Report(verdict="permission", warnings=["permission: 1 call denied (Bash)"])
        asked = Report(verdict="interactive", text="I found two.\nWhich one?")
        book.run("aaaa00000001", denied, verdict="permission", ok=0, started_at=NOW + HOUR)
        book.run("bbbb00000002", asked, verdict="interactive", ok=0, started_at=NOW + 2 * HOUR)
        error = "\x1b[91m\x1b[1mError:\x1b[0m no session"
        book.run("cccc00000003", verdict="subprocess", ok=0, error=error, started_at=NOW + 3 * HOUR)
    lines = shown(ask(ledger, "runs", "--last", "3", COLUMNS="99"))
    assert [line.split("engine  ")[-1] for line in lines[1:4]] == [
        "Error: no session",
        "asks: Which one?",
        "1 call denied (Bash)",
    ]


def test_sessions(ledger: Path) -> None:
    found = answer(ledger, "sessions", "--timezone", "Asia/Kolkata")
    assert [(row["session_id"], row["requests"], row["last_at"]) for row in found["rows"]] == [
        ("81d4e0b7-1", 30, "2024-11-15T18:04:56+05:30"),
        ("99aa0000-2", 1, "2024-11-13T16:04:56+05:30"),
    ]
    assert found["rows"][0]["context"]["text"] == "25% HP [150k/200k] — CRITICAL"
    assert "██████░░ 75% used" in "\n".join(shown(ask(ledger, "sessions", COLUMNS="120")))


def test_show_by_id(ledger: Path) -> None:
    card = shown(ask(ledger, "show", "3f9a"))
    assert card[0].startswith("max_turns  @limit")
    assert json.loads(ask(ledger, "show", "3f9a", "--json").stdout)["run_id"] == "3f9a21c0aa"
    assert shown(ask(ledger, "show", "3f9a", "--text")) == ["half"]
    assert "this view needs its recording" in refused(ask(ledger, "show", "3f9a", "--timeline"))
    session = "\n".join(shown(ask(ledger, "show", "81d4")))
    assert session.startswith("session  words to say")
    assert "3f9a21c0  max_turns" in session
    assert json.loads(ask(ledger, "show", "81d4", "--json").stdout)["session_id"] == "81d4e0b7-1"
    assert shown(ask(ledger, "show", "81d4", "--text")) == ["half"]  # of its only run
    assert "transcript not found; only --summary and --json" in refused(
        ask(ledger, "show", "99aa", "--tools")
    )
    assert "no such file, and no such run or session in the ledger" in refused(
        ask(ledger, "show", "0000ffff")
    )
    assert "no such ledger (--ledger)" in refused(
        ask(ledger.with_name("no.db"), "show", "0000ffff")
    )


def test_show_by_id_reads_the_recording_where_it_is_there(ledger: Path) -> None:
    with closing(open_ledger(str(ledger))) as store:
        Book(store).run(
            "aaaa1111", Report(run_id="aaaa1111", verdict="permission"), source=str(RECORDING)
        )
    assert any("denied" in line for line in shown(ask(ledger, "show", "aaaa1111", "--timeline")))
    assert shown(ask(ledger, "show", "aaaa1111", RECORDING.as_posix()))[0].startswith(
        "── aaaa1111 "
    )


def test_notes_are_shown_and_masked(ledger: Path) -> None:
    assert shown(
        ask(ledger, "ledger", "note", "3f9a", "the key was", "sk-Abcd1234Efgh5678Ijkl9012")
    ) == ["note added to run 3f9a21c0aa"]
    assert any(
        re.search(r"notes +\d{4}-.* the key was \[redacted\]", line)
        for line in shown(ask(ledger, "show", "3f9a"))
    )


def test_search(ledger: Path) -> None:
    found = answer(ledger, "search", "words")
    assert [(row["session_id"], row["role"]) for row in found["rows"]] == [("81d4e0b7-1", "prompt")]
    assert found["total"] == 1
    bold = ask(ledger, "search", "words", FORCE_COLOR="1").stdout.decode()
    assert "\x1b[1;33mwords\x1b[0m" in bold
    assert shown(ask(ledger, "search", "nothing"))[0].startswith("No matches")
    assert answer(ledger, "search", "--regex", "w.rds")["total"] == 1


def test_search_in_tools_says_what_is_gone(ledger: Path, tmp_path: Path) -> None:
    with closing(open_ledger(str(ledger))) as store:
        Book(store).source(str(RECORDING), kind="recording")
        Book(store).source(str(tmp_path / "gone"))
    done = ask(ledger, "search", "requested permissions", "--tools", "--json")
    assert (done.returncode, done.stderr) == (
        0,
        b"steno: 1 source file of the ledger not found\n",
    )
    found = json.loads(done.stdout)
    assert ([row["tool"] for row in found["rows"]], found["sources_gone"]) == (["Write"], 1)


def test_context(ledger: Path) -> None:
    found = answer(ledger, "context")
    assert (found["session_id"], found["total"]) == ("81d4e0b7-1", 30)
    assert found["rows"][-1]["used"] == 150_090
    assert found["thresholds"] == {"critical": 0.95, "refresh": 0.8, "warn": 0.7}
    assert answer(ledger, "context", "3f9a")["session_id"] == "81d4e0b7-1"
    lines = shown(ask(ledger, "context", "81d4", COLUMNS="80"))
    assert any(line.endswith("warn 70 %") for line in lines)
    assert " ".join(lines[-2:]).endswith(
        "25% HP [150k/200k] — CRITICAL · peak 150,090 · 30 requests · initial overhead unknown"
    )
    assert found["overhead"] is None


@pytest.mark.parametrize(
    "source", ["claude/2.1.325/slash_context", "transcripts/2.1.325/slash_context"]
)
def test_the_overhead_is_split_where_the_agent_says_so(tmp_path: Path, source: str) -> None:
    """M8: Claude Code's answer to /context, in its stream and in its transcript."""
    ledger = tmp_path / "ledger.db"
    run("ledger", "import", "--ledger", str(ledger), str(RECORDINGS / source))
    context = answer(ledger, "context")["context"]
    assert (context["used"], context["limit"]) == (16_889, 1_000_000)
    assert context["overhead"] == {
        "system_prompt": 11_106,
        "tools": None,
        "memory_files": 1_234,
        "agents": 1_234,
        "skills": 2_081,
        "other": None,
    }
    lines = shown(ask(ledger, "context", COLUMNS="80"))
    assert lines[-1] == (
        "overhead: system prompt 11.1k, memory files 1.23k, agents 1.23k, skills 2.08k"
    )


def test_printed_ids_are_accepted(tmp_path: Path) -> None:
    """Where sessions or runs share the first eight characters, more of them are printed."""
    path = tmp_path / "ledger.db"
    book = Book(open_ledger(str(path)))
    for number, name in enumerate(("01a1df23-aa", "01a1df23-ab")):
        book.session(name, last_at=NOW, context_peak=1000 + number, context_limit=2000)
        book.request(name, NOW)
        book.run(f"77bb0000{number}{number}", started_at=NOW, session=name)
    book.store.close()
    assert shown(ask(path, "usage"))[-1].endswith(" (session 01a1df23-ab)")
    assert ask(path, "context", "01a1df23").returncode == 2  # ambiguous
    listed = [line.split()[0] for line in shown(ask(path, "usage", "session"))[1:3]]
    assert sorted(listed) == ["01a1df23-aa", "01a1df23-ab"]
    for pair in (["01a1df23-aa", "01a1df23-ab"], ["77bb000000", "77bb000011"]):
        heads = shown(ask(path, "compare", *pair))[0].split()[:2]
        assert shown(ask(path, "compare", *heads))[0].split()[:2] == heads


def test_compare(ledger: Path) -> None:
    found = {row["figure"]: row for row in answer(ledger, "compare", "3f9a", "81d4")["rows"]}
    assert (found["cost_usd"]["a"], found["cost_usd"]["b"], found["cost_usd"]["ratio"]) == (
        0.02,
        3.0,
        150.0,
    )


def test_budgets_have_exit_codes_for_scripts(ledger: Path) -> None:
    assert shown(ask(ledger, "budget", "remove", "day", "--project", "/p/\x1b[2J"))
    assert shown(ask(ledger, "budget", "set", "month", "$10")) == ["budget: $10.00 a month"]
    assert ask(ledger, "budget", "check").returncode == 0


def test_an_exceeded_budget_is_exit_code_3(ledger: Path) -> None:
    with closing(open_ledger(str(ledger))) as store:
        Book(store).request("81d4e0b7-1", time.time_ns() // 1_000_000, cost_nano=5 * 10**9)
    shown(ask(ledger, "budget", "set", "week", "4.50", "--project", PROJECT))
    found = answer(ledger, "budget")
    (row,) = [row for row in found["rows"] if row["period"] == "week"]
    assert (row["spent_usd"] >= 5.0, row["exceeded"], found["total"]["exceeded"]) == (True, True, 1)
    assert ask(ledger, "budget", "check").returncode == 3
    assert ask(ledger, "budget", "list", "--check", "--json").returncode == 3
    assert ask(ledger, "budget", "list").returncode == 0


def test_totals_that_include_pruned_sessions_say_so(tmp_path: Path) -> None:
    """They come from sums that keep pruned sessions; with a filter, only listed ones count."""
    path = tmp_path / "ledger.db"
    book = Book(open_ledger(str(path)))
    now = now_ms()
    for session, at in (("old", now - 99 * HOUR), ("new", now)):
        book.session(session, first_at=at, last_at=at)
        book.request(session, at, cost_nano=10**9)
    book.store.close()
    note = " (including the kept totals of pruned sessions)"
    assert note not in shown(ask(path, "sessions"))[-1]
    assert answer(path, "sessions")["total"]["includes_pruned"] is False
    answer(path, "ledger", "prune", "--older-than", "2d", "--yes")
    assert shown(ask(path, "sessions"))[-1].startswith("1 session: $2.0000, ")
    assert shown(ask(path, "sessions"))[-1].endswith(note)
    assert answer(path, "sessions")["total"]["includes_pruned"] is True
    filtered = answer(path, "sessions", "--agent", "claude")["total"]
    assert (filtered["cost"]["usd"], filtered["includes_pruned"]) == (1.0, False)
    assert note not in shown(ask(path, "sessions", "--agent", "claude"))[-1]


def test_prune_is_a_dry_run_without_yes(ledger: Path) -> None:
    found = answer(ledger, "ledger", "prune", "--older-than", "1h")
    assert (found["dry_run"], found["total"]["rows"] > 0) == (True, True)
    assert answer(ledger, "sessions")["total"]["sessions"] == 2
    before = answer(ledger, "usage")["total"]
    assert answer(ledger, "ledger", "prune", "--older-than", "1h", "--yes")["dry_run"] is False
    assert answer(ledger, "sessions")["total"]["sessions"] == 0
    assert answer(ledger, "usage")["total"] == before
    assert answer(ledger, "usage", "--until", "9999-12-31")["total"] == before
    message = "The details in this ledger were pruned. Totals are still available: `steno usage`."
    assert " ".join(shown(ask(ledger, "runs"))) == message
    assert shown(ask(ledger, "sessions")) == shown(ask(ledger, "runs"))
    answer(ledger, "ledger", "prune", "--older-than", "1h", "--everything", "--yes")
    assert shown(ask(ledger, "usage")) == ["The details in this ledger were pruned."]


def test_sql(ledger: Path) -> None:
    assert shown(
        ask(
            ledger,
            "ledger",
            "sql",
            "SELECT verdict, count(*) AS many FROM runs GROUP BY 1 ORDER BY 1",
        )
    ) == [
        "verdict    many",
        "-             1",
        "max_turns     1",
        "",
        "2 rows",
    ]
    assert answer(ledger, "ledger", "sql", "SELECT id FROM sessions ORDER BY id LIMIT 1") == {
        "rows": [{"id": "81d4e0b7-1"}],
        "total": 1,
    }
    assert (
        ask(ledger, "ledger", "sql", "SELECT '=1' AS a, -1 AS b, 'x,y' AS c", "--csv").stdout
        == b'a,b,c\r\n\'=1,-1,"x,y"\r\n'
    )
    assert all(
        is_safe(line)
        for line in shown(
            ask(
                ledger,
                "ledger",
                "sql",
                "SELECT sessions.project, title, report FROM sessions, runs",
            )
        )
    )


def test_all_of_it_on_either_database(ledger_url: str) -> None:
    """Every command answers alike, whichever database the ledger is in."""
    book = Book(open_ledger(ledger_url))
    book.session(
        "81d4e0b7-1", first_at=NOW - HOUR, last_at=NOW, context_used=150_000, context_limit=200_000
    )
    book.request("81d4e0b7-1", NOW)
    book.call("81d4e0b7-1", NOW)
    book.text("81d4e0b7-1", NOW, "some words", "prompt")
    book.run("3f9a21c0aa", Report(run_id="3f9a21c0aa"), started_at=NOW, session="81d4e0b7-1")
    book.store.close()
    commands = [
        *LISTS,
        "show 3f9a",
        "show 81d4",
        "ledger sql SELECT(1)",
        "ledger prune --older-than 1y",
        "ledger note 3f9a text",
        "budget set day 5",
    ]
    for words in commands:
        assert ask(ledger_url, *words.split()).stderr == b"", words
    found = json.loads(ask(ledger_url, "usage", "--json", "--timezone", "Asia/Kolkata").stdout)
    assert [(row["day"], row["requests"], row["cost"]["usd"]) for row in found["rows"]] == [
        ("2024-11-15", 1, 0.001)
    ]
