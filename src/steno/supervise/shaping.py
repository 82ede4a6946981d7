"""The JSON schema of one run: a file for an agent that reads it from one, and the look at its answer. It decides nothing."""

import os
import tempfile
from contextlib import suppress

import msgspec

from ..agents.values import IN_A_FILE, Start
from ..report import Report, StenoError
from ..schema import Checked, Shape

# Ends that leave an answer to look at; all others are failures of their own.
ANSWERED = ("success", "interactive", "background_task", "permission", "empty")


class Shaping:
    """Made before the start: StenoError if the schema is none. `close` removes its file."""

    def __init__(self, schema: str | None) -> None:
        self._shape = None if schema is None else Shape(schema)
        self._path: str | None = None

    def words(self, begun: Start) -> tuple[str, ...]:
        """The command line, with the path of the schema's file where it asks for one."""
        if begun.schema is None:
            return begun.argv
        try:
            number, self._path = tempfile.mkstemp(prefix="steno-schema-", suffix=".json")
            with os.fdopen(number, "wb") as file:
                file.write(begun.schema)
        except OSError as problem:
            raise StenoError(f"the JSON schema cannot be written for the agent: {problem.strerror or problem}") from None
        path = self._path
        return tuple(path if word == IN_A_FILE else word for word in begun.argv)

    def check(self, report: Report) -> Checked | None:
        """Hold the answer against the schema; None where none was asked for, or there is no answer to look at."""
        if self._shape is None or report.verdict not in ANSWERED:
            return None
        return self._shape.check(report.structured_output, report.result or report.text)

    def close(self) -> None:
        """The file is needed no longer."""
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108
            self._path = None


def told(checked: Checked) -> bytes:
    """What was found, as the tape keeps it."""
    return msgspec.json.encode({"wrong": checked.wrong} if checked.wrong else {"value": checked.value})
