"""How a run ended: an ordered table of rules, each a function from the facts to a verdict or None.

The first rule that returns a verdict wins; without one, the run is a success. Structured fields are
checked before the words of the error text; the transcript is never searched. Pure.
"""

from collections.abc import Callable
from shlex import quote

from .. import event as ev
from ..report import IDLE_SUFFIX, BackgroundTask, describe_denials
from .error_map import (
    CUT_MESSAGES,
    CUT_STOP_REASONS,
    STOPPED_BY,
    VERDICT_HINTS,
    classify_by_fields,
    classify_by_text,
    contains_pattern,
    is_context_full,
    silent_message,
    verdict_of_status,
)
from .facts import Facts, Judgement

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
FATAL_SIGNALS = (1, 2, 3, 6, 9, 11, 15)
MAX_CAUSE_CHARS = 100  # of the error of a retry, in a message

STARTUP_FIX_HINT = "the agent failed to start: fix the reported error, then run it again"

RUN_AGAIN = "run it again"
NO_CONTENT_TEXT = "(no content)"  # older versions of Claude Code print it for an empty message

Rule = Callable[[Facts], Judgement | None]


def judge(facts: Facts) -> Judgement:
    """The verdict of the first rule that gives one."""
    for rule in RULES:
        verdict = rule(facts)
        if verdict is not None:
            return verdict
    return Judgement("success", None, None, facts.evidence_lines)


def _fix_hint(facts: Facts) -> str:
    if facts.report.requests == 0:
        return STARTUP_FIX_HINT  # there is nothing to resume
    return f"fix the reported error, then continue: {_resume_command(facts)}"


def _continue_hint(facts: Facts) -> str:
    command = _resume_command(facts)
    return command if command == RUN_AGAIN else f"to continue: {command}"


def _more_turns_hint(facts: Facts) -> str:
    command = f"{_resume_command(facts)} {facts.hint_templates.turns}"
    return f"not finished; continue with more turns: {command}".rstrip()


def _resume_command(facts: Facts, prompt: str = "continue") -> str:
    session = facts.report.session_id
    template = facts.hint_templates.resume
    if not session or not template:
        return RUN_AGAIN
    # Quoted: text printed by an agent must not become shell syntax.
    return template.format(session=quote(session), prompt=quote(prompt))


# -- how the process ended -------------------------------------------------------------------------


def detect_missing_program(facts: Facts) -> Judgement | None:
    """The agent's program was not found."""
    exited = facts.exited
    if exited is None or exited.code not in (None, 127):
        return None
    text = "\n".join(facts.stderr) or "agent program not found"
    return Judgement("not_found", text, "install the agent, or pass the path of its program")


_STOP_VERDICTS = {
    *("timeout", "stalled", "interrupted", "killed", "max_budget", "max_turns", "policy", "auth")
}
_STOP_MESSAGES = {
    "interrupted": "interrupted (Ctrl-C or steno stop)",
    "max_budget": "stopped by steno: budget used up",
    "max_turns": "stopped by steno: turn limit reached",
}


def _while_retrying(facts: Facts) -> str:
    """The addition to a message if the agent was ended while it repeated a failed request."""
    retry = facts.pending_retry
    if retry is None:
        return ""
    cause = retry.error or (f"HTTP {retry.status}" if retry.status is not None else "an error")
    return f", while retrying a request ({cause.strip()[:MAX_CAUSE_CHARS]})"


def detect_stop_request(facts: Facts) -> Judgement | None:
    """steno stopped the run before it closed with a result."""
    reason = facts.stop.why if facts.stop is not None else ""
    word, _, detail = reason.partition(": ")
    if word not in _STOP_VERDICTS:
        return None
    if facts.result is not None and not facts.result.is_error and not facts.has_later_requests:
        return None
    if word in ("auth", "policy"):
        rejected = "API key rejected (401), also on retry"
        message = rejected if word == "auth" else f"stopped by a policy: {detail}"
        return Judgement(word, message, VERDICT_HINTS[word], facts.evidence_lines)
    message = _STOP_MESSAGES.get(reason, f"stopped by steno: {detail or word}")
    message += _while_retrying(facts)
    hint = _more_turns_hint(facts) if word == "max_turns" else _continue_hint(facts)
    return Judgement(word, message, hint, facts.evidence_lines)


def detect_external_signal(facts: Facts) -> Judgement | None:
    """A signal ended the process: a negative exit code, or the shell's 128 + number."""
    code = facts.report.exit_code
    if code is None or facts.exit_code_meaning is not None:
        return None
    if facts.result is not None and facts.stop is not None and not facts.has_later_requests:
        return None  # steno stopped it after its result: the exit code says nothing about the run
    number = -code if code < 0 else code - 128
    if number not in FATAL_SIGNALS:
        return None
    word = "interrupted" if number == 2 else "killed"
    moment = "before a result" if facts.result is None else "after its result"
    message = (
        f"{word} by {SIGNAL_NAMES[number]} {moment} (exit code {code}){_while_retrying(facts)}"
    )
    hint = f"the results are partial; {_continue_hint(facts)}"
    return Judgement(word, message, hint, facts.evidence_lines)


def detect_interruption(facts: Facts) -> Judgement | None:
    """The agent reports that it was interrupted."""
    result = facts.result
    is_aborted = result is not None and (result.terminal_reason or "").startswith("aborted_")
    ended_well = result is not None and not result.is_error
    if not is_aborted and (facts.interrupted_line is None or ended_well):
        return None
    lines = set(facts.evidence_lines)
    if facts.interrupted_line:
        lines.add(facts.interrupted_line)
    message = "the run was interrupted before it finished"
    return Judgement("interrupted", message, _continue_hint(facts), sorted(lines))


def detect_halted_run(facts: Facts) -> Judgement | None:
    """A hook or the agent's own loop detection stopped the run before it was done."""
    result = facts.result
    failure = facts.failure
    names = [] if result is None else [result.terminal_reason, result.api_error, result.subtype]
    if failure is not None:
        names.append(failure.kind)
    name = next((name for name in names if name in STOPPED_BY), None)
    name = name or facts.unnamed_stop
    if name is None:
        return None
    message = STOPPED_BY[name]
    detail = facts.error_text or (failure.text if failure is not None else None)
    if detail:
        message = detail if name == "prevent_continuation" else f"{message}: {detail}"
    hint = f"fix the cause or change the prompt, then continue: {_resume_command(facts)}"
    return Judgement("stopped", message, hint, facts.evidence_lines)


# -- errors of the agent: structured fields --------------------------------------------------------


def detect_turn_limit(facts: Facts) -> Judgement | None:
    """The turn limit was reached, whatever is_error and the exit code say."""
    result = facts.result
    if result is None:
        return None
    is_limit = result.subtype in ("max_turns", "error_max_turns")
    if not is_limit and result.terminal_reason != "max_turns":
        return None
    text = "; ".join(result.errors) or result.text or "Reached maximum number of turns"
    if classify_by_text(text) == "rate_limit":
        return None
    return Judgement("max_turns", text, _more_turns_hint(facts), facts.evidence_lines)


def detect_budget_limit(facts: Facts) -> Judgement | None:
    """The agent's own budget limit was reached."""
    result = facts.result
    if result is None:
        return None
    is_limit = result.subtype in ("max_budget_usd", "error_max_budget_usd")
    if not is_limit and result.terminal_reason != "budget_exhausted":
        return None
    text = "; ".join(result.errors) or "Reached maximum budget"
    hint = f"not finished; raise the budget and continue: {_resume_command(facts)}"
    return Judgement("max_budget", text, hint, facts.evidence_lines)


def detect_startup_failure(facts: Facts) -> Judgement | None:
    """The agent failed before its first request: unknown session, broken configuration."""
    result = facts.result
    if result is None or not result.is_error or facts.failure is not None:
        return None
    if result.startup_failure is None and not (result.turns == 0 and not facts.report.requests):
        return None
    text = "\n".join(result.errors) or result.text or result.startup_failure
    return Judgement("subprocess", text, _startup_hint(text or ""), facts.evidence_lines)


def _startup_hint(text: str) -> str:
    phrases = ("No conversation found", "requires a valid session", "Session not found")
    if any(phrase in text for phrase in phrases):
        return "session not found: run without --resume, or in the folder where it was created"
    return STARTUP_FIX_HINT


def detect_agent_error(facts: Facts) -> Judgement | None:
    """The agent reports a failure, by is_error or by an error subtype."""
    result = facts.result
    failure = facts.failure
    if result is not None:
        if not result.is_error and not (result.subtype or "").startswith("error"):
            return None
    elif failure is None or facts.is_transcript_complete:
        return None
    text = facts.error_text
    is_silent = not text and not facts.final_text and failure is None
    if result is not None and is_silent and _is_empty_answer(result):
        return Judgement("empty", None, VERDICT_HINTS["empty"], facts.evidence_lines)
    by_exit_code = facts.exit_code_meaning[0] if facts.exit_code_meaning is not None else None
    if by_exit_code == "interrupted":  # an interrupted run does not report an error
        by_exit_code = None
    by_fields = classify_by_fields(result, failure, text, facts.last_stop_reason)
    word = by_fields or by_exit_code or classify_by_text(text)
    if word == "api" and not by_fields and facts.pending_retry is not None:
        word = verdict_of_status(facts.pending_retry.status) or word  # the text gives no reason
    lines = set(facts.evidence_lines)
    if word == "rate_limit" and facts.limit_line:
        lines.add(facts.limit_line)
    denied_tools = (denial.tool for denial in facts.report.denials)
    message = text or silent_message(word, denied_tools)
    hint = VERDICT_HINTS.get(word) or _continue_hint(facts)
    return Judgement(word, message, hint, sorted(lines))


def _is_empty_answer(result: ev.Result) -> bool:
    """Older versions of Claude Code call it an error, without is_error, if the model said nothing.

    The request itself succeeded: its output is in the totals.
    """
    has_output = result.usage is not None and bool(result.usage.output)
    return not result.is_error and result.subtype == "error_during_execution" and has_output


def detect_cut_answer(facts: Facts) -> Judgement | None:
    """The agent reports success, but the model's last message was cut off or declined."""
    if facts.result is None:
        return None
    reason = facts.result.stop_reason or facts.last_stop_reason or ""  # older results have none
    word = CUT_STOP_REASONS.get(reason)
    if word is None:
        return None
    return Judgement(word, CUT_MESSAGES[word], VERDICT_HINTS[word], facts.evidence_lines)


def detect_exit_code_mismatch(facts: Facts) -> Judgement | None:
    """The agent reports success but its exit code does not, and steno did not stop it."""
    code = facts.report.exit_code
    if facts.result is None or code in (None, 0) or facts.stop is not None:
        return None
    stderr = "\n".join(facts.stderr).strip() or "no output on stderr"
    message = f"the agent reported success but exited with code {code}: {stderr}"
    return Judgement("subprocess", message, _fix_hint(facts), facts.evidence_lines)


# -- no result -------------------------------------------------------------------------------------


def detect_known_exit_code(facts: Facts) -> Judgement | None:
    """No result, and an exit code with a meaning for this agent."""
    if facts.result is not None or facts.exit_code_meaning is None:
        return None
    word, text = facts.exit_code_meaning
    hint = VERDICT_HINTS.get(word) or _fix_hint(facts)
    if word == "max_turns":
        hint = _more_turns_hint(facts)
    return Judgement(word, text, hint, facts.evidence_lines)


def detect_process_failure(facts: Facts) -> Judgement | None:
    """No result and a failing exit code: wrong options, no prompt, or plain-text output."""
    code = facts.report.exit_code
    if facts.result is not None or code in (None, 0):
        return None
    text = "\n".join(facts.stderr).strip() or "\n".join(facts.non_json_lines).strip()
    if not facts.stderr and text:
        judgement = _judge_plain_text(text)
        if judgement is not None:
            return judgement
    message = text or f"the agent exited with code {code} and no output"
    return Judgement("subprocess", message, _fix_hint(facts))


def _judge_plain_text(text: str) -> Judgement | None:
    if contains_pattern(r"reached max(?:imum number of)? turns", text):
        return Judgement("max_turns", text, "not finished; continue with more turns")
    if is_context_full(text):
        return Judgement("context_full", text, VERDICT_HINTS["context_full"])
    word = classify_by_text(text)
    return None if word == "api" else Judgement(word, text, VERDICT_HINTS[word])


def detect_missing_result(facts: Facts) -> Judgement | None:
    """The stream ended without a result; the figures come from its messages.

    Transcripts never have a result: they end with the model's final text.
    """
    exit_code = facts.report.exit_code
    if facts.result is not None or (facts.is_transcript_complete and exit_code is None):
        return None
    lines = facts.report.lines
    detail = ""
    if facts.is_recording_truncated and facts.exited is None:
        detail = " (recording truncated)"
    elif lines.torn and not facts.is_recording_truncated:
        detail = " (last line truncated)"
    if lines.read == lines.blank and facts.stderr:
        detail += f": {facts.stderr[-1]}"
    elif lines.read == lines.blank and facts.exited is None and not detail:
        detail = " (empty input)"
    elif exit_code == 0 and facts.report.requests and not detail:
        detail = " (exit code 0, but the end of its output is missing)"
    hint = None
    if facts.non_json_lines and not (facts.report.requests or facts.report.session_id):
        hint = f"not a JSON stream: start it with {facts.hint_templates.stream or 'JSON output'}"
    elif facts.report.session_id:
        hint = f"figures come from the messages only; {_continue_hint(facts)}"
    return Judgement("no_result", f"the stream ended without a result{detail}", hint)


def detect_schema_mismatch(facts: Facts) -> Judgement | None:
    """The answer does not match the requested JSON schema."""
    if facts.schema_check is None or not facts.schema_check.wrong:
        return None
    message = f"the answer does not match the JSON schema: {'; '.join(facts.schema_check.wrong)}"
    hint = f"simplify the schema or the prompt; {_continue_hint(facts)}"
    return Judgement("no_result", message, hint, facts.evidence_lines)


def detect_deferred_call(facts: Facts) -> Judgement | None:
    """A hook deferred a call: the agent waits for its result, though it reports success."""
    result = facts.result
    if result is None:
        return None
    names = (result.terminal_reason, result.stop_reason)
    if result.deferred_tool is None and "tool_deferred" not in names:
        return None
    tool = result.deferred_tool or "a tool"
    return Judgement(
        verdict="interactive",
        hint=f"run the call, then continue: {_resume_command(facts)}",
        evidence=facts.evidence_lines,
        warnings=[f"interactive-hang: the call of {tool} was deferred by a hook"],
    )


# -- advisories: the agent reports success ---------------------------------------------------------


def detect_open_question(facts: Facts) -> Judgement | None:
    """The run ended with a question that was not answered."""
    if not facts.use_heuristics:
        return None
    report = facts.report
    lines = facts.evidence_lines
    message = None
    question = facts.open_question
    if question is not None and question[1] == facts.last_message_id:
        call = next((tool for tool in report.tools if tool.id == question[0]), None)
        if call is None or not call.ok:
            message = f"{call.name if call else 'a question'} was called but not answered"
            lines = [question[2], *lines]
    has_worked = facts.has_worked or bool(report.files)
    ends_with_question = facts.final_text.endswith("?") and (report.turns == 1 or not has_worked)
    if facts.ends_with_local_command:
        ends_with_question = False  # a user was there to answer
    if message is None and ends_with_question:
        ending = "" if has_worked else " and nothing was changed"
        message = f"the final text is a question{ending}"
    if message is None:
        return None
    command = _resume_command(facts, "<your answer>")
    return Judgement(
        verdict="interactive",
        hint=f"answer it: {command}; or include the answer in the prompt",
        evidence=sorted(set(lines)),
        warnings=[f"interactive-hang: {message}"],
    )


_WAITING_PATTERN = r"\b(?:waiting on|still waiting|continuing|in progress|in the background)\b"


def detect_background_work(facts: Facts) -> Judgement | None:
    """Background work did not finish, or the final text says that it is still running."""
    if not facts.use_heuristics:
        return None
    report = facts.report
    unfinished = [task for task in report.background if not _has_finished(task, facts)]
    launches = facts.background_launch_lines
    has_few_turns = bool(launches) and (report.turns or 0) < len(launches) + 2
    if facts.result is not None and facts.result.answers_task:
        has_few_turns = False  # the final text is about the outcome
    if unfinished:
        names = ", ".join(task.description or task.id for task in unfinished)
        message = f"{len(unfinished)} not finished: {names}"
    elif has_few_turns and contains_pattern(_WAITING_PATTERN, facts.final_text):
        message = "the final text says that work is still running"
    else:
        return None
    return Judgement(
        verdict="background_task",
        hint=f"ask for the outcome: {_resume_command(facts, 'is the background work done?')}",
        evidence=sorted({*launches.values(), *facts.evidence_lines}),
        warnings=[f"background-task: {message}"],
    )


def _has_finished(task: BackgroundTask, facts: Facts) -> bool:
    if task.status == "running" or task.id in facts.background_at_stop:
        return False
    return task.status not in ("stopped", "killed") or not ended_after_result(task, facts)


def ended_after_result(task: BackgroundTask, facts: Facts) -> bool:
    """Whether a background task ended after the last result: the model did not react to it."""
    result = facts.result
    return result is not None and facts.background_end_lines.get(task.id, 0) > result.line


def detect_denied_calls(facts: Facts) -> Judgement | None:
    """Calls were denied and their tool did not succeed afterwards."""
    if not facts.unresolved_denials:
        return None
    denials = [denial for denial, _ in facts.unresolved_denials]
    rules = dict.fromkeys(denial.allow_rule for denial in denials if denial.allow_rule)
    return Judgement(
        verdict="permission",
        hint=_allow_hint(facts, list(rules)),
        evidence=sorted({line for _, line in facts.unresolved_denials if line}),
        warnings=[f"permission: {describe_denials(denials)}"],
    )


def detect_idle_retry(facts: Facts) -> Judgement | None:
    """Calls were denied to the run before, and this one made no call and changed nothing."""
    report = facts.report
    if not facts.denied_before or report.tools or report.tool_counts or report.files:
        return None
    return Judgement(
        verdict="permission",
        hint="permit the calls, then run it again",
        evidence=facts.evidence_lines,
        warnings=[f"permission: {facts.denied_before}{IDLE_SUFFIX}"],
    )


NO_ALLOW_RULE = (
    "no allow rule permits this: it was denied by a hook, a deny rule, the permission mode or a "
    "protected path"
)


def _allow_hint(facts: Facts, rules: list[str]) -> str:
    if not rules:
        return NO_ALLOW_RULE
    if facts.allow_option:
        return "to allow it: " + " ".join(f"{facts.allow_option} {quote(rule)}" for rule in rules)
    quoted_rules = " ".join(map(quote, rules))
    return f"to allow it: {facts.hint_templates.allow.format(rules=quoted_rules)}"


def detect_empty_answer(facts: Facts) -> Judgement | None:
    """A success without text, structured output or changes."""
    report = facts.report
    result = facts.result
    has_text = any(
        text not in ("", NO_CONTENT_TEXT) for text in (report.result or "", report.text.strip())
    )
    has_answer = has_text or report.structured_output is not None
    has_worked = facts.has_worked or report.files or report.context.compactions
    is_local_command = (result is not None and result.local_command is not None) or (
        facts.ends_with_local_command and not report.tokens.total
    )
    if has_answer or has_worked or is_local_command:
        return None
    hint = VERDICT_HINTS["no_request" if report.tokens.total == 0 else "empty"]
    return Judgement("empty", None, hint, facts.evidence_lines)


def detect_superseded_result(facts: Facts) -> Judgement | None:
    """A success that came too late: its task had been started again."""
    word, _, reason = facts.last_note.partition(": ")
    if word != ev.SUPERSEDED_NOTE:
        return None
    hint = "nothing to do: another run of the task counts"
    return Judgement("interrupted", f"result not used: {reason}", hint, facts.evidence_lines)


RULES: tuple[Rule, ...] = (
    detect_missing_program,
    detect_stop_request,
    detect_external_signal,
    detect_interruption,
    detect_halted_run,
    detect_turn_limit,
    detect_budget_limit,
    detect_startup_failure,
    detect_agent_error,
    detect_cut_answer,
    detect_exit_code_mismatch,
    detect_known_exit_code,
    detect_process_failure,
    detect_missing_result,
    detect_schema_mismatch,
    detect_deferred_call,
    detect_open_question,
    detect_background_work,
    detect_denied_calls,
    detect_idle_retry,
    detect_empty_answer,
    detect_superseded_result,
)
