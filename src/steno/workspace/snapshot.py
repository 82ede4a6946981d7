"""Store the files of a working tree as a git tree, byte by byte.

Git's own `add` runs filters and asks the repositories of submodules; here git only hashes files.
It starts from a copy of the user's index. The ids in it are of files after filters and line-ending
conversion, so files for which these differ from the bytes on disk are hashed again.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from .ignore_rules import looks_secret
from .repository import Repository

CONVERTING_ATTRIBUTES = ("filter", "working-tree-encoding")  # which may keep a file's size
UPDATE_INDEX = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
KEY_HEADER = b"-----BEGIN "


def take_snapshot(repository: Repository, max_bytes: int) -> str | None:
    """The id of the tree; None if more than `max_bytes` are new. GitError if git fails."""
    repository.copy_index()
    changes = _WorkingTreeChanges(repository)
    if changes.size > max_bytes:
        return None
    # Without room for them, unchanged files stay as git has them: in LFS, as their pointer.
    converted = _converted_files(repository, changes.names, max_bytes - changes.size)
    if converted:  # without the file's times, an entry is hashed again
        entries = b"\0".join(converted.values())
        repository.output("update-index", "-z", "--index-info", stdin=entries)
    if changes.removed:
        names = b"\0".join(changes.removed)
        repository.output("update-index", "-z", "--force-remove", "--stdin", stdin=names)
    if changes.updated or converted:
        names = b"\0".join([*changes.updated, *converted])
        repository.output(*UPDATE_INDEX, stdin=names)
    for name in changes.nested:  # fails for a repository without a commit
        repository.succeeds(*UPDATE_INDEX, stdin=name)
    return repository.text("write-tree", "--missing-ok")


class _WorkingTreeChanges:
    """Files that differ from the index."""

    def __init__(self, repository: Repository) -> None:
        self.size = 0
        self.updated: list[bytes] = []  # changed, new or deleted
        self.removed: list[bytes] = []  # still there, but no longer as a file of this tree
        self.nested: list[bytes] = []  # repositories in this one, which are not submodules
        self.names: set[bytes] = set()
        self._top = os.fsencode(repository.top)
        self._is_inside: dict[bytes, bool] = {}
        ignore_file = repository.path_setting("core.excludesfile", "ignore")
        listed = repository.output(
            *("-c", f"core.excludesFile={ignore_file}"),
            *("ls-files", "-z", "-t", "--modified", "--others", "--exclude-standard"),
        )
        for entry in filter(None, listed.split(b"\0")):
            name = entry[2:]
            if name not in self.names:  # unmerged files are listed several times
                self.names.add(name)
                self._add(name, is_tracked=not entry.startswith(b"?"))

    def _add(self, name: bytes, is_tracked: bool) -> None:
        path = os.path.join(self._top, name)  # noqa: PTH118  # bytes
        try:
            status = os.lstat(path)
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError) and is_tracked:
                self.updated.append(name)
            return
        kind = stat.S_IFMT(status.st_mode)
        if not self._is_in_top(os.path.dirname(path)):  # noqa: PTH120  # bytes
            self.removed.append(name)  # a folder was replaced by a link
        elif kind == stat.S_IFDIR:
            self._add_folder(name.rstrip(b"/"), path, is_tracked)
        elif kind in (stat.S_IFREG, stat.S_IFLNK):
            if is_tracked or not _is_secret(name, path):
                self._add_file(name, path, status)
        elif is_tracked:  # now a FIFO, socket or device
            self.removed.append(name)

    def _add_folder(self, name: bytes, path: bytes, is_tracked: bool) -> None:
        if not is_tracked:
            self.nested.append(name)
        elif os.path.lexists(os.path.join(path, b".git")):  # noqa: PTH118  # bytes
            self.updated.append(name)  # a submodule
        else:
            self.removed.append(name)  # it was a file

    def _add_file(self, name: bytes, path: bytes, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode) or os.access(path, os.R_OK):
            self.updated.append(name)
            self.size += status.st_size

    def _is_in_top(self, folder: bytes) -> bool:
        """Whether a folder is not reached through a link."""
        known = self._is_inside.get(folder)
        if known is None:
            known = self._is_inside[folder] = os.path.realpath(folder) == folder
        return known


def _is_secret(name: bytes, path: bytes) -> bool:
    """Whether an untracked file looks like a secret by its name, or begins as a private key."""
    if looks_secret(os.fsdecode(name)):
        return True
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            first_line = os.read(descriptor, 80).partition(b"\n")[0]
        finally:
            os.close(descriptor)
        return first_line.startswith(KEY_HEADER) and b"PRIVATE KEY" in first_line
    return False


# -- files that git converts ---------------------------------------------------------------------


def _converted_files(
    repository: Repository, changed: set[bytes], max_bytes: int
) -> dict[bytes, bytes]:
    """Index entries by name whose content is not what is on disk; none if they are too large."""
    if not _may_convert(repository, changed):
        return {}
    listed = repository.output("ls-files", "-z", "--stage").split(b"\0")
    entries = {}  # of files, not of links and submodules
    for entry in listed:
        name = entry[entry.find(b"\t") + 1 :]
        if entry.startswith(b"100") and name not in changed:
            entries[name] = entry
    sizes = _file_sizes(repository, entries)
    stored = _stored_sizes(repository, entries.values())
    filtered = _filtered_names(repository, entries, changed)
    converted = {
        name: entry
        for (name, entry), size, stored_size in zip(entries.items(), sizes, stored, strict=False)
        if size is not None and (size != stored_size or name in filtered)
    }
    total = sum(size or 0 for name, size in zip(entries, sizes, strict=True) if name in converted)
    return converted if total <= max_bytes else {}


def _may_convert(repository: Repository, changed: set[bytes]) -> bool:
    """Whether line-ending settings or attributes can make stored and working files differ."""
    autocrlf = repository.setting("core.autocrlf") or "false"
    if autocrlf.lower() not in ("false", "no", "off", "0") or _attribute_files(repository, changed):
        return True
    index = repository.own_dir / "index"
    return index.exists() and b"attributes" in index.read_bytes()  # v4 shortens .gitattributes


def _attribute_files(repository: Repository, names: Iterable[bytes]) -> list[Path]:
    """The files that give attributes: the user's, the repository's, and those among `names`."""
    files = [
        repository.common_dir / "info" / "attributes",
        repository.path_setting("core.attributesfile", "attributes"),
        *(repository.top / os.fsdecode(name) for name in names if name.endswith(b".gitattributes")),
    ]
    return [file for file in files if file.is_file()]


def _file_sizes(repository: Repository, names: Iterable[bytes]) -> list[int | None]:
    """The size of each file on disk; None for one that is missing."""
    folder = os.open(repository.top, os.O_RDONLY)
    sizes: list[int | None] = []
    try:
        for name in names:
            try:
                sizes.append(os.stat(name, dir_fd=folder, follow_symlinks=False).st_size)
            except OSError:
                sizes.append(None)
    finally:
        os.close(folder)
    return sizes


def _stored_sizes(repository: Repository, entries: Iterable[bytes]) -> list[int | None]:
    """The size of the object of each index entry; None for one that is missing."""
    ids = b"\n".join([entry.split(b" ", 2)[1] for entry in entries])
    command = ("cat-file", "--batch-check=%(objectsize)", "--buffer")
    out = repository.output(*command, stdin=ids + b"\n" if ids else b"")
    return [int(line) if line.isdigit() else None for line in out.splitlines()]


def _filtered_names(
    repository: Repository, names: Iterable[bytes], changed: set[bytes]
) -> set[bytes]:
    """The files that have one of CONVERTING_ATTRIBUTES."""
    if not any(
        _mentions_filters(file) for file in _attribute_files(repository, [*names, *changed])
    ):
        return set()
    attributes_file = repository.path_setting("core.attributesfile", "attributes")
    with repository.users_attributes():
        out = repository.output(
            *("-c", f"core.attributesFile={attributes_file}"),
            *("check-attr", "-z", "--stdin", *CONVERTING_ATTRIBUTES),
            stdin=b"".join(b"%s\0" % name for name in names),
        )
    fields = out.split(b"\0")
    pairs = zip(fields[::3], fields[2::3], strict=False)
    return {name for name, value in pairs if value not in (b"unspecified", b"unset", b"set")}


def _mentions_filters(file: Path) -> bool:
    try:
        text = file.read_bytes()
    except OSError:
        return False
    return any(name.encode() in text for name in CONVERTING_ATTRIBUTES)
