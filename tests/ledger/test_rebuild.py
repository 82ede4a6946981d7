"""`steno ledger rebuild`: replaces the ledger as a whole or not at all."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steno.errors import LedgerError
from steno.ledger.importer import import_sources
from steno.ledger.queries.budget import set_budget
from steno.ledger.queries.ledger import PruneSelection, prune
from steno.ledger.queries.runs import add_note
from steno.ledger.queries.search import parse_query, search_texts
from steno.ledger.rebuild import RebuildResult, rebuild
from steno.ledger.run_record import upsert_run
from steno.ledger.store import Store, open_ledger
from steno.ledger.upsert import Pricer
from tests.golden import ROOT
from tests.ledger.test_importer import answers, sums_hold
from tests.rebuild_kills import build_ledger, contents, kill_rebuilds, leftovers
from tests.support.transcript_writer import Transcript
from tests.writer import AT, a_run

KILLS = int(os.environ.get("STENO_REBUILD_KILLS") or 6)


def rebuild_while(store: Store, step: Callable[[], None]) -> RebuildResult:
    """Rebuild; `step` is called once, after the copy was made and before it replaces the ledger."""
    steps = [step]

    def progress(done: int, total: int) -> None:
        if steps:
            steps.pop()()

    return rebuild(store, progress)


def test_a_killed_rebuild_loses_nothing(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old ledger answers until the new one replaces it; the next command tidies up."""
    monkeypatch.setenv("STENO_IMPORT_GROUP", "20000")
    build_ledger(ledger_url, tmp_path / "tree", sessions=30)
    for kill in kill_rebuilds(ledger_url, KILLS, seed=14):
        assert (kill.is_same, kill.wrong_budgets, kill.leftovers) == (True, 0, []), kill


def test_an_interrupted_rebuild_changes_nothing_and_leaves_nothing(
    store: Store, tmp_path: Path
) -> None:
    """Ctrl-C."""
    one = Transcript("s1")
    one.answer("m1")
    import_sources(store, [one.write(tmp_path)])
    before = contents(store)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild_while(store, interrupt)
    assert contents(store) == before
    assert leftovers(store) == []


def test_what_is_written_during_a_rebuild_is_kept(
    store: Store, ledger_url: str, tmp_path: Path
) -> None:
    """A new run, one more run of an old session, a transcript that grew, a note and a budget."""
    scripts = {name: Transcript(name, start=place) for place, name in enumerate(("s1", "s2"))}
    for name, one in scripts.items():
        one.call(f"m-{name}", f"c-{name}", "Bash", {"command": "ls"})
        one.write(tmp_path)
    import_sources(store, [str(tmp_path)])
    _write_run(store, 1)

    def write() -> None:
        with closing(open_ledger(ledger_url)) as other:
            scripts["s1"].result("c-s1")
            scripts["s1"].answer("later", text="what was said meanwhile")
            import_sources(other, [scripts["s1"].write(tmp_path)])
            _write_run(other, 2)
            _write_run(other, 51)  # of the same session as the first
            add_note(other, "runs", "run00000001", AT, "mine")
            set_budget(other, "day", "", 5_000_000_000, AT)

    done = rebuild_while(store, write)
    assert (done.sessions, done.kept, done.changed) == (1, 0, 3)
    with closing(open_ledger(str(tmp_path / "expected.db"))) as expected:
        import_sources(expected, [str(tmp_path)])
        for number in (1, 2, 51):
            _write_run(expected, number)
        assert answers(store) == answers(expected)
    sums_hold(store)
    assert store.query("SELECT text FROM notes") == [("mine",)]
    assert store.query("SELECT period FROM budgets") == [("day",)]
    assert import_sources(store, [str(tmp_path)]).files == 0
    assert (rebuild(store).changed, leftovers(store)) == (0, [])


def _write_run(store: Store, number: int) -> None:
    report, batch = a_run(number)
    with store.transaction():
        upsert_run(store, report, batch, AT + number * 1000, Pricer())


@pytest.mark.parametrize("grows", ["original", "fork"])
def test_messages_of_a_fork_count_once_if_one_of_the_files_grows(
    store: Store, ledger_url: str, tmp_path: Path, grows: str
) -> None:
    """The rebuild reads the older file first, so that shared messages move to it."""
    original = Transcript("original")
    original.call("m1", "c1", "Bash", {"command": "ls"})
    original.result("c1")
    fork = original.fork("fork")
    fork.answer("m2")
    paths = {"fork": fork.write(tmp_path), "original": original.write(tmp_path)}
    for place, path in enumerate(paths.values()):
        os.utime(path, (1_000 + place, 1_000 + place))
    import_sources(store, [*paths.values()])
    before = store.query("SELECT session, count(*) FROM requests GROUP BY session ORDER BY 1")
    assert before == [("fork", 2)]
    os.utime(paths["fork"], (5_000, 5_000))

    def write() -> None:
        script = {"original": original, "fork": fork}[grows]
        script.answer("m3")
        script.write(tmp_path)
        with closing(open_ledger(ledger_url)) as other:
            import_sources(other, [paths[grows]])

    done = rebuild_while(store, write)
    assert done.changed == 1
    assert store.query("SELECT sum(requests) FROM spend")[0][0] == 3
    assert store.query("SELECT count(*) FROM calls") == [(1,)]
    sums_hold(store)


def test_a_ledger_that_is_pruned_during_a_rebuild_stays_pruned(
    store: Store, ledger_url: str, tmp_path: Path
) -> None:
    """One line that says so; the sums are those of the pruned ledger."""
    one = Transcript("s1")
    one.answer("m1")
    import_sources(store, [one.write(tmp_path)])
    pruned: dict[str, Any] = {}

    def write() -> None:
        with closing(open_ledger(ledger_url)) as other:
            prune(other, PruneSelection(2_000_000_000_000, None), include_sums=False)
            pruned.update(contents(other))

    with pytest.raises(LedgerError, match="pruned during the rebuild, which changed nothing"):
        rebuild_while(store, write)
    assert contents(store) == pruned
    assert leftovers(store) == []


def test_only_one_process_rebuilds_a_ledger(store: Store, ledger_url: str, tmp_path: Path) -> None:
    """The second one says so, and no other command deletes the copies in use."""
    one = Transcript("s1")
    one.answer("m1")
    import_sources(store, [one.write(tmp_path)])
    before = answers(store)

    def write() -> None:
        with closing(open_ledger(ledger_url)) as other:
            assert leftovers(other) != []
            with pytest.raises(LedgerError, match="another process is rebuilding it"):
                rebuild(other)

    assert rebuild_while(store, write).sessions == 1
    assert answers(store) == before


def test_runs_without_a_session_are_not_counted_as_sessions(store: Store, tmp_path: Path) -> None:
    """The count is that of `steno sessions`."""
    one = Transcript("s1")
    one.answer("m1")
    silent = ROOT / "copilot" / "1.0.102" / "invalid_flag"
    import_sources(store, [one.write(tmp_path), str(silent)])
    assert store.query("SELECT count(*) FROM runs")[0][0] == 1
    assert store.query("SELECT count(*) FROM sessions")[0][0] == 1
    assert rebuild(store).sessions == 1


def test_the_recording_of_an_active_run_is_not_read(store: Store, tmp_path: Path) -> None:
    """It is written to the ledger when the run ends."""
    one = Transcript("s1")
    one.answer("m1")
    path = one.write(tmp_path)
    import_sources(store, [path])
    one.answer("m2")
    one.write(tmp_path)
    done = rebuild(store, recordings=[path], active=[path])
    assert (done.sessions, done.kept) == (0, 1)
    assert store.query("SELECT sum(requests) FROM spend")[0][0] == 1


def test_a_search_after_a_rebuild_finds_what_the_files_say(store: Store, tmp_path: Path) -> None:
    """The index is that of the new texts."""
    from steno.ledger.queries.filters import Filters, TimeRange

    one = Transcript("s1")
    one.answer("m1", text="alpha beta")
    import_sources(store, [one.write(tmp_path)])

    def hits(word: str) -> int:
        filters = Filters(TimeRange(None, None))
        return search_texts(store, parse_query(word), filters, None, None)[1]

    assert hits("alpha") == 1
    store.execute("UPDATE texts SET text = 'gamma'")
    rebuild(store)
    assert (hits("alpha"), hits("gamma")) == (1, 0)
