"""What a run does to files, beside what its tools tell: how git finds them before and after, and what stirs meanwhile.

Threads look; the loop never waits for them and hears of what they found at one of its turns. It never changes a file, and
a folder that cannot be looked at stops no run.
"""

import os
import shutil
import time
from collections.abc import Callable
from threading import Thread

from ..answer.changed import Change
from ..files import git
from ..files.index import Notice
from ..files.inside import Root
from ..files.looking import Looking
from ..files.rules import Rules, patterns
from ..process import Loop
from ..report import StenoError

NONE, GIT, ALL = "none", "git", "all"  # what is looked at: nothing, git's states, the file system too
GIT_SECONDS = 3.0  # for one state: a repository of 100,000 files takes one; who has more waits no longer than this, twice
READY_SECONDS = 3.0  # for the first look at every file: where that takes longer, what is gone meanwhile is not seen
LOOK_SECONDS = 10.0  # for the last look at every file
MOST = 5000  # files that git finds changed and the report names
UNSEEN = "git gave no state of the files: it took too long, or too much is new; `steno changes` knows what tools told"

Take = Callable[[list[Notice]], None]


class Witness:
    """Looks at the files of one run. Every `then` is called by the loop."""

    def __init__(self, loop: Loop, cwd: str, run: str, how: str, keep: bool) -> None:
        self.troubles: list[str] = []  # what could not be seen, and why
        self._loop, self._cwd, self._run = loop, cwd, run
        self._git = keep and how != NONE and git.in_repository(cwd) and shutil.which("git") is not None
        self._watches = how == ALL
        self._looking: Looking | None = None
        self._take: Take | None = None  # who is told what stirs
        self._early: list[Notice] = []  # what stirred before

    def before(self, then: Callable[[], None]) -> None:
        """Take the state before the run, and begin to see what stirs; `then` at once where nothing of it is wanted."""
        if self._git or self._watches:
            self._aside(self._first, then)
        else:
            then()

    def tell(self, take: Take) -> None:
        """Who is told what stirs, from now on, and what has stirred already."""
        self._take = take
        early, self._early = self._early, []
        self._loop.soon(lambda: self._told(early))

    def _told(self, notices: list[Notice]) -> None:
        if self._take is None:
            self._early += notices
        elif notices:
            self._take(notices)

    def after(self, then: Callable[[], None]) -> None:
        """The run is over: look once more, and take the state after it. What was seen is told before `then` is called."""
        if self._git or self._looking is not None:
            self._aside(self._last, then)
        else:
            then()

    def close(self) -> None:
        """There is no run: nothing more is looked at."""
        if self._looking is not None:
            Thread(target=self._looking.stop, args=(LOOK_SECONDS,), name="steno files", daemon=True).start()
            self._looking = None

    # -- in a thread of its own ------------------------------------------------------------------------------------

    def _aside(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        def do() -> None:
            try:
                work()
            except Exception as problem:  # the run is worth more than what is seen of it
                self._git = False
                self.troubles.append(f"its files could not be looked at: {type(problem).__name__}: {problem}")
            self._loop.soon(then)

        Thread(target=do, name="steno files", daemon=True).start()

    def _first(self) -> None:
        if self._watches:
            self._watch()
        if self._git and git.mark(self._cwd, self._run, "before", GIT_SECONDS) is None:
            self._git = False
            self.troubles.append(UNSEEN)
        if self._looking is not None:
            self._looking.ready(READY_SECONDS)

    def _watch(self) -> None:
        try:
            patterns(())  # the package for it is there
            rules = Rules(os.path.realpath(self._cwd))
        except StenoError as problem:
            self.troubles.append(str(problem))
            return
        heard = lambda notices: self._loop.soon(lambda: self._told(notices))  # noqa: E731
        self._looking = Looking(Root(self._cwd), rules, heard, self.troubles.append)
        self._looking.start(time.time_ns() + int(READY_SECONDS * 1e9))  # what is there before the agent begins is not its work

    def _last(self) -> None:
        if self._looking is not None and not self._looking.stop(LOOK_SECONDS):
            self.troubles.append("there was no time left to look at every file")
        if not self._git:
            return
        if git.mark(self._cwd, self._run, "after", GIT_SECONDS) is None:
            git.forget(self._cwd, [self._run])  # one state alone tells nothing
            self.troubles.append(UNSEEN)
            return
        trees = git.kept(self._cwd, self._run)
        found = git.differences(self._cwd, trees) if trees is not None else []
        if len(found) > MOST:
            self.troubles.append(f"git found {len(found):,} changed files; the report names {MOST:,}, `steno changes` all")
        notices = [notice for change in found[:MOST] for notice in _notices(change)]
        self._loop.soon(lambda: self._told(notices))


def _notices(change: Change) -> list[Notice]:
    """What git says of a file; one that was renamed is gone from one place, and new in another."""
    if change.was is not None:
        return [Notice(change.was, "deleted", "git"), Notice(change.path, "created", "git")]
    return [Notice(change.path, change.change, "git")]
