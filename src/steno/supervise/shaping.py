"""The JSON schema of one run: a file for an agent that reads it from one, and the look at its answer. It decides nothing."""

import os
import tempfile
from contextlib import suppress

import msgspec

from ..agents.values import SCHEMA_FILE_PLACEHOLDER, LaunchCommand
from ..report import Report, StenoError
from ..schema import AnswerSchema, SchemaCheckResult

# Ends that leave an answer to look at; all others are failures of their own.
VERDICTS_WITH_ANSWER = ("success", "interactive", "background_task", "permission", "empty")


class SchemaCheck:
    """Made before the start: StenoError if the schema is none. `close` removes its file."""

    def __init__(self, schema: str | None) -> None:
        self._schema = None if schema is None else AnswerSchema(schema)
        self._schema_path: str | None = None

    def build_argv(self, begun: LaunchCommand) -> tuple[str, ...]:
        """The command line, with the path of the schema's file where it asks for one."""
        if begun.schema is None:
            return begun.argv
        try:
            number, self._schema_path = tempfile.mkstemp(prefix="steno-schema-", suffix=".json")
            with os.fdopen(number, "wb") as file:
                file.write(begun.schema)
        except OSError as problem:
            raise StenoError(f"the JSON schema cannot be written for the agent: {problem.strerror or problem}") from None
        path = self._schema_path
        return tuple(path if word == SCHEMA_FILE_PLACEHOLDER else word for word in begun.argv)

    def check(self, report: Report) -> SchemaCheckResult | None:
        """Hold the answer against the schema; None where none was asked for, or there is no answer to look at."""
        if self._schema is None or report.verdict not in VERDICTS_WITH_ANSWER:
            return None
        return self._schema.check(report.structured_output, report.result or report.text)

    def close(self) -> None:
        """The file is needed no longer."""
        if self._schema_path is not None:
            with suppress(OSError):
                os.unlink(self._schema_path)  # noqa: PTH108
            self._schema_path = None


def encode_schema_result(checked: SchemaCheckResult) -> bytes:
    """What was found, as the tape keeps it."""
    return msgspec.json.encode({"wrong": checked.errors} if checked.errors else {"value": checked.value})
