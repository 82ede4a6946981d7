"""Check answers against a JSON schema: read the schema, find the JSON in an answer, validate it.

Validation is done by `jsonschema` (the extra `schema`), loaded when a schema is used. Nothing is
fetched: a schema with references to other addresses is refused.
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
from ..installation import extra_command
from ..report import Report

if TYPE_CHECKING:
    from referencing import Resource
    from referencing._core import Resolver

MAX_SCHEMA_ERRORS = 10  # per answer: the agent corrects them together
MAX_SCHEMA_ERROR_CHARS = 300  # an error may quote the value
_FENCED_BLOCK = re.compile(r"^[ \t]*(```+|~~~+)[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.M | re.S)


class SchemaCheckResult(Struct, frozen=True):
    """The answer's value if it is valid, else the errors."""

    value: Any = None
    errors: tuple[str, ...] = ()


class AnswerSchema:
    """A JSON schema for answers. StenoError if it is invalid or `jsonschema` is missing."""

    def __init__(self, text: str | bytes, source: str = "JSON schema") -> None:
        try:
            import jsonschema
            from jsonschema_specifications import (  # type: ignore[import-untyped]  # no stubs
                REGISTRY,
            )
        except ImportError:
            needs = f"JSON schemas need the package jsonschema: {extra_command('schema')}"
            raise StenoError(f"{source}: {needs}") from None
        schema = _parse_schema(text, source)
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        known_validator = jsonschema.validators.validator_for(
            {"$schema": str(dialect)}, default=cast(Any, None)
        )
        if dialect is not None and known_validator is None:
            raise StenoError(f"{source}: unknown version of JSON schema: {dialect!r}")
        validator: Any = known_validator or jsonschema.Draft202012Validator
        try:
            validator.check_schema(schema)
            _check_references(schema, validator, REGISTRY)
        except jsonschema.SchemaError as error:
            message = f"{_error_location(error)}{error.message[:MAX_SCHEMA_ERROR_CHARS]}"
            raise StenoError(f"{source}: invalid JSON schema: {message}") from None
        except RecursionError:
            raise StenoError(f"{source}: JSON schema nested too deeply") from None
        except _unresolvable_error() as error:
            ref = getattr(error, "ref", None)
            raise StenoError(f"{source}: unresolvable reference: {ref!r}") from None
        self._validator = validator(schema, registry=REGISTRY)

    def check(self, structured: Any, text: str) -> SchemaCheckResult:
        """Check the agent's structured output, else the JSON in its text.

        The first valid JSON in the text is the answer. If none is valid, the errors are those of
        the first.
        """
        first_errors: tuple[str, ...] = ()
        for value in [structured] if structured is not None else iter_json_in_text(text):
            errors = self._validation_errors(value)
            if not errors:
                return SchemaCheckResult(value)
            first_errors = first_errors or errors
        missing = "no JSON in the answer" if text.strip() else "no answer"
        return SchemaCheckResult(None, first_errors or (missing,))

    def _validation_errors(self, value: Any) -> tuple[str, ...]:
        try:
            errors = sorted(
                self._validator.iter_errors(value),
                key=lambda error: list(map(str, error.absolute_path)),
            )
        except RecursionError:
            return ("nested too deeply",)
        messages = [
            f"{_error_location(error)}{error.message[:MAX_SCHEMA_ERROR_CHARS]}"
            for error in errors[:MAX_SCHEMA_ERRORS]
        ]
        if len(errors) > MAX_SCHEMA_ERRORS:
            messages.append(f"{len(errors) - MAX_SCHEMA_ERRORS} more")
        return tuple(messages)


def _parse_schema(text: str | bytes, source: str) -> Any:
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StenoError(f"{source}: invalid JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise StenoError(
            f"{source}: expected a JSON schema (an object), found {type(schema).__name__}"
        )
    return schema


def _unresolvable_error() -> type[Exception]:
    from referencing.exceptions import Unresolvable

    return Unresolvable


def _check_references(schema: Any, validator: Any, registry: Any) -> None:
    """Raise for an unresolvable reference: before the start, not at the first answer."""
    from referencing.jsonschema import specification_with

    specification = specification_with(validator.META_SCHEMA["$schema"])
    resource = specification.create_resource(schema)
    _check_subresources(resource, registry.with_resource("", resource).resolver_with_root(resource))


def _check_subresources(resource: "Resource[Any]", resolver: "Resolver[Any]") -> None:
    if isinstance(resource.contents, dict) and isinstance(resource.contents.get("$ref"), str):
        resolver.lookup(resource.contents["$ref"])
    for inner in resource.subresources():
        _check_subresources(inner, resolver.in_subresource(inner))


def _error_location(error: Any) -> str:
    """The position of an error in a value, such as `$.files[0].path: `."""
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    return f"${path}: "


def iter_json_in_text(text: str) -> Iterator[Any]:
    """JSON values in a text: the whole, fenced blocks from the last, first to last bracket."""
    blocks = [match[2] for match in _FENCED_BLOCK.finditer(text)]
    starts = [index for index in (text.find("{"), text.find("[")) if index >= 0]
    end = max(text.rfind("}"), text.rfind("]")) + 1
    bracketed = text[min(starts) : end] if starts else ""
    for part in (text, *reversed(blocks), bracketed):
        try:
            yield msgspec.json.decode(part.strip())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue


def load_json_schema(value: str, source: str) -> str:
    """The text of a schema given as JSON or as a path. StenoError if it is not usable."""
    stripped = value.lstrip()
    is_inline = stripped.startswith("{") or (stripped.startswith("[") and not Path(value).exists())
    text = value if is_inline else _read_schema_file(value, f"{source} {value}")
    AnswerSchema(text, source if is_inline else f"{source} {value}")
    return text


def _read_schema_file(path: str, source: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise StenoError(f"{source}: not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StenoError(f"{source}: cannot be read: {reason}") from None


# Verdicts of runs with an answer to check; all others are failures of their own.
VERDICTS_WITH_ANSWER = ("success", "interactive", "background_task", "permission", "empty")


class SchemaCheck:
    """The schema check of one run. StenoError if the schema is invalid."""

    def __init__(self, schema: str | None) -> None:
        self._schema = None if schema is None else AnswerSchema(schema)
        self._schema_path: str | None = None

    def build_argv(self, command: LaunchCommand) -> tuple[str, ...]:
        """The command line, with the path of a schema file where the agent takes one."""
        if command.schema is None:
            return command.argv
        try:
            descriptor, path = tempfile.mkstemp(prefix="steno-schema-", suffix=".json")
            self._schema_path = path
            with os.fdopen(descriptor, "wb") as file:
                file.write(command.schema)
        except OSError as error:
            raise StenoError(
                f"cannot write the JSON schema for the agent: {error.strerror or error}"
            ) from None
        return tuple(
            path if argument == SCHEMA_FILE_PLACEHOLDER else argument for argument in command.argv
        )

    def check(self, report: Report) -> SchemaCheckResult | None:
        """Check the answer; None without a schema or without an answer."""
        if self._schema is None or report.verdict not in VERDICTS_WITH_ANSWER:
            return None
        return self._schema.check(report.structured_output, report.result or report.text)

    def close(self) -> None:
        """Delete the schema file."""
        if self._schema_path is not None:
            with suppress(OSError):
                Path(self._schema_path).unlink()
            self._schema_path = None


def encode_schema_result(result: SchemaCheckResult) -> bytes:
    """The result as stored in the recording."""
    return msgspec.json.encode(
        {"wrong": result.errors} if result.errors else {"value": result.value}
    )
