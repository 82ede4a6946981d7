"""The form of session ids that several agents share. Pure."""

import re

_UUID_PATTERN = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    """Whether a session id is a UUID in its usual notation."""
    return _UUID_PATTERN.fullmatch(text) is not None
