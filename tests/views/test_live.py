"""The display of an active run: live line, plain lines, event lines, summary."""

import fcntl
import io
import os
import pty
import re
import struct
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import TextIO

import pytest

from steno import event as ev
from steno.agents import CLAUDE, Agent
from steno.analysis.accumulator import Accumulator
from steno.analysis.live_state import LiveState
from steno.recording.parse import RunParser
from steno.report import TaskReport
from steno.runner.task_report import merge_reports
from steno.views.formatting import width
from steno.views.live import (
    CLEAR_TO_END,
    EventFeed,
    LiveDisplay,
    LiveFigures,
    format_clock,
    live_line,
    waiting_line,
)
from steno.views.summary import task_summary
from steno.views.table import PageStyle
from tests.support.claude_lines import (
    MODEL,
    answer,
    assistant,
    call,
    dump,
    hello,
    init,
    report,
    result,
    system,
    text,
    usage,
    user,
    worked,
)
from tests.views.test_rendering import PAYLOAD, is_safe

PLAIN, COLOURS = PageStyle(), PageStyle(80, 80, True)
SPENT = LiveFigures(42212, 22_100_000, 84.2, 12.0, 1)
AT = datetime(2026, 11, 15, 12, 0, 0, tzinfo=timezone.utc)


class Spent:
    tokens, cost_nano = 42212, 22_100_000


class Process:
    started, last_output_at = 100.0, 172.2


class Run:
    def __init__(self, name: str = "run1") -> None:
        self.id = name
        self.agent: Agent = CLAUDE
        self.accumulator = self.usage_accumulator = Accumulator(CLAUDE)
        self.spend, self.child = Spent(), Process()
        self.awaits_permission = False


def show(screen: LiveDisplay, run: Run, events: list[ev.Event]) -> None:
    """Pass events to the accumulator and the display, as a task does."""
    run.accumulator.add(events)
    screen.on_events(run, events)


def events(*lines: object) -> list[ev.Event]:
    reading = RunParser(CLAUDE, "stream")
    return [
        event
        for line in lines
        for event in reading.parse_line(line if isinstance(line, bytes) else dump(line))
    ]


def seen(*lines: object, more: tuple[ev.Event, ...] = ()) -> LiveState:
    """The state of a run that has printed these lines."""
    accumulator = Accumulator(CLAUDE)
    accumulator.add(events(*lines))
    accumulator.add(more)
    return LiveState(accumulator)


RUNNING = (init(), assistant(call("t1", "Bash", command="npm test -- --watch=false")))


# -- the line -----------------------------------------------------------------------------------

STATES = [
    (seen(), LiveFigures(elapsed=2.4), "starting · 0:02"),
    (seen(init()), LiveFigures(elapsed=2.4), "thinking · 0:02"),
    (seen(init()), LiveFigures(elapsed=2.4, attempt=2), "thinking · attempt 2 · 0:02"),
    (
        seen(*RUNNING),
        SPENT,
        "running Bash npm test -- --watch=false · turn 1 · 42.2k tokens · $0.0221"
        " · █░░░░░░░ 2% used · 1:24 · silent 0:12 · 98% HP",
    ),
    (
        seen(*RUNNING, assistant(call("t2", "Read", file_path="/srv/a.py"))),
        LiveFigures(elapsed=3700),
        "running Read (+1) /srv/a.py · turn 1 · █░░░░░░░ 2% used · 1:01:40 · 98% HP",
    ),
    (
        seen(init(cwd="/srv/app"), assistant(call("t2", "Read", file_path="/srv/app/src/a.py"))),
        LiveFigures(elapsed=3),
        "running Read src/a.py · turn 1 · █░░░░░░░ 2% used · 0:03 · 98% HP",
    ),
    (
        seen(*RUNNING, answer("t1")),
        LiveFigures(elapsed=9),
        "thinking · turn 1 · █░░░░░░░ 2% used · 0:09 · 98% HP",
    ),
    (
        seen(
            system(
                "api_retry",
                attempt=2,
                max_retries=10,
                retry_delay_ms=4000,
                error_status=529,
                error="overloaded",
            )
        ),
        LiveFigures(elapsed=9, silence=2.9),
        "retrying 2 of 10: 529 overloaded, waiting 4.0 s · 0:09",
    ),
    (
        seen(
            system(
                "api_retry",
                attempt=2,
                max_retries=10,
                retry_delay_ms=4000,
                error_status=529,
                error="overloaded",
            ),
            assistant(text("There I am.")),
        ),
        LiveFigures(elapsed=9),
        "thinking · turn 1 · █░░░░░░░ 2% used · 0:09 · 98% HP",
    ),
    (seen(*hello()), LiveFigures(elapsed=9), "closing · turn 1 · █░░░░░░░ 2% used · 0:09 · 98% HP"),
    (
        seen(*hello(), assistant(text("Again."), message="msg_2")),
        LiveFigures(elapsed=9),
        "thinking · turn 2 · █░░░░░░░ 2% used · 0:09 · 98% HP",
    ),
    (
        seen(*RUNNING, more=(ev.StopRequested(0, None, None, None, "timeout", 2),)),
        LiveFigures(elapsed=9),
        "stopping timeout · turn 1 · █░░░░░░░ 2% used · 0:09 · 98% HP",
    ),
    (
        seen(init(), assistant(text("x"), used=usage(3, 0, 900_000))),
        LiveFigures(1000, None, 9),
        "thinking · turn 1 · 1.00k tokens · ███████░ 90% used · 0:09 · 10% HP",
    ),
    (
        seen(
            init(),
            assistant(text("x")),
            system("compact_boundary", compact_metadata={"pre_tokens": 90, "post_tokens": 2517}),
        ),
        LiveFigures(elapsed=9),
        "thinking · turn 1 · █░░░░░░░ 0% used · 0:09 · 100% HP",
    ),
    (
        seen(
            init(),
            assistant(text("x"), parent="t9"),
            assistant(text("y"), parent="t9", message="msg_2"),
        ),
        LiveFigures(elapsed=9),
        "thinking · 0:09",  # requests and context of a subagent are not counted
    ),
]


@pytest.mark.parametrize(
    ("state", "figures", "shown"),
    STATES,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_r_the_line_says_what_the_run_is_doing(
    state: LiveState, figures: LiveFigures, shown: str
) -> None:
    assert live_line(state, figures, PLAIN, 200) == shown


NARROW = [
    (
        100,
        "running Bash npm test -- --watc… · turn 1 · $0.0221"
        " · █░░░░░░░ 2% used · 1:24 · silent 0:12 · 98% HP",
    ),
    (80, "running Bash npm test -- --wat… · turn 1 · $0.0221 · 1:24 · silent 0:12 · 98% HP"),
    (60, "running Bash npm test -- --w… · $0.0221 · 1:24 · silent 0:12"),
    (40, "running Bash npm test -- --watch… · 1:24"),
    (20, "running Bash npm te…"),
    (4, "run…"),
]


@pytest.mark.parametrize(("columns", "shown"), NARROW)
def test_r_what_matters_least_goes_first(columns: int, shown: str) -> None:
    assert live_line(seen(*RUNNING), SPENT, PLAIN, columns) == shown


@pytest.mark.parametrize("columns", range(2, 140))
@pytest.mark.parametrize("style", [PLAIN, COLOURS], ids=["plain", "colours"])
def test_r_no_line_is_wider_than_the_terminal(columns: int, style: PageStyle) -> None:
    wide = (init(), assistant(call("t1", "世界" * 30, command="界" * 200 + PAYLOAD)))
    for state in (seen(*RUNNING), seen(*wide), seen(*hello()), seen()):
        text = live_line(state, LiveFigures(10**12, 10**15, 10**6, 10**6, 99), style, columns)
        assert width(re.sub(r"\x1b\[[\d;]*m", "", text)) <= columns


def test_x_an_agents_words_cannot_move_the_cursor() -> None:
    lines = (init(), assistant(call("t1", f"Bash{PAYLOAD}", command=PAYLOAD)))
    assert is_safe(live_line(seen(*lines), SPENT, PLAIN, 500))
    assert is_safe(waiting_line(5.0, PAYLOAD, PLAIN, 500))


def test_a_wait_is_counted_down() -> None:
    assert (
        waiting_line(3700, "rate_limit: until 15:00", PLAIN, 80)
        == "waiting 1:01:40 rate_limit: until 15:00"
    )
    assert waiting_line(None, "", PLAIN, 80) == "waiting"
    assert [format_clock(seconds) for seconds in (-1, 0, 59.9, 60, 3599, 3600)] == [
        "0:00",
        "0:00",
        "0:59",
        "1:00",
        "59:59",
        "1:00:00",
    ]


# -- a terminal ---------------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal whose output can be read."""

    def __init__(self, columns: int, encoding: str = "utf-8") -> None:
        self.ours, theirs = pty.openpty()
        self.resize(columns)
        self.stream: TextIO = open(  # noqa: PTH123, SIM115 - a descriptor; closed by close()
            theirs, "w", encoding=encoding, errors="backslashreplace", newline=""
        )

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self) -> str:
        """The output since the last call; a marker shows where it ends."""
        self.stream.write("\x1e")
        self.stream.flush()
        data = b""
        while not data.endswith(b"\x1e"):
            data += os.read(self.ours, 1 << 16)
        return data[:-1].decode().replace("\r\n", "\n")

    def gone(self) -> None:
        """Close the window."""
        os.close(self.ours)
        self.ours = -1

    def close(self) -> None:
        with suppress(OSError):  # buffered output of a closed window
            self.stream.close()
        if self.ours >= 0:
            os.close(self.ours)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Terminal]]:
    monkeypatch.setenv("TERM", "xterm-256color")
    made: list[Terminal] = []

    def make(columns: int, encoding: str = "utf-8") -> Terminal:
        made.append(Terminal(columns, encoding))
        return made[-1]

    yield make
    for opened in made:
        opened.close()


def test_r_the_live_line_stays_one_line(terminal: Callable[..., Terminal]) -> None:
    """Redrawn in place on a change, within the current width; the cursor stays at its start."""
    on = terminal(60)
    screen = LiveDisplay(PLAIN, on.stream)
    show(screen, Run(), events(*RUNNING))
    screen.refresh(184.2)
    assert (
        on.read() == f"{CLEAR_TO_END}running Bash npm test -- --… · $0.0221 · 1:24 · silent 0:12\r"
    )
    screen.refresh(184.2)
    assert on.read() == ""
    on.resize(30)
    screen.refresh(184.2)
    assert on.read() == f"{CLEAR_TO_END}running Bash npm test -- --w…\r"


def test_r_messages_are_above_the_live_line(terminal: Callable[..., Terminal]) -> None:
    on = terminal(60)
    screen = LiveDisplay(PLAIN, on.stream)
    screen.refresh(100.0)
    screen.say(f"resume: more {PAYLOAD}")
    shown = on.read()
    assert shown.startswith(f"{CLEAR_TO_END}starting · 0:00\r{CLEAR_TO_END}steno: resume: more ")
    assert shown.endswith("\nstarting · 0:00\r")
    assert is_safe(re.sub(r"\r\x1b\[J|[\r\n]", "", shown))
    screen.clear()
    assert on.read() == CLEAR_TO_END
    screen.refresh(101.0)
    assert on.read() == f"{CLEAR_TO_END}starting · 0:00\r"


def test_r_between_two_attempts_it_waits(terminal: Callable[..., Terminal]) -> None:
    on = terminal(60)
    screen = LiveDisplay(PLAIN, on.stream)
    show(screen, Run(), [ev.Exited(0, None, None, None, 1)])
    screen.say("rate_limit: it resets at 15:00")
    show(
        screen,
        Run(),
        [ev.Notice(0, None, None, None, "note", "resume: rate_limit: it resets at 15:00")],
    )
    on.read()
    screen.refresh(184.2, 62.0)
    assert on.read() == f"{CLEAR_TO_END}waiting 1:02 rate_limit: it resets at 15:00\r"
    show(screen, Run("run2"), events(init()))
    screen.refresh(184.2)
    assert on.read() == f"{CLEAR_TO_END}thinking · attempt 2 · $0.0221 · 1:24 · silent 0:12\r"


def test_r_the_summary_ends_with_the_command(terminal: Callable[..., Terminal]) -> None:
    on = terminal(60)
    screen = LiveDisplay(PLAIN, on.stream)
    screen.refresh(100.0)
    on.read()
    command = "steno run --resume 11111111-2222-4333-8444-555555555555 --max-turns 20 'go on'"
    screen.print_summary(ended(), command)
    shown = on.read()
    assert shown.startswith(f"{CLEAR_TO_END}success  ")
    assert shown.endswith(f"\ncontinue   {command}\n")


def test_a_terminal_without_our_letters_gets_others(terminal: Callable[..., Terminal]) -> None:
    on = terminal(60, "ascii")
    screen = LiveDisplay(PLAIN, on.stream)
    show(
        screen,
        Run(),
        events(init(), assistant(call("t1", "Bash", command="grüße 世界 " + "e\u0301" * 60))),
    )
    screen.refresh(184.2)
    shown = on.read().removeprefix(CLEAR_TO_END).removesuffix("\r")
    assert shown.startswith("running Bash gr??e ?? ")
    assert shown.isascii()
    assert len(shown) <= 59


@pytest.mark.parametrize("kind", ["dumb", ""])
def test_a_dumb_terminal_gets_plain_lines(
    kind: str, terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = terminal(60)
    monkeypatch.setenv("TERM", kind)
    screen = LiveDisplay(PLAIN, on.stream)
    show(screen, Run(), events(*RUNNING))
    screen.refresh(184.2)
    assert on.read() == f"steno: started: {MODEL}, session 11111111-2222-4333-8444-555555555555\n"


def test_a_terminal_that_went_away_is_left_alone(terminal: Callable[..., Terminal]) -> None:
    on = terminal(60)
    screen = LiveDisplay(PLAIN, on.stream)
    screen.refresh(100.0)
    on.gone()
    for now in range(5):
        screen.refresh(200.0 + now)
        screen.say("something")
    screen.print_summary(ended())


# -- no terminal --------------------------------------------------------------------------------


def ended() -> TaskReport:
    """The report of a finished task."""
    return merge_reports([report(*worked())], ["done"], "task1")


def output(*batches: list[ev.Event], feed: bool = False, quiet: bool = False) -> str:
    """What is written without a terminal."""
    stream = io.StringIO()
    screen = LiveDisplay(PLAIN, stream, feed, quiet)
    for number, batch in enumerate(batches, 1):
        show(screen, Run(f"run{number}"), batch)
        screen.refresh(184.2)
    return stream.getvalue()


def test_r_without_a_terminal_only_changes_are_printed() -> None:
    stop = ev.StopRequested(0, None, None, None, "timeout", 15)
    again = events(init(), init())
    notes = [
        ev.Notice(0, None, None, None, "note", text)
        for text in ("budget: 80% spent", "stopped: done")
    ]
    assert output([*events(*worked()), stop, *notes], again) == (
        f"steno: started: {MODEL}, session 11111111-2222-4333-8444-555555555555\n"
        "steno: timeout; sent SIGTERM\n"
        "steno: budget: 80% spent\n"
        f"steno: started: {MODEL}, session 11111111-2222-4333-8444-555555555555\n"
    )


def test_r_quiet_prints_nothing() -> None:
    assert output(events(*worked()), feed=True, quiet=True) == ""
    LiveDisplay(PLAIN, None).print_summary(ended(), "x")


def test_r_what_was_said_is_not_said_twice() -> None:
    stream = io.StringIO()
    screen = LiveDisplay(PLAIN, stream)
    screen.say("max_turns: 20 turns next")
    show(
        screen, Run(), [ev.Notice(0, None, None, None, "note", "resume: max_turns: 20 turns next")]
    )
    assert stream.getvalue() == "steno: max_turns: 20 turns next\n"


def test_r_the_attempts_are_listed() -> None:
    stream = io.StringIO()
    one = report(*worked())
    LiveDisplay(PLAIN, stream).print_summary(
        merge_reports([one, one], ["resume: more turns", "done"], "task1"), None
    )
    assert stream.getvalue().endswith(
        "\nattempts   1. success · 4 turns · $0.0555 · 120 ms → resume: more turns\n"
        "           2. success · 4 turns · $0.0555 · 120 ms → done\n"
    )


# -- event lines --------------------------------------------------------------------------------


def test_r_the_log_shows_the_run() -> None:
    assert output(events(*worked()), feed=True) == (
        "          started   claude-opus-5-5 in /srv/project\n"
        "          text      I will write it.\n"
        "          call      Write: /srv/project/notes.txt\n"
        "          ok        Write\n"
        "          file      created: /srv/project/notes.txt\n"
        "          call      Bash: wc -l notes.txt\n"
        "          ok        Bash\n"
        "          call      Task: Look around\n"
        "            text      I see one file.\n"
        "          ok        Task\n"
        "          task      completed: Look around\n"
        "          text      All is done — naïvely ✓\n"
        "          result    success, turns 4, 120 ms, $0.0555\n"
    )


def test_r_the_feed_has_a_clock_and_whole_answers() -> None:
    feed = EventFeed(PageStyle(50, 50))
    said = ev.Text(
        3,
        None,
        None,
        AT.replace(minute=1),
        "m",
        "One two three four five six seven eight.\n\nNine.",
    )
    note = ev.Notice(0, None, None, AT.replace(hour=13), "note", "resume: more")
    lines = [
        one
        for event in (ev.Started(1, None, None, AT, model=MODEL), said, note)
        for one in feed.lines(event)
    ]
    assert lines == [
        "    0:00  started   claude-opus-5-5 in unknown fo…",
        "    1:00  text      One two three four five six",
        "                    seven eight.",
        "",
        "                    Nine.",
        " 1:00:00  steno     resume: more",
    ]
    long = feed.lines(ev.Text(3, None, None, AT, "m", "word\n" * 100))
    assert (len(long), long[-1].strip()) == (41, "…")


def test_x_the_feed_is_safe() -> None:
    lines = (
        init(model=PAYLOAD),
        assistant(text(PAYLOAD)),
        assistant(call("t1", PAYLOAD, command=PAYLOAD)),
        answer("t1", PAYLOAD, True),
        user(PAYLOAD),
        result(PAYLOAD, is_error=True, subtype=PAYLOAD),
        PAYLOAD.encode("utf-8", "replace"),
    )
    note = ev.Notice(0, None, None, None, "note", PAYLOAD)
    for one in output(
        [*events(*lines), note, ev.Stderr(0, None, None, None, PAYLOAD)], feed=True
    ).splitlines():
        assert is_safe(one)


def test_without_a_terminal_a_line_shows_at_least_every_minute() -> None:
    """A line of the run itself counts; nothing is printed at the start."""
    stream = io.StringIO()
    screen = LiveDisplay(PLAIN, stream)
    for now in range(0, 200, 5):
        if now == 120:
            screen.say("a message")
        screen.refresh(float(now))
    assert stream.getvalue().splitlines() == [
        "steno: starting · 0:00",
        "steno: starting · 0:00",
        "steno: a message",
        "steno: starting · 0:00",
    ]


def test_the_answer_can_be_left_out_of_the_summary() -> None:
    report = TaskReport(verdict="success", text="Forty-two.", run_id="3f9a21c0aa")
    whole = "\n".join(task_summary(report, None, PLAIN))
    short = "\n".join(task_summary(report, None, PLAIN, with_answer=False))
    assert ("answer     Forty-two." in whole, "Forty-two." in short) == (True, False)
    assert "run id     3f9a21c0aa" in short
