"""A command as a destination: it is called once for each file, without a shell. What it does is its own affair.

In its words, {path} is the file's whole path, {name} its name below the folder, {change} the word put or delete. Without
{path} and {name}, the path is the last word. Only a command that asks for {change} is told of deleted files.
"""

import shlex

from ..files.inside import Root
from ..process.once import Once
from ..report import StenoError
from .content import Content
from .values import Trouble

PATIENCE = 300.0  # seconds for one file


class Command:
    """A destination."""

    looks_first = answers = at_end = False

    def __init__(self, text: str, root: Root, before: str) -> None:
        self.name = f"cmd:{text}"
        self._root, self._before = root, before
        self._words = words(text)
        self.deletes = any("{change}" in word for word in self._words)
        self._running: set[Once] = set()

    def begin(self) -> None:
        """Nothing is to be made."""

    def same(self, name: str, content: Content) -> bool:
        """It cannot be asked."""
        return False

    def put(self, name: str, content: Content) -> None:
        """Call it for a file that is there."""
        self._call(name, "put")

    def delete(self, name: str) -> bool:
        """Call it for a file that is gone."""
        self._call(name, "delete")
        return True

    def names(self) -> None:
        """It cannot be asked."""

    def close(self) -> None:
        """End what still runs."""
        for once in list(self._running):
            once.kill()

    def _call(self, name: str, change: str) -> None:
        path = self._root.path(self._before + name)
        plain = f"./{name}" if name.startswith("-") else name  # never taken for an option
        filled = [_filled(word, {"{path}": path, "{name}": plain, "{change}": change}) for word in self._words]
        more = {"STENO_PATH": path, "STENO_NAME": name, "STENO_CHANGE": change}
        once = Once(filled, self._root.real, more, PATIENCE)
        self._running.add(once)
        try:
            code, _, err = once.run()
        finally:
            self._running.discard(once)
        if code != 0:
            told = err.strip().splitlines()[-1:] or [f"{filled[0]} ended with exit code {code}"]
            raise Trouble(told[0][:300], lasting=code in (126, 127))


def words(text: str) -> list[str]:
    """The words of a command. Nothing but quotes and backslashes is understood: there is no shell."""
    try:
        found = shlex.split(text)
    except ValueError as problem:
        raise StenoError(f"cmd:{text}: {problem}") from None
    if not found:
        raise StenoError("cmd: expected a program and its arguments, such as cmd:rsync -a {path} host:backup/")
    named = any("{path}" in word or "{name}" in word for word in found[1:])
    return found if named else [*found, "{path}"]


def _filled(word: str, values: dict[str, str]) -> str:
    """A word with what its marks stand for. What was put in is not looked at again."""
    start = min((at for mark in values if (at := word.find(mark)) >= 0), default=-1)
    if start < 0:
        return word
    mark = next(mark for mark in values if word.startswith(mark, start))
    return word[:start] + values[mark] + _filled(word[start + len(mark) :], values)
