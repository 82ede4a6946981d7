"""The ledger's counters, budgets and limits in the text format of Prometheus.

Labels have few values: agents and verdicts that this version knows (others are `other`), and no
model or session. Projects appear only with a budget of their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from .. import __version__
from ..agents import AGENTS
from ..codec.redact import redact
from ..ledger.protocol import Store
from ..ledger.queries.budget import list_budgets
from ..ledger.queries.filters import TimeZone
from ..ledger.queries.limits import list_limits
from ..ledger.queries.metrics import AgentSpend, RunCount, count_runs, sum_spend
from ..report import VERDICTS
from ..units import NANO_PER_USD
from ..views.formatting import clean

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
MAX_SERIES = 100  # of budgets, and of limits
MAX_LABEL_CHARS = 200
TOKEN_KINDS = ("input", "cache_write", "cache_read", "output")

Labels = dict[str, str]
Samples = dict[tuple[tuple[str, str], ...], float]


def prometheus_text(store: Store, zone: TimeZone, now: int, active: Iterable[str]) -> str:
    """All metrics; `active` has the agent of each active run of this machine."""
    lines = [
        *_family("steno_build_info", "gauge", "Version of steno.", [({"version": __version__}, 1)]),
        *_run_families(count_runs(store)),
        *_spend_families(sum_spend(store)),
        *_active_family(active),
        *_budget_families(store, zone, now),
        *_limit_families(store, now),
    ]
    return "\n".join(lines) + "\n"


def _run_families(counts: list[RunCount]) -> Iterator[str]:
    runs = [
        ({"agent": _agent(row.agent), "verdict": _verdict(row.verdict)}, row.runs) for row in counts
    ]
    seconds = [({"agent": _agent(row.agent)}, row.duration_ms / 1000) for row in counts]
    yield from _family("steno_runs_total", "counter", "Finished runs.", runs)
    yield from _family("steno_run_seconds_total", "counter", "Duration of finished runs.", seconds)


def _spend_families(rows: list[AgentSpend]) -> Iterator[str]:
    named = [({"agent": _agent(row.agent)}, row) for row in rows]
    requests = [(labels, row.requests) for labels, row in named]
    unpriced = [(labels, row.unpriced) for labels, row in named]
    tokens = [
        ({**labels, "kind": kind}, getattr(row, kind))
        for labels, row in named
        for kind in TOKEN_KINDS
    ]
    cost = [
        ({**labels, "source": source}, getattr(row, f"{source}_nano") / NANO_PER_USD)
        for labels, row in named
        for source in ("reported", "computed")
    ]
    yield from _family("steno_requests_total", "counter", "Requests to models.", requests)
    yield from _family("steno_tokens_total", "counter", "Tokens by kind, each once.", tokens)
    yield from _family("steno_cost_usd_total", "counter", "Cost by source, in US dollars.", cost)
    text = "Requests without a known price, not included in the cost."
    yield from _family("steno_unpriced_requests_total", "counter", text, unpriced)


def _active_family(active: Iterable[str]) -> Iterator[str]:
    counts = Counter(dict.fromkeys(AGENTS, 0))
    counts.update(map(_agent, active))
    samples: list[tuple[Labels, float]] = [({"agent": name}, n) for name, n in counts.items()]
    yield from _family("steno_active_runs", "gauge", "Active runs of this machine.", samples)


def _budget_families(store: Store, zone: TimeZone, now: int) -> Iterator[str]:
    budgets = list_budgets(store, zone, now)
    named = [
        ({"period": budget.period, "project": budget.project or ""}, budget)
        for budget in islice(budgets, MAX_SERIES)
    ]
    limits = [(labels, budget.limit_nano / NANO_PER_USD) for labels, budget in named]
    spent = [(labels, budget.spent_nano / NANO_PER_USD) for labels, budget in named]
    yield from _family("steno_budget_limit_usd", "gauge", "Spending limits of budgets.", limits)
    yield from _family("steno_budget_spent_usd", "gauge", "Spent in the current period.", spent)
    yield from _omitted("budgets", len(budgets))


def _limit_families(store: Store, now: int) -> Iterator[str]:
    limits = list_limits(store, now)
    named = [
        ({"agent": _agent(row.agent), "account": row.account or "", "window": row.window}, row)
        for row in islice(limits, MAX_SERIES)
    ]
    used = [(labels, row.utilization) for labels, row in named if row.utilization is not None]
    resets = [(labels, row.resets_at / 1000) for labels, row in named if row.resets_at is not None]
    text = "Used part of an account's usage limit, as last observed."
    yield from _family("steno_limit_used_ratio", "gauge", text, used)
    text = "End of the window of a usage limit, in seconds since 1970."
    yield from _family("steno_limit_reset_timestamp_seconds", "gauge", text, resets)
    yield from _omitted("limits", len(limits))


def _omitted(noun: str, count: int) -> Iterator[str]:
    if count > MAX_SERIES:
        yield f"# {count - MAX_SERIES} more {noun} are not exported"


# -- text ------------------------------------------------------------------------------------------


def _family(
    name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]
) -> Iterator[str]:
    """The lines of one metric; samples with the same labels are added up."""
    sums: Samples = {}
    for labels, value in samples:
        key = tuple((label, _label_value(word)) for label, word in labels.items())
        sums[key] = sums.get(key, 0) + value
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for pairs, value in sums.items():
        shown = ",".join(f'{label}="{word}"' for label, word in pairs)
        yield f"{name}{{{shown}}} {value!r}"


def _label_value(text: str) -> str:
    text = clean(redact(text))[:MAX_LABEL_CHARS]
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _agent(name: str) -> str:
    return name if name in AGENTS else OTHER


def _verdict(name: str) -> str:
    return name if name in VERDICTS else OTHER
