"""When a usage limit is over, as agents tell it (R7). Pure: the present time is given."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from msgspec import Struct

from ..report import Report

_EPOCH_PATTERN = re.compile(r"\|(\d{10})\b")
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_RESET_PATTERN = re.compile(
    rf"\breset(?:s(?:\s+at)?|\s+at)\s+(?:(?P<month>{_MONTHS})[a-z]*\s+(?P<day>\d{{1,2}})(?:,\s*(?P<year>\d{{4}}))?,?\s*(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?![\d-])(?::(?P<minute>\d{2})(?!\d))?\s*(?P<half>[ap]m\b)?(?:\s*\((?P<zone>[\w/+-]+)\))?",
    re.I,
)


def reset_time(text: str, now: float, reported: int | None = None) -> float | None:
    """Seconds since 1970 at which the limit is over: as the agent told it in a field, else as its words say; None: not said."""
    if reported is not None:
        return float(reported)
    epoch = _EPOCH_PATTERN.search(text)
    if epoch is not None:
        return float(epoch[1])
    found = _RESET_PATTERN.search(text)
    return None if found is None else _reset_timestamp(found, now)


def _reset_timestamp(found: "re.Match[str]", now: float) -> float | None:
    hour = int(found["hour"])
    if found["half"] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    try:
        here = datetime.fromtimestamp(now, _timezone_named(found["zone"]))
        at = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"] is None:
            return (at if at > here else at + timedelta(days=1)).timestamp()
        month = _MONTHS.split("|").index(found["month"].lower()[:3]) + 1
        at = at.replace(year=int(found["year"] or here.year), month=month, day=int(found["day"]))
        if found["year"] is None and at < here - timedelta(days=1):
            at = at.replace(year=here.year + 1)
        return at.timestamp()
    except (ValueError, OverflowError):
        return None


def _timezone_named(name: str | None) -> tzinfo | None:
    """The zone of that name; None, the system's own, where the words name none or one that nobody knows."""
    if name is None:
        return None
    if name.upper() in ("UTC", "GMT", "Z"):
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


MAX_TURNS_CAP = 30  # R6: turns are doubled up to here
MAX_SCHEMA_CORRECTIONS = 3  # of an answer that does not fit the schema that was asked for
MAX_LIMIT_WAITS = 12  # R7: waits for one limit
DEFAULT_LIMIT_WAIT_SECONDS = 3600.0  # seconds to wait for a limit that does not say when it is over
MAX_LIMIT_WAIT_SECONDS = 24 * 3600.0
LIMIT_JITTER_SECONDS = 30.0
BASE_BACKOFF_SECONDS = (
    2.0  # seconds before the second try of something that failed; doubled each time
)
MAX_BACKOFF_SECONDS = 300.0
DEFAULT_REFRESH_FRACTION = 0.80  # of the context window: the next attempt gets a session of its own

SCHEMA_CORRECTION_PROMPT = (
    "Your answer does not fit the JSON schema that was asked for:\n{wrong}\n\n"
    "Answer again, with the corrected JSON and nothing else."
)
DEFAULT_RETRY_VERDICTS = (
    "max_turns",
    "rate_limit",
    "api",
    "network",
    "stalled",
    "no_result",
    "context_full",
)
SESSION_NOT_FOUND_PHRASES = (
    "no conversation found", "session not found", "no session found", "could not find session", "no rollout found",
    "invalid session identifier", "no previous sessions found", "no saved session found", "no session, task, or name matched",
)  # fmt: skip


# A limit that no waiting ends.
OUT_OF_CREDIT_PHRASES = (
    "insufficient_quota",
    "insufficient credit",
    "credit balance",
    "out of credit",
    "exceeded your current quota",
)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How far a task may go."""

    attempts: int = 3  # runs at most, waits for limits and handovers not among them
    resume_on: tuple[str, ...] = DEFAULT_RETRY_VERDICTS
    on_limit: str = "wait"  # wait, fail or fallback
    fallback_model: str | None = None
    refresh_at: float = DEFAULT_REFRESH_FRACTION
    max_turns_cap: int = MAX_TURNS_CAP


class AttemptHistory(Struct, kw_only=True):
    """What was tried so far."""

    attempts: int = 0  # attempts that count
    limit_waits: int = 0  # waits for a limit in a row
    consecutive_failures: int = 0  # failures in a row
    resumed_session_id: str | None = None  # the session that the last attempt went on with
    max_turns: int | None = None
    has_lost_session: bool = False  # a session was gone once
    has_used_fallback_model: bool = False
    fallback_agents: tuple[str, ...] = ()  # agents that could take over
    schema_errors: tuple[
        str, ...
    ] = ()  # what is wrong with the last answer, by the schema that was asked for
    corrections: int = 0


class Decision(Struct, frozen=True, kw_only=True):
    """What comes next.

    `do`: stop; resume, which goes on with the session and says `prompt`; again, the same attempt once more where nothing was
    done yet; fresh, which begins anew in a session of its own; handover, which does so with a summary of the old one; or
    other, which goes on with another agent.
    """

    action: str
    reason: str
    wait_seconds: float = 0.0  # seconds before it
    wait_until: float | None = None  # the time that the wait is for, where one was told
    max_turns: int | None = None
    model: str | None = None
    prompt: str | None = None
    counts_as_attempt: bool = True  # against the number of attempts
    is_warning: bool = (
        False  # it is not what was asked for: told also where nothing else is to be told
    )


RetryRule = Callable[[Report, AttemptHistory, RetryPolicy, float, float], Decision | None]


def decide(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision:
    """What comes after an attempt that ended like this. `chance` is a number from 0 to 1."""
    for rule in RETRY_RULES:
        found = rule(report, tried, policy, now, chance)
        if found is not None:
            return found
    return Decision(action="stop", reason=f"{report.verdict}: nothing is gained by another attempt")


def _stop_on_success(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    return Decision(action="stop", reason="done") if report.verdict == "success" else None


def _replace_lost_session(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    """R5: a session that is gone is replaced by a new one, once."""
    if tried.resumed_session_id is None or tried.has_lost_session or report.requests:
        return None
    words = (report.error or "").lower()
    if not any(word in words for word in SESSION_NOT_FOUND_PHRASES):
        return None
    return Decision(
        action="fresh",
        reason=f"the session {tried.resumed_session_id} is gone: starting a new one",
        counts_as_attempt=False,
        is_warning=True,
    )


def _request_schema_correction(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    """An answer that does not fit is sent back with what is wrong with it."""
    if not tried.schema_errors or report.verdict != "no_result":
        return None
    if tried.corrections >= MAX_SCHEMA_CORRECTIONS:
        return Decision(
            action="stop",
            reason=f"schema: the answer still does not fit after {MAX_SCHEMA_CORRECTIONS} corrections",
        )
    told = f"correction {tried.corrections + 1} of {MAX_SCHEMA_CORRECTIONS} is asked for"
    why = f"schema: the answer does not fit ({tried.schema_errors[0]}{' ...' if len(tried.schema_errors) > 1 else ''}): {told}"
    do = "resume" if report.session_id is not None else "fresh"
    return Decision(
        action=do,
        reason=why,
        prompt=SCHEMA_CORRECTION_PROMPT.format(
            wrong="\n".join(f"- {fault}" for fault in tried.schema_errors)
        ),
        counts_as_attempt=False,
    )


def _switch_if_unavailable(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    """R11: an agent that is not there, not signed in or out of credit will not be later either; another one may."""
    if not tried.fallback_agents or report.verdict not in ("not_found", "auth", "rate_limit"):
        return None
    words = (report.error or "").lower()
    if report.verdict == "rate_limit" and not any(word in words for word in OUT_OF_CREDIT_PHRASES):
        return None
    return _switch_agent(report, tried)


def _switch_agent(report: Report, tried: AttemptHistory) -> Decision:
    return Decision(
        action="other",
        reason=f"{report.verdict}: going on with {tried.fallback_agents[0]}",
        counts_as_attempt=False,
    )


def _wait_for_rate_limit(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    """R7: wait until the limit is over, then go on. R11: or go on with another model or agent."""
    if report.verdict != "rate_limit" or "rate_limit" not in policy.resume_on:
        return None
    if policy.on_limit == "fail":
        return Decision(action="stop", reason="rate_limit: not waiting, as asked")
    do = _continuation_action(report, policy)
    if (
        policy.on_limit == "fallback"
        and policy.fallback_model is not None
        and not tried.has_used_fallback_model
    ):
        return Decision(
            action=do,
            reason=f"rate_limit: going on with {policy.fallback_model}",
            model=policy.fallback_model,
            counts_as_attempt=False,
        )
    if policy.on_limit == "fallback" and tried.fallback_agents:
        return _switch_agent(report, tried)
    if tried.limit_waits >= MAX_LIMIT_WAITS:
        return Decision(
            action="stop", reason=f"rate_limit: still limited after {MAX_LIMIT_WAITS} waits"
        )
    until = reset_time(report.error or "", now, _reported_reset_time(report))
    wait = (
        min(
            DEFAULT_LIMIT_WAIT_SECONDS if until is None else max(0.0, until - now),
            MAX_LIMIT_WAIT_SECONDS,
        )
        + chance * LIMIT_JITTER_SECONDS
    )
    what = "until it is over" if until is not None else "for an hour, as it does not say until when"
    return Decision(
        action=do,
        reason=f"rate_limit: waiting {what}",
        wait_seconds=wait,
        wait_until=until,
        counts_as_attempt=False,
    )


def _reported_reset_time(report: Report) -> int | None:
    """When the limit is over, by the agent's field; the field of a limit that is not reached says nothing of this one."""
    allowed = (report.limits.status or "").startswith("allowed")
    return None if allowed else report.limits.resets_at


def _stop_at_attempt_limit(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    if report.verdict not in policy.resume_on:
        return None
    if tried.attempts >= policy.attempts:
        return Decision(
            action="stop",
            reason=f"{report.verdict}: {tried.attempts} attempts were made, as many as asked for",
        )
    return None


def _hand_over_full_context(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    """R8: a session that does not fit its window is handed over; a prompt that does not, by itself, is nobody's to mend."""
    if report.verdict != "context_full" or "context_full" not in policy.resume_on:
        return None
    if report.session_id is None or not (report.requests or tried.resumed_session_id):
        return Decision(
            action="stop", reason="context_full: the prompt by itself does not fit the window"
        )
    return Decision(
        action="handover",
        reason=_reason_with_handover("the context is full", "handover", report),
        max_turns=_doubled_turn_limit(tried, policy),
    )


def _resume_with_more_turns(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    """R6: the same session, with twice the turns."""
    if report.verdict != "max_turns" or "max_turns" not in policy.resume_on:
        return None
    turns, do = _doubled_turn_limit(tried, policy), _continuation_action(report, policy)
    told = "" if turns is None else f" with up to {turns} turns"
    return Decision(
        action=do,
        reason=_reason_with_handover(f"max_turns: going on{told}", do, report),
        max_turns=turns,
    )


def _doubled_turn_limit(tried: AttemptHistory, policy: RetryPolicy) -> int | None:
    before = tried.max_turns
    if before is None or before >= policy.max_turns_cap:
        return before
    return min(2 * before, policy.max_turns_cap)


def _retry_with_backoff(
    report: Report, tried: AttemptHistory, policy: RetryPolicy, now: float, chance: float
) -> Decision | None:
    if report.verdict not in policy.resume_on:
        return None
    wait, do = (
        min(BASE_BACKOFF_SECONDS * 2**tried.consecutive_failures, MAX_BACKOFF_SECONDS)
        * (0.5 + chance),
        _continuation_action(report, policy),
    )
    return Decision(
        action=do,
        reason=_reason_with_handover(f"{report.verdict}: trying again in {wait:.0f} s", do, report),
        wait_seconds=wait,
    )


def _continuation_action(report: Report, policy: RetryPolicy) -> str:
    """How to go on: where nothing was asked of a model yet, as before; R8: in a new session where this one is nearly full."""
    if report.session_id is None or not report.requests:
        return "again"
    fraction = report.context.fraction
    return "handover" if fraction is not None and fraction >= policy.refresh_at else "resume"


def _reason_with_handover(what: str, do: str, report: Report) -> str:
    if do != "handover":
        return what
    fraction = report.context.fraction
    return f"{what}; handing over to a new session" + (
        "" if fraction is None else f", as the context is {fraction:.0%} full"
    )


RETRY_RULES: tuple[RetryRule, ...] = (
    _stop_on_success,
    _replace_lost_session,
    _request_schema_correction,
    _switch_if_unavailable,
    _wait_for_rate_limit,
    _stop_at_attempt_limit,
    _hand_over_full_context,
    _resume_with_more_turns,
    _retry_with_backoff,
)
