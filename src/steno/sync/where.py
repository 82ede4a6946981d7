"""Which destination is meant by a word of the command line. It opens none."""

import os
import re
from typing import Protocol
from urllib.parse import urlsplit

from ..files.inside import Root
from ..report import StenoError
from .content import Content

KINDS = "expected dir:PATH, cmd:PROGRAM ARGS {path}, http(s)://..., or another URL such as sftp://host/folder"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*::?[^:]*://|[a-z][a-z0-9+.-]*://")


class Destination(Protocol):
    """Where files go. Each method raises `Trouble` where it could not do it; they are called from several threads."""

    name: str

    @property
    def looks_first(self) -> bool:
        """Whether it is asked what it has before each put, since asking costs nothing."""
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

    def delete(self, name: str) -> None:
        """Take a file away; one that is not there is gone already."""
        ...

    def names(self) -> list[str] | None:
        """Every file that it has; None where it cannot be asked."""
        ...

    def close(self) -> None:
        """Let go, and cut off what still goes on."""
        ...


def check(text: str) -> None:
    """StenoError where this names no destination. Nothing is opened."""
    if text.startswith("cmd:"):
        from .command import words

        words(text.removeprefix("cmd:").strip())
    elif text.startswith("dir:"):
        if not text.removeprefix("dir:"):
            raise StenoError("dir: expected a folder, such as dir:/backup/project")
    elif not _SCHEME.match(text):
        raise StenoError(f"{text}: {KINDS}")
    elif urlsplit(text).password:
        raise StenoError(
            f"{urlsplit(text).scheme}://{urlsplit(text).hostname}: a password does not belong into an address, where "
            "others see it: use ~/.netrc, STENO_SYNC_TOKEN, a key, or what fsspec reads from the environment"
        )


def check_prefix(path: str, prefix: str) -> None:
    """StenoError where a folder has no such folder below it: what is to be compared must be there."""
    root, name = Root(path), prefix.strip("/")
    if name and not (root.is_folder(name) and root.name(name) == name):
        why = "it is a link, or lies behind one" if root.is_folder(f"{name}/.") else "there is no such folder"
        raise StenoError(f"--prefix={prefix}: {why} in {root.given}")


def destination(text: str, root: Root, prefix: str, replace: bool) -> Destination:
    """The destination that is meant. StenoError where there is none, or where it would sync a folder into itself."""
    check(text)
    if text.startswith("cmd:"):
        from .command import Command

        return Command(text.removeprefix("cmd:").strip(), root, prefix)
    if text.startswith(("dir:", "file://")):
        from .folder import Folder

        folder = Folder(os.path.expanduser(text.removeprefix("dir:").removeprefix("file://")), replace)  # noqa: PTH111
        _apart(folder.path, root)
        return folder
    if text.startswith(("http://", "https://")):
        from .web import Web

        return Web(text)
    from .remote import Remote

    return Remote(text)


def _apart(path: str, root: Root) -> None:
    here, there = root.real.rstrip("/") + "/", os.path.realpath(path).rstrip("/") + "/"
    if here.startswith(there) or there.startswith(here):
        raise StenoError(f"dir:{path}: the destination and {root.real} lie in one another")
