"""Search in what was said: full text by FTS5 or by PostgreSQL's own, or a regular expression. Newest hits first.

The index is made at the first search and takes in what is new at each one. What people type is only ever words to it:
nothing in it can be a syntax error. It never looks into tools' output; `scan` does.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from ...answer.finds import Hit
from ...redact import redact
from ...report import LedgerError, StenoError
from ..store import Row, Store
from .where import Filters, Where

BATCH = 2_000  # texts that are indexed in one transaction, or looked at together: others can write in between
AROUND = 60  # characters of a text that are shown before the first hit
SNIPPET = 240  # characters that are shown of it in all
INDEX = "CREATE VIRTUAL TABLE IF NOT EXISTS texts_index USING fts5(text, content='texts', content_rowid='id')"
# PostgreSQL takes a path, a host or an address for one word; what joins its parts is taken out, so that each is a word.
JOINTS = "/.@:_+-"
WORDS = f"to_tsvector('simple', translate({{}}, '{JOINTS}', '{' ' * len(JOINTS)}'))"
GIN = f"CREATE INDEX IF NOT EXISTS texts_parts ON texts USING gin ({WORDS.format('text')})"
_APART = str.maketrans(dict.fromkeys(JOINTS, " "))
SELECT = "SELECT t.at, t.session, t.run, s.project, t.role, t.text, t.id FROM texts t"
SESSIONS = "LEFT JOIN sessions s ON s.id = t.session"
_PART = re.compile(r'"([^"]*)"|(\S+)')
_MISSING = "FROM texts t LEFT JOIN texts_index_docsize d ON d.id = t.id WHERE d.id IS NULL"

Watch = Callable[[int, int], None]  # told after each batch: texts done, texts in all


class Wanted(Struct):
    """What is searched for: words and phrases that must all occur, or a pattern."""

    parts: list[str]
    pattern: "re.Pattern[str]"  # finds the hits in a text, to mark them
    regex: bool = False

    @property
    def words(self) -> list[str]:
        """The parts that an index knows something of: those that have a letter or a figure."""
        return [] if self.regex else [part for part in self.parts if any(letter.isalnum() for letter in part)]

    def fits(self, text: str) -> bool:
        """Whether all of it occurs in a text."""
        if self.regex:
            return self.pattern.search(text) is not None
        low = text.lower()
        return all(part.lower() in low for part in self.parts)


def wanted(text: str, regex: bool = False) -> Wanted:
    """What people typed: words, and phrases in double quotes; or one regular expression. StenoError if it is none."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # halves of letters cannot be asked for
    if regex:
        try:
            return Wanted([text], re.compile(text, re.M), True)
        except (re.error, RecursionError, OverflowError) as problem:
            raise StenoError(f"--regex {text}: not a regular expression: {problem}") from None
    parts = [" ".join((quoted or word).replace('"', " ").split()) for quoted, word in _PART.findall(text)]
    parts = [part for part in parts if part]
    if not parts:
        raise StenoError("nothing to search for: give a word")
    return Wanted(parts, re.compile("|".join(re.escape(part) for part in sorted(parts, key=len, reverse=True)), re.I))


def search(
    store: Store, what: Wanted, filters: Filters, role: str | None, most: int | None, watch: Watch | None = None
) -> tuple[list[Hit], int]:
    """The hits, the newest first, and how many there are in all."""
    where = Where().during("t.at", filters.span).among("s.project", filters.projects).among("s.agent", filters.agents)
    if role is not None:
        where.add("t.role = ?", role)
    if not what.words or not _is_ready(store, watch):
        hits = sorted(_looked(store, what, where, watch), key=lambda one: -(one.at or 0))
        return hits[:most], len(hits)
    if store.kind == "postgresql":
        where.add(f"{WORDS.format('t.text')} @@ websearch_to_tsquery('simple', ?)", _quoted(what.words).translate(_APART))
        joined = ""
    else:
        where.add("texts_index MATCH ?", _quoted(what.words))
        joined = " JOIN texts_index ON texts_index.rowid = t.id"
    counted = f"SELECT count(*) FROM texts t{joined} {SESSIONS}{where.sql}"  # noqa: S608
    total = int(store.rows(counted, where.values)[0][0])
    limit = f" LIMIT {most}" if most is not None else ""
    sql = f"{SELECT}{joined} {SESSIONS}{where.sql} ORDER BY t.at DESC, t.id{limit}"
    return [hit(row, what) for row in store.rows(sql, where.values)], total


def _looked(store: Store, what: Wanted, where: Where, watch: Watch | None) -> Iterator[Hit]:
    """The hits among all texts, looked at one by one: the index cannot tell. Only some are held at a time."""
    total = int(store.rows("SELECT count(*) FROM texts")[0][0])
    done, last = 0, -1
    while True:
        part = Where()
        part.parts, part.values = [*where.parts], [*where.values]
        part.add("t.id > ?", last)
        rows = store.rows(f"{SELECT} {SESSIONS}{part.sql} ORDER BY t.id LIMIT {BATCH}", part.values)
        yield from (hit(row, what) for row in rows if what.fits(row[5]))
        if len(rows) < BATCH:
            return
        done, last = done + len(rows), rows[-1][6]
        if watch is not None:
            watch(done, total)


def _quoted(parts: list[str]) -> str:
    """Each part as a phrase: both databases read it like this, and nothing in it has a meaning of its own."""
    return " ".join(f'"{part}"' for part in parts)


def hit(row: Row, what: Wanted) -> Hit:
    """A row with a piece of its text around what was found."""
    text = row[5]
    first = next((found.start() for found in what.pattern.finditer(text)), 0)
    begin = max(0, first - AROUND)
    snippet = ("…" if begin else "") + text[begin : begin + SNIPPET] + ("…" if len(text) > begin + SNIPPET else "")
    snippet = redact(snippet)
    marks = [found.span() for found in what.pattern.finditer(snippet) if found.end() > found.start()]
    at, session, run, project, role = row[:5]
    return Hit(at, session, run, project, role, snippet, marks)


# -- the index ---------------------------------------------------------------------------------------------------


def _is_ready(store: Store, watch: Watch | None) -> bool:
    """Whether the index holds every text. Where it cannot be written (a copy that one may only read), it may not."""
    try:
        if store.kind == "postgresql":
            ready_postgres(store)
        else:
            ready_sqlite(store, watch)
    except LedgerError:
        return False
    return True


def ready_sqlite(store: Store, watch: Watch | None = None) -> None:
    """Make the index where there is none, and take in what is not in it yet."""
    if not store.rows("SELECT 1 FROM sqlite_master WHERE name = 'texts_index'"):
        with store.writing():
            store.change(INDEX)
    total = int(store.rows(f"SELECT count(*) {_MISSING}")[0][0])
    done = 0
    while done < total:
        with store.writing():
            added = store.change(f"INSERT INTO texts_index (rowid, text) SELECT t.id, t.text {_MISSING} LIMIT {BATCH}")
        if added <= 0:
            break
        done += added
        if watch is not None:
            watch(done, total)


def ready_postgres(store: Store) -> None:
    """Make the index where there is none; the server keeps it up to date."""
    if not store.rows("SELECT to_regclass('texts_parts')")[0][0]:
        with store.writing():
            store.change(GIN)


def forget(store: Store) -> None:
    """Drop the index: the next search makes it anew."""
    store.change("DROP INDEX IF EXISTS texts_parts" if store.kind == "postgresql" else "DROP TABLE IF EXISTS texts_index")
