"""`steno changes`: what a run changed, with a patch that undoes it. It parses and prints; the ledger, git and the tape answer."""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from msgspec import Struct

from ..answer.changed import Change
from ..event import Event
from ..files import git
from ..files.changes import Changes, compared
from ..files.patch import Stories
from ..ledger.ask import changes as asks
from ..ledger.ask import runs, sessions
from ..ledger.ask.zones import Zone
from ..ledger.store import Store
from ..report import StenoError
from ..screen import changed
from ..source import open_input
from ..tape import Tape
from .asked import empty, iso, opened, write
from .options import Parser
from .terminal import complain, is_terminal, look, put, put_bytes

EXAMPLES = """examples:
  steno changes                        what was changed last, with the difference: by all attempts of a `steno run`
  steno changes 3f9a21c0 --list        only the list
  steno changes 3f9a21c0 --patch - | git apply -R      undo all of it, where it was changed
  steno changes run.jsonl --patch work.patch           of a recording, as far as its tools told
  steno changes --json | jq -r '.rows[] | select(.source != "tool") | .path'

RUN is the beginning of a run's or a session's id, or a recording. Each change names its source: `tool` (a tool said
so), `filesystem` (it was seen while the call ran) or `git` (the state after the run differs from the one before).
`steno run` keeps both states where it runs in a repository, until `steno prune` takes the run; `--changes all` has it
look at the file system too. A patch from git is exact, with binary files, renames and modes; without git it holds what
Write, Edit and NotebookEdit told.
"""


class Told(Struct):
    """What is known: the changes, the patch, where the patch comes from (git or tools), and what it lacks."""

    changes: list[Change]
    patch: bytes | None = None
    source: str | None = None
    lacks: list[str] = []


def run(words: list[str]) -> int:
    """Carry out `steno changes` and return its exit code."""
    options = _options(words)
    told = _recording(Path(options.run)) if options.run and os.path.exists(options.run) else _ledger(options)  # noqa: PTH110
    if told is None:
        return 0
    if options.patch is not None:
        return _write_patch(told, options.patch)
    zone = Zone()
    more = {"patch": told.source, "timezone": zone.name}
    write(
        options.form,
        lambda: _page(told, options.list),
        lambda: [change.as_json(partial(iso, zone=zone)) for change in told.changes],
        None,
        more,
        ("path", "change"),
    )
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = Parser("changes", "Show the files that a run changed, and how.", EXAMPLES)
    what = "the beginning of a run's or a session's id, or a recording (default: the newest run, with its task's other attempts)"
    parser.add_argument("run", nargs="?", metavar="RUN", help=what)
    parser.add_argument("--list", action="store_true", help="without the difference")
    parser.add_argument("--patch", metavar="FILE", help="write a patch that `git apply -R` undoes; - is stdout")
    parser.add_forms()
    parser.add_ledger()
    return parser.given(words)


# -- where it is known from ------------------------------------------------------------------------------------------


def _recording(path: Path) -> Told:
    """What a recording tells; a tape of ours also names its run, whose states git may have kept."""
    header = Tape(path).header if path.is_file() else None
    changes, stories = _read(open_input(str(path)).events(), header.cwd if header is not None else None)
    return _with_patch(changes, stories, changes.root, header.run_id if header is not None else None)


def _read(events: Iterable[Event], root: str | None) -> tuple[Changes, Stories]:
    changes, stories = Changes(root), Stories(root)
    for event in events:
        changes.add(event)
        stories.add(event)
    return changes, stories


def _with_patch(changes: Changes, stories: Stories, root: str | None, run_id: str | None) -> Told:
    trees = git.kept(root, run_id) if root is not None and run_id is not None else None
    if trees is not None and root is not None:
        return Told(compared(changes.found(), git.differences(root, trees)), git.patch(root, trees), "git")
    return Told(changes.found(), *_of_tools(stories, root))


def _of_tools(stories: Stories, root: str | None) -> tuple[bytes | None, str | None, list[str]]:
    """The patch of what tools told, with names as seen from the top of a repository, where there is one."""
    inner = git.prefix(root) if root is not None and Path(root).is_dir() else ""
    data = stories.patch(inner)
    return (data, "tools", stories.unknown()) if data else (None, None, stories.unknown())


def _ledger(options: argparse.Namespace) -> Told | None:
    store = opened(options)
    try:
        meant = asks.newest(store) if options.run is None else runs.found(store, options.run)
        if meant is None:
            put(empty(store, "runs"))
            return None
        return _known(store, *meant)
    finally:
        store.close()


def _known(store: Store, table: str, id_: str) -> Told:
    """What the ledger has of a run, a session or a task, with what git or the recordings add."""
    found, root = asks.changes(store, table, id_), asks.project(store, table, id_)
    attempts = asks.runs_of(store, id_) if table == "tasks" else [(id_, None)]
    trees = git.kept(root, attempts[0][0], attempts[-1][0]) if root is not None and table != "sessions" else None
    if trees is not None and root is not None:
        told = compared(found, git.differences(root, trees))
        return Told(_attributed(told, asks.only_call(store, table, id_)), git.patch(root, trees), "git")
    sources = [source for source in _sources(store, table, id_) if source is not None and Path(source).exists()]
    if not sources:
        return Told(found)
    _, stories = _read((event for source in sources for event in open_input(source).events()), root)
    return Told(found, *_of_tools(stories, root))


def _sources(store: Store, table: str, id_: str) -> list[str | None]:
    """The recordings that tell of it, in order."""
    if table == "tasks":
        return [source for _, source in asks.runs_of(store, id_)]
    return [runs.one(store, id_).source if table == "runs" else next(iter(sessions.transcripts(store, id_)), None)]


def _attributed(changes: list[Change], only: tuple[str, str] | None) -> list[Change]:
    """Where one call alone can have changed files without a word, what only git knows of is its work."""
    for change in changes:
        if only is not None and change.source == "git" and change.call is None:
            change.call, change.tool = only
    return changes


# -- what is printed -------------------------------------------------------------------------------------------------


def _page(told: Told, only_list: bool) -> list[str]:
    if not told.changes:
        return ["Nothing was changed, as far as it is known."]
    lines = changed.changes(told.changes, look())
    if only_list or told.patch is None:
        return lines
    return [*lines, "", *changed.patch(told.patch.removesuffix(b"\n"), look())]


def _write_patch(told: Told, where: str) -> int:
    if told.patch is None:
        why = "nothing was changed" if not told.changes else "no content is known: neither git nor the recording has it"
        raise StenoError(f"there is no patch: {why}")
    untold = {change.path for change in told.changes if told.source == "tools" and change.source != "tool"}
    for path in sorted({*told.lacks, *untold}):
        complain(f"{path}: its content was not told, so the patch leaves it out")
    if where == "-" and is_terminal(sys.stdout):
        put(changed.patch(told.patch.removesuffix(b"\n"), look()))
    elif where == "-":
        put_bytes(told.patch)
    else:
        _write_file(where, told.patch)
    return 0


def _write_file(where: str, data: bytes) -> None:
    """All of a file or nothing. What is no file (a device, a pipe) is written to, and a link leads to what it names."""
    if not where:
        raise StenoError("--patch: no file is named; - is stdout")
    path = Path(os.path.realpath(where)) if not where.startswith("/dev/") else Path(where)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                out.write(data)
            return
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        _replace(path, data, mode)
    except OSError as problem:
        raise StenoError(f"{where}: cannot be written: {problem.strerror or problem}") from None


def _replace(path: Path, data: bytes, mode: int) -> None:
    number, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        os.chmod(name, mode)  # noqa: PTH101
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """What this process takes away from new files; it can only be asked by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
