"""Images and other files inside what an agent prints, in any of the agents' forms. Pure.

Claude Code has {"source": {"media_type", "data"}} and {"base64", "type"}, MCP and Copilot {"data",
"mimeType"}, Gemini and Qwen {"inlineData": ...}, Codex {"image_url": "data:..."}, OpenCode {"mime",
"url": "data:..."}; MCP resources have a "blob".
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

_DATA_URL_PATTERN = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.=+-]+)*?(;base64)?,")
_BASE64_PATTERN = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_MEDIA_TYPE_NAMES = ("media_type", "mimeType", "mime_type", "mime")
_WRAPPER_NAMES = ("source", "inlineData", "inline_data", "fileData", "file_data", "resource")
_ADDRESS_NAMES = ("url", "uri", "fileUri", "file_uri", "file_id")
MAX_WRAPPERS = 2  # {"resource": {"source": ...}}; deeper is no known form
MAX_DEPTH = 50  # below it, files are left as they are: the stack is limited
# Forms that browsers show without running anything.
_IMAGE_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class EmbeddedFile(Struct, frozen=True):
    """A file: its content in base64 as printed, or only its address."""

    media_type: str
    data: str = ""
    address: str = ""

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return len(self.data) * 3 // 4 - self.data[-2:].count("=")

    @property
    def is_image(self) -> bool:
        """Whether it can be shown as it is: an image of a harmless form, in valid base64."""
        is_known = self.media_type in _IMAGE_MEDIA_TYPES
        return is_known and _BASE64_PATTERN.fullmatch(self.data) is not None

    def __str__(self) -> str:
        """A placeholder for texts: [image/png, 70 bytes]."""
        what = _format_size(self.size) if self.data else self.address
        return f"[{', '.join(filter(None, (self.media_type, what)))}]"


def parse_attachment(value: dict[str, Any], wrappers: int = MAX_WRAPPERS) -> EmbeddedFile | None:
    """The file that a JSON object stands for, in one of the forms above."""
    for name in _WRAPPER_NAMES if wrappers else ():
        inner = value.get(name)
        if isinstance(inner, dict):
            found = parse_attachment(inner, wrappers - 1)
            return found or _bare_attachment(value, inner)
    media_type = next((_text(value, name) for name in _MEDIA_TYPE_NAMES if _text(value, name)), "")
    if _text(value, "base64"):
        return EmbeddedFile(_text(value, "type") or media_type, _text(value, "base64"))
    data = _text(value, "data") or _text(value, "blob")
    if media_type and data and value.get("type") != "text":
        return EmbeddedFile(media_type, data)
    address = _image_url(value) or next(
        (_text(value, name) for name in _ADDRESS_NAMES if _text(value, name)), ""
    )
    match = _DATA_URL_PATTERN.match(address)
    if match is not None:
        is_base64 = match[2] is not None
        return EmbeddedFile(match[1] or media_type, address[match.end() :] if is_base64 else "")
    is_named = media_type and "text" not in value
    return EmbeddedFile(media_type, address=address) if address and is_named else None


def _bare_attachment(block: dict[str, Any], source: dict[str, Any]) -> EmbeddedFile | None:
    """An image or a document at an address, without a media type."""
    kind = _text(block, "type")
    address = next((_text(source, name) for name in _ADDRESS_NAMES if _text(source, name)), "")
    is_file = kind in ("image", "document") and "text" not in source
    return EmbeddedFile(kind, address=address) if is_file and address else None


def find_attachments(value: Any) -> Iterator[EmbeddedFile]:
    """The files anywhere in a JSON value, in their order."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += reversed(item)
        elif isinstance(item, dict):
            found = parse_attachment(item)
            if found is not None:
                yield found
            else:
                pending += reversed(item.values())


def without_attachments(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The JSON value with a placeholder for each file."""
    if isinstance(value, list) and depth:
        return [without_attachments(item, depth - 1) for item in value]
    if isinstance(value, dict) and depth:
        found = parse_attachment(value)
        if found is not None:
            return str(found)
        return {name: without_attachments(item, depth - 1) for name, item in value.items()}
    return value


def _image_url(value: dict[str, Any]) -> str:
    """The address in `image_url`, which OpenAI's older interface wraps in an object."""
    url = value.get("image_url")
    return _text(url, "url") if isinstance(url, dict) else _text(value, "image_url")


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""


def _format_size(size: int) -> str:
    if size < 1000:
        return f"{size} byte{'' if size == 1 else 's'}"
    return f"{size / 1000:.0f} KB" if size < 999_500 else f"{size / 1e6:.1f} MB"
