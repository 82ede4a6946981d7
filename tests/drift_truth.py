"""Compare the reports of recordings with what the model server sent, field by field.

    python -m tests.drift_truth DIR...    each folder below DIR that has a truth.json

A folder holds `stdout`, perhaps `session-files` (the agent's transcripts), and `truth.json`. Both
are read with `steno show --json`. A figure must equal the truth, be unknown, or have a label: a
warning about it, or a source that says that it is a bound. The exit code is 1 if one differs
without a label. `--all` also prints those that are equal.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.drift_sent import (
    Answer,
    Counts,
    Sent,
    add,
    counts,
    counts_of,
    load,
    possible,
    sent_in_run,
    sent_in_session,
)

Row = tuple[str, str, Any, Any, str]  # recording, field, truth, steno, how they compare
LABELS = {  # words of a warning about a field
    "tokens": ("token", "totals", "usage"),
    "models": ("token", "totals", "usage", "cost"),
    "subagents": ("subagent",),
    "requests": ("request",),
    "cost": ("cost", "price", "totals leave out"),
}


def compare(folder: Path) -> Iterator[Row]:
    """The rows of one recording: of its stream, then of its transcript."""
    truth = load(folder)
    stream = show(folder)[0]
    yield from compare_report(folder.name, stream, truth, sent_in_run(truth))
    path = folder / "session-files"
    for report in show(path) if path.exists() else ():
        if report["session_id"] == stream["session_id"] and report["session_id"]:
            sent = sent_in_session(folder, truth)
            yield from compare_report(f"{folder.name} (transcript)", report, truth, sent)


def show(path: Path) -> list[dict[str, Any]]:
    command = (sys.executable, "-m", "steno", "show", "--json", str(path))
    output = subprocess.run(command, capture_output=True, check=False).stdout
    return [msgspec.json.decode(line) for line in output.splitlines()]


# -- one report ------------------------------------------------------------------------------------


def compare_report(name: str, report: Any, truth: dict[str, Any], sent: Sent) -> Iterator[Row]:
    want = truth.get("want") or {}

    def row(field: str, right: Any, given: Any, is_equal: bool, bound: str = "") -> Row:
        how = "equal" if is_equal else label(field, report, given) or bound or "DIFFERS"
        return (name, field, right, given, how)

    if want.get("tokens") != "skip":
        given = known(counts(report["tokens"]))
        yield row("tokens", sent.totals[0], given, given in sent.totals)
        requests = report["requests"]
        yield row("requests", max(sent.requests), requests, requests in sent.requests)
        usd = report["cost"]["usd"]
        if sent.costs and want.get("cost") != "skip" and (sent.answers or sent.is_one_run):
            is_equal = usd is not None and any(abs(usd - cost) < 1e-6 for cost in sent.costs)
            yield row("cost", round(sent.costs[0], 6), usd, is_equal)
    # An older recording's verdict is that of the situation, which its version may not know.
    if want.get("verdict") and (want["verdict"] != ["success"] or not truth["exit"]):
        verdict = report["verdict"]
        is_equal = bool({verdict, report["error_category"]} & set(want["verdict"]))
        bound = "labelled: no_result" if name.endswith(")") and verdict == "no_result" else ""
        yield row("verdict", want["verdict"], verdict, is_equal, bound)
    if sent.is_one_run:
        yield from compare_details(row, report, truth, sent.answers)


def compare_details(row: Any, report: Any, truth: Any, answers: list[Answer]) -> Iterator[Row]:
    """What a transcript has of all runs of the session, or the truth of one run only."""
    want = truth.get("want") or {}
    if want.get("context") != "skip":
        used, source = report["context"]["used"], report["context"]["source"]
        is_equal = used in (truth["context"], truth.get("context_begun"))
        bound = "labelled: upper_bound" if source == "upper_bound" else ""
        yield row("context", truth["context"], used, is_equal, bound)
    if want.get("files") != "skip":
        files = {file["path"]: file["change"] for file in report["files"]}
        by_shell = want.get("shell_files") or ()
        changed = {path: how for path, how in truth["files"].items() if path not in by_shell}
        more = {path for path in files if path not in changed and files[path] == "modified"}
        rest = {path: how for path, how in files.items() if path not in more}
        same = "labelled: written with the same content" if rest == changed else ""
        yield row("files", changed, files, files == changed, same)
    if "denials" in want:
        denials = len(report["denials"])
        yield row("denials", want["denials"], denials, denials == want["denials"])
    for model, share in report["models"].items() if answers else ():
        totals, _ = possible([one for one in answers if one["model"] == model.split("[")[0]])
        given = known(counts(share))
        yield row("models", (model, totals and totals[0]), given, given in totals)
    right = add(counts_of(one) for one in answers if one["key"].startswith("r"))
    if any(right) and report["subagents"]:
        rows = [known(counts(one["tokens"])) for one in report["subagents"]]
        given = None if None in rows else add(filter(None, rows))
        is_bound = any(one.get("is_lower_bound") for one in report["subagents"])
        yield row("subagents", right, given, given == right, "labelled: at least" * is_bound)


def known(figures: Counts) -> Counts | None:
    return None if None in figures else figures


def label(field: str, report: Any, given: Any) -> str:
    if given is None:
        return "labelled: unknown"
    words = LABELS.get(field, ())
    if field == "cost" and report["cost"]["source"] == "computed":
        words = (*words, *LABELS["tokens"])  # it follows from them
    if field == "verdict" and "or the answer was cut off" in (report["error"] or ""):
        return "labelled: the message names the alternatives"
    texts = [text for text in report["warnings"] if any(word in text for word in words)]
    return f"labelled: {texts[0]}" if texts else ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    paths = sorted({path.parent for top in options.folders for path in top.rglob("truth.json")})
    rows = [row for path in paths for row in compare(path)]
    for row in rows:
        if options.all or row[-1] != "equal":
            print(*row, sep=" | ")
    labelled = sum(row[-1].startswith("labelled") for row in rows)
    differing = sum(row[-1] == "DIFFERS" for row in rows)
    print(f"{len(paths)} recordings, {len(rows)} figures, {labelled} labelled, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
