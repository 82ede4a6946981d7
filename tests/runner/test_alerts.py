"""Alerts: levels of the context and of a budget, as lines, events and for hooks."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import event as ev
from steno.runner.setup import RunBudget, TaskSetup
from steno.views.timeline import alert_text
from tests.runner.test_task import BROKEN, DONE, ONCE, WAITS, Play, Step, out, play
from tests.runner.test_watch import Place
from tests.support.claude_lines import (
    Json,
    assistant,
    hello,
    init,
    result,
    stream,
    system,
    text,
    usage,
)
from tests.support.tasks import carried, carry_out

__all__ = ["play"]  # a fixture

WINDOW = 1_000_000
COMPACTED = system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 960_000})


def filled(share: float, message: str, parent: str | None = None) -> Json:
    """An answer to a request that fills a share of the window."""
    used = usage(0, 0, round(share * WINDOW), 10)
    return assistant(text("word"), message=message, used=used, parent=parent)


# A subagent has its own window; a level is reached once, and again after a compaction.
LINES = (
    init(),
    filled(0.5, "msg_1"),
    filled(0.99, "msg_2", parent="toolu_1"),
    filled(0.72, "msg_3"),
    filled(0.69, "msg_4"),
    filled(0.73, "msg_5"),
    filled(0.96, "msg_6"),
    COMPACTED,
    filled(0.2, "msg_7"),
    filled(0.71, "msg_8"),
    result(),
)
LEVELS = [(0.7, 720_000), (0.8, 960_000), (0.95, 960_000), (0.7, 710_000)]
# Of two levels reached at once, the lower one is for hooks only.
SAID = [
    "context 72% full (720k of 1.00M tokens; alert at 70%)",
    "context 96% full (960k of 1.00M tokens; alert at 95%)",
    "context 71% full (710k of 1.00M tokens; alert at 70%)",
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def alerts(events: Iterable[ev.Event]) -> list[ev.Alert]:
    return [event for event in events if isinstance(event, ev.Alert)]


def levels(events: Iterable[ev.Event]) -> list[tuple[float, float]]:
    return [(alert.level, alert.used) for alert in alerts(events)]


def said(stderr: bytes) -> list[str]:
    """The lines about the context."""
    lines = [line.removeprefix("steno: ") for line in stderr.decode().splitlines()]
    return [line for line in lines if line.startswith("context ") and "alert" in line]


# -- watch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--record",), ("--json-events", "events.jsonl")])
def test_watch_prints_a_line_for_each_level(place: Place, options: tuple[str, ...]) -> None:
    """With and without event objects for every line."""
    done = place.run(stream(*LINES), "watch", *options)
    assert (done.stdout, said(done.stderr)) == (stream(*LINES), SAID)


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_watch_writes_events(place: Place, quiet: tuple[str, ...]) -> None:
    """Also without a report."""
    done = place.run(stream(*LINES), "watch", "--json-events", "events.jsonl", *quiet)
    written = map(json.loads, (place.folder / "events.jsonl").read_bytes().splitlines())
    found = [
        (event["level"], event["used"])
        for event in written
        if event["event"] == "alert" and (event["kind"], event["limit"]) == ("context", WINDOW)
    ]
    assert (done.returncode, found) == (0, LEVELS)


def test_a_recording_of_watch_has_them(place: Place) -> None:
    """`show` and `logs` need no levels."""
    place.run(stream(*LINES), "watch", "--record", "--alert-at", "90%")
    (recording,) = place.data.glob("**/*.steno")
    assert levels(steno.events(recording)) == [(0.9, 960_000)]
    shown = place.run(b"", "logs", str(recording)).stdout.decode()
    assert "alert     context 96% full (960k of 1.00M tokens; alert at 90%)" in shown


def test_a_replayed_recording_gives_the_same(place: Place) -> None:
    """Recorded alerts are not replayed: they come again from the same bytes."""
    place.run(stream(*LINES), "watch", "--record")
    (recording,) = place.data.glob("**/*.steno")
    words = ("run", "--agent", "replay", "--recording", str(recording), "--speed", "0", "x")
    done = place.run(b"", *words)
    assert said(done.stderr) == SAID
    assert [levels(steno.events(path)) for path in place.data.glob("**/*.steno")] == [LEVELS] * 2


def test_quiet_prints_the_last_level(place: Place) -> None:
    """It is a warning; the others are not."""
    place.run(stream(*LINES), "watch", "--record")
    (recording,) = place.data.glob("**/*.steno")
    words = ("run", "--agent", "replay", "--recording", str(recording), "--speed", "0", "x")
    done = place.run(b"", *words, "--quiet")
    assert said(done.stderr) == [SAID[1]]


def test_hooks_match_the_kind_or_the_level(place: Place) -> None:
    for event, expected in (
        ("alert:0.95", ["context 0.95"]),
        ("alert:context", ["context 0.7", "context 0.8", "context 0.95", "context 0.7"]),
        ("alert:cost", []),
    ):
        done = place.run(stream(*LINES), "watch", "-q", "--on", event, "echo {kind} {level}")
        assert done.stderr.decode().splitlines() == expected


@pytest.mark.parametrize("given", ["option", "variable", "file"])
def test_levels_of_watch(place: Place, given: str) -> None:
    options: tuple[str, ...] = ()
    if given == "option":
        options = ("--alert-at", "0.9")
    elif given == "variable":
        place.environment["STENO_ALERT_AT"] = "0.9"
    else:
        (place.folder / "steno.toml").write_text("alert_at = [0.9]\n")
    done = place.run(stream(*LINES), "watch", *options)
    assert said(done.stderr) == ["context 96% full (960k of 1.00M tokens; alert at 90%)"]


def test_levels_that_are_none(place: Place) -> None:
    assert said(place.run(stream(*LINES), "watch", "--alert-at", "off").stderr) == []
    wrong = place.run(stream(*LINES), "watch", "--alert-at", "2")
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert b"--alert-at: expected fractions between 0 and 1" in wrong.stderr


def test_invalid_settings_do_not_stop_the_stream(place: Place) -> None:
    """The levels are then the default."""
    (place.folder / "steno.toml").write_text("alert_at = 7\n")
    done = place.run(stream(*LINES), "watch")
    assert (done.returncode, done.stdout, said(done.stderr)) == (0, stream(*LINES), SAID)
    assert b"steno: settings ignored: " in done.stderr


def test_an_assumed_window_is_named() -> None:
    alert = ev.Alert(0, None, None, None, "context", 0.725, 150_000, 200_000, True)
    expected = "context 75% full (150k of 200k tokens, window assumed; alert at 72.5%)"
    assert alert_text(alert) == expected


# -- run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
def test_a_run_has_them_live_and_replayed(play: Play, grouped: bool) -> None:
    """However the output is grouped, and without a result."""
    steps = [out(*LINES)] if grouped else [out(line) for line in LINES]
    done = carry_out(play(steps))
    recording = done.runs[0].recording_path
    assert recording is not None
    assert levels(done.events) == LEVELS
    assert alerts(steno.events(recording)) == alerts(done.events)


def test_levels_of_a_run(play: Play) -> None:
    assert levels(carry_out(play([out(*LINES)], alert_at=(0.9,))).events) == [(0.9, 960_000)]
    assert levels(carry_out(play([out(*LINES)], alert_at=())).events) == []


def test_a_budget_is_that_of_all_attempts(play: Play) -> None:
    """Half of it is reached in the second attempt; the third has nothing to add."""
    done = carry_out(
        play([BROKEN], [BROKEN], [DONE], budget=RunBudget(tokens=84_000, cost=5.0, warn_at=0.5))
    )
    assert done.verdicts == ["api", "api", "success"]
    assert [(alert.kind, alert.level) for alert in alerts(done.events)] == [("tokens", 0.5)]
    assert alerts(steno.events(done.runs[1].recording_path or "")) == alerts(done.events)


def test_a_cost_budget(play: Play) -> None:
    """In dollars."""
    done = carry_out(play([out(*hello())], budget=RunBudget(cost=0.012, warn_at=0.5)))
    (alert,) = alerts(done.events)
    assert (alert.kind, alert.limit) == ("cost", 0.012)
    assert alert_text(alert).startswith("cost budget ")
    assert alert_text(alert).endswith(" of $0.0120; alert at 50%)")


# -- session files -------------------------------------------------------------------------------

THREAD = "01a3c1f2-0000-7000-8000-000000000001"
ROLLOUT = f"sessions/2026/11/16/rollout-2026-11-16T10-00-00-{THREAD}.jsonl"


def rollout(*payloads: tuple[str, Json]) -> bytes:
    """Lines of a Codex session file, later than every run in these tests."""
    return stream(
        *(
            {"timestamp": "2999-01-01T00:00:00.000Z", "type": kind, "payload": payload}
            for kind, payload in payloads
        )
    )


def requested(total: int) -> tuple[str, Json]:
    """A request of 100,000 tokens, after which the thread has a total."""
    last = {"input_tokens": 99_000, "cached_input_tokens": 0, "output_tokens": 1000}
    sums = {name: count * total // 100_000 for name, count in last.items()}
    counts = {
        "last_token_usage": {**last, "total_tokens": 100_000},
        "total_token_usage": {**sums, "total_tokens": total},
    }
    return "event_msg", {"type": "token_count", "info": {**counts, "model_context_window": 120_000}}


ANSWER = ("response_item", {"type": "message", "role": "assistant", "content": []})
BEGUN = ("event_msg", {"type": "task_started", "turn_id": "turn_1"})
META = ("session_meta", {"id": THREAD, "cli_version": "0.166.0", "cwd": "/srv"})
STREAM = (
    {"type": "thread.started", "thread_id": THREAD},
    {"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": "Yes."}},
)


def codex(play: Play, tmp_path: Path, steps: list[Step], **more: Any) -> TaskSetup:
    """A task of a scripted Codex whose session files are in an own folder."""
    home = tmp_path / "codex"
    (home / ROLLOUT).parent.mkdir(parents=True)
    env = {"CODEX_HOME": str(home)}
    return play(steps, agent="codex", extra_env=env, policy=ONCE, **more)


def test_a_session_file_is_followed_while_it_grows(play: Play, tmp_path: Path) -> None:
    """Lines are read when they are complete, and repeated ones count once."""
    setup = codex(play, tmp_path, [out(*STREAM), WAITS], budget=RunBudget(tokens=250_000))
    file = tmp_path / "codex" / ROLLOUT
    lines = rollout(
        META, BEGUN, ANSWER, requested(100_000), requested(100_000), ANSWER, requested(200_000)
    )
    with carried(setup) as done:
        done.until(lambda: bool(done.events))
        file.write_bytes(lines[:-20])
        done.until(lambda: done.runs[0].spend.tokens > 0)
        assert done.runs[0].spend.tokens == 100_000
        assert levels(done.events) == [(0.7, 99_000), (0.8, 99_000)]
        with file.open("ab") as more:
            more.write(lines[-20:])
        done.until(lambda: done.runs[0].spend.tokens > 100_000)
        assert done.task.report is None
        with file.open("ab") as more:
            more.write(rollout(ANSWER, requested(300_000)))
        done.finish()
    assert done.verdicts == ["max_budget"]
    kinds = [alert.kind for alert in alerts(done.events)]
    assert (kinds, done.report.tokens.total) == (["context", "context", "tokens"], 300_000)


def test_earlier_runs_of_a_session_do_not_count(play: Play, tmp_path: Path) -> None:
    setup = codex(play, tmp_path, [out(*STREAM), WAITS], budget=RunBudget(tokens=150_000))
    old = rollout(META, ANSWER, requested(100_000), requested(200_000)).replace(b"2999", b"2020")
    (tmp_path / "codex" / ROLLOUT).write_bytes(old + rollout(ANSWER, requested(300_000)))
    with carried(setup) as done:
        done.until(lambda: bool(done.runs) and done.runs[0].spend.tokens > 0)
        assert done.runs[0].spend.tokens == 100_000
        done.task.stop("interrupted")
        done.finish()
    assert done.verdicts == ["interrupted"]
