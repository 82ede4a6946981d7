"""`steno run`: starts an agent, sees it to its end, and says what happened. It parses and prints; `supervise` does the work.

stdout carries the answer, the report as JSON, or the agent's own bytes, and nothing else.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from msgspec.json import encode
from msgspec.structs import replace

from ..prepare import Prepared, prepared
from ..report import EXIT_CODES, StenoError, TaskReport
from ..screen.live import Screen
from ..settings import BY_NAME, SETTINGS
from ..spool import Spool
from ..supervise.errand import Errand
from . import INTERRUPTED, PIPE_CLOSED
from .again import continue_command
from .aside import Aside, write_all
from .options import Parser
from .steered import recovered
from .terminal import FAILS, complain, is_terminal, look, put_json, put_text, stdin_bytes

if TYPE_CHECKING:
    from ..event import Event
    from ..sync import Syncing

EVERY = 0.2  # seconds between two pictures of the live line
WAITING = 64 << 20  # bytes that may wait for a reader that sleeps
SETTLES = 1.0  # seconds that the answer waits for what was said before it: both may go to one file
SHIELD = "\0"  # before words that only look like an option
EXAMPLES = """examples:
  steno run "fix the failing test"
  steno run --max-turns 20 --max-cost 5 --allow Edit --allow 'Bash(make test)' "fix the failing test"
  git diff | steno run --json | jq .verdict                 the prompt from stdin
  steno run --resume 3f9a21c0 "and now the documents"       a run of the ledger, or a session's id
  steno run --backend ollama --model qwen3-coder "..."      on a model server of one's own
  steno run --worktree=parser "rewrite the parser"          in a git worktree of its own
  steno run --model small --json-schema bug.json "which test fails?" | jq .file
  steno run --fallback-agent codex --on-limit fallback "fix the failing test"
  steno run "what is new?" -- --settings ci.json            what follows -- are the agent's own arguments

Without PROMPT, --prompt and --file the prompt is read from stdin. A prompt that is one word and begins with a dash is
given as --prompt=-x. Options also come from STENO_* variables, the project's steno.toml and the user's own: `steno config`
shows them. The exit code is the verdict's: 0 success, 1 failed, 3 not finished, 75 rate limit, 77 sign-in, 124 timeout or
stalled, 126 not executable, 127 not installed, 130 interrupted, 137 killed; 2 is wrong use.
"""
FAILED = (1, 75, 77)  # exit codes of runs whose last words are an error's
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CALL = ("cwd", "session_id", "resume", "fork", "continue_", "worktree", "tape", "speed", "args")


def run(words: list[str]) -> int:
    """Carry out `steno run` and return its exit code."""
    options = _options(words)
    _check_sync(options.sync)
    given = {name: getattr(options, name) for name in (*BY_NAME, *CALL)}
    asked = prepared(_prompt(options), {name: value for name, value in given.items() if value is not None}, _spelled)
    if asked.refusal is not None:
        return _refused(asked.refusal, options)
    recovered(asked.settings["ledger"])
    return Watched(asked, options, given).carry_out()


def _refused(report: TaskReport, options: argparse.Namespace) -> int:
    complain(f"{report.error}; {report.hint}")
    if options.form == "json":
        put_json(report.to_json())
    return EXIT_CODES[report.verdict] if report.exit_code is None else report.exit_code


class Watched:
    """A task with a screen, and an end for those who send signals."""

    def __init__(self, asked: Prepared, options: argparse.Namespace, given: dict[str, Any]) -> None:
        self._asked, self._form, self._given = asked, options.form, given
        # On a terminal, stdout and the live line of stderr take turns; elsewhere nobody waits for a reader that sleeps.
        live = is_terminal(sys.stderr)
        self._aside = Aside(sys.stderr, live, waiting=WAITING) if sys.stderr is not None and not live else None
        stream = cast("TextIO", self._aside) if self._aside is not None else sys.stderr
        self._screen = Screen(look(sys.stderr), stream, asked.settings["feed"], asked.settings["quiet"])
        followed = live and not asked.settings["quiet"]
        seen = "all" if options.sync else asked.setup.changes  # what is seen is told to the sync too
        warn = complain if asked.settings["quiet"] else self._screen.say
        self._errand = Errand(replace(asked.setup, priced=followed, changes=seen), self._screen.say, warn)
        spooled = options.form == "raw" and not is_terminal(sys.stdout)
        self._spool = Spool(self._hand_on, WAITING, "steno stdout") if spooled else None
        self._trouble: OSError | None = None  # why stdout takes no more of the agent's bytes
        self._syncing = _syncing(options.sync, asked.setup.cwd)

    def carry_out(self) -> int:
        """Until it is over, and everything is said."""
        errand, task = self._errand, self._errand.task
        task.sinks.append(self._screen.sink)
        if self._syncing is not None:
            task.sinks.append(self._synced)
        task.raw = self._raw if self._form == "raw" else None
        for note in self._asked.notes:
            self._screen.say(note)
        if not self._asked.settings["quiet"]:
            self._draw()
        with self._signals():
            try:
                report = errand.carry_out()
                self._told(report)
                behind = self._finish_sync()
            finally:
                if self._aside is not None:
                    self._aside.finish(None)
        return self._code(report) or behind

    def _synced(self, run: object, events: "list[Event]") -> None:
        for event in events:
            self._syncing.event(event)  # type: ignore[union-attr]  # it is a sink only where there is one

    def _finish_sync(self) -> int:
        """What is still on its way arrives, or is said; 1 if something did not."""
        if self._syncing is None:
            return 0
        summary = self._syncing.finish()
        quiet = self._asked.settings["quiet"]
        screen = Screen(look(sys.stderr), sys.stderr) if quiet else self._screen
        screen.page([line for line in self._syncing.lines() if not quiet or line.startswith(FAILS)])
        if not (quiet and summary.ok):
            screen.say(summary.line())
        return summary.exit_code(True)

    def _draw(self) -> None:
        errand = self._errand
        until = errand.task.waits_until
        self._screen.tick(errand.loop.clock(), None if until is None else until - errand.task.now())
        errand.loop.after(EVERY, self._draw)

    def _raw(self, data: bytes) -> None:
        """The agent's own bytes. A reader that sleeps holds up neither the clocks nor, for long, the agent."""
        if self._spool is None:
            self._screen.clear()
            self._hand_on(data)
            return
        while self._trouble is None and not self._spool.put(data, len(data)):
            time.sleep(EVERY)  # too much waits already

    def _hand_on(self, data: bytes) -> None:
        """Nobody there to read them: the run ends, as it would have by itself."""
        if self._trouble is None:
            try:
                write_all(sys.stdout.fileno(), data)
            except OSError as problem:
                self._trouble = problem
                self._errand.interrupt()

    # -- signals ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first ends the run in order, the second kills it, the third us. What was ignored before stays ignored."""
        kept = {number: signal.getsignal(number) for number in SIGNALS}
        for number, before in kept.items():
            if before != signal.SIG_IGN:
                signal.signal(number, self._signalled)
        self._errand.hears = True
        try:
            yield
        finally:
            for number, before in kept.items():
                signal.signal(number, before)

    def _signalled(self, number: int, frame: object) -> None:
        self._errand.interrupt()
        if self._errand.asked > 1 or self._errand.task.over:  # we may wait for a reader that never comes: the next one ends that
            for one in SIGNALS:
                if signal.getsignal(one) == self._signalled:
                    signal.signal(one, signal.SIG_DFL)
        else:
            self._errand.loop.soon(lambda: self._screen.say("ending the run; once more kills it"))

    # -- what is said at the end -----------------------------------------------------------------------------------

    def _told(self, report: TaskReport) -> None:
        self._screen.clear()
        if self._aside is not None:
            self._aside.settle(SETTLES)
        try:
            self._put(report)
        finally:  # what stdout did not take is not lost for people
            if self._asked.settings["quiet"] and not report.ok:
                complain(f"{report.verdict}: {report.error or report.hint or 'not done'}")
            self._screen.end(report, continue_command(report, self._options()))

    def _put(self, report: TaskReport) -> None:
        if self._form == "json":
            put_json(report.to_json())
        elif self._form is None:
            put_text(_answer(report, self._asked.setup.ask.json_schema is not None))
        elif self._spool is not None:
            self._spool.finish(None)
        if self._trouble is not None and not isinstance(self._trouble, BrokenPipeError):
            raise self._trouble
        sys.stdout.flush()

    def _options(self) -> dict[str, Any]:
        """What was given, for the command that goes on: in the same folder, as the agent finds its session only there."""
        cwd, turns = self._asked.setup.cwd, self._asked.settings["max_turns"]
        return {**self._given, "cwd": None if cwd == str(Path.cwd()) else cwd, "max_turns": turns}

    def _code(self, report: TaskReport) -> int:
        if self._trouble is not None:
            return PIPE_CLOSED
        own = report.exit_code
        if self._asked.settings["exit_from"] == "agent" and own is not None:
            return own if own >= 0 else 128 - own  # as a shell tells a signal
        return INTERRUPTED if self._errand.asked and not report.ok else EXIT_CODES[report.verdict]


def _check_sync(destinations: list[str] | None) -> None:
    """Wrong use is told before it is looked whether the agent is there."""
    if destinations:
        from ..sync.where import check

        for text in destinations:
            check(text)


def _syncing(destinations: list[str] | None, cwd: str | None) -> "Syncing | None":
    if not destinations:
        return None
    from ..sync import Syncing, SyncOptions
    from .sync import journal_path

    return Syncing(cwd, SyncOptions(destinations=tuple(destinations), journal=str(journal_path()), watch_files=False))


def _answer(report: TaskReport, shaped: bool) -> str:
    """What the agent answered, as JSON where a schema was asked for. The words of an error are none; they are in the report."""
    if shaped:
        return encode(report.structured_output).decode() if report.structured_output is not None else ""
    return report.text if EXIT_CODES[report.verdict] in FAILED else report.result or report.text


# -- what was asked for ------------------------------------------------------------------------------------------


def _options(words: list[str]) -> argparse.Namespace:
    """The options; what follows `--` are the agent's own arguments. What is not UTF-8 could not be passed on as it is."""
    for word in words:
        _decoded(os.fsencode(word), "an argument")
    end = words.index("--") if "--" in words else len(words)
    parser = _parser()
    options = parser.parse_intermixed_args([_shielded(word) for word in words[:end]])
    for name, value in vars(options).items():
        setattr(options, name, _unshielded(value))
    options.args = words[end + 1 :]
    if len(options.words) > 1:
        parser.error(f"PROMPT is one argument, found {len(options.words)}: put it in quotes")
    options.prompt = options.words[0] if options.words and options.prompt is None else options.prompt
    if options.words and options.prompt != options.words[0]:
        parser.error("PROMPT and --prompt both give a prompt")
    return options


def _shielded(word: str) -> str:
    """A word that argparse must not take for an option: it begins with a dash and holds blanks. A bare --worktree has no name."""
    if word == "--worktree":
        return "--worktree="
    return SHIELD + word if re.match(r"-.*\s", word, re.S) and not re.match(r"--[a-z-]+=", word) else word


def _unshielded(value: Any) -> Any:
    if isinstance(value, list):
        return [_unshielded(one) for one in value]
    return value.removeprefix(SHIELD) if isinstance(value, str) else value


def _parser() -> Parser:
    parser = Parser("run", "Run an agent, see it to its end, and say what really happened.", EXAMPLES)
    parser.usage = "steno run [OPTIONS] [PROMPT] [-- the agent's own arguments]"
    parser.add_argument("words", nargs="*", metavar="PROMPT", help="what it is asked (default: stdin)")
    parser.add_argument("--prompt", metavar="TEXT", help="the same, for a prompt that looks like an option: --prompt=-x")
    parser.add_argument("--file", metavar="PATH", help="a file that holds the prompt; - is stdin")
    parser.add_argument("--cwd", metavar="DIR", help="the folder to work in (default: this one)")
    parser.add_argument("--worktree", metavar="[=NAME]", help="work in a git worktree of its own, beside the repository")
    what = "bring the files that it changes there while it runs: dir:PATH, https://..., cmd:PROGRAM {path}; may be repeated"
    parser.add_argument("--sync", action="append", metavar="DEST", help=what)
    _add_session(parser)
    _add_forms(parser)
    _add_settings(parser)
    _add_replay(parser)
    parser.add_debug()
    return parser


def _add_replay(parser: Parser) -> None:
    group = parser.add_argument_group("the agent `replay`, which plays a recording as if it were the agent")
    group.add_argument("--tape", metavar="FILE", help="what it plays: a tape, or the folder of a recording")
    group.add_argument("--speed", metavar="N", type=float, help="so many times as fast (default: 1); 0: without waiting")


def _add_session(parser: Parser) -> None:
    group = parser.add_argument_group("the session (default: a new one)")
    group.add_argument("--session-id", metavar="UUID", help="the id of the new session")
    group.add_argument("--resume", metavar="ID", help="go on with a session: its id, or the beginning of a run's")
    group.add_argument("--fork", action="store_true", default=None, help="with --resume: in a copy of it")
    what = "go on with the last session of the folder"
    group.add_argument("--continue", dest="continue_", action="store_true", default=None, help=what)


def _add_forms(parser: Parser) -> None:
    forms = parser.add_argument_group("stdout (default: the answer)").add_mutually_exclusive_group()
    forms.add_argument("--json", dest="form", action="store_const", const="json", help="the report, as one line of JSON")
    forms.add_argument("--raw", dest="form", action="store_const", const="raw", help="the agent's own bytes, as they come")


def _add_settings(parser: Parser) -> None:
    groups: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        action: dict[str, Any] = {"action": "append"} if setting.many else {}
        shown = {"metavar": setting.metavar} if setting.metavar else {"action": "store_true", "default": None}
        groups[setting.group].add_argument(setting.option, dest=setting.name, help=_help(setting), **{**action, **shown})


def _help(setting: Any) -> str:
    default = setting.default
    if default is None or default is False or default in ((), {}):
        return str(setting.what)
    told = ", ".join(default) if isinstance(default, tuple) else f"{default:g}" if isinstance(default, float) else default
    return f"{setting.what} (default: {told})".replace("%", "%%")


def _spelled(name: str) -> str:
    return "--" if name == "args" else "--" + name.rstrip("_").replace("_", "-")


def _prompt(options: argparse.Namespace) -> str:
    """The prompt: from the command line, a file or stdin."""
    if options.prompt is not None and options.file is not None:
        raise StenoError("PROMPT and --file both give a prompt: give one of them")
    if options.prompt is not None:
        return str(options.prompt)
    if options.file is not None and options.file != "-":
        return _read(Path(options.file))
    if options.file is None and (sys.stdin is None or is_terminal(sys.stdin)):
        own = "; what follows -- are the agent's own arguments" if options.args else ""
        raise StenoError(f"no prompt: give PROMPT, --file PATH, or send it to stdin{own}")
    return _decoded(stdin_bytes().read(), "stdin")


def _read(path: Path) -> str:
    try:
        return _decoded(path.read_bytes(), f"--file {path}")
    except OSError as problem:
        raise StenoError(f"--file {path}: cannot be read: {problem.strerror or problem}") from None


def _decoded(data: bytes, where: str) -> str:
    """The letters. An agent is asked what was given, or nothing: no byte is changed on the way."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        shown = data[max(0, problem.start - 20) : problem.start + 20]
        raise StenoError(f"{where}: this is not UTF-8, at byte {problem.start + 1}: {shown!r}") from None
