"""A command as a destination: it is called once for each file, without a shell. What it does is its own affair.

In its words, {path} is the file's whole path, {name} its name below the folder, {change} the word put or delete. Without
{path} and {name}, the path is the last word. Only a command that asks for {change} is told of deleted files.
"""

import shlex

from ..errors import StenoError, SyncError
from ..process.run_once import RunOnce
from ..workspace.safe_path import RootFolder
from .content import Content

COMMAND_TIMEOUT_SECONDS = 300.0  # seconds for one file


class CommandDestination:
    """A destination."""

    is_cheap_to_compare = can_compare = commits_on_close = False

    def __init__(self, text: str, root: RootFolder, before: str) -> None:
        self.name = f"cmd:{text}"
        self._root, self._prefix = root, before
        self._argv = parse_command(text)
        self.can_delete = any("{change}" in word for word in self._argv)
        self._running: set[RunOnce] = set()

    def open(self) -> None:
        """Nothing is to be made."""

    def has_same(self, name: str, content: Content) -> bool:
        """It cannot be asked."""
        return False

    def put(self, name: str, content: Content) -> None:
        """Call it for a file that is there."""
        self._run(name, "put")

    def delete(self, name: str) -> bool:
        """Call it for a file that is gone."""
        self._run(name, "delete")
        return True

    def list_names(self) -> None:
        """It cannot be asked."""

    def close(self) -> None:
        """End what still runs."""
        for once in list(self._running):
            once.kill()

    def _run(self, name: str, change: str) -> None:
        path = self._root.absolute_path(self._prefix + name)
        plain = f"./{name}" if name.startswith("-") else name  # never taken for an option
        filled = [
            _substitute(word, {"{path}": path, "{name}": plain, "{change}": change})
            for word in self._argv
        ]
        more = {"STENO_PATH": path, "STENO_NAME": name, "STENO_CHANGE": change}
        once = RunOnce(filled, self._root.real_path, more, COMMAND_TIMEOUT_SECONDS)
        self._running.add(once)
        try:
            code, _, err = once.run()
        finally:
            self._running.discard(once)
        if code != 0:
            told = err.strip().splitlines()[-1:] or [f"{filled[0]} ended with exit code {code}"]
            raise SyncError(told[0][:300], is_permanent=code in (126, 127))


def parse_command(text: str) -> list[str]:
    """The words of a command. Nothing but quotes and backslashes is understood: there is no shell."""
    try:
        found = shlex.split(text)
    except ValueError as problem:
        raise StenoError(f"cmd:{text}: {problem}") from None
    if not found:
        raise StenoError(
            "cmd: expected a program and its arguments, such as cmd:rsync -a {path} host:backup/"
        )
    named = any("{path}" in word or "{name}" in word for word in found[1:])
    return found if named else [*found, "{path}"]


def _substitute(word: str, values: dict[str, str]) -> str:
    """A word with what its marks stand for. What was put in is not looked at again."""
    start = min((at for mark in values if (at := word.find(mark)) >= 0), default=-1)
    if start < 0:
        return word
    mark = next(mark for mark in values if word.startswith(mark, start))
    return word[:start] + values[mark] + _substitute(word[start + len(mark) :], values)
