"""Which files are of no interest: names that tools make for themselves, and what .gitignore files say. It only reads.

Patterns are those of git, by pathspec, which is loaded when the first pattern is there to be read.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StenoError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

TEMP_PREFIX = ".steno-put-"  # how the names of our own files begin while they are written
IGNORED_NAMES = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        ".tox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
    }
    | {".hypothesis", ".DS_Store", ".direnv", ".gradle", ".terraform"}
)
# Claude Code's, for a moment, before it renames them: a.py.tmp.4711.3f9a21c0
TEMP_NAME_PATTERN = re.compile(r"\.tmp\.\d+\.[0-9a-f]{8,}$")
NOT_LOADED: Any = object()


def is_always_ignored(name: str) -> bool:
    """Whether a file or folder of this name is nobody's work: tools make it for themselves."""
    return (
        name in IGNORED_NAMES
        or name.startswith(TEMP_PREFIX)
        or (".tmp." in name and TEMP_NAME_PATTERN.search(name) is not None)
    )


def compile_patterns(lines: Iterable[str]) -> "GitIgnoreSpec":
    """Patterns of git, ready to be asked."""
    try:
        from pathspec import GitIgnoreSpec
    except ImportError:
        raise StenoError(
            "patterns and .gitignore need one more package: pip install 'steno[watch]'"
        ) from None
    given = list(lines)
    try:
        return GitIgnoreSpec.from_lines(given)
    except (ValueError, re.error) as problem:
        raise StenoError(
            f"{', '.join(given)}: this is no pattern as in .gitignore: {problem}"
        ) from None


def check_patterns(given: Iterable[str]) -> None:
    """StenoError where one of these is no pattern."""
    for pattern in given:
        compile_patterns([pattern])


def _is_pattern(line: str) -> bool:
    try:
        compile_patterns([line])
    except StenoError:
        return False
    return True


class IgnoreRules:
    """What is ignored below a folder. `git`: .gitignore files count, also those above the folder in its repository."""

    def __init__(
        self,
        root: str,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        use_gitignore: bool = True,
    ) -> None:
        self._include = compile_patterns(given) if (given := list(include)) else None
        self._exclude = compile_patterns(given) if (given := list(exclude)) else None
        self._repository_root, self._prefix = (
            _find_repository(root) if use_gitignore else (root, "")
        )
        if self._prefix and IgnoreRules(self._repository_root).is_ignored(
            self._prefix.rstrip("/"), is_dir=True
        ):
            self._repository_root, self._prefix = (
                root,
                "",
            )  # whoever works in an ignored folder means what lies there
        self._use_gitignore = use_gitignore
        self._gitignores: dict[str, GitIgnoreSpec | None] = {}
        self._dir_cache: dict[str, bool] = {}

    def includes(self, name: str) -> bool:
        """Whether a file counts."""
        if self._include is not None and not self._include.match_file(name):
            return False
        if self._exclude is not None and self._exclude.match_file(name):
            return False
        return not self.is_ignored(name)

    def is_ignored(self, name: str, is_dir: bool = False) -> bool:
        """Whether a file or folder is ignored, or lies in a folder that is."""
        parts = name.split("/")
        return any(
            self.is_dir_ignored("/".join(parts[:depth])) for depth in range(1, len(parts))
        ) or self._matches(name, is_dir)

    def is_dir_ignored(self, name: str) -> bool:
        """Whether a folder is ignored; those above it were asked before."""
        found = self._dir_cache.get(name)
        if found is None:
            found = self._dir_cache[name] = self._matches(name, True)
        return found

    def clear_cache(self) -> None:
        """A .gitignore has changed: they are read again when they are needed."""
        self._gitignores.clear()
        self._dir_cache.clear()

    def _matches(self, name: str, folder: bool) -> bool:
        last = name.rpartition("/")[2]
        if is_always_ignored(last):
            return True
        if not self._use_gitignore:
            return False
        parts = (self._prefix + name).split("/")
        for depth in range(
            len(parts) - 1, -1, -1
        ):  # the nearest .gitignore that says anything decides
            spec = self._gitignore_of("/".join(parts[:depth]))
            found = (
                spec.check_file("/".join(parts[depth:]) + "/" * folder).include
                if spec is not None
                else None
            )
            if found is not None:
                return found
        return False

    def _gitignore_of(self, folder: str) -> "GitIgnoreSpec | None":
        found: GitIgnoreSpec | None = self._gitignores.get(folder, NOT_LOADED)
        if found is NOT_LOADED:  # `forget` may be called meanwhile, from another thread
            found = self._gitignores[folder] = _load_gitignore(
                Path(self._repository_root, folder, ".gitignore")
            )
        return found


def _load_gitignore(path: Path) -> "GitIgnoreSpec | None":
    try:
        if path.is_symlink() or not path.is_file():  # git follows no link here either
            return None
        lines = path.read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return None
    try:
        return compile_patterns(lines)
    except StenoError:
        return compile_patterns(
            filter(_is_pattern, lines)
        )  # git passes over what is no pattern, too


def _find_repository(root: str) -> tuple[str, str]:
    """The top of the repository that a folder lies in, and the folder's own name below it with a slash behind."""
    for folder in (Path(root), *Path(root).parents):
        if (folder / ".git").exists():
            inner = os.path.relpath(root, folder)
            return str(folder), "" if inner == "." else f"{inner}/"
    return root, ""
