"""Which files there are to import, and what is new in each. It looks at names, sizes and a few bytes; it never writes.

Transcripts are files that end in .jsonl below an agent's own folders; what a person names is told by its bytes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from .. import agents
from ..report import SourceError
from ..source import first_line, recordings, unreadable
from ..tick import read_header
from .parts import Part, same
from .store import Store


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


def named(path: str) -> list[Seen]:
    """What a person means by a path: a file, a recording's folder, or everything below a folder."""
    target = Path(path)
    if not target.exists():
        raise SourceError(f"{path}: there is no such file or folder")
    if not target.is_dir() or (target / "stdout").is_file():
        return [_seen(target)]
    found = list(_below(os.path.abspath(target)))  # noqa: PTH100  # resolve() would follow links to a name nobody gave
    return found or [_seen(path) for path in recordings(target)]  # which says what is wrong


def _below(folder: str) -> Iterator[Seen]:
    """Every recording, tape and transcript below a folder. The transcripts of subagents are told one by one."""
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError as problem:
        raise unreadable(folder, problem) from None
    for entry in inside:
        if entry.is_dir():
            if os.path.isfile(f"{entry.path}/stdout"):  # noqa: PTH113
                yield _seen(Path(entry.path))
            else:
                yield from _below(entry.path)
        elif entry.is_file() and (found := kind_of(entry.path)) and (found != ("recording", "") or _holds_events(entry.path)):
            stat = entry.stat()
            yield Seen(entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino, *found)


def _holds_events(path: str) -> bool:
    """Whether a file that nobody named, and that is an array, is one of events."""
    line = (first_line(Path(path)) or b"").lstrip()
    return line[:2] == b"[{" and b'"type"' in line


def _seen(path: Path) -> Seen:
    stat = (path / "stdout").stat() if path.is_dir() else path.stat()
    return Seen(os.path.abspath(path), stat.st_size, stat.st_mtime_ns, stat.st_ino)  # noqa: PTH100  # as above


def kind_of(path: str) -> tuple[str, str] | None:
    """What a file is, and whose: a tape, a transcript, a recording; None: nothing that we can read.

    Whose a recording is, its first line need not say ("" then): a document opens with a brace, and a run can print nothing.
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
    agent = agents.sniff(line.removeprefix(b"\xef\xbb\xbf").strip())
    if agent is None:
        return ("recording", "") if line.lstrip()[:1] == b"[" else None
    return ("transcript" if agent.keeps(line) else "recording"), agent.name


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


def news(seen: Iterable[Seen], known: dict[str, Known]) -> list[Part]:
    """What must be read: new files, and what is new in the others. The oldest come first: an original before its copy."""
    moved = _by_inode(known)
    parts = [part for file in seen if (part := _news_of(file, known, moved)) is not None]
    return sorted(parts, key=lambda part: (part.mtime_ns, part.path))


def _by_inode(known: dict[str, Known]) -> dict[int, str]:
    return {source.inode: path for path, source in known.items() if source.kind == "transcript"}


def _news_of(file: Seen, known: dict[str, Known], moved: dict[int, str]) -> Part | None:
    old = known.get(file.path)
    if old is not None and (old.size, old.mtime_ns, old.inode) == (file.size, file.mtime_ns, file.inode):
        return None
    found = (file.kind, file.agent) if file.kind is not None else kind_of(file.path)
    if found is None:
        return None
    kind, agent = found
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
