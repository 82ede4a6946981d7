"""Runs by the library: public names and types, control of an active run, and event loops."""

import asyncio
import gc
import inspect
import os
import pydoc
import re
import subprocess
import sys
import threading
import time
import typing
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import event as ev
from steno.config import SETTINGS_BY_NAME
from steno.event import NO_JSON
from steno.process.process_tree import command_line_of, list_processes
from steno.runner.prepare import RUN_ONLY_OPTIONS
from steno.runner.task_runner import DESCRIPTORS_PER_RUN, reserve_descriptors
from tests.support.claude_lines import assistant, call, init, stream, text
from tests.support.scripted_place import Place

ROOT = Path(__file__).parents[2]
FINISHED = ROOT / "src" / "steno" / "demo" / "finished"
PRINTED = {
    "feed",
    "quiet",
    "exit_from",
    "otel",
    "otel_content",
    "notify",
    "notify_on",
}  # settings that say what is printed or sent: nothing of a library's


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place that this very process is in."""
    place = Place(tmp_path)
    place.enter(monkeypatch)
    return place


@pytest.fixture
def begins(inside: Place) -> Place:
    """The agent says one thing, and then nothing for a minute."""
    inside.plan({"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60})
    return inside


@pytest.fixture
def chat(inside: Place) -> Place:
    """The agent answers every message until one says "done"."""
    inside.program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" '
        f'exec "{sys.executable}" -m tests.scripted_agents.chat "$@"\n'
    )
    return inside


# -- names and types -----------------------------------------------------------------------------


def test_public_names_are_listed_before_they_are_loaded() -> None:
    """`dir` loads nothing, and `help` shows every call and class."""
    code = (
        "import sys, steno; print(*dir(steno)); "
        "print(*(name for name in sys.modules if name.startswith('steno')))"
    )
    names, loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert set(steno.__all__) <= set(names.split())
    assert loaded == "steno"
    shown = pydoc.plain(pydoc.render_doc(steno))
    for name in ("run", "arun", "stream", "read", "events", "decode_raw"):
        assert re.search(rf"^    (async )?{name}\(", shown, re.M), name
    for name in ("RunStream", "Report", "RunParser", "TaskReport"):
        assert re.search(rf"^    class {name}\b", shown, re.M), name


@pytest.mark.parametrize("name", ["run", "arun", "stream", "read", "events", "decode_raw"])
def test_the_types_of_the_calls_can_be_asked_for(name: str) -> None:
    assert "return" in typing.get_type_hints(getattr(steno, name))


def test_the_types_of_the_classes_can_be_asked_for() -> None:
    assert typing.get_type_hints(steno.RunOptions)["cwd"] == str | os.PathLike[str] | None
    assert typing.get_type_hints(steno.Report)["verdict"] is steno.Verdict
    for name, method in inspect.getmembers(steno.RunStream, inspect.isfunction):
        if not name.startswith("_"):
            assert "return" in typing.get_type_hints(method)


def test_the_options_are_those_that_are_taken() -> None:
    """All options of `steno run` except prompt, output and sync; the docstring names the others."""
    assert set(steno.RunOptions.__annotations__) == {*SETTINGS_BY_NAME, *RUN_ONLY_OPTIONS} - PRINTED
    told = set(re.findall(r"`--([a-z-]+)`", steno.RunOptions.__doc__ or ""))
    assert told == {"prompt", "file", "json", "raw", "sync"} | {
        name.replace("_", "-") for name in PRINTED
    }


TYPED = """
import os
from pathlib import Path
from typing import assert_never
import steno

def follow(live: steno.RunStream) -> str | None:
    with live:
        for event in live:
            if live.run_id is None:
                live.stop()
    return live.run_id

async def followed(options: steno.RunOptions) -> None:
    async with steno.stream("x", **options) as live:
        async for event in live:
            live.send("y")

def meaning(word: steno.Verdict) -> int:
    if word == "success":
        return 0
    return 1

report = steno.run("x", cwd=Path("."), recording=Path("t"), add_dirs=[Path(".")],
                   json_schema={"type": "object"}, changes="none")
meaning(report.verdict)
steno.run("x", cwd=3)  # expected: an error
if report.verdict == "sucess":  # expected: an error
    pass
"""


def test_a_type_checker_knows_the_names(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(TYPED)
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--strict-equality",
        f"--cache-dir={tmp_path / 'cache'}",
        "user.py",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    wrong = [
        number for number, line in enumerate(TYPED.split("\n"), 1) if "# expected: an error" in line
    ]
    assert [
        int(line) for line in re.findall(r"^user\.py:(\d+): error", done.stdout, re.M)
    ] == wrong, done.stdout + done.stderr


def test_plain_gives_what_the_agent_wrote() -> None:
    """Also of what is no JSON: nothing raises."""
    lines = stream(init(), assistant(call("toolu_1", "Bash", command="make test")))
    (found,) = [event for event in steno.events(lines) if isinstance(event, ev.ToolCall)]
    assert steno.decode_raw(found.input) == {"command": "make test"}
    assert steno.decode_raw(NO_JSON) is None


# -- paths ---------------------------------------------------------------------------------------


def test_paths_are_taken_as_paths(inside: Place) -> None:
    other = inside.folder / "other"
    other.mkdir()
    report = steno.run(
        "x",
        cwd=other,
        program=inside.program,
        ledger=inside.folder / "own.db",
        add_dirs=[inside.work],
    )
    (made,) = inside.calls
    assert (report.verdict, made["cwd"], str(inside.work) in made["argv"]) == (
        "success",
        str(other),
        True,
    )
    assert (inside.folder / "own.db").exists()


def test_a_recording_is_played_by_its_path(inside: Place) -> None:
    live = steno.stream("x", agent="replay", recording=FINISHED, speed=0)
    kinds = [type(event).__name__ for event in live]
    assert live.report is not None
    assert (live.report.verdict, kinds[0], "Result" in kinds) == ("success", "Started", True)


# -- an active run --------------------------------------------------------------------------


def test_a_run_has_a_name(inside: Place) -> None:
    live = steno.stream("x")
    assert (live.run_id, live.task_id is None) == (None, False)
    names = {live.run_id for _ in live}
    assert live.report is not None
    assert names == {live.run_id} == {live.report.run_id}
    assert live.task_id == live.report.task_id


def test_its_events_are_given_once(inside: Place) -> None:
    """Whether they were there or not."""
    for live in (steno.stream("x"), steno.stream("x", program="/no/such/claude")):
        assert live.report is None or live.report.verdict == "not_found"
        assert bool(list(live)) is (live.run_id is not None)
        with pytest.raises(steno.StenoError, match="can be iterated only once"):
            iter(live)
        with pytest.raises(steno.StenoError, match="can be iterated only once"):
            aiter(live)


def test_stop_ends_it_in_order(begins: Place) -> None:
    """Its last events still come."""
    live, seen = steno.stream("x"), []
    for event in live:
        seen.append(type(event).__name__)
        if seen[-1] == "Text":
            live.stop()
    assert live.report is not None
    assert (live.report.verdict, "StopRequested" in seen, "Exited" in seen) == (
        "interrupted",
        True,
        True,
    )
    live.stop()  # it is over: nothing happens


def test_stop_from_another_thread_and_twice(inside: Place) -> None:
    """The second time kills."""
    inside.plan(
        {"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60, "deaf": True}
    )
    live = steno.stream("x")

    def twice() -> None:
        live.stop()
        live.stop()

    began = time.monotonic()
    for event in live:
        if isinstance(event, ev.Text):
            threading.Thread(target=twice).start()
    assert live.report is not None
    assert live.report.signal == 9
    assert time.monotonic() - began < 20


def held() -> list[str]:
    """What this process has open."""
    gc.collect()
    found = ((path.name, os.path.realpath(path)) for path in Path("/proc/self/fd").iterdir())
    return sorted(f"{name} {target}" for name, target in found if not target.endswith("/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux tells what is open")
def test_a_run_that_is_refused_leaves_nothing_open(inside: Place, tmp_path: Path) -> None:
    """Also where that is found out late."""
    (tmp_path / "none.steno").write_text("this is no tape")
    for _ in range(2):
        before = held()
        with pytest.raises(steno.StenoError):
            steno.run("x", agent="replay", recording=tmp_path / "none.steno")
    assert held() == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux tells what is open")
def test_ctrl_c_twice_leaves_nothing_open(inside: Place) -> None:
    """Not even a mark: `steno ps` would tell of a run that goes on."""
    inside.plan(
        {"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60, "deaf": True}
    )
    again = subprocess.Popen(
        [sys.executable, "-c", TWICE.format(pid=os.getpid(), live=str(inside.data / "live"))]
    )
    steno.read(FINISHED)
    before = held()
    with pytest.raises(KeyboardInterrupt):
        steno.run("x")
    again.wait()
    assert (held(), [path.name for path in (inside.data / "live").glob("*.sock")]) == (before, [])


TWICE = """
import os, pathlib, signal, time
while not list(pathlib.Path({live!r}).glob("*.json")): time.sleep(0.05)
time.sleep(1.0)
for _ in range(2):
    os.kill({pid}, signal.SIGINT)
    time.sleep(1.0)
"""


def test_leaving_the_with_ends_it(begins: Place) -> None:
    """Also where it was never looked at, or by an error of one's own."""

    def failing(live: steno.RunStream) -> None:
        with live:
            while not begins.calls:
                time.sleep(0.02)
            raise ZeroDivisionError

    live = steno.stream("x")
    with pytest.raises(ZeroDivisionError):
        failing(live)
    assert live.report is not None
    assert live.report.verdict == "interrupted"


def test_leaving_the_with_after_a_stop_does_not_kill(begins: Place) -> None:
    begins.plan(
        {"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60, "interrupted": 7}
    )
    with steno.stream("x") as live:
        while not begins.calls:
            time.sleep(0.02)
        live.stop()
    assert live.report is not None
    assert live.report.exit_code == 7


def test_what_has_not_begun_is_neither_stopped_nor_spoken_to(inside: Place) -> None:
    live = steno.stream("x", steer=True)
    with pytest.raises(steno.StenoError, match="not started yet"):
        live.stop()
    with pytest.raises(steno.StenoError, match="not started yet"):
        live.send("y")
    assert inside.calls == []


def test_a_message_is_delivered(chat: Place) -> None:
    heard = []
    sent = []
    with steno.stream("hello", steer=True) as live:
        for event in live:
            if isinstance(event, ev.UserMessage) and event.kind == "sent":
                sent.append(event.text)
            if isinstance(event, ev.Text) and "I heard" in event.text:
                heard.append(event.text)
                live.send("done" if len(heard) == 2 else "more") if len(heard) < 3 else None
    assert heard == ["I heard: hello", "I heard: more", "I heard: done"]
    assert sent == ["more", "done"]
    (recording,) = chat.tapes
    replayed = [event for event in steno.events(recording) if isinstance(event, ev.UserMessage)]
    assert [event.text for event in replayed if event.kind == "sent"] == sent
    log = chat.steno("show", "--timeline", str(recording)).stdout.decode()
    assert [line.split()[-2:] for line in log.splitlines() if " sent " in line] == [
        ["sent", "more"],
        ["sent", "done"],
    ]
    assert live.report is not None
    assert live.report.verdict == "success"
    with pytest.raises(steno.StenoError, match="cannot send a message: the run has finished"):
        live.send("z")


def test_send_says_why_a_message_is_not_delivered(begins: Place) -> None:
    with steno.stream("x") as live:
        coming = iter(live)
        next(coming)
        with pytest.raises(steno.StenoError, match="start it with steno run --steer"):
            live.send("y")
        with pytest.raises(steno.StenoError, match="cannot send an empty message"):
            live.send(" ")


# -- event loops ---------------------------------------------------------------------------------


def test_async_for_gives_the_events_while_it_runs(inside: Place) -> None:
    """Three at once, and the event loop turns meanwhile."""
    begun = stream(init(), assistant(text("I begin."))).decode()
    inside.plan({"out": begun, "sleep": 1.0})

    async def one() -> tuple[list[str], str]:
        live, seen = steno.stream("x", attempts=1), []
        async for event in live:
            seen.append(type(event).__name__)
        assert live.report is not None
        return seen, live.report.verdict

    async def all_of_them() -> list[tuple[list[str], str]]:
        found, turns = asyncio.gather(one(), one(), one()), 0
        while not found.done():
            await asyncio.sleep(0.02)
            turns += 1
        assert turns > 10
        return list(await found)

    for seen, verdict in asyncio.run(all_of_them()):
        assert (seen[0], "Exited" in seen, verdict) == ("Started", True, "no_result")


def test_leaving_async_with_ends_it(begins: Place) -> None:
    """In order: the loop that was left is closed as well, and that does not kill it."""
    begins.plan(
        {"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60, "interrupted": 7}
    )

    async def left() -> steno.TaskReport | None:
        async with steno.stream("x") as live:
            async for event in live:
                if isinstance(event, ev.Text):
                    break
        return live.report

    report = asyncio.run(left())
    assert report is not None
    assert (report.verdict, report.exit_code) == ("interrupted", 7)


def test_an_async_for_that_is_left_asks_for_the_end(begins: Place) -> None:
    """Also where its event loop ends at once, which would close it."""
    live = steno.stream("x")

    async def left() -> None:
        async for event in live:
            if isinstance(event, ev.Text):
                break

    asyncio.run(left())
    until = time.monotonic() + 20
    while live.report is None and time.monotonic() < until:
        time.sleep(0.02)
    assert live.report is not None
    assert live.report.verdict == "interrupted"


def test_cancelling_the_waiting_task_stops_the_run_first(begins: Place) -> None:
    live = steno.stream("x")

    async def followed() -> None:
        async for _ in live:
            pass

    async def cancelled() -> None:
        task = asyncio.ensure_future(followed())
        while not begins.calls:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert live.report is not None

    asyncio.run(cancelled())
    assert live.report is not None
    assert live.report.verdict == "interrupted"


def test_send_and_stop_in_an_event_loop(chat: Place) -> None:
    async def talk() -> tuple[list[str], steno.TaskReport | None]:
        heard = []
        async with steno.stream("hello", steer=True) as live:
            async for event in live:
                if isinstance(event, ev.Text) and event.text.startswith("I heard"):
                    heard.append(event.text)
                    live.send("more") if len(heard) == 1 else live.stop()
        return heard, live.report

    heard, report = asyncio.run(talk())
    assert report is not None
    assert (heard, report.verdict) == (["I heard: hello", "I heard: more"], "interrupted")


def test_a_refused_run_has_no_events_there_either(inside: Place) -> None:
    async def refused() -> steno.TaskReport | None:
        async with steno.stream("x", program="/no/such/claude") as live:
            assert [event async for event in live] == []
        return live.report

    report = asyncio.run(refused())
    assert report is not None
    assert report.verdict == "not_found"


# -- many at once --------------------------------------------------------------------------------


def open_files() -> list[str]:
    """The names of what this process has open."""
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of this loop
            names.append(entry.readlink().name)
    return names


def own_watchdogs() -> list[int]:
    found = [info.pid for info in list_processes() if info.parent_pid == os.getpid()]
    return [pid for pid in found if "steno-guard" in command_line_of(pid)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_runs_share_thread_watchdog_and_ledger(begins: Place) -> None:
    """One of each for eight runs, and few descriptors for a run."""
    count = 8

    async def run_all() -> list[object]:
        before = len(open_files())
        tasks = [asyncio.create_task(steno.arun("x", attempts=1)) for _ in range(count)]
        while len(begins.calls) < count:
            await asyncio.sleep(0.05)
        files = open_files()
        assert (files.count("ledger.db"), len(own_watchdogs())) == (1, 1)
        assert (len(files) - before) / count < DESCRIPTORS_PER_RUN
        assert [thread.name for thread in threading.enumerate()].count("steno") == 1
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    ends = asyncio.run(run_all())
    assert [type(end) for end in ends] == [asyncio.CancelledError] * count
    with steno.Ledger() as ledger:
        assert [run.verdict for run in ledger.runs()] == ["interrupted"] * count
    assert own_watchdogs() == []


def test_a_run_that_cannot_be_recorded_does_not_stop_the_others(
    begins: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with steno.stream("x", attempts=1) as live:
        events = iter(live)
        next(events)
        monkeypatch.setenv("XDG_DATA_HOME", os.devnull)
        with pytest.raises(steno.StenoError, match="/dev/null"):
            steno.run("x", attempts=1)
        assert live.report is None
    assert live.report is not None
    assert live.report.verdict == "interrupted"


def test_the_limit_of_open_files_is_raised_or_named() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        reserve_descriptors(5)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        reserve_descriptors(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (672, hard)
        runs = hard // DESCRIPTORS_PER_RUN + 1
        with pytest.raises(steno.StenoError, match=f"^{runs} runs at once need about .*{hard}; "):
            reserve_descriptors(runs)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_former_names_of_options(inside: Place) -> None:
    options: dict[str, Any] = {"agent": "replay", "tape": FINISHED, "speed": 0}
    with pytest.warns(DeprecationWarning, match=r"^tape is now called recording$"):
        report = steno.run("x", **options)
    assert report.verdict == "success"
    with pytest.warns(DeprecationWarning, match=r"^add_dir is now called add_dirs$"):
        steno.run("x", add_dir=[inside.work])  # type: ignore[call-arg]
