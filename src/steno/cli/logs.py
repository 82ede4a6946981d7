"""`steno logs`: prints the log of runs from their recordings, and follows active ones."""

import argparse
import sys
import time
from collections import deque
from contextlib import suppress
from math import inf
from pathlib import Path

import msgspec

from .. import agents
from ..errors import StenoError
from ..event import Event
from ..recording.format import Record, RecordingFollower
from ..recording.parse import RunParser
from ..runner.hooks import HookQueue, HookRunner
from ..runner.run_registry import active_runs
from ..views.formatting import verdict_colour
from ..views.live import EventFeed
from ..views.table import PageStyle
from .commands import EXIT_FAILED
from .options import CommandParser, number_type
from .ps import find_recording, short_ids
from .stream_options import add_hook_options, finish_hooks, parse_hooks
from .terminal import detect_style, print_error, print_json, print_lines, write_bytes

EXAMPLES = """examples:
  steno logs                           the most recently started active run
  steno logs -f 3f9a21c0               follow a run, one line per event
  steno logs -f --all                  follow all active runs, each line with its run ID
  steno logs -n 20 3f9a21c0            only the last 20 lines
  steno logs -f --raw 3f9a21c0 | my-tool
  steno logs --events 3f9a21c0 | jq -r 'select(.event == "tool_call") | .name'
  steno logs -f 3f9a21c0 --on end 'notify-send "agent finished" {verdict}'

ID is a prefix of a run, task or session ID (see: steno ps, steno runs), or a recording.
The exit code is 1 if a command of --on or --once failed.
"""
POLL_SECONDS = 0.07
POLL_SECONDS_PER_LOG = 0.001  # more for each log, up to the maximum
MAX_POLL_SECONDS = 0.5
ACTIVE_CHECK_SECONDS = 2.0  # between looks for runs that started, or whose steno was killed
encode = msgspec.json.Encoder().encode


def run(args: list[str]) -> int:
    """Run `steno logs` and return its exit code."""
    options = _parse_args(args)
    hooks = parse_hooks(options)
    paths = [find_recording(name, options.ledger) for name in options.ids]
    paths = paths or list(_active_recordings().values())
    if not options.all and not options.ids:
        paths = paths[-1:]
    if not paths:
        raise StenoError("no active runs; list finished runs with: steno runs")
    command = LogsCommand(options, HookQueue(hooks, print_error) if hooks else None)
    return command.run(paths)


def _active_recordings() -> dict[str, Path]:
    """The recordings of active runs by run id, oldest first."""
    return {
        info.run: Path(info.tape)
        for info in active_runs()
        if info.tape is not None and Path(info.tape).exists()
    }


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("logs", "Print the log of a run, or follow an active one.", EXAMPLES)
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="run ID or recording (default: the most recently started active run)",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the run ends")
    parser.add_argument(
        "--all", action="store_true", help="show all active runs, with -f also new ones"
    )
    parser.add_argument(
        "-n",
        "--lines",
        metavar="N",
        type=number_type("a whole number", 0, 10**9, whole=True),
        help="start with the last N lines",
    )
    views = parser.add_argument_group("output (default: a log line per event)")
    group = views.add_mutually_exclusive_group()
    group.add_argument(
        "--events",
        dest="view",
        action="store_const",
        const="events",
        help="print events as JSON, one per line",
    )
    group.add_argument(
        "--raw",
        dest="view",
        action="store_const",
        const="raw",
        help="print the agent's own stdout and stderr",
    )
    add_hook_options(parser)
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    _check(parser, options)
    return options


def _check(parser: CommandParser, options: argparse.Namespace) -> None:
    if options.view == "raw" and options.lines is not None:
        parser.error("-n counts log lines and cannot be used with --raw")
    if options.view == "raw" and (options.all or len(options.ids) > 1):
        parser.error("--raw prints one run: give a single ID")
    if options.all and options.ids:
        parser.error("--all takes no ID")
    if (options.on or options.once) and not options.follow:
        parser.error("--on and --once need --follow")


class LogsCommand:
    """The logs of one or more runs."""

    def __init__(self, options: argparse.Namespace, hooks: HookQueue | None) -> None:
        self._options = options
        self._hooks = hooks
        self._logs: list[RunLog] = []
        self._active_runs: dict[str, Path] = {}  # recordings by run id
        self._checked_at = -inf  # by time.monotonic

    def run(self, paths: list[Path]) -> int:
        """Print the logs so far and, with --follow, until the last run ends."""
        options = self._options
        self._logs = [RunLog(path, options.view, options.lines, self._hooks) for path in paths]
        try:
            is_active = self._print_new()
            while options.follow and is_active:
                delay = POLL_SECONDS + POLL_SECONDS_PER_LOG * len(self._logs)
                time.sleep(min(delay, MAX_POLL_SECONDS))
                is_active = self._print_new()
            has_failed = self._hooks is not None and finish_hooks(self._hooks, print_error)
            return EXIT_FAILED if has_failed else 0
        except BaseException:
            if self._hooks is not None:
                self._hooks.kill()
            raise

    def _print_new(self) -> bool:
        """Print what is new in each log; whether more may follow."""
        options = self._options
        if time.monotonic() - self._checked_at >= ACTIVE_CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._active_runs = _active_recordings()
            if options.all and options.follow:
                self._add_logs()
        has_labels = options.all or len(self._logs) > 1
        labels = short_ids([log.run_id for log in self._logs]) if has_labels else {}
        for log in self._logs:
            if not log.is_finished:
                log.print_new(labels.get(log.run_id, ""), log.run_id in self._active_runs)
        return not all(log.is_finished for log in self._logs)

    def _add_logs(self) -> None:
        known = {log.path for log in self._logs}
        for path in self._active_runs.values():
            if path not in known:
                with suppress(StenoError):  # its header is not written yet
                    self._logs.append(RunLog(path, self._options.view, None, self._hooks))


class RunLog:
    """The log of one run. `last` limits the lines of what is there at first."""

    def __init__(
        self, path: Path, view: str | None, last: int | None, hooks: HookQueue | None
    ) -> None:
        self.path = path
        self._recording = RecordingFollower(path)
        header = self._recording.header
        if header is None:
            raise StenoError(f"{path}: not a recording")
        self.run_id = header.run_id or path.stem
        self.is_finished = False
        self._view = view
        self._label = ""
        self._style: PageStyle = detect_style()
        self._feed = EventFeed(self._style)
        self._parser = RunParser(agents.get_agent(header.agent))
        self._parser.begin_recording(header)
        self._backlog: deque[bytes | str] | None = deque(maxlen=last) if last is not None else None
        self._hooks = HookRunner(hooks, self._parser) if hooks is not None else None

    def print_new(self, label: str, is_active: bool) -> None:
        """Print new records, with a label if there are several logs.

        `is_active`: the run was active before this call.
        """
        self._label = label
        has_news = False
        for record in self._recording.records():
            has_news = True
            if self._view == "raw":
                _write_raw(record)
            if self._view != "raw" or self._hooks is not None:
                self._add_events(self._parser.interpret_record(record))
        if has_news or self._backlog is not None:
            self._flush()
        if self._recording.is_ended or not is_active:
            self._finish()

    def _add_events(self, events: list[Event]) -> None:
        self._parser.accumulator.add(events)
        if self._view != "raw":
            self._print_events(events)
        if self._hooks is not None:
            self._hooks.add(events)

    def _print_events(self, events: list[Event]) -> None:
        for event in events:
            for line in [encode(event)] if self._view == "events" else self._feed.lines(event):
                if self._backlog is not None:
                    self._backlog.append(line)
                else:
                    self._write_line(line)

    def _write_line(self, line: bytes | str) -> None:
        if isinstance(line, bytes):
            start = b'{"run_id":' + encode(self.run_id) + b"," if self._label else b"{"
            print_json(start + line[1:])
        else:
            print_lines([f"{self._label}  {line}" if self._label else line])

    def _flush(self) -> None:
        lines = self._backlog or ()
        self._backlog = None
        for line in lines:
            self._write_line(line)
        sys.stdout.flush()

    def _finish(self) -> None:
        self.is_finished = True
        self._add_events(self._parser.flush())
        if self._hooks is not None:
            self._hooks.finish()
        if self._view is None:
            verdict = self._parser.report().verdict
            colour = f"bold {verdict_colour(verdict)}"
            self._write_line(f"{'':10}{'ended':9} {self._style.paint(verdict, colour)}")
        sys.stdout.flush()
        if not self._recording.is_ended:
            print_error(f"{self.run_id}: the recording is incomplete: its steno process was killed")


def _write_raw(record: Record) -> None:
    if record.code == "out":
        write_bytes(record.data)
    elif record.code == "err" and sys.stderr is not None:
        sys.stdout.flush()
        sys.stderr.buffer.write(record.data)
        sys.stderr.flush()
