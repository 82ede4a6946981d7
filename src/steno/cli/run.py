"""`steno run`: runs an agent and reports how it ended."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, TextIO, cast

from msgspec.json import encode
from msgspec.structs import replace

from ..agents import get_agent
from ..agents.base import can_resume
from ..codec.redact import redact, redact_argv
from ..config import MODEL_SIZES, SETTINGS, SETTINGS_BY_NAME
from ..errors import StenoError
from ..event import Alert
from ..report import EXIT_CODES, TaskReport
from ..runner.attempt import AgentRun
from ..runner.hooks import BackgroundQueue, HookQueue, HookRunner, HookSpec
from ..runner.prepare import PreparedTask, prepare_task
from ..runner.run_registry import lost_runs
from ..runner.task_runner import TaskRunner
from ..views.live import LiveDisplay
from .ci_log import write_all
from .commands import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED
from .options import option_name
from .output_options import ReportOutputs, outputs_from_options
from .run_options import parse_args, read_prompt
from .stream_options import StderrWriter, finish_hooks, parse_hooks
from .sync_options import (
    RUN_OPTIONS,
    build_sync_options,
)
from .terminal import (
    STOP_SIGNALS,
    SYNC_FAILURE_PREFIX,
    detect_style,
    is_terminal,
    print_error,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    from ..checks.monitor import PolicyMonitor
    from ..checks.rules import RuleFinding
    from ..event import Event
    from ..sync import FolderSync
    from .notify import Notifier
    from .otel import OtelOutput

REDRAW_SECONDS = 0.2  # interval of the live line
HEARTBEAT_CHECK_SECONDS = 5.0  # without a terminal
MAX_PENDING_BYTES = 64 << 20  # of output that a slow reader has not taken
STDERR_DRAIN_SECONDS = 1.0  # stdout waits for stderr: both may go to one file
RECOVERY_LOCK_SECONDS = 1.0  # the agent does not wait for the ledger; the next command recovers
POLICY_PREFIX = "policy: "  # of a report's warnings about broken rules
ERROR_EXIT_CODES = (1, 75, 77)  # of runs whose result is the text of an error
RUN_ONLY_OPTIONS = (
    "cwd",
    "session_id",
    "resume",
    "fork",
    "continue_",
    "worktree",
    "recording",
    "speed",
    "args",
)


def run(args: list[str]) -> int:
    """Run `steno run` and return its exit code."""
    options = parse_args(args)
    if options.sync:  # report wrong use before checking that the agent is installed
        from ..sync.destinations import check_destination

        for text in options.sync:
            check_destination(text)
    hooks = parse_hooks(options)
    stdout_option = f"--{options.form}" if options.form is not None else None
    outputs = outputs_from_options(options, "steno run", stdout_option)
    if outputs.uses_stdout:
        raise StenoError("stdout has the answer; write --junit, --sarif and --markdown to a file")
    outputs.has_page = False
    monitor = None
    if options.policy:
        from ..checks.monitor import load_monitor

        monitor = load_monitor(options.policy)
    values = {name: getattr(options, name) for name in (*SETTINGS_BY_NAME, *RUN_ONLY_OPTIONS)}
    prepared = prepare_task(
        read_prompt(options),
        {name: value for name, value in values.items() if value is not None},
        option_name,
    )
    otel = _create_otel(prepared)
    notifier = _create_notifier(prepared)
    refusal = prepared.refusal
    if refusal is not None:
        print_error(f"{refusal.error}; {refusal.hint}")
        if options.form == "json":
            print_json(refusal.to_json())
        _write_outputs(outputs, refusal, [], print_error)
        for sender in (otel, notifier):
            if sender is not None:
                sender.finish(refusal, print_error)
        return EXIT_CODES[refusal.verdict] if refusal.exit_code is None else refusal.exit_code
    if lost_runs():
        from .ps import recover_finished_runs

        recover_finished_runs(prepared.settings["ledger"], RECOVERY_LOCK_SECONDS)
    command = RunCommand(prepared, options, values, outputs)
    command.add_senders(otel, notifier)
    if hooks:
        command.add_hooks(hooks)
    if monitor is not None:
        command.add_policy(monitor)
    return command.run()


class RunCommand:
    """A task with its display, signals, sync and hooks."""

    def __init__(
        self,
        prepared: PreparedTask,
        options: argparse.Namespace,
        values: dict[str, Any],
        outputs: ReportOutputs,
    ) -> None:
        self._prepared = prepared
        self._senders: list[OtelOutput | Notifier] = []
        self._outputs = outputs
        self._output_format = options.form
        self._option_values = values
        self._hook_queue: HookQueue | None = None
        self._hook_runners: dict[str, HookRunner] = {}
        self._policy_monitor: PolicyMonitor | None = None
        self._policy_findings: list[RuleFinding] = []
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

    def add_policy(self, monitor: "PolicyMonitor") -> None:
        """Stop the run at the first broken rule, and check the report at its end."""
        self._policy_monitor = monitor
        self._runner.task.sinks.append(monitor.on_events)

    def add_senders(self, otel: "OtelOutput | None", notifier: "Notifier | None") -> None:
        """Send telemetry and notifications."""
        sinks = self._runner.task.sinks
        if otel is not None:
            self._senders.append(otel)
            sinks.append(lambda run, events: otel.add(events, run.id))
        if notifier is not None:
            name = self._prepared.settings["name"]
            self._senders.append(notifier)
            sinks.append(lambda run, events: notifier.add(events, name))

    def run(self) -> int:
        """Run the task to its end and return the exit code."""
        task = self._runner.task
        task.sinks.append(self._display.on_events)
        if self._sync is not None:
            task.sinks.append(self._sync_events)
        task.raw_sink = self._write_raw if self._output_format == "raw" else None
        for note in self._prepared.notes:
            self._display.say(note)
        if self._prepared.settings["quiet"]:
            task.sinks.append(self._warn_of_full_context)
        else:
            self._draw()
        with self._handle_signals():
            try:
                report = self._runner.run()
                is_policy_broken = self._check_policy(report)
                self._print_result(report)
                _write_outputs(self._outputs, report, self._policy_findings, self._warn)
                sync_code = 0 if self._sync is None else self._finish_sync(self._sync)
                if self._hook_queue is not None:
                    finish_hooks(self._hook_queue, self._warn)
                self._finish_senders(report)
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
        return code or sync_code or (EXIT_FAILED if is_policy_broken else 0)

    def _warn_of_full_context(self, run: object, events: "list[Event]") -> None:
        """With --quiet, print the alert of the highest level: it is a warning."""
        from ..views.timeline import alert_text

        highest = max(self._prepared.settings["alert_at"], default=None)
        for event in events:
            if isinstance(event, Alert) and event.kind == "context" and event.level == highest:
                self._warn(alert_text(event))

    def _check_policy(self, report: TaskReport) -> bool:
        """Add what the whole task breaks to the report's warnings."""
        if self._policy_monitor is None:
            return False
        from ..checks.policy import as_warnings

        self._policy_findings = self._policy_monitor.finish(report)
        warnings = as_warnings(self._policy_findings)
        report.warnings += warnings
        report.ok = report.ok and not warnings
        return bool(warnings)

    def _finish_senders(self, report: TaskReport) -> None:
        """Send what is pending, each within its time limit; a signal ends the wait."""
        count = self._runner.interrupt_count
        for sender in self._senders:
            sender.finish(report, self._warn, lambda: self._runner.interrupt_count > count)

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
        if self._runner.interrupt_count:
            sync.stop("interrupted", commands_only=True)
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
        is_drawn = self._display.terminal_fd >= 0
        runner.loop.call_later(REDRAW_SECONDS if is_drawn else HEARTBEAT_CHECK_SECONDS, self._draw)

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
        old_handlers[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._runner.loop.on_continued)
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
        if is_finished and self._sync is not None:
            self._sync.stop("interrupted", commands_only=True)
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
        answer = _answer_text(report, setup.launch_options.json_schema is not None)
        # On one terminal the answer is printed above the summary.
        is_printed = self._output_format is None and is_terminal(sys.stdout) and bool(answer)
        try:
            if self._output_format == "json":
                print_json(report.to_json())
            elif self._output_format is None:
                print_text(answer)
            elif self._stdout_queue is not None:
                self._stdout_queue.finish(None)
            error = self._stdout_error
            if error is not None and not isinstance(error, BrokenPipeError):
                raise error
            sys.stdout.flush()
        finally:  # also when stdout failed
            if self._prepared.settings["quiet"] and not report.ok:
                broken = [text for text in report.warnings if text.startswith(POLICY_PREFIX)]
                reason = report.error or "; ".join(broken) or report.hint or "not finished"
                print_error(f"{report.verdict}: {reason}")
            options = {
                **self._option_values,
                "cwd": None if setup.cwd == str(Path.cwd()) else setup.cwd,
                "max_turns": self._prepared.settings["max_turns"],
            }
            self._display.print_summary(
                report,
                resume_command(report, options),
                with_answer=not (is_printed and is_terminal(sys.stderr)),
            )


def _start_sync(options: argparse.Namespace, cwd: str | None) -> "FolderSync":
    from ..sync import FolderSync

    sync_options = build_sync_options(options, options.sync, RUN_OPTIONS)
    return FolderSync(cwd or str(Path.cwd()), sync_options)


def _create_otel(prepared: PreparedTask) -> "OtelOutput | None":
    """The telemetry, if asked for; the agent gets the trace that it continues."""
    settings = prepared.settings
    if settings["otel"] is None:
        return None
    from .otel import OtelOutput

    setup = prepared.setup
    otel = OtelOutput(settings["otel"], settings["otel_content"], setup.task_id)
    prepared.setup = replace(setup, extra_env={**otel.environment(), **setup.extra_env})
    return otel


def _create_notifier(prepared: PreparedTask) -> "Notifier | None":
    """The notifications, if asked for. Their URLs are secrets, which the agent does not get."""
    settings = prepared.settings
    if not settings["notify"]:
        return None
    from .notify import Notifier

    variable = SETTINGS_BY_NAME["notify"].variable
    env = {name: value for name, value in os.environ.items() if name != variable}
    prepared.setup = replace(prepared.setup, inherited_env=env)
    return Notifier(settings["notify"], settings["notify_on"])


def _write_outputs(
    outputs: ReportOutputs,
    report: TaskReport,
    findings: "list[RuleFinding]",
    warn: Callable[[str], None],
) -> None:
    """Write the files that were asked for; in GitHub Actions, also the summary of the step."""
    if outputs.is_active:
        from ..export.results import result_of

        name = report.name or report.run_id or "not started"
        outputs.write_task(result_of(name, report, findings), warn)


def _answer_text(report: TaskReport, has_schema: bool) -> str:
    """The agent's answer, as JSON with a schema. The text of an error is not an answer."""
    if has_schema:
        output = report.structured_output
        return encode(output).decode() if output is not None else ""
    if EXIT_CODES[report.verdict] in ERROR_EXIT_CODES:
        return report.text
    return report.result or report.text


# -- the command that resumes an unfinished task -------------------------------------------------

MAX_TURNS = 30  # limit of doubling
ANSWER_PLACEHOLDER = "<your answer>"
PROMPT_BY_VERDICT = {
    "interactive": ANSWER_PLACEHOLDER,
    "background_task": "is the background work done?",
    "context_full": "/compact",
}
# Not repeated in the command to resume: `notify` has secrets.
DISPLAY_SETTINGS = ("quiet", "feed", "exit_from", "otel", "otel_content", "notify", "notify_on")


def resume_command(report: TaskReport, options: Mapping[str, Any]) -> str | None:
    """`steno run --resume SESSION ...` with the same options, adapted to the verdict.

    `options` are those of the command line by name; `cwd` is set if the folder is another one.
    None if the task succeeded, no session was started, or the agent cannot resume one.
    """
    session = report.session_id
    if report.ok or session is None or not report.requests:
        return None
    agent = get_agent(report.agent)
    if agent is not None and not can_resume(agent, session):
        return None
    argv = ["steno", "run", "--resume", session]
    for name in ("cwd", "recording"):
        argv += [] if options.get(name) is None else [option_name(name), str(options[name])]
    if len({attempt.agent for attempt in report.attempts}) > 1:
        options = _adapt_to_fallback_agent(report, options)
    changed = dict(options)  # as the verdict requires
    if report.verdict == "permission":
        rules = [denial.allow_rule for denial in report.denials if denial.allow_rule]
        changed["allow"] = list(dict.fromkeys([*(options.get("allow") or ()), *rules]))
    elif report.verdict == "max_turns":
        changed["max_turns"] = _next_max_turns(options.get("max_turns"), report)
    for setting in SETTINGS:
        value = changed.get(setting.name)
        if value is None or value is False or setting.name in DISPLAY_SETTINGS:
            continue
        option = option_name(setting.name)
        if value is True:
            argv.append(option)
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            text = redact(str(item))
            argv += [f"{option}={text}"] if text.startswith("-") else [option, text]
    argv.append(PROMPT_BY_VERDICT.get(report.verdict, "continue"))
    extra = redact_argv(list(options.get("args") or ()))
    return join([*argv, *(["--", *extra] if extra else [])])


def _adapt_to_fallback_agent(report: TaskReport, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resume the session of the agent that took over, without the first agent's options."""
    model = options.get("model")
    on_limit = options.get("on_limit")
    return {
        **options,
        "agent": report.agent,
        "program": None,
        "args": (),
        "fallback_agent": None,
        "fallback_model": None,
        "model": model if model in MODEL_SIZES else None,
        "on_limit": None if on_limit == "fallback" else on_limit,
    }


def _next_max_turns(given: int | str | None, report: TaskReport) -> int | str | None:
    """Twice the limit; a range again."""
    turns = report.turns if given is None else given
    return max(turns, min(2 * turns, MAX_TURNS)) if isinstance(turns, int) else turns
