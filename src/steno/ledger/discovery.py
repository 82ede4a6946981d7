"""Find files to import and what is new in each, from names, sizes and a few bytes.

In an agent's own folders, names show which files are transcripts; other paths are detected by
content.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from .. import agents
from ..errors import SourceError
from ..recording.identify import identify, is_pipe, refusal
from ..recording.lines import unreadable_error
from ..recording.open import find_recordings, is_first_visit
from .protocol import Store, chunks, placeholders
from .source_reader import SourcePart, matches_fingerprint


class KnownSource(Struct, gc=False):
    """A source that was imported before."""

    kind: str
    size: int
    mtime_ns: int
    inode: int
    done: int
    lines: int
    head: str
    tail: str
    table: str = "sources"  # or `glances`: only its requests were read


class SourceKind(NamedTuple):
    kind: str  # tape, transcript or recording
    agent: str  # empty if its first line doesn't say


class SourceFile(Struct, gc=False):
    """A file on disk; `kind` is None until it is detected from the content."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    kind: str | None = None
    agent: str = agents.CLAUDE.name


class DiscoveredSources(Struct):
    files: list[SourceFile] = []
    unrecognised: int = 0  # files that are not recordings
    skipped: list[str] = []  # those of them that were found in a folder
    problems: list[str] = []  # explicit paths that can't be imported


def transcript_folders(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return agents and existing folders of transcripts that are imported by default."""
    home = environment.get("HOME") or str(Path.home())
    folders = [
        (agent.name, folder)
        for agent in agents.AGENTS.values()
        if agent.transcripts.auto_import
        for folder in agent.transcripts.folders(environment, home)
    ]
    is_folder = os.path.isdir  # unlike Path.is_dir, False for a folder that we may not look into
    return [(agent, folder) for agent, folder in dict.fromkeys(folders) if is_folder(folder)]


def is_transcript(agent: str, name: str) -> bool:
    """Whether a file in an agent's folder is a transcript, by its name."""
    return name.endswith(".jsonl") or fnmatch(name, agents.AGENTS[agent].transcripts.document_names)


def find_transcripts(agent: str, folder: str) -> Iterator[SourceFile]:
    """Find every transcript of an agent below a folder, ignoring unreadable folders."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from find_transcripts(agent, entry.path)
                elif is_transcript(agent, entry.name) and entry.is_file():
                    stat = entry.stat()
                    yield SourceFile(
                        entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino, "transcript", agent
                    )
    except OSError:
        return


def find_at_path(path: str, sources: DiscoveredSources) -> None:
    """Add a file, a recording's folder, or everything below a folder. SourceError if nothing."""
    target = Path(path)
    try:
        if is_pipe(target):
            raise SourceError(f"{path}: cannot import from a pipe; save it to a file first")
        if not target.is_dir() or (target / "stdout").is_file():
            sources.files.append(_source_file(target))
            return
        count = len(sources.files)
        folder = os.path.abspath(target)  # noqa: PTH100  # resolve() would follow links
        _scan_folder(folder, sources, set())
        if len(sources.files) == count:
            # Nothing recognised: find_recordings explains why.
            sources.files += [_source_file(path) for path in find_recordings(target)]
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file or folder") from None
    except OSError as error:
        raise unreadable_error(path, error) from None


def _scan_folder(folder: str, sources: DiscoveredSources, visited: set[tuple[int, int]]) -> None:
    try:
        if not is_first_visit(folder, visited):
            return
        with os.scandir(folder) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
    except OSError as error:
        sources.problems.append(str(unreadable_error(folder, error)))
        return
    for entry in entries:
        try:
            _scan_entry(entry, sources, visited)
        except OSError:  # a link to itself, or a file removed meanwhile
            sources.unrecognised += 1


def _scan_entry(
    entry: "os.DirEntry[str]", sources: DiscoveredSources, visited: set[tuple[int, int]]
) -> None:
    if entry.is_dir():
        if not Path(entry.path, "stdout").is_file():
            _scan_folder(entry.path, sources, visited)
        elif is_first_visit(entry.path, visited):
            sources.files.append(_source_file(Path(entry.path)))
    elif entry.is_file():
        detected = detect_kind(entry.path)
        if detected is None:
            sources.unrecognised += 1
            sources.skipped.append(entry.path)
        else:
            stat = entry.stat()
            sources.files.append(
                SourceFile(
                    path=entry.path,
                    size=stat.st_size,
                    mtime_ns=stat.st_mtime_ns,
                    inode=stat.st_ino,
                    kind=detected.kind,
                    agent=detected.agent,
                )
            )


def _source_file(path: Path) -> SourceFile:
    stat = (path / "stdout").stat() if path.is_dir() else path.stat()
    absolute = os.path.abspath(path)  # noqa: PTH100  # resolve() would follow links
    return SourceFile(absolute, stat.st_size, stat.st_mtime_ns, stat.st_ino)


def detect_kind(path: str, is_explicit: bool = False) -> SourceKind | None:
    """Detect what a file is and its agent; None if it can't be read as a recording.

    `is_explicit`: the user says that this is a recording.
    """
    file = Path(path)
    if file.is_dir():
        found = identify(file / "stdout", given=True)
        return SourceKind("recording", found.agent if found is not None else "")
    found = identify(file, is_explicit)
    if found is None or not (found.agent or found.is_steno_recording):
        return None
    if found.is_steno_recording:
        return SourceKind("tape", found.agent)
    is_line = agents.AGENTS[found.agent].transcripts.is_line
    return SourceKind("transcript" if is_line(found.line) else "recording", found.agent)


def load_known_sources(
    store: Store, files: Sequence[SourceFile], include_partial: bool = False
) -> dict[str, KnownSource]:
    """Return what was imported of these files, by path, also if a file was moved since.

    With `include_partial`, also those of which only the requests were read, if they got further.
    """
    paths = [file.path for file in files]
    known = _load_sources(store, "sources", "path", paths)
    moved = [file.inode for file in files if file.path not in known]
    known |= _load_sources(store, "sources", "kind = 'transcript' AND inode", moved)
    if include_partial:
        partly = _load_sources(store, "glances", "path", paths)
        moved = [file.inode for file in files if file.path not in partly]
        partly |= _load_sources(store, "glances", "kind = 'transcript' AND inode", moved)
        for path, partial in partly.items():
            if path not in known or partial.done >= known[path].done:
                known[path] = partial
    return known


def _load_sources(
    store: Store, table: str, condition: str, values: Sequence[str | int]
) -> dict[str, KnownSource]:
    """The rows whose `condition`, which ends with a column, is one of the values."""
    names = ", ".join(KnownSource.__struct_fields__[:-1])  # without `table`
    known: dict[str, KnownSource] = {}
    for part in chunks(values):
        sql = (
            f"SELECT path, {names}, '{table}' FROM {table} "
            f"WHERE {condition} IN ({placeholders(len(part))})"
        )
        known |= {path: KnownSource(*fields) for path, *fields in store.query(sql, part)}
    return known


def unread_parts(sources: DiscoveredSources, known: dict[str, KnownSource]) -> list[SourcePart]:
    """Return new files and new parts of known ones, oldest first: an original before its copy.

    Files that are not recordings move from `sources.files` to `sources.problems`.
    """
    paths_by_inode = {
        source.inode: path for path, source in known.items() if source.kind == "transcript"
    }
    parts: list[SourcePart] = []
    rejected: set[str] = set()
    for file in sources.files:
        old = known.get(file.path)
        if old is not None and _is_unchanged(file, old):
            continue
        if file.kind is not None:
            detected: SourceKind | None = SourceKind(file.kind, file.agent)
        else:
            detected = detect_kind(file.path, is_explicit=True)
        if detected is None:
            rejected.add(file.path)
            continue
        part = SourcePart(
            path=file.path,
            kind=detected.kind,
            agent=detected.agent,
            size=file.size,
            mtime_ns=file.mtime_ns,
            inode=file.inode,
            is_named=file.kind is None,
        )
        if part.kind == "transcript":
            # The same inode under another path: the file was moved.
            previous_path = file.path if old is not None else paths_by_inode.get(file.inode)
            if previous_path is not None:
                _resume(part, previous_path, known[previous_path])
        parts.append(part)
    if rejected:
        sources.files = [file for file in sources.files if file.path not in rejected]
        sources.unrecognised += len(rejected)
        sources.problems += [f"{path}: {refusal(Path(path))}" for path in sorted(rejected)]
    return sorted(parts, key=lambda part: (part.mtime_ns, part.path))


def _is_unchanged(file: SourceFile, old: KnownSource) -> bool:
    return (file.size, file.mtime_ns, file.inode) == (old.size, old.mtime_ns, old.inode)


def _resume(part: SourcePart, previous_path: str, old: KnownSource) -> None:
    """Start the part after what was read before, if the file still begins with that."""
    if not old.done or not old.head:
        return
    if matches_fingerprint(part.path, old.done, old.head, old.tail):
        part.start_offset = old.done
        part.lines = old.lines
        part.previous_path = previous_path
