"""`steno completion`: prints a script that lets a shell complete commands, options and their words. It is made from the parsers.

The script holds all that it needs: completing starts no steno, which would be too slow for a key.
"""

import argparse
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

from ..agents import AGENTS, REPLAY_AGENT_NAME
from ..config import MODEL_SIZES, SETTINGS_BY_NAME
from . import COMMANDS, MODULE_NAMES
from .options import CommandParser
from .terminal import print_text

EXAMPLES = """examples:
  eval "$(steno completion bash)"                                      in ~/.bashrc
  eval "$(steno completion zsh)"                                       in ~/.zshrc, after compinit
  steno completion fish >~/.config/fish/completions/steno.fish

Make it anew after an update of steno: the script knows the options of this version.
"""
GLOBAL_OPTIONS = {"--help": "show the help", "--version": "show the version"}

BASH_TEMPLATE = """# bash completion for steno, written by: steno completion bash
_steno() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    COMPREPLY=()
    if [ "$word" = = ]; then  # --option=: bash takes the = for a word of its own
        word=
    elif [ "$before" = = ]; then
        before=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {top} -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}} $before" in
{values}
    esac
    case "${{COMP_WORDS[1]}} $word" in
{options}
    esac
}}
complete -o bashdefault -o default -F _steno steno
"""
ZSH_TEMPLATE = """#compdef steno
# zsh completion for steno, written by: steno completion zsh
_steno() {{
    local -a found
    if (( CURRENT == 2 )); then
        found=({top})
        _describe command found
        return
    fi
    case "${{words[2]}} ${{words[CURRENT-1]}}" in
{values}
    esac
    case "${{words[2]}} $PREFIX" in
{options}
    esac
    _files
}}
compdef _steno steno
"""


class OptionSpec(NamedTuple):
    """An option of a command: its names, what it is for, whether a value follows, and the words that this may be."""

    names: tuple[str, ...]
    help_text: str
    takes_value: bool
    choices: tuple[str, ...]


class CommandSpec(NamedTuple):
    """A command: its options, and the words that may stand without one."""

    name: str
    options: list[OptionSpec]
    choices: tuple[str, ...]


def run(words: list[str]) -> int:
    """Carry out `steno completion` and return its exit code."""
    parser = CommandParser(
        "completion", "Print a script that lets a shell complete commands and options.", EXAMPLES
    )
    parser.add_argument(
        "shell", choices=tuple(SCRIPT_WRITERS), metavar="SHELL", help="bash, zsh or fish"
    )
    parser.add_debug()
    print_text(SCRIPT_WRITERS[parser.parse_args(words).shell](list(command_specs())))
    return 0


def command_specs() -> Iterator[CommandSpec]:
    """Every command, by its own parser: asked for its help, it hands itself over instead."""
    for name in COMMANDS:
        CommandParser.captured = []
        try:
            with suppress(SystemExit):
                import_module(f".{MODULE_NAMES.get(name, name)}", __package__).run(["--help"])
            (parser,) = CommandParser.captured
        finally:
            CommandParser.captured = None
        actions = parser._actions  # argparse tells them in no other way
        free = tuple(
            str(word)
            for action in actions
            if not action.option_strings
            for word in action.choices or ()
        )
        yield CommandSpec(
            name, [_option_spec(name, action) for action in actions if action.option_strings], free
        )


def _option_spec(command: str, action: argparse.Action) -> OptionSpec:
    what = (action.help or "").replace("%%", "%").replace("\n", " ")
    return OptionSpec(
        tuple(action.option_strings), what, action.nargs != 0, _choices(command, action)
    )


def _choices(command: str, action: argparse.Action) -> tuple[str, ...]:
    """What may follow an option, where that is known."""
    if action.choices:
        return tuple(map(str, action.choices))
    if action.dest in ("agent", "fallback_agent"):
        return (
            (*AGENTS, REPLAY_AGENT_NAME)
            if (command, action.dest) == ("run", "agent")
            else tuple(AGENTS)
        )
    if command == "run" and action.dest in SETTINGS_BY_NAME:
        return (
            tuple(MODEL_SIZES) if action.dest == "model" else SETTINGS_BY_NAME[action.dest].choices
        )
    return ()


# -- scripts -------------------------------------------------------------------------------------------------------


def _bash_script(found: list[CommandSpec]) -> str:
    values = [
        f"        {at}) {_compgen(words)}" if words else f"        {at}) return ;;"
        for at, words in _value_patterns(found)
    ]
    options = []
    for command in found:
        options.append(f'        "{command.name} -"*) {_compgen(_option_names(command))}')
        options += (
            [f'        "{command.name} "*) {_compgen(command.choices)}'] if command.choices else []
        )
    return BASH_TEMPLATE.format(
        top=_quote_words([*COMMANDS, *GLOBAL_OPTIONS]),
        values="\n".join(values),
        options="\n".join(options),
    )


def _compgen(words: Iterable[str]) -> str:
    return f'COMPREPLY=($(compgen -W {_quote_words(words)} -- "$word")); return ;;'


def _zsh_script(found: list[CommandSpec]) -> str:
    top = [shlex.quote(f"{name}:{what}") for name, what in {**COMMANDS, **GLOBAL_OPTIONS}.items()]
    values = [
        f"        ({at}) {f'compadd -- {shlex.join(words)}' if words else '_files'}; return ;;"
        for at, words in _value_patterns(found)
    ]
    options = []
    for command in found:
        options.append(
            f'        ("{command.name} -"*) compadd -- {shlex.join(_option_names(command))}; return ;;'
        )
        options += (
            [f'        ("{command.name} "*) compadd -- {shlex.join(command.choices)}; return ;;']
            if command.choices
            else []
        )
    return ZSH_TEMPLATE.format(
        top=" ".join(top), values="\n".join(values), options="\n".join(options)
    )


def _value_patterns(found: list[CommandSpec]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The words that may follow an option, by a pattern of the command and the option; none: whatever a file may be called."""
    for command in found:
        free = []
        for option in command.options:
            at = [f'"{command.name} {name}"' for name in option.names]
            if option.choices:
                yield "|".join(at), option.choices
            elif option.takes_value:
                free += at
        if free:
            yield "|".join(free), ()


def _option_names(command: CommandSpec) -> list[str]:
    return [name for option in command.options for name in option.names]


def _quote_words(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def _fish_script(found: list[CommandSpec]) -> str:
    lines = ["# fish completion for steno, written by: steno completion fish"]
    lines += [
        f"complete -c steno -n __fish_use_subcommand -f -a {name} -d {_quote_fish(what)}"
        for name, what in COMMANDS.items()
    ]
    lines += [
        f"complete -c steno -n __fish_use_subcommand -f -l {name[2:]} -d {_quote_fish(what)}"
        for name, what in GLOBAL_OPTIONS.items()
    ]
    for command in found:
        here = f"complete -c steno -n '__fish_seen_subcommand_from {command.name}'"
        if command.choices:
            lines.append(f"{here} -a {_quote_fish(' '.join(command.choices))}")
        for option in command.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = (
                f" -x -a {_quote_fish(' '.join(option.choices))}"
                if option.choices
                else " -r"
                if option.takes_value
                else ""
            )
            lines.append(f"{here} {names}{value} -d {_quote_fish(option.help_text)}")
    return "\n".join(lines) + "\n"


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPT_WRITERS = {"bash": _bash_script, "zsh": _zsh_script, "fish": _fish_script}
