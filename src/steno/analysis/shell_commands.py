"""Whether a shell command only reads: cat, ls, rg, git log, pipelines of such. Pure.

A false "reads" would hide work, so everything not known to be harmless counts as work: unknown
programs, options that write or execute, redirections to files, command substitution, loops.
"""

import re
from collections.abc import Callable, Iterator
from shlex import join
from typing import NamedTuple

from msgspec import Raw

from ..codec.decode import decode_raw

MAX_COMMAND_CHARS = 10_000  # longer ones contain a file or a program
MAX_DEPTH = 3  # of shells in shells
PROGRAM_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/")
SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
SHELL_COMMAND_OPTIONS = ("-c", "-lc", "-cl")
HARMLESS_TARGETS = ("/dev/null", "/dev/stdout", "/dev/stderr")

# Programs that write nothing and start nothing, whatever their arguments.
_READER_NAMES = """
[ arch basename cat cd cksum cmp column comm cut df diff dirname du echo egrep expand
false fgrep fold free grep groups head hexdump id jq join ls md5sum nl nproc od paste printenv
printf ps pwd readlink realpath rev seq set sha1sum sha256sum stat strings tac tail test tr
true type uname uptime wc which whoami zcat
"""
READERS = frozenset(_READER_NAMES.split())


class Forbidden(NamedTuple):
    """Options with which a program writes or starts something."""

    letters: str  # of short options, also within a group of them
    prefixes: tuple[str, ...] = ()  # of long options, short enough for abbreviations


READERS_WITH_FORBIDDEN_OPTIONS = {
    "base64": Forbidden("o", ("--o",)),
    "fd": Forbidden("xX", ("--exec",)),
    "fdfind": Forbidden("xX", ("--exec",)),
    "file": Forbidden("C", ("--c",)),
    "rg": Forbidden("", ("--pre", "--hostname-bin")),
    "sort": Forbidden("o", ("--o", "--co")),
    "tree": Forbidden("oR"),
}
FORBIDDEN_FIND_PREFIXES = ("-exec", "-ok", "-delete", "-fprint", "-fls")
_GIT_READER_NAMES = """
blame cat-file check-ignore count-objects describe diff diff-tree for-each-ref log ls-files
ls-tree merge-base name-rev rev-list rev-parse shortlog show show-ref status whatchanged
"""
GIT_READERS = frozenset(_GIT_READER_NAMES.split())
# Git commands that read with these first arguments only; "" stands for no argument.
GIT_LISTINGS = {
    "branch": ("", "-a", "-r", "-v", "-vv", "-av", "--all", "--list", "--show-current"),
    "config": ("-l", "--list", "--get", "--get-all", "--get-regexp"),
    "reflog": ("", "show"),
    "remote": ("", "-v", "--verbose", "get-url"),
    "stash": ("list", "show"),
    "tag": ("", "-l", "--list"),
    "worktree": ("list",),
}
# These do not keep a later argument from creating or changing something.
GIT_LONE_OPTIONS = ("-a", "-r", "-v", "-vv", "-av", "--all", "--show-current", "--verbose")

_ADDRESS = r"(?:\d+|\$|/(?:\\.|[^/\\\n])*/)"
_SED_STEP = re.compile(
    rf"\s*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|\+\d+))?\s*!?\s*)?"
    r"(?:[pdq=]|s([/|,#])(?:(?!\1)(?:\\.|[^\\\n]))*\1(?:(?!\1)(?:\\.|[^\\\n]))*\1[gpiI\d]*)"
    r"\s*(?:[;\n]|$)"
)
_SED_OPTION = re.compile(r"-[nErsuz]+|--quiet|--silent|--regexp-extended")
# Output to a file or program, input from one, other programs, loaded code.
_AWK_SIDE_EFFECT = re.compile(r">(?!=)|\||system|getline|close|fflush|@")


def input_only_reads(input_: Raw) -> bool:
    """Whether the input of a shell tool is a command that only reads; False if it has none."""
    fields = decode_raw(input_)
    command = fields.get("command", fields.get("cmd")) if isinstance(fields, dict) else None
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = join(command)
    return isinstance(command, str) and only_reads(command)


def only_reads(command: str, depth: int = 0) -> bool:
    """Whether a shell command writes no file and starts no unknown program."""
    if len(command) > MAX_COMMAND_CHARS or depth > MAX_DEPTH:
        return False
    try:
        commands = [words for words in _simple_commands(command) if words]
    except _NotPlainError:
        return False
    return bool(commands) and all(_reads(words, depth) for words in commands)


# -- splitting ---------------------------------------------------------------------------------


class _NotPlainError(Exception):
    """The command contains something that is not a word, a harmless redirection or an operator."""


# In the order of the alternatives: the longest operators first.
_OPERATOR = re.compile(r"&>>|<<<|&&|\|\||\|&|&>|>>|>\||>&|<&|<>|<<|[|;&<>\n]")
_SEPARATORS = ("&&", "||", "|", "|&", ";", "\n")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*(?:#[^\n]*)?")  # with line continuations and a comment
_WORD_PART = re.compile(
    r"""
    (?P<plain>[^\s'"\\$`|&;<>(){}\x00-\x1f\x7f]+)
    | '(?P<single>[^'\x00]*)'
    | "(?P<double>(?:\\[\s\S]|[^"\\`\x00])*)"
    | \\(?P<escaped>[^\x00])
    | (?P<variable>\$(?:\w+|\{\w+\}|[?@*#]))
    """,
    re.VERBOSE,
)


def _simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without redirections; variables stay as written."""
    words: list[str] = []
    redirection = ""
    position = 0
    while True:
        blanks = _BLANKS.match(text, position)
        position = position if blanks is None else blanks.end()
        operator = _OPERATOR.match(text, position)
        if operator is None and position < len(text):
            start = position
            word, position = _read_word(text, position)
            if redirection:
                _check_redirection(redirection, word)
                redirection = ""
            elif not _is_file_descriptor(text, start, position):
                words.append(word)
            continue
        if redirection:
            raise _NotPlainError  # without a target
        if operator is None or operator[0] in _SEPARATORS:
            yield words
            words = []
            if operator is None:
                return
        else:
            redirection = operator[0]
        position = operator.end()


def _read_word(text: str, position: int) -> tuple[str, int]:
    word = ""
    start = position
    while position < len(text):
        part = _WORD_PART.match(text, position)
        if part is None:
            break
        word += _value_of(part)
        position = part.end()
    # What follows must end the word: anything else is syntax that is not understood.
    if position == start or (position < len(text) and text[position] not in " \t\n|&;<>"):
        raise _NotPlainError
    return word, position


def _value_of(part: re.Match[str]) -> str:
    if part["double"] is not None:
        inner = part["double"]
        if re.search(r"(?<!\\)(?:\\\\)*\$[({\[]", inner):
            raise _NotPlainError  # command substitution
        return re.sub(r"\\([$`\"\\])", r"\1", inner).replace("\\\n", "")
    if part["escaped"] is not None:
        return "" if part["escaped"] == "\n" else part["escaped"]
    value: str = part[0] if part["single"] is None else part["single"]
    return value


def _is_file_descriptor(text: str, start: int, end: int) -> bool:
    """Whether a word is the number in `2>file`."""
    return text[start:end].isdigit() and text[end : end + 1] in ("<", ">")


def _check_redirection(operator: str, target: str) -> None:
    is_input = operator in ("<", "<<<")
    is_copy = operator in (">&", "<&") and re.fullmatch(r"\d|-", target) is not None
    is_discarded = operator.strip("&|") in (">", ">>") and target in HARMLESS_TARGETS
    if not (is_input or is_copy or is_discarded):
        raise _NotPlainError


# -- programs ----------------------------------------------------------------------------------


def _reads(words: list[str], depth: int) -> bool:
    program, arguments = words[0], words[1:]
    for folder in PROGRAM_FOLDERS:
        program = program.removeprefix(folder)
    if program in SHELLS:
        is_script = len(arguments) == 2 and arguments[0] in SHELL_COMMAND_OPTIONS
        return is_script and only_reads(arguments[1], depth + 1)
    if program in READERS:
        return True
    forbidden = READERS_WITH_FORBIDDEN_OPTIONS.get(program)
    if forbidden is not None:
        return not any(_is_forbidden(argument, forbidden) for argument in arguments)
    check = _ARGUMENT_CHECKS.get(program)
    if check is not None:
        return check(arguments)
    return arguments == ["--version"] and re.fullmatch(r"[\w.+-]+", program) is not None


def _is_forbidden(argument: str, forbidden: Forbidden) -> bool:
    if argument.startswith("--"):
        return argument.startswith(forbidden.prefixes)
    return argument.startswith("-") and any(letter in argument for letter in forbidden.letters)


def _find_reads(arguments: list[str]) -> bool:
    return not any(argument.startswith(FORBIDDEN_FIND_PREFIXES) for argument in arguments)


def _sed_reads(arguments: list[str]) -> bool:
    scripts: list[str] = []
    operands: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-e", "-ne", "--expression"):
            scripts.append(next(rest, ""))
        elif not argument.startswith("-"):
            operands.append(argument)
        elif _SED_OPTION.fullmatch(argument) is None:
            return False
    return all(map(_is_harmless_sed, scripts or operands[:1])) and bool(scripts or operands)


def _is_harmless_sed(script: str) -> bool:
    position = 0
    while position < len(script):
        step = _SED_STEP.match(script, position)
        if step is None:
            return False
        position = step.end()
    return script.strip() != ""


def _awk_reads(arguments: list[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-F", "-v"):
            rest = rest[1:]
        elif not option.startswith(("-F", "-v")):
            return False
    return bool(rest) and _AWK_SIDE_EFFECT.search(rest[0]) is None


def _xargs_reads(arguments: list[str]) -> bool:
    """The program that xargs starts gets unknown arguments: only some may."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-n", "-P", "-L", "-I", "-d"):
            rest = rest[1:]
        elif re.fullmatch(r"-[0rt]+|-[nPL]\d+|--null|--no-run-if-empty", option) is None:
            return False
    return not rest or rest[0] in READERS


def _git_reads(arguments: list[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0] in ("--no-pager", "-P", "-C"):
        rest = rest[2:] if rest[0] == "-C" else rest[1:]
    if not rest:
        return False
    command, options = rest[0], rest[1:]
    if any(re.match(r"--ou(?:t|=|$)", option) for option in options):
        return False  # --output=FILE
    if command == "grep":
        forbidden = Forbidden("O", ("--op",))  # --open-files-in-pager
        return not any(_is_forbidden(option, forbidden) for option in options)
    if command in GIT_LISTINGS:
        first = options[0] if options else ""
        is_alone = not options[1:] or first not in GIT_LONE_OPTIONS
        return first in GIT_LISTINGS[command] and is_alone
    return command in GIT_READERS


def _has_one_operand(arguments: list[str]) -> bool:
    """For programs whose second operand is an output file."""
    return len([argument for argument in arguments if not argument.startswith("-")]) <= 1


_ARGUMENT_CHECKS: dict[str, Callable[[list[str]], bool]] = {
    "awk": _awk_reads,
    "command": lambda arguments: arguments[:1] in (["-v"], ["-V"]),
    "date": lambda arguments: all(argument.startswith("+") for argument in arguments),
    "env": lambda arguments: not arguments,
    "find": _find_reads,
    "git": _git_reads,
    "sed": _sed_reads,
    "uniq": _has_one_operand,
    "xargs": _xargs_reads,
    "xxd": _has_one_operand,
}
