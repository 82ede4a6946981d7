"""Which files there are to import, and what is new in each. It looks at names, sizes and a few bytes; it never writes.

Transcripts are files that end in .jsonl below an agent's own folders; what a person names is told by its bytes.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct

from .. import agents
from ..report import SourceError
from ..seek import is_new, recordings, telling
from ..source import FIRST, first_line, is_pipe, lines, unreadable
from ..tick import read_header
from .parts import Part, same
from .store import Store

WANTED = "expected what an agent printed or keeps (JSON lines, plain or packed with gzip or zstd), or a tape"


class Known(Struct, gc=False):
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


class Seen(Struct, gc=False):
    """A file as it lies there now. Without `kind`, its bytes must be asked what it is."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    kind: str | None = None
    agent: str = agents.CLAUDE.name


class Found(Struct):
    """What there is to import, and what was looked at in vain."""

    seen: list[Seen] = []
    unknown: int = 0  # files that are no recordings
    troubles: list[str] = []  # what a person named and cannot be imported


def places(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The agents of this machine and the folders of the transcripts that are imported unasked, as far as they exist."""
    home = environment.get("HOME") or str(Path.home())
    known = [agent for agent in agents.AGENTS.values() if agent.imported]
    found = [(agent.name, folder) for agent in known for folder in agent.folders(environment, home)]
    return [place for place in dict.fromkeys(found) if os.path.isdir(place[1])]  # noqa: PTH112


def transcripts(agent: str, folder: str) -> Iterator[Seen]:
    """Every transcript of an agent below a folder. What may not be looked at is passed over."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from transcripts(agent, entry.path)
                elif entry.name.endswith(".jsonl") and entry.is_file():
                    stat = entry.stat()
                    yield Seen(entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino, "transcript", agent)
    except OSError:
        return


def named(path: str, found: Found) -> None:
    """Find what a person means by a path: a file, a recording's folder, or everything below a folder. SourceError if nothing."""
    target = Path(path)
    try:
        if is_pipe(target):
            raise SourceError(f"{path}: what is read of a pipe is gone, so it cannot be imported; save it to a file first")
        if not target.is_dir() or (target / "stdout").is_file():
            found.seen.append(_seen(target))
            return
        count = len(found.seen)
        _below(os.path.abspath(target), found, set())  # noqa: PTH100  # resolve() would follow links to a name nobody gave
        if len(found.seen) == count:
            found.seen += [_seen(path) for path in recordings(target)]  # which says what is wrong
    except FileNotFoundError:
        raise SourceError(f"{path}: there is no such file or folder") from None
    except OSError as problem:
        raise unreadable(path, problem) from None


def _below(folder: str, found: Found, been: set[tuple[int, int]]) -> None:
    """Every recording, tape and transcript below a folder. The transcripts of subagents are told one by one."""
    try:
        if not is_new(folder, been):
            return
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError as problem:
        found.troubles.append(str(unreadable(folder, problem)))
        return
    for entry in inside:
        try:
            _look(entry, found, been)
        except OSError:  # a link that leads to itself, a file that is gone by now
            found.unknown += 1


def _look(entry: "os.DirEntry[str]", found: Found, been: set[tuple[int, int]]) -> None:
    if entry.is_dir():
        if not os.path.isfile(f"{entry.path}/stdout"):  # noqa: PTH113
            _below(entry.path, found, been)
        elif is_new(entry.path, been):
            found.seen.append(_seen(Path(entry.path)))
    elif entry.is_file():
        kind = kind_of(entry.path)
        if kind is None or (kind == ("recording", "") and not _holds_events(entry.path)):
            found.unknown += 1
        else:
            stat = entry.stat()
            found.seen.append(Seen(entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino, *kind))


def _holds_events(path: str) -> bool:
    """Whether a file that nobody named, and that is an array, is one of events."""
    line = (first_line(Path(path)) or b"").lstrip()
    return line[:2] == b"[{" and b'"type"' in line


def _seen(path: Path) -> Seen:
    stat = (path / "stdout").stat() if path.is_dir() else path.stat()
    return Seen(os.path.abspath(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)  # noqa: PTH100  # as above


def kind_of(path: str, given: bool = False) -> tuple[str, str] | None:
    """What a file is, and whose: a tape, a transcript, a recording; None: nothing that we can read.

    Whose a recording is, its first line need not say ("" then): a document opens with a brace, and a run can print nothing.
    `given`: a person says that this is a recording.
    """
    if os.path.isdir(path):  # noqa: PTH112
        line = first_line(Path(path) / "stdout")
        agent = agents.sniff(line) if line is not None else None
        return "recording", agent.name if agent is not None else ""
    line = first_line(Path(path))
    if line is None:
        return None
    header = read_header(line)
    if header is not None:
        return "tape", header.agent or ""
    line = line.removeprefix(b"\xef\xbb\xbf").strip()
    agent = agents.sniff(line)
    if agent is None and line[:1] == b"[":
        return "recording", ""
    if agent is None:
        line = telling(Path(path), given) or b""
        agent = agents.sniff(line)
    return None if agent is None else ("transcript" if agent.keeps(line) else "recording", agent.name)


def _refusal(path: str) -> str:
    """Why a file that a person named cannot be imported."""
    try:
        some = next(islice(lines(Path(path), FIRST), 1), b"")
    except SourceError as problem:
        return str(problem)
    return f"{path}: not a recording{'' if some else ', it is empty'}; {WANTED}"


def before(store: Store, table: str = "sources") -> dict[str, Known]:
    """Every source that the ledger knows."""
    names = ", ".join(("path", *Known.__struct_fields__[:-1]))
    rows = store.rows(f"SELECT {names}, '{table}' FROM {table}")  # noqa: S608  # names of our own
    return {row[0]: Known(*row[1:]) for row in rows}


def glanced(store: Store) -> dict[str, Known]:
    """Every source of which at least the requests are known, as far as they are."""
    known = before(store)
    for path, glance in before(store, "glances").items():
        if path not in known or glance.done >= known[path].done:
            known[path] = glance
    return known


def news(found: Found, known: dict[str, Known]) -> list[Part]:
    """What must be read: new files, and what is new in the others. The oldest come first: an original before its copy.

    What turns out to be no recording is taken from what was found, and told.
    """
    moved, parts = _by_inode(known), []
    refused = set()
    for file in found.seen:
        old = known.get(file.path)
        if old is not None and (old.size, old.mtime_ns, old.inode) == (file.size, file.mtime_ns, file.inode):
            continue
        kind = (file.kind, file.agent) if file.kind is not None else kind_of(file.path, given=True)
        if kind is None:
            refused.add(file.path)
        else:
            parts.append(_part(file, kind, old, known, moved))
    found.seen = [file for file in found.seen if file.path not in refused] if refused else found.seen
    found.unknown += len(refused)
    found.troubles += [_refusal(path) for path in sorted(refused)]
    return sorted(parts, key=lambda part: (part.mtime_ns, part.path))


def _by_inode(known: dict[str, Known]) -> dict[int, str]:
    return {source.inode: path for path, source in known.items() if source.kind == "transcript"}


def _part(file: Seen, told: tuple[str, str], old: Known | None, known: dict[str, Known], moved: dict[int, str]) -> Part:
    kind, agent = told
    fresh = Part(file.path, kind, agent, file.size, file.mtime_ns, file.inode)
    if kind != "transcript":
        return fresh
    name = file.path if old is not None else moved.get(file.inode)
    return _rest(fresh, name, known.get(name) if name is not None else None)


def _rest(part: Part, name: str | None, old: Known | None) -> Part:
    """The part after what was read before, where the file still begins with that; else all of it."""
    if old is None or name is None or not old.done or not old.head or not same(part.path, old.done, old.head, old.tail):
        return part
    part.done, part.lines, part.before = old.done, old.lines, name
    return part
