"""The vocabulary: what a tick means, in one set of words for every agent.

It holds frozen values only. It never reads, folds, prints or judges, and imports nothing of ours.
Each docstring says *when* the event is emitted.
"""

from datetime import datetime
from typing import NamedTuple

from msgspec import Raw, Struct

NO_JSON = Raw(b"null")
OptionalStr = str | None  # None: not said
OptionalTime = datetime | None


class EventHead(NamedTuple):
    """The fields that all events share, in their order: a reader builds them once per line."""

    line: int
    session: str | None = None
    parent: str | None = None
    at: datetime | None = None


class Event(Struct, frozen=True, gc=False, tag_field="event", omit_defaults=True):
    """What all events share.

    `line` is the line of stdout it came from (0: not from stdout), `session` the agent's
    conversation, `parent` the call of the subagent it belongs to (None: the main thread), `at`
    its time where the line or the tick carries one.
    """

    line: int
    session: str | None
    parent: str | None
    at: datetime | None


class Started(Event, tag="started", frozen=True, gc=False):
    """The agent says what it is about to work with. May repeat, and need not be first; what it left out can follow.

    `transcript`: it comes from the first line of a file that the agent keeps; such a file need not have a result.
    `context_window` is the main model's, where the agent says it here and not in its account.
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


class UserMessage(Event, tag="user_message", frozen=True, gc=False):
    """Something was said to the model that is not a tool result.

    `kind`: prompt, synthetic (the agent's own words), replay, or interrupted (the marker that
    an agent leaves when a person or a signal cut it off).
    """

    kind: str = "prompt"
    text: str = ""


class Text(Event, tag="text", frozen=True, gc=False):
    """A finished block of the model's answer. `synthetic`: the agent wrote it, not the model."""

    message: str | None = None
    text: str = ""
    synthetic: bool = False


class Partial(Event, tag="partial", frozen=True, gc=False):
    """A piece of a text block that is still being written (only with partial messages on)."""

    text: str = ""


class Thinking(Event, tag="thinking", frozen=True, gc=False):
    """A finished block of the model's reasoning, as far as the agent shows it."""

    message: str | None = None
    text: str = ""


class ToolCall(Event, tag="tool_call", frozen=True, gc=False):
    """The model asks for a tool. It may still be refused, fail or be cut off.

    `background`: it was sent there on purpose; `asks`: only a person can answer it.
    """

    id: str = ""
    name: str = ""
    kind: str = "other"
    message: str | None = None
    input: Raw = NO_JSON
    background: bool = False
    asks: bool = False


class ToolResultDetails(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A structured tool result, typed. Long texts stay JSON until somebody decodes them (`text_of`).

    Which fields are filled tells which tool it was: Bash has stdout; Read has file; Edit has
    filePath and structuredPatch; Write has type create or update; Grep and Glob have filenames.
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


class ToolResult(Event, tag="tool_result", frozen=True, gc=False):
    """A tool answered. `content` is what the model saw; `output` the structured result, if any.

    `output` is an Outcome where the shape is known and the JSON as it came where it is not.
    """

    id: str = ""
    is_error: bool = False
    content: Raw = NO_JSON
    output: ToolResultDetails | Raw | None = None


class Usage(Event, tag="usage", frozen=True, gc=False):
    """What one request to the model used, in four counters that do not overlap.

    Emitted when a message is first seen and again when a figure of it changes. `final`: the
    agent said that the answer is complete, so `output` is its true size; else a lower bound.
    `uuid` is the agent's own name of the line: the same in its stream, in its transcript and in a copy of that.
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
    """A request failed and the agent waits before it tries again."""

    attempt: int | None = None
    limit: int | None = None
    status: int | None = None
    error: str | None = None
    delay_ms: int | None = None


class RateLimit(Event, tag="rate_limit", frozen=True, gc=False):
    """The agent tells how a usage limit stands. `resets_at` is in seconds since 1970."""

    status: str | None = None
    resets_at: int | None = None
    kind: str | None = None
    utilization: float | None = None


class Compaction(Event, tag="compaction", frozen=True, gc=False):
    """The conversation was replaced by a summary; sizes in tokens where the agent gives them."""

    trigger: str | None = None
    before: int | None = None
    after: int | None = None


class PermissionDenied(Event, tag="permission_denied", frozen=True, gc=False):
    """A call was refused. The same refusal may be told several times: by event, result and list.

    `settled`: a later call of that tool worked, as the agent's own file shows; the events need not come in that order.
    """

    call: str | None = None
    tool: str | None = None
    reason: str | None = None
    input: Raw = NO_JSON
    settled: bool = False


class TaskStarted(Event, tag="task_started", frozen=True, gc=False):
    """Work beside the main thread began: a subagent, or a command. `background` None: not said."""

    task: str = ""
    call: str | None = None
    kind: str | None = None
    agent_type: str | None = None
    description: str | None = None
    background: bool | None = None


class TaskProgress(Event, tag="task_progress", frozen=True, gc=False):
    """Work beside the main thread, or a long tool call, shows that it is alive."""

    task: str = ""
    call: str | None = None
    tool: str | None = None
    elapsed_ms: int | None = None


class TaskEnded(Event, tag="task_ended", frozen=True, gc=False):
    """Work beside the main thread is over: completed, failed, or stopped."""

    task: str = ""
    call: str | None = None
    status: str | None = None
    summary: str | None = None


class Hook(Event, tag="hook", frozen=True, gc=False):
    """A hook of the user began or answered. `outcome` is None while it runs."""

    name: str | None = None
    moment: str | None = None
    exit_code: int | None = None
    outcome: str | None = None


class Notice(Event, tag="notice", frozen=True, gc=False):
    """Something known that changes no figure: a status, a title, a fallback to another model.

    `request` is an exception: the model was asked, and the agent does not tell what that used. So is `cut`, which comes from
    no line: a part of the recording could not be read.
    """

    kind: str = ""
    text: str | None = None


class Failure(Event, tag="failure", frozen=True, gc=False):
    """The agent says that a request failed for good: its own word for it, and the HTTP status."""

    kind: str | None = None
    status: int | None = None
    text: str | None = None


class ModelUsage(Struct, frozen=True, gc=False):
    """One model's share of what a result or a cost line reports."""

    input: int | None = None
    cache_write: int | None = 0
    cache_read: int | None = 0
    output: int | None = None
    reasoning: int | None = 0
    cache_write_1h: int | None = 0
    cost_nano: int | None = None
    context_window: int | None = None
    max_output: int | None = None


class Result(Event, tag="result", frozen=True, gc=False):
    """The agent closes a turn with its own account. A run may hold several; see `meter.own_part`.

    `models` is cumulative (over the process, or over the whole session in newer versions);
    `models_since` counts since the result before it and is None where the agent does not say.
    `over_session`: `usage` counts over the whole session, what earlier runs used included.
    `amends`: it is the last result once more, with what only the agent's own file knows.
    `requests`: how many it stands for, where the stream shows none of them one by one.
    `uuid` is the agent's own name of the line: one that comes again is the same result.
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


class CostState(Event, tag="cost_state", frozen=True, gc=False):
    """A transcript's own running account of the whole session; the last one counts."""

    cost_nano: int | None = None
    models: dict[str, ModelUsage] | None = None


class FileChanged(Event, tag="file_change", frozen=True, gc=False):
    """A file did change: told by a tool's *result*, by the file system or by git."""

    path: str = ""
    change: str = "modified"
    call: str | None = None
    source: str = "tool"


class Stderr(Event, tag="stderr", frozen=True, gc=False):
    """A line that the agent wrote to stderr."""

    text: str = ""


class StopRequested(Event, tag="stop_requested", frozen=True, gc=False):
    """We asked the agent to end, and why: timeout, stalled, interrupted, max_budget."""

    why: str = ""
    signal: int | None = None


class SchemaChecked(Event, tag="checked", frozen=True, gc=False):
    """The answer was held against the JSON schema that was asked for: its value, or what is wrong with it."""

    value: Raw = NO_JSON
    wrong: tuple[str, ...] = ()


class Exited(Event, tag="exited", frozen=True, gc=False):
    """The process is gone. `code` is negative when a signal ended it; None: it never started."""

    code: int | None = None


class Malformed(Event, tag="malformed", frozen=True, gc=False):
    """A line that is not JSON was passed over; `head` is its beginning. `torn`: it was the last, cut off."""

    head: str = ""
    torn: bool = False


class Unknown(Event, tag="unknown", frozen=True, gc=False):
    """A line, block or kind that this version does not know; its bytes are kept as they came."""

    kind: str = ""
    raw: bytes = b""
