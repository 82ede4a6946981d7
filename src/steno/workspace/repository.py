"""Run git on a repository without running anything that the repository configures.

An agent can write `.git/config`, hooks and attributes, and git runs the filters, hooks, drivers and
helpers that they name. So git never sees that configuration: it works in a temporary git directory
that shares the objects and refs of the repository and has a configuration of its own. Only the
settings in COPIED_SETTINGS are copied, which say how files and objects are stored.

This is the only module that starts git.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from ..executables import find_executable
from ..private_files import temporary_folder, wait_for_lock
from ..process.child import DEFAULT_TIMEOUT_SECONDS, EXIT_NOT_FOUND, EXIT_TIMEOUT, RunOnce
from .origin import find_repository_root

COPIED_SETTINGS = (
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.sharedrepository",
    "core.symlinks",
    "core.trustctime",
    "core.checkstat",
    "extensions.objectformat",
    "extensions.refstorage",
)
COPIED_VALUE = re.compile(r"[A-Za-z0-9]+")
OWN_CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = false
\tlogAllRefUpdates = false
\tattributesFile = /dev/null
\thooksPath = /dev/null
\tquotePath = true
"""
# Bytes are stored as they are. This file wins over every .gitattributes.
OWN_ATTRIBUTES = "* -text !eol !crlf !ident !filter !working-tree-encoding\n"
SHARED_NAMES = ("objects", "refs", "packed-refs", "reftable")
# For the commands that `git worktree add` starts in the real git directory.
INHERITED_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
HEAD_PATTERN = re.compile(rb"(?:ref: refs/[^\0\r\n]+|[0-9a-f]{40,64})\n?")
MAX_POINTER_BYTES = 8192  # of HEAD, commondir, and a `.git` that is a file
NOT_FOUND = "/nonexistent/git"
KEPT_VARIABLES = {"GIT_EXEC_PATH"}
GIT_ENV = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_PAGER": "cat",
}

FETCHED_REFS = "+refs/heads/*:refs/remotes/origin/*"  # as a clone does by default
REMOTE_PROTOCOLS = "https:http:ssh:git:file"  # not ext, which runs a command
Config = dict[str, list[str]]  # the values of each setting, the one that counts last


class Repository:
    """A repository and the temporary git directory through which git works on it."""

    def __init__(self, top: Path, git_dir: Path, own_dir: Path, deadline: float | None) -> None:
        self.top = top
        self.git_dir = git_dir  # of this worktree
        self.common_dir = _common_dir(git_dir)
        self.own_dir = own_dir
        self._deadline = deadline
        main = self.common_dir.parent if self.common_dir.name == ".git" else top
        self._program = find_git(top, main) or NOT_FOUND

    def output(self, *command: str, stdin: bytes = b"", work_tree: Path | None = None) -> bytes:
        """What a git command printed. GitError if it failed."""
        code, out, err = self._run(command, stdin, self._environment(work_tree or self.top))
        if code != 0:
            raise GitError(command[0], code, err)
        return out

    def text(self, *command: str) -> str:
        """The output without the line break at its end."""
        return os.fsdecode(self.output(*command)).removesuffix("\n")

    def succeeds(self, *command: str, stdin: bytes = b"") -> bool:
        """Whether a git command exits with 0."""
        try:
            self.output(*command, stdin=stdin)
        except GitError:
            return False
        return True

    def _run(
        self, command: Sequence[str], stdin: bytes, env: Mapping[str, str]
    ) -> tuple[int, bytes, str]:
        timeout = DEFAULT_TIMEOUT_SECONDS
        if self._deadline is not None:
            timeout = max(0.0, self._deadline - time.monotonic())
        process = RunOnce(
            argv=(self._program, *INHERITED_OPTIONS, *command),
            cwd=str(self.top),
            extra_env=env,
            timeout=timeout,
            unset_env={name for name in os.environ if name.startswith("GIT_")} - KEPT_VARIABLES,
            stdin=stdin,
        )
        return process.run()

    def _environment(self, work_tree: Path) -> dict[str, str]:
        own = str(self.own_dir)
        folders = {"HOME": own, "XDG_CONFIG_HOME": own, "GIT_DIR": own}
        return {**GIT_ENV, **folders, "GIT_WORK_TREE": str(work_tree)}

    # -- settings --------------------------------------------------------------------------------

    @cached_property
    def config(self) -> Config:
        """The repository's own settings, without the files that it includes."""
        scope = ("--no-includes", "--file", str(self.common_dir / "config"))
        return self._list_config(self._environment(self.top), *scope)

    @cached_property
    def user_config(self) -> Config:
        """The settings of the user and the machine; those of our git directory are left out."""
        names = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
        given = {name: os.environ[name] for name in names if name in os.environ}
        return self._list_config({**given, "LC_ALL": "C", "GIT_DIR": str(self.own_dir)})

    def _list_config(self, env: Mapping[str, str], *scope: str) -> Config:
        """Settings are only read: `git config` runs nothing that they name."""
        code, out, err = self._run(("config", "--list", "-z", "--show-scope", *scope), b"", env)
        if code == EXIT_TIMEOUT:
            raise GitError("config", code, err)
        parts = os.fsdecode(out).split("\0") if code == 0 else []
        config: Config = {}
        for level, entry in zip(parts[::2], parts[1::2], strict=False):
            name, has_value, value = entry.partition("\n")
            if level != "local":
                config.setdefault(name, []).append(value if has_value else "true")
        return config

    def setting(self, name: str) -> str | None:
        """A setting of the repository, else of the user."""
        values = self.config.get(name) or self.user_config.get(name)
        return values[-1] if values else None

    def path_setting(self, name: str, default: str) -> Path:
        """The path in a setting, else a file in the user's git folder."""
        value = self.setting(name)
        if value:
            return self.top / Path(value).expanduser()
        folder = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
        return Path(folder, "git", default)

    def is_trusted(self) -> bool:
        """Whether the user owns it, or has named it in `safe.directory`, as git demands."""
        owners = {os.geteuid()}
        if owners == {0} and os.environ.get("SUDO_UID", "").isdigit():
            owners.add(int(os.environ["SUDO_UID"]))
        if {self.top.stat().st_uid, self.git_dir.stat().st_uid} <= owners:
            return True
        is_named = False
        for value in self.user_config.get("safe.directory", ()):
            path = Path(value).expanduser()
            is_below = path.name == "*" and path.parent in self.top.parents
            # An empty value drops the ones before it.
            is_named = bool(value) and (is_named or value == "*" or is_below or path == self.top)
        return is_named

    # -- the temporary git directory -------------------------------------------------------------

    def prepare(self) -> bool:
        """Whether git can be used: the repository is trusted and its settings can be read."""
        try:
            self._build()
            return self.is_trusted()
        except (GitError, OSError):
            return False

    def _build(self) -> None:
        """Fill the temporary git directory."""
        for name in SHARED_NAMES:
            # Git creates packed-refs where its link leads; it needs the other ones to exist.
            if name == "packed-refs" or (self.common_dir / name).exists():
                (self.own_dir / name).symlink_to(self.common_dir / name)
        for path in self.git_dir.glob("sharedindex.*"):  # of a split index
            (self.own_dir / path.name).symlink_to(path)
        head = _read_pointer(self.git_dir / "HEAD")
        is_valid = HEAD_PATTERN.fullmatch(head) is not None
        (self.own_dir / "HEAD").write_bytes(head if is_valid else b"ref: refs/heads/main\n")
        (self.own_dir / "info").mkdir()
        (self.own_dir / "info" / "exclude").symlink_to(self.common_dir / "info" / "exclude")
        (self.own_dir / "info" / "attributes").write_text(OWN_ATTRIBUTES)
        (self.own_dir / "config").write_text(OWN_CONFIG)
        copied = {name: self.config[name][-1] for name in COPIED_SETTINGS if name in self.config}
        lines = [
            f"[{section}]\n\t{key} = {value}\n"
            for (section, _, key), value in ((name.partition("."), copied[name]) for name in copied)
            if COPIED_VALUE.fullmatch(value)
        ]
        (self.own_dir / "config").write_text(OWN_CONFIG + "".join(lines))

    def copy_index(self) -> None:
        """Start from the user's index, so that unchanged files are not read again."""
        with suppress(OSError):  # a repository without a commit has no index
            shutil.copy2(self.git_dir / "index", self.own_dir / "index")

    @contextmanager
    def shared_worktrees(self, path: Path) -> Iterator[None]:
        """Let `git worktree add` register a worktree in the repository, one at a time.

        It reads the registrations of the others, and fails if one is half written.
        """
        registered = self.common_dir / "worktrees"
        registered.mkdir(exist_ok=True)
        (self.own_dir / "worktrees").symlink_to(registered)
        with wait_for_lock(registered, DEFAULT_TIMEOUT_SECONDS):
            yield
            # Git has written a path in our temporary folder.
            name = Path(os.fsdecode(_read_pointer(path / ".git")).strip()).name
            (path / ".git").write_bytes(b"gitdir: %s\n" % os.fsencode(registered / name))

    def save_index(self) -> None:
        """Make our index that of the worktree."""
        shutil.copy2(self.own_dir / "index", self.git_dir / "index")

    @contextmanager
    def users_attributes(self) -> Iterator[None]:
        """Read the attributes of files as the user's git does: for `check-attr` only."""
        path = self.own_dir / "info" / "attributes"
        path.unlink()
        path.symlink_to(self.common_dir / "info" / "attributes")
        try:
            yield
        finally:
            path.unlink()
            path.write_text(OWN_ATTRIBUTES)


class GitError(Exception):
    """A git command failed, timed out, or could not be started."""

    def __init__(self, command: str, code: int, stderr: str) -> None:
        lines = stderr.strip().splitlines()
        reason = lines[-1] if lines else f"git {command} failed with exit code {code}"
        super().__init__(reason.removeprefix("fatal: "))


@contextmanager
def open_repository(cwd: str, seconds: float | None = None) -> Iterator[Repository | None]:
    """The repository of a folder; None if there is none, or it belongs to another user.

    `seconds`: the time that all commands together may take.
    """
    found = _find_git_dir(cwd)
    if found is None:
        yield None
        return
    deadline = None if seconds is None else time.monotonic() + seconds
    with temporary_folder() as folder:
        repository = Repository(*found, Path(folder), deadline)
        yield repository if repository.prepare() else None


def clone_repository(url: str, folder: Path, seconds: float) -> None:
    """Clone a repository without checking anything out. GitError if that fails."""
    _run_remote(("clone", "--quiet", "--no-checkout", "--", url, str(folder)), seconds)


def fetch_repository(url: str, folder: Path, seconds: float) -> None:
    """Get what is new at the origin of a clone. GitError if that fails.

    The clone's own configuration is not read: `git config` in a worktree writes there.
    """
    with open_repository(str(folder)) as repository:
        if repository is None:
            raise GitError("fetch", EXIT_NOT_FOUND, f"{folder}: no repository of this user")
        own = ("--git-dir", str(repository.own_dir))
        _run_remote((*own, "fetch", "--quiet", "--", url, FETCHED_REFS), seconds)


def _run_remote(command: tuple[str, ...], seconds: float) -> None:
    """Run git with the user's own settings, which may be needed to sign in; it never asks."""
    env = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": REMOTE_PROTOCOLS}
    process = RunOnce(
        argv=(find_git() or NOT_FOUND, *command), cwd="/", extra_env=env, timeout=seconds
    )
    code, _, stderr = process.run()
    if code != 0:
        raise GitError(command[0], code, stderr)


def path_in_repository(cwd: str) -> str:
    """The path of `cwd` in its repository, with a slash at the end; empty at the top."""
    folder = os.path.realpath(cwd)
    top = find_repository_root(folder)
    inner = "." if top is None else os.path.relpath(folder, top)
    return "" if inner == "." else f"{inner}/"


def find_git(*projects: Path) -> str | None:
    """The git program in PATH. Folders of the projects don't count: agents write there."""
    excluded = {str(project) for project in projects if project != Path(project.anchor)}
    return find_executable("git", excluded=excluded)


def _find_git_dir(cwd: str) -> tuple[Path, Path] | None:
    """The top of the working tree and its git directory; None without a repository."""
    top = find_repository_root(os.path.realpath(cwd))
    if top is None:
        return None
    git_dir = top / ".git"
    if git_dir.is_file():  # of a worktree or submodule
        prefix, _, target = _read_pointer(git_dir).partition(b"gitdir: ")
        git_dir = top / os.fsdecode(target.rstrip(b"\r\n"))
        if prefix or not target:
            return None
    is_git_dir = (git_dir / "HEAD").exists() and (_common_dir(git_dir) / "objects").is_dir()
    return (top, git_dir.resolve()) if is_git_dir else None


def _common_dir(git_dir: Path) -> Path:
    """The git directory that all worktrees of a repository share."""
    target = _read_pointer(git_dir / "commondir").rstrip(b"\r\n")
    return (git_dir / os.fsdecode(target)).resolve() if target else git_dir


def worktrees_of(folder: str) -> list[str]:
    """The other worktrees of the repository whose top is this folder."""
    found = _find_git_dir(folder)
    if found is None or found[0] != Path(folder).resolve():
        return []
    pointers = sorted(_common_dir(found[1]).glob("worktrees/*/gitdir"))
    paths = (os.fsdecode(_read_pointer(pointer).rstrip(b"\r\n")) for pointer in pointers)
    return [str(Path(path).parent) for path in paths if path]


def _read_pointer(path: Path) -> bytes:
    """The content of a small file; empty if it is missing or no file: a FIFO would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, MAX_POINTER_BYTES) if is_file else b""
    finally:
        os.close(descriptor)
