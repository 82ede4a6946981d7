"""The decision after an attempt: stop, resume, retry, hand over, switch agents. Pure.

Includes the parser for reset times of usage limits.
"""

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from msgspec import Struct

from ..config import SETTINGS_BY_NAME
from ..config.options import DEFAULT_RETRY_VERDICTS
from ..report import Report

_EPOCH_PATTERN = re.compile(r"\|(\d{10})\b")
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_RESET_PATTERN = re.compile(
    r"\breset(?:s(?:\s+at)?|\s+at)\s+"
    rf"(?:(?P<month>{_MONTHS})[a-z]*\s+(?P<day>\d{{1,2}})"
    r"(?:,\s*(?P<year>\d{4}))?,?\s*(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?![\d-])(?::(?P<minute>\d{2})(?!\d))?\s*(?P<half>[ap]m\b)?"
    r"(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.I,
)


def reset_time(text: str, now: float, reported: int | None = None) -> float | None:
    """When the limit resets, in seconds since 1970: the agent's own field, else its error text."""
    if reported is not None:
        return float(reported)
    epoch = _EPOCH_PATTERN.search(text)
    if epoch is not None:
        return float(epoch[1])
    match = _RESET_PATTERN.search(text)
    return None if match is None else _reset_timestamp(match, now)


def _reset_timestamp(match: "re.Match[str]", now: float) -> float | None:
    hour = int(match["hour"])
    if match["half"] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"].lower() == "pm" else 0)
    try:
        here = datetime.fromtimestamp(now, _timezone_named(match["zone"]))
        at = here.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
        if match["month"] is None:
            return (at if at > here else at + timedelta(days=1)).timestamp()
        month = _MONTHS.split("|").index(match["month"].lower()[:3]) + 1
        at = at.replace(year=int(match["year"] or here.year), month=month, day=int(match["day"]))
        if match["year"] is None and at < here - timedelta(days=1):
            at = at.replace(year=here.year + 1)
        return at.timestamp()
    except (ValueError, OverflowError):
        return None


def _timezone_named(name: str | None) -> tzinfo | None:
    """The zone of that name; None (local time) if there is no name or an unknown one."""
    if name is None:
        return None
    if name.upper() in ("UTC", "GMT", "Z"):
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


_RETRY_DELAY_PATTERN = re.compile(
    r"\b(?:try again|retry(?:ing)?)\s+(?:in|after)\s+(?:about\s+)?"
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|milliseconds?|s|sec(?:ond)?s?|m|min(?:ute)?s?)\b",
    re.I,
)
MIN_RETRY_AFTER_SECONDS = 1.0  # an agent's own delays start below this


def requested_delay(report: Report) -> float | None:
    """The delay that the service asked for (`retry-after`), in seconds.

    It is in the error text, or it is the shortest delay of the agent's own retries: agents wait at
    least as long as asked.
    """
    match = _RETRY_DELAY_PATTERN.search(report.error or "")
    if match is not None:
        unit = match["unit"].lower()
        factor = 60.0 if unit[0] == "m" else 1.0
        return float(match["number"]) * (0.001 if unit.startswith(("ms", "mil")) else factor)
    delays = [retry.delay_ms for retry in report.retries if retry.status == 429]
    if not delays or None in delays:
        return None
    shortest = min(delay or 0 for delay in delays) / 1000
    return shortest if shortest >= MIN_RETRY_AFTER_SECONDS else None


MAX_SCHEMA_CORRECTIONS = 3
BASE_LIMIT_WAIT_SECONDS = 30.0  # for a limit without a reset time; doubled each time
MAX_LIMIT_WAIT_SECONDS = 24 * 3600.0  # one wait; the sum is limited by the policy
LIMIT_JITTER_SECONDS = 30.0
LIMIT_JITTER_FRACTION = 0.1  # of a wait without a reset time
BASE_BACKOFF_SECONDS = 2.0  # before the second attempt after a failure; doubled each time
MAX_BACKOFF_SECONDS = 300.0

SCHEMA_CORRECTION_PROMPT = (
    "Your answer does not fit the JSON schema that was asked for:\n{wrong}\n\n"
    "Answer again, with the corrected JSON and nothing else."
)
SESSION_NOT_FOUND_PHRASES = (
    "no conversation found",
    "session not found",
    "no session found",
    "could not find session",
    "no rollout found",
    "invalid session identifier",
    "no previous sessions found",
    "no saved session found",
    "no session, task, or name matched",
)
TURN_LIMIT_REASON = "turn limit of the task reached (--max-turns)"
VERDICT_PHRASES = {
    "max_turns": "turn limit reached",
    "max_budget": "budget exhausted",
    "rate_limit": "rate limited",
    "auth": "authentication failed",
    "billing": "out of credit",
    "api": "API error",
    "network": "network error",
    "invalid_request": "invalid request",
    "context_full": "context window full",
    "refused": "refused by the model",
    "permission": "permission denied",
    "interactive": "the agent asked a question",
    "background_task": "background work unfinished",
    "stopped": "stopped by a hook or loop detection",
    "policy": "stopped by a policy",
    "empty": "empty answer",
    "no_result": "no result",
    "stalled": "stalled",
    "timeout": "timed out",
    "interrupted": "interrupted",
    "killed": "killed",
    "subprocess": "the agent's program failed",
    "not_found": "agent not found",
}


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Limits and preferences for further attempts."""

    attempts: int = SETTINGS_BY_NAME["attempts"].default  # without limit waits and handovers
    resume_on: tuple[str, ...] = DEFAULT_RETRY_VERDICTS
    on_limit: str = SETTINGS_BY_NAME["on_limit"].default  # wait, fail or fallback
    fallback_model: str | None = None
    refresh_at: float = SETTINGS_BY_NAME["refresh_at"].default  # fraction of the context window
    max_wait: float | None = SETTINGS_BY_NAME["max_wait"].default  # for all rate limits, in seconds
    deadline: float | None = None  # of the task, in seconds since 1970


class AttemptHistory(Struct, kw_only=True):
    """State of the attempts so far."""

    attempts: int = 0  # attempts that count against the limit
    limit_waits: int = 0  # consecutive
    limit_wait_seconds: float = 0.0  # all of them
    consecutive_failures: int = 0
    resumed_session_id: str | None = None  # resumed by the last attempt
    max_turns: int | None = None  # of an attempt
    turns_left: int | None = None  # of the task's limit
    can_resume: bool = True  # the agent continues the session of the last attempt
    has_lost_session: bool = False  # a session was replaced already
    has_used_fallback_model: bool = False
    fallback_agents: tuple[str, ...] = ()  # still available
    schema_errors: tuple[str, ...] = ()  # of the last answer
    corrections: int = 0


class Decision(Struct, frozen=True, kw_only=True):
    """What to do after an attempt.

    `action` is one of: stop; resume, continue the session with `prompt`; retry, the same attempt
    again since no work was done; new_session, start over in a new session, with the whole prompt;
    handover, continue in a new session with a summary of the old one; fallback, continue with the
    next agent.
    """

    action: str
    reason: str
    wait_seconds: float = 0.0  # before the action
    wait_until: float | None = None  # the reset time, if known
    max_turns: int | None = None
    model: str | None = None
    prompt: str | None = None
    counts_as_attempt: bool = True
    is_warning: bool = False  # deviates from the request: shown also with --quiet

    @property
    def note(self) -> str:
        """The decision as text for the recording: the part after ": " is the reason."""
        label = "stopped" if self.action == "stop" else self.action.replace("_", " ")
        return f"{label}: {self.reason}"


RetryRule = Callable[[Report, AttemptHistory, RetryPolicy, float, float], Decision | None]


def decide(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision:
    """The decision after an attempt with this report. `jitter` is a random number from 0 to 1."""
    for rule in RETRY_RULES:
        decision = rule(report, history, policy, now, jitter)
        if decision is not None:
            return _stop_at_deadline(decision, report, policy, now)
    return Decision(action="stop", reason=f"{VERDICT_PHRASES[report.verdict]}; retrying won't help")


def _stop_at_deadline(
    decision: Decision, report: Report, policy: RetryPolicy, now: float
) -> Decision:
    """Don't wait for an attempt that could not start before the deadline."""
    deadline = policy.deadline
    if decision.action == "stop" or deadline is None or now + decision.wait_seconds < deadline:
        return decision
    until = decision.wait_until
    phrase = VERDICT_PHRASES[report.verdict]
    reason = f"{phrase}; the next attempt would start after the deadline (--deadline)"
    if until is not None:
        reason = f"rate limited until {format_local_time(until)}, after the deadline (--deadline)"
    return Decision(action="stop", reason=reason, wait_until=until)


def _stop_on_success(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    return Decision(action="stop", reason="done") if report.verdict == "success" else None


def _replace_lost_session(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    """Replace a session that no longer exists by a new one, once."""
    if history.resumed_session_id is None or history.has_lost_session or report.requests:
        return None
    error = (report.error or "").lower()
    if not any(phrase in error for phrase in SESSION_NOT_FOUND_PHRASES):
        return None
    return Decision(
        action="new_session",
        reason=f"session {history.resumed_session_id} not found; starting a new one",
        counts_as_attempt=False,
        is_warning=True,
    )


def _request_schema_correction(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    """Return an answer with its schema errors to the agent."""
    errors = history.schema_errors
    if not errors or report.verdict != "no_result":
        return None
    if history.corrections >= MAX_SCHEMA_CORRECTIONS:
        return Decision(
            action="stop",
            reason="the answer doesn't match the schema "
            f"after {MAX_SCHEMA_CORRECTIONS} corrections",
        )
    first_error = f"{errors[0]}{' ...' if len(errors) > 1 else ''}"
    count = f"{history.corrections + 1} of {MAX_SCHEMA_CORRECTIONS}"
    return Decision(
        action="resume" if report.session_id and history.can_resume else "new_session",
        reason=f"the answer doesn't match the schema ({first_error}); "
        f"requesting correction {count}",
        prompt=SCHEMA_CORRECTION_PROMPT.format(wrong="\n".join(f"- {error}" for error in errors)),
        counts_as_attempt=False,
    )


def _switch_if_unavailable(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    """Switch agents if this one is missing, not signed in or out of credit: waiting won't help."""
    if not history.fallback_agents or report.verdict not in ("not_found", "auth", "billing"):
        return None
    return _switch_agent(report, history)


def _switch_agent(report: Report, history: AttemptHistory) -> Decision:
    return Decision(
        action="fallback",
        reason=f"{VERDICT_PHRASES[report.verdict]}; switching to {history.fallback_agents[0]}",
        counts_as_attempt=False,
    )


def _wait_for_rate_limit(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    """Wait for the reset, or continue with another model or agent."""
    if report.verdict != "rate_limit" or "rate_limit" not in policy.resume_on:
        return None
    if policy.on_limit == "fail":
        return Decision(action="stop", reason="rate limited; not waiting (--on-limit fail)")
    can_switch_model = policy.fallback_model is not None and not history.has_used_fallback_model
    if policy.on_limit == "fallback" and can_switch_model:
        return Decision(
            action=_continuation_action(report, history, policy),
            reason=f"rate limited; switching to {policy.fallback_model}",
            model=policy.fallback_model,
            counts_as_attempt=False,
        )
    if policy.on_limit == "fallback" and history.fallback_agents:
        return _switch_agent(report, history)
    until = reset_time(report.error or "", now, _reported_reset_time(report))
    if until is None or (until <= now and history.limit_waits):  # that time has not lifted it
        return _back_off_from_limit(report, history, policy, now, jitter)
    left = _wait_seconds_left(history, policy)
    if until - now > left:
        return _refuse_wait(policy, until)
    wait = min(max(0.0, until - now), MAX_LIMIT_WAIT_SECONDS) + jitter * LIMIT_JITTER_SECONDS
    return Decision(
        action=_continuation_action(report, history, policy),
        reason="rate limited; waiting for the reset",
        wait_seconds=min(wait, left),
        wait_until=until,
        counts_as_attempt=False,
    )


def _refuse_wait(policy: RetryPolicy, until: float) -> Decision:
    return Decision(
        action="stop",
        reason=f"rate limited until {format_local_time(until)}; "
        f"that is beyond --max-wait ({_format_span(policy.max_wait)} in total)",
        wait_until=until,
    )


def _back_off_from_limit(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision:
    """Wait as long as the service asks, else 30 s; twice as long each time it is still limited."""
    requested = requested_delay(report)
    base = BASE_LIMIT_WAIT_SECONDS
    if requested is not None:
        base = min(requested, BASE_LIMIT_WAIT_SECONDS)
    doubled = min(base * 2**history.limit_waits, MAX_LIMIT_WAIT_SECONDS)
    wait = max(requested or 0.0, doubled) * (1 + jitter * LIMIT_JITTER_FRACTION)
    left = _wait_seconds_left(history, policy)
    if requested is not None and requested > left:
        return _refuse_wait(policy, now + requested)
    if left < 1:
        span = _format_span(policy.max_wait)
        return Decision(action="stop", reason=f"still rate limited after --max-wait ({span})")
    wait = min(wait, left)
    given = "no reset time given" if requested is None else "as the service asks"
    return Decision(
        action=_continuation_action(report, history, policy),
        reason=f"rate limited, {given}; retrying in {_format_span(wait)}",
        wait_seconds=wait,
        counts_as_attempt=False,
    )


def _wait_seconds_left(history: AttemptHistory, policy: RetryPolicy) -> float:
    return math.inf if policy.max_wait is None else policy.max_wait - history.limit_wait_seconds


def format_local_time(timestamp: float) -> str:
    """A time for people, in the local time zone."""
    return datetime.fromtimestamp(timestamp).astimezone().strftime("%Y-%m-%d %H:%M %Z")


def _format_span(seconds: float | None) -> str:
    if seconds is None:
        return "off"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _reported_reset_time(report: Report) -> int | None:
    """The agent's own field. It refers to another limit if its status is "allowed"."""
    is_allowed = (report.limits.status or "").startswith("allowed")
    return None if is_allowed else report.limits.resets_at


def _stop_at_attempt_limit(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    if report.verdict not in policy.resume_on or history.attempts < policy.attempts:
        return None
    return Decision(
        action="stop", reason=f"attempt limit reached ({history.attempts} of {policy.attempts})"
    )


def _hand_over_full_context(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    """Hand a full session over to a new one, unless the prompt alone is too long."""
    if report.verdict != "context_full" or "context_full" not in policy.resume_on:
        return None
    if report.session_id is None or not (report.requests or history.resumed_session_id):
        return Decision(action="stop", reason="the prompt alone exceeds the context window")
    return Decision(
        action="handover",
        reason=_reason_with_new_session("context window full; continuing", "handover", report),
    )


def _resume_with_more_turns(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    """Resume the session with twice the turns, as far as the task's limit allows."""
    left = history.turns_left
    if report.verdict != "max_turns" or not left or not history.max_turns or not policy.resume_on:
        return None
    turns = min(2 * history.max_turns, left)
    action = _continuation_action(report, history, policy)
    return Decision(
        action=action,
        reason=_reason_with_new_session(
            f"turn limit reached; continuing with up to {turns} turns", action, report
        ),
        max_turns=turns,
        counts_as_attempt=False,
    )


def _stop_at_turn_limit(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    if history.turns_left is None or history.turns_left > 0:
        return None
    return Decision(action="stop", reason=TURN_LIMIT_REASON)


def _retry_with_backoff(
    report: Report, history: AttemptHistory, policy: RetryPolicy, now: float, jitter: float
) -> Decision | None:
    if report.verdict not in policy.resume_on:
        return None
    backoff = min(BASE_BACKOFF_SECONDS * 2**history.consecutive_failures, MAX_BACKOFF_SECONDS)
    wait = backoff * (0.5 + jitter)
    action = _continuation_action(report, history, policy)
    reason = f"{VERDICT_PHRASES[report.verdict]}; retrying in {wait:.0f} s"
    return Decision(
        action=action,
        reason=_reason_with_new_session(reason, action, report),
        wait_seconds=wait,
    )


def _continuation_action(report: Report, history: AttemptHistory, policy: RetryPolicy) -> str:
    """`retry` if no request was made; `handover` if the context is nearly full; else `resume`.

    An agent that cannot resume would take the prompt of a resumed session for its whole task: it
    starts over with that.
    """
    if report.session_id is None or not report.requests:
        return "retry"
    fraction = report.context.fraction
    if fraction is not None and fraction >= policy.refresh_at:
        return "handover"
    return "resume" if history.can_resume else "new_session"


def _reason_with_new_session(reason: str, action: str, report: Report) -> str:
    if action == "new_session":
        return f"{reason}, from the beginning: the agent cannot resume a session"
    if action != "handover":
        return reason
    fraction = report.context.fraction
    fullness = "" if fraction is None else f" (context {fraction:.0%} full)"
    return f"{reason} in a new session{fullness}"


RETRY_RULES: tuple[RetryRule, ...] = (
    _stop_on_success,
    _stop_at_turn_limit,
    _resume_with_more_turns,
    _replace_lost_session,
    _request_schema_correction,
    _switch_if_unavailable,
    _wait_for_rate_limit,
    _stop_at_attempt_limit,
    _hand_over_full_context,
    _retry_with_backoff,
)
