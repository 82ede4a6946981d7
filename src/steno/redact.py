"""Keys and tokens out of text that will be stored: by the name before them and by their own shape (L5). Pure."""

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
_NAMES = r"(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|authorization|credential)s?"
_NAMED = re.compile(rf"(\b[\w-]*{_NAMES}[\w-]*[\"']?\s*[=:]\s*[\"']?)(?!Bearer\b)([^\s\"'&,;}}]+)", re.I)
_FLAG = re.compile(rf"^--?[\w-]*{_NAMES}[\w-]*$", re.I)


def redact(text: str) -> str:
    """The text with every secret that can be told as one replaced by a mask."""
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _NAMED.sub(rf"\1{MASK}", text)
    return _SHAPES.sub(MASK, text)


def redact_argv(argv: list[str]) -> list[str]:
    """A command line without secrets; also masks the value after an option whose name says it is one."""
    clean: list[str] = []
    for word in argv:
        secret = bool(clean) and bool(_FLAG.match(clean[-1])) and not word.startswith("-")
        clean.append(MASK if secret else redact(word))
    return clean
