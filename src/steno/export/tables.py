"""Query results for programs: one JSON object, CSV that is safe in spreadsheets, or Parquet."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from ..errors import StenoError
from ..installation import extra_command
from ..ledger.rows import MAX_INT64
from ..views.formatting import clean_lines

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would evaluate such a cell


def as_json(rows: Iterable[Any], total: Any, extra: dict[str, Any] | None = None) -> bytes:
    """One object with `rows`, `total` and the extra fields."""
    return b"".join(json_parts(rows, total, extra))


def json_parts(
    rows: Iterable[Any], total: Any = None, extra: dict[str, Any] | None = None
) -> Iterator[bytes]:
    """The same row by row, so that long lists need no memory. `total`: the number of rows."""
    count = 0
    yield b'{"rows":['
    for row in rows:
        yield b"," * bool(count) + msgspec.json.encode(row)
        count += 1
    rest = {"total": count if total is None else total, **(extra or {})}
    yield b"]," + msgspec.json.encode(rest)[1:]


def as_csv(rows: Sequence[Any], names: Sequence[str] = ()) -> bytes:
    """RFC 4180 in UTF-8. Names of nested JSON fields are joined: tokens_input, cost_usd."""
    return b"".join(csv_parts(lambda: rows, names))


def csv_parts(rows: Callable[[], Iterable[Any]], names: Sequence[str] = ()) -> Iterator[bytes]:
    """The same row by row. `rows` is called twice: all names are in the first line."""
    header = dict.fromkeys(names)
    for row in rows():
        header.update(dict.fromkeys(name for name, _ in _flatten(msgspec.to_builtins(row))))
    yield _csv_line(header)
    for row in rows():
        cells = dict(_flatten(msgspec.to_builtins(row)))
        yield _csv_line(cells.get(name) for name in header)


def _csv_line(values: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(map(_format_cell, values))
    return text.getvalue().encode("utf-8", "replace")


def as_parquet(rows: Iterable[Any], types: Mapping[str, type]) -> bytes:
    """The same columns as in CSV, of these types whatever the rows; all others are texts."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise StenoError(f"Parquet needs pyarrow; install it: {extra_command('parquet')}") from None
    flat_rows = [dict(_flatten(msgspec.to_builtins(row))) for row in rows]
    header = dict.fromkeys([*types, *(name for row in flat_rows for name in row)])
    columns = {
        name: _typed_column([row.get(name) for row in flat_rows], types.get(name, str))
        for name in header
    }
    out = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), out)
    return bytes(out.getvalue().to_pybytes())


def _typed_column(values: list[Any], type_: type) -> Any:
    """A column of one type; times are timestamps in UTC, numbers beyond 64 bits unknown."""
    import pyarrow

    if type_ is bool:
        return pyarrow.array(values, pyarrow.bool_())
    if type_ is int:
        fitting = [value if abs(value or 0) <= MAX_INT64 else None for value in values]
        return pyarrow.array(fitting, pyarrow.int64())
    if type_ is float:
        return pyarrow.array(values, pyarrow.float64())
    if type_ is datetime:
        times = [None if value is None else datetime.fromisoformat(value) for value in values]
        return pyarrow.array(times, pyarrow.timestamp("ms", tz="UTC"))
    return pyarrow.array(map(_to_text, values), pyarrow.string())


def _to_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode("utf-8", "replace")


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
