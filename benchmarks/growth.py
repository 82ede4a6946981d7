"""Measure how commands grow with the ledger: 10,000, 100,000 and 1,000,000 runs.

Run as `python -m benchmarks.growth`. Each figure is the CPU time of a fresh process less that of
one that only opens the ledger; that of the PostgreSQL server, started for the purpose, is included.
Then the import of many transcripts is measured, beside ccusage and agentsview.
`python -m benchmarks.growth --generate LEDGER --runs 1000000` only writes a ledger of made-up runs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from tests import postgres

from benchmarks import peers, transcripts
from benchmarks.command import Goal, finish, log, parser
from benchmarks.measure import HOME, megabytes
from benchmarks.table import number, table
from steno.ledger.store import Row, Store, open_ledger

SIZES = (10_000, 100_000, 1_000_000)
DAYS = 365
HOUR = 3_600_000
BATCH = 20_000  # runs whose rows are written together
PROJECTS, REQUESTS, CALLS = 40, 3, 2
AGENTS = ("claude", "claude", "claude", "codex", "gemini")
MODELS = ("claude-opus-5-5", "claude-sonnet-4-5", "gpt-5.3-codex", "gemini-3-pro")
VERDICTS = ("success",) * 8 + ("api", "max_turns")
SOURCES = ("tape", "tape", "tape", "recording", "transcript")
TOOLS = ("Bash", "Read", "Edit", "Grep", "Write")
WORDS = (
    *("parser", "retry", "timeout", "ledger", "import", "index", "window", "session", "budget"),
    *("socket", "worker", "schema", "column", "commit", "branch", "review", "deploy", "metric"),
)
RARE = "needle"  # in one of 10,000 prompts
COLUMNS = {
    "sources": "path kind size mtime_ns inode done lines head tail session run imported_at",
    "sessions": "id agent agent_version project model title first_at last_at prompts turns "
    "context_used context_limit context_peak compactions host user_name repository branch",
    "tasks": "id agent project prompt started_at ended_at verdict attempts",
    "runs": "id session task attempt agent agent_version model project source started_at ended_at "
    "duration_ms verdict ok succeeded complete exit_code turns requests input cache_write "
    "cache_read output reasoning cost_nano cost_source context_used context_limit context_peak "
    "tools tool_errors files denials unknown prompt report host user_name repository branch tags",
    "requests": "id agent session run kind message model at input cache_write cache_read output "
    "reasoning cache_write_1h cost_nano saved_nano source",
    "calls": "id call agent session run request name kind target at duration_ms ok denied",
    "texts": "id session run role at text",
    "spend": "session model hour agent project requests input cache_write cache_read output "
    "reasoning cache_write_1h reported_nano computed_nano saved_nano unpriced unpriced_tokens",
    "tool_use": "hour agent project name calls errors denied open timed total_ms slowest_ms",
}


class Rows:
    """Made-up runs, oldest first: each with its session, task, requests, calls, texts, sums."""

    def __init__(self, runs: int, seed: int = 11) -> None:
        self.runs = runs
        self.rng = random.Random(seed)
        self.end = int(time.time() * 1000)
        self.tool_use: dict[tuple[Any, ...], list[int]] = {}
        self.report = zlib.compress(
            json.dumps({"schema": "steno.report/1", "pad": "x" * 40}).encode()
        )
        self.pad = self.rng.randbytes(700)  # a compressed report has about this size

    def batches(self) -> Iterator[dict[str, list[Row]]]:
        for first in range(0, self.runs, BATCH):
            rows: dict[str, list[Row]] = {name: [] for name in COLUMNS if name != "tool_use"}
            for number_ in range(first, min(first + BATCH, self.runs)):
                self.add(number_, rows)
            yield rows
        yield {"tool_use": [(*key, *sums) for key, sums in self.tool_use.items()]}

    def add(self, serial: int, rows: dict[str, list[Row]]) -> None:
        draw = self.rng.randrange
        at = self.end - (self.runs - serial) * DAYS * 24 * HOUR // self.runs
        hour = at // HOUR
        session = f"{self.rng.getrandbits(32):08x}-{serial:08x}"
        run, task = f"{at:011x}{serial:08x}", f"{at:011x}{serial:07x}t"
        agent, model = AGENTS[serial % 5], MODELS[serial % 4]
        project = f"/srv/code/project-{serial % PROJECTS}"
        words = [WORDS[draw(len(WORDS))] for _ in range(8)]
        prompt = " ".join(["Fix the", *words, RARE if not serial % 10_000 else "now"])
        source = f"/srv/steno/recordings/{run}.steno"
        verdict = VERDICTS[draw(len(VERDICTS))]
        ok = int(verdict == "success")
        host, user = f"host-{serial % 7}", f"user-{serial % 9}"
        origin = (host, user, f"git.example/{serial % PROJECTS}", f"branch-{serial % 11}")
        tags = '{"team":"core"}' if not serial % 50 else None
        end = at + draw(5_000, 900_000)
        rows["sources"].append(
            (
                source,
                SOURCES[serial % 5],
                4096,
                at * 1_000_000,
                serial,
                4096,
                12,
                "h",
                "t",
                session,
                run,
                at,
            )
        )
        rows["tasks"].append((task, agent, project, prompt, at, end, verdict, 1))
        total = [0, 0, 0, 0]
        cost = 0
        for index in range(REQUESTS):
            counts = (draw(1, 40), draw(200, 6_000), draw(9_000, 160_000), draw(40, 2_000))
            total = [one + other for one, other in zip(total, counts, strict=True)]
            nano = counts[1] * 6_250 + counts[2] * 500 + counts[3] * 25_000
            cost += nano
            rows["requests"].append(
                (
                    *(serial * REQUESTS + index, agent, session, run, "request"),
                    *(f"m{serial}-{index}", model, at + index, *counts, 0, 0),
                    *(nano, counts[2] * 4_500, "computed"),
                )
            )
        rows["spend"].append(
            (session, model, hour, agent, project, REQUESTS, *total, 0, 0, 0, cost, 0, 0, 0)
        )
        for index in range(CALLS):
            name = TOOLS[draw(len(TOOLS))]
            spent = draw(5, 4_000)
            rows["calls"].append(
                (
                    *(serial * CALLS + index, f"t{serial}-{index}", agent, session, run),
                    *(serial * REQUESTS, name, "other", "src/app.py", at + index, spent, 1, 0),
                )
            )
            sums = self.tool_use.setdefault((hour, agent, project, name), [0] * 7)
            for place, count in enumerate((1, 0, 0, 0, 1, spent)):
                sums[place] += count
            sums[6] = max(sums[6], spent)
        peak = draw(9_000, 190_000)
        rows["sessions"].append(
            (
                *(session, agent, "2.1.325", project, model, prompt, at, end, 1, REQUESTS),
                *(peak, 200_000, peak, 0, *origin),
            )
        )
        rows["runs"].append(
            (
                *(run, session, task, 1, agent, "2.1.325", model, project, source, at, end),
                *(end - at, verdict, ok, ok, 1, 0, REQUESTS, REQUESTS, *total, 0, cost),
                *("reported", peak, 200_000, peak, CALLS, 0, 1, 0, 0, prompt),
                *(self.report + self.pad, *origin, tags),
            )
        )
        for index, (role, text) in enumerate((("prompt", prompt), ("answer", " ".join(words)))):
            rows["texts"].append((serial * 2 + index, session, run, role, at + index, text))


def insert(store: Store, name: str, rows: Iterable[Row]) -> None:
    columns = COLUMNS[name].split()
    if store.kind == "sqlite":
        store.upsert(name, columns, rows, "")
        return
    copy_sql = f"COPY {name} ({', '.join(columns)}) FROM STDIN"
    with store.connection.cursor() as cursor, cursor.copy(copy_sql) as copy:  # type: ignore[attr-defined]
        for row in rows:
            copy.write_row(row)


def generate(location: str, runs: int) -> None:
    """Write a ledger; without a log, since a broken one is simply written again."""
    store = open_ledger(location)
    if store.kind == "sqlite":
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1000000"):
            store.execute(f"PRAGMA {pragma}")
    began = time.monotonic()
    indexes = drop_indexes(store)
    for count, batch in enumerate(Rows(runs).batches(), 1):
        with store.transaction():
            for name, rows in batch.items():
                insert(store, name, rows)
        if not count % 10:
            log(f"{min(count * BATCH, runs):,} runs, {time.monotonic() - began:.0f} s")
    for sql in indexes:
        store.execute(sql)
    store.execute("ANALYZE")
    if store.kind == "sqlite":
        store.execute("PRAGMA journal_mode = WAL")
    else:
        store.execute("VACUUM")  # as a server does by itself, some time later
    store.close()
    log(f"{runs:,} runs in {time.monotonic() - began:.0f} s")


def drop_indexes(store: Store) -> list[str]:
    """Drop all indexes but those of keys, and return the statements that create them again."""
    sql = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    if store.kind == "postgresql":
        sql = (
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() "
            "AND indexname !~ '_(pkey|key)$'"
        )
    rows = store.query(sql)
    for name, _ in rows:
        store.execute(f"DROP INDEX {name}")
    return [statement for _, statement in rows]


# -- measuring -----------------------------------------------------------------------------------


LIST_MS, SUM_MS = 100, 150  # goals over start-up, at a million runs
# CPU over start-up in ms and peak memory in MB at a million runs before sums, indexes and bounded
# lookups were kept (commit 241569c): SQLite, PostgreSQL.
BEFORE = {
    "runs, with an import": ("3,796 ms, 666 MB", "–"),
    "runs": ("1,836 ms, 59 MB", "–"),
    "runs --last 7d --json": ("4,171 ms, 116 MB", "–"),
    "sessions": ("848 ms, 55 MB", "–"),
    "sessions --top cost": ("2,380 ms, 55 MB", "–"),
    "usage day": ("1,328 ms, 55 MB", "–"),
    "usage project": ("2,953 ms, 86 MB", "–"),
    "usage session --top 20": ("12,243 ms, 644 MB", "–"),
    "usage tool": ("278 ms, 54 MB", "–"),
    "compare": ("1,804 ms, 661 MB", "–"),
    "context": ("342 ms, 54 MB", "–"),
    "diff --list": ("2,457 ms, 663 MB", "–"),
    "search, rare word": ("1,757 s (index)", "–"),
    "search, common phrase": ("–", "105 s"),
    "ledger prune (dry run)": ("7,014 ms, 64 MB", "> 229 s"),
}


@dataclass
class Growth:
    """One command on ledgers of growing size."""

    name: str
    words: tuple[str, ...]
    goal_ms: float
    cpu: dict[int, float] = field(default_factory=dict)  # seconds over start-up, by size
    memory: dict[int, float] = field(default_factory=dict)  # MB
    written: dict[int, float] = field(default_factory=dict)  # MB
    failed: bool = False


def commands(ids: tuple[str, str]) -> list[Growth]:
    none = "--no-import"
    return [
        Growth("runs, with an import", ("runs",), LIST_MS),
        Growth("runs", ("runs", none), LIST_MS),
        Growth("runs --project", ("runs", none, "--project", "project-7"), LIST_MS),
        Growth("runs --last 7d --json", ("runs", none, "--last", "7d", "--json"), 2_000),
        Growth("sessions", ("sessions", none), LIST_MS),
        Growth("sessions --top cost", ("sessions", none, "--top", "cost"), SUM_MS),
        Growth("usage day", ("usage", "day", none), SUM_MS),
        Growth("usage project", ("usage", "project", none), SUM_MS),
        Growth("usage session --top 20", ("usage", "session", none, "--top", "20"), SUM_MS),
        Growth("usage tool", ("usage", "tool", none), SUM_MS),
        Growth("budget", ("budget",), LIST_MS),
        Growth("compare", ("compare", *ids), LIST_MS),
        Growth("context", ("context", none), LIST_MS),
        Growth("diff --list", ("diff", "--list"), LIST_MS),
        Growth("search, rare word", ("search", none, RARE), LIST_MS),
        Growth("search, common phrase", ("search", none, '"Fix the"'), 2_000),
        Growth("search --regex", ("search", none, "--regex", "needl[e]$"), 2_000),
        Growth("ledger prune (dry run)", ("ledger", "prune", "--older-than", "300d"), 5_000),
    ]


class Server:
    """The CPU time of a PostgreSQL server: of its processes that have ended, and of itself."""

    def __init__(self, folder: str | None) -> None:
        self._pid = folder and (Path(folder) / "data" / "postmaster.pid").read_text().split()[0]

    def seconds(self) -> float:
        if not self._pid:
            return 0.0
        time.sleep(0.05)  # the process of a connection ends a moment after it
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


# A small process starts the command: its own peak memory would count as the command's.
STARTER = """
import json, os, sys
null = os.open(os.devnull, os.O_WRONLY)
files = [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=files)
_, status, usage = os.wait4(process, 0)
cpu = usage.ru_utime + usage.ru_stime
print(json.dumps([os.waitstatus_to_exitcode(status), cpu, usage.ru_maxrss, usage.ru_oublock]))
"""


def used(command: list[str], env: dict[str, str], folder: Path) -> tuple[int, float, float, float]:
    """Exit code, CPU seconds, peak MB and MB written of one process."""
    starter = [sys.executable, "-I", "-S", "-c", STARTER, *command]
    done = subprocess.run(starter, stdout=subprocess.PIPE, cwd=folder, env=env, check=True)
    code, cpu, peak, blocks = json.loads(done.stdout)
    return code, cpu, megabytes(peak), blocks / 2048


def steno(
    words: tuple[str, ...], ledger: str, home: Path, server: Server
) -> tuple[int, float, float, float]:
    """The same of one steno process, with the CPU time of the server."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "STENO_LEDGER": ledger, "TZ": "UTC"}
    before = server.seconds()
    code, cpu, peak, written = used([sys.executable, "-m", "steno", *words], env, HOME)
    return code, cpu + server.seconds() - before, peak, written


def two_runs(ledger: str) -> tuple[str, str]:
    store = open_ledger(ledger, read_only=True)
    first, second = store.query("SELECT id FROM runs ORDER BY id DESC LIMIT 2")
    store.close()
    return first[0], second[0]


def measure(ledger: str, runs: int, series: dict[str, Growth], rounds: int, server: Server) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        idle = ("ledger", "sql", "SELECT 1")
        bare = min(steno(idle, ledger, home, server)[1] for _ in range(5))
        steno(
            ("search", "--no-import", RARE), ledger, home, server
        )  # an import would have indexed it
        for one in commands(two_runs(ledger)):
            kept = series.setdefault(one.name, one)
            times = []
            for _ in range(rounds):
                code, cpu, peak, written = steno(one.words, ledger, home, server)
                times.append(cpu)
                kept.failed |= code != 0
                kept.memory[runs] = max(peak, kept.memory.get(runs, 0))
                kept.written[runs] = max(written, kept.written.get(runs, 0))
            kept.cpu[runs] = max(0.0, min(times) - bare)
            log(f"{one.name}: {runs:,} runs: {kept.cpu[runs] * 1000:,.0f} ms")


def section(series: dict[str, Growth], sizes: list[int], kind: str) -> str:
    place = 0 if kind == "SQLite" else 1
    sizes_head = [f"{size:,} runs" for size in sizes]
    head = [kind, "before", *sizes_head, "goal", "peak memory", "written"]
    rows = [
        [
            one.name,
            BEFORE.get(one.name, ("–", "–"))[place],
            *(number(one.cpu.get(size, 0) * 1000, 0, " ms") for size in sizes),
            f"{one.goal_ms:,.0f} ms",
            number(one.memory[sizes[-1]], 0, " MB"),
            number(one.written[sizes[-1]], 0, " MB"),
        ]
        for one in series.values()
    ]
    return table(head, rows)


def goals(series: dict[str, Growth], sizes: list[int], kind: str) -> list[Goal]:
    return [
        Goal(f"{kind}: {one.name}", one.cpu[sizes[-1]] * 1000, one.goal_ms, " ms")
        for one in series.values()
    ]


HEAD = (
    "## Growth with the ledger\n\n"
    "{}, minima of {} rounds, a fresh process for each. CPU over start-up (of `steno ledger sql "
    "'SELECT 1'`), with that of the server; peak memory and bytes written by the client at the "
    "largest size. Before: commit 241569c at a million runs, one round on SQLite, CPU over that of "
    "`steno version` (some 30 ms less is subtracted than now); figures in seconds are wall times "
    "of an earlier measurement of another ledger and were not repeated."
)

# -- transcripts ---------------------------------------------------------------------------------


@dataclass
class Step:
    """One command of a tool over the same transcripts."""

    name: str
    command: list[str]
    cpu: float = 0.0
    memory: float = 0.0
    written: float = 0.0
    failed: bool = False

    def run(self, home: peers.Home, ledger: Path) -> None:
        env = {**home.environment(), "STENO_LEDGER": str(ledger)}
        code, self.cpu, self.memory, self.written = used(self.command, env, home.path)
        self.failed = code != 0


def steps() -> list[Step]:
    own = [sys.executable, "-m", "steno"]
    programs = {peer.name: peer.program for peer in peers.peers() if peer.is_installed()}
    found = [
        Step("steno ledger import", [*own, "ledger", "import"]),
        Step("steno ledger import, nothing new", [*own, "ledger", "import"]),
        Step("steno usage, nothing new", [*own, "usage"]),
        Step("steno usage --no-import", [*own, "usage", "--no-import"]),
    ]
    if program := programs.get("ccusage"):
        found.append(Step("ccusage daily", [str(program), "daily", "--json", "--offline"]))
    if program := programs.get("agentsview"):
        usage = ["usage", "daily", "--all", "--json", "--offline"]
        found += [
            Step("agentsview sync", [str(program), "sync"]),
            Step("agentsview usage, nothing new", [str(program), *usage]),
            Step("agentsview usage --no-sync", [str(program), *usage, "--no-sync"]),
        ]
    return found


def measure_import(scratch: Path, files: int, size: float) -> str:
    home = peers.Home(scratch / "home")
    home.projects().mkdir(parents=True)
    transcripts.generate(home.projects(), size, files)
    ledger = scratch / "import.db"
    done = steps()
    for step in done:
        step.run(home, ledger)
        log(f"{step.name}: {step.cpu:.2f} s, {step.memory:.0f} MB, {step.written:.0f} MB written")
    rows = [
        [
            step.name,
            number(step.cpu, 2, " s"),
            number(step.memory, 0, " MB"),
            number(step.written, 0, " MB"),
            "failed" if step.failed else "",
        ]
        for step in done
    ]
    size_text = f"{files:,} transcripts, {size:,.0f} MB; ledger {ledger.stat().st_size >> 20} MB."
    head = ["command", "CPU", "peak memory", "written", ""]
    return f"{size_text}\n\n{table(head, rows)}"


def measure_ledgers(places: dict[int, str], rounds: int, server: Server) -> dict[str, Growth]:
    series: dict[str, Growth] = {}
    for size, place in places.items():
        if "://" in place or not Path(place).exists():
            generate(place, size)
        measure(place, size, series, rounds, server)
    return series


def main() -> int:
    options = parser((__doc__ or "").partition("\n")[0], rounds=3)
    options.add_argument("--generate", metavar="LEDGER", help="only write a ledger")
    options.add_argument("--runs", type=int, default=SIZES[-1], help="runs of --generate")
    options.add_argument("--sizes", default=",".join(map(str, SIZES)), help="runs, with commas")
    options.add_argument("--folder", help="keep and reuse the ledgers in this folder")
    options.add_argument("--files", type=int, default=50_000, help="transcripts; 0: none")
    options.add_argument("--megabytes", type=float, default=500, help="size of the transcripts")
    options.add_argument("--no-postgres", action="store_true", help="only SQLite")
    given = options.parse_args()
    if given.generate:
        generate(given.generate, given.runs)
        return 0
    sizes = [int(size) for size in given.sizes.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(given.folder or scratch)
        folder.mkdir(exist_ok=True)
        places = {size: str(folder / f"{size}.db") for size in sizes}
        found = {"SQLite": measure_ledgers(places, given.rounds, Server(None))}
        if not given.no_postgres and postgres.missing() is None:
            with postgres.server() as place:
                places = {size: postgres.fresh(place, f"runs{size}") for size in sizes}
                found["PostgreSQL"] = measure_ledgers(places, given.rounds, Server(place))
        parts = [section(series, sizes, kind) for kind, series in found.items()]
        if given.files:
            parts.append(measure_import(Path(scratch), given.files, given.megabytes))
    reached = [goal for kind, series in found.items() for goal in goals(series, sizes, kind)]
    failed = [
        f"{kind}: {one.name} failed"
        for kind, series in found.items()
        for one in series.values()
        if one.failed
    ]
    verdicts = table(["goal", "target", "measured", ""], [goal.cells() for goal in reached])
    text = "\n\n".join([HEAD.format(date.today(), given.rounds), *parts, verdicts])
    return finish(given, text, "growth", reached, failed)


if __name__ == "__main__":
    raise SystemExit(main())
