"""Run an agent from a program: once, several at once, and with its events while it runs.

    python examples/run_agents.py

A recording is replayed in place of the agent, so that it costs nothing. Without REPLAY, Claude Code
is run; `agent="codex"` and so on runs another one. Recordings and ledger of this example are in a
temporary folder, so that your own ledger does not count these runs.
"""

import asyncio
import os
import sys
import tempfile

import steno
from steno.event import Text, ToolCall

REPLAY: steno.RunOptions = {"agent": "replay", "recording": "src/steno/demo/finished", "speed": 0}


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def run_one() -> steno.TaskReport:
    """Wait for one run. A failure is in the report; it never raises."""
    return steno.run("tidy up the project", **REPLAY)


async def run_several() -> list[steno.TaskReport]:
    """Run three at once. Cancelling this stops them and waits until they have ended."""
    runs = [steno.arun(f"tidy up part {number}", **REPLAY) for number in range(3)]
    return list(await asyncio.gather(*runs))


def follow(max_calls: int) -> steno.TaskReport | None:
    """Handle each event, and stop after some tool calls. Leaving the `with` stops an active run."""
    calls = 0
    with steno.stream("tidy up the project", **REPLAY) as live:
        for event in live:
            if isinstance(event, ToolCall):
                calls += 1
                show(f"  {event.name} {steno.decode_raw(event.input)}")
                if calls > max_calls:
                    live.stop()  # its last events still follow
    return live.report


async def follow_async() -> steno.TaskReport | None:
    """Handle each event in an event loop."""
    async with steno.stream("tidy up the project", **REPLAY) as live:
        async for event in live:
            if isinstance(event, Text):
                show(f"  {event.text}")
    return live.report


def main() -> int:
    reports = [
        run_one(),
        *asyncio.run(run_several()),
        follow(100),
        asyncio.run(follow_async()),
    ]
    for report in reports:
        if report is not None:
            cost, files = report.cost.usd, len(report.files)
            show(f"{report.verdict}: ${cost}, {files} files, {report.attempts[-1].why}")
    return 0 if all(report is not None and report.ok for report in reports) else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(XDG_DATA_HOME=folder, STENO_LEDGER=f"{folder}/scratch.db")
        try:
            raise SystemExit(main())
        except steno.StenoError as error:  # wrong options, or a missing recording
            sys.exit(f"run_agents.py: {error}")
