"""Who takes part: the runs that are active, with their health, and who is asking.

Runs of this machine are known from the run registry, and asked for their state. Runs of other
machines are known from the ledger; those whose agent uses `steno mcp` store their state there.
"""

import os
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ..analysis.context import hp_and_status
from ..config.files import data_folder
from ..errors import StenoError
from ..ledger.protocol import now_ms
from ..ledger.queries import team as queries
from ..ledger.queries.runs import ambiguous_prefix_error, find_run
from ..ledger.rows import utc_iso
from ..ledger.store import Store
from ..process.process_tree import ancestor_pids, list_processes
from ..process.run_tag import RUN_TAG_VARIABLE, parse_run_tags
from ..runner.run_registry import RunInfo, active_runs, get_active_run, host_id
from ..runner.run_status import active_run_states
from ..units import DAY_MS, MINUTE_MS
from ..workspace.origin import host_name, user_name

PRESENCE_MS = MINUTE_MS  # what a run said is believed for this time
STALLED_SECONDS = 120.0  # without output while the model thinks
STALLED_TOOL_SECONDS = 900.0  # without output while a tool runs
MAX_RUN_AGE_MS = 7 * DAY_MS  # a run without a verdict that started earlier was lost
IDLE_STATES = ("waiting", "asking", "closing", "ended")


class Member(Struct, frozen=True, kw_only=True):
    """One who sends messages and claims files: a run's task, or a person (`@user`)."""

    id: str
    run: str | None = None
    session: str | None = None
    name: str | None = None
    since: int = 0  # messages to all are read from then on

    @property
    def addresses(self) -> list[str]:
        """What a message to this member may be addressed to."""
        return sorted({word for word in (self.id, self.run, self.session, self.name) if word})


class RosterEntry(Struct, frozen=True, kw_only=True):
    """An active run. Unknown figures are None."""

    run_id: str
    task_id: str | None
    session_id: str | None
    name: str | None
    agent: str | None
    host: str | None
    project: str | None
    started_at: int | None
    health: str  # active, idle, stalled or unknown
    state: str
    tool: str | None = None
    silence_s: float | None = None
    context_used: int | None = None
    context_limit: int | None = None
    hp: float | None = None
    hp_status: str | None = None

    def as_json(self) -> dict[str, Any]:
        values: dict[str, Any] = msgspec.to_builtins(self)
        return {**values, "started_at": utc_iso(self.started_at)}


# -- identity --------------------------------------------------------------------------------------


def own_run(environ: Mapping[str, str] = os.environ) -> str | None:
    """The run that this process belongs to: by its environment, else by its ancestors."""
    tags = parse_run_tags(environ.get(RUN_TAG_VARIABLE, ""))
    if tags:
        return tags[-1].run_id  # the innermost one
    infos = active_runs()
    ancestors = ancestor_pids(list_processes()) if infos else set()
    return next((info.run for info in reversed(infos) if info.agent_pid in ancestors), None)


def find_member(store: Store, run: str | None = None) -> Member:
    """The run with this ID, else the one this process belongs to, else the person."""
    run = run or own_run()
    if run is None:
        return person()
    info = get_active_run(run)
    if info is not None:
        since = round(info.started * 1000)
        return Member(id=info.task, run=run, session=info.session, name=info.name, since=since)
    stored = find_run(store, run)
    if stored is None:
        raise StenoError(f"{run}: no run with this ID is active or in the ledger")
    return Member(
        id=stored.task or run,
        run=run,
        session=stored.session_id,
        name=stored.name,
        since=stored.started_at or 0,
    )


def person() -> Member:
    """The user of this process. Messages to all are read for as long as they are kept."""
    return Member(id=f"@{user_name(os.environ) or 'user'}")


def find_recipient(store: Store, text: str) -> str:
    """The address of a run by its name, or by the ID (prefix) of run, task or session."""
    if text.startswith("@") and len(text) > 1:
        return text
    entries = roster(store, with_state=False)
    if any(entry.name == text for entry in entries):
        return text
    for field in ("run_id", "task_id", "session_id"):
        matches = [
            entry for entry in entries if text and str(getattr(entry, field)).startswith(text)
        ]
        found = {entry.task_id or entry.run_id for entry in matches}
        if len(found) > 1:
            raise ambiguous_prefix_error(text, "active runs", [entry.run_id for entry in matches])
        if found:
            return found.pop()
    raise StenoError(f"{text}: no active run with this name or ID; see: steno team roster")


def registry_id() -> str:
    """The registry of active runs: users and containers of a machine have their own."""
    return f"{host_id()} {data_folder()}"


def ended_owners(store: Store, owners: Collection[tuple[str, str | None, str]]) -> set[str]:
    """Of these (owner, run, registry), the owners whose task has ended. A person's never has."""
    tasks = {owner: registry for owner, run, registry in owners if run is not None}
    if not tasks:
        return set()
    here = registry_id()
    active = {info.task for info in active_runs()}
    gone = {owner for owner, registry in tasks.items() if registry == here} - active
    return gone | queries.ended_tasks(store, tasks.keys() - active)


# -- roster ----------------------------------------------------------------------------------------


def roster(store: Store, with_state: bool = True) -> list[RosterEntry]:
    """The active runs of all machines, oldest first; `with_state`: ask those of this one."""
    now = now_ms()
    infos = {info.run: info for info in active_runs()}
    states = active_run_states() if with_state else [{"run_id": run} for run in infos]
    entries = [
        _entry(_local_run(infos[state["run_id"]]), state)
        for state in states
        if state["run_id"] in infos
    ]
    presence = queries.list_presence(store, now - PRESENCE_MS)
    own = (host_name(), user_name(os.environ))
    for run in queries.list_active_runs(store, now - MAX_RUN_AGE_MS):
        # The registry knows better which of its own runs are active.
        is_own = (run.host, run.user_name) == own
        if run.id not in infos and (not is_own or run.id in presence):
            entries.append(_entry(run, _stored_state(presence.get(run.id), now)))
    return sorted(entries, key=lambda entry: (entry.started_at or 0, entry.run_id))


def _local_run(info: RunInfo) -> queries.ActiveRun:
    return queries.ActiveRun(
        id=info.run,
        task=info.task,
        session=info.session,
        agent=info.agent,
        name=info.name,
        host=host_name(),
        user_name=user_name(os.environ),
        project=info.cwd,
        started_at=round(info.started * 1000),
    )


def _stored_state(presence: queries.Presence | None, now: int) -> dict[str, Any]:
    """What a run said of itself, in the form of `active_run_states`."""
    if presence is None:
        return {}
    silence_ms = presence.silence_ms
    return {
        "state": presence.state,
        "tool": presence.tool,
        "silence_s": None if silence_ms is None else (silence_ms + now - presence.seen_at) / 1000,
        "context": {"used": presence.context_used, "limit": presence.context_limit},
    }


def _entry(run: queries.ActiveRun, state: Mapping[str, Any]) -> RosterEntry:
    context = state.get("context") or {}
    used = context.get("used")
    limit = context.get("limit")
    hp, hp_status = hp_and_status(used / limit) if used is not None and limit else (None, None)
    word = str(state.get("state", "unknown"))
    return RosterEntry(
        run_id=run.id,
        task_id=run.task,
        session_id=run.session,
        name=run.name,
        agent=run.agent,
        host=run.host,
        project=run.project,
        started_at=run.started_at,
        health=health(word, state.get("tool"), state.get("silence_s")),
        state=word,
        tool=state.get("tool"),
        silence_s=state.get("silence_s"),
        context_used=used,
        context_limit=limit,
        hp=hp,
        hp_status=hp_status,
    )


def health(state: str, tool: str | None, silence_s: float | None) -> str:
    """active; idle (between attempts, done, or waiting for a person); stalled; unknown."""
    if state == "unknown":
        return "unknown"
    if state in IDLE_STATES:
        return "idle"
    limit = STALLED_TOOL_SECONDS if tool is not None else STALLED_SECONDS
    is_stalled = state == "no answer" or (silence_s is not None and silence_s > limit)
    return "stalled" if is_stalled else "active"


def put_presence(store: Store, state: Mapping[str, Any]) -> None:
    """Store the state of a run of this machine for the others."""
    silence = state.get("silence_s")
    context = state.get("context") or {}
    queries.put_presence(
        store,
        queries.Presence(
            run=state["run_id"],
            state=state["state"],
            tool=state.get("tool"),
            silence_ms=None if silence is None else round(silence * 1000),
            context_used=context.get("used"),
            context_limit=context.get("limit"),
            seen_at=now_ms(),
        ),
    )
