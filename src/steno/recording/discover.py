"""Finds recordings below a folder, by the content of their first lines.

The first line usually decides; the lines after it are checked only if it does not.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from .. import agents
from ..errors import SourceError
from .agent_lines import AGENT_DETECTION_LINES, iter_json_objects
from .format import parse_header
from .open import (
    FIRST_LINE_BUFFER_BYTES,
    is_folder,
    read_first_line,
    read_lines,
    session_id_of,
    unreadable_error,
)


def find_recordings(path: Path) -> list[Path]:
    """The path itself, or every recording below a folder, sorted. SourceError without any."""
    if not is_folder(path) or (path / "stdout").is_file():
        return [path]
    recordings = list(_find_below(path, set()))
    if not recordings:
        expected = "expected streams, recordings, transcripts or folders with stdout"
        raise SourceError(f"{path}: no recordings in this folder; {expected}")
    return recordings


def is_first_visit(folder: str | Path, visited: set[tuple[int, int]]) -> bool:
    """Whether the folder is new, under any name: symbolic links can form a cycle."""
    stat = os.stat(folder)  # noqa: PTH116  # faster than pathlib, for thousands of folders
    identity = (stat.st_dev, stat.st_ino)
    is_new = identity not in visited
    visited.add(identity)
    return is_new


def _find_below(folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir()) if is_first_visit(folder, visited) else []
    except OSError as error:
        raise unreadable_error(folder, error) from None
    for entry in entries:
        if entry.is_dir():
            if (entry / "stdout").is_file():
                if is_first_visit(entry, visited):
                    yield entry
            elif not (entry.name == "subagents" and folder.with_suffix(".jsonl").is_file()):
                yield from _find_below(entry, visited)
        elif entry.is_file() and _is_recording(entry) and not _is_subagent_transcript(entry):
            yield entry


def _is_recording(path: Path) -> bool:
    """Whether a file found in a folder is a recording."""
    first = read_first_line(path)
    if first is None:
        return False
    if parse_header(first) is not None:
        return True
    line = first.removeprefix(b"\xef\xbb\xbf").strip()
    if line.startswith(b"[{"):
        return b'"type"' in line
    return agents.detect_agent(line) is not None or find_identifying_line(path) is not None


def find_identifying_line(path: Path, given: bool = False) -> bytes | None:
    """The line that identifies the agent if the first does not: it may be noise, torn or several.

    In a file named by the user (`given`) one such line is enough, and the file may be a document of
    many lines. In a file found in a folder at least half of the lines must be an agent's: other
    texts may quote such a line.
    """
    checked = 0
    matches: list[bytes] = []
    for line in _first_lines(path):
        if given and not checked and line.strip() == b"{":
            return _read_document(path)
        checked += 1
        objects = iter_json_objects(line)
        match = next((value for value in objects if agents.detect_agent(value) is not None), None)
        if match is not None:
            matches.append(match)
            if given:
                break
    return matches[0] if matches and (given or 2 * len(matches) >= checked) else None


def _first_lines(path: Path) -> Iterator[bytes]:
    """The lines used for detection, without blank ones; none if the file cannot be read."""
    lines = read_lines(path, FIRST_LINE_BUFFER_BYTES)
    try:
        yield from islice((line for line in lines if line.strip()), AGENT_DETECTION_LINES)
    except SourceError:
        return
    finally:
        lines.close()


def _read_document(path: Path) -> bytes | None:
    """The content of a file with one JSON document, if it is an agent's."""
    try:
        document = b"".join(read_lines(path))
    except SourceError:
        return None
    return document if agents.detect_agent(document) is not None else None


def _is_subagent_transcript(path: Path) -> bool:
    """Whether this is a subagent's transcript, which is read with the session next to it."""
    if not path.name.startswith("agent-"):
        return False
    session = session_id_of(path)
    return session is not None and path.with_name(f"{session}.jsonl").is_file()
