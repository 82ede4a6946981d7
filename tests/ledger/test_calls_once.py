"""Each call, change and text counts once, under its own project, in whatever order it is read."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from steno.ledger.importer import import_sources
from steno.ledger.rebuild import rebuild
from steno.ledger.store import Store, open_ledger
from tests.support.transcript_writer import Transcript

RECORDINGS = Path(__file__).parents[1] / "recordings"
TOOL_USE = "SELECT project, name, calls, timed, total_ms, slowest_ms FROM tool_use ORDER BY 1, 2"


@pytest.fixture
def store(ledger_url: str) -> Any:
    found = open_ledger(ledger_url)
    yield found
    found.close()


def count(store: Store, table: str) -> int:
    return int(store.query(f"SELECT count(*) FROM {table}")[0][0])


# -- projects ------------------------------------------------------------------------------------


def test_a_call_that_a_fork_completes_stays_in_the_project_of_its_session(
    store: Store, tmp_path: Path
) -> None:
    """The fork has the result; the call is of a session that this import doesn't read."""
    one = Transcript("s1")
    one.call("m1", "c1", "Bash", {"command": "ls"})
    fork = one.fork("s2")
    fork.result("c1")
    import_sources(store, [one.write(tmp_path)])
    import_sources(store, [fork.write(tmp_path)])
    assert store.query(TOOL_USE) == [("/home/ada/engine", "Bash", 1, 1, 1000, 1000)]


def test_calls_move_to_the_project_of_their_session_when_it_becomes_known(
    store: Store, tmp_path: Path
) -> None:
    one = Transcript("s1")
    one.call("m1", "c1", "Bash", {"command": "ls"})
    one.result("c1")
    two = Transcript("s2")
    two.call("m2", "c2", "Bash", {"command": "ls"})
    for line in (*one.lines, *two.lines):
        del line["cwd"]
    import_sources(store, [one.write(tmp_path), two.write(tmp_path)])
    assert store.query(TOOL_USE) == [("", "Bash", 2, 1, 1000, 1000)]
    for line in one.lines:
        line["cwd"] = "/home/ada/engine"
    import_sources(store, [one.write(tmp_path)])
    assert [row[:4] for row in store.query(TOOL_USE)] == [
        ("", "Bash", 1, 0),
        ("/home/ada/engine", "Bash", 1, 1),
    ]


# -- counts of an import -------------------------------------------------------------------------


def test_copies_of_a_run_are_one_new_run(store: Store, tmp_path: Path) -> None:
    for number in range(7):
        shutil.copytree(RECORDINGS / "copilot/1.0.102/denied", tmp_path / f"copy{number}")
    assert import_sources(store, [str(tmp_path)]).runs == count(store, "runs") == 1
    assert import_sources(store, [str(RECORDINGS / "copilot/1.0.102/denied")]).runs == 0


# -- runs and transcripts ------------------------------------------------------------------------

KEPT = [
    *("codex/0.80.0/edit_and_shell", "codex/0.80.0/patch_rejected", "codex/0.80.0/resume_first"),
    *("codex/0.166.0/file_change_via_shell", "codex/0.166.0-gpt-5.5/command_exec"),
    *("codex/0.166.0-gpt-5.5/file_change", "codex/0.166.0-gpt-5.5/sandbox_slow"),
    *(
        "codex/0.166.0-gpt-5.5/resume_second",
        "copilot/1.0.102/denied",
        "copilot/1.0.60/edit_and_shell",
    ),
    *("copilot/1.0.102/subagent_killed", "copilot/1.0.102/tools_kept"),
    *("copilot/1.0.92/resume_second_sums", "gemini/0.61.0/tools_chat"),
]
COUNTED = ("calls", "changes", "denials", "texts")


def counts(store: Store) -> dict[str, int]:
    assert store.query("SELECT coalesce(sum(calls), 0) FROM tool_use") == [(count(store, "calls"),)]
    return {table: count(store, table) for table in COUNTED}


def in_new_ledger(path: Path, *imports: list[str]) -> list[dict[str, int]]:
    """What a new ledger has after each import."""
    path.mkdir()
    store = open_ledger(str(path / "ledger.db"))
    found = []
    for paths in imports:
        import_sources(store, paths)
        found.append(counts(store))
    store.close()
    return found


@pytest.mark.parametrize("case", KEPT)
def test_a_run_and_its_transcript_count_once(case: str, tmp_path: Path) -> None:
    """Each of both has all of it; transcripts also have prompts and other runs of the session."""
    run = [str(RECORDINGS / case)]
    transcript = [str(path) for path in sorted((RECORDINGS / case / "sessions").rglob("*.jsonl"))]
    run_first = in_new_ledger(tmp_path / "1", run, transcript)
    transcript_first = in_new_ledger(tmp_path / "2", transcript, run)
    wanted = transcript_first[0]
    assert run_first[0]["calls"] > 0
    assert (run_first[1], transcript_first[1]) == (wanted, wanted)


@pytest.mark.parametrize("case", ["codex/0.166.0-gpt-5.5/sandbox_slow", "copilot/1.0.102/denied"])
def test_reading_both_again_changes_nothing(store: Store, case: str, tmp_path: Path) -> None:
    run = shutil.copytree(RECORDINGS / case, tmp_path / "run")
    (transcript,) = [str(path) for path in (RECORDINGS / case / "sessions").rglob("*.jsonl")]
    import_sources(store, [str(run)])
    import_sources(store, [transcript])
    before = [store.query(f"SELECT * FROM {table} ORDER BY id") for table in COUNTED]
    copy = tmp_path / Path(transcript).name
    shutil.copy(transcript, copy)
    import_sources(store, [str(copy)])
    shutil.copytree(run, tmp_path / "again")
    import_sources(store, [str(tmp_path / "again")])
    assert [store.query(f"SELECT * FROM {table} ORDER BY id") for table in COUNTED] == before


@pytest.mark.parametrize(
    "case", ["codex/0.166.0-gpt-5.5/file_change", "copilot/1.0.102/tools_kept"]
)
def test_calls_and_changes_belong_to_the_run_if_its_transcript_was_read_before(
    store: Store, case: str
) -> None:
    (transcript,) = [str(path) for path in (RECORDINGS / case / "sessions").rglob("*.jsonl")]
    import_sources(store, [transcript])
    import_sources(store, [str(RECORDINGS / case)])
    for table in ("calls", "changes"):
        assert count(store, table)
        assert store.query(f"SELECT count(*) FROM {table} WHERE run IS NULL") == [(0,)]


def test_calls_of_different_sessions_are_different_calls(store: Store) -> None:
    """Copilot's messages have the same ids in all of these runs."""
    import_sources(store, [str(RECORDINGS / "copilot/1.0.102")])
    assert store.query("SELECT sum(tools) FROM runs") == [(count(store, "calls"),)] == [(24,)]
    said = "SELECT count(*) FROM texts WHERE text = 'Trying.'"
    assert store.query(said) == [(3,)]  # allow_rule, denied, deny_rule


def test_calls_of_different_runs_of_a_session_are_different_calls(
    store: Store, tmp_path: Path
) -> None:
    """Each run of Codex numbers its items from 0."""
    lines = (RECORDINGS / "codex/0.166.0-gpt-5.5/file_change/stdout").read_text()
    (tmp_path / "one.jsonl").write_text(lines)
    (tmp_path / "two.jsonl").write_text(lines.replace("new.txt", "newer.txt"))
    import_sources(store, [str(tmp_path / "one.jsonl"), str(tmp_path / "two.jsonl")])
    assert store.query("SELECT count(*), sum(tools) FROM runs") == [(2, 2)]
    assert counts(store) == {"calls": 2, "changes": 6, "denials": 0, "texts": 2}


@pytest.mark.parametrize(
    "case", ["codex/0.166.0-gpt-5.5/command_exec", "copilot/1.0.102/tools_kept"]
)
def test_a_transcript_that_is_read_in_parts_before_and_after_its_run_counts_once(
    store: Store, case: str, tmp_path: Path
) -> None:
    """As if `steno top` had imported it during the run; then all of it again, as a rebuild does."""
    (source,) = (RECORDINGS / case / "sessions").rglob("*.jsonl")
    lines = source.read_bytes().splitlines(keepends=True)
    calls = [
        number for number, line in enumerate(lines) if b"call_" in line and b"output" not in line
    ]
    transcript = tmp_path / source.name
    transcript.write_bytes(b"".join(lines[: calls[1] + 1]))  # the result of a call is not there yet
    import_sources(store, [str(transcript)])
    assert count(store, "calls") > 0
    import_sources(store, [str(RECORDINGS / case)])
    transcript.write_bytes(b"".join(lines))
    import_sources(store, [str(transcript)])
    (wanted,) = in_new_ledger(tmp_path / "1", [str(source)])
    assert counts(store) == wanted
    assert rebuild(store).kept == 0
    assert counts(store) == wanted
