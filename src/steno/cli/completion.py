"""`steno completion`: prints a script that lets a shell complete commands, options and their words. It is made from the parsers.

The script holds all that it needs: completing starts no steno, which would be too slow for a key.
"""

import argparse
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

from ..agents import AGENTS, REPLAY
from ..settings import BY_NAME, SIZES
from . import COMMANDS, MODULES
from .options import Parser
from .terminal import put_text

EXAMPLES = """examples:
  eval "$(steno completion bash)"                                      in ~/.bashrc
  eval "$(steno completion zsh)"                                       in ~/.zshrc, after compinit
  steno completion fish >~/.config/fish/completions/steno.fish

Make it anew after an update of steno: the script knows the options of this version.
"""
TOP = {"--help": "show the help", "--version": "show the version"}

BASH = """# bash completion for steno, written by: steno completion bash
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
ZSH = """#compdef steno
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


class Option(NamedTuple):
    """An option of a command: its names, what it is for, whether a value follows, and the words that this may be."""

    names: tuple[str, ...]
    what: str
    takes: bool
    words: tuple[str, ...]


class Command(NamedTuple):
    """A command: its options, and the words that may stand without one."""

    name: str
    options: list[Option]
    words: tuple[str, ...]


def run(words: list[str]) -> int:
    """Carry out `steno completion` and return its exit code."""
    parser = Parser("completion", "Print a script that lets a shell complete commands and options.", EXAMPLES)
    parser.add_argument("shell", choices=tuple(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.add_debug()
    put_text(SCRIPTS[parser.parse_args(words).shell](list(commands())))
    return 0


def commands() -> Iterator[Command]:
    """Every command, by its own parser: asked for its help, it hands itself over instead."""
    for name in COMMANDS:
        Parser.caught = []
        try:
            with suppress(SystemExit):
                import_module(f".{MODULES.get(name, name)}", __package__).run(["--help"])
            (parser,) = Parser.caught
        finally:
            Parser.caught = None
        actions = parser._actions  # argparse tells them in no other way
        free = tuple(str(word) for action in actions if not action.option_strings for word in action.choices or ())
        yield Command(name, [_option(name, action) for action in actions if action.option_strings], free)


def _option(command: str, action: argparse.Action) -> Option:
    what = (action.help or "").replace("%%", "%").replace("\n", " ")
    return Option(tuple(action.option_strings), what, action.nargs != 0, _words(command, action))


def _words(command: str, action: argparse.Action) -> tuple[str, ...]:
    """What may follow an option, where that is known."""
    if action.choices:
        return tuple(map(str, action.choices))
    if action.dest in ("agent", "fallback_agent"):
        return (*AGENTS, REPLAY) if (command, action.dest) == ("run", "agent") else tuple(AGENTS)
    if command == "run" and action.dest in BY_NAME:
        return tuple(SIZES) if action.dest == "model" else BY_NAME[action.dest].words
    return ()


# -- scripts -------------------------------------------------------------------------------------------------------


def _bash(found: list[Command]) -> str:
    values = [f"        {at}) {_compgen(words)}" if words else f"        {at}) return ;;" for at, words in _after(found)]
    options = []
    for command in found:
        options.append(f'        "{command.name} -"*) {_compgen(_names(command))}')
        options += [f'        "{command.name} "*) {_compgen(command.words)}'] if command.words else []
    return BASH.format(top=_joined([*COMMANDS, *TOP]), values="\n".join(values), options="\n".join(options))


def _compgen(words: Iterable[str]) -> str:
    return f'COMPREPLY=($(compgen -W {_joined(words)} -- "$word")); return ;;'


def _zsh(found: list[Command]) -> str:
    top = [shlex.quote(f"{name}:{what}") for name, what in {**COMMANDS, **TOP}.items()]
    values = [
        f"        ({at}) {f'compadd -- {shlex.join(words)}' if words else '_files'}; return ;;" for at, words in _after(found)
    ]
    options = []
    for command in found:
        options.append(f'        ("{command.name} -"*) compadd -- {shlex.join(_names(command))}; return ;;')
        options += [f'        ("{command.name} "*) compadd -- {shlex.join(command.words)}; return ;;'] if command.words else []
    return ZSH.format(top=" ".join(top), values="\n".join(values), options="\n".join(options))


def _after(found: list[Command]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The words that may follow an option, by a pattern of the command and the option; none: whatever a file may be called."""
    for command in found:
        free = []
        for option in command.options:
            at = [f'"{command.name} {name}"' for name in option.names]
            if option.words:
                yield "|".join(at), option.words
            elif option.takes:
                free += at
        if free:
            yield "|".join(free), ()


def _names(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


def _joined(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def _fish(found: list[Command]) -> str:
    lines = ["# fish completion for steno, written by: steno completion fish"]
    lines += [f"complete -c steno -n __fish_use_subcommand -f -a {name} -d {_fished(what)}" for name, what in COMMANDS.items()]
    lines += [f"complete -c steno -n __fish_use_subcommand -f -l {name[2:]} -d {_fished(what)}" for name, what in TOP.items()]
    for command in found:
        here = f"complete -c steno -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{here} -a {_fished(' '.join(command.words))}")
        for option in command.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = f" -x -a {_fished(' '.join(option.words))}" if option.words else " -r" if option.takes else ""
            lines.append(f"{here} {names}{value} -d {_fished(option.what)}")
    return "\n".join(lines) + "\n"


def _fished(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
