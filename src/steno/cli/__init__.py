"""The command line: finds the command, calls it, and turns what goes wrong into one line and an exit code.

It never reads a recording itself. Nothing is imported before it is known to be needed: `steno --help`
must not cost more than starting Python twice.
"""

import errno
import gc
import os
import sys

COMMANDS = {
    "run": "run an agent, see it to its end, and say what really happened",
    "config": "the settings, and where each comes from",
    "agents": "which agents are here, of which version, and what each can do",
    "doctor": "whether this machine will do, and how to mend what will not",
    "show": "say what really happened in a recording (file, folder or stdin), or in a run of the ledger",
    "watch": "pass an agent's stream on untouched, and tell what happens in it",
    "on": "run a command when something happens in a stream or in a run",
    "ps": "the runs that go on now",
    "tail": "follow a run that goes on, or tell one again that is over",
    "send": "say something to an agent while it runs",
    "stop": "ask a run to end, or kill it",
    "replay": "play a recording as if it were the agent, to test what runs agents",
    "demo": "the whole way with recorded agents: run, verdict, ledger, report",
    "changes": "the files that a run changed, with a patch that undoes it",
    "sync": "copy a folder's files to other places, or finish what an earlier sync left",
    "import": "take transcripts, recordings and tapes into the ledger",
    "report": "what was spent, by day, project, model, agent, tool or session",
    "runs": "the runs that are in the ledger",
    "sessions": "the agents' conversations that are in the ledger",
    "search": "find words in what people and agents said",
    "compare": "two runs or sessions side by side",
    "context": "how full a session's window was, request by request",
    "budget": "limits of spending, how they stand, and an exit code for scripts",
    "note": "write something down beside a run or a session",
    "sql": "ask the ledger in SQL, for reading only",
    "prune": "take old details out of the ledger",
    "rebuild": "make the ledger anew from the files that it was made of",
    "completion": "a script that lets a shell complete commands and options",
}
SPAWNING_COMMANDS = {
    "run",
    "watch",
    "on",
    "sync",
    "changes",
    "agents",
    "doctor",
    "demo",
}  # commands that start programs
MODULE_NAMES = {  # where the command's module has another name
    "import": "ledger_import",
    "note": "ledger_note",
    "prune": "ledger_prune",
    "rebuild": "ledger_rebuild",
    "sql": "ledger_sql",
    "report": "usage",
    "tail": "logs",
    "changes": "diff",
}
HELP_TEMPLATE = """usage: steno COMMAND [OPTIONS]

Reads what coding agents print when nobody sits at the keyboard, and says what really happened.

commands:
{commands}

options:
  -h, --help  show this help
  --version   show the version
  --debug     show where an error came from (also: STENO_DEBUG=1)

`steno COMMAND --help` tells more, with examples.
"""

# What the system says where stdout cannot be written: it is full, broken, not open, or not ready.
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
EXIT_USAGE_ERROR, EXIT_INTERNAL_ERROR, EXIT_WRITE_FAILED, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = (
    2,
    70,
    74,
    130,
    141,
)


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code. No traceback reaches a user unless asked for."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = _pop_debug_flag(words)
    try:
        if sys.stdout is None:
            raise OSError("stdout is closed")
        code = _dispatch(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_PIPE_CLOSED
    except Exception as problem:
        code = _report_error(problem, debug)
        _report_plugin_problems(str(problem))
    else:
        _report_plugin_problems()
    gc.freeze()  # what lives now dies with the process: no last search for garbage
    return code


def _report_plugin_problems(said: str = "") -> None:
    """What is wrong with agents of other packages, where any were asked for; `said` was said already."""
    module = sys.modules.get("steno.agents")
    problems = (
        [text for text in module.AGENTS.problems.values() if text != said]
        if module is not None
        else []
    )
    if problems:
        from .terminal import print_error

        for text in problems:
            print_error(text)


def _pop_debug_flag(words: list[str]) -> bool:
    """Whether --debug is among the options; it is taken out, wherever it stands."""
    end = words.index("--") if "--" in words else len(words)
    found = "--debug" in words[:end]
    words[:end] = [word for word in words[:end] if word != "--debug"]
    return found or os.environ.get("STENO_DEBUG", "0") not in ("", "0")


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        return _write_stdout(
            HELP_TEMPLATE.format(
                commands="\n".join(f"  {name:10}  {what}" for name, what in COMMANDS.items())
            )
        )
    if words[0] == "--version":
        from .. import __version__

        return _write_stdout(f"steno {__version__}\n")
    if words[0] not in COMMANDS:
        return _report_unknown_command(words[0])
    return _run_command(words[0], words[1:])


def _write_stdout(text: str) -> int:
    sys.stdout.write(text)
    return 0


def _restore_sigchld() -> None:
    """Whoever started us may have SIGCHLD ignored: the system then forgets how a child ended, and each seems to end well."""
    from signal import SIG_DFL, SIG_IGN, SIGCHLD, getsignal, signal

    if getsignal(SIGCHLD) == SIG_IGN:
        signal(SIGCHLD, SIG_DFL)


def _run_command(name: str, words: list[str]) -> int:
    """Import the command and call it."""
    gc.disable()  # nothing that imports make is garbage; looking for some costs a tenth of a report
    _load_msgspec()
    _load_argparse()
    from importlib import import_module

    run = import_module(f".{MODULE_NAMES.get(name, name)}", __name__).run
    gc.freeze()
    gc.enable()
    if name in SPAWNING_COMMANDS:
        _restore_sigchld()
    try:
        return int(run(words))
    except SystemExit as end:  # argparse: its help, or wrong use
        return end.code if isinstance(end.code, int) else EXIT_USAGE_ERROR


def _load_msgspec() -> None:
    """Import msgspec without typing_extensions: it wants two names that `typing` has too, for a fifth of a report's time."""
    if "typing_extensions" in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # the documented way to say: do not import
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _load_argparse() -> None:
    """Import argparse without gettext, which it asks for translations that nobody made, for a tenth of a report's time."""
    if "gettext" in sys.modules or "argparse" in sys.modules:
        return
    plain = type(sys)("gettext")
    vars(plain).update(
        gettext=lambda text: text, ngettext=lambda one, many, count: one if count == 1 else many
    )
    sys.modules["gettext"] = plain
    try:
        import argparse  # noqa: F401
    finally:
        del sys.modules["gettext"]


def _report_unknown_command(word: str) -> int:
    from ..config import closest_name
    from .terminal import print_error

    wrong = f"no {'option' if word.startswith('-') else 'command'} is called {word!r}"
    near = closest_name(word, COMMANDS)
    if os.path.exists(word):  # noqa: PTH110  # pathlib costs more than the whole message
        print_error(f"{wrong}; to read a recording: steno show {word}")
    else:
        print_error(f"{wrong}; did you mean {near}?" if near else f"{wrong}; see: steno --help")
    return EXIT_USAGE_ERROR


def _report_error(problem: Exception, debug: bool) -> int:
    """One line on what went wrong, and the exit code for it."""
    from ..errors import RecordingError, StenoError
    from .terminal import print_error

    if debug:
        import traceback

        traceback.print_exception(problem)
    if isinstance(problem, StenoError):
        print_error(str(problem))
        return EXIT_WRITE_FAILED if isinstance(problem, RecordingError) else EXIT_USAGE_ERROR
    if isinstance(problem, OSError):
        return _report_os_error(problem)
    where = "".join(f"{note}: " for note in getattr(problem, "__notes__", ()))
    print_error(
        f"internal error: {where}{type(problem).__name__}: {problem}"
        + ("" if debug else "; run again with --debug")
    )
    return EXIT_INTERNAL_ERROR


def _report_os_error(problem: OSError) -> int:
    """What the system would not do: with a file of a name, in a folder that is gone, or with stdout, which has no name."""
    from .terminal import print_error

    why = problem.strerror or str(problem)
    if problem.filename is not None:
        print_error(
            f"{os.fsdecode(problem.filename) if isinstance(problem.filename, bytes) else problem.filename}: {why}"
        )
        return EXIT_USAGE_ERROR
    if problem.errno is not None and problem.errno not in WRITE_ERRNOS:
        print_error(
            "the working directory is gone: go to one that is there" if _is_cwd_missing() else why
        )
        return EXIT_USAGE_ERROR
    print_error(f"cannot write: {why}")
    _discard_stdout()
    return EXIT_WRITE_FAILED


def _is_cwd_missing() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # pathlib costs more than the whole message
    except FileNotFoundError:
        return True
    return False


def _discard_stdout() -> None:
    """Nobody reads any more: what is still in the buffer must not fail a second time when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
