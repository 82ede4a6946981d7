"""A task: one attempt after another, until it is done or retrying won't help.

It runs on the event loop without blocking, so that one program can run any number of tasks. Each
decision is noted in the recording of the attempt before it, and logged.
"""

import os
import random
import time
import uuid
from collections.abc import Callable

import msgspec

from ..agents import CLAUDE, LaunchOptions, get_agent
from ..agents.base import HANDOVER_PROMPT, option_support
from ..analysis.usage import nano_to_usd
from ..config.files import new_recording_path, new_run_id
from ..errors import StenoError
from ..event import DENIED_NOTE
from ..ledger.protocol import LOCK_TIMEOUT_SECONDS
from ..process import ProcessLoop, Timer
from ..report import VERDICTS, Report, TaskReport, Verdict, denied_before
from .attempt import AgentRun, OnRunEnded, RunSink
from .handover import (
    missing_agent_report,
    resolve_agent,
    resumed_context_fraction,
    setup_for_fallback,
    summary_from_reports,
)
from .ledger_writer import LedgerWriter
from .retry_policy import (
    TURN_LIMIT_REASON,
    AttemptHistory,
    Decision,
    decide,
    format_local_time,
)
from .setup import RunBudget, TaskSetup
from .task_report import merge_reports
from .workspace_observer import WorkspaceObserver

CONTINUE_PROMPT = "continue"
SUMMARY_PROMPT = (
    "Summarise this session for a colleague who takes over and has seen none of it. Say what was "
    "accomplished, which decisions were made and why, the state of the code, known issues, and the "
    "next steps. Answer with the summary only."
)

MAX_SAVE_SECONDS_AFTER_STOP = 0.5  # for locks of the ledger; later, the recording is imported

LogFunction = Callable[[str], None]


class Task:
    """An active task. `report` is None until it has finished."""

    def __init__(
        self,
        loop: ProcessLoop,
        setup: TaskSetup,
        *,
        log: LogFunction | None = None,  # gets decisions
        warn: LogFunction | None = None,  # gets warnings, shown also with --quiet
        now: Callable[[], float] = time.time,
    ) -> None:
        self.agent, setup = resolve_agent(setup)
        self.loop = loop
        self.setup = setup
        self.now = now
        self.id = setup.task_id or new_run_id(now())
        self.report: TaskReport | None = None
        self.is_finished = False  # the task has its report
        self.run: AgentRun | None = None  # the current attempt, or the last one
        self.sinks: list[RunSink] = []
        # Called before and after an attempt starts, when a wait begins, and at the end.
        self.watchers: list[Callable[[], None]] = []
        self.raw_sink: Callable[[bytes], None] | None = None  # gets the stdout of all attempts
        self.waits_until: float | None = None  # by `now`: the end of a wait between two attempts
        self.random_fraction: Callable[[], float] = random.Random().random  # noqa: S311  # jitter
        self._log = log or (lambda text: None)
        self._warn = warn or self._log
        self._warnings: list[str] = []  # not part of any attempt's report
        self._reports: list[Report] = []
        self._reasons: list[str] = []
        self._history = AttemptHistory(
            max_turns=setup.launch_options.max_turns,
            turns_left=self._enforceable(setup.budget.turns or setup.launch_options.max_turns),
            fallback_agents=tuple(fallback.agent for fallback in setup.fallback_agents),
        )
        self._pending_step: Callable[[], None] | None = None
        self._wait_timer: Timer | None = None
        self._deadline_timer = Timer(0.0, None)
        self._stop_reason: str | None = None
        self._handover_options: LaunchOptions | None = None  # of the session after a handover
        self._fallback_model: str | None = None  # in use since a rate limit
        self._original_prompt = setup.launch_options.prompt
        self._unrecorded_notes: list[str] = []  # decisions before the first recording
        self._denied_before = setup.denied_before
        self._limit_resets_at: float | None = None  # after the last attempt
        self._final_attempt = -1  # index of the report that has the task's verdict
        self._has_begun = False
        self._unsaved_report: TaskReport | None = None  # complete, but not in the ledger yet
        self.ledger_writer = LedgerWriter(setup, self.id, loop, self._add_warning)

    def start(self) -> "Task":
        """Start the first attempt, or the first fallback if the agent is not installed."""
        deadline = self.setup.policy.deadline
        if deadline is not None:
            seconds = max(0.0, deadline - self.now())
            self._deadline_timer = self.loop.call_later(seconds, self._on_deadline)
        if self.setup.not_found_reason is not None:
            self._skip_unavailable_agent(missing_agent_report(self.setup))
            return self
        options = self.setup.launch_options
        if options.session_id is None and options.resume is None and not options.continue_:
            options = msgspec.structs.replace(options, session_id=str(uuid.uuid4()))
        fraction = None
        if options.resume is not None:
            fraction = resumed_context_fraction(self.agent, self.setup, options.resume)
        is_full = fraction is not None and fraction >= self.setup.policy.refresh_at
        if is_full and self._history.turns_left != 1:  # a summary takes a turn
            self._hand_over_resumed_session(options, fraction or 0.0)
        else:
            self._begin_attempt(options)
        return self

    # -- attempts --------------------------------------------------------------------------------

    def _begin_attempt(self, options: LaunchOptions, on_ended: OnRunEnded | None = None) -> None:
        self.waits_until = None
        if self._stop_reason is not None:  # stopped between two attempts
            self._finish()
            return
        run_id = new_run_id(self.now())
        observer = WorkspaceObserver(
            loop=self.loop,
            cwd=self.setup.cwd or os.getcwd(),  # noqa: PTH109  # the text as it is
            run_id=run_id,
            changes=self.setup.changes,
            undo_days=self.setup.undo_days,
            undo_runs=self.setup.undo_runs,
            record=self.setup.record,
        )
        callback = on_ended or self._on_run_ended
        observer.start(lambda: self._start_attempt(options, run_id, observer, callback))

    def _start_attempt(
        self,
        options: LaunchOptions,
        run_id: str,
        observer: WorkspaceObserver,
        on_ended: OnRunEnded,
    ) -> None:
        if self._stop_reason is not None and self._reports:  # stopped during the git snapshot
            observer.close()
            self._finish()
            return
        try:
            run = self._build_run(options, run_id, on_ended, observer, record=self.setup.record)
        except StenoError as error:
            self.run = None
            self._notify_watchers()
            if not self._has_begun:  # only the first attempt requires a recording
                observer.close()
                raise
            run = self._build_run(options, run_id, on_ended, observer, record=False)
            run.add_warning(f"this attempt was not recorded: {error}")
        self._history.resumed_session_id = options.resume
        if not self._has_begun:
            self._has_begun = True
            self.ledger_writer.open_task(run.started_at)
        self.ledger_writer.begin_attempt(run, len(self._reports) + 1)
        run.start()
        if self._denied_before is not None and on_ended == self._on_run_ended:
            run.add_note(f"{DENIED_NOTE}: {self._denied_before}")
        while self._unrecorded_notes:
            run.add_note(self._unrecorded_notes.pop(0))
        self._notify_watchers()
        if self._stop_reason is not None:
            run.stop(self._stop_reason)

    def _skip_unavailable_agent(self, report: Report) -> None:
        """Decide on an attempt without process or recording."""
        self._reports.append(report)
        decision = decide(report, self._history, self.setup.policy, self.now(), 0.0)
        self._reasons.append(decision.reason)
        if decision.action != "fallback":
            self._finish()
            return
        self._log(decision.reason)
        self._unrecorded_notes.append(decision.note)
        self._switch_to_fallback()

    def _add_warning(self, text: str) -> None:
        self._warnings.append(text)
        self._warn(text)

    def _notify_watchers(self) -> None:
        for notify in self.watchers:
            notify()

    def _build_run(
        self,
        options: LaunchOptions,
        run_id: str,
        on_ended: OnRunEnded,
        observer: WorkspaceObserver,
        record: bool,
    ) -> AgentRun:
        """An attempt with an open recording. It is registered before that, for crash recovery."""
        budget = self._remaining_budget()
        if options.backend is not None and options.backend.is_local:
            # The agent would count the prices of its vendor's models.
            options = msgspec.structs.replace(options, max_cost=None)
        elif budget.cost is not None and budget.cost > 0:
            # The agent's own accounting is more exact.
            max_cost = (
                budget.cost if options.max_cost is None else min(options.max_cost, budget.cost)
            )
            options = msgspec.structs.replace(options, max_cost=max_cost)
        turns_left = self._history.turns_left
        if turns_left is not None:
            max_turns = min(options.max_turns or turns_left, turns_left)
            options = msgspec.structs.replace(options, max_turns=max_turns)
        now = self.now()
        run = AgentRun(
            loop=self.loop,
            agent=self.agent,
            launch_options=options,
            setup=self.setup,
            run_id=run_id,
            recording_path=new_recording_path(run_id, now) if record else None,
            started_at=now,
            on_ended=on_ended,
            observer=observer,
        )
        self.run = run
        run.task_attempt = (self.id, len(self._reports) + 1)
        run.sinks = [*self.sinks]
        run.raw_sink = self.raw_sink
        run.on_warning = self._warn
        self._notify_watchers()
        run.prepare(budget)
        return run

    def _remaining_budget(self) -> RunBudget:
        budget = self.setup.budget
        spent = sum(report.cost.usd or 0.0 for report in self._reports)
        used = sum(report.tokens.total or 0 for report in self._reports)
        return msgspec.structs.replace(
            budget,
            cost=None if budget.cost is None else budget.cost - spent,
            tokens=None if budget.tokens is None else budget.tokens - used,
        )

    def budget_state(self) -> dict[str, float | int | None]:
        """The limits of the task, and what its attempts have used so far."""
        budget = self.setup.budget
        run = self.run if self.run is not None and self.run.report is None else None
        cost = sum(report.cost.usd or 0.0 for report in self._reports)
        if run is not None:
            cost += nano_to_usd(run.spend.cost_nano or 0) or 0.0
        return {
            "max_cost_usd": budget.cost,
            "max_tokens": budget.tokens,
            "max_turns": budget.turns or self.setup.launch_options.max_turns,
            "cost_usd": cost,
            "tokens": sum(report.tokens.total or 0 for report in self._reports)
            + (0 if run is None else run.spend.tokens),
            "turns": sum(report.turns or 0 for report in self._reports)
            + (0 if run is None else run.turns),
        }

    def _on_run_ended(self, run: AgentRun) -> str:
        """Decide what follows an attempt, and return that as a note."""
        report = run.report
        if report is None:
            return ""
        report.warnings += run.warnings
        self._reports.append(report)
        self._count_turns(run, report)
        self._history.can_resume = run.can_resume(report.session_id)
        self._denied_before = denied_before((report,), self._denied_before)
        stop_reason = self._stop_reason
        if stop_reason is None and report.verdict != "success":
            stop_reason = self._exhausted_budget_reason()
        if stop_reason is not None:
            decision = Decision(action="stop", reason=stop_reason)
        else:
            history = msgspec.structs.replace(
                self._history, attempts=self._history.attempts + 1, schema_errors=run.schema_errors
            )
            jitter = self.random_fraction()
            decision = decide(report, history, self.setup.policy, self.now(), jitter)
        self._reasons.append(decision.reason)
        self._limit_resets_at = decision.wait_until
        self._update_history(report, decision)
        self.loop.call_soon(lambda: self.ledger_writer.end_attempt(run, report, decision.reason))
        if decision.action == "stop":
            self.loop.call_soon(self._finish)
        else:
            (self._add_warning if decision.is_warning else self._log)(decision.reason)
            self._wait_then(
                decision.wait_seconds,
                lambda: self._apply_decision(run.launch_options, report, decision),
            )
        return decision.note

    def _exhausted_budget_reason(self) -> str | None:
        remaining = self._remaining_budget()
        if remaining.cost is not None and remaining.cost <= 0:
            return "cost budget of the task exhausted"
        if remaining.tokens is not None and remaining.tokens <= 0:
            return "token budget of the task exhausted"
        turns_left = self._history.turns_left
        if turns_left is not None and turns_left <= 0:
            return TURN_LIMIT_REASON
        return None

    def _enforceable(self, turns: int | None) -> int | None:
        """None for an agent whose turns are not counted; a warning says so."""
        return None if option_support(self.agent, "max_turns") == "no" else turns

    def _count_turns(self, run: AgentRun, report: Report) -> None:
        """Count the requests of an attempt; all that it was allowed if it says so."""
        history = self._history
        if history.turns_left is None:
            return
        used = run.turns
        if report.verdict == "max_turns":
            used = max(used, run.launch_options.max_turns or 0)
        history.turns_left -= used

    def _update_history(self, report: Report, decision: Decision) -> None:
        history = self._history
        is_limited = report.verdict == "rate_limit"
        history.attempts += decision.counts_as_attempt
        history.limit_waits = history.limit_waits + 1 if is_limited else 0
        history.limit_wait_seconds += decision.wait_seconds if is_limited else 0.0
        is_failure = bool(decision.wait_seconds) and not is_limited
        history.consecutive_failures = history.consecutive_failures + 1 if is_failure else 0
        history.has_lost_session |= decision.action == "new_session"
        history.corrections += decision.prompt is not None
        history.has_used_fallback_model |= decision.model is not None
        if is_limited:
            self._fallback_model = decision.model  # None: the wait was for the first model
        if decision.max_turns is not None:
            history.max_turns = decision.max_turns

    def _wait_then(self, seconds: float, step: Callable[[], None]) -> None:
        self._pending_step = step
        self.waits_until = self.now() + seconds if seconds else None
        self._wait_timer = self.loop.call_later(seconds, self._on_wait_over)
        self._notify_watchers()

    def _on_wait_over(self) -> None:
        step = self._pending_step
        self._pending_step = None
        self._wait_timer = None
        if step is not None:
            step()

    def _apply_decision(self, before: LaunchOptions, report: Report, decision: Decision) -> None:
        """Start the next attempt. `before` are the options of the last one."""
        if decision.action == "handover" and self._history.can_resume:
            self._request_summary(report)
            return
        if decision.action == "handover":
            self._hand_over(summary_from_reports(self._reports), report.session_id)
            self._begin_new_session()
            return
        if decision.action == "fallback":
            self._switch_to_fallback()
            return
        options = self._current_launch_options()
        if decision.action == "resume":
            prompt = decision.prompt or CONTINUE_PROMPT
            self._begin_attempt(_resume_options(options, report.session_id, prompt))
        elif decision.action == "retry" and before.session_id is None:
            # The last attempt was to resume a session: so is this one.
            self._begin_attempt(
                msgspec.structs.replace(
                    options,
                    prompt=before.prompt,
                    session_id=None,
                    resume=before.resume,
                    fork=before.fork,
                    continue_=before.continue_,
                )
            )
        else:
            self._begin_attempt(_new_session_options(options, decision.prompt))

    def _switch_to_fallback(self) -> None:
        """Continue with the next agent, in a new session."""
        fallback, *remaining = self.setup.fallback_agents
        options = msgspec.structs.replace(self.setup.launch_options, prompt=self._original_prompt)
        setup = msgspec.structs.replace(self.setup, launch_options=options)
        self.setup = msgspec.structs.replace(
            setup_for_fallback(setup, fallback, self._reports), fallback_agents=tuple(remaining)
        )
        self.agent = get_agent(fallback.agent) or CLAUDE
        self._history = AttemptHistory(
            attempts=self._history.attempts,
            limit_wait_seconds=self._history.limit_wait_seconds,
            max_turns=self.setup.launch_options.max_turns,
            turns_left=self._enforceable(self._history.turns_left),
            fallback_agents=tuple(other.agent for other in remaining),
        )
        self._handover_options = None
        self._fallback_model = None
        self._begin_attempt(_new_session_options(self._current_launch_options()))

    def _current_launch_options(self) -> LaunchOptions:
        """The task's options, or those after a handover, with the current model and turn limit."""
        options = self._handover_options or self.setup.launch_options
        if self._fallback_model is not None:  # agents reject one model for both
            options = msgspec.structs.replace(
                options, model=self._fallback_model, fallback_model=None
            )
        return msgspec.structs.replace(options, max_turns=self._history.max_turns)

    # -- handover --------------------------------------------------------------------------------

    def _request_summary(self, report: Report) -> None:
        """Ask the old session for a summary, as context of the next one."""
        options = _summary_options(self._current_launch_options(), report.session_id)
        self._begin_attempt(options, lambda run: self._on_summary(run, report.session_id))

    def _hand_over_resumed_session(self, options: LaunchOptions, fraction: float) -> None:
        """Begin with a summary of the session to resume."""
        self._log(f"session {options.resume}: context {fraction:.0%} full; asking for a summary")
        summary_options = msgspec.structs.replace(
            _summary_options(options, options.resume), fork=options.fork
        )
        session = None if options.fork else options.resume
        self._begin_attempt(summary_options, lambda run: self._on_summary(run, session))

    def _on_summary(self, run: AgentRun, session: str | None) -> str:
        report = run.report
        if report is None:
            return ""
        report.warnings += run.warnings
        result = report.result if report.verdict == "success" else None
        answer = (result or report.text).strip()
        summary = answer or summary_from_reports(self._reports)
        decision = self._decide_after_summary(bool(answer), is_first=not self._reports)
        self._reports.append(report)
        self._count_turns(run, report)
        stop_reason = self._stop_reason or self._exhausted_budget_reason()
        if stop_reason is not None:
            decision = Decision(action="stop", reason=stop_reason)
        self._reasons.append(decision.reason)
        self.loop.call_soon(lambda: self.ledger_writer.end_attempt(run, report, decision.reason))
        if decision.action == "stop":
            self._end_without_result(report, decision.reason)
            return decision.note
        if decision.action == "resume":
            self._log(decision.reason)
            self._wait_then(0.0, lambda: self._begin_attempt(self._current_launch_options()))
            return decision.note
        self._hand_over(summary, session)
        self._log(decision.reason)
        self._wait_then(0.0, self._begin_new_session)
        return decision.note

    def _hand_over(self, summary: str, session: str | None) -> None:
        """Let the sessions from now on begin with a summary of this one."""
        self.loop.call_soon(lambda: self.ledger_writer.mark_handed_over(session))
        prompt = HANDOVER_PROMPT.format(summary=summary, prompt=self._original_prompt)
        self._handover_options = msgspec.structs.replace(self.setup.launch_options, prompt=prompt)

    def _decide_after_summary(self, has_summary: bool, is_first: bool) -> Decision:
        """`is_first`: the session is not one of this task, so steno can't summarise it."""
        if not has_summary and is_first:
            return Decision(action="resume", reason="no summary from the agent; resuming instead")
        reason = "continuing in a new session with the agent's summary"
        if not has_summary:
            reason = "no summary from the agent; continuing in a new session with steno's own"
        return Decision(action="handover", reason=reason)

    def _end_without_result(self, report: Report, reason: str) -> None:
        """Finish after a summary, which is not the task's result even if it succeeded."""
        if report.verdict == "success" and len(self._reports) > 1:
            self._final_attempt = -2
        elif report.verdict == "success":
            word, _, detail = reason.partition(": ")
            verdict: Verdict = "max_turns" if reason == TURN_LIMIT_REASON else "max_budget"
            if word in VERDICTS:
                verdict = word
            self._reports[-1] = msgspec.structs.replace(
                report, verdict=verdict, ok=False, succeeded=False, error=detail or reason
            )
        self.loop.call_soon(self._finish)

    def _begin_new_session(self) -> None:
        self._begin_attempt(_new_session_options(self._current_launch_options()))

    # -- end -------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Stop the current run, or end the wait for the next one."""
        self._stop_reason = self._stop_reason or reason
        if self._unsaved_report is not None:
            self.ledger_writer.abandon()
        elif self._wait_timer is not None:
            self._wait_timer.cancel()
            self._wait_timer = None
            self._pending_step = None
            self._log(f"{reason}; no longer waiting")
            self.loop.call_soon(self._finish)
        elif self.run is not None:
            self.run.stop(reason)

    def _on_deadline(self) -> None:
        self.stop("timeout: deadline of the task reached (--deadline)")

    def kill(self, reason: str = "killed") -> None:
        """Kill the current run at once."""
        self._stop_reason = self._stop_reason or reason
        if self.run is not None and self.run.report is None:
            self.run.kill(reason)
        else:
            self.stop(reason)

    @property
    def is_stopped_by_person(self) -> bool:
        """Whether it was asked to stop; a deadline is another reason."""
        return self._stop_reason in ("interrupted", "killed")

    def release(self) -> None:
        """Close recording and ledger, finished or not."""
        if self.run is not None:
            self.run.release()
        self.ledger_writer.release()

    def _finish(self) -> None:
        if self.report is None and self._unsaved_report is None and self._reports:
            report = merge_reports(self._reports, self._reasons, self.id, self._final_attempt)
            if self._limit_resets_at is not None and report.verdict == "rate_limit":
                self._report_reset_time(report, self._limit_resets_at)
            self._unsaved_report = report
            self._deadline_timer.cancel()
            is_stopped = self._stop_reason is not None
            max_wait = MAX_SAVE_SECONDS_AFTER_STOP if is_stopped else LOCK_TIMEOUT_SECONDS
            self.ledger_writer.close_task(report, self.now(), self._on_saved, max_wait)

    def _on_saved(self) -> None:
        """The report is in the ledger, or the wait for it was ended."""
        report = self._unsaved_report
        if report is None:
            return
        self._unsaved_report = None
        self.report = report
        self.is_finished = True
        report.warnings += self._warnings
        self._notify_watchers()

    def _report_reset_time(self, report: TaskReport, until: float) -> None:
        step = "continue then" if report.requests else "run it again then"
        report.hint = f"the limit resets at {format_local_time(until)}; {step}"
        report.limits = msgspec.structs.replace(report.limits, resets_at=int(until))


def _resume_options(options: LaunchOptions, session: str | None, prompt: str) -> LaunchOptions:
    return msgspec.structs.replace(
        options, prompt=prompt, resume=session, session_id=None, continue_=False, fork=False
    )


def _summary_options(options: LaunchOptions, session: str | None) -> LaunchOptions:
    options = _resume_options(options, session, SUMMARY_PROMPT)
    return msgspec.structs.replace(options, max_turns=1, json_schema=None, steer=False)


def _new_session_options(options: LaunchOptions, addition: str | None = None) -> LaunchOptions:
    """Options for a new session, with an addition to the prompt."""
    return msgspec.structs.replace(
        options,
        prompt=options.prompt if addition is None else f"{options.prompt}\n\n{addition}",
        resume=None,
        session_id=str(uuid.uuid4()),
        continue_=False,
        fork=False,
    )
