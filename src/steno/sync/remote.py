"""Anything that fsspec reaches as a destination: memory, sftp, s3, gs and so on. Loaded only when such a URL is given.

Where a store can rename, a file is written under a name of ours first; the others (object stores) show a file only when
it is whole. What may be written where is the other side's affair.
"""

import secrets
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ..errors import StenoError, SyncError
from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import is_safe_name
from .content import CHUNK_BYTES, Content, sha256_of

MAX_SINGLE_WRITE_BYTES = 1 << 26  # bytes that are handed over in one piece
RENAMING_PROTOCOLS = {
    "file",
    "local",
    "sftp",
    "ssh",
    "ftp",
    "smb",
    "dbfs",
    "hdfs",
    "webhdfs",
    "arrow_hdfs",
}  # kinds that do

READ_ONLY_PROTOCOLS = {
    "data",
    "reference",
    "tar",
    "libarchive",
    "github",
    "gist",
    "git",
    "generic",
}  # kinds that take no files
HOST_PROTOCOLS = {"sftp", "ssh", "ftp", "smb", "webhdfs"}  # kinds whose addresses begin with a host


class FsspecDestination:
    """A destination."""

    is_cheap_to_compare = commits_on_close = False
    can_compare = can_delete = True

    def __init__(self, url: str) -> None:
        self.name = url
        kind = filesystem_class(url)
        protocols = {kind.protocol} if isinstance(kind.protocol, str) else set(kind.protocol)
        self._can_rename = bool(protocols & RENAMING_PROTOCOLS) or url.startswith(("sftp:", "ssh:"))
        self._open_lock = threading.Lock()
        self._lock = threading.Lock() if not getattr(kind, "async_impl", False) else None
        self._fs: Any = None
        self._root = ""

    def open(self) -> None:
        """Open it, which may mean to connect."""
        with self._open_lock:
            if self._fs is None:
                self._fs, self._root = open_filesystem(self.name)

    def has_same(self, name: str, content: Content) -> bool:
        """Whether these bytes are there already."""
        self.open()
        with self._locked(), suppress(FileNotFoundError, IsADirectoryError, KeyError):
            if self._fs.size(self._path(name)) != content.size:
                return False
            with self._fs.open(self._path(name), "rb") as file:
                return sha256_of(file) == content.digest
        return False

    def put(self, name: str, content: Content) -> None:
        """Put a file there."""
        path = self._path(name)
        with self._locked():
            folder = path.rpartition("/")[0]
            if folder:
                self._fs.makedirs(folder, exist_ok=True)
            if not self._can_rename:
                self._write(path, content)
                return
            temporary = f"{folder}/{TEMP_PREFIX}{secrets.token_hex(8)}"
            try:
                self._write(temporary, content)
                self._rename(temporary, path)
            except BaseException:
                with suppress(Exception):
                    self._fs.rm_file(temporary)
                raise

    def delete(self, name: str) -> bool:
        """Take a file away."""
        with self._locked():
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                return False
        return True

    def list_names(self) -> list[str]:
        """Every file that is there."""
        self.open()
        with self._locked():
            skip = len(self._root.rstrip("/")) + 1 if self._root else 0
            found = self._fs.find(self._root)
            return [
                path[skip:] for path in found if not path.rpartition("/")[2].startswith(TEMP_PREFIX)
            ]

    def close(self) -> None:
        """fsspec keeps its connections for whoever comes next."""

    # -- one file ------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        if not is_safe_name(name):
            raise SyncError("this can be no name in a folder", is_permanent=True)
        return f"{self._root.rstrip('/')}/{name}" if self._root else name

    def _write(self, path: str, content: Content) -> None:
        if content.size <= MAX_SINGLE_WRITE_BYTES:
            self._fs.pipe_file(path, content.read_all())
            return
        source = content.rewind()
        with self._fs.open(path, "wb") as file:
            while data := source.read(CHUNK_BYTES):
                file.write(data)

    def _rename(self, old: str, new: str) -> None:
        """In one step where the other side can; some rename only to names that are free."""
        try:
            self._fs.mv(old, new)
        except Exception:
            if not self._fs.exists(new):
                raise
            self._fs.rm_file(new)
            self._fs.mv(old, new)

    def _locked(self) -> "_StoreLock":
        return _StoreLock(self._lock)


class _StoreLock:
    """One at a time where a store wants that; whatever it raises is told as trouble."""

    def __init__(self, lock: "threading.Lock | None") -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if self._lock is not None:
            self._lock.acquire()

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if self._lock is not None:
            self._lock.release()
        if isinstance(problem, Exception) and not isinstance(problem, SyncError):
            lasting = isinstance(problem, PermissionError | NotImplementedError)
            raise SyncError(str(problem) or type(problem).__name__, lasting) from problem


def filesystem_class(url: str) -> Any:
    """The kind of store that a URL names. StenoError says what is missing. Nothing is opened."""
    try:
        from fsspec import get_filesystem_class  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise StenoError(f"{url}: this needs one more package: pip install 'steno[sync]'") from None
    scheme = url.partition(":")[0]
    if scheme in READ_ONLY_PROTOCOLS:
        raise StenoError(f"{url}: nothing can be written to {scheme}://")
    try:
        if scheme in HOST_PROTOCOLS and (not (parts := urlsplit(url)).hostname or parts.port == 0):
            raise StenoError(f"{url}: expected a host, such as {scheme}://host/folder")
        return get_filesystem_class(scheme)
    except (ImportError, ValueError) as problem:
        raise StenoError(f"{url}: {problem}") from None


def open_filesystem(url: str) -> tuple[Any, str]:
    """The store behind a URL, and where in it we begin."""
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # it has no types

    try:
        store, start = url_to_fs(url)
    except Exception as problem:  # each kind of store has errors of its own
        raise SyncError(f"it cannot be opened: {problem}") from problem
    return store, str(start)
