"""What comes after an attempt: every rule of the table, and the times that a limit's words name."""

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.config.options import DEFAULT_RETRY_VERDICTS
from steno.report import VERDICTS, Context, RateLimitStatus, Report, RequestRetry, Verdict
from steno.runner.program import version_of
from steno.runner.retry_policy import (
    MAX_BACKOFF_SECONDS,
    VERDICT_PHRASES,
    AttemptHistory,
    Decision,
    RetryPolicy,
    decide,
    format_local_time,
    requested_delay,
    reset_time,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=timezone.utc).timestamp()
NPM_PACKAGE = "@anthropic-ai/claude-code"
PART = 0.5  # of the chance


def ended(
    word: Verdict,
    error: str | None = None,
    *,
    requests: int = 1,
    full: float | None = None,
    limits: RateLimitStatus | None = None,
    delays: tuple[int, ...] = (),
) -> Report:
    """How an attempt ended."""
    report = Report(verdict=word, error=error, session_id="s1", requests=requests)
    report.context, report.limits = Context(fraction=full), limits or RateLimitStatus()
    report.retries = [RequestRetry(status=429, delay_ms=delay) for delay in delays]
    return report


def after(
    report: Report, tried: AttemptHistory | None = None, policy: RetryPolicy | None = None
) -> Decision:
    """The decision, after the first attempt by default."""
    return decide(report, tried or AttemptHistory(attempts=1), policy or RetryPolicy(), NOW, PART)


def stop(why: str) -> Decision:
    return Decision(action="stop", reason=why)


UNKNOWN = "rate limited, no reset time given; retrying in 32 s"
UNTIL = "rate limited; waiting for the reset"
GONE = "No conversation found with session ID: s0"
EXHAUSTED = "attempt limit reached (3 of 3)"
ALLOWED = RateLimitStatus("allowed_warning", int(NOW) + 100)
REJECTED = RateLimitStatus("rejected", int(NOW) + 100)
SMALL = RetryPolicy(on_limit="fallback", fallback_model="small")

CASES: dict[str, tuple[Decision, Decision]] = {
    "done": (after(ended("success", full=0.99)), stop("done")),
    # R5
    "the session is gone": (
        after(
            ended("subprocess", GONE, requests=0),
            AttemptHistory(attempts=1, resumed_session_id="s0"),
        ),
        Decision(
            action="new_session",
            reason="session s0 not found; starting a new one",
            counts_as_attempt=False,
            is_warning=True,
        ),
    ),
    "gone for the second time": (
        after(
            ended("subprocess", GONE, requests=0),
            AttemptHistory(attempts=1, resumed_session_id="s0", has_lost_session=True),
        ),
        stop("the agent's program failed; retrying won't help"),
    ),
    "gone, but none was asked for": (
        after(ended("subprocess", GONE, requests=0)),
        stop("the agent's program failed; retrying won't help"),
    ),
    # R6
    "turns": (
        after(ended("max_turns"), AttemptHistory(attempts=1, max_turns=4, turns_left=26)),
        Decision(
            action="resume",
            reason="turn limit reached; continuing with up to 8 turns",
            max_turns=8,
            counts_as_attempt=False,
        ),
    ),
    "turns up to the bound": (
        after(ended("max_turns"), AttemptHistory(attempts=9, max_turns=20, turns_left=10)),
        Decision(
            action="resume",
            reason="turn limit reached; continuing with up to 10 turns",
            max_turns=10,
            counts_as_attempt=False,
        ),
    ),
    "no turns left": (
        after(ended("max_turns"), AttemptHistory(attempts=1, max_turns=20, turns_left=0)),
        stop("turn limit of the task reached (--max-turns)"),
    ),
    "a failure, and no turns left": (
        after(ended("api"), AttemptHistory(attempts=1, max_turns=20, turns_left=0)),
        stop("turn limit of the task reached (--max-turns)"),
    ),
    "turns that nobody limited": (
        after(ended("max_turns")),
        stop("turn limit reached; retrying won't help"),
    ),
    "turns that nobody limited, to be gone on with": (
        after(ended("max_turns"), policy=RetryPolicy(resume_on=("max_turns",))),
        Decision(action="resume", reason="turn limit reached; retrying in 2 s", wait_seconds=2.0),
    ),
    "turns, never to be gone on with": (
        after(
            ended("max_turns"),
            AttemptHistory(attempts=1, max_turns=4, turns_left=26),
            RetryPolicy(resume_on=()),
        ),
        stop("turn limit reached; retrying won't help"),
    ),
    # R7
    "a limit with a time": (
        after(ended("rate_limit", limits=REJECTED)),
        Decision(
            action="resume",
            reason=UNTIL,
            wait_seconds=115.0,
            wait_until=NOW + 100,
            counts_as_attempt=False,
        ),
    ),
    "a limit whose time is over": (
        after(ended("rate_limit", limits=RateLimitStatus("rejected", int(NOW) - 50))),
        Decision(
            action="resume",
            reason=UNTIL,
            wait_seconds=15.0,
            wait_until=NOW - 50,
            counts_as_attempt=False,
        ),
    ),
    "a limit whose time is over, again": (
        after(
            ended("rate_limit", limits=RateLimitStatus("rejected", int(NOW) - 50)),
            AttemptHistory(attempts=1, limit_waits=1, limit_wait_seconds=15.0),
        ),
        Decision(
            action="resume",
            reason="rate limited, no reset time given; retrying in 63 s",
            wait_seconds=63.0,
            counts_as_attempt=False,
        ),
    ),
    "a limit for longer than the longest wait": (
        after(ended("rate_limit", limits=RateLimitStatus("rejected", int(NOW) + 1801))),
        Decision(
            action="stop",
            reason=f"rate limited until {format_local_time(NOW + 1801)}; "
            "that is beyond --max-wait (30 min in total)",
            wait_until=NOW + 1801,
        ),
    ),
    "a limit for as long as the longest wait": (
        after(ended("rate_limit", limits=RateLimitStatus("rejected", int(NOW) + 1800))),
        Decision(
            action="resume",
            reason=UNTIL,
            wait_seconds=1800.0,
            wait_until=NOW + 1800,
            counts_as_attempt=False,
        ),
    ),
    "a limit for longer than what is left of it": (
        after(
            ended("rate_limit", limits=REJECTED),
            AttemptHistory(attempts=1, limit_waits=1, limit_wait_seconds=1750.0),
        ),
        Decision(
            action="stop",
            reason=f"rate limited until {format_local_time(NOW + 100)}; "
            "that is beyond --max-wait (30 min in total)",
            wait_until=NOW + 100,
        ),
    ),
    "a limit for longer than a day, to be waited for": (
        after(
            ended("rate_limit", limits=RateLimitStatus("rejected", int(NOW) + 10**6)),
            policy=RetryPolicy(max_wait=None),
        ),
        Decision(
            action="resume",
            reason=UNTIL,
            wait_seconds=24 * 3600 + 15.0,
            wait_until=NOW + 10**6,
            counts_as_attempt=False,
        ),
    ),
    "a limit in words": (
        after(ended("rate_limit", "You've hit your 5-hour limit · resets 12:05pm (UTC)")),
        Decision(
            action="resume",
            reason=UNTIL,
            wait_seconds=315.0,
            wait_until=NOW + 300,
            counts_as_attempt=False,
        ),
    ),
    "a limit that says nothing": (
        after(ended("rate_limit", "429", requests=0)),
        Decision(action="retry", reason=UNKNOWN, wait_seconds=31.5, counts_as_attempt=False),
    ),
    "another limit, which is not reached": (
        after(ended("rate_limit", "429", limits=ALLOWED)),
        Decision(action="resume", reason=UNKNOWN, wait_seconds=31.5, counts_as_attempt=False),
    ),
    "a limit, and the attempts are used up": (
        after(ended("rate_limit", limits=REJECTED), AttemptHistory(attempts=9)),
        Decision(
            action="resume",
            reason=UNTIL,
            wait_seconds=115.0,
            wait_until=NOW + 100,
            counts_as_attempt=False,
        ),
    ),
    "a limit that says nothing, for the fourth time": (
        after(
            ended("rate_limit", "429"),
            AttemptHistory(attempts=1, limit_waits=3, limit_wait_seconds=220.0),
        ),
        Decision(
            action="resume",
            reason="rate limited, no reset time given; retrying in 4 min",
            wait_seconds=252.0,
            counts_as_attempt=False,
        ),
    ),
    "a limit that says nothing, for the last time": (
        after(
            ended("rate_limit", "429"),
            AttemptHistory(attempts=1, limit_waits=6, limit_wait_seconds=1790.0),
        ),
        Decision(
            action="resume",
            reason="rate limited, no reset time given; retrying in 10 s",
            wait_seconds=10.0,
            counts_as_attempt=False,
        ),
    ),
    "a limit that is never over": (
        after(ended("rate_limit"), AttemptHistory(attempts=1, limit_wait_seconds=1800.0)),
        stop("still rate limited after --max-wait (30 min)"),
    ),
    "a limit with retry-after": (
        after(ended("rate_limit", "429", delays=(2000, 2000, 2408))),
        Decision(
            action="resume",
            reason="rate limited, as the service asks; retrying in 2 s",
            wait_seconds=2.1,
            counts_as_attempt=False,
        ),
    ),
    "a limit with retry-after, for the third time": (
        after(
            ended("rate_limit", "429", delays=(2000,)), AttemptHistory(attempts=1, limit_waits=2)
        ),
        Decision(
            action="resume",
            reason="rate limited, as the service asks; retrying in 8 s",
            wait_seconds=8.4,
            counts_as_attempt=False,
        ),
    ),
    "a limit with a long retry-after, for the second time": (
        after(
            ended("rate_limit", "Rate limit reached. Please try again in 10m"),
            AttemptHistory(attempts=1, limit_waits=1),
        ),
        Decision(
            action="resume",
            reason="rate limited, as the service asks; retrying in 10 min",
            wait_seconds=630.0,
            counts_as_attempt=False,
        ),
    ),
    "a limit with retry-after beyond the longest wait": (
        after(ended("rate_limit", "Rate limit reached. Please try again in 31m")),
        Decision(
            action="stop",
            reason=f"rate limited until {format_local_time(NOW + 1860)}; "
            "that is beyond --max-wait (30 min in total)",
            wait_until=NOW + 1860,
        ),
    ),
    "a limit that only the agent's own delays are known of": (
        after(ended("rate_limit", "429", delays=(513, 1090, 2408))),
        Decision(action="resume", reason=UNKNOWN, wait_seconds=31.5, counts_as_attempt=False),
    ),
    # the deadline
    "a limit beyond the deadline": (
        after(ended("rate_limit", limits=REJECTED), policy=RetryPolicy(deadline=NOW + 60)),
        Decision(
            action="stop",
            reason=f"rate limited until {format_local_time(NOW + 100)}, "
            "after the deadline (--deadline)",
            wait_until=NOW + 100,
        ),
    ),
    "a wait beyond the deadline": (
        after(ended("api"), policy=RetryPolicy(deadline=NOW + 2)),
        stop("API error; the next attempt would start after the deadline (--deadline)"),
    ),
    "a wait before the deadline": (
        after(ended("api"), policy=RetryPolicy(deadline=NOW + 2.1)),
        Decision(action="resume", reason="API error; retrying in 2 s", wait_seconds=2.0),
    ),
    "a limit, in a session that is nearly full": (
        after(ended("rate_limit", full=0.9, limits=REJECTED)),
        Decision(
            action="handover",
            reason=UNTIL,
            wait_seconds=115.0,
            wait_until=NOW + 100,
            counts_as_attempt=False,
        ),
    ),
    "a limit that is not waited for": (
        after(ended("rate_limit"), policy=RetryPolicy(on_limit="fail")),
        stop("rate limited; not waiting (--on-limit fail)"),
    ),
    "a limit that is no reason": (
        after(ended("rate_limit"), policy=RetryPolicy(resume_on=("api",))),
        stop("rate limited; retrying won't help"),
    ),
    "a failure": (
        after(ended("api")),
        Decision(action="resume", reason="API error; retrying in 2 s", wait_seconds=2.0),
    ),
    "the third failure in a row": (
        after(
            ended("network", requests=0),
            AttemptHistory(attempts=3, consecutive_failures=2),
            RetryPolicy(attempts=9),
        ),
        Decision(action="retry", reason="network error; retrying in 8 s", wait_seconds=8.0),
    ),
    "the tenth": (
        after(
            ended("stalled"),
            AttemptHistory(attempts=10, consecutive_failures=9),
            RetryPolicy(attempts=99),
        ),
        Decision(
            action="resume",
            reason="stalled; retrying in 300 s",
            wait_seconds=MAX_BACKOFF_SECONDS,
        ),
    ),
    "a failure without a session": (
        after(Report(verdict="no_result")),
        Decision(action="retry", reason="no result; retrying in 2 s", wait_seconds=2.0),
    ),
    # R8
    "nearly full": (
        after(
            ended("max_turns", full=0.81), AttemptHistory(attempts=1, max_turns=4, turns_left=26)
        ),
        Decision(
            action="handover",
            reason="turn limit reached; continuing with up to 8 turns in a new session "
            "(context 81% full)",
            max_turns=8,
            counts_as_attempt=False,
        ),
    ),
    "not quite": (
        after(ended("api", full=0.79)),
        Decision(action="resume", reason="API error; retrying in 2 s", wait_seconds=2.0),
    ),
    "as full as asked for": (
        after(ended("api", full=0.5), policy=RetryPolicy(refresh_at=0.5)),
        Decision(
            action="handover",
            reason="API error; retrying in 2 s in a new session (context 50% full)",
            wait_seconds=2.0,
        ),
    ),
    "full": (
        after(ended("context_full")),
        Decision(action="handover", reason="context window full; continuing in a new session"),
    ),
    "full when it was gone on with": (
        after(
            ended("context_full", requests=0), AttemptHistory(attempts=1, resumed_session_id="s1")
        ),
        Decision(action="handover", reason="context window full; continuing in a new session"),
    ),
    "a prompt that does not fit": (
        after(ended("context_full", requests=0)),
        stop("the prompt alone exceeds the context window"),
    ),
    "full too often": (
        after(ended("context_full"), AttemptHistory(attempts=3)),
        stop("attempt limit reached (3 of 3)"),
    ),
    # R11
    "another model": (
        after(ended("rate_limit", limits=REJECTED), policy=SMALL),
        Decision(
            action="resume",
            reason="rate limited; switching to small",
            model="small",
            counts_as_attempt=False,
        ),
    ),
    "another model, limited too": (
        after(
            ended("rate_limit", limits=REJECTED),
            AttemptHistory(attempts=1, has_used_fallback_model=True),
            SMALL,
        ),
        Decision(
            action="resume",
            reason=UNTIL,
            wait_seconds=115.0,
            wait_until=NOW + 100,
            counts_as_attempt=False,
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table(name: str) -> None:
    """Each rule, and their order."""
    result, wanted = CASES[name]
    assert result == wanted


@pytest.mark.parametrize(
    "word", [word for word in VERDICTS if word not in (*DEFAULT_RETRY_VERDICTS, "success")]
)
def test_what_is_not_tried_again(word: Verdict) -> None:
    """Least of all what a person or a clock has ended."""
    assert after(ended(word)) == stop(f"{VERDICT_PHRASES[word]}; retrying won't help")


def test_ends_from_outside_are_not_among_them() -> None:
    """An interrupt, a kill and a timeout are final."""
    assert not {"interrupted", "killed", "timeout", "auth", "max_budget", "permission"} & set(
        DEFAULT_RETRY_VERDICTS
    )


@given(
    word=st.sampled_from(VERDICTS),
    requests=st.integers(0, 2),
    full=st.none() | st.floats(0, 1),
    tried=st.builds(
        AttemptHistory,
        attempts=st.integers(1, 5),
        limit_waits=st.integers(0, 13),
        consecutive_failures=st.integers(0, 40),
        resumed_session_id=st.none() | st.just("s1"),
    ),
    chance=st.floats(0, 1),
)
def test_every_end_has_a_next(
    word: Verdict, requests: int, full: float | None, tried: AttemptHistory, chance: float
) -> None:
    """The table is total, waits are at most a day plus jitter, and the attempt limit holds."""
    result = decide(ended(word, requests=requests, full=full), tried, RetryPolicy(), NOW, chance)
    assert result.action in ("stop", "resume", "retry", "handover")
    assert 0 <= result.wait_seconds <= 24 * 3600 + 30
    assert (
        result.action == "stop"
        or tried.attempts < RetryPolicy().attempts
        or not result.counts_as_attempt
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached for gpt-5: Limit 3, Used 3. Please try again in 20s.", 20.0),
        ("Please try again in 1.5 seconds", 1.5),
        ("try again in 250ms", 0.25),
        ("You exceeded your quota. Please retry in 34.07s.", 34.07),
        ("Retry after 2 minutes", 120.0),
        ("429: try again later", None),
        ("Retrying after 3 files", None),
        (None, None),
    ],
)
def test_delays_that_an_error_asks_for(text: str | None, seconds: float | None) -> None:
    """As the services put it."""
    assert requested_delay(ended("rate_limit", text)) == seconds


# -- when a limit is over ------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")


def utc(*parts: int) -> float:
    moment = datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type,misc]  # year to minute
    return moment.timestamp()


RESETS: dict[str, float | None] = {
    "Claude AI usage limit reached|1763200000": 1763200000.0,
    "You've hit your 5-hour limit · resets 3pm (Europe/Berlin)": utc(2026, 11, 15, 14),
    "You've hit your 5-hour limit · resets 11am (UTC)": utc(2026, 11, 16, 11),
    "resets 12am (UTC)": utc(2026, 11, 16, 0),
    "resets 12pm (UTC)": utc(2026, 11, 16, 12),
    "resets at 23:30 (GMT)": utc(2026, 11, 15, 23, 30),
    "You've hit your 5-hour limit · resets Jan 15, 2027, 7:59am (UTC)": utc(2027, 1, 15, 7, 59),
    "weekly limit reached ∙ resets Nov 20 at 6pm (UTC)": utc(2026, 11, 20, 18),
    "resets January 2, 6pm (UTC)": utc(2027, 1, 2, 18),
    "RESETS 3PM (utc)": utc(2026, 11, 15, 15),
    "resets 13pm (UTC)": None,
    "resets 25:00 (UTC)": None,
    "resets 3:75pm (UTC)": None,
    "resets Feb 30, 3pm (UTC)": None,
    "resets 2026-11-20T18:00:00Z": None,
    "resets in a while": None,
    "it reset 5 files": None,
    "": None,
}


@pytest.mark.parametrize("words", RESETS)
def test_words_of_a_limit(words: str) -> None:
    """As agents were seen to write them; what is no time is none."""
    assert reset_time(words, NOW) == RESETS[words]


def test_a_field_goes_before_words() -> None:
    """V2."""
    assert reset_time("resets 3pm (UTC)", NOW, 1763200001) == 1763200001.0


ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"]
)


@given(
    st.integers(1_600_000_000, 2_500_000_000), st.integers(60, 360 * 86_400), ZONES, st.booleans()
)
def test_times_are_read_as_they_are_written(now: int, ahead: int, zone: str, year: bool) -> None:
    """A time within the year, in the words of Claude Code, in any zone."""
    at = datetime.fromtimestamp(now + ahead, ZoneInfo(zone)).replace(second=0)
    if at.fold or at.timestamp() <= now:
        return  # an hour that is there twice is told apart by nobody
    words = at.strftime("resets %b %-d, %Y, %-I:%M%p" if year else "resets %b %-d, %-I:%M%p")
    assert reset_time(f"{words} ({zone})", now) == at.timestamp()


@given(st.integers(1_600_000_000, 2_500_000_000), st.integers(0, 23), st.integers(0, 59), ZONES)
def test_an_hour_is_the_next_one(now: int, hour: int, minute: int, zone: str) -> None:
    """Without a date: the next such time, within a day (or 25 hours when clocks change)."""
    result = reset_time(f"resets {hour}:{minute:02d} ({zone})", now)
    assert result is not None
    assert -7200 <= result - now <= timedelta(hours=25).total_seconds()
    shown = datetime.fromtimestamp(result, ZoneInfo(zone))
    assert (shown.minute, shown.hour) == (
        minute,
        hour,
    ) or shown.utcoffset() != datetime.fromtimestamp(now, ZoneInfo(zone)).utcoffset()


@given(
    st.text()
    | st.from_regex(
        re.compile(
            r"resets? (at )?(jan|feb)? ?\d{0,5}[:,]? ?\d{0,3} ?([ap]m)? ?(\([\w/+.-]*\))?", re.I
        )
    )
)
def test_no_text_breaks_it(words: str) -> None:
    """Whatever is written there."""
    result = reset_time(words, NOW)
    assert result is None or isinstance(result, float)


# -- the version of a program --------------------------------------------------------------------


def test_a_version_is_detected_by_files(tmp_path: Path) -> None:
    """By npm's package.json, or by the file name of the agent's own installer."""
    package = tmp_path / "claude-code"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text(
        '{"name": "@anthropic-ai/claude-code", "version": "2.1.197"}'
    )
    for path in (
        package / "bin" / "claude.exe",
        package / "cli.js",
        tmp_path / "2.1.325",
        tmp_path / "other",
    ):
        path.write_text("")
        path.chmod(0o755)
    (tmp_path / "claude").symlink_to(package / "bin" / "claude.exe")
    names = [
        "claude-code/bin/claude.exe",
        "claude-code/cli.js",
        "2.1.325",
        "other",
        "claude",
        "missing",
    ]
    result = [version_of(str(tmp_path / name), NPM_PACKAGE) for name in names]
    assert result == ["2.1.197", "2.1.197", "2.1.325", None, "2.1.197", None]
    assert version_of("claude", NPM_PACKAGE, str(tmp_path)) == "2.1.197"
    (package / "package.json").write_text('{"name": "another", "version": "9.9.9"}')
    assert version_of("claude", NPM_PACKAGE, str(tmp_path)) is None
    (package / "package.json").write_text("no JSON")
    assert version_of("claude", NPM_PACKAGE, str(tmp_path)) is None
