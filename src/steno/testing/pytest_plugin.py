"""pytest plugin: tests that run agents, cached as recordings. See docs/howto/pytest.md.

pytest loads this module at every start, also for projects that do not use it: everything else is
imported inside the fixtures.
"""

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from ..report import Report, TaskReport
    from .agent_cache import AgentCache

DEFAULT_CACHE = ".steno-runs"
MARKER = (
    "agent(repeat=1, min_success=1.0, max_cost=None): run the test several times; it passes if "
    "this part of the repetitions passes and all runs together cost no more (US dollars)"
)
PREFIX = "steno_"  # of properties in JUnit XML


class AgentOptions(NamedTuple):
    """The arguments of the marker."""

    repeat: int = 1
    min_success: float = 1.0
    max_cost: float | None = None


class RunFigures(NamedTuple):
    """What one run of an agent used."""

    verdict: str
    tokens: int
    cost_usd: float | None
    is_live: bool


CI_VARIABLE = "CI"  # GitHub Actions, GitLab and most others set it
CI_NOTE = f" (an error, as {CI_VARIABLE} is set)"
NOT_RUN = pytest.StashKey[int]()
RUNS = pytest.StashKey[list[RunFigures]]()
REPETITION = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("steno", "runs of coding agents (steno)")
    group.addoption(
        "--steno-live", action="store_true", help="run the agent where no run is recorded"
    )
    group.addoption(
        "--steno-refresh", action="store_true", help="run all agents again and record them"
    )
    group.addoption(
        "--steno-require",
        action="store_true",
        help="fail a test whose run is not recorded, instead of skipping it",
    )
    group.addoption(
        "--steno-cache", metavar="DIR", help=f"folder of recorded runs (default: {DEFAULT_CACHE})"
    )
    parser.addini("steno_cache", "folder of recorded runs, from rootdir", default=DEFAULT_CACHE)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


# -- fixtures ------------------------------------------------------------------------------------


@pytest.fixture
def steno_run(request: pytest.FixtureRequest, tmp_path: Path) -> "Callable[..., TaskReport]":
    """Run an agent on a prompt, or read its recorded run: `steno_run(prompt, allow=["Edit"])`.

    Options are those of `steno.run`. `cwd` is `tmp_path` by default, and then its files are part of
    what identifies the recorded run.
    """
    cache = _cache(request.config)
    node = request.node
    node.stash.setdefault(RUNS, [])

    def run(prompt: str, *, cwd: Any = None, **options: Any) -> "TaskReport":
        __tracebackhide__ = True
        return _run_agent(cache, node, prompt, Path(cwd or tmp_path), cwd is None, options)

    return run


@pytest.fixture
def steno_replay(request: pytest.FixtureRequest) -> "Callable[..., Report]":
    """Read the report of a recording; a relative path starts at the folder of the test."""

    def replay(path: Any) -> "Report":
        from ..api import read

        own = request.path.parent / path
        return read(own if own.exists() else path)

    return replay


@pytest.fixture
def assert_report() -> "Callable[..., None]":
    """Check a report: `assert_report(report, max_cost=1, allow_files=["src/"])`."""
    from .assertions import assert_report as check

    return check


def _cache(config: pytest.Config) -> "AgentCache":
    from .agent_cache import AgentCache

    folder = config.getoption("--steno-cache") or config.getini("steno_cache")
    return AgentCache(
        config.rootpath / folder,
        is_live=config.getoption("--steno-live"),
        is_refresh=config.getoption("--steno-refresh"),
    )


def _run_agent(
    cache: "AgentCache",
    item: pytest.Item,
    prompt: str,
    folder: Path,
    with_files: bool,
    options: dict[str, Any],
) -> "TaskReport":
    from .agent_cache import NotRecordedError, run_key

    __tracebackhide__ = True
    key = run_key(prompt, options, folder, with_files, item.stash.get(REPETITION, 0))
    try:
        report, is_live = cache.run(prompt, folder, key, _remaining_budget(item), options)
    except NotRecordedError as miss:
        if item.config.getoption("--steno-require"):
            pytest.fail(str(miss), pytrace=False)
        item.user_properties.append((f"{PREFIX}not_recorded", True))
        pytest.skip(str(miss))
    runs = item.stash[RUNS]
    runs.append(RunFigures(report.verdict, report.tokens.total or 0, report.cost.usd, is_live))
    _set_properties(item, runs)
    return report


def _remaining_budget(item: pytest.Item) -> float | None:
    """What a further run may cost; fails the test if nothing is left."""
    limit = _marker_options(item).max_cost
    spent = sum(run.cost_usd or 0 for run in item.stash[RUNS])
    if limit is None:
        return None
    if spent >= limit:
        pytest.fail(f"max_cost: ${spent:.4f} spent, limit ${limit:.4f}", pytrace=False)
    return limit - spent


# -- repetitions ---------------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_agent_test(item):
            _marker_options(item)


def _is_agent_test(item: pytest.Item) -> bool:
    is_marked = item.get_closest_marker("agent") is not None
    return is_marked and "steno_run" in getattr(item, "fixturenames", ())


def _marker_options(item: pytest.Item) -> AgentOptions:
    """The arguments of the marker; a usage error if they are wrong."""
    marker = item.get_closest_marker("agent")
    try:
        options = AgentOptions(**(marker.kwargs if marker is not None else {}))
    except TypeError as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.agent: {error}") from None
    is_valid = (
        isinstance(options.repeat, int)
        and options.repeat >= 1
        and isinstance(options.min_success, int | float)
        and 0 <= options.min_success <= 1
        and (options.max_cost is None or isinstance(options.max_cost, int | float))
    )
    if not is_valid:
        raise pytest.UsageError(f"{item.nodeid}: invalid @pytest.mark.agent; expected {MARKER}")
    return options


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test as often as asked for, each time with new fixtures, as one test."""
    if not _is_agent_test(item):
        return None
    from _pytest.runner import runtestprotocol

    options = _marker_options(item)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    calls: list[pytest.TestReport] = []
    for number in range(options.repeat):
        item.stash[REPETITION] = number
        if number:
            item._initrequest()  # type: ignore[attr-defined]  # new fixtures, as for a rerun
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        calls += [report for report in reports if report.when == "call"]
        if any(report.skipped or (report.failed and report.when != "call") for report in reports):
            break  # not recorded, or the fixtures failed
    else:
        call = next(report for report in reports if report.when == "call")
        _merge(call, calls, options, item.stash.get(RUNS, []))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _merge(
    report: pytest.TestReport,
    calls: list[pytest.TestReport],
    options: AgentOptions,
    runs: list[RunFigures],
) -> None:
    """Make the report of the last repetition that of all."""
    problems = list(_problems(calls, options, runs))
    failed = [call for call in calls if call.failed]
    text = "\n".join(problems)
    if problems and failed:
        text += f"\n\nthe first failure:\n{failed[0].longreprtext}"
    report.outcome = "failed" if problems else "passed"
    report.longrepr = text if problems else None
    report.duration = sum(call.duration for call in calls)


def _problems(
    calls: list[pytest.TestReport], options: AgentOptions, runs: list[RunFigures]
) -> Iterator[str]:
    from ..checks.across import wilson_interval

    passed = sum(call.passed for call in calls)
    if passed < options.min_success * len(calls):
        low, high = wilson_interval(passed, len(calls)) or (0.0, 1.0)
        yield (
            f"min_success: {passed} of {len(calls)} repetitions passed ({passed / len(calls):.0%}, "
            f"95 % interval {low:.0%} to {high:.0%}), at least {options.min_success:.0%} wanted"
        )
        yield from (f"  repetition {n}: {_outcome(call)}" for n, call in enumerate(calls, 1))
    cost = _total_cost(runs)
    if options.max_cost is not None and runs and (cost is None or cost > options.max_cost):
        shown = "unknown" if cost is None else f"${cost:.4f}"
        yield f"max_cost: cost {shown}, limit ${options.max_cost:.4f}"


def _outcome(call: pytest.TestReport) -> str:
    if call.passed:
        return "passed"
    crash = getattr(call.longrepr, "reprcrash", None)
    message = str(crash.message if crash is not None else call.longreprtext)
    return f"failed: {' '.join(message.split())[:200]}"


# -- sessions without a run ------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A job that skipped all its agent tests checked nothing: in CI, it fails."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reports = [] if reporter is None else [*chain.from_iterable(reporter.stats.values())]
    calls = [report for report in reports if getattr(report, "when", None) == "call"]
    properties = [dict(report.user_properties) for report in calls]
    skipped = sum(f"{PREFIX}not_recorded" in found for found in properties)
    if not skipped or any(f"{PREFIX}runs" in found for found in properties):
        return
    session.config.stash[NOT_RUN] = skipped
    if os.environ.get(CI_VARIABLE) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# -- figures -------------------------------------------------------------------------------------


def _total_cost(runs: list[RunFigures]) -> float | None:
    costs = [run.cost_usd for run in runs]
    return None if None in costs else sum(cost or 0 for cost in costs)


def _set_properties(item: pytest.Item, runs: list[RunFigures]) -> None:
    """The figures of a test, in JUnit XML and for the summary of all workers."""
    live = [run for run in runs if run.is_live]
    cost = _total_cost(runs)
    live_cost = _total_cost(live)
    values = {
        "runs": len(runs),
        "live_runs": len(live),
        "verdicts": ", ".join(dict.fromkeys(run.verdict for run in runs)),
        "tokens": sum(run.tokens for run in runs),
        "cost_usd": "unknown" if cost is None else round(cost, 6),
        "live_cost_usd": "unknown" if live_cost is None else round(live_cost, 6),
    }
    others = [pair for pair in item.user_properties if not pair[0].startswith(PREFIX)]
    item.user_properties[:] = others + [(f"{PREFIX}{key}", text) for key, text in values.items()]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    tests = [
        properties
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        and f"{PREFIX}runs" in (properties := dict(report.user_properties))
    ]
    skipped = terminalreporter.config.stash.get(NOT_RUN, 0)
    if skipped and not tests:
        terminalreporter.section("agent runs")
        terminalreporter.write_line(
            f"no agent test ran: {skipped} skipped, because their runs are not recorded; to record "
            f"them: --steno-live{CI_NOTE if os.environ.get(CI_VARIABLE) else ''}"
        )
    if not tests:
        return
    runs, live, tokens = (
        sum(test[f"{PREFIX}{name}"] for test in tests) for name in ("runs", "live_runs", "tokens")
    )
    terminalreporter.section("agent runs")
    terminalreporter.write_line(
        f"{runs} run{'' if runs == 1 else 's'} in {len(tests)} test{'' if len(tests) == 1 else 's'}"
        f" ({live} live, {runs - live} recorded) · {tokens:,} tokens · "
        f"{_sum_text(tests, 'cost_usd')}, of which live {_sum_text(tests, 'live_cost_usd')}"
    )


def _sum_text(tests: list[dict[str, Any]], name: str) -> str:
    values = [test[f"{PREFIX}{name}"] for test in tests]
    known = [value for value in values if not isinstance(value, str)]
    unknown = len(values) - len(known)
    more = f" (unknown for {unknown} test{'' if unknown == 1 else 's'})" if unknown else ""
    return f"${sum(known):.4f}{more}"
