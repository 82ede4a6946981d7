"""Maps an agent's error to a verdict: structured fields first, words of the error text last. Pure.

Only the error text is searched, never the transcript.
"""

import re
from collections.abc import Iterable

from .. import event as ev

_VERDICT_BY_ERROR_NAME: dict[str, str] = {
    "usage_limit_reached": "rate_limit",
    "rate_limit": "rate_limit",
    "authentication_failed": "auth",
    "oauth_org_not_allowed": "auth",
    "billing_error": "billing",
    "invalid_request": "invalid_request",
    "model_not_found": "invalid_request",
    "image_error": "invalid_request",
    "prompt_too_long": "context_full",
    "blocking_limit": "context_full",
    "rapid_refill_breaker": "context_full",
    "refusal": "refused",
    "max_output_tokens": "no_result",
    "connection_failed": "network",
}
# Result subtypes without "error_" that no tested version prints; from the documents of a wrapper.
_VERDICT_BY_SUBTYPE = {
    "permission_denied": "permission",
    "timeout": "timeout",
    "network": "network",
    "invalid_request": "invalid_request",
}
VERDICT_BY_STOP_REASON = {
    "refusal": "refused",
    "model_context_window_exceeded": "context_full",
}
# Of a run that reports success. An error with such a reason has a verdict of its own.
CUT_STOP_REASONS = {**VERDICT_BY_STOP_REASON, "max_tokens": "no_result"}
_VERDICT_BY_HTTP_STATUS = {
    401: "auth",
    402: "billing",
    403: "auth",
    429: "rate_limit",
    **dict.fromkeys((400, 404, 405, 409, 413, 422), "invalid_request"),
}

# Messages by the agent's name for what stopped the run.
STOPPED_BY = {
    "hook_stopped": "a hook stopped the run",
    "prevent_continuation": "a hook stopped the run",
    "stop_hook_prevented": "a hook stopped the run",
    "stop_execution": "a hook or policy stopped the run",
    "loop_detected": "the agent's loop detection stopped the run",
    # Claude Code up to 2.1.30 prints the same in these cases.
    "no_answer": (
        "the run ended after a tool result, without an answer: a hook stopped it, "
        "or the answer was cut off or empty"
    ),
}
# Messages for a last message that was cut off or declined, though the agent reports success.
CUT_MESSAGES = {
    "context_full": "the model reached its context window limit",
    "refused": "the model declined to answer",
    "no_result": "the model's answer was cut off at its output limit",
}

_SILENT_MESSAGES = {
    "permission": "permission denied",
    "timeout": "the agent's own time limit was reached",
    "network": "network error",
    "invalid_request": "request rejected",
    "rate_limit": "rate limited",
    "auth": "not signed in",
}


def silent_message(word: str, denied_tools: Iterable[str | None]) -> str:
    """The message of an error without a text, by its verdict."""
    tools = ", ".join(dict.fromkeys(filter(None, denied_tools)))
    if word == "permission" and tools:
        return f"permission denied: {tools}"
    return f"{_SILENT_MESSAGES.get(word, 'API error')} (no detail)"


# Patterns for error texts. They are compiled on first use: compiling all costs 4 ms at start-up.
CONTEXT_FULL_PATTERN = (
    r"prompt is too long|context (?:window|length) (?:is )?exceeded|input is too long"
    r"|context window limit|context_length_exceeded|exceeds? (?:the )?(?:model's )?context"
    r"|maximum context length is|input token count.{0,40}exceeds the maximum number of tokens"
    r"|range of input length should be"
)
# Limits that waiting does not lift. Gemini uses the last words also for limits per minute and day.
BILLING_PATTERN = (
    r"credit balance|insufficient[_ ](?:quota|credit|balance|funds)|out of credit"
    r"|requires more credits|payment[_ ]required|billing_error"
    r"|\A(?!.*(?:RESOURCE_EXHAUSTED|rate-limits|retry in|exceeded for metric)).*"
    r"check your plan and billing details"
)
# Up to 2.1.30, Claude Code names the refusal in the text only; the second text is that of Gemini
# 0.61, the third that of Codex 0.166. The word "refusal" is not enough.
_REFUSAL_PATTERN = (
    r"unable to respond to this request, which appears to violate .{0,40}Usage Policy"
    r"|\bmodel response was blocked due to\b|\((?:SAFETY|RECITATION|OTHER)\) with empty response"
    r"|Incomplete response returned, reason: content_filter"
)
# Of Codex 0.166 and Gemini 0.61.
_CUT_PATTERN = (
    r"Incomplete response returned, reason: max_output_tokens|\(MAX_TOKENS\) with empty response"
)
_NETWORK_PATTERN = (
    r"\b(?:ECONNRESET|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|ENETUNREACH|EHOSTUNREACH"
    r"|ConnectionRefused)\b"
    r"|unable to connect|connection (?:error|refused|reset|dropped|closed)"
    r"|request timed out|fetch failed|socket hang up"
)
# A number by itself: not the one in req_401abc, 0.403 or 1,429.
_WHOLE_NUMBER_PATTERN = r"(?:(?<![\w.,])|(?<=\bHTTP))(?:{})(?![\w]|[.,]\d)"
_RATE_LIMIT_PATTERN = (
    _WHOLE_NUMBER_PATTERN.format("429")
    + r"|rate[ _-]limit|\b(?:usage|session|weekly|\d+-hour) limit|too many requests"
    r"|RetryableQuotaError"
)
_AUTH_PATTERN = (
    _WHOLE_NUMBER_PATTERN.format("401|403")
    + r"|unauthori[sz]ed|authenticat|auth error|ANTHROPIC_API_KEY|invalid api key|not logged in"
    r"|please run /login"
)
# A model that the service does not know. Codex 0.169 and Gemini print no status with it.
_NO_MODEL_PATTERN = (
    r"\bmodel_not_found\b|\bModelNotFoundError\b|\bmodel not found\b"
    r"|\b(?:no such|unknown|invalid|unsupported) model\b"
    r"|\bmodels?[ :/`'\"]{1,3}[\w./:@-]{1,100}[`'\"]? (?:does not exist"
    r"|(?:is |was )?not (?:found|supported|available))"
    r"|[`'\"][\w./:@-]{1,100}[`'\"] model is not supported"
)

VERDICT_HINTS = {
    "rate_limit": "wait until the limit resets, then resume; or use another model or account",
    "auth": "sign in again or set a valid API key; retrying won't help",
    "billing": "add credit or fix the payment, or use another account; retrying won't help",
    "policy": "change the task or the rule (see: steno check --list-rules)",
    "api": "service error: try again later",
    "network": "service unreachable: check the connection and the base URL, then try again",
    "invalid_request": "request rejected: check the model name and the size of the request",
    "context_full": (
        "conversation exceeds the context window: compact it, or start a new session with a summary"
    ),
    "refused": "the model declined: rephrase the request",
    "no_result": "the answer is partial: ask for a shorter one, or raise the model's output limit",
    "empty": "the agent reported success without an answer: run it again",
    # Claude Code up to 2.1.84 prints the same in both cases.
    "no_request": (
        "the model was not asked: a hook blocked the prompt, "
        "or the prompt is a command without output"
    ),
}


def contains_pattern(pattern: str, text: str) -> bool:
    """Whether the text matches the pattern anywhere, ignoring case."""
    return re.search(pattern, text, re.I | re.S) is not None


def is_context_full(text: str) -> bool:
    return contains_pattern(CONTEXT_FULL_PATTERN, text)


def classify_by_fields(
    result: ev.Result | None, failure: ev.Failure | None, text: str, stop_reason: str | None = None
) -> str | None:
    """The verdict for a failure from its structured fields; None if they don't say.

    `stop_reason` is that of the main thread's last message.
    """
    kind = failure.kind if failure is not None else None
    if result is not None:
        for name in (result.api_error, result.terminal_reason):
            if name in _VERDICT_BY_ERROR_NAME:
                word = _VERDICT_BY_ERROR_NAME[name]
                # OpenAI's service says "invalid request" also of a prompt that is too long, and
                # Claude Code 2.1.325 "max_output_tokens" also of an answer that filled the window.
                is_unclear = word in ("invalid_request", "no_result")
                is_too_long = is_unclear and is_context_full(text)
                return "context_full" if is_too_long else word
        subtype = (result.subtype or "").removeprefix("error_")
        if subtype in _VERDICT_BY_SUBTYPE:
            return _VERDICT_BY_SUBTYPE[subtype]
        for reason in (result.stop_reason, stop_reason):
            if reason in VERDICT_BY_STOP_REASON:
                return VERDICT_BY_STOP_REASON[reason]
    if is_context_full(text):
        return "context_full"
    if contains_pattern(_REFUSAL_PATTERN, text):
        return "refused"
    if contains_pattern(_CUT_PATTERN, text):
        return "no_result"
    if kind == "billing_error" or contains_pattern(BILLING_PATTERN, text):
        return "billing"
    status = result.api_status if result is not None else None
    if status is None and failure is not None:
        status = failure.status
    if status is not None:
        return verdict_of_status(status)
    if kind in _VERDICT_BY_ERROR_NAME:
        return _VERDICT_BY_ERROR_NAME[kind]
    if contains_pattern(_NETWORK_PATTERN, text):
        return "network"
    # Older versions of Claude Code have the status only at the start of the text.
    match = re.match(r"API Error:? \(?(\d{3})\b", text)
    return None if match is None else verdict_of_status(int(match[1]))


def verdict_of_status(status: int | None) -> str | None:
    """The verdict of a failed request by its HTTP status."""
    if status is None:
        return None
    return _VERDICT_BY_HTTP_STATUS.get(status, "api" if status >= 500 else None)


def classify_by_text(text: str) -> str:
    """billing, rate_limit, auth, invalid_request or api, by the words of an error text."""
    if contains_pattern(BILLING_PATTERN, text):
        return "billing"
    if contains_pattern(_RATE_LIMIT_PATTERN, text):
        return "rate_limit"
    if contains_pattern(_AUTH_PATTERN, text):
        return "auth"
    return "invalid_request" if contains_pattern(_NO_MODEL_PATTERN, text) else "api"
