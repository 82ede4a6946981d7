"""`steno watch`: a stream from stdin to stdout, byte for byte, and what happens in it on stderr. It parses and prints.

stdout carries the bytes that came in, and nothing else. `watch` passes and understands them; what is said is said by a thread.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .. import agents
from ..event import Event
from ..report import EXIT_CODES, Report, StenoError
from ..watch.tap import Tap
from ..watch.watching import Sink, Watching
from .options import Parser, seconds
from .terminal import is_terminal, look
from .told import Told

if TYPE_CHECKING:
    from ..post import Poster
    from ..sync import Syncing
    from ..watch.keep import Keep
    from .events import EventFile

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
AGAIN = 0.05  # seconds after which a signal that has not ended the stream is sent once more
SWITCH = 0.0001  # seconds that another thread of ours may go on once bytes are there (Python's own: 0.005)


def run(words: list[str]) -> int:
    """Carry out `steno watch` and return its exit code."""
    options = _options(words)
    return Watched(options).carry_out()


class Watched:
    """A stream with all that was asked for beside it. StenoError: something of that cannot be, and no byte was passed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        agent = agents.named(options.agent)
        self._tap = Tap()
        self._ending = threading.Lock()  # held by whoever sends a signal once more, or sees that the stream is over
        self._file = _event_file(options.json_events)
        self._poster = _poster(options.post_events)
        self._syncing = _syncing(options)
        self._keep = _keep(options, agent)
        reports = not options.quiet or options.exit_from is not None or self._keep is not None
        self._watching = Watching(self._tap, agent, reports, self._keep)
        self._told = Told(look(sys.stderr), self._watching.reading, options.quiet, self._news)
        self._add_sinks()

    def _add_sinks(self) -> None:
        sinks = self._watching.sinks
        if self._syncing is not None:
            sinks.append(_each(self._syncing.event))
        if self._poster is not None:
            sinks.append(self._poster.put)
        if self._file is not None:
            sinks.append(self._file.put)
        if not self._options.quiet:
            (sinks if self._told.live else self._watching.rare).append(self._told.sink)

    def carry_out(self) -> int:
        """Until the stream is over, and everything is said."""
        sys.setswitchinterval(SWITCH)
        kept = {number: signal.getsignal(number) for number in SIGNALS}
        for number, before in kept.items():
            if before != signal.SIG_IGN:
                signal.signal(number, lambda number, frame: self._tap.stop(number))
        self._insist()
        self._watching.run()
        with self._ending:  # nobody insists any more
            signal.set_wakeup_fd(-1)
        for number, before in kept.items():  # from here on a signal ends us at once, as it does by default
            if before != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        code = self._finish()
        self._told.finish()
        return self._end(code)

    def _insist(self) -> None:
        """Python hears of a signal only before or after it waits. One that comes just before is sent again, until it ends us."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        main, tap = threading.get_ident(), self._tap

        def again() -> None:
            while number := os.read(woken, 1):
                time.sleep(AGAIN)
                with self._ending:
                    if not tap.over and number[0] in SIGNALS:
                        signal.pthread_kill(main, number[0])  # which is told here, too: until it is over

        threading.Thread(target=again, name="steno signals", daemon=True).start()

    def _news(self) -> list[str]:
        return self._syncing.lines() if self._syncing is not None else []

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self) -> int:
        """The stream is over, and both its ends know it. What is left of our own is finished, each within its time."""
        code, say = 0, self._told.say
        if self._syncing is not None:
            summary = self._syncing.finish(self._told.news)
            self._told.news()
            say(summary.line(), not summary.ok)
            code = summary.exit_code(self._options.strict)
        if self._poster is not None:
            posted = self._poster.finish()
            say(posted.line(), posted.lost > 0)
        if self._file is not None and (problem := self._file.finish()) is not None:
            say(problem, True)
        return self._closed(code)

    def _closed(self, code: int) -> int:
        report = self._report()
        troubles = [*self._watching.warnings, *(self._keep.warnings if self._keep is not None else ())]
        for trouble in troubles:
            self._told.say(trouble, True)
        if report is not None and not self._options.quiet:
            self._told.card(report)
        if report is not None and self._options.exit_from == "verdict":
            return EXIT_CODES[report.verdict] or code
        return code

    def _report(self) -> Report | None:
        keep = self._keep
        if keep is None and self._options.quiet and self._options.exit_from is None:
            return None
        from ..prices import price

        reading = self._watching.reading
        reading.fold.facts.advise = not self._options.no_advice
        report = reading.report(str(keep.tape) if keep is not None else "stdin", price)
        if keep is not None:
            keep.book(report)
            keep.close()
        return report

    def _end(self, code: int) -> int:
        """As `cat` would end: by the signal that ended us, or by the one of a closed pipe."""
        tap = self._tap
        if tap.signal is not None:
            _die(tap.signal)
        if tap.gone:
            _die(signal.SIGPIPE)
        if tap.problem is not None:
            raise tap.problem
        return code


def _die(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # it is blocked: as near as we can come


# -- what was asked for ------------------------------------------------------------------------------------------


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("watch", "Pass a stream on as it is, and tell on stderr what happens in it.", EXAMPLES)
    parser.add_argument("--agent", metavar="NAME", help="the agent that writes it (default: told by the bytes)")
    parser.add_argument("--no-advice", action="store_true", help="judge without `interactive` and `background_task`")
    code = "exit with the verdict's code: 0 success, 1 failed, 3 not finished, 75, 77, ... as `steno run` does"
    parser.add_argument("--exit-from", choices=("verdict",), help=code)
    _add_telling(parser)
    _add_sync(parser)
    group = parser.add_argument_group("keeping")
    group.add_argument("--record", action="store_true", help="keep a tape, and a row in the ledger")
    parser.add_ledger(imports=False)
    options = parser.parse_args(words)
    if sys.stdin is None:
        raise StenoError("stdin is closed: send an agent's stream to it")
    if is_terminal(sys.stdin):
        parser.error("nothing to watch: send an agent's stream to stdin")
    if not options.sync and any(getattr(options, name) != parser.get_default(name) for name in SYNC):
        parser.error("--prefix, --include, --exclude, --delete and the like belong to --sync DEST")
    return options


def _add_telling(parser: Parser) -> None:
    group = parser.add_argument_group("what is told (default: what happens, and a card at the end, on stderr)")
    group.add_argument("-q", "--quiet", action="store_true", help="nothing but what fails")
    where = "the events as JSON, one to a line, to a file or to a descriptor that is open (3)"
    group.add_argument("--json-events", metavar="FILE|FD", help=where)
    group.add_argument(
        "--post-events", metavar="URL", help="each event as JSON to an address, in order, with up to 10 s of tries"
    )


SYNC = ("prefix", "include", "exclude", "delete", "debounce", "concurrency", "strict", "final_pass", "dry_run")


def _add_sync(parser: Parser) -> None:
    group = parser.add_argument_group("copying what changes (see: steno sync --help)")
    where = "to dir:PATH, cmd:PROGRAM ARGS, http(s)://... or a URL that fsspec knows; may repeat"
    group.add_argument("--sync", metavar="DEST", action="append", default=[], help=where)
    group.add_argument("--prefix", metavar="DIR", default="", help="only what lies below this folder, without it in its name")
    group.add_argument("--include", metavar="GLOB", action="append", default=[], help="only files that fit; may repeat")
    group.add_argument("--exclude", metavar="GLOB", action="append", default=[], help="no files that fit; may repeat")
    group.add_argument("--delete", action="store_true", help="what is deleted is deleted there too")
    group.add_argument("--debounce", metavar="SECONDS", type=seconds(3600), default=None, help="wait so long for further changes")
    group.add_argument("--concurrency", metavar="N", type=_many, default=None, help="files at the same time, for each DEST")
    group.add_argument("--strict", action="store_true", help="exit with 1 if a file could not be copied")
    group.add_argument("--final-pass", action="store_true", help="at the end, compare every file by its hash")
    group.add_argument("--dry-run", action="store_true", help="only say what would be copied")


def _many(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 64:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 64, found {text!r}")
    return int(text)


# -- what stands beside the stream, each loaded when it is asked for -------------------------------------------------


def _event_file(where: str | None) -> "EventFile | None":
    if where is None:
        return None
    from .events import EventFile

    return EventFile(where)


def _poster(url: str | None) -> "Poster | None":
    if url is None:
        return None
    from ..post import Poster

    return Poster(url)


def _syncing(options: argparse.Namespace) -> "Syncing | None":
    if not options.sync:
        return None
    from ..sync import Syncing, SyncOptions
    from .sync import journal_path

    given: dict[str, Any] = {name: getattr(options, name) for name in SYNC if getattr(options, name) is not None}
    lists = {name: tuple(given[name]) for name in ("include", "exclude")}
    kept = str(journal_path())  # what failed, for `steno sync --pending`
    return Syncing(None, SyncOptions(destinations=tuple(options.sync), journal=kept, **{**given, **lists}))


def _each(take: Callable[[Event], None]) -> Sink:
    def sink(events: list[Event]) -> None:
        for event in events:
            take(event)

    return sink


def _keep(options: argparse.Namespace, agent: agents.Agent | None) -> "Keep | None":
    if not options.record:
        return None
    from ..watch.keep import Keep

    return Keep(agent, options.ledger)
