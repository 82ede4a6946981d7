"""The stream of `codex exec --json` in versions up to 0.42. Pure.

After a line about the setup and one with the prompt, every line is {id, msg}: what happened, mostly
as in the rollouts of these versions. The stream does not name its session, so that nothing can
complete it. It has no line for the end of a turn: a response without a call is the end, and an
`error`. The exit code is 0 in any case.
"""

from datetime import datetime

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from ... import event as ev
from ...codec.decode import decode_raw, text_of
from ...event import EventHead
from . import tables
from .events import failed_result, file_change_events
from .rollout import RolloutReader
from .wire import (
    CodexLine,
    Invocation,
    OlderMessage,
    Payload,
    SandboxPolicy,
    TokenCountInfo,
    TokenUsage,
)

# Names by the beginning of a type: "exec_command" + "_begin" or "_end".
_TOOL_NAMES = {
    "exec_command": "shell",
    "patch_apply": "apply_patch",
    "mcp_tool_call": "mcp",
    "web_search": "web_search",
}


def is_older_line(line: CodexLine) -> bool:
    """Whether a line belongs to such a stream."""
    if line.msg is not None:
        return True
    return not line.type and (line.prompt is not None or line.workdir is not None)


class OlderStreamReader:
    """Turns the lines of one run into events."""

    def __init__(self) -> None:
        self._events = RolloutReader(is_whole=True)  # reads what rollouts have, too
        self._changes: dict[str, Raw] = {}  # of patches that are being applied
        self._sandbox: str | None = None
        self._answer: str | None = None  # of the current request, unless it called a tool
        self._has_result = False

    def events(
        self, line: CodexLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        """Return the events of a decoded line."""
        message = line.msg
        if message is None and line.prompt is not None:
            return [ev.UserMessage(number, None, None, at, "prompt", line.prompt)]
        if message is None:
            self._sandbox = line.sandbox
            policy = SandboxPolicy(mode=line.sandbox)
            setup = Payload(cwd=line.workdir, model=line.model, sandbox_policy=policy)
            return self._happened("turn_context", setup, data, number, at)
        head = (number, self._events.session, None, at)
        kind, _, moment = message.type.rpartition("_")
        if kind in _TOOL_NAMES and moment == "begin":
            self._answer = None
            return [self._call_begun(kind, message, head)]
        if kind in _TOOL_NAMES and moment == "end":
            return self._call_ended(kind, message, head)
        if message.type == "plan_update":
            id_ = f"plan {number}"
            plan = ev.ToolCall(*head, id_, "update_plan", "todo", input=message.plan)
            return [plan, ev.ToolResult(*head, id_)]
        if message.type == "error":
            text = message.message or "the turn failed without a message"
            return [self._ended(failed_result(head, (*tables.classify_error(text), text)))]
        if message.type == "agent_message":
            self._answer = message.message
        if message.type == "token_count":
            return self._request(message, data, head)
        return self._happened("event_msg", message, data, number, at)

    def _happened(
        self, kind: str, payload: Payload, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        line = CodexLine(type=kind, payload=payload, timestamp=at)
        return self._events.events(line, data, number)

    def _request(self, message: OlderMessage, data: bytes, head: EventHead) -> list[ev.Event]:
        """The end of a response; one without a call ends the turn."""
        number, _, _, at = head
        if message.info is None and message.input_tokens is not None:
            usage = TokenUsage(
                input_tokens=message.input_tokens,
                cached_input_tokens=message.cached_input_tokens,
                output_tokens=message.output_tokens,
                reasoning_output_tokens=message.reasoning_output_tokens,
            )
            message.info = TokenCountInfo(last_token_usage=usage)
        events = self._happened("event_msg", message, data, number, at)
        if self._answer is not None and message.info is not None:
            events.append(self._ended(ev.Result(*head, "success", text=self._answer)))
        self._answer = None
        return events

    def _ended(self, result: ev.Result) -> ev.Result:
        """The result of the turn. A call that was rejected has no line: an answer may follow."""
        amends = self._has_result
        self._has_result = True
        return replace(result, amends=True) if amends else result

    # -- calls -------------------------------------------------------------------------------------

    def _call_begun(self, kind: str, message: OlderMessage, head: EventHead) -> ev.ToolCall:
        name = _TOOL_NAMES[kind]
        input_ = ev.NO_JSON
        if kind == "exec_command":
            input_ = Raw(encode({"command": decode_raw(message.command)}))
        elif kind == "patch_apply":
            self._changes[message.call_id or ""] = input_ = message.changes
        elif kind == "mcp_tool_call":
            invocation = message.invocation or Invocation()
            name = f"mcp__{invocation.server}__{invocation.tool}"
            input_ = invocation.arguments
        return ev.ToolCall(*head, message.call_id or "", name, tables.tool_kind(name), input=input_)

    def _call_ended(self, kind: str, message: OlderMessage, head: EventHead) -> list[ev.Event]:
        call = message.call_id or ""
        duration = message.duration.milliseconds if message.duration is not None else None
        content = message.result
        details = None
        failed = False
        events: list[ev.Event] = []
        if kind == "exec_command":
            code = message.exit_code
            failed = code not in (0, None)
            details = ev.ToolResultDetails(exit_code=code)
            content = _printed(message)
            text = text_of(content)
            if failed and tables.is_refused(text, code, self._sandbox):
                events.append(ev.PermissionDenied(*head, call, _TOOL_NAMES[kind], text))
        elif kind == "patch_apply":
            failed = message.success is False
            content = message.stderr if failed else message.stdout
        elif kind == "mcp_tool_call":
            content, failed = _mcp_result(message.result)
        events.append(ev.ToolResult(*head, call, failed, content, details, duration))
        if kind == "patch_apply" and not failed:
            events += file_change_events(head, call, self._changes.pop(call, ev.NO_JSON))
        return events


def _printed(message: OlderMessage) -> Raw:
    """What a command printed; up to 0.20 its two outputs are not joined."""
    if message.aggregated_output is not ev.NO_JSON:
        return message.aggregated_output
    return Raw(encode(text_of(message.stdout) + text_of(message.stderr)))


def _mcp_result(result: Raw) -> tuple[Raw, bool]:
    """The content in {"Ok": {"content", "isError"}} or {"Err": text}, and whether it failed."""
    value = decode_raw(result)
    if not isinstance(value, dict):
        return result, False
    if "Err" in value:
        return Raw(encode(value["Err"])), True
    answer = value.get("Ok")
    if not isinstance(answer, dict):
        return result, False
    return Raw(encode(answer.get("content"))), answer.get("isError") is True
