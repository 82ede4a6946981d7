"""Read mutated recordings: nothing may raise, and no line may be lost (I2, I3, I6).

    python -m tests.fuzz [--count 1000000] [--seed 1] [--jobs N]

The lines come from `tests/recordings` and from the scripted runs. The same seed gives the same
mutations with any number of jobs. Exit code 1 if anything failed.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from random import Random

from msgspec import Struct

import steno
from steno.recording.format import Record, encode_record
from tests.support.claude_lines import REFUSED, dump, failed, init, recorded, stream, worked

BATCH = 500  # lines that one Reading gets
SLICE = 20  # batches that one job takes at a time
LONGEST = 8_000  # bytes of a source line: longer ones only cost time
SHOWN = 20  # different problems that are told
ALIKE = 24  # leading characters of exception name and text that identify a problem

FIRST = stream(init())
HEADER = b'{"schema":"steno.tape/1","agent":"claude","started_at":1800000000.0}\n'
LITERALS = [
    b"null",
    b"true",
    b"false",
    b"0",
    b"-1",
    b"1.5",
    b"1e308",
    b"1e999",
    b"-0.0",
    b"9" * 30,
    b"9" * 5000,
    b'""',
    b'"x"',
    b'"true"',
    b'"\\ud83d"',
    b'"\\u0000"',
    b'"\xff"',
    b"[]",
    b"[[]]",
    b"[null]",
    b'["x"]',
    b"[{}]",
    b"{}",
    b'{"a":1}',
    b'{"type":"text"}',
    b'"2026-01-01T00:00:00"',
    b'"2026-01-01T00:00:00Z"',
    b'"0001-01-01T00:00:00Z"',
    b'"assistant"',
    b'"result"',
    b'"tool_use"',
    b"NaN",
]
_value = re.compile(rb'(?<=:)(?:"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|\[\]|\{\})')


class Outcome(Struct):
    """What a round of damage led to."""

    mutations: int = 0
    exceptions: int = 0
    lost: int = 0
    told: list[str] = []

    def add(self, other: "Outcome") -> None:
        self.mutations += other.mutations
        self.exceptions += other.exceptions
        self.lost += other.lost
        known = {note[:ALIKE] for note in self.told}
        for note in other.told:  # one example of each problem is enough
            if note[:ALIKE] not in known and len(known) < SHOWN:
                known.add(note[:ALIKE])
                self.told = [*self.told, note]

    def __str__(self) -> str:
        counts = f"{self.mutations:,} mutations, {self.exceptions:,} exceptions"
        return f"{counts}, {self.lost:,} lost lines"


# -- damage --------------------------------------------------------------------------------------


@cache  # once per process: the lines are the same for every round
def sources() -> list[tuple[bytes, list[tuple[int, int]]]]:
    """The lines to damage, each with the places of its values."""
    lines = {dump(line) for line in (*worked(), *REFUSED, failed())}
    for path in recorded(1 << 20):
        lines.update(
            line for line in path.read_bytes().split(b"\n") if line and len(line) <= LONGEST
        )
    return [(line, [found.span() for found in _value.finditer(line)]) for line in sorted(lines)]


def _cut(line: bytes, by: Random) -> tuple[int, int]:
    first = by.randrange(len(line) + 1)
    return first, min(len(line), first + by.choice((1, 2, 5, 20, 200)))


def _flip(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    damaged = bytearray(line)
    for _ in range(by.choice((1, 1, 2, 8))):
        damaged[by.randrange(len(damaged))] ^= 1 << by.randrange(8)
    return bytes(damaged)


def _delete(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    first, last = _cut(line, by)
    return line[:first] + line[last:]


def _duplicate(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    first, last = _cut(line, by)
    return line[:last] + line[first:]


def _splice(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    other = by.choice(sources())[0]
    return line[: by.randrange(len(line) + 1)] + other[by.randrange(len(other)) :]


def _truncate(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    return line[: by.randrange(len(line))]


def _glue(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    return line + by.choice((b"", b" ", b"\r", b",", b"\x00")) + by.choice(sources())[0]


def _insert(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    at = by.randrange(len(line) + 1)
    return (
        line[:at]
        + by.choice((*LITERALS, by.randbytes(by.randrange(1, 9)), b"\xef\xbb\xbf", b"\x1b[?25l"))
        + line[at:]
    )


def _swap(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    return _put(line, spans, by, by.choice(LITERALS))


def _nest(line: bytes, spans: list[tuple[int, int]], by: Random) -> bytes:
    opening, closing = by.choice(((b"[", b"]"), (b'{"a":', b"}")))
    depth = by.choice((3, 50, 400, 600, 990, 1500))
    return _put(line, spans, by, opening * depth + b"1" + closing * depth)


def _put(line: bytes, spans: list[tuple[int, int]], by: Random, value: bytes) -> bytes:
    if not spans:
        return value
    first, last = by.choice(spans)
    return line[:first] + value + line[last:]


Damage = Callable[[bytes, list[tuple[int, int]], Random], bytes]
DAMAGES: list[Damage] = [
    _flip,
    _delete,
    _duplicate,
    _splice,
    _truncate,
    _glue,
    _insert,
    _swap,
    _swap,
    _swap,
    _nest,
]


def damaged(by: Random) -> bytes:
    """One damaged line, without any newline."""
    line, spans = by.choice(sources())
    return by.choice(DAMAGES)(line, spans, by).replace(b"\n", b" ")


# -- reading -------------------------------------------------------------------------------------


def _pieces(data: bytes, by: Random) -> Iterator[bytes]:
    """The bytes at once, or in pieces of some size."""
    size = by.choice((len(data), len(data), 65_536, 997))
    return (data[at : at + size] for at in range(0, len(data), size))


def _read(data: bytes, by: Random) -> int | None:
    """Read, report and write; the number of lines that were counted, None with documents in them.

    A damaged line can begin a document: several lines that count as one, or one as several.
    """
    input_format = by.choice(("stream", "stream", None))
    if input_format is None:
        found = steno.read(data)
    else:
        reading = steno.RunParser(input_format=input_format)
        for piece in _pieces(data, by):
            reading.feed(piece)
        reading.close()
        found = reading.report()
    found.to_json()
    return None if input_format is None else found.lines.read


def _problem(data: bytes) -> str | None:
    try:
        steno.read(data).to_json()
    except Exception as problem:  # every kind of exception is the finding
        return repr(problem)
    return None


def _shrunk(opening: bytes, lines: list[bytes]) -> list[bytes]:
    """Fewer lines that still raise together."""
    size = len(lines) // 2
    while size:
        for at in range(0, len(lines), size):
            fewer = lines[:at] + lines[at + size :]
            if _problem(opening + b"".join(fewer)) is not None:
                lines = fewer
                break
        else:
            size //= 2
    return lines


def _blame(opening: bytes, lines: list[bytes]) -> list[str]:
    """Which of the lines raise when they stand alone; if none does, the few that do together."""
    alone = [
        f"{problem}: {line[:300]!r}"
        for line in lines
        if (problem := _problem(opening + line)) is not None
    ]
    if alone:
        return alone
    problem = _problem(opening + b"".join(lines))
    if problem is None:
        return [f"only in pieces: {lines[0][:100]!r}"]
    return [f"{problem}: " + " with ".join(repr(line[:300]) for line in _shrunk(opening, lines))]


def _batch(opening: bytes, lines: list[bytes], expected: int | None, by: Random) -> Outcome:
    try:
        counted = _read(opening + b"".join(lines), by)
    except Exception:  # every kind of exception is the finding
        told = _blame(opening, lines)
        return Outcome(len(lines), len(told), 0, told)
    lost = 0 if expected is None or counted is None else abs(expected - counted)
    return Outcome(
        len(lines), 0, lost, [f"{lost} lines lost of a batch of {len(lines)}"] if lost else []
    )


def _tick(line: bytes, by: Random) -> bytes:
    """A damaged line on a tape, and in one of five cases its tick damaged as well."""
    tick = encode_record(
        Record(by.choice((None, 0.5, 1e18)), by.choice(("out", "out", "err", "file")), line)
    )
    return (
        by.choice((_flip, _delete, _truncate, _insert))(tick, [], by) if by.random() < 0.2 else tick
    )


def batch(seed: int, number: int, size: int = BATCH) -> Outcome:
    """One round: mostly a stream, sometimes one without a valid first line, or a recording."""
    by = Random(f"{seed} {number}")
    lines = [damaged(by) + b"\n" for _ in range(size)]
    kind = number % 20
    if kind == 7:  # the first line may make it an array or a document, so lines are not counted
        return _batch(b"", lines, None, by)
    if kind == 13:  # the number of lines in a damaged recording is unknown
        return _batch(HEADER, [_tick(line, by) for line in lines], None, by)
    return _batch(FIRST, lines, size + 1, by)


def rounds(seed: int, first: int, last: int) -> Outcome:
    """Several batches, one after the other."""
    outcome = Outcome()
    for number in range(first, last):
        outcome.add(batch(seed, number))
    return outcome


def run(count: int, seed: int, jobs: int, progress: Callable[[Outcome], None]) -> Outcome:
    """At least `count` mutations."""
    batches = -(-count // BATCH)
    outcome = Outcome()
    with ProcessPoolExecutor(jobs) as pool:
        starts = range(0, batches, SLICE)
        ends = [min(batches, start + SLICE) for start in starts]
        for part in pool.map(rounds, [seed] * len(ends), starts, ends):
            outcome.add(part)
            progress(outcome)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.partition("\n")[0] if __doc__ else None
    )
    parser.add_argument("--count", type=int, default=1_000_000, help="mutations (default: 1000000)")
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed gives the same mutations (default: 1)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all processors)"
    )
    asked = parser.parse_args()

    def progress(so_far: Outcome) -> None:
        if so_far.mutations // 50_000 != (so_far.mutations - BATCH * SLICE) // 50_000:
            sys.stderr.write(f"{so_far}\n")

    outcome = run(asked.count, asked.seed, asked.jobs, progress)
    for note in outcome.told:
        sys.stderr.write(f"{note}\n")
    sys.stdout.write(f"{outcome}\n")
    return 1 if outcome.exceptions or outcome.lost else 0


if __name__ == "__main__":
    sys.exit(main())
