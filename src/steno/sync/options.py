"""What is asked of a sync, what came of it, and what can go wrong. Values only."""

from msgspec import Struct


class SyncOptions(Struct, frozen=True, kw_only=True):
    """What is asked for. Times are in seconds.

    `destinations`  dir:PATH, cmd:PROGRAM ARGS, http(s)://..., or a URL that fsspec knows
    `prefix`        only what lies below this folder, and without this in its name
    `include`       only files that fit one of these patterns of git
    `exclude`       no file that fits one of these
    `ignore`        .gitignore files count (what tools make for themselves, such as node_modules, never does)
    `delete`        what is deleted is deleted there too
    `debounce`      how long a changed file may wait for further changes
    `concurrency`   files copied at the same time, for each destination
    `strict`        a file that could not be copied is an error (`SyncSummary.exit_code`)
    `final_pass`    at the end, compare every file by its hash
    `dry_run`       say what would be done
    `limit`         the longest that `finish` takes; None: as long as it needs
    `tries`         give a file up after so many; None: only when the time is over
    `journal`       where what is not done yet is written down; None: nowhere
    `watch_files`   look at the file system too, for what tools do not tell
    """

    destinations: tuple[str, ...]
    prefix: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ignore: bool = True
    delete: bool = False
    debounce: float = 0.02
    concurrency: int = 4
    strict: bool = False
    final_pass: bool = False
    dry_run: bool = False
    limit: float | None = 30.0
    tries: int | None = None
    journal: str | None = None
    watch_files: bool = True


class FailedFile(Struct, frozen=True):
    """A file that is not where it should be, and why."""

    path: str
    destination: str
    reason: str


class SyncSummary(Struct, kw_only=True):
    """What came of it. One file at two destinations counts twice.

    `put`, `deleted`, `same` (the same content was there) and `bytes` count what was done; `failed` is what was not;
    `outside` lists paths that were told and do not lie in the folder; `problems` is what speaks against the whole.
    """

    put: int = 0
    deleted: int = 0
    same: int = 0
    bytes: int = 0
    failed: list[FailedFile] = []
    outside: list[str] = []
    problems: list[str] = []
    seconds: float = 0.0
    journal: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything is where it should be."""
        return not self.failed and not self.problems

    def exit_code(self, strict: bool) -> int:
        """1 where something is missing and that counts."""
        return int(strict and not self.ok)

    def line(self) -> str:
        """All of it in one line."""
        parts = [f"{self.put} copied", f"{self.same} unchanged"]
        parts += [f"{self.deleted} deleted"] * bool(self.deleted)
        parts += [f"{len(self.failed)} failed"] * bool(self.failed)
        parts += [f"{len(self.outside)} outside"] * bool(self.outside)
        return f"sync: {', '.join(parts)} ({self.bytes:,} bytes, {self.seconds:.1f} s)"


def escape_unprintable(text: str) -> str:
    """A name for people: what could move a cursor or break a line is written out."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
