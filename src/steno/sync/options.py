"""Parses destinations and their options."""

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

from msgspec import Struct

from ..errors import StenoError
from ..workspace.safe_path import is_safe_name

_LOCAL_URL = re.compile(r"(?:file|local):(?://)?(.*)", re.S)
_ARCHIVE_URL = re.compile(r"zip(?:://(?P<inner>[^:]*))?::(?P<place>.+)", re.S)


def parse_local_path(text: str) -> str:
    """The path in dir:PATH, file:///PATH or local://PATH. StenoError if there is none."""
    kind, _, path = text.partition(":")
    if kind == "file":
        path = unquote(path.removeprefix("//").removeprefix("localhost"), errors="surrogateescape")
        if not path.startswith("/"):
            raise StenoError(f"{text}: expected file:///PATH, a folder on this machine")
    elif kind == "local":
        path = path.removeprefix("//")
    if not path or path[0].isspace() or "\0" in path:
        raise StenoError(f"{text}: expected a folder, such as dir:/backup/project")
    expanded = os.path.expanduser(path)  # noqa: PTH111  # pathlib raises for unknown users
    if expanded.startswith("~"):
        user = expanded.partition("/")[0]
        raise StenoError(
            f"{text}: user {user[1:]} not found; for a folder of this name: dir:./{user}"
        )
    return expanded


def parse_archive_url(url: str) -> tuple[str, str]:
    """The archive and the folder in it. StenoError if it is not a path on this machine."""
    match = _ARCHIVE_URL.fullmatch(url)
    path, inner = "", ""
    if match is not None:
        place = match["place"]
        is_url = place.startswith(("file://", "local://"))
        path = parse_local_path(place if is_url else f"dir:{place}")
        inner = (match["inner"] or "").strip("/")
    is_file = path and not path.endswith("/") and "://" not in path and "::" not in path
    if not is_file or (inner and not is_safe_name(inner)):
        raise StenoError(
            f"{url}: expected a local archive, such as zip://::file:///backup/project.zip"
        )
    return path, inner


def local_paths(url: str) -> Iterator[str]:
    """The paths on this machine in a chain of fsspec URLs."""
    for position, part in enumerate(url.split("::")):
        match = _LOCAL_URL.fullmatch(part)
        if match is not None:
            yield os.path.expanduser(match[1])  # noqa: PTH111  # pathlib raises for unknown users
        elif position and "://" not in part:
            yield os.path.expanduser(part)  # noqa: PTH111  # the same


class SyncOptions(Struct, frozen=True, kw_only=True):
    """What to sync, and how. Times are in seconds.

    `destinations`  dir:PATH, cmd:PROGRAM ARGS, http(s)://..., or a URL for fsspec
    `prefix`        only files below this folder, without it in their names
    `include`       only files that match one of these .gitignore patterns
    `exclude`       no files that match one of these
    `ignore`        respect .gitignore files (node_modules and the like are always ignored)
    `delete`        delete in destinations what is deleted in the folder
    `debounce`      delay after a change, to collect further changes
    `concurrency`   parallel transfers per destination
    `strict`        failed files are an error (`SyncSummary.exit_code`)
    `final_pass`    compare every file by its hash at the end
    `dry_run`       only say what would be done
    `limit`         time limit of `finish`; None: no limit
    `tries`         attempts per file; None: until the time limit
    `journal`       file for the list of unfinished files; None: no journal
    `watch_files`   watch the file system for changes that tools don't report
    """

    destinations: tuple[str, ...]
    prefix: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ignore: bool = True
    delete: bool = False
    debounce: float = 0.02
    concurrency: int = 4
    strict: bool = False
    final_pass: bool = False
    dry_run: bool = False
    limit: float | None = 30.0
    tries: int | None = None
    journal: str | None = None
    watch_files: bool = True


class FailedFile(Struct, frozen=True):
    """A file that was not copied."""

    path: str
    destination: str
    reason: str


class SyncSummary(Struct, kw_only=True):
    """The result. A file with two destinations counts twice.

    `same` counts files whose content was there already; `outside` lists changed paths that are not
    in the folder, `ignored` what ignore rules skipped (a folder ends with a slash); `problems` are
    errors that are not about one file.
    """

    put: int = 0
    deleted: int = 0
    same: int = 0
    bytes: int = 0
    failed: list[FailedFile] = []
    outside: list[str] = []
    ignored: list[str] = []
    problems: list[str] = []
    seconds: float = 0.0
    journal: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there were no failures."""
        return not self.failed and not self.problems

    def exit_code(self, strict: bool) -> int:
        """1 after failures if `strict`, else 0."""
        return int(strict and not self.ok)

    def line(self) -> str:
        """One line for people."""
        parts = [f"{self.put} copied", f"{self.same} unchanged"]
        parts += [f"{self.deleted} deleted"] * bool(self.deleted)
        parts += [f"{len(self.failed)} failed"] * bool(self.failed)
        parts += [f"{len(self.outside)} outside"] * bool(self.outside)
        if self.ignored:
            names = escape_unprintable(abbreviate_names(self.ignored))
            parts.append(f"{len(self.ignored)} ignored: {names}")
        return f"sync: {', '.join(parts)} ({self.bytes:,} bytes, {self.seconds:.1f} s)"


def abbreviate_names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def escape_unprintable(text: str) -> str:
    """A name for a terminal: control characters and line breaks are escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
