"""Masks secrets in text that will be stored or printed. Pure.

What a secret is, by its format, its name or its place, is in `find_secrets`.
"""

import re
from functools import cache
from typing import Any

from .find_secrets import (
    COMMAND_PASSWORD,
    PRIVATE_KEY,
    URL_PASSWORD,
    find_secrets,
    has_secret_name,
)
from .secret_values import is_secret_value

MASK = "[redacted]"
LOOKAHEAD_CHARS = 200  # searched beyond a cut, to recognise a secret that starts before it
MIN_SECRET_CHARS = 32  # a shorter beginning of a secret may not be recognised as one

_SECRET_NAME = (
    r"(?:api[_-]?key|access[_-]?key|secret|token"  # noqa: S105  # a pattern, not a password
    r"|passw(?:or)?d|passphrase|pwd|credential|\bpass|_pass)(?:[_-]?(?:key|id|value))?"
)


def redact(text: str) -> str:
    """The text with every recognised secret masked."""
    secrets = find_secrets(text)
    if not secrets:
        return text
    parts: list[str] = []
    position = 0
    kind_before = ""
    for start, end, kind in secrets:
        # The lines of a private key get one mask.
        mask = "" if kind == kind_before == PRIVATE_KEY else MASK
        parts += (text[position:start], mask)
        position = end
        kind_before = kind
    parts.append(text[position:])
    return "".join(parts)


@cache
def _unclosed_secret() -> "re.Pattern[str]":
    """A quoted value that is cut off before its closing quote."""
    return re.compile(
        rf"(?P<name>{_SECRET_NAME}(?:\\*[\"'])?\s*(?:=>|[=:])\s*\\*)(?:\"[^\"\n]*|'[^'\n]*)\Z", re.I
    )


def has_password(text: str) -> bool:
    """Whether a URL or a command contains a password."""
    kinds = (URL_PASSWORD, COMMAND_PASSWORD)
    return any(secret.kind in kinds for secret in find_secrets(text))


def redact_and_truncate(text: str, most: int) -> str:
    """At most `most` characters of the text, without secrets or the beginning of one."""
    if len(text) <= most + LOOKAHEAD_CHARS:
        return redact(text) if len(text) <= most else redact(text)[:most]
    return redact_truncated(text[: most + LOOKAHEAD_CHARS])[:most]


def redact_truncated(text: str) -> str:
    """A truncated text without secrets; the possible beginning of one at its end is removed."""
    text = redact(text)
    if has_secret_name(text.lower()):
        text = _unclosed_secret().sub(rf"\g<name>{MASK}", text)
    before, mask, after = text.rpartition(MASK)
    return before + mask + after[:-MIN_SECRET_CHARS]


def redact_value(value: Any) -> Any:
    """The value with all its texts redacted, including object keys."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, dict):
        clean = {}
        for key, item in value.items():
            is_secret = isinstance(item, str) and _is_named_secret(key, item)
            clean[redact_value(key)] = MASK if is_secret else redact_value(item)
        return clean
    return value


def _is_named_secret(name: Any, value: str) -> bool:
    """Whether a field is a secret by its name."""
    if not isinstance(name, str) or re.search(rf"{_SECRET_NAME}$", name, re.I) is None:
        return False
    return is_secret_value(value, is_password="pass" in name.lower())


def redact_service_url(url: str) -> str:
    """The URL of a notification service, whose host and path may be secrets: only its scheme."""
    scheme, separator, _ = url.partition("://")
    return f"{scheme}://{MASK}" if separator and scheme.isalnum() else MASK


_SCP_REMOTE = re.compile(r"(?:[^@/]+@)?([\w.-]{2,}):(?!//|:)(.*)")  # user@host:path
_URL_REMOTE = re.compile(
    r"(https?|ssh|git|git\+ssh)://(?:[^@/]*@)?([^/:?#]+)(:\d+)?/([^?#]*).*", re.I
)
_MAX_REPOSITORY_CHARS = 250


def repository_name(remote: str) -> str | None:
    """A git remote as host/path, the same for all its URLs; without credentials and `.git`.

    None for what is neither a URL nor a path.
    """
    remote = remote.strip()
    url = _URL_REMOTE.fullmatch(remote)
    scp = _SCP_REMOTE.fullmatch(remote)
    if url is not None:
        has_port = url[3] not in (None, ":443", ":80") and url[1].lower().startswith("http")
        host = url[2].lower() + (url[3] if has_port else "")
        name = f"{host}/{url[4].strip('/')}"
    elif scp is not None:
        name = f"{scp[1].lower()}/{scp[2].strip('/')}"
    elif remote.startswith(("/", "file:///")):
        name = remote.removeprefix("file://").rstrip("/")
    else:
        return None
    name = redact(name.removesuffix(".git"))
    return name if name.isprintable() and len(name) <= _MAX_REPOSITORY_CHARS else None


def redact_argv(argv: list[str]) -> list[str]:
    """A command line without secrets, including the values of options named like a secret."""
    clean: list[str] = []
    for word in argv:
        option = clean[-1] if clean else ""
        is_named = re.search(rf"^--?[\w-]*{_SECRET_NAME}[\w-]*$", option, re.I) is not None
        if is_named and not word.startswith("--"):
            clean.append(MASK)
        elif option in ("-u", "--user", "--proxy-user") and ":" in word and "curl" in clean[0]:
            clean.append(word.partition(":")[0] + ":" + MASK)
        else:
            clean.append(redact(word))
    return clean
