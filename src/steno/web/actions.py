"""What a person may do from the page if `steno serve --allow-actions` permits it."""

from ..errors import StenoError
from ..ledger.protocol import now_ms
from ..ledger.queries import runs
from ..ledger.queries.team import PermissionRequest
from ..runner.resume import resume_in_background
from ..runner.run_registry import active_runs, send_request
from ..team import approvals
from ..team.approvals import ALLOW, DENY
from .ledger_access import LedgerAccess
from .run_page import Subject

MAX_FORM_BYTES = 64 << 10
ACTIONS = ("stop", "send", "note", "resume")
DECISIONS = (ALLOW, DENY)


def perform(action: str, access: LedgerAccess, subject: Subject, text: str) -> None:
    """Carry out an action. StenoError says why it was not possible."""
    if action == "note":
        with access.writer() as store:
            runs.add_note(store, subject.table, subject.id, now_ms(), text)
    elif action == "resume":
        _resume(access, subject, text)
    else:
        _control(subject, {"do": action, **({"text": text} if action == "send" else {})})


def decide(access: LedgerAccess, request: str, decision: str, reason: str) -> PermissionRequest:
    """Permit or deny a requested call. StenoError if it was decided before, or is too late."""
    with access.writer() as store:
        return approvals.decide(
            store, request, decision, by="page", reason=reason if decision == DENY else None
        )


def _control(subject: Subject, message: dict[str, str]) -> None:
    info = next((info for info in active_runs() if info.run == subject.id), None)
    if info is None:
        raise StenoError(f"{subject.id}: not active on this machine")
    if message.get("text", "-").strip() == "":
        raise StenoError("nothing to send: the message is empty")
    answer = send_request(info.socket or "", message)
    if not answer.get("ok"):
        raise StenoError(f"{subject.id}: {answer.get('error')}")


def _resume(access: LedgerAccess, subject: Subject, prompt: str) -> None:
    run = subject.run
    session = run.session_id if run is not None else subject.id
    one = run or subject.session
    if one is None:
        raise StenoError(f"{subject.id}: no session to resume")
    try:
        resume_in_background(session, one.agent, one.project, access.location, prompt)
    except StenoError as error:
        raise StenoError(f"{subject.id}: {error}") from None
