"""One measurement of `benchmarks.concurrent`: follow many agents in one process, print the cost.

Run as `python -m benchmarks.crowd FOLLOWER --runs N --seconds N --rate N`. Only the time in which
all agents write is measured, without their start and exit.
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
from typing import TYPE_CHECKING, Any

from benchmarks.work import MISSING

# steno is imported by its followers only, so that its memory counts as theirs.
if TYPE_CHECKING:
    from steno.event import Event
    from steno.process import ProcessLoop
    from steno.runner.attempt import AgentRun
    from steno.runner.setup import TaskSetup

    StartRun = Callable[[ProcessLoop, TaskSetup], AgentRun]

TALKER = Path(__file__).with_name("talker.py")
LEAD = 3.0  # seconds between the start signal and the first line


class Meter:
    """CPU, memory and delays of this process while the agents write."""

    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self.runs = options.runs
        self.seconds = options.seconds
        self.program = str(Path(folder, "talker"))
        self.start = 0
        self.start_file = Path(folder, "go")
        self.env = {
            "TALK_GO": str(self.start_file),
            "TALK_LINES": str(int((options.seconds + 1) * options.rate)),
            "TALK_RATE": str(options.rate),
        }
        self.lines = 0
        self.tail = 0.0  # seconds from the last line of the agents to the last report
        self.is_measuring = False
        self._delays: list[int] = []
        self._cpu = 0.0
        self._rss_before = resident_bytes()
        self._rss_after = 0.0

    def start_agents(self) -> None:
        """Tell the started agents when to begin."""
        self.start = time.monotonic_ns() + int(LEAD * 1e9)
        draft = self.start_file.with_name("written")
        draft.write_text(str(self.start))
        draft.rename(self.start_file)

    def begin(self) -> None:
        self.is_measuring = True
        self._cpu = time.process_time()

    def end(self) -> None:
        self.is_measuring = False
        self._cpu = time.process_time() - self._cpu
        self._rss_after = resident_bytes()

    def add_text(self, text: str) -> None:
        """Note the delay of a text, which begins with the time of its writing."""
        if self.is_measuring:
            self._delays.append(time.monotonic_ns() - int(text.partition(" ")[0]))

    def seconds_until(self, offset_ns: float = 0) -> float:
        """Seconds until a time after the start."""
        return (self.start + offset_ns - time.monotonic_ns()) / 1e9

    def figures(self) -> dict[str, Any]:
        delays = sorted(self._delays)
        return {
            "cpu": self._cpu,
            "events": self.lines,
            "kilobytes": (self._rss_after - self._rss_before) / self.runs / 1024,
            "middle": percentile_ms(delays, 0.5),
            "late": percentile_ms(delays, 0.99),
            "process": time.process_time(),
            "tail": self.tail,
        }


def percentile_ms(delays: list[int], fraction: float) -> float | None:
    return delays[int(len(delays) * fraction)] / 1e6 if delays else None


def resident_bytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


# --- steno


class EventSink:
    """Counts the lines of steno's runs and notes the delays of their texts."""

    def __init__(self, meter: Meter) -> None:
        from steno.event import Text

        self._text_type = Text
        self._meter = meter
        self._lines_by_run: dict[str, int] = {}

    def __call__(self, run: AgentRun, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, self._text_type):
                self._meter.add_text(event.text)
        count = run.parser.lines.read
        if self._meter.is_measuring:
            self._meter.lines += count - self._lines_by_run.get(run.id, count)
        self._lines_by_run[run.id] = count


def steno(meter: Meter, folder: str) -> None:
    """Runs as a task makes them: process, recording, events, running report, timeouts."""
    from steno.agents import CLAUDE
    from steno.config.files import new_recording_path, new_run_id
    from steno.runner.attempt import AgentRun
    from steno.runner.setup import RunBudget
    from steno.runner.workspace_observer import WorkspaceObserver

    def start_run(loop: ProcessLoop, setup: TaskSetup) -> AgentRun:
        now = time.time()
        run_id = new_run_id()
        observer = WorkspaceObserver(
            loop=loop,
            cwd=folder,
            run_id=run_id,
            changes=setup.changes,
            undo_days=setup.undo_days,
            undo_runs=setup.undo_runs,
            record=True,
        )
        run = AgentRun(
            loop=loop,
            agent=CLAUDE,
            launch_options=setup.launch_options,
            setup=setup,
            run_id=run_id,
            recording_path=new_recording_path(run_id, now),
            started_at=now,
            on_ended=lambda run: "",
            observer=observer,
        )
        run.prepare(RunBudget())
        run.start()
        return run

    follow_runs(meter, folder, start_run)


def booked(meter: Meter, folder: str) -> None:
    """Tasks of one run each, with their ledger rows."""
    from steno.runner.task import Task

    def start_run(loop: ProcessLoop, setup: TaskSetup) -> AgentRun:
        run = Task(loop, setup).start().run
        assert run is not None
        return run

    follow_runs(meter, folder, start_run)


def follow_runs(meter: Meter, folder: str, start_run: StartRun) -> None:
    from steno.agents import LaunchOptions
    from steno.process import ProcessLoop
    from steno.runner.setup import TaskSetup

    os.environ["XDG_DATA_HOME"] = folder
    setup = TaskSetup(
        launch_options=LaunchOptions(prompt="talk"),
        program=meter.program,
        cwd=folder,
        inherited_env={"PATH": os.defpath, **meter.env},
    )
    sink = EventSink(meter)
    runs = []
    with ProcessLoop() as loop:
        for _ in range(meter.runs):
            run = start_run(loop, setup)
            run.sinks.append(sink)
            runs.append(run)
            loop.step(loop.clock())
        meter.start_agents()
        loop.call_later(meter.seconds_until(), meter.begin)
        loop.call_later(meter.seconds_until(meter.seconds * 1e9), meter.end)
        loop.run()
    outcomes = {(run.report.verdict, run.report.exit_code) if run.report else None for run in runs}
    if outcomes != {("success", 0)}:
        raise SystemExit(f"WRONG: outcomes of the runs: {outcomes}")


def library(meter: Meter, folder: str) -> None:
    """The public API: `steno.stream` of all runs in one asyncio event loop."""
    import steno
    from steno.event import Text

    async def follow(live: steno.RunStream) -> str:
        last_line = 0
        async for event in live:
            if isinstance(event, Text):
                meter.add_text(event.text)
            if meter.is_measuring and event.line > last_line:
                meter.lines += 1
            last_line = max(last_line, event.line)
        return live.report.verdict if live.report is not None else ""

    async def follow_all() -> list[str]:
        followers = []
        for _ in range(meter.runs):
            live = steno.stream("talk", program=meter.program, cwd=folder, env=meter.env)
            followers.append(asyncio.create_task(follow(live)))
            await asyncio.sleep(0)
        meter.start_agents()
        await asyncio.sleep(meter.seconds_until())
        meter.begin()
        await asyncio.sleep(meter.seconds_until(meter.seconds * 1e9))
        meter.end()
        return await asyncio.gather(*followers)

    os.environ["XDG_DATA_HOME"] = folder
    verdicts = set(asyncio.run(follow_all()))
    meter.tail = -meter.seconds_until((meter.seconds + 1) * 1e9)
    if verdicts != {"success"}:
        raise SystemExit(f"WRONG: verdicts of the runs: {verdicts}")


# --- claude-agent-sdk


def sdk(meter: Meter, folder: str) -> None:
    """The transport of claude-agent-sdk: process and JSON, without recording or report."""
    follow_transports(meter, folder, lambda message: None)


def parsed(meter: Meter, folder: str) -> None:
    """The same, and its typed messages."""
    parser = importlib.import_module("claude_agent_sdk._internal.message_parser")
    follow_transports(meter, folder, parser.parse_message)


def follow_transports(meter: Meter, folder: str, parse: Callable[[dict[str, Any]], Any]) -> None:
    """All transports in one asyncio event loop."""
    package = importlib.import_module("claude_agent_sdk")
    transport = importlib.import_module("claude_agent_sdk._internal.transport.subprocess_cli")

    async def read(connection: Any) -> None:
        async for message in connection.read_messages():
            parse(message)
            if meter.is_measuring:
                meter.lines += 1
            if message["type"] == "assistant":
                block = message["message"]["content"][0]
                if block["type"] == "text":
                    meter.add_text(block["text"])

    async def call_after(seconds: float, callback: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        callback()

    async def follow_all() -> None:
        options = package.ClaudeAgentOptions(cli_path=meter.program, cwd=folder, env=meter.env)
        connections = [
            transport.SubprocessCLITransport(prompt="talk", options=options)
            for _ in range(meter.runs)
        ]
        readers = []
        for connection in connections:
            await connection.connect()
            readers.append(asyncio.create_task(read(connection)))
        meter.start_agents()
        await asyncio.gather(
            call_after(meter.seconds_until(), meter.begin),
            call_after(meter.seconds_until(meter.seconds * 1e9), meter.end),
            *readers,
        )
        for connection in connections:
            await connection.close()

    os.environ["CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK"] = "1"
    asyncio.run(follow_all())


FOLLOWERS: dict[str, Callable[[Meter, str], None]] = {
    "steno": steno,
    "booked": booked,
    "library": library,
    "sdk": sdk,
    "parsed": parsed,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Follow many agents at once, print the cost.")
    parser.add_argument("follower", choices=FOLLOWERS)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=50, help="lines per second and run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(options, folder)
        program = Path(meter.program)
        program.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -ISE {shlex.quote(str(TALKER))} "$@"\n'
        )
        program.chmod(0o755)
        try:
            FOLLOWERS[options.follower](meter, folder)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("claude_agent_sdk"):
                raise
            return MISSING
    print(json.dumps(meter.figures()), flush=True)
    os._exit(0)  # skips the clean-up of libraries, which is not measured


if __name__ == "__main__":
    sys.exit(main())
