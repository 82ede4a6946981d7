"""The import (L2, L3, M2, M7): everything counts once, only new data is read, no data is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steno import event as ev
from steno.agents.base import HANDOVER_PROMPT
from steno.analysis.usage import EARLIER_RUNS_LOWER_BOUND, EARLIER_RUNS_UPPER_BOUND
from steno.ledger import discovery as find
from steno.ledger import importer as pulling
from steno.ledger import source_reader as parts
from steno.ledger.importer import import_sources
from steno.ledger.queries.runs import load_report
from steno.ledger.rebuild import rebuild
from steno.ledger.store import Store, open_ledger
from tests.support.transcript_writer import Transcript, tree

RECORDINGS = Path(__file__).parents[1] / "recordings"
USED = "calls, errors, denied, open, timed, total_ms"
SPENT = "session, model, hour, requests, input, cache_write, cache_read, output, computed_nano"
TOTALS = (
    "sum(requests), sum(input), sum(cache_write), sum(cache_read), sum(output), "
    "sum(reported_nano), sum(computed_nano)"
)


def totals(store: Store) -> tuple[int, ...]:
    """What the sums say in all."""
    return tuple(int(figure or 0) for figure in store.query(f"SELECT {TOTALS} FROM spend")[0])


def answers(store: Store) -> dict[str, Any]:
    """All that a question could be about, without what depends on the time of the import."""
    asked = {
        "spend": "SELECT * FROM spend ORDER BY session, model, hour",
        "tool_use": f"SELECT hour, agent, project, name, {USED} FROM tool_use ORDER BY 1, 2, 3, 4",
        "sessions": "SELECT * FROM sessions ORDER BY id",
        "runs": "SELECT id, session, verdict, cost_nano, started_at, tools, files "
        "FROM runs ORDER BY id",
        "requests": "SELECT id, session, run, model, at, input, output, cost_nano, source "
        "FROM requests ORDER BY id",
        "calls": "SELECT id, session, name, ok, denied, duration_ms FROM calls ORDER BY id",
        "changes": "SELECT id, path, change FROM changes ORDER BY id",
        "texts": "SELECT id, role, text FROM texts ORDER BY id",
    }
    found = {name: store.query(sql) for name, sql in asked.items()}
    found["texts"] = [
        (id_, role, text.replace("\x00", "\ufffd")) for id_, role, text in found["texts"]
    ]  # PostgreSQL holds no NUL
    return found


def sums_hold(store: Store) -> None:
    """The sums are what the rows add up to."""
    rows = "SELECT sum(requests), sum(input), sum(cache_write), sum(cache_read), sum(output)"
    assert (
        store.query(f"{rows} FROM requests")[0] == store.query(f"SELECT {TOTALS} FROM spend")[0][:5]
    )
    cost = store.query("SELECT coalesce(sum(cost_nano), 0) FROM requests")[0][0]
    assert (
        cost
        == store.query("SELECT coalesce(sum(reported_nano + computed_nano), 0) FROM spend")[0][0]
    )
    assert store.query("SELECT coalesce(sum(calls), 0) FROM tool_use") == store.query(
        "SELECT count(*) FROM calls"
    )


@pytest.fixture
def store(ledger_url: str) -> Any:
    found = open_ledger(ledger_url)
    yield found
    found.close()


# -- counting ------------------------------------------------------------------------------------


def test_m2_a_message_counts_once_with_its_largest_output(store: Store, tmp_path: Path) -> None:
    """k lines of one message, whose output grows, are one request."""
    one = Transcript("s1")
    one.answer("m1", output=1, blocks=2)
    one.answer("m1", output=57)
    one.answer("m2", output=9)
    import_sources(store, [one.write(tmp_path)])
    assert totals(store)[:5] == (2, 6, 2000, 40000, 66)
    sums_hold(store)


def test_m2_a_fork_that_repeats_messages_adds_only_its_own(store: Store, tmp_path: Path) -> None:
    """The copy has another session's name; the lines' own names are the same."""
    one = Transcript("s1")
    one.answer("m1")
    one.call("m2", "c1", "Bash", {"command": "ls"})
    one.result("c1")
    fork = one.fork("s2")
    fork.answer("m3")
    import_sources(store, [one.write(tmp_path), fork.write(tmp_path)])
    assert totals(store)[0] == 3
    assert store.query("SELECT session, count(*) FROM requests GROUP BY session ORDER BY 1") == [
        ("s1", 2),
        ("s2", 1),
    ]
    assert store.query("SELECT count(*) FROM calls") == [(1,)]
    sums_hold(store)


def test_m2_a_scripted_server_that_repeats_its_ids_is_still_counted_right(store: Store) -> None:
    """In 2.1.325/fork_session ids restart with each process; the agent reports 0.066272."""
    import_sources(store, [str(RECORDINGS / "transcripts/2.1.325/fork_session")])
    assert totals(store)[0] == 6
    assert totals(store)[6] == 66_272_000


@pytest.mark.parametrize(
    ("version", "total"), [("2.1.325", 66_272_000), ("2.1.197", None), ("2.1.50", None)]
)
def test_m7_resumed_runs_add_up_whether_the_agent_counts_per_process_or_over_the_session(
    store: Store, version: str, total: int | None
) -> None:
    """Four runs of one task; each books its own part."""
    names = ("max_turns", "max_turns_resume", "max_turns_resume2", "fork_session")
    folders = [RECORDINGS / "claude" / version / name for name in names]
    import_sources(store, [str(folder) for folder in folders])
    own = 0.0
    for folder in folders:
        lines = [json.loads(line) for line in (folder / "stdout").read_text().splitlines()]
        result = [line for line in lines if line.get("type") == "result"][-1]
        since = result.get("model_usage_since_last_result")
        own += (
            sum(model["costUSD"] for model in since.values())
            if since is not None
            else result["total_cost_usd"]
        )
    assert totals(store)[5] == round(own * 1e9)
    if total is not None:
        assert totals(store)[5] == total
    sums_hold(store)


def test_l2_a_run_and_its_own_transcript_are_counted_once_in_either_order(
    store: Store, tmp_path: Path
) -> None:
    """What only the transcript shows (here a compaction) is in the run's account already."""
    run, kept = (
        RECORDINGS / "claude/2.1.325/compact_auto",
        RECORDINGS / "transcripts/2.1.325/compact_auto",
    )
    import_sources(store, [str(run)])
    alone = totals(store)[1:]
    import_sources(store, [str(kept)])
    assert totals(store)[1:] == alone
    other = open_ledger(str(tmp_path / "other.db"))
    import_sources(other, [str(kept)])
    import_sources(other, [str(run)])
    assert totals(other)[1:] == alone
    sums_hold(store)
    sums_hold(other)


def test_m7_a_killed_run_is_priced_from_its_messages(store: Store) -> None:
    """No result was printed: the cost is computed, not zero."""
    import_sources(store, [str(RECORDINGS / "claude/2.1.325/hang_sigkill")])
    ((source, cost),) = store.query("SELECT cost_source, cost_nano FROM runs")
    assert source == "computed"
    assert cost > 0
    assert totals(store)[6] == cost


def test_m7_an_unknown_model_is_unpriced_and_never_free(store: Store, tmp_path: Path) -> None:
    """A request without a price is counted as such."""
    one = Transcript("s1", model="nobody-knows-it")
    one.answer("m1")
    import_sources(store, [one.write(tmp_path)])
    assert store.query("SELECT unpriced, unpriced_tokens, computed_nano FROM spend") == [
        (1, 21_103, 0)
    ]
    assert store.query("SELECT cost_nano, source FROM requests") == [(None, "unknown")]


def test_m9_subagents_are_counted_with_their_session(store: Store) -> None:
    """Their transcripts lie in a folder of their own."""
    import_sources(store, [str(RECORDINGS / "transcripts/2.1.197/subagent_sync_env")])
    assert store.query("SELECT count(DISTINCT session) FROM requests") == [(1,)]
    assert store.query("SELECT count(*) FROM requests WHERE parent IS NOT NULL")[0][0] > 0


def sessions_with_more(store: Store) -> set[str]:
    """The sessions with interrupted requests: the agent's totals leave them out."""
    found = set()
    for run, session in store.query("SELECT id, session FROM runs"):
        report = load_report(store, run)
        if report and any("leave out some requests" in text for text in report.warnings):
            found.add(session)
    return found


def test_every_recording_is_booked_at_what_its_report_says(store: Store) -> None:
    """The sums of a session are the sums of its runs, to the nano-dollar."""
    import_sources(store, [str(RECORDINGS / "claude")])
    booked: dict[str, int] = dict(
        store.query(
            "SELECT session, sum(reported_nano + computed_nano) FROM spend GROUP BY session"
        )
    )
    told: dict[str, int] = dict(
        store.query("SELECT session, sum(coalesce(cost_nano, 0)) FROM runs GROUP BY session")
    )
    for session in sessions_with_more(store):  # than their reports have
        assert booked[session] > told.pop(session)
    assert {name: int(booked.get(name, 0)) for name in told} == {
        name: int(cost) for name, cost in told.items()
    }
    found = find.DiscoveredSources()
    find.find_at_path(str(RECORDINGS / "claude"), found)
    assert store.query("SELECT count(*) FROM runs") == [(len(found.files),)]
    sums_hold(store)


# -- incremental import --------------------------------------------------------------------------


def test_l3_a_second_import_changes_nothing_and_reads_nothing(store: Store) -> None:
    """Neither of transcripts nor of recordings."""
    first = import_sources(
        store, [str(RECORDINGS / "transcripts/2.1.325"), str(RECORDINGS / "claude/2.1.325")]
    )
    before = answers(store)
    again = import_sources(
        store, [str(RECORDINGS / "transcripts/2.1.325"), str(RECORDINGS / "claude/2.1.325")]
    )
    assert first.files > 50
    assert (again.files, again.size, again.unchanged) == (0, 0, first.files)
    assert answers(store) == before


@pytest.mark.parametrize("cuts", [1, 3, 10])
def test_l3_a_file_that_grows_is_read_on_from_where_it_ended(
    store: Store, tmp_path: Path, cuts: int
) -> None:
    """Parts that end anywhere, also inside a line or call, give the same rows as the whole."""
    source = RECORDINGS / "transcripts/2.1.197/multi_tool_edit"
    data = next(source.glob("*.jsonl")).read_bytes()
    grown, whole = tmp_path / "grown" / "s.jsonl", tmp_path / "whole" / "s.jsonl"
    grown.parent.mkdir()
    whole.parent.mkdir()
    whole.write_bytes(data)
    read = 0
    for part in range(1, cuts + 2):
        grown.write_bytes(data[: len(data) * part // (cuts + 1)])
        read += import_sources(store, [str(grown)]).size
    other = open_ledger(str(tmp_path / "other.db"))
    import_sources(other, [str(whole)])
    assert answers(store) == answers(other)
    assert read < len(data) * 2  # at most one cut line is read again each time
    sums_hold(store)


def test_l3_a_torn_last_line_is_left_for_the_next_time(store: Store, tmp_path: Path) -> None:
    """It is neither lost nor counted as half."""
    one = Transcript("s1")
    one.answer("m1")
    one.answer("m2")
    path = Path(one.write(tmp_path))
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    import_sources(store, [str(path)])
    assert totals(store)[0] == 1
    path.write_bytes(data)
    import_sources(store, [str(path)])
    assert totals(store)[0] == 2


def test_l3_a_file_that_was_rewritten_is_read_anew(store: Store, tmp_path: Path) -> None:
    """The same name, longer, with another beginning."""
    one = Transcript("s1")
    one.answer("m1")
    path = Path(one.write(tmp_path))
    import_sources(store, [str(path)])
    other = Transcript("s1", start=5)
    other.answer("m2")
    other.answer("m3")
    other.write(tmp_path)
    import_sources(store, [str(path)])
    assert totals(store)[0] == 3  # what was booked stays: it was spent


def test_l3_a_file_that_was_cut_is_read_anew_and_counts_nothing_twice(
    store: Store, tmp_path: Path
) -> None:
    """Shorter than what was read of it."""
    one = Transcript("s1")
    one.answer("m1")
    one.answer("m2")
    path = Path(one.write(tmp_path))
    import_sources(store, [str(path)])
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + one.line(0).replace(b"", b""))
    import_sources(store, [str(path)])
    assert totals(store)[0] == 2


def test_l3_a_moved_file_continues_under_its_new_name(store: Store, tmp_path: Path) -> None:
    """Only what came after the move is read."""
    one = Transcript("s1")
    one.answer("m1")
    path = Path(one.write(tmp_path))
    import_sources(store, [str(path)])
    moved = path.with_name("elsewhere.jsonl")
    path.rename(moved)
    one.answer("m2")
    with moved.open("ab") as file:
        file.write(one.line(-1))
    done = import_sources(store, [str(moved)])
    assert done.size == len(one.line(-1))
    assert totals(store)[0] == 2
    assert store.query("SELECT count(*) FROM sources") == [(1,)]


def test_l3_a_packed_transcript_is_read_too(store: Store, tmp_path: Path) -> None:
    """gzip, put away by somebody."""
    import gzip

    one = Transcript("s1")
    one.answer("m1")
    path = Path(one.write(tmp_path))
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    import_sources(store, [str(packed)])
    assert totals(store)[0] == 1


def test_an_unreadable_file_is_reported_and_the_others_are_imported(
    store: Store, tmp_path: Path
) -> None:
    """One trouble, one line."""
    one = Transcript("s1")
    one.answer("m1")
    one.write(tmp_path)
    bad = tmp_path / "bad.jsonl.gz"
    import gzip

    bad.write_bytes(gzip.compress(b'{"type":"user","sessionId":"s"}\n' * 999)[:-9])
    done = import_sources(store, [str(tmp_path)])
    assert totals(store)[0] == 1
    assert len(done.troubles) <= 1


# -- crashes and interrupts ----------------------------------------------------------------------


def test_rebuild_gives_the_same_answers(store: Store, tmp_path: Path) -> None:
    """From transcripts and recordings that are all there."""
    folder = tmp_path / "all"
    shutil.copytree(RECORDINGS / "transcripts/2.1.325", folder / "transcripts")
    shutil.copytree(RECORDINGS / "claude/2.1.325", folder / "claude")
    import_sources(store, [str(folder)])
    before = answers(store)
    done = rebuild(store)
    assert answers(store) == before
    assert done.kept == 0


def test_rebuild_keeps_sessions_without_files(store: Store, tmp_path: Path) -> None:
    """The agent throws old transcripts away; their spend stays."""
    for name in ("s1", "s2"):
        one = Transcript(name, start=ord(name[1]))
        one.answer(f"m{name}")
        one.write(tmp_path)
    import_sources(store, [str(tmp_path)])
    before = totals(store)
    (tmp_path / "s1.jsonl").unlink()
    done = rebuild(store)
    assert (done.sessions, done.kept) == (1, 1)
    assert totals(store) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the readers are made by fork")
def test_a_reader_that_is_killed_is_made_up_for(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for want of memory: what it was to read is read here, and nothing waits for it."""
    folder = tree(tmp_path / "tree", sessions=6, answers=30)
    alone, store, here = (
        open_ledger(str(tmp_path / "alone.db")),
        open_ledger(ledger_url),
        os.getpid(),
    )
    import_sources(alone, [str(folder)])
    real = parts.read_part

    def read_part(part: Any) -> Any:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(part)

    monkeypatch.setattr(pulling, "read_part", read_part)
    monkeypatch.setattr(pulling, "MIN_PARALLEL_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv("STENO_IMPORT_GROUP", "20000")
    assert import_sources(store, [str(folder)]).troubles == []
    assert totals(store) == totals(alone)
    alone.close()
    store.close()


SMALL = {**os.environ, "STENO_IMPORT_GROUP": "20000"}  # many small transactions


def _end(process: "subprocess.Popen[bytes]") -> tuple[int, bytes]:
    _, error = process.communicate()
    return process.returncode, error


def _start(folder: Path, url: str) -> "subprocess.Popen[bytes]":
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
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=SMALL)


def test_an_import_that_is_killed_at_any_moment_loses_nothing_and_counts_nothing_twice(
    ledger_url: str, tmp_path: Path
) -> None:
    """SIGKILL at random moments, then one full import: the same as an undisturbed one."""
    import random

    random.seed(8)
    folder = tree(tmp_path / "tree", sessions=40, answers=30)
    began = time.monotonic()
    other = open_ledger(str(tmp_path / "other.db"))
    process = _start(folder, str(tmp_path / "timed.db"))
    assert _end(process) == (0, b"")
    takes = time.monotonic() - began
    for _ in range(50 if ledger_url.endswith(".db") else 10):
        process = _start(folder, ledger_url)
        time.sleep(random.uniform(0, takes))
        process.send_signal(signal.SIGKILL)
        _end(process)
    assert _end(_start(folder, ledger_url)) == (0, b"")
    import_sources(other, [str(folder)])
    store = open_ledger(ledger_url)
    assert answers(store) == answers(other)
    sums_hold(store)
    store.close()


def test_ctrl_c_keeps_what_was_done(tmp_path: Path) -> None:
    """Exit 130, no traceback, and a ledger that opens, unless it had finished already."""
    folder, url = tree(tmp_path / "tree", sessions=60, answers=60), str(tmp_path / "l.db")
    process = _start(folder, url)
    while not Path(url).exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, error = _end(process)
    assert code in (0, 130, -signal.SIGINT)
    assert b"Traceback" not in error
    store = open_ledger(url)
    sums_hold(store)


def test_as_a_new_user_usage_alone_finds_imports_and_reports(tmp_path: Path) -> None:
    """Only `~/.claude/projects`, no ledger yet, no options."""
    projects = tmp_path / ".claude" / "projects" / "-tmp-demo-project"
    projects.mkdir(parents=True)
    for file in (RECORDINGS / "transcripts/2.1.325/fork_session").glob("*.jsonl"):
        shutil.copy(file, projects)
    clean = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    words = [sys.executable, "-m", "steno", "usage", "model", "--json"]
    done = subprocess.run(words, env=clean, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["total"]["requests"] == 6
    assert told["total"]["cost"]["usd"] == pytest.approx(0.066272)
    assert (tmp_path / ".local/share/steno/ledger.db").is_file()


def test_the_short_way_without_a_ledger_says_what_the_ledger_says(tmp_path: Path) -> None:
    """`--no-ledger` reads less of each line; the sums are the same."""
    from steno.ledger.importer import build_memory_ledger

    store = open_ledger(str(tmp_path / "l.db"))
    folder = str(RECORDINGS / "transcripts")
    import_sources(store, [folder])
    quick = build_memory_ledger([folder], print)
    asked = (
        "SELECT session, model, hour, requests, input, cache_write, cache_read, output, "
        "computed_nano FROM spend ORDER BY 1, 2, 3"
    )
    assert quick.query(asked) == store.query(asked)


def test_m2_lines_that_only_repeat_a_message_are_passed_over_and_no_others() -> None:
    """The fast scan reports a request if and only if the reader does, whatever changes in it."""
    from steno.agents import CLAUDE

    def line(
        uuid: str,
        message: str = "m1",
        output: int = 5,
        stop: str | None = "tool_use",
        **more: object,
    ) -> bytes:
        usage = {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output,
        }
        said = {
            "model": "claude-opus-4-8",
            "id": message,
            "role": "assistant",
            "content": [{"type": "text", "text": uuid * 9}],
        }
        whole = {
            "isSidechain": False,
            **more,
            "message": {**said, "stop_reason": stop, "usage": usage},
            "type": "assistant",
        }
        rest = {
            "uuid": uuid,
            "timestamp": "2026-11-15T00:00:00.000Z",
            "sessionId": "s",
            "version": "2.1.197",
        }
        return (
            json.dumps({"parentUuid": "p" + uuid, **whole, **rest}, separators=(",", ":")).encode()
            + b"\n"
        )

    lines = [
        line("a"),
        line("b"),
        line("c", output=7),
        line("d", output=7),
        line("e", output=7, stop="end_turn"),
        line("f", message="m2"),
        line("g", message="m2"),
        line("h", message="m2", isSidechain=True, agentId="x"),
        line("i", message="m2", isSidechain=True, agentId="x"),
        line("j", message="m2", isSidechain=True, agentId="y"),
        line("k", message="m2"),
        line("l", message="m3"),
        line("m", message="m3"),
        line("nn", message="m3"),
    ]
    short = [event for event in CLAUDE.transcripts.scan_usage(lines) if isinstance(event, ev.Usage)]
    assert [event.uuid for event in short] == ["a", "c", "e", "f", "h", "j", "l"]
    main = [data for data in lines if b'"isSidechain":false' in data]
    for made in (main, [data.replace(b'"stop_reason"', b' "stop_reason"') for data in main]):
        reader = CLAUDE.reader()
        told = [
            event
            for n, data in enumerate(made, 1)
            for event in reader.read(data, n)
            if isinstance(event, ev.Usage)
        ]
        assert [
            event for event in CLAUDE.transcripts.scan_usage(made) if isinstance(event, ev.Usage)
        ] == told


def test_a_report_reads_only_what_it_needs_and_an_import_later_reads_the_rest(
    store: Store, tmp_path: Path
) -> None:
    """The sums are the same before and after, and those of a whole import."""
    folder = tmp_path / "all"
    shutil.copytree(RECORDINGS / "transcripts", folder)
    import_sources(store, [str(folder)], requests_only=True)
    asked = (
        "SELECT session, model, hour, requests, input, cache_write, cache_read, output, "
        "computed_nano FROM spend ORDER BY 1, 2, 3"
    )
    quick = store.query(asked)
    assert import_sources(store, [str(folder)], requests_only=True).files == 0
    # Copilot's files are read as a whole: their totals need it.
    assert store.query("SELECT count(*) FROM calls WHERE agent <> 'copilot'") == [(0,)]
    import_sources(store, [str(folder)])
    assert store.query(asked) == quick
    other = open_ledger(str(tmp_path / "other.db"))
    import_sources(other, [str(folder)])
    assert answers(store) == answers(other)
    assert import_sources(store, [str(folder)], requests_only=True).files == 0


def test_a_report_continues_where_the_last_one_ended(store: Store, tmp_path: Path) -> None:
    """Whether that was a glance or an import, in parts that end anywhere."""
    data = next((RECORDINGS / "transcripts/2.1.197/multi_tool_edit").glob("*.jsonl")).read_bytes()
    grown = tmp_path / "s.jsonl"
    for place in range(1, 9):
        grown.write_bytes(data[: len(data) * place // 8])
        import_sources(store, [str(grown)], requests_only=place % 3 != 0)
    whole = totals(store)
    other = open_ledger(str(tmp_path / "other.db"))
    import_sources(other, [str(grown)])
    assert whole == totals(other)


def test_a_fork_of_what_was_pruned_counts_nothing_again(store: Store, tmp_path: Path) -> None:
    """The rows are gone, their sums stay."""
    from steno.ledger.queries.ledger import PruneSelection, prune

    one = Transcript("s1")
    one.call("m1", "c1", "Bash", {"command": "ls"})
    one.result("c1")
    import_sources(store, [one.write(tmp_path)])
    before = totals(store)
    prune(store, PruneSelection(2_000_000_000_000, None), include_sums=False)
    assert store.query("SELECT count(*) FROM requests") == [(0,)]
    fork = one.fork("s2")
    import_sources(store, [fork.write(tmp_path)])
    assert totals(store) == before
    assert store.query("SELECT sum(calls) FROM tool_use")[0][0] == 1


def _pruned(store: Store, before: int = 2_000_000_000_000, everything: bool = False) -> None:
    from steno.ledger.queries.ledger import PruneSelection, prune

    prune(store, PruneSelection(before, None), everything)


def _sums(store: Store) -> Any:
    spent = store.query("SELECT * FROM spend ORDER BY session, model, hour")
    return spent, store.query("SELECT * FROM tool_use ORDER BY 1, 2, 3, 4")


def _details(store: Store) -> dict[str, int]:
    tables = ("sessions", "runs", "requests", "calls", "changes", "denials", "texts")
    return {table: store.query(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


@pytest.mark.parametrize("kept", ["transcripts/2.1.325", "claude/2.1.325", ""])
@pytest.mark.parametrize("everything", [False, True])
def test_a_rebuild_after_pruning_keeps_the_sums_and_brings_nothing_back(
    store: Store, kept: str, everything: bool
) -> None:
    """Of transcripts, of recordings, of both; however often it is made anew."""
    found = (
        [kept]
        if kept
        else [
            "transcripts/2.1.325",
            "claude/2.1.325/compact_auto",
            "claude/2.1.325/multi_tool_edit",
        ]
    )
    import_sources(store, [str(RECORDINGS / name) for name in found])
    _pruned(store, everything=everything)
    before, details = _sums(store), _details(store)
    assert bool(before[0]) is not everything
    assert details["texts"] == details["runs"] == details["sessions"] == 0
    for _ in range(2):
        done = rebuild(store)
        assert (_sums(store), _details(store)) == (before, details)
    assert (done.sessions, done.kept) == (0, 0)
    assert done.pruned > 0


def test_a_rebuild_after_pruning_a_part_reads_the_rest_again(store: Store, tmp_path: Path) -> None:
    """An old session that was pruned, one that went on after it was, and a recent one."""
    scripts = {
        name: Transcript(name, start=start)
        for name, start in (("old", 0), ("resumed", 10), ("recent", 600))
    }
    for name, one in scripts.items():
        one.call(f"m-{name}", f"c-{name}", "Bash", {"command": "ls"})
        one.result(f"c-{name}")
        one.write(tmp_path)
    shutil.copytree(RECORDINGS / "claude/2.1.325/multi_tool_edit", tmp_path / "run")
    import_sources(store, [str(tmp_path)])
    _pruned(store, before=int(scripts["recent"].at.timestamp() * 1000) - 3_600_000)
    scripts["resumed"].answer("later")
    scripts["resumed"].write(tmp_path)
    import_sources(store, [str(tmp_path)])
    before, details = _sums(store), _details(store)
    for _ in range(2):
        done = rebuild(store)
        assert (_sums(store), _details(store)) == (before, details)
    assert (done.sessions, done.kept, done.pruned) == (2, 0, 2)


def test_a_copy_of_a_run_that_was_pruned_adds_nothing(store: Store, tmp_path: Path) -> None:
    """Its folder was moved, or touched."""
    run = RECORDINGS / "claude/2.1.325/multi_tool_edit"
    import_sources(store, [str(run)])
    _pruned(store)
    before = _sums(store)
    shutil.copytree(run, tmp_path / "copy")
    import_sources(store, [str(tmp_path / "copy")])
    assert _sums(store) == before
    assert store.query("SELECT count(*) FROM runs") == [(0,)]


def test_a_run_whose_transcript_was_pruned_counts_nothing_again(
    store: Store, tmp_path: Path
) -> None:
    """Its recording is found later: all of it was counted, or a part of it."""
    run, kept = (
        RECORDINGS / "claude/2.1.325/compact_auto",
        RECORDINGS / "transcripts/2.1.325/compact_auto",
    )
    import_sources(store, [str(kept)])
    _pruned(store)
    before = _sums(store)
    import_sources(store, [str(run)])
    assert _sums(store) == before
    run, kept = (
        RECORDINGS / kind / "2.1.325/multi_tool_edit" for kind in ("claude", "transcripts")
    )
    other = open_ledger(str(tmp_path / "other.db"))
    for path in kept.rglob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        (tmp_path / path.name).write_bytes(b"".join(lines[: len(lines) // 2]))
    import_sources(other, [str(tmp_path)])
    _pruned(other)
    import_sources(other, [str(run)])
    whole = open_ledger(str(tmp_path / "whole.db"))
    import_sources(whole, [str(run)])
    assert (
        totals(other)[1:4] == totals(whole)[1:4]
    )  # of the output, a stream tells less than a transcript


def test_a_run_active_during_a_prune_is_written_when_it_ends(store: Store, tmp_path: Path) -> None:
    """What was written of it when it began is gone; what it came to is not."""
    run = RECORDINGS / "claude/2.1.325/multi_tool_edit"
    import_sources(store, [str(run)])
    before = totals(store)
    store.execute("UPDATE runs SET verdict = NULL")
    for table in ("requests", "calls", "spend", "tool_use", "sources"):
        store.execute(f"DELETE FROM {table}")
    _pruned(store)
    import_sources(store, [str(run)])
    assert totals(store) == before


def test_a_run_with_only_a_result_survives_prune_and_rebuild(store: Store, tmp_path: Path) -> None:
    """It has a run and a sum, but no session of its own."""
    lines = (
        (RECORDINGS / "claude/2.1.325/multi_tool_edit/stdout")
        .read_bytes()
        .splitlines(keepends=True)
    )
    (tmp_path / "result.json").write_bytes(lines[-1])
    import_sources(store, [str(tmp_path / "result.json")])
    _pruned(store)
    before = _sums(store)
    assert before[0]
    rebuild(store)
    assert _sums(store) == before


@pytest.mark.parametrize(
    ("runs", "costs", "tokens"),
    [
        (
            [f"2.1.290/resume_sub{number}" for number in ("", 2, 3, 4)],
            [445_503_000, 22_099_000, 445_498_000, 0],
            [162_557, 42_212, 155_352, 0],  # the third: the output of its subagent is not reported
        ),
        (
            [f"2.1.310/resume_sub_json{number}" for number in ("", 2, 3)],
            [22_099_000, 445_498_000, 0],
            [42_212, 162_556, 0],
        ),
    ],
    ids=["streams", "documents"],
)
@pytest.mark.parametrize("order", ["as made", "reversed", "third first"])
def test_m7_runs_of_a_session_with_cumulative_totals_add_up(
    store: Store, runs: list[str], costs: list[int], tokens: list[int], order: str
) -> None:
    """A run's own part is the difference to the session's total after the run before it.

    In whatever order they are imported: a run that is known later changes those after it.
    """
    in_order = {
        "as made": runs,
        "reversed": runs[::-1],
        "third first": [*runs[2:], *runs[:2]],
    }
    for run in in_order[order]:
        import_sources(store, [str(RECORDINGS / "claude" / run)])
    sql = (
        "SELECT cost_nano, input + cache_write + cache_read + output FROM runs "
        "ORDER BY session_nano, cost_nano DESC"
    )
    assert store.query(sql) == list(zip(costs, tokens, strict=True))
    _, *counters, reported, computed = totals(store)
    assert sum(counters) == sum(tokens)
    by_source = dict.fromkeys(("reported", "computed"), 0)
    for id_, cost, source in store.query("SELECT id, cost_nano, cost_source FROM runs"):
        by_source[source] += cost
        report = load_report(store, id_)
        assert report is not None
        assert (report.cost.usd, report.cost.source) == (cost / 1e9, source)
        assert not {EARLIER_RUNS_LOWER_BOUND, EARLIER_RUNS_UPPER_BOUND} & {*report.warnings}
    assert {"reported": reported, "computed": computed} == by_source


def test_a_session_that_continues_another_is_titled_by_its_task(
    store: Store, tmp_path: Path
) -> None:
    one = Transcript("00000000-0000-4000-8000-000000000001")
    one.prompt(HANDOVER_PROMPT.format(summary="All is well.", prompt="Task 2."))
    one.answer("m1")
    import_sources(store, [one.write(tmp_path)])
    assert store.query("SELECT title FROM sessions") == [("Task 2.",)]


def test_m7_an_upper_bound_without_an_earlier_run_is_booked_as_reported(store: Store) -> None:
    import_sources(store, [str(RECORDINGS / "claude/2.1.310/resume_sub_json2")])
    [(report,)] = store.query("SELECT cost_nano FROM runs")
    assert report == 467_597_000
