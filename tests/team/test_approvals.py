"""Permission requests and decisions on them; on both databases."""

import time

import pytest

from steno.errors import StenoError
from steno.ledger.queries import team as queries
from steno.ledger.store import Store
from steno.team import approvals
from steno.team.roster import Member
from steno.views.table import PageStyle
from steno.views.team import message_lines, request_lines
from tests.team.test_messages import SECRET
from tests.views.test_rendering import PAYLOAD, is_safe

ASKING = Member(id="@ada")
CALL = {"command": f"curl -H 'Authorization: Bearer {SECRET}' https://example.org"}


def test_what_is_stored_has_no_secrets_and_is_bounded(store: Store) -> None:
    request = approvals.ask(store, ASKING, "Bash", {**CALL, "more": "x" * 10_000}, 60)
    (stored,) = approvals.open_requests(store)
    assert stored == request
    assert SECRET not in stored.input
    assert "curl -H" in stored.input
    assert len(stored.input) <= approvals.MAX_INPUT_CHARS < 10_000 < stored.chars
    lines = list(request_lines([approvals.request_values(stored)], PageStyle()))
    assert lines[-1] == f"    (cut: the input has {stored.chars:,} characters)"


def test_the_first_decision_counts(store: Store) -> None:
    first = approvals.ask(store, ASKING, "Bash", CALL, 60)
    second = approvals.ask(store, ASKING, "Write", {}, 60)
    assert approvals.poll(store, first) is None
    decided = approvals.decide(store, first.id[:6], approvals.ALLOW, by="@bob")
    assert approvals.poll(store, first) == decided
    # What is executed is what was asked for, not what is stored.
    assert approvals.answer(decided, CALL) == {"behavior": "allow", "updatedInput": CALL}
    with pytest.raises(StenoError, match=rf"permission granted \({first.id}, @bob\)"):
        approvals.decide(store, first.id, approvals.DENY, by="@eve")
    denied = approvals.decide(
        store, second.id, approvals.DENY, by="page", reason=f"not with {SECRET}"
    )
    assert approvals.answer(denied, {}) == {
        "behavior": "deny",
        "message": "Permission denied by the user: not with [redacted]",
    }
    assert approvals.open_requests(store) == []
    with pytest.raises(StenoError, match="no open permission request"):
        approvals.decide(store, "ffff", approvals.ALLOW, by="@bob")
    with pytest.raises(StenoError, match="no open permission request"):
        approvals.decide(store, "", approvals.ALLOW, by="@bob")


def test_a_request_is_denied_when_its_time_is_over(store: Store) -> None:
    request = approvals.ask(store, ASKING, "Bash", CALL, 0.05)
    time.sleep(0.1)
    assert approvals.open_requests(store) == []
    with pytest.raises(StenoError, match="no longer open"):
        approvals.decide(store, request.id, approvals.ALLOW, by="@bob")
    decided = approvals.poll(store, request)
    assert decided is not None
    assert (decided.decision, decided.decided_by) == ("deny", "timeout")
    message = "Permission denied: no answer within 0.05 s"
    assert approvals.answer(decided, CALL) == {"behavior": "deny", "message": message}
    store.execute("DELETE FROM permission_requests")
    gone = approvals.poll(store, request)
    assert gone is not None
    assert gone.decision == "deny"


def test_requests_of_ended_runs_are_not_open(store: Store) -> None:
    """The run is not in the registry of this machine, so it has ended."""
    asking = Member(id="task1", run="run1")
    request = approvals.ask(store, asking, "Bash", CALL, 60)
    assert approvals.open_requests(store) == []
    with pytest.raises(StenoError, match="no longer open"):
        approvals.decide(store, request.id, approvals.ALLOW, by="@bob")


def test_hostile_text_is_escaped_in_a_terminal(store: Store) -> None:
    approvals.ask(store, Member(id="@a", name=PAYLOAD), PAYLOAD, {"command": PAYLOAD}, 60)
    (request,) = queries.list_permission_requests(store)
    lines = request_lines([approvals.request_values(request)], PageStyle())
    assert all(map(is_safe, lines))
    message = {"at": "2026-11-18T08:00:00+00:00", "from": PAYLOAD, "to": None, "text": PAYLOAD}
    assert all(map(is_safe, message_lines([message], PageStyle())))
