"""What the verdict rules get, and what they give: the facts of a run, and a judgement. Pure."""

from msgspec import Struct, field

from .. import event as ev
from ..report import ADVISORY_PREFIXES, DeniedCall, HintTemplates, Report

MAX_ERROR_CHARS = 4096  # the recording keeps all of it
TRUNCATION_SUFFIX = " ... (truncated)"
ERROR_CATEGORIES = {
    "rate_limit": "rate_limit",
    **dict.fromkeys(("auth", "billing"), "auth"),
    **dict.fromkeys(("api", "network", "invalid_request", "context_full", "refused"), "api"),
    "interactive": "interactive",
    "background_task": "background-task",
    **dict.fromkeys(("subprocess", "not_found", "killed"), "subprocess"),
    **dict.fromkeys(("timeout", "stalled"), "timeout"),
}


class Facts(Struct):
    """Input of the rules: the report so far, and what the report does not show."""

    report: Report = field(default_factory=Report)
    result: ev.Result | None = None
    failure: ev.Failure | None = None
    exited: ev.Exited | None = None
    stop: ev.StopRequested | None = None
    schema_check: ev.SchemaChecked | None = None
    interrupted_line: int | None = None
    ends_with_local_command: bool = False  # a transcript that a user left with one, as /exit
    limit_line: int | None = None
    open_question: tuple[str, str | None, int] | None = None  # call id, message id, line
    last_message_id: str | None = None
    is_transcript_complete: bool = False  # a transcript that ends with the model's final text
    is_recording_truncated: bool = False  # a recording that was not closed
    final_text: str = ""
    pending_retry: ev.Retry | None = None  # the last one, without progress after it
    last_stop_reason: str | None = None  # of the main thread's last message
    unnamed_stop: str | None = None  # a key of STOPPED_BY for a success that is none
    background_launch_lines: dict[str, int] = field(default_factory=dict)
    background_end_lines: dict[str, int] = field(default_factory=dict)
    unresolved_denials: list[tuple[DeniedCall, int]] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    non_json_lines: list[str] = field(default_factory=list)
    use_heuristics: bool = True  # detect open questions and background work
    has_later_requests: bool = False  # the model was called again after the last result
    background_at_stop: frozenset[str] = frozenset()  # running when steno stopped it
    hint_templates: HintTemplates = HintTemplates()
    allow_option: str = ""  # of `steno run`, if that started the agent and the agent has rules
    has_worked: bool = False  # a tool changed a file, or a command ran that may do more than read
    exit_code_meaning: tuple[str, str] | None = None  # by the agent: verdict, message
    last_note: str = ""  # that steno added to the recording
    denied_before: str = ""  # the calls that were denied to the task's run before

    def add_note(self, text: str) -> None:
        self.last_note = text
        word, _, detail = text.partition(": ")
        if word == ev.DENIED_NOTE:
            self.denied_before = detail

    @property
    def error_text(self) -> str:
        """The agent's own error message; empty if there is none."""
        result = self.result
        failure_text = (self.failure.text or "") if self.failure is not None else ""
        if result is None:
            return failure_text
        if result.is_error or (result.subtype or "").startswith("error"):
            return result.text or "\n".join(result.errors) or failure_text
        return ""

    @property
    def evidence_lines(self) -> list[int]:
        """Lines with the agent's own statement about the end."""
        events = (self.failure, self.result)
        return sorted({event.line for event in events if event is not None and event.line})


class Judgement(Struct):
    """A verdict with its message, its hint and the lines that prove it."""

    verdict: str
    error: str | None = None
    hint: str | None = None
    evidence: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def apply_to(self, report: Report) -> None:
        """Write the judgement and what follows from it into the report."""
        report.verdict = self.verdict  # type: ignore[assignment]  # checked by tests
        report.error = self.error
        if self.error is not None and len(self.error) > MAX_ERROR_CHARS:
            report.error = self.error[:MAX_ERROR_CHARS] + TRUNCATION_SUFFIX
        report.hint = self.hint
        report.evidence = self.evidence
        report.warnings[:0] = self.warnings
        report.error_category = ERROR_CATEGORIES.get(self.verdict)
        lines = report.lines
        is_plain_text = 0 < lines.malformed == lines.read - lines.blank  # no line is JSON
        has_output = bool(
            report.result
            or report.text.strip()
            or report.structured_output is not None
            or is_plain_text
        )
        ended_well = report.exit_code == 0 or (
            report.exit_code is None and report.complete and report.error is None
        )
        report.succeeded = ended_well and has_output
        report.ok = self.verdict == "success" and not any(
            warning.startswith(ADVISORY_PREFIXES) for warning in report.warnings
        )
