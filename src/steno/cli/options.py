"""The argument parser of all commands, and the options they share."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NoReturn

from ..errors import StenoError
from ..installation import extra_command
from .commands import EXIT_USAGE_ERROR, SUBCOMMANDS
from .terminal import detect_style, print_error

MAX_HELP_COLUMNS = 100
TIMEZONE_HELP = "time zone for day boundaries, such as Europe/Berlin (default: the system's)"
NO_ADVICE_HELP = "disable the heuristics for open questions and background work"
AGENT_HELP = "agent that printed the output (default: detected)"
RANGE_HELP = "time span: 24h, 7d, 2w, 3m"


def number_type(
    expected: str, minimum: float, maximum: float, whole: bool = False
) -> Callable[[str], Any]:
    """An argparse type for numbers from minimum to maximum; `expected` completes the message."""

    def parse(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = float("nan")
        if not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}")
        return value

    return parse


def duration_type(text: str) -> float | None:
    """An argparse type for durations such as 90s, 10m or 1h30m; None for `off`."""
    from ..config.values import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected {error}, found {text!r}") from None


# What an option without its value means: the next word is not its value.
BARE_VALUES = {"--worktree": "=", "--otel": "=on"}
# Options of `steno run` with another name than their setting or run option.
OPTION_NAMES = {"feed": "--log", "add_dirs": "--add-dir", "args": "--"}


def option_name(name: str) -> str:
    """The command-line option for a setting or another option, by its name in code."""
    return OPTION_NAMES.get(name, "--" + name.rstrip("_").replace("_", "-"))


def add_rule_option(group: argparse._ArgumentGroup) -> None:
    """`--rule`, for commands that check runs."""
    group.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="additional rule; VALUE in TOML syntax (repeatable)",
    )


def require_extra(option: str, module: str, extra: str) -> None:
    """StenoError if the package of an optional feature is not installed."""
    from importlib.util import find_spec

    try:
        is_found = find_spec(module) is not None
    except ModuleNotFoundError:  # the package that contains it
        is_found = False
    if not is_found:
        name = module.partition(".")[0]
        raise StenoError(f"{option} needs {name}; install: {extra_command(extra)}")


class CommandParser(argparse.ArgumentParser):
    """argparse with one-line errors, suggestions for unknown options, and shared option groups."""

    # While this is a list, parsers asked for their help add themselves to it and print nothing.
    captured: "ClassVar[list[CommandParser] | None]" = None

    def __init__(self, command: str, description: str, examples: str) -> None:
        super().__init__(
            prog=f"steno {command}",
            description=description,
            epilog=examples,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                prog, width=min(detect_style().columns, MAX_HELP_COLUMNS)
            ),
            allow_abbrev=False,
        )

    def print_help(self, file: object = None) -> None:
        if CommandParser.captured is not None:
            CommandParser.captured.append(self)
            return
        # argparse's own method ignores write errors.
        sys.stdout.write(self.format_help())

    def error(self, message: str) -> NoReturn:
        hint = "" if message.endswith("?") else f"; see: {self.prog} --help"
        text = message.removeprefix("argument ").replace("with argument ", "with ")
        print_error(f"{text}{hint}")
        raise SystemExit(EXIT_USAGE_ERROR)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As in argparse, with a message like those of the settings."""
        if action.choices is not None and value not in action.choices:
            expected = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"expected one of {expected}; found {value!r}")

    def parse_known_args(  # type: ignore[override]  # argparse's overloads, as below
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As in argparse; an option whose value can be left out takes it only after `=`."""
        given = sys.argv[1:] if args is None else args
        actions = self._option_string_actions
        optional = {
            name: value
            for name, value in BARE_VALUES.items()
            if name in actions and actions[name].nargs != 0  # 0: a flag
        }
        return super().parse_known_args([arg + optional.get(arg, "") for arg in given], namespace)

    def parse_args(  # type: ignore[override]  # argparse's overloads allow other namespaces
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._reject(unknown)
        return options

    def parse_intermixed_args(  # type: ignore[override]  # argparse's overloads, as above
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        options, unknown = self.parse_known_intermixed_args(args, namespace)
        if unknown:
            self._reject(unknown)
        return options

    def _reject(self, unknown: list[str]) -> NoReturn:
        name = next((arg for arg in unknown if arg.startswith("-")), None)
        if name is None:
            self.error(f"unexpected argument {unknown[0]!r}")
        name = name.partition("=")[0]
        self.error(f"unknown option {name}{self.suggest(name, self._option_string_actions)}")

    def suggest(self, name: str, known: Iterable[str]) -> str:
        """The end of an error message that suggests the closest known name, or an empty text."""
        from ..config import closest_name

        match = closest_name(name, known)
        return f"; did you mean {match}?" if match is not None else ""

    def add_debug(self) -> None:
        """The option that `main` removes; declared for the help text."""
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def add_json(self, help_text: str = "print one JSON object") -> None:
        """--json of commands without a CSV form."""
        self.add_argument("--json", dest="form", action="store_const", const="json", help=help_text)

    # -- commands that query the ledger ----------------------------------------------------------

    def add_output_format(self) -> None:
        """--json and --csv."""
        forms = self.add_argument_group("output (default: a table)").add_mutually_exclusive_group()
        forms.add_argument(
            "--json",
            dest="form",
            action="store_const",
            const="json",
            help="print one JSON object with rows and total",
        )
        forms.add_argument(
            "--csv",
            dest="form",
            action="store_const",
            const="csv",
            help="print comma-separated values with a header line",
        )

    def add_all_folders(self) -> None:
        self.add_argument(
            "--all", action="store_true", help="runs of all folders, not only of this one"
        )

    def add_ledger(self, can_import: bool = True) -> None:
        """--ledger, --debug and, for commands that import new transcripts first, --no-import."""
        group = self.add_argument_group("ledger")
        group.add_argument(
            "--ledger",
            metavar="URL",
            help="path or postgresql://... (default: STENO_LEDGER, or a file in the user's data "
            "directory)",
        )
        if can_import:
            group.add_argument(
                "--no-import", action="store_true", help="query without importing new transcripts"
            )
        self.add_debug()

    def add_time_range(self, last_help: str = RANGE_HELP) -> None:
        """--since, --until, --last and --timezone."""
        group = self.add_argument_group("time")
        group.add_argument(
            "--since",
            metavar="WHEN",
            help="start of the range: 2026-11-01, 2026-11-01T10:00, yesterday, 3d (ago)",
        )
        group.add_argument("--until", metavar="WHEN", help="end of the range (inclusive)")
        group.add_argument("--last", metavar="SPAN", help=last_help)
        self.add_timezone(group)

    def add_timezone(self, group: "argparse._ArgumentGroup | None" = None) -> None:
        """--timezone, in a group or on its own."""
        (group or self).add_argument("--timezone", metavar="NAME", help=TIMEZONE_HELP)

    def add_filters(self, *names: str) -> None:
        """--project, --model and --agent, as far as named."""
        group = self.add_argument_group("filters")
        help_texts = {
            "project": "only this project: a folder, or its name",
            "model": "only models with this text in their name",
            "agent": "only this agent",
        }
        for name in names:
            group.add_argument(f"--{name}", metavar="NAME", help=help_texts[name])

    def add_origin_filters(self) -> None:
        """--host, --user, --repository, --branch and --tag."""
        group = self.add_argument_group("filters by origin")
        help_texts = {
            "host": "only this machine",
            "user": "only this user",
            "repository": "only this git repository: host/path, or a part of it",
            "branch": "only this git branch",
        }
        for name, text in help_texts.items():
            group.add_argument(f"--{name}", metavar="NAME", help=text)
        group.add_argument(
            "--tag",
            action="append",
            metavar="K=V",
            help="only runs with this label; K alone: with any value (repeatable)",
        )

    def parse_utf8_args(self, args: list[str]) -> argparse.Namespace:
        """Parse intermixed options; invalid UTF-8, which no database accepts, becomes `?`."""
        return self.parse_intermixed_args(
            [arg.encode("utf-8", "replace").decode("utf-8") for arg in args]
        )

    def parse_with_rest(
        self, args: list[str], rest: str, are_paths: bool = False
    ) -> argparse.Namespace:
        """Parse intermixed options; everything after `--` goes to the list option `rest`.

        An empty path (an unset shell variable) is an error.
        """
        end = args.index("--") if "--" in args else len(args)
        options = self.parse_intermixed_args(args[:end])
        values = getattr(options, rest)
        values.extend(args[end + 1 :])
        if are_paths and "" in values:
            self.error("'': empty file name")
        return options


def show_subcommands(command: str, description: str, examples: str, args: list[str]) -> int:
    """Print the help of a command that consists of others, or the error about an unknown one."""
    words = SUBCOMMANDS[command]
    summaries = "\n".join(f"  {name:10}  {text}" for name, text in words.items())
    parser = CommandParser(command, description, examples.format(summaries=summaries))
    parser.usage = f"steno {command} COMMAND [OPTIONS]"
    parser.add_argument(
        "command", nargs="?", choices=tuple(words), metavar="COMMAND", help=", ".join(words)
    )
    parser.add_debug()
    if not args:
        parser.print_help()
        return 0
    if not args[0].startswith("-"):
        parser.error(f"unknown command {args[0]!r}{parser.suggest(args[0], words)}")
    parser.parse_args(args)
    return 0
