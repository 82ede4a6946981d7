"""Damaged files in an import (I2, I3, I6): only the bad value or file is lost, and reported."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from steno.errors import SourceError
from steno.ledger import discovery as find
from steno.ledger import importer as pulling
from steno.ledger.importer import build_memory_ledger, import_sources
from steno.ledger.source_reader import SourcePart, read_part
from steno.ledger.store import Store, open_ledger
from steno.ledger.upsert import Pricer
from tests.cli.test_commands import Done, refused, run
from tests.ledger.test_importer import totals
from tests.support.transcript_writer import Transcript

PRINTED = Path(__file__).parents[1] / "recordings/claude/2.1.325/multi_tool_edit/stdout"
LINES = PRINTED.read_bytes().splitlines(keepends=True)
EXPECTED_INPUT = (
    "expected an agent's output or transcript (JSON lines or documents, plain or compressed with "
    "gzip or zstd), or a steno recording"
)


@pytest.fixture
def store(ledger_url: str) -> Any:
    found = open_ledger(ledger_url)
    yield found
    found.close()


def _changed(line: bytes, **values: Any) -> bytes:
    return json.dumps({**json.loads(line), **values}).encode() + b"\n"


def _steno(home: Path, *words: str) -> Done:
    return run(*words, HOME=str(home), XDG_DATA_HOME=str(home / "data"))


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "1969-07-20T20:17:00Z"]
)
def test_i6_a_time_that_no_calendar_has_is_unknown(store: Store, tmp_path: Path, at: str) -> None:
    """The request counts, at the time of the one before it."""
    one = Transcript("s1")
    one.answer("m1")
    one.answer("m2")
    one.lines[1]["timestamp"] = at
    assert import_sources(store, [one.write(tmp_path)]).troubles == []
    assert totals(store)[0] == 2
    assert len(store.query("SELECT DISTINCT at FROM requests")) == 1


def test_i6_a_run_that_began_at_no_time_is_booked_at_its_file_s(
    store: Store, tmp_path: Path
) -> None:
    """Every time in it is damaged."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(
        b"".join(_changed(line, timestamp="0001-01-01T00:00:00+23:00") for line in LINES)
    )
    assert import_sources(store, [str(path)]).troubles == []
    assert store.query("SELECT ended_at FROM runs") == [(path.stat().st_mtime_ns // 1_000_000,)]


@pytest.mark.parametrize("figure", [10**30, -(10**30), 1 << 63, 1e300])
def test_i6_a_number_that_no_column_holds_is_unknown(
    store: Store, tmp_path: Path, figure: float
) -> None:
    """Turns, windows, costs, times."""
    result = json.loads(LINES[-1])
    for share in result["modelUsage"].values():
        share |= {"contextWindow": figure, "costUSD": figure}
    result |= {"num_turns": figure, "total_cost_usd": figure, "duration_ms": figure}
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join([*LINES[:-1], json.dumps(result).encode()]))
    assert import_sources(store, [str(path)]).troubles == []
    assert store.query("SELECT turns FROM runs") == [(None,)]
    assert totals(store)[0] == 7


def test_i6_tokens_that_no_request_has_are_not_priced(store: Store, tmp_path: Path) -> None:
    """Their price would be more than a column holds."""
    one = Transcript("s1")
    one.answer("m1", output=1 << 53)
    assert import_sources(store, [one.write(tmp_path)]).troubles == []
    assert store.query("SELECT cost_nano FROM requests") == [(None,)]


# -- files that cannot be imported ---------------------------------------------------------------


def test_a_file_that_cannot_be_imported_is_reported_and_the_others_are_imported(
    store: Store, tmp_path: Path
) -> None:
    """Each file of its group is then booked by itself."""
    for place in range(3):
        one = Transcript(f"s{place}", start=place)
        one.answer(f"m{place}")
        one.write(tmp_path)
    found = find_all(tmp_path)
    told = [read_part(part) for part in found]
    batch = told[1].batch
    assert batch is not None
    batch.requests[0].input = 1 << 70
    done = pulling.ImportResult()
    pulling._upsert_group(store, told, Pricer(), done)
    assert (done.files, done.requests, totals(store)[0]) == (2, 2, 2)
    (trouble,) = done.troubles
    assert trouble.startswith(f"{told[1].part.path}: not imported: internal error: ")


def find_all(folder: Path) -> list[SourcePart]:
    """What an import of a folder would read."""
    return find.unread_parts(pulling._discover([str(folder)]), {})


def test_a_ledger_in_memory_takes_back_what_could_not_be_booked(tmp_path: Path) -> None:
    """Requests that are only held count once, also when their group is booked a second time."""
    from steno.ledger.store import MemoryStore

    store = MemoryStore()
    for place in range(2):
        one = Transcript(f"s{place}", start=place)
        one.answer(f"m{place}")
        one.write(tmp_path)
    told = [read_part(part) for part in find_all(tmp_path)]
    batch = told[1].batch
    assert batch is not None
    batch.requests[0].cache_read = 1 << 70
    pulling._upsert_group(store, told, Pricer(), pulling.ImportResult())
    assert totals(store)[0] == 1


def test_a_value_that_cannot_be_sent_costs_its_own_file(tmp_path: Path) -> None:
    """Between the processes that read and the one that books."""
    import msgspec

    one = Transcript("s1")
    one.answer("m1")
    one.write(tmp_path)
    (part,) = find_all(tmp_path)
    told = read_part(part)
    assert told.batch is not None
    told.batch.requests[0].input = 1 << 70
    found = pulling._encodable_result(told)
    assert found.batch is None
    assert "internal error" in (found.problem or "")
    msgspec.msgpack.encode(found)


# -- detection -----------------------------------------------------------------------------------

ODD_BEGINNINGS = {
    "bom": b"\xef\xbb\xbf" + LINES[0],
    "surrogate": LINES[0].replace(b'"cwd":"', b'"cwd":"\\ud83d'),
    "noise": b"npm warn something\n" + LINES[0],
    "colours": b"\x1b[?25l" + LINES[0],
    "glued": LINES[0].rstrip(b"\n") + LINES[1].rstrip(b"\n") + b"\n",
    "nan": LINES[0].replace(b"{", b'{"odd":NaN,', 1),
    "digits": LINES[0].replace(b"{", b'{"odd":' + b"9" * 6000 + b",", 1),
    "torn": LINES[0][:40] + b"\n",
    "invalid": LINES[0].replace(b'"cwd":"', b'"cwd":"\xff\xfe'),
}


@pytest.mark.parametrize("name", ODD_BEGINNINGS)
def test_i3_an_odd_first_line_hides_no_recording(store: Store, tmp_path: Path, name: str) -> None:
    """Given by its name, and found below a folder."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(ODD_BEGINNINGS[name] + b"".join(LINES[2 if name == "glued" else 1 :]))
    done = import_sources(store, [str(path)])
    assert (done.files, done.runs, done.unchanged, done.unknown, done.troubles) == (1, 1, 0, 0, [])
    assert totals(store)[0] == 7
    again = import_sources(store, [str(tmp_path)])
    assert (again.files, again.unchanged) == (0, 1)


def test_i2_a_transcript_with_a_byte_order_mark_is_one(store: Store, tmp_path: Path) -> None:
    """It is read on from where it ended, as any other."""
    one = Transcript("s1")
    one.answer("m1")
    path = Path(one.write(tmp_path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert import_sources(store, [str(path)]).troubles == []
    assert store.query("SELECT kind FROM sources") == [("transcript",)]
    assert totals(store)[0] == 1


def test_i1_a_document_of_many_lines_is_one(store: Store, tmp_path: Path) -> None:
    """Laid out for people; another document is not."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps(json.loads(LINES[-1]), indent=2))
    (tmp_path / "package.json").write_text(json.dumps({"name": "x", "type": "module"}, indent=2))
    assert import_sources(store, [str(path)]).runs == 1
    done = import_sources(store, [str(path), str(tmp_path / "package.json")])
    assert (done.unchanged, done.unknown, len(done.troubles)) == (1, 1, 1)


def test_i6_a_line_alone_with_a_number_of_thousands_of_digits_is_a_recording(
    store: Store, tmp_path: Path
) -> None:
    """The number is unknown, the rest is not."""
    path = tmp_path / "result.json"
    path.write_bytes(LINES[-1].replace(b"{", b'{"odd":' + b"9" * 6000 + b",", 1))
    assert import_sources(store, [str(path)]).runs == 1


def test_a_text_that_quotes_lines_is_no_recording_unless_a_person_says_so(
    store: Store, tmp_path: Path
) -> None:
    """Below a folder lie many texts."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all/run.jsonl").write_bytes(PRINTED.read_bytes())
    (tmp_path / "all/notes.md").write_bytes(b"# Notes\n\nwords\nwords\n" + LINES[0])
    done = import_sources(store, [str(tmp_path / "all")])
    assert (done.files, done.unknown, done.troubles) == (1, 1, [])


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    """Explicit paths are reported, also beside recordings; files in a folder are only counted."""
    text, empty, good = tmp_path / "README.md", tmp_path / "empty.jsonl", tmp_path / "good.jsonl"
    text.write_text("# Words\n")
    empty.write_bytes(b"")
    good.write_bytes(PRINTED.read_bytes())
    done = _steno(tmp_path / "home", "ledger", "import", str(text), str(empty))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines() == [
        f"steno: {text}: not a recording; {EXPECTED_INPUT}; found text",
        f"steno: {empty}: file is empty; {EXPECTED_INPUT}",
    ]
    some = _steno(
        tmp_path / "home", "ledger", "import", str(text), str(good), str(tmp_path / "missing")
    )
    assert some.returncode == 2
    assert some.stdout.startswith(
        b"1 new or changed files (0.0 MB), 0 unchanged, 1 not recognised; "
    )
    assert len(some.stderr.splitlines()) == 2
    below = _steno(tmp_path / "home", "ledger", "import", str(tmp_path))
    assert below.returncode == 0
    assert b", 1 unchanged, " in below.stdout
    assert b"not recognised" in below.stdout


def test_a_report_without_a_ledger_refuses_what_is_no_recording(tmp_path: Path) -> None:
    """It would say 0, which is not true."""
    (tmp_path / "README.md").write_text("# Words\n")
    with pytest.raises(SourceError, match="not a recording"):
        build_memory_ledger([str(tmp_path / "README.md")], print)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """Nobody writes to it: reading would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    assert "cannot import from a pipe" in refused(
        _steno(tmp_path, "ledger", "import", str(tmp_path / "pipe"))
    )


# -- links ---------------------------------------------------------------------------------------


def test_links_that_lead_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    """Each real folder is looked into once, whatever it is called."""
    top = tmp_path / "top"
    shutil.copytree(PRINTED.parent, top / "a/run")
    (top / "a/p.jsonl").write_bytes(PRINTED.read_bytes())
    (top / "a/up").symlink_to("..")
    (top / "b").symlink_to("a/run")
    (top / "self").symlink_to("self")
    shown = _steno(tmp_path, "show", "--json", str(top))
    assert (shown.returncode, len(shown.stdout.splitlines())) == (0, 2)
    done = _steno(tmp_path, "ledger", "import", "--json", str(top))
    assert (done.returncode, done.stderr) == (0, b"")
    told = json.loads(done.stdout)
    assert (told["files"], told["unknown"]) == (2, 1)
    spent = _steno(tmp_path, "usage", "--json", "--no-ledger", str(top))
    assert json.loads(spent.stdout)["total"]["requests"] == 7
