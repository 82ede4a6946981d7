"""Which destination is meant by a word of the command line. It opens none."""

import os
import re
from collections.abc import Iterator
from typing import Protocol
from urllib.parse import unquote

from ..files.inside import GONE, Root
from ..report import StenoError
from .content import Content

KINDS = "expected dir:PATH, cmd:PROGRAM ARGS {path}, http(s)://..., or another URL such as sftp://host/folder"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*::?[^:]*://|[a-z][a-z0-9+.-]*://")
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_LOCAL = re.compile(r"(?:file|local):(?://)?(.*)", re.S)


class Destination(Protocol):
    """Where files go. Each method raises `Trouble` where it could not do it; they are called from several threads."""

    name: str

    @property
    def looks_first(self) -> bool:
        """Whether it is asked what it has before each put, since asking costs nothing."""
        ...

    @property
    def answers(self) -> bool:
        """Whether it can be asked what a file holds there."""
        ...

    @property
    def deletes(self) -> bool:
        """Whether a file can be taken away there."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether what was put is there only once it was closed."""
        ...

    def begin(self) -> None:
        """Get ready."""
        ...

    def same(self, name: str, content: Content) -> bool:
        """Whether it has these bytes already."""
        ...

    def put(self, name: str, content: Content) -> None:
        """Put a file there."""
        ...

    def delete(self, name: str) -> bool:
        """Take a file away; False: it was gone already."""
        ...

    def names(self) -> list[str] | None:
        """Every file that it has; None where it cannot be asked."""
        ...

    def close(self) -> None:
        """Let go, and cut off what still goes on. `Trouble`: what was put is not there."""
        ...


def check(text: str) -> None:
    """StenoError where this names no destination. Nothing is opened."""
    if text.startswith("cmd:"):
        from .command import words

        words(text.removeprefix("cmd:").strip())
    elif text.startswith("dir:"):
        folder(text)
    elif not _SCHEME.match(text):
        raise StenoError(f"{text}: {KINDS}")
    elif _PASSWORD.search(text):
        raise StenoError(
            f"{_PASSWORD.sub('://', text)}: a password does not belong into an address, where others see it: use ~/.netrc, "
            "STENO_SYNC_TOKEN, a key, or what fsspec reads from the environment"
        )
    else:
        _check_url(text)


def _check_url(text: str) -> None:
    scheme = text.partition(":")[0]
    if scheme in ("file", "local") and "::" not in text:
        folder(text)
    elif scheme in ("http", "https"):
        from .web import address, credentials

        credentials(address(text).hostname or "")
    elif scheme == "zip":
        from .archive import parts

        parts(text)
    else:
        from .remote import known

        known(text)


def check_prefix(path: str, prefix: str) -> None:
    """StenoError where a folder has no such folder below it: what is to be compared must be there."""
    root, name = Root(path), prefix.strip("/")
    if name and not has_folder(root, name):
        why = "it is a link, or lies behind one," if root.is_folder(f"{name}/.") else GONE
        raise StenoError(f"--prefix={prefix}: {why} in {root.given}")


def has_folder(root: Root, name: str) -> bool:
    """Whether a folder has this name below another, and no link is on the way to it."""
    return root.is_folder(name) and root.name(name) == name


def destination(text: str, root: Root, prefix: str, replace: bool) -> Destination:
    """The destination that is meant. StenoError where there is none, or where it would sync a folder into itself."""
    check(text)
    if text.startswith("cmd:"):
        from .command import Command

        return Command(text.removeprefix("cmd:").strip(), root, prefix)
    if text.startswith("dir:") or (text.startswith(("file://", "local://")) and "::" not in text):
        from .folder import Folder

        found = Folder(folder(text), replace)
        _apart(text, found.path, root)
        return found
    if text.startswith(("http://", "https://")):
        from .web import Web

        return Web(text)
    if text.startswith("zip:"):
        from .archive import Archive, parts

        archive = Archive(*parts(text))
        _apart(text, archive.path, root)
        return archive
    from .remote import Remote

    for path in _local_parts(text):
        _apart(text, path, root)
    return Remote(text)


def folder(text: str) -> str:
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
        raise StenoError(f"{text}: there is no user {user[1:]}; a folder with this name is dir:./{user}")
    return found


def _local_parts(url: str) -> Iterator[str]:
    """The paths on this machine in a chain of URLs, as fsspec reads them."""
    for at, part in enumerate(url.split("::")):
        if (found := _LOCAL.fullmatch(part)) is not None:
            yield os.path.expanduser(found[1])  # noqa: PTH111
        elif at and "://" not in part:
            yield os.path.expanduser(part)  # noqa: PTH111


def _apart(text: str, path: str, root: Root) -> None:
    here, there = root.real.rstrip("/") + "/", os.path.realpath(path).rstrip("/") + "/"
    if here.startswith(there) or there.startswith(here):
        raise StenoError(f"{text}: the destination and {root.real} lie in one another")
