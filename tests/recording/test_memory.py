"""Memory is bounded (I2): a huge line is cut and counted, a compressed bomb is not unpacked.

The full sizes are measured by `python -m benchmarks.memory`.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import memory

import steno
from steno.codec import decode
from steno.codec.decode import MAX_LINE_BYTES, LineSplitter
from tests.support.claude_lines import SESSION, dump, folder, hello, plain, result, stream

MEGABYTES = 160  # a reader that keeps the line needs more than twice that
MAX_PEAK_MEGABYTES = 220
ROOT = Path(__file__).parents[2]
HELLO = stream(*hello())
CUT = "1 line longer than 32 MB cut"
EXPANDED = "decompresses to more than 100 times its size; decompress it first"


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_a_huge_line_or_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    """In every command that reads what an agent printed: 18 GB for the zeros in zstd, once.

    A process of its own measures it: the memory of this one would count for its children.
    """
    options = ["--megabytes", MEGABYTES, "--limit", MAX_PEAK_MEGABYTES, "--folder", tmp_path]
    command = [sys.executable, "-m", "benchmarks.memory", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n| ") == 2 + 23  # cases, below the head


def test_a_long_line_is_cut_and_counted() -> None:
    """What it contains beyond the limit is not read as another line."""
    forged = dump(result("All is well.", session="forged"))
    report = steno.read(HELLO + b"x" * MAX_LINE_BYTES + forged + b"\n")
    assert (report.lines.malformed, report.lines.torn, report.session_id) == (1, False, SESSION)
    assert report.warnings == [CUT]


def test_a_line_below_the_limit_is_whole() -> None:
    line = dump(result("x" * (MAX_LINE_BYTES - 1000)))
    report = steno.read(HELLO + line + b"\n")
    assert (report.lines.malformed, len(report.result or "")) == (0, MAX_LINE_BYTES - 1000)


def test_a_long_line_is_cut_alike_in_a_file_a_folder_and_in_lines(tmp_path: Path) -> None:
    data = HELLO + b"x" * (MAX_LINE_BYTES + 10) + b"\n" + HELLO
    expected = plain(steno.read(data))
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    assert plain(steno.read(path)) == expected
    assert plain(steno.read(data.splitlines())) == expected
    with path.open("rb") as file:
        assert plain(steno.read(file)) == expected
    report = steno.read(folder(tmp_path / "run", HELLO, 0, b"x" * (MAX_LINE_BYTES + 10)))
    assert (report.verdict, report.warnings) == ("success", [CUT])


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_lines_are_cut_alike_in_chunks_of_any_size(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "MAX_LINE_BYTES", 10)
    data = b"123456789\n1234567890\n12345678901\n\n" + b"x" * 35 + b"\nend"
    splitter = LineSplitter()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    expected = [b"123456789", b"1234567890", b"1234567890", b"", b"x" * 10, b"end"]
    assert [*lines, splitter.flush()] == expected


def test_a_bomb_is_read_as_far_as_it_is_plausible(tmp_path: Path) -> None:
    path = memory.write_gzip(tmp_path / "bomb.gz", memory.many_lines(60))
    report = steno.read(path)
    assert f"only part of it could be read: {EXPANDED}" in report.warnings
    assert (report.complete, 16e6 < len(report.text) < 32e6) == (False, True)


def test_a_compressed_recording_is_no_bomb(tmp_path: Path) -> None:
    """Also if it is large, and more compressible than any that was seen."""
    path = memory.write_gzip(tmp_path / "run.gz", iter([HELLO * 8000]))
    report = steno.read(path)
    assert (report.complete, report.lines.read) == (True, 8000 * HELLO.count(b"\n"))
