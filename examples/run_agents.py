"""Run an agent from a program: one after another, several at once, and with its events while it runs.

    python examples/run_agents.py

Here a recording is played as if it were the agent, so that nothing is spent. Leave out RECORDED, and Claude Code is run;
`agent="codex"` and so on runs another one.
"""

import asyncio
import sys

import steno
from steno.event import Text, ToolCall

RECORDED: steno.RunOptions = {"agent": "replay", "tape": "src/steno/demo/finished", "speed": 0}


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(f"{text}\n")


def one() -> steno.TaskReport:
    """Wait for it. How it fails is in the report, and never raises."""
    return steno.run("tidy up the project", **RECORDED)


async def several() -> list[steno.TaskReport]:
    """Three at once. Whoever cancels this ends them in order, and waits for that."""
    return list(
        await asyncio.gather(
            *(steno.arun(f"tidy up part {number}", **RECORDED) for number in range(3))
        )
    )


def followed(most: int) -> steno.TaskReport | None:
    """Event by event; after so many tool calls it has done enough. Leaving the `with` ends a run that still goes on."""
    calls = 0
    with steno.stream("tidy up the project", **RECORDED) as live:
        for event in live:
            if isinstance(event, ToolCall):
                calls += 1
                say(f"  {event.name} {steno.decode_raw(event.input)}")
                if calls > most:
                    live.stop()  # the events of its end still come
    return live.report


async def followed_without_blocking() -> steno.TaskReport | None:
    """The same in an event loop."""
    async with steno.stream("tidy up the project", **RECORDED) as live:
        async for event in live:
            if isinstance(event, Text):
                say(f"  {event.text}")
    return live.report


def main() -> int:
    """All four; 0 if every run is ok."""
    reports = [
        one(),
        *asyncio.run(several()),
        followed(100),
        asyncio.run(followed_without_blocking()),
    ]
    for report in reports:
        if report is not None:
            say(
                f"{report.verdict}: {report.cost.usd} dollars, {len(report.files)} files, {report.attempts[-1].why}"
            )
    return 0 if all(report is not None and report.ok for report in reports) else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except steno.StenoError as problem:  # wrong options, or a tape that is not there
        sys.exit(f"run_agents.py: {problem}")
