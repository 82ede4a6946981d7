"""Lines, arrays and documents of an agent are found wherever they begin (I1, I3)."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.ledger.importer import import_sources
from steno.ledger.store import open_ledger
from steno.report import LineCounts
from tests.support.claude_lines import (
    Json,
    assistant,
    call,
    dump,
    init,
    plain,
    result,
    stream,
    worked,
)

LINES = worked()
COUNT = len(LINES)
ARRAY = dump(LINES)
INDENTED = json.dumps(LINES, indent=2).encode()
NOISE = b"".join(b"#%d [stage %d/9] RUN pip install {x}\n" % (at, at) for at in range(223))
DOCUMENT = json.dumps({"name": "x", "type": "module", "files": ["a", {"b": 1}]}, indent=2).encode()
TIME = b"2026-01-01T00:00:00.%07dZ "


def _prefixed(data: bytes) -> bytes:
    """As in the logs of GitHub Actions."""
    return b"".join(TIME % at + line + b"\n" for at, line in enumerate(data.split(b"\n")))


def _elements(*values: Json) -> bytes:
    return b"\n".join(json.dumps(value, indent=4).encode() for value in values)


def _with_warning() -> bytes:
    lines = INDENTED.split(b"\n")
    return b"\n".join((*lines[:20], b"(node:1) Warning: something", *lines[20:]))


# What is read, and the lines that are counted besides those of the run.
LAYOUTS: dict[str, tuple[bytes, LineCounts]] = {
    "array": (ARRAY, LineCounts()),
    "indented": (INDENTED, LineCounts()),
    "tabs": (json.dumps(LINES, indent="\t").encode(), LineCounts()),
    "mark and CRLF": (b"\xef\xbb\xbf" + INDENTED.replace(b"\n", b"\r\n"), LineCounts()),
    "element on a line": (b"[" + b",\n".join(map(dump, LINES)) + b"]\n", LineCounts()),
    "brackets on lines": (b"[\n" + b",\n".join(map(dump, LINES)) + b"\n]\n", LineCounts()),
    "objects": (_elements(*LINES), LineCounts()),
    "in an array": (json.dumps([LINES], indent=2).encode(), LineCounts()),
    "array in a log": (NOISE + ARRAY + b"\n" + NOISE, LineCounts(read=446, malformed=446)),
    "indented in a log": (NOISE + INDENTED + b"\n" + NOISE, LineCounts(read=446, malformed=446)),
    "text before": (b"Result: " + ARRAY + b"\n", LineCounts()),
    "text after": (ARRAY + b" done in 3 s\n", LineCounts(malformed=1)),
    "text after, cut": (ARRAY + b" done", LineCounts(malformed=1)),
    "after a document": (DOCUMENT + b"\n" + stream(*LINES), LineCounts(read=1, unknown=1)),
    "before a document": (stream(*LINES) + DOCUMENT, LineCounts(read=1, unknown=1)),
    "fenced": (
        b"# Run\n```json\n" + INDENTED + b"\n```\n",
        LineCounts(read=3, malformed=3),
    ),
    "times, lines": (_prefixed(stream(*LINES).rstrip()), LineCounts()),
    "times, array": (_prefixed(b"##[group]Run\n" + ARRAY), LineCounts(read=1, malformed=1)),
    "times, indented": (_prefixed(b"##[group]Run\n" + INDENTED), LineCounts(read=1, malformed=1)),
    "service names": (
        b"".join(b"agent-1  | " + line + b"\n" for line in INDENTED.split(b"\n")),
        LineCounts(),
    ),
    "interrupted": (_with_warning(), LineCounts(read=1, malformed=1)),
    "cut, then lines": (
        INDENTED[: INDENTED.index(b'"tools"')] + b"\n" + stream(*LINES),
        LineCounts(read=1, malformed=1),
    ),
    "cut, then whole": (
        INDENTED[: INDENTED.index(b'"tools"')] + b"\n" + INDENTED,
        LineCounts(read=1, malformed=1),
    ),
    "code": (b"if (x) {\n  run();\n}\n" + stream(*LINES), LineCounts(read=3, malformed=3)),
    "empty documents": (b"[]\n{\n}\n[\n]\n" + ARRAY, LineCounts(read=3, not_object=2, unknown=1)),
}


def _expected(counts: LineCounts) -> Json:
    """The report of the lines alone, with other counts."""
    value = plain(steno.read(stream(*LINES)))
    value["lines"] = json.loads(steno.read(b"").to_json())["lines"] | {
        name: getattr(counts, name) for name in counts.__struct_fields__
    }
    value["lines"]["read"] += COUNT
    return value


def _comparable(report: steno.Report) -> Json:
    value = plain(report)
    value["evidence"] = []
    value["warnings"] = [text for text in value["warnings"] if "kinds this version" not in text]
    return value


def _as_path(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return path


def _as_chunks(data: bytes, path: Path) -> Any:
    reading = steno.RunParser()
    for at in range(0, len(data), 7):
        reading.feed(data[at : at + 7])
    reading.close()
    return reading.report()


WAYS: dict[str, Any] = {
    "bytes": lambda data, path: data,
    "file": _as_path,
    "pipe": lambda data, path: io.BytesIO(data),
    "lines": lambda data, path: data.split(b"\n"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_i1_a_run_is_found_in_any_layout(name: str, way: str, tmp_path: Path) -> None:
    data, counts = LAYOUTS[name]
    found = _comparable(steno.read(WAYS[way](data, tmp_path / "run.log")))
    if way == "lines":  # without the last newline, these end with a blank line
        found["lines"]["read"] -= found["lines"]["blank"]
        found["lines"]["blank"] = 0
    assert found == {**_expected(counts), "evidence": []}


@pytest.mark.parametrize("name", LAYOUTS)
def test_i2_chunks_and_events_give_the_same_report(name: str, tmp_path: Path) -> None:
    data = LAYOUTS[name][0]
    whole = plain(steno.read(data))
    assert plain(_as_chunks(data, tmp_path)) == whole
    reading = steno.RunParser()
    for event in steno.events(data):
        reading.accumulator.add((event,))
    report = plain(reading.report())
    assert (report["tokens"], report["text"]) == (whole["tokens"], whole["text"])


@pytest.mark.parametrize("name", LAYOUTS)
def test_i1_a_run_is_imported_in_any_layout(name: str, tmp_path: Path) -> None:
    """Named, and found in a folder; with the line numbers of the report."""
    path = tmp_path / "runs" / "run.log"
    path.parent.mkdir()
    path.write_bytes(LAYOUTS[name][0])
    for number, target in enumerate((path, path.parent)):
        ledger = open_ledger(str(tmp_path / f"{number}.db"))
        done = import_sources(ledger, [str(target)])
        assert (done.files, done.runs, done.unknown, done.troubles) == (1, 1, 0, [])
        assert ledger.query("SELECT COUNT(*) FROM requests WHERE kind = 'request'") != [(0,)]
        ledger.close()


# -- documents that are cut, and lines that only look like one -------------------------------------


def test_i2_a_document_cut_anywhere_keeps_its_complete_elements() -> None:
    values = [init(), assistant(call("t1", "Bash", command="ls")), result()]
    data = json.dumps(values, indent=1).encode()
    ends = [len(json.dumps(values[: at + 1], indent=1)) - 2 for at in range(3)]
    for cut in range(2, ends[2], 3):
        report = steno.read(data[:cut])
        complete = sum(cut >= end for end in ends)
        assert (report.lines.torn, report.verdict) == (True, "no_result"), cut
        assert report.lines.read - complete in (0, 1), cut


def test_i3_a_line_cut_anywhere_costs_only_itself() -> None:
    """It is no beginning of a document, wherever it ends."""
    first, second, third = (dump(line) for line in (init(), LINES[2], result()))
    for cut in range(1, len(second)):
        report = steno.read(first + b"\n" + second[:cut] + b"\n" + third + b"\n")
        assert (report.lines, report.verdict) == (LineCounts(read=3, malformed=1), "success"), cut


HOSTILE = {
    "arrays": b"[" * 300_000,
    "objects": b'{"a":' * 100_000,
    "empty": b"[]{}" * 50_000,
    "openings": b'{"a":[\n' * 30_000,
    "beginnings": b'{\n "a": 1,\n' * 30_000,
    "quotes": b'[{"' * 100_000,
    "prefixes": b'x {"a":1}' * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_i3_brackets_of_any_number_are_lines(name: str) -> None:
    report = steno.read(HOSTILE[name] + b"\n" + stream(*LINES))
    assert (report.verdict, report.text) == ("success", steno.read(stream(*LINES)).text)


def test_m3_an_element_that_is_too_long_is_dropped_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steno.codec.documents.MAX_LINE_BYTES", 5000)
    long = assistant({"type": "text", "text": "x" * 6000}, message="msg_long")
    data = json.dumps([LINES[0], long, *LINES[1:]], indent=2).encode()
    report = steno.read(data)
    assert (report.lines, report.verdict) == (LineCounts(read=COUNT + 1, malformed=1), "success")
    assert any("32 MB" in text for text in report.warnings)


def test_e1_elements_come_as_soon_as_they_are_complete() -> None:
    """Whoever follows a run must not wait for the end of its document."""
    reading = steno.RunParser()
    seen = []
    for number, line in enumerate(INDENTED.split(b"\n")):
        seen += [(number, event.line) for event in reading.feed(line + b"\n")]
    assert seen[0][0] < 40
    assert [line for _, line in seen] == [event.line for event in steno.events(stream(*LINES))]
