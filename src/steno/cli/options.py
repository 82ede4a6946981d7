"""The options that commands share, and the parser that says in one line what is wrong with them."""

import argparse
import sys
from collections.abc import Callable
from typing import ClassVar, NoReturn

from .terminal import detect_style, print_error

MAX_HELP_COLUMNS = 100  # of a help text


def seconds_type(below: float) -> Callable[[str], float]:
    """The kind of an option that is a time: seconds from 0 on, below a bound."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < below:
            raise argparse.ArgumentTypeError(f"expected seconds, found {text!r}")
        return found

    return read


class CommandParser(argparse.ArgumentParser):
    """argparse with our own line for wrong use."""

    captured: "ClassVar[list[CommandParser] | None]" = (
        None  # a list: parsers that are asked for their help go there and print none
    )

    def __init__(self, command: str, what: str, examples: str) -> None:
        super().__init__(
            prog=f"steno {command}",
            description=what,
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
        sys.stdout.write(
            self.format_help()
        )  # argparse's own would hide that it could not be written

    def error(self, message: str) -> NoReturn:
        print_error(f"{message}; see: {self.prog} --help")
        raise SystemExit(2)

    def add_debug(self) -> None:
        """The option that `main` has taken already: here it is only told of."""
        self.add_argument("--debug", action="store_true", help="show where an error came from")

    # -- of the commands that ask the ledger -----------------------------------------------------------------------

    def add_output_format(self) -> None:
        """How the answer is to be written."""
        forms = self.add_argument_group(
            "output (default: a table for people)"
        ).add_mutually_exclusive_group()
        forms.add_argument(
            "--json",
            dest="form",
            action="store_const",
            const="json",
            help="one JSON object: rows and total",
        )
        forms.add_argument(
            "--csv",
            dest="form",
            action="store_const",
            const="csv",
            help="comma-separated values with a head",
        )

    def add_ledger(self, can_import: bool = True) -> None:
        """Which ledger, and whether it takes in what is new first."""
        group = self.add_argument_group("ledger")
        where = "a path or postgresql://... (default: STENO_LEDGER, else a file in the user's data directory)"
        group.add_argument("--ledger", metavar="URL", help=where)
        if can_import:
            group.add_argument(
                "--no-import", action="store_true", help="do not look for new transcripts first"
            )
        self.add_debug()

    def add_time_range(
        self, last: str = "only the last hours, days, weeks or months: 24h, 7d, 2w, 3m"
    ) -> None:
        """Which time."""
        group = self.add_argument_group("time")
        group.add_argument(
            "--since",
            metavar="WHEN",
            help="from then on: 2026-11-01, 2026-11-01T10:00, yesterday, 3d (ago)",
        )
        group.add_argument("--until", metavar="WHEN", help="up to then; a day is meant to its end")
        group.add_argument("--last", metavar="SPAN", help=last)
        group.add_argument(
            "--timezone",
            metavar="NAME",
            help="whose days, such as Europe/Berlin (default: the system's)",
        )

    def add_filters(self, *names: str) -> None:
        """Whose rows."""
        group = self.add_argument_group("which")
        meanings = {
            "project": "only this project: its folder, or the folder's name",
            "model": "only models whose name has these letters",
            "agent": "only this agent",
        }
        for name in names:
            group.add_argument(f"--{name}", metavar="NAME", help=meanings[name])

    def parse_utf8_args(self, words: list[str]) -> argparse.Namespace:
        """The options, which may stand anywhere, as text that a database takes: bytes that are no letters are written `?`."""
        return self.parse_intermixed_args(
            [word.encode("utf-8", "replace").decode("utf-8") for word in words]
        )

    def parse_with_rest(self, words: list[str], rest: str) -> argparse.Namespace:
        """The options, which may stand anywhere. What follows `--` is never one: it goes to the list called `rest`."""
        end = words.index("--") if "--" in words else len(words)
        options = self.parse_intermixed_args(words[:end])
        getattr(options, rest).extend(words[end + 1 :])
        return options

    def parse_with_paths(self, words: list[str], rest: str) -> argparse.Namespace:
        """The same, where the list is of files and folders. An empty word, of a variable that is not set, names none."""
        options = self.parse_with_rest(words, rest)
        if "" in getattr(options, rest):
            self.error("'': no such file: its name is empty")
        return options
