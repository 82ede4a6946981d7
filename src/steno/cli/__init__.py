"""Entry point of the command line: runs a command, turns errors into one line and an exit code.

Nothing is imported before it is needed: `steno --help` costs little more than starting Python.
"""

import errno
import gc
import os
import sys

from .commands import (
    BUILT_IN_COMMANDS,
    CI_VARIABLES,
    COMMANDS,
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    EXIT_PIPE_CLOSED,
    EXIT_USAGE_ERROR,
    EXIT_WRITE_FAILED,
    LIGHT_COMMANDS,
    SPAWNING_COMMANDS,
    SUBCOMMANDS,
    help_text,
)

TYPE_CHECKING = False  # importing `typing` would cost 4 ms
if TYPE_CHECKING:
    from collections.abc import Callable

# Errors of a write to stdout: full, broken, not open, or not ready.
WRITE_ERRNOS = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EBADF,
        errno.ENXIO,
        errno.EAGAIN,
        errno.EINVAL,
    )
)


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code. Tracebacks are printed only with --debug."""
    args = list(sys.argv[1:] if argv is None else argv)
    end = args.index("--") if "--" in args else len(args)
    debug = "--debug" in args[:end] or os.environ.get("STENO_DEBUG", "0") not in ("", "0")
    args[:end] = [arg for arg in args[:end] if arg != "--debug"]
    error_text = ""
    try:
        if sys.stdout is None:
            raise OSError("stdout is closed")
        if not CI_VARIABLES.isdisjoint(os.environ):
            from .ci_log import guard_output

            guard_output()
        code = _dispatch(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_PIPE_CLOSED
    except Exception as error:
        error_text = str(error)
        code = _report_error(error, debug)
    if "steno.agents" in sys.modules:  # report plugins that could not be loaded
        for text in sys.modules["steno.agents"].AGENTS.problems.values():
            if text != error_text:
                from .terminal import print_error

                print_error(text)
    return code


def _dispatch(args: list[str]) -> int:
    if args[:1] == ["help"]:
        args = _help_args(args[1:])
    if not args or args[0] in ("-h", "--help"):
        return _write_stdout(help_text())
    if args[0] in ("version", "--version"):
        return _print_version(args[1:])
    if args[0] not in COMMANDS:
        return _report_unknown_command(args[0])
    run = import_command(args[0])
    try:
        return int(run(args[1:]))
    except SystemExit as end:  # raised by argparse after its help, and for wrong use
        return end.code if isinstance(end.code, int) else EXIT_USAGE_ERROR
    finally:
        gc.freeze()  # exempt all objects from the collection that Python runs at exit


def import_command(name: str) -> "Callable[[list[str]], int]":
    """The `run` function of a module below `steno.cli`, imported with less start-up time.

    Measured as CPU time of `steno show --json FILE` (Python 3.11, best half of 40 runs, about
    103 ms in all): without garbage collection during imports 10 ms less; msgspec without
    typing_extensions, of which it needs only names that `typing` has too, 7 ms less.
    """
    from importlib import import_module

    gc.disable()  # imports create no garbage
    if name in LIGHT_COMMANDS:
        return import_module(f".{name}", __name__).run  # type: ignore[no-any-return]
    if "typing_extensions" not in sys.modules and "msgspec" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # blocks the import
        try:
            import msgspec  # noqa: F401  # imported for its side effect on sys.modules
        finally:
            del sys.modules["typing_extensions"]
    run: Callable[[list[str]], int] = import_module(f".{name}", __name__).run
    gc.freeze()
    gc.enable()
    if name in SPAWNING_COMMANDS:
        from signal import SIG_DFL, SIG_IGN, SIGCHLD, getsignal, signal

        if getsignal(SIGCHLD) == SIG_IGN:  # inherited: the kernel discards exit codes of children
            signal(SIGCHLD, SIG_DFL)
    return run


def _help_args(args: list[str]) -> list[str]:
    """`help COMMAND` as `COMMAND --help`."""
    command = [arg for arg in args if arg not in ("-h", "--help")]
    if not command or command[0] in BUILT_IN_COMMANDS:
        return []
    length = 2 if command[0] in SUBCOMMANDS and command[1:2] != [] else 1
    return [*command[:length], "--help"]


def _print_version(args: list[str]) -> int:
    if args and args[0] in ("-h", "--help"):
        return _write_stdout(help_text())
    from .. import __version__

    return _write_stdout(f"steno {__version__}\n")


def _write_stdout(text: str) -> int:
    sys.stdout.write(text)
    return 0


def _report_unknown_command(word: str) -> int:
    from .terminal import print_error

    name = f"option {word}" if word.startswith("-") else f"command {word!r}"
    print_error(f"unknown {name}; {_command_hint(word)}")
    return EXIT_USAGE_ERROR


def _command_hint(word: str) -> str:
    from ..config import closest_name

    if os.path.exists(word):  # noqa: PTH110  # importing pathlib takes longer than all the rest
        return f"to read a recording: steno show {word}"
    group = next((name for name, words in SUBCOMMANDS.items() if word in words), None)
    if group is not None:
        return f"did you mean {group} {word}?"
    match = closest_name(word, (*COMMANDS, "--help", "--version", "--debug"))
    return f"did you mean {match}?" if match is not None else "see: steno --help"


def _report_error(error: Exception, debug: bool) -> int:
    """Print the error in one line and return its exit code."""
    from ..errors import RecordingError, StenoError
    from .terminal import print_error

    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, StenoError):
        print_error(str(error))
        return EXIT_WRITE_FAILED if isinstance(error, RecordingError) else EXIT_USAGE_ERROR
    if isinstance(error, OSError):
        return _report_os_error(error)
    context = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
    hint = "" if debug else "; run again with --debug"
    print_error(f"internal error: {context}{type(error).__name__}: {error}{hint}")
    return EXIT_INTERNAL_ERROR


def _report_os_error(error: OSError) -> int:
    """An error with a file name, one of a missing working directory, or else one of stdout."""
    from .terminal import print_error

    reason = error.strerror or str(error)
    name = error.filename
    if name is not None:
        print_error(f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {reason}")
        return EXIT_USAGE_ERROR
    if error.errno is not None and error.errno not in WRITE_ERRNOS:
        if _is_cwd_missing():
            reason = "the working directory was deleted; change to an existing one"
        print_error(reason)
        return EXIT_USAGE_ERROR
    print_error(f"cannot write to stdout: {reason}")
    _discard_stdout()
    return EXIT_WRITE_FAILED


def _is_cwd_missing() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # importing pathlib takes longer than all the rest
    except FileNotFoundError:
        return True
    return False


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that flushing its buffer at exit cannot fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
