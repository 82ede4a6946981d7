"""Maps an agent's error to a verdict: structured fields first, words of the error text last. Pure.

Only the error text is searched, never the transcript.
"""

import re

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
    "connection_failed": "network",
}
_VERDICT_BY_HTTP_STATUS = {
    401: "auth",
    402: "billing",
    403: "auth",
    429: "rate_limit",
    **dict.fromkeys((400, 404, 405, 409, 413, 422), "invalid_request"),
}

# Patterns for error texts. They are compiled on first use: compiling all costs 4 ms at start-up.
CONTEXT_FULL_PATTERN = (
    r"prompt is too long|context (?:window|length) (?:is )?exceeded|input is too long"
    r"|maximum context length is \d|input token count .{0,40}exceeds the maximum number of tokens"
)
# Limits that waiting does not lift. Gemini uses the words of OpenAI ("exceeded your current quota")
# also for its limits per minute and day; only those name the rate limits.
BILLING_PATTERN = (
    r"credit balance|insufficient[_ ](?:quota|credit|balance|funds)|out of credit"
    r"|requires more credits|payment[_ ]required|billing_error"
    r"|check your plan and billing details(?!.*(?:rate-limits|retry in|exceeded for metric))"
)
_NETWORK_PATTERN = (
    r"\b(?:ECONNRESET|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|ENETUNREACH|EHOSTUNREACH"
    r"|ConnectionRefused)\b"
    r"|unable to connect|connection (?:error|refused|reset|dropped|closed)"
    r"|request timed out|fetch failed|socket hang up"
)
# A number by itself: not the one in req_401abc, 0.403 or 1,429.
_WHOLE_NUMBER_PATTERN = r"(?<![\w.,])(?:{})(?![\w]|[.,]\d)"
_RATE_LIMIT_PATTERN = (
    _WHOLE_NUMBER_PATTERN.format("429")
    + r"|rate[ _-]limit|\b(?:usage|session|weekly|\d+-hour) limit"
)
_AUTH_PATTERN = (
    _WHOLE_NUMBER_PATTERN.format("401|403")
    + r"|unauthori[sz]ed|authenticat|auth error|ANTHROPIC_API_KEY|invalid api key|not logged in"
    r"|please run /login"
)

VERDICT_HINTS = {
    "rate_limit": "wait until the limit resets, then resume; or use another model or account",
    "auth": "sign in again or set a valid API key; retrying won't help",
    "billing": "add credit or fix the payment, or use another account; retrying won't help",
    "api": "service error: try again later",
    "network": "service unreachable: check the connection and the base URL, then try again",
    "invalid_request": "request rejected: check the model name and the size of the request",
    "context_full": (
        "conversation exceeds the context window: compact it, or start a new session with a summary"
    ),
    "refused": "the model declined: rephrase the request",
}


def contains_pattern(pattern: str, text: str) -> bool:
    """Whether the text matches the pattern anywhere, ignoring case."""
    return re.search(pattern, text, re.I | re.S) is not None


def classify_by_fields(
    result: ev.Result | None, failure: ev.Failure | None, text: str
) -> str | None:
    """The verdict for a failure from its structured fields; None if they don't say."""
    if result is not None:
        for name in (result.api_error, result.terminal_reason):
            if name in _VERDICT_BY_ERROR_NAME:
                return _VERDICT_BY_ERROR_NAME[name]
        if result.stop_reason == "refusal":
            return "refused"
    if contains_pattern(CONTEXT_FULL_PATTERN, text):
        return "context_full"
    if contains_pattern(BILLING_PATTERN, text):
        return "billing"
    status = result.api_status if result is not None else None
    if status is None and failure is not None:
        status = failure.status
    if status is not None:
        return _VERDICT_BY_HTTP_STATUS.get(status, "api" if status >= 500 else None)
    if failure is not None and failure.kind in _VERDICT_BY_ERROR_NAME:
        return _VERDICT_BY_ERROR_NAME[failure.kind]
    return "network" if contains_pattern(_NETWORK_PATTERN, text) else None


def classify_by_text(text: str) -> str:
    """billing, rate_limit, auth or api, by the words of an error text."""
    if contains_pattern(BILLING_PATTERN, text):
        return "billing"
    if contains_pattern(_RATE_LIMIT_PATTERN, text):
        return "rate_limit"
    return "auth" if contains_pattern(_AUTH_PATTERN, text) else "api"
