"""Messages as they were sent, for rollouts that have no events for them. Pure.

Codex sends texts of its own in the name of the user: the environment, instructions, summaries.
"""

import re
from datetime import datetime

from msgspec import Raw, Struct, field
from msgspec.json import encode

from ... import event as ev
from ...codec.attachments import find_attachments
from ...codec.decode import decode_raw, text_of
from ...event import EventHead
from .wire import Payload

# What the texts begin with that Codex sends in the name of the user.
_OWN_TEXT_PATTERN = re.compile(r"\s*(?:<[\w ]+>|# AGENTS\.md instructions)")
_FOLDER_PATTERN = re.compile(r"<cwd>([^<\n]+)</cwd>|(?m:^Current working directory: (.+)$)")


# A shell command that the user runs with "!", and what it printed: in no other line (0.166).
_USER_COMMAND_TAG = b"<user_shell_command>"

MAX_SHOWN = 20  # texts whose event is still to come; it follows soon or never


class HeldPrompt(Struct):
    """A prompt that an event may repeat: the next lines show it."""

    line: int
    at: datetime | None
    text: str


class MessageState(Struct):
    """What must survive between two lines. Stored in the ledger: field names stay."""

    has_events: bool = False  # messages have events, so that those that were sent are ignored
    held: list[HeldPrompt] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)  # texts that an event may repeat

    def expect_events(self) -> None:
        """Note that this file has events for messages."""
        self.has_events = True
        self.held.clear()

    def take_repeated(self, text: str) -> bool:
        """Whether an event repeats a text that was shown when it was sent."""
        if text not in self.shown:
            return False
        self.shown.remove(text)
        return True

    def release(self, session: str | None) -> list[ev.Event]:
        """The prompts that were held: the model answers, so no event is to come."""
        events: list[ev.Event] = [
            ev.UserMessage(held.line, session, None, held.at, "prompt", held.text)
            for held in self.held
        ]
        self.held.clear()
        return events

    def read(self, head: EventHead, payload: Payload) -> list[ev.Event]:
        """The events of a message as it was sent; none if it has or may have an event."""
        if payload.role == "user" and _USER_COMMAND_TAG in bytes(payload.content):
            return user_command_events(head, text_of(payload.content))
        if self.has_events:
            return []
        number, session, _, at = head
        if payload.role == "user":
            self.held += [
                HeldPrompt(number, at, text)
                for text in text_parts(payload.content)
                if not _OWN_TEXT_PATTERN.match(text)
            ]
            return []
        if payload.role != "assistant":
            return []
        texts = text_parts(payload.content)
        self.shown = [*self.shown, *texts][-MAX_SHOWN:]
        return [*self.release(session), *(ev.Text(*head, None, text) for text in texts)]


def user_command_events(head: EventHead, text: str) -> list[ev.Event]:
    """The command that a user ran, and what it printed; no text of another form."""
    before, is_command, rest = text.partition("<command>")
    command, is_closed, result = rest.partition("</command>")
    if before.strip() != _USER_COMMAND_TAG.decode() or not (is_command and is_closed):
        return []
    output = result.partition("<result>")[2].rpartition("</result>")[0].strip()
    return [
        ev.LocalCommand(*head, f"!{command.strip()}"),
        ev.LocalCommand(*head, None, output),
    ]


def text_parts(content: Raw) -> list[str]:
    """The texts of a message, one for each part; what is no text is named."""
    value = decode_raw(content)
    if isinstance(value, str):
        return [value] if value else []
    if not isinstance(value, list):
        return []
    return [text_of(Raw(encode([part]))) for part in value]


def attachment_events(head: EventHead, content: Raw) -> list[ev.Event]:
    """The images and files among the parts of a prompt."""
    value = decode_raw(content)
    return [
        ev.Attachment(*head, None, Raw(encode(part)))
        for part in (value if isinstance(value, list) else ())
        if next(find_attachments(part), None) is not None
    ]


def image_events(head: EventHead, addresses: list[Raw] | None) -> list[ev.Event]:
    """The images of a prompt in versions without items, which are only addresses."""
    return [
        ev.Attachment(*head, None, Raw(b'{"type":"input_image","image_url":%s}' % bytes(address)))
        for address in addresses or ()
    ]


def folder_in(content: Raw) -> str | None:
    """The folder that Codex tells the model, in versions whose first line does not have it."""
    match = _FOLDER_PATTERN.search(text_of(content))
    return (match[1] or match[2]).strip() if match is not None else None
