"""Messages between runs and people: to one of them, or to all."""

from typing import Any

from ..codec.redact import redact
from ..errors import StenoError
from ..ledger.protocol import now_ms
from ..ledger.queries import team as queries
from ..ledger.rows import utc_iso
from ..ledger.store import Store
from .roster import Member, find_recipient

MAX_MESSAGE_CHARS = 4000
MAX_SHOWN = 20  # read at once; the rest stays unread
MAX_SHOWN_CHARS = 12_000
EVERYONE = ""


def say(store: Store, sender: Member, text: str, to: str | None = None) -> queries.Message:
    """Send a message to a run or person, or to all. StenoError if it cannot be sent."""
    text = redact(text.encode("utf-8", "replace").decode()).strip()
    if not text:
        raise StenoError("nothing to send: the message is empty")
    if len(text) > MAX_MESSAGE_CHARS:
        raise StenoError(
            f"message too long: {len(text):,} characters (maximum {MAX_MESSAGE_CHARS:,})"
        )
    recipient = EVERYONE if to is None else find_recipient(store, to)
    at = now_ms()
    id_ = queries.add_message(
        store, sender=sender.id, run=sender.run, recipient=recipient, at=at, text=text
    )
    return queries.Message(id_, sender.id, sender.run, recipient, at, text)


def inbox(
    store: Store, reader: Member, *, keep_unread: bool = False, include_read: bool = False
) -> list[queries.Message]:
    """The unread messages of a member, oldest first, which are then read."""
    messages = queries.list_messages(
        store,
        reader.id,
        reader.addresses,
        since=reader.since,
        limit=MAX_SHOWN,
        unread_only=not include_read,
    )
    total = 0
    for count, message in enumerate(messages):
        total += len(message.text)
        if total > MAX_SHOWN_CHARS:
            messages = messages[:count]
            break
    if not keep_unread:
        queries.mark_read(store, reader.id, [message.id for message in messages], now_ms())
    return messages


def message_values(message: queries.Message) -> dict[str, Any]:
    """JSON values; `to` is None for a message to all."""
    return {
        "id": message.id,
        "at": utc_iso(message.at),
        "from": message.sender,
        "run_id": message.run,
        "to": message.recipient or None,
        "text": message.text,
    }
