"""Query results for programs: one JSON object, or flat CSV that is safe in spreadsheets."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from .formatting import clean_lines

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would evaluate such a cell


def as_json(rows: Sequence[Any], total: Any, extra: dict[str, Any] | None = None) -> bytes:
    """One object with `rows`, `total` and the extra fields."""
    return msgspec.json.encode({"rows": rows, "total": total, **(extra or {})})


def as_csv(rows: Iterable[Any], names: Sequence[str] = ()) -> bytes:
    """RFC 4180 in UTF-8. Names of nested JSON fields are joined: tokens_input, cost_usd."""
    flat_rows = [dict(_flatten(msgspec.to_builtins(row))) for row in rows]
    header = list(dict.fromkeys([*names, *(name for row in flat_rows for name in row)]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([_format_cell(name) for name in header])
    for row in flat_rows:
        writer.writerow([_format_cell(row.get(name)) for name in header])
    return text.getvalue().encode("utf-8", "replace")


def _flatten(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield prefix + name, value


def _format_float(value: float) -> str:
    """Without an exponent: costs are often below 0.0001."""
    text = str(value)
    return f"{Decimal(text):f}" if "e" in text else text


def _format_cell(value: Any) -> str:
    """Sanitized text; what looks like a formula gets an apostrophe, numbers stay numbers."""
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
    if not isinstance(value, str):
        value = msgspec.json.encode(value).decode("utf-8", "replace")
    text = clean_lines(value.replace("\x00", ""))
    return f"'{text}" if text.startswith(FORMULA_PREFIXES) else text
