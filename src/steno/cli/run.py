"""`steno run`: runs an agent and reports how it ended."""

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

from ..config import SETTINGS, SETTINGS_BY_NAME
from ..errors import StenoError
from ..report import EXIT_CODES, TaskReport
from ..runner.attempt import AgentRun
from ..runner.hooks import BackgroundQueue, HookQueue, HookRunner, HookSpec
from ..runner.prepare import PreparedTask, prepare_task
from ..runner.task_runner import TaskRunner
from ..views.live import LiveDisplay
from .commands import EXIT_INTERRUPTED, EXIT_PIPE_CLOSED
from .options import CommandParser, number_type
from .ps import recover_finished_runs
from .resume_command import option_name, resume_command
from .stream_options import StderrWriter, add_hook_options, finish_hooks, parse_hooks, write_all
from .sync_options import (
    RUN_OPTIONS,
    add_sync_destinations,
    build_sync_options,
    check_sync_options,
)
from .terminal import (
    STOP_SIGNALS,
    SYNC_FAILURE_PREFIX,
    detect_style,
    is_terminal,
    print_error,
    print_json,
    print_text,
    stdin_bytes,
)

if TYPE_CHECKING:
    from ..event import Event
    from ..sync import FolderSync

REDRAW_SECONDS = 0.2  # interval of the live line
MAX_PENDING_BYTES = 64 << 20  # of output that a slow reader has not taken
STDERR_DRAIN_SECONDS = 1.0  # stdout waits for stderr: both may go to one file
ESCAPE_PREFIX = "\0"  # marks arguments that only look like an option
EXAMPLES = """examples:
  steno run "fix the failing test"
  steno run --max-turns 20 --max-cost 5 --allow 'Bash(make test)' "fix the failing test"
  git diff | steno run --json | jq .verdict                 read the prompt from stdin
  steno run --resume 3f9a21c0 "now update the docs"         continue a run or session
  steno run --backend ollama --model qwen3-coder "..."      use a local model server
  steno run --worktree=parser "rewrite the parser"          work in a new git worktree
  steno run --model small --json-schema bug.json "which test fails?" | jq .file
  steno run --fallback-agent codex --on-limit fallback "fix the failing test"
  steno run --on file_change:*.py 'ruff check {path}' "fix the failing test"
  steno run "what is new?" -- --settings ci.json            pass arguments to the agent

Without PROMPT, --prompt and --file the prompt is read from stdin. Use --prompt=-x for a
one-word prompt that begins with a dash. Options can also be set by STENO_* variables and steno.toml
files (see: steno config). The exit code follows the verdict: 0 success, 1 failed, 2 usage error,
3 not finished, 75 rate limited, 77 not signed in or out of credit, 124 timeout or stalled,
126 not executable, 127 not installed, 130 interrupted, 137 killed.
"""
ERROR_EXIT_CODES = (1, 75, 77)  # of runs whose result is the text of an error
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


def run(args: list[str]) -> int:
    """Run `steno run` and return its exit code."""
    options = _parse_args(args)
    if options.sync:  # report wrong use before checking that the agent is installed
        from ..sync.destinations import check_destination

        for text in options.sync:
            check_destination(text)
    hooks = parse_hooks(options)
    values = {name: getattr(options, name) for name in (*SETTINGS_BY_NAME, *RUN_ONLY_OPTIONS)}
    prepared = prepare_task(
        _read_prompt(options),
        {name: value for name, value in values.items() if value is not None},
        option_name,
    )
    refusal = prepared.refusal
    if refusal is not None:
        print_error(f"{refusal.error}; {refusal.hint}")
        if options.form == "json":
            print_json(refusal.to_json())
        return EXIT_CODES[refusal.verdict] if refusal.exit_code is None else refusal.exit_code
    recover_finished_runs(prepared.settings["ledger"])
    command = RunCommand(prepared, options, values)
    if hooks:
        command.add_hooks(hooks)
    return command.run()


class RunCommand:
    """A task with its display, signals, sync and hooks."""

    def __init__(
        self, prepared: PreparedTask, options: argparse.Namespace, values: dict[str, Any]
    ) -> None:
        self._prepared = prepared
        self._output_format = options.form
        self._option_values = values
        self._hook_queue: HookQueue | None = None
        self._hook_runners: dict[str, HookRunner] = {}
        # On a terminal, stdout and the live line alternate; elsewhere a thread writes stderr, so
        # that a reader that does not read delays nothing.
        live = is_terminal(sys.stderr)
        self._stderr = (
            StderrWriter(sys.stderr, live, max_pending=MAX_PENDING_BYTES)
            if sys.stderr is not None and not live
            else None
        )
        stream = cast("TextIO", self._stderr) if self._stderr is not None else sys.stderr
        self._display = LiveDisplay(
            detect_style(sys.stderr), stream, prepared.settings["feed"], prepared.settings["quiet"]
        )
        setup = replace(
            prepared.setup,
            track_cost=live and not prepared.settings["quiet"],
            changes="all" if options.sync else prepared.setup.changes,
        )
        self._warn = print_error if prepared.settings["quiet"] else self._display.say
        self._runner = TaskRunner(setup, self._display.say, self._warn)
        self._stdout_queue: BackgroundQueue[bytes] | None = None
        if options.form == "raw" and not is_terminal(sys.stdout):
            self._stdout_queue = BackgroundQueue(
                self._write_stdout, MAX_PENDING_BYTES, "steno stdout"
            )
        self._stdout_error: OSError | None = None
        self._sync = _start_sync(options, prepared.setup.cwd) if options.sync else None

    def add_hooks(self, hooks: list[HookSpec]) -> None:
        """Run commands on events of every attempt."""
        self._hook_queue = HookQueue(hooks, self._on_hook_failure)
        self._runner.task.sinks.append(self._run_hooks)
        self._runner.task.watchers.append(self._finish_hooks_of_run)

    def run(self) -> int:
        """Run the task to its end and return the exit code."""
        task = self._runner.task
        task.sinks.append(self._display.on_events)
        if self._sync is not None:
            task.sinks.append(self._sync_events)
        task.raw_sink = self._write_raw if self._output_format == "raw" else None
        for note in self._prepared.notes:
            self._display.say(note)
        if self._display.terminal_fd >= 0:
            self._draw()
        with self._handle_signals():
            try:
                report = self._runner.run()
                self._print_result(report)
                sync_code = 0 if self._sync is None else self._finish_sync(self._sync)
                if self._hook_queue is not None:
                    finish_hooks(self._hook_queue, self._warn)
            finally:
                if self._hook_queue is not None:
                    self._hook_queue.kill()
                if self._stderr is not None:
                    self._stderr.finish(None)
        code = EXIT_CODES[report.verdict]
        own = report.exit_code
        if self._stdout_error is not None:
            code = EXIT_PIPE_CLOSED
        elif self._prepared.settings["exit_from"] == "agent" and own is not None:
            code = own if own >= 0 else 128 - own  # the shell's code for a signal
        elif self._runner.interrupt_count and not report.ok:
            code = EXIT_INTERRUPTED
        return code or sync_code

    def _sync_events(self, run: object, events: "list[Event]") -> None:
        for event in events:
            self._sync.add_event(event)  # type: ignore[union-attr]  # a sink only with --sync

    # -- hooks -----------------------------------------------------------------------------------

    def _run_hooks(self, run: AgentRun, events: "list[Event]") -> None:
        if run.id not in self._hook_runners and self._hook_queue is not None:
            self._hook_runners[run.id] = HookRunner(self._hook_queue, run.parser)
        self._hook_runners[run.id].add(events)

    def _finish_hooks_of_run(self) -> None:
        run = self._runner.task.run
        if run is not None and run.report is not None and run.id in self._hook_runners:
            self._hook_runners[run.id].finish()

    def _on_hook_failure(self, text: str) -> None:
        """Called in the thread of the hooks: the display belongs to the loop's thread."""
        if self._runner.task.is_finished:
            self._warn(text)
        else:
            self._runner.loop.call_soon(lambda: self._warn(text))

    # -- output ----------------------------------------------------------------------------------

    def _finish_sync(self, sync: "FolderSync") -> int:
        """Wait for pending copies; 1 if a file was not copied."""
        summary = sync.finish()
        quiet = self._prepared.settings["quiet"]
        display = LiveDisplay(detect_style(sys.stderr), sys.stderr) if quiet else self._display
        display.print_lines(
            [
                line
                for line in sync.take_messages()
                if not quiet or line.startswith(SYNC_FAILURE_PREFIX)
            ]
        )
        if not (quiet and summary.ok):
            display.say(summary.line())
        return summary.exit_code(True)

    def _draw(self) -> None:
        runner = self._runner
        until = runner.task.waits_until
        self._display.refresh(
            runner.loop.clock(), None if until is None else until - runner.task.now()
        )
        runner.loop.call_later(REDRAW_SECONDS, self._draw)

    def _write_raw(self, data: bytes) -> None:
        """Pass on the agent's output; a slow reader delays neither timeouts nor, for long, it."""
        if self._stdout_queue is None:
            self._display.clear()
            self._write_stdout(data)
            return
        while self._stdout_error is None and not self._stdout_queue.put(data, len(data)):
            time.sleep(REDRAW_SECONDS)  # the queue is full

    def _write_stdout(self, data: bytes) -> None:
        """A closed pipe interrupts the run, as it would have without steno."""
        if self._stdout_error is None:
            try:
                write_all(sys.stdout.fileno(), data)
            except OSError as error:
                self._stdout_error = error
                self._runner.interrupt()

    # -- signals ---------------------------------------------------------------------------------

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """The first signal stops the run, the second kills it, the third kills steno.

        Signals that were ignored before stay ignored.
        """
        old_handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        for number, handler in old_handlers.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        self._runner.has_signal_wakeup = True
        try:
            yield
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        is_finished = self._runner.task.is_finished
        self._runner.interrupt()
        if is_finished and self._hook_queue is not None:
            self._hook_queue.kill()
        if self._runner.interrupt_count > 1 or is_finished:
            # steno may be waiting for a reader that never reads: the next signal ends that.
            for other in STOP_SIGNALS:
                if signal.getsignal(other) == self._on_signal:
                    signal.signal(other, signal.SIG_DFL)
        else:
            self._runner.loop.call_soon(
                lambda: self._display.say("stopping; press Ctrl-C again to kill")
            )

    # -- result ----------------------------------------------------------------------------------

    def _print_result(self, report: TaskReport) -> None:
        """Print the answer to stdout and the summary to stderr."""
        self._display.clear()
        if self._stderr is not None:
            self._stderr.drain(STDERR_DRAIN_SECONDS)
        setup = self._prepared.setup
        try:
            if self._output_format == "json":
                print_json(report.to_json())
            elif self._output_format is None:
                print_text(_answer_text(report, setup.launch_options.json_schema is not None))
            elif self._stdout_queue is not None:
                self._stdout_queue.finish(None)
            error = self._stdout_error
            if error is not None and not isinstance(error, BrokenPipeError):
                raise error
            sys.stdout.flush()
        finally:  # also when stdout failed
            if self._prepared.settings["quiet"] and not report.ok:
                print_error(f"{report.verdict}: {report.error or report.hint or 'not finished'}")
            options = {
                **self._option_values,
                "cwd": None if setup.cwd == str(Path.cwd()) else setup.cwd,
                "max_turns": self._prepared.settings["max_turns"],
            }
            self._display.print_summary(report, resume_command(report, options))


def _start_sync(options: argparse.Namespace, cwd: str | None) -> "FolderSync":
    from ..sync import FolderSync

    sync_options = build_sync_options(options, options.sync, RUN_OPTIONS)
    return FolderSync(cwd or str(Path.cwd()), sync_options)


def _answer_text(report: TaskReport, has_schema: bool) -> str:
    """The agent's answer, as JSON with a schema. The text of an error is not an answer."""
    if has_schema:
        output = report.structured_output
        return encode(output).decode() if output is not None else ""
    if EXIT_CODES[report.verdict] in ERROR_EXIT_CODES:
        return report.text
    return report.result or report.text


# -- command line ------------------------------------------------------------------------------


def _parse_args(args: list[str]) -> argparse.Namespace:
    """Parse the options; everything after `--` is passed to the agent."""
    for arg in args:
        _decode_utf8(os.fsencode(arg), "argument")
    end = args.index("--") if "--" in args else len(args)
    parser = _build_parser()
    options = parser.parse_intermixed_args([_escape(arg) for arg in args[:end]])
    for name, value in vars(options).items():
        setattr(options, name, _unescape(value))
    options.args = args[end + 1 :]
    prompts = options.prompts
    if len(prompts) > 1:
        parser.error(f"expected one PROMPT, got {len(prompts)}: put it in quotes")
    if prompts and options.prompt not in (None, prompts[0]):
        parser.error("PROMPT and --prompt cannot be used together")
    if prompts:
        options.prompt = prompts[0]
    check_sync_options(parser, options, RUN_OPTIONS)
    return options


def _escape(arg: str) -> str:
    """Hide a prompt that begins with a dash from argparse. A bare --worktree gets no name."""
    if arg == "--worktree":
        return "--worktree="
    if re.match(r"-.*\s", arg, re.S) and not re.match(r"--[a-z-]+=", arg):
        return ESCAPE_PREFIX + arg
    return arg


def _unescape(value: Any) -> Any:
    if isinstance(value, list):
        return [_unescape(item) for item in value]
    return value.removeprefix(ESCAPE_PREFIX) if isinstance(value, str) else value


def _build_parser() -> CommandParser:
    parser = CommandParser("run", "Run an agent and report how it ended.", EXAMPLES)
    parser.usage = "steno run [OPTIONS] [PROMPT] [-- AGENT ARGUMENTS]"
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="prompt (default: stdin)")
    parser.add_argument(
        "--prompt", metavar="TEXT", help="prompt, for text that starts with a dash: --prompt=-x"
    )
    parser.add_argument("--file", metavar="PATH", help="read the prompt from a file; - is stdin")
    parser.add_argument("--cwd", metavar="DIR", help="working directory (default: .)")
    parser.add_argument(
        "--worktree", metavar="[=NAME]", help="work in a new git worktree next to the repository"
    )
    add_hook_options(parser)
    group = parser.add_argument_group("session (default: a new one)")
    group.add_argument("--session-id", metavar="UUID", help="ID of the new session")
    group.add_argument(
        "--resume", metavar="ID", help="continue a session: its ID, or a prefix of a run ID"
    )
    group.add_argument(
        "--fork", action="store_true", default=None, help="continue a copy of the --resume session"
    )
    group.add_argument(
        "--continue",
        dest="continue_",
        action="store_true",
        default=None,
        help="continue the latest session of the folder",
    )
    forms = parser.add_argument_group("output (default: the answer)").add_mutually_exclusive_group()
    help_texts = {
        "json": "print the report as one line of JSON",
        "raw": "print the agent's own output",
    }
    for form, text in help_texts.items():
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=text)
    _add_settings(parser)
    add_sync_destinations(parser, RUN_OPTIONS)
    group = parser.add_argument_group("replay (--agent replay plays a recording)")
    group.add_argument(
        "--recording", dest="tape", metavar="FILE", help="recording to play (file or folder)"
    )
    group.add_argument(
        "--speed",
        metavar="N",
        type=number_type("a number of at least 0", 0, sys.float_info.max),
        help="playback speed (default: 1); 0 does not wait",
    )
    parser.add_debug()
    return parser


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
        help_text = setting.help_text
        default = setting.default
        if default is not None and default is not False and default not in ((), {}):
            text = default
            if isinstance(default, tuple):
                text = ", ".join(map(str, default))
            elif isinstance(default, float):
                text = f"{default:g}"
            help_text = f"{help_text} (default: {text})".replace("%", "%%")
        groups[setting.group].add_argument(
            option_name(setting.name), dest=setting.name, help=help_text, **{**action, **shown}
        )


def _read_prompt(options: argparse.Namespace) -> str:
    if options.prompt is not None and options.file is not None:
        raise StenoError("PROMPT and --file cannot be used together")
    if options.prompt is not None:
        return str(options.prompt)
    if options.file is not None and options.file != "-":
        path = Path(options.file)
        try:
            return _decode_utf8(path.read_bytes(), f"--file {path}")
        except OSError as error:
            raise StenoError(f"--file {path}: cannot read: {error.strerror or error}") from None
    if options.file is None and (sys.stdin is None or is_terminal(sys.stdin)):
        hint = "; arguments after -- are passed to the agent" if options.args else ""
        raise StenoError(f"no prompt: give PROMPT or --file PATH, or pipe it to stdin{hint}")
    return _decode_utf8(stdin_bytes().read(), "stdin")


def _decode_utf8(data: bytes, source: str) -> str:
    """Decode strictly: a prompt is passed on unchanged or not at all."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        excerpt = data[max(0, error.start - 20) : error.start + 20]
        raise StenoError(f"{source}: not UTF-8 at byte {error.start + 1}: {excerpt!r}") from None
