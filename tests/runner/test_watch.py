"""Pass-through (W1): bytes out equal bytes in, at once, and it ends like `cat`."""

import json
import os
import pty
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest

import steno
from steno import event as ev
from steno.agents import CLAUDE
from steno.codec.decode import MAX_LINE_BYTES
from steno.errors import SourceError
from steno.event import Event
from steno.ledger.store import open_ledger
from steno.pricing import price
from steno.recording.format import RecordingFile
from steno.runner.watch import MAX_READ_BYTES, PassThrough, StreamMonitor
from tests.support.claude_lines import (
    RECORDINGS,
    SESSION,
    answer,
    assistant,
    call,
    hello,
    init,
    named,
    plain,
    recorded,
    result,
    spread,
    stream,
    text,
    worked,
)
from tests.support.program import argv, environment
from tests.webhook_server import serving

ROOT = Path(__file__).parents[2]
SAMPLE = spread(recorded(400_000), 60)
HELLO = stream(*hello())
GARBAGE = {
    "empty": b"",
    "one newline": b"\n",
    "no final newline": stream(*worked())[:-1],
    "torn": stream(*worked())[:-40],
    "text": b"Welcome!\nnothing here is JSON",
    "zeros": bytes(300_000),
    "random": random.Random(7).randbytes(700_000),
    "random lines": random.Random(8).randbytes(200_000).replace(b"\x00", b"\n"),
    "gzip": b"\x1f\x8b\x08" + random.Random(9).randbytes(5000),
    "a document": json.dumps(result(), indent=2).encode(),
    "an array": json.dumps(hello()).encode(),
    "a long line": b'{"type":"user","message":"' + b"x" * 2_000_000 + b'"}\n' + stream(*hello()),
}


# -- in this process: pipes, and a thread at each end --------------------------------------------


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    """The data in random pieces: mostly small, some large."""
    chance, at = random.Random(seed), 0
    while at < len(data):
        size = chance.choice((1, 2, 3, 7, 64, 1000, 70_000))
        yield data[at : at + size]
        at += size


class Pipes:
    """A PassThrough between two pipes; `out` is its output."""

    def __init__(self, chunks: Iterable[bytes], pause: float = 0.0) -> None:
        source, self._in = os.pipe()
        self._out, target = os.pipe()
        self.tap = PassThrough(source, target)
        self.out, self.ends = b"", (source, target)
        self._pause = pause
        self._threads = [Thread(target=self._feed, args=(chunks,)), Thread(target=self._collect)]

    def __enter__(self) -> "Pipes":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(60)
        for end in self.ends:
            os.close(end)

    def _feed(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            os.write(self._in, chunk)
        os.close(self._in)

    def _collect(self) -> None:
        while data := os.read(self._out, 1 << 16):
            self.out += data
            time.sleep(self._pause)
        os.close(self._out)


def watched(
    chunks: Iterable[bytes], report: bool = True
) -> tuple[bytes, StreamMonitor, list[Event]]:
    """The output, the monitor and the events."""
    with Pipes(chunks) as pipes:
        watching, events = StreamMonitor(pipes.tap, with_report=report), list[Event]()
        watching.sinks.append(events.extend)
        watching.run()
    assert watching.warnings == []
    return pipes.out, watching, events


PLAIN = (ev.ToolCall, ev.ToolResult, ev.Text, ev.Thinking, ev.Usage)


@pytest.mark.parametrize("path", SAMPLE, ids=named)
def test_with_filtered_sinks_the_report_is_the_same(path: Path) -> None:
    """Filtered sinks get all events except the frequent kinds."""
    data = path.read_bytes()
    with Pipes(pieces(data, 4)) as pipes:
        watching, rare = StreamMonitor(pipes.tap), list[Event]()
        watching.filtered_sinks.append(rare.extend)
        watching.run()
    assert pipes.out == data
    assert watching.warnings == []
    assert plain(watching.parser.report(price=price)) == plain(steno.read(data))
    assert [event for event in rare if not isinstance(event, PLAIN)] == [
        event for event in steno.events(data) if not isinstance(event, PLAIN)
    ]


def test_what_fills_a_pipe_exactly_is_looked_at_though_nothing_more_comes() -> None:
    """It is parsed though nothing more comes."""
    lines = stream(*worked())
    data = lines + b" " * (MAX_READ_BYTES - len(lines) - 1) + b"\n"
    seen: list[bool] = []

    def chunks() -> Iterator[bytes]:
        yield data
        late = time.monotonic() + 30
        while watching.parser.accumulator.result is None and time.monotonic() < late:
            time.sleep(0.001)
        seen.append(watching.parser.accumulator.result is not None)

    pipes = Pipes(chunks())
    watching = StreamMonitor(pipes.tap)
    with pipes:
        watching.run()
    assert (pipes.out, seen) == (data, [True])


def test_in_bulk_every_byte_passes_and_is_seen() -> None:
    """Much more than a pipe holds, in one piece and in small ones."""
    data = stream(
        init(),
        *[assistant(text("é" * size), message=f"m{size}") for size in range(0, 9000, 7)],
        result(),
    )
    assert len(data) > 30 * MAX_READ_BYTES
    for chunks in ([data], pieces(data, 3)):
        with Pipes(chunks) as pipes:
            watching = StreamMonitor(pipes.tap)
            watching.run()
        assert pipes.out == data
        assert plain(watching.parser.report("stdin", price)) == plain(steno.read(data))


@pytest.mark.parametrize("quiet", [True, False], ids=["drain", "lines"])
def test_without_a_reader_as_much_is_buffered_as_with_cat(quiet: bool) -> None:
    """300 lines fit into the pipe, as with cat."""
    source, feed = os.pipe()
    take, target = os.pipe()
    tap = PassThrough(source, target)
    thread = Thread(target=tap.drain if quiet else lambda: list(tap.lines()), daemon=True)
    thread.start()
    line = b"x" * 99 + b"\n"
    for _ in range(300):
        os.write(feed, line)
        time.sleep(0.0005)
    os.close(feed)
    thread.join(60)
    assert tap.is_finished
    os.set_blocking(take, False)
    assert os.read(take, MAX_READ_BYTES) == line * 300
    for end in (source, target, take):
        os.close(end)


def test_a_reader_that_leaves_in_bulk() -> None:
    """The writer notices, and what came in before counts."""
    source, feed = os.pipe()
    take, target = os.pipe()
    data = stream(*[assistant(text("x" * 60_000), message=f"m{number}") for number in range(200)])

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(feed, "wb") as file:
            file.write(data)

    def read() -> None:
        left = 4_000_000
        while left > 0:
            left -= len(os.read(take, 1 << 16))
        os.close(take)

    threads = [Thread(target=work) for work in (write, read)]
    for thread in threads:
        thread.start()
    watching = StreamMonitor(PassThrough(source, target))
    watching.run()
    for thread in threads:
        thread.join(60)
    assert (
        watching.pass_through.is_reader_gone,
        watching.pass_through.is_finished,
        watching.pass_through.problem,
    ) == (True, True, None)
    assert 4_000_000 // 60_400 <= watching.parser.lines.read < 200
    for end in (source, target):
        os.close(end)


@pytest.mark.parametrize("path", SAMPLE, ids=named)
def test_every_recording_passes_untouched_and_is_understood(path: Path) -> None:
    """In random pieces and at once: the same bytes, report and events as from a file."""
    data = path.read_bytes()
    for chunks in (pieces(data, 1), pieces(data, 2), iter([data])):
        out, watching, events = watched(chunks)
        assert out == data
        assert plain(watching.parser.report(price=price)) == plain(steno.read(data))
        assert events == list(steno.events(data))


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_whatever_it_is_it_passes(data: bytes) -> None:
    """Also if it cannot be parsed."""
    out, watching, _ = watched(pieces(data, 3) if len(data) < 500_000 else [data])
    assert out == data
    assert plain(watching.parser.report(price=price)) == plain(steno.read(data))
    with Pipes([data]) as pipes:
        pipes.tap.drain()
    assert pipes.out == data


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    """Above the limit it is cut, as where a file is read."""
    data = b"x" * (MAX_LINE_BYTES + 5_000_000)
    out, watching, _ = watched([data, b"\n", HELLO])
    assert out == data + b"\n" + HELLO
    report = watching.parser.report(price=price)
    assert (report.lines.malformed, report.session_id) == (1, SESSION)
    assert plain(report) == plain(steno.read(out))


def test_ends_that_do_not_wait() -> None:
    """Both descriptors are non-blocking, and the reader is slow."""
    data = stream(*worked()) * 400
    with Pipes(pieces(data, 4), pause=0.0005) as pipes:
        for end in pipes.ends:
            os.set_blocking(end, False)
        pipes.tap.drain()
    assert pipes.out == data


def test_a_reader_that_is_slow_is_waited_for() -> None:
    """Nothing is buffered beyond the pipes: the writer blocks, as with cat."""
    source, feed = os.pipe()
    take, target = os.pipe()
    tap = PassThrough(source, target)
    thread = Thread(target=tap.drain)
    thread.start()
    os.set_blocking(feed, False)
    written, quiet = 0, 0
    while quiet < 20:
        try:
            written += os.write(feed, bytes(4096))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.01)
    assert written < 400_000  # two pipes of 64 KB and one chunk
    os.close(feed)
    got = 0
    while data := os.read(take, 1 << 16):
        got += len(data)
    thread.join()
    assert got == written
    for end in (source, target, take):
        os.close(end)


def test_a_closed_reader_closes_both_ends() -> None:
    """What came in before counts; the writer notices at once."""
    source, feed = os.pipe()
    take, target = os.pipe()
    os.close(take)
    os.write(feed, HELLO)
    watching = StreamMonitor(PassThrough(source, target))
    watching.run()
    assert (watching.pass_through.is_reader_gone, watching.pass_through.is_finished) == (True, True)
    assert watching.parser.report().session_id == SESSION
    with pytest.raises(BrokenPipeError):
        os.write(feed, b"more")
    for end in (source, target, feed):
        os.close(end)


def _stop(tap: PassThrough, number: int, frame: object) -> None:
    tap.stop(number)


def test_a_signal_in_bulk(tmp_path: Path) -> None:
    """What is seen equals the input and the output, except for one chunk to a slow reader."""
    before = signal.getsignal(signal.SIGUSR1)
    wrong = []
    try:
        for turn in range(25):
            with (
                (tmp_path / "handed").open("w+b") as handed,
                subprocess.Popen(
                    ["seq", "999999999"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                ) as writer,
                subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=handed) as reader,
            ):
                assert writer.stdout is not None
                assert reader.stdin is not None
                tap = PassThrough(writer.stdout.fileno(), reader.stdin.fileno())
                signal.signal(signal.SIGUSR1, partial(_stop, tap))
                timer = Timer(0.02 + turn / 2000, os.kill, (os.getpid(), signal.SIGUSR1))
                timer.start()
                seen = b"".join(tap.chunks())
                timer.join()
                reader.stdin.close()
                reader.wait()
                writer.kill()
                handed.seek(0)
                arrived = handed.read()
            lost = len(seen) - len(arrived)
            if not (
                seen.startswith(arrived) and lost <= MAX_READ_BYTES and seen == _counted(len(seen))
            ):
                wrong.append((len(seen), lost))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert wrong == []


def test_a_signal_just_after_a_line(tmp_path: Path) -> None:
    """A signal just before the wait for input is never missed."""
    codes = []
    for turn in range(40):
        words = argv("watch", *["--quiet"] * (turn % 2))
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(tmp_path),
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(HELLO)
            child.stdin.flush()
            assert os.read(child.stdout.fileno(), MAX_READ_BYTES) == HELLO
            time.sleep(turn / 40_000)
            child.send_signal(signal.SIGTERM)
            codes.append(child.wait(60))
    assert codes == [-signal.SIGTERM] * 40


def _counted(size: int) -> bytes:
    """The first bytes of the output of seq."""
    return subprocess.run(
        ["sh", "-c", f"seq 999999999 | head -c {size}"], capture_output=True, check=True
    ).stdout


def test_a_signal_that_comes_while_it_does_not_wait() -> None:
    """It ends before the next read, which could block."""
    source, feed = os.pipe()
    take, target = os.pipe()
    tap = PassThrough(source, target)
    tap.stop(signal.SIGTERM)
    assert list(tap.lines()) == []
    assert (tap.is_finished, tap.stop_signal, os.read(take, 10)) == (True, signal.SIGTERM, b"")
    for end in (source, target, take, feed):
        os.close(end)


def test_a_source_that_cannot_be_read() -> None:
    """A folder."""
    source = os.open("/", os.O_RDONLY)
    _, target = os.pipe()
    tap = PassThrough(source, target)
    tap.drain()
    assert isinstance(tap.problem, SourceError)
    for end in (source, target, _):
        os.close(end)


def test_what_fails_beside_the_stream_does_not_stop_it() -> None:
    """A sink and a reader that raise."""
    data = stream(*worked()) * 20

    def fail(events: list[Event]) -> None:
        raise RuntimeError("no")

    seen: list[Event] = []
    with Pipes(pieces(data, 5)) as pipes:
        watching = StreamMonitor(pipes.tap)
        watching.sinks += [fail, seen.extend]
        watching.run()
    assert pipes.out == data
    assert watching.warnings == ["event sink failed and was removed: RuntimeError: no"]
    assert seen == list(steno.events(data))

    class Broken(CLAUDE.reader):  # type: ignore[name-defined, misc]
        def feed(self, *_: Any) -> Any:
            raise RuntimeError("a bug of ours")

    import msgspec

    with Pipes(pieces(data, 6)) as pipes:
        watching = StreamMonitor(pipes.tap, msgspec.structs.replace(CLAUDE, reader=Broken))
        watching.run()
    assert pipes.out == data
    assert watching.warnings == ["parsing stopped: RuntimeError: a bug of ours"]


# -- the program ---------------------------------------------------------------------------------


class Place:
    """A user's environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data" / "steno"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("STENO_", "COLUMNS"))
        }
        self.environment |= {
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "TZ": "UTC",
        }
        self.environment |= {"NO_COLOR": "1", "HOME": str(folder), "PYTHONIOENCODING": "utf-8"}

    def start(self, *words: str, **more: Any) -> "subprocess.Popen[bytes]":
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **more,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "steno", *words], env=self.environment, cwd=self.folder, **pipes
        )

    def run(self, data: bytes, *words: str) -> "subprocess.CompletedProcess[bytes]":
        command = [sys.executable, "-m", "steno", *words]
        return subprocess.run(
            command,
            input=data,
            capture_output=True,
            env=self.environment,
            cwd=self.folder,
            timeout=60,
        )

    def shell(self, line: str, data: bytes) -> "subprocess.CompletedProcess[bytes]":
        """Run a shell command with our `steno` in PATH."""
        line = line.replace("steno", f"{sys.executable} -m steno")
        return subprocess.run(
            ["bash", "-c", line],
            input=data,
            capture_output=True,
            env=self.environment,
            cwd=self.folder,
            timeout=60,
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_plain_lines_and_a_card_on_stderr(place: Place) -> None:
    """stdout is the stream, stderr is for messages."""
    done = place.run(stream(*worked()), "watch")
    assert (done.returncode, done.stdout) == (0, stream(*worked()))
    lines = done.stderr.decode().splitlines()
    assert lines[0] == f"steno: started: claude-opus-5-5, session {SESSION}"
    assert lines[1:] == place.run(stream(*worked()), "show").stdout.decode().splitlines()


@pytest.mark.parametrize("run", ["codex/0.80.0/resume_second", "copilot/1.0.60/edit_and_shell"])
def test_the_agents_own_files_complete_the_stream(place: Place, run: str) -> None:
    """As with `show`: tokens, cost and context are in them. The recording keeps what it needs."""
    recording = RECORDINGS / run
    data = (recording / "stdout").read_bytes()
    folder = {"codex": ".codex/sessions", "copilot": ".copilot/session-state"}[run.split("/")[0]]
    shutil.copytree(recording / "sessions", place.folder / folder)
    wanted = place.run(data, "show", "--json")
    figures = {name: json.loads(wanted.stdout)[name] for name in ("tokens", "cost", "context")}
    assert figures["cost"]["source"] == "computed"
    done = place.run(data, "watch")
    assert done.stderr.splitlines()[-5:] == place.run(data, "show").stdout.splitlines()[-5:]
    events = place.run(data, "watch", "-q", "--json-events", "events.jsonl")
    assert (events.returncode, events.stdout) == (0, data)
    wanted_events = place.run(data, "show", "--events").stdout
    assert (place.folder / "events.jsonl").read_bytes() == wanted_events

    place.run(data, "watch", "-q", "--record")
    shutil.rmtree(place.folder / folder)
    [tape] = place.data.glob("tapes/*/*.steno")
    [row] = json.loads(place.run(b"", "runs", "--json").stdout)["rows"]
    report = json.loads(place.run(b"", "show", "--json", str(tape)).stdout)
    assert {name: report[name] for name in figures} == figures
    assert row["tokens"] == figures["tokens"]


def test_quiet_says_nothing(place: Place) -> None:
    done = place.run(HELLO, "watch", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, HELLO, b"")


def test_denials_of_a_lone_document_are_named(place: Place) -> None:
    """Each one, also without the ids of calls."""
    denials = [{"tool_name": "Write", "tool_input": {}}, {"tool_name": "Bash", "tool_input": {}}]
    document = json.dumps(result(permission_denials=denials), indent=1).encode()
    lines = place.run(document, "watch").stderr.decode().splitlines()
    assert [line for line in lines if line.startswith("steno: permission")] == [
        "steno: permission denied: Write",
        "steno: permission denied: Bash",
    ]


def test_a_denial_without_a_name_has_that_of_its_call(place: Place) -> None:
    denied = answer("t1", "Permission to use Bash has been denied.", is_error=True)
    lines = [init(), assistant(call("t1", "Bash", command="ls")), denied, result()]
    told = place.run(stream(*lines), "watch").stderr.decode()
    assert "steno: permission denied: Bash" in told


def test_files_of_a_stream_that_names_no_folder_are_those_of_the_current_one(place: Place) -> None:
    change = {"type": "create", "filePath": str(place.folder / "a.py"), "content": ""}
    written = assistant(call("t1", "Write", file_path=change["filePath"], content=""))
    lines = [init(cwd=""), written, answer("t1", tool_use_result=change), result()]
    told = place.run(stream(*lines), "watch").stderr.decode()
    assert "created   a.py\n" in told
    assert "outside" not in told


def test_a_recorded_stream_does_not_end_in_the_future(place: Place) -> None:
    """The agent ran before: the run ends with the recording, not at its start plus its duration."""
    place.run(
        stream(init(), assistant(text("Hi.")), result(duration_ms=600_000)), "watch", "--record"
    )
    [row] = json.loads(place.run(b"", "runs", "--json").stdout)["rows"]
    started, ended = (datetime.fromisoformat(row[name]) for name in ("started_at", "ended_at"))
    assert ended <= datetime.now(timezone.utc)
    assert (ended - started).total_seconds() == pytest.approx(600, abs=0.1)


def test_messages_without_a_session_belong_to_that_of_the_stream(place: Place) -> None:
    """In the ledger at once, and after the recording is imported anew."""
    lines = [assistant(text("Hi.")), init(), assistant(text("Done."), message="m2"), result()]
    del lines[0]["session_id"], lines[2]["session_id"]
    place.run(stream(*lines), "watch", "--record")
    for _ in range(2):
        rows = json.loads(place.run(b"", "sessions", "--json").stdout)["rows"]
        assert [(row["session_id"], row["requests"]) for row in rows] == [(SESSION, 2)]
        assert place.run(b"", "ledger", "rebuild").returncode == 0


def test_a_denial_is_reported_once(place: Place) -> None:
    data = (RECORDINGS / "claude/2.1.325/permission_denied/stdout").read_bytes()
    told = place.run(data, "watch").stderr.decode().splitlines()
    assert told[1:3] == ["steno: permission denied: Write", "steno: permission denied: Bash"]
    assert told[3].startswith("permission")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (stream(*worked()), 0),
        (stream(init()), 3),
        (b"", 3),
        (stream(init(), result(subtype="error_max_turns", is_error=True)), 3),
    ],
    ids=["success", "no result", "nothing", "max turns"],
)
def test_the_exit_code_of_the_verdict(place: Place, data: bytes, code: int) -> None:
    """Only with --exit-from (V11)."""
    assert place.run(data, "watch", "-q", "--exit-from", "verdict").returncode == code
    assert place.run(data, "watch", "-q").returncode == 0


def test_events_for_programs(place: Place) -> None:
    """To a file or a descriptor: the output of `show --events`."""
    data = stream(*worked())
    wanted = place.run(data, "show", "--events").stdout
    done = place.run(data, "watch", "-q", "--json-events", "events.jsonl")
    assert (done.stdout, done.stderr) == (data, b"")
    assert (place.folder / "events.jsonl").read_bytes() == wanted
    done = place.shell("steno watch -q --json-events 3 3>three.jsonl", data)
    assert (done.stdout, (place.folder / "three.jsonl").read_bytes()) == (data, wanted)
    done = place.run(data, "watch", "-q", "--json-events", "2")
    assert (done.stdout, done.stderr) == (data, wanted)


@pytest.mark.parametrize("where", ["0", "1", "77", "9" * 30, "nowhere/events.jsonl"])
def test_events_that_cannot_be_written(place: Place, where: str) -> None:
    """An error before the first byte."""
    done = place.run(HELLO, "watch", "--json-events", where)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(f"steno: --json-events {where}: ".encode())


@pytest.mark.parametrize(
    "line",
    [
        "steno watch -q --json-events /dev/stdout",
        "steno watch -q --json-events /dev/stdin",
        "steno watch -q --json-events 3 3>&1",
        "steno watch -q --json-events out.jsonl >out.jsonl",
        "steno watch -q --json-events in.jsonl <in.jsonl",
    ],
)
def test_w1_events_that_would_go_into_the_stream(place: Place, line: str) -> None:
    """Under any name: no byte is passed, and none is lost."""
    (place.folder / "in.jsonl").write_bytes(HELLO)
    done = place.shell(line, HELLO)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"carry the stream" in done.stderr
    assert (place.folder / "in.jsonl").read_bytes() == HELLO


def test_events_and_a_stream_without_readers(place: Place) -> None:
    """Both may go to a device."""
    done = place.shell("steno watch -q --json-events /dev/null >/dev/null", HELLO)
    assert (done.returncode, done.stderr) == (0, b"")


def test_i3_skipped_lines_are_reported(place: Place) -> None:
    """The first ones are printed one by one."""
    data = HELLO + b"not json\x1b[2J\n" * 30 + b'{"torn": '
    done = place.run(data, "watch")
    assert done.stdout == data
    told = [line for line in done.stderr.decode().splitlines() if "skipping" in line]
    first = HELLO.count(b"\n") + 1
    assert told == [
        f"steno: skipping malformed line {first + n}: not json\\x1b[2J" for n in range(20)
    ]


def test_events_without_a_reader(place: Place) -> None:
    """A named pipe without a reader, or whose reader is gone, delays nothing."""
    os.mkfifo(place.folder / "pipe")
    process = place.start("watch", "-q", "--json-events", "pipe")
    begun(process, HELLO)
    assert left(process, kill=True) == (b"", b"")


@pytest.mark.parametrize(
    "words",
    [
        ("--exit-from", "agent"),
        ("--delete",),
        ("--no-ignore",),
        ("--cwd", "/no/such/folder"),
        ("--post-events", "nowhere"),
        ("--sync", "dir:x", "--debounce", "soon"),
        ("--agent", "nobody"),
        ("extra",),
    ],
)
def test_wrong_use(place: Place, words: tuple[str, ...]) -> None:
    """One line, exit code 2, no byte passed."""
    done = place.run(HELLO, "watch", *words)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


# -- ends ----------------------------------------------------------------------------------------


def begun(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    """Wait until the program has passed this on."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(data)
    process.stdin.flush()
    got = b""
    while len(got) < len(data):
        got += os.read(process.stdout.fileno(), 1 << 16)
    assert got == data


def left(process: "subprocess.Popen[bytes]", kill: bool = False) -> tuple[bytes, bytes]:
    """The rest of the output after the end of the input."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdin = None
    if kill:
        out = process.stdout.read()  # ends before our own output does
        process.kill()
        return out, process.communicate()[1]
    return process.communicate(timeout=90)


def test_a_reader_that_leaves_ends_it(place: Place) -> None:
    """By SIGPIPE, and the writer notices at once."""
    process = place.start("watch", "-q")
    begun(process, HELLO)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    with pytest.raises(BrokenPipeError):
        _write_on(process.stdin.fileno())
    assert process.wait(30) == -signal.SIGPIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()


def _write_on(pipe: int) -> None:
    for _ in range(1000):
        os.write(pipe, HELLO)
        time.sleep(0.01)


def _fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        for _ in range(1000):
            os.write(pipe, bytes(4096))
    os.set_blocking(pipe, True)


def test_head_in_a_shell(place: Place) -> None:
    done = place.shell("steno watch -q | head -n 1; echo ${PIPESTATUS[@]}", HELLO * 20_000)
    assert done.stdout.splitlines() == [HELLO.splitlines()[0], b"141 0"]
    assert done.stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(place: Place, number: signal.Signals) -> None:
    """By that signal, after recording and report are complete."""
    process = place.start("watch", "--record")
    begun(process, HELLO)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (-number, b"")
    assert b"success" in errors or b"interactive" in errors
    (tape,) = place.data.glob("tapes/*/*.steno")
    played = RecordingFile(tape)
    ticks = list(played.records())
    assert ticks[-1].data == f"watch: ended by {number.name}".encode()
    assert b"".join(tick.data for tick in ticks if tick.code == "out") == HELLO
    assert not played.is_truncated


def test_a_signal_while_it_waits_for_its_reader(place: Place) -> None:
    """The pipe is full."""
    process = place.start("watch", "-q")
    begun(process, HELLO)
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            os.write(process.stdin.fileno(), bytes(4096))
        except BlockingIOError:
            time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == -signal.SIGINT
    left(process)


def test_a_signal_that_was_ignored_stays_ignored(place: Place) -> None:
    """As under nohup."""
    process = place.start(
        "watch", "-q", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    begun(process, HELLO)
    process.send_signal(signal.SIGHUP)
    begun(process, HELLO)
    assert (process.communicate(timeout=60), process.returncode) == ((b"", b""), 0)


def test_calls_that_are_interrupted(place: Place) -> None:
    """A timer's signal every millisecond, in reads and in writes (EINTR)."""
    code = (
        "import signal, sys; signal.signal(signal.SIGALRM, lambda *_: None);"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001);"
        "from steno.cli import main; code = main(['watch', '-q', '--exit-from', 'verdict']);"
        "signal.setitimer(signal.ITIMER_REAL, 0); sys.exit(code)"
    )
    data = stream(*worked()) * 300
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=place.environment,
    )
    feeder = Thread(target=_feed_slowly, args=(process, data))
    feeder.start()
    assert process.stdout is not None
    out = b""
    while chunk := os.read(process.stdout.fileno(), 5000):
        out += chunk
        time.sleep(0.0005)
    feeder.join()
    process.stdout.close()
    assert (out == data, process.wait(60)) == (True, 0)


def _feed_slowly(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert process.stdin is not None
    for at in range(0, len(data), 9000):
        process.stdin.write(data[at : at + 9000])
        process.stdin.flush()
        time.sleep(0.0003)
    process.stdin.close()


def test_ends_that_are_closed(place: Place) -> None:
    """stderr closed: the stream passes. stdin or stdout closed: an error."""
    done = place.shell("steno watch 2>&-", HELLO)
    assert (done.returncode, done.stdout) == (0, HELLO)
    done = place.shell("steno watch <&-", b"")
    assert (done.returncode, done.stderr) == (
        2,
        b"steno: stdin is closed; pipe an agent's stream to it\n",
    )
    done = place.shell("steno watch >&-", HELLO)
    assert (done.returncode, done.stderr) == (
        74,
        b"steno: cannot write to stdout: stdout is closed\n",
    )


def test_a_stderr_without_a_reader(place: Place) -> None:
    """Closed at the other end, or full: no delay."""
    reader, writer = os.pipe()
    os.close(reader)
    process = place.start("watch", stderr=writer)
    os.close(writer)
    assert (process.communicate(HELLO, timeout=60)[0], process.returncode) == (HELLO, 0)

    reader, writer = os.pipe()
    _fill(writer)
    process = place.start("watch", stderr=writer)
    begun(process, HELLO)
    begun(process, stream(*worked()))
    assert left(process, kill=True)[0] == b""
    os.close(reader)
    os.close(writer)


def test_a_disk_that_is_full(place: Place) -> None:
    done = place.shell("steno watch -q >/dev/full", HELLO)
    assert (done.returncode, done.stderr) == (
        74,
        b"steno: cannot write to stdout: No space left on device\n",
    )


# -- other outputs -------------------------------------------------------------------------------


def test_a_record_is_the_stream(place: Place) -> None:
    """The recording gives the same report, and the run is in the ledger."""
    data = stream(*worked())
    done = place.run(data, "watch", "--record")
    assert (done.returncode, done.stdout) == (0, data)
    (tape,) = place.data.glob("tapes/*/*.steno")
    assert (
        b"".join(tick.data for tick in RecordingFile(tape).records() if tick.code == "out") == data
    )
    report = steno.read(tape)
    assert (report.verdict, report.session_id, report.run_id) == ("success", SESSION, tape.stem)
    assert report.lines.torn is False
    with closing(open_ledger(str(place.data / "ledger.db"))) as store:
        rows = store.query("SELECT id, session, verdict, source, tools FROM runs")
        assert rows == [(tape.stem, SESSION, "success", str(tape), len(report.tools))]
    shown = place.run(b"", "show", tape.stem[:12]).stdout
    assert shown.splitlines()[0] == next(
        line for line in done.stderr.splitlines() if line.startswith(b"success")
    )
    assert list((place.data / "live").iterdir()) == []
    only = place.run(b"", "show", "--events", "--only", "tool_call,result", tape.stem[:12]).stdout
    events = [json.loads(line)["event"] for line in only.splitlines()]
    assert events == ["tool_call"] * len(report.tools) + ["result"]
    assert place.run(b"", "ledger", "import", str(tape)).returncode == 0
    with closing(open_ledger(str(place.data / "ledger.db"))) as store:
        assert store.query("SELECT count(*) FROM runs") == [(1,)]


def test_a_record_can_be_followed(place: Place) -> None:
    """From another terminal, while it is active."""
    process = place.start("watch", "-q", "--record")
    begun(process, HELLO)
    (mark,) = (place.data / "live").glob("*.json")
    tail = place.start("logs", "-f", "--raw", mark.stem, stdin=subprocess.DEVNULL)
    assert tail.stdout is not None
    assert os.read(tail.stdout.fileno(), 1 << 16)
    assert process.communicate(stream(*worked()), timeout=60) == (stream(*worked()), b"")
    out, errors = tail.communicate(timeout=60)
    assert (tail.returncode, errors, out.endswith(stream(*worked()))) == (0, b"", True)


def test_ps_names_a_recorded_stream(place: Place) -> None:
    process = place.start("watch", "-q", "--record", "--name", "nightly")
    begun(process, HELLO)
    [row] = json.loads(place.run(b"", "ps", "--json").stdout)["rows"]
    table = place.run(b"", "ps").stdout.decode().splitlines()
    left(process)
    assert row["name"] == "nightly"
    assert ("name" in table[0].split(), "nightly" in table[1].split()) == (True, True)


def test_a_record_that_cannot_be_made(place: Place) -> None:
    """An error before the first byte."""
    place.environment["XDG_DATA_HOME"] = "/proc/nothing"
    done = place.run(HELLO, "watch", "--record")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (74, b"", 1)


def test_a_ledger_that_cannot_be_written(place: Place) -> None:
    """The recording is kept, and can be imported."""
    done = place.run(HELLO, "watch", "-q", "--record", "--ledger", str(place.folder / "data"))
    assert (done.returncode, done.stdout) == (0, HELLO)
    assert b"not in the ledger: " in done.stderr
    assert len(list(place.data.glob("tapes/*/*.steno"))) == 1


def test_posted_while_it_passes(place: Place) -> None:
    with serving() as web:
        done = place.run(stream(*worked()), "watch", "--post-events", web.url)
        wanted = [
            json.loads(line)
            for line in place.run(stream(*worked()), "show", "--events").stdout.splitlines()
        ]
        assert [{"kind": one["event"], **one} for one in wanted] == web.taken
    assert f"steno: webhook: {len(wanted)} sent".encode() in done.stderr


def test_a_dead_address_delays_nothing(place: Place) -> None:
    """Neither the stream nor its end waits for the webhook."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = place.start(
            "watch", "-q", "--post-events", f"http://127.0.0.1:{silent.getsockname()[1]}/"
        )
        for _ in range(50):
            began = time.monotonic()
            begun(process, HELLO)
        assert time.monotonic() - began < 20
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        began = time.monotonic()
        assert process.stdout.read() == b""
        assert time.monotonic() - began < 8  # a webhook has ten seconds
        process.stdin = None
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors.startswith(b"steno: webhook: 0 sent, ")


def test_synced_while_it_passes(place: Place) -> None:
    """A file written by a tool."""
    project = place.folder / "project"
    project.mkdir()
    (project / "a.py").write_text("print()\n")
    path = str(project / "a.py")
    lines = [
        init(cwd=str(project)),
        assistant(call("t1", "Write", file_path=path, content="print()\n")),
        answer(
            "t1",
            tool_use_result={
                "type": "create",
                "filePath": path,
                "content": "print()\n",
                "structuredPatch": [],
            },
        ),
        result(),
    ]
    done = place.run(
        stream(*lines), "watch", "--sync", f"dir:{place.folder}/copy", "--include", "*.py"
    )
    assert (done.returncode, done.stdout) == (0, stream(*lines))
    assert (place.folder / "copy" / "a.py").read_text() == "print()\n"
    assert b"sync: 1 copied" in done.stderr


@pytest.mark.parametrize("where", ["current", "--cwd"])
@pytest.mark.parametrize(
    "recording",
    [
        "codex/0.166.0-gpt-5.5/success",
        "gemini/0.61.0/success",
        "copilot/1.0.102/success",
        "opencode/1.18.33/success",
        "claude/2.1.325/unicode",
    ],
)
def test_a_sync_of_a_stream_that_names_no_folder(
    place: Place, recording: str, where: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The current folder is copied while the stream passes, or the one of --cwd."""
    project, copy = place.folder, tmp_path_factory.mktemp("copy")
    words = ["watch", "--sync", f"dir:{copy}", "--prefix", "src"]
    if where == "--cwd":
        project = tmp_path_factory.mktemp("elsewhere")
        words += ["--cwd", str(project)]
    lines = (RECORDINGS / recording / "stdout").read_bytes().splitlines(keepends=True)
    first = b"".join(line for line in lines if b'"subtype":"init"' not in line)
    process = place.start(*words)
    begun(process, first)
    (project / "src").mkdir()
    (project / "src" / "a.log").write_text("x")
    (project / "src" / ".gitignore").write_text("*.log\n")
    (project / "src" / "a.py").write_text("print()\n")
    _, errors = left(process)
    assert process.returncode == 0
    names = {path.name for path in copy.iterdir()}
    assert (names, b"1 ignored: src/a.log" in errors) == ({".gitignore", "a.py"}, True), errors


def test_a_failed_sync_is_reported_and_counts_if_strict(place: Place) -> None:
    """Also with --quiet."""
    project = place.folder / "project"
    project.mkdir()
    path = str(project / "a.py")
    (project / "a.py").write_text("print()\n")
    lines = [
        init(cwd=str(project)),
        assistant(call("t1", "Write", file_path=path, content="print()\n")),
        answer(
            "t1",
            tool_use_result={
                "type": "create",
                "filePath": path,
                "content": "print()\n",
                "structuredPatch": [],
            },
        ),
        result(),
    ]
    process = place.start("watch", "-q", "--strict", "--sync", "cmd:sh -c 'exit 127'")
    begun(process, stream(*lines))
    _, errors = left(process)
    assert (process.returncode, b"a.py" in errors) == (1, True)


def test_a_live_line_on_a_terminal(place: Place) -> None:
    """Drawn and erased, also without input; a summary at the end. stdout is unchanged."""
    master, slave = pty.openpty()
    place.environment |= {"TERM": "xterm", "COLUMNS": "80"}
    process = place.start("watch", stderr=slave)
    os.close(slave)
    begun(process, stream(*worked()[:-1]))
    seen = b""
    while b"turn " not in seen:
        seen += os.read(master, 1 << 16)
    assert b"\r\x1b[J" in seen
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(stream(*worked()[-1:]))
    process.stdin.close()
    assert process.stdout.read() == stream(*worked()[-1:])
    while b"success" not in seen:
        seen += os.read(master, 1 << 16)
    assert process.wait(60) == 0
    process.stdout.close()
    os.close(master)


def test_nothing_to_watch(place: Place) -> None:
    """A hint for a person at a terminal."""
    master, slave = pty.openpty()
    process = place.start("watch", stdin=slave)
    os.close(slave)
    assert process.communicate(timeout=60)[1].startswith(b"steno: nothing to watch")
    assert process.returncode == 2
    os.close(master)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells it while the process lives"
)
def test_memory_does_not_grow_without_a_report(place: Place) -> None:
    """At most 40 MB; forty times the stream makes no difference."""
    data = stream(*worked())

    def peak(times: int) -> int:
        process = place.start("watch", "-q", "--json-events", os.devnull)
        for _ in range(times):
            begun(process, data * 4)
        told = Path(f"/proc/{process.pid}/status").read_text()
        process.communicate()
        return int(told.split("VmHWM:")[1].split()[0]) // 1024

    small, large = peak(20), peak(800)
    assert large < 40
    assert large - small < 4
