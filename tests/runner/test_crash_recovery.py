"""Kill steno at any moment: recording, ledger and session survive, and no process is left."""

import json
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import steno
from steno.agents import LaunchOptions
from steno.ledger.importer import import_sources
from steno.ledger.store import Store, open_ledger
from steno.process import process_tree, run_tag
from steno.recording.format import RecordingFile
from steno.report import Report
from steno.runner.setup import TaskSetup
from tests.support import claude
from tests.support.claude_lines import Json, assistant, init, result, share, stream, text, usage
from tests.support.modelserver import Answer, Call, Hang, ModelServer, Usage, say
from tests.support.tasks import carry_out

AGENTS = Path(__file__).parents[1] / "scripted_agents"
MOMENTS = 100
AT_ONCE = 5
REQUESTS = 10  # of a run that takes a second
LONG = 60.0


class Keeper:
    """Starts stenos, and kills them."""

    def __init__(self, data: Path) -> None:
        env = {
            "XDG_DATA_HOME": str(data),
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            "PATH": "/usr/bin:/bin",
        }
        command = [sys.executable, str(AGENTS / "steno_forker.py")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, words: str) -> int:
        """Give a command, and take its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, folder: Path, setup: TaskSetup, until: str = "") -> int:
        """Start a steno with a task; its pid. `until`: it is killed when this function returns."""
        (folder / "setup.json").write_bytes(msgspec.json.encode(setup))
        return self.ask(f"start {folder / 'setup.json'} {until}")

    def kill(self, pid: int, how: str = "kill") -> int:
        """How it ended, when nothing of it is left: the guard has seen to that."""
        code = self.ask(f"{how} {pid}")
        end = time.monotonic() + LONG
        while of(pid):
            assert time.monotonic() < end, of(pid)
            time.sleep(0.05)
        return code

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def of(pid: int) -> list[str]:
    """Living processes with the run tag of this steno."""
    return [
        process_tree.command_line_of(item.pid)
        for item in process_tree.list_processes()
        if pid in [results.steno_pid for results in run_tag.parse_run_tags(item.run_tags)]
    ]


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    """One keeper; what its stenos keep lies in a place of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("STENO_LEDGER", raising=False)
    results = Keeper(tmp_path / "data")
    yield results
    results.close()


def working(folder: Path, number: int) -> TaskSetup:
    """A task of one second with a request every 100 ms, in a session of its own."""
    folder.mkdir()
    session: Json = {"session_id": f"session-{number}"}
    lines = [
        assistant(
            text(f"Step {step}."),
            message=f"msg_{number}_{step}",
            **session,
            uuid=f"line-{number}-{step}",
        )
        for step in range(REQUESTS)
    ]
    account = {
        "modelUsage": {"claude-opus-5-5": share(30, 10_010, 200_000, 1010, 0.11037)},
        "total_cost_usd": 0.11037,
    }
    end = result(
        "Done.", **account, **session, num_turns=REQUESTS, usage=usage(30, 10_010, 200_000, 1010)
    )
    steps: list[tuple[str, Any]] = [("out", stream(init(**session)).decode())]
    for line in lines:
        steps += [("out", stream(line).decode()), ("sleep", 0.1)]
    steps.append(("out", stream(end).decode()))
    (folder / "script-000").write_text(json.dumps(steps))
    program = folder / "agent"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -SE {AGENTS / "step_player.py"} {folder} "$@"\n'
    )
    program.chmod(0o755)
    return TaskSetup(
        launch_options=LaunchOptions(prompt=f"Task {number}."),
        program=str(program),
        cwd=str(folder),
    )


def killed_at_random(keeper: Keeper, tmp_path: Path) -> list[int]:
    """Results of a hundred stenos, each killed at some moment of its second."""
    chance = random.Random(20261115)  # the same moments each time
    codes = []
    for group in range(0, MOMENTS, AT_ONCE):
        begun = time.monotonic()
        pids = [
            keeper.start(tmp_path / str(number), working(tmp_path / str(number), number))
            for number in in_group(group)
        ]
        moments = sorted((chance.uniform(0.0, 1.5), pid) for pid in pids)
        for moment, pid in moments:
            time.sleep(max(0.0, begun + moment - time.monotonic()))
            codes.append(keeper.kill(pid))
    return codes


def in_group(start: int) -> range:
    return range(start, min(start + AT_ONCE, MOMENTS))


def booked(store: Store) -> dict[str, tuple[Any, ...]]:
    """The runs of the ledger."""
    names = (
        "id, verdict, complete, requests, input, cache_write, cache_read, output, cost_nano, source"
    )
    return {row[0]: row[1:] for row in store.query(f"SELECT {names} FROM runs", ())}


def as_booked(report: Report) -> tuple[Any, ...]:
    """What the ledger must say of a run."""
    tokens, cost = report.tokens, report.cost.usd
    counters = (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output)
    spent = (*counters, None if cost is None else round(cost * 1e9))
    return (report.verdict, int(report.complete), report.requests, *spent, report.source)


def test_killed_at_a_hundred_moments(keeper: Keeper, tmp_path: Path) -> None:
    """Its cost is reported up to the kill, and the report is marked as incomplete."""
    codes = killed_at_random(keeper, tmp_path)
    assert codes.count(-signal.SIGKILL) > MOMENTS // 2
    tapes = sorted((tmp_path / "data" / "steno" / "tapes").rglob("*.steno"))
    assert MOMENTS // 2 < len(tapes) <= MOMENTS
    tapes = [tape for tape in tapes if tape.stat().st_size]  # one may be made, and not begun
    reports = [steno.read(tape) for tape in tapes]
    assert listed() == {report.run_id: (report.verdict, report.cost.usd) for report in reports}
    store = open_ledger(None)
    try:
        results = booked(store)
        sessions = {row[0]: row[1] for row in store.query("SELECT id, session FROM runs", ())}
        done = import_sources(store, [str(tapes[0].parent)])
        assert booked(store) == results  # nothing was missing
        spent = store.query(
            "SELECT count(*), sum(cost_nano) FROM requests WHERE kind = 'request'", ()
        )[0]
        assert store.query("SELECT count(*) FROM tasks WHERE verdict IS NULL", ()) == [(0,)]
    finally:
        store.close()
    assert done.troubles == []
    assert {report.run_id: as_booked(report) for report in reports} == results
    assert all(
        sessions[report.run_id] == report.session_id for report in reports if report.session_id
    )
    observed = sum(report.requests or 0 for report in reports)
    assert spent[0] == observed
    cut = [report for report, tape in zip(reports, tapes, strict=True) if is_cut(tape)]
    assert len(cut) > MOMENTS // 2
    assert {(report.verdict, report.complete) for report in cut if report.result is None} == {
        ("no_result", False)
    }
    assert not any(report.complete for report in cut)
    assert {report.requests for report in cut} >= {1, 5, 9}  # they were cut in all places


# Functions after which data is partly written, in order, and the run's state in the list then.
STEPS = {
    "write_run_info": None,  # its mark: nothing is begun
    "create_recording": None,  # its tape is empty
    "Recorder.__init__": "no_result",  # its tape: the ledger does not know it yet
    "LedgerWriter.open_task": "no_result",
    "LedgerWriter.begin_attempt": "no_result",  # the agent is not started
    "ProcessLoop.start": "no_result",  # it is, and others do not know its pid
    "RunRegistration._on_events": "no_result",
    "AgentRun._on_exit": "success",
    "Recorder.close": "success",
    "LedgerWriter.end_attempt": "success",
    "LedgerWriter.close_task": "success",
}


@pytest.mark.parametrize("function", STEPS)
def test_killed_in_the_middle_of_a_step(keeper: Keeper, tmp_path: Path, function: str) -> None:
    """Killed between any two writes: the next steno lists the run, and nothing is left to do."""
    store = open_ledger(None)
    store.close()
    setup, session = working(tmp_path / "0", 0), str(uuid.uuid4())
    setup = msgspec.structs.replace(
        setup, launch_options=msgspec.structs.replace(setup.launch_options, session_id=session)
    )
    pid = keeper.start(tmp_path / "0", setup, function)
    assert keeper.kill(pid, "wait") == -signal.SIGKILL
    verdict = STEPS[function]
    assert [results[0] for results in listed().values()] == (
        [verdict] if verdict is not None else []
    )
    assert list((tmp_path / "data" / "steno" / "live").iterdir()) == []
    store = open_ledger(None)
    try:
        assert store.query("SELECT count(*) FROM runs WHERE verdict IS NULL", ()) == [(0,)]
        if function in (
            "LedgerWriter.begin_attempt",
            "ProcessLoop.start",
        ):  # it has said nothing, and can be gone on with all the same
            assert store.query("SELECT session FROM runs", ()) == [(session,)]
    finally:
        store.close()


def listed() -> dict[str, tuple[str, float | None]]:
    """What `steno runs` says of each run: how it ended, and what it cost."""
    command = [sys.executable, "-m", "steno", "runs", "--last", "1000", "--json"]
    message = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {row["run_id"]: (row["verdict"], row["cost"]["usd"]) for row in message["rows"]}


def is_cut(tape: Path) -> bool:
    """Whether a recording was not closed."""
    results = RecordingFile(tape)
    list(results.records())
    return results.is_truncated


ONE, TWO = Usage(3, 1001, 20_000, 101), Usage(5, 1002, 21_000, 102)
STEP = Answer((Call("Bash", {"command": "echo one", "description": "a command"}),), ONE)
WHEN: dict[str, Callable[[ModelServer], bool]] = {
    "at the first request": lambda server: len(server.asked) == 1,
    "after a tool was used": lambda server: len(server.asked) == 2,
}


@pytest.mark.parametrize("moment", WHEN)
@pytest.mark.parametrize("version", claude.VERSIONS)
def test_a_session_is_resumed_after_a_kill(
    keeper: Keeper, tmp_path: Path, version: str, moment: str
) -> None:
    """The real agent's session is resumed; if it has none yet, a new one is started."""
    steps = [Hang()] if moment == "at the first request" else [STEP, Hang()]
    with ModelServer(*steps, say("All done.", usage=TWO)) as server:
        (tmp_path / "home").mkdir()
        (tmp_path / "work").mkdir()
        ask = LaunchOptions(
            prompt="Do the work.",
            session_id=str(uuid.uuid4()),
            extra=("--dangerously-skip-permissions",),
        )
        environ = claude.clean_env(tmp_path / "home", server.url)
        setup = TaskSetup(
            launch_options=ask,
            program=claude.installed(version),
            cwd=str(tmp_path / "work"),
            inherited_env=environ,
        )
        pid = keeper.start(tmp_path, setup)
        end = time.monotonic() + LONG
        tapes = tmp_path / "data" / "steno" / "tapes"
        # what an agent has said of its request may come after its next one
        while (
            not WHEN[moment](server)
            or (steno.read(next(tapes.rglob("*.steno"))).requests or 0) < len(steps) - 1
        ):
            assert time.monotonic() < end
            time.sleep(0.02)
        assert keeper.kill(pid) == -signal.SIGKILL
        report = steno.read(next(tapes.rglob("*.steno")))
        known = len(steps) - 1 or None  # the recording was cut: there may be requests, not 0
        assert (report.verdict, report.requests) == ("no_result", known)
        assert report.session_id in (
            ask.session_id,
            None,
        )  # of an agent that writes to a file, its first line may be unread
        on = LaunchOptions(prompt="Go on.", resume=ask.session_id, extra=ask.extra)
        again = carry_out(msgspec.structs.replace(setup, launch_options=on))
        assert again.report.verdict == "success"
        if moment == "after a tool was used":
            assert again.report.session_id == ask.session_id
            assert "tool_result" in str(server.asked[2].body["messages"])
            assert "Do the work." in "\n".join(server.asked[2].texts())
