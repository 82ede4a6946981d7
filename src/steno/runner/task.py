"""A task: attempts, one after another, until it is done or nothing is gained by another (R5 to R11).

It turns with the loop and never waits by itself, so that one program can carry out any number of tasks. Each decision is
a note on the tape of the run that it follows, and is told to whoever listens.
"""

import os
import random
import time
import uuid
from collections.abc import Callable

import msgspec

from ..agents import CLAUDE, LaunchOptions, get_agent
from ..config.data_dir import new_recording_path, new_run_id
from ..errors import StenoError
from ..process import ProcessLoop, Timer
from ..report import Report, TaskReport
from .attempt import AgentRun, OnRunEnded, RunSink
from .handover import (
    HANDOVER_PROMPT,
    missing_agent_report,
    resolve_agent,
    setup_for_fallback,
    summary_from_reports,
)
from .ledger_writer import LedgerWriter
from .retry_policy import AttemptHistory, Decision, decide
from .setup import RunBudget, TaskSetup
from .task_report import merge_reports
from .workspace_observer import WorkspaceObserver

CONTINUE_PROMPT = "continue"
SUMMARY_PROMPT = (
    "Summarise this session for a colleague who takes over and has seen none of it. Say what was accomplished, which decisions "
    "were made and why, the state of the code, known issues, and the next steps. Answer with the summary only."
)

LogFunction = Callable[[str], None]


class Task:
    """A task that goes on. `report` is None until it is over."""

    def __init__(
        self,
        loop: ProcessLoop,
        setup: TaskSetup,
        *,
        log: LogFunction | None = None,  # told what was decided
        warn: LogFunction
        | None = None,  # told what nobody expects, also where nothing else is to be told
        now: Callable[[], float] = time.time,
    ) -> None:
        self.agent, setup = resolve_agent(setup)
        self.loop, self.setup, self.now = loop, setup, now
        self.id = setup.task_id or new_run_id(now())
        self.report: TaskReport | None = None
        self.run: AgentRun | None = None  # the attempt that goes on, or the last one
        self.sinks: list[RunSink] = []
        self.watchers: list[
            Callable[[], None]
        ] = []  # called before and after an attempt begins, at a wait, when all is over
        self.raw_sink: Callable[[bytes], None] | None = (
            None  # gets the agent's own bytes of every attempt
        )
        self.waits_until: float | None = None  # by `now`: the end of a wait between two attempts
        self.random_fraction: Callable[[], float] = random.Random().random  # noqa: S311  # spreads retries; no secret hangs on it
        self._log = log or (lambda text: None)
        self._warn = warn or self._log
        self._warnings: list[str] = []  # of our own, that no attempt tells of
        self._reports: list[Report] = []
        self._reasons: list[str] = []
        self._history = AttemptHistory(
            max_turns=setup.launch_options.max_turns,
            fallback_agents=tuple(stand.agent for stand in setup.fallback_agents),
        )
        self._pending_step: Callable[[], None] | None = None
        self._wait_timer: Timer | None = None
        self._stop_reason: str | None = None
        self._handover_options: LaunchOptions | None = (
            None  # what a new session is asked that took over from another
        )
        self._fallback_model: str | None = None  # the one that was fallen back to (R11)
        self._original_prompt = (
            setup.launch_options.prompt
        )  # what the task is, whoever carries it out
        self._unrecorded_decisions: list[str] = []  # made before there was a tape
        self._final_attempt = -1  # the attempt that says how the task ended
        self._has_begun = False  # an attempt was made
        self._ledger_writer = LedgerWriter(setup, self.id, self._add_warning)

    def start(self) -> "Task":
        """Begin with the first attempt; an agent that is not there leaves it to the next."""
        if self.setup.not_found_reason is not None:
            self._skip_unavailable_agent(missing_agent_report(self.setup))
            return self
        ask = self.setup.launch_options
        if ask.session_id is None and ask.resume is None and not ask.continue_:
            ask = msgspec.structs.replace(ask, session_id=str(uuid.uuid4()))
        self._begin_attempt(ask)
        return self

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self.report is not None

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _begin_attempt(self, ask: LaunchOptions, ended: OnRunEnded | None = None) -> None:
        self.waits_until = None
        if self._stop_reason is not None:  # asked to end between two attempts
            self._finish()
            return
        now = self.now()
        name, setup = new_run_id(now), self.setup
        witness = WorkspaceObserver(
            self.loop,
            setup.cwd or os.getcwd(),  # noqa: PTH109
            name,
            setup.changes,
            setup.record,
        )
        witness.start(lambda: self._start_attempt(ask, name, witness, ended or self._on_run_ended))

    def _start_attempt(
        self, ask: LaunchOptions, name: str, witness: WorkspaceObserver, then: OnRunEnded
    ) -> None:
        if (
            self._stop_reason is not None and self._reports
        ):  # while the state of the files was taken
            witness.close()
            self._finish()
            return
        run = self._build_recorded_run(ask, name, then, witness)
        self._history.resumed_session_id = ask.resume
        if not self._has_begun:
            self._has_begun = True
            self._ledger_writer.open_task(run.started_at)
        self._ledger_writer.begin_attempt(run, len(self._reports) + 1)
        run.start()
        while self._unrecorded_decisions:
            run.add_note(self._unrecorded_decisions.pop(0))
        self._notify_watchers()
        if self._stop_reason is not None:
            run.stop(self._stop_reason)

    def _build_recorded_run(
        self, ask: LaunchOptions, name: str, then: OnRunEnded, witness: WorkspaceObserver
    ) -> AgentRun:
        """The next attempt, ready to start."""
        try:
            return self._build_run(ask, name, then, witness, self.setup.record)
        except (
            StenoError
        ) as problem:  # the first attempt is not made without its record; later ones are worth more
            self.run = None
            self._notify_watchers()
            if not self._has_begun:
                witness.close()
                raise
            run = self._build_run(ask, name, then, witness, record=False)
            run.add_warning(f"this attempt was not recorded: {problem}")
            return run

    def _skip_unavailable_agent(self, report: Report) -> None:
        """An attempt that could not be made: no process, no tape; its end is decided upon all the same."""
        self._reports.append(report)
        following = decide(report, self._history, self.setup.policy, self.now(), 0.0)
        self._reasons.append(following.reason)
        if following.action != "other":
            self._finish()
            return
        self._log(following.reason)
        self._unrecorded_decisions.append(f"{following.action}: {following.reason}")
        self._switch_to_fallback()

    def _add_warning(self, text: str) -> None:
        self._warnings.append(text)
        self._warn(text)

    def has_pending_write(self, run: str) -> bool:
        """Whether the ledger does not have the end of a run that it should have."""
        return self._ledger_writer.has_pending_write(run)

    def _notify_watchers(self) -> None:
        for watch in self.watchers:
            watch()

    def _build_run(
        self,
        ask: LaunchOptions,
        name: str,
        ended: OnRunEnded,
        witness: WorkspaceObserver,
        record: bool,
    ) -> AgentRun:
        """An attempt whose record has begun. Others can see it before that: should we be killed now, it is found again."""
        left, now = self._remaining_budget(), self.now()
        if (
            ask.backend is not None and ask.backend.is_local
        ):  # the agent would count the dollars of its maker's models
            ask = msgspec.structs.replace(ask, max_cost=None)
        elif left.cost is not None and left.cost > 0:  # its own account is the more exact one
            ask = msgspec.structs.replace(
                ask, max_cost=left.cost if ask.max_cost is None else min(ask.max_cost, left.cost)
            )
        tape = new_recording_path(name, now) if record else None
        run = self.run = AgentRun(
            self.loop, self.agent, ask, self.setup, name, tape, now, ended, witness
        )
        run.task_attempt = (self.id, len(self._reports) + 1)
        run.sinks, run.raw_sink, run.on_warning = [*self.sinks], self.raw_sink, self._warn
        self._notify_watchers()
        run.prepare(left)
        return run

    def _remaining_budget(self) -> RunBudget:
        """What may still be spent."""
        budget = self.setup.budget
        spent = sum(report.cost.usd or 0.0 for report in self._reports)
        used = sum(report.tokens.total or 0 for report in self._reports)
        return msgspec.structs.replace(
            budget,
            cost=None if budget.cost is None else budget.cost - spent,
            tokens=None if budget.tokens is None else budget.tokens - used,
        )

    def _on_run_ended(self, run: AgentRun) -> str:
        """An attempt is over: decide what comes next, and say so."""
        report = run.report
        if report is None:
            return ""
        report.warnings += run.warnings
        self._reports.append(report)
        following = self._decide_next(report, run.schema_errors)
        self._reasons.append(following.reason)
        self._update_history(report, following)
        self._schedule_ledger_write(run, report, following.reason)
        if following.action == "stop":
            self.loop.call_soon(self._finish)
        else:
            (self._add_warning if following.is_warning else self._log)(following.reason)
            self._wait_then(
                following.wait_seconds,
                lambda: self._apply_decision(run.launch_options, report, following),
            )
        return f"{following.action}: {following.reason}"

    def _schedule_ledger_write(self, run: AgentRun, report: Report, why: str) -> None:
        """Write an attempt's row once its tape is closed: should we be killed in between, the row is made from the tape."""
        self.loop.call_soon(lambda: self._ledger_writer.end_attempt(run, report, why))

    def _decide_next(self, report: Report, wrong: tuple[str, ...]) -> Decision:
        if self._stop_reason is not None:
            return Decision(action="stop", reason=self._stop_reason)
        spent = self._exhausted_budget_reason()
        if spent is not None and report.verdict != "success":
            return Decision(action="stop", reason=spent)
        tried = msgspec.structs.replace(
            self._history, attempts=self._history.attempts + 1, schema_errors=wrong
        )
        return decide(report, tried, self.setup.policy, self.now(), self.random_fraction())

    def _exhausted_budget_reason(self) -> str | None:
        """Why nothing more may be spent, if so."""
        left = self._remaining_budget()
        if left.cost is not None and left.cost <= 0:
            return "max_budget: what the task may cost is spent"
        if left.tokens is not None and left.tokens <= 0:
            return "max_budget: the tokens that the task may use are used"
        return None

    def _update_history(self, report: Report, following: Decision) -> None:
        tried = self._history
        tried.attempts += following.counts_as_attempt
        tried.limit_waits = tried.limit_waits + 1 if report.verdict == "rate_limit" else 0
        tried.consecutive_failures = (
            tried.consecutive_failures + 1
            if following.wait_seconds and report.verdict != "rate_limit"
            else 0
        )
        tried.has_lost_session = tried.has_lost_session or following.action == "fresh"
        tried.corrections += following.prompt is not None
        tried.has_used_fallback_model = tried.has_used_fallback_model or following.model is not None
        if report.verdict == "rate_limit":
            self._fallback_model = following.model  # None: it was waited for the first one
        tried.max_turns = (
            following.max_turns if following.max_turns is not None else tried.max_turns
        )

    def _wait_then(self, seconds: float, then: Callable[[], None]) -> None:
        self._pending_step = then
        self.waits_until = self.now() + seconds if seconds else None
        self._wait_timer = self.loop.call_later(seconds, self._on_wait_over)
        self._notify_watchers()

    def _on_wait_over(self) -> None:
        then, self._pending_step, self._wait_timer = self._pending_step, None, None
        if then is not None:
            then()

    def _apply_decision(self, before: LaunchOptions, report: Report, following: Decision) -> None:
        if following.action == "handover":
            self._request_summary(report)
        elif following.action == "other":
            self._switch_to_fallback()
        elif following.action == "resume":
            self._begin_attempt(
                _resume_options(
                    self._current_launch_options(),
                    report.session_id,
                    following.prompt or CONTINUE_PROMPT,
                )
            )
        elif (
            following.action == "again" and before.session_id is None
        ):  # it was to go on with a session, and still is
            again = msgspec.structs.replace(
                self._current_launch_options(), prompt=before.prompt, session_id=None
            )
            self._begin_attempt(
                msgspec.structs.replace(
                    again, resume=before.resume, fork=before.fork, continue_=before.continue_
                )
            )
        else:
            self._begin_attempt(
                _new_session_options(self._current_launch_options(), following.prompt)
            )

    def _switch_to_fallback(self) -> None:
        """R11: the next agent goes on, in a session of its own."""
        stand, *left = self.setup.fallback_agents
        self.setup = msgspec.structs.replace(
            self.setup,
            launch_options=msgspec.structs.replace(
                self.setup.launch_options, prompt=self._original_prompt
            ),
        )
        self.setup = msgspec.structs.replace(
            setup_for_fallback(self.setup, stand, self._reports), fallback_agents=tuple(left)
        )
        self.agent = get_agent(stand.agent) or CLAUDE
        others = tuple(one.agent for one in left)
        self._history = AttemptHistory(
            attempts=self._history.attempts,
            max_turns=self.setup.launch_options.max_turns,
            fallback_agents=others,
        )
        self._handover_options = self._fallback_model = None
        self._begin_attempt(_new_session_options(self._current_launch_options()))

    def _current_launch_options(self) -> LaunchOptions:
        """What was asked first; of a task that was handed over, with what the new session must know."""
        asked = (
            self._handover_options
            if self._handover_options is not None
            else self.setup.launch_options
        )
        if self._fallback_model is not None:  # an agent does not take one model for both
            asked = msgspec.structs.replace(asked, model=self._fallback_model, fallback_model=None)
        return msgspec.structs.replace(asked, max_turns=self._history.max_turns)

    # -- handover (R8) -----------------------------------------------------------------------------------------------

    def _request_summary(self, report: Report) -> None:
        """Ask the old session for a summary; what it says, the next session is told."""
        ask = _resume_options(self._current_launch_options(), report.session_id, SUMMARY_PROMPT)
        ask = msgspec.structs.replace(ask, max_turns=1, json_schema=None, steer=False)
        self._begin_attempt(ask, lambda run: self._on_summary(run, report.session_id))

    def _on_summary(self, run: AgentRun, session: str | None) -> str:
        report = run.report
        if report is None:
            return ""
        report.warnings += run.warnings
        said = ((report.result if report.verdict == "success" else None) or report.text).strip()
        summary = said or summary_from_reports(self._reports)
        handed = f"handover: {'its summary goes' if said else 'it gave no summary; ours goes'} to a new session"
        self._reports.append(report)
        over = self._stop_reason or self._exhausted_budget_reason()
        why = over or handed
        self._reasons.append(why)
        self._schedule_ledger_write(run, report, why)
        if over is not None:
            self._final_attempt = (
                -2 if report.verdict == "success" else -1
            )  # a summary is not what was asked for
            self.loop.call_soon(self._finish)
            return f"stop: {over}"
        self.loop.call_soon(lambda: self._ledger_writer.mark_handed_over(session))
        prompt = HANDOVER_PROMPT.format(summary=summary, prompt=self._original_prompt)
        self._handover_options = msgspec.structs.replace(self.setup.launch_options, prompt=prompt)
        self._log(why)
        self._wait_then(
            0.0, lambda: self._begin_attempt(_new_session_options(self._current_launch_options()))
        )
        return why

    # -- ends --------------------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """End the task: the run that goes on is asked to end, or the wait is given up."""
        self._stop_reason = self._stop_reason or why
        if self._wait_timer is not None:
            self._wait_timer.cancel()
            self._wait_timer, self._pending_step = None, None
            self._log(f"{why}: not waiting any longer")
            self.loop.call_soon(self._finish)
        elif self.run is not None:
            self.run.stop(why)

    def kill(self, why: str = "killed") -> None:
        """End it at once."""
        self._stop_reason = self._stop_reason or why
        if self.run is not None and self.run.report is None:
            self.run.kill(why)
        else:
            self.stop(why)

    def release(self) -> None:
        """Nothing more is done, whether it is over or not."""
        if self.run is not None:
            self.run.release()
        self._ledger_writer.release()

    def _finish(self) -> None:
        if self.report is None and self._reports:
            self.report = merge_reports(self._reports, self._reasons, self.id, self._final_attempt)
            self._ledger_writer.close_task(self.report, self.now())
            self.report.warnings += self._warnings
            self._notify_watchers()


def _resume_options(ask: LaunchOptions, session: str | None, prompt: str) -> LaunchOptions:
    """Go on with a session."""
    return msgspec.structs.replace(
        ask, prompt=prompt, resume=session, session_id=None, continue_=False, fork=False
    )


def _new_session_options(ask: LaunchOptions, more: str | None = None) -> LaunchOptions:
    """Begin in a new session, which is told more where there is more to tell."""
    prompt = ask.prompt if more is None else f"{ask.prompt}\n\n{more}"
    return msgspec.structs.replace(
        ask, prompt=prompt, resume=None, session_id=str(uuid.uuid4()), continue_=False, fork=False
    )
