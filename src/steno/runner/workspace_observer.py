"""What a run does to files, beside what its tools tell: how git finds them before and after, and what stirs meanwhile.

Threads look; the loop never waits for them and hears of what they found at one of its turns. It never changes a file, and
a folder that cannot be looked at stops no run.
"""

import os
import shutil
import time
from collections.abc import Callable
from threading import Thread

from ..errors import StenoError
from ..process import ProcessLoop
from ..workspace import git
from ..workspace.change_watcher import ChangeWatcher, ObservedChange
from ..workspace.changes import Change
from ..workspace.ignore_rules import IgnoreRules, compile_patterns
from ..workspace.safe_path import RootFolder

CHANGES_NONE, CHANGES_GIT, CHANGES_ALL = (
    "none",
    "git",
    "all",
)  # what is looked at: nothing, git's states, the file system too
GIT_TIMEOUT_SECONDS = 3.0  # for one state: a repository of 100,000 files takes one; who has more waits no longer than this, twice
FIRST_SCAN_TIMEOUT_SECONDS = 3.0  # for the first look at every file: where that takes longer, what is gone meanwhile is not seen
LAST_SCAN_TIMEOUT_SECONDS = 10.0  # for the last look at every file
MAX_REPORTED_FILES = 5000  # files that git finds changed and the report names
GIT_SNAPSHOT_FAILED = "git gave no state of the files: it took too long, or too much is new; `steno diff` knows what tools told"

NoticesCallback = Callable[[list[ObservedChange]], None]


class WorkspaceObserver:
    """Looks at the files of one run. Every `then` is called by the loop."""

    def __init__(self, loop: ProcessLoop, cwd: str, run: str, how: str, keep: bool) -> None:
        self.problems: list[str] = []  # what could not be seen, and why
        self._loop, self._cwd, self._run_id = loop, cwd, run
        self._uses_git = (
            keep
            and how != CHANGES_NONE
            and git.is_in_repository(cwd)
            and shutil.which("git") is not None
        )
        self._uses_watcher = how == CHANGES_ALL
        self._change_watcher: ChangeWatcher | None = None
        self._on_notices: NoticesCallback | None = None  # who is told what stirs
        self._early_notices: list[ObservedChange] = []  # what stirred before

    def start(self, then: Callable[[], None]) -> None:
        """Take the state before the run, and begin to see what stirs; `then` at once where nothing of it is wanted."""
        if self._uses_git or self._uses_watcher:
            self._run_in_thread(self._start_observing, then)
        else:
            then()

    def subscribe(self, take: NoticesCallback) -> None:
        """Who is told what stirs, from now on, and what has stirred already."""
        self._on_notices = take
        early, self._early_notices = self._early_notices, []
        self._loop.call_soon(lambda: self._deliver(early))

    def _deliver(self, notices: list[ObservedChange]) -> None:
        if self._on_notices is None:
            self._early_notices += notices
        elif notices:
            self._on_notices(notices)

    def finish(self, then: Callable[[], None]) -> None:
        """The run is over: look once more, and take the state after it. What was seen is told before `then` is called."""
        if self._uses_git or self._change_watcher is not None:
            self._run_in_thread(self._finish_observing, then)
        else:
            then()

    def close(self) -> None:
        """There is no run: nothing more is looked at."""
        if self._change_watcher is not None:
            Thread(
                target=self._change_watcher.stop,
                args=(LAST_SCAN_TIMEOUT_SECONDS,),
                name="steno files",
                daemon=True,
            ).start()
            self._change_watcher = None

    # -- in a thread of its own ------------------------------------------------------------------------------------

    def _run_in_thread(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        def do() -> None:
            try:
                work()
            except Exception as problem:  # the run is worth more than what is seen of it
                self._uses_git = False
                self.problems.append(
                    f"its files could not be looked at: {type(problem).__name__}: {problem}"
                )
            self._loop.call_soon(then)

        Thread(target=do, name="steno files", daemon=True).start()

    def _start_observing(self) -> None:
        if self._uses_watcher:
            self._start_watcher()
        if (
            self._uses_git
            and git.save_snapshot(self._cwd, self._run_id, "before", GIT_TIMEOUT_SECONDS) is None
        ):
            self._uses_git = False
            self.problems.append(GIT_SNAPSHOT_FAILED)
        if self._change_watcher is not None:
            self._change_watcher.wait_ready(FIRST_SCAN_TIMEOUT_SECONDS)

    def _start_watcher(self) -> None:
        try:
            compile_patterns(())  # the package for it is there
            rules = IgnoreRules(os.path.realpath(self._cwd))
        except StenoError as problem:
            self.problems.append(str(problem))
            return
        heard = lambda notices: self._loop.call_soon(lambda: self._deliver(notices))  # noqa: E731
        self._change_watcher = ChangeWatcher(
            RootFolder(self._cwd), rules, heard, self.problems.append
        )
        self._change_watcher.start(
            time.time_ns() + int(FIRST_SCAN_TIMEOUT_SECONDS * 1e9)
        )  # what is there before the agent begins is not its work

    def _finish_observing(self) -> None:
        if self._change_watcher is not None and not self._change_watcher.stop(
            LAST_SCAN_TIMEOUT_SECONDS
        ):
            self.problems.append("there was no time left to look at every file")
        if not self._uses_git:
            return
        if git.save_snapshot(self._cwd, self._run_id, "after", GIT_TIMEOUT_SECONDS) is None:
            git.delete_snapshots(self._cwd, [self._run_id])  # one state alone tells nothing
            self.problems.append(GIT_SNAPSHOT_FAILED)
            return
        trees = git.load_trees(self._cwd, self._run_id)
        found = git.diff_trees(self._cwd, trees) if trees is not None else []
        if len(found) > MAX_REPORTED_FILES:
            self.problems.append(
                f"git found {len(found):,} changed files; the report names {MAX_REPORTED_FILES:,}, `steno diff` all"
            )
        notices = [
            notice for change in found[:MAX_REPORTED_FILES] for notice in _notices_of(change)
        ]
        self._loop.call_soon(lambda: self._deliver(notices))


def _notices_of(change: Change) -> list[ObservedChange]:
    """What git says of a file; one that was renamed is gone from one place, and new in another."""
    if change.was is not None:
        return [
            ObservedChange(change.was, "deleted", "git"),
            ObservedChange(change.path, "created", "git"),
        ]
    return [ObservedChange(change.path, change.change, "git")]
