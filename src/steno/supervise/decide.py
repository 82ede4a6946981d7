"""What to do after an attempt (R5 to R8, R11): an ordered table of small rules. Pure: time and chance are given.

Each rule looks at the report and at what was tried so far, and says what comes next, or nothing.
"""

from collections.abc import Callable

from msgspec import Struct

from ..report import Report
from .reset import reset_time

MOST_TURNS = 30  # R6: turns are doubled up to here
MOST_CORRECTIONS = 3  # of an answer that does not fit the schema that was asked for
MOST_LIMITS = 12  # R7: waits for one limit
LIMIT_UNKNOWN = 3600.0  # seconds to wait for a limit that does not say when it is over
LIMIT_LONGEST = 24 * 3600.0
LIMIT_JITTER = 30.0
BACKOFF = 2.0  # seconds before the second try of something that failed; doubled each time
BACKOFF_LONGEST = 300.0
REFRESH = 0.80  # of the context window: the next attempt gets a session of its own

CORRECT = (
    "Your answer does not fit the JSON schema that was asked for:\n{wrong}\n\n"
    "Answer again, with the corrected JSON and nothing else."
)
RETRIED = ("max_turns", "rate_limit", "api", "network", "stalled", "no_result", "context_full")
GONE = (
    "no conversation found", "session not found", "no session found", "could not find session", "no rollout found",
    "invalid session identifier", "no previous sessions found", "no saved session found", "no session, task, or name matched",
)  # fmt: skip


# A limit that no waiting ends.
NO_CREDIT = ("insufficient_quota", "insufficient credit", "credit balance", "out of credit", "exceeded your current quota")


class Policy(Struct, frozen=True, kw_only=True):
    """How far a task may go."""

    attempts: int = 3  # runs at most, waits for limits and handovers not among them
    resume_on: tuple[str, ...] = RETRIED
    on_limit: str = "wait"  # wait, fail or fallback
    fallback_model: str | None = None
    refresh_at: float = REFRESH
    most_turns: int = MOST_TURNS


class Tried(Struct, kw_only=True):
    """What was tried so far."""

    runs: int = 0  # attempts that count
    limits: int = 0  # waits for a limit in a row
    failures: int = 0  # failures in a row
    resumed: str | None = None  # the session that the last attempt went on with
    max_turns: int | None = None
    refused_resume: bool = False  # a session was gone once
    fell_back: bool = False
    others: tuple[str, ...] = ()  # agents that could take over
    wrong: tuple[str, ...] = ()  # what is wrong with the last answer, by the schema that was asked for
    corrections: int = 0


class Next(Struct, frozen=True, kw_only=True):
    """What comes next.

    `do`: stop; resume, which goes on with the session and says `prompt`; again, the same attempt once more where nothing was
    done yet; fresh, which begins anew in a session of its own; handover, which does so with a summary of the old one; or
    other, which goes on with another agent.
    """

    do: str
    why: str
    wait: float = 0.0  # seconds before it
    until: float | None = None  # the time that the wait is for, where one was told
    max_turns: int | None = None
    model: str | None = None
    prompt: str | None = None
    counts: bool = True  # against the number of attempts
    unasked: bool = False  # it is not what was asked for: told also where nothing else is to be told


Rule = Callable[[Report, Tried, Policy, float, float], Next | None]


def decide(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next:
    """What comes after an attempt that ended like this. `chance` is a number from 0 to 1."""
    for rule in RULES:
        found = rule(report, tried, policy, now, chance)
        if found is not None:
            return found
    return Next(do="stop", why=f"{report.verdict}: nothing is gained by another attempt")


def _done(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    return Next(do="stop", why="done") if report.verdict == "success" else None


def _gone(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    """R5: a session that is gone is replaced by a new one, once."""
    if tried.resumed is None or tried.refused_resume or report.requests:
        return None
    words = (report.error or "").lower()
    if not any(word in words for word in GONE):
        return None
    return Next(do="fresh", why=f"the session {tried.resumed} is gone: starting a new one", counts=False, unasked=True)


def _misfit(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    """An answer that does not fit is sent back with what is wrong with it."""
    if not tried.wrong or report.verdict != "no_result":
        return None
    if tried.corrections >= MOST_CORRECTIONS:
        return Next(do="stop", why=f"schema: the answer still does not fit after {MOST_CORRECTIONS} corrections")
    told = f"correction {tried.corrections + 1} of {MOST_CORRECTIONS} is asked for"
    why = f"schema: the answer does not fit ({tried.wrong[0]}{' ...' if len(tried.wrong) > 1 else ''}): {told}"
    do = "resume" if report.session_id is not None else "fresh"
    return Next(do=do, why=why, prompt=CORRECT.format(wrong="\n".join(f"- {fault}" for fault in tried.wrong)), counts=False)


def _barred(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    """R11: an agent that is not there, not signed in or out of credit will not be later either; another one may."""
    if not tried.others or report.verdict not in ("not_found", "auth", "rate_limit"):
        return None
    words = (report.error or "").lower()
    if report.verdict == "rate_limit" and not any(word in words for word in NO_CREDIT):
        return None
    return _other(report, tried)


def _other(report: Report, tried: Tried) -> Next:
    return Next(do="other", why=f"{report.verdict}: going on with {tried.others[0]}", counts=False)


def _limit(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    """R7: wait until the limit is over, then go on. R11: or go on with another model or agent."""
    if report.verdict != "rate_limit" or "rate_limit" not in policy.resume_on:
        return None
    if policy.on_limit == "fail":
        return Next(do="stop", why="rate_limit: not waiting, as asked")
    do = _on(report, policy)
    if policy.on_limit == "fallback" and policy.fallback_model is not None and not tried.fell_back:
        return Next(do=do, why=f"rate_limit: going on with {policy.fallback_model}", model=policy.fallback_model, counts=False)
    if policy.on_limit == "fallback" and tried.others:
        return _other(report, tried)
    if tried.limits >= MOST_LIMITS:
        return Next(do="stop", why=f"rate_limit: still limited after {MOST_LIMITS} waits")
    until = reset_time(report.error or "", now, _told(report))
    wait = min(LIMIT_UNKNOWN if until is None else max(0.0, until - now), LIMIT_LONGEST) + chance * LIMIT_JITTER
    what = "until it is over" if until is not None else "for an hour, as it does not say until when"
    return Next(do=do, why=f"rate_limit: waiting {what}", wait=wait, until=until, counts=False)


def _told(report: Report) -> int | None:
    """When the limit is over, by the agent's field; the field of a limit that is not reached says nothing of this one."""
    allowed = (report.limits.status or "").startswith("allowed")
    return None if allowed else report.limits.resets_at


def _spent(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    if report.verdict not in policy.resume_on:
        return None
    if tried.runs >= policy.attempts:
        return Next(do="stop", why=f"{report.verdict}: {tried.runs} attempts were made, as many as asked for")
    return None


def _full(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    """R8: a session that does not fit its window is handed over; a prompt that does not, by itself, is nobody's to mend."""
    if report.verdict != "context_full" or "context_full" not in policy.resume_on:
        return None
    if report.session_id is None or not (report.requests or tried.resumed):
        return Next(do="stop", why="context_full: the prompt by itself does not fit the window")
    return Next(do="handover", why=_why("the context is full", "handover", report), max_turns=_turns(tried, policy))


def _max_turns(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    """R6: the same session, with twice the turns."""
    if report.verdict != "max_turns" or "max_turns" not in policy.resume_on:
        return None
    turns, do = _turns(tried, policy), _on(report, policy)
    told = "" if turns is None else f" with up to {turns} turns"
    return Next(do=do, why=_why(f"max_turns: going on{told}", do, report), max_turns=turns)


def _turns(tried: Tried, policy: Policy) -> int | None:
    before = tried.max_turns
    if before is None or before >= policy.most_turns:
        return before
    return min(2 * before, policy.most_turns)


def _failed(report: Report, tried: Tried, policy: Policy, now: float, chance: float) -> Next | None:
    if report.verdict not in policy.resume_on:
        return None
    wait, do = min(BACKOFF * 2**tried.failures, BACKOFF_LONGEST) * (0.5 + chance), _on(report, policy)
    return Next(do=do, why=_why(f"{report.verdict}: trying again in {wait:.0f} s", do, report), wait=wait)


def _on(report: Report, policy: Policy) -> str:
    """How to go on: where nothing was asked of a model yet, as before; R8: in a new session where this one is nearly full."""
    if report.session_id is None or not report.requests:
        return "again"
    fraction = report.context.fraction
    return "handover" if fraction is not None and fraction >= policy.refresh_at else "resume"


def _why(what: str, do: str, report: Report) -> str:
    if do != "handover":
        return what
    fraction = report.context.fraction
    return f"{what}; handing over to a new session" + ("" if fraction is None else f", as the context is {fraction:.0%} full")


RULES: tuple[Rule, ...] = (_done, _gone, _misfit, _barred, _limit, _spent, _full, _max_turns, _failed)
