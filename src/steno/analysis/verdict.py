"""How a run ended: an ordered table of small rules, each a function from the facts to a verdict or None.

The first rule that speaks wins; the last one always does, so every run gets a word (V1). Structured
fields are asked first, words of the error text last, and never the transcript (V2). Pure.
"""

from collections.abc import Callable
from shlex import quote  # what an agent printed must not become shell words of its own

from msgspec import Struct, field

from .. import event as ev
from ..report import ADVISORY_PREFIXES, DeniedCall, HintTemplates, LineCounts, Report
from .error_map import (
    CONTEXT_FULL_PATTERN,
    VERDICT_HINTS,
    classify_by_fields,
    classify_by_text,
    contains_pattern,
)

MAX_ERROR_CHARS = 4096  # characters of an error text (V3); the whole stays on the tape
TRUNCATION_SUFFIX = " ... (truncated)"
SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    6: "SIGABRT",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
}

STARTUP_FIX_HINT = "the agent did not start its work: mend what the error names and run it again"

ERROR_CATEGORIES = {
    "rate_limit": "rate_limit",
    "auth": "auth",
    **dict.fromkeys(("api", "network", "invalid_request", "context_full", "refused"), "api"),
    "interactive": "interactive",
    "background_task": "background-task",
    **dict.fromkeys(("subprocess", "not_found", "killed"), "subprocess"),
    **dict.fromkeys(("timeout", "stalled"), "timeout"),
}


class Facts(Struct):
    """What the rules look at: the report so far, and what the fold saw that the report does not show."""

    report: Report = field(default_factory=Report)
    result: ev.Result | None = None
    failure: ev.Failure | None = None
    exited: ev.Exited | None = None
    stop: ev.StopRequested | None = None
    schema_check: ev.SchemaChecked | None = None
    interrupted_line: int | None = None
    limit_line: int | None = None
    open_question: tuple[str, str | None, int] | None = None
    last_message_id: str | None = None
    is_transcript_complete: bool = False  # a transcript that ends with the model's last word
    is_recording_truncated: bool = (
        False  # a tape that was not closed: whoever wrote it was killed, or had no room left
    )
    final_text: str = ""
    background_launch_lines: dict[str, int] = field(default_factory=dict)
    unresolved_denials: list[tuple[DeniedCall, int]] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    non_json_lines: list[str] = field(default_factory=list)
    use_heuristics: bool = True  # V5 and V6 can be switched off per run
    has_later_requests: bool = False  # the model was asked again after the last result
    background_at_stop: list[str] = field(
        default_factory=list
    )  # work in the background that went on when we asked the run to end
    hint_templates: HintTemplates = HintTemplates()
    exit_code_meaning: tuple[str, str] | None = (
        None  # what the exit code means by the agent's own rules: a word, a message
    )

    @property
    def error_text(self) -> str:
        """The agent's own words for what went wrong; empty when it said nothing."""
        result, failure = self.result, self.failure
        if result is not None and (result.is_error or (result.subtype or "").startswith("error")):
            return (
                result.text
                or "\n".join(result.errors)
                or (failure.text if failure is not None else None)
                or ""
            )
        if failure is not None and result is None:
            return failure.text or ""
        return ""

    @property
    def evidence_lines(self) -> list[int]:
        """Where the agent's own account of the end stands."""
        found = [
            event.line for event in (self.failure, self.result) if event is not None and event.line
        ]
        return sorted(set(found))


class Judgement(Struct):
    """One word with its proof: what happened, what to do, and the lines that say so."""

    verdict: str
    error: str | None = None
    hint: str | None = None
    evidence: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def apply_to(self, report: Report) -> None:
        """Write the judgement, and what follows from it, into the report."""
        report.verdict = self.verdict  # type: ignore[assignment]  # whoever judges has it of that list; the contract of an agent holds it
        report.error, report.hint = _truncate_error(self.error), self.hint
        report.evidence = self.evidence
        report.warnings[:0] = self.warnings
        report.error_category = ERROR_CATEGORIES.get(self.verdict)
        output = bool(
            report.result
            or report.text.strip()
            or report.structured_output is not None
            or _is_plain_text(report.lines)
        )
        ended_well = report.exit_code == 0 or (
            report.exit_code is None and report.complete and report.error is None
        )
        report.succeeded = ended_well and output
        report.ok = self.verdict == "success" and not any(
            note.startswith(ADVISORY_PREFIXES) for note in report.warnings
        )


def _is_plain_text(lines: LineCounts) -> bool:
    """Whether the agent answered in plain text: there is output, and not a line of it is JSON."""
    return 0 < lines.malformed == lines.read - lines.blank


Rule = Callable[[Facts], Judgement | None]


def judge(facts: Facts) -> Judgement:
    """The first verdict that a rule gives."""
    for rule in RULES:
        verdict = rule(facts)
        if verdict is not None:
            return verdict
    return Judgement("success", None, None, facts.evidence_lines)


def _truncate_error(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_ERROR_CHARS:
        return text
    return text[:MAX_ERROR_CHARS] + TRUNCATION_SUFFIX


def _fix_hint(facts: Facts) -> str:
    """What to do about a failure of the agent's own; one that came before its first request left nothing to go on with."""
    return (
        f"mend what the error names; to go on: {_resume_command(facts)}"
        if facts.report.requests
        else STARTUP_FIX_HINT
    )


def _resume_command(facts: Facts, prompt: str = "continue") -> str:
    session, go_on = facts.report.session_id, facts.hint_templates.resume
    return (
        go_on.format(session=quote(session), prompt=quote(prompt))
        if session and go_on
        else "start it again"
    )


# -- how the process ended --------------------------------------------------------------------------


def detect_missing_program(facts: Facts) -> Judgement | None:
    """The agent's program was not there to start."""
    exited = facts.exited
    if exited is None or exited.code not in (None, 127):
        return None
    text = "\n".join(facts.stderr) or "the agent's program was not found"
    return Judgement("not_found", text, "install the agent, or give its path")


def detect_stop_request(facts: Facts) -> Judgement | None:
    """We asked the run to end, and it had not closed with a result before."""
    word, _, what = (facts.stop.why if facts.stop is not None else "").partition(
        ": "
    )  # a clock says which one it was
    if word not in ("timeout", "stalled", "interrupted", "killed", "max_budget", "auth"):
        return None
    if facts.result is not None and not facts.result.is_error and not facts.has_later_requests:
        return None
    if word == "auth":
        return Judgement(
            "auth",
            "the key was rejected (401), and again when it was tried once more",
            VERDICT_HINTS["auth"],
            facts.evidence_lines,
        )
    return Judgement(
        word,
        f"ended by us: {what or word}",
        f"to go on: {_resume_command(facts)}",
        facts.evidence_lines,
    )


def detect_external_signal(facts: Facts) -> Judgement | None:
    """A signal ended it, told by the system (negative) or by the shell's convention (128 + number)."""
    code = facts.report.exit_code
    if (
        code is None
        or facts.exit_code_meaning is not None
        or (facts.result is not None and (code >= 0 or _was_stopped_after_result(facts)))
    ):
        return None
    number = -code if code < 0 else code - 128
    if number not in (1, 2, 3, 6, 9, 11, 15):
        return None
    word = "interrupted" if number == 2 else "killed"
    what = f"ended from outside by {SIGNAL_NAMES[number]} (exit code {code}) before a result"
    return Judgement(
        word,
        what,
        f"what was done until then is below; to go on: {_resume_command(facts)}",
        facts.evidence_lines,
    )


def _was_stopped_after_result(facts: Facts) -> bool:
    """The run had closed with its result, and lived on until we ended it: how it died says nothing."""
    return facts.stop is not None and not facts.has_later_requests


def detect_interruption(facts: Facts) -> Judgement | None:
    """The agent says that it was cut off."""
    result = facts.result
    aborted = result is not None and (result.terminal_reason or "").startswith("aborted_")
    if not aborted and (
        facts.interrupted_line is None or (result is not None and not result.is_error)
    ):
        return None
    lines = sorted(
        {*facts.evidence_lines, *([facts.interrupted_line] if facts.interrupted_line else [])}
    )
    return Judgement(
        "interrupted",
        "the run was interrupted before it was done",
        f"to go on: {_resume_command(facts)}",
        lines,
    )


# -- errors of the agent: structured fields --------------------------------------------------------


def detect_turn_limit(facts: Facts) -> Judgement | None:
    """The limit of turns, whatever is_error and the exit code say (V4)."""
    result = facts.result
    if result is None or "max_turns" not in (_error_kind(result), result.terminal_reason):
        return None
    text = "; ".join(result.errors) or result.text or "Reached maximum number of turns"
    if classify_by_text(text) == "rate_limit":
        return None
    return Judgement("max_turns", text, _more_turns_hint(facts), facts.evidence_lines)


def _more_turns_hint(facts: Facts) -> str:
    return f"not finished; go on with more turns: {_resume_command(facts)} {facts.hint_templates.turns}".rstrip()


def _error_kind(result: ev.Result) -> str:
    return (result.subtype or "").removeprefix("error_")


def detect_budget_limit(facts: Facts) -> Judgement | None:
    """The agent's own budget stopped it."""
    result = facts.result
    if result is None or (
        _error_kind(result) != "max_budget_usd" and result.terminal_reason != "budget_exhausted"
    ):
        return None
    text = "; ".join(result.errors) or "Reached maximum budget"
    return Judgement(
        "max_budget",
        text,
        f"not finished; raise the budget and go on: {_resume_command(facts)}",
        facts.evidence_lines,
    )


def detect_startup_failure(facts: Facts) -> Judgement | None:
    """The agent gave up before it asked the model anything: a wrong session, a broken configuration."""
    result = facts.result
    if result is None or not result.is_error or facts.failure is not None:
        return None
    if result.startup_failure is None and not (result.turns == 0 and facts.report.requests == 0):
        return None
    text = "\n".join(result.errors) or result.text or result.startup_failure
    return Judgement("subprocess", text, _startup_hint(text or ""), facts.evidence_lines)


def _startup_hint(text: str) -> str:
    if "No conversation found" in text or "requires a valid session" in text:
        return "that session is not here: start without --resume, or in the folder where the session was made"
    return STARTUP_FIX_HINT


def detect_agent_error(facts: Facts) -> Judgement | None:
    """The agent says that it failed, by is_error or an error subtype (V4). A success without is_error is none."""
    result, failure = facts.result, facts.failure
    if result is not None:
        if not result.is_error and not (result.subtype or "").startswith("error"):
            return None
    elif failure is None or facts.is_transcript_complete:
        return None
    text = facts.error_text
    told = facts.exit_code_meaning[0] if facts.exit_code_meaning is not None else None
    told = None if told == "interrupted" else told  # a run that tells its error was not cut off
    word = classify_by_fields(result, failure, text) or told or classify_by_text(text)
    return Judgement(
        word,
        text or "API error (no detail)",
        VERDICT_HINTS.get(word),
        _evidence_with_limit(facts, word),
    )


def _evidence_with_limit(facts: Facts, word: str) -> list[int]:
    extra = [facts.limit_line] if word == "rate_limit" and facts.limit_line else []
    return sorted({*facts.evidence_lines, *extra})


def detect_exit_code_mismatch(facts: Facts) -> Judgement | None:
    """The agent's account is good and its exit code is not: something failed after it. Where we ended it, the code is ours."""
    code = facts.report.exit_code
    if facts.result is None or code in (None, 0) or facts.stop is not None:
        return None
    text = "\n".join(facts.stderr).strip() or "nothing on stderr says why"
    return Judgement(
        "subprocess",
        f"the agent called it a success and exited with code {code}: {text}",
        _fix_hint(facts),
        facts.evidence_lines,
    )


# -- no account of the end ---------------------------------------------------------------------------


def detect_known_exit_code(facts: Facts) -> Judgement | None:
    """No result, and an exit code that has a meaning of its own with this agent."""
    if facts.result is not None or facts.exit_code_meaning is None:
        return None
    word, text = facts.exit_code_meaning
    hint = (
        _more_turns_hint(facts)
        if word == "max_turns"
        else VERDICT_HINTS.get(word, _fix_hint(facts))
    )
    return Judgement(word, text, hint, facts.evidence_lines)


def detect_process_failure(facts: Facts) -> Judgement | None:
    """No result, and an exit code that says so: wrong options, no prompt, or plain text in place of JSON."""
    code = facts.report.exit_code
    if facts.result is not None or code in (None, 0):
        return None
    text = "\n".join(facts.stderr).strip() or "\n".join(facts.non_json_lines).strip()
    if not facts.stderr and text:
        if contains_pattern(r"reached max(?:imum number of)? turns", text):
            return Judgement("max_turns", text, "not finished; go on with more turns")
        word = (
            "context_full"
            if contains_pattern(CONTEXT_FULL_PATTERN, text)
            else classify_by_text(text)
        )
        if word != "api":
            return Judgement(word, text, VERDICT_HINTS[word])
    what = text or f"the agent exited with code {code} and said nothing"
    return Judgement("subprocess", what, _fix_hint(facts))


def detect_missing_result(facts: Facts) -> Judgement | None:
    """The stream ended without a result (V9). The figures are from the messages, and incomplete.

    A transcript never has one: the model's last word is its end.
    """
    if facts.result is not None or (
        facts.is_transcript_complete and facts.report.exit_code is None
    ):
        return None
    torn = (
        " (its last line is cut)"
        if facts.report.lines.torn and not facts.is_recording_truncated
        else ""
    )
    torn = (
        " (the recording ends before the run did)"
        if facts.is_recording_truncated and facts.exited is None
        else torn
    )
    hint = (
        f"figures are from the messages only; to go on: {_resume_command(facts)}"
        if facts.report.session_id
        else None
    )
    if facts.non_json_lines and not facts.report.requests:
        hint = f"this is not a stream: run the agent with {facts.hint_templates.stream or 'its JSON lines'}"
    silent = facts.report.lines.read == facts.report.lines.blank
    said = f": {facts.stderr[-1]}" if silent and facts.stderr else ""  # it is all that there is
    return Judgement("no_result", f"the stream ended without a result{torn}{said}", hint, [])


def detect_schema_mismatch(facts: Facts) -> Judgement | None:
    """The answer does not fit the JSON schema that was asked for: there is no result to go on with."""
    if facts.schema_check is None or not facts.schema_check.wrong:
        return None
    text = f"the answer does not fit the JSON schema: {'; '.join(facts.schema_check.wrong)}"
    return Judgement(
        "no_result",
        text,
        f"make the schema or the prompt plainer; to go on: {_resume_command(facts)}",
        facts.evidence_lines,
    )


# -- advice: the agent calls it a success ------------------------------------------------------------


def detect_advisories(facts: Facts) -> Judgement | None:
    """V5 and V6, unless they are switched off."""
    return (
        detect_open_question(facts) or detect_background_work(facts)
        if facts.use_heuristics
        else None
    )


def detect_open_question(facts: Facts) -> Judgement | None:
    """The run ended by asking, and nobody was there to answer (V5)."""
    report, what = facts.report, None
    lines = facts.evidence_lines
    if facts.open_question is not None and facts.open_question[1] == facts.last_message_id:
        call = next((tool for tool in report.tools if tool.id == facts.open_question[0]), None)
        if call is None or not call.ok:
            what, lines = (
                f"{call.name if call else 'a question'} was called and never answered",
                [facts.open_question[2], *lines],
            )
    worked = bool(report.files) or any(tool.kind == "shell" and tool.ok for tool in report.tools)
    if what is None and facts.final_text.endswith("?") and (report.turns == 1 or not worked):
        what = "the final text is a question" + ("" if worked else ", and nothing was changed")
    if what is None:
        return None
    hint = (
        f"answer it: {_resume_command(facts, '<your answer>')}; or put the answer into the prompt"
    )
    return Judgement("interactive", None, hint, sorted(set(lines)), [f"interactive-hang: {what}"])


_WAITING_PATTERN = r"\b(?:waiting on|still waiting|continuing|in progress|in the background)\b"


def detect_background_work(facts: Facts) -> Judgement | None:
    """Background work was started and not seen to end, or the answer says it still waits (V6)."""
    report = facts.report
    open_ = [
        task
        for task in report.background
        if task.status == "running" or task.id in facts.background_at_stop
    ]
    few = (
        bool(facts.background_launch_lines)
        and (report.turns or 0) < len(facts.background_launch_lines) + 2
    )
    if not open_ and not (few and contains_pattern(_WAITING_PATTERN, facts.final_text)):
        return None
    names = ", ".join(task.description or task.id for task in open_)
    what = (
        f"{len(open_)} not seen to end: {names}"
        if open_
        else "the final text says that it still waits"
    )
    lines = sorted({*facts.background_launch_lines.values(), *facts.evidence_lines})
    hint = f"ask for its outcome: {_resume_command(facts, 'is the background work done?')}"
    return Judgement("background_task", None, hint, lines, [f"background-task: {what}"])


def detect_denied_calls(facts: Facts) -> Judgement | None:
    """Calls were refused and that tool never worked afterwards (V8)."""
    if not facts.unresolved_denials:
        return None
    rules = list(
        dict.fromkeys(
            denial.allow_rule for denial, _ in facts.unresolved_denials if denial.allow_rule
        )
    )
    tools = ", ".join(
        dict.fromkeys(denial.tool or "a tool" for denial, _ in facts.unresolved_denials)
    )
    allow = " ".join(quote(rule) for rule in rules)
    lines = sorted({line for _, line in facts.unresolved_denials if line})
    count = len(facts.unresolved_denials)
    warning = f"permission: {count} {'call was' if count == 1 else 'calls were'} refused ({tools})"
    return Judgement(
        "permission",
        None,
        f"to allow it: {facts.hint_templates.allow.format(rules=allow)}",
        lines,
        [warning],
    )


def detect_empty_answer(facts: Facts) -> Judgement | None:
    """A success with nothing to show: no text, no structured output, nothing changed."""
    report, result = facts.report, facts.result
    said = report.result or report.text.strip() or report.structured_output is not None
    did = (
        report.files
        or report.context.compactions
        or any(tool.kind == "shell" and tool.ok for tool in report.tools)
    )
    if said or did or (result is not None and result.local_command is not None):
        return None
    return Judgement(
        "empty",
        None,
        "the agent called it a success but gave no answer: run it again",
        facts.evidence_lines,
    )


RULES: tuple[Rule, ...] = (
    detect_missing_program,
    detect_stop_request,
    detect_external_signal,
    detect_interruption,
    detect_turn_limit,
    detect_budget_limit,
    detect_startup_failure,
    detect_agent_error,
    detect_exit_code_mismatch,
    detect_known_exit_code,
    detect_process_failure,
    detect_missing_result,
    detect_schema_mismatch,
    detect_advisories,
    detect_denied_calls,
    detect_empty_answer,
)
