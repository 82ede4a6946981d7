"""Which destination a command-line argument names. Nothing is opened here."""

import os
import re
from typing import Protocol

from ..codec.redact import has_password, redact
from ..errors import StenoError
from ..workspace.safe_path import FOLDER_MISSING, RootFolder
from .files import Content
from .options import local_paths, parse_archive_url, parse_local_path

DESTINATION_FORMS = (
    "expected dir:PATH, cmd:PROGRAM ARGS {path}, http(s)://..., "
    "or another URL such as sftp://host/folder"
)
_URL_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*::?[^:]*://|[a-z][a-z0-9+.-]*://")


class Destination(Protocol):
    """Where files go. Methods raise SyncError, and are called from several threads."""

    name: str

    @property
    def is_cheap_to_compare(self) -> bool:
        """Whether to compare before each put."""
        ...

    @property
    def can_compare(self) -> bool:
        """Whether `has_same` knows the content."""
        ...

    @property
    def can_delete(self) -> bool:
        """Whether `delete` works."""
        ...

    @property
    def commits_on_close(self) -> bool:
        """Whether files exist only after `close`."""
        ...

    def open(self) -> None:
        """Prepare; called before the first file."""
        ...

    def has_same(self, name: str, content: Content) -> bool:
        """Whether it has these bytes already."""
        ...

    def put(self, name: str, content: Content) -> None:
        """Write a file."""
        ...

    def delete(self, name: str) -> bool:
        """Delete a file; False if it didn't exist."""
        ...

    def list_names(self) -> list[str] | None:
        """Every file; None if unknown."""
        ...

    def close(self) -> None:
        """Abort active transfers and close. SyncError: uncommitted files are lost."""
        ...


def check_destination(text: str) -> None:
    """StenoError if this names no destination."""
    if has_password(text):
        raise StenoError(
            f"{redact(text)}: passwords in URLs and commands are visible to others; "
            "use ~/.netrc, STENO_SYNC_TOKEN, a key, or fsspec's environment variables"
        )
    if text.startswith("cmd:"):
        from .remote import parse_command

        parse_command(text.removeprefix("cmd:").strip())
    elif text.startswith("dir:"):
        parse_local_path(text)
    elif not _URL_SCHEME.match(text):
        raise StenoError(f"{text}: {DESTINATION_FORMS}")
    else:
        _check_url(text)


def _check_url(text: str) -> None:
    scheme = text.partition(":")[0]
    if scheme in ("file", "local") and "::" not in text:
        parse_local_path(text)
    elif scheme in ("http", "https"):
        from .http import check_url

        check_url(text)
    elif scheme == "zip":
        parse_archive_url(text)
    else:
        from .remote import filesystem_class

        filesystem_class(text)


def check_prefix(path: str, prefix: str) -> None:
    """StenoError if a folder has no such subfolder."""
    root = RootFolder(path)
    name = prefix.strip("/")
    if name and not has_folder(root, name):
        is_link = root.is_folder(f"{name}/.")
        reason = "is a symbolic link or behind one" if is_link else FOLDER_MISSING
        raise StenoError(f"--prefix={prefix}: {reason} in {root.given_path}")


def has_folder(root: RootFolder, name: str) -> bool:
    """Whether there is a subfolder of this name, with no link on the way to it."""
    return root.is_folder(name) and root.relative_name(name) == name


def make_destination(text: str, root: RootFolder, prefix: str, replace: bool) -> Destination:
    """Create a destination. StenoError if it is invalid or overlaps with the source."""
    check_destination(text)
    if text.startswith("cmd:"):
        from .remote import CommandDestination

        return CommandDestination(text.removeprefix("cmd:").strip(), root, prefix)
    if text.startswith("dir:") or (text.startswith(("file://", "local://")) and "::" not in text):
        from .folder import FolderDestination

        folder = FolderDestination(parse_local_path(text), replace)
        _check_no_overlap(text, folder.path, root)
        return folder
    if text.startswith(("http://", "https://")):
        from .http import HttpDestination

        return HttpDestination(text)
    if text.startswith("zip:"):
        from .folder import ArchiveDestination

        archive = ArchiveDestination(*parse_archive_url(text))
        _check_no_overlap(text, archive.path, root)
        return archive
    from .remote import FsspecDestination

    for path in local_paths(text):
        _check_no_overlap(text, path, root)
    return FsspecDestination(text)


def _check_no_overlap(text: str, path: str, root: RootFolder) -> None:
    source = root.real_path.rstrip("/") + "/"
    destination = os.path.realpath(path).rstrip("/") + "/"
    if source.startswith(destination) or destination.startswith(source):
        raise StenoError(f"{text}: source and destination overlap ({root.real_path})")
