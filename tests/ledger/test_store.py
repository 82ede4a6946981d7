"""The ledger as a database (L2): migrations, concurrent writers, full disk, permissions."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from steno.cli import main
from steno.errors import LedgerError
from steno.ledger import schema
from steno.ledger.importer import import_sources
from steno.ledger.queries.runs import load_report
from steno.ledger.run_record import RUN_COLUMNS, upsert_run
from steno.ledger.store import migrate, open_ledger, schema_version
from tests.support.disks import seal, small_disk
from tests.support.transcript_writer import Transcript, tree
from tests.writer import AT, a_run

ROOT = Path(__file__).parents[2]
WRITERS, RUNS = 8, 10_000


# -- migrations ----------------------------------------------------------------------------------


def test_each_migration_leaves_its_record(ledger_url: str) -> None:
    """One number each, in order."""
    store = open_ledger(ledger_url)
    assert store.query("SELECT number, name FROM migrations ORDER BY number") == [
        (number, name) for number, (name, _) in enumerate(schema.MIGRATIONS, 1)
    ]
    store.close()


def test_a_ledger_of_the_first_migration_opens_with_the_last_and_a_copy_is_kept(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it held is still there, and the ledger as it was is kept beside."""
    monkeypatch.setattr("steno.ledger.store.migrate.__defaults__", (False, schema.MIGRATIONS[:1]))
    old = open_ledger(ledger_url)
    assert schema_version(old) == 1
    with old.transaction():
        for number, kind in enumerate(("request", "rest")):
            old.execute(
                "INSERT INTO requests (id, agent, session, kind, model, at, input, cache_write, "
                "cache_read, output, reasoning, cache_write_1h, saved_nano, source) "
                "VALUES (?, 'claude', 's1', ?, 'm', 0, 1, 0, 0, 0, 0, 0, 0, 'unknown')",
                (number, kind),
            )
        old.execute(
            "INSERT INTO spend VALUES "
            "('s1', 'm', 0, 'claude', '', 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2)"
        )
        old.execute(
            "INSERT INTO sessions (id, agent, prompts, compactions) VALUES ('s1', 'claude', 1, 0)"
        )
    old.close()
    monkeypatch.undo()
    new = open_ledger(ledger_url)
    assert schema_version(new) == len(schema.MIGRATIONS)
    assert new.query("SELECT requests FROM spend") == [(1,)]
    assert new.query("SELECT kind, requests FROM requests ORDER BY id") == [
        ("request", 1),
        ("rest", 0),
    ]
    assert new.query("SELECT count(*) FROM budgets") == [(0,)]
    assert new.query("SELECT id, host, branch FROM sessions") == [("s1", None, None)]
    if new.kind == "sqlite":
        assert sqlite3.connect(f"{ledger_url}.before-2").execute(
            "SELECT requests FROM spend"
        ).fetchall() == [(1,)]
    else:
        assert new.query("SELECT requests FROM before_2.spend") == [(1,)]
    new.close()


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(ledger_url: str) -> None:
    """All of it or nothing of it."""
    store = open_ledger(ledger_url)
    bad = (
        *schema.MIGRATIONS,
        ("bad", "CREATE TABLE half (a <int>); CREATE TABLE sessions (a <int>);"),
    )
    with pytest.raises(LedgerError):
        migrate(store, migrations=bad)
    assert schema_version(store) == len(schema.MIGRATIONS)
    with pytest.raises(LedgerError):
        store.query("SELECT * FROM half")
    store.close()


def test_a_newer_ledger_is_refused_with_a_clear_line(
    ledger_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not touched."""
    store = open_ledger(ledger_url)
    store.execute("INSERT INTO migrations VALUES (99, 'from the future', 0)")
    store.close()
    assert main(["ledger", "import", "--ledger", ledger_url]) == 2
    error = capsys.readouterr().err
    assert "newer steno" in error
    assert "upgrade" in error
    assert len(error.splitlines()) == 1


# -- concurrent writers --------------------------------------------------------------------------


def _writer(url: str, first: int, count: int) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "tests.writer", url, str(first), str(count)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_l2_eight_processes_write_ten_thousand_runs_and_all_are_there_once(ledger_url: str) -> None:
    """Into a ledger that none of them finds made; and each run is written by two of them."""
    share = RUNS // WRITERS
    started = [_writer(ledger_url, place * share, share) for place in range(WRITERS)]
    started.append(_writer(ledger_url, 0, 200))  # once more what another writes
    assert [(process.communicate()[1], process.returncode) for process in started] == [
        (b"", 0)
    ] * len(started)
    store = open_ledger(ledger_url)
    assert store.query("SELECT count(*), count(DISTINCT id) FROM runs") == [(RUNS, RUNS)]
    asked = (
        "SELECT sum(requests), sum(input), sum(cache_write), sum(cache_read), sum(output), "
        "sum(reported_nano) FROM spend"
    )
    told = tuple(map(int, store.query(asked)[0]))
    assert told == (RUNS, 3 * RUNS, 1000 * RUNS, 20_000 * RUNS, 101 * RUNS, 11_200_000 * RUNS)
    assert store.query("SELECT sum(turns) FROM sessions")[0][0] == RUNS
    store.close()


def test_many_that_find_an_old_ledger_at_once_all_migrate_it(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: each keeps its copy, or finds it migrated; none fails."""
    with monkeypatch.context() as before:
        before.setattr("steno.ledger.store.migrate.__defaults__", (False, schema.MIGRATIONS[:1]))
        open_ledger(ledger_url).close()
    started = [_writer(ledger_url, place * 5, 5) for place in range(WRITERS)]
    assert [(process.communicate()[1], process.returncode) for process in started] == [
        (b"", 0)
    ] * WRITERS
    store = open_ledger(ledger_url)
    assert store.query("SELECT count(*) FROM runs") == [(5 * WRITERS,)]
    assert schema_version(store) == len(schema.MIGRATIONS)
    store.close()


def test_a_run_that_is_booked_twice_is_there_once(ledger_url: str) -> None:
    """And its report comes out as it went in."""
    store = open_ledger(ledger_url)
    for _ in range(2):
        report, batch = a_run(7)
        with store.transaction():
            upsert_run(store, report, batch, AT, lambda request: (5, 1), why="it was enough")
    assert store.query("SELECT count(*), min(why) FROM runs") == [(1, "it was enough")]
    assert load_report(store, "run00000007") == report
    store.close()


# -- failures ------------------------------------------------------------------------------------


def _import(url: str, folder: Path, limit: int | None) -> "subprocess.CompletedProcess[bytes]":
    def small_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = [
        sys.executable,
        "-m",
        "steno",
        "ledger",
        "import",
        str(folder),
        "--ledger",
        url,
        "--quiet",
    ]
    settings = {**os.environ, "STENO_IMPORT_GROUP": "20000"}
    return subprocess.run(
        words, capture_output=True, check=False, env=settings, preexec_fn=small_disk
    )


def test_a_ledger_that_can_only_be_read(tmp_path: Path) -> None:
    """On a disk that is sealed: it answers, and a write says what is wrong."""
    folder = tree(tmp_path / "tree", sessions=3, answers=4)
    with small_disk(tmp_path / "disk", "8m") as disk:
        url = str(disk / "l.db")
        assert _import(url, folder, None).returncode == 0
        with closing(open_ledger(url)) as store:
            before = store.query("SELECT id FROM sessions ORDER BY id")
        seal(disk)
        for only_read in (False, True):
            with closing(open_ledger(url, read_only=only_read)) as store:
                assert store.query("SELECT id FROM sessions ORDER BY id") == before
                with pytest.raises(LedgerError, match="not writable; check its permissions"):
                    store.execute("DELETE FROM sessions")
        done = _import(url, tree(tmp_path / "more", sessions=5, answers=2), None)
        assert done.returncode == 2
        assert b"not writable; check its permissions" in done.stderr


@pytest.mark.parametrize("limit", [1_000, 150_000, 400_000])
def test_a_full_disk_is_one_clear_line_and_nothing_is_torn(tmp_path: Path, limit: int) -> None:
    """When there is room again, the import goes on and the sums are right."""
    folder, url = tree(tmp_path / "tree", sessions=20, answers=30), str(tmp_path / "l.db")
    done = _import(url, folder, limit)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert b"full" in done.stderr
    assert _import(url, folder, None).returncode == 0
    store, other = open_ledger(url), open_ledger(str(tmp_path / "other.db"))
    import_sources(other, [str(folder)])
    asked = (
        "SELECT session, model, hour, requests, output, computed_nano FROM spend ORDER BY 1, 2, 3"
    )
    assert store.query(asked) == other.query(asked)


def _as_nobody(words: list[str]) -> tuple[int, str]:
    """Carry out a command as a user who owns nothing; its exit code and what it said."""
    import_module(f"steno.cli.{words[0]}")  # another user may not be able to
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(theirs, 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        sys.stdout = sys.stderr
        if os.geteuid() == 0:
            os.setegid(65_534)
            os.seteuid(65_534)
        os._exit(main(words))
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        said = file.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def test_a_ledger_that_may_not_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """Its figures can still be asked for."""
    one = Transcript("s1")
    one.answer("m1")
    folder = tmp_path / "locked"
    folder.mkdir()
    url = str(folder / "l.db")
    path = one.write(tmp_path)
    store = open_ledger(url)
    import_sources(store, [path])
    store.close()
    (folder / "l.db").chmod(0o444)
    folder.chmod(0o555)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    one.answer("m2")
    one.write(tmp_path)
    code, said = _as_nobody(["ledger", "import", path, "--ledger", url])
    folder.chmod(0o755)
    assert code == 2, said
    assert "not writable" in said or "cannot be opened" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("mode", [0o444, 0o644, 0o666])
def test_a_ledger_in_a_folder_that_may_not_be_written_answers(
    tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the file itself may be written."""
    folder = tmp_path / "locked"
    folder.mkdir()
    url = str(folder / "l.db")
    with closing(open_ledger(url)) as store:
        import_sources(store, [str(tree(tmp_path / "tree", sessions=3, answers=4))])
    command = ["usage", "--json", "--no-import", "--ledger"]
    shutil.copy(url, tmp_path / "other.db")
    # Loads all modules: another user may not be able to.
    assert main([*command, str(tmp_path / "other.db")]) == 0
    expected = json.loads(capsys.readouterr().out)["rows"]
    (folder / "l.db").chmod(mode)
    folder.chmod(0o555)
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    code, said = _as_nobody([*command, url])
    folder.chmod(0o755)
    assert (code, json.loads(said)["rows"]) == (0, expected)
    assert [file.name for file in folder.iterdir()] == ["l.db"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("mysql://db/steno", "mysql"),
        ("postgresql://nobody@127.0.0.1:1/none", "postgresql://127.0.0.1:1/none"),
        ("/proc/nowhere/l.db", "no such ledger"),
        ("/proc", "cannot be opened"),
    ],
)
def test_a_ledger_that_cannot_be_opened_is_one_clear_line(
    where: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, exit 2, and no password in it."""
    assert main(["runs", "--ledger", where]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1


def test_a_file_that_is_no_ledger_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody's picture."""
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(5000))
    before = picture.read_bytes()
    assert main(["ledger", "import", "--ledger", str(picture)]) == 2
    assert "not a ledger" in capsys.readouterr().err
    assert picture.read_bytes() == before


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE bookmarks (url TEXT)"],
        ["CREATE TABLE migrations (id INTEGER, migration TEXT, batch INTEGER)"],
        [
            "CREATE TABLE migrations (number INTEGER, name TEXT)",
            "INSERT INTO migrations VALUES (1,1)",
        ],
        ["PRAGMA user_version = 7", "CREATE VIEW v AS SELECT 1"],
    ],
)
@pytest.mark.parametrize("command", [["runs"], ["ledger", "import"], ["ledger", "rebuild"]])
def test_a_database_of_another_program_is_refused_and_not_changed(
    tmp_path: Path, statements: list[str], command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even its journal mode."""
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as foreign:
        for statement in statements:
            foreign.execute(statement)
        foreign.commit()
    before = path.read_bytes()
    assert main([*command, "--ledger", str(path)]) == 2
    error = capsys.readouterr().err
    assert error == f"steno: {path}: not a ledger; use another file with --ledger\n"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_l5_nothing_that_is_stored_holds_a_secret(ledger_url: str, tmp_path: Path) -> None:
    """No table contains any kind of secret: prompts, answers, commands, errors, paths, reports."""
    secrets = {
        "sk-ant-api03-" + "A1b2" * 8,
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "AKIA" + "ABCD1234" * 2,
        "ASIA" + "ABCD1234" * 2,
        "xoxb-" + "12345678-abcdef",
        "hunter2hunter2",
    }
    one = Transcript("s1")
    for place, secret in enumerate(sorted(secrets)):
        said = (
            f"password={secret}"
            if secret.startswith("hunter")
            else f"use {secret} please, Bearer {secret}"
        )
        one.prompt(said)
        one.call(
            f"m{place}",
            f"c{place}",
            "Bash",
            {"command": f"curl -H 'Authorization: Bearer {secret}' --token={secret}"},
        )
        one.result(f"c{place}", f"failed with {said}", error=True)
        one.answer(f"n{place}", text=f"I used {said}")
    store = open_ledger(ledger_url)
    import_sources(store, [one.write(tmp_path)])
    for table in ("texts", "calls", "sessions", "requests", "denials", "changes", "sources"):
        held = repr(store.query(f"SELECT * FROM {table}"))
        assert not [secret for secret in secrets if secret in held], table
    assert store.query("SELECT count(*) FROM texts")[0][0] == 2 * len(secrets)
    store.close()


def test_l5_a_secret_across_the_place_where_a_text_is_cut_is_not_stored_in_part(
    ledger_url: str, tmp_path: Path
) -> None:
    """Targets, errors, names, and the report that is kept whole."""
    import zlib

    path, key = tmp_path / "run.jsonl", "sk-ant-api03-" + "A1b2" * 8
    head = {"session_id": "s1", "uuid": "u"}
    lines: list[dict[str, Any]] = [
        {
            "type": "system",
            "subtype": "init",
            "cwd": "/p",
            "model": f"m-{key}",
            "claude_code_version": key,
            **head,
        }
    ]
    for place in range(60):
        command, error = (
            "x" * (300 - place) + " " + key,
            "y" * (500 - place) + " " + key + " and more",
        )
        call = {
            "type": "tool_use",
            "id": f"c{place}",
            "name": f"mcp-{key}",
            "input": {"command": command},
        }
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            "id": f"m{place}",
            "role": "assistant",
            "model": f"m-{key}",
            "content": [call],
            "usage": usage,
        }
        lines.append({"type": "assistant", "message": message, **head})
        answer = {
            "type": "tool_result",
            "tool_use_id": f"c{place}",
            "content": error,
            "is_error": True,
        }
        lines.append({"type": "user", "message": {"role": "user", "content": [answer]}, **head})
    failed = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "result": "z" * 4070 + " " + key * 2,
    }
    lines.append({**failed, "errors": ["z" * 4080 + " " + key * 2], "num_turns": 1, **head})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    store = open_ledger(ledger_url)
    assert import_sources(store, [str(path)]).troubles == []
    names = ", ".join(name for name in RUN_COLUMNS if name != "report")
    report = zlib.decompress(store.query("SELECT report FROM runs")[0][0]).decode()
    held = [report, repr(store.query(f"SELECT {names} FROM runs"))]
    held += [
        repr(store.query(f"SELECT * FROM {table}"))
        for table in ("calls", "sessions", "requests", "spend", "tool_use")
    ]
    assert [text[text.index("sk-") - 40 :][:90] for text in held if "sk-" in text] == []
    assert store.query(
        "SELECT count(*) FROM calls WHERE length(target) > 200 AND length(error) > 400"
    ) == [(60,)]
    store.close()


def test_nul_characters_in_what_an_agent_said_are_no_trouble(
    ledger_url: str, tmp_path: Path
) -> None:
    """PostgreSQL cannot hold them."""
    one = Transcript("s\x001")
    one.prompt("a\x00b")
    one.answer("m\x001", text="c\x00d")
    store = open_ledger(ledger_url)
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(one.line(place) for place in range(len(one.lines))))
    import_sources(store, [str(path)])
    assert store.query("SELECT sum(requests) FROM spend")[0][0] == 1
    store.close()


@pytest.mark.parametrize("odd", ["names that differ by NUL", "a name that no index can store"])
def test_one_odd_file_costs_at_most_itself(ledger_url: str, tmp_path: Path, odd: str) -> None:
    """Among files that are written in the same transaction."""
    folder = tree(tmp_path / "tree", sessions=9, answers=4)
    names = [f"tool{number}" for number in range(60)]
    if odd == "names that differ by NUL":
        names += ["a\x00b", "a\ufffdb"]
    else:
        names.append("".join(map(chr, range(0x4E00, 0x8E00))))
    one = Transcript("odd")
    for number, name in enumerate(names):
        one.call(f"m{number}", f"c{number}", name, {"command": "ls"})
    one.write(folder)
    with closing(open_ledger(ledger_url)) as store:
        result = import_sources(store, [str(folder)])
        calls: dict[str, int] = dict(
            store.query("SELECT session, count(*) FROM calls GROUP BY session")
        )
        used = store.query("SELECT sum(calls) FROM tool_use")[0][0]
        own = calls.pop("odd", 0)
        assert (len(calls), sum(calls.values()), used) == (9, 36, 36 + own)
        if result.troubles:
            assert len(result.troubles) == 1
            assert "odd.jsonl" in result.troubles[0]
            assert (odd, store.kind, own) == ("a name that no index can store", "postgresql", 0)
        else:
            assert own == len(names)


def test_only_its_owner_can_read_a_ledger(tmp_path: Path) -> None:
    """What agents did is nobody else's business."""
    store: Any = open_ledger(str(tmp_path / "deep" / "l.db"))
    assert (tmp_path / "deep" / "l.db").stat().st_mode & 0o777 == 0o600
    store.close()
