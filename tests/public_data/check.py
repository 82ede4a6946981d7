"""Compare what steno says of one file, or of a folder of them, with what is in it."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from tests.public_data.find import Found, find, read_objects
from tests.public_data.run_steno import Ended, run_steno
from tests.raw_counts import NAMES, Counts, count

EXPORTS = {"html": ("--full",), "md": ("--full",), "json": ()}
Report = dict[str, Any]


class Asserted(Struct):
    """Figures that a project's own test asserts for a file or folder; `by` is that test.

    `report`: values of the report, by their path, such as tokens.total; a list's is its length.
    `ledger`: sums over the requests after an import, of one `day` (UTC) if given.
    `differs`: why steno has another figure.
    """

    path: str
    by: str
    report: dict[str, int | float] = {}
    ledger: dict[str, int | float] = {}
    day: date | None = None
    differs: str | None = None


class FileResult(Struct):
    """What was wrong with one file, and what steno does not know."""

    file: str
    format: str
    refused: str | None = None
    differs: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    checked: int = 0


def check_file(home: Path, found: Found, result: FileResult) -> None:
    """Run every command on a file and compare."""
    shown = run_steno(home, "show", "--json", found.path)
    if not _passed("show --json", shown, result, may_refuse=True):
        return
    report = msgspec.json.decode(shown.out)
    if found.kind == "other" or report["agent"] != found.agent:
        result.differs["agent"] = f"{report['agent']}, not {found.agent}"
        return
    _passed("show", run_steno(home, "show", found.path), result)
    counts = count(found.agent, found.kind, with_subagents(found))
    if counts is not None:
        _compare(report, counts, result)
    for form, words in EXPORTS.items():
        exported = run_steno(home, "export", found.path, "--format", form, *words)
        if _passed(f"export {form}", exported, result) and form == "json" and counts is not None:
            _check_texts(exported.out, counts, result)
    _check_import(home, found.path, report, result)


def _passed(command: str, ended: Ended, result: FileResult, may_refuse: bool = False) -> bool:
    """Note a command that failed. One that refuses the file says so in a line."""
    lines = ended.err.strip().splitlines() or ["no message"]
    if "Traceback" in ended.err or ended.code < 0:
        result.differs[command] = f"exit {ended.code}: {lines[-1]}"
    elif ended.code and may_refuse:
        result.refused = lines[0]
    elif ended.code:
        result.differs[command] = f"exit {ended.code}: {lines[0]}"
    return ended.code == 0 and command not in result.differs


def with_subagents(found: Found) -> list[dict[str, Any]]:
    """The objects of a file, and of its subagents' transcripts, which belong to the session.

    They are below the session's folder; versions before 2.1 wrote them next to it.
    """
    if (found.agent, found.kind) != ("claude", "transcript"):
        return found.objects
    below = found.path.with_suffix("") / "subagents"
    files = [each.objects for each in find(below)] if below.is_dir() else []
    for path in sorted(found.path.parent.glob("agent-*.jsonl")):
        objects = read_objects(path)
        if path != found.path and objects and objects[0].get("sessionId") == found.path.stem:
            files.append(objects)
    more = [{**value, "isSidechain": True} for objects in files for value in objects]
    return [*found.objects, *more]


def _compare(report: Report, counts: Counts, result: FileResult) -> None:
    """Each figure is that of the raw lines, or unknown."""
    if counts.tokens is not None:
        for name in NAMES:
            _check(result, f"tokens.{name}", report["tokens"][name], counts.tokens[name])
    elif report["tokens"]["total"]:
        result.differs["tokens"] = f"{report['tokens']['total']}, not unknown"
    if counts.requests is not None:
        _check(result, "requests", report["requests"], counts.requests)
    _check(result, "calls", len(report["tools"]), counts.calls)
    if counts.cost is not None and report["cost"]["source"] == "reported":
        _check(result, "cost", report["cost"]["usd"], counts.cost)
    if counts.files is not None:
        paths = {file["path"]: file["absolute"] for file in report["files"]}
        named = sorted(full if full in counts.files else path for path, full in paths.items())
        _check(result, "files", named, counts.files)
    _check(result, "text", _words(report["text"]), _words("\n".join(counts.texts)))


def _words(text: str) -> str:
    return " ".join(text.split())


def _check(result: FileResult, name: str, value: Any, expected: Any) -> None:
    result.checked += 1
    if value is None and expected is not None:
        result.unknown.append(name)
    elif isinstance(expected, float):
        if abs(value - expected) > 1e-9:
            result.differs[name] = f"{value}, not {expected}"
    elif value != expected:
        result.differs[name] = f"{_shorten(value, expected)}, not {_shorten(expected, value)}"


def _shorten(value: Any, other: Any) -> str:
    """A value; of long ones the part where they differ."""
    text = str(value)
    if len(text) < 60:
        return repr(value) if isinstance(value, str) else text
    pairs = enumerate(zip(text, str(other), strict=False))
    same = next((index for index, (one, two) in pairs if one != two), 0)
    return f"({len(text)} characters) {text[max(same - 10, 0) : same + 50]!r}"


def _check_texts(exported: bytes, counts: Counts, result: FileResult) -> None:
    """Everything that the agent said is in the export, but for masked secrets."""
    shown = " ".join(_words(text) for text in _strings_in(msgspec.json.decode(exported)))
    lost = [text for text in counts.texts if _words(text) not in shown]
    if lost and "[redacted" not in shown:
        result.differs["export"] = f"{len(lost)} texts are missing: {lost[0][:60]!r}"
    result.checked += 1


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(each)


# -- the ledger ------------------------------------------------------------------------------------

# Totals of sessions without requests, such as Copilot's shutdown, are in the hourly sums only.
SUMS_SQL = "SELECT " + ", ".join(f"sum({name}) AS {name}" for name in ("requests", *NAMES))
SUMS_SQL += " FROM spend"


def _check_import(home: Path, path: Path, report: Report, result: FileResult) -> None:
    """A second import adds nothing, and the ledger has the report's figures."""
    ledger = home / "ledger.db"
    command = ("ledger", "import", "--json", "--ledger", ledger, path)
    first = run_steno(home, *command)
    if not _passed("import", first, result):
        return
    if not msgspec.json.decode(first.out)["files"]:
        result.differs["import"] = "nothing was imported"
        return
    second = run_steno(home, *command)
    if _passed("import again", second, result):
        again = msgspec.json.decode(second.out)
        new = {name: again[name] for name in ("files", "runs", "requests", "calls") if again[name]}
        if new:
            result.differs["import again"] = f"added {new}"
    sums = _ledger_sums(home, ledger, result)
    for name in NAMES:
        if report["tokens"][name] is not None:
            _check(result, f"ledger.{name}", sums.get(name) or 0, report["tokens"][name])


def _ledger_sums(
    home: Path, ledger: Path, result: FileResult, day: date | None = None
) -> dict[str, int | None]:
    sql = SUMS_SQL
    if day is not None:
        first = day.toordinal() - date(1970, 1, 1).toordinal()
        sql += f" WHERE hour >= {24 * first} AND hour < {24 * (first + 1)}"
    query = run_steno(home, "ledger", "sql", "--json", "--ledger", ledger, sql)
    if not _passed("sql", query, result):
        return {}
    row: dict[str, int | None] = msgspec.json.decode(query.out)["rows"][0]
    return {**row, "total": sum(row[name] or 0 for name in NAMES)}


def check_asserted(home: Path, folder: Path, asserted: Asserted) -> FileResult:
    """Compare with the figures in a project's own tests."""
    result = FileResult(asserted.path, f"asserted by {asserted.by}")
    path = folder / asserted.path
    if asserted.report:
        shown = run_steno(home, "show", "--json", path)
        report = msgspec.json.decode(shown.out) if shown.out else {}
        for name, expected in asserted.report.items():
            _check(result, name, _value_at(report, name), expected)
    if asserted.ledger:
        ledger = home / "asserted.db"
        run_steno(home, "ledger", "import", "--ledger", ledger, path)
        sums = _ledger_sums(home, ledger, result, asserted.day)
        for name, expected in asserted.ledger.items():
            _check(result, f"ledger.{name}", sums.get(name), expected)
    if asserted.differs is not None:
        result.differs.clear()
    return result


def _value_at(report: Any, path: str) -> Any:
    for key in path.split("."):
        report = report.get(key) if isinstance(report, dict) else None
    return len(report) if isinstance(report, list) else report
