"""File changes of a run besides those of its tools: git before and after, file-system watching.

Threads do the work; the loop never waits for them. No file is changed, and a folder that cannot be
read stops no run.
"""

import os
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

CHANGES_NONE = "none"
CHANGES_ALL = "all"  # file-system watching besides git
GIT_TIMEOUT_SECONDS = 3.0  # per snapshot, twice per run; a repository of 100,000 files takes 1 s
FIRST_SCAN_TIMEOUT_SECONDS = 3.0  # files deleted before the first scan is complete are missed
LAST_SCAN_TIMEOUT_SECONDS = 10.0
MAX_REPORTED_FILES = 5000
GIT_SNAPSHOT_FAILED = (
    "no git snapshot: it took too long, or too many files are new; "
    "`steno diff` shows only the changes made by tools"
)

ChangesCallback = Callable[[list[ObservedChange]], None]


class WorkspaceObserver:
    """Observes the files of one run. Each `then` is called by the loop.

    Git snapshots are kept for `undo_days` and for the last `undo_runs` runs; with 0, none is kept.
    """

    def __init__(
        self,
        *,
        loop: ProcessLoop,
        cwd: str,
        run_id: str,
        changes: str,
        undo_days: int,
        undo_runs: int,
        record: bool,
    ) -> None:
        self.problems: list[str] = []
        self._loop = loop
        self._cwd = cwd
        self._run_id = run_id
        self._uses_git = (
            record
            and changes != CHANGES_NONE
            and git.is_in_repository(cwd)
            and git.is_installed(cwd)
        )
        self._keeps_snapshots = undo_days > 0 and undo_runs > 0
        self._undo_days = undo_days
        self._undo_runs = undo_runs
        self._trees: dict[str, str] = {}  # git's snapshots before and after the run
        self._uses_watcher = changes == CHANGES_ALL
        self._change_watcher: ChangeWatcher | None = None
        self._on_changes: ChangesCallback | None = None
        self._early_changes: list[ObservedChange] = []  # before `subscribe`

    def start(self, then: Callable[[], None]) -> None:
        """Take the snapshot before the run and start watching, then call `then`."""
        if self._uses_git or self._uses_watcher:
            self._run_in_thread(self._start_observing, then)
        else:
            then()

    def subscribe(self, on_changes: ChangesCallback) -> None:
        """Deliver changes to this callback, including earlier ones."""
        self._on_changes = on_changes
        early = self._early_changes
        self._early_changes = []
        if early:
            self._loop.call_soon(lambda: on_changes(early))

    def _deliver(self, changes: list[ObservedChange]) -> None:
        if self._on_changes is None:
            self._early_changes += changes
        elif changes:
            self._on_changes(changes)

    def finish(self, then: Callable[[], None]) -> None:
        """Scan again and take the snapshot after the run; deliver, then call `then`."""
        if self._uses_git or self._change_watcher is not None:
            self._run_in_thread(self._finish_observing, then)
        else:
            then()

    def close(self) -> None:
        """Stop without a result: the run was not started."""
        if self._change_watcher is not None:
            Thread(
                target=self._change_watcher.stop,
                args=(LAST_SCAN_TIMEOUT_SECONDS,),
                name="steno files",
                daemon=True,
            ).start()
            self._change_watcher = None

    # -- in a thread -----------------------------------------------------------------------------

    def _run_in_thread(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception as error:  # a failing observer must not stop the run
                self._uses_git = False
                self.problems.append(f"cannot detect file changes: {type(error).__name__}: {error}")
            self._loop.call_soon(then)

        Thread(target=run, name="steno files", daemon=True).start()

    def _start_observing(self) -> None:
        if self._uses_watcher:
            self._start_watcher()
        if self._uses_git and not self._take_snapshot("before"):
            self._uses_git = False
            self.problems.append(GIT_SNAPSHOT_FAILED)
        if self._change_watcher is not None:
            self._change_watcher.wait_ready(FIRST_SCAN_TIMEOUT_SECONDS)

    def _take_snapshot(self, moment: str) -> bool:
        tree = git.snapshot(self._cwd, GIT_TIMEOUT_SECONDS)
        if tree is None:
            return False
        self._trees[moment] = tree
        return not self._keeps_snapshots or git.save_tree(self._cwd, self._run_id, moment, tree)

    def _start_watcher(self) -> None:
        try:
            compile_patterns(())  # fails if the optional package is missing
            rules = IgnoreRules(os.path.realpath(self._cwd))
        except StenoError as error:
            self.problems.append(str(error))
            return

        def on_changes(changes: list[ObservedChange]) -> None:
            self._loop.call_soon(lambda: self._deliver(changes))

        self._change_watcher = ChangeWatcher(
            RootFolder(self._cwd), rules, on_changes, self.problems.append
        )
        # Files that exist before the agent starts are not its work.
        self._change_watcher.start(time.time_ns() + int(FIRST_SCAN_TIMEOUT_SECONDS * 1e9))

    def _finish_observing(self) -> None:
        watcher = self._change_watcher
        if watcher is not None and not watcher.stop(LAST_SCAN_TIMEOUT_SECONDS):
            self.problems.append("file changes may be missing: the last scan took too long")
        if not self._uses_git:
            return
        if not self._take_snapshot("after"):
            git.delete_snapshots(self._cwd, [self._run_id])  # useless without its pair
            self.problems.append(GIT_SNAPSHOT_FAILED)
            return
        trees = git.TreePair(self._trees["before"], self._trees["after"])
        changes = git.diff_trees(self._cwd, trees)
        if len(changes) > MAX_REPORTED_FILES:
            self.problems.append(
                f"{len(changes):,} changed files; the report lists the first "
                f"{MAX_REPORTED_FILES:,}, `steno diff` lists all"
            )
        observed = [
            entry for change in changes[:MAX_REPORTED_FILES] for entry in _observed_changes(change)
        ]
        self._loop.call_soon(lambda: self._deliver(observed))
        if self._keeps_snapshots:
            git.prune_snapshots(self._cwd, self._undo_days, self._undo_runs)


def _observed_changes(change: Change) -> list[ObservedChange]:
    """A rename is one deleted and one created file."""
    if change.was is not None:
        return [
            ObservedChange(change.was, "deleted", "git"),
            ObservedChange(change.path, "created", "git"),
        ]
    return [ObservedChange(change.path, change.change, "git")]
