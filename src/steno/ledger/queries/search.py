"""Search prompts and answers with a full-text index or a regular expression, newest first.

The index is created by the first search and updated by each one. User input is quoted, so it is
never a syntax error. Tool output is not in the ledger: it is searched in the original files.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ... import event as ev
from ...codec.decode import text_of
from ...codec.redact import redact
from ...errors import LedgerError, SourceError, StenoError
from ...recording.open import read_lines
from ...recording.parse import RunParser
from ..protocol import Store, query_value
from ..results import SearchHit
from .filters import Filters, TimeRange, WhereClause, has_rows

TEXTS_PER_BATCH = 2_000  # indexed in one transaction, so that others can write in between
CHARS_BEFORE_HIT = 60
MAX_SNIPPET_CHARS = 240
CREATE_SQLITE_INDEX = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS texts_index "
    "USING fts5(text, content='texts', content_rowid='id')"
)
# PostgreSQL treats a path, host or e-mail address as one word; without these, each part is one.
WORD_SEPARATORS = "/.@:_+-"
TSVECTOR_SQL = (
    f"to_tsvector('simple', translate({{}}, '{WORD_SEPARATORS}', '{' ' * len(WORD_SEPARATORS)}'))"
)
CREATE_POSTGRES_INDEX = (
    f"CREATE INDEX IF NOT EXISTS texts_parts ON texts USING gin ({TSVECTOR_SQL.format('text')})"
)
_SEPARATORS_TO_SPACES = str.maketrans(dict.fromkeys(WORD_SEPARATORS, " "))
SELECT_TEXTS = "SELECT t.at, t.session, t.run, s.project, t.role, t.text, t.id FROM texts t"
JOIN_SESSIONS = "LEFT JOIN sessions s ON s.id = t.session"
_TERM = re.compile(r'"([^"]*)"|(\S+)')
_FROM_UNINDEXED = "FROM texts t LEFT JOIN texts_index_docsize d ON d.id = t.id WHERE d.id IS NULL"

ProgressCallback = Callable[[int, int], None]  # texts or files done, in total; after each batch


class TextRecord(NamedTuple):
    """A text with its session's project, as selected by SELECT_TEXTS."""

    at: int | None
    session: str
    run: str | None
    project: str | None
    role: str
    text: str
    id: int = 0


class SearchQuery(Struct):
    """Words and phrases that must all occur, or a regular expression."""

    terms: list[str]
    pattern: "re.Pattern[str]"  # matches the hits in a text, to highlight them
    is_regex: bool = False

    @property
    def indexed_terms(self) -> list[str]:
        """The terms that an index can find: those with a letter or digit."""
        if self.is_regex:
            return []
        return [term for term in self.terms if any(char.isalnum() for char in term)]

    def matches(self, text: str) -> bool:
        if self.is_regex:
            return self.pattern.search(text) is not None
        lower = text.lower()
        return all(term.lower() in lower for term in self.terms)


def parse_query(text: str, regex: bool = False) -> SearchQuery:
    """Parse words and "phrases in quotes", or a regular expression. StenoError if invalid."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # databases reject unpaired surrogates
    if regex:
        try:
            return SearchQuery([text], re.compile(text, re.M), True)
        except (re.error, RecursionError, OverflowError) as error:
            raise StenoError(f"--regex {text}: invalid regular expression: {error}") from None
    terms = [
        " ".join((phrase or word).replace('"', " ").split()) for phrase, word in _TERM.findall(text)
    ]
    terms = [term for term in terms if term]
    if not terms:
        raise StenoError("nothing to search for: expected at least one word")
    longest_first = sorted(terms, key=len, reverse=True)
    return SearchQuery(terms, re.compile("|".join(map(re.escape, longest_first)), re.I))


def has_texts(store: Store) -> bool:
    return has_rows(store, "texts")


def search_texts(
    store: Store,
    query: SearchQuery,
    filters: Filters,
    role: str | None,
    limit: int | None,
    progress: ProgressCallback | None = None,
) -> tuple[list[SearchHit], int]:
    """Return the hits, newest first, and their number without the limit."""
    where = (
        WhereClause()
        .add_time_range("t.at", filters.time_range)
        .add_in("s.project", filters.projects)
        .add_in("s.agent", filters.agents)
    )
    if role is not None:
        where.add("t.role = ?", role)
    if not query.indexed_terms or not _try_update_index(store, progress):
        hits = sorted(_scan_texts(store, query, where, progress), key=_newest_first)
        return hits[:limit], len(hits)
    if store.kind == "postgresql":
        where.add(
            f"{TSVECTOR_SQL.format('t.text')} @@ websearch_to_tsquery('simple', ?)",
            _quote_terms(query.indexed_terms).translate(_SEPARATORS_TO_SPACES),
        )
        tables = JOIN_SESSIONS
    else:
        where.add("texts_index MATCH ?", _quote_terms(query.indexed_terms))
        tables = f"JOIN texts_index ON texts_index.rowid = t.id {JOIN_SESSIONS}"
    total = query_value(store, f"SELECT count(*) FROM texts t {tables}{where.sql}", where.values)
    limit_sql = f" LIMIT {limit}" if limit is not None else ""
    sql = f"{SELECT_TEXTS} {tables}{where.sql} ORDER BY t.at DESC, t.id{limit_sql}"
    rows = store.query(sql, where.values)
    return [build_hit(TextRecord(*row), query) for row in rows], int(total)


def _newest_first(hit: SearchHit) -> int:
    return -(hit.at or 0)


def _scan_texts(
    store: Store, query: SearchQuery, where: WhereClause, progress: ProgressCallback | None
) -> Iterator[SearchHit]:
    """Find the hits without an index, in batches to limit memory."""
    total = int(query_value(store, "SELECT count(*) FROM texts"))
    done = 0
    last_id = -1
    while True:
        batch_where = where.copy().add("t.id > ?", last_id)
        rows = store.query(
            f"{SELECT_TEXTS} {JOIN_SESSIONS}{batch_where.sql} "
            f"ORDER BY t.id LIMIT {TEXTS_PER_BATCH}",
            batch_where.values,
        )
        records = [TextRecord(*row) for row in rows]
        yield from (build_hit(record, query) for record in records if query.matches(record.text))
        if len(records) < TEXTS_PER_BATCH:
            return
        done += len(records)
        last_id = records[-1].id
        if progress is not None:
            progress(done, total)


def _quote_terms(terms: list[str]) -> str:
    """Quote each term as a phrase, which both databases read literally."""
    return " ".join(f'"{term}"' for term in terms)


def build_hit(record: TextRecord, query: SearchQuery) -> SearchHit:
    """Return the hit with the text around its first match."""
    text = record.text
    first_match = next((match.start() for match in query.pattern.finditer(text)), 0)
    start = max(0, first_match - CHARS_BEFORE_HIT)
    end = start + MAX_SNIPPET_CHARS
    prefix = "…" if start else ""
    suffix = "…" if len(text) > end else ""
    snippet = redact(f"{prefix}{text[start:end]}{suffix}")
    matches = query.pattern.finditer(snippet)
    return SearchHit(
        at=record.at,
        session=record.session,
        run=record.run,
        project=record.project,
        role=record.role,
        snippet=snippet,
        marks=[match.span() for match in matches if match.end() > match.start()],
    )


# -- index ---------------------------------------------------------------------------------------


def _try_update_index(store: Store, progress: ProgressCallback | None) -> bool:
    """Update the index; False if it can't be written (a read-only copy)."""
    try:
        if store.kind == "postgresql":
            create_postgres_index(store)
        else:
            update_sqlite_index(store, progress)
    except LedgerError:
        return False
    return True


def update_sqlite_index(store: Store, progress: ProgressCallback | None = None) -> None:
    """Create the index if there is none, and add new texts."""
    if not store.query("SELECT 1 FROM sqlite_master WHERE name = 'texts_index'"):
        with store.transaction():
            store.execute(CREATE_SQLITE_INDEX)
    total = int(query_value(store, f"SELECT count(*) {_FROM_UNINDEXED}"))
    done = 0
    while done < total:
        with store.transaction():
            added = store.execute(
                "INSERT INTO texts_index (rowid, text) "
                f"SELECT t.id, t.text {_FROM_UNINDEXED} LIMIT {TEXTS_PER_BATCH}"
            )
        if added <= 0:
            break
        done += added
        if progress is not None:
            progress(done, total)


def create_postgres_index(store: Store) -> None:
    """Create the index if there is none; the server keeps it up to date."""
    if not query_value(store, "SELECT to_regclass('texts_parts')"):
        with store.transaction():
            store.execute(CREATE_POSTGRES_INDEX)


def drop_index(store: Store) -> None:
    """Drop the index; the next search creates it again."""
    if store.kind == "postgresql":
        store.execute("DROP INDEX IF EXISTS texts_parts")
    else:
        store.execute("DROP TABLE IF EXISTS texts_index")


# -- tool output ---------------------------------------------------------------------------------


class ToolOutputMatches(Struct):
    hits: list[SearchHit]
    files_read: int = 0
    files_missing: int = 0


def search_tool_output(
    store: Store, query: SearchQuery, filters: Filters, progress: ProgressCallback | None = None
) -> ToolOutputMatches:
    """Search the tool output in all sources that still exist."""
    result = ToolOutputMatches([])
    projects: dict[str, str | None] = dict(store.query("SELECT id, project FROM sessions"))
    sources = store.query("SELECT path, run FROM sources ORDER BY path")
    seen: set[tuple[str, str]] = set()
    for done, (path, run) in enumerate(sources, 1):
        stdout = Path(path) / "stdout"
        file = stdout if stdout.is_file() else Path(path)
        if not file.is_file():
            result.files_missing += 1
            continue
        result.files_read += 1
        for event, tool in _tool_results(read_lines(file)):
            session = event.session or Path(path).stem
            project = projects.get(session)
            key = (session, event.id)
            if key in seen or not _matches_filters(event, project, filters):
                continue
            seen.add(key)
            text = text_of(event.content)
            if query.matches(text):
                at = _event_time(event)
                record = TextRecord(at, session, run, project, "tool", redact(text))
                hit = build_hit(record, query)
                hit.source = path
                hit.tool = tool
                result.hits.append(hit)
        if progress is not None:
            progress(done, len(sources))
    result.hits.sort(key=_newest_first)
    return result


def _tool_results(lines: Iterable[bytes]) -> Iterator[tuple[ev.ToolResult, str | None]]:
    """Yield tool results, each with the name of its tool."""
    names: dict[str, str] = {}
    try:
        for event in RunParser().events(lines):
            if isinstance(event, ev.ToolCall):
                names[event.id] = event.name
            elif isinstance(event, ev.ToolResult):
                yield event, names.get(event.id)
    except SourceError:
        return  # damaged since its import: keep what was read


def _event_time(event: ev.ToolResult) -> int | None:
    return None if event.at is None else int(event.at.timestamp() * 1000)


def _matches_filters(event: ev.ToolResult, project: str | None, filters: Filters) -> bool:
    if filters.projects is not None and project not in filters.projects:
        return False
    if filters.time_range == TimeRange():
        return True
    at = _event_time(event)
    since = filters.time_range.since
    until = filters.time_range.until
    return at is not None and (since or 0) <= at and (until is None or at < until)
