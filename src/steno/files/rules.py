"""Which files are of no interest: names that tools make for themselves, and what .gitignore files say. It only reads.

Patterns are those of git, by pathspec, which is loaded when the first pattern is there to be read.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..report import StenoError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

TEMPORARY = ".steno-put-"  # how the names of our own files begin while they are written
DEFAULTS = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
    | {".hypothesis", ".DS_Store", ".direnv", ".gradle", ".terraform"}
)
# Claude Code's, for a moment, before it renames them: a.py.tmp.4711.3f9a21c0
BEING_WRITTEN = re.compile(r"\.tmp\.\d+\.[0-9a-f]{8,}$")
UNREAD: Any = object()


def is_noise(name: str) -> bool:
    """Whether a file or folder of this name is nobody's work: tools make it for themselves."""
    return name in DEFAULTS or name.startswith(TEMPORARY) or (".tmp." in name and BEING_WRITTEN.search(name) is not None)


def patterns(lines: Iterable[str]) -> "GitIgnoreSpec":
    """Patterns of git, ready to be asked."""
    try:
        from pathspec import GitIgnoreSpec
    except ImportError:
        raise StenoError("patterns and .gitignore need one more package: pip install 'steno[watch]'") from None
    given = list(lines)
    try:
        return GitIgnoreSpec.from_lines(given)
    except (ValueError, re.error) as problem:
        raise StenoError(f"{', '.join(given)}: this is no pattern as in .gitignore: {problem}") from None


def check_patterns(given: Iterable[str]) -> None:
    """StenoError where one of these is no pattern."""
    for pattern in given:
        patterns([pattern])


def _is_pattern(line: str) -> bool:
    try:
        patterns([line])
    except StenoError:
        return False
    return True


class Rules:
    """What is ignored below a folder. `git`: .gitignore files count, also those above the folder in its repository."""

    def __init__(self, root: str, include: Iterable[str] = (), exclude: Iterable[str] = (), git: bool = True) -> None:
        self._only = patterns(given) if (given := list(include)) else None
        self._never = patterns(given) if (given := list(exclude)) else None
        self._top, self._before = _repository(root) if git else (root, "")
        if self._before and Rules(self._top).ignores(self._before.rstrip("/"), folder=True):
            self._top, self._before = root, ""  # whoever works in an ignored folder means what lies there
        self._git = git
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        self._folders: dict[str, bool] = {}

    def wants(self, name: str) -> bool:
        """Whether a file counts."""
        if self._only is not None and not self._only.match_file(name):
            return False
        if self._never is not None and self._never.match_file(name):
            return False
        return not self.ignores(name)

    def ignores(self, name: str, folder: bool = False) -> bool:
        """Whether a file or folder is ignored, or lies in a folder that is."""
        parts = name.split("/")
        return any(self.folder("/".join(parts[:depth])) for depth in range(1, len(parts))) or self._decide(name, folder)

    def folder(self, name: str) -> bool:
        """Whether a folder is ignored; those above it were asked before."""
        found = self._folders.get(name)
        if found is None:
            found = self._folders[name] = self._decide(name, True)
        return found

    def forget(self) -> None:
        """A .gitignore has changed: they are read again when they are needed."""
        self._specs.clear()
        self._folders.clear()

    def _decide(self, name: str, folder: bool) -> bool:
        last = name.rpartition("/")[2]
        if is_noise(last):
            return True
        if not self._git:
            return False
        parts = (self._before + name).split("/")
        for depth in range(len(parts) - 1, -1, -1):  # the nearest .gitignore that says anything decides
            spec = self._spec("/".join(parts[:depth]))
            found = spec.check_file("/".join(parts[depth:]) + "/" * folder).include if spec is not None else None
            if found is not None:
                return found
        return False

    def _spec(self, folder: str) -> "GitIgnoreSpec | None":
        found: GitIgnoreSpec | None = self._specs.get(folder, UNREAD)
        if found is UNREAD:  # `forget` may be called meanwhile, from another thread
            found = self._specs[folder] = _read(Path(self._top, folder, ".gitignore"))
        return found


def _read(path: Path) -> "GitIgnoreSpec | None":
    try:
        if path.is_symlink() or not path.is_file():  # git follows no link here either
            return None
        lines = path.read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return None
    try:
        return patterns(lines)
    except StenoError:
        return patterns(filter(_is_pattern, lines))  # git passes over what is no pattern, too


def _repository(root: str) -> tuple[str, str]:
    """The top of the repository that a folder lies in, and the folder's own name below it with a slash behind."""
    for folder in (Path(root), *Path(root).parents):
        if (folder / ".git").exists():
            inner = os.path.relpath(root, folder)
            return str(folder), "" if inner == "." else f"{inner}/"
    return root, ""
