"""OpenCode: how to start it, and how to read `opencode run --format json`. Pure.

Tokens. Each step is one request; its `step_finish` has the final usage: `input` without the cache,
`cache.write`, `cache.read`, `output` without `reasoning`; their sum is `total`. The output here is
output + reasoning. `cost` is that of the step in dollars, from OpenCode's table of models: 0 if the
table has no price, which means unknown. A step whose answer was cut off has 0 everywhere: unknown,
too; OpenCode asks again. The request for the session's title and those of subagents are not in the
stream.

The stream has no result, version, model or working directory. A step that finishes with the reason
`stop` ends the turn, and so does `length`, an answer cut off at the output limit, with exit code 0.
An `error` ends it as failed; the exit code says the same. After `content-filter`, 1.18 also prints
an error. A denied permission ends the run after that step, with exit code 0. A call is printed when
it is finished, together with its result. Sessions are stored in a database: there are no
transcripts to read. A session that does not exist is reported on stderr only, by 1.2 with exit code
0. Stdout is a file: on a pipe, the end of an answer above 100 KB gets lost on a busy machine.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import encode

from .. import event as ev
from ..codec.colours import strip_colours
from ..codec.decode import Count, decode_lenient, decoder
from ..event import EventHead
from ..report import HintTemplates
from ..units import NANO_PER_USD
from .base import (
    BACKEND_KEY_VARIABLE,
    Agent,
    Capabilities,
    EnvPolicy,
    Installation,
    Launch,
    LaunchCommand,
    LaunchOptions,
    ProgramInfo,
    encode_prompt,
    option_args,
)
from .line_shapes import is_opencode
from .typed_reader import CallTracker, add_counters

MAX_COST_USD = 1e9  # per step; more is damage
MAX_EPOCH_MS = 1e15  # the year 33658: beyond what datetime can represent
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TOOL_KINDS = {
    "bash": "shell",
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
    # 1.2 prints the name of the error instead of its message.
    "PermissionRejectedError",
    "PermissionDeniedError",
    "PermissionCorrectedError",
)
# A tool that a rule denies is not registered: calls fail as for an unknown tool.
PERMISSION_TOOLS = frozenset({"bash", "write", "edit", "webfetch", "patch", "apply_patch"})
ERROR_KINDS = {
    "ProviderAuthError": "authentication_failed",
    "ContextOverflowError": "prompt_too_long",
    "ContentFilterError": "refusal",
}
CHANGE_KINDS = {"add": "created", "delete": "deleted"}


# -- line format -------------------------------------------------------------------------------


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
    metadata: Raw = ev.NO_JSON
    title: Raw = ev.NO_JSON
    attachments: Raw = ev.NO_JSON
    time: PartTime | None = None

    def structured(self, content: Raw) -> Raw | None:
        """What the state says beside the content: a title, data of the tool, files."""
        names = ("title", "metadata", "attachments", "output")
        parts = {name: getattr(self, name) for name in names}
        known = {
            name: part
            for name, part in parts.items()
            if part is not ev.NO_JSON
            if part is not content
        }
        return Raw(encode(known)) if known else None


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


# -- reader ------------------------------------------------------------------------------------


class OpenCodeReader:
    """Turns the lines of one run into events."""

    def __init__(self) -> None:
        self._calls = CallTracker()
        self._session: str | None = None
        self._last_text: str | None = None
        self._steps = 0
        self._finished_steps = 0  # with usage
        self._cost_nano: int | None = 0  # of these; None: one has no price
        self._was_denied = False
        self._turn_started_at: datetime | None = None

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one line; raises one of DECODE_ERRORS if it has another shape."""
        return self._events(_decode_line(data), data, number, at)

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
        """Return the events of one JSON object, ignoring fields of a wrong type."""
        return self._events(decode_lenient(data, StreamLine), data, number, at)

    def state(self) -> bytes:
        """Return nothing: a stream is never read in parts."""
        return b""

    def restore(self, state: bytes) -> None:
        """Do nothing: there is no state."""

    def _events(
        self, line: StreamLine, data: bytes, number: int, at: datetime | None
    ) -> list[ev.Event]:
        at = _time_from_ms(line.timestamp) or at
        head = (number, line.sessionID or self._session, None, at)
        self._turn_started_at = self._turn_started_at or at
        events: list[ev.Event] = []
        if line.sessionID is not None and line.sessionID != self._session:
            self._session = line.sessionID
            events.append(ev.Started(*head))
        build = _EVENT_BUILDERS.get(line.type)
        if build is None or (line.part is None and line.type != "error"):
            return [*events, ev.Unknown(*head, line.type or "no type", data)]
        return events + build(self, head, line.part or LinePart(), line)

    def _step_start(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        """A request; if the run is cut off, its usage is never reported."""
        self._steps += 1
        return [ev.Usage(*head, part.messageID)]

    def _text_part(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        self._last_text = part.text or ""
        return [ev.Text(*head, part.messageID, self._last_text)]

    def _reasoning(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        return [ev.Thinking(*head, part.messageID, part.text or "")]

    def _tool_use(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        """A call and its result in one line, each with its own time."""
        state = part.state or ToolState()
        span = state.time or PartTime()
        input_ = decode_lenient(state.input, ToolInput)
        output = decode_lenient(state.metadata, ToolMetadata)
        is_invalid = part.tool == "invalid"  # the tool that OpenCode runs for an unknown one
        name = (input_.tool if is_invalid else part.tool) or ""
        error = input_.error if is_invalid else state.error
        failed = is_invalid or state.status == "error" or output.exit not in (None, 0)
        agent_id = part.callID or part.id or ""
        call = self._calls.open(agent_id, name, ev.NO_JSON)
        self._calls.close(agent_id)
        number, session, parent, at = head
        started = (number, session, parent, _time_from_ms(span.start) or at)
        ended = (number, session, parent, _time_from_ms(span.end) or at)
        events: list[ev.Event] = [_tool_call(started, call, name, part, state.input)]
        has_started = output.sessionId is not None or not failed
        if TOOL_KINDS.get(name) == "subagent" and has_started:
            task = output.sessionId or call
            about = (input_.subagent_type, input_.description)
            events.append(ev.TaskStarted(*started, task, call, "subagent", *about))
            events.append(ev.TaskEnded(*ended, task, call, "failed" if failed else "completed"))
        if self._check_denied(name, error, is_invalid):
            events.append(ev.PermissionDenied(*ended, call, name, error))
        content = Raw(encode(error)) if error is not None else state.output
        structured = state.structured(content)
        events.append(ev.ToolResult(*ended, call, failed, content, structured, uuid=part.id))
        return events if failed else events + _file_change_events(ended, name, call, input_, output)

    def _check_denied(self, tool: str, error: str | None, is_invalid: bool) -> bool:
        """Whether a call was denied. The run continues without a tool, but not after a refusal."""
        if is_invalid and tool in PERMISSION_TOOLS:
            return True
        is_denied = (error or "").startswith(PERMISSION_DENIED_PREFIXES)
        if is_denied and not is_invalid:
            self._was_denied = True
        return is_denied

    def _step_finish(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        usage = _usage_event(head, part)
        events: list[ev.Event] = [usage]
        if usage.final:
            self._add_cost(part.cost)
            events.append(ev.CostState(*head, self._cost_nano, of_run=True))
        was_denied = self._was_denied
        self._was_denied = False
        if part.reason == "stop" or (was_denied and part.reason == "tool-calls"):
            events.append(self._result(head, text=self._last_text, stop_reason=part.reason))
        elif part.reason == "content-filter":
            error = "a content filter blocked the answer"
            events.append(self._result(head, error=error, stop_reason="refusal"))
        elif part.reason == "length":
            events.append(self._result(head, text=self._last_text, stop_reason="max_tokens"))
        return events

    def _add_cost(self, cost: float | None) -> None:
        """Add the cost of a step. A step without a price makes the sum unknown."""
        self._finished_steps += 1
        if cost is None or not 0 < cost < MAX_COST_USD or self._cost_nano is None:
            self._cost_nano = None
        else:
            self._cost_nano += round(cost * NANO_PER_USD)

    def _error(self, head: EventHead, part: LinePart, line: StreamLine) -> list[ev.Event]:
        error = line.error or ErrorInfo()
        details = error.data or ErrorData()
        text = details.message or error.name or "error"
        if error.name == "MessageAbortedError":
            return [ev.UserMessage(*head, "interrupted", text)]
        kind = ERROR_KINDS.get(error.name or "")
        failure = ev.Failure(*head, kind, details.statusCode, text)
        return [failure, self._result(head, error=text)]

    def _result(
        self,
        head: EventHead,
        *,
        text: str | None = None,
        error: str | None = None,
        stop_reason: str | None = None,
    ) -> ev.Result:
        _, _, _, at = head
        duration = None
        if at is not None and self._turn_started_at is not None:
            duration = max(0, (at - self._turn_started_at) // MILLISECOND)
        self._turn_started_at = at
        return ev.Result(
            *head,
            subtype="success" if error is None else "error",
            is_error=error is not None,
            text=text if error is None else error,
            errors=() if error is None else (error,),
            stop_reason=stop_reason,
            turns=self._steps or None,
            duration_ms=duration or None,
            cost_nano=self._cost_nano if self._finished_steps else None,
        )


def _usage_event(head: EventHead, part: LinePart) -> ev.Usage:
    """The usage of a finished step; without figures if its answer was cut off."""
    tokens = part.tokens or StepTokens()
    cache = tokens.cache or CacheTokens()
    counters = (tokens.input, cache.write, cache.read, tokens.output, tokens.reasoning)
    if not any(counters):
        return ev.Usage(*head, part.messageID, stop_reason=part.reason, uuid=part.id)
    return ev.Usage(
        *head,
        message=part.messageID,
        input=tokens.input,
        cache_write=cache.write,
        cache_read=cache.read,
        output=add_counters(tokens.output, tokens.reasoning),
        reasoning=tokens.reasoning,
        final=True,
        stop_reason=part.reason,
        uuid=part.id,
    )


def _time_from_ms(milliseconds: int | None) -> datetime | None:
    if milliseconds is None or not 0 <= milliseconds < MAX_EPOCH_MS:
        return None
    return EPOCH + timedelta(milliseconds=milliseconds)


def _tool_call(head: EventHead, id_: str, name: str, part: LinePart, input_: Raw) -> ev.ToolCall:
    return ev.ToolCall(
        *head,
        id=id_,
        name=name,
        kind=TOOL_KINDS.get(name, "other"),
        message=part.messageID,
        input=input_,
        asks=name in USER_INPUT_TOOLS,
    )


def _file_change_events(
    head: EventHead, tool: str, call: str, input_: ToolInput, output: ToolMetadata
) -> list[ev.Event]:
    """The files that a successful call changed."""
    if TOOL_KINDS.get(tool) not in ("file_write", "file_edit"):
        return []
    if output.files:
        return [
            ev.FileChanged(
                *head, file.filePath, CHANGE_KINDS.get(file.type or "", "modified"), call
            )
            for file in output.files
            if file.filePath is not None
        ]
    diff = output.filediff or FileDiff()
    path = output.filepath or diff.file or input_.filePath
    if path is None:
        return []
    return [ev.FileChanged(*head, path, "created" if output.exists is False else "modified", call)]


EventBuilder = Callable[[OpenCodeReader, EventHead, LinePart, StreamLine], list[ev.Event]]
_EVENT_BUILDERS: dict[str, EventBuilder] = {
    "step_start": OpenCodeReader._step_start,
    "text": OpenCodeReader._text_part,
    "reasoning": OpenCodeReader._reasoning,
    "tool_use": OpenCodeReader._tool_use,
    "step_finish": OpenCodeReader._step_finish,
    "error": OpenCodeReader._error,
}


# -- start -------------------------------------------------------------------------------------

UNSUPPORTED_OPTIONS = (
    "session_id",
    "max_turns",
    "max_cost",
    "allow",
    "deny",
    "system_prompt",
    "add_dirs",
    "mcp_config",
    "fallback_model",
    "json_schema",
    "partial",
    "steer",
)
_SESSION_ID_PATTERN = re.compile(r"ses_[0-9A-Za-z]{10,}")
_NO_SESSION_PATTERN = re.compile(r'(?:Error:|message:) "?(Session not found(?:: ses_\w+)?)"?,?')
AUTO_APPROVE_MODES = ("yolo", "auto", "bypassPermissions")
# 1.18 has the first, 1.15 the second, 1.2 neither. A configuration that allows everything is no
# substitute: it would also override what the user's own configuration denies.
AUTO_APPROVE_ARGS = ("--auto", "--dangerously-skip-permissions")
NO_AUTO_APPROVE = (
    "this version of opencode cannot approve calls by itself; it denies the calls that its "
    "configuration asks about"
)
# For an unknown agent OpenCode uses its default one, which may be allowed more: accept only the
# agents that always exist.
PERMISSION_MODES = ("default", *AUTO_APPROVE_MODES, "plan", "build")
PROVIDER_ID = "steno"
MAX_OUTPUT_TOKENS = 32_000  # OpenCode's own limit for models without one


def is_session_id(text: str) -> bool:
    return _SESSION_ID_PATTERN.fullmatch(text) is not None


def build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
    """Build the command. A permission mode is one of OpenCode's agents, or --auto."""
    notes: tuple[str, ...] = ()
    mode = options.permission_mode
    argv = [program, "run", "--format", "json"]
    argv += option_args(
        ("--model", options.model if options.backend is None else f"{PROVIDER_ID}/{options.model}"),
        ("--session", options.resume),
        ("--agent", None if mode in (*AUTO_APPROVE_MODES, "default") else mode),
    )
    if options.continue_:
        argv.append("--continue")
    if options.fork:
        argv.append("--fork")
    if mode in AUTO_APPROVE_MODES:
        option = next(filter(info.has_option, AUTO_APPROVE_ARGS), None)
        if option is not None:
            argv.append(option)
        else:
            notes = (f"permission mode {mode}: {NO_AUTO_APPROVE}",)
    return LaunchCommand(
        (*argv, *options.extra),
        encode_prompt(options.prompt),
        stdout="file",
        env=_backend_env(options),
        notes=notes,
    )


def _backend_env(options: LaunchOptions) -> tuple[tuple[str, str], ...]:
    """A model provider as configuration; it names the variable with the key, not the key."""
    backend = options.backend
    if backend is None:
        return ()
    package = "@ai-sdk/openai-compatible"
    url = backend.openai_url
    if backend.kind == "anthropic":
        package = "@ai-sdk/anthropic"
        url = f"{backend.url}/v1"
    model: dict[str, Any] = {"name": options.model, "tool_call": True}
    if backend.context_window is not None:
        model["limit"] = {
            "context": backend.context_window,
            "output": min(MAX_OUTPUT_TOKENS, backend.context_window // 2),
        }
    provider = {
        "npm": package,
        "name": "steno",
        "options": {"baseURL": url, "apiKey": f"{{env:{BACKEND_KEY_VARIABLE}}}"},
        "models": {options.model: model},
    }
    name = f"{PROVIDER_ID}/{options.model}"
    config = {"provider": {PROVIDER_ID: provider}, "model": name, "small_model": name}
    return (BACKEND_KEY_VARIABLE, backend.key), ("OPENCODE_CONFIG_CONTENT", encode(config).decode())


def classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """The verdict for an exit code without a result: only 0 and 1 are OpenCode's own."""
    text = strip_colours("\n".join(errors)).strip()
    return ("subprocess", text) if code == 1 and text else None


def read_stderr(line: ev.Stderr) -> list[ev.Event]:
    """A session to continue that does not exist: nothing on stdout says so."""
    match = _NO_SESSION_PATTERN.fullmatch(strip_colours(line.text).strip())
    if match is None:
        return []
    return [
        ev.Result(
            *(0, None, None, line.at),
            subtype="error",
            is_error=True,
            errors=(match[1],),
            startup_failure="session_not_found",
        )
    ]


def allow_rule(tool: str, input_: Any, cwd: str | None, reason: str | None) -> str:
    """The entry of `permission` in the configuration that would have allowed a denied call."""
    command = input_.get("command") if isinstance(input_, dict) else None
    if tool == "bash" and isinstance(command, str):
        return encode({"bash": {command: "allow"}}).decode()
    permission = "edit" if TOOL_KINDS.get(tool) in ("file_write", "file_edit") else tool
    return encode({permission: "allow"}).decode()


AGENT = Agent(
    name="opencode",
    reader=OpenCodeReader,
    allow_rule=allow_rule,
    looks_like=is_opencode,
    read_stderr=read_stderr,
    is_session_id=is_session_id,
    capabilities=Capabilities(resume=True, json=True, context=True, cost=True, file_events=True),
    hints=HintTemplates(
        resume="opencode run --session {session} {prompt}",
        allow="--auto, or in opencode.json below permission: {rules}",
        stream="--format json",
    ),
    classify_exit=classify_exit,
    totals_omit_subagents=True,
    launch=Launch(
        build_command=build_command,
        shows_requests=True,
        help_args=("run", "--help"),
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
    installation=Installation(
        command="npm install -g opencode-ai",
        npm_package="opencode-ai",
        tested_versions=("1.18.33",),
        credential_files=(".local/share/opencode/auth.json",),
    ),
)
