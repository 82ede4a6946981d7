"""What an error of an agent means: its structured fields first, the words of its error text last (V2, V3). Pure.

It looks only at the error text and never at the transcript.
"""

import re

from .. import event as ev

_VERDICT_BY_ERROR_NAME: dict[str, str] = {
    "usage_limit_reached": "rate_limit",
    "rate_limit": "rate_limit",
    "authentication_failed": "auth",
    "oauth_org_not_allowed": "auth",
    "billing_error": "auth",
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
    402: "auth",
    403: "auth",
    429: "rate_limit",
    **dict.fromkeys((400, 404, 405, 409, 413, 422), "invalid_request"),
}
# Words of an error text. They stay plain text until one is needed: compiling them all costs a start 4 ms.
CONTEXT_FULL_PATTERN = (
    r"prompt is too long|context (?:window|length) (?:is )?exceeded|input is too long"
)
_NETWORK_PATTERN = (
    r"\b(?:ECONNRESET|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EPIPE|ENETUNREACH|EHOSTUNREACH|ConnectionRefused)\b"
    r"|unable to connect|connection (?:error|refused|reset|dropped|closed)|request timed out|fetch failed|socket hang up"
)


def contains_pattern(words: str, text: str) -> bool:
    """Whether a text has one of the words, in capitals or not."""
    return re.search(words, text, re.I) is not None


def classify_by_fields(
    result: ev.Result | None, failure: ev.Failure | None, text: str
) -> str | None:
    """The word for a failure, from what the agent says of it in fields; None where they say nothing."""
    if result is not None:
        for name in (result.api_error, result.terminal_reason):
            if name in _VERDICT_BY_ERROR_NAME:
                return _VERDICT_BY_ERROR_NAME[name]
        if result.stop_reason == "refusal":
            return "refused"
    if contains_pattern(CONTEXT_FULL_PATTERN, text):
        return "context_full"
    status = result.api_status if result is not None else None
    if status is None and failure is not None:
        status = failure.status
    if status is not None:
        return _VERDICT_BY_HTTP_STATUS.get(status, "api" if status >= 500 else None)
    if failure is not None and failure.kind in _VERDICT_BY_ERROR_NAME:
        return _VERDICT_BY_ERROR_NAME[failure.kind]
    return "network" if contains_pattern(_NETWORK_PATTERN, text) else None


_WHOLE_NUMBER_PATTERN = (
    r"(?<![\w.,])(?:{})(?![\w]|[.,]\d)"  # a number by itself: not in req_401abc, 0.403 or 1,429
)
_RATE_LIMIT_PATTERN = (
    _WHOLE_NUMBER_PATTERN.format("429")
    + r"|rate[ _-]limit|\b(?:usage|session|weekly|\d+-hour) limit"
)
_AUTH_PATTERN = (
    _WHOLE_NUMBER_PATTERN.format("401|403")
    + r"|unauthori[sz]ed|authenticat|auth error|ANTHROPIC_API_KEY|invalid api key|not logged in|please run /login"
)


def classify_by_text(text: str) -> str:
    """The class of an error text by its words; numbers only as whole numbers (V3)."""
    if contains_pattern(_RATE_LIMIT_PATTERN, text):
        return "rate_limit"
    return "auth" if contains_pattern(_AUTH_PATTERN, text) else "api"


VERDICT_HINTS = {
    "rate_limit": "wait until the limit resets, then resume; or use another model or account",
    "auth": "sign in again or set a valid key; trying again does not help",
    "api": "a fault of the service: try again in a while",
    "network": "the service could not be reached: check the connection and the base URL, then try again",
    "invalid_request": "the service refuses this request: check the model's name and the size of what was sent",
    "context_full": "the conversation does not fit the window: compact it, or start a new session with a summary",
    "refused": "the model declined: change the request",
}
