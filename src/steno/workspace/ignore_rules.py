"""Which files are ignored: caches and other files of tools, and .gitignore patterns.

Patterns are matched by pathspec, which is imported with the first pattern.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StenoError
from ..installation import extra_command
from .origin import find_repository_root

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

TEMP_PREFIX = ".steno-put-"  # our own temporary files
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
        ".hypothesis",
        ".DS_Store",
        ".direnv",
        ".gradle",
        ".terraform",
    }
)
# Claude Code writes to such a name before it renames the file: a.py.tmp.4711.3f9a21c0
TEMP_NAME_PATTERN = re.compile(r"\.tmp\.\d+\.[0-9a-f]{8,}$")
VERSION_CONTROL_NAMES = (".git", ".hg", ".svn")
# Files that usually contain keys or passwords, by their path in lower case.
SECRET_NAME_PATTERN = re.compile(
    r"(?:^|/)(?:"
    r"\.env(?:rc)?|\.env\.(?!(?:example|sample|template|dist|defaults?)$)[^/]+|[^/]+\.env"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
    r"|[^/]+\.(?:pem|key|p12|pfx|p8|jks|keystore|ppk|kdbx?|ovpn|tfvars|tfstate(?:\.backup)?)"
    r"|\.(?:netrc|pgpass|my\.cnf|npmrc|pypirc|htpasswd|git-credentials|dockercfg|vault-token)"
    r"|(?:[^/]*[._-])?(?:credentials?|secrets?|passwords?|service[._-]?account[^/.]*)"
    r"(?:\.(?:json|ya?ml|toml|ini|cfg|conf|txt|xml|properties|csv))?"
    r"|auth\.json|kubeconfig|\.kube/config|\.docker/config\.json|\.(?:ssh|gnupg|aws)/.+"
    r")$"
)
NOT_LOADED: Any = object()


def is_always_ignored(name: str) -> bool:
    """Whether a file or folder of this name is made by tools for themselves."""
    return (
        name in IGNORED_NAMES
        or name.startswith(TEMP_PREFIX)
        or (".tmp." in name and TEMP_NAME_PATTERN.search(name) is not None)
    )


def looks_secret(path: str) -> bool:
    """Whether a file of this path usually contains keys or passwords, such as `.env`."""
    return SECRET_NAME_PATTERN.search(path.lower()) is not None


def is_project_name(name: str) -> bool:
    """Whether a file or folder is neither temporary nor made by version control."""
    is_tools_own = is_always_ignored(name) and name not in IGNORED_NAMES
    return name not in VERSION_CONTROL_NAMES and not is_tools_own


def compile_patterns(lines: Iterable[str]) -> "GitIgnoreSpec":
    """Compile .gitignore patterns. StenoError if one is invalid."""
    try:
        from pathspec import GitIgnoreSpec
    except ImportError:
        raise StenoError(
            f"file-system watching and .gitignore support: {extra_command('watch')}"
        ) from None
    patterns = list(lines)
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except (ValueError, re.error) as error:
        raise StenoError(f"{', '.join(patterns)}: invalid .gitignore pattern: {error}") from None


def check_patterns(patterns: Iterable[str]) -> None:
    """StenoError if a pattern is invalid."""
    for pattern in patterns:
        compile_patterns([pattern])


def _is_pattern(line: str) -> bool:
    try:
        compile_patterns([line])
    except StenoError:
        return False
    return True


class IgnoreRules:
    """What is ignored below a folder.

    `use_gitignore`: respect .gitignore files, also those above the folder in its repository.
    """

    def __init__(
        self,
        root: str,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        use_gitignore: bool = True,
    ) -> None:
        self._include = compile_patterns(patterns) if (patterns := list(include)) else None
        self._exclude = compile_patterns(patterns) if (patterns := list(exclude)) else None
        self._use_gitignore = use_gitignore
        self._repository_root = root
        self._prefix = ""
        repository = find_repository_root(root) if use_gitignore else None
        inner = os.path.relpath(root, repository) if repository is not None else "."
        # A root that is itself ignored was chosen on purpose: only its own rules apply.
        if inner != "." and not IgnoreRules(str(repository)).is_ignored(inner, is_dir=True):
            self._repository_root = str(repository)
            self._prefix = f"{inner}/"
        self._gitignores: dict[str, GitIgnoreSpec | None] = {}
        self._dir_cache: dict[str, bool] = {}

    def includes(self, name: str) -> bool:
        """Whether a file is not ignored, and matches the patterns."""
        return self.selects(name) and not self.is_ignored(name)

    def selects(self, name: str) -> bool:
        """Whether a file, or files in a folder `name/`, can match the patterns."""
        is_file = not name.endswith("/")
        if is_file and self._include is not None and not self._include.match_file(name):
            return False
        return self._exclude is None or not self._exclude.match_file(name)

    def is_ignored(self, name: str, is_dir: bool = False) -> bool:
        """Whether a file or folder is ignored, or in an ignored folder."""
        return self.ignored_part(name, is_dir) is not None

    def ignored_part(self, name: str, is_dir: bool = False) -> str | None:
        """The outermost ignored folder, with a slash at its end, or the file itself; else None."""
        parts = name.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if self.is_dir_ignored(folder):
                return f"{folder}/"
        return name + "/" * is_dir if self._matches(name, is_dir) else None

    def is_dir_ignored(self, name: str) -> bool:
        """Whether a folder is ignored, not considering the folders above it."""
        ignored = self._dir_cache.get(name)
        if ignored is None:
            ignored = self._dir_cache[name] = self._matches(name, True)
        return ignored

    def clear_cache(self) -> None:
        """Read .gitignore files again."""
        self._gitignores.clear()
        self._dir_cache.clear()

    def _matches(self, name: str, is_dir: bool) -> bool:
        last = name.rpartition("/")[2]
        if is_always_ignored(last):
            return True
        if not self._use_gitignore:
            return False
        parts = (self._prefix + name).split("/")
        for depth in range(len(parts) - 1, -1, -1):  # the nearest matching .gitignore decides
            spec = self._gitignore_of("/".join(parts[:depth]))
            if spec is not None:
                ignored = spec.check_file("/".join(parts[depth:]) + "/" * is_dir).include
                if ignored is not None:
                    return ignored
        return False

    def _gitignore_of(self, folder: str) -> "GitIgnoreSpec | None":
        spec: GitIgnoreSpec | None = self._gitignores.get(folder, NOT_LOADED)
        if spec is NOT_LOADED:  # one lookup: another thread may call clear_cache
            path = Path(self._repository_root, folder, ".gitignore")
            spec = self._gitignores[folder] = _load_gitignore(path)
        return spec


def _load_gitignore(path: Path) -> "GitIgnoreSpec | None":
    try:
        if path.is_symlink() or not path.is_file():  # git doesn't follow links here either
            return None
        lines = path.read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return None
    try:
        return compile_patterns(lines)
    except StenoError:
        return compile_patterns(filter(_is_pattern, lines))  # git skips invalid patterns too
