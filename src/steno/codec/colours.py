"""Colours and tags around what programs print. Loads nothing: the status line uses it."""

import re

_COLOUR_PATTERN = re.compile(r"\x1b\[[0-9;:]*m")
_TAG_PATTERN = re.compile(r"\s*<(\w+)>")


def strip_colours(text: str) -> str:
    """The text without a terminal's codes for colours and weight."""
    return _COLOUR_PATTERN.sub("", text) if "\x1b" in text else text


def strip_tag(text: str) -> str:
    """An error text without colours and the XML-like tag that some agents wrap around it."""
    text = strip_colours(text)
    tag = _TAG_PATTERN.match(text)
    if tag is None:
        return text
    return text[tag.end() :].rstrip().removesuffix(f"</{tag[1]}>")
