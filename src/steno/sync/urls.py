"""Parses destinations that are on this machine: folders and archives."""

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

from ..errors import StenoError
from ..workspace.safe_path import is_safe_name

_LOCAL_URL = re.compile(r"(?:file|local):(?://)?(.*)", re.S)
_ARCHIVE_URL = re.compile(r"zip(?:://(?P<inner>[^:]*))?::(?P<place>.+)", re.S)


def parse_local_path(text: str) -> str:
    """The path in dir:PATH, file:///PATH or local://PATH. StenoError if there is none."""
    kind, _, path = text.partition(":")
    if kind == "file":
        path = unquote(path.removeprefix("//").removeprefix("localhost"), errors="surrogateescape")
        if not path.startswith("/"):
            raise StenoError(f"{text}: expected file:///PATH, a folder on this machine")
    elif kind == "local":
        path = path.removeprefix("//")
    if not path or path[0].isspace() or "\0" in path:
        raise StenoError(f"{text}: expected a folder, such as dir:/backup/project")
    expanded = os.path.expanduser(path)  # noqa: PTH111  # pathlib raises for unknown users
    if expanded.startswith("~"):
        user = expanded.partition("/")[0]
        raise StenoError(
            f"{text}: user {user[1:]} not found; for a folder of this name: dir:./{user}"
        )
    return expanded


def parse_archive_url(url: str) -> tuple[str, str]:
    """The archive and the folder in it. StenoError if it is not a path on this machine."""
    match = _ARCHIVE_URL.fullmatch(url)
    path, inner = "", ""
    if match is not None:
        place = match["place"]
        is_url = place.startswith(("file://", "local://"))
        path = parse_local_path(place if is_url else f"dir:{place}")
        inner = (match["inner"] or "").strip("/")
    is_file = path and not path.endswith("/") and "://" not in path and "::" not in path
    if not is_file or (inner and not is_safe_name(inner)):
        raise StenoError(
            f"{url}: expected a local archive, such as zip://::file:///backup/project.zip"
        )
    return path, inner


def local_paths(url: str) -> Iterator[str]:
    """The paths on this machine in a chain of fsspec URLs."""
    for position, part in enumerate(url.split("::")):
        match = _LOCAL_URL.fullmatch(part)
        if match is not None:
            yield os.path.expanduser(match[1])  # noqa: PTH111  # pathlib raises for unknown users
        elif position and "://" not in part:
            yield os.path.expanduser(part)  # noqa: PTH111  # the same
