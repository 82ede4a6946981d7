"""Checks of this machine's setup, each with its finding and a fix.

Nothing is written, created or migrated; agents are started only for their version.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path

from msgspec import Struct

from .. import pricing
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

MIN_FREE_BYTES = 1 << 30  # a week of recordings and a large import need some hundred megabytes
RECENT_RUNS = 50  # runs whose unknown events are counted: enough to notice a new agent version
MAX_PRICE_AGE_DAYS = 180  # prices change a few times a year


class Finding(Struct, frozen=True):
    """The finding of a check. `level` is ok, note or problem; all but ok come with a remedy."""

    check: str
    level: str
    what: str
    remedy: str | None = None


class CheckContext(Struct):
    """Input of the checks. `settings` is set by the first one."""

    environment: Mapping[str, str]
    cwd: Path
    today: date
    ledger: str | None = None
    settings: Settings | None = None


Check = Callable[[CheckContext], Iterator[Finding]]


def run_checks(context: CheckContext) -> list[Finding]:
    """All findings, in the order of the checks."""
    return [finding for check in CHECKS for finding in check(context)]


# -- settings and agents ---------------------------------------------------------------------------


def check_settings(context: CheckContext) -> Iterator[Finding]:
    """Settings files are valid."""
    try:
        context.settings = load_settings(
            {}, context.environment, context.cwd, check_agent=unknown_agent_message
        )
    except StenoError as error:
        yield Finding("settings", "problem", str(error), "fix that file, or remove the setting")
        return
    yield Finding("settings", "ok", "valid")


def check_agents(context: CheckContext) -> Iterator[Finding]:
    """The default agent is installed; the others are optional."""
    default = context.settings["agent"] if context.settings is not None else "claude"
    program = context.settings["program"] if context.settings is not None else None
    for name, agent in AGENTS.items():
        is_default = name == default
        installation = inspect_agent(agent, context.environment, program if is_default else None)
        yield from _check_program(installation, is_default)
        yield from _check_transcript_folders(installation)
    for name, problem in AGENTS.problems.items():
        check = name.partition(".")[0]
        yield Finding(check, "problem", problem, "fix or uninstall the package that provides it")


def _check_program(installation: AgentInstallation, is_default: bool) -> Iterator[Finding]:
    agent = installation.agent
    if installation.path is None:
        level = "problem" if is_default else "note"
        yield Finding(agent, level, "not installed", installation.install)
        return
    program = f"{installation.version or 'unknown version'} at {installation.path}"
    if installation.known in ("tested", "between"):
        yield Finding(agent, "ok", program)
    else:
        tested = installation.tested
        versions = f"tested: {tested[0]} to {tested[-1]}" if tested else "no tested version"
        remedy = "events of unknown kinds are possible: check `lines.unknown`, upgrade steno"
        yield Finding(agent, "note", f"{program}; {versions}", remedy)
    if installation.sign_in:
        yield Finding(agent, "ok", f"credentials: {', '.join(installation.sign_in)}")
    else:
        remedy = f"run {agent} once and sign in, or set its API key"
        yield Finding(agent, "note", "no credentials found", remedy)


def _check_transcript_folders(installation: AgentInstallation) -> Iterator[Finding]:
    for folder in installation.folders:
        if folder.exists and not folder.readable:
            what = f"cannot read transcripts: {folder.path}"
            remedy = f"make it readable: chmod u+rx {folder.path}"
            yield Finding(installation.agent, "problem", what, remedy)
        elif folder.exists:
            yield Finding(installation.agent, "ok", f"transcripts in {folder.path}")


# -- steno itself ----------------------------------------------------------------------------------


def check_ledger(context: CheckContext) -> Iterator[Finding]:
    """The ledger can be opened by this version, and its last runs have no unknown events."""
    location = ledger_url(context.ledger, context.environment)
    if not ledger_exists(location):
        what = f"not created yet: {location}"
        yield Finding("ledger", "note", what, "create it with steno ledger import or steno run")
        return
    try:
        store = open_ledger(location, read_only=True)
    except LedgerError as error:
        remedy = "use another one with --ledger, or recreate it: steno ledger rebuild"
        yield Finding("ledger", "problem", str(error), remedy)
        return
    try:
        is_file = "://" not in location
        size = f", {Path(location).stat().st_size / 1e6:,.1f} MB" if is_file else ""
        what = f"{store.name}: schema version {schema_version(store)}{size}"
        yield Finding("ledger", "ok", what)
        yield from _check_unknown_events(store)
    except LedgerError as error:
        yield Finding("ledger", "problem", str(error), "recreate it: steno ledger rebuild")
    finally:
        store.close()


def _check_unknown_events(store: Store) -> Iterator[Finding]:
    rows = recent_unknown_events(store, RECENT_RUNS)
    counts_by_agent: dict[str, list[int]] = {}
    latest_run: dict[str, str] = {}
    for agent, version, count, run in rows:
        if count:
            name = f"{agent or 'unknown'} {version or ''}".strip()
            counts_by_agent.setdefault(name, []).append(count)
            latest_run.setdefault(name, run)
    if not counts_by_agent:
        text = f"no unknown events in the last {len(rows)} runs" if rows else "no runs yet"
        yield Finding("events", "ok", text)
    for name, counts in counts_by_agent.items():
        what = (
            f"{name}: {sum(counts):,} events of unknown kinds "
            f"in {len(counts)} of the last {len(rows)} runs"
        )
        remedy = f"show them: steno show {latest_run[name]} --events; try a newer steno"
        yield Finding("events", "note", what, remedy)


def check_prices(context: CheckContext) -> Iterator[Finding]:
    """The price table is recent."""
    user_price_count = 0
    try:
        user_price_count = len(pricing.user_prices())
    except StenoError as error:
        yield Finding("prices", "problem", str(error), "fix that file")
    version, newest = pricing.price_table_info(context.today)
    own = f", {user_price_count} user-defined" if user_price_count else ""
    what = f"genai-prices {version}{own}"
    if newest is not None:
        what += f"; last change {newest}"
    age = (context.today - newest).days if newest is not None else 0
    if age > MAX_PRICE_AGE_DAYS:
        remedy = "pip install --upgrade genai-prices"
        yield Finding("prices", "note", f"{what}, {age} days ago", remedy)
    else:
        yield Finding("prices", "ok", what)


def check_disk(context: CheckContext) -> Iterator[Finding]:
    """The data folder is writable and has free space."""
    data_folder = default_ledger_path().parent
    folder = data_folder
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    what = f"{free / 1e9:,.1f} GB free at {folder}"
    other_folder = "set XDG_DATA_HOME to a writable folder"
    if not folder.is_dir():
        what = f"{data_folder}: cannot be created: {folder} is not a folder"
        yield Finding("disk", "problem", what, other_folder)
    elif free < MIN_FREE_BYTES:
        yield Finding(
            "disk", "problem", what, "free space, or delete old details: steno ledger prune"
        )
    elif not os.access(folder, os.W_OK):
        yield Finding("disk", "problem", f"{folder}: not writable", other_folder)
    else:
        yield Finding("disk", "ok", what)


CHECKS: tuple[Check, ...] = (check_settings, check_agents, check_ledger, check_prices, check_disk)
