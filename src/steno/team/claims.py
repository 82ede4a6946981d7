"""Claims on files of a repository: one holder per path, the others wait in line.

A claim on a folder covers the files below it. Claims are advisory: nothing stops a program from
writing a file that another one has claimed. They end when they are released, when the task of their
owner has ended, or when they expire.
"""

import os
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ..errors import StenoError
from ..ledger.protocol import now_ms
from ..ledger.queries import team as queries
from ..ledger.queries.team import Claim
from ..ledger.rows import utc_iso
from ..ledger.store import Store
from ..workspace.origin import find_repository_root, host_name, main_folder, read_repository
from ..workspace.safe_path import RootFolder
from .roster import Member, ended_owners, registry_id

DEFAULT_TTL_SECONDS = 1800.0
MAX_TTL_SECONDS = 86_400.0
POLL_SECONDS = 0.25
MAX_CLAIMS = 200  # of one owner in a repository


class ClaimedPath(Struct, frozen=True):
    """A path as it is claimed: the same for all worktrees and clones of a repository."""

    repository: str
    path: str


class ClaimState(Struct, frozen=True):
    """A claim, and the number of claims before it; 0: it is held."""

    claim: Claim
    position: int
    holder: str | None = None  # who has to release it first

    def as_json(self) -> dict[str, Any]:
        return {
            "repository": self.claim.repository,
            "path": self.claim.path or ".",
            "owner": self.claim.owner,
            "run_id": self.claim.run,
            "held": self.position == 0,
            "position": self.position,
            "holder": self.holder,
            "asked_at": utc_iso(self.claim.asked_at),
            "expires_at": utc_iso(self.claim.expires_at),
        }


def normalise(path: str, cwd: str) -> ClaimedPath:
    """A path relative to the root of its repository; outside of one, to the folder `cwd`."""
    if not path or "\0" in path:  # an unset variable of a script; what no file system has
        raise StenoError(f"{path!r}: not a file name")
    root = find_repository_root(os.path.realpath(cwd))
    folder = RootFolder(str(root) if root is not None else cwd)
    absolute = os.path.join(cwd, path)  # noqa: PTH118  # pathlib drops a trailing "."
    is_root = os.path.realpath(absolute) == folder.real_path
    name = "" if is_root else folder.relative_name(absolute)
    if name is None:
        raise StenoError(f"{path}: outside of {folder.given_path}; only files below it are claimed")
    remote = read_repository(str(root)).repository if root is not None else None
    if remote is None:
        remote = f"{host_name()}:{main_folder(folder.real_path)}"
    return ClaimedPath(remote, name)


def claim(store: Store, owner: Member, place: ClaimedPath, ttl_seconds: float) -> ClaimState:
    """Claim a path, renew a claim, or ask again for the place in line."""
    ended = _ended(store, place.repository)
    ttl = round(min(ttl_seconds, MAX_TTL_SECONDS) * 1000)
    now = now_ms()
    with store.transaction():
        claims = _update_line(store, place.repository, ended - {owner.id}, now)
        own = _find(claims, owner.id, place.path)
        if own is not None:
            queries.renew_claim(store, own.id, ttl, now + ttl)
        else:
            if sum(one.owner == owner.id for one in claims) >= MAX_CLAIMS:
                raise StenoError(f"too many claims: {owner.id} has {MAX_CLAIMS}; release some")
            queries.insert_claim(
                store,
                repository=place.repository,
                path=place.path,
                owner=owner.id,
                run=owner.run,
                registry=registry_id(),
                asked_at=now,
                ttl_ms=ttl,
                expires_at=now + ttl,
            )
        claims = _update_line(store, place.repository, set(), now)
    return _state(claims, owner.id, place.path)


def is_next(store: Store, owner: Member, place: ClaimedPath) -> bool:
    """Whether a waiting claim would be granted now, or is gone: time to ask again. Only reads."""
    claims = queries.list_claims(store, place.repository)
    own = _find(claims, owner.id, place.path)
    if own is None:
        return True
    ended = _ended(store, place.repository)
    now = now_ms()
    return not any(_is_alive(one, ended, now) for one in _earlier(claims, own))


def release(
    store: Store, owner: Member, places: Iterable[ClaimedPath] | None = None
) -> list[Claim]:
    """Release claims, or all of an owner; the next in line hold them. Returns what was released."""
    wanted = None if places is None else {(place.repository, place.path) for place in places}
    now = now_ms()
    with store.transaction():
        released = [
            one
            for one in queries.list_claims(store)
            if one.owner == owner.id and (wanted is None or (one.repository, one.path) in wanted)
        ]
        queries.delete_claims(store, [one.id for one in released])
        for repository in {one.repository for one in released}:
            _update_line(store, repository, set(), now)
    return released


def list_states(store: Store, repository: str | None = None) -> list[ClaimState]:
    """The claims that are alive, each with its place in line. Only reads."""
    claims = queries.list_claims(store, repository)
    ended = ended_owners(store, {(one.owner, one.run, one.registry) for one in claims})
    now = now_ms()
    alive = [one for one in claims if _is_alive(one, ended, now)]
    return [_state(alive, one.owner, one.path, one.repository) for one in alive]


# -- the line --------------------------------------------------------------------------------------


def _ended(store: Store, repository: str) -> set[str]:
    """The owners whose task has ended. Looked up before a transaction, which stays short."""
    claims = queries.list_claims(store, repository)
    return ended_owners(store, {(one.owner, one.run, one.registry) for one in claims})


def _update_line(store: Store, repository: str, ended: set[str], now: int) -> list[Claim]:
    """Delete dead claims and grant those that nothing is before. Call it in a transaction."""
    claims = queries.list_claims(store, repository)
    dead = [one.id for one in claims if not _is_alive(one, ended, now)]
    queries.delete_claims(store, dead)
    alive = [one for one in claims if one.id not in dead]
    granted = [one for one in alive if one.held_since is None and not _earlier(alive, one)]
    queries.hold_claims(store, granted, now)
    return queries.list_claims(store, repository) if granted else alive


def _is_alive(one: Claim, ended: set[str], now: int) -> bool:
    return one.expires_at > now and one.owner not in ended


def _find(claims: Iterable[Claim], owner: str, path: str) -> Claim | None:
    return next((one for one in claims if one.owner == owner and one.path == path), None)


def _earlier(claims: Iterable[Claim], own: Claim) -> list[Claim]:
    """The claims of others that come first: asked for before, on the same path, above or below."""
    return [
        one
        for one in claims
        if one.id < own.id
        and one.owner != own.owner
        and one.repository == own.repository
        and _overlap(one.path, own.path)
    ]


def _overlap(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return shorter in ("", longer) or longer.startswith(f"{shorter}/")


def _state(claims: list[Claim], owner: str, path: str, repository: str | None = None) -> ClaimState:
    own = _find([one for one in claims if repository in (None, one.repository)], owner, path)
    if own is None:
        raise StenoError(f"{path or '.'}: the claim is gone; ask again")
    earlier = _earlier(claims, own)
    return ClaimState(own, len(earlier), earlier[0].owner if earlier else None)
