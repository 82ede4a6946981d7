"""Kill `steno ledger rebuild` at random moments and compare the ledger with what it was before.

`python -m tests.rebuild_kills [COUNT]` does it on SQLite and PostgreSQL and prints a table.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from steno.ledger.importer import import_sources
from steno.ledger.queries.budget import list_budgets, set_budget
from steno.ledger.queries.filters import TimeZone
from steno.ledger.queries.runs import add_note
from steno.ledger.run_record import upsert_run
from steno.ledger.store import Store, open_ledger
from steno.ledger.upsert import Pricer
from tests import postgres
from tests.support.transcript_writer import START, tree
from tests.writer import AT, a_run

NOW = int(START.timestamp() * 1000)
UNRECORDED_RUNS = 60
IGNORED_COLUMNS = {"seq", "imported_at"}
COMMAND = (sys.executable, "-m", "steno", "ledger", "rebuild", "--quiet", "--ledger")


class Kill(NamedTuple):
    """What was found after one kill."""

    after: float  # seconds after the start
    exit_code: int  # -9, or 0 if the rebuild had finished
    is_same: bool  # the ledger has the rows that it had before
    budget_checks: int  # while the rebuild ran
    wrong_budgets: int
    leftovers: list[str]  # after the next command


def build_ledger(url: str, folder: Path, sessions: int = 60) -> None:
    """Transcripts, runs that have no recording, a note and a budget."""
    with closing(open_ledger(url)) as store:
        import_sources(store, [str(tree(folder, sessions=sessions, answers=30))])
        for place in range(UNRECORDED_RUNS):
            report, batch = a_run(place)
            with store.transaction():
                upsert_run(store, report, batch, AT + place * 1000, Pricer())
        add_note(store, "runs", "run00000007", NOW, "approved by Ada")
        set_budget(store, "month", "", 20_000_000_000, NOW)


def contents(store: Store) -> dict[str, list[Any]]:
    """Every row of every table, without the text index and what depends on the time of import."""
    if store.kind == "sqlite":
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    else:
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    tables = [name for (name,) in store.query(sql)]
    found = {}
    for table in tables:
        if table.startswith("texts_words"):
            continue
        names = ", ".join(
            name for name in column_names(store, table) if name not in IGNORED_COLUMNS
        )
        found[table] = sorted(map(repr, store.query(f"SELECT {names} FROM {table}")))
    return found


def column_names(store: Store, table: str) -> list[str]:
    if store.kind == "sqlite":
        return [row[1] for row in store.query(f"PRAGMA table_info({table})")]
    sql = (
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND table_name = ? ORDER BY ordinal_position"
    )
    return [name for (name,) in store.query(sql, (table,))]


def leftovers(store: Store) -> list[str]:
    """Files or schemas of an unfinished rebuild; backups are not."""
    if store.kind == "sqlite":
        path = Path(store.name)
        own = {path.name, f"{path.name}-wal", f"{path.name}-shm"}
        names = sorted(file.name for file in path.parent.glob(f"{path.name}*"))
        return [name for name in names if name not in own and ".before-0" not in name]
    schemas = store.query(
        "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg%' "
        "AND nspname NOT IN ('public', 'information_schema') AND nspname NOT LIKE 'before_0%'"
    )
    return [name for (name,) in schemas]


def kill_rebuilds(url: str, count: int, seed: int) -> Iterator[Kill]:
    """Start the rebuild `count` times and kill each at a random moment."""
    chosen = random.Random(seed)
    with closing(open_ledger(url)) as store:
        before = contents(store)
        budgets = list_budgets(store, TimeZone("UTC"), NOW)
        assert budgets[0].spent_nano
        began = time.monotonic()
        subprocess.run([*COMMAND, url], check=True)
        takes = time.monotonic() - began
        for _ in range(count):
            after = chosen.uniform(0.1, takes)
            began = time.monotonic()
            process = subprocess.Popen([*COMMAND, url], stderr=subprocess.DEVNULL)
            checks = wrong = 0
            while time.monotonic() < began + after and process.poll() is None:
                checks += 1
                wrong += list_budgets(store, TimeZone("UTC"), NOW) != budgets
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            code = process.wait()
            if code == 0:  # the machine is faster now
                takes = time.monotonic() - began
            is_same = contents(store) == before
            yield Kill(after, code, is_same, checks, wrong, _after_next_command(url))


def _after_next_command(url: str) -> list[str]:
    """What is left; a server may take a moment to notice that its client is gone."""
    for _ in range(50):
        with closing(open_ledger(url)) as store:
            left = leftovers(store)
        if not left:
            break
        time.sleep(0.1)
    return left


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _print_kills(kind: str, url: str, folder: Path, count: int) -> bool:
    build_ledger(url, folder)
    _print(f"{kind}: {count} kills")
    _print(f"{'#':>3} {'after':>8} {'exit':>5} {'rows':>6} {'budgets':>14}  left over")
    kills = []
    for number, kill in enumerate(kill_rebuilds(url, count, seed=count), 1):
        kills.append(kill)
        rows = "same" if kill.is_same else "LOST"
        budgets = f"{kill.budget_checks - kill.wrong_budgets}/{kill.budget_checks} right"
        _print(
            f"{number:>3} {kill.after:>6.2f} s {kill.exit_code:>5} {rows:>6} {budgets:>14}  "
            f"{', '.join(kill.leftovers) or '-'}"
        )
    good = [kill for kill in kills if kill.is_same and not kill.wrong_budgets | len(kill.leftovers)]
    killed = sum(kill.exit_code != 0 for kill in kills)
    _print(f"{kind}: {len(good)} of {len(kills)} without loss; {killed} killed before the end\n")
    return len(good) == len(kills)


def main(count: int) -> int:
    """Run the kills on both databases; 1 if one of them lost something."""
    os.environ["STENO_IMPORT_GROUP"] = "20000"  # many small transactions
    with tempfile.TemporaryDirectory(prefix="steno-kills-") as name:
        folder = Path(name)
        is_good = _print_kills("SQLite", str(folder / "ledger.db"), folder / "a", count)
        with postgres.server() as place:
            is_good &= _print_kills("PostgreSQL", postgres.fresh(place, "k"), folder / "b", count)
    return not is_good


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 50))
