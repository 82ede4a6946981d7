"""Which destination is meant by a word of the command line. It opens none."""

import os
import re
from collections.abc import Iterator
from typing import Protocol
from urllib.parse import unquote

from ..errors import StenoError
from ..workspace.safe_path import FOLDER_MISSING, RootFolder
from .content import Content

DESTINATION_FORMS = "expected dir:PATH, cmd:PROGRAM ARGS {path}, http(s)://..., or another URL such as sftp://host/folder"
_URL_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*::?[^:]*://|[a-z][a-z0-9+.-]*://")
_URL_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_LOCAL_URL = re.compile(r"(?:file|local):(?://)?(.*)", re.S)


class Destination(Protocol):
    """Where files go. Each method raises `Trouble` where it could not do it; they are called from several threads."""

    name: str

    @property
    def is_cheap_to_compare(self) -> bool:
        """Whether it is asked what it has before each put, since asking costs nothing."""
        ...

    @property
    def can_compare(self) -> bool:
        """Whether it can be asked what a file holds there."""
        ...

    @property
    def can_delete(self) -> bool:
        """Whether a file can be taken away there."""
        ...

    @property
    def commits_on_close(self) -> bool:
        """Whether what was put is there only once it was closed."""
        ...

    def open(self) -> None:
        """Get ready."""
        ...

    def has_same(self, name: str, content: Content) -> bool:
        """Whether it has these bytes already."""
        ...

    def put(self, name: str, content: Content) -> None:
        """Put a file there."""
        ...

    def delete(self, name: str) -> bool:
        """Take a file away; False: it was gone already."""
        ...

    def list_names(self) -> list[str] | None:
        """Every file that it has; None where it cannot be asked."""
        ...

    def close(self) -> None:
        """Let go, and cut off what still goes on. `Trouble`: what was put is not there."""
        ...


def check_destination(text: str) -> None:
    """StenoError where this names no destination. Nothing is opened."""
    if text.startswith("cmd:"):
        from .command import parse_command

        parse_command(text.removeprefix("cmd:").strip())
    elif text.startswith("dir:"):
        parse_local_path(text)
    elif not _URL_SCHEME.match(text):
        raise StenoError(f"{text}: {DESTINATION_FORMS}")
    elif _URL_PASSWORD.search(text):
        raise StenoError(
            f"{_URL_PASSWORD.sub('://', text)}: a password does not belong into an address, where others see it: use ~/.netrc, "
            "STENO_SYNC_TOKEN, a key, or what fsspec reads from the environment"
        )
    else:
        _check_url(text)


def _check_url(text: str) -> None:
    scheme = text.partition(":")[0]
    if scheme in ("file", "local") and "::" not in text:
        parse_local_path(text)
    elif scheme in ("http", "https"):
        from .http import auth_headers, parse_url

        auth_headers(parse_url(text).hostname or "")
    elif scheme == "zip":
        from .archive import parse_archive_url

        parse_archive_url(text)
    else:
        from .remote import filesystem_class

        filesystem_class(text)


def check_prefix(path: str, prefix: str) -> None:
    """StenoError where a folder has no such folder below it: what is to be compared must be there."""
    root, name = RootFolder(path), prefix.strip("/")
    if name and not has_folder(root, name):
        why = "it is a link, or lies behind one," if root.is_folder(f"{name}/.") else FOLDER_MISSING
        raise StenoError(f"--prefix={prefix}: {why} in {root.given_path}")


def has_folder(root: RootFolder, name: str) -> bool:
    """Whether a folder has this name below another, and no link is on the way to it."""
    return root.is_folder(name) and root.relative_name(name) == name


def make_destination(text: str, root: RootFolder, prefix: str, replace: bool) -> Destination:
    """The destination that is meant. StenoError where there is none, or where it would sync a folder into itself."""
    check_destination(text)
    if text.startswith("cmd:"):
        from .command import CommandDestination

        return CommandDestination(text.removeprefix("cmd:").strip(), root, prefix)
    if text.startswith("dir:") or (text.startswith(("file://", "local://")) and "::" not in text):
        from .folder import FolderDestination

        found = FolderDestination(parse_local_path(text), replace)
        _check_no_overlap(text, found.path, root)
        return found
    if text.startswith(("http://", "https://")):
        from .http import HttpDestination

        return HttpDestination(text)
    if text.startswith("zip:"):
        from .archive import ArchiveDestination, parse_archive_url

        archive = ArchiveDestination(*parse_archive_url(text))
        _check_no_overlap(text, archive.path, root)
        return archive
    from .remote import FsspecDestination

    for path in _local_paths(text):
        _check_no_overlap(text, path, root)
    return FsspecDestination(text)


def parse_local_path(text: str) -> str:
    """The path in dir:PATH, file:///PATH or local://PATH. StenoError where it can be none."""
    kind, path = text.partition(":")[0], text.partition(":")[2]
    if kind == "file":
        path = unquote(path.removeprefix("//").removeprefix("localhost"), errors="surrogateescape")
        if not path.startswith("/"):
            raise StenoError(f"{text}: expected file:///PATH, a folder on this machine")
    elif kind == "local":
        path = path.removeprefix("//")
    if not path or path[0].isspace() or "\0" in path:
        raise StenoError(f"{text}: expected a folder, such as dir:/backup/project")
    found = os.path.expanduser(path)  # noqa: PTH111
    if found.startswith("~"):
        user = found.partition("/")[0]
        raise StenoError(
            f"{text}: there is no user {user[1:]}; a folder with this name is dir:./{user}"
        )
    return found


def _local_paths(url: str) -> Iterator[str]:
    """The paths on this machine in a chain of URLs, as fsspec reads them."""
    for at, part in enumerate(url.split("::")):
        if (found := _LOCAL_URL.fullmatch(part)) is not None:
            yield os.path.expanduser(found[1])  # noqa: PTH111
        elif at and "://" not in part:
            yield os.path.expanduser(part)  # noqa: PTH111


def _check_no_overlap(text: str, path: str, root: RootFolder) -> None:
    here, there = root.real_path.rstrip("/") + "/", os.path.realpath(path).rstrip("/") + "/"
    if here.startswith(there) or there.startswith(here):
        raise StenoError(f"{text}: the destination and {root.real_path} lie in one another")
