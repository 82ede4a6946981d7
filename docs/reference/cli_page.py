"""The page on the command line: the help texts, with options that commands share printed once."""

import contextlib
import io
import os
import re
import textwrap
from collections import Counter
from typing import NamedTuple

from source import page, table, text_block

from steno import cli, report
from steno.cli import commands
from steno.cli.options import option_name
from steno.config import SETTINGS

HELP_COLUMNS = "100"
COMMON_FROM = 3  # commands that show an option with the same text
EVERYWHERE = ("-h", "--debug")
SETTING_OPTIONS = {option_name(setting.name) for setting in SETTINGS}
# A bracket of the usage line that holds an option, such as [--top N] or [--no-ledger P [P ...]].
USAGE_OPTION = re.compile(r" \[-(?!- )(?:[^\[\]]|\[[^\]]*\])*\]")


class Option(NamedTuple):
    """An option as its help shows it."""

    name: str
    lines: list[str]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.lines).split())

    @property
    def row(self) -> str:
        """One line: the option with its value, and the description."""
        usage, *rest = re.split(r" {2,}", self.lines[0].strip(), maxsplit=1)
        description = " ".join([*rest, *(line.strip() for line in self.lines[1:])])
        return f"  {usage:20}  {description}"


class Group(NamedTuple):
    """A block of a help text; `options` is empty for anything but a group of options."""

    lines: list[str]
    options: list[Option]


def cli_page() -> str:
    names = [name for name in commands.COMMANDS if name not in commands.BUILT_IN_COMMANDS]
    names += [f"{group} {name}" for group, words in commands.SUBCOMMANDS.items() for name in words]
    helps = {name: _groups(_help(name.split())) for name in names}
    common = _common_options(list(helps.values()))
    parts: list[str | list[str]] = [
        text_block(_help([]).split("\n")),
        "## Common options",
        "Every command has `-h` and `--debug`. A command's own text lists the others it takes, "
        "below `common options`.",
        text_block(_common_section(list(helps.values()), common)),
    ]
    for name, groups in helps.items():
        parts += [f"## steno {name}", text_block(_command(name, groups, common))]
        if name == "run":
            parts.append(
                "Defaults, variables and meaning of the settings: [settings](settings.md)."
            )
    return page("Command line", *parts, *_exit_codes(), *_environment())


def _help(command: list[str]) -> str:
    output = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = HELP_COLUMNS
    try:
        with contextlib.redirect_stdout(output):
            cli.main([*command, "--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.__setitem__("COLUMNS", before)
    return output.getvalue().rstrip()


# -- options ------------------------------------------------------------------------------------


def _groups(text: str) -> list[Group]:
    return [_group(block.split("\n")) for block in text.split("\n\n")]


def _group(lines: list[str]) -> Group:
    """A block; its options are the lines that begin with a dash and those below, indented."""
    options: list[Option] = []
    for line in lines[1:]:
        found = re.match(r"  (-[\w-]+)", line)
        if found:
            options.append(Option(found[1], [line]))
        elif options:
            options[-1].lines.append(line)
    return Group(lines, options)


def _common_options(helps: list[list[Group]]) -> set[str]:
    """The texts of options that several commands share."""
    texts = Counter(option.text for groups in helps for group in groups for option in group.options)
    return {text for text, count in texts.items() if count >= COMMON_FROM}


def _common_section(helps: list[list[Group]], common: set[str]) -> list[str]:
    """The shared options under the headings that most commands give them."""
    headings: dict[str, Counter[str]] = {}
    shown: dict[str, str] = {}
    for groups in helps:
        for group in groups:
            for option in group.options:
                if option.text in common:
                    headings.setdefault(option.text, Counter())[group.lines[0]] += 1
                    shown[option.text] = option.row
    sections: dict[str, list[str]] = {}
    for text, found in headings.items():
        sections.setdefault(found.most_common(1)[0][0], []).append(shown[text])
    lines = []
    for heading, texts in sections.items():
        lines += [heading, *texts, ""]
    return lines[:-1]


def _command(name: str, groups: list[Group], common: set[str]) -> list[str]:
    """A help text without the options that are described elsewhere, which are only named."""
    named = [
        option.name
        for group in groups
        for option in group.options
        if option.text in common and option.name not in EVERYWHERE
    ]
    if name == "run":
        named = [option for option in named if option not in SETTING_OPTIONS]
    named.sort(key=lambda option: option != "--json")  # a test looks for it at the start of a line
    shared = ["common options:", *_wrapped(named), ""] if named else []
    lines = [_usage(name, " ".join(" ".join(groups[0].lines).split())), ""]
    for group in groups[1:]:
        if group.lines[0] == "examples:":
            lines += shared
        shown = _shown(name, group, common)
        lines += [*shown, ""] if shown else []
    return lines[:-1]


def _wrapped(names: list[str]) -> list[str]:
    return textwrap.wrap(
        " ".join(names),
        width=int(HELP_COLUMNS),
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


def _usage(name: str, usage: str) -> str:
    rest = USAGE_OPTION.sub("", usage).removeprefix(f"usage: steno {name}")
    return f"usage: steno {name}" + (rest if "[OPTIONS]" in rest else f" [OPTIONS]{rest}")


def _shown(name: str, group: Group, common: set[str]) -> list[str]:
    if not group.options:
        return group.lines
    own = [option for option in group.options if option.text not in common]
    if name == "run" and all(option.name in SETTING_OPTIONS for option in group.options):
        names = _wrapped([option.name for option in group.options])
        return [f"{group.lines[0].removesuffix(':')} (settings):", *names]
    lines = [line for option in own for line in option.lines]
    return [group.lines[0], *lines] if lines else []


# -- exit codes and environment -----------------------------------------------------------------


def _exit_codes() -> list[str | list[str]]:
    codes = [
        ["0", "success; for `steno show` and ledger queries, whatever the verdicts are"],
        ["1", "`steno doctor`: a problem was found"],
        ["1", "`steno sync`, `steno run --sync`, `steno watch --strict`: a file was not synced"],
        ["1", "`--on`: a command failed or was not run"],
        [
            str(commands.EXIT_USAGE_ERROR),
            "wrong usage, or unreadable input (the rest was read)",
        ],
        ["3", "`steno budget check` and `steno budget list --check`: a budget is exceeded"],
        [str(commands.EXIT_INTERNAL_ERROR), "internal error; `--debug` shows the traceback"],
        [str(commands.EXIT_WRITE_FAILED), "the output or the recording could not be written"],
        [str(commands.EXIT_INTERRUPTED), "interrupted (Ctrl-C)"],
        [str(commands.EXIT_PIPE_CLOSED), "the reader of the output closed the pipe"],
    ]
    verdicts = [
        [
            str(code),
            ", ".join(f"`{word}`" for word in report.VERDICTS if report.EXIT_CODES[word] == code),
        ]
        for code in sorted(set(report.EXIT_CODES.values()))
    ]
    return [
        "## Exit codes",
        table(["code", "meaning"], codes),
        "`steno run` exits with the code of the verdict (`--exit-from verdict`, the default) or of "
        "the agent (`--exit-from agent`; 128 plus the signal number for a signal). Interrupted "
        "with Ctrl-C, it exits with 130, whatever the last verdict was. `steno show` and "
        "`steno watch` use the verdict's code only with `--exit-from verdict`; with several "
        "sources `show` uses the highest, and 2 takes precedence. `steno replay` exits like "
        "the recorded agent, with its code or by its signal.",
        table(["code of `steno run`", "verdict"], verdicts),
    ]


def _environment() -> list[str | list[str]]:
    variables = [
        ["`COLUMNS`", "page width (default: that of the terminal, else 80)"],
        ["`NO_COLOR`", "not empty: no colours"],
        ["`FORCE_COLOR`", "not empty and not 0: colours even without a terminal"],
        ["`STENO_LEDGER`", "ledger: a path or `postgresql://...`; overridden by `--ledger`"],
        ["`TZ`", "time zone for day boundaries; overridden by `--timezone`"],
        ["`STENO_DEBUG`", "not empty and not 0: same as `--debug`"],
        ["`STENO_...`", "every [setting](settings.md) of a run"],
    ]
    return ["## Environment", table(["variable", "effect"], variables)]
