"""What tells a recording from other files, and the recordings below a folder. It looks at the first lines; it reads no events.

Told by the bytes, never by a name (I1): by the first line, and only where that decides nothing by those after it.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from .. import agents
from ..errors import SourceError
from .format import parse_header
from .open import (
    FIRST_LINE_BUFFER_BYTES,
    is_folder,
    read_first_line,
    read_lines,
    session_id_of,
    unreadable_error,
)
from .parse import AGENT_DETECTION_LINES, iter_json_objects


def find_recordings(path: Path) -> list[Path]:
    """What `path` stands for: itself, or every recording below it in order. SourceError if there is none."""
    if not is_folder(path) or (path / "stdout").is_file():
        return [path]
    found = list(_find_below(path, set()))
    if not found:
        raise SourceError(
            f"{path}: no recording below this folder; expected streams, tapes, transcripts or folders with stdout"
        )
    return found


def is_first_visit(folder: str | Path, been: set[tuple[int, int]]) -> bool:
    """Whether a folder was not looked into yet, under whatever name: links can lead in a circle."""
    stat = os.stat(folder)  # noqa: PTH116  # pathlib costs more, and there may be thousands
    place = (stat.st_dev, stat.st_ino)
    fresh = place not in been
    been.add(place)
    return fresh


def _find_below(folder: Path, been: set[tuple[int, int]]) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir()) if is_first_visit(folder, been) else []
    except OSError as problem:
        raise unreadable_error(folder, problem) from None
    for entry in entries:
        if entry.is_dir():
            if (entry / "stdout").is_file():
                if is_first_visit(entry, been):
                    yield entry
            elif not (entry.name == "subagents" and folder.with_suffix(".jsonl").is_file()):
                yield from _find_below(entry, been)
        elif entry.is_file() and _is_recording(entry) and not _is_subagent_transcript(entry):
            yield entry


def _is_recording(path: Path) -> bool:
    """Whether a file found in a folder is one of ours, by its first line."""
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
    """The line that says whose a recording is where its first one does not: that may be noise, torn, or several in one.

    Of a file that a person says is a recording (`given`), one such line is enough, and it may be a document of many lines.
    One that was only found must consist of such lines for the most part: texts quote them.
    """
    asked, claimed = 0, list[bytes]()
    for line in _first_lines(path):
        if given and not asked and line.strip() == b"{":
            return _read_document(path)
        asked += 1
        claimed += [
            value for value in iter_json_objects(line) if agents.detect_agent(value) is not None
        ][:1]
        if claimed and given:
            break
    return claimed[0] if claimed and (given or 2 * len(claimed) >= asked) else None


def _first_lines(path: Path) -> Iterator[bytes]:
    """As many of the lines that are not blank as a reading asks whose they are; none of a file that cannot be read."""
    reading = read_lines(path, FIRST_LINE_BUFFER_BYTES)
    try:
        yield from islice((line for line in reading if line.strip()), AGENT_DETECTION_LINES)
    except SourceError:
        return
    finally:
        reading.close()


def _read_document(path: Path) -> bytes | None:
    """A file that holds one JSON document, if it is an agent's."""
    try:
        held = b"".join(read_lines(path))
    except SourceError:
        return None
    return held if agents.detect_agent(held) is not None else None


def _is_subagent_transcript(path: Path) -> bool:
    """A subagent's own transcript that is read together with the session beside it."""
    if not path.name.startswith("agent-"):
        return False
    session = session_id_of(path)
    return session is not None and path.with_name(f"{session}.jsonl").is_file()
