"""`steno tail`: follows runs from another terminal, or tells one again that is over. It reads tapes and prints.

The tapes are the only thing that it looks at: a run does not know that it is followed.
"""

import argparse
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import msgspec

from .. import agents
from ..config.data_dir import data_folder
from ..errors import StenoError
from ..event import Event
from ..ledger.queries import runs
from ..ledger.store import open_ledger
from ..recording.format import Record
from ..recording.parse import RunParser
from ..recording.record import RecordingFollower
from ..runner.run_registry import active_runs, get_active_run
from ..views.formatting import verdict_colour
from ..views.layout import PageStyle
from ..views.live import EventFeed
from .live_runs import has_ledger, select_active_run, short_ids
from .options import CommandParser
from .terminal import detect_style, print_error, print_json, print_lines, write_bytes

EXAMPLES = """examples:
  steno tail                           the run that was begun last, of those that go on
  steno tail 3f9a21c0                  what happens, one event to a line
  steno tail --all                     all that go on, and those that begin meanwhile; each line with its run
  steno tail -n 20 3f9a21c0            of what has happened already, only the last 20 lines
  steno tail --raw 3f9a21c0 | my-tool  the agent's own bytes
  steno tail --events 3f9a21c0 | jq -r 'select(.event == "tool_call") | .name'

ID is the beginning of a run's, a task's or a session's id (`steno ps`, `steno runs`), or a tape; several may be given.
It ends with the last run that it follows.
"""
POLL_SECONDS = 0.07  # seconds between two looks at the tape
encode = msgspec.json.Encoder().encode


def run(words: list[str]) -> int:
    """Carry out `steno tail` and return its exit code."""
    options = _parse_args(words)
    tapes = [find_recording(name, options.ledger) for name in options.ids] or _active_recordings()
    if not options.all:
        tapes = tapes if options.ids else tapes[-1:]
    if not tapes:
        raise StenoError("no run goes on that could be followed; those that are over: steno runs")
    views = [RunFollower(path, options.view, options.lines) for path in tapes]
    while views and not _follow_all(views, options):
        time.sleep(POLL_SECONDS)
    return 0


def _follow_all(views: "list[RunFollower]", options: argparse.Namespace) -> bool:
    """Print what is new in each tape; whether nothing more will come in any."""
    if options.all:
        for path in {*_active_recordings()} - {view.path for view in views}:
            with suppress(StenoError):  # its first line is not written yet
                views.append(RunFollower(path, options.view, None))
    several = options.all or len(views) > 1
    names = short_ids([view.run_id for view in views]) if several else {}
    open_ = [view for view in views if not view.is_finished]
    return not [view for view in open_ if view.follow(names.get(view.run_id))]


def _active_recordings() -> list[Path]:
    """The tapes of the runs that go on, the oldest first."""
    return [
        Path(mark.tape)
        for mark in active_runs()
        if mark.tape is not None and Path(mark.tape).exists()
    ]


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "tail", "Follow runs that go on, or tell one again that is over.", EXAMPLES
    )
    what = "the beginning of its id, or a tape (default: the run that was begun last)"
    parser.add_argument("ids", nargs="*", metavar="ID", help=what)
    parser.add_argument(
        "--all", action="store_true", help="every run that goes on, and those that begin meanwhile"
    )
    parser.add_argument(
        "-n",
        "--lines",
        metavar="N",
        type=_non_negative_int,
        help="of what is there already, only the last N lines",
    )
    views = parser.add_argument_group(
        "what to show (default: a feed for people)"
    ).add_mutually_exclusive_group()
    views.add_argument(
        "--raw",
        dest="view",
        action="store_const",
        const="raw",
        help="the agent's own bytes, as they come",
    )
    views.add_argument(
        "--events",
        dest="view",
        action="store_const",
        const="events",
        help="the events as JSON, one to a line",
    )
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(words)
    if options.lines is not None and options.view == "raw":
        parser.error("-n counts lines of a feed or of events and cannot be used with --raw")
    if options.view == "raw" and (options.all or len(options.ids) > 1):
        parser.error("--raw hands on the bytes of one run: name one")
    if options.all and options.ids:
        parser.error("--all means every run that goes on: name none")
    return options


def _non_negative_int(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}")
    return int(text)


def find_recording(name: str, ledger: str | None) -> Path:
    """The tape that is meant: of a run that goes on, by its own name, or of a run of the ledger."""
    mark = select_active_run(name)
    if mark is not None:
        if mark.tape is None:
            raise StenoError(f"{mark.run}: this run is not recorded, so there is nothing to follow")
        return Path(mark.tape)
    if Path(name).is_file():
        return Path(name)
    found = sorted((data_folder() / "tapes").glob(f"*/{name}*.steno")) if name.isalnum() else []
    if len(found) > 1:
        raise runs.ambiguous_prefix_error(name, "runs", [path.stem for path in found])
    return found[0] if found else _recording_from_ledger(name, ledger)


def _recording_from_ledger(name: str, ledger: str | None) -> Path:
    if has_ledger(ledger):
        store = open_ledger(ledger)
        try:
            found = runs.find_by_prefix(store, name)
            source = (
                runs.get_run(store, found[1]).source
                if found is not None and found[0] == "runs"
                else None
            )
        finally:
            store.close()
        if source is not None:
            return Path(source)
    raise StenoError(
        f"{name}: neither a run that goes on, nor the beginning of an id of one that was recorded, nor a tape"
    )


class RunFollower:
    """What is printed of a tape. `last`: of what is there at first, only so many lines."""

    def __init__(self, path: Path, name: str | None, last: int | None) -> None:
        self.path, self._recording = path, RecordingFollower(path)
        header = self._recording.header
        if header is None:
            raise StenoError(f"{path} is not a tape")
        self.run_id, self.is_finished = header.run_id or path.stem, False
        self._view, self._label = name, ""
        self._style: PageStyle = detect_style()
        self._feed = EventFeed(self._style)
        self._reading = RunParser(agents.get_agent(header.agent))
        self._reading.begin_recording(header)
        self._backlog: deque[bytes | str] | None = deque(maxlen=last) if last is not None else None

    def follow(self, called: str | None) -> bool:
        """Print what is new, under this name where there are several; whether more may come."""
        self._label = called or ""
        goes_on = get_active_run(self.run_id) is not None  # asked before it is read
        for tick in self._recording.records():
            self._show_record(tick)
        self._flush()
        if self._recording.is_ended or not goes_on:
            self._finish()
        return not self.is_finished

    def _show_record(self, tick: Record) -> None:
        if self._view == "raw":
            _write_raw(tick)
            return
        events = self._reading.interpret_record(tick)
        self._reading.accumulator.add(events)
        self._print_events(events)

    def _print_events(self, events: list[Event]) -> None:
        for event in events:
            for line in [encode(event)] if self._view == "events" else self._feed.lines(event):
                if self._backlog is not None:
                    self._backlog.append(line)
                else:
                    self._write_line(line)

    def _write_line(self, line: bytes | str) -> None:
        """One line, with the run that it belongs to where there are several."""
        if isinstance(line, bytes):
            whose = b'{"run_id":' + encode(self.run_id) + b"," if self._label else b"{"
            print_json(whose + line[1:])
        else:
            print_lines([f"{self._label}  {line}" if self._label else line])

    def _flush(self) -> None:
        """All that was there is read: what was held back is printed, and all of it is seen."""
        held, self._backlog = self._backlog, None
        for line in held or ():
            self._write_line(line)
        sys.stdout.flush()

    def _finish(self) -> None:
        """Nothing more will come."""
        self.is_finished = True
        if self._view != "raw":
            events = self._reading.flush()
            self._reading.accumulator.add(events)
            self._print_events(events)
        if self._view is None:
            verdict = self._reading.report().verdict
            self._write_line(
                f"{'':10}{'ended':9} {self._style.paint(verdict, f'bold {verdict_colour(verdict)}')}"
            )
        sys.stdout.flush()
        if not self._recording.is_ended:
            print_error(f"{self.run_id}: the tape is cut here: whoever wrote it was killed")


def _write_raw(tick: Record) -> None:
    if tick.code == "out":
        write_bytes(tick.data)
    elif tick.code == "err" and sys.stderr is not None:
        sys.stdout.flush()
        sys.stderr.buffer.write(tick.data)
        sys.stderr.flush()
