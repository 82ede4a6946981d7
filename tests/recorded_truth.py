"""Compare the ledger of recordings and their session files with each other and with the truth.

    python -m tests.recorded_truth                  tests/recordings
    python -m tests.recorded_truth FOLDER           folders with stdout, session-files, truth.json

Prints a table: what the ledger says of stdout, of the session's files and of both, against what the
server sent. The exit code is 1 if a figure is wrong and not marked as a lower bound.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

import steno
from steno.ledger.importer import import_sources
from steno.ledger.rebuild import rebuild
from steno.ledger.store import open_ledger
from tests.golden import ROOT
from tests.one_truth import differing, is_labelled, rows_of, totals
from tests.support.session_model import COUNTERS

FILE_FOLDERS = ("sessions", "session-files")
Sums = dict[str, int]


class Recorded(Struct, frozen=True):
    """A run's recording and the files of its session; `truth`: what the server sent, if known."""

    name: str
    folder: Path
    files: tuple[str, ...]
    truth: dict[str, Any] | None = None


class Outcome(Struct):
    """The sums by source, and what is wrong with them."""

    sums: dict[str, Sums]
    wrong: list[str]
    is_labelled: bool


def session_files(folder: Path) -> tuple[str, ...]:
    found = [path for name in FILE_FOLDERS for path in (folder / name).rglob("*.jsonl")]
    return tuple(sorted(map(str, found)))


def recorded_here() -> Iterator[Recorded]:
    """The recordings of this repository that have files of their session."""
    for stdout in sorted(ROOT.glob("*/*/*/stdout")):
        folder = stdout.parent
        files = session_files(folder)
        if folder.parents[1].name == "claude":
            kept = ROOT / "transcripts" / folder.parent.name / folder.name
            files += tuple(sorted(map(str, kept.rglob("*.jsonl"))))
        # Its session has two runs, whose scripted messages have the same ids and figures.
        if files and folder.name != "hang_sigint_resume":
            yield Recorded(str(folder.relative_to(ROOT)), folder, files)


def recorded_in(root: Path) -> Iterator[Recorded]:
    """Folders with a `truth.json`; runs that share their session's files have a common truth."""
    folders = [path.parent for path in sorted(root.glob("*/truth.json"))]
    truths = {folder: json.loads((folder / "truth.json").read_bytes()) for folder in folders}
    for folder in folders:
        files = session_files(folder)
        names = relative_names(folder)
        runs = [other for other in folders if names == relative_names(other)]
        truth = truths[folder]
        if len(runs) > 1 and names and "session_so_far" not in truth:
            sums = {n: sum(truths[run]["tokens_all"][n] for run in runs) for n in COUNTERS}
            truth["session_so_far"] = {"tokens_all": sums}
        yield Recorded(folder.name, folder, files, truth)


def relative_names(folder: Path) -> set[str]:
    return {str(Path(file).relative_to(folder)) for file in session_files(folder)}


# -- one recording -------------------------------------------------------------------------------


def compare(recorded: Recorded, work: Path) -> Outcome:
    """Import each source alone, then both in either order, then rebuild."""
    stdout = (str(recorded.folder),)
    sums: dict[str, Sums] = {}
    wrong: list[str] = []
    labelled = has_warnings(recorded)
    ways = {"stdout": stdout, "files": recorded.files, "both": (*stdout, *recorded.files)}
    for number, (way, paths) in enumerate(ways.items()):
        if not paths or (way == "both" and not recorded.files):
            continue
        with closing(open_ledger(str(work / f"{number}.db"))) as store:
            for path in paths:
                import_sources(store, [path])
            sums[way] = totals(store)
            labelled = labelled or bool(is_labelled(store))
            if way == "both":
                wrong += _depends_on_order(store, paths, work)
    wrong += list(_inconsistent(sums))
    if recorded.truth is not None:
        wrong += list(_untrue(recorded.truth, sums, labelled))
    return Outcome(sums, wrong, labelled)


def has_warnings(recorded: Recorded) -> bool:
    words = ("lower bound", "upper bound", "leave out", "unknown", "uncertain")
    warnings = steno.read(recorded.folder).warnings
    return any(word in warning for warning in warnings for word in words)


def _depends_on_order(store: Any, paths: Iterable[str], work: Path) -> Iterator[str]:
    before = rows_of(store)
    with closing(open_ledger(str(work / "reverse.db"))) as other:
        for path in reversed(tuple(paths)):
            import_sources(other, [path])
        yield from (finding.kind for finding in differing("order", before, rows_of(other)))
    rebuild(store)
    yield from (finding.kind for finding in differing("rebuild", before, rows_of(store)))


def _inconsistent(sums: dict[str, Sums]) -> Iterator[str]:
    """Both together are not less than one, nor more than both: a run in both counts once."""
    if "both" not in sums:
        return
    for name in COUNTERS:
        parts = [sums[way][name] for way in ("stdout", "files")]
        if not max(parts) <= sums["both"][name] <= sum(parts):
            yield f"{name} of both"
    is_same = all(sums["stdout"][name] == sums["files"][name] for name in COUNTERS)
    if is_same and any(sums["both"][name] != sums["files"][name] for name in COUNTERS):
        yield "counted twice"


def _untrue(truth: dict[str, Any], sums: dict[str, Sums], is_labelled: bool) -> Iterator[str]:
    run = truth["tokens_all"]
    session = truth.get("session_so_far", truth)["tokens_all"]
    for way, got in sums.items():
        # An earlier version counts some answers more than once: not more than the agent says.
        agent = (truth.get("agent") or {}).get("mu_tokens") or {}
        for name in COUNTERS:
            true = (run if way == "stdout" else session)[name]
            if got[name] > max(true, agent.get(name, 0) if way == "stdout" else 0):
                yield f"{way}: {name} {got[name]} above the truth {true}"
            elif got[name] < true and not is_labelled:
                yield f"{way}: {name} {got[name]} below the truth {true}, not marked"


# -- the table -----------------------------------------------------------------------------------


def main(folder: Path | None) -> int:
    cases = list(recorded_here() if folder is None else recorded_in(folder))
    failed = 0
    for recorded in cases:
        with tempfile.TemporaryDirectory(prefix="steno-truth-") as work:
            outcome = compare(recorded, Path(work))
        failed += bool(outcome.wrong)
        sys.stdout.write(_row(recorded, outcome) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{failed} of {len(cases)} recordings are wrong\n")
    return bool(failed)


def _row(recorded: Recorded, outcome: Outcome) -> str:
    cells = []
    for way in ("stdout", "files", "both"):
        got = outcome.sums.get(way)
        cells.append("-" if got is None else f"{_tokens(got):,} ${got['cost'] / 1e9:.6f}")
    true = "-"
    if recorded.truth is not None:
        session = recorded.truth.get("session_so_far", recorded.truth)
        true = f"{_tokens(session['tokens_all']):,}"
    mark = "at least" if outcome.is_labelled else ""
    verdict = "; ".join(outcome.wrong) or mark or "ok"
    columns = (f"{recorded.name:48}", *(f"{cell:>24}" for cell in cells), f"{true:>12}", verdict)
    return " ".join(columns)


def _tokens(sums: Sums) -> int:
    return sum(sums[name] for name in COUNTERS)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else None))
