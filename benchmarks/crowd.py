"""One measurement: follows many talkers at once in one process, and prints what that cost; never judges it.

Run as `python -m benchmarks.crowd FOLLOWER --runs N --seconds N --rate N`. The clock runs while all of them talk: neither
their start nor their end is in it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.work import MISSING

TALKER = Path(__file__).with_name("talker.py")
LEAD = 3.0  # seconds from the word to begin until they do


class Watch:
    """What this process used in the window, and how late each line was."""

    def __init__(self, given: argparse.Namespace, folder: str) -> None:
        self.runs, self.seconds, self.program = (
            given.runs,
            given.seconds,
            str(Path(folder, "talker")),
        )
        self.empty, self.start, self.go = rss(), 0, Path(folder, "go")
        self.env = {
            "TALK_GO": str(self.go),
            "TALK_LINES": str(int((given.seconds + 1) * given.rate)),
            "TALK_RATE": str(given.rate),
        }
        self.late: list[int] = []
        self.events = 0
        self.counting = False
        self.used = self.full = 0.0

    def ready(self) -> None:
        """All were started: let them begin."""
        self.start = time.monotonic_ns() + int(LEAD * 1e9)
        written = self.go.with_name("written")
        written.write_text(str(self.start))
        written.rename(self.go)

    def begin(self) -> None:
        self.counting, self.used = True, time.process_time()

    def end(self) -> None:
        self.counting, self.used, self.full = False, time.process_time() - self.used, rss()

    def heard(self, text: str) -> None:
        """A text with its time came in."""
        if self.counting:
            self.late.append(time.monotonic_ns() - int(text.partition(" ")[0]))

    def ahead(self, nanoseconds: float = 0) -> float:
        """Seconds until a time after the start."""
        return (self.start + nanoseconds - time.monotonic_ns()) / 1e9

    def figures(self) -> dict[str, Any]:
        late = sorted(self.late)
        at = [late[int(len(late) * part)] / 1e6 for part in (0.5, 0.99)] if late else [None, None]
        return {
            "cpu": self.used,
            "events": self.events,
            "kilobytes": (self.full - self.empty) / self.runs / 1024,
            "middle": at[0],
            "late": at[1],
            "process": time.process_time(),
        }


def rss() -> float:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


class Listener:
    """Hears the events of steno's runs."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.text = importlib.import_module("steno.event").Text
        self.read: dict[str, int] = {}

    def __call__(self, run: Any, events: list[Any]) -> None:
        for told in events:
            if type(told) is self.text:
                self.watch.heard(told.text)
        read = run.reading.lines.read
        if self.watch.counting:
            self.watch.events += read - self.read.get(run.id, read)
        self.read[run.id] = read


def steno(watch: Watch, folder: str) -> None:
    """Runs, as a task makes them: process, tape, events, running report, clocks."""
    run, place = (
        importlib.import_module("steno.runner.attempt").Run,
        importlib.import_module("steno.config.data_dir"),
    )
    values, agents = (
        importlib.import_module("steno.runner.setup"),
        importlib.import_module("steno.agents"),
    )
    witness = importlib.import_module("steno.runner.workspace_observer").Witness

    def begin(loop: Any, setup: Any) -> Any:
        now, name = time.time(), place.run_id()
        tape, watcher = (
            place.tape_path(name, now),
            witness(loop, setup.cwd, name, setup.changes, True),
        )
        one = run(loop, agents.CLAUDE, setup.ask, setup, name, tape, now, lambda run: "", watcher)
        one.prepare(values.Budget())
        one.start()
        return one

    followed(watch, folder, begin)


def booked(watch: Watch, folder: str) -> None:
    """Tasks of one run each, with their rows for the ledger."""
    task = importlib.import_module("steno.runner.task").Task
    followed(watch, folder, lambda loop, setup: task(loop, setup).start().run)


def followed(watch: Watch, folder: str, begin: Callable[[Any, Any], Any]) -> None:
    """Begin all runs, and turn until they are over."""
    values, agents = (
        importlib.import_module("steno.runner.setup"),
        importlib.import_module("steno.agents"),
    )
    os.environ["XDG_DATA_HOME"] = folder
    env = {"PATH": os.defpath, **watch.env}
    setup = values.Setup(
        ask=agents.Ask(prompt="talk"), program=watch.program, cwd=folder, environ=env
    )
    listener, runs = Listener(watch), []
    with importlib.import_module("steno.process").Loop() as loop:
        for _ in range(watch.runs):
            runs.append(begin(loop, setup))
            runs[-1].sinks.append(listener)
            loop.turn(loop.clock())
        watch.ready()
        loop.after(watch.ahead(), watch.begin)
        loop.after(watch.ahead(watch.seconds * 1e9), watch.end)
        loop.run()
    ends = {(run.report.verdict, run.report.exit_code) for run in runs}
    if ends != {("success", 0)}:
        raise SystemExit(f"WRONG: the runs ended as {sorted(ends)}")


def sdk(watch: Watch, folder: str) -> None:
    """The transport of claude-agent-sdk: process and JSON; no record, no report."""
    heard(watch, folder, lambda message: None)


def parsed(watch: Watch, folder: str) -> None:
    """The same, and its own typed messages."""
    heard(
        watch,
        folder,
        importlib.import_module("claude_agent_sdk._internal.message_parser").parse_message,
    )


def heard(watch: Watch, folder: str, parse: Callable[[dict[str, Any]], Any]) -> None:
    """All transports in one loop of asyncio."""
    transport = importlib.import_module(
        "claude_agent_sdk._internal.transport.subprocess_cli"
    ).SubprocessCLITransport
    options = importlib.import_module("claude_agent_sdk").ClaudeAgentOptions

    async def follow(one: Any) -> None:
        async for message in one.read_messages():
            parse(message)
            if watch.counting:
                watch.events += 1
            if (
                message["type"] == "assistant"
                and message["message"]["content"][0]["type"] == "text"
            ):
                watch.heard(message["message"]["content"][0]["text"])

    async def at(seconds: float, call: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        call()

    async def all_of_them() -> None:
        given = options(cli_path=watch.program, cwd=folder, env=watch.env)
        crowd = [transport(prompt="talk", options=given) for _ in range(watch.runs)]
        reading = []
        for one in crowd:
            await one.connect()
            reading.append(asyncio.create_task(follow(one)))
        watch.ready()
        clocks = [at(watch.ahead(), watch.begin), at(watch.ahead(watch.seconds * 1e9), watch.end)]
        await asyncio.gather(*clocks, *reading)
        for one in crowd:
            await one.close()

    os.environ["CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK"] = "1"
    asyncio.run(all_of_them())


FOLLOWERS: dict[str, Callable[[Watch, str], None]] = {
    "steno": steno,
    "booked": booked,
    "sdk": sdk,
    "parsed": parsed,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Follow many talkers at once.")
    parser.add_argument("follower", choices=FOLLOWERS)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(given, folder)
        program = Path(watch.program)
        program.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -ISE {shlex.quote(str(TALKER))} "$@"\n'
        )
        program.chmod(0o755)
        try:
            FOLLOWERS[given.follower](watch, folder)
        except ModuleNotFoundError:
            return MISSING
    print(json.dumps(watch.figures()), flush=True)
    os._exit(0)  # what a library has to say about its own end is not measured


if __name__ == "__main__":
    sys.exit(main())
