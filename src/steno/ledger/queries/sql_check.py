"""Check that a query only reads, before a PostgreSQL server sees it.

A superuser's SELECT can read files, run programs, stop other sessions or execute SQL in a text, all
through functions. So only known functions are allowed; a list of dangerous ones would never be
complete. The server's read-only transaction and role are the second line of defence.
"""

import re

from msgspec import Struct

from ...errors import LedgerError

READ_ONLY_MESSAGE = (
    "only SELECT, WITH, VALUES and EXPLAIN are allowed: this command never changes a ledger"
)
STATEMENTS = {"select", "with", "values", "explain"}
WRITING_WORDS = {"insert", "update", "delete", "merge", "into", "copy"}
# Words of the language that may stand before a parenthesis, and types with a length.
_SYNTAX_WORDS = """
    all analyze and any array as between bit by bpchar case cast char character coalesce
    collate cross cube decimal distinct else escape except exists explain extract fetch filter
    float for from full group grouping having ilike in inner interval intersect is join
    lateral left like limit materialized natural not numeric offset on or order outer over
    overlay partition position recursive right rollup row select sets similar some substring
    table then time timestamp timestamptz trim union using values varbit varchar varying
    verbose when where window with within
"""
SYNTAX_WORDS = frozenset(_SYNTAX_WORDS.split())
_FUNCTIONS = """
    abs acos age ascii asin atan atan2 avg bit_and bit_length bit_or bool_and bool_or btrim
    cardinality cbrt ceil ceiling char_length character_length chr clock_timestamp concat
    concat_ws corr cos count covar_pop covar_samp cume_dist current_setting decode degrees
    dense_rank div encode every exp first_value floor format gcd generate_series
    generate_subscripts greatest initcap isfinite justify_days justify_hours justify_interval
    lag last_value lcm lead least length ln log log10 lower lpad ltrim max md5 min mod mode
    nth_value ntile now nullif octet_length percent_rank pg_column_size pg_database_size
    pg_indexes_size pg_relation_size pg_size_pretty pg_table_size pg_total_relation_size
    pg_typeof pi power quote_ident quote_literal quote_nullable radians random rank repeat
    replace reverse round row_number row_to_json rpad rtrim scale sha224 sha256 sha384 sha512
    sign sin split_part sqrt starts_with statement_timestamp stddev stddev_pop stddev_samp
    strpos substr sum tan timezone transaction_timestamp translate trim_scale trunc unnest
    upper var_pop var_samp variance width_bucket
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
FUNCTION_FAMILIES = (
    *("array_", "date_", "json_", "jsonb_", "make_", "percentile_", "regexp_", "regr_", "string_"),
    *("to_char", "to_date", "to_hex", "to_json", "to_number", "to_timestamp"),
)
CATALOGS = {
    *("pg_catalog", "pg_class", "pg_namespace", "pg_tables", "pg_indexes", "pg_index", "pg_views"),
    *("pg_attribute", "pg_type", "pg_constraint", "pg_stat_user_tables", "pg_stat_user_indexes"),
}
TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n\r]*)"
    r"|(?P<comment>/\*)"
    r"|(?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)"
    r"|(?P<text>'(?:[^']|'')*')"
    r'|(?P<quoted>"(?:[^"]|"")+")'
    r"|(?P<number>\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+|\$\d+)"
    r"|(?P<word>[^\W\d][\w$]*)"
    r"|(?P<mark>.)",
    re.DOTALL,
)
NAMES = ("word", "quoted")
COMMENT_MARK = re.compile(r"/\*|\*/")


class Token(Struct, frozen=True):
    """A word in lower case, a quoted name, a value, or a single character."""

    kind: str
    value: str


def check_read_only(sql: str) -> None:
    """LedgerError if a query could do more than read, or is not understood."""
    tokens = tokenize(sql)
    while tokens and tokens[-1].value == ";":
        tokens.pop()
    if any(token.value == ";" for token in tokens):
        raise LedgerError("sql: expected one statement")
    if tokens and _first_word(tokens) not in STATEMENTS:
        raise LedgerError(f"sql: {READ_ONLY_MESSAGE}")
    for index, token in enumerate(tokens):
        if token.kind == "word" and token.value in WRITING_WORDS and not _is_after(tokens, index):
            raise LedgerError(f"sql: {READ_ONLY_MESSAGE}")
        if token.kind in NAMES:
            _check_name(tokens, index)


def tokenize(sql: str) -> list[Token]:
    """The tokens as PostgreSQL sees them, without comments."""
    tokens = []
    position = 0
    while match := TOKEN.match(sql, position):
        kind = str(match.lastgroup)
        position = match.end()
        value = match[0]
        if kind == "comment":
            position = _end_of_comment(sql, position)
        elif kind == "word":
            if value.lower() + sql[position : position + 1] in ("e'", "n'", "u&"):
                raise LedgerError(f"sql: {value}'...' is not supported; use '...' and chr()")
            tokens.append(Token(kind, value.lower() if value.isascii() else value))
        elif kind == "quoted":
            tokens.append(Token(kind, value[1:-1].replace('""', '"')))
        elif value in ("'", '"'):
            raise LedgerError(f"sql: no closing {value}")
        elif kind != "space":
            tokens.append(Token(kind, value if kind == "mark" else ""))
    return tokens


def _end_of_comment(sql: str, position: int) -> int:
    """The position behind a comment; comments can contain others."""
    depth = 1
    while depth:
        match = COMMENT_MARK.search(sql, position)
        if match is None:
            raise LedgerError("sql: no closing */")
        depth += 1 if match[0] == "/*" else -1
        position = match.end()
    return position


def _first_word(tokens: list[Token]) -> str:
    """The statement's first word; that of the query for EXPLAIN with its options."""
    words = iter(tokens)
    first = next((token.value for token in words if token.value != "("), "")
    if first != "explain":
        return first
    depth = 0
    for token in words:
        if token.value in ("(", ")"):
            depth += 1 if token.value == "(" else -1
        elif not depth and token.value not in ("analyze", "analyse", "verbose"):
            return token.value
    return first


def _is_after(tokens: list[Token], index: int) -> bool:
    """Whether a name is that of a column: after a point."""
    return index > 0 and tokens[index - 1].value == "."


def _check_name(tokens: list[Token], index: int) -> None:
    name = tokens[index].value
    is_call = index + 1 < len(tokens) and tokens[index + 1].value == "("
    if is_call and not _is_allowed_call(tokens, index):
        raise LedgerError(f"sql: function {name} is not allowed; see `steno ledger sql --help`")
    if not is_call and name.startswith("pg_") and name not in CATALOGS:
        raise LedgerError(f"sql: {name} is not allowed: only the ledger can be read")


def _is_allowed_call(tokens: list[Token], index: int) -> bool:
    name = tokens[index].value
    if _is_after(tokens, index):
        return tokens[index - 2].value == "pg_catalog" and _is_allowed_function(name)
    if _is_allowed_function(name):
        return True
    if tokens[index].kind == "word" and name in SYNTAX_WORDS:
        return True
    previous = tokens[index - 1].value if index and tokens[index - 1].kind == "word" else ""
    if previous in ("as", "with", "recursive"):  # an alias or a query's name, with its columns
        return True
    return _is_named_query(tokens, index)


def _is_allowed_function(name: str) -> bool:
    return name in FUNCTIONS or name.startswith(FUNCTION_FAMILIES)


def _is_named_query(tokens: list[Token], index: int) -> bool:
    """Whether this is `, NAME (COLUMNS) AS (SELECT ...)`: columns are names only."""
    end = index + 2
    while end < len(tokens) and (
        tokens[end].kind in ("word", "quoted") or tokens[end].value == ","
    ):
        end += 1
    following = [token.value for token in tokens[end : end + 6]]
    if following[:2] != [")", "as"]:
        return False
    rest = [word for word in following[2:] if word not in ("not", "materialized")]
    return rest[:1] == ["("] and rest[1:2] in (["select"], ["with"], ["("])
