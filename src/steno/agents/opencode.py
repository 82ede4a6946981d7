"""OpenCode: how to start it, and how to read what `opencode run --format json` prints. It never opens a file.

Token algebra. Each step is one request to the model, and its `step_finish` tells all of it at the end: `input` without the
cache, `cache.write`, `cache.read`, `output` without `reasoning`; their sum is `total`. So output here is output + reasoning.
`cost` is the step's own, in dollars, from OpenCode's table of models: 0 where that has no price, which is not known here.
The request that makes a title for the session, and those of subagents, are not in the stream.

There is no result, no version, no model, no working directory. A step that finishes with the reason `stop` closes the turn,
and an `error` closes it as failed; the exit code says the same again. A refused permission ends the run after that step,
with exit code 0. A call is told when it is over, with its answer.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import encode

from .. import event as ev
from ..codec.decode import Count, decode_lenient, decoder
from ..report import HintTemplates
from . import detection as tell
from .backend import BACKEND_KEY_VARIABLE
from .base import (
    Agent,
    Capabilities,
    EnvPolicy,
    Installation,
    Launch,
    LaunchCommand,
    LaunchOptions,
    Transcripts,
)
from .chat_log import CallTracker

EventHead = tuple[int, str | None, str | None, datetime | None]
MAX_EPOCH_MS = 1e15  # the year 33658, beyond what datetime supports
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TOOL_KINDS = {
    **dict.fromkeys(("bash",), "shell"),
    **dict.fromkeys(("read", "list"), "file_read"),
    "write": "file_write",
    **dict.fromkeys(("edit", "multiedit", "patch", "apply_patch"), "file_edit"),
    **dict.fromkeys(("glob", "grep", "codesearch", "lsp"), "search"),
    **dict.fromkeys(("webfetch", "websearch"), "web"),
    **dict.fromkeys(("todowrite", "todoread"), "todo"),
    "task": "subagent",
}
USER_INPUT_TOOLS = frozenset({"question", "plan_exit"})
PERMISSION_DENIED_PREFIXES = (
    "The user rejected permission",
    "The user has specified a rule which prevents you",
    "Permission denied",
)
# A rule that denies a whole tool takes it away: a call of it then fails as if it did not exist.
PERMISSION_TOOLS = frozenset({"bash", "write", "edit", "webfetch", "patch", "apply_patch"})
ERROR_KINDS = {
    "ProviderAuthError": "authentication_failed",
    "ContextOverflowError": "prompt_too_long",
}


# -- the lines -----------------------------------------------------------------------------------------------------


class PartTime(Struct, gc=False):
    start: int | None = None
    end: int | None = None


class CacheTokens(Struct, gc=False):
    write: Count | None = None
    read: Count | None = None


class StepTokens(Struct, gc=False):
    input: Count | None = None
    output: Count | None = None
    reasoning: Count | None = None
    cache: CacheTokens | None = None


class FileDiff(Struct, gc=False):
    file: str | None = None


class PatchedFile(Struct, gc=False):
    filePath: str | None = None
    type: str | None = None


class ToolMetadata(Struct, gc=False):
    exit: int | None = None
    filepath: str | None = None
    exists: bool | None = None
    filediff: FileDiff | None = None
    files: list[PatchedFile] | None = None
    sessionId: str | None = None


class ToolInput(Struct, gc=False):
    """What is read of a call's input."""

    filePath: str | None = None
    tool: str | None = None
    error: str | None = None
    description: str | None = None
    subagent_type: str | None = None


class ToolState(Struct, gc=False):
    status: str | None = None
    input: Raw = ev.NO_JSON
    output: Raw = ev.NO_JSON
    error: str | None = None
    metadata: ToolMetadata | None = None
    time: PartTime | None = None


class LinePart(Struct, gc=False):
    id: str | None = None
    messageID: str | None = None
    text: str | None = None
    tool: str | None = None
    callID: str | None = None
    state: ToolState | None = None
    reason: str | None = None
    tokens: StepTokens | None = None
    cost: float | None = None


class ErrorData(Struct, gc=False):
    message: str | None = None
    statusCode: Count | None = None


class ErrorInfo(Struct, gc=False):
    name: str | None = None
    data: ErrorData | None = None


class StreamLine(Struct, gc=False):
    type: str = ""
    timestamp: int | None = None
    sessionID: str | None = None
    part: LinePart | None = None
    error: ErrorInfo | None = None


_decode_line = decoder(StreamLine).decode


class OpenCodeReader:
    """Turns the lines of one run into events. It holds the last answer, what was spent, and whether a call was refused."""

    def __init__(self) -> None:
        self._calls = CallTracker()
        self._session: str | None = None
        self._last_text: str | None = None
        self._steps = 0
        self._cost_nano: int | None = 0
        self._was_denied = False
        self._turn_started_at: datetime | None = None  # when the turn began

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one line; raises one of MISFIT when the line is not of the usual shape."""
        return self._events(_decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """The events of one JSON object, without the fields that are of a wrong type. Never raises."""
        return self._events(decode_lenient(data, StreamLine), data, number, at)

    def state(self) -> bytes:
        """It keeps its sessions in a database: nothing is read in parts."""
        return b""

    def restore(self, state: bytes) -> None:
        """Nothing was remembered."""

    def _events(
        self, line: StreamLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        head = (number, line.sessionID or self._session, None, _time_from_ms(line.timestamp) or at)
        self._turn_started_at = self._turn_started_at or head[3]
        found: list[ev.Event] = []
        if line.sessionID is not None and line.sessionID != self._session:
            self._session = line.sessionID
            found.append(ev.Started(*head))
        make = _EVENT_BUILDERS.get(line.type)
        if make is None or (line.part is None and line.type != "error"):
            return [*found, ev.Unknown(*head, line.type or "no type", data)]
        return found + make(self, head, line.part or LinePart(), line)

    def _step_start(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        """A request that may never tell what it used."""
        self._steps += 1
        return [ev.Usage(*head, part.messageID)]

    def _text_part(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        self._last_text = part.text or ""
        return [ev.Text(*head, part.messageID, self._last_text)]

    def _reasoning(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        return [ev.Thinking(*head, part.messageID, part.text or "")]

    def _tool_use(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        """A call and its answer, in one line: each at its own time."""
        state = part.state or ToolState()
        span, asked, told = (
            state.time or PartTime(),
            decode_lenient(state.input, ToolInput),
            state.metadata or ToolMetadata(),
        )
        unfit = part.tool == "invalid"
        name = (asked.tool if unfit else part.tool) or ""
        call = self._calls.open(part.callID or part.id or "", name, ev.NO_JSON)
        self._calls.close(part.callID or part.id or "")
        begun, over = (
            (*head[:3], _time_from_ms(span.start) or head[3]),
            (*head[:3], _time_from_ms(span.end) or head[3]),
        )
        kind = TOOL_KINDS.get(name, "other")
        found: list[ev.Event] = [
            ev.ToolCall(
                *begun, call, name, kind, part.messageID, state.input, asks=name in USER_INPUT_TOOLS
            )
        ]
        failed = unfit or state.status == "error" or told.exit not in (None, 0)
        text = asked.error if unfit else state.error
        if kind == "subagent":
            task = (told.sessionId or call, call)
            found.append(
                ev.TaskStarted(*begun, *task, "subagent", asked.subagent_type, asked.description)
            )
            found.append(ev.TaskEnded(*over, *task, "failed" if failed else "completed"))
        if (unfit and name in PERMISSION_TOOLS) or (text or "").startswith(
            PERMISSION_DENIED_PREFIXES
        ):
            self._was_denied = (
                self._was_denied or not unfit
            )  # the run goes on without a tool, but not after a refusal
            found.append(ev.PermissionDenied(*over, call, name, text))
        content = Raw(encode(text)) if text is not None else state.output
        found.append(ev.ToolResult(*over, call, failed, content))
        return found if failed else found + _file_change_events(over, name, call, asked, told)

    def _step_finish(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        tokens = part.tokens or StepTokens()
        cache = tokens.cache or CacheTokens()
        output = (
            None
            if tokens.output is None or tokens.reasoning is None
            else tokens.output + tokens.reasoning
        )
        figures = (tokens.input, cache.write, cache.read, output, tokens.reasoning)
        found: list[ev.Event] = [
            ev.Usage(
                *head,
                part.messageID,
                None,
                *figures,
                final=True,
                stop_reason=part.reason,
                uuid=part.id,
            )
        ]
        self._add_cost(part.cost)
        refused, self._was_denied = self._was_denied, False
        if part.reason == "stop" or (refused and part.reason == "tool-calls"):
            found.append(self._result(head, "success", False, self._last_text, part.reason))
        elif part.reason == "content-filter":
            found.append(
                self._result(
                    head, "error", True, "the answer was held back by a content filter", "refusal"
                )
            )
        return found

    def _add_cost(self, cost: float | None) -> None:
        """A step without a price makes the sum unknown: 0 is what a model without a price costs."""
        if cost is None or not 0 < cost < 1e9 or self._cost_nano is None:
            self._cost_nano = None
        else:
            self._cost_nano += round(cost * ev.NANO_PER_USD)

    def _error(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        problem = line.error or ErrorInfo()
        fault = problem.data or ErrorData()
        text = fault.message or problem.name or "error"
        if problem.name == "MessageAbortedError":
            return [ev.UserMessage(*head, "interrupted", text)]
        kind = ERROR_KINDS.get(problem.name or "")
        end = self._result(head, "error", True, text, None)
        return [ev.Failure(*head, kind, fault.statusCode, text), end]

    def _result(
        self, head: EventHead, subtype: str, failed: bool, text: str | None, reason: str | None
    ) -> ev.Result:
        spent = (
            None
            if head[3] is None or self._turn_started_at is None
            else max(0, (head[3] - self._turn_started_at) // MILLISECOND)
        )
        self._turn_started_at = head[3]
        return ev.Result(
            *head,
            subtype=subtype,
            is_error=failed,
            text=text,
            errors=(text,) if failed and text else (),
            stop_reason=reason,
            turns=self._steps or None,
            duration_ms=spent or None,
            cost_nano=self._cost_nano if self._steps else None,
        )


def _time_from_ms(milliseconds: int | None) -> datetime | None:
    return (
        None
        if milliseconds is None or not 0 <= milliseconds < MAX_EPOCH_MS
        else EPOCH + timedelta(milliseconds=milliseconds)
    )


def _file_change_events(
    head: EventHead, tool: str, call: str, asked: ToolInput, told: ToolMetadata
) -> list[ev.Event]:
    """The files that a call did change, as its answer tells them."""
    if TOOL_KINDS.get(tool) not in ("file_write", "file_edit"):
        return []
    if told.files:
        words = {"add": "created", "delete": "deleted"}
        moved = [(file.filePath, words.get(file.type or "", "modified")) for file in told.files]
        return [
            ev.FileChanged(*head, path, change, call) for path, change in moved if path is not None
        ]
    path = (
        told.filepath
        or (told.filediff.file if told.filediff is not None else None)
        or asked.filePath
    )
    change = "created" if told.exists is False else "modified"
    return [] if path is None else [ev.FileChanged(*head, path, change, call)]


_EVENT_BUILDERS: dict[
    str, Callable[[OpenCodeReader, EventHead, LinePart, StreamLine], list[Any]]
] = {
    "step_start": OpenCodeReader._step_start,
    "text": OpenCodeReader._text_part,
    "reasoning": OpenCodeReader._reasoning,
    "tool_use": OpenCodeReader._tool_use,
    "step_finish": OpenCodeReader._step_finish,
    "error": OpenCodeReader._error,
}


# -- the program ---------------------------------------------------------------------------------------------------

UNSUPPORTED_OPTIONS = (
    "session_id", "max_turns", "max_cost", "allow", "deny", "system_prompt", "add_dirs", "mcp_config", "fallback_model",
    "json_schema", "partial", "steer",
)  # fmt: skip
_SESSION_ID_PATTERN = re.compile(r"ses_[0-9A-Za-z]{10,}")
AUTO_APPROVE_MODES = ("yolo", "auto", "bypassPermissions")
# An agent that it does not know is replaced by its default one, which may do more: only those that it always has are taken.
PERMISSION_MODES = ("default", *AUTO_APPROVE_MODES, "plan", "build")


def is_session_id(text: str) -> bool:
    """Sessions are called ses_ and a word."""
    return _SESSION_ID_PATTERN.fullmatch(text) is not None


def build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
    """The command line for what is asked; the prompt goes by stdin. A permission mode is one of its agents, or --auto."""
    words = [program, "run", "--format", "json"]
    mode = ask.permission_mode
    agent = None if mode in (*AUTO_APPROVE_MODES, "default", None) else mode
    model = ask.model if ask.backend is None else f"{PROVIDER_ID}/{ask.model}"
    for option, value in (("--model", model), ("--session", ask.resume), ("--agent", agent)):
        words += [] if value is None else [option, value]
    words += ["--continue"] if ask.continue_ else []
    words += ["--fork"] if ask.fork else []
    words += ["--auto"] if mode in AUTO_APPROVE_MODES else []
    return LaunchCommand(
        (*words, *ask.extra), ask.prompt.encode("utf-8", "surrogateescape"), env=backend_env(ask)
    )


def encode_message(text: str) -> bytes:
    """It takes no messages while it runs."""
    return b""


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """Only 0 and 1 are its own; what it says on stderr is coloured."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(errors)).strip()
    return ("subprocess", text) if code == 1 and text else None


def allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """What would allow a call is an entry of `permission` in its configuration: the tool, and for a command its words."""
    command = given.get("command") if isinstance(given, dict) else None
    if tool == "bash" and isinstance(command, str):
        return encode({"bash": {command: "allow"}}).decode()
    return encode(
        {"edit" if TOOL_KINDS.get(tool) in ("file_write", "file_edit") else tool: "allow"}
    ).decode()


def context_window(model: str) -> int | None:
    """Its models are those of any provider; none is known here."""
    return None


def is_transcript_line(line: bytes) -> bool:
    """It keeps no transcripts in files."""
    return False


def transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """It keeps its sessions in a database."""
    return []


def scan_usage(lines: Iterable[bytes]) -> Iterator[ev.Event]:
    """There are no transcripts."""
    return iter(())


AGENT = Agent(
    name="opencode",
    reader=OpenCodeReader,
    context_window=context_window,
    allow_rule=allow_rule,
    looks_like=tell.is_opencode,
    is_session_id=is_session_id,
    capabilities=Capabilities(resume=True, json=True, context=True, cost=True, file_events=True),
    hints=HintTemplates(
        resume="opencode run --session {session} {prompt}",
        allow="--auto, or in opencode.json below permission: {rules}",
        stream="--format json",
    ),
    classify_exit=classify_exit,
    launch=Launch(
        build_command=build_command,
        encode_message=encode_message,
        env_policy=EnvPolicy(
            drop=("OPENCODE", "OPENCODE_PID", "OPENCODE_RUN_ID", "AGENT"),
            defaults=(("OPENCODE_DISABLE_AUTOUPDATE", "1"),),
            api_key_names=(
                "OPENCODE_API_KEY",
                "OPENAI_API_KEY",
                "ANTHROPIC_API_KEY",
                "GEMINI_API_KEY",
                "OPENROUTER_API_KEY",
            ),
        ),
        unsupported_options=UNSUPPORTED_OPTIONS,
        backends=("ollama", "openai", "anthropic"),
        permission_modes=PERMISSION_MODES,
    ),
    transcripts=Transcripts(
        is_line=is_transcript_line,
        folders=transcript_folders,
        scan_usage=scan_usage,
    ),
    installation=Installation(
        command="npm install -g opencode-ai",
        npm_package="opencode-ai",
        tested_versions=("1.18.33",),
        credential_files=(".local/share/opencode/auth.json",),
    ),
)


PROVIDER_ID = "steno"
MAX_OUTPUT_TOKENS = 32_000  # tokens that it asks for at most, where the server does not tell: what it takes of a model of its own table


def backend_env(ask: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """The variables that lead it there. The configuration names the variable that holds the key, and not the key."""
    found = ask.backend
    if found is None:
        return ()
    anthropic = found.kind == "anthropic"
    package, url = (
        ("@ai-sdk/anthropic", f"{found.url}/v1")
        if anthropic
        else ("@ai-sdk/openai-compatible", found.openai_url)
    )
    model: dict[str, Any] = {"name": ask.model, "tool_call": True}
    if found.context_window is not None:
        model["limit"] = {
            "context": found.context_window,
            "output": min(MAX_OUTPUT_TOKENS, found.context_window // 2),
        }
    options = {"baseURL": url, "apiKey": f"{{env:{BACKEND_KEY_VARIABLE}}}"}
    provider = {"npm": package, "name": "steno", "options": options, "models": {ask.model: model}}
    name = f"{PROVIDER_ID}/{ask.model}"
    config = {"provider": {PROVIDER_ID: provider}, "model": name, "small_model": name}
    return (BACKEND_KEY_VARIABLE, found.key), ("OPENCODE_CONFIG_CONTENT", encode(config).decode())
