"""Make sessions at random, import what some witnesses saw of them, and compare with the truth.

    python -m tests.one_truth --count 1000              all agents and versions
    python -m tests.one_truth --version "claude 2.1"    these versions
    python -m tests.one_truth --case FILE               one case that was kept

Each case that fails is reduced, and kept as JSON in the folder that --keep names; the classes of
failures are counted at the end. The exit code is 1 if a case failed.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from steno.ledger.importer import import_sources
from steno.ledger.queries.filters import Filters, TimeZone
from steno.ledger.queries.usage import usage_report
from steno.ledger.rebuild import rebuild
from steno.ledger.store import Store, open_ledger
from tests.rebuild_kills import column_names
from tests.support import claude_truth, other_truth
from tests.support.claude_dialects import DIALECTS
from tests.support.claude_truth import Expected
from tests.support.claude_witness import ClaudeSession
from tests.support.other_witness import CLASSES, KINDS
from tests.support.session_files import SessionFiles
from tests.support.session_model import COUNTERS, Case, Kinds, Run, draw_runs, draw_steps

FIGURES = (*COUNTERS, "cost", "requests")
VERSIONS = [*(("claude", version) for version in DIALECTS), *KINDS]
COMPARED = ("requests", "spend", "sessions", "runs")
IGNORED_COLUMNS = ("seq", "source", "report")
MAX_REDUCTIONS = 150


class Finding(Struct, frozen=True):
    """One wrong answer; `kind` is its class."""

    kind: str
    expected: Any
    got: Any


def draw_case(random: Random, version: tuple[str, str] | None = None) -> Case:
    agent, name = version or random.choice(VERSIONS)
    case = Case(agent, name, draw_runs(random, kinds_of(agent, name)), ())
    return replace(case, steps=draw_steps(random, files_of(case).witnesses()))


def kinds_of(agent: str, version: str) -> Kinds:
    return DIALECTS[version].kinds if agent == "claude" else KINDS[(agent, version)]


def files_of(case: Case) -> SessionFiles:
    return ClaudeSession(case) if case.agent == "claude" else CLASSES[case.agent](case)


def truth_of(case: Case) -> Expected:
    if case.agent == "claude":
        return claude_truth.expected(case)
    return other_truth.expected(case)


# -- importing -----------------------------------------------------------------------------------


class Importer:
    """Writes the files of a case, as far as they go at a step, and imports them."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.session = files_of(case)
        self.folder = folder

    def write(self, witness: str, part: int = 100, is_copy: bool = False) -> list[str]:
        paths = []
        for file in self.session.files(witness):
            path = self.folder / ("copy" if is_copy else "files") / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".steno":
                path.unlink(missing_ok=True)
                self.session.write_recording(int(witness.removeprefix("tape")), path)
                data = path.read_bytes()
            else:
                data = b"".join(file.lines)
            path.write_bytes(data[: len(data) * part // 100])
            os.utime(path, (file.at_ms / 1000, file.at_ms / 1000))
            paths.append(str(path))
        return paths

    def run(self, store: Store, case: Case) -> list[str]:
        """Import step by step; returns what could not be imported."""
        troubles = []
        for step in case.steps:
            names = [
                path
                for witness in step.witnesses
                for path in self.write(witness, step.part, step.is_copy)
            ]
            done = import_sources(store, names, requests_only=step.is_usage_only)
            if step.part == 100:
                troubles += done.troubles
        return troubles


def usage_only_is_last(case: Case) -> bool:
    """Whether some witness was imported for its usage alone."""
    full = {
        name
        for step in case.steps
        if step.part == 100 and not step.is_usage_only
        for name in step.witnesses
    }
    return not case.seen <= full


# -- checking ------------------------------------------------------------------------------------


def totals(store: Store) -> dict[str, int]:
    report = usage_report(store, "day", TimeZone("UTC"), Filters())
    total = report.total
    figures = {name: getattr(total, name) for name in (*COUNTERS, "requests")}
    return {**figures, "cost": total.reported_nano + total.computed_nano}


def wrong_totals(got: dict[str, int], expected: Expected) -> Iterator[Finding]:
    """Tokens and cost that are outside of what the witnesses can know, and requests."""
    outside: dict[str, dict[str, tuple[Any, int]]] = {}
    for name in FIGURES:
        if name in expected.unknown:
            continue
        low, high = getattr(expected.low, name), getattr(expected.high, name)
        if name == "cost":  # each total is a float of dollars
            low, high = low - 50, high + 50
        if not low <= got[name] <= high:
            side = "too low" if got[name] < low else "too high"
            kind = f"requests {side}" if name == "requests" else side
            outside.setdefault(kind, {})[name] = (low if low == high else [low, high], got[name])
    for kind, figures in outside.items():
        wanted = {name: pair[0] for name, pair in figures.items()}
        yield Finding(kind, wanted, {name: pair[1] for name, pair in figures.items()})


def negative_rows(store: Store) -> Iterator[Finding]:
    names = (*COUNTERS, "requests", "cost_nano")
    where = " OR ".join(f"{name} < 0" for name in names)
    rows = store.query(f"SELECT kind, {', '.join(names)} FROM requests WHERE {where}")
    if rows:
        yield Finding("negative row", [], [list(row) for row in rows])


def rows_of(store: Store) -> dict[str, list[Any]]:
    """The rows by table; of copies of one file, any may be the source of a run."""
    found = {}
    for table in COMPARED:
        columns = [name for name in column_names(store, table) if name not in IGNORED_COLUMNS]
        rows = store.query(f"SELECT {', '.join(columns)} FROM {table}")
        found[table] = sorted((dict(zip(columns, row, strict=True)) for row in rows), key=repr)
    return found


def differing(kind: str, wanted: dict[str, list[Any]], got: dict[str, list[Any]]) -> list[Finding]:
    """The first table that differs; rows shortened to the columns that do, if it is one row."""
    for name in COMPARED:
        if wanted[name] != got[name]:
            missing = [row for row in wanted[name] if row not in got[name]]
            added = [row for row in got[name] if row not in wanted[name]]
            if len(missing) == len(added) == 1:
                changed = [key for key in missing[0] if missing[0][key] != added[0][key]]
                missing = [{key: missing[0][key] for key in changed}]
                added = [{key: added[0][key] for key in changed}]
            return [Finding(f"{kind}: {name}", missing[:2], added[:2])]
    return []


def check(case: Case, url: str, folder: Path) -> list[Finding]:
    """What is wrong with a case; `url` is an empty ledger, `folder` an empty folder.

    A rebuild reads the files in their own order, so it finds what depends on the order of imports.
    """
    importer = Importer(case, folder)
    expected = truth_of(case)
    with closing(open_ledger(url)) as store:
        found = [Finding("not imported", [], trouble) for trouble in importer.run(store, case)]
        got = totals(store)
        found += wrong_totals(got, expected)
        found += negative_rows(store)
        is_less = any(got[name] < getattr(expected.high, name) for name in COUNTERS)
        if expected.must_label and is_less and is_labelled(store) is False:
            found.append(Finding("not labelled", msgspec.to_builtins(expected.high), got))
        if not usage_only_is_last(case):
            before = rows_of(store)
            rebuild(store)
            found += differing("rebuild", before, rows_of(store))
    return found


def is_labelled(store: Store) -> bool | None:
    """Whether the total says that it is a lower bound; None while reports can't say so."""
    report = usage_report(store, "day", TimeZone("UTC"), Filters())
    partial: int | None = getattr(report.total, "partial", None)
    return None if partial is None else partial > 0


# -- reducing ------------------------------------------------------------------------------------


def simpler(case: Case) -> Iterator[Case]:
    """Cases with one thing less."""
    for number in reversed(range(len(case.steps))):
        if len(case.steps) > 1:
            yield replace(case, steps=case.steps[:number] + case.steps[number + 1 :])
    for number, step in enumerate(case.steps):
        for witness in step.witnesses if len(step.witnesses) > 1 else ():
            rest = tuple(name for name in step.witnesses if name != witness)
            yield _with_step(case, number, replace(step, witnesses=rest))
        if step.is_copy or step.is_usage_only:
            yield _with_step(case, number, replace(step, is_copy=False, is_usage_only=False))
    last = len(case.runs) - 1
    if last and not any(name.endswith(str(last)) for name in case.seen):
        yield replace(case, runs=case.runs[:-1])
    for number, run in enumerate(case.runs):
        for place in range(len(run.requests)):
            rest_of = run.requests[:place] + run.requests[place + 1 :]
            if any(request.kind == "main" for request in rest_of):
                yield _with_run(case, number, replace(run, requests=rest_of))
        for change in ({"gap_ms": 1_000}, {"file_delay_ms": 0}, {"end": "result"}):
            new = msgspec.convert({**msgspec.to_builtins(run), **change}, Run)
            if new != run and (run.end != "interrupt" or "end" not in change):
                yield _with_run(case, number, new)


def _with_step(case: Case, number: int, step: Any) -> Case:
    return replace(case, steps=(*case.steps[:number], step, *case.steps[number + 1 :]))


def _with_run(case: Case, number: int, run: Run) -> Case:
    return replace(case, runs=(*case.runs[:number], run, *case.runs[number + 1 :]))


def is_possible(case: Case) -> bool:
    names = {name for step in case.steps for name in step.witnesses}
    return bool(names) and names == case.seen and names <= set(files_of(case).witnesses())


def reduce(case: Case, kind: str) -> Case:
    """The smallest case found that fails in the same way."""
    left = MAX_REDUCTIONS
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for smaller in simpler(case):
            left -= 1
            if left < 0:
                break
            if is_possible(smaller) and kind in {f.kind for f in check_in_folder(smaller)}:
                case = smaller
                is_smaller = True
                break
    return case


@cache
def empty_ledger() -> str:
    """A ledger without rows; creating one takes longer than copying it."""
    path = Path(tempfile.mkdtemp(prefix="steno-truth-")) / "empty.db"
    open_ledger(str(path)).close()
    return str(path)


def check_in_folder(case: Case) -> list[Finding]:
    """Check with SQLite, in memory where the machine has a file system there."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112
    folder = Path(tempfile.mkdtemp(prefix="steno-truth-", dir=place))
    try:
        shutil.copy(empty_ledger(), folder / "ledger.db")
        return check(case, str(folder / "ledger.db"), folder)
    except Exception as error:  # a bug that would end a long run
        return [Finding(f"crash: {type(error).__name__}", None, str(error)[:200])]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- the long run --------------------------------------------------------------------------------


def try_seed(seed: tuple[int, str]) -> tuple[Case, list[Finding]]:
    number, wanted = seed
    versions = [version for version in VERSIONS if wanted in " ".join(version)]
    random = Random(number)
    case = draw_case(random, random.choice(versions))
    return case, check_in_folder(case)


def describe(case: Case) -> str:
    runs = [
        f"{n}: {run.end} {run.format}"
        + (
            f" {'forks' if run.is_fork else 'resumes'} {run.origin}"
            if run.origin is not None
            else ""
        )
        + f" [{' '.join(request.kind for request in run.requests)}] +{run.gap_ms} ms"
        for n, run in enumerate(case.runs)
    ]
    steps = [
        "+".join(step.witnesses)
        + (f" {step.part} %" if step.part < 100 else "")
        + (" copy" if step.is_copy else "")
        + (" usage" if step.is_usage_only else "")
        for step in case.steps
    ]
    return f"{case.agent} {case.version}; runs {'; '.join(runs)}; imports {' | '.join(steps)}"


def _describe_run(run: Run) -> str:
    word = "forks" if run.is_fork else "resumes"
    origin = "" if run.origin is None else f" {word} {run.origin}"
    kinds = " ".join(request.kind for request in run.requests)
    delay = f" (file {run.file_delay_ms} ms later)" if run.file_delay_ms else ""
    return f"{run.end} {run.format}{origin} [{kinds}] +{run.gap_ms} ms{delay}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=int(os.environ.get("STENO_EXAMPLES") or 1000))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--version", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--reduce", type=int, default=1, help="cases to reduce of a class")
    parser.add_argument("--keep", type=Path, help="folder for reduced cases")
    parser.add_argument("--case", type=Path, help="check one kept case")
    options = parser.parse_args()
    if options.case is not None:
        case = msgspec.json.decode(options.case.read_bytes(), type=Case)
        return _print_case(case, check_in_folder(case))
    return _long_run(options)


def _print_case(case: Case, found: list[Finding]) -> int:
    sys.stdout.write(f"{describe(case)}\n")
    for finding in found:
        sys.stdout.write(f"  {finding.kind}: expected {finding.expected}, got {finding.got}\n")
    return bool(found)


def _long_run(options: argparse.Namespace) -> int:
    seeds = [(options.seed + number, options.version) for number in range(options.count)]
    classes: dict[tuple[str, str], list[Case]] = {}
    failed = 0
    with get_context("fork").Pool(options.jobs) as pool:
        for case, found in pool.imap_unordered(try_seed, seeds, chunksize=8):
            failed += bool(found)
            for finding in found:
                classes.setdefault((f"{case.agent} {case.version}", finding.kind), []).append(case)
    for (version, kind), cases in sorted(classes.items(), key=lambda item: -len(item[1])):
        sys.stdout.write(f"{len(cases):>6}  {version}: {kind}\n")
        cases.sort(key=lambda case: len(msgspec.json.encode(case)))
        _reduce_class(cases[: options.reduce], kind, options.keep)
    sys.stdout.write(f"{failed} of {options.count} cases failed\n")
    return bool(failed)


def _reduce_class(cases: list[Case], kind: str, keep: Path | None) -> None:
    """Print the smallest cases of a class that differ in more than figures."""
    shapes = set()
    for case in cases:
        smaller = reduce(case, kind)
        if (name := shape(smaller)) in shapes:
            continue
        shapes.add(name)
        _print_case(smaller, [f for f in check_in_folder(smaller) if f.kind == kind])
        sys.stdout.flush()
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            file = f"{case.agent}-{case.version}-{kind}-{len(shapes)}.json"
            (keep / file.replace(" ", "_").replace(":", "")).write_bytes(
                msgspec.json.encode(smaller)
            )


def shape(case: Case) -> str:
    """What kinds of things a case consists of."""
    files = sorted({name.rstrip("0123456789") for name in case.seen})
    seen = [run for number, run in enumerate(case.runs) if _is_seen(case, number)]
    formats = sorted({run.format for run in seen})
    ends = sorted({run.end for run in case.runs} - {"result"})
    kinds = sorted({request.kind for run in case.runs for request in run.requests} - {"main"})
    fork = ["fork"] if any(run.is_fork for run in case.runs) else []
    return " ".join([*files, *formats, *ends, *kinds, *fork])


def _is_seen(case: Case, run: int) -> bool:
    return bool({f"out{run}", f"tape{run}"} & case.seen)


if __name__ == "__main__":
    sys.exit(main())
