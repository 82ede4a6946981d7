"""Control from another process: ps, logs, send, stop, and recovery after steno was killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from steno.cli import logs
from steno.config.files import new_recording_path
from steno.errors import StenoError
from steno.process import process_tree, run_tag
from steno.process.event_loop import EventLoop
from steno.recording.format import Header, Recorder, RecordingFile
from steno.runner import run_registry
from tests.support.claude_lines import SESSION, ended, hello, out, stream, tape
from tests.support.transcript_writer import Transcript
from tests.views.test_rendering import PAYLOAD, is_safe

ROOT = Path(__file__).parents[2]
DGRAM = socket.SOCK_DGRAM
LONG = 60.0  # no test may need it; the machine may be slow
Done = subprocess.CompletedProcess[str]


def wait_for(what: Callable[[], Any]) -> Any:
    """Until it is so; what it then is."""
    until = time.monotonic() + LONG
    while not (result := what()):
        assert time.monotonic() < until
        time.sleep(0.03)
    return result


class Place:
    """A user's folders with active runs."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data" / "steno"
        self.live = self.data / "live"
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
        self.environment |= {
            "NO_COLOR": "1",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
        }
        self.agent = folder / "claude"
        self.agent.write_text(
            f'#!/bin/sh\nexec {sys.executable} -m tests.scripted_agents.chat "$@"\n'
        )
        self.agent.chmod(0o700)
        self.hosts: list[subprocess.Popen[str]] = []

    def begin(self, prompt: str, **options: Any) -> tuple["subprocess.Popen[str]", str]:
        """A steno of its own that carries out a task; the id of its run."""
        words = [
            sys.executable,
            "-m",
            "tests.scripted_agents.task_host",
            json.dumps({"prompt": prompt, **options}),
            str(self.agent),
        ]
        host = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=self.environment)
        self.hosts.append(host)
        assert host.stdout is not None
        run = host.stdout.readline().strip()
        assert run
        return host, run

    def end(self, host: "subprocess.Popen[str]") -> dict[str, Any]:
        """What the task came to."""
        text, _ = host.communicate(timeout=LONG)
        result: dict[str, Any] = json.loads(text)
        return result

    def steno(self, *words: object, stdin: str = "") -> Done:
        command = [sys.executable, "-m", "steno", *map(str, words)]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=LONG,
            check=False,
        )

    def tail(self, *words: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "steno", "logs", "-f", *map(str, words)]
        result = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )
        self.hosts.append(result)
        return result

    def ps(self) -> list[dict[str, Any]]:
        """The active runs."""
        rows: list[dict[str, Any]] = json.loads(self.steno("ps", "--json").stdout)["rows"]
        return rows

    def doing(self, run: str, state: str) -> dict[str, Any]:
        """The row of a run, once it is in that state."""

        def found() -> dict[str, Any] | None:
            return next(
                (row for row in self.ps() if (row["run_id"], row["state"]) == (run, state)), None
            )

        row: dict[str, Any] = wait_for(found)
        return row

    def tape(self, run: str) -> Path:
        (path,) = (self.data / "tapes").glob(f"*/{run}.steno")
        return path


@pytest.fixture
def place() -> Iterator[Place]:
    """In a folder with a short name: the path of a socket has room for a hundred bytes."""
    with TemporaryDirectory(prefix="steno-") as folder:
        yield from _placed(Path(folder))


def _placed(folder: Path) -> Iterator[Place]:
    made = Place(folder)
    yield made
    for host in made.hosts:
        if host.poll() is None:
            host.kill()
        host.communicate()
    pids = {host.pid for host in made.hosts}
    wait_for(
        lambda: (
            not [
                item
                for item in process_tree.list_processes()
                if pids & {result.steno_pid for result in run_tag.parse_run_tags(item.run_tags)}
            ]
        )
    )


# -- ps ------------------------------------------------------------------------------------------


def test_ps_shows_active_runs(place: Place) -> None:
    assert place.steno("ps").stdout == "No active runs.\n"
    assert not place.live.exists()  # looking makes nothing
    host, run = place.begin("work with sk-Abcd1234Efgh5678Ijkl9012 on it")
    row = place.doing(run, "running")
    assert row == {
        **row,
        "run_id": run,
        "session_id": SESSION,
        "agent": "claude",
        "pid": host.pid,
        "turns": 1,
        "tool": "Bash",
        "target": "sleep 600",
        "tokens": 21005,
        "cost_usd": 0.009037,  # nobody followed it until somebody asked
        "waits_s": None,
        "takes_messages": False,
        "name": None,
        "prompt": "work with [redacted] on it",
        "tape": str(place.tape(run)),
    }
    assert row["context"]["text"] == "98% HP [21k/1000k] — Healthy"
    assert 0 <= time.time() - datetime.fromisoformat(row["started_at"]).timestamp() < LONG
    head, line = place.steno("ps").stdout.splitlines()
    assert head.split() == [
        "id",
        "agent",
        "state",
        "time",
        "turns",
        "tokens",
        "cost",
        "context",
        "activity",
        "project",
        "prompt",
    ]
    assert line.startswith(f"{run[:8]}  claude  running  ")
    place.steno("stop", run)


def test_the_marks_of_a_run_are_its_owners_alone(place: Place) -> None:
    host, run = place.begin("work")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (place.live, *place.live.iterdir())}
    assert modes == {"live": 0o700, f"{run}.json": 0o600, f"{run}.sock": 0o600}
    place.steno("stop", run)
    assert place.end(host)["verdict"] == "interrupted"
    assert list(place.live.iterdir()) == []


# -- stop ----------------------------------------------------------------------------------------


def test_r4_a_run_is_stopped_in_order_from_outside(place: Place) -> None:
    host, run = place.begin("work")
    place.doing(run, "running")
    done = place.steno("stop", run[:10])
    assert (done.stdout, done.stderr, done.returncode) == (f"{run} ended: interrupted\n", "", 0)
    assert place.end(host)["verdict"] == "interrupted"
    (stopped,) = (tick for tick in RecordingFile(place.tape(run)).records() if tick.code == "stop")
    assert (stopped.data, stopped.number) == (b"interrupted", signal.SIGINT)
    again = place.steno("stop", run)
    assert (again.stdout, again.returncode) == ("", 2)
    assert again.stderr == f"steno: {run}: no active run with this ID; it ended: interrupted\n"


def test_r4_a_run_is_killed_from_outside(place: Place) -> None:
    host, run = place.begin("work")
    place.doing(run, "running")
    assert place.steno("stop", "--kill", run).stdout == f"{run} ended: killed\n"
    assert place.end(host)["verdict"] == "killed"


def test_r7_a_task_that_waits_is_seen_and_stopped(place: Place) -> None:
    host, run = place.begin("run into the limit", attempts=3)
    row = place.doing(run, "waiting")
    assert 600 < row["waits_s"] <= 1200 + 30
    assert "next attempt in " in place.steno("ps").stdout
    assert "no active attempt to send the message to" in place.steno("send", run, "hello").stderr
    assert place.steno("stop", run).stdout == f"{run} ended: rate_limit\n"
    assert place.end(host)["verdict"] == "rate_limit"


def test_x_an_unknown_id(place: Place) -> None:
    for words in (("stop", "zzzz"), ("send", "zzzz", "hi")):
        done = place.steno(*words)
        assert (done.stdout, done.stderr, done.returncode) == (
            "",
            "steno: zzzz: no active run with this ID\n",
            2,
        )
    assert place.steno("logs", "zzzz").stderr.startswith(
        "steno: zzzz: no active run, recorded run or recording found; see: steno runs"
    )
    item, first = place.begin("work")
    two, second = place.begin("work")
    assert (
        place.steno("stop", "zzzz").stderr
        == "steno: zzzz: no active run with this ID; see: steno ps\n"
    )
    place.doing(first, "running")
    place.doing(second, "running")
    assert (
        f"ambiguous, matches several active runs: {first}, {second}"
        in place.steno("stop", SESSION[:8]).stderr
    )
    shorts = [row["short"] for row in place.ps()]
    assert len(set(shorts)) == 2
    assert [run.startswith(short) for run, short in zip((first, second), shorts, strict=True)] == [
        True,
        True,
    ]
    for host, run in ((item, first), (two, second)):
        place.steno("stop", run)
        assert place.end(host)["verdict"] == "interrupted"


# -- send ----------------------------------------------------------------------------------------


def test_an_agent_that_accepts_messages_gets_them(place: Place) -> None:
    host, run = place.begin("work", steer=True)
    assert place.doing(run, "running")["takes_messages"] is True
    assert place.steno("send", run, "also the café").returncode == 0
    assert place.steno("send", run, "-", stdin="two\nlines\n").returncode == 0
    assert place.steno("send", SESSION[:8], "and now be done").returncode == 0
    result = place.end(host)
    assert result["verdict"] == "success"
    text = [
        "I heard: work",
        "I heard: also the café",
        "I heard: two\nlines\n",
        "I heard: and now be done",
    ]
    assert result["text"] == "\n".join(text)
    sent = [
        json.loads(tick.data)["message"]["content"][0]["text"]
        for tick in RecordingFile(place.tape(run)).records()
        if tick.code == "in"
    ]
    assert sent == ["also the café", "two\nlines\n", "and now be done"]


def found(place: Place, words: str, *more: str) -> list[tuple[str, str]]:
    """The role and the text of what `steno search` finds."""
    done = place.steno("search", "--json", words, *more)
    assert (done.returncode, done.stderr) == (0, "")
    return [(row["role"], row["snippet"]) for row in json.loads(done.stdout)["rows"]]


@pytest.mark.parametrize("transcript", ["after the run", "before the run ends"])
def test_a_message_is_found_once(place: Place, transcript: str, tmp_path: Path) -> None:
    """By the recording, the agent's transcript or both; the prompt before it is another one."""
    copy = Transcript(SESSION)
    copy.at = datetime.now(timezone.utc) - timedelta(minutes=1)
    copy.prompt("kumquat")
    copy.answer("m1", text="which?")
    copy.at = datetime.now(timezone.utc) + timedelta(minutes=1)
    copy.prompt("kumquat")
    host, run = place.begin("work", steer=True)
    place.doing(run, "running")
    place.steno("send", run, "kumquat")
    if transcript == "before the run ends":
        assert place.steno("ledger", "import", copy.write(tmp_path)).returncode == 0
        assert found(place, "kumquat") == [("prompt", "kumquat")] * 2
    place.steno("send", run, "and now be done")
    assert place.end(host)["verdict"] == "success"
    if transcript == "after the run":
        assert found(place, "kumquat", "--role", "prompt") == [("prompt", "kumquat")]
        assert place.steno("ledger", "import", copy.write(tmp_path)).returncode == 0
    assert found(place, "kumquat", "--role", "prompt") == [("prompt", "kumquat")] * 2
    assert place.steno("ledger", "import", place.tape(run)).returncode == 0
    assert found(place, "kumquat", "--role", "prompt") == [("prompt", "kumquat")] * 2


def test_an_agent_that_accepts_no_messages_gets_none(place: Place) -> None:
    host, run = place.begin("work")
    place.doing(run, "running")
    done = place.steno("send", run, "hello?")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"steno: {run}: the run accepts no messages; start it with steno run --steer\n"
    )
    assert "nothing to send: the message is empty" in place.steno("send", run, "  ").stderr
    assert "message too long: " in place.steno("send", run, "-", stdin="é" * 70_000).stderr
    place.steno("stop", run)
    assert place.end(host)["verdict"] == "interrupted"


# -- tail ----------------------------------------------------------------------------------------


def test_tail_follows_a_run_to_its_end(place: Place) -> None:
    host, run = place.begin("work", steer=True)
    feed, raw, events = place.tail(run), place.tail("--raw", run), place.tail("--events", run)
    place.doing(run, "running")
    place.steno("send", run, "and now be done")
    assert place.end(host)["verdict"] == "success"
    lines = [line[10:] for line in feed.communicate(timeout=LONG)[0].splitlines()]
    assert lines == [
        "started   claude-opus-5-5 in /srv/project",
        "text      I heard: work",
        "call      Bash: sleep 600",
        "sent      and now be done",
        "text      I heard: and now be done",
        "result    success, turns 1, 120 ms, $0.0110",
        "exit      code 0",
        "steno     stopped: done",
        "ended     success",
    ]
    recorded = b"".join(
        tick.data for tick in RecordingFile(place.tape(run)).records() if tick.code == "out"
    )
    assert raw.communicate(timeout=LONG)[0].encode() == recorded
    kinds = [json.loads(line)["event"] for line in events.communicate(timeout=LONG)[0].splitlines()]
    assert kinds == [
        "started",
        "usage",
        "text",
        "tool_call",
        "user_message",
        "usage",
        "text",
        "result",
        "exited",
        "notice",
    ]
    again = place.steno("logs", run)  # of a run that is over: all of it, and the end
    assert [line[10:] for line in again.stdout.splitlines()] == lines
    assert [line[10:] for line in place.steno("logs", "-n", "1", run).stdout.splitlines()] == lines[
        -2:
    ]
    assert (again.stderr, again.returncode) == ("", 0)


def test_tail_follows_the_run_that_was_begun_last(place: Place) -> None:
    none = place.steno("logs")
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr == "steno: no active runs; list finished runs with: steno runs\n"
    _, older = place.begin("older work", steer=True)
    host, newer = place.begin("newer work", steer=True)
    for run in (older, newer):
        place.doing(run, "running")
    tail = place.tail()
    assert tail.stdout is not None
    assert ["I heard: newer work" in tail.stdout.readline() for _ in range(2)] == [False, True]
    place.steno("send", newer, "and now be done")
    assert place.end(host)["verdict"] == "success"
    assert tail.communicate(timeout=LONG)[0].splitlines()[-1].split() == [
        "ended",
        "success",
    ]  # while the older one goes on


def test_tail_follows_several(place: Place) -> None:
    """All active and new runs, or the named ones; each line has the run id."""
    begun = [place.begin(f"work {number}", steer=True) for number in range(2)]
    for _, run in begun:
        place.doing(run, "running")
    feed, events = place.tail("--all"), place.tail("--events", *(run for _, run in begun))
    assert feed.stdout is not None
    for _ in range(2 * 3):  # started, text and call of each
        feed.stdout.readline()
    begun.append(place.begin("work 2", steer=True))
    place.doing(begun[2][1], "running")
    line = feed.stdout.readline()
    for host, run in begun:
        place.steno("send", run, "be done")
        assert place.end(host)["verdict"] == "success"
    lines = [line, *feed.communicate(timeout=LONG)[0].splitlines()]
    names = [line.split()[0] for line in lines]
    for _, run in begun:
        (ended,) = [
            line
            for name, line in zip(names, lines, strict=True)
            if run.startswith(name) and " ended " in line
        ]
        assert ended.split()[-1] == "success"
    assert {run for _, run in begun if names[0] and run.startswith(names[0])} == {begun[2][1]}
    message = [json.loads(line) for line in events.communicate(timeout=LONG)[0].splitlines()]
    kinds = {
        run: [event["event"] for event in message if event["run_id"] == run] for _, run in begun[:2]
    }
    work = ["started", "usage", "text", "tool_call"]
    whole = [*work, "user_message", "usage", "text", "result", "exited", "notice"]
    assert kinds == {run: whole for _, run in begun[:2]}
    assert len(message) == 2 * len(whole)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--raw", "a", "b"], "--raw prints one run: give a single ID"),
        (["--raw", "--all"], "--raw prints one run: give a single ID"),
        (["--all", "a"], "--all takes no ID"),
    ],
)
def test_x_tail_of_what_does_not_go_together(place: Place, words: list[str], told: str) -> None:
    done = place.steno("logs", *words)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"steno: {told}; see: steno logs --help\n",
    )


def test_l1_a_tick_that_is_half_written_waits_for_its_other_half(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written byte by byte while it is followed: every byte of the agent comes once, in order."""
    monkeypatch.setenv("XDG_DATA_HOME", place.environment["XDG_DATA_HOME"])
    path = tape(
        place.agent.with_name("whole"),
        *(out(line) for line in stream(*hello()).splitlines(keepends=True)),
        ended(0),
    )
    header, *rest = path.read_bytes().splitlines(keepends=True)
    growing = place.agent.with_name("growing")
    run = "0123456789abcdef"
    growing.write_bytes(header.replace(b'"run_id":null', f'"run_id":"{run}"'.encode()))
    here = run_registry.RunInfo(
        run=run,
        task="t",
        agent="claude",
        host=run_registry.host_id(),
        steno_pid=os.getpid(),
        steno_born=process_tree.start_time_of(os.getpid()) or 0,
        tape=str(growing),
        started=time.time(),
    )
    run_registry.write_run_info(here)
    tail = place.tail("--raw", run)
    with growing.open("ab", buffering=0) as file:
        for line in rest:
            for cut in (1, len(line) // 2, len(line) - 1):
                file.write(line[:cut][-1:] if cut == 1 else b"")
            for start in range(1, len(line), 97):
                time.sleep(0.002)
                file.write(line[start : start + 97])
    assert tail.communicate(timeout=LONG) == (stream(*hello()).decode(), "")
    run_registry.remove_run_info(here)


def test_tail_ends_when_the_steno_was_killed(place: Place) -> None:
    host, run = place.begin("work")
    place.doing(run, "running")
    tail = place.tail(run)
    assert tail.stdout is not None
    assert "started" in tail.stdout.readline()
    host.kill()
    text, message = tail.communicate(timeout=LONG)
    assert text.splitlines()[-1].split() == ["ended", "no_result"]
    assert message == f"steno: {run}: the recording is incomplete: its steno process was killed\n"


def test_x_tail_is_safe(place: Place) -> None:
    path = place.agent.with_name("hostile")
    with Recorder(path, Header(agent="claude")) as recorder:
        recorder.write(
            out(
                json.dumps({"type": "system", "subtype": "init", "model": PAYLOAD}).encode() + b"\n"
            )
        )
        recorder.write(out(PAYLOAD.encode() + b"\n"))
    for line in place.steno("logs", path).stdout.splitlines():
        assert is_safe(line)
    path.write_text("nothing\n")
    assert place.steno("logs", path).stderr == f"steno: {path}: not a recording\n"


def test_a_run_that_is_not_recorded_cannot_be_followed(place: Place) -> None:
    host, run = place.begin("work", record=False)
    place.doing(run, "running")
    assert (
        place.steno("logs", run).stderr
        == f"steno: {run}: this run is not recorded, so it has no log\n"
    )
    assert place.steno("stop", run).stdout == f"{run} ended\n"
    assert place.end(host)["verdict"] == "interrupted"


# -- a steno that was killed ---------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ps", "runs"])
def test_l1_a_run_whose_steno_was_killed_is_in_the_ledger(command: str, place: Place) -> None:
    """How it was cut, and what it had spent; nothing of it is left running, and it is not alive."""
    host, run = place.begin("work")
    agent = place.doing(run, "running")["agent_pid"]
    host.kill()
    host.wait()
    done = place.steno(command, "--json")
    outcome = "was lost: its steno process was killed; recovered from its recording"
    assert done.stderr == f"steno: run {run} {outcome}\n"
    (row,) = json.loads(place.steno("runs", "--no-import", "--json").stdout)["rows"]
    assert (row["run_id"], row["verdict"], row["tokens"]["total"], row["attempt"]) == (
        run,
        "no_result",
        21005,
        1,
    )
    assert row["cost"]["source"] == "computed"
    assert row["cost"]["usd"] > 0
    tasks = "SELECT verdict, ended_at > 0 AS done FROM tasks"
    assert json.loads(place.steno("ledger", "sql", "--json", tasks).stdout)["rows"] == [
        {"verdict": "no_result", "done": 1}
    ]
    assert place.ps() == []
    assert list(place.live.iterdir()) == []
    wait_for(lambda: process_tree.start_time_of(agent) is None)
    assert place.steno(command).stderr == ""  # told once


def test_a_ledger_that_does_not_know_the_run_leaves_it_to_the_one_that_does(place: Place) -> None:
    host, run = place.begin("work")
    place.doing(run, "running")
    host.kill()
    host.wait()
    other = place.agent.with_name("other.db")
    place.steno(
        "ledger",
        "import",
        "--ledger",
        other,
        ROOT / "tests/recordings/claude/2.1.325/simple_success",
    )
    assert place.steno("ps", "--ledger", other).stderr == ""
    assert [path.name for path in place.live.glob("*.json")] == [f"{run}.json"]
    assert "was lost" in place.steno("ps").stderr


# -- the wire ------------------------------------------------------------------------------------


def test_x_whatever_comes_over_the_wire_is_answered(place: Place) -> None:
    host, run = place.begin("work")
    place.doing(run, "running")
    path = str(place.live / f"{run}.sock")
    assert run_registry.send_request(path, {"do": "status"})["state"] == "running"
    for message in (
        {},
        {"do": "dance"},
        {"do": "send"},
        {"do": "send", "text": 5},
        {"do": ["stop"]},
    ):
        answer = run_registry.send_request(path, message)
        assert (answer["ok"], answer["error"][:8]) == (False, "expected")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.settimeout(LONG)
        own.bind(str(place.live / "own"))
        for junk in (b"", b"\xff\xfe", b"[1]", b"{" * 5000, b'"' + b"x" * 100_000):
            own.sendto(junk, path)
            assert json.loads(own.recv(1 << 16)) == {
                "ok": False,
                "error": "invalid request: expected one JSON object",
            }
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM
        ) as mute:  # whoever has no address gets no answer
            mute.sendto(b'{"do":"status"}', path)
    (place.live / "own").unlink()
    assert run_registry.send_request(path, {"do": "status"})["state"] == "running"
    place.steno("stop", run)
    assert place.end(host)["warnings"][1:] == []
    with pytest.raises(StenoError, match="cannot reach the run"):
        run_registry.send_request(path, {"do": "status"})


def ask_as(uid: int, path: str, request: bytes) -> bytes:
    """The reply to a process of another user."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(uid, uid, uid)
            with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, DGRAM) as own:
                own.settimeout(LONG)
                own.bind(f"{folder}/a")
                own.sendto(request, path)
                os.write(write_end, own.recv(9999))
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end, "rb") as replies:
        return replies.read()


@pytest.mark.skipif(
    os.getuid() != 0 or not run_registry.HAS_SENDER_UID, reason="only root can be another user"
)
def test_another_user_does_not_reach_a_run(place: Place) -> None:
    """Even where the modes of the folder and the socket would permit it."""
    host, run = place.begin("work")
    info = wait_for(lambda: json.loads((place.live / f"{run}.json").read_text()))
    path = Path(info["socket"])
    path.chmod(0o777)
    for folder in path.parents[:-2]:
        folder.chmod(0o755)
    assert json.loads(ask_as(65534, str(path), b'{"do": "stop"}')) == run_registry.REFUSAL
    assert json.loads(ask_as(0, str(path), b'{"do": "status"}'))["ok"] is True
    assert place.steno("stop", run).returncode == 0
    place.end(host)


def test_runs_of_many_threads_leave_the_umask_alone(tmp_path: Path) -> None:
    """The umask belongs to the whole process: other threads' files would get it."""
    before = os.umask(0)
    stop = threading.Event()
    modes = set()

    def lay(number: int) -> None:
        wheel = EventLoop()
        while not stop.is_set():
            laid = run_registry.ControlSocket(wheel, tmp_path / str(number), lambda _: {})
            modes.add(laid.path.stat().st_mode & 0o777)
            laid.close()
        wheel.close()

    threads = [threading.Thread(target=lay, args=(number,)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        for number in range(500):
            made = tmp_path / f"other{number}"
            made.mkdir()
            assert made.stat().st_mode & 0o777 == 0o777
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        after = os.umask(before)
    assert (after, modes) == (0, {0o600})


def test_a_place_that_is_too_deep_for_a_socket(tmp_path: Path) -> None:
    """A socket path is limited to about 100 bytes: longer ones move to a temporary folder."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    place = Place(deep)
    host, run = place.begin("work")
    try:
        place.doing(run, "running")
        elsewhere = Path(json.loads((place.live / f"{run}.json").read_text())["socket"])
        assert len(str(elsewhere)) <= run_registry.MAX_SOCKET_PATH_BYTES
        assert elsewhere.parent.stat().st_mode & 0o777 == 0o700
        assert place.steno("stop", run).stdout == f"{run} ended: interrupted\n"
        assert place.end(host)["verdict"] == "interrupted"
        assert not elsewhere.parent.exists()
    finally:
        with suppress(ProcessLookupError):
            host.kill()


def test_a_run_that_cannot_be_registered_continues(place: Place) -> None:
    place.live.mkdir(parents=True)
    place.live.rmdir()
    place.live.write_text("this is a file")
    host, _ = place.begin("be done")
    result = place.end(host)
    assert result["verdict"] == "success"
    assert result["warnings"][0].startswith(
        "run not registered; steno ps, stop and send won't see it: "
    )


def test_following_many_runs_reads_the_registry_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once per run and look: with 500 idle runs that took a third of a core."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ids = [f"{number:08x}" for number in range(5)]
    recorders = []
    for run_id in ids:
        path = new_recording_path(run_id, time.time())
        header = Header(agent="claude", run_id=run_id, cwd="/", started_at=time.time())
        recorders.append(Recorder(path, header))
        run_registry.write_run_info(
            run_registry.RunInfo(
                run=run_id,
                task=run_id,
                agent="claude",
                host=run_registry.host_id(),
                steno_pid=os.getpid(),
                steno_born=process_tree.start_time_of(os.getpid()) or 0,
                tape=str(path),
            )
        )
    read = []
    read_run_info = run_registry._read_run_info

    def count(path: Path) -> run_registry.RunInfo | None:
        read.append(path.stem)
        return read_run_info(path)

    monkeypatch.setattr(run_registry, "_read_run_info", count)
    options = Namespace(all=True, follow=True, view=None, lines=None)
    command = logs.LogsCommand(options, None)
    assert [command._print_new() for _ in range(10)] == [True] * 10
    assert sorted(log.run_id for log in command._logs) == ids
    assert sorted(read) == ids
    for recorder in recorders:
        recorder.close()
    assert not command._print_new()
