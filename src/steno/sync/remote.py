"""Destinations by fsspec (memory, sftp, s3, gs and so on), and by a command of the user's.

Where a store can rename, a file is written under a temporary name first; object stores show a file
only when it is complete.
"""

import secrets
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from urllib.parse import urlsplit

from ..errors import StenoError, SyncError
from ..installation import extra_command
from ..process.child import RunOnce
from ..process.process_tree import CommandGuard, GracePeriods
from ..workspace.ignore_rules import TEMP_PREFIX
from ..workspace.safe_path import RootFolder, is_safe_name
from .files import CHUNK_BYTES, Content, convert_errors, sha256_of

MAX_SINGLE_WRITE_BYTES = 1 << 26  # larger files are streamed
HOST_PROTOCOLS = {"sftp", "ssh", "ftp", "smb", "webhdfs"}  # URLs start with a host
RENAMING_PROTOCOLS = HOST_PROTOCOLS | {"file", "local", "dbfs", "hdfs", "arrow_hdfs"}
READ_ONLY_PROTOCOLS = {"data", "reference", "tar", "libarchive", "github", "gist", "git", "generic"}


class FsspecDestination:
    """A destination."""

    is_cheap_to_compare = False
    can_compare = True
    can_delete = True
    commits_on_close = False

    def __init__(self, url: str) -> None:
        self.name = url
        store_class = filesystem_class(url)
        protocol = store_class.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self._can_rename = bool(protocols & RENAMING_PROTOCOLS) or url.startswith(("sftp:", "ssh:"))
        self._open_lock = threading.Lock()
        is_thread_safe = getattr(store_class, "async_impl", False)
        self._lock = nullcontext() if is_thread_safe else threading.Lock()
        self._fs: Any = None
        self._root = ""

    def open(self) -> None:
        """Open the store, which may connect."""
        with self._open_lock:
            if self._fs is None:
                self._fs, self._root = open_filesystem(self.name)

    def has_same(self, name: str, content: Content) -> bool:
        """Whether a file has these bytes."""
        self.open()
        with self._locked(), suppress(FileNotFoundError, IsADirectoryError, KeyError):
            if self._fs.size(self._path(name)) != content.size:
                return False
            with self._fs.open(self._path(name), "rb") as file:
                return sha256_of(file) == content.digest
        return False

    def put(self, name: str, content: Content) -> None:
        """Write a file."""
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
        """Delete a file; False if it didn't exist."""
        with self._locked():
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                return False
        return True

    def list_names(self) -> list[str]:
        """Every file."""
        self.open()
        with self._locked():
            skip = len(self._root.rstrip("/")) + 1 if self._root else 0
            return [
                path[skip:]
                for path in self._fs.find(self._root)
                if not path.rpartition("/")[2].startswith(TEMP_PREFIX)
            ]

    def close(self) -> None:
        """Nothing: fsspec caches its connections."""

    # -- one file ----------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        if not is_safe_name(name):
            raise SyncError("invalid file name", is_permanent=True)
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
        """Rename; some stores do so only to a name that is free."""
        try:
            self._fs.mv(old, new)
        except Exception:
            if not self._fs.exists(new):
                raise
            self._fs.rm_file(new)
            self._fs.mv(old, new)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock, convert_errors(Exception):  # each store has errors of its own
            yield


def filesystem_class(url: str) -> Any:
    """The fsspec class for a URL. StenoError says what is missing."""
    try:
        from fsspec import get_filesystem_class  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise StenoError(f"{url}: fsspec is required: {extra_command('sync')}") from None
    scheme = url.partition(":")[0]
    if scheme in READ_ONLY_PROTOCOLS:
        raise StenoError(f"{url}: {scheme}:// is read-only")
    try:
        if scheme in HOST_PROTOCOLS and (not (parts := urlsplit(url)).hostname or parts.port == 0):
            raise StenoError(f"{url}: expected a host, such as {scheme}://host/folder")
        return get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise StenoError(f"{url}: {error}") from None


def open_filesystem(url: str) -> tuple[Any, str]:
    """The store of a URL, and the path in it."""
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # it has no types

    try:
        store, path = url_to_fs(url)
    except Exception as error:  # each store has errors of its own
        raise SyncError(f"cannot open: {error}") from error
    return store, str(path)


COMMAND_TIMEOUT_SECONDS = 300.0  # for one file
COMMAND_GRACE = GracePeriods(terminate=2.0, kill=2.0)
MAX_REASON_CHARACTERS = 300
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


class CommandDestination:
    """A destination."""

    is_cheap_to_compare = False
    can_compare = False
    commits_on_close = False

    def __init__(self, text: str, root: RootFolder, prefix: str) -> None:
        self.name = f"cmd:{text}"
        self._root = root
        self._prefix = prefix
        self._argv = parse_command(text)
        self.can_delete = any("{change}" in word for word in self._argv)
        self._lock = threading.RLock()  # reentrant: a signal handler may call `close`
        self._guard: CommandGuard | None = None
        self._running: set[RunOnce] = set()
        self._is_closed = False

    def open(self) -> None:
        """Make sure that no command outlives steno."""
        with self._lock:
            if self._guard is None and not self._is_closed:
                self._guard = CommandGuard("sync")

    def has_same(self, name: str, content: Content) -> bool:
        """Unknown, so False."""
        return False

    def put(self, name: str, content: Content) -> None:
        """Run the command for a file."""
        self._run(name, "put")

    def delete(self, name: str) -> bool:
        """Run the command for a deleted file."""
        self._run(name, "delete")
        return True

    def list_names(self) -> None:
        """Unknown."""

    def close(self) -> None:
        """Terminate running commands."""
        with self._lock:
            self._is_closed = True
            running = list(self._running)
        if self._guard is not None:
            if running:
                self._guard.terminate(COMMAND_GRACE)
            for process in running:  # one may have been about to start
                process.kill()
            self._guard.close()

    def _run(self, name: str, change: str) -> None:
        path = self._root.absolute_path(self._prefix + name)
        safe_name = f"./{name}" if name.startswith("-") else name  # not an option
        values = {"{path}": path, "{name}": safe_name, "{change}": change}
        argv = [_substitute(word, values) for word in self._argv]
        env = {"STENO_PATH": path, "STENO_NAME": name, "STENO_CHANGE": change}
        with self._lock:
            if self._is_closed:
                raise SyncError("interrupted")
            process = RunOnce(
                argv, self._root.real_path, env, COMMAND_TIMEOUT_SECONDS, guard=self._guard
            )
            self._running.add(process)
        try:
            code, _, stderr = process.run()
        finally:
            self._running.discard(process)
        if code != 0:
            lines = stderr.strip().splitlines()
            reason = lines[-1] if lines else f"{argv[0]} failed with exit code {code}"
            raise SyncError(
                reason[:MAX_REASON_CHARACTERS],
                is_permanent=code in (EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND),
            )


def parse_command(text: str) -> list[str]:
    """Split a command at blanks; quotes and backslashes work as in a shell."""
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise StenoError(f"cmd:{text}: {error}") from None
    if not argv:
        raise StenoError(
            "cmd: expected a program and its arguments, such as cmd:rsync -a {path} host:backup/"
        )
    has_file = any("{path}" in word or "{name}" in word for word in argv[1:])
    return argv if has_file else [*argv, "{path}"]


def _substitute(word: str, values: dict[str, str]) -> str:
    """Replace placeholders; inserted values are not searched again."""
    start = min((at for mark in values if (at := word.find(mark)) >= 0), default=-1)
    if start < 0:
        return word
    mark = next(mark for mark in values if word.startswith(mark, start))
    return word[:start] + values[mark] + _substitute(word[start + len(mark) :], values)
