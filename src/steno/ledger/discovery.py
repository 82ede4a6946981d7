"""Which files there are to import, and what is new in each. It looks at names, sizes and a few bytes; it never writes.

Transcripts are files that end in .jsonl below an agent's own folders; what a person names is told by its bytes.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct

from .. import agents
from ..errors import SourceError
from ..recording.discover import find_identifying_line, find_recordings, is_first_visit
from ..recording.format import parse_header
from ..recording.open import (
    FIRST_LINE_BUFFER_BYTES,
    is_pipe,
    read_first_line,
    read_lines,
    unreadable_error,
)
from .source_reader import SourcePart, matches_fingerprint
from .store import Store

EXPECTED_INPUT = "expected what an agent printed or keeps (JSON lines, plain or packed with gzip or zstd), or a tape"


class KnownSource(Struct, gc=False):
    """A source that was read before. What the reader remembered of it is fetched when it is read on."""

    kind: str
    size: int
    mtime_ns: int
    inode: int
    done: int
    lines: int
    head: str
    tail: str
    table: str = "sources"  # or glances: only its requests were read


class SourceFile(Struct, gc=False):
    """A file as it lies there now. Without `kind`, its bytes must be asked what it is."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    kind: str | None = None
    agent: str = agents.CLAUDE.name


class DiscoveredSources(Struct):
    """What there is to import, and what was looked at in vain."""

    files: list[SourceFile] = []
    unrecognised: int = 0  # files that are no recordings
    problems: list[str] = []  # what a person named and cannot be imported


def transcript_folders(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The agents of this machine and the folders of the transcripts that are imported unasked, as far as they exist."""
    home = environment.get("HOME") or str(Path.home())
    known = [agent for agent in agents.AGENTS.values() if agent.transcripts.auto_import]
    found = [
        (agent.name, folder)
        for agent in known
        for folder in agent.transcripts.folders(environment, home)
    ]
    return [place for place in dict.fromkeys(found) if os.path.isdir(place[1])]  # noqa: PTH112


def find_transcripts(agent: str, folder: str) -> Iterator[SourceFile]:
    """Every transcript of an agent below a folder. What may not be looked at is passed over."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from find_transcripts(agent, entry.path)
                elif entry.name.endswith(".jsonl") and entry.is_file():
                    stat = entry.stat()
                    yield SourceFile(
                        entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino, "transcript", agent
                    )
    except OSError:
        return


def find_at_path(path: str, found: DiscoveredSources) -> None:
    """Find what a person means by a path: a file, a recording's folder, or everything below a folder. SourceError if nothing."""
    target = Path(path)
    try:
        if is_pipe(target):
            raise SourceError(
                f"{path}: what is read of a pipe is gone, so it cannot be imported; save it to a file first"
            )
        if not target.is_dir() or (target / "stdout").is_file():
            found.files.append(_source_file(target))
            return
        count = len(found.files)
        _scan_folder(os.path.abspath(target), found, set())  # noqa: PTH100  # resolve() would follow links to a name nobody gave
        if len(found.files) == count:
            found.files += [
                _source_file(path) for path in find_recordings(target)
            ]  # which says what is wrong
    except FileNotFoundError:
        raise SourceError(f"{path}: there is no such file or folder") from None
    except OSError as problem:
        raise unreadable_error(path, problem) from None


def _scan_folder(folder: str, found: DiscoveredSources, been: set[tuple[int, int]]) -> None:
    """Every recording, tape and transcript below a folder. The transcripts of subagents are told one by one."""
    try:
        if not is_first_visit(folder, been):
            return
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError as problem:
        found.problems.append(str(unreadable_error(folder, problem)))
        return
    for entry in inside:
        try:
            _scan_entry(entry, found, been)
        except OSError:  # a link that leads to itself, a file that is gone by now
            found.unrecognised += 1


def _scan_entry(
    entry: "os.DirEntry[str]", found: DiscoveredSources, been: set[tuple[int, int]]
) -> None:
    if entry.is_dir():
        if not os.path.isfile(f"{entry.path}/stdout"):  # noqa: PTH113
            _scan_folder(entry.path, found, been)
        elif is_first_visit(entry.path, been):
            found.files.append(_source_file(Path(entry.path)))
    elif entry.is_file():
        kind = detect_kind(entry.path)
        if kind is None or (kind == ("recording", "") and not _is_event_array(entry.path)):
            found.unrecognised += 1
        else:
            stat = entry.stat()
            found.files.append(
                SourceFile(entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino, *kind)
            )


def _is_event_array(path: str) -> bool:
    """Whether a file that nobody named, and that is an array, is one of events."""
    line = (read_first_line(Path(path)) or b"").lstrip()
    return line[:2] == b"[{" and b'"type"' in line


def _source_file(path: Path) -> SourceFile:
    stat = (path / "stdout").stat() if path.is_dir() else path.stat()
    return SourceFile(os.path.abspath(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)  # noqa: PTH100  # as above


def detect_kind(path: str, is_explicit: bool = False) -> tuple[str, str] | None:
    """What a file is, and whose: a tape, a transcript, a recording; None: nothing that we can read.

    Whose a recording is, its first line need not say ("" then): a document opens with a brace, and a run can print nothing.
    `given`: a person says that this is a recording.
    """
    if os.path.isdir(path):  # noqa: PTH112
        line = read_first_line(Path(path) / "stdout")
        agent = agents.detect_agent(line) if line is not None else None
        return "recording", agent.name if agent is not None else ""
    line = read_first_line(Path(path))
    if line is None:
        return None
    header = parse_header(line)
    if header is not None:
        return "tape", header.agent or ""
    line = line.removeprefix(b"\xef\xbb\xbf").strip()
    agent = agents.detect_agent(line)
    if agent is None and line[:1] == b"[":
        return "recording", ""
    if agent is None:
        line = find_identifying_line(Path(path), is_explicit) or b""
        agent = agents.detect_agent(line)
    return (
        None
        if agent is None
        else ("transcript" if agent.transcripts.is_line(line) else "recording", agent.name)
    )


def _rejection_reason(path: str) -> str:
    """Why a file that a person named cannot be imported."""
    try:
        some = next(islice(read_lines(Path(path), FIRST_LINE_BUFFER_BYTES), 1), b"")
    except SourceError as problem:
        return str(problem)
    return f"{path}: not a recording{'' if some else ', it is empty'}; {EXPECTED_INPUT}"


def load_known_sources(store: Store, table: str = "sources") -> dict[str, KnownSource]:
    """Every source that the ledger knows."""
    names = ", ".join(("path", *KnownSource.__struct_fields__[:-1]))
    rows = store.query(f"SELECT {names}, '{table}' FROM {table}")  # names of our own
    return {row[0]: KnownSource(*row[1:]) for row in rows}


def load_known_and_partial_sources(store: Store) -> dict[str, KnownSource]:
    """Every source of which at least the requests are known, as far as they are."""
    known = load_known_sources(store)
    for path, glance in load_known_sources(store, "glances").items():
        if path not in known or glance.done >= known[path].done:
            known[path] = glance
    return known


def unread_parts(found: DiscoveredSources, known: dict[str, KnownSource]) -> list[SourcePart]:
    """What must be read: new files, and what is new in the others. The oldest come first: an original before its copy.

    What turns out to be no recording is taken from what was found, and told.
    """
    moved, parts = _paths_by_inode(known), []
    refused = set()
    for file in found.files:
        old = known.get(file.path)
        if old is not None and (old.size, old.mtime_ns, old.inode) == (
            file.size,
            file.mtime_ns,
            file.inode,
        ):
            continue
        kind = (
            (file.kind, file.agent)
            if file.kind is not None
            else detect_kind(file.path, is_explicit=True)
        )
        if kind is None:
            refused.add(file.path)
        else:
            parts.append(_source_part(file, kind, old, known, moved))
    found.files = (
        [file for file in found.files if file.path not in refused] if refused else found.files
    )
    found.unrecognised += len(refused)
    found.problems += [_rejection_reason(path) for path in sorted(refused)]
    return sorted(parts, key=lambda part: (part.mtime_ns, part.path))


def _paths_by_inode(known: dict[str, KnownSource]) -> dict[int, str]:
    return {source.inode: path for path, source in known.items() if source.kind == "transcript"}


def _source_part(
    file: SourceFile,
    told: tuple[str, str],
    old: KnownSource | None,
    known: dict[str, KnownSource],
    moved: dict[int, str],
) -> SourcePart:
    kind, agent = told
    fresh = SourcePart(file.path, kind, agent, file.size, file.mtime_ns, file.inode)
    if kind != "transcript":
        return fresh
    name = file.path if old is not None else moved.get(file.inode)
    return _resume_part(fresh, name, known.get(name) if name is not None else None)


def _resume_part(part: SourcePart, name: str | None, old: KnownSource | None) -> SourcePart:
    """The part after what was read before, where the file still begins with that; else all of it."""
    if (
        old is None
        or name is None
        or not old.done
        or not old.head
        or not matches_fingerprint(part.path, old.done, old.head, old.tail)
    ):
        return part
    part.start_offset, part.lines, part.previous_path = old.done, old.lines, name
    return part
