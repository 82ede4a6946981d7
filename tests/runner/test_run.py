"""`steno run` and `steno.run` with scripted agents: real processes, recordings and ledger."""

import asyncio
import json
import os
import resource
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import AGENTS
from steno.agents.base import EXAMPLE_SESSION_ID
from steno.agents.claude.start import stdout_mode
from steno.cli.run import resume_command
from steno.report import (
    EXIT_CODES,
    VERDICTS,
    Attempt,
    Cost,
    DeniedCall,
    TaskReport,
    Tokens,
    Verdict,
)
from tests.support.claude_lines import SESSION, assistant, init, result, stream, text
from tests.support.scripted_place import NEWEST, Done, Json, Place, done_well

BOTH = "cannot be combined: choose one session"
NO_LEDGER = "expected a session id (a UUID); run ids need a ledger, and there is none yet"
NO_FALLBACK = "--on-limit fallback needs --fallback-model NAME or --fallback-agent NAME"
UUID = "0f0f0f0f-1111-4222-8333-444444444444"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def inside(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """This very process is in the place: for the library."""
    place.enter(monkeypatch)
    return place


def rows(place: Place, sql: str) -> list[Any]:
    """What the ledger answers."""
    with sqlite3.connect(place.data / "ledger.db") as ledger:
        return ledger.execute(sql).fetchall()


def refused(place: Place, done: Done, code: int = 2) -> str:
    """The one line of a command that started nothing and wrote nothing."""
    assert (done.stdout, done.returncode) == (b"", code), done.stderr
    assert (place.calls, place.data.exists()) == ([], False)
    (line,) = done.stderr.decode().splitlines()
    return line


def wait_for(place: Place, calls: int = 1) -> None:
    """Until the agent was started so often."""
    deadline = time.monotonic() + 30
    while len(place.calls) < calls:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.1)  # it has set its signals, and printed


# -- what comes out ------------------------------------------------------------------------------


def test_the_answer_is_all_of_stdout(place: Place) -> None:
    done = place.steno("run", "Say it.")
    assert (done.stdout, done.returncode) == (b"Done.\n", 0)
    (call,) = place.calls
    assert (call["prompt"], call["cwd"]) == ("Say it.", str(place.work))
    assert call["argv"][:4] == ["-p", "--output-format", "stream-json", "--verbose"]
    assert b"success" in done.stderr


def test_i3_malformed_lines_are_printed(place: Place) -> None:
    """As by `show`: the first ones, and not what a terminal would obey."""
    place.plan({"out": "odd \x1b[2J line\n" * 30 + done_well()})
    done = place.steno("run", "Say it.")
    assert (done.stdout, done.returncode) == (b"Done.\n", 0)
    (tape,) = place.tapes
    lines = [line for line in done.stderr.decode().splitlines() if "malformed line" in line]
    assert lines == [
        f"steno: skipping malformed line {number}: odd \\x1b[2J line" for number in range(1, 21)
    ]
    shown = place.steno("show", str(tape)).stderr.decode().splitlines()
    assert shown[:20] == lines
    assert b"malformed" not in place.steno("run", "--quiet", "Say it.").stderr


def test_json_is_the_report_that_the_tape_gives(place: Place) -> None:
    """Live is replay; beside it stand the task and its attempts."""
    place.plan({"recording": str(NEWEST / "multi_tool_edit")})
    done = place.steno("run", "--json", "Edit it.")
    live = json.loads(done.stdout)
    (tape,) = place.tapes
    read = json.loads(steno.read(tape).to_json())
    assert {name: live[name] for name in read} == read
    assert (live["verdict"], done.returncode, done.stdout.count(b"\n")) == ("success", 0, 1)
    (attempt,) = live["attempts"]
    assert (attempt["run_id"], attempt["why"], attempt["cost"]) == (
        read["run_id"],
        "done",
        read["cost"],
    )
    assert rows(place, "SELECT id, verdict, prompt FROM runs") == [
        (read["run_id"], "success", "Edit it.")
    ]
    assert rows(place, "SELECT id, verdict, attempts FROM tasks") == [
        (live["task_id"], "success", 1)
    ]


def test_raw_is_the_agents_own_bytes(place: Place) -> None:
    place.plan({"recording": str(NEWEST / "multi_tool_edit"), "err": "noise\n"})
    done = place.steno("run", "--raw", "Edit it.")
    assert done.stdout == (NEWEST / "multi_tool_edit" / "stdout").read_bytes()


def test_raw_of_every_attempt(place: Place) -> None:
    first, second = NEWEST / "max_turns", NEWEST / "max_turns_resume"
    place.plan({"recording": str(first)}, {"recording": str(second)})
    done = place.steno("run", "--raw", "--max-turns", "2..30", "Go.")
    assert (done.stdout, done.returncode) == (
        (first / "stdout").read_bytes() + (second / "stdout").read_bytes(),
        0,
    )


def test_raw_without_a_reader(place: Place) -> None:
    """A reader that goes away ends the run, as it ends `cat`; it is recorded all the same."""
    place.plan({"out": done_well() * 2000, "sleep": 60})
    began = time.monotonic()
    child = place.start("run", "--raw", "Go.")
    assert child.stdout is not None
    child.stdout.read(10)
    child.stdout.close()
    assert child.wait(30) == 141
    assert time.monotonic() - began < 20
    assert [
        row[0] for row in rows(place, "SELECT count(*) FROM runs WHERE verdict IS NOT NULL")
    ] == [1]
    assert child.stderr is not None
    child.stderr.close()


def test_quiet_says_only_what_is_wrong(place: Place) -> None:
    done = place.steno("run", "--quiet", "Go.")
    assert (done.stdout, done.stderr, done.returncode) == (b"Done.\n", b"", 0)
    place.plan({"recording": str(NEWEST / "max_turns")})
    done = place.steno("run", "--quiet", "--attempts", "1", "Go.")
    assert (done.stderr.decode(), done.returncode) == (
        "steno: max_turns: Reached maximum number of turns (2)\n",
        3,
    )


def test_r5_quiet_says_that_a_session_was_replaced(place: Place) -> None:
    """A warning, also in the report: the session is not the requested one."""
    place.plan(
        {"recording": str(NEWEST.parent / "2.0.37" / "resume_wrong_id")}, {"out": done_well()}
    )
    done = place.steno("run", "--quiet", "--json", "--resume", UUID, "Go.")
    told = f"session {UUID} not found; starting a new one"
    assert (done.stderr.decode(), done.returncode) == (f"steno: {told}\n", 0)
    assert json.loads(done.stdout)["warnings"] == [told]


def test_l1_a_full_disk_is_reported_and_the_recording_is_imported_later(place: Place) -> None:
    """Warned also with --quiet; the run does not stay active in the ledger."""
    lines = (assistant(text("x" * 2000), message=f"msg_{number}") for number in range(800))
    place.plan({"out": stream(init(), *lines, result("Done.")).decode()})
    most = 1_500_000  # of each file; enough for the tables of a new ledger
    held = place.start(
        "run",
        "--quiet",
        "Go.",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    out, err = held.communicate(timeout=60)
    tape, ledger = err.decode().splitlines()
    assert (out, held.returncode) == (b"Done.\n", 0)
    assert tape == "steno: recording incomplete: File too large"
    assert ledger.startswith("steno: continuing without the ledger: ")
    (run,) = rows(place, "SELECT id FROM runs WHERE verdict IS NULL")
    told = f"steno: run {run[0]} could not be written to the ledger; recovered from its recording\n"
    assert place.steno("ps").stderr.decode() == told
    assert rows(place, "SELECT id, verdict FROM runs") == [(run[0], "no_result")]
    assert rows(place, "SELECT verdict, ended_at > 0 FROM tasks") == [("no_result", 1)]
    assert rows(place, "SELECT count(*) > 100 FROM requests") == [(1,)]
    assert (place.steno("ps").stderr, list((place.data / "live").iterdir())) == (b"", [])


def test_l1_a_ledger_that_fails_in_the_middle_is_reported_and_gets_every_run_later(
    inside: Place,
) -> None:
    """The calling program continues; its runs have finished all the same."""
    inside.plan({"recording": str(NEWEST / "max_turns")}, {"out": done_well()})
    steno.run("First.", max_turns="2..30")
    with sqlite3.connect(inside.data / "ledger.db") as ledger:
        ledger.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON runs "
            "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    report = steno.run("Second.")
    assert [warning.partition(":")[0] for warning in report.warnings] == [
        "continuing without the ledger"
    ]
    assert rows(inside, "SELECT verdict, count(*) FROM runs GROUP BY verdict ORDER BY verdict") == [
        (None, 1),
        ("max_turns", 1),
        ("success", 1),
    ]
    with sqlite3.connect(inside.data / "ledger.db") as ledger:
        ledger.execute("DROP TRIGGER full")
    assert json.loads(inside.steno("ps", "--json").stdout)["rows"] == []
    assert rows(
        inside, "SELECT verdict FROM runs WHERE task = ?".replace("?", f"'{report.task_id}'")
    ) == [("success",)]
    assert rows(inside, "SELECT verdict, attempts FROM tasks ORDER BY started_at") == [
        ("success", 2),
        ("success", 1),
    ]


def test_an_error_is_no_answer(place: Place) -> None:
    place.plan({"recording": str(NEWEST / "api_401")})
    done = place.steno("run", "Go.")
    assert (done.stdout, done.returncode) == (b"", 77)


# -- the prompt ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "stdin", "prompt"),
    [
        (["a prompt"], b"not read", "a prompt"),
        (["- fix this\n- and that"], None, "- fix this\n- and that"),
        (["-h is broken"], None, "-h is broken"),
        (["--json is broken"], None, "--json is broken"),
        (["--prompt=--json"], None, "--json"),
        (["--prompt", "plain"], None, "plain"),
        (["--system-prompt", "- be brief", "go"], None, "go"),
        ([], "from stdin \u00ff\n".encode(), "from stdin \u00ff\n"),
        (["--file", "-"], b"from stdin", "from stdin"),
        (["--file", "prompt.md"], b"not read", "from a file\n"),
        ([], b"x" * 1_000_000, "x" * 1_000_000),
        (["go", "--", "--settings", "a b", "--", "x"], None, "go"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_where_the_prompt_comes_from(
    place: Place, words: list[str], stdin: bytes | None, prompt: str
) -> None:
    (place.work / "prompt.md").write_text("from a file\n")
    done = place.steno("run", *words, stdin=stdin)
    assert (done.returncode, place.calls[0]["prompt"]) == (0, prompt), done.stderr


def test_what_follows_two_dashes_is_the_agents(place: Place) -> None:
    assert place.steno("run", "go", "--", "--settings", "a b", "--debug", "--", "x").returncode == 0
    assert place.calls[0]["argv"][-5:] == ["--settings", "a b", "--debug", "--", "x"]


# -- wrong use -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--agent", "nobody", "x"],
            "unknown agent 'nobody'; known: " + ", ".join((*AGENTS, "replay")),
        ),
        (
            ["--session-id", "abc", "x"],
            "--session-id abc: not a session id of claude; "
            f"expected for example {EXAMPLE_SESSION_ID}",
        ),
        (["--resume", UUID, "--session-id", UUID, "x"], f"--session-id and --resume {BOTH}"),
        (["--resume", UUID, "--continue", "x"], f"--resume and --continue {BOTH}"),
        (["--fork", "x"], "--fork needs --resume: it copies that session"),
        (["--resume", "abcd", "x"], f"--resume abcd: {NO_LEDGER}"),
        (["--file", "nothing.md"], "--file nothing.md: cannot read: No such file or directory"),
        (["--file", "."], "--file .: cannot read: Is a directory"),
        (["--file", "a", "x"], "PROMPT and --file cannot be used together"),
        (
            ["--prompt", "a", "x"],
            "PROMPT and --prompt cannot be used together; see: steno run --help",
        ),
        (["fix", "it"], "expected one PROMPT, found 2: put it in quotes; see: steno run --help"),
        ([" \n"], "the prompt is empty; give a task to work on"),
        ([], "the prompt is empty; give a task to work on"),
        (["--resume", "", "x"], "--resume: expected a non-empty text, found ''"),
        (["--session-id", "", "x"], "--session-id: expected a non-empty text, found ''"),
        (["--cwd", "", "x"], "--cwd: expected a non-empty text, found ''"),
        (
            ["--agent", "replay", "--recording", "", "x"],
            "--recording: expected a non-empty text, found ''",
        ),
        (
            ["--json-schema", "[]", "x"],
            "--json-schema: expected a JSON schema (an object), found list",
        ),
        (["--file", "latin.md"], "--file latin.md: not UTF-8 at byte 3: b'na\\xefve'"),
        (["na\udcefve"], "argument: not UTF-8 at byte 3: b'na\\xefve'"),
        (
            ["--max-cost", "-1", "x"],
            "--max-cost: expected an amount in dollars above 0, such as 5 or 0.50, found '-1'",
        ),
        (
            ["--max-tokens", "0", "x"],
            "--max-tokens: expected a whole number above 0, such as 20 or 200k, found '0'",
        ),
        (
            ["--max-turns", "abc", "x"],
            "--max-turns: expected a whole number above 0, such as 20, "
            "or a range such as 10..30, found 'abc'",
        ),
        (
            ["--max-turns", "5..3", "x"],
            "--max-turns: expected the smaller number first, as in 10..30, found '5..3'",
        ),
        (
            ["--tag", "nightly", "x"],
            "--tag: expected NAME=VALUE, with a name of letters, digits and . _ - /, "
            "and one line of text as value, found 'nightly'",
        ),
        (["--cwd", "nowhere", "x"], "--cwd nowhere: not a folder"),
        (
            ["--env", "A", "x"],
            "--env: expected NAME=VALUE, with a name of letters, digits and underscores",
        ),
        (["--mcp-config", "/no/file", "x"], "--mcp-config /no/file: file not found"),
        (["--on-limit", "fallback", "x"], NO_FALLBACK),
        (
            ["--worktree=a/b", "x"],
            "--worktree=a/b: expected a name of letters, digits, dots, dashes and underscores",
        ),
        (
            ["--json", "--raw", "x"],
            "--raw: not allowed with --json; see: steno run --help",
        ),
        (["--frok", "x"], "unknown option --frok; did you mean --fork?"),
        (["--wrong", "x"], "unknown option --wrong; see: steno run --help"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_use_is_one_line_and_nothing_else(place: Place, words: list[str], told: str) -> None:
    (place.work / "latin.md").write_bytes(b"na\xefve")
    assert refused(place, place.steno("run", *words)) == f"steno: {told}"


def test_wrong_use_is_reported_even_if_the_agent_is_not_installed(place: Place) -> None:
    told = refused(place, place.steno("run", "--program", "/no/such/claude", "--sync", "foo", "x"))
    assert told.startswith("steno: foo: ")


def test_no_stdin_is_no_prompt(place: Place) -> None:
    told = "no prompt: give PROMPT or --file PATH, or pipe it to stdin"
    held = place.start("run", preexec_fn=lambda: os.close(0))
    assert (held.communicate(timeout=60)[1].decode(), held.returncode) == (f"steno: {told}\n", 2)
    assert (
        refused(place, place.steno("run", stdin=b"na\xefve"))
        == "steno: stdin: not UTF-8 at byte 3: b'na\\xefve'"
    )


def test_a_broken_config_file(place: Place) -> None:
    (place.work / "steno.toml").write_text("model = \n")
    assert (
        refused(place, place.steno("run", "x"))
        == f"steno: {place.work}/steno.toml:1:9: Invalid value"
    )


@pytest.mark.parametrize("table", ["agents", "models"])
@pytest.mark.parametrize("command", ["run", "config"])
def test_a_config_file_that_names_no_agent(place: Place, table: str, command: str) -> None:
    (place.work / "steno.toml").write_text(f'model = "opus"\n[{table}.cluade]\n')
    told = refused(place, place.steno(command, *(["x"] if command == "run" else ())))
    assert (
        told == f"steno: {place.work}/steno.toml:2:1: unknown agent 'cluade'; did you mean claude?"
    )


def test_bytes_that_are_no_letters(place: Place) -> None:
    """In a folder's name they cannot be written down."""
    folder = os.fsdecode(os.fsencode(place.folder) + b"/w\xff")
    Path(folder).mkdir()
    line = refused(place, place.steno("run", "x", cwd=Path(folder)))
    assert "folder names must be valid UTF-8" in line


def test_a_worktree_of_no_repository(place: Place) -> None:
    told = refused(
        place, place.steno("run", "--worktree", "x", GIT_CEILING_DIRECTORIES=str(place.folder))
    )
    assert told.startswith(f"steno: --worktree: {place.work}: not a git repository")


@pytest.mark.parametrize(
    "words", [[], ["--program", "/no/such/claude"], ["--env", "PATH=/nowhere"]]
)
def test_an_agent_that_is_not_installed(place: Place, words: list[str]) -> None:
    """127, how to install it, and nothing written. PATH is the one that the agent would get."""
    place.program.unlink()
    told = refused(place, place.steno("run", *words, "x", PATH="/usr/bin"), 127)
    where = (
        "/no/such/claude not found; check the path, or"
        if "--program" in words
        else "claude not found in PATH;"
    )
    assert told == f"steno: {where} install: npm install -g @anthropic-ai/claude-code"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("work", "is a folder; give the path of the program"),
        ("plain", "is not executable; make it executable: chmod +x {}"),
    ],
)
def test_a_program_that_is_none(place: Place, name: str, told: str) -> None:
    """126, as a shell has it, and what it is: it need not be installed."""
    path = place.folder / name
    (place.folder / "plain").write_text("#!/bin/sh\n")
    assert (
        refused(place, place.steno("run", "--program", path, "x"), 126)
        == f"steno: {path} {told.format(path)}"
    )
    assert (
        json.loads(place.steno("run", "--json", "--program", path, "x").stdout)["verdict"]
        == "subprocess"
    )


def test_x_a_disk_that_is_full_from_the_start_is_no_wrong_use(place: Place) -> None:
    """Nothing is started without its record."""
    for held, told in (
        (
            place.start(
                "run", "Go.", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            ),
            b"cannot create the recording",
        ),
        (
            place.start("run", "Go.", env=place.environ | {"XDG_DATA_HOME": str(place.program)}),
            b"cannot create folder: Not a directory",
        ),
    ):
        out, err = held.communicate(timeout=60)
        assert (out, held.returncode, told in err, err.count(b"\n")) == (b"", 74, True, 1), err
    assert place.calls == []


def test_json_also_where_nothing_was_started(place: Place) -> None:
    done = place.steno("run", "--json", "--program", "/no/such/claude", "x")
    report = json.loads(done.stdout)
    assert (report["verdict"], report["attempts"], done.returncode) == ("not_found", [], 127)
    context = report["context"]
    assert report["error_category"] == "subprocess"
    assert (context["limit"], context["limit_source"]) == (200_000, "assumed")


# -- how it is asked -----------------------------------------------------------------------------


def test_options_reach_the_agent(place: Place) -> None:
    (place.work / "lib").mkdir()
    words = [
        "--model",
        "opus",
        "--session-id",
        UUID,
        "--max-turns",
        "7",
        "--permission-mode",
        "plan",
        "--allow",
        "Read,Bash(a, b)",
    ]
    words += [
        "--allow",
        "Edit",
        "--deny",
        "Write",
        "--add-dir",
        "lib",
        "--mcp-config",
        '{"mcpServers":{}}',
        "--max-cost",
        "2.50",
    ]
    assert place.steno("run", *words, "--system-prompt", "Be brief.", "x").returncode == 0
    argv = place.calls[0]["argv"]
    expected = {
        "--model": "opus",
        "--session-id": UUID,
        "--max-turns": "7",
        "--permission-mode": "plan",
        "--disallowedTools": "Write",
        "--add-dir": str(place.work / "lib"),
        "--mcp-config": '{"mcpServers":{}}',
        "--max-budget-usd": "2.5",
        "--append-system-prompt": "Be brief.",
    }
    assert {name: argv[argv.index(name) + 1] for name in expected} == expected
    assert argv[argv.index("--allowedTools") + 1 :][:3] == ["Read", "Bash(a, b)", "Edit"]


def test_the_environment_of_the_agent(place: Place) -> None:
    ours = {"CLAUDECODE": "1", "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef", "KEPT": "yes"}
    place.environ |= ours
    place.steno("run", "--no-api-key", "--env", "MORE=a=b", "x")
    place.steno("run", "x")
    first, second = (call["env"] for call in place.calls)
    assert {name: first.get(name) for name in (*ours, "MORE")} == {
        "CLAUDECODE": None,
        "ANTHROPIC_API_KEY": None,
        "KEPT": "yes",
        "MORE": "a=b",
    }
    assert second["ANTHROPIC_API_KEY"] == ours["ANTHROPIC_API_KEY"]
    assert b"0123456789" not in b"".join(tape.read_bytes() for tape in place.tapes)


def test_settings_from_files_and_variables(place: Place) -> None:
    (place.home / "config" / "steno" / "steno.toml").write_text(
        'max_turns = 5\n[agents.claude]\nmodel = "mine"\n'
    )
    (place.work / "steno.toml").write_text('allow = ["Edit"]\n[env]\nCI = "1"\n')
    assert place.steno("run", "x", STENO_PERMISSION_MODE="plan").returncode == 0
    call = place.calls[0]
    assert [word in call["argv"] for word in ("mine", "5", "Edit", "plan")] == [True] * 4
    assert call["env"]["CI"] == "1"


def test_a_run_resumes_an_earlier_one(place: Place) -> None:
    """By the beginning of its id, from wherever; and a copy of it."""
    place.steno("run", "first")
    (tape,) = place.tapes
    assert place.steno("run", "--resume", tape.stem[:11], "--fork", "then").returncode == 0
    argv = place.calls[1]["argv"]
    assert (argv[argv.index("--resume") + 1], "--fork-session" in argv, "--session-id" in argv) == (
        SESSION,
        True,
        False,
    )
    done = place.steno("run", "--resume", "ffffff", "then")
    assert (done.returncode, len(place.calls)) == (2, 2)
    assert (
        b"--resume ffffff: expected a session id (a UUID) or the start of a run id in the ledger"
        in done.stderr
    )


# -- exit codes ----------------------------------------------------------------------------------


def test_every_verdict_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == set(VERDICTS)


@pytest.mark.parametrize(
    ("recording", "code"),
    [
        ("multi_tool_edit", 0),
        ("simple_success", 3),
        ("max_turns", 3),
        ("budget", 3),
        ("permission_denied", 3),
        ("api_401", 77),
        ("api_500_exhausted", 1),
        ("api_429_exhausted", 75),
        ("invalid_flag", 1),
        ("hang_sigterm", 137),
    ],
)
def test_the_exit_code_is_the_verdicts(place: Place, recording: str, code: int) -> None:
    place.plan({"recording": str(NEWEST / recording)})
    done = place.steno("run", "--resume-on", "none", "--on-limit", "fail", "x")
    assert done.returncode == code, done.stderr


def test_the_exit_code_of_the_agent(place: Place) -> None:
    place.plan({"recording": str(NEWEST / "permission_denied")})
    assert place.steno("run", "--exit-from", "agent", "x").returncode == 0
    place.plan({"out": done_well(), "exit": 9})
    assert place.steno("run", "x", STENO_EXIT_FROM="agent").returncode == 9


def test_advice_can_be_switched_off(place: Place) -> None:
    place.plan({"recording": str(NEWEST / "simple_success")})
    assert place.steno("run", "--no-advice", "x").returncode == 0


# -- attempts ------------------------------------------------------------------------------------


def test_a_second_attempt_resumes_with_more_turns(place: Place) -> None:
    place.plan(
        {"recording": str(NEWEST / "max_turns")}, {"recording": str(NEWEST / "max_turns_resume")}
    )
    done = place.steno("run", "--json", "--max-turns", "2..30", "x")
    report = json.loads(done.stdout)
    assert [attempt["verdict"] for attempt in report["attempts"]] == ["max_turns", "success"]
    argv, prompt = place.calls[1]["argv"], place.calls[1]["prompt"]
    session = report["session_id"]
    assert (argv[argv.index("--resume") + 1], argv[argv.index("--max-turns") + 1], prompt) == (
        session,
        "4",
        "continue",
    )
    assert (len(place.tapes), done.returncode) == (2, 0)


def test_the_resume_command_is_shown(place: Place) -> None:
    """R10: with the same options and folder, and what the verdict requires."""
    place.plan({"recording": str(NEWEST / "max_turns")})
    done = place.steno(
        "run", "--attempts", "1", "--max-turns", "10", "--allow", "Bash(make test)", "x"
    )
    session = "a67e74ad-df7e-40a3-9d41-31da5ec3cb84"
    expected = (
        f"steno run --resume {session} --max-turns 20 --allow 'Bash(make test)' "
        "--attempts 1 continue"
    )
    assert expected in " ".join(done.stderr.decode().split())


def test_hints_use_stenos_own_options(place: Place) -> None:
    """Where our command is shown, the agent's own options for the same are not."""
    place.plan({"recording": str(NEWEST / "permission_denied")})
    told = " ".join(place.steno("run", "--attempts", "1", "x").stderr.decode().split())
    assert ("--allow 'Edit(x.txt)'" in told, "--allowedTools" in told) == (True, False)


# -- budgets -------------------------------------------------------------------------------------


def test_a_budget_that_is_used_up_starts_nothing(place: Place) -> None:
    assert place.steno("budget", "set", "day", "0.01", "--no-import").returncode == 0
    place.steno("run", "first")  # costs more than that
    done = place.steno("run", "second")
    assert (done.stdout, done.returncode, len(place.calls)) == (b"", 3, 1)
    told = "steno: budget per day used up: $0.01 of $0.01; raise it: steno budget set day AMOUNT\n"
    assert done.stderr.decode() == told
    report = json.loads(place.steno("run", "--json", "third").stdout)
    assert (report["verdict"], report["attempts"], len(place.tapes)) == ("max_budget", [], 1)


def test_what_is_left_of_a_budget_is_the_most_that_a_run_may_cost(place: Place) -> None:
    place.steno("budget", "set", "month", "3", "--no-import")
    place.steno(
        "budget", "set", "day", "1", "--no-import", "--project", str(place.folder)
    )  # another project's
    place.steno("run", "--max-cost", "5", "first")
    place.steno("run", "--max-cost", "1", "second")
    limits = [call["argv"][call["argv"].index("--max-budget-usd") + 1] for call in place.calls]
    assert limits == ["3", "1"]


def test_a_run_is_stopped_at_its_budget(place: Place) -> None:
    """Stopped by steno at a request, if the agent itself does not stop."""
    lines = stream(
        init(), *(assistant(text("more"), message=f"msg_{number}") for number in range(50))
    ).decode()
    place.plan({"out": lines, "sleep": 60})
    began = time.monotonic()
    done = place.steno("run", "--json", "--max-tokens", "100k", "x")
    report = json.loads(done.stdout)
    assert (report["verdict"], done.returncode) == ("max_budget", 3)
    assert time.monotonic() - began < 30
    assert b"budget exhausted" in done.stderr


# -- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_run_in_order(place: Place, number: int) -> None:
    place.plan({"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60})
    child = place.start("run", "--json", "x")
    wait_for(place)
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    report = json.loads(out)
    assert (report["verdict"], report["text"], child.returncode) == (
        "interrupted",
        "I begin.",
        130,
    ), err
    assert rows(place, "SELECT verdict FROM runs") == [("interrupted",)]
    (tape,) = place.tapes
    assert tape.read_bytes().endswith(b'[null,"end",null]\n')
    assert f"steno run --resume {SESSION} continue" in " ".join(err.decode().split())


def test_the_second_signal_kills(place: Place) -> None:
    place.plan({"out": stream(init()).decode(), "sleep": 60, "deaf": True})
    child = place.start("run", "--json", "x")
    wait_for(place)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert time.monotonic() - began < 4  # well before the graces are over
    assert (json.loads(out)["verdict"], child.returncode) == ("interrupted", 130), err


def test_a_signal_gives_up_a_wait(place: Place) -> None:
    """A limit that resets in an hour: Ctrl-C ends the wait, and the work is reported."""
    place.plan({"recording": str(NEWEST / "api_429_exhausted")})
    child = place.start("run", "--json", "x")
    deadline = time.monotonic() + 30
    while not rows_or_none(place):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.2)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert time.monotonic() - began < 25
    assert (json.loads(out)["verdict"], child.returncode) == ("rate_limit", 130), err
    assert b"no longer waiting" in err


def rows_or_none(place: Place) -> list[Any]:
    """The runs that have ended; none while there is no ledger yet."""
    try:
        return rows(place, "SELECT id FROM runs WHERE verdict IS NOT NULL")
    except sqlite3.OperationalError:
        return []


def test_an_interrupt_that_was_ignored_before_stays_ignored(place: Place) -> None:
    """As for jobs in the background of a script."""
    place.plan({"out": done_well(), "sleep": 1.5})
    child = place.start("run", "x", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    wait_for(place)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (out, child.returncode) == (b"Done.\n", 0), err


def test_ignored_sigchld_does_not_lose_the_exit_code(place: Place) -> None:
    """SIGCHLD ignored by the parent: the agent's exit status would be lost."""
    place.plan({"out": done_well(), "exit": 9})
    child = place.start(
        "run",
        "--exit-from",
        "agent",
        "x",
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    child.communicate(timeout=60)
    assert child.returncode == 9


@pytest.mark.parametrize("form", ["--raw", "--json"])
def test_a_second_signal_ends_it_even_without_a_reader(place: Place, form: str) -> None:
    """A full pipe with a sleeping reader: steno waits, until the third signal."""
    place.plan(
        {
            "out": stream(
                init(), *[assistant(text("x" * 300_000))] * 3, result("y" * 300_000)
            ).decode(),
            "sleep": 0,
        }
    )
    child = place.start("run", form, "x")
    if form == "--raw":
        wait_for(place)
    time.sleep(3)
    for _ in range(3):
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            time.sleep(0.5)
    assert child.wait(60) is not None
    assert child.stdout is not None
    assert child.stderr is not None
    for file in (child.stdout, child.stderr):
        file.close()


@pytest.mark.parametrize("form", ["--raw", "--log"])
def test_a_reader_that_sleeps_stops_no_clock(place: Place, form: str) -> None:
    """A full stderr pipe does not delay the run, and its content stays readable."""
    words = [assistant(text(f"{number} " + "x" * 2_000)) for number in range(400)]
    place.plan({"out": stream(init(), *words).decode(), "sleep": 600})
    child = place.start("run", form, "--timeout", "3s", "x")
    until = time.monotonic() + 60
    while not rows_or_none(place):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert (child.poll(), rows(place, "SELECT verdict FROM runs")) == (None, [("timeout",)])
    out, err = child.communicate(timeout=60)
    assert child.returncode == 124
    assert (out == stream(init(), *words)) == (form == "--raw")
    assert form == "--raw" or all(b" %d xxx" % number in err for number in range(400))


# -- worktrees -----------------------------------------------------------------------------------


@pytest.fixture
def repository(place: Place) -> Place:
    """The place's folder as a repository with one commit."""
    own = {**place.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    (place.work / "deep").mkdir()
    (place.work / "deep" / "a.txt").write_text("one\n")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*author, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=place.work, env=own, check=True)
    return place


def test_a_worktree_of_its_own(repository: Place) -> None:
    place = repository
    place.plan({"out": done_well(), "write": "b.txt"})
    done = place.steno("run", "--worktree", "x", cwd=place.work / "deep")
    (call,) = place.calls
    (made,) = (place.folder / "work-worktrees").iterdir()
    assert (call["cwd"], done.returncode) == (str(made / "deep"), 0)
    assert (made / "deep" / "b.txt").exists()
    assert not (place.work / "deep" / "b.txt").exists()
    told = done.stderr.decode().splitlines()[0]
    assert told == f"steno: new worktree {made} (branch steno/{made.name})"
    assert rows(place, "SELECT id FROM tasks") == [(made.name,)]
    listed = subprocess.run(
        ["git", "status", "--porcelain", "--branch"], cwd=made, capture_output=True, check=True
    )
    assert listed.stdout == f"## steno/{made.name}\n?? deep/b.txt\n".encode()


def test_a_worktree_by_its_name_is_found_again(repository: Place) -> None:
    place = repository
    place.plan({"recording": str(NEWEST / "simple_success")})
    first, second = (
        place.steno("run", "--worktree=parser", "x"),
        place.steno("run", "--worktree=parser", "y"),
    )
    path = place.folder / "work-worktrees" / "parser"
    assert [call["cwd"] for call in place.calls] == [str(path), str(path)]
    assert first.stderr.decode().startswith(f"steno: new worktree {path} (branch steno/parser)")
    assert second.stderr.decode().startswith(f"steno: worktree {path} (branch steno/parser)")
    assert f"--cwd {path}" in " ".join(
        second.stderr.decode().split()
    )  # the session is found only there


# -- the library ---------------------------------------------------------------------------------


def test_run_returns_the_report(inside: Place) -> None:
    report = steno.run("Say it.", max_turns=3, env={"A": "b"})
    assert isinstance(report, steno.TaskReport)
    assert (report.verdict, report.result, report.ok) == ("success", "Done.", True)
    (call,) = inside.calls
    assert (call["prompt"], call["env"]["A"], "3" in call["argv"]) == ("Say it.", "b", True)
    (tape,) = inside.tapes
    assert steno.read(tape).to_json() == steno.read(tape).to_json()
    assert json.loads(steno.read(tape).to_json()) == {
        name: value
        for name, value in json.loads(report.to_json()).items()
        if name not in ("task_id", "attempts")
    }


def test_a_failed_run_is_a_report(inside: Place) -> None:
    inside.plan({"recording": str(NEWEST / "api_401")})
    report = steno.run("x")
    assert report.verdict == "auth"
    with pytest.raises(steno.RunFailed):
        report.raise_for_verdict()


def test_a_refused_start_gives_a_report_too(inside: Place) -> None:
    report = steno.run("x", program="/no/such/claude")
    assert (report.verdict, report.hint, report.attempts) == (
        "not_found",
        "check the path, or install: npm install -g @anthropic-ai/claude-code",
        [],
    )
    assert not inside.data.exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_turn": 3}, "unknown option max_turn; did you mean max_turns?"),
        (
            {"max_cost": -1},
            "max_cost: expected an amount in dollars above 0, such as 5 or 0.50, found -1",
        ),
        ({"resume": UUID, "session_id": UUID}, f"session_id and resume {BOTH}"),
        ({"args": "--x"}, "args: expected a list of strings"),
        ({"args": 5}, "args: expected a list of strings"),
        ({"resume": ""}, "resume: expected a non-empty text, found ''"),
        ({"session_id": " "}, "session_id: expected a non-empty text, found ' '"),
        ({"session_id": 5}, "session_id: expected a non-empty text, found 5"),
        ({"cwd": 5}, "cwd: expected a non-empty text, found 5"),
        ({"speed": "fast"}, "speed fast: expected a number >= 0"),
        ({"worktree": 5}, "worktree: expected a name or True, found 5"),
    ],
)
def test_wrong_options_raise_before_anything_is_started(
    inside: Place, options: Json, told: str
) -> None:
    with pytest.raises(steno.StenoError) as problem:
        steno.run("x", **options)
    assert str(problem.value) == told
    assert not inside.data.exists()


@pytest.mark.parametrize("prompt", [None, 5, b"x"])
def test_a_prompt_is_a_text(inside: Place, prompt: Any) -> None:
    with pytest.raises(steno.StenoError) as problem:
        steno.run(prompt)
    assert str(problem.value) == f"prompt: expected a string, found {prompt!r}"


def test_stream_gives_events_while_it_runs(inside: Place) -> None:
    inside.plan({"out": done_well(), "sleep": 1.0})
    live = steno.stream("x")
    assert (live.report, inside.calls) == (None, [])  # nothing runs yet
    observed, over_at_text = [], None
    for event in live:
        observed.append(type(event).__name__)
        if observed[-1] == "Text":
            over_at_text = live.report is not None
    assert (observed[0], observed[-2:], over_at_text) == ("Started", ["Exited", "Notice"], False)
    assert live.report is not None
    assert live.report.verdict == "success"


def test_leaving_the_stream_early_ends_the_run(inside: Place) -> None:
    inside.plan({"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60})
    live = steno.stream("x")
    began = time.monotonic()
    for _ in live:
        break
    assert time.monotonic() - began < 20
    assert live.report is not None
    assert live.report.verdict == "interrupted"
    assert rows(inside, "SELECT verdict FROM runs") == [("interrupted",)]


def test_arun_does_not_block(inside: Place) -> None:
    """Several at once, each with its own report."""
    inside.plan({"out": done_well(), "sleep": 0.5})

    async def all_of_them() -> list[steno.TaskReport]:
        return list(await asyncio.gather(*(steno.arun(f"task {number}") for number in range(3))))

    began = time.monotonic()
    reports = asyncio.run(all_of_them())
    assert [report.verdict for report in reports] == ["success"] * 3
    assert len({report.run_id for report in reports}) == 3
    assert time.monotonic() - began < 15
    assert rows(inside, "SELECT count(*) FROM runs WHERE verdict = 'success'") == [(3,)]


def test_cancelling_arun_ends_the_run_and_waits_for_its_end(inside: Place) -> None:
    inside.plan({"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60})

    async def cancelled() -> None:
        waiting = asyncio.ensure_future(steno.arun("x"))
        while not inside.calls:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    assert rows(inside, "SELECT verdict FROM runs") == [("interrupted",)]
    (tape,) = inside.tapes
    assert steno.read(tape).text == "I begin."


def test_arun_reports_wrong_use(inside: Place) -> None:
    with pytest.raises(steno.StenoError, match="the prompt is empty; give a task to work on"):
        asyncio.run(steno.arun(" "))


# -- the command to go on ------------------------------------------------------------------------


def unfinished(verdict: Verdict, **more: Any) -> TaskReport:
    attempts = [Attempt("r", UUID, verdict, Tokens(), Cost(), 3, 1, "stop")]
    return TaskReport(
        **{
            "verdict": verdict,
            "session_id": UUID,
            "requests": 1,
            "turns": 3,
            "attempts": attempts,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("report", "options", "command"),
    [
        (
            unfinished("max_turns"),
            {"max_turns": 10},
            f"steno run --resume {UUID} --max-turns 20 continue",
        ),
        (
            unfinished("max_turns"),
            {"max_turns": 20},
            f"steno run --resume {UUID} --max-turns 30 continue",
        ),
        (
            unfinished("max_turns"),
            {"max_turns": 50},
            f"steno run --resume {UUID} --max-turns 50 continue",
        ),
        (
            unfinished("max_turns"),
            {"max_turns": "10..30"},
            f"steno run --resume {UUID} --max-turns 10..30 continue",
        ),
        (unfinished("max_turns"), {}, f"steno run --resume {UUID} --max-turns 6 continue"),
        (unfinished("interactive"), {}, f"steno run --resume {UUID} '<your answer>'"),
        (unfinished("context_full"), {}, f"steno run --resume {UUID} /compact"),
        (
            unfinished(
                "permission",
                denials=[
                    DeniedCall("Bash", "1", allow_rule="Bash(rm -rf b)"),
                    DeniedCall("Bash", "2"),
                ],
            ),
            {"allow": ["Read"]},
            f"steno run --resume {UUID} --allow Read --allow 'Bash(rm -rf b)' continue",
        ),
        (
            unfinished("api"),
            {
                "cwd": "/a b",
                "no_api_key": True,
                "env": ["KEY=sk-ant-0123456789abcdef"],
                "system_prompt": "- x",
                "args": ["$"],
            },
            f"steno run --resume {UUID} --cwd '/a b' '--system-prompt=- x' "
            "--env 'KEY=[redacted]' --no-api-key continue -- '$'",
        ),
        (unfinished("api", session_id=None), {}, None),
        (unfinished("auth", requests=0), {}, None),
        (unfinished("success", ok=True), {}, None),
    ],
)
def test_the_resume_command(report: TaskReport, options: Json, command: str | None) -> None:
    assert resume_command(report, options) == command


# -- how the agent is started --------------------------------------------------------------------


def test_versions_that_lose_their_end_write_to_a_file() -> None:
    versions = ("1.0.100", "2.0.37", "2.1.197", "2.1.325", "2.1.400", "3.0.0", None, "nightly")
    assert [stdout_mode(version) for version in versions] == ["file"] * 3 + ["pipe"] * 5


# -- the ledger, made anew -----------------------------------------------------------------------


def test_l2_rebuild_makes_runs_and_tasks_anew_from_tapes(place: Place) -> None:
    """Also with an imported transcript of the same session, and with a deleted ledger."""
    place.plan(
        {"recording": str(NEWEST / "max_turns")}, {"recording": str(NEWEST / "max_turns_resume")}
    )
    done = place.steno("run", "--quiet", "--max-turns", "2..30", "Go on and on.")
    assert done.returncode == 0
    stored = NEWEST.parents[1] / "transcripts" / NEWEST.name / "max_turns_resume"
    assert stored.is_dir()
    assert place.steno("ledger", "import", stored, "--quiet").returncode == 0
    before = told(place)
    assert [row[:5] for row in before["runs"]] == [
        (before["tasks"][0][0], 1, "max_turns", "Go on and on.", before["runs"][0][4]),
        (before["tasks"][0][0], 2, "success", "continue", "done"),
    ]
    assert "continuing" in before["runs"][0][4]
    assert (
        place.steno(
            "ledger", "note", rows(place, "SELECT id FROM runs ORDER BY attempt")[0][0], "mine"
        ).returncode
        == 0
    )
    done = place.steno("ledger", "rebuild")
    assert done.returncode == 0, done.stderr
    same(told(place), before)
    assert rows(place, "SELECT text FROM notes") == [("mine",)]
    for file in place.data.glob("ledger.db*"):
        file.unlink()
    done = place.steno("ledger", "rebuild")
    assert done.returncode == 0, done.stderr
    assert place.steno("ledger", "import", stored, "--quiet").returncode == 0
    same(told(place), before)


def same(now: dict[str, list[Any]], before: dict[str, list[Any]]) -> None:
    """Table by table, so that a difference can be read."""
    for name, results in before.items():
        assert now[name] == results, name


def told(place: Place) -> dict[str, list[Any]]:
    """All that the ledger says of runs, tasks and what was spent."""
    run = (
        "task, attempt, verdict, prompt, why, id, session, agent, project, source, turns, "
        "requests, input, output, cost_nano"
    )
    sums = ", ".join(
        f"sum({name})"
        for name in ("requests", "input", "cache_write", "cache_read", "output", "reported_nano")
    )
    return {
        "runs": rows(place, f"SELECT {run}, started_at, tools, files FROM runs ORDER BY attempt"),
        "tasks": rows(place, "SELECT id, agent, prompt, verdict, attempts FROM tasks"),
        "spend": rows(
            place, f"SELECT session, model, {sums} FROM spend GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        "calls": rows(place, "SELECT name, ok, duration_ms FROM calls ORDER BY at, id"),
    }
