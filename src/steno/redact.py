"""Keys and tokens out of text that will be stored: by the name before them and by their own shape (L5). Pure.

A count of tokens is no token and a label is no key: names that end in "tokens" and values that are plain
numbers are left alone.
"""

import re

MASK = "[redacted]"

# What providers' secrets look like. Each needs enough characters to not hit prose such as "sk-learn".
_SHAPES = re.compile(
    r"\bsk-[A-Za-z0-9_-]{8,}"  # Anthropic, OpenAI and many gateways
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}"
    r"|\bgithub_pat_[A-Za-z0-9_]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{8,}"
    r"|\bAIza[A-Za-z0-9_-]{20,}"
)
_BEARER = re.compile(r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{6,}", re.I)
_HEADER = re.compile(r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?!Bearer\b)(?:\w+\s+)?[^\s\"',;]+", re.I)
_NAMES = r"(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|credential)"
# A name that ends in one of the words (or in key or id after it), a separator, and the value: quoted, or one word.
_NAMED = re.compile(
    rf"(?P<name>\b[\w-]*{_NAMES}(?:[_-]?(?:key|id|value))?(?:\\?[\"'])?\s*[=:]\s*)"
    r"(?:(?P<quote>\\?[\"'])(?P<words>.*?)(?P=quote)|(?!Bearer\b)(?!\d+\b)[^\s\"'&,;}\\]+)",
    re.I,
)
_FLAG = re.compile(rf"^--?[\w-]*{_NAMES}[\w-]*$", re.I)


def redact(text: str) -> str:
    """The text with every secret that can be told as one replaced by a mask."""
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _HEADER.sub(rf"\1{MASK}", text)
    text = _NAMED.sub(_masked, text)
    return _SHAPES.sub(MASK, text)


def _masked(found: "re.Match[str]") -> str:
    quote = found["quote"] or ""
    return f"{found['name']}{quote}{MASK}{quote}"


def redact_argv(argv: list[str]) -> list[str]:
    """A command line without secrets; also masks the value after an option whose name says it is one."""
    clean: list[str] = []
    for word in argv:
        secret = bool(clean) and bool(_FLAG.match(clean[-1])) and not word.startswith("--")
        clean.append(MASK if secret else redact(word))
    return clean
