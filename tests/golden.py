"""The golden cases: folders of recorded bytes with their expected report.

A new case is a new folder below `tests/recordings`: `stdout` (with `stderr` and `exit_code`) or
transcript files, and an `expected.json`. `python -m tests.golden FOLDER...` prints the current
report, to be checked by eye; `--write` stores it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

import steno
from steno.recording.open import find_recordings

ROOT = Path(__file__).parent / "recordings"
CASES = sorted(path.parent for path in ROOT.rglob("expected.json"))


def name(case: Path) -> str:
    """A case's name in the output of the tests."""
    return str(case.relative_to(ROOT))


def reports(case: Path) -> list[dict[str, Any]]:
    """The reports of everything in a case's folder."""
    return [comparable(steno.read(path)) for path in find_recordings(case)]


def expected(case: Path) -> list[dict[str, Any]]:
    """The reports that were checked and kept; fields that are newer have their default."""
    kept: list[dict[str, Any]] = json.loads((case / "expected.json").read_text("utf-8"))
    unknown = {name for report in kept for name in report} - set(steno.Report.__struct_fields__)
    assert not unknown, f"no such fields: {unknown}"
    return [comparable(msgspec.convert(report, steno.Report)) for report in kept]


def comparable(report: steno.Report) -> dict[str, Any]:
    """A report without where it was read from, and what every run of a version has loaded."""
    values: dict[str, Any] = json.loads(report.to_json())
    del values["source"]
    del values["setup"]
    return values


def main(words: list[str]) -> int:
    """Print, or with --write keep, what the program says of the given folders."""
    for folder in (Path(word) for word in words if word != "--write"):
        text = json.dumps(reports(folder), ensure_ascii=False, indent=1)
        if "--write" in words:
            (folder / "expected.json").write_text(text + "\n", "utf-8")
        else:
            print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
