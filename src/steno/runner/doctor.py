"""Whether this machine will do: one check after the other, each with what was found and, where it is wrong, the remedy.

Nothing is written, made or migrated, and no agent is started for more than its version.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path

from msgspec import Struct

from .. import pricing as prices
from ..agents import AGENTS, unknown_agent_message
from ..config import Settings, load_settings
from ..errors import LedgerError, StenoError
from ..ledger.queries.runs import recent_unknown_events
from ..ledger.store import (
    Store,
    default_ledger_path,
    ledger_exists,
    ledger_url,
    open_ledger,
    schema_version,
)
from .installed import AgentInstallation, inspect_agent

MIN_FREE_BYTES = (
    1 << 30
)  # bytes: a week of tapes and an import of many transcripts need some hundred megabytes
RECENT_RUNS = (
    50  # the last runs whose unknown events are counted: enough to see a new version of an agent
)
MAX_PRICE_AGE_DAYS = 180  # days: prices change a few times in a year


class Finding(Struct, frozen=True):
    """What a check found. `level` is ok, note (worth knowing) or problem; a remedy comes with all but ok."""

    check: str
    level: str
    what: str
    remedy: str | None = None


class CheckContext(Struct):
    """What the checks look at."""

    environment: Mapping[str, str]
    cwd: Path
    today: date
    ledger: str | None = None
    settings: Settings | None = None


Check = Callable[[CheckContext], Iterator[Finding]]


def run_checks(patient: CheckContext) -> list[Finding]:
    """All findings, in the order of the checks."""
    return [finding for check in CHECKS for finding in check(patient)]


# -- settings and agents -------------------------------------------------------------------------------------------


def check_settings(patient: CheckContext) -> Iterator[Finding]:
    """What is set can be read; the other checks want to know it too."""
    try:
        patient.settings = load_settings(
            {}, patient.environment, patient.cwd, check_agent=unknown_agent_message
        )
    except StenoError as problem:
        yield Finding(
            "settings", "problem", str(problem), "mend that file, or take the setting out of it"
        )
        return
    yield Finding("settings", "ok", "readable")


def check_agents(patient: CheckContext) -> Iterator[Finding]:
    """The agent that is used when none is named must be there; the others may."""
    chosen = patient.settings["agent"] if patient.settings is not None else "claude"
    program = patient.settings["program"] if patient.settings is not None else None
    for name, agent in AGENTS.items():
        found = inspect_agent(agent, patient.environment, program if name == chosen else None)
        yield from _check_program(found, name == chosen)
        yield from _check_transcript_folders(found)
    for name, what in AGENTS.problems.items():
        yield Finding(
            name.partition(".")[0], "problem", what, "mend or remove the package that it comes from"
        )


def _check_program(found: AgentInstallation, chosen: bool) -> Iterator[Finding]:
    if found.path is None:
        level = "problem" if chosen else "note"
        yield Finding(found.agent, level, "not installed", found.install)
        return
    where = f"{found.version or 'of an unknown version'} at {found.path}"
    if found.known in ("tested", "between"):
        yield Finding(found.agent, "ok", where)
    else:
        span = (
            f"tested: {found.tested[0]} to {found.tested[-1]}"
            if found.tested
            else "no version was tested"
        )
        remedy = "its runs may hold events that this version does not know: look at `lines.unknown`, and upgrade steno"
        yield Finding(found.agent, "note", f"{where}; {span}", remedy)
    if found.sign_in:
        yield Finding(found.agent, "ok", f"signed in by {', '.join(found.sign_in)}")
    else:
        yield Finding(
            found.agent,
            "note",
            "no key and no sign-in was found",
            f"run {found.agent} once and sign in, or set its key",
        )


def _check_transcript_folders(found: AgentInstallation) -> Iterator[Finding]:
    for folder in found.folders:
        if folder.exists and not folder.readable:
            remedy = f"let this user read it: chmod u+rx {folder.path}"
            yield Finding(
                found.agent, "problem", f"transcripts cannot be read: {folder.path}", remedy
            )
        elif folder.exists:
            yield Finding(found.agent, "ok", f"transcripts in {folder.path}")


# -- steno itself --------------------------------------------------------------------------------------------------


def check_ledger(patient: CheckContext) -> Iterator[Finding]:
    """The ledger can be opened by this version; what its last runs did not understand."""
    where = ledger_url(patient.ledger, patient.environment)
    if not ledger_exists(where):
        yield Finding(
            "ledger",
            "note",
            f"there is none yet at {where}",
            "steno import makes one, and steno run fills it",
        )
        return
    try:
        store = open_ledger(where, read_only=True)
    except LedgerError as problem:
        yield Finding(
            "ledger",
            "problem",
            str(problem),
            "name another with --ledger, or make it anew: steno rebuild",
        )
        return
    try:
        size = f", {Path(where).stat().st_size / 1e6:,.1f} MB" if "://" not in where else ""
        yield Finding("ledger", "ok", f"{store.name}: tables {schema_version(store)}{size}")
        yield from _check_unknown_events(store)
    except LedgerError as problem:
        yield Finding("ledger", "problem", str(problem), "make it anew: steno rebuild")
    finally:
        store.close()


def _check_unknown_events(store: Store) -> Iterator[Finding]:
    rows = recent_unknown_events(store, RECENT_RUNS)
    odd: dict[str, list[tuple[int, str]]] = {}
    for agent, version, count, run in rows:
        if count:
            odd.setdefault(f"{agent or 'unknown'} {version or ''}".strip(), []).append((count, run))
    if not odd:
        yield Finding("events", "ok", f"all kinds known in the last {len(rows)} runs")
    for agent, found in odd.items():
        count, runs = sum(one for one, _ in found), len(found)
        what = f"{agent}: {count:,} events of kinds this version does not know, in {runs} of the last {len(rows)} runs"
        yield Finding(
            "events",
            "note",
            what,
            f"look at them: steno show {found[0][1]} --events; a newer steno may know them",
        )


def check_prices(patient: CheckContext) -> Iterator[Finding]:
    """Costs that an agent does not report are computed from the table: it must not be old."""
    try:
        own = len(prices.user_prices())
    except StenoError as problem:
        yield Finding("prices", "problem", str(problem), "mend that file")
        own = 0
    version, newest = prices.price_table_info(patient.today)
    mine = f", and {own} of your own" if own else ""
    age = (patient.today - newest).days if newest is not None else None
    what = f"genai-prices {version}{mine}" + (
        "" if newest is None else f"; its latest change is of {newest}"
    )
    if age is not None and age > MAX_PRICE_AGE_DAYS:
        yield Finding(
            "prices", "note", f"{what}, {age} days ago", "pip install --upgrade genai-prices"
        )
    else:
        yield Finding("prices", "ok", what)


def check_disk(patient: CheckContext) -> Iterator[Finding]:
    """Tapes and the ledger need room."""
    folder = ours = default_ledger_path().parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    what = f"{free / 1e9:,.1f} GB free at {folder}"
    if not folder.is_dir():
        what = f"{ours}: cannot be made, as {folder} is not a folder"
        yield Finding("disk", "problem", what, "set XDG_DATA_HOME to a folder of yours")
    elif free < MIN_FREE_BYTES:
        yield Finding("disk", "problem", what, "make room, or take old details out: steno prune")
    elif not os.access(folder, os.W_OK):
        yield Finding(
            "disk",
            "problem",
            f"{folder}: may not be written",
            "set XDG_DATA_HOME to a folder of yours",
        )
    else:
        yield Finding("disk", "ok", what)


CHECKS: tuple[Check, ...] = (check_settings, check_agents, check_ledger, check_prices, check_disk)
