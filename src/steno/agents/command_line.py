"""Building the command line of an agent. Pure."""

from collections.abc import Iterable


def option_args(*options: tuple[str, str | None]) -> list[str]:
    """`OPTION VALUE` for every option that has a value."""
    argv: list[str] = []
    for option, value in options:
        if value is not None:
            argv += [option, value]
    return argv


def repeated_args(*options: tuple[str, Iterable[str]]) -> list[str]:
    """`OPTION=VALUE` for every value: an option with a list would consume the words after it."""
    return [f"{option}={value}" for option, values in options for value in values]


def encode_prompt(prompt: str) -> bytes:
    """The prompt for stdin, with the bytes that were not UTF-8 on our command line restored."""
    return prompt.encode("utf-8", "surrogateescape")
