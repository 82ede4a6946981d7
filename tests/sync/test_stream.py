"""`steno watch --sync` with a failing destination: the stream never waits, and all files arrive.

Shown by the order of events, not by a clock: each line is read back while the destination is
blocked. Measured times are printed (`pytest -rP`).
"""

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.claude_lines import Json, answer, assistant, call, init, result, stream
from tests.support.filestore import FileStore
from tests.support.program import argv, environment

LONG = 120.0
LINES = 300


class Stream:
    """A `steno watch --sync` with both ends of its pipe."""

    def __init__(self, folder: Path) -> None:
        self.project, self.data = folder / "proj", folder / "data"
        self.project.mkdir()
        self.waits: list[float] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        """Start, with the agent's first line."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            argv("watch", *words), env=environment(self.data), cwd=self.project, bufsize=0, **pipes
        )  # type: ignore[call-overload]
        self.pass_on(init(cwd=str(self.project)))
        self.waits.clear()  # without the start of Python

    def pass_on(self, line: Json) -> None:
        """A line in, and the same line out."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        data = stream(line)
        before = time.perf_counter()
        self.process.stdin.write(data)
        found = b""
        while len(found) < len(data):
            assert select.select([self.process.stdout], [], [], LONG)[0], "a line does not come out"
            part = os.read(self.process.stdout.fileno(), len(data) - len(found))
            assert part
            found += part
        self.waits.append(time.perf_counter() - before)
        assert found == data

    def change(self, number: int, name: str, content: str) -> None:
        """The agent writes a file and reports it."""
        path = self.project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        id_ = f"toolu_{number}"
        self.pass_on(
            assistant(
                call(id_, "Write", file_path=str(path), content=content), message=f"msg_{number}"
            )
        )
        told = {"type": "create", "filePath": str(path), "content": content, "structuredPatch": []}
        self.pass_on(answer(id_, tool_use_result=told))

    def end(self) -> None:
        """End the input: the stream ends at once, the sync later."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.pass_on(result())
        self.process.stdin.close()
        assert self.process.stdout.read() == b""  # stdout ends before the sync does

    def finish(self) -> tuple[int, str]:
        """The exit code and stderr."""
        assert self.process is not None
        self.process.stdin = None
        _, err = self.process.communicate(timeout=LONG)
        return self.process.returncode, err.decode()

    def measured(self, what: str) -> None:
        """Print a measurement."""
        waits = sorted(self.waits)
        figures = (waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1])
        told = ", ".join(
            f"{name} {wait * 1e6:.0f} µs"
            for name, wait in zip(("p50", "p99", "most"), figures, strict=True)
        )
        sys.stdout.write(f"{what}: {len(waits)} lines in and out: {told}\n")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Stream]:
    found = Stream(tmp_path)
    yield found
    if found.process is not None and found.process.poll() is None:
        found.process.kill()
        found.process.wait()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until(what: Callable[[], object]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_destination_that_takes_nothing_more(watched: Stream) -> None:
    """It blocks in the middle of a file while all lines pass; later it has everything."""
    with FileStore() as store:
        store.gate.clear()
        watched.start("--quiet", "--strict", "--sync", store.url)
        watched.change(0, "0.txt", "first")
        until(lambda: store.held)
        for number in range(1, LINES):
            watched.change(number, f"{number % 7}.txt", f"content {number}")
        watched.end()
        assert store.contents() == {}
        store.gate.set()
        assert watched.finish() == (0, "")
        assert store.contents() == tree(watched.project)
    watched.measured("a destination that stands still")


def test_a_destination_that_is_not_there(watched: Stream) -> None:
    """No listener while all lines pass; later it gets everything."""
    port = free_port()
    watched.start("--quiet", "--strict", "--sync", f"http://127.0.0.1:{port}/files")
    for number in range(LINES):
        watched.change(number, f"{number % 7}.txt", f"content {number}")
    watched.end()
    assert watched.process is not None
    assert watched.process.stderr is not None
    assert select.select([watched.process.stderr], [], [], LONG)[0]  # the first attempt has failed
    with FileStore(port) as store:
        code, err = watched.finish()
        assert store.contents() == tree(watched.project)
    assert code == 0
    assert {line.partition(": ")[2] for line in err.splitlines()} == {
        "Connection refused; retrying"
    }
    watched.measured("a destination that is down")


@pytest.mark.parametrize("status", [500, 409])
def test_a_destination_that_answers_with_errors(watched: Stream, status: int) -> None:
    """While all lines pass."""
    with FileStore() as store:
        store.fail = status
        watched.start("--quiet", "--strict", "--sync", store.url)
        for number in range(LINES):
            watched.change(number, f"{number % 7}.txt", f"content {number}")
        until(lambda: store.statuses("PUT"))
        watched.end()
        assert store.contents() == {}
        store.fail = None
        code, err = watched.finish()
        assert store.contents() == tree(watched.project)
    assert code == 0
    assert all(line.startswith("[steno] ✗ ") and str(status) in line for line in err.splitlines())
    watched.measured(f"a destination that answers {status}")


def test_a_thousand_files_and_five_hundred_changes_of_one(watched: Stream, tmp_path: Path) -> None:
    """The last content of each file arrives, and the stream is unchanged."""
    there = tmp_path / "there"
    watched.start("--sync", f"dir:{there}")
    for number in range(1_000):
        watched.change(number, f"d{number % 10}/{number}.txt", f"content {number}")
    for number in range(1_000, 1_500):
        watched.change(number, "often.txt", f"content {number}")
    watched.end()
    code, err = watched.finish()
    assert code == 0
    assert tree(there) == tree(watched.project)
    assert (len(tree(there)), tree(there)["often.txt"]) == (1_001, b"content 1499")
    assert "✗" not in err
    watched.measured("1,000 files, and one file 500 times")


def test_quiet_is_quiet(watched: Stream, tmp_path: Path) -> None:
    """Without failures nothing is printed about copied files or files outside."""
    watched.start("--quiet", "--sync", f"dir:{tmp_path / 'there'}")
    watched.change(0, "a.txt", "a")
    watched.change(1, "../outside.txt", "b")
    watched.end()
    assert watched.finish() == (0, "")
    assert tree(tmp_path / "there") == {"a.txt": b"a"}


def test_its_own_output_is_not_copied(tmp_path: Path) -> None:
    """`steno watch --sync dir:X >run.jsonl`: each line would change the file again."""
    project, there = tmp_path / "proj", tmp_path / "there"
    (project / "sub").mkdir(parents=True)
    (project / "a.txt").write_text("a")
    lines = stream(init(cwd=str(project)), result("Done."))
    words = argv("watch", "--quiet", "--sync", f"dir:{there}", "--final-pass")
    names = ("run [1].jsonl", "sub/errors.log")
    with (project / names[0]).open("wb") as out, (project / names[1]).open("wb") as errors:
        done = subprocess.run(
            words,
            input=lines,
            stdout=out,
            stderr=errors,
            cwd=project,
            env=environment(tmp_path / "data"),
            check=False,
        )
    assert (done.returncode, (project / names[1]).read_bytes()) == (0, b"")
    assert (project / names[0]).read_bytes() == lines
    assert tree(there) == {"a.txt": b"a"}
