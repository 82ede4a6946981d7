"""Measure the peak memory of commands that get a huge line or a compressed bomb.

Run as `python -m benchmarks.memory` (ten minutes, 5 GB of temporary space), or with
`--megabytes 100`. Every measurement is a fresh process; the peak includes its child processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import ENVIRONMENT
from benchmarks.table import number, table

MEGABYTE = 1 << 20
LIMIT_MEGABYTES = 300
INIT = (
    b'{"type":"system","subtype":"init","session_id":"11111111-2222-4333-8444-555555555555",'
    b'"cwd":"/srv/project","model":"claude-opus-5-5","tools":[]}\n'
)
MESSAGE_START = b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"'
MESSAGE_END = b'"}],"usage":{"input_tokens":3,"output_tokens":1}}}\n'
RESULT = (
    b'{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":1,'
    b'"session_id":"11111111-2222-4333-8444-555555555555"}\n'
)
# Prints the file named by its own path, to stdout and stderr.
AGENT = """#!{python}
import os, shutil, sys
for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
    with open(os.path.join({folder!r}, name), "rb") as file:
        shutil.copyfileobj(file, stream.buffer, 1 << 20)
    stream.flush()
"""


@dataclass(frozen=True)
class Case:
    """A command with its input; `stdin` is a file passed through a pipe."""

    data: str
    command: str
    argv: Sequence[str | Path]
    stdin: Path | None = None


@dataclass(frozen=True)
class Peak:
    """The result of a case: megabytes, seconds, exit code, and what it printed to stderr."""

    megabytes: float
    seconds: float
    code: int
    stderr: str


# -- input -----------------------------------------------------------------------------------------


def huge_line(megabytes: int) -> Iterator[bytes]:
    """A stream with one huge message between ordinary lines."""
    yield INIT + MESSAGE_START
    block = b"word" * (MEGABYTE // 4)
    for _ in range(megabytes):
        yield block
    yield MESSAGE_END + RESULT


def zeros(megabytes: int) -> Iterator[bytes]:
    yield INIT
    for _ in range(megabytes):
        yield bytes(MEGABYTE)


def many_lines(megabytes: int) -> Iterator[bytes]:
    """The same message again and again."""
    yield INIT
    line = MESSAGE_START + b"word " * 200 + MESSAGE_END
    block = line * (MEGABYTE // len(line))
    for _ in range(megabytes):
        yield block


def write(path: Path, chunks: Iterator[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines(chunks)
    return path


def write_gzip(path: Path, chunks: Iterator[bytes]) -> Path:
    import gzip

    with gzip.open(path, "wb", 9) as file:
        for chunk in chunks:
            file.write(chunk)
    return path


def write_zstd(path: Path, chunks: Iterator[bytes], window_log: int = 0) -> Path:
    import zstandard

    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with path.open("wb") as file, compressor.stream_writer(file) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return path


def agent_folder(folder: Path, stdout: Iterator[bytes], stderr: Iterator[bytes]) -> Path:
    """A recording folder, with a program `claude` that prints the same."""
    write(folder / "stdout", stdout)
    write(folder / "stderr", stderr)
    program = folder / "bin" / "claude"
    write(program, iter([AGENT.format(python=sys.executable, folder=str(folder)).encode()]))
    program.chmod(0o755)
    return folder


# -- cases -----------------------------------------------------------------------------------------


def cases(folder: Path, megabytes: int) -> Iterator[Case]:
    """The cases, one by one; each writes its input just before."""
    ordinary = (INIT, RESULT)
    line = agent_folder(folder / "line", huge_line(megabytes), iter(()))
    yield from _file_cases("huge line", line / "stdout")
    yield from _watch_cases("huge line", line / "stdout")
    yield Case("huge line on stdout", "run", _run(line))
    (line / "stdout").unlink()
    loud = agent_folder(folder / "loud", iter(ordinary), _plain(megabytes))
    yield from _file_cases("huge line on stderr", loud)
    yield Case("huge line on stderr", "run", _run(loud))
    (loud / "stderr").unlink()
    makers: list[tuple[str, Callable[[int], Iterator[bytes]]]] = [
        ("huge line", huge_line),
        ("zeros", zeros),
        ("many lines", many_lines),
    ]
    for name, maker in makers:
        packed = folder / "bomb.gz"
        _run_apart(write_gzip, packed, maker(megabytes))
        yield from _file_cases(f"gzip, {name}", packed)
        packed = folder / "bomb.zst"
        _run_apart(write_zstd, packed, maker(megabytes))
        yield from _file_cases(f"zstd, {name}", packed)
    _run_apart(write_zstd, packed, many_lines(megabytes), 27)
    yield from _file_cases("zstd, many lines, window 128 MB", packed)


def _run_apart(write_file: Callable[..., Path], *args: object) -> None:
    """In a process of its own: the peak of this one is counted for its children."""
    process = get_context("fork").Process(target=write_file, args=args)
    process.start()
    process.join()


def _plain(megabytes: int) -> Iterator[bytes]:
    for _ in range(megabytes):
        yield b"oops" * (MEGABYTE // 4)


def _file_cases(name: str, path: Path) -> Iterator[Case]:
    yield Case(name, "show", ["show", "--json", path])
    yield Case(name, "ledger import", ["ledger", "import", "--ledger", path.parent / "db", path])


def _watch_cases(name: str, path: Path) -> Iterator[Case]:
    events = ["--json-events", os.devnull]
    for options in ([], ["--record"], events):
        yield Case(name, f"watch {' '.join(options[:1])}".strip(), ["watch", *options], path)


def _run(folder: Path) -> list[str | Path]:
    return ["run", "--json", "--program", folder / "bin" / "claude", "Go."]


# -- measuring -------------------------------------------------------------------------------------


def measure(case: Case, home: Path) -> Peak:
    """Run a case, with its data below `home`."""
    environ = {
        name: value
        for name, value in ENVIRONMENT.items()
        if not name.startswith(("STENO_", "XDG_", "CLAUDE", "ANTHROPIC_"))
    }
    environ |= {"HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    started = time.monotonic()
    feeder = None
    if case.stdin is not None:
        feeder = subprocess.Popen(["cat", case.stdin], stdout=subprocess.PIPE)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "steno", *map(str, case.argv)],
            stdin=feeder.stdout if feeder is not None else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environ,
            cwd=home,
        )
        if feeder is not None and feeder.stdout is not None:
            feeder.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if feeder is not None:
            feeder.wait()
        errors.seek(0)
        text = errors.read().decode("utf-8", "replace")
    seconds = time.monotonic() - started
    return Peak(usage.ru_maxrss / 1024, seconds, process.returncode, text)


def main(args: Sequence[str] | None = None) -> int:
    options = _parse(args)
    rows = []
    goals = []
    faults = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        for case in cases(folder, options.megabytes):
            peak = measure(case, home)
            log(f"{case.data}: {case.command}: {peak.megabytes:.0f} MB, {peak.seconds:.1f} s")
            goal = Goal(f"{case.data}: {case.command}", peak.megabytes, options.limit, " MB")
            goals.append(goal)
            figures = [number(peak.megabytes, 0, " MB"), number(peak.seconds, 1, " s")]
            rows.append([case.data, case.command, *figures, str(peak.code)])
            if "Traceback" in peak.stderr or peak.code < 0:
                faults.append(f"{goal.text}: exit {peak.code}: {peak.stderr[-500:]}")
            if not goal.met():
                faults.append(f"{goal.text}: {peak.megabytes:.0f} MB")
    head = ["input", "command", "peak memory", "time", "exit code"]
    title = f"Peak memory, {options.megabytes:,} MB of input after decompression:"
    return finish(options, f"{title}\n\n{table(head, rows)}", "memory", goals, faults)


def _parse(args: Sequence[str] | None) -> argparse.Namespace:
    command = parser("Measure peak memory with huge lines and compressed bombs.", 1)
    command.add_argument("--megabytes", type=int, default=1024)
    command.add_argument("--limit", type=int, default=LIMIT_MEGABYTES, metavar="MEGABYTES")
    command.add_argument("--folder", type=Path, help="folder for temporary files")
    return command.parse_args(args)


if __name__ == "__main__":
    sys.exit(main())
