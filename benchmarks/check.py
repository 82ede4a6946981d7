"""Measure `steno check` over many stored reports.

Run as `python -m benchmarks.check`. The ledger has the reports and calls of recorded runs, many
times. Each measurement is a fresh process including its start-up, and its findings must be those of
the recordings themselves.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import HOME, run
from benchmarks.table import number, table
from steno.checks.facts import RunFacts, read_facts
from steno.checks.policy import Policy, load_policy
from steno.ledger.store import Row, open_ledger
from steno.pricing import price
from steno.recording.open import open_path

RECORDINGS = HOME / "tests/recordings/claude/2.1.325"
START = 1_760_000_000_000  # milliseconds since 1970
LIMIT_SECONDS = 5.0
POLICY = """
verdict = "success"
max_cost = 0.05
max_tokens = "100k"
max_turns = 10
max_duration = "3s"
max_context = 0.5
max_retries = 1
max_denials = 0
max_tool_errors = 2
require_tools = "*"
forbid_tools = ["Web*", "AskUserQuestion"]
forbid_commands = ["git (push|status)", "rm -rf"]
allow_files = ["src/"]
forbid_files = [".github/", "**/*.lock"]
max_files = 2
max_repeated_calls = 3
max_repeated_failures = 1
forbid_text = ["TODO", "could not"]
match_text = '\\\\w'
max_text_length = 200
"""
RUN_COLUMNS = (
    *("id", "agent", "model", "project", "started_at", "verdict", "ok", "succeeded", "complete"),
    *("cost_source", "tools", "tool_errors", "files", "denials", "unknown", "report"),
)
CALL_COLUMNS = (
    *("id", "call", "agent", "session", "run", "request"),
    *("name", "kind", "target", "at", "ok", "denied"),
)


def recorded() -> list[RunFacts]:
    """The facts of every recorded run."""
    return [
        read_facts(open_path(path), price=price)
        for path in sorted(RECORDINGS.iterdir())
        if (path / "stdout").exists()
    ]


def run_id(serial: int) -> str:
    """Random digits first, as in real ids."""
    return hashlib.blake2b(b"%d" % serial, digest_size=4).hexdigest() + f"{START + serial:011x}"


def run_rows(runs: list[RunFacts], count: int) -> Iterator[Row]:
    for serial in range(count):
        report = runs[serial % len(runs)].report
        blob = zlib.compress(report.to_json())
        calls = sum(tool.calls for tool in report.tool_counts.values())
        yield (
            *(run_id(serial), "claude", report.model, report.cwd, START + serial * 60_000),
            *(report.verdict, int(report.ok), int(report.succeeded), 1, report.cost.source),
            *(calls, 0, len(report.files), len(report.denials), 0, blob),
        )


def call_rows(runs: list[RunFacts], count: int) -> Iterator[Row]:
    serial = 0
    for place in range(count):
        for call in runs[place % len(runs)].calls or ():
            serial += 1
            target = call.command or call.signature
            ok = None if call.ok is None else int(call.ok)
            yield (
                *(serial, f"{place}-{call.id}", "claude", "session", run_id(place), 0),
                *(call.name, call.kind, target, START + serial, ok, int(call.denied)),
            )


def write_ledger(path: Path, runs: list[RunFacts], count: int) -> int:
    """The number of calls."""
    store = open_ledger(str(path))
    with store.transaction():
        store.upsert("runs", RUN_COLUMNS, run_rows(runs, count), "")
        store.upsert("calls", CALL_COLUMNS, call_rows(runs, count), "")
    calls = store.query("SELECT count(*) FROM calls")[0][0]
    store.close()
    return int(calls)


def expected_findings(policy: Policy, runs: list[RunFacts], count: int) -> Counter[str]:
    """The number of findings by rule, from the recordings."""
    found: Counter[str] = Counter()
    for index, facts in enumerate(runs):
        times = count // len(runs) + (index < count % len(runs))
        for finding in policy.check(facts):
            found[finding.rule] += times
    return found


def main() -> int:
    parsing = parser("check many stored reports", 5)
    parsing.add_argument("--runs", type=int, default=10_000)
    options = parsing.parse_args()
    count: int = options.runs
    with tempfile.TemporaryDirectory(prefix="steno-bench-") as name:
        folder = Path(name)
        policy, ledger = folder / "policy.toml", folder / "ledger.db"
        policy.write_text(POLICY)
        loaded = load_policy(policy)
        runs = recorded()
        log(f"{len(runs)} recorded runs; writing a ledger of {count:,}")
        calls = write_ledger(ledger, runs, count)
        size = ledger.stat().st_size / (1 << 20)
        words = ("check", "--no-import", "--ledger", ledger, "--last", count, "--policy", policy)
        command = [sys.executable, "-m", "steno", *map(str, words), "--json"]
        results = [run(command) for _ in range(options.rounds)]
    found = Counter(
        finding["rule"] for one in results[-1].figures()["runs"] for finding in one["findings"]
    )
    rules = len(loaded.rules)
    wanted = expected_findings(loaded, runs, count)
    seconds = min(result.cpu for result in results)
    goals = [Goal(f"{count:,} reports, {rules} rules: CPU", seconds, LIMIT_SECONDS, " s")]
    text = "\n\n".join(
        [
            "## Checks",
            f"{date.today()}, Python {platform.python_version()}, {os.cpu_count()} CPUs, SQLite. "
            f"`steno check` over {count:,} stored reports with {calls:,} calls ({size:,.0f} MB, "
            f"made of {len(runs)} recorded runs) and a policy of {rules} rules; CPU of the whole "
            f"process, minimum of {options.rounds}.",
            table(["goal", "target", "measured", ""], [goal.cells() for goal in goals]),
            f"{found.total():,} findings, as in the recordings; wall time "
            f"{number(min(result.wall for result in results))} s, peak memory "
            f"{number(max(result.rss for result in results), 0)} MB.",
        ]
    )
    faults = [] if found == wanted else [f"WRONG: {found} findings, expected {wanted}"]
    return finish(options, text, "check", goals, faults)


if __name__ == "__main__":
    raise SystemExit(main())
