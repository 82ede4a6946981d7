"""One attempt: process, recording, live report, timeouts and budget.

Each record goes to the recording first, then to the parser, the accumulator and the sinks, so that
the live report equals that of the recording. What follows the attempt is decided by its task.
"""

import os
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path

from msgspec import Struct

from .. import event as ev
from ..agents import REPLAY_AGENT_NAME, Agent, LaunchOptions
from ..agents.base import (
    accepted_options,
    accepts_field,
    add_schema_prompt,
    build_environment,
    can_resume,
)
from ..analysis.cost import zero_price
from ..analysis.list_price import PriceLookup
from ..analysis.live_state import LiveState
from ..codec.redact import redact, redact_and_truncate, redact_value
from ..errors import RecordingError
from ..pricing import preload, price
from ..process import ChildProcess, ProcessCommand, ProcessLoop, Timer
from ..recording.format import BackendInfo, Header, Record, Recorder, encode_alert
from ..recording.open import last_session_totals, read_session
from ..recording.parse import RunParser
from ..report import Report
from ..workspace.change_watcher import ObservedChange
from ..workspace.origin import collect_origin
from .hooks import deliver
from .json_schema import SchemaCheck, encode_schema_result
from .live_usage import POLL_SECONDS, BudgetMeter, LiveUsage
from .program import inspect_program
from .setup import RunBudget, TaskSetup
from .workspace_observer import WorkspaceObserver

MAX_PROMPT_CHARS = 2000  # stored characters of a prompt
MAX_KEY_ATTEMPTS = 2  # a rejected key may be renewed once; Claude retries for 3 minutes
TOOL_STOP_REASONS = ("tool_use", "tool-calls")  # of an answer that another request follows
NO_LIVE_USAGE = "budget not enforced during the run: no usage found in the agent's session file"
UNPRICED_REQUEST = "cost budget not enforced during the run: price unknown for a request"
RunSink = Callable[["AgentRun", list[ev.Event]], None]
OnRunEnded = Callable[["AgentRun"], str]  # returns the decision, as a note for the recording


class SilenceLimit(Struct, frozen=True):
    """How long a run may be silent in its current state, and the message if it exceeds that.

    The message has a placeholder for the seconds.
    """

    seconds: float | None
    stop_word: str
    message: str = ""


class AgentRun:
    """An active run. `report` is None until it has finished."""

    def __init__(
        self,
        *,
        loop: ProcessLoop,
        agent: Agent,
        launch_options: LaunchOptions,
        setup: TaskSetup,
        run_id: str,
        recording_path: Path | None,
        started_at: float,
        on_ended: OnRunEnded,
        observer: WorkspaceObserver,
    ) -> None:
        self.id = run_id
        self.agent = agent
        self.launch_options = launch_options
        self.setup = setup
        self.recording_path = recording_path
        self.started_at = started_at
        self.task_attempt: tuple[str, int] | None = None  # task id and attempt number
        self.report: Report | None = None
        self.sinks: list[RunSink] = []
        self.raw_sink: Callable[[bytes], None] | None = None  # gets the agent's stdout bytes
        self.warnings: list[str] = []  # problems of steno itself
        self.on_warning: Callable[[str], None] = lambda text: None  # for losses of recorded data
        self.schema_errors: tuple[str, ...] = ()  # of the answer
        self._inherited_env = os.environ if setup.inherited_env is None else setup.inherited_env
        self._program = setup.program or agent.name
        self._program_info = inspect_program(
            agent, self._program, self._inherited_env, setup.extra_env
        )
        # The session to resume or create, if the agent accepts one.
        self.requested_session_id = launch_options.resume
        if not launch_options.resume and accepts_field(agent, "session_id", self._program_info):
            self.requested_session_id = launch_options.session_id
        self.parser = RunParser(agent)
        self.accumulator = self.parser.accumulator  # the running state of the report
        self.accumulator.facts.use_heuristics = setup.use_heuristics
        lookup: PriceLookup | None = None
        if launch_options.backend is not None and launch_options.backend.is_local:
            lookup = zero_price
        elif setup.track_cost or setup.budget.cost is not None:
            lookup = price
        self._usage = LiveUsage(self.parser, lookup, setup.alert_at)
        self.spend = self._usage.spend
        self.usage_accumulator = self._usage.accumulator  # the requests so far
        self.child: ChildProcess | None = None
        self._loop = loop
        self._on_ended = on_ended
        self._observer = observer
        self._exited_after: float | None = None  # seconds from start to exit
        self._budget: BudgetMeter | None = None
        self._has_unpriced_request = False
        self._is_stopping = False
        self._is_turn_closed = False  # a result came, and no new turn has begun since
        self._continues = False  # it works on after a result
        self._permission_waits: dict[str, float] = {}  # until when, by the id of the request
        self._permission_given_at = 0.0
        self._silence_timer = Timer(0.0, None)
        self._timeout_timer = Timer(0.0, None)
        self._suspended_before = 0.0  # before the start, or the last delay of the time limit
        self._usage_timer = Timer(0.0, None)
        self._command = ProcessCommand((), None)
        self._recorder: Recorder | None = None
        self._schema_check: SchemaCheck | None = None
        self._transcript_folders: list[str] = []

    def prepare(self, budget: RunBudget) -> None:
        """Build the command and open the recording. RecordingError if that fails.

        `budget` is what earlier attempts have left of the task's.
        """
        setup = self.setup
        if budget.cost is not None or budget.tokens is not None:
            self._budget = BudgetMeter(setup.budget, budget, self.spend)
        info = self._program_info
        options = add_schema_prompt(self.agent, self.launch_options, info)
        options = accepted_options(self.agent, options, info)
        command = self.agent.launch.build_command(options, self._program, info)
        argv = command.argv
        schema = self.launch_options.json_schema
        if schema is not None or command.schema is not None:
            self._schema_check = SchemaCheck(schema)
            argv = self._schema_check.build_argv(command)
        cwd = setup.cwd or os.getcwd()  # noqa: PTH109  # the text as it is
        self._open_recording(argv, cwd)
        # Another model server must not get the keys of the agent's vendor.
        env = build_environment(
            self._inherited_env,
            self.agent.launch.env_policy,
            include_api_keys=setup.pass_api_keys and self.launch_options.backend is None,
            extra={**dict(command.env), **setup.extra_env},
        )
        home = env.get("HOME") or str(Path.home())
        self._transcript_folders = self.agent.transcripts.folders(env, home)
        self._command = ProcessCommand(
            argv=argv,
            cwd=cwd,
            env=env,
            stdin=command.stdin,
            stdout=command.stdout,
            keep_stdin_open=self.launch_options.steer,
        )

    def _open_recording(self, argv: tuple[str, ...], cwd: str) -> None:
        header = Header(
            agent=self.agent.name,
            run_id=self.id,
            argv=list(argv),
            cwd=cwd,
            started_at=self.started_at,
            played=self.setup.agent == REPLAY_AGENT_NAME,
            name=self.setup.name and redact(self.setup.name),
            tags=redact_value(self.setup.tags),
            origin=collect_origin(cwd, os.environ),
        )
        if not header.played:
            header.resumes = bool(self.launch_options.resume or self.launch_options.continue_)
        backend = self.launch_options.backend
        if backend is not None:  # without its key
            header.backend = BackendInfo(
                kind=backend.kind,
                url=backend.url,
                local=backend.is_local,
                window=backend.context_window,
            )
        if self.task_attempt is not None:
            header.task, header.attempt = self.task_attempt
            header.prompt = redact_and_truncate(self.launch_options.prompt, MAX_PROMPT_CHARS)
        if self.recording_path is not None:
            try:
                self._recorder = Recorder(self.recording_path, header)
            except OSError as error:
                if self._schema_check is not None:
                    self._schema_check.close()
                raise RecordingError(
                    f"{self.recording_path}: cannot create the recording: {error.strerror or error}"
                ) from None
        self.parser.begin_recording(header)

    def start(self) -> None:
        """Start the prepared command."""
        setup = self.setup
        if self.launch_options.resume:
            self._record_earlier_totals(self.launch_options.resume)
        self._observer.subscribe(self._on_file_changes)
        self.child = self._loop.start(
            self._command,
            self._on_record,
            run_id=self.id,
            grace=setup.grace,
            keep_orphans=setup.keep_orphans,
        )
        self._suspended_before = self._loop.suspended_seconds
        if setup.timeouts.timeout is not None:
            self._timeout_timer = self._loop.call_later(setup.timeouts.timeout, self._on_timeout)
        if self.spend.price is price:
            self._loop.call_soon(preload)  # load the price table while the agent starts
        if self._usage.is_in_session_file:
            since = _transcript_timestamp(self.started_at)
            self._usage.follow(self._transcript_folders, since)
            self._poll_usage()
        self._note_observer_problems()
        self._check_timeouts()

    def _record_earlier_totals(self, session: str) -> None:
        """Record the totals that a resumed session has before this run, which may add to them."""
        transcripts = self.agent.transcripts
        if not transcripts.totals_only or not self.agent.is_session_id(session):
            return
        pattern = transcripts.pattern(session) if transcripts.pattern is not None else None
        line = last_session_totals(pattern, self._transcript_folders, transcripts.totals_marker)
        if line is not None:
            self._process_record(Record(0.0, "kept", line))

    # -- records ---------------------------------------------------------------------------------

    def _on_record(self, record: Record) -> None:
        if record.code == "exit":
            self._exited_after = record.offset_seconds
            if self._usage.is_in_session_file:
                self._poll_usage()
                self._warn_of_missing_usage()
            self._observer.finish(lambda: self._on_exit(record))
        else:
            self._process_record(record)

    def _on_exit(self, record: Record) -> None:
        """The agent has exited and its file changes are known: record the rest before its exit."""
        for orphan in self.child.orphans if self.child is not None else ():
            signal = "-" if orphan.signal is None else str(orphan.signal)
            line = f"{orphan.pid} {signal} {orphan.command}".encode("utf-8", "replace")
            self._process_record(Record(record.offset_seconds, "left", line))
        for line in self._transcript_lines():
            self._process_record(Record(record.offset_seconds, "kept", line))
        self._note_observer_problems()
        self._process_record(record)
        self._finish(record.offset_seconds)

    def _transcript_lines(self) -> Iterable[bytes]:
        """The lines of the session's transcripts that complete this run."""
        transcripts = self.agent.transcripts
        options = self.launch_options
        if transcripts.totals_only and (not options.continue_ or options.fork):
            return ()  # its totals are recorded, or another's
        since = _transcript_timestamp(self.started_at)
        folders = self._transcript_folders
        if not transcripts.totals_only:
            session = self.parser.transcript_session(self.requested_session_id)
            return read_session(self.agent, session, folders, since)
        pattern = self.parser.transcript_pattern(self.requested_session_id)
        line = last_session_totals(pattern, folders, transcripts.totals_marker, since)
        return () if line is None else (line,)

    def _on_file_changes(self, changes: list[ObservedChange]) -> None:
        if self.report is not None:
            return
        for change in changes:
            code = "git" if change.source == "git" else "file"
            line = os.fsencode(f"{change.change} {change.name}")
            self._process_record(Record(self._elapsed(), code, line))

    def _note_observer_problems(self) -> None:
        while self._observer.problems:
            self.add_note(self._observer.problems.pop(0))

    def _elapsed(self) -> float | None:
        """Seconds since the start, at most until the exit."""
        if self._exited_after is not None or self.child is None:
            return self._exited_after
        return self._loop.clock() - self.child.started

    def _process_record(self, record: Record) -> None:
        if self._recorder is not None:
            try:
                self._recorder.write(record)
            except OSError as error:
                self._on_recording_failed(error)
        if record.code == "out" and self.raw_sink is not None:
            self.raw_sink(record.data)
        self._dispatch_events(self.parser.interpret_record(record))

    def release(self) -> None:
        """Stop recording, finished or not."""
        if self._recorder is not None:
            self._recorder.abandon()
            self._recorder = None

    def _on_recording_failed(self, error: OSError) -> None:
        """Continue without the recording: the run's cost is spent already."""
        self.release()
        self.add_warning(f"recording incomplete: {error.strerror or error}")

    def add_warning(self, text: str) -> None:
        """Warn at once and in the report: recorded data is lost."""
        (self.warnings if self.report is None else self.report.warnings).append(text)
        self.on_warning(text)

    def _dispatch_events(self, events: list[ev.Event]) -> None:
        alerts = self._usage.add(events)
        for event in events:
            kind = type(event)
            if kind is ev.Usage:
                self._is_turn_closed = False
            elif kind is ev.Result:
                self._is_turn_closed = True
                if self.child is not None:
                    # An agent that accepts messages would wait for the next one forever.
                    self.child.close_stdin()
                self._check_timeouts()
            elif kind is ev.Started:
                self._continues |= self._is_turn_closed
                self._is_turn_closed = False  # finished background work starts another turn
            elif kind is ev.TaskEnded:
                self._continues |= self._is_turn_closed
            elif kind is ev.Retry:
                self._stop_on_rejected_key(event)  # type: ignore[arg-type]  # kind checked above
        deliver(self.sinks, lambda sink: sink(self, events), self.warnings)
        if alerts:
            self._report_alerts(alerts)
        if events and self._budget is not None:
            self._check_budget(self._budget)
        if events and self.launch_options.max_turns is not None:
            self._check_turns(self.launch_options.max_turns, events[-1])

    def _stop_on_rejected_key(self, retry: ev.Retry) -> None:
        """Stop an agent that repeats a request with a rejected key."""
        if retry.status == 401 and (retry.attempt or 0) >= MAX_KEY_ATTEMPTS:
            self.stop("auth")

    def can_resume(self, session: str | None) -> bool:
        """Whether another run of this program can continue a session."""
        return session is not None and can_resume(
            self.agent, session, self._program, self._program_info
        )

    @property
    def turns(self) -> int:
        """Requests of the main thread so far."""
        return LiveState(self.accumulator).turns

    def add_note(self, text: str) -> None:
        """Record a decision of steno, and pass it to the sinks."""
        self._process_record(Record(self._elapsed(), "note", text.encode("utf-8", "replace")))

    def _finish(self, after: float | None) -> None:
        self._silence_timer.cancel()
        self._timeout_timer.cancel()
        self._usage_timer.cancel()
        if self._usage.is_in_session_file:
            self._usage.close()
        self.parser.interpret_record(Record(None, "end"))  # the recording is closed below
        self._dispatch_events(self.parser.flush())
        source = str(self.recording_path) if self.recording_path is not None else None
        report = self.parser.report(source, price)
        if self._schema_check is not None:
            self._schema_check.close()
            result = self._schema_check.check(report)
            if result is not None:  # recorded and included in the report
                self.schema_errors = result.errors
                self._process_record(Record(after, "checked", encode_schema_result(result)))
                report = self.parser.report(source, price)
        self.report = report
        note = self._on_ended(self)
        if note:
            self._process_record(Record(after, "note", note.encode("utf-8", "replace")))
        if self._recorder is not None:
            try:
                self._recorder.close()
            except OSError as error:
                self._on_recording_failed(error)

    # -- stop and send ---------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Interrupt, then terminate, then kill.

        `reason` starts with the verdict, optionally followed by a colon and a message.
        """
        if self.child is not None and self.report is None:
            self._is_stopping = True
            self.child.stop(reason)

    def kill(self, reason: str = "killed") -> None:
        """Kill at once."""
        if self.child is not None and self.report is None:
            self._is_stopping = True
            self.child.kill(reason)

    def send(self, text: str) -> bool:
        """Send a message to the running agent; False if it accepts none or has finished."""
        if self.child is None or self.report is not None or not self.launch_options.steer:
            return False
        data = self.agent.launch.encode_message(text)
        if not self.child.send(data):
            return False
        self._process_record(Record(self._loop.clock() - self.child.started, "in", data))
        return True

    # -- permission requests ---------------------------------------------------------------------

    def await_permission(self, request: str, text: str, seconds: float) -> None:
        """A person is asked to permit a call: until the answer, silence is no reason to stop."""
        if self.report is None and self.child is not None:
            self._permission_waits[request] = self._loop.clock() + seconds
            self.add_note(text)
            self._check_timeouts()

    def end_permission_wait(self, request: str, text: str) -> None:
        if self._permission_waits.pop(request, None) is not None and self.report is None:
            self._permission_given_at = self._loop.clock()
            self.add_note(text)
            self._check_timeouts()

    @property
    def awaits_permission(self) -> bool:
        now = self._loop.clock()
        return any(until > now for until in self._permission_waits.values())

    # -- timeouts --------------------------------------------------------------------------------

    def _check_timeouts(self) -> None:
        """Stop the run if it was silent for too long, else check again at the next deadline.

        The next check is due after the shortest limit, since the run's state changes only with
        output.
        """
        child = self.child
        timeouts = self.setup.timeouts
        self._silence_timer.cancel()
        if child is None or child.exit_code is not None or self._is_stopping:
            return
        now = self._loop.clock()
        limit = self._silence_limit()
        # While a person is asked, the run is not silent but waiting.
        waited_until = (min(until, now) for until in self._permission_waits.values())
        silent_since = max(child.silent_since, self._permission_given_at, *waited_until)
        if limit.seconds is not None and silent_since + limit.seconds <= now:
            self._stop_silent_run(limit, now - silent_since)
            return
        all_limits = (
            timeouts.first_output,
            timeouts.silence,
            timeouts.tool_silence,
            timeouts.after_result,
            timeouts.background,
        )
        deadlines = [now + seconds for seconds in all_limits if seconds is not None]
        if limit.seconds is not None:
            deadlines.append(silent_since + limit.seconds)
        if deadlines:
            self._silence_timer = self._loop.call_at(min(deadlines), self._check_timeouts)

    def _stop_silent_run(self, limit: SilenceLimit, silence: float) -> None:
        self.add_note(f"{limit.stop_word}: no output for {silence:.0f} s")
        message = limit.message.format(limit.seconds)
        self.stop(f"{limit.stop_word}: {message}" if message else limit.stop_word)

    def _on_timeout(self) -> None:
        missed = self._loop.suspended_seconds - self._suspended_before
        if missed > 0:  # steno was suspended meanwhile
            self._suspended_before += missed
            self._timeout_timer = self._loop.call_later(missed, self._on_timeout)
            return
        self.stop(f"timeout: timed out after {self.setup.timeouts.timeout:g} s (--timeout)")

    def _silence_limit(self) -> SilenceLimit:
        timeouts = self.setup.timeouts
        if self.child is not None and not self.child.has_stdout:
            message = "no output within {:g} s of the start (--first-output)"
            return SilenceLimit(timeouts.first_output, "stalled", message)
        has_background_work = bool(self.accumulator.running_tasks)
        if self._is_turn_closed:
            limit = timeouts.background if has_background_work else timeouts.after_result
            return SilenceLimit(limit, "after_result")
        has_open_calls = self.accumulator.open_calls or self.accumulator.abandoned_calls
        if has_open_calls or has_background_work:
            message = "no output for {:g} s while a tool ran (--tool-silence)"
            return SilenceLimit(timeouts.tool_silence, "stalled", message)
        return SilenceLimit(timeouts.silence, "stalled", "no output for {:g} s (--silence)")

    # -- usage and budget ------------------------------------------------------------------------

    def _poll_usage(self) -> None:
        """Look at the agent's session file now, and again soon unless the agent has exited."""
        self._usage_timer.cancel()
        alerts = self._usage.poll(self._loop.clock(), self.requested_session_id)
        self._report_alerts(alerts)
        if self._budget is not None:
            self._check_budget(self._budget)
        if self._exited_after is None:
            self._usage_timer = self._loop.call_later(POLL_SECONDS, self._poll_usage)

    def _warn_of_missing_usage(self) -> None:
        has_answer = self.accumulator.texts or self.accumulator.calls
        if self._budget is not None and has_answer and self._usage.is_missing:
            self.warnings.append(NO_LIVE_USAGE)
            self.add_note(NO_LIVE_USAGE)

    def _report_alerts(self, alerts: list[ev.Alert]) -> None:
        """Record alerts, and pass them to the sinks."""
        for alert in alerts:
            self._process_record(Record(self._elapsed(), "alert", encode_alert(alert)))

    def _check_budget(self, budget: BudgetMeter) -> None:
        if (
            self.setup.budget.cost is not None
            and self.spend.cost_nano is None
            and not accepts_field(self.agent, "max_cost", self._program_info)
            and not self._has_unpriced_request
        ):
            self._has_unpriced_request = True
            self.warnings.append(UNPRICED_REQUEST)
            self.add_note(UNPRICED_REQUEST)
        self._report_alerts(budget.check())
        if self._is_stopping or self._is_turn_closed or self._exited_after is not None:
            return
        if budget.is_exhausted:
            self.stop("max_budget")
            self.add_note("max_budget: budget exhausted")

    def _check_turns(self, limit: int, event: ev.Event) -> None:
        """Stop a run that makes more requests than allowed, or is about to.

        An agent's own limit does not count the turns that finished background work starts.
        """
        if self._is_stopping or self.child is None or self.child.exit_code is not None:
            return
        used = self.turns
        if used > limit or (used == limit and (self._continues or self._calls_are_done(event))):
            self.stop(f"max_turns: turn limit reached ({limit})")

    def _calls_are_done(self, event: ev.Event) -> bool:
        """Whether the next request of an agent without its own limit follows this event."""
        run = self.accumulator
        if "max_turns" not in self.agent.launch.unsupported_options:
            return False
        if run.open_calls or run.abandoned_calls:
            return False
        if type(event) is ev.Usage:
            return event.stop_reason in TOOL_STOP_REASONS
        return type(event) is ev.ToolResult and not run.requests  # its requests have no usage


def _transcript_timestamp(time: float) -> str:
    """A time as in the agents' files, in milliseconds: runs may follow within one second."""
    return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
