"""What an answer must look like: reads a JSON schema, finds the JSON in an answer, and holds one against the other.

The work of a JSON schema is done by `jsonschema` (the extra `schema`), which is loaded when a schema is given. Nothing is
fetched: a schema that refers to another address is refused.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from ..agents.base import SCHEMA_FILE_PLACEHOLDER, LaunchCommand
from ..errors import StenoError
from ..report import Report

if TYPE_CHECKING:
    from referencing import Resource
    from referencing._core import Resolver

MISSING_PACKAGE_MESSAGE = (
    "a JSON schema needs the package jsonschema: pip install 'stenograph[schema]'"
)
MAX_SCHEMA_ERRORS = 10  # faults of one answer that are told: an agent mends them together
MAX_SCHEMA_ERROR_CHARS = 300  # characters of one fault: it may quote what it found
_FENCED_BLOCK = re.compile(r"^[ \t]*(```+|~~~+)[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.M | re.S)


class SchemaCheckResult(Struct, frozen=True):
    """An answer that was looked at: its value where it fits, else what is wrong with it."""

    value: Any = None
    errors: tuple[str, ...] = ()


class AnswerSchema:
    """A JSON schema that answers are held against. StenoError: it is none, or what checks it is not installed."""

    def __init__(self, text: str | bytes, where: str = "the JSON schema") -> None:
        try:
            import jsonschema
            from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
        except ImportError:
            raise StenoError(f"{where}: {MISSING_PACKAGE_MESSAGE}") from None
        schema = _parse_schema(text, where)
        named = schema.get("$schema") if isinstance(schema, dict) else None
        known = jsonschema.validators.validator_for(
            {"$schema": str(named)}, default=cast(Any, None)
        )
        if named is not None and known is None:
            raise StenoError(f"{where}: this version of JSON schema is not known: {named!r}")
        kind: Any = known or jsonschema.Draft202012Validator
        try:
            kind.check_schema(schema)
            _check_references(schema, kind, REGISTRY)
        except jsonschema.SchemaError as problem:
            raise StenoError(
                f"{where}: this is no JSON schema: {_error_location(problem)}{problem.message[:MAX_SCHEMA_ERROR_CHARS]}"
            ) from None
        except RecursionError:
            raise StenoError(f"{where}: this JSON schema is nested too deeply") from None
        except _unresolvable_error() as problem:
            raise StenoError(f"{where}: it refers to what is not in it: {problem.ref!r}") from None  # type: ignore[attr-defined]
        self._validator = kind(schema, registry=REGISTRY)

    def check(self, given: Any, text: str) -> SchemaCheckResult:
        """Hold an answer against it: a value that the agent gave as such, else the JSON in its text.

        Of several that stand in a text the first that fits is the answer; where none fits, the first is what is complained of.
        """
        first: tuple[str, ...] = ()
        for value in [given] if given is not None else iter_json_in_text(text):
            wrong = self._validation_errors(value)
            if not wrong:
                return SchemaCheckResult(value)
            first = first or wrong
        told = "there is no JSON in the answer" if text.strip() else "there is no answer"
        return SchemaCheckResult(None, first or (told,))

    def _validation_errors(self, value: Any) -> tuple[str, ...]:
        try:
            faults = sorted(
                self._validator.iter_errors(value),
                key=lambda fault: list(map(str, fault.absolute_path)),
            )
        except RecursionError:
            return ("it is nested too deeply",)
        more = len(faults) - MAX_SCHEMA_ERRORS
        told = [
            f"{_error_location(fault)}{fault.message[:MAX_SCHEMA_ERROR_CHARS]}"
            for fault in faults[:MAX_SCHEMA_ERRORS]
        ]
        return (*told, *([f"and {more} more"] if more > 0 else []))


def _parse_schema(text: str | bytes, where: str) -> Any:
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise StenoError(f"{where}: this is not JSON: {problem}") from None
    if not isinstance(schema, dict | bool):
        raise StenoError(
            f"{where}: expected a JSON schema, which is an object, found {type(schema).__name__}"
        )
    return schema


def _unresolvable_error() -> type[Exception]:
    from referencing.exceptions import Unresolvable

    return Unresolvable


def _check_references(schema: Any, kind: Any, registry: Any) -> None:
    """Raises where a reference leads nowhere: before anything is started, not at the first answer."""
    from referencing.jsonschema import specification_with

    specification = specification_with(kind.META_SCHEMA["$schema"])
    resource = specification.create_resource(schema)
    _check_subresources(resource, registry.with_resource("", resource).resolver_with_root(resource))


def _check_subresources(resource: "Resource[Any]", resolver: "Resolver[Any]") -> None:
    if isinstance(resource.contents, dict) and isinstance(resource.contents.get("$ref"), str):
        resolver.lookup(resource.contents["$ref"])
    for inner in resource.subresources():
        _check_subresources(inner, resolver.in_subresource(inner))


def _error_location(fault: Any) -> str:
    """Where in a value a fault is, as `$.files[0].path: `."""
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.absolute_path
    )
    return f"${path}: "


def iter_json_in_text(text: str) -> Iterator[Any]:
    """The JSON in an answer: all of it, else its fenced blocks, the last one first, else from the first bracket to the last."""
    fenced = [match[2] for match in _FENCED_BLOCK.finditer(text)]
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    between = text[min(starts) : max(text.rfind("}"), text.rfind("]")) + 1] if starts else ""
    for part in (text, *reversed(fenced), between):
        try:
            yield msgspec.json.decode(part.strip())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue


def load_json_schema(given: str | None, where: str) -> str | None:
    """The schema's text. StenoError if there is no such file, it is no schema, or nothing is installed to check it with."""
    if given is None:
        return None
    text, name = given, where
    if not given.lstrip().startswith("{") and not (
        given.lstrip().startswith("[") and not Path(given).exists()
    ):
        name = f"{where} {given}"
        try:
            text = Path(given).expanduser().read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise StenoError(f"{name}: this is not UTF-8") from None
        except (OSError, ValueError) as problem:
            raise StenoError(
                f"{name}: cannot be read: {getattr(problem, 'strerror', None) or problem}"
            ) from None
    AnswerSchema(text, name)
    return text


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
            raise StenoError(
                f"the JSON schema cannot be written for the agent: {problem.strerror or problem}"
            ) from None
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
    return msgspec.json.encode(
        {"wrong": checked.errors} if checked.errors else {"value": checked.value}
    )
