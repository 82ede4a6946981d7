"""A command as a destination: run once for each file, without a shell.

Placeholders: {path} is the absolute path, {name} the name below the folder, {change} put or delete.
Without {path} and {name}, the path is appended. Only commands with {change} are run for deletions.
"""

import shlex

from ..errors import StenoError, SyncError
from ..process.child import RunOnce
from ..workspace.safe_path import RootFolder
from .files import Content

COMMAND_TIMEOUT_SECONDS = 300.0  # for one file
MAX_REASON_CHARACTERS = 300
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


class CommandDestination:
    """A destination."""

    is_cheap_to_compare = False
    can_compare = False
    commits_on_close = False

    def __init__(self, text: str, root: RootFolder, prefix: str) -> None:
        self.name = f"cmd:{text}"
        self._root = root
        self._prefix = prefix
        self._argv = parse_command(text)
        self.can_delete = any("{change}" in word for word in self._argv)
        self._running: set[RunOnce] = set()

    def open(self) -> None:
        """Nothing to do."""

    def has_same(self, name: str, content: Content) -> bool:
        """Unknown, so False."""
        return False

    def put(self, name: str, content: Content) -> None:
        """Run the command for a file."""
        self._run(name, "put")

    def delete(self, name: str) -> bool:
        """Run the command for a deleted file."""
        self._run(name, "delete")
        return True

    def list_names(self) -> None:
        """Unknown."""

    def close(self) -> None:
        """Kill running commands."""
        for process in list(self._running):
            process.kill()

    def _run(self, name: str, change: str) -> None:
        path = self._root.absolute_path(self._prefix + name)
        safe_name = f"./{name}" if name.startswith("-") else name  # not an option
        values = {"{path}": path, "{name}": safe_name, "{change}": change}
        argv = [_substitute(word, values) for word in self._argv]
        env = {"STENO_PATH": path, "STENO_NAME": name, "STENO_CHANGE": change}
        process = RunOnce(argv, self._root.real_path, env, COMMAND_TIMEOUT_SECONDS)
        self._running.add(process)
        try:
            code, _, stderr = process.run()
        finally:
            self._running.discard(process)
        if code != 0:
            lines = stderr.strip().splitlines()
            reason = lines[-1] if lines else f"{argv[0]} failed with exit code {code}"
            raise SyncError(
                reason[:MAX_REASON_CHARACTERS],
                is_permanent=code in (EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND),
            )


def parse_command(text: str) -> list[str]:
    """Split a command at blanks; quotes and backslashes work as in a shell."""
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise StenoError(f"cmd:{text}: {error}") from None
    if not argv:
        raise StenoError(
            "cmd: expected a program and its arguments, such as cmd:rsync -a {path} host:backup/"
        )
    has_file = any("{path}" in word or "{name}" in word for word in argv[1:])
    return argv if has_file else [*argv, "{path}"]


def _substitute(word: str, values: dict[str, str]) -> str:
    """Replace placeholders; inserted values are not searched again."""
    start = min((at for mark in values if (at := word.find(mark)) >= 0), default=-1)
    if start < 0:
        return word
    mark = next(mark for mark in values if word.startswith(mark, start))
    return word[:start] + values[mark] + _substitute(word[start + len(mark) :], values)
