"""Read the recordings in other projects' repositories and compare steno with the raw lines.

    python -m tests.public_data DIR [REPOSITORY...]    DIR holds clones of the repositories
    python -m tests.public_data --list                 what to clone, as git commands

`repositories.toml` names them, with the commit that was tried and the licence; nothing of them is
kept here. Every file that `find.py` takes for an agent's is shown, exported in three formats and
imported twice. Tokens, requests, calls, cost, changed files and texts must equal those that
`tests/raw_counts.py` finds in the raw lines, and those that the project itself asserts. Prints what
differs and a table; the exit code is 1 if anything differs. `--verbose` also lists what was refused
and what steno does not know.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.public_data.check import Asserted, FileResult, check_asserted, check_file
from tests.public_data.find import find
from tests.public_data.run_steno import preload

LIST = Path(__file__).with_name("repositories.toml")
EXAMPLE = Path(__file__).parents[1] / "recordings/claude/2.1.325/multi_tool_edit"
TITLES = ("repository", "commit", "files", "read", "refused", "figures", "unknown", "differ")


class Repository(Struct):
    """A project with recordings.

    `explained`: files of which some figures differ, with the reason why steno is right.
    """

    name: str
    commit: str
    licence: str
    asserted: list[Asserted] = []
    explained: dict[str, str] = {}


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    repositories = [r for r in load() if not options.names or r.name in options.names]
    if options.list:
        print("\n".join(map(clone_command, repositories)))
        return 0
    with tempfile.TemporaryDirectory(prefix="steno-public-") as home:
        preload(Path(home), EXAMPLE)
    rows = []
    wrong = 0
    missing = []
    for repository in repositories:
        folder = folder_of(options.folder, repository)
        if folder is None:
            missing.append(repository)
            continue
        results = list(check_repository(repository, folder))
        print_results(repository, results, options.verbose)
        wrong += sum(bool(result.differs) for result in results)
        rows.append(table_row(repository, folder, results))
    print_table(rows)
    if missing:
        print(f"\nnot in {options.folder}:", *map(clone_command, missing), sep="\n  ")
    return 1 if wrong or not rows else 0


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.public_data", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", type=Path, nargs="?", help="folder of the clones")
    parser.add_argument("names", nargs="*", help="owner/name (default: all)")
    parser.add_argument("--list", action="store_true", help="print the commands that clone them")
    parser.add_argument("--verbose", action="store_true", help="list what is unknown and refused")
    options = parser.parse_args(words)
    if not options.list and (options.folder is None or not options.folder.is_dir()):
        parser.error("name the folder with the clones: make public-data DIR=FOLDER")
    return options


def load() -> list[Repository]:
    return msgspec.convert(tomllib.loads(LIST.read_text("utf-8"))["repository"], list[Repository])


def folder_of(folder: Path, repository: Repository) -> Path | None:
    """The clone: `owner+name`, `owner/name` or `name` below the folder."""
    owner, _, name = repository.name.partition("/")
    for each in (folder / f"{owner}+{name}", folder / owner / name, folder / name):
        if each.is_dir():
            return each
    return None


def clone_command(repository: Repository) -> str:
    folder = repository.name.replace("/", "+")
    return (
        f"git clone https://github.com/{repository.name} {folder}"
        f" && git -C {folder} checkout {repository.commit}  # {repository.licence}"
    )


def check_repository(repository: Repository, folder: Path) -> Iterator[FileResult]:
    for found in find(folder):
        name = str(found.path.relative_to(folder))
        result = FileResult(name, f"{found.agent} {found.kind}")
        with tempfile.TemporaryDirectory(prefix="steno-public-") as home:
            check_file(Path(home), found, result)
        if name in repository.explained:
            result.differs.clear()
        yield result
    for asserted in repository.asserted:
        with tempfile.TemporaryDirectory(prefix="steno-public-") as home:
            yield check_asserted(Path(home), folder, asserted)


def print_results(repository: Repository, results: list[FileResult], verbose: bool) -> None:
    for result in results:
        place = f"{repository.name}  {result.file}  [{result.format}]"
        for name, text in result.differs.items():
            print(f"{place}  {name}: {text}")
        if verbose and result.refused:
            print(f"{place}  refused: {result.refused}")
        if verbose and result.unknown:
            print(f"{place}  unknown: {', '.join(result.unknown)}")
    sys.stdout.flush()


def table_row(repository: Repository, folder: Path, results: list[FileResult]) -> list[str]:
    files = [result for result in results if not result.format.startswith("asserted")]
    refused = Counter(result.format for result in files if result.refused)
    reasons = ", ".join(f"{number} {format_}" for format_, number in refused.items())
    return [
        repository.name,
        commit_of(folder)[:8],
        str(len(files)),
        str(sum(result.refused is None for result in files)),
        reasons or "0",
        str(sum(result.checked for result in results)),
        str(sum(len(result.unknown) for result in results)),
        str(sum(bool(result.differs) for result in results)),
    ]


def commit_of(folder: Path) -> str:
    command = ("git", "-C", folder, "rev-parse", "HEAD")
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def print_table(rows: list[list[str]]) -> None:
    numbers = [[int(row[index]) for row in rows] for index in (2, 3, 5, 6, 7)]
    files, read, figures, unknown, differ = (str(sum(column)) for column in numbers)
    total = [f"{len(rows)} repositories", "", files, read, "", figures, unknown, differ]
    table = [list(TITLES), *rows, total]
    widths = [max(len(row[index]) for row in table) for index in range(len(TITLES))]
    print()
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
