"""Masks secrets in text that will be stored, by their name or their format. Pure.

Names that end in "tokens" and values that are plain numbers are kept: they are counts.
"""

import re
from typing import Any

MASK = "[redacted]"
LOOKAHEAD_CHARS = 200  # searched beyond a cut, to recognise a secret that starts before it
MIN_SECRET_CHARS = 32  # a shorter beginning of a secret may not be recognised as one

# Formats of providers' secrets. Each needs enough characters not to match prose such as "sk-learn".
_TOKEN_FORMATS = re.compile(
    r"\bsk-[A-Za-z0-9_-]{8,}"  # Anthropic, OpenAI and many gateways
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{8,}"
    r"|\bAIza[A-Za-z0-9_-]{20,}"
)
_BEARER = re.compile(r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{6,}", re.I)
_AUTHORIZATION_HEADER = re.compile(
    r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?!Bearer\b)(?:\w+\s+)?[^\s\"',;]+", re.I
)
_SECRET_NAMES = (
    r"(?:api[_-]?key|access[_-]?key|secret|token"  # noqa: S105  # a pattern, not a password
    r"|passw(?:or)?d|credential)"
)
# A name that ends in one of the words (or in key or id after it), a separator, and the value.
_NAMED_SECRET = re.compile(
    rf"(?P<name>{_SECRET_NAMES}(?:[_-]?(?:key|id|value))?(?:\\?[\"'])?\s*[=:]\s*)"
    r"(?:(?P<quote>\\?[\"'])(?P<words>.*?)(?P=quote)|(?!Bearer\b)(?!\d+\b)[^\s\"'&,;}\\]+)",
    re.I,
)
# The same with a quoted value that is cut off before its closing quote.
_UNCLOSED_SECRET = re.compile(
    rf"(?P<name>{_SECRET_NAMES}(?:[_-]?(?:key|id|value))?(?:\\?[\"'])?\s*[=:]\s*\\?)"
    r"(?:\"[^\"\n]*|'[^'\n]*)\Z",
    re.I,
)
_SECRET_OPTION = re.compile(rf"^--?[\w-]*{_SECRET_NAMES}[\w-]*$", re.I)


# Quick checks that avoid the slow patterns. A single character is searched first, which is many
# times faster; one pattern per word, because a fixed prefix makes the search faster.
_SECRET_NAME_PATTERNS = [
    (word, re.compile(word + r"""(?:or)?d?(?:[_-]?(?:key|id|value))?(?:\\?["'])?\s*[=:]"""))
    for word in ("key", "secret", "token", "passw", "credential")
]


def redact(text: str) -> str:
    """The text with every recognised secret masked."""
    small = text.lower()
    if "bearer" in small:
        text = _BEARER.sub(rf"\1{MASK}", text)
    if ":" in small or "=" in small:
        if "authorization" in small:
            text = _AUTHORIZATION_HEADER.sub(rf"\1{MASK}", text)
        if _has_secret_name(small):
            text = _NAMED_SECRET.sub(_mask_match, text)
    has_token_prefix = (
        ("-" in text and ("sk-" in text or "xox" in text))
        or (
            "_" in text
            and (
                "hp_" in text
                or "ho_" in text
                or "hu_" in text
                or "hs_" in text
                or "hr_" in text
                or "_pat_" in text
            )
        )
        or ("A" in text and ("AKIA" in text or "ASIA" in text or "AIza" in text))
    )
    return _TOKEN_FORMATS.sub(MASK, text) if has_token_prefix else text


def redact_and_truncate(text: str, most: int) -> str:
    """At most `most` characters of the text, without secrets or the beginning of one."""
    if len(text) <= most + LOOKAHEAD_CHARS:
        return redact(text) if len(text) <= most else redact(text)[:most]
    return redact_truncated(text[: most + LOOKAHEAD_CHARS])[:most]


def redact_truncated(text: str) -> str:
    """A truncated text without secrets; the possible beginning of one at its end is removed."""
    text = redact(text)
    if _has_secret_name(text.lower()):
        text = _UNCLOSED_SECRET.sub(rf"\g<name>{MASK}", text)
    before, mask, after = text.rpartition(MASK)
    return before + mask + after[:-MIN_SECRET_CHARS]


def _has_secret_name(small: str) -> bool:
    """Whether a lower-case text has the name of a secret with a separator after it."""
    for word, named in _SECRET_NAME_PATTERNS:  # noqa: SIM110  # a generator doubles the time
        if word in small and named.search(small):
            return True
    return False


def _mask_match(found: "re.Match[str]") -> str:
    quote = found["quote"] or ""
    return f"{found['name']}{quote}{MASK}{quote}"


def redact_value(value: Any) -> Any:
    """The value with all its texts redacted, including object keys."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, dict):
        clean = {}
        for key, item in value.items():
            is_text = isinstance(item, str) and item
            is_secret = is_text and _NAMED_SECRET.match(f"{key}={item}")  # by the field's name
            clean[redact_value(key)] = MASK if is_secret else redact_value(item)
        return clean
    return value


def redact_argv(argv: list[str]) -> list[str]:
    """A command line without secrets, including the values of options named like a secret."""
    clean: list[str] = []
    for word in argv:
        secret = bool(clean) and bool(_SECRET_OPTION.match(clean[-1])) and not word.startswith("--")
        clean.append(MASK if secret else redact(word))
    return clean
