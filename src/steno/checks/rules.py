"""The rules of a policy: each is a name, a parser of its value, and a function to findings. Pure.

A rule about an unknown figure fails: a limit that cannot be checked does not hold.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from msgspec import Struct

from ..codec.redact import redact, redact_and_truncate, redact_value
from ..config import closest_name
from ..config.values import parse_count, parse_dollars, parse_duration, parse_fraction
from ..report import VERDICTS, ChangedFile, Report
from .facts import CallFact, RunFacts

MAX_LISTED = 5  # calls, files or matches named in one message
MAX_QUOTED_CHARS = 80
MAX_SEARCHED_CHARS = 2_000  # of a command, for secrets
# Patterns that `count_text` knows by name.
NAMED_PATTERNS = {
    "url": r"https?://[^\s<>\"')\]]+",
    "email": r"[\w.+-]+@[\w-]+\.[\w.-]+",
    "date": r"\b\d{4}-\d{2}-\d{2}\b",
    "list_item": r"(?m)^[ \t]*(?:[-*+]|\d+[.)])[ \t]+\S",
    "heading": r"(?m)^#{1,6}[ \t]+\S",
    "code_block": r"(?ms)^[ \t]*```.*?^[ \t]*```",
}


class RuleFinding(Struct, frozen=True):
    """A broken rule: the figure, the limit, and the lines of the recording that prove it.

    Made by `make_finding`, without secrets.
    """

    rule: str
    message: str
    actual: Any = None
    expected: Any = None
    lines: tuple[int, ...] = ()
    paths: tuple[str, ...] = ()


class TextCount(Struct, frozen=True):
    """How often a pattern must occur in the answer."""

    pattern: str
    minimum: int
    maximum: int | None = None
    name: str | None = None


# What a check returns: message, actual value, and optionally lines and paths.
Broken = tuple[str, Any, Sequence[int], Sequence[str]]
Check = Callable[[RunFacts, Any], Iterator[Broken]]


class Rule(NamedTuple):
    """A rule. `needs`: calls or patch, if the report alone is not enough.

    `is_live`: once broken it stays broken, so that it can stop an active run.
    """

    parse: Callable[[Any], Any]
    check: Check
    summary: str
    example: str
    needs: str = "report"
    is_live: bool = False


# -- values ---------------------------------------------------------------------------------------


def parse_whole(value: Any) -> int:
    """A whole number from 0 on; large ones may be written 200k."""
    if value in (0, "0") and not isinstance(value, bool):
        return 0
    try:
        return parse_count(value)
    except ValueError:
        raise ValueError("a whole number, such as 0, 20 or 200k") from None


def parse_list(value: Any) -> tuple[str, ...]:
    """One text or a list of texts."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values:
        raise ValueError("text or a list of texts")
    if not all(isinstance(item, str) and item for item in values):
        raise ValueError("text or a list of texts, none of them empty")
    return tuple(values)


def parse_patterns(value: Any) -> tuple[str, ...]:
    """One regular expression or a list of them."""
    patterns = parse_list(value)
    for pattern in patterns:
        _compile(pattern)
    return patterns


def parse_verdicts(value: Any) -> tuple[str, ...]:
    words = parse_list(value)
    for word in words:
        if word not in VERDICTS:
            closest = closest_name(word, VERDICTS)
            hint = f"did you mean {closest}?" if closest else f"one of {', '.join(VERDICTS)}"
            raise ValueError(f"a verdict, found {word!r}; {hint}")
    return words


def parse_seconds(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds is None:
        raise ValueError("a duration, such as 90s or 20m")
    return seconds


def parse_counts(value: Any) -> tuple[TextCount, ...]:
    """A table, or a list of tables, with `match` and `min` or `max`."""
    tables = [value] if isinstance(value, dict) else value
    if not isinstance(tables, list) or not tables:
        raise ValueError('a table such as { match = "url", min = 3 }, or a list of them')
    return tuple(_parse_count_table(table) for table in tables)


def _parse_count_table(table: Any) -> TextCount:
    expected = 'a table such as { match = "url", min = 3, max = 10 }'
    if not isinstance(table, dict) or not isinstance(table.get("match"), str):
        raise ValueError(expected)
    if set(table) - {"match", "min", "max"} or not set(table) & {"min", "max"}:
        raise ValueError(expected)
    match: str = table["match"]
    pattern = NAMED_PATTERNS.get(match, match)
    _compile(pattern)
    maximum = parse_whole(table["max"]) if "max" in table else None
    return TextCount(
        pattern=pattern,
        minimum=parse_whole(table.get("min", 0)),
        maximum=maximum,
        name=match,
    )


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"a valid regular expression ({error}): {pattern!r}") from None


@lru_cache(maxsize=256)
def _path_pattern(pattern: str) -> re.Pattern[str]:
    """A path, or a glob, of a file or a folder with everything below it."""
    parts = re.split(r"(\*\*/?|\*|\?)", pattern.removeprefix("./").rstrip("/") or ".")
    tokens = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    body = "".join(tokens.get(part) or re.escape(part) for part in parts)
    return re.compile(f"{'.*' if body == re.escape('.') else body}(?:/.*)?", re.DOTALL)


def matches_path(path: str, patterns: Iterable[str]) -> bool:
    return any(_path_pattern(pattern).fullmatch(path) for pattern in patterns)


# -- checks ---------------------------------------------------------------------------------------


def _quote(text: str) -> str:
    """One line without secrets, which are recognised before it is joined and cut."""
    line = " ".join(redact_and_truncate(text, MAX_SEARCHED_CHARS).split())
    is_cut = len(line) > MAX_QUOTED_CHARS or len(text) > MAX_SEARCHED_CHARS
    return f"{line[:MAX_QUOTED_CHARS]}..." if is_cut else line


def _names(items: Iterable[str]) -> str:
    names = list(dict.fromkeys(items))
    rest = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _lines(calls: Iterable[CallFact]) -> list[int]:
    return [call.line for call in calls if call.line]


def _limit(
    noun: str, figure: Callable[[RunFacts], float | None], form: Callable[[float], str]
) -> Check:
    """A check that a figure is known and not above the limit."""

    def check(facts: RunFacts, limit: float) -> Iterator[Broken]:
        value = figure(facts)
        if value is None:
            yield f"{noun} unknown (limit {form(limit)})", None, facts.report.evidence, ()
        elif value > limit:
            yield f"{noun} {form(value)}, limit {form(limit)}", value, facts.report.evidence, ()

    return check


def format_whole(value: float) -> str:
    return f"{value:,.0f}"


def format_dollars(value: float) -> str:
    return f"${value:,.4f}" if value < 0.1 else f"${value:,.2f}"


def format_seconds(value: float) -> str:
    return f"{value:,.1f} s" if value < 60 else f"{value / 60:,.1f} min"


def format_fraction(value: float) -> str:
    return f"{value * 100:.1f} %"


def _peak_fraction(report: Report) -> float | None:
    context = report.context
    return context.peak / context.limit if context.peak is not None and context.limit else None


def _duration(facts: RunFacts) -> float | None:
    milliseconds = facts.report.duration_ms
    return None if milliseconds is None else milliseconds / 1000


def _check_verdict(facts: RunFacts, wanted: tuple[str, ...]) -> Iterator[Broken]:
    report = facts.report
    if report.verdict not in wanted:
        reason = f": {_quote(report.error)}" if report.error else ""
        yield f"verdict {report.verdict}{reason}", report.verdict, report.evidence, ()


def _tool_names(facts: RunFacts) -> list[str]:
    return list(facts.report.tool_counts)


def _matching_tool(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _tool_lines(facts: RunFacts, names: Iterable[str]) -> list[int]:
    wanted = set(names)
    return _lines(call for call in facts.calls or () if call.name in wanted)


def _check_required_tools(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    used = _tool_names(facts)
    missing = [
        pattern for pattern in patterns if not any(_matching_tool(name, [pattern]) for name in used)
    ]
    if missing:
        yield f"not used: {_names(missing)}", missing, (), ()


def _check_forbidden_tools(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    names = [name for name in _tool_names(facts) if _matching_tool(name, patterns)]
    if names:
        yield f"used: {_names(names)}", names, _tool_lines(facts, names), ()


def _check_allowed_tools(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    names = [name for name in _tool_names(facts) if not _matching_tool(name, patterns)]
    if names:
        yield f"used: {_names(names)}", names, _tool_lines(facts, names), ()


def _commands(facts: RunFacts) -> list[CallFact]:
    return [call for call in facts.calls or () if call.command]


def _check_required_commands(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    succeeded = [call.command or "" for call in _commands(facts) if call.ok]
    missing = [
        pattern for pattern in patterns if not any(_compile(pattern).search(c) for c in succeeded)
    ]
    if missing:
        yield f"no successful command matches {_names(missing)}", missing, (), ()


def _check_forbidden_commands(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    calls = [
        call
        for call in _commands(facts)
        if not call.denied and any(_compile(p).search(call.command or "") for p in patterns)
    ]
    if calls:
        commands = [_quote(call.command or "") for call in calls]
        yield f"ran: {_names(commands)}", commands, _lines(calls), ()


def _file_lines(facts: RunFacts, files: Iterable[ChangedFile]) -> list[int]:
    lines = facts.change_lines
    found = (lines.get(file.absolute) or lines.get(file.path) or 0 for file in files)
    return sorted({line for line in found if line})


def _changed(facts: RunFacts, files: list[ChangedFile]) -> Iterator[Broken]:
    if files:
        paths = [file.path for file in files]
        yield f"changed: {_names(paths)}", paths, _file_lines(facts, files), paths


def _check_allowed_files(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    outside = [file for file in facts.report.files if not matches_path(file.path, patterns)]
    return _changed(facts, outside)


def _check_forbidden_files(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    return _changed(facts, [f for f in facts.report.files if matches_path(f.path, patterns)])


def _check_required_files(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    paths = [file.path for file in facts.report.files]
    missing = [
        pattern for pattern in patterns if not any(matches_path(path, [pattern]) for path in paths)
    ]
    if missing:
        yield f"not changed: {_names(missing)}", missing, (), ()


def _check_required_text(facts: RunFacts, texts: tuple[str, ...]) -> Iterator[Broken]:
    missing = [text for text in texts if text not in facts.report.text]
    if missing:
        yield f"missing in the answer: {_names(map(_quote, missing))}", missing, (), ()


def _check_forbidden_text(facts: RunFacts, texts: tuple[str, ...]) -> Iterator[Broken]:
    found = [text for text in texts if text in facts.report.text]
    if found:
        yield f"found in the answer: {_names(map(_quote, found))}", found, (), ()


def _check_matching_text(facts: RunFacts, patterns: tuple[str, ...]) -> Iterator[Broken]:
    missing = [pattern for pattern in patterns if not _compile(pattern).search(facts.report.text)]
    if missing:
        yield f"the answer does not match {_names(missing)}", missing, (), ()


def _check_min_length(facts: RunFacts, limit: int) -> Iterator[Broken]:
    length = len(facts.report.text)
    if length < limit:
        yield f"answer has {length:,} characters, at least {limit:,} wanted", length, (), ()


def _check_counts(facts: RunFacts, counts: tuple[TextCount, ...]) -> Iterator[Broken]:
    for count in counts:
        found = sum(1 for _ in _compile(count.pattern).finditer(facts.report.text))
        wanted = f"at least {count.minimum}"
        if count.maximum is not None:
            wanted = f"{count.minimum} to {count.maximum}"
        if found < count.minimum or (count.maximum is not None and found > count.maximum):
            yield f"{count.name}: {found} in the answer, {wanted} wanted", found, (), ()


def longest_repetition(calls: Iterable[CallFact]) -> list[CallFact]:
    """The longest series of identical calls in a row."""
    series = (list(group) for _, group in groupby(calls, key=lambda call: call.signature))
    return max(series, key=len, default=[])


def _check_repetitions(facts: RunFacts, limit: int) -> Iterator[Broken]:
    calls = longest_repetition(facts.calls or ())
    if len(calls) > limit:
        what = _quote(calls[0].command or calls[0].name)
        text = f"the same call {len(calls)} times in a row, limit {limit}: {what}"
        yield text, len(calls), _lines(calls), ()


def _failing_repetition(calls: list[CallFact]) -> list[CallFact]:
    series = groupby(calls, key=lambda call: (call.signature, call.ok is False))
    return max((list(group) for (_, is_failed), group in series if is_failed), key=len, default=[])


def _check_failing_repetitions(facts: RunFacts, limit: int) -> Iterator[Broken]:
    calls = _failing_repetition(facts.calls or [])
    if len(calls) > limit:
        what = _quote(calls[0].command or calls[0].name)
        text = f"the same call failed {len(calls)} times in a row, limit {limit}: {what}"
        yield text, len(calls), _lines(calls), ()


def _check_schema(facts: RunFacts, schema: Any) -> Iterator[Broken]:
    result = schema.check(facts.report.structured_output, facts.report.text)
    if result.errors:
        yield f"invalid answer: {'; '.join(result.errors)}", list(result.errors), (), ()


def _parse_schema_later(value: Any) -> Any:
    if not isinstance(value, str | dict) or not value:
        raise ValueError("the path of a JSON schema, or the schema as a table")
    return value


RULES: dict[str, Rule] = {
    "verdict": Rule(parse_verdicts, _check_verdict, "accepted verdicts", '"success"'),
    "max_cost": Rule(
        parse_dollars,
        _limit("cost", lambda facts: facts.report.cost.usd, format_dollars),
        "cost in US dollars",
        "2.50",
    ),
    "max_tokens": Rule(
        parse_whole,
        _limit("tokens", lambda facts: facts.report.tokens.total, format_whole),
        "total tokens",
        '"500k"',
    ),
    "max_turns": Rule(
        parse_whole,
        _limit("turns", lambda facts: facts.report.turns, format_whole),
        "turns of the main thread",
        "30",
    ),
    "max_duration": Rule(
        parse_seconds, _limit("duration", _duration, format_seconds), "duration of the run", '"20m"'
    ),
    "max_context": Rule(
        parse_fraction,
        _limit("peak context", lambda facts: _peak_fraction(facts.report), format_fraction),
        "highest use of the context window, as a fraction",
        "0.8",
    ),
    "max_retries": Rule(
        parse_whole,
        _limit("retried requests", lambda facts: len(facts.report.retries), format_whole),
        "requests that the agent retried",
        "3",
    ),
    "max_denials": Rule(
        parse_whole,
        _limit("denied calls", lambda facts: len(facts.report.denials), format_whole),
        "denied tool calls",
        "0",
    ),
    "max_tool_errors": Rule(
        parse_whole,
        _limit(
            "failed calls",
            lambda facts: sum(count.errors for count in facts.report.tool_counts.values()),
            format_whole,
        ),
        "failed tool calls",
        "5",
    ),
    "require_tools": Rule(
        parse_list, _check_required_tools, "tools that must be used (globs)", '["Edit"]'
    ),
    "allow_tools": Rule(
        parse_list,
        _check_allowed_tools,
        "the only tools that may be used (globs)",
        '["Read", "Edit", "mcp__docs__*"]',
        is_live=True,
    ),
    "forbid_tools": Rule(
        parse_list,
        _check_forbidden_tools,
        "tools that must not be used (globs)",
        '["WebFetch"]',
        is_live=True,
    ),
    "require_commands": Rule(
        parse_patterns,
        _check_required_commands,
        "shell commands that must succeed (regular expressions)",
        '["^make test"]',
        needs="calls",
    ),
    "forbid_commands": Rule(
        parse_patterns,
        _check_forbidden_commands,
        "shell commands that must not be run (regular expressions)",
        '["rm -rf", "git push"]',
        needs="calls",
        is_live=True,
    ),
    "allow_files": Rule(
        parse_list,
        _check_allowed_files,
        "the only files that may be changed (paths, folders or globs)",
        '["src/", "tests/"]',
        is_live=True,
    ),
    "forbid_files": Rule(
        parse_list,
        _check_forbidden_files,
        "files that must not be changed",
        '[".github/", "**/*.lock"]',
        is_live=True,
    ),
    "require_files": Rule(
        parse_list, _check_required_files, "files that must be changed", '["CHANGELOG.md"]'
    ),
    "max_files": Rule(
        parse_whole,
        _limit("changed files", lambda facts: len(facts.report.files), format_whole),
        "changed files",
        "20",
    ),
    "max_changed_lines": Rule(
        parse_whole,
        _limit("changed lines", lambda facts: facts.changed_lines, format_whole),
        "lines that the agent's edits add and remove",
        "400",
        needs="patch",
    ),
    "max_repeated_calls": Rule(
        parse_whole,
        _check_repetitions,
        "identical tool calls in a row",
        "5",
        needs="calls",
        is_live=True,
    ),
    "max_repeated_failures": Rule(
        parse_whole,
        _check_failing_repetitions,
        "identical tool calls in a row that fail",
        "3",
        needs="calls",
        is_live=True,
    ),
    "require_text": Rule(
        parse_list, _check_required_text, "texts that the answer must contain", '["All tests pass"]'
    ),
    "forbid_text": Rule(
        parse_list, _check_forbidden_text, "texts that the answer must not contain", '["TODO"]'
    ),
    "match_text": Rule(
        parse_patterns,
        _check_matching_text,
        "regular expressions that the answer must match",
        '["[0-9]+ passed"]',
    ),
    "count_text": Rule(
        parse_counts,
        _check_counts,
        f"matches of a regular expression, or of {', '.join(NAMED_PATTERNS)}",
        '{ match = "url", min = 3 }',
    ),
    "min_text_length": Rule(
        parse_whole, _check_min_length, "minimum length of the answer, in characters", "200"
    ),
    "max_text_length": Rule(
        parse_whole,
        _limit("characters of the answer", lambda facts: len(facts.report.text), format_whole),
        "maximum length of the answer, in characters",
        '"20k"',
    ),
    "json_schema": Rule(
        _parse_schema_later,
        _check_schema,
        "JSON schema of the structured output, or of the JSON in the answer",
        '"answer.schema.json"',
    ),
}


def make_finding(
    rule: str,
    message: str,
    actual: Any = None,
    expected: Any = None,
    *,
    lines: Iterable[int] = (),
    paths: Iterable[str] = (),
) -> RuleFinding:
    """A finding whose message, value and paths contain no secrets."""
    return RuleFinding(
        rule=rule,
        message=redact(message),
        actual=redact_value(actual),
        expected=expected,
        lines=tuple(lines),
        paths=tuple(map(redact, paths)),
    )


def check_rule(name: str, value: Any, facts: RunFacts) -> list[RuleFinding]:
    """The findings of one rule for one run."""
    return [
        make_finding(name, message, actual, _plain(value), lines=lines, paths=paths)
        for message, actual, lines, paths in RULES[name].check(facts, value)
    ]


def _plain(value: Any) -> Any:
    """A rule's value as JSON; a schema by its kind only."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, TextCount):
        return {"match": value.name, "min": value.minimum, "max": value.maximum}
    return value if isinstance(value, str | int | float) else None
