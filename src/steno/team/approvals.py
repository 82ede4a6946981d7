"""Permission requests of agents, decided by a person while the run waits.

Only what a person needs to see is stored: the tool and its input without secrets. The process that
asked keeps the input itself, so nothing in the ledger can change what is executed.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..analysis.live_state import call_target
from ..codec.redact import redact, redact_and_truncate, redact_value
from ..errors import StenoError
from ..ledger.protocol import now_ms
from ..ledger.queries import team as queries
from ..ledger.queries.runs import ambiguous_prefix_error
from ..ledger.queries.team import PermissionRequest
from ..ledger.rows import utc_iso
from ..ledger.store import Store
from ..runner.run_registry import get_active_run, send_request
from .roster import Member, ended_owners, registry_id

MAX_INPUT_CHARS = 4000
MAX_REASON_CHARS = 1000
MAX_TARGET_CHARS = 120
MAX_TOOL_CHARS = 200
POLL_SECONDS = 0.3
NOTICE_TIMEOUT_SECONDS = 2.0
ALLOW = "allow"
DENY = "deny"


# -- asking ----------------------------------------------------------------------------------------


def ask(
    store: Store, member: Member, tool: str, tool_input: Any, timeout_seconds: float
) -> PermissionRequest:
    """Store a request and mark its run as waiting."""
    text = msgspec.json.encode(redact_value(tool_input)).decode()
    now = now_ms()
    request = PermissionRequest(
        id=secrets.token_hex(4),
        run=member.run,
        task=member.id if member.run is not None else None,
        session=member.session,
        name=member.name,
        registry=registry_id(),
        tool=redact(tool)[:MAX_TOOL_CHARS],
        input=redact_and_truncate(text, MAX_INPUT_CHARS),
        chars=len(text),
        asked_at=now,
        expires_at=now + round(timeout_seconds * 1000),
    )
    queries.insert_permission_request(store, request)
    target = redact_and_truncate(call_target(tool_input), MAX_TARGET_CHARS)
    text = f"permission needed: {request.tool} {target}".rstrip()
    notify_run(
        request, "permission", f"{text}; answer with: steno team approve {request.id} [--deny]"
    )
    return request


def notify_run(request: PermissionRequest, action: str, text: str) -> None:
    """Tell the run, which logs it and waits without a limit on silence; best effort."""
    info = get_active_run(request.run) if request.run is not None else None
    if info is not None and info.socket is not None:
        seconds = max(0.0, (request.expires_at - now_ms()) / 1000)
        message = {"do": action, "id": request.id, "text": text, "seconds": seconds}
        with suppress(StenoError):  # the log misses it; the request is in the ledger
            send_request(info.socket, message, NOTICE_TIMEOUT_SECONDS)


def poll(store: Store, request: PermissionRequest) -> PermissionRequest | None:
    """The request with its decision; None while there is none. Denied when it expires."""
    current = queries.find_permission_request(store, request.id)
    if current is None:
        return denied(request, "the request is gone from the ledger")
    if current.decision is None and now_ms() < current.expires_at:
        return None
    if current.decision is None:
        seconds = (request.expires_at - request.asked_at) / 1000
        reason = f"no answer within {seconds:g} s"
        queries.decide_permission(
            store, request.id, DENY, reason=reason, now=now_ms(), by="timeout"
        )
        current = queries.find_permission_request(store, request.id) or current
    return current


def denied(request: PermissionRequest, reason: str) -> PermissionRequest:
    """The request, denied by steno itself."""
    return msgspec.structs.replace(request, decision=DENY, reason=reason, decided_by="steno")


def answer(request: PermissionRequest, tool_input: Any) -> dict[str, Any]:
    """The decision in the form that Claude Code expects of its permission tool."""
    if request.decision == ALLOW:
        return {"behavior": "allow", "updatedInput": tool_input}
    by = "" if request.decided_by in ("timeout", "steno") else " by the user"
    reason = f": {request.reason}" if request.reason else ""
    return {"behavior": "deny", "message": f"Permission denied{by}{reason}"}


def decision_text(request: PermissionRequest) -> str:
    """The decision in one line, for the log of the run."""
    word = "granted" if request.decision == ALLOW else "denied"
    reason = f": {request.reason}" if request.reason else ""
    return f"permission {word} ({request.id}, {request.decided_by}){reason}"


# -- deciding --------------------------------------------------------------------------------------


def open_requests(store: Store) -> list[PermissionRequest]:
    """The requests that wait for a decision, oldest first, without those of runs that ended."""
    requests = queries.list_permission_requests(store, open_at=now_ms())
    owners = {(one.task or "", one.run, one.registry) for one in requests}
    ended = ended_owners(store, owners)
    return [one for one in requests if one.task is None or one.task not in ended]


def decide(
    store: Store, prefix: str, decision: str, *, by: str, reason: str | None = None
) -> PermissionRequest:
    """Decide on an open request, by its ID or a prefix. StenoError if that is not possible."""
    request = _find_open(store, prefix)
    reason = redact(reason.strip())[:MAX_REASON_CHARS] if reason and reason.strip() else None
    done = queries.decide_permission(
        store, request.id, decision, reason=reason, now=now_ms(), by=by
    )
    current = queries.find_permission_request(store, request.id)
    if current is None or not done:
        raise _closed_error(current or request)
    return current


def _find_open(store: Store, prefix: str) -> PermissionRequest:
    requests = open_requests(store)
    matches = [one for one in requests if prefix and one.id.startswith(prefix)]
    if len(matches) > 1:
        raise ambiguous_prefix_error(prefix, "requests", [one.id for one in matches])
    if matches:
        return matches[0]
    closed = queries.find_permission_request(store, prefix)
    if closed is not None:
        raise _closed_error(closed)
    raise StenoError(f"{prefix}: no open permission request with this ID; see: steno team requests")


def _closed_error(request: PermissionRequest) -> StenoError:
    if request.decision is not None:
        return StenoError(f"{request.id}: {decision_text(request)}")
    return StenoError(f"{request.id}: no longer open: it has expired or its run has ended")


def request_values(request: PermissionRequest, open_ids: Sequence[str] | None = None) -> Any:
    """JSON values."""
    return {
        "id": request.id,
        "run_id": request.run,
        "task_id": request.task,
        "session_id": request.session,
        "name": request.name,
        "tool": request.tool,
        "input": request.input,
        "input_chars": request.chars,
        "asked_at": utc_iso(request.asked_at),
        "expires_at": utc_iso(request.expires_at),
        "open": request.decision is None and (open_ids is None or request.id in open_ids),
        "decision": request.decision,
        "reason": request.reason,
        "decided_at": utc_iso(request.decided_at),
        "decided_by": request.decided_by,
    }
