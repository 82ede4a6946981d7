"""Replay of recordings: the same bytes, times, exit code, ignored signals and report."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents import LaunchOptions
from steno.errors import SourceError, StenoError
from steno.process import GracePeriods, ProcessLoop, process_tree
from steno.process import run_tag as mark
from steno.recording.format import Header, Record, RecordingFile
from steno.recording.replay import Player, ReplaySource
from steno.report import Report
from steno.runner.retry_policy import RetryPolicy
from steno.runner.setup import TaskSetup
from steno.runner.task import Task
from tests.support.claude_lines import (
    RECORDINGS,
    ended,
    err,
    folder,
    hello,
    init,
    named,
    out,
    result,
    spread,
    stream,
    tape,
    worked,
)

HELLO = stream(*hello())
FIRST, *_, LAST = HELLO.splitlines(keepends=True)
QUICK = GracePeriods(interrupt=0.6, terminate=0.6, quiet=0.2, drain=1.0)
LONG = 60.0  # no test may need it; the machine may be slow


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STENO_LEDGER", raising=False)


def replay(*words: object) -> "subprocess.Popen[bytes]":
    """`steno replay` as a program."""
    command = [sys.executable, "-m", "steno", "replay", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def played(*words: object) -> tuple[bytes, bytes, int]:
    """What it printed on stdout and stderr, and how it ended."""
    with replay(*words) as process:
        said, told = process.communicate(timeout=LONG)
        return said, told, process.returncode


# -- bytes, times, exits -------------------------------------------------------------------------


def test_a_tape_is_played_byte_by_byte(tmp_path: Path) -> None:
    odd = b"\xff\x00 no newline"
    path = tape(
        tmp_path / "t", out(HELLO[:100]), err(b"careful\n"), out(HELLO[100:]), out(odd), ended(3)
    )
    assert played(path) == (HELLO + odd, b"careful\n", 3)


def test_what_is_for_the_agent_does_not_matter(tmp_path: Path) -> None:
    """It takes the place of the agent in whatever starts one."""
    path = tape(tmp_path / "-t", out(HELLO), ended(3))
    assert played(path, "--no-wait", "--", "-p", "--speed", "x", "--", "the prompt") == (
        HELLO,
        b"",
        3,
    )
    assert played("--no-wait", "--", path, "--", "-p") == (HELLO, b"", 3)


def test_a_folder_is_played_with_its_other_files(tmp_path: Path) -> None:
    assert played(folder(tmp_path / "one", HELLO, 1, b"careful\n")) == (HELLO, b"careful\n", 1)
    assert played(folder(tmp_path / "two", HELLO)) == (HELLO, b"", 0)
    (tmp_path / "plain.jsonl").write_bytes(HELLO)
    assert played(tmp_path / "plain.jsonl") == (HELLO, b"", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV])
def test_it_dies_as_the_agent_died(number: int, tmp_path: Path) -> None:
    assert played(tape(tmp_path / "t", out(FIRST), ended(-number))) == (FIRST, b"", -number)


def test_one_that_never_started_and_one_that_was_cut(tmp_path: Path) -> None:
    assert played(tape(tmp_path / "t", err(b"no such program\n"), ended(None))) == (
        b"",
        b"no such program\n",
        127,
    )
    cut = tape(tmp_path / "c", out(FIRST), out(LAST), ended(0)).read_bytes()
    (tmp_path / "cut").write_bytes(cut[: cut.index(b'"exit"')])
    assert played(tmp_path / "cut") == (FIRST + LAST, b"", 0)


def test_time_passes_as_it_did(tmp_path: Path) -> None:
    """Divided by the speed; 0 and --no-wait do not wait."""
    path = tape(
        tmp_path / "t",
        Record(0.0, "out", FIRST),
        Record(20.0, "out", LAST),
        Record(40.0, "exit", number=0),
    )
    for words, least, most in (
        (("--speed", "20"), 2.0, 15.0),
        (("--speed", "0"), 0.0, 15.0),
        (("--no-wait",), 0.0, 15.0),
    ):
        begun = time.monotonic()
        assert played(path, *words) == (FIRST + LAST, b"", 0)
        assert least <= time.monotonic() - begun < most


def test_each_line_comes_at_its_time(tmp_path: Path) -> None:
    times: list[tuple[bytes, float]] = []
    path = folder(tmp_path / "t", HELLO, 0)
    rows = [[0.0, 1], [0.15, 1], [0.3, 1]]
    head = json.dumps({"wall_s": 0.45, "signals": []})
    (path / "timing.jsonl").write_text("\n".join([head, *map(json.dumps, rows)]) + "\n")
    begun = time.monotonic()

    def wait(seconds: float) -> None:
        time.sleep(seconds)

    player = Player(
        ReplaySource(path),
        1.0,
        lambda _, data: times.append((data, time.monotonic() - begun)),
        wait,
    )
    assert player.play() == 0
    assert [data for data, _ in times] == HELLO.splitlines(keepends=True)
    for (_, came), due in zip(times, (0.0, 0.15, 0.3), strict=True):
        assert due <= came < due + 5
    assert time.monotonic() - begun >= 0.45


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    path = tape(tmp_path / "t", *(Record(number / 10, "out", FIRST) for number in range(600)))
    with replay(path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == FIRST
        process.stdout.close()
        assert process.wait(LONG) == 141
        assert process.stderr.read() == b""


def test_x_a_recording_that_cannot_be_played_is_reported(tmp_path: Path) -> None:
    said, told, code = played(tmp_path / "nothing")
    assert (said, code) == (b"", 2)
    assert b"no such file or folder" in told
    (tmp_path / "empty").mkdir()
    assert b"a folder without stdout" in played(tmp_path / "empty")[1]
    bad = folder(tmp_path / "bad", HELLO)
    (bad / "exit_code").write_text("soon")
    assert b"expected a whole number, found 'soon'" in played(bad)[1]
    (bad / "timing.jsonl").write_text("[]\n")
    assert b"timing.jsonl: expected an object" in played(bad)[1]
    assert b"expected a number of at least 0, found '-1'" in played(bad, "--speed=-1")[1]
    assert b"arguments are required: FILE" in played("--")[1]
    assert b"unexpected argument '-p'" in played("--", bad, "-p")[1]


# -- signals -------------------------------------------------------------------------------------


def stop(after: float, number: int) -> Record:
    return Record(after, "stop", b"timeout", number)


def begun(process: "subprocess.Popen[bytes]") -> None:
    """It has printed its first line, so it listens."""
    assert process.stdout is not None
    assert process.stdout.readline() == FIRST


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_the_recording_does_not_know_ends_it(number: int, tmp_path: Path) -> None:
    path = tape(tmp_path / "t", Record(0.0, "out", FIRST), Record(600.0, "out", LAST), ended(0))
    with replay(path) as process:
        begun(process)
        process.send_signal(number)
        assert process.communicate(timeout=LONG) == (b"", b"")
        assert process.returncode == -number


def test_an_agent_that_answered_answers_again(tmp_path: Path) -> None:
    """An interrupt plays the output after the recorded interrupt at once, and skips the rest."""
    torn, rest = b'{"type":"assi', b'stant"}\n'
    ticks = [
        Record(0.0, "out", FIRST),
        Record(500.0, "out", b"never\n"),
        Record(600.0, "out", torn),
        stop(600.1, signal.SIGINT),
    ]
    ticks += [
        Record(600.1, "out", rest + b"interrupted\n"),
        Record(600.2, "out", LAST),
        Record(600.3, "exit", number=0),
    ]
    with replay(tape(tmp_path / "t", *ticks)) as process:
        begun(process)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=LONG) == (b"interrupted\n" + LAST, b"")
        assert process.returncode == 0


def test_a_deaf_agent_stays_deaf(tmp_path: Path) -> None:
    ticks = [
        Record(0.0, "out", FIRST),
        stop(1.0, signal.SIGINT),
        stop(2.0, signal.SIGTERM),
        stop(3.0, signal.SIGKILL),
    ]
    path = tape(tmp_path / "t", *ticks, Record(600.0, "exit", number=-9))
    assert ReplaySource(path).ignored_signals == {signal.SIGINT, signal.SIGTERM}
    with replay(path) as process:
        begun(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.kill()
        assert process.wait(LONG) == -signal.SIGKILL


def test_signals_of_a_folder_are_known_by_its_times(tmp_path: Path) -> None:
    path = folder(tmp_path / "t", FIRST + LAST, 0)
    head = json.dumps({"wall_s": 9.0, "signals": [{"t": 5.0, "sig": "SIGINT", "alive": True}]})
    (path / "timing.jsonl").write_text(f"{head}\n[0.0,1]\n[6.0,1]\n")
    found = ReplaySource(path)
    assert (found.ignored_signals, found.answered_signals) == (set(), {signal.SIGINT: 1})
    assert [tick.code for tick in found.records()] == ["out", "stop", "out", "exit"]


# -- as an agent ---------------------------------------------------------------------------------

# What depends on when and under which name it was run, and not on what the agent printed.
OWN = ("source", "run_id", "task_id", "attempts", "started_at", "cwd", "origin")


def run(path: Path, speed: float = 0.0, **more: Any) -> Report:
    """A recording, run through a task as the agent `replay`."""
    setup = TaskSetup(
        launch_options=LaunchOptions(prompt="x"),
        agent="replay",
        replay_path=str(path),
        replay_speed=speed,
        policy=RetryPolicy(attempts=1, on_limit="fail"),
        grace=QUICK,
        **more,
    )
    with ProcessLoop() as loop:
        task = Task(loop, setup)
        task.start()
        assert loop.run(loop.clock() + LONG, until=lambda: task.is_finished)
    assert task.report is not None
    assert [
        one
        for one in process_tree.list_processes()
        if os.getpid() in [found.steno_pid for found in mark.parse_run_tags(one.run_tags)]
    ] == []
    return task.report


def bare(report: Report) -> dict[str, Any]:
    """A report without fields of the run itself and times not reported by the agent."""
    found: dict[str, Any] = json.loads(report.to_json())
    for name in OWN:
        found.pop(name, None)
    if found["subtype"] is None:
        del found["duration_ms"]
    if found["denials"]:
        del found["hint"]  # names the option of the program that was started: steno or the agent
    for tool in found["tools"]:
        del tool["started_at"], tool["duration_ms"]
    return found


def streams() -> list[Path]:
    """The folders of recordings of streams: what `steno run` asks agents for.

    Without those of rejected keys: steno does not wait for the agent's own retries.
    """
    found = [
        path.parent
        for path in sorted(RECORDINGS.glob("claude/*/*/stdout"))
        if b'"error_status":401' not in path.read_bytes()
    ]
    return [path for path in found if "json" not in path.name.split("_")[1:2]]


@pytest.mark.parametrize("path", spread(streams(), 40), ids=lambda path: named(path / "stdout"))
def test_l1_a_recording_that_is_run_gives_its_report_again(path: Path) -> None:
    assert bare(run(path, record=False)) == bare(steno.read(path, agent="claude"))


def test_l1_a_tape_of_a_replay_is_a_tape_of_the_agent(tmp_path: Path) -> None:
    """Recorded again, read again: the same report, under the name of the agent that was played."""
    report = run(folder(tmp_path / "one", stream(*worked()), 0))
    assert (report.verdict, report.agent, report.text.splitlines()[-1]) == (
        "success",
        "claude",
        "All is done — naïvely ✓",
    )
    assert report.source is not None
    played_tape = RecordingFile(report.source)
    assert b"".join(tick.data for tick in played_tape.records() if tick.code == "out") == stream(
        *worked()
    )
    assert (played_tape.is_truncated, played_tape.header and played_tape.header.agent) == (
        False,
        "claude",
    )
    assert bare(steno.read(report.source)) == bare(report)
    assert bare(run(Path(report.source))) == bare(report)


def test_l3_a_recording_that_is_played_is_a_run_of_now_and_each_playing_a_run_of_its_own(
    tmp_path: Path,
) -> None:
    """Its lines carry the times and the names of another day: the ledger must not mix the two."""
    old = (
        (Path(steno.__file__).parent / "demo" / "finished" / "stdout")
        .read_bytes()
        .replace(b'"2026-11-15T', b'"2026-10-01T')
    )
    assert b'"timestamp":"2026-10-01T' in old
    path = folder(tmp_path / "old", old, 0)
    before = time.time()
    tapes = [run(path).source for _ in range(3)]
    report = json.loads(told("usage", "day", "--no-import", "--json"))
    alone = steno.read(path)
    today = time.strftime("%Y-%m-%d", time.gmtime(before))
    assert {row["day"] for row in report["rows"]} <= {
        today,
        time.strftime("%Y-%m-%d", time.gmtime()),
    }
    assert report["total"]["requests"] == 3 * (alone.requests or 0)
    assert report["total"]["tokens"]["total"] == 3 * (alone.tokens.total or 0)
    assert report["total"]["cost"]["usd"] == pytest.approx(3 * (alone.cost.usd or 0))
    again = json.loads(
        told("ledger", "import", "--json", *map(str, tapes))
    )  # and its tape says the same of it
    assert json.loads(told("usage", "day", "--no-import", "--json"))["total"] == report["total"], (
        again
    )
    first = steno.read(str(tapes[0]))
    assert first.started_at is not None
    assert all(
        tool.started_at is None or tool.started_at >= first.started_at for tool in first.tools
    )
    assert [tool.duration_ms for tool in first.tools] == [tool.duration_ms for tool in alone.tools]


def told(*words: str) -> bytes:
    """What a command of ours prints."""
    return subprocess.run(
        [sys.executable, "-m", "steno", *words], capture_output=True, check=True, timeout=LONG
    ).stdout


def test_r3_a_deaf_agent_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    ticks = [
        Record(0.0, "out", FIRST),
        stop(1.0, signal.SIGINT),
        stop(2.0, signal.SIGTERM),
        stop(3.0, signal.SIGKILL),
    ]
    path = tape(
        tmp_path / "t", *ticks, Record(600.0, "exit", number=-9), header=Header(agent="claude")
    )
    from steno.runner.setup import Timeouts

    report = run(path, 1.0, timeouts=Timeouts(silence=1.0, first_output=None))
    assert (report.verdict, report.signal) == ("stalled", signal.SIGKILL)


def test_x_an_agent_that_cannot_be_replayed_is_refused_before_the_start(tmp_path: Path) -> None:
    with ProcessLoop() as loop:
        for setup, said in (
            (
                TaskSetup(launch_options=LaunchOptions(prompt="x"), agent="replay"),
                "needs a recording",
            ),
            (
                TaskSetup(launch_options=LaunchOptions(prompt="x"), replay_path="t"),
                "are replayed by the agent 'replay'",
            ),
        ):
            with pytest.raises(StenoError, match=said):
                Task(loop, setup)
        with pytest.raises(SourceError, match="no such file or folder"):
            Task(
                loop,
                TaskSetup(
                    launch_options=LaunchOptions(prompt="x"),
                    agent="replay",
                    replay_path=str(tmp_path / "none"),
                ),
            )
        (tmp_path / "text").write_bytes(b"root:x:0:0\n" * 3)
        with pytest.raises(SourceError, match="no known agent output"):
            Task(
                loop,
                TaskSetup(
                    launch_options=LaunchOptions(prompt="x"),
                    agent="replay",
                    replay_path=str(tmp_path / "text"),
                ),
            )
        (tmp_path / "text").write_bytes(b"a warning\n" * 3 + HELLO)
        assert (
            Task(
                loop,
                TaskSetup(
                    launch_options=LaunchOptions(prompt="x"),
                    agent="replay",
                    replay_path=str(tmp_path / "text"),
                ),
            ).agent.name
            == "claude"
        )


def test_a_folder_with_modules_of_our_names_does_no_harm(tmp_path: Path) -> None:
    """The agent works in a project, and a project may have a signal.py."""
    for name in ("signal.py", "steno.py", "msgspec.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong one')\n")
    path = folder(tmp_path / "one", stream(init(), result()), 0)
    assert run(path, cwd=str(tmp_path), record=False).verdict == "success"


# -- the whole way -------------------------------------------------------------------------------


def test_r_a_live_line_on_a_terminal_and_the_answer_below_it(tmp_path: Path) -> None:
    """The live line is drawn during the run and cleared before the answer and summary."""
    ours, theirs = pty.openpty()
    lines = HELLO.splitlines(keepends=True)
    path = tape(
        tmp_path / "t",
        *(Record(number * 2, "out", line) for number, line in enumerate(lines)),
        Record(6, "exit", number=0),
    )
    words = ["run", "--agent", "replay", "--recording", str(path), "x"]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "steno", *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 1 << 16):
                shown += data
        assert process.wait(LONG) == 0
    os.close(ours)
    live, _, rest = shown.decode().replace("\r\n", "\n").rpartition("\r\x1b[J")
    assert rest.startswith("Hello there.\n\nsuccess  ")
    drawn = [line.rstrip("\r") for line in live.split("\r\x1b[J")]
    assert any(line.startswith("thinking · ") for line in drawn)
    assert all("\n" not in line and len(line) < 80 for line in drawn)


def test_the_demo_goes_the_whole_way(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "steno", "demo", "--speed", "3"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=True
    )
    commands = [line for line in done.stdout.splitlines() if line.startswith("$ steno ")]
    assert [line.split()[2] for line in commands] == ["run", "run", "runs", "usage"]
    assert "success  the run finished" in done.stderr
    assert "permission  2 calls denied" in done.stderr
    assert "(exit code 3)" in done.stdout
    assert "2 runs (1 failed): $0.1404, 129,925 tokens" in done.stdout
    assert "wasted: $0.0221 on 1 run that did not succeed" in done.stdout
    assert not (tmp_path / "data").exists()
