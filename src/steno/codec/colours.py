"""Terminal colours in what programs print. Loads nothing: the status line uses it."""

import re

_COLOUR_PATTERN = re.compile(r"\x1b\[[0-9;:]*m")


def strip_colours(text: str) -> str:
    """The text without a terminal's codes for colours and weight."""
    return _COLOUR_PATTERN.sub("", text) if "\x1b" in text else text
