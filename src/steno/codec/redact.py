"""Keys and tokens out of text that will be stored: by the name before them and by their own shape (L5). Pure.

A count of tokens is no token and a label is no key: names that end in "tokens" and values that are plain
numbers are left alone.
"""

import re
from typing import Any

MASK = "[redacted]"
LOOKAHEAD_CHARS = (
    200  # characters looked at beyond a cut: a secret that begins before it is told by these
)
MIN_SECRET_CHARS = (
    32  # characters: the beginning of a secret that is shorter than this need not be told as one
)

# What providers' secrets look like. Each needs enough characters to not hit prose such as "sk-learn".
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
_SECRET_NAMES = r"(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|credential)"  # noqa: S105
# A name that ends in one of the words (or in key or id after it), a separator, and the value: quoted, or one word.
_NAMED_SECRET = re.compile(
    rf"(?P<name>{_SECRET_NAMES}(?:[_-]?(?:key|id|value))?(?:\\?[\"'])?\s*[=:]\s*)"
    r"(?:(?P<quote>\\?[\"'])(?P<words>.*?)(?P=quote)|(?!Bearer\b)(?!\d+\b)[^\s\"'&,;}\\]+)",
    re.I,
)
# The same, quoted, where the text ends before the quote does.
_UNCLOSED_SECRET = re.compile(
    rf"(?P<name>{_SECRET_NAMES}(?:[_-]?(?:key|id|value))?(?:\\?[\"'])?\s*[=:]\s*\\?)(?:\"[^\"\n]*|'[^'\n]*)\Z",
    re.I,
)
_SECRET_OPTION = re.compile(rf"^--?[\w-]*{_SECRET_NAMES}[\w-]*$", re.I)


# What stands in or beside every secret: a text without it need not be searched for that kind. Single letters are looked
# for first, because that is many times as fast, and one pattern serves one word, because a search for a fixed beginning is.
_SECRET_NAME_PATTERNS = [
    (word, re.compile(word + r"""(?:or)?d?(?:[_-]?(?:key|id|value))?(?:\\?["'])?\s*[=:]"""))
    for word in ("key", "secret", "token", "passw", "credential")
]


def redact(text: str) -> str:
    """The text with every secret that can be told as one replaced by a mask."""
    small = text.lower()
    if "bearer" in small:
        text = _BEARER.sub(rf"\1{MASK}", text)
    if ":" in small or "=" in small:
        if "authorization" in small:
            text = _AUTHORIZATION_HEADER.sub(rf"\1{MASK}", text)
        if _has_secret_name(small):
            text = _NAMED_SECRET.sub(_mask_match, text)
    return _TOKEN_FORMATS.sub(MASK, text) if _has_token_format(text) else text


def redact_and_truncate(text: str, most: int) -> str:
    """The beginning of a text, of at most so many characters, without secrets and without the beginning of one."""
    if len(text) <= most:
        return redact(text)
    return (
        redact(text)
        if len(text) <= most + LOOKAHEAD_CHARS
        else redact_truncated(text[: most + LOOKAHEAD_CHARS])
    )[:most]


def redact_truncated(text: str) -> str:
    """A text whose end was cut off, without secrets; what may be the beginning of one at its end goes too."""
    text = redact(text)
    if _has_secret_name(text.lower()):
        text = _UNCLOSED_SECRET.sub(rf"\g<name>{MASK}", text)
    before, mask, after = text.rpartition(MASK)
    return before + mask + after[:-MIN_SECRET_CHARS]


def _has_secret_name(small: str) -> bool:
    """Whether a name of a secret stands in a text, given in small letters, with a separator after it."""
    for word, named in _SECRET_NAME_PATTERNS:  # noqa: SIM110  # a generator costs as much as the rest of it
        if word in small and named.search(small):
            return True
    return False


def _has_token_format(text: str) -> bool:
    """Whether something that providers' secrets begin with stands in the text."""
    if "-" in text and ("sk-" in text or "xox" in text):
        return True
    if "_" in text and (
        "hp_" in text
        or "ho_" in text
        or "hu_" in text
        or "hs_" in text
        or "hr_" in text
        or "_pat_" in text
    ):
        return True
    return "A" in text and ("AKIA" in text or "ASIA" in text or "AIza" in text)


def _mask_match(found: "re.Match[str]") -> str:
    quote = found["quote"] or ""
    return f"{found['name']}{quote}{MASK}{quote}"


def redact_value(value: Any) -> Any:
    """The same value with every text in it redacted, the names in objects too."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, dict):
        return {
            _redact_key(key): redact_value(item) if not _is_secret_field(key, item) else MASK
            for key, item in value.items()
        }
    return value


def _redact_key(key: Any) -> Any:
    return redact(key) if isinstance(key, str) else key


def _is_secret_field(key: Any, value: Any) -> bool:
    """Whether a field's own name says that its value is a secret."""
    return isinstance(value, str) and bool(value) and bool(_NAMED_SECRET.match(f"{key}={value}"))


def redact_argv(argv: list[str]) -> list[str]:
    """A command line without secrets; also masks the value after an option whose name says it is one."""
    clean: list[str] = []
    for word in argv:
        secret = bool(clean) and bool(_SECRET_OPTION.match(clean[-1])) and not word.startswith("--")
        clean.append(MASK if secret else redact(word))
    return clean
