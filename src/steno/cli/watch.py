"""`steno watch`: passes an agent's stream through and reports on it.

All messages go to stderr through a thread, so that a blocked terminal never delays the stream.
"""

import argparse
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO, cast

from msgspec import structs

from .. import agents
from .. import event as ev
from ..agents import Agent
from ..analysis.accumulator import Accumulator
from ..analysis.live_state import SpendTracker
from ..config import SETTINGS_BY_NAME, load_settings
from ..errors import StenoError
from ..event import Event
from ..recording.parse import RunParser
from ..report import EXIT_CODES, Report
from ..runner.hooks import HookQueue, HookRunner
from ..runner.watch import BatchSink, PassThrough, StreamMonitor
from ..views.live import LiveDisplay
from ..views.table import PageStyle
from .ci_log import protect
from .commands import EXIT_FAILED
from .options import AGENT_HELP, NO_ADVICE_HELP, CommandParser
from .output_options import add_otel_options
from .stream_options import (
    FLUSH_TIMEOUT_SECONDS,
    EventFile,
    StderrWriter,
    add_hook_options,
    finish_hooks,
    hook_help,
    parse_hooks,
)
from .sync_options import (
    WATCH_OPTIONS,
    add_sync_destinations,
    build_sync_options,
    check_sync_options,
)
from .terminal import STOP_SIGNALS, SYNC_FAILURE_PREFIX, detect_style, exit_by_signal, is_terminal

if TYPE_CHECKING:
    from ..runner.watch import StreamRecorder
    from ..runner.webhook import WebhookSender
    from ..sync import FolderSync
    from .notify import Notifier
    from .otel import OtelOutput

WATCH_SETTINGS = ("alert_at", "otel", "otel_content", "notify", "notify_on")
# Events with a line of their own; the others only update the live line.
ANNOUNCED_EVENTS = frozenset(
    (
        ev.Started,
        ev.Retry,
        ev.RateLimit,
        ev.PermissionDenied,
        ev.Compaction,
        ev.Failure,
        ev.Malformed,
        ev.Alert,
    )
)


class StreamActivity:
    """Start and latest activity of the stream, for the live display."""

    def __init__(self, now: float) -> None:
        self.started = self.last_output_at = now


class StreamRun:
    """The stream in the form of a run, for the live display."""

    id = ""
    awaits_permission = False  # only a run that steno started can relay requests

    def __init__(self, parser: RunParser) -> None:
        self._parser = parser
        self.spend = SpendTracker(
            parser.accumulator, None
        )  # loading the price table takes too long here
        self.child = StreamActivity(time.monotonic())

    @property
    def agent(self) -> Agent:
        return self._parser.agent

    @property
    def accumulator(self) -> Accumulator:
        return self._parser.accumulator

    usage_accumulator = accumulator


class WatchOutput:
    """Everything `steno watch` prints to stderr. `take_messages` returns further lines."""

    def __init__(
        self,
        style: PageStyle,
        parser: RunParser,
        quiet: bool,
        take_messages: Callable[[], list[str]],
    ) -> None:
        self._style = style
        self._take_messages = take_messages
        self._is_quiet = quiet
        self._run = StreamRun(parser)
        self._lock = Lock()  # the display is used by this thread and the writing one
        # On a terminal, a live line would mix with the stream on stdout.
        live = not quiet and not is_terminal(sys.stdout)
        self._stderr = StderrWriter(sys.stderr, live, self._on_idle)
        self._display = LiveDisplay(
            style, cast("TextIO", self._stderr) if sys.stderr is not None else None
        )
        self.is_live = self._stderr.isatty()
        self._announced_denials: set[object] = set()  # agents report a denial several times

    def on_events(self, events: list[ev.Event]) -> None:
        """Update the live line and print important events."""
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
        text = _describe(event)
        if isinstance(event, ev.PermissionDenied):
            key = event.call or (event.tool, bytes(event.input))
            if key in self._announced_denials:
                return
            self._announced_denials.add(key)
            call = self._run.accumulator.calls.get(event.call or "")
            tool = event.tool or (call.name if call is not None else "tool call")
            text = f"permission denied: {tool}"
        with self._lock:
            if isinstance(event, ev.Started | ev.Malformed | ev.Alert) and not self.is_live:
                self._display.on_events(self._run, [event])
            if text:
                self._display.say(text)

    def _on_idle(self) -> None:
        """Called regularly by the writing thread."""
        self.flush_messages()
        if self.is_live:
            with self._lock:
                self._display.refresh(time.monotonic())

    def flush_messages(self) -> None:
        """Print pending messages; with --quiet, only failures."""
        lines = [
            line
            for line in self._take_messages()
            if not self._is_quiet or line.startswith(SYNC_FAILURE_PREFIX)
        ]
        if lines:
            with self._lock:
                self._display.print_lines(lines)

    def say(self, text: str, is_failure: bool = False) -> None:
        """Print a message; with --quiet, only failures."""
        if is_failure or not self._is_quiet:
            with self._lock:
                self._display.say(text)

    def print_summary(self, report: Report) -> None:
        from ..views.summary import card

        with self._lock:
            self._display.print_lines(card(report, self._style))

    def finish(self) -> None:
        """Wait until everything is written."""
        self._stderr.finish(FLUSH_TIMEOUT_SECONDS)


def _describe(event: ev.Event) -> str:
    if isinstance(event, ev.Retry):
        reason = " ".join(str(part) for part in (event.status, event.error) if part is not None)
        return f"agent retries ({event.attempt or '?'} of {event.limit or '?'}): {reason}"
    if isinstance(event, ev.RateLimit):
        return f"usage limit: {event.status}" if event.status not in (None, "allowed") else ""
    if isinstance(event, ev.Compaction):
        return f"context compacted ({event.trigger or 'unknown'})"
    return f"failed: {event.text or event.kind}" if isinstance(event, ev.Failure) else ""


EXAMPLES = """examples:
  claude -p "..." --output-format stream-json --verbose | steno watch | my-tool
  ... | steno watch --quiet --json-events 3 3>events.jsonl | my-tool
  ... | steno watch --record --exit-from verdict >run.jsonl          record, add to the ledger
  ... | steno watch --sync dir:/backup --include '*.py' >run.jsonl   copy changed files
  ... | steno watch --on file_change:*.py 'ruff check {path}' >run.jsonl
  ... | steno watch --once result:success 'make deploy' >run.jsonl
  ... | steno watch --otel=http://localhost:4318 --notify ntfy://my-topic >run.jsonl
  ... | steno watch --post-events http://127.0.0.1:8080/hook >run.jsonl

The stream is never delayed: not by parsing, and not by a slow or failing destination, URL, command,
terminal or disk. Like `cat`, steno watch exits at the end of its input, when stdout is closed, or
on a signal. The exit code is 0 unless --exit-from or --strict is given.

"""
SWITCH_INTERVAL_SECONDS = 0.0001  # Python's default of 0.005 would delay the stream


def run(args: list[str]) -> int:
    """Run `steno watch` and return its exit code."""
    return WatchCommand(_parse_args(args)).run()


class WatchCommand:
    """A stream with its outputs. StenoError if one cannot be opened; no byte is passed then."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        agent = agents.get_agent(options.agent)
        hooks = parse_hooks(options)
        self._pass_through = PassThrough(protect=partial(protect, sys.stdout.fileno()))
        self._event_file: EventFile | None = None
        if options.json_events is not None:
            self._event_file = EventFile(options.json_events)
        self._webhook = _open_webhook(options.post_events)
        self._sync = _start_sync(options)
        self._recorder = _start_recorder(options, agent)
        settings, problems = _watch_settings(options)
        self._senders = _create_senders(options, settings, problems)
        self._needs_report = (
            not options.quiet
            or options.exit_from is not None
            or self._recorder is not None
            or bool(self._senders)
        )
        self._monitor = StreamMonitor(
            self._pass_through,
            agent,
            self._needs_report or bool(hooks),
            self._recorder,
            settings["alert_at"],
        )
        self._monitor.warnings += problems
        parser = self._monitor.parser
        parser.accumulator.facts.use_heuristics = not options.no_advice
        folder = Path(options.cwd or ".").absolute()
        parser.accumulator.start_folder = os.path.normpath(folder)  # without following links
        self._output = WatchOutput(
            detect_style(sys.stderr), parser, options.quiet, self._sync_messages
        )
        self._hook_queue: HookQueue | None = None
        if hooks:
            self._hook_queue = HookQueue(hooks, lambda text: self._output.say(text, True))
            self._hook_runner = HookRunner(self._hook_queue, parser)
            self._monitor.sinks.append(self._hook_runner.add)
        self._add_sinks()

    def _add_sinks(self) -> None:
        sinks = self._monitor.sinks
        if self._sync is not None:
            sinks.append(_for_each(self._sync.add_event))
        if self._webhook is not None:
            sinks.append(self._webhook.put)
        if self._event_file is not None:
            sinks.append(self._event_file.put)
        sinks += [sender.add for sender in self._senders]
        if not self._options.quiet:
            (sinks if self._output.is_live else self._monitor.filtered_sinks).append(
                self._output.on_events
            )

    def run(self) -> int:
        """Pass the stream through to its end and return the exit code."""
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        numbers = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        for number in numbers:
            signal.signal(number, lambda number, frame: self._pass_through.stop(number))
        signal.set_wakeup_fd(self._pass_through.wakeup_fd, warn_on_full_buffer=False)
        self._monitor.run()
        signal.set_wakeup_fd(-1)
        for number in numbers:  # from here on a signal ends steno immediately
            has_commands = self._hook_queue is not None or self._sync is not None
            signal.signal(number, self._on_late_signal if has_commands else signal.SIG_DFL)
        code = self._finish_outputs()
        self._output.finish()
        return self._exit(code)

    def _on_late_signal(self, number: int, frame: object) -> None:
        if self._hook_queue is not None:
            self._hook_queue.kill()
        if self._sync is not None:
            self._sync.stop("interrupted", commands_only=True)
        exit_by_signal(number)

    def _sync_messages(self) -> list[str]:
        return self._sync.take_messages() if self._sync is not None else []

    def _finish_outputs(self) -> int:
        """Finish what is still pending after the stream has ended, each within its timeout."""
        code = 0
        say = self._output.say
        if self._sync is not None:
            if self._pass_through.stop_signal is not None:
                self._sync.stop("interrupted", commands_only=True)
            summary = self._sync.finish(self._output.flush_messages)
            self._output.flush_messages()
            say(summary.line(), not summary.ok)
            code = summary.exit_code(self._options.strict)
        if self._finish_hooks() and self._options.strict:
            code = EXIT_FAILED
        if self._webhook is not None:
            posted = self._webhook.finish()
            say(posted.line(), posted.dropped > 0)
        if self._event_file is not None and (error := self._event_file.finish()) is not None:
            say(error, True)
        return self._finish_report(code)

    def _finish_hooks(self) -> bool:
        """True if a command failed. A signal that ended the stream ends the commands too."""
        if self._hook_queue is None:
            return False
        if self._pass_through.stop_signal is not None:
            self._hook_queue.kill()
            return False
        self._hook_runner.finish()
        return finish_hooks(self._hook_queue, lambda text: self._output.say(text, True))

    def _finish_report(self, code: int) -> int:
        report = self._build_report()
        recorder_warnings = self._recorder.warnings if self._recorder is not None else ()
        for text in (*self._monitor.warnings, *recorder_warnings):
            self._output.say(text, True)
        if report is not None and not self._options.quiet:
            self._output.print_summary(report)
        if report is not None:
            for sender in self._senders:
                sender.finish(report, lambda text: self._output.say(text, True))
        if report is not None and self._options.exit_from == "verdict":
            return EXIT_CODES[report.verdict] or code
        return code

    def _build_report(self) -> Report | None:
        recorder = self._recorder
        if not self._needs_report:
            return None
        from ..pricing import price

        source = str(recorder.recording_path) if recorder is not None else "stdin"
        report = self._monitor.parser.report(source, price)
        if recorder is not None:
            recorder.write_to_ledger(report, self._output.say)
            recorder.close()
        return report

    def _exit(self, code: int) -> int:
        """End like `cat`: by the signal that stopped it, or by SIGPIPE."""
        stream = self._pass_through
        if stream.stop_signal is not None:
            exit_by_signal(stream.stop_signal)
        if stream.is_reader_gone:
            exit_by_signal(signal.SIGPIPE)
        if stream.problem is not None:
            raise stream.problem
        return code


# -- command line ------------------------------------------------------------------------------


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "watch",
        "Pass an agent's stream from stdin to stdout unchanged, and report on stderr.",
        EXAMPLES + hook_help(),
    )
    parser.add_argument("--agent", metavar="NAME", help=AGENT_HELP)
    parser.add_argument(
        "--cwd",
        metavar="DIR",
        help="working directory of the agent (default: from the stream, else .)",
    )
    parser.add_argument("--no-advice", action="store_true", help=NO_ADVICE_HELP)
    parser.add_argument(
        "--exit-from",
        choices=("verdict",),
        help="exit with the verdict's code, as `steno run` does",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 if a file could not be copied or a command of --on or --once failed",
    )
    parser.add_argument(
        "--record", action="store_true", help="write a recording and add the run to the ledger"
    )
    setting = SETTINGS_BY_NAME["alert_at"]
    levels = ", ".join(map(str, setting.default))
    parser.add_argument(
        "--alert-at", metavar=setting.metavar, help=f"{setting.help_text} (default: {levels})"
    )
    parser.add_argument("--name", metavar="TEXT", help="with --record: name of the run")
    parser.add_argument(
        "--tag", action="append", metavar="K=V", help="with --record: label of the run (repeatable)"
    )
    _add_output_options(parser)
    group = add_otel_options(parser, "telemetry and notifications")
    for name in ("notify", "notify_on"):
        setting = SETTINGS_BY_NAME[name]
        group.add_argument(
            setting.option, metavar=setting.metavar, action="append", help=setting.help_text
        )
    add_hook_options(parser, "see below")
    add_sync_destinations(parser, WATCH_OPTIONS)
    parser.add_ledger(can_import=False)
    options = parser.parse_args(args)
    if sys.stdin is None:
        raise StenoError("stdin is closed; pipe an agent's stream to it")
    if is_terminal(sys.stdin):
        parser.error("nothing to watch: pipe an agent's stream to stdin")
    names = ("strict", *WATCH_OPTIONS) if not (options.on or options.once) else WATCH_OPTIONS
    check_sync_options(parser, options, names)
    if options.cwd is not None and not Path(options.cwd).is_dir():
        raise StenoError(f"--cwd {options.cwd}: folder not found")
    _check_labels(parser, options)
    return options


def _check_labels(parser: CommandParser, options: argparse.Namespace) -> None:
    """Parse --name and --tag as `steno run` does."""
    from ..config.values import parse_label, parse_tags

    for name, parse in (("name", parse_label), ("tag", parse_tags)):
        value = getattr(options, name)
        if value is None:
            continue
        if not options.record:
            parser.error(f"--{name} needs --record")
        try:
            setattr(options, name, parse(value))
        except ValueError as error:
            text = value if isinstance(value, str) else ", ".join(value)
            parser.error(f"--{name} {text}: expected {error}")


def _add_output_options(parser: CommandParser) -> None:
    group = parser.add_argument_group("output (default: events and a summary, on stderr)")
    group.add_argument("-q", "--quiet", action="store_true", help="print failures only")
    group.add_argument(
        "--json-events",
        metavar="FILE|FD",
        help="write events as JSON lines to a file, or to an open file descriptor such as 3",
    )
    group.add_argument(
        "--post-events",
        metavar="URL",
        help="POST each event as JSON, in order, retrying for up to 10 s",
    )


def _watch_settings(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """The settings, and what is wrong with the files: the stream passes whatever they contain."""
    values = {}
    for name in WATCH_SETTINGS:
        setting = SETTINGS_BY_NAME[name]
        value = getattr(options, name) or None
        try:
            values[name] = setting.default if value is None else setting.parse(value)
        except ValueError as expected:
            found = "" if name == "notify" else f", found {value!r}"  # may be a secret
            raise StenoError(f"{setting.option}: expected {expected}{found}") from None
    try:
        settings = load_settings({}, os.environ, Path.cwd())
    except (StenoError, OSError) as error:
        return values, [f"settings ignored: {error}"]
    given = {name for name in WATCH_SETTINGS if getattr(options, name)}
    return {name: values[name] if name in given else settings[name] for name in values}, []


def _create_senders(
    options: argparse.Namespace, settings: dict[str, Any], problems: list[str]
) -> "list[OtelOutput | Notifier]":
    """Telemetry and notifications; if a setting, not an option, is unusable, that is a problem."""
    senders: list[OtelOutput | Notifier] = []
    for name, create in (("otel", _create_otel), ("notify", _create_notifier)):
        try:
            if settings[name]:
                senders.append(create(settings))
        except StenoError as error:
            if getattr(options, name):
                raise
            problems.append(str(error))
    return senders


# -- outputs, imported when used -----------------------------------------------------------------


def _create_otel(settings: dict[str, Any]) -> "OtelOutput | Notifier":
    from .otel import OtelOutput

    return OtelOutput(settings["otel"], settings["otel_content"])


def _create_notifier(settings: dict[str, Any]) -> "OtelOutput | Notifier":
    from .notify import Notifier

    return Notifier(settings["notify"], settings["notify_on"])


def _open_webhook(url: str | None) -> "WebhookSender | None":
    if url is None:
        return None
    from ..runner.webhook import WebhookSender

    return WebhookSender(url)


def _start_sync(options: argparse.Namespace) -> "FolderSync | None":
    if not options.sync:
        return None
    from ..sync import FolderSync

    cwd = options.cwd or str(Path.cwd())
    sync_options = build_sync_options(options, options.sync, WATCH_OPTIONS, strict=options.strict)
    own = [pattern for stream in (1, 2) for pattern in _own_output(stream, cwd)]
    sync_options = structs.replace(sync_options, exclude=(*sync_options.exclude, *own))
    return FolderSync(cwd, sync_options, prefer_agent_folder=options.cwd is None)


def _own_output(descriptor: int, folder: str) -> Iterator[str]:
    """The pattern for the file below the folder that a descriptor of ours writes to.

    Each line that is passed through would change it, and so be copied again.
    """
    with suppress(OSError):
        status = os.fstat(descriptor)
        paths = [Path(f"/proc/self/fd/{descriptor}").resolve(), *Path(folder).iterdir()]
        root = Path(folder).resolve()
        for path in paths if stat.S_ISREG(status.st_mode) else ():
            if path.is_file() and os.path.samestat(path.stat(), status):
                with suppress(ValueError):  # elsewhere
                    name = path.resolve().relative_to(root).as_posix()
                    yield "/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", name)
                return


def _for_each(add: Callable[[Event], None]) -> BatchSink:
    def sink(events: list[Event]) -> None:
        for event in events:
            add(event)

    return sink


def _start_recorder(
    options: argparse.Namespace, agent: agents.Agent | None
) -> "StreamRecorder | None":
    if not options.record:
        return None
    from ..runner.watch import StreamRecorder

    return StreamRecorder(agent, options.ledger, options.cwd, options.name, options.tag)
