"""Answers for programs: one JSON object, or CSV with flat names. It never prints.

Cells of CSV cannot pose as formulas, and nothing in them moves a cursor.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from .sanitize import clean_lines

FORMULA_PREFIXES = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
)  # how a cell begins that a spreadsheet would carry out


def as_json(rows: Sequence[Any], total: Any, more: dict[str, Any] | None = None) -> bytes:
    """One object: the rows, what they come to, and whatever else there is to say."""
    return msgspec.json.encode({"rows": rows, "total": total, **(more or {})})


def as_csv(rows: Iterable[Any], names: Sequence[str] = ()) -> bytes:
    """The rows by RFC 4180, in UTF-8. The names are those of the JSON, joined: tokens_input, cost_usd."""
    flat = [dict(_flatten(msgspec.to_builtins(row))) for row in rows]
    heads = list(dict.fromkeys([*names, *(name for row in flat for name in row)]))
    text = io.StringIO()
    sheet = csv.writer(text, lineterminator="\r\n")
    sheet.writerow([_format_cell(head) for head in heads])
    for row in flat:
        sheet.writerow([_format_cell(row.get(head)) for head in heads])
    return text.getvalue().encode("utf-8", "replace")


def _flatten(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield prefix + name, value


def _format_float(value: float) -> str:
    """A number without an exponent: money is often less than 0.0001."""
    text = str(value)
    return f"{Decimal(text):f}" if "e" in text else text


def _format_cell(value: Any) -> str:
    """A value as text, its control characters written out. What begins like a formula gets an apostrophe; a number stays one."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_float(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    text = (
        value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8", "replace")
    )
    text = clean_lines(text.replace("\x00", ""))
    return f"'{text}" if text.startswith(FORMULA_PREFIXES) else text
