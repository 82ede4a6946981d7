"""The report does not depend on chunk boundaries, and no input raises (I2, I3, I6)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import steno
from steno.pricing import price
from steno.report import LineCounts
from tests.support.claude_lines import (
    REFUSED,
    Json,
    dump,
    failed,
    hello,
    init,
    named,
    plain,
    recorded,
    result,
    spread,
    stream,
    user,
    worked,
)

# Text output is no recording.
FEW = spread([path for path in recorded(150_000) if not path.parent.name.endswith("_text")], 16)
patient = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))

SCRIPTED: dict[str, bytes] = {
    "hello": stream(*hello()),
    "worked": stream(*worked()),
    "refused": stream(*REFUSED),
    "failed": stream(init(), failed("API Error: 429")),
    "crlf and a mark": b"\xef\xbb\xbf" + stream(*hello()).replace(b"\n", b"\r\n"),
    "odd lines": stream(
        b"Welcome!", *hello(), b"null", b"", dump(user("a\u2028b")) + dump(user("c"))
    ),
    "no final newline": stream(*worked())[:-1],
    "torn": stream(*worked())[:-100],
    "array": dump(worked()),
    "pretty array": json.dumps(worked(), indent=2).encode(),
    "pretty result": json.dumps(result(), indent=4).encode(),
    "nothing": b"",
    "only blank lines": b"\n\n \n",
}


def _chunked(data: bytes, size: int) -> steno.Report:
    reading = steno.RunParser()
    for at in range(0, len(data), size):
        reading.feed(data[at : at + size])
    reading.close()
    return reading.report()


def _whole(data: bytes) -> bytes:
    return _chunked(data, max(1, len(data))).to_json()


@pytest.mark.parametrize("size", [1, 2, 7, 65_536])
@pytest.mark.parametrize("name", SCRIPTED)
def test_i2_chunks_do_not_matter_to_scripted_runs(name: str, size: int) -> None:
    data = SCRIPTED[name]
    assert _chunked(data, size).to_json() == _whole(data)


@pytest.mark.parametrize("path", FEW, ids=named)
@pytest.mark.parametrize("size", [1, 2, 7, 65_536])
def test_i2_chunks_do_not_matter_to_recordings(path: Path, size: int) -> None:
    data = path.read_bytes()
    assert _chunked(data, size).to_json() == _whole(data)


@pytest.mark.parametrize("path", FEW, ids=named)
def test_l1_a_recording_in_pieces_is_the_recording(path: Path) -> None:
    data = path.read_bytes()
    reading = steno.RunParser()
    events = [
        event for at in range(0, len(data), 4096) for event in reading.feed(data[at : at + 4096])
    ]
    assert [*events, *reading.close()] == list(steno.events(data))
    assert plain(reading.report(price=price)) == plain(steno.read(path))


@pytest.mark.parametrize("name", SCRIPTED)
def test_l1_reading_in_pieces_is_reading_at_once(name: str) -> None:
    data = SCRIPTED[name]
    reading = steno.RunParser()
    events = [*reading.feed(data), *reading.close()]
    assert events == list(steno.events(data))
    assert plain(reading.report(price=price)) == plain(steno.read(data))


@patient
@given(name=st.sampled_from(sorted(SCRIPTED)), sizes=st.lists(st.integers(1, 3000), max_size=60))
def test_i2_random_chunks_do_not_matter(name: str, sizes: list[int]) -> None:
    data, at = SCRIPTED[name], 0
    reading = steno.RunParser()
    for size in [*sizes, len(data)]:
        reading.feed(data[at : at + size])
        at += size
    reading.close()
    assert reading.report().to_json() == _whole(data)


# -- torn tails ----------------------------------------------------------------------------------


def _expected(data: bytes) -> tuple[int, bool]:
    """The lines of a stream that is cut here, and whether the last one is not whole."""
    rest = data.rpartition(b"\n")[2]
    try:
        json.loads(rest or b"{}")
    except ValueError:
        return data.count(b"\n") + 1, True
    return data.count(b"\n") + bool(rest), False


@pytest.mark.parametrize("name", ["hello", "worked", "refused"])
def test_i2_torn_at_every_byte(name: str) -> None:
    data = SCRIPTED[name]
    for cut in range(len(data) + 1):
        lines = _chunked(data[:cut], 4096).lines
        assert (cut, lines.read, lines.torn, lines.malformed) == (cut, *_expected(data[:cut]), 0)


def test_i2_a_cut_inside_the_stream_is_malformed_and_not_torn() -> None:
    lines = [dump(line) for line in hello()]
    for cut in range(1, len(lines[1])):
        found = _chunked(stream(lines[0], lines[1][:cut], lines[2]), 4096)
        assert (found.lines, found.complete) == (LineCounts(read=3, malformed=1), True)


# -- wrong types ---------------------------------------------------------------------------------

OTHERS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    -0.0,
    1e300,
    10**30,
    -(2**63),
    "",
    "x",
    "true",
    "\u0000",
    "2026-01-01T00:00:00",
    "0001-01-01T00:00:00Z",
    [],
    [None],
    [[]],
    [{}],
    ["x"],
    [1, "a", None, {}],
    {},
    {"a": 1},
    {"type": "text", "text": "x"},
]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, as the keys that lead to it."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


MIXED: list[Json] = [
    *worked(),
    *REFUSED,
    failed("API Error: 500", errors=["a"], structured_output={"a": [1]}),
]
PLACES = [(number, path) for number, line in enumerate(MIXED) for path in _places(line)]


@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_i6_any_field_may_be_of_any_type(other: Any) -> None:
    problems: list[tuple[int, tuple[Any, ...], str]] = []
    for number, path in PLACES:
        lines: list[Any] = [
            *MIXED[:number],
            _replaced(MIXED[number], path, other),
            *MIXED[number + 1 :],
        ]
        try:
            found = _chunked(
                b"".join(dump(line) + b"\n" for line in lines[max(0, number - 3) :]), 1 << 20
            )
            found.to_json()
            if found.lines.read != len(lines[max(0, number - 3) :]):
                problems.append((number, path, repr(found.lines)))
        except Exception as problem:  # every kind of exception is the finding
            problems.append((number, path, repr(problem)))
    assert problems == []


@patient
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(OTHERS)), min_size=2, max_size=12
    )
)
def test_i6_many_fields_may_be_of_any_type(
    changes: list[tuple[tuple[int, tuple[Any, ...]], Any]],
) -> None:
    lines: list[Any] = list(MIXED)
    for (number, path), other in changes:
        if path in _places(lines[number]):
            lines[number] = _replaced(lines[number], path, other)
    found = steno.read(stream(init()) + b"".join(dump(line) + b"\n" for line in lines))
    assert found.lines.read == len(lines) + 1
    assert json.loads(found.to_json())["lines"]["read"] == len(lines) + 1


# -- any bytes -----------------------------------------------------------------------------------

noise = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=100).map(lambda words: words.encode("utf-8", "surrogatepass")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
).map(lambda data: data.replace(b"\n", b" "))


@patient
@given(lines=st.lists(noise, max_size=20))
def test_i3_any_bytes_are_lines(lines: list[bytes]) -> None:
    reading = steno.RunParser(input_format="stream")  # no documents, which have several lines
    reading.feed(stream(init(), *lines))
    reading.close()
    found = reading.report()
    counted = found.lines
    assert counted.read == len(lines) + 1
    assert counted.blank + counted.malformed + counted.not_object <= len(lines)
    assert found.session_id == init()["session_id"]
    assert json.loads(found.to_json())["schema"] == "steno.report/1"


@patient
@given(data=st.binary(max_size=400), size=st.integers(1, 50))
def test_i2_any_bytes_in_any_chunks(data: bytes, size: int) -> None:
    assert _chunked(data, size).to_json() == _whole(data)


def test_e1_events_come_as_soon_as_their_line_is_there() -> None:
    """Whoever follows a run must not wait for lines that are not printed yet."""
    lines = iter([dump(line) + b"\n" for line in hello()])
    handed = 0

    def one_by_one() -> Iterator[bytes]:
        nonlocal handed
        for line in lines:
            handed += 1
            yield line

    seen = [(event.line, handed) for event in steno.RunParser().events(one_by_one())]
    assert [line for line, _ in seen] == [count for _, count in seen]
