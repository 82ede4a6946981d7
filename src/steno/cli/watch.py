"""What `steno watch` says while a stream passes, on stderr: a live line on a terminal, plain lines elsewhere, a card at the end.

Everything goes through a thread that writes it, so that nothing here ever waits.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from .. import agents
from .. import event as ev
from ..agents import Agent
from ..analysis.live_state import SpendTracker
from ..errors import StenoError
from ..event import Event
from ..recording.parse import RunParser
from ..report import EXIT_CODES, Report
from ..runner.passthrough import PassThrough
from ..runner.watch import BatchSink, StreamMonitor
from ..views.layout import PageStyle
from ..views.live import LiveDisplay
from .event_file import StderrWriter
from .options import CommandParser, seconds_type
from .terminal import SYNC_FAILURE_PREFIX, detect_style, is_terminal

# What is told in a line of its own; all else only moves the live line.
ANNOUNCED_EVENTS = frozenset(
    (
        ev.Started,
        ev.Retry,
        ev.RateLimit,
        ev.PermissionDenied,
        ev.Compaction,
        ev.Failure,
        ev.Malformed,
    )
)
MAX_MALFORMED_SHOWN = 20  # malformed lines that are told one by one; the card counts all of them


class StreamActivity:
    """When the stream began, and when it was last heard of."""

    def __init__(self, now: float) -> None:
        self.started = self.last_output_at = now


class StreamRun:
    """The stream, as a screen wants to see a run."""

    id = ""

    def __init__(self, reading: RunParser) -> None:
        self._reading = reading
        self.spend = SpendTracker(
            None
        )  # prices are looked up at the end: the table takes long to load
        self.child = StreamActivity(time.monotonic())

    @property
    def agent(self) -> Agent:
        return self._reading.agent


class WatchOutput:
    """The voice of `steno watch`. `news` gives further lines, whenever it is asked; `live`: a line follows every event."""

    def __init__(
        self, look: PageStyle, reading: RunParser, quiet: bool, news: Callable[[], list[str]]
    ) -> None:
        self._style, self._pending_messages, self._is_quiet = look, news, quiet
        self._run = StreamRun(reading)
        self._lock = (
            Lock()
        )  # the screen is used by whoever has something to say, and by the thread that draws
        live = not quiet and not is_terminal(
            sys.stdout
        )  # a line among the bytes themselves would be a mess
        self._stderr = StderrWriter(sys.stderr, live, self._on_idle)
        self._display = LiveDisplay(
            look, cast("TextIO", self._stderr) if sys.stderr is not None else None
        )
        self.is_live = self._stderr.isatty()
        self._malformed_count = 0  # malformed lines so far
        self._announced_denials: set[str | None] = (
            set()
        )  # calls whose refusal was told: the agent tells it several times

    # -- while the stream passes -----------------------------------------------------------------------------------

    def on_events(self, events: list[ev.Event]) -> None:
        """What has come. Elsewhere than on a terminal hardly anything of it is told."""
        if self.is_live:
            self._update_display(events)
        for event in events:
            if type(event) in ANNOUNCED_EVENTS:
                self._announce(event)

    def _update_display(self, events: list[ev.Event]) -> None:
        self._run.child.last_output_at = time.monotonic()
        for event in events:
            if type(event) is ev.Usage:
                self._run.spend.add(event)
        with self._lock:
            self._display.on_events(self._run, events)

    def _announce(self, event: ev.Event) -> None:
        if isinstance(event, ev.PermissionDenied):
            if event.call in self._announced_denials:
                return
            self._announced_denials.add(event.call)
        if isinstance(event, ev.Malformed) and not event.torn:
            self._malformed_count += 1
            if self._malformed_count > MAX_MALFORMED_SHOWN:
                return
        text = _describe(event)
        with self._lock:
            if type(event) is ev.Started and not self.is_live:
                self._display.on_events(self._run, [event])
            if text:
                self._display.say(text)

    def _on_idle(self) -> None:
        """Nothing was said for a moment: by the thread that writes."""
        self.flush_messages()
        if self.is_live:
            with self._lock:
                self._display.refresh(time.monotonic())

    def flush_messages(self) -> None:
        """Say what there is to say beside the stream; where it is to be quiet, only what failed."""
        lines = [
            line
            for line in self._pending_messages()
            if not self._is_quiet or line.startswith(SYNC_FAILURE_PREFIX)
        ]
        if lines:
            with self._lock:
                self._display.print_lines(lines)

    # -- the end ---------------------------------------------------------------------------------------------------

    def say(self, text: str, trouble: bool = False) -> None:
        """Something of our own; where it is to be quiet, only what failed."""
        if trouble or not self._is_quiet:
            with self._lock:
                self._display.say(text)

    def print_card(self, report: Report) -> None:
        """The report of the stream."""
        from ..views.summary import card

        with self._lock:
            self._display.print_lines(card(report, self._style))

    def finish(self) -> None:
        """Wait until all is written."""
        self._stderr.finish()


def _describe(event: ev.Event) -> str:
    if isinstance(event, ev.Retry):
        reason = " ".join(str(part) for part in (event.status, event.error) if part is not None)
        return f"the agent tries again ({event.attempt or '?'} of {event.limit or '?'}): {reason}"
    if isinstance(event, ev.RateLimit):
        return f"usage limit: {event.status}" if event.status not in (None, "allowed") else ""
    if isinstance(event, ev.PermissionDenied):
        return f"refused: {event.tool or 'a call'}"
    if isinstance(event, ev.Malformed):
        return f"skipping malformed line {event.line}: {event.head}" if not event.torn else ""
    if isinstance(event, ev.Compaction):
        return f"the context was compacted ({event.trigger or 'unknown'})"
    return f"failed: {event.text or event.kind}" if isinstance(event, ev.Failure) else ""


if TYPE_CHECKING:
    from ..runner.watch import StreamRecorder
    from ..runner.webhook import WebhookSender
    from ..sync import FolderSync
    from .event_file import EventFile

EXAMPLES = """examples:
  claude -p "..." --output-format stream-json --verbose | steno watch | my-tool
  ... | steno watch --quiet --json-events 3 3>events.jsonl | my-tool    what happens, for programs
  ... | steno watch --record --exit-from verdict >run.jsonl             a tape, a row in the ledger, an exit code
  ... | steno watch --sync dir:/backup --include '*.py' >run.jsonl      changed files are copied while it runs
  ... | steno watch --post-events http://127.0.0.1:8080/hook >run.jsonl

The bytes go out as they come in, before anything else is done with them. Whatever is slow or fails (a destination, an
address, a terminal, a disk) delays none of them. It ends as `cat` would: with the stream, when nobody reads any more, or by a
signal. The exit code is 0 unless --exit-from or --strict is given.
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SWITCH_INTERVAL_SECONDS = 0.0001  # seconds that another thread of ours may go on once bytes are there (Python's own: 0.005)


def run(words: list[str]) -> int:
    """Carry out `steno watch` and return its exit code."""
    options = _parse_args(words)
    return WatchCommand(options).run()


class WatchCommand:
    """A stream with all that was asked for beside it. StenoError: something of that cannot be, and no byte was passed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        agent = agents.get_agent(options.agent)
        self._pass_through = PassThrough()
        self._event_file = _open_event_file(options.json_events)
        self._webhook = _open_webhook(options.post_events)
        self._sync = _start_sync(options)
        self._recorder = _start_recorder(options, agent)
        reports = not options.quiet or options.exit_from is not None or self._recorder is not None
        self._monitor = StreamMonitor(self._pass_through, agent, reports, self._recorder)
        self._output = WatchOutput(
            detect_style(sys.stderr), self._monitor.parser, options.quiet, self._sync_messages
        )
        self._add_sinks()

    def _add_sinks(self) -> None:
        sinks = self._monitor.sinks
        if self._sync is not None:
            sinks.append(_for_each(self._sync.add_event))
        if self._webhook is not None:
            sinks.append(self._webhook.put)
        if self._event_file is not None:
            sinks.append(self._event_file.put)
        if not self._options.quiet:
            (sinks if self._output.is_live else self._monitor.filtered_sinks).append(
                self._output.on_events
            )

    def run(self) -> int:
        """Until the stream is over, and everything is said."""
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        kept = {number: signal.getsignal(number) for number in SIGNALS}
        for number, before in kept.items():
            if before != signal.SIG_IGN:
                signal.signal(number, lambda number, frame: self._pass_through.stop(number))
        signal.set_wakeup_fd(self._pass_through.wakeup_fd, warn_on_full_buffer=False)
        self._monitor.run()
        signal.set_wakeup_fd(-1)
        for (
            number,
            before,
        ) in kept.items():  # from here on a signal ends us at once, as it does by default
            if before != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        code = self._finish_outputs()
        self._output.finish()
        return self._exit(code)

    def _sync_messages(self) -> list[str]:
        return self._sync.take_messages() if self._sync is not None else []

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish_outputs(self) -> int:
        """The stream is over, and both its ends know it. What is left of our own is finished, each within its time."""
        code, say = 0, self._output.say
        if self._sync is not None:
            summary = self._sync.finish(self._output.flush_messages)
            self._output.flush_messages()
            say(summary.line(), not summary.ok)
            code = summary.exit_code(self._options.strict)
        if self._webhook is not None:
            posted = self._webhook.finish()
            say(posted.line(), posted.dropped > 0)
        if self._event_file is not None and (problem := self._event_file.finish()) is not None:
            say(problem, True)
        return self._finish_report(code)

    def _finish_report(self, code: int) -> int:
        report = self._build_report()
        troubles = [
            *self._monitor.warnings,
            *(self._recorder.warnings if self._recorder is not None else ()),
        ]
        for trouble in troubles:
            self._output.say(trouble, True)
        if report is not None and not self._options.quiet:
            self._output.print_card(report)
        if report is not None and self._options.exit_from == "verdict":
            return EXIT_CODES[report.verdict] or code
        return code

    def _build_report(self) -> Report | None:
        keep = self._recorder
        if keep is None and self._options.quiet and self._options.exit_from is None:
            return None
        from ..pricing import price

        reading = self._monitor.parser
        reading.accumulator.facts.use_heuristics = not self._options.no_advice
        report = reading.report(str(keep.recording_path) if keep is not None else "stdin", price)
        if keep is not None:
            keep.write_to_ledger(report)
            keep.close()
        return report

    def _exit(self, code: int) -> int:
        """As `cat` would end: by the signal that ended us, or by the one of a closed pipe."""
        tap = self._pass_through
        if tap.stop_signal is not None:
            _exit_by_signal(tap.stop_signal)
        if tap.is_reader_gone:
            _exit_by_signal(signal.SIGPIPE)
        if tap.problem is not None:
            raise tap.problem
        return code


def _exit_by_signal(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # it is blocked: as near as we can come


# -- what was asked for ------------------------------------------------------------------------------------------


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "watch", "Pass a stream on as it is, and tell on stderr what happens in it.", EXAMPLES
    )
    parser.add_argument(
        "--agent", metavar="NAME", help="the agent that writes it (default: told by the bytes)"
    )
    parser.add_argument(
        "--no-advice", action="store_true", help="judge without `interactive` and `background_task`"
    )
    code = "exit with the verdict's code: 0 success, 1 failed, 3 not finished, 75, 77, ... as `steno run` does"
    parser.add_argument("--exit-from", choices=("verdict",), help=code)
    _add_output_options(parser)
    _add_sync_options(parser)
    group = parser.add_argument_group("keeping")
    group.add_argument("--record", action="store_true", help="keep a tape, and a row in the ledger")
    parser.add_ledger(can_import=False)
    options = parser.parse_args(words)
    if sys.stdin is None:
        raise StenoError("stdin is closed: send an agent's stream to it")
    if is_terminal(sys.stdin):
        parser.error("nothing to watch: send an agent's stream to stdin")
    if not options.sync and any(
        getattr(options, name) != parser.get_default(name) for name in SYNC_OPTION_NAMES
    ):
        parser.error("--prefix, --include, --exclude, --delete and the like belong to --sync DEST")
    return options


def _add_output_options(parser: CommandParser) -> None:
    group = parser.add_argument_group(
        "what is told (default: what happens, and a card at the end, on stderr)"
    )
    group.add_argument("-q", "--quiet", action="store_true", help="nothing but what fails")
    where = "the events as JSON, one to a line, to a file or to a descriptor that is open (3)"
    group.add_argument("--json-events", metavar="FILE|FD", help=where)
    group.add_argument(
        "--post-events",
        metavar="URL",
        help="each event as JSON to an address, in order, with up to 10 s of tries",
    )


SYNC_OPTION_NAMES = (
    "prefix",
    "include",
    "exclude",
    "delete",
    "debounce",
    "concurrency",
    "strict",
    "final_pass",
    "dry_run",
)


def _add_sync_options(parser: CommandParser) -> None:
    group = parser.add_argument_group("copying what changes (see: steno sync --help)")
    where = "to dir:PATH, cmd:PROGRAM ARGS, http(s)://... or a URL that fsspec knows; may repeat"
    group.add_argument("--sync", metavar="DEST", action="append", default=[], help=where)
    group.add_argument(
        "--prefix",
        metavar="DIR",
        default="",
        help="only what lies below this folder, without it in its name",
    )
    group.add_argument(
        "--include",
        metavar="GLOB",
        action="append",
        default=[],
        help="only files that fit; may repeat",
    )
    group.add_argument(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help="no files that fit; may repeat",
    )
    group.add_argument("--delete", action="store_true", help="what is deleted is deleted there too")
    group.add_argument(
        "--debounce",
        metavar="SECONDS",
        type=seconds_type(3600),
        default=None,
        help="wait so long for further changes",
    )
    group.add_argument(
        "--concurrency",
        metavar="N",
        type=_parse_concurrency,
        default=None,
        help="files at the same time, for each DEST",
    )
    group.add_argument(
        "--strict", action="store_true", help="exit with 1 if a file could not be copied"
    )
    group.add_argument(
        "--final-pass", action="store_true", help="at the end, compare every file by its hash"
    )
    group.add_argument("--dry-run", action="store_true", help="only say what would be copied")


def _parse_concurrency(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 64:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 64, found {text!r}")
    return int(text)


# -- what stands beside the stream, each loaded when it is asked for -------------------------------------------------


def _open_event_file(where: str | None) -> "EventFile | None":
    if where is None:
        return None
    from .event_file import EventFile

    return EventFile(where)


def _open_webhook(url: str | None) -> "WebhookSender | None":
    if url is None:
        return None
    from ..runner.webhook import WebhookSender

    return WebhookSender(url)


def _start_sync(options: argparse.Namespace) -> "FolderSync | None":
    if not options.sync:
        return None
    from ..sync import FolderSync, SyncOptions
    from .sync import new_journal_path

    given: dict[str, Any] = {
        name: getattr(options, name)
        for name in SYNC_OPTION_NAMES
        if getattr(options, name) is not None
    }
    lists = {name: tuple(given[name]) for name in ("include", "exclude")}
    kept = str(new_journal_path())  # what failed, for `steno sync --pending`
    return FolderSync(
        None, SyncOptions(destinations=tuple(options.sync), journal=kept, **{**given, **lists})
    )


def _for_each(take: Callable[[Event], None]) -> BatchSink:
    def sink(events: list[Event]) -> None:
        for event in events:
            take(event)

    return sink


def _start_recorder(
    options: argparse.Namespace, agent: agents.Agent | None
) -> "StreamRecorder | None":
    if not options.record:
        return None
    from ..runner.watch import StreamRecorder

    return StreamRecorder(agent, options.ledger)
