"""What comes after an attempt: every rule of the table, and the times that a limit's words name."""

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.report import VERDICTS, Context, Limits, Report, Verdict
from steno.supervise.decide import BACKOFF_LONGEST, MOST_LIMITS, RETRIED, Next, Policy, Tried, decide
from steno.supervise.reset import reset_time
from steno.supervise.version import version_of

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=timezone.utc).timestamp()
PART = 0.5  # of the chance


def ended(
    word: Verdict, error: str | None = None, *, requests: int = 1, full: float | None = None, limits: Limits | None = None
) -> Report:
    """How an attempt ended."""
    report = Report(verdict=word, error=error, session_id="s1", requests=requests)
    report.context, report.limits = Context(fraction=full), limits or Limits()
    return report


def after(report: Report, tried: Tried | None = None, policy: Policy | None = None) -> Next:
    """What is decided, at the first attempt unless told otherwise."""
    return decide(report, tried or Tried(runs=1), policy or Policy(), NOW, PART)


def stop(why: str) -> Next:
    return Next(do="stop", why=why)


HOUR = "rate_limit: waiting for an hour, as it does not say until when"
UNTIL = "rate_limit: waiting until it is over"
GONE = "No conversation found with session ID: s0"
EXHAUSTED = "max_turns: 3 attempts were made, as many as asked for"
ALLOWED = Limits("allowed_warning", int(NOW) + 100)
REJECTED = Limits("rejected", int(NOW) + 100)
SMALL = Policy(on_limit="fallback", fallback_model="small")

CASES: dict[str, tuple[Next, Next]] = {
    "done": (after(ended("success", full=0.99)), stop("done")),
    # R5
    "the session is gone": (
        after(ended("subprocess", GONE, requests=0), Tried(runs=1, resumed="s0")),
        Next(do="fresh", why="the session s0 is gone: starting a new one", counts=False, unasked=True),
    ),
    "gone for the second time": (
        after(ended("subprocess", GONE, requests=0), Tried(runs=1, resumed="s0", refused_resume=True)),
        stop("subprocess: nothing is gained by another attempt"),
    ),
    "gone, but none was asked for": (
        after(ended("subprocess", GONE, requests=0)),
        stop("subprocess: nothing is gained by another attempt"),
    ),
    # R6
    "turns": (
        after(ended("max_turns"), Tried(runs=1, max_turns=4)),
        Next(do="resume", why="max_turns: going on with up to 8 turns", max_turns=8),
    ),
    "turns up to the bound": (
        after(ended("max_turns"), Tried(runs=1, max_turns=20)),
        Next(do="resume", why="max_turns: going on with up to 30 turns", max_turns=30),
    ),
    "turns above the bound": (
        after(ended("max_turns"), Tried(runs=1, max_turns=50)),
        Next(do="resume", why="max_turns: going on with up to 50 turns", max_turns=50),
    ),
    "turns that nobody limited": (after(ended("max_turns")), Next(do="resume", why="max_turns: going on")),
    "turns, too often": (after(ended("max_turns"), Tried(runs=3, max_turns=4)), stop(EXHAUSTED)),
    "turns, not to be gone on with": (
        after(ended("max_turns"), policy=Policy(resume_on=("api",))),
        stop("max_turns: nothing is gained by another attempt"),
    ),
    # R7
    "a limit with a time": (
        after(ended("rate_limit", limits=REJECTED)),
        Next(do="resume", why=UNTIL, wait=115.0, until=NOW + 100, counts=False),
    ),
    "a limit whose time is over": (
        after(ended("rate_limit", limits=Limits("rejected", int(NOW) - 50))),
        Next(do="resume", why=UNTIL, wait=15.0, until=NOW - 50, counts=False),
    ),
    "a limit for longer than a day": (
        after(ended("rate_limit", limits=Limits("rejected", int(NOW) + 10**6))),
        Next(do="resume", why=UNTIL, wait=24 * 3600 + 15.0, until=NOW + 10**6, counts=False),
    ),
    "a limit in words": (
        after(ended("rate_limit", "You've hit your 5-hour limit · resets 12:05pm (UTC)")),
        Next(do="resume", why=UNTIL, wait=315.0, until=NOW + 300, counts=False),
    ),
    "a limit that says nothing": (
        after(ended("rate_limit", "429", requests=0)),
        Next(do="again", why=HOUR, wait=3615.0, counts=False),
    ),
    "another limit, which is not reached": (
        after(ended("rate_limit", "429", limits=ALLOWED)),
        Next(do="resume", why=HOUR, wait=3615.0, counts=False),
    ),
    "a limit, and the attempts are used up": (
        after(ended("rate_limit", limits=REJECTED), Tried(runs=9)),
        Next(do="resume", why=UNTIL, wait=115.0, until=NOW + 100, counts=False),
    ),
    "a limit that is never over": (
        after(ended("rate_limit"), Tried(runs=1, limits=MOST_LIMITS)),
        stop("rate_limit: still limited after 12 waits"),
    ),
    "a limit, in a session that is nearly full": (
        after(ended("rate_limit", full=0.9, limits=REJECTED)),
        Next(do="handover", why=UNTIL, wait=115.0, until=NOW + 100, counts=False),
    ),
    "a limit that is not waited for": (
        after(ended("rate_limit"), policy=Policy(on_limit="fail")),
        stop("rate_limit: not waiting, as asked"),
    ),
    "a limit that is no reason": (
        after(ended("rate_limit"), policy=Policy(resume_on=("api",))),
        stop("rate_limit: nothing is gained by another attempt"),
    ),
    "a failure": (after(ended("api")), Next(do="resume", why="api: trying again in 2 s", wait=2.0)),
    "the third failure in a row": (
        after(ended("network", requests=0), Tried(runs=3, failures=2), Policy(attempts=9)),
        Next(do="again", why="network: trying again in 8 s", wait=8.0),
    ),
    "the tenth": (
        after(ended("stalled"), Tried(runs=10, failures=9), Policy(attempts=99)),
        Next(do="resume", why="stalled: trying again in 300 s", wait=BACKOFF_LONGEST),
    ),
    "a failure without a session": (
        after(Report(verdict="no_result")),
        Next(do="again", why="no_result: trying again in 2 s", wait=2.0),
    ),
    # R8
    "nearly full": (
        after(ended("max_turns", full=0.81), Tried(runs=1, max_turns=4)),
        Next(
            do="handover",
            why="max_turns: going on with up to 8 turns; handing over to a new session, as the context is 81% full",
            max_turns=8,
        ),
    ),
    "not quite": (after(ended("max_turns", full=0.79)), Next(do="resume", why="max_turns: going on")),
    "as full as asked for": (
        after(ended("api", full=0.5), policy=Policy(refresh_at=0.5)),
        Next(
            do="handover",
            why="api: trying again in 2 s; handing over to a new session, as the context is 50% full",
            wait=2.0,
        ),
    ),
    "full": (
        after(ended("context_full")),
        Next(do="handover", why="the context is full; handing over to a new session"),
    ),
    "full when it was gone on with": (
        after(ended("context_full", requests=0), Tried(runs=1, resumed="s1")),
        Next(do="handover", why="the context is full; handing over to a new session"),
    ),
    "a prompt that does not fit": (
        after(ended("context_full", requests=0)),
        stop("context_full: the prompt by itself does not fit the window"),
    ),
    "full too often": (
        after(ended("context_full"), Tried(runs=3)),
        stop("context_full: 3 attempts were made, as many as asked for"),
    ),
    # R11
    "another model": (
        after(ended("rate_limit", limits=REJECTED), policy=SMALL),
        Next(do="resume", why="rate_limit: going on with small", model="small", counts=False),
    ),
    "another model, limited too": (
        after(ended("rate_limit", limits=REJECTED), Tried(runs=1, fell_back=True), SMALL),
        Next(do="resume", why=UNTIL, wait=115.0, until=NOW + 100, counts=False),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table(name: str) -> None:
    """Each rule, and the order in which they are asked."""
    found, wanted = CASES[name]
    assert found == wanted


@pytest.mark.parametrize("word", [word for word in VERDICTS if word not in (*RETRIED, "success")])
def test_what_is_not_tried_again(word: Verdict) -> None:
    """Least of all what a person or a clock has ended."""
    assert after(ended(word)) == stop(f"{word}: nothing is gained by another attempt")


def test_ends_from_outside_are_not_among_them() -> None:
    """An interrupt, a kill and a timeout are final."""
    assert not {"interrupted", "killed", "timeout", "auth", "max_budget", "permission"} & set(RETRIED)


@given(
    word=st.sampled_from(VERDICTS),
    requests=st.integers(0, 2),
    full=st.none() | st.floats(0, 1),
    tried=st.builds(
        Tried, runs=st.integers(1, 5), limits=st.integers(0, 13), failures=st.integers(0, 40), resumed=st.none() | st.just("s1")
    ),
    chance=st.floats(0, 1),
)
def test_every_end_has_a_next(word: Verdict, requests: int, full: float | None, tried: Tried, chance: float) -> None:
    """The table is total, no wait is longer than a day and its jitter, and the number of attempts is kept."""
    found = decide(ended(word, requests=requests, full=full), tried, Policy(), NOW, chance)
    assert found.do in ("stop", "resume", "again", "handover")
    assert 0 <= found.wait <= 24 * 3600 + 30
    assert found.do == "stop" or tried.runs < Policy().attempts or not found.counts


# -- when a limit is over -------------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type,misc]  # year, month, day, hour, minute


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


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"])


@given(st.integers(1_600_000_000, 2_500_000_000), st.integers(60, 360 * 86_400), ZONES, st.booleans())
def test_times_are_read_as_they_are_written(now: int, ahead: int, zone: str, year: bool) -> None:
    """A time within the year, in the words of Claude Code, in any zone."""
    at = datetime.fromtimestamp(now + ahead, ZoneInfo(zone)).replace(second=0)
    if at.fold or at.timestamp() <= now:
        return  # an hour that is there twice is told apart by nobody
    words = at.strftime("resets %b %-d, %Y, %-I:%M%p" if year else "resets %b %-d, %-I:%M%p")
    assert reset_time(f"{words} ({zone})", now) == at.timestamp()


@given(st.integers(1_600_000_000, 2_500_000_000), st.integers(0, 23), st.integers(0, 59), ZONES)
def test_an_hour_is_the_next_one(now: int, hour: int, minute: int, zone: str) -> None:
    """Without a date it is the next time that the clock shows it: within a day, or the length of one that is changed."""
    found = reset_time(f"resets {hour}:{minute:02d} ({zone})", now)
    assert found is not None
    assert -7200 <= found - now <= timedelta(hours=25).total_seconds()
    shown = datetime.fromtimestamp(found, ZoneInfo(zone))
    assert (shown.minute, shown.hour) == (minute, hour) or shown.utcoffset() != datetime.fromtimestamp(
        now, ZoneInfo(zone)
    ).utcoffset()


@given(
    st.text() | st.from_regex(re.compile(r"resets? (at )?(jan|feb)? ?\d{0,5}[:,]? ?\d{0,3} ?([ap]m)? ?(\([\w/+.-]*\))?", re.I))
)
def test_no_text_breaks_it(words: str) -> None:
    """Whatever is written there."""
    found = reset_time(words, NOW)
    assert found is None or isinstance(found, float)


# -- the version of a program ---------------------------------------------------------------------------


def test_a_version_is_told_by_files(tmp_path: Path) -> None:
    """By npm's package, or by the name that the agent's own installer gives it; else it is not known."""
    package = tmp_path / "claude-code"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@anthropic-ai/claude-code", "version": "2.1.197"}')
    for path in (package / "bin" / "claude.exe", package / "cli.js", tmp_path / "2.1.325", tmp_path / "other"):
        path.write_text("")
        path.chmod(0o755)
    (tmp_path / "claude").symlink_to(package / "bin" / "claude.exe")
    names = ["claude-code/bin/claude.exe", "claude-code/cli.js", "2.1.325", "other", "claude", "missing"]
    found = [version_of(str(tmp_path / name)) for name in names]
    assert found == ["2.1.197", "2.1.197", "2.1.325", None, "2.1.197", None]
    assert version_of("claude", str(tmp_path)) == "2.1.197"
    (package / "package.json").write_text('{"name": "another", "version": "9.9.9"}')
    assert version_of("claude", str(tmp_path)) is None
    (package / "package.json").write_text("no JSON")
    assert version_of("claude", str(tmp_path)) is None
