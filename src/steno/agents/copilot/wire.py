"""The line format of Copilot's stream and session files: {type, data, id, timestamp, agent_id?}.

Only fields that are read are declared. Values that may be long or of several types stay `Raw`.
"""

from msgspec import Raw, Struct

from ...codec.decode import Count, Instant
from ...event import NO_JSON


class Accounting(Struct, gc=False, rename="camel"):
    """The number of a request in its session, continued by resumed runs."""

    sequence: Count | None = None
    source_session_id: str | None = None


class UsageRecord(Struct, gc=False, rename="camel"):
    """One request. Input includes cache reads and writes; output includes reasoning."""

    model: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = 0
    cache_write_tokens: Count | None = 0
    reasoning_tokens: Count | None = 0
    max_prompt_tokens: Count | None = None
    api_call_id: str | None = None
    accounting: Accounting | None = None
    finish_reason: str | None = None


class RequestCount(Struct, gc=False, rename="camel"):
    count: Count | None = None


class ModelMetrics(Struct, gc=False, rename="camel"):
    """The requests to one model, of a process or of its whole session."""

    requests: RequestCount | None = None
    usage: UsageRecord | None = None


class CodeChanges(Struct, gc=False, rename="camel"):
    files_modified: list[str] | None = None


class SessionContext(Struct, gc=False, rename="camel"):
    cwd: str | None = None


class ToolError(Struct, gc=False, rename="camel"):
    message: str | None = None
    code: str | None = None


class ToolOutput(Struct, gc=False, rename="camel"):
    content: Raw = NO_JSON
    detailed_content: str | None = None


class ShellExecution(Struct, gc=False, rename="camel"):
    exit_code: int | None = None


class FileEdit(Struct, gc=False, rename="camel"):
    path: str = ""
    kind: str = ""


class EventData(Struct, gc=False, rename="camel"):
    """The data of an event; the fields depend on its type."""

    content: str | None = None
    delta_content: str | None = None
    message_id: str | None = None
    interaction_id: str | None = None
    api_call_id: str | None = None
    model: str | None = None
    session_id: str | None = None
    copilot_version: str | None = None
    selected_model: str | None = None
    new_model: str | None = None
    context: SessionContext | None = None
    usage: UsageRecord | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    mcp_server_name: str | None = None
    mcp_tool_name: str | None = None
    arguments: Raw = NO_JSON
    parent_tool_call_id: str | None = None
    is_user_requested: bool | None = None
    success: bool | None = None
    result: Raw = NO_JSON
    attachments: list[Raw] | None = None
    reasoning_text: str | None = None
    output: Raw = NO_JSON
    error: ToolError | str | None = None
    file_edits: list[FileEdit] | None = None
    shell_execution: ShellExecution | None = None
    error_type: str | None = None
    error_message: str | None = None
    message: str | None = None
    status_code: Count | None = None
    retry_attempt: Count | None = None
    reason: str | None = None
    info_type: str | None = None
    warning_type: str | None = None
    dispatch_duration_ms: Count | None = None
    outcome: str | None = None
    agent_name: str | None = None
    agent_type: str | None = None
    agent_description: str | None = None
    execution_mode: str | None = None
    cancelled: bool | None = None
    pre_compaction_tokens: Count | None = None
    post_compaction_tokens: Count | None = None
    hook_type: str | None = None
    model_metrics: dict[str, ModelMetrics] | None = None
    code_changes: CodeChanges | None = None


class ResultUsage(Struct, gc=False, rename="camel"):
    """Totals in the result, over the whole session."""

    total_api_duration_ms: Count | None = None


class EventLine(Struct, gc=False, rename="camel"):
    """An event, or the result, which has no data."""

    type: str = ""
    data: EventData | None = None
    id: str | None = None
    timestamp: Instant | None = None
    agent_id: str | None = None
    session_id: str | None = None
    exit_code: int | None = None
    usage: ResultUsage | None = None


class ToolInput(Struct, gc=False, rename="camel"):
    """The parts of an input that are read: the command, and whether it runs in the background."""

    mode: str | None = None
    detach: bool | None = None
    command: str | None = None
