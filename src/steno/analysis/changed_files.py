"""The files that a run changed, each with the calls that changed it. Pure."""

import math
from collections.abc import Sequence
from datetime import datetime

import msgspec

from ..event import FileChanged
from ..report import ChangedFile, ToolCallSummary, resolve_path
from .attribution import CallSpan, CallTimes, only_possible_call


class ChangedFiles:
    """Takes in the file changes of one run, from its tools, from the disk and from git."""

    def __init__(self) -> None:
        self._files: dict[str, ChangedFile] = {}  # by absolute path
        self._by_given_path: dict[str, ChangedFile] = {}  # by path as written in the event
        self._calls: set[tuple[str, str]] = set()  # absolute path and call of each entry
        self._observed: list[tuple[ChangedFile, FileChanged]] = []  # on disk or by git

    def __bool__(self) -> bool:
        return bool(self._files)

    def add(self, event: FileChanged, cwd: str | None) -> None:
        """Take in a change; `cwd` is the agent's folder as far as it is known."""
        known = self._by_given_path.get(event.path)
        if known is None:
            known = self._by_given_path[event.path] = self._entry(event, cwd)
        if event.source == "tool":
            known.source = "tool"  # it may have been seen on disk before
        else:
            self._observed.append((known, event))
            if event.source == "git" and known.source != "git":
                return  # already known from the tool or the disk
            if (known.change, event.change, known.source) == ("created", "deleted", "filesystem"):
                self._remove(known, event.path)  # a temporary file
                return
        if event.change == "deleted" or known.change == "deleted":
            known.change = event.change
        if event.call is None:
            return
        entry = (known.absolute, event.call)
        if not event.line and entry in self._calls:
            known.change = event.change  # repeated by the transcript, which is more exact
            return
        known.tools.append(event.call)
        self._calls.add(entry)

    def _entry(self, event: FileChanged, cwd: str | None) -> ChangedFile:
        """The entry of a file, known under another spelling of its path or new."""
        path, absolute, inside = resolve_path(event.path, cwd)
        if absolute not in self._files:
            file = ChangedFile(path, absolute, event.change, inside, [], event.source)
            self._files[absolute] = file
        return self._files[absolute]

    def _remove(self, file: ChangedFile, given_path: str) -> None:
        del self._files[file.absolute]
        del self._by_given_path[given_path]
        self._calls.difference_update((file.absolute, call) for call in file.tools)

    def rebase(self, cwd: str) -> None:
        """Recompute relative paths once the agent's folder is known."""
        for file in self._files.values():
            file.path, file.absolute, file.inside = resolve_path(file.absolute, cwd)
        self._files = {file.absolute: file for file in self._files.values()}
        self._calls = {
            (file.absolute, call) for file in self._files.values() for call in file.tools
        }

    def attributed(self, tools: Sequence[ToolCallSummary]) -> list[ChangedFile]:
        """The files, with what only the disk or git has seen attributed to the running call."""
        if not self._observed:
            return list(self._files.values())
        only_call = only_possible_call((tool.id, tool.kind) for tool in tools)
        times = CallTimes(
            _call_span(tool, tool.started_at) for tool in tools if tool.started_at is not None
        )
        calls = {path: list(file.tools) for path, file in self._files.items()}
        known = set(self._calls)
        for file, event in self._observed:
            is_current = self._files.get(file.absolute) is file
            if not is_current or (event.source == "git" and file.source != "git"):
                continue
            call = None
            if event.source == "git":
                call = only_call
            elif event.at is not None:
                call = times.call_at(_to_ms(event.at))
            if call is not None and (file.absolute, call) not in known:
                known.add((file.absolute, call))
                calls[file.absolute].append(call)
        return [
            msgspec.structs.replace(file, tools=calls[path]) for path, file in self._files.items()
        ]


def _call_span(tool: ToolCallSummary, started: datetime) -> CallSpan:
    started_ms = _to_ms(started)
    ended_ms = math.inf if tool.duration_ms is None else started_ms + tool.duration_ms
    return CallSpan(tool.id, tool.kind, started_ms, ended_ms)


def _to_ms(at: datetime) -> float:
    return at.timestamp() * 1000
