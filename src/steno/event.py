"""The events of a run, the same for every agent. Each docstring says when it is emitted."""

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

NO_JSON = Raw(b"null")
OptionalStr = str | None
OptionalTime = datetime | None
# The fields that all events share, in their order: a reader builds them once per line.
EventHead = tuple[int, OptionalStr, OptionalStr, OptionalTime]


class Event(Struct, frozen=True, gc=False, tag_field="event", omit_defaults=True):
    """The fields that all events share.

    `line` is the line of stdout (0: not from stdout), `session` the agent's session, `parent` the
    call that started the subagent (None: the main thread), `at` the time if the line or record has
    one.
    """

    line: int
    session: str | None
    parent: str | None
    at: datetime | None


class Started(Event, tag="started", frozen=True, gc=False):
    """The agent announces its version, model, folder and tools. May repeat and need not be first.

    `transcript`: it comes from the agent's own transcript, which need not have a result.
    `context_window` is the main model's, if the agent reports it here and not in its result.
    `repository`, `branch` and `commit` are those of the folder, if the agent reports them.
    `skills`, `agents`, `plugins` and `slash_commands` are the names of what it has loaded. `uuid`
    is the agent's id of the line.
    """

    agent_version: str | None = None
    model: str | None = None
    cwd: str | None = None
    api_key_source: str | None = None
    permission_mode: str | None = None
    tools: tuple[str, ...] = ()
    mcp_servers: tuple[tuple[str, str], ...] = ()
    transcript: bool = False
    context_window: int | None = None
    repository: str | None = None
    branch: str | None = None
    commit: str | None = None
    skills: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    slash_commands: tuple[str, ...] = ()
    uuid: str | None = None

    def fill(self, later: "Started") -> "Started":
        """This announcement, with what it left out taken from a later one."""
        missing: Any = {
            name: getattr(later, name) for name in _STARTED_FIELDS if not getattr(self, name)
        }
        return replace(self, **missing)


_STARTED_FIELDS = (
    *("agent_version", "model", "cwd", "permission_mode", "context_window"),
    *("repository", "branch", "commit", "skills", "agents", "plugins", "slash_commands"),
)


class UserMessage(Event, tag="user_message", frozen=True, gc=False):
    """Input to the model that is not a tool result.

    `kind`: prompt, sent (with `steno send`, during the run), synthetic (written by the agent),
    summary (what a compaction left of the conversation), replay, or interrupted (the marker an
    agent leaves when a user or a signal interrupts it). `uuid` is the agent's id of the line.
    """

    kind: str = "prompt"
    text: str = ""
    uuid: str | None = None


class Attachment(Event, tag="attachment", frozen=True, gc=False):
    """An image, a document or a search result in a message, as printed; not in a tool's result.

    `message` is that of the model, None for a user's.
    """

    message: str | None = None
    content: Raw = NO_JSON


class LocalCommand(Event, tag="local_command", frozen=True, gc=False):
    """A command that the agent's program runs itself, such as /clear or !ls, or what it printed.

    `command` is what the user typed; None: `output` and `error` are those of the command before.
    `uuid` is the agent's id of the line.
    """

    command: str | None = None
    output: str = ""
    error: str = ""
    uuid: str | None = None


class Text(Event, tag="text", frozen=True, gc=False):
    """A finished block of the model's answer. `synthetic`: the agent wrote it, not the model."""

    message: str | None = None
    text: str = ""
    synthetic: bool = False


class Partial(Event, tag="partial", frozen=True, gc=False):
    """A piece of an unfinished text block. Only with partial messages enabled."""

    text: str = ""


class Thinking(Event, tag="thinking", frozen=True, gc=False):
    """A finished block of the model's reasoning, as far as the agent prints it."""

    message: str | None = None
    text: str = ""


class ToolCall(Event, tag="tool_call", frozen=True, gc=False):
    """The model calls a tool. The call may still be denied, fail or be interrupted.

    `background`: the call runs in the background; `asks`: only a user can answer it.
    """

    id: str = ""
    name: str = ""
    kind: str = "other"
    message: str | None = None
    input: Raw = NO_JSON
    background: bool = False
    asks: bool = False


class ToolResultDetails(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A typed tool result. Long texts stay undecoded JSON (`Raw`).

    The fields depend on the tool: Bash has stdout; Read has file; Edit has filePath and
    structuredPatch; Write has type create or update; Grep and Glob have filenames, and Glob says
    whether the list is truncated. `extra` has every key of the result that is not a field here.
    """

    stdout: Raw = NO_JSON
    stderr: Raw = NO_JSON
    interrupted: bool | None = None
    is_image: bool | None = None
    background_task_id: str | None = None
    timed_out_after_ms: int | None = None
    persisted_output_path: str | None = None
    type: str | None = None
    file: Raw = NO_JSON
    file_path: str | None = None
    content: Raw = NO_JSON
    structured_patch: Raw = NO_JSON
    original_file: Raw = NO_JSON
    mode: str | None = None
    filenames: Raw = NO_JSON
    num_files: int | None = None
    num_lines: int | None = None
    notebook_path: str | None = None
    edit_mode: str | None = None
    error: str | None = None
    is_async: bool | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    status: str | None = None
    shell_id: str | None = None
    total_tokens: int | None = None
    total_duration_ms: int | None = None
    truncated: bool | None = None
    duration_ms: int | None = None
    exit_code: int | None = None
    extra: dict[str, Raw] = {}


class ToolResult(Event, tag="tool_result", frozen=True, gc=False):
    """A tool returned. `content` is what the model sees; `output` the structured result, if any.

    `output` is a ToolResultDetails if its format is known, else undecoded JSON. `duration_ms` is
    the agent's own figure, for agents whose lines don't have the times of call and result. `uuid`
    is the agent's id of the line.
    """

    id: str = ""
    is_error: bool = False
    content: Raw = NO_JSON
    output: ToolResultDetails | Raw | None = None
    duration_ms: int | None = None
    uuid: str | None = None


class Usage(Event, tag="usage", frozen=True, gc=False):
    """Tokens of one request to the model, in four disjoint counters.

    Emitted when a message is first seen and again when one of its figures changes. `final`: the
    answer is complete and `output` exact; otherwise `output` is a lower bound. `uuid` is the
    agent's id of the line, the same in its stream, its transcript and copies of that.
    """

    message: str | None = None
    model: str | None = None
    input: int | None = None
    cache_write: int | None = None
    cache_read: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_write_1h: int | None = None
    final: bool = False
    stop_reason: str | None = None
    uuid: str | None = None


class Retry(Event, tag="retry", frozen=True, gc=False):
    """A request failed and the agent waits before it retries."""

    attempt: int | None = None
    limit: int | None = None
    status: int | None = None
    error: str | None = None
    delay_ms: int | None = None


class RateLimit(Event, tag="rate_limit", frozen=True, gc=False):
    """The agent reports the state of a usage limit. `resets_at`: seconds since 1970."""

    status: str | None = None
    resets_at: int | None = None
    kind: str | None = None
    utilization: float | None = None


class Compaction(Event, tag="compaction", frozen=True, gc=False):
    """The conversation was replaced by a summary. Sizes in tokens, if reported."""

    trigger: str | None = None
    before: int | None = None
    after: int | None = None


class ContextUsage(Event, tag="context_usage", frozen=True, gc=False):
    """The agent reports what fills its context, in tokens by its own count.

    `used` is the sum of the parts; a part is None if the agent doesn't list it. `messages` is the
    conversation; the other parts are there before the first prompt.
    """

    model: str | None = None
    used: int | None = None
    limit: int | None = None
    system_prompt: int | None = None
    tools: int | None = None
    memory_files: int | None = None
    agents: int | None = None
    skills: int | None = None
    other: int | None = None
    messages: int | None = None


class PermissionDenied(Event, tag="permission_denied", frozen=True, gc=False):
    """A call was denied. The same denial may be reported several times: by event, result and list.

    `settled`: a later call of the tool succeeded according to the transcript, whose events may come
    in a different order.
    """

    call: str | None = None
    tool: str | None = None
    reason: str | None = None
    input: Raw = NO_JSON
    settled: bool = False


class ModelUsage(Struct, frozen=True, gc=False):
    """One model's share of the usage in a result or cost line."""

    input: int | None = None
    cache_write: int | None = 0
    cache_read: int | None = 0
    output: int | None = None
    reasoning: int | None = 0
    cache_write_1h: int | None = 0
    cost_nano: int | None = None
    context_window: int | None = None
    max_output: int | None = None
    web_searches: int | None = None


class TaskStarted(Event, tag="task_started", frozen=True, gc=False):
    """A subagent or a background command started. `background` None: not reported."""

    task: str = ""
    call: str | None = None
    kind: str | None = None
    agent_type: str | None = None
    description: str | None = None
    background: bool | None = None


class TaskProgress(Event, tag="task_progress", frozen=True, gc=False):
    """A sign of life from a subagent, a background command or a long tool call."""

    task: str = ""
    call: str | None = None
    tool: str | None = None
    elapsed_ms: int | None = None
    description: str | None = None


class TaskEnded(Event, tag="task_ended", frozen=True, gc=False):
    """A subagent or a background command ended: completed, failed or stopped.

    `usage` and `model` are those of a subagent's last request, if the agent reports them here.
    """

    task: str = ""
    call: str | None = None
    status: str | None = None
    summary: str | None = None
    usage: ModelUsage | None = None
    model: str | None = None


class Hook(Event, tag="hook", frozen=True, gc=False):
    """A user's hook started or finished, and printed `output`. `outcome` is None while it runs."""

    name: str | None = None
    moment: str | None = None
    exit_code: int | None = None
    outcome: str | None = None
    output: str | None = None


SUPERSEDED_NOTE = "superseded"  # first word of a note: the result of the run does not count
DENIED_NOTE = "denied before"  # first words of a note: the run before ended with denied calls


class Notice(Event, tag="notice", frozen=True, gc=False):
    """A known kind that changes no figure: a status, a title, a fallback to another model.

    Exceptions: `request` is a request whose usage the agent does not report; `totals` says that the
    requests do not make up the agent's own total, or without text that they do again; `cut`,
    without a line, that part of the recording could not be read; `line_cut` that a line was too
    long; a `note` is a decision of steno, such as SUPERSEDED_NOTE or DENIED_NOTE.
    """

    kind: str = ""
    text: str | None = None


class Failure(Event, tag="failure", frozen=True, gc=False):
    """A request failed for good: the agent's name for the error, and the HTTP status."""

    kind: str | None = None
    status: int | None = None
    text: str | None = None


class Result(Event, tag="result", frozen=True, gc=False):
    """The agent closes a turn with its own totals. A run may have several.

    `models` is cumulative (per process, or per session in newer versions); `models_since` counts
    since the previous result and is None if not reported. `over_session`: `usage` includes earlier
    runs of the session. `amends`: replaces the last result, with details from the transcript.
    `requests`: the number of requests, if the stream does not list them. `uuid` is the agent's id
    of the line; a second result with the same id is a duplicate. `answers_task`: the turn answers
    the end of background work, not a prompt. `web_searches` and `web_fetches` count what the
    model's vendor did; `service_tier` is the vendor's, such as `standard`. `deferred_tool`: a hook
    left a call of this tool to another program, which has to resume the session with its result.
    """

    subtype: str | None = None
    is_error: bool = False
    text: str | None = None
    errors: tuple[str, ...] = ()
    structured_output: Raw = NO_JSON
    terminal_reason: str | None = None
    stop_reason: str | None = None
    startup_failure: str | None = None
    api_error: str | None = None
    api_status: int | None = None
    local_command: str | None = None
    turns: int | None = None
    duration_ms: int | None = None
    duration_api_ms: int | None = None
    usage: ModelUsage | None = None
    models: dict[str, ModelUsage] | None = None
    models_since: dict[str, ModelUsage] | None = None
    cost_nano: int | None = None
    index: int | None = None
    subagents: int | None = None
    over_session: bool = False
    amends: bool = False
    requests: int | None = None
    uuid: str | None = None
    answers_task: bool = False
    web_searches: int | None = None
    web_fetches: int | None = None
    service_tier: str | None = None
    deferred_tool: str | None = None


class CostState(Event, tag="cost_state", frozen=True, gc=False):
    """A transcript's running totals for the session; the last one counts.

    `is_earlier`: the totals before this run, to subtract from those of its results. `of_run`: the
    totals of this run so far, for an agent that may end without a result.
    """

    cost_nano: int | None = None
    models: dict[str, ModelUsage] | None = None
    is_earlier: bool = False
    of_run: bool = False


class FileChanged(Event, tag="file_change", frozen=True, gc=False):
    """A file was changed, according to a tool's result, the file system or git (`source`)."""

    path: str = ""
    change: str = "modified"
    call: str | None = None
    source: str = "tool"


class Stderr(Event, tag="stderr", frozen=True, gc=False):
    """The agent wrote a line to stderr."""

    text: str = ""


class StopRequested(Event, tag="stop_requested", frozen=True, gc=False):
    """steno stopped the agent. `why`: timeout, stalled, interrupted, max_budget."""

    why: str = ""
    signal: int | None = None


class Alert(Event, tag="alert", frozen=True, gc=False):
    """steno's own: the context or a budget has reached a level that is to be reported.

    `kind`: context, tokens or cost (a budget). `level` is a fraction of `limit`; `used` and `limit`
    are in tokens, those of a cost in US dollars. `is_assumed`: the context window is not known.
    `is_passed`: a higher level was reached at the same time, so that this one is not printed.
    """

    kind: str = ""
    level: float = 0.0
    used: float = 0.0
    limit: float = 0.0
    is_assumed: bool = False
    is_passed: bool = False


class SchemaChecked(Event, tag="checked", frozen=True, gc=False):
    """The answer was checked against the requested JSON schema: its value, or the errors."""

    value: Raw = NO_JSON
    wrong: tuple[str, ...] = ()


class Exited(Event, tag="exited", frozen=True, gc=False):
    """The process exited. `code` is negative for a signal; None: it never started."""

    code: int | None = None


class Malformed(Event, tag="malformed", frozen=True, gc=False):
    """A line that is not JSON was skipped. `head`: its beginning; `torn`: truncated last line."""

    head: str = ""
    torn: bool = False


class Unknown(Event, tag="unknown", frozen=True, gc=False):
    """A line, block or kind unknown to this version, with its bytes unchanged."""

    kind: str = ""
    raw: bytes = b""


# The events by their kind, the name that JSON and options use.
EVENT_KINDS: dict[str, type[Event]] = {
    str(kind.__struct_config__.tag): kind for kind in Event.__subclasses__()
}
