"""Finds secrets in text: by the format of a token, by the name before a value, by the place. Pure.

Most texts contain none, so each detector starts with a cheap search for what it needs. Patterns are
compiled when they are needed first. In JSON-encoded text, a secret never includes the quote that
ends its string, nor a part of an escape sequence: masked JSON is still JSON.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import zip_longest
from typing import NamedTuple

from .secret_values import (
    has_letters_and_digits,
    is_placeholder,
    is_secret_value,
    is_template,
    looks_random,
)

MIN_RUN_CHARS = 16  # every token has a run of so many letters, digits, "_" and "-"
MIN_TEXT_CHARS = 9  # a://:b@c
MAX_PREFIX_DISTANCE = 64  # from the start of a token to its first long run
MAX_PEM_CHARS = 20_000
PRIVATE_KEY = "private-key"
URL_PASSWORD = "url-password"  # noqa: S105  # a kind
COMMAND_PASSWORD = "command-password"  # noqa: S105

_RUN = b"a" * MIN_RUN_CHARS
_RUN_TABLE = bytes(
    ord("a" if code < 128 and (chr(code).isalnum() or chr(code) in "_-") else " ")
    for code in range(256)
)
# In formats of which a token may have shorter runs only.
_SHORT_RUN_WORDS = ("q~", "whsec_", "sig=", "hooks.zapier", "azca")
# Every other kind needs one; a path or a name has none.
_SEPARATOR = re.compile(r"[^A-Za-z0-9_./-]")


class Secret(NamedTuple):
    """Where a secret is, and what kind."""

    start: int
    end: int
    kind: str


def find_secrets(text: str) -> list[Secret]:
    """Return the secrets of a text in their order; they don't overlap."""
    if len(text) < MIN_TEXT_CHARS:
        return []
    # In lower case, with the same positions as in the text.
    small = (text if text.isascii() else text.encode("ascii", "replace").decode("ascii")).lower()
    found: list[Secret] = []
    runs = small.encode("ascii").translate(_RUN_TABLE)
    if _RUN in runs or _contains(small, _SHORT_RUN_WORDS):
        found += _find_tokens(text, runs)
        if "private key" in small or "private-lines" in small:
            found += _find_pem_keys(text)
    if _SEPARATOR.search(text) is None:
        return _merge(found)
    if "@" in small and (":/" in small or ":\\/" in small):
        found += _find_url_passwords(text)
    if "kind" in small and "secret" in small and "data" in small:
        found += _find_kubernetes_secrets(text)
    if _contains(small, _HEADER_WORDS):
        found += _find_headers(text)
    if has_secret_name(small):
        found += _find_named_values(text, small)
    if _contains(small, (" -", ":oracle", "login")) and _contains(small, _COMMAND_OPTIONS):
        found += _find_command_passwords(text, small)
    return _merge(found)


def has_secret_name(small: str) -> bool:
    """Whether a lower-case text has the name of a secret with a separator after it."""
    has_word = False
    for word in _NAMES:
        if word in small:
            has_word = True
            if any(name.search(small) for name, _ in _name_patterns(word)):
                return True
    return has_word and any(pattern.search(small) for pattern in _setters(small))


def _contains(text: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110  # any() with a generator takes three times as long
        if word in text:
            return True
    return False


def _merge(found: list[Secret]) -> list[Secret]:
    """Join what overlaps. Formats are found first: of two with the same start, theirs is kept."""
    if not found:
        return found
    merged: list[Secret] = []
    for secret in sorted(found, key=lambda secret: secret.start):
        last = merged[-1] if merged else None
        if last is None or secret.start >= last.end:
            merged.append(secret)
        elif secret.end > last.end:
            merged[-1] = Secret(last.start, secret.end, last.kind)
    return merged


# -- tokens with a format of their own -----------------------------------------------------------


_BREAK = re.compile(r"[^A-Za-z0-9](?=[A-Za-z0-9]..)")
# Its last characters look like a part of the word after it.
_ESCAPE = re.compile(
    r"(?:\\(?:[nrtbf]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})|%[0-9a-fA-F]{2}|[\[;]\d{0,2}m)"
    r"(?=[A-Za-z0-9]..)"
)


def _token_starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yield the positions within a range at which a word starts."""
    if start == 0:
        yield 0
    for word_break in _BREAK.finditer(text, max(0, start - 1), end + 2):
        yield word_break.end()
        if text[word_break.start()] in "\\%[;":
            escape = _ESCAPE.match(text, word_break.start())
            if escape is not None:
                yield escape.end()


def _find_tokens(text: str, runs: bytes) -> Iterator[Secret]:
    """Compare each long run, and what is before it, with the table of formats."""
    from .token_formats import MAX_PART_CHARS, infix_patterns, prefix_patterns, word_patterns

    for infix, pattern in infix_patterns().items():
        if infix in text:
            for span in pattern.search(text):
                yield Secret(*span, pattern.kind)
    by_start = prefix_patterns()
    done = 0
    start = runs.find(_RUN)
    while start >= 0:
        end = runs.find(b" ", start + MIN_RUN_CHARS)
        end = len(text) if end < 0 else end
        for position in _token_starts(text, max(done, start - MAX_PREFIX_DISTANCE), end):
            candidates = by_start.get(text[position : position + 3])
            if candidates is None or position < done:
                continue
            for pattern in candidates:
                match = pattern.match(text, position)
                if match is not None:
                    done = match[1]
                    if done - position > MAX_PART_CHARS:
                        done = max(done, end)  # a very long one: the rest of the run
                    if match[0] < match[1]:
                        yield Secret(match[0], done, pattern.kind)
                    break
        before = text[max(0, start - MAX_PREFIX_DISTANCE) : start]
        if before.rstrip("\"'\\ ")[-1:] in (":", "=", ">"):
            for named in word_patterns():
                match = named.match_value(before.lower(), text, start)
                if match is not None:
                    yield Secret(*match, named.kind)
        start = runs.find(_RUN, max(end, done))


# -- private keys --------------------------------------------------------------------------------


@cache
def _pem_begin() -> "re.Pattern[str]":
    return re.compile(
        r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
        r"|Private-Lines: \d+"  # of PuTTY
    )


@cache
def _pem_part() -> "re.Pattern[str]":
    return re.compile(r"\\u[0-9a-fA-F]{4}|\\.|(?P<data>[A-Za-z0-9+/=]+)", re.S)


def _find_pem_keys(text: str) -> Iterator[Secret]:
    """Find the lines of private keys; what separates them (quotes, escapes) is kept."""
    begins = list(_pem_begin().finditer(text))
    for begin, following in zip_longest(begins, begins[1:]):
        limit = begin.end() + MAX_PEM_CHARS
        if following is not None:
            limit = min(limit, following.start())
        end = text.find("-----END", begin.end(), limit)
        end = text.find("---- END", begin.end(), limit) if end < 0 else end
        end = text.find("Private-MAC", begin.end(), limit) if end < 0 else end
        is_cut = end < 0
        parts = _pem_part().finditer(text, begin.end(), min(limit, len(text)) if is_cut else end)
        data = [part for part in parts if part["data"]]
        if is_cut:
            data = [part for part in data if len(part["data"]) >= MIN_RUN_CHARS]
        if any(len(part["data"]) >= 2 * MIN_RUN_CHARS for part in data):
            for part in data:
                yield Secret(part.start(), part.end(), PRIVATE_KEY)


# -- data of Kubernetes --------------------------------------------------------------------------


@cache
def _kubernetes_data() -> "re.Pattern[str]":
    return re.compile(r"(?:\b|(?<=\\n))data\\*\"?:(?=[\s{\\])")


@cache
def _kubernetes_entry() -> "re.Pattern[str]":
    return re.compile(
        r"(?:[\s{,\"\\]|(?<=\\)n)*[\w.-]+\\*\"?:\s*\\*\"?"
        r"(?P<value>[A-Za-z0-9+/]{6,}={0,2})(?![\w:.-])"
    )


def _find_kubernetes_secrets(text: str) -> Iterator[Secret]:
    """Find the values of a Secret, which are base64."""
    if re.search(r"\bkind\\*\"?:\s*\\*\"?Secret\b", text) is None:
        return
    for data in _kubernetes_data().finditer(text):
        entry = _kubernetes_entry().match(text, data.end())
        while entry is not None:
            yield Secret(entry.start("value"), entry.end("value"), "kubernetes-secret")
            entry = _kubernetes_entry().match(text, entry.end())


# -- passwords in URLs ---------------------------------------------------------------------------


MAX_URL_PASSWORD_CHARS = 1000
_URL_SCHEME_END = re.compile(r"(?<=[A-Za-z0-9]):\\?/(?:\\?/)?")  # as a path, a URL has one slash
_URL_USER = re.compile(r"[^\s/?#\"'<>`\\:@]*:")
_URL_END = re.compile(r"[\s\"'<>`\\]|://")
_HOST_START = re.compile(r"[\w\[{$%-]")
_PORT = re.compile(r"\d{1,5}[/?#]")


@cache
def _other_url_authority() -> "re.Pattern[str]":
    """A user with "@" in the name, or a token instead of a user."""
    return re.compile(
        r"(?:[^\s/?#\"'<>`\\:]{0,200}@[^\s/?#\"'<>`\\:]{0,200}:"
        r"(?P<other>[^\s/\"'<>`\\]{1,500})"
        r"|(?P<user>[^\s/?#\"'<>`\\:@]{16,})"
        r")@(?=[\w\[{$%-])"
    )


def _find_url_passwords(text: str) -> Iterator[Secret]:
    done = 0
    url_end = -1  # searched once for all schemes before it, so that the time stays linear
    for scheme in _URL_SCHEME_END.finditer(text):
        start = scheme.end()
        if start < done:
            continue
        user = _URL_USER.match(text, start)
        if user is not None:
            if user.end() > url_end:
                found_end = _URL_END.search(text, user.end())
                url_end = len(text) if found_end is None else found_end.start()
            end = _last_host_mark(text, user.end(), url_end)
            if end > 0:
                if _is_url_password(text[user.end() : end]):
                    yield Secret(user.end(), end, URL_PASSWORD)
                    done = end + 1
                continue
        found = _other_url_authority().match(text, start)
        if found is not None:
            group = found.lastgroup or ""
            value = found[group]
            if _is_url_password(value) and (group != "user" or looks_random(value)):
                yield Secret(found.start(group), found.end(group), URL_PASSWORD)
                done = found.end()


def _last_host_mark(text: str, start: int, end: int) -> int:
    """The last "@" before a host, with something between it and the start; -1 without one."""
    end = min(end, start + MAX_URL_PASSWORD_CHARS)
    position = text.rfind("@", start + 1, end)
    while position >= 0 and _HOST_START.match(text, position + 1) is None:
        position = text.rfind("@", start + 1, position)
    return position


def _is_url_password(value: str) -> bool:
    return not (is_template(value) or _PORT.match(value) or "](" in value)


# -- headers -------------------------------------------------------------------------------------


@cache
def _header_pattern() -> "re.Pattern[str]":
    return re.compile(
        r"\b(?:bearer\s+(?P<bearer>[A-Za-z0-9._~+/=-]{6,})"
        r"|basic\s+(?P<basic>[A-Za-z0-9+/]{6,}={0,2})"
        r"|authorization(?:\\*[\"'])?\s*[:=]\s*(?:\\*[\"'])?"
        r"(?:(?:bearer|basic|token|digest|apikey|api-key|key|bot|negotiate|ntlm|oauth)\s+"
        r"(?P<credentials>[^\s\"',;\\]{5,})|(?P<value>[^\s\"',;\\]{6,}))"
        r"|\b_?auth(?:\\*[\"'])?\s*[:=]\s*(?:\\*[\"'])?(?P<auth>[A-Za-z0-9+/]{8,}={0,2})"
        r"|cookie(?:\\*[\"'])?\s*:\s*(?:\\*[\"'])?"
        r"(?P<cookie>[\w.-]+=[^\s\"'\\;]+(?:;\s*[\w.-]+=[^\s\"'\\;]*)*))",
        re.I,
    )


def _find_headers(text: str) -> Iterator[Secret]:
    position = 0
    while True:
        found = _header_pattern().search(text, position)
        if found is None:
            return
        group = found.lastgroup or ""
        value = found[group]
        if _is_header_secret(group, value):
            yield Secret(found.start(group), found.end(group), f"{_HEADER_KINDS[group]}")
            position = found.end()
        else:
            position = found.start(group)


_HEADER_WORDS = ("auth", "bearer", "basic", "cookie")
_HEADER_KINDS = {
    "bearer": "bearer-token",
    "basic": "basic-auth",
    "auth": "basic-auth",  # of Docker and npm
    "value": "authorization-header",
    "credentials": "authorization-header",
    "cookie": "cookie",
}


def _is_header_secret(group: str, value: str) -> bool:
    if is_placeholder(value):
        return False
    if group in ("basic", "auth"):
        return _is_basic_auth(value)
    if group == "cookie":
        return looks_random(value) or has_letters_and_digits(value)
    if "(" in value or "[" in value or value.lower() in ("bearer", "basic"):
        return False
    if group == "credentials":
        return _HEADER_WORD.search(value) is None
    if group == "value" and _IDENTIFIER.fullmatch(value.rstrip(")]}")):
        return looks_random(value)
    has_digit = any(char.isdigit() for char in value)
    return looks_random(value) or (has_digit and value[:1] != "-") or "." in value.strip(".")


# What stands for credentials in documents: `Authorization: Bearer access_token`.
_HEADER_WORD = re.compile(r"(?:token|key|credentials?|auth\w*|scheme|header)[\]).:]*$", re.I)


def _is_basic_auth(value: str) -> bool:
    """Whether it is the base64 of user:password."""
    try:
        text = b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except ValueError:
        return False
    return ":" in text and text.isprintable()


# -- values after the name of a secret -----------------------------------------------------------

_AFTER_NAME = (
    r"(?:[_-]?(?:key|id|value))?(?:\\*[\"'])?\]?(?::\s?&?(?:str|string|bytes)\s?(?==))?(?:"
    r"[ \t]*(?:=>|:=|=(?![=~>])|:(?![:=]))[ \t]*"
    r"(?:[|>][+-]?(?:\r?\n|\\+[rn])+[ \t]*)?"  # a block of YAML
    r"|,?(?:\s|\\+[rn])*(?:\\*[\"'])?value(?:\\*[\"'])?\s?[:=]\s?"  # name and value as fields
    r"|[ \t]is[ \t]"
    r")"
)
# By a word that is searched first, which is fast: patterns of the name with its separator, and
# whether the value is a password.
_NAMES = {
    "key": [("key" + _AFTER_NAME, False)],
    "secret": [("secret" + _AFTER_NAME, False)],
    "token": [("token" + _AFTER_NAME, False)],
    "pass": [
        ("pass(?:wd|word|phrase)" + _AFTER_NAME, True),
        ("pass" + _AFTER_NAME, False),  # also: a step, a result
        ("password (?=')", True),  # of SQL
    ],
    "pwd": [("pwd" + _AFTER_NAME, True)],
    "credential": [("credential" + _AFTER_NAME, False)],
    "identified by '": [("identified by (?=')", True)],
}


@cache
def _name_patterns(word: str) -> list[tuple["re.Pattern[str]", bool]]:
    return [(re.compile(name), is_password) for name, is_password in _NAMES[word]]


# What must be before a word that is otherwise no secret's name.
_WORD_OWNERS = {
    "key": re.compile(
        r"(?:api|access|secret|private|account|master|encryption|signing|subscription|auth"
        r"|license|service|storage|shared)[_.\- ]?$"
    ),
    "pass": re.compile(r"(?:^|[^a-z]|db|ftp|mail|my|pg|root|smtp|sql|ssh|user)$"),
    "token": re.compile(r"(?<!publickey)$"),  # of .NET
}


@cache
def _option_pattern() -> "re.Pattern[str]":
    return re.compile(
        r"(?<![\w-])--[\w-]{0,40}?(?:api-?key|access-?key|secret|token|passw(?:or)?d|passphrase)"
        r"[\w-]{0,40}[ \t]+(?!-)"
    )


# Before a name and its value, separated by a space only: of fish, csh, Windows, npm and Docker.
_SET_COMMANDS = ("set -", "setenv ", "setx ", "config set ", "\nenv ", "\\nenv ", '"env ')


@cache
def _set_pattern() -> "re.Pattern[str]":
    return re.compile(
        r"(?:env|setx|set -g?x|config set)[ \t]+(?:\S{0,200}:)?[\w-]{0,40}?"
        r"(?:api_?key|access_?key|secret|token|passw(?:or)?d|passphrase|_pass)\w{0,40}[ \t]+(?!-)"
    )


def _setters(small: str) -> Iterator["re.Pattern[str]"]:
    """Yield the patterns of names with a space before the value that a text may have."""
    if "--" in small:
        yield _option_pattern()
    if ("set" in small or "env " in small) and _contains(small, _SET_COMMANDS):
        yield _set_pattern()
    if "</" in small:
        yield _xml_pattern()


@cache
def _xml_pattern() -> "re.Pattern[str]":
    return re.compile(
        r"<[\w.:-]{0,40}?(?:api_?key|secret|token|passw(?:or)?d|passphrase)>(?=[^\s<]{6,200}</)"
    )


@cache
def _value_pattern() -> "re.Pattern[str]":
    """A value with its quotes: of code, of JSON, of JSON in JSON, or without any."""
    return re.compile(
        r"(?:[rbuf]{1,2}(?=[\"'])|\$(?='))?(?:"
        r"\"(?P<double>(?:[^\"\\\n]|\\.){1,8000})\""
        r"|'(?P<single>(?:[^'\"\\\n]|\\.|\"(?!\s*[,:}\]])){1,8000})'"
        r"|`(?P<back>[^`\"\n\\]{1,8000})`"
        r"|\\\"(?P<json>(?:[^\"\\\n]|\\\\(?:\\.|[^\"\\])|\\[^\"\\]){1,8000})\\\""
        r"|(?P<slashes>\\{3,})\"(?P<nested>(?:[^\"\\\n]|\\+[^\"\\]|(?P=slashes)\\+\"){1,8000})"
        r"(?P=slashes)\""
        r"|(?P<bare>(?:[^\s\"'`<>&,;}\\)\]|]"
        r"|[&;)|](?=[\w!@#$%^*+/.~-])(?![\w.-]{0,60}=)"
        r"|[,}\]](?=[\w!@#$%^*+/.~-])(?![\w.-]{0,60}[=:])){1,256})"
        r")",
        re.I,
    )


def _find_named_values(text: str, small: str) -> Iterator[Secret]:
    for word in _NAMES:
        if word not in small:
            continue
        for pattern, is_password in _name_patterns(word):
            kind = "password" if is_password else "named-secret"
            owners = None if is_password else _WORD_OWNERS.get(word)
            for name in pattern.finditer(small):
                start = name.start()
                if owners is None or owners.search(small[max(0, start - 16) : start]):
                    yield from _match_value(text, start, name.end(), kind)
    for pattern in _setters(small):
        for name in pattern.finditer(small):
            kind = "password" if "passw" in name[0] else "named-secret"
            yield from _match_value(text, name.start(), name.end(), kind)


def _match_value(text: str, name_start: int, start: int, kind: str) -> Iterator[Secret]:
    """Yield the value that starts at a position, if it is a secret and not code."""
    found = _value_pattern().match(text, start)
    if found is None:
        return
    group = found.lastgroup or ""
    value = found[group]
    if group != "bare":
        is_secret = is_secret_value(value, is_password=kind == "password")
    else:
        is_secret = _is_bare_secret(text, name_start, found, kind == "password")
    if is_secret:
        end = found.end(group)
        if group == "bare" and end - found.start(group) >= MAX_BARE_CHARS:
            end = _bare_rest().match(text, end).end()  # type: ignore[union-attr]  # matches ""
        yield Secret(found.start(group), end, kind)


@cache
def _bare_rest() -> "re.Pattern[str]":
    return re.compile(r"[^\s\"'`<>\\]*")


MAX_BARE_CHARS = 256  # examined after each name, so that the time stays linear
MAX_JUDGED_CHARS = 100
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|->|::)[A-Za-z_$][\w$]*)*[!?]?")
_CONSTANT = re.compile(r"(?:null|none|nil|undefined|true|false)(?:[,;).]|$)", re.I)
_SHELL_NAME = re.compile(r"(?:^|[\s\"';&]|\\[nt])[A-Z][A-Z0-9_]*=$")


def _is_bare_secret(text: str, name_start: int, found: "re.Match[str]", is_password: bool) -> bool:
    """Whether a value without quotes is a secret; in code it is a name, a type or a call."""
    value = found["bare"][:MAX_JUDGED_CHARS]
    after = text[found.end() : found.end() + 1]
    if any(char in value for char in "(){}[]") and not value[0].isalnum():
        return False
    if re.match(r"[\w.$]*[({\[]", value) or after in tuple("([{") or _CONSTANT.match(value):
        return False
    before = text[max(0, name_start - 60) : found.start()]
    is_last = after in ("", "\n", "\r", "\\", '"')
    has_digit = any(map(str.isdigit, value))
    if before[-4:].lower() == " is ":  # in prose
        is_likely = looks_random(value) or (is_password and has_digit and value[0].isalpha())
        return is_likely and is_secret_value(value, is_password=False)
    if before.endswith(" = "):  # an assignment of code, or a line of a configuration file
        is_secret = is_password and has_digit and is_secret_value(value, is_password=True)
        is_random = looks_random(value) and len(value) >= MIN_RUN_CHARS
        return is_random or (is_last and is_secret)
    if _IDENTIFIER.fullmatch(value):
        if _SHELL_NAME.search(before) and (is_last or after in tuple(" \t;&'\"")):
            return not value.isupper() and is_secret_value(value, is_password=True)
        if after in tuple(",)]}=.:|>") or "." in value:
            return looks_random(value)
    return is_secret_value(value, is_password=is_password and has_digit)


# -- passwords in commands -----------------------------------------------------------------------

_USER = r"(?:\\*[\"'])?[^\s:\"'\\]{0,200}:"
# Text before a password, and the command that must be before it.
_COMMAND_OPTIONS = {
    "curl": r"\s(?:-[a-zA-Z]{0,8}[uU]|--user|--proxy-user)(?:=|\s*)" + _USER,
    "http ": r"(?<=\s)(?:-a|--auth)[ =]" + _USER,
    "smbclient": r"\s-U\s*[^\s%]{1,100}%",
    "sshpass": r"\s-p\s*(?:\\*[\"'])?",
    "mysql": r"\s-p(?:\\*[\"'])?",
    "redis-cli": r"\s-a\s+(?:\\*[\"'])?",
    "docker login": r"\s-p\s+(?:\\*[\"'])?",
    "az login": r"\s-p\s+(?:\\*[\"'])?",
    "twine": r"\s-p\s*(?:\\*[\"'])?",
    "mongo": r"\s-p\s+(?:\\*[\"'])?",
    "ldap": r"\s-w\s+(?:\\*[\"'])?",
    "htpasswd": r"\s-[a-zA-Z]{0,8}b[a-zA-Z]{0,8}\s{1,8}\S{1,200}\s{1,8}\S{1,200}\s{1,8}"
    r"(?:\\*[\"'])?",
    "openssl": r"\s-pass(?:in|out)?\s+pass:",
    "jdbc:oracle": r":[\w.-]{1,100}/(?=[^\s\"'\\/]{1,100}@)",
    "machine ": r"\slogin(?:\s|\\n){1,40}(?:[^\s\\]|\\(?!n)){1,200}(?:\s|\\n){1,40}"
    r"password\s+",  # in ~/.netrc
}
MAX_COMMAND_CHARS = 2000  # from the command to its password


@cache
def _option_value_pattern(command: str) -> "re.Pattern[str]":
    return re.compile(_COMMAND_OPTIONS[command] + r"(?P<value>[^\s\"'\\]{1,500})")


def _find_command_passwords(text: str, small: str) -> Iterator[Secret]:
    for command in _COMMAND_OPTIONS:
        if command not in small:
            continue
        for found in _option_value_pattern(command).finditer(text):
            start = small.rfind(command, max(0, found.start() - MAX_COMMAND_CHARS), found.start())
            value = found["value"]
            if start < 0 or is_template(value) or value.isdecimal():
                continue
            if command == "machine " or not _COMMAND_END.search(text, start, found.start()):
                yield Secret(found.start("value"), found.end("value"), COMMAND_PASSWORD)


_COMMAND_END = re.compile(r"[|;]|(?<!\\)\n")
