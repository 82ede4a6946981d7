"""Lines beside the conversation with fields of their own: added content, answers. Pure."""

from collections.abc import Callable

from msgspec import Raw, Struct

from ... import event as ev
from ...codec.decode import ExitCode, decode_lenient, text_of


class AddedContent(Struct, gc=False):
    """What a transcript adds to the conversation: a prompt, the output of a hook, reminders."""

    type: str = ""
    prompt: Raw = ev.NO_JSON
    hookName: str | None = None
    hookEvent: str | None = None
    exitCode: ExitCode | None = None
    content: Raw = ev.NO_JSON
    stdout: str | None = None
    stderr: str | None = None


class AttachmentLine(Struct, gc=False):
    attachment: AddedContent | None = None
    uuid: str | None = None


class ControlAnswer(Struct, gc=False):
    text: str | None = None


class ControlResponse(Struct, gc=False):
    error: str | None = None
    response: ControlAnswer | None = None


class ControlLine(Struct, gc=False):
    """The answer to a request of the process that controls the program."""

    response: ControlResponse | None = None


def _added_content(head: ev.EventHead, data: bytes) -> list[ev.Event]:
    """A prompt that was sent while the model worked, or the output of a hook."""
    line = decode_lenient(data, AttachmentLine)
    added = line.attachment or AddedContent()
    if added.type == "queued_command" and added.prompt is not ev.NO_JSON:
        return [ev.UserMessage(*head, "sent", text_of(added.prompt), line.uuid)]
    if not added.type.startswith("hook_"):
        return []
    output = "\n".join(filter(None, (added.stdout, added.stderr))) or text_of(added.content)
    outcome = added.type.removeprefix("hook_")
    about = (added.hookName, added.hookEvent, added.exitCode)
    return [ev.Hook(*head, *about, outcome, output or None)]


def _control_response(head: ev.EventHead, data: bytes) -> list[ev.Event]:
    response = decode_lenient(data, ControlLine).response or ControlResponse()
    text = response.error or (response.response and response.response.text)
    return [ev.Notice(*head, "control_response", text)] if text else []


SIDE_LINE_BUILDERS: dict[str, Callable[[ev.EventHead, bytes], list[ev.Event]]] = {
    "attachment": _added_content,
    "control_response": _control_response,
}
