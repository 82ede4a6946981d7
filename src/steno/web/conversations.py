"""Conversations of recordings, read once and kept for the next slices of the same page."""

import threading
from collections import OrderedDict
from pathlib import Path

from msgspec import Struct

from ..errors import SourceError
from ..export.conversation import Conversation, Step, read_conversation
from ..export.presentation import start_of
from ..pricing import price
from ..recording.open import open_recording
from ..report import Report

MAX_OPEN = 6  # conversations; their texts are in temporary files
STEPS_PER_SLICE = 60

FileVersion = tuple[str, int, int]


class Slice(Struct):
    """Consecutive steps of a conversation, and where they are in it."""

    steps: list[Step]
    start: int
    total: int
    started_ms: int | None  # start of the run

    @property
    def end(self) -> int:
        return self.start + len(self.steps) - 1

    @property
    def next_start(self) -> int | None:
        return self.end + 1 if self.end < self.total else None

    @property
    def previous_start(self) -> int | None:
        return max(1, self.start - STEPS_PER_SLICE) if self.start > 1 else None


class ConversationReader:
    """One conversation. Its temporary file has one position, so threads take turns."""

    def __init__(self, conversation: Conversation, version: FileVersion) -> None:
        self.version = version
        self.report: Report = conversation.report
        self._conversation = conversation
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._conversation)

    def slice(self, start: int, count: int = STEPS_PER_SLICE) -> Slice:
        with self._lock:
            steps = list(self._conversation.slice(start, count))
            return Slice(steps, start, len(self), start_of(self.report))

    def evidence(self) -> dict[int, Step | None]:
        """The lines that prove the verdict, each with its step."""
        with self._lock:
            numbers = self._conversation.evidence()
            return {
                line: None if number is None else next(self._conversation.slice(number, 1), None)
                for line, number in numbers.items()
            }

    def step_of_line(self, line: int) -> int | None:
        return self._conversation.step_of_line(line)

    def step_of_call(self, call: str) -> int | None:
        return self._conversation.step_of_call(call)

    def patches(self) -> dict[str, list[str]]:
        """The lines of what calls changed in each file, as far as the agent reports it."""
        patches: dict[str, list[str]] = {}
        with self._lock:
            for step in self._conversation:
                if step.tool is not None and step.tool.patch:
                    for file in step.tool.files:
                        patches.setdefault(file.path, []).extend(step.tool.patch.splitlines())
        return patches

    def close(self) -> None:
        with self._lock:
            self._conversation.close()


class ConversationCache:
    """The conversations read last, by the version of their file."""

    def __init__(self) -> None:
        self._readers: OrderedDict[FileVersion, ConversationReader] = OrderedDict()
        self._lock = threading.Lock()
        self._reading: dict[str, threading.Lock] = {}

    def is_ready(self, path: str) -> bool:
        return _file_version(path) in self._readers

    def get(self, path: str) -> ConversationReader:
        """The conversation of a recording; SourceError if there is none."""
        with self._lock:
            reading = self._reading.setdefault(path, threading.Lock())
        with reading:  # the second of two requests for a long recording waits for the first
            version = _file_version(path)
            with self._lock:
                if version in self._readers:
                    self._readers.move_to_end(version)
                    return self._readers[version]
            conversation = read_conversation(open_recording(path), price=price)
            reader = ConversationReader(conversation, version)
            with self._lock:
                self._readers[version] = reader
                self._reading.pop(path, None)
                removed = self._readers.popitem(last=False)[1] if self._is_full() else None
            if removed is not None:
                removed.close()
            return reader

    def _is_full(self) -> bool:
        return len(self._readers) > MAX_OPEN

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


def _file_version(path: str) -> FileVersion:
    """Path, time of the last change and size; SourceError if there is no such file."""
    file = Path(path)
    try:
        stat = (file / "stdout" if file.is_dir() else file).stat()
    except OSError as error:
        raise SourceError(f"{path}: recording not found ({error.strerror})") from None
    return path, stat.st_mtime_ns, stat.st_size
