"""A policy beside an active run: stops it at the first broken rule, and checks it at its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import event as ev
from ..report import ChangedFile, Report, ToolCallCounts, resolve_path
from ..workspace.changes import PatchBuilder
from .facts import CallCollector, CallFact, RunFacts, call_fact, count_patch_lines
from .policy import Policy, load_policy
from .rules import RuleFinding, check_rule

if TYPE_CHECKING:
    from ..runner.attempt import AgentRun

TOOL_RULES = ("allow_tools", "forbid_tools", "forbid_commands")
FILE_RULES = ("allow_files", "forbid_files")
SERIES_RULES = ("max_repeated_calls", "max_repeated_failures")
MAX_OPEN_CALLS = 100  # of one series, without a result so far


def load_monitor(path: str) -> "PolicyMonitor":
    """A monitor for the policy in a file; StenoError if that is invalid."""
    return PolicyMonitor(load_policy(Path(path)))


class PolicyMonitor:
    """A sink for the events of a task's runs."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rules = policy.live_rules()
        limits = [self._rules[name] for name in SERIES_RULES if name in self._rules]
        self._max_series = max(limits) + MAX_OPEN_CALLS if limits else 0
        self._collector = CallCollector()
        self._patch = PatchBuilder() if policy.needs("patch") else None
        self._series: dict[str, CallFact] = {}  # the latest calls, all with the same signature
        self._run_id: str | None = None

    def on_events(self, run: "AgentRun", events: Sequence[ev.Event]) -> None:
        """Stop the run if an event breaks a rule."""
        if run.id != self._run_id:
            self._run_id = run.id
            self._series.clear()
        self._collector.add(events)
        started = run.accumulator.started
        folder = (started and started.cwd) or run.accumulator.start_folder
        for event in events:
            if self._patch is not None:
                self._patch.add(event)
            for finding in self._check_event(event, folder):
                run.stop(f"policy: {finding.rule}: {finding.message}")
                return

    def finish(self, report: Report) -> list[RuleFinding]:
        """What the whole task breaks."""
        facts = RunFacts(report, self._collector.calls)
        facts.change_lines = self._collector.change_lines
        if self._patch is not None and not self._patch.files_without_content():
            facts.changed_lines = count_patch_lines(self._patch.build_patch())
        return self._policy.check(facts)

    def _check_event(self, event: ev.Event, folder: str | None) -> list[RuleFinding]:
        if isinstance(event, ev.ToolCall):
            call = call_fact(event)
            self._extend_series(call)
            counts = {call.name: ToolCallCounts(1)}
            facts = RunFacts(Report(tool_counts=counts), [call])
            return [*self._check(TOOL_RULES, facts), *self._check_series()]
        if isinstance(event, ev.ToolResult) and event.id in self._series:
            self._series[event.id] = self._series[event.id]._replace(ok=not event.is_error)
            return self._check_series()
        if isinstance(event, ev.FileChanged):
            path, absolute, inside = resolve_path(event.path, folder)
            file = ChangedFile(path, absolute, event.change, inside)
            lines = {absolute: event.line}
            return self._check(FILE_RULES, RunFacts(Report(files=[file]), [], None, lines))
        return []

    def _extend_series(self, call: CallFact) -> None:
        newest = next(reversed(self._series.values()), call)
        if newest.signature != call.signature:
            self._series.clear()
        self._series[call.id] = call
        if len(self._series) > self._max_series:
            del self._series[next(iter(self._series))]

    def _check_series(self) -> list[RuleFinding]:
        return self._check(SERIES_RULES, RunFacts(Report(), list(self._series.values())))

    def _check(self, names: Sequence[str], facts: RunFacts) -> list[RuleFinding]:
        values: list[tuple[str, Any]] = [
            (name, self._rules[name]) for name in names if name in self._rules
        ]
        return [finding for name, value in values for finding in check_rule(name, value, facts)]
