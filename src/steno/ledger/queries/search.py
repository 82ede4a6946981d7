"""Search prompts and answers with a full-text index or a regular expression, newest first.

PostgreSQL keeps the words of a text in a column of its own. The index of SQLite is updated by
imports and searches: it continues after the last text that it has. User input is quoted, so it is
never a syntax error. Tool output is not in the ledger: it is searched in the original files.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from ... import event as ev
from ...codec.decode import text_of
from ...codec.redact import redact
from ...errors import LedgerError, SourceError, StenoError
from ...recording.lines import read_lines
from ...recording.parse import RunParser
from ..protocol import Row, Store, query_value
from ..results import SearchHit
from ..schema import WORD_SEPARATORS
from .filters import Filters, TimeRange, WhereClause, has_rows

TEXTS_PER_BATCH = 2_000  # indexed in one transaction, so that others can write in between
CHARS_BEFORE_HIT = 60
MAX_SNIPPET_CHARS = 240
CREATE_SQLITE_INDEX = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS texts_words "
    "USING fts5(text, content='texts', content_rowid='seq')"
)
_SEPARATORS_TO_SPACES = str.maketrans(dict.fromkeys(WORD_SEPARATORS, " "))
IMPORTED_BATCHES = 10  # indexed at once by an import, which is not to wait for a new index
COMMON_WORD_HITS = 5_000  # from here on, the newest texts are tried first
NEWEST_TEXTS = 20_000
TEXT_COLUMNS = "t.at, t.session, t.run, s.project, t.role, t.text, t.seq"
JOIN_SESSIONS = "LEFT JOIN sessions s ON s.id = t.session"
NEWEST_FIRST_SQL = "t.at DESC NULLS LAST, t.id"
# The same order, which no index has: PostgreSQL then begins with the index of the words.
HITS_FIRST_SQL = "t.at IS NULL, t.at DESC, t.id"
_TERM = re.compile(r'"([^"]*)"|(\S+)')

ProgressCallback = Callable[[int, int], None]  # texts or files done, in total; after each batch


class TextRecord(NamedTuple):
    """A text with its session's project: TEXT_COLUMNS."""

    at: int | None
    session: str
    run: str | None
    project: str | None
    role: str
    text: str
    seq: int = 0


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

    @property
    def literal(self) -> str:
        """A part of every match of a regular expression; empty if there is none."""
        return _required_literal(self.pattern) if self.is_regex else ""

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
        .add_origin(filters, "s.{}")
        .add_tags_of_session(filters, "t.session")
    )
    if role is not None:
        where.add("t.role = ?", role)
    if not query.indexed_terms or not try_update_index(store, progress):
        if query.literal:
            position = "strpos" if store.kind == "postgresql" else "instr"
            where.add(f"{position}(t.text, ?) > 0", query.literal)
        hits = sorted(_scan_texts(store, query, where, progress), key=_newest_first)
        return hits[:limit], len(hits)
    rows, total = _query_index(store, query, where, limit)
    return [build_hit(TextRecord(*row), query) for row in rows], total


def _required_literal(pattern: "re.Pattern[str]") -> str:
    """The longest run of characters that the parser shows to be in every match."""
    if pattern.flags & re.IGNORECASE:
        return ""
    runs = [""]
    parser: Any = re._parser  # type: ignore[attr-defined]
    for kind, value in parser.parse(pattern.pattern, pattern.flags):
        if str(kind) == "LITERAL":
            runs[-1] += chr(value)
        elif str(kind) != "AT":  # a position, such as the start of a line
            runs.append("")
    return max(runs, key=len).replace("\x00", "")


def _query_index(
    store: Store, query: SearchQuery, where: WhereClause, limit: int | None
) -> tuple[list[Row], int]:
    """The newest rows that the index has, and the number of all."""
    if store.kind == "postgresql":
        terms = _quote_terms(query.indexed_terms).translate(_SEPARATORS_TO_SPACES)
        match = WhereClause().add("t.words @@ websearch_to_tsquery('simple', ?)", terms)
        indexed = "texts t"
    else:
        match = WhereClause().add("texts_words MATCH ?", _quote_terms(query.indexed_terms))
        indexed = "texts_words JOIN texts t ON t.seq = texts_words.rowid"
    limit_sql = "" if limit is None else f" LIMIT {limit}"
    if where.conditions:
        both = where.copy().add_all(match)
        tables = f"{indexed} {JOIN_SESSIONS}{both.sql}"
        total = int(query_value(store, f"SELECT count(*) FROM {tables}", both.values))
        sql = f"SELECT {TEXT_COLUMNS} FROM {tables} ORDER BY {HITS_FIRST_SQL}{limit_sql}"
        return store.query(sql, both.values), total
    table = "texts_words" if store.kind == "sqlite" else indexed
    total = int(query_value(store, f"SELECT count(*) FROM {table}{match.sql}", match.values))
    rows: list[Row] = []
    if limit is not None and total >= COMMON_WORD_HITS:
        rows = _query_newest(store, match.copy(), limit_sql)
    if limit is None or len(rows) < limit:
        # Sessions are looked up for the rows that are left.
        found = f"SELECT t.* FROM {indexed}{match.sql} ORDER BY {HITS_FIRST_SQL}{limit_sql}"
        sql = (
            "SELECT f.at, f.session, f.run, s.project, f.role, f.text, f.seq "
            f"FROM ({found}) AS f LEFT JOIN sessions s ON s.id = f.session "
            "ORDER BY f.at DESC NULLS LAST, f.id"
        )
        rows = store.query(sql, match.values)
    return rows, total


def _query_newest(store: Store, match: WhereClause, limit_sql: str) -> list[Row]:
    """The rows of a common word among the newest texts, without sorting all that have it."""
    newest = f"SELECT * FROM texts t ORDER BY {NEWEST_FIRST_SQL} LIMIT {NEWEST_TEXTS}"
    condition = match
    if store.kind == "sqlite":
        # Their numbers are in the index of times; those of the word are looked up in between.
        numbers = newest.replace("*", "t.seq, t.at, t.id")
        ((first, last),) = store.query(f"SELECT min(seq), max(seq) FROM ({numbers}) AS newest")
        match.add_range("texts_words.rowid", first, last + 1)
        found = (
            f"SELECT seq FROM ({numbers}) AS newest "
            f"WHERE seq IN (SELECT rowid FROM texts_words{match.sql}) "
            f"ORDER BY at DESC NULLS LAST, id{limit_sql}"
        )
        newest = "SELECT * FROM texts"
        condition = WhereClause().add(f"t.seq IN ({found})", *match.values)
    sql = (
        f"SELECT {TEXT_COLUMNS} FROM ({newest}) AS t {JOIN_SESSIONS}{condition.sql} "
        f"ORDER BY {NEWEST_FIRST_SQL}{limit_sql}"
    )
    return store.query(sql, condition.values)


def _newest_first(hit: SearchHit) -> int:
    return -(hit.at or 0)


def _scan_texts(
    store: Store, query: SearchQuery, where: WhereClause, progress: ProgressCallback | None
) -> Iterator[SearchHit]:
    """Find the hits without an index, in batches to limit memory."""
    total = int(query_value(store, "SELECT max(seq) FROM texts") or 0)
    done = 0
    while True:
        batch_where = where.copy().add("t.seq > ?", done)
        rows = store.query(
            f"SELECT {TEXT_COLUMNS} FROM texts t {JOIN_SESSIONS}{batch_where.sql} "
            f"ORDER BY t.seq LIMIT {TEXTS_PER_BATCH}",
            batch_where.values,
        )
        records = [TextRecord(*row) for row in rows]
        yield from (build_hit(record, query) for record in records if query.matches(record.text))
        if len(records) < TEXTS_PER_BATCH:
            return
        done = records[-1].seq
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


def try_update_index(store: Store, progress: ProgressCallback | None = None) -> bool:
    """Update the index; False if it can't be written (a read-only copy)."""
    try:
        update_index(store, progress)
    except LedgerError:
        return False
    return True


def index_imported(store: Store) -> None:
    """Add the texts of an import; of a ledger without an index, a part."""
    with suppress(LedgerError):  # the next search tries again
        update_index(store, max_batches=IMPORTED_BATCHES)


def update_index(
    store: Store, progress: ProgressCallback | None = None, max_batches: int | None = None
) -> None:
    """Create the index of SQLite if there is none, and add the texts after its last one.

    Each batch has its own transaction, so that others can write in between.
    """
    if store.kind == "postgresql":
        return  # the server keeps it up to date
    if not _has_sqlite_index(store):
        with store.transaction():
            store.execute("DROP TABLE IF EXISTS texts_index")  # of earlier versions
            store.execute(CREATE_SQLITE_INDEX)
    last = int(query_value(store, "SELECT max(seq) FROM texts") or 0)
    first = done = _last_indexed(store)
    batches = 0
    while done < last and (max_batches is None or batches < max_batches):
        batches += 1
        with store.transaction():
            done = _last_indexed(store)  # another process may be ahead
            store.execute(
                "INSERT INTO texts_words (rowid, text) SELECT seq, text FROM texts "
                f"WHERE seq > ? ORDER BY seq LIMIT {TEXTS_PER_BATCH}",
                (done,),
            )
            reached = _last_indexed(store)
        if reached <= done:
            break
        done = reached
        if progress is not None:
            progress(done - first, last - first)


def _has_sqlite_index(store: Store) -> bool:
    return bool(store.query("SELECT 1 FROM sqlite_master WHERE name = 'texts_words'"))


def _last_indexed(store: Store) -> int:
    return int(query_value(store, "SELECT max(id) FROM texts_words_docsize") or 0)


def drop_index(store: Store) -> None:
    """Drop the index of SQLite after a change of its texts; the next search creates it again."""
    if store.kind == "sqlite":
        store.execute("DROP TABLE IF EXISTS texts_words")


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
    if filters.needs_runs:
        where = WhereClause().add_origin(filters).add_tags_of_session(filters, "id")
        projects = dict(store.query(f"SELECT id, project FROM sessions{where.sql}", where.values))
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
            if filters.needs_runs and session not in projects:
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
