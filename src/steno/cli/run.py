"""The exact command that goes on with a task that is not done (R10). Pure: it only writes words down."""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, TextIO, cast

from msgspec.json import encode
from msgspec.structs import replace

from ..codec.redact import redact, redact_argv
from ..config import MODEL_SIZES, SETTINGS, SETTINGS_BY_NAME
from ..errors import StenoError
from ..report import EXIT_CODES, TaskReport
from ..runner.background_queue import BackgroundQueue
from ..runner.prepare import PreparedTask, prepare_task
from ..runner.task_runner import TaskRunner
from ..views.live import LiveDisplay
from . import EXIT_INTERRUPTED, EXIT_PIPE_CLOSED
from .event_file import StderrWriter, write_all
from .live_runs import recover_finished_runs
from .options import CommandParser
from .terminal import (
    SYNC_FAILURE_PREFIX,
    detect_style,
    is_terminal,
    print_error,
    print_json,
    print_text,
    stdin_bytes,
)

MAX_TURNS = 30  # as far as turns are doubled, as attempts do it
ANSWER_PLACEHOLDER = "<your answer>"
PROMPT_BY_VERDICT = {
    "interactive": ANSWER_PLACEHOLDER,
    "background_task": "is the background work done?",
    "context_full": "/compact",
}
DISPLAY_SETTINGS = ("quiet", "feed", "exit_from")  # how it is shown, not how it is done


def resume_command(report: TaskReport, options: Mapping[str, Any]) -> str | None:
    """`steno run --resume SESSION ...` with the options as they were given, and what the verdict asks for.

    `options` are those of the command line by name; `cwd` is set where the folder matters. None: there is nothing to go on
    with, because it is done or because no session was begun.
    """
    if report.ok or report.session_id is None or not report.requests:
        return None
    words = ["steno", "run", "--resume", report.session_id]
    for name in ("cwd", "tape"):
        words += [] if options.get(name) is None else [f"--{name}", str(options[name])]
    options = _adapt_to_fallback_agent(report, options)
    changed = {**options, **_changed_options(report, options)}
    for setting in SETTINGS:
        value = changed.get(setting.name)
        if value is None or value is False or setting.name in DISPLAY_SETTINGS:
            continue
        words += [setting.option] if value is True else _option_args(setting.option, value)
    words.append(PROMPT_BY_VERDICT.get(report.verdict, "continue"))
    extra = redact_argv(list(options.get("args") or ()))
    return join([*words, *(["--", *extra] if extra else [])])


def _adapt_to_fallback_agent(report: TaskReport, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where another agent took over, its session goes on with that one; program, model and arguments were the first one's."""
    agents = [attempt.agent for attempt in report.attempts]
    if len(set(agents)) < 2:
        return options
    model, limit = options.get("model"), options.get("on_limit")
    first = {"program": None, "args": (), "fallback_agent": None, "fallback_model": None}
    kept = {
        "model": model if model in MODEL_SIZES else None,
        "on_limit": None if limit == "fallback" else limit,
    }
    return {**options, **first, **kept, "agent": report.agent}


def _option_args(option: str, value: Any) -> list[str]:
    """An option with its value, once for each of several. One that begins with a dash is tied to its option."""
    found = []
    for one in value if isinstance(value, list | tuple) else [value]:
        text = redact(str(one))
        found += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return found


def _changed_options(report: TaskReport, options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be different this time."""
    if report.verdict == "permission":
        rules = [denial.allow_rule for denial in report.denials if denial.allow_rule]
        return {"allow": list(dict.fromkeys([*(options.get("allow") or ()), *rules]))}
    if report.verdict == "max_turns":
        return {"max_turns": _next_max_turns(options.get("max_turns"), report)}
    return {}


def _next_max_turns(first: int | None, report: TaskReport) -> int | None:
    """Twice what the last attempt had, as one more attempt would have got."""
    if first is None:
        return None if report.turns is None else max(min(2 * report.turns, MAX_TURNS), report.turns)
    turns = first
    for _ in report.attempts:
        turns = max(turns, min(2 * turns, MAX_TURNS))
    return turns


if TYPE_CHECKING:
    from ..event import Event
    from ..sync import FolderSync

REDRAW_SECONDS = 0.2  # seconds between two pictures of the live line
MAX_PENDING_BYTES = 64 << 20  # bytes that may wait for a reader that sleeps
STDERR_DRAIN_SECONDS = (
    1.0  # seconds that the answer waits for what was said before it: both may go to one file
)
ESCAPE_PREFIX = "\0"  # before words that only look like an option
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
ERROR_EXIT_CODES = (1, 75, 77)  # exit codes of runs whose last words are an error's
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RUN_ONLY_OPTIONS = (
    "cwd",
    "session_id",
    "resume",
    "fork",
    "continue_",
    "worktree",
    "tape",
    "speed",
    "args",
)


def run(words: list[str]) -> int:
    """Carry out `steno run` and return its exit code."""
    options = _parse_args(words)
    _check_destinations(options.sync)
    given = {name: getattr(options, name) for name in (*SETTINGS_BY_NAME, *RUN_ONLY_OPTIONS)}
    asked = prepare_task(
        _read_prompt(options),
        {name: value for name, value in given.items() if value is not None},
        _option_name,
    )
    if asked.refusal is not None:
        return _report_refusal(asked.refusal, options)
    recover_finished_runs(asked.settings["ledger"])
    return RunCommand(asked, options, given).run()


def _report_refusal(report: TaskReport, options: argparse.Namespace) -> int:
    print_error(f"{report.error}; {report.hint}")
    if options.form == "json":
        print_json(report.to_json())
    return EXIT_CODES[report.verdict] if report.exit_code is None else report.exit_code


class RunCommand:
    """A task with a screen, and an end for those who send signals."""

    def __init__(
        self, asked: PreparedTask, options: argparse.Namespace, given: dict[str, Any]
    ) -> None:
        self._prepared, self._output_format, self._given_options = asked, options.form, given
        # On a terminal, stdout and the live line of stderr take turns; elsewhere nobody waits for a reader that sleeps.
        live = is_terminal(sys.stderr)
        self._stderr = (
            StderrWriter(sys.stderr, live, max_pending=MAX_PENDING_BYTES)
            if sys.stderr is not None and not live
            else None
        )
        stream = cast("TextIO", self._stderr) if self._stderr is not None else sys.stderr
        self._display = LiveDisplay(
            detect_style(sys.stderr), stream, asked.settings["feed"], asked.settings["quiet"]
        )
        followed = live and not asked.settings["quiet"]
        seen = (
            "all" if options.sync else asked.setup.changes
        )  # what is seen is told to the sync too
        warn = print_error if asked.settings["quiet"] else self._display.say
        self._runner = TaskRunner(
            replace(asked.setup, track_cost=followed, changes=seen), self._display.say, warn
        )
        spooled = options.form == "raw" and not is_terminal(sys.stdout)
        self._stdout_queue = (
            BackgroundQueue(self._write_stdout, MAX_PENDING_BYTES, "steno stdout")
            if spooled
            else None
        )
        self._stdout_error: OSError | None = None  # why stdout takes no more of the agent's bytes
        self._sync = _start_sync(options.sync, asked.setup.cwd)

    def run(self) -> int:
        """Until it is over, and everything is said."""
        errand, task = self._runner, self._runner.task
        task.sinks.append(self._display.on_events)
        if self._sync is not None:
            task.sinks.append(self._sync_events)
        task.raw_sink = self._write_raw if self._output_format == "raw" else None
        for note in self._prepared.notes:
            self._display.say(note)
        if not self._prepared.settings["quiet"]:
            self._draw()
        with self._handle_signals():
            try:
                report = errand.run()
                self._print_result(report)
                behind = self._finish_sync()
            finally:
                if self._stderr is not None:
                    self._stderr.finish(None)
        return self._exit_code(report) or behind

    def _sync_events(self, run: object, events: "list[Event]") -> None:
        for event in events:
            self._sync.add_event(event)  # type: ignore[union-attr]  # it is a sink only where there is one

    def _finish_sync(self) -> int:
        """What is still on its way arrives, or is said; 1 if something did not."""
        if self._sync is None:
            return 0
        summary = self._sync.finish()
        quiet = self._prepared.settings["quiet"]
        screen = LiveDisplay(detect_style(sys.stderr), sys.stderr) if quiet else self._display
        screen.print_lines(
            [
                line
                for line in self._sync.take_messages()
                if not quiet or line.startswith(SYNC_FAILURE_PREFIX)
            ]
        )
        if not (quiet and summary.ok):
            screen.say(summary.line())
        return summary.exit_code(True)

    def _draw(self) -> None:
        errand = self._runner
        until = errand.task.waits_until
        self._display.refresh(
            errand.loop.clock(), None if until is None else until - errand.task.now()
        )
        errand.loop.call_later(REDRAW_SECONDS, self._draw)

    def _write_raw(self, data: bytes) -> None:
        """The agent's own bytes. A reader that sleeps holds up neither the clocks nor, for long, the agent."""
        if self._stdout_queue is None:
            self._display.clear()
            self._write_stdout(data)
            return
        while self._stdout_error is None and not self._stdout_queue.put(data, len(data)):
            time.sleep(REDRAW_SECONDS)  # too much waits already

    def _write_stdout(self, data: bytes) -> None:
        """Nobody there to read them: the run ends, as it would have by itself."""
        if self._stdout_error is None:
            try:
                write_all(sys.stdout.fileno(), data)
            except OSError as problem:
                self._stdout_error = problem
                self._runner.interrupt()

    # -- signals ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """The first ends the run in order, the second kills it, the third us. What was ignored before stays ignored."""
        kept = {number: signal.getsignal(number) for number in SIGNALS}
        for number, before in kept.items():
            if before != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        self._runner.has_signal_wakeup = True
        try:
            yield
        finally:
            for number, before in kept.items():
                signal.signal(number, before)

    def _on_signal(self, number: int, frame: object) -> None:
        self._runner.interrupt()
        if (
            self._runner.interrupt_count > 1 or self._runner.task.is_finished
        ):  # we may wait for a reader that never comes: the next one ends that
            for one in SIGNALS:
                if signal.getsignal(one) == self._on_signal:
                    signal.signal(one, signal.SIG_DFL)
        else:
            self._runner.loop.call_soon(
                lambda: self._display.say("ending the run; once more kills it")
            )

    # -- what is said at the end -----------------------------------------------------------------------------------

    def _print_result(self, report: TaskReport) -> None:
        self._display.clear()
        if self._stderr is not None:
            self._stderr.drain(STDERR_DRAIN_SECONDS)
        try:
            self._write_output(report)
        finally:  # what stdout did not take is not lost for people
            if self._prepared.settings["quiet"] and not report.ok:
                print_error(f"{report.verdict}: {report.error or report.hint or 'not done'}")
            self._display.print_summary(report, resume_command(report, self._resume_options()))

    def _write_output(self, report: TaskReport) -> None:
        if self._output_format == "json":
            print_json(report.to_json())
        elif self._output_format is None:
            print_text(
                _answer_text(report, self._prepared.setup.launch_options.json_schema is not None)
            )
        elif self._stdout_queue is not None:
            self._stdout_queue.finish(None)
        if self._stdout_error is not None and not isinstance(self._stdout_error, BrokenPipeError):
            raise self._stdout_error
        sys.stdout.flush()

    def _resume_options(self) -> dict[str, Any]:
        """What was given, for the command that goes on: in the same folder, as the agent finds its session only there."""
        cwd, turns = self._prepared.setup.cwd, self._prepared.settings["max_turns"]
        return {
            **self._given_options,
            "cwd": None if cwd == str(Path.cwd()) else cwd,
            "max_turns": turns,
        }

    def _exit_code(self, report: TaskReport) -> int:
        if self._stdout_error is not None:
            return EXIT_PIPE_CLOSED
        own = report.exit_code
        if self._prepared.settings["exit_from"] == "agent" and own is not None:
            return own if own >= 0 else 128 - own  # as a shell tells a signal
        return (
            EXIT_INTERRUPTED
            if self._runner.interrupt_count and not report.ok
            else EXIT_CODES[report.verdict]
        )


def _check_destinations(destinations: list[str] | None) -> None:
    """Wrong use is told before it is looked whether the agent is there."""
    if destinations:
        from ..sync.destinations import check_destination

        for text in destinations:
            check_destination(text)


def _start_sync(destinations: list[str] | None, cwd: str | None) -> "FolderSync | None":
    if not destinations:
        return None
    from ..sync import FolderSync, SyncOptions
    from .sync import new_journal_path

    return FolderSync(
        cwd,
        SyncOptions(
            destinations=tuple(destinations), journal=str(new_journal_path()), watch_files=False
        ),
    )


def _answer_text(report: TaskReport, shaped: bool) -> str:
    """What the agent answered, as JSON where a schema was asked for. The words of an error are none; they are in the report."""
    if shaped:
        return (
            encode(report.structured_output).decode()
            if report.structured_output is not None
            else ""
        )
    return (
        report.text
        if EXIT_CODES[report.verdict] in ERROR_EXIT_CODES
        else report.result or report.text
    )


# -- what was asked for ------------------------------------------------------------------------------------------


def _parse_args(words: list[str]) -> argparse.Namespace:
    """The options; what follows `--` are the agent's own arguments. What is not UTF-8 could not be passed on as it is."""
    for word in words:
        _decode_utf8(os.fsencode(word), "an argument")
    end = words.index("--") if "--" in words else len(words)
    parser = _build_parser()
    options = parser.parse_intermixed_args([_escape_word(word) for word in words[:end]])
    for name, value in vars(options).items():
        setattr(options, name, _unescape(value))
    options.args = words[end + 1 :]
    if len(options.words) > 1:
        parser.error(f"PROMPT is one argument, found {len(options.words)}: put it in quotes")
    options.prompt = (
        options.words[0] if options.words and options.prompt is None else options.prompt
    )
    if options.words and options.prompt != options.words[0]:
        parser.error("PROMPT and --prompt both give a prompt")
    return options


def _escape_word(word: str) -> str:
    """A word that argparse must not take for an option: it begins with a dash and holds blanks. A bare --worktree has no name."""
    if word == "--worktree":
        return "--worktree="
    return (
        ESCAPE_PREFIX + word
        if re.match(r"-.*\s", word, re.S) and not re.match(r"--[a-z-]+=", word)
        else word
    )


def _unescape(value: Any) -> Any:
    if isinstance(value, list):
        return [_unescape(one) for one in value]
    return value.removeprefix(ESCAPE_PREFIX) if isinstance(value, str) else value


def _build_parser() -> CommandParser:
    parser = CommandParser(
        "run", "Run an agent, see it to its end, and say what really happened.", EXAMPLES
    )
    parser.usage = "steno run [OPTIONS] [PROMPT] [-- the agent's own arguments]"
    parser.add_argument(
        "words", nargs="*", metavar="PROMPT", help="what it is asked (default: stdin)"
    )
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        help="the same, for a prompt that looks like an option: --prompt=-x",
    )
    parser.add_argument("--file", metavar="PATH", help="a file that holds the prompt; - is stdin")
    parser.add_argument("--cwd", metavar="DIR", help="the folder to work in (default: this one)")
    parser.add_argument(
        "--worktree",
        metavar="[=NAME]",
        help="work in a git worktree of its own, beside the repository",
    )
    what = "bring the files that it changes there while it runs: dir:PATH, https://..., cmd:PROGRAM {path}; may be repeated"
    parser.add_argument("--sync", action="append", metavar="DEST", help=what)
    _add_session(parser)
    _add_output_format(parser)
    _add_settings(parser)
    _add_replay(parser)
    parser.add_debug()
    return parser


def _add_replay(parser: CommandParser) -> None:
    group = parser.add_argument_group(
        "the agent `replay`, which plays a recording as if it were the agent"
    )
    group.add_argument(
        "--tape", metavar="FILE", help="what it plays: a tape, or the folder of a recording"
    )
    group.add_argument(
        "--speed",
        metavar="N",
        type=float,
        help="so many times as fast (default: 1); 0: without waiting",
    )


def _add_session(parser: CommandParser) -> None:
    group = parser.add_argument_group("the session (default: a new one)")
    group.add_argument("--session-id", metavar="UUID", help="the id of the new session")
    group.add_argument(
        "--resume", metavar="ID", help="go on with a session: its id, or the beginning of a run's"
    )
    group.add_argument(
        "--fork", action="store_true", default=None, help="with --resume: in a copy of it"
    )
    what = "go on with the last session of the folder"
    group.add_argument("--continue", dest="continue_", action="store_true", default=None, help=what)


def _add_output_format(parser: CommandParser) -> None:
    forms = parser.add_argument_group("stdout (default: the answer)").add_mutually_exclusive_group()
    forms.add_argument(
        "--json",
        dest="form",
        action="store_const",
        const="json",
        help="the report, as one line of JSON",
    )
    forms.add_argument(
        "--raw",
        dest="form",
        action="store_const",
        const="raw",
        help="the agent's own bytes, as they come",
    )


def _add_settings(parser: CommandParser) -> None:
    groups: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        action: dict[str, Any] = {"action": "append"} if setting.is_repeatable else {}
        shown = (
            {"metavar": setting.metavar}
            if setting.metavar
            else {"action": "store_true", "default": None}
        )
        groups[setting.group].add_argument(
            setting.option, dest=setting.name, help=_setting_help(setting), **{**action, **shown}
        )


def _setting_help(setting: Any) -> str:
    default = setting.default
    if default is None or default is False or default in ((), {}):
        return str(setting.help_text)
    told = (
        ", ".join(default)
        if isinstance(default, tuple)
        else f"{default:g}"
        if isinstance(default, float)
        else default
    )
    return f"{setting.help_text} (default: {told})".replace("%", "%%")


def _option_name(name: str) -> str:
    return "--" if name == "args" else "--" + name.rstrip("_").replace("_", "-")


def _read_prompt(options: argparse.Namespace) -> str:
    """The prompt: from the command line, a file or stdin."""
    if options.prompt is not None and options.file is not None:
        raise StenoError("PROMPT and --file both give a prompt: give one of them")
    if options.prompt is not None:
        return str(options.prompt)
    if options.file is not None and options.file != "-":
        return _read_prompt_file(Path(options.file))
    if options.file is None and (sys.stdin is None or is_terminal(sys.stdin)):
        own = "; what follows -- are the agent's own arguments" if options.args else ""
        raise StenoError(f"no prompt: give PROMPT, --file PATH, or send it to stdin{own}")
    return _decode_utf8(stdin_bytes().read(), "stdin")


def _read_prompt_file(path: Path) -> str:
    try:
        return _decode_utf8(path.read_bytes(), f"--file {path}")
    except OSError as problem:
        raise StenoError(f"--file {path}: cannot be read: {problem.strerror or problem}") from None


def _decode_utf8(data: bytes, where: str) -> str:
    """The letters. An agent is asked what was given, or nothing: no byte is changed on the way."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        shown = data[max(0, problem.start - 20) : problem.start + 20]
        raise StenoError(
            f"{where}: this is not UTF-8, at byte {problem.start + 1}: {shown!r}"
        ) from None
