"""One run, live: its process, its tape, its running report, its clocks and its budget (R1 to R4, R9).

Each tick goes to the tape first, then to the reader, the fold and the sinks. Live is replay: what the report says is what
the tape says. It never decides what comes after the run; its task does.
"""

import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from .. import event as ev
from ..agents import REPLAY_AGENT_NAME, Agent, LaunchOptions
from ..agents.base import add_schema_prompt, build_environment
from ..analysis.accumulator import Accumulator
from ..analysis.cost import zero_price
from ..analysis.live_state import SpendTracker
from ..codec.redact import redact_and_truncate
from ..errors import RecordingError
from ..pricing import preload, price
from ..process import ChildProcess, ProcessCommand, ProcessLoop, Timer
from ..recording.format import BackendInfo, Header, Record
from ..recording.open import read_transcripts
from ..recording.parse import RunParser
from ..recording.record import Recorder
from ..report import Report
from ..workspace.change_watcher import ObservedChange
from .installed import version_of
from .json_schema import SchemaCheck, encode_schema_result
from .setup import RunBudget, TaskSetup, Timeouts
from .workspace_observer import WorkspaceObserver

MAX_PROMPT_CHARS = 2000  # characters of a prompt that are kept
MAX_KEY_ATTEMPTS = 2  # a key may be renewed after it was rejected once; an agent that goes on trying it (Claude: for 3 minutes) is ended
RunSink = Callable[["AgentRun", list[ev.Event]], None]
OnRunEnded = Callable[["AgentRun"], str]  # told of the end; says what was decided, for the tape


class AgentRun:
    """A run that goes on. `report` is None until it is over."""

    def __init__(
        self,
        loop: ProcessLoop,
        agent: Agent,
        ask: LaunchOptions,
        setup: TaskSetup,
        run_id: str,
        tape: Path | None,
        now: float,
        ended: OnRunEnded,
        witness: WorkspaceObserver,
    ) -> None:
        self.id, self.agent, self.launch_options, self.setup = run_id, agent, ask, setup
        self.recording_path, self.started_at = tape, now
        self.task_attempt: tuple[str, int] | None = None  # of which task it is, and which attempt
        self.report: Report | None = None
        self.sinks: list[RunSink] = []
        self.raw_sink: Callable[[bytes], None] | None = (
            None  # gets the agent's own bytes, as they come
        )
        self.warnings: list[str] = []  # troubles of our own
        self.on_warning: Callable[[str], None] = lambda text: (
            None
        )  # told of those that cost the record of the run
        self.schema_errors: tuple[
            str, ...
        ] = ()  # what is wrong with its answer, by the schema that was asked for
        local = ask.backend is not None and ask.backend.is_local
        self.parser = RunParser(agent, "stream")
        self.parser.accumulator.facts.use_heuristics = setup.use_heuristics
        self.spend = SpendTracker(
            self.parser.accumulator,
            zero_price
            if local
            else price
            if setup.track_cost or setup.budget.cost is not None
            else None,
        )
        self.child: ChildProcess | None = None
        self._loop, self._on_ended, self._observer = loop, ended, witness
        self._exited_after: float | None = None  # when the agent exited, once it has
        self._budget = setup.budget
        self._has_warned_budget = False
        self._has_unpriced_request = False  # a request had no known price
        self._is_stopping = False  # we asked it to end
        self._is_turn_closed = (
            False  # it has closed its turn with a result, and begun no other since
        )
        self._timers: list[Timer] = [
            Timer(0.0, None),
            Timer(0.0, None),
        ]  # the next look at the clocks, and the end of all time
        self._command = ProcessCommand((), None)
        self._recorder: Recorder | None = None
        self._schema_check = SchemaCheck(ask.json_schema)
        self._transcript_folders: list[str] = []  # where the agent keeps files of its sessions

    @property
    def accumulator(self) -> Accumulator:
        """What the run has shown so far."""
        return self.parser.accumulator

    @property
    def requested_session_id(self) -> str | None:
        """The session that it was asked to work in, where the agent takes one from us."""
        return self.launch_options.resume or (
            None
            if "session_id" in self.agent.launch.unsupported_options
            else self.launch_options.session_id
        )

    def prepare(self, budget: RunBudget) -> None:
        """Get ready, and begin its record. `budget` is what is left for it. RecordError: it cannot be recorded."""
        self._budget = budget
        inherited = os.environ if self.setup.inherited_env is None else self.setup.inherited_env
        program = self.setup.program or self.agent.name
        version = self.setup.version or version_of(
            program, inherited.get("PATH"), self.agent.installation.npm_package
        )
        begun = self.agent.launch.build_command(
            add_schema_prompt(self.agent, self.launch_options, version), program, version
        )
        argv = self._schema_check.build_argv(begun)
        cwd = self.setup.cwd or os.getcwd()  # noqa: PTH109
        header = Header(
            agent=self.agent.name,
            run_id=self.id,
            argv=list(argv),
            cwd=cwd,
            started_at=self.started_at,
            backend=_recorded_backend(self.launch_options),
            played=self.setup.agent == REPLAY_AGENT_NAME,
        )
        if self.task_attempt is not None:
            header.task, header.attempt = self.task_attempt
            header.prompt = redact_and_truncate(self.launch_options.prompt, MAX_PROMPT_CHARS)
        self._open_recording(header)
        self.parser.begin_recording(header)
        keys = (
            self.setup.pass_api_keys and self.launch_options.backend is None
        )  # those of the agent's maker are nobody else's business
        env = build_environment(
            inherited,
            self.agent.launch.env_policy,
            include_api_keys=keys,
            extra={**dict(begun.env), **self.setup.extra_env},
        )
        self._transcript_folders = self.agent.transcripts.folders(
            env, env.get("HOME") or str(Path.home())
        )
        self._command = ProcessCommand(
            argv, cwd, env, begun.stdin, begun.stdout, self.launch_options.steer
        )

    def start(self) -> None:
        """Start it, when it is ready."""
        setup = self.setup
        self._observer.subscribe(self._on_file_notices)
        self.child = self._loop.start(
            self._command,
            self._on_record,
            run_id=self.id,
            grace=setup.grace,
            keep_orphans=setup.keep_orphans,
        )
        if setup.timeouts.timeout is not None:
            self._timers[1] = self._loop.call_later(setup.timeouts.timeout, self._on_timeout)
        if self.spend.price is price:
            self._loop.call_soon(preload)  # the table is loaded while the agent starts
        self._note_observer_problems()
        self._check_timeouts()

    def _open_recording(self, header: Header) -> None:
        if self.recording_path is not None:
            try:
                self._recorder = Recorder(self.recording_path, header)
            except OSError as problem:
                self._schema_check.close()
                raise RecordingError(
                    f"{self.recording_path}: the tape cannot be made: {problem.strerror or problem}"
                ) from None

    # -- ticks -------------------------------------------------------------------------------------------------------

    def _on_record(self, tick: Record) -> None:
        if tick.code == "exit":
            self._exited_after = tick.offset_seconds
            self._observer.finish(lambda: self._on_exit(tick))
        else:
            self._process_record(tick)

    def _on_exit(self, tick: Record) -> None:
        """The agent is gone, and what it did to files is known: what else is to be told of it goes before its exit."""
        for orphan in self.child.orphans if self.child is not None else ():
            signal = "-" if orphan.signal is None else str(orphan.signal)
            self._process_record(
                Record(
                    tick.offset_seconds,
                    "left",
                    f"{orphan.pid} {signal} {orphan.command}".encode("utf-8", "replace"),
                )
            )
        for line in read_transcripts(
            self.parser.transcript_pattern(self.requested_session_id),
            self._transcript_folders,
            _transcript_timestamp(self.started_at),
        ):
            self._process_record(Record(tick.offset_seconds, "kept", line))
        self._note_observer_problems()
        self._process_record(tick)
        self._finish(tick.offset_seconds)

    def _on_file_notices(self, notices: list[ObservedChange]) -> None:
        """Files were seen to change."""
        for notice in notices if self.report is None else ():
            code = "git" if notice.source == "git" else "file"
            self._process_record(
                Record(self._elapsed(), code, os.fsencode(f"{notice.change} {notice.name}"))
            )

    def _note_observer_problems(self) -> None:
        """Say what of the files could not be seen."""
        while self._observer.problems:
            self.add_note(self._observer.problems.pop(0))

    def _elapsed(self) -> float | None:
        """How long it has been running; at most until the agent was gone."""
        if self._exited_after is not None or self.child is None:
            return self._exited_after
        return self._loop.clock() - self.child.started

    def _process_record(self, tick: Record) -> None:
        if self._recorder is not None:
            try:
                self._recorder.write(tick)
            except OSError as problem:
                self._on_recording_failed(problem)
        if tick.code == "out" and self.raw_sink is not None:
            self.raw_sink(tick.data)
        self._dispatch_events(self.parser.interpret_record(tick))

    def release(self) -> None:
        """Nothing more is recorded, whether it is over or not."""
        if self._recorder is not None:
            self._recorder.abandon()
            self._recorder = None

    def _on_recording_failed(self, problem: OSError) -> None:
        """The tape ends here; the run goes on: what it costs is being spent."""
        self.release()
        self.add_warning(
            f"the tape could not be written any further: {problem.strerror or problem}"
        )

    def add_warning(self, text: str) -> None:
        """Something of the record is lost: told at once, and by the report."""
        (self.warnings if self.report is None else self.report.warnings).append(text)
        self.on_warning(text)

    def _dispatch_events(self, events: list[ev.Event]) -> None:
        self.accumulator.add(events)
        for event in events:
            kind = type(event)
            if kind is ev.Usage:
                self._is_turn_closed = False
                self.spend.add(event)  # type: ignore[arg-type]  # told by the line above
            elif kind is ev.Result:
                self._on_turn_closed()
            elif kind is ev.Started:
                self._is_turn_closed = (
                    False  # the end of work in the background wakes the model once more
                )
            elif kind is ev.Retry:
                self._stop_on_rejected_key(event)  # type: ignore[arg-type]
        for sink in list(self.sinks):
            try:
                sink(self, events)
            except Exception as problem:  # a sink that fails is dropped; the run goes on
                self.sinks.remove(sink)
                self.warnings.append(
                    f"something that was listening failed and is left out: {type(problem).__name__}: {problem}"
                )
        if events and (self._budget.cost is not None or self._budget.tokens is not None):
            self._check_budget()

    def _on_turn_closed(self) -> None:
        """A turn is closed: whoever keeps its stdin open for messages would wait for the next one for ever."""
        self._is_turn_closed = True
        if self.child is not None:
            self.child.close_stdin()
        self._check_timeouts()

    def _stop_on_rejected_key(self, told: ev.Retry) -> None:
        """R7: a key that was rejected is not tried again and again."""
        if told.status == 401 and (told.attempt or 0) >= MAX_KEY_ATTEMPTS:
            self.stop("auth")

    def add_note(self, text: str) -> None:
        """Write a decision of ours on the tape, and tell the sinks."""
        self._process_record(Record(self._elapsed(), "note", text.encode("utf-8", "replace")))

    def _finish(self, after: float | None) -> None:
        for timer in self._timers:
            timer.cancel()
        self.parser.interpret_record(
            Record(None, "end")
        )  # the tape is closed below, whatever is decided
        self._dispatch_events(self.parser.flush())
        self._schema_check.close()
        self.report = self._build_report(after)
        decided = self._on_ended(self)
        if decided:
            self._process_record(Record(after, "note", decided.encode("utf-8", "replace")))
        if self._recorder is not None:
            try:
                self._recorder.close()
            except OSError as problem:
                self._on_recording_failed(problem)

    def _build_report(self, after: float | None) -> Report:
        """The report; an answer that a schema was asked for is held against it first, and what is found is on the tape."""
        source = str(self.recording_path) if self.recording_path is not None else None
        report = self.parser.report(source, price)
        checked = self._schema_check.check(report)
        if checked is None:
            return report
        self.schema_errors = checked.errors
        self._process_record(Record(after, "checked", encode_schema_result(checked)))
        return self.parser.report(source, price)

    # -- ends --------------------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Ask it to end: interrupt, terminate, kill."""
        if self.child is not None and self.report is None:
            self._is_stopping = True
            self.child.stop(why)

    def kill(self, why: str = "killed") -> None:
        """End it at once."""
        if self.child is not None and self.report is None:
            self._is_stopping = True
            self.child.kill(why)

    def send(self, text: str) -> bool:
        """Say something to an agent that takes messages while it runs; False: it does not, or is over."""
        if self.child is None or self.report is not None or not self.launch_options.steer:
            return False
        data = self.agent.launch.encode_message(text)
        if not self.child.send(data):
            return False
        self._process_record(Record(self._loop.clock() - self.child.started, "in", data))
        return True

    # -- clocks ------------------------------------------------------------------------------------------------------

    def _check_timeouts(self) -> None:
        """See whether a clock has run out; if not, look again when one could have.

        What the run does changes only when it is heard of, and no clock is shorter than the shortest.
        """
        child, clocks = self.child, self.setup.timeouts
        self._timers[0].cancel()
        if child is None or child.exit_code is not None or self._is_stopping:
            return
        now = self._loop.clock()
        limit, why, told = self._silence_limit(clocks)
        if limit is not None and child.last_output_at + limit <= now:
            self.add_note(f"{why}: no output for {now - child.last_output_at:.0f} s")
            self.stop(f"{why}: {told.format(limit)}" if told else why)
            return
        all_ = (
            clocks.first_output,
            clocks.silence,
            clocks.tool_silence,
            clocks.after_result,
            clocks.background,
        )
        times = [now + clock for clock in all_ if clock is not None] + (
            [] if limit is None else [child.last_output_at + limit]
        )
        if times:
            self._timers[0] = self._loop.call_at(min(times), self._check_timeouts)

    def _on_timeout(self) -> None:
        self.stop(f"timeout: not done within {self.setup.timeouts.timeout:g} s (--timeout)")

    def _silence_limit(self, clocks: Timeouts) -> tuple[float | None, str, str]:
        """How long it may be silent now, what it is called when it was for longer, and what is told of it then."""
        if self.child is not None and not self.child.has_stdout:
            return (
                clocks.first_output,
                "stalled",
                "no output within {:g} s of its start (--first-output)",
            )
        if self._is_turn_closed:
            return (
                (clocks.background if self._has_background_work() else clocks.after_result),
                "after_result",
                "",
            )
        if self.accumulator.open_calls or self._has_background_work():
            return (
                clocks.tool_silence,
                "stalled",
                "no output for {:g} s while a tool ran (--tool-silence)",
            )
        return clocks.silence, "stalled", "no output for {:g} s (--silence)"

    def _has_background_work(self) -> bool:
        return any(task.status == "running" for task in self.accumulator.background.values())

    # -- budget ------------------------------------------------------------------------------------------------------

    def _check_budget(self) -> None:
        budget = self._budget
        if (
            budget.cost is not None
            and self.spend.cost_nano is None
            and "max_cost" in self.agent.launch.unsupported_options
            and not self._has_unpriced_request
        ):
            self._has_unpriced_request = True
            self.warnings.append(
                "budget: a request has no known price: what it may cost was not held while it ran"
            )
            self.add_note(
                "budget: a request has no known price: what it may cost is not held while it runs"
            )
        if self._is_stopping or self._is_turn_closed:
            return
        parts = [
            None if budget.tokens is None else self.spend.tokens / max(budget.tokens, 1),
            None
            if budget.cost is None or self.spend.cost_nano is None
            else self.spend.cost_nano / max(budget.cost * 1e9, 1),
        ]
        used = max((part for part in parts if part is not None), default=0.0)
        if used >= 1:
            self.stop("max_budget")
            self.add_note("max_budget: what may be spent is spent")
        elif used >= budget.warn_at and not self._has_warned_budget:
            self._has_warned_budget = True
            self.add_note(f"budget: {used:.0%} of what may be spent is spent")


def _transcript_timestamp(time: float) -> str:
    """A time as the agents write it in their files, to the millisecond: a run may follow another within the same second."""
    return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def _recorded_backend(ask: LaunchOptions) -> BackendInfo | None:
    """What a tape says of the model server: all that its report needs, and no key."""
    given = ask.backend
    return (
        None
        if given is None
        else BackendInfo(
            kind=given.kind, url=given.url, local=given.is_local, window=given.context_window
        )
    )
