"""Rules over several runs of one task: success rate, spread, regression against a baseline. Pure
except for the files of baselines.
"""

import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ..config.files import data_folder
from ..config.values import parse_fraction
from ..errors import StenoError
from ..private_files import write_cache_file as write_file
from ..report import Report
from .rules import RuleFinding, format_dollars, format_seconds, format_whole, parse_whole

BASELINE_SCHEMA = "steno.baseline/1"
BASELINES_FOLDER_NAME = "baselines"  # below the data folder
Z_95 = 1.96  # two-sided confidence of 95 %
DEFAULT_TOLERANCE = 0.1


class Distribution(Struct, frozen=True):
    """A figure over several runs; `known` counts those that have it."""

    known: int = 0
    minimum: float | None = None
    median: float | None = None
    mean: float | None = None
    maximum: float | None = None
    deviation: float | None = None  # standard deviation of the sample; needs two values

    @property
    def spread(self) -> float | None:
        """The standard deviation as a fraction of the mean."""
        if self.deviation is None or not self.mean:
            return None
        return self.deviation / self.mean


class RunStatistics(Struct, frozen=True, kw_only=True):
    """Several runs of one task. `interval` is the 95 % confidence interval of the success rate."""

    schema: str = BASELINE_SCHEMA
    saved_at: str | None = None  # of a baseline, in ISO 8601
    runs: int
    succeeded: int
    success_rate: float | None
    interval: tuple[float, float] | None
    verdicts: dict[str, int]
    cost_usd: Distribution
    tokens: Distribution
    turns: Distribution
    duration_ms: Distribution


# Figures that are compared with a baseline: their names for people, and how they are written.
FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "cost_usd": ("cost", format_dollars),
    "tokens": ("tokens", format_whole),
    "turns": ("turns", "{:g}".format),
    "duration_ms": ("duration", lambda milliseconds: format_seconds(milliseconds / 1000)),
}


def wilson_interval(successes: int, total: int) -> tuple[float, float] | None:
    """The 95 % confidence interval of a rate by Wilson's score, which suits few runs."""
    if total == 0:
        return None
    rate = successes / total
    spread = Z_95**2 / total
    centre = (rate + spread / 2) / (1 + spread)
    margin = Z_95 / (1 + spread) * math.sqrt(rate * (1 - rate) / total + spread / (4 * total))
    return max(0.0, centre - margin), min(1.0, centre + margin)


def distribution(values: Sequence[float | None]) -> Distribution:
    known = [value for value in values if value is not None]
    if not known:
        return Distribution()
    return Distribution(
        known=len(known),
        minimum=min(known),
        median=statistics.median(known),
        mean=statistics.fmean(known),
        maximum=max(known),
        deviation=statistics.stdev(known) if len(known) > 1 else None,
    )


class RunOutcome(NamedTuple):
    """What statistics need to know of a run or task; None: unknown."""

    ok: bool
    verdict: str
    cost_usd: float | None
    tokens: float | None
    turns: float | None
    duration_ms: float | None


def summarize(reports: Sequence[Report]) -> RunStatistics:
    """The statistics of several runs."""
    return summarize_outcomes(
        [
            RunOutcome(
                ok=report.ok,
                verdict=report.verdict,
                cost_usd=report.cost.usd,
                tokens=report.tokens.total,
                turns=report.turns,
                duration_ms=report.duration_ms,
            )
            for report in reports
        ]
    )


def summarize_outcomes(outcomes: Sequence[RunOutcome]) -> RunStatistics:
    """The statistics of several outcomes."""
    succeeded = sum(outcome.ok for outcome in outcomes)
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    return RunStatistics(
        runs=len(outcomes),
        succeeded=succeeded,
        success_rate=succeeded / len(outcomes) if outcomes else None,
        interval=wilson_interval(succeeded, len(outcomes)),
        verdicts=dict(sorted(verdicts.items(), key=lambda item: (-item[1], item[0]))),
        cost_usd=distribution([outcome.cost_usd for outcome in outcomes]),
        tokens=distribution([outcome.tokens for outcome in outcomes]),
        turns=distribution([outcome.turns for outcome in outcomes]),
        duration_ms=distribution([outcome.duration_ms for outcome in outcomes]),
    )


def statistics_json(statistics: RunStatistics) -> dict[str, Any]:
    """The statistics as part of a command's JSON."""
    values: dict[str, Any] = msgspec.to_builtins(statistics)
    del values["schema"]
    return values


# -- baselines -----------------------------------------------------------------------------------


def baseline_path(name: str) -> Path:
    """A file named by its path, or a name below steno's data folder."""
    if name.endswith(".json") or os.sep in name:
        return Path(name).expanduser()
    return data_folder() / BASELINES_FOLDER_NAME / f"{name}.json"


def save_baseline(name: str, summary: RunStatistics) -> Path:
    """Store the statistics under a name; an earlier baseline of that name is replaced."""
    path = baseline_path(name)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    saved = msgspec.structs.replace(summary, saved_at=now)
    write_file(path, msgspec.json.format(msgspec.json.encode(saved)) + b"\n")
    return path


def list_baselines() -> list[tuple[str, RunStatistics]]:
    """The named baselines, oldest first; damaged ones are left out."""
    found = []
    for path in (data_folder() / BASELINES_FOLDER_NAME).glob("*.json"):
        with suppress(StenoError):
            found.append((path.stem, load_baseline(str(path))))
    return sorted(found, key=lambda pair: (pair[1].saved_at or "", pair[0]))


def load_baseline(name: str) -> RunStatistics:
    """StenoError if there is none of that name, or it is damaged."""
    path = baseline_path(name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunStatistics)
    except FileNotFoundError:
        raise StenoError(
            f"no baseline {name!r} ({path}); make one: steno check --save-baseline {name} RUN..."
        ) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StenoError(f"{path}: not a baseline of steno: {error}") from None


# -- rules ---------------------------------------------------------------------------------------

AcrossCheck = Callable[[RunStatistics, Any, dict[str, Any]], list[tuple[str, Any]]]


class AcrossRule(NamedTuple):
    """A rule over several runs; `check` gets the statistics, the value, and all `across` values."""

    parse: Callable[[Any], Any]
    check: AcrossCheck
    summary: str
    example: str


def _check_runs(summary: RunStatistics, limit: int, _: dict[str, Any]) -> list[tuple[str, Any]]:
    if summary.runs >= limit:
        return []
    return [(f"{summary.runs} runs, at least {limit} wanted", summary.runs)]


def _check_success(
    summary: RunStatistics, limit: float, _: dict[str, Any]
) -> list[tuple[str, Any]]:
    rate = summary.success_rate
    if rate is None or summary.interval is None:
        return [("no runs", None)]
    if rate >= limit:
        return []
    low, high = summary.interval
    text = (
        f"success rate {rate:.0%} ({summary.succeeded} of {summary.runs}, "
        f"95 % interval {low:.0%} to {high:.0%}), at least {limit:.0%} wanted"
    )
    return [(text, rate)]


def _check_spread(summary: RunStatistics, limit: float, _: dict[str, Any]) -> list[tuple[str, Any]]:
    spread = summary.cost_usd.spread
    if spread is None:
        return [("spread of the cost unknown: fewer than two runs have a cost", None)]
    if spread <= limit:
        return []
    return [(f"cost varies by {spread:.0%} of its mean, limit {limit:.0%}", spread)]


def _check_baseline(
    summary: RunStatistics, baseline: RunStatistics, across: dict[str, Any]
) -> list[tuple[str, Any]]:
    tolerance = across.get("tolerance", DEFAULT_TOLERANCE)
    problems: list[tuple[str, Any]] = []
    rate, before = summary.success_rate, baseline.success_rate
    if rate is not None and before is not None and rate < before - tolerance:
        problems.append((f"success rate {rate:.0%}, baseline {before:.0%}", rate))
    for name, (noun, form) in FIGURES.items():
        value, old = getattr(summary, name).median, getattr(baseline, name).median
        if old is None:
            continue
        if value is None:
            problems.append((f"{noun} unknown, median of the baseline {form(old)}", None))
        elif value > old * (1 + tolerance):
            growth = f"{value / old - 1:+.0%}" if old else "new"
            text = f"median {noun} {form(value)}, baseline {form(old)} ({growth})"
            problems.append((text, value))
    return problems


def _parse_baseline(value: Any) -> RunStatistics:
    if not isinstance(value, str) or not value:
        raise ValueError("the name of a baseline")
    return load_baseline(value)


ACROSS_RULES: dict[str, AcrossRule] = {
    "min_runs": AcrossRule(parse_whole, _check_runs, "number of runs", "5"),
    "min_success": AcrossRule(parse_fraction, _check_success, "success rate, as a fraction", "0.8"),
    "max_cost_spread": AcrossRule(
        parse_fraction,
        _check_spread,
        "standard deviation of the cost, as a fraction of its mean",
        "0.5",
    ),
    "baseline": AcrossRule(
        _parse_baseline,
        _check_baseline,
        "name of a baseline whose success rate and medians must be kept",
        '"main"',
    ),
    "tolerance": AcrossRule(
        parse_fraction, lambda *_: [], "allowed loss against the baseline, as a fraction", "0.1"
    ),
}


def check_across(across: dict[str, Any], reports: Sequence[Report]) -> list[RuleFinding]:
    """The findings of the rules over several runs."""
    if not across:
        return []
    summary = summarize(reports)
    return [
        RuleFinding(
            rule=f"across.{name}",
            message=message,
            actual=actual,
            expected=value if isinstance(value, int | float) else None,
        )
        for name, value in across.items()
        for message, actual in ACROSS_RULES[name].check(summary, value, across)
    ]
