"""Tells values that look like secrets from ordinary words, names and placeholders. Pure."""

import re

MIN_RANDOM_CHARS = 8
MAX_PIECE_CHARS = 3  # on average; words in names are longer
MIN_PIECES = 3
MIN_OF_EACH = 4  # letters and digits
MIN_VALUE_CHARS = 6
MIN_LONG_WORD = 20
MIN_RANDOM_VALUE = 16

_SEGMENT = re.compile(r"[A-Za-z0-9]+")
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
# Filled in by the reader or by a program: $NAME, {name}, <name>, %s, ***, ..., your-key.
_TEMPLATE = re.compile(
    r"(?:\\*[\"'])?(?:\$(?:[{(]|[A-Za-z_]+$|[A-Z_][A-Z0-9_]*$)|\{[^}]*\}|<[^>]*>|%[s({]|\.\.\.|…"
    r"|\*{2,}|\[redacted\]|(?:your|my|the|some)[-_ ])"
)
_FILLER = re.compile(r"(.)\1*$|[xX]{3,}|-?\d+(?:\.\d+)?$|[\^~v]?\d+(?:\.\d+){1,3}$")
# Code after a text that ends with the name of a secret: "password: ".format(...), "token: "+x);
_CODE = re.compile(r"\.\w+\(|\+\s?[\w.$]+[)\];,]")
_UNICODE_ESCAPE = re.compile(r"\\+u[0-9a-fA-F]{4}")
# Words with digits: names of algorithms, encodings, types and versions, or numbered names.
_ORDINARY = re.compile(
    r"(?:sha|md|hs|rs|es|ps|aes|utf|iso|base|oauth|x|ed|rsa|u?int|i|u|f|float|bytes|v|bip|hmac|p"
    r"|ascii|latin|cp|windows|big|gb|http|h|ipv|python|py|mp|arg|var|val|value|param|test|foo|bar"
    r"|baz|key|secret|token|password|passwd|pass|user|item|name|id|tok)"
    r"[-_]?\d{0,5}(?:[-_.][a-z]{0,12}\d{0,4}){0,3}",
    re.I,
)
_PATH = re.compile(r"[~.]{0,2}/|[A-Za-z]:\\|[a-z][a-z0-9+.-]*://")
_MESSAGE = re.compile(r"[:?.!…]\s*$|passw|\b(?:is|are|not|must|the|for|your|to)\b", re.I)
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}")
_PATTERN = re.compile(r"\[\^?[^\]]*(?:0-9|a-z|A-Z)|\(\?|\\[dws]")  # a regular expression
_SYMBOL = re.compile(r"[!@#$^&*+?~]")
_NAME_WORDS = ("pass", "pwd", "secret", "token", "key", "user", "text", "string", "none", "null")


def is_template(value: str) -> bool:
    """Whether a value stands for another one."""
    return _TEMPLATE.match(value) is not None


def is_placeholder(value: str) -> bool:
    """Whether a value stands for another one, or is a plain number or one repeated character."""
    return is_template(value) or _FILLER.match(value) is not None


def looks_random(value: str, max_piece_chars: float = MAX_PIECE_CHARS) -> bool:
    """Whether a part of the value looks generated: it changes between cases and digits often."""
    for segment in _SEGMENT.findall(value):
        pieces = _PIECE.findall(segment)
        if len(pieces) < MIN_PIECES or len(segment) < MIN_RANDOM_CHARS:
            continue
        if len(segment) <= max_piece_chars * len(pieces):
            return True
    return False


def has_letters_and_digits(value: str) -> bool:
    """Whether a part of the value has several letters and digits, as keys made for examples."""
    for segment in _SEGMENT.findall(value):
        digits = sum(map(str.isdigit, segment))
        if min(digits, len(segment) - digits) >= MIN_OF_EACH:
            return True
    return False


def is_secret_value(value: str, is_password: bool) -> bool:
    """Whether the value of a secret's name is a secret, and no word, message or placeholder."""
    if len(value) < MIN_VALUE_CHARS or value[0] in ",:)]}=" or _CODE.match(value):
        return False
    value = _UNICODE_ESCAPE.sub("\u00fc", value)  # a letter; its digits are not the value's
    if is_password and value.isdecimal():
        return True
    if is_placeholder(value):
        return False
    if any(map(str.isspace, value)):
        if is_password:
            return _MESSAGE.search(value) is None
        return any(map(_is_long_secret, value.split()))
    if _PATTERN.search(value) or (_PATH.match(value) and not looks_random(value)):
        return False
    if not is_password and (_ORDINARY.fullmatch(value) or _COLOUR.fullmatch(value)):
        return False
    if any(map(str.isdigit, value)):
        return True
    if is_password and (_SYMBOL.search(value) or (value.isalpha() and _is_password_word(value))):
        return True
    return len(value) >= MIN_RANDOM_VALUE and looks_random(value)


def _is_long_secret(word: str) -> bool:
    return looks_random(word) or (len(word) >= MIN_LONG_WORD and has_letters_and_digits(word))


def _is_password_word(value: str) -> bool:
    """Whether a word may be a password: not the name of one, and not a name in code."""
    small = value.lower()
    return value == small and not any(word in small for word in _NAME_WORDS)
