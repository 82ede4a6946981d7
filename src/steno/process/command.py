"""What is started, how patiently it is ended, and what was left of it: values only. Nothing here starts anything."""

from msgspec import Struct


class ProcessCommand(Struct, frozen=True):
    """A program to start, without a shell. `env` None is our own environment, `stdin` None is /dev/null.

    `stdout` is "pipe", or "file" for programs that drop what a pipe has not taken when they exit (Claude Code up
    to 2.1.197): they write to a file that has no name any more, and the loop reads it as it grows. `keep_open`: more may
    be sent to stdin while it runs, until `Child.hang_up`.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    env: dict[str, str] | None = None
    stdin: bytes | None = None
    stdout: str = "pipe"
    keep_stdin_open: bool = False


class GracePeriods(Struct, frozen=True):
    """How long each step of an end may take, in seconds. The sum is what a run can last beyond its clock."""

    interrupt: float = (
        5.0  # from SIGINT to SIGTERM: an agent that closes in order still prints its result
    )
    terminate: float = 3.0  # from SIGTERM to SIGKILL
    kill: float = (
        2.0  # from SIGKILL to giving up: a process in an uninterruptible wait cannot be killed
    )
    quiet: float = 0.5  # after the exit: silence that ends a stream which somebody else keeps open
    drain: float = 5.0  # after the exit: when such a stream is closed even if it is never silent


class Orphan(Struct, frozen=True):
    """A process that outlived its agent, or had to be killed with it. `signal` None: it was left running."""

    pid: int
    command: str
    signal: int | None = None
