"""Follows the session files of an agent while the agent writes them."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ..codec.decode import LineSplitter
from .open import is_line_since

READ_CHUNK_BYTES = 1 << 18
MAX_POLL_BYTES = 1 << 22  # per file and call: a resumed session can be long


class TranscriptFollower:
    """New lines of the files that match a glob below some folders.

    As in `read_transcripts`, lines before `since` are left out except the first one of each file.
    A file that cannot be read has no lines. `has_new_lines`: one of them has grown since then.
    """

    def __init__(self, folders: Iterable[str], since: str) -> None:
        self._folders = list(folders)
        self._since = since
        self._files: dict[Path, GrowingFile] = {}

    @property
    def has_new_lines(self) -> bool:
        return any(file.has_new_lines for file in self._files.values())

    def find(self, pattern: str) -> None:
        """Open the files that match and are not open yet."""
        for folder in self._folders:
            with suppress(OSError):
                for path in sorted(Path(folder).glob(pattern)):
                    if path not in self._files and path.is_file():
                        self._files[path] = GrowingFile(path, self._since)

    def lines(self) -> Iterator[bytes]:
        """The complete lines since the last call, without their newlines."""
        for file in self._files.values():
            with suppress(OSError):
                yield from file.lines()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class GrowingFile:
    """One file. An incomplete line is kept until the rest arrives; a truncated file is reread."""

    def __init__(self, path: Path, since: str) -> None:
        self._file = path.open("rb", buffering=0)
        self._since = since
        self._splitter = LineSplitter()
        self._is_at_start = True
        self.has_new_lines = False

    def lines(self) -> Iterator[bytes]:
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._splitter = LineSplitter()
            self._is_at_start = True
        for _ in range(MAX_POLL_BYTES // READ_CHUNK_BYTES):
            data = self._file.read(READ_CHUNK_BYTES)
            if not data:
                return
            for line in self._splitter.feed(data):
                is_new = is_line_since(line, self._since)
                self.has_new_lines |= is_new
                if is_new or self._is_at_start:
                    yield line
                self._is_at_start = False

    def close(self) -> None:
        self._file.close()
