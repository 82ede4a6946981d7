"""Find and mask secrets that an earlier version stored, and find those in recordings.

Rows are read and masked in batches, each in its own transaction, so that others can write in
between. A value that changed meanwhile is left to the next call.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ...codec.find_secrets import Secret, find_secrets
from ...codec.redact import redact, redact_value
from ...errors import SourceError
from ...recording.lines import read_lines
from ..protocol import Row, Store, query_column
from ..source_reader import decode_resume_state, encode_resume_state
from .ledger import reclaim_space
from .search import drop_index

ROWS_PER_BATCH = 500
MAX_SHOWN_CHARS = 4  # of a secret, and at most a quarter of it
RECORDING_FILES = ("stdout", "stderr")  # of a recording that is a folder

ProgressCallback = Callable[[int, int], None]  # rows or files done, in total


class FoundSecret(Struct):
    """A secret in the ledger (`row` and `column`) or in a recording (`file` and `line`)."""

    kind: str
    start: str  # its first characters
    table: str | None = None
    column: str | None = None
    row: str | None = None
    run: str | None = None
    session: str | None = None
    file: str | None = None
    line: int | None = None
    masked: bool = False


class TextTable(NamedTuple):
    """Columns that may hold a secret; `key` orders and identifies the rows.

    Models, tools and projects are missing: they are keys of the sums.
    """

    name: str
    key: str
    columns: tuple[str, ...]
    run: str = "NULL"
    session: str = "NULL"


TABLES = (
    TextTable("sessions", "id", ("title", "agent_version"), session="id"),
    TextTable("tasks", "id", ("prompt",)),
    TextTable("runs", "id", ("prompt", "error", "why", "name", "tags", "report"), "id", "session"),
    TextTable("calls", "seq", ("target", "error"), "run", "session"),
    TextTable("changes", "seq", ("path",), "run", "session"),
    TextTable("denials", "seq", ("reason", "rule"), "run", "session"),
    TextTable("texts", "seq", ("text",), "run", "session"),
    TextTable("notes", "id", ("text",), "run", "session"),
    TextTable("messages", "id", ("text",), "run"),
    TextTable("permission_requests", "id", ("tool", "input", "reason"), "run", "session"),
    TextTable("sources", "path", ("state",), "run", "session"),
    TextTable("glances", "path", ("state",)),
)


def find_in_ledger(
    store: Store, mask: bool = False, progress: ProgressCallback | None = None
) -> list[FoundSecret]:
    """Return the secrets in the ledger; with `mask`, replace them and what the disk keeps of them.

    The search index is dropped if a text changed: the next search builds it again.
    """
    found: list[FoundSecret] = []
    changed = set()
    total = sum(query_column(store, f"SELECT count(*) FROM {table.name}")[0] for table in TABLES)
    done = 0
    for table in TABLES:
        for rows in _batches(store, table):
            secrets = [
                (row, column, value, _find_in_value(column, value))
                for row in rows
                for column, value in zip(table.columns, row[3:], strict=True)
                if value is not None
            ]
            secrets = [item for item in secrets if item[3]]
            found += _describe(table, secrets, mask)
            if mask and secrets:
                changed.add(table.name)
                with store.transaction():
                    for row, column, value, _ in secrets:
                        _mask_value(store, table, row[0], column, value)
            done += len(rows)
            if progress is not None:
                progress(done, total)
    if changed:
        _forget_old_values(store, changed)
    return found


def _batches(store: Store, table: TextTable) -> Iterator[list[Row]]:
    """Yield the rows: key, run, session, then the columns."""
    names = ", ".join((table.key, table.run, table.session, *table.columns))
    where = ""
    values: tuple[Any, ...] = ()
    while True:
        rows = store.query(
            f"SELECT {names} FROM {table.name} {where} ORDER BY {table.key} LIMIT {ROWS_PER_BATCH}",
            values,
        )
        if rows:
            yield rows
        if len(rows) < ROWS_PER_BATCH:
            return
        where = f"WHERE {table.key} > ?"
        values = (rows[-1][0],)


def _find_in_value(column: str, value: Any) -> list[tuple[str, Secret]]:
    """Return the secrets of a value, each with the text it was found in."""
    if column == "report":
        texts = list(_texts_of(_decode_report(value)))
    elif column == "state":
        texts = [_state_text(value)]
    else:
        texts = [str(value)]
    return [(text, secret) for text in texts for secret in find_secrets(text)]


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts_of(key)
            yield from _texts_of(item)


def _decode_report(data: Any) -> Any:
    with suppress(zlib.error, msgspec.MsgspecError):
        return msgspec.json.decode(zlib.decompress(bytes(data)))
    return None


def _state_text(data: Any) -> str:
    """Return the part of a reader's state with texts: open tool calls, as JSON."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return decode_resume_state(bytes(data)).rows.decode("utf-8")
    return ""


def _describe(
    table: TextTable, secrets: Iterable[tuple[Row, str, Any, list[tuple[str, Secret]]]], mask: bool
) -> Iterator[FoundSecret]:
    for (key, run, session, *_), column, _, found in secrets:
        for text, secret in found:
            yield FoundSecret(
                kind=secret.kind,
                start=_shown_start(text, secret),
                table=table.name,
                column=column,
                row=str(key),
                run=run,
                session=session,
                masked=mask,
            )


def _shown_start(text: str, secret: Secret) -> str:
    length = secret.end - secret.start
    return text[secret.start : secret.start + min(MAX_SHOWN_CHARS, length // 4)]


def _mask_value(store: Store, table: TextTable, key: Any, column: str, value: Any) -> None:
    masked: Any
    if column == "report":
        masked = zlib.compress(msgspec.json.encode(redact_value(_decode_report(value))), 1)
    elif column == "state":
        state = decode_resume_state(bytes(value))
        state.rows = redact(_state_text(value)).encode("utf-8")
        masked = encode_resume_state(state)
    else:
        masked = redact(str(value))
    store.execute(
        f"UPDATE {table.name} SET {column} = ? WHERE {table.key} = ? AND {column} = ?",
        (masked, key, value),
    )


def _forget_old_values(store: Store, tables: set[str]) -> None:
    """Remove replaced values from the index and from the free space of the database."""
    if "texts" in tables:
        drop_index(store)
    if store.kind == "sqlite":
        reclaim_space(store)
        store.query("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        for table in sorted(tables):
            store.execute(f"VACUUM {table}")


# -- what masking does not reach -----------------------------------------------------------------


def backups(store: Store) -> list[str]:
    """Return the copies of the ledger from before a migration or rebuild: they are not examined."""
    if store.kind == "postgresql":
        sql = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'before\\_%' ORDER BY 1"
        return query_column(store, sql)
    path = Path(store.name)
    return sorted(str(file) for file in path.parent.glob(f"{path.name}.before-*"))


def recordings_of(store: Store) -> dict[str, str | None]:
    """Return the recordings that the ledger knows, with their runs."""
    sql = (
        "SELECT path, run FROM sources WHERE kind <> 'transcript' "
        "UNION SELECT source, id FROM runs WHERE source IS NOT NULL"
    )
    return dict(store.query(sql))


def find_in_recordings(
    paths: dict[str, str | None], progress: ProgressCallback | None = None
) -> list[FoundSecret]:
    """Return the secrets in recordings that still exist; one in many lines is many."""
    found: list[FoundSecret] = []
    for done, (path, run) in enumerate(sorted(paths.items()), 1):
        for file in _files_of(path):
            with suppress(SourceError):  # damaged: what can be read was
                for number, line in enumerate(read_lines(file, problems=[]), 1):
                    text = line.decode("utf-8", "replace")
                    found += (
                        FoundSecret(
                            kind=secret.kind,
                            start=_shown_start(text, secret),
                            run=run,
                            file=str(file),
                            line=number,
                        )
                        for secret in find_secrets(text)
                    )
        if progress is not None:
            progress(done, len(paths))
    return found


def _files_of(path: str) -> list[Path]:
    is_folder = os.path.isdir(path)  # noqa: PTH112  # False where we may not look
    files = [Path(path, name) for name in RECORDING_FILES] if is_folder else [Path(path)]
    return [file for file in files if file.is_file()]
