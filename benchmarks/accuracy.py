"""Compare the totals of steno and its peers for one known session in many variants.

Run as `python -m benchmarks.accuracy`. Expected is the agent's own total. Exits with 1 unless steno
is exact in every variant; the answers of peers are only shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers import Figures, Home, Peer, figures, peers
from benchmarks.table import number, save, table
from benchmarks.variants import Variant, variants

STENO = (sys.executable, "-m", "steno")
EXACT, ABSENT, UNREADABLE, NONE = "exact", "not installed", "failed", "-"
# Tolerance of costs in dollars: one peer rounds to a hundredth of a cent; ours is exact.
THEIRS, OURS = 0.00005, 1e-9


@dataclass(frozen=True)
class Answer:
    """The answer of a tool for a variant; `note` is the reason if there is none."""

    tool: str
    figures: Figures | None
    note: str = ""
    margin: float = THEIRS


# --- asking steno


def steno_totals(answer: dict[str, Any]) -> Figures:
    """The totals in the output of `steno usage --json`."""
    total = answer.get("total") or {}
    tokens, cost = total.get("tokens") or {}, total.get("cost") or {}
    names = ("input", "cache_write", "cache_read", "output")
    return figures((tokens.get(name) for name in names), cost.get("usd"))


def source(home: Home) -> Path:
    """The whole home if it has streams, else the transcripts."""
    return home.path if (home.path / "runs").exists() else home.projects()


def without_ledger(home: Home) -> Figures:
    return steno_totals(
        json.loads(home.run([*STENO, "usage", "model", "--no-ledger", source(home), "--json"]))
    )


def imported(home: Home, ledger: str) -> Figures:
    """Import twice; the second import must change nothing."""
    for _ in range(2):
        home.run([*STENO, "ledger", "import", source(home), "--ledger", ledger, "--quiet"])
    return steno_totals(
        json.loads(
            home.run([*STENO, "usage", "model", "--json", "--no-import", "--ledger", ledger])
        )
    )


def with_ledger(home: Home) -> Figures:
    return imported(home, f"sqlite:///{home.path}/whole.db")


def in_parts(home: Home) -> Figures:
    """Import the first half of each file, cut within a line, and then the whole file."""
    ledger = f"sqlite:///{home.path}/parts.db"
    files = [
        path for path in home.path.rglob("*") if path.suffix == ".jsonl" or path.name == "stdout"
    ]
    whole = {path: path.read_bytes() for path in files}
    for path, data in whole.items():
        path.write_bytes(data[: len(data) // 2])
    home.run([*STENO, "ledger", "import", source(home), "--ledger", ledger, "--quiet"])
    for path, data in whole.items():
        with path.open("ab") as file:
            file.write(data[len(data) // 2 :])
    return imported(home, ledger)


STENOS: dict[str, Callable[[Home], Figures]] = {
    "steno, no ledger": without_ledger,
    "steno, ledger": with_ledger,
    "steno, in parts": in_parts,
}


# --- asking


def answered(tool: str, ask: Callable[[], Figures]) -> Answer:
    try:
        return Answer(tool, ask())
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        return Answer(tool, None, f"{UNREADABLE}: {lines[-1][:80]}" if lines else UNREADABLE)
    except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError, OSError) as error:
        return Answer(tool, None, f"{UNREADABLE}: {str(error)[:80]}")


def ours(home: Home) -> list[Answer]:
    return [
        replace(answered(tool, partial(ask, home)), margin=OURS) for tool, ask in STENOS.items()
    ]


def theirs(variant: Variant, home: Home, peer: Peer) -> Answer:
    program = peer.program
    if program is None or not program.exists():
        return Answer(peer.name, None, ABSENT)
    if variant.streams:
        return Answer(peer.name, None, NONE)
    return answered(peer.name, partial(peer.ask, program, home))


def fresh(variant: Variant, folder: str, name: str) -> Home:
    """A separate home for each tool."""
    home = Home(Path(folder) / name)
    home.path.mkdir()
    variant.write(home)
    return home


def answers(variant: Variant, tools: Sequence[Peer]) -> list[Answer]:
    with tempfile.TemporaryDirectory() as folder:
        return ours(fresh(variant, folder, "steno")) + [
            theirs(variant, fresh(variant, folder, peer.name), peer) for peer in tools
        ]


# --- judging


def money_differs(answer: Answer, truth: Figures) -> bool:
    """False for a tool without costs."""
    said = answer.figures.usd if answer.figures else None
    return said is not None and abs(said - (truth.usd or 0)) > answer.margin


def times(found: float, truth: float) -> str:
    return f"{found / truth:.2f}x" if truth else f"{found:,.4g} instead of 0"


def faults(answer: Answer, said: Figures, truth: Figures) -> Iterator[str]:
    """The differences, without the figures that the tool does not report."""
    names = {
        "input": "input",
        "cache_write": "cache write",
        "cache_read": "cache read",
        "output": "output",
    }
    for name, word in names.items():
        found, wanted = getattr(said, name), getattr(truth, name)
        if found is not None and found != wanted:
            yield f"{word} {times(found, wanted)}"
    if said.total is not None and said.total != truth.tokens():
        yield f"tokens {times(said.total, truth.tokens() or 0)}"
    if money_differs(answer, truth):
        yield f"USD {times(said.usd or 0, truth.usd or 0)}"


def verdict(answer: Answer, truth: Figures) -> str:
    if answer.figures is None:
        return answer.note
    found = list(faults(answer, answer.figures, truth))
    return "off: " + ", ".join(found) if found else EXACT


def exact(answer: Answer, truth: Figures) -> bool:
    """Whether all five figures are present and right."""
    said = answer.figures
    return (
        said is not None and None not in (said.input, said.usd) and verdict(answer, truth) == EXACT
    )


# --- showing


def cells(said: Figures) -> list[str]:
    counts = (said.input, said.cache_write, said.cache_read, said.output, said.tokens())
    return [*(number(count, 0) for count in counts), number(said.usd, 5)]


def rows(variant: Variant, found: list[Answer]) -> Iterator[list[str]]:
    yield [f"**{variant.name}**", "the agent", *cells(variant.truth), ""]
    for answer in found:
        shown = cells(answer.figures) if answer.figures else [NONE] * 6
        yield ["", answer.tool, *shown, verdict(answer, variant.truth)]


def details(found: dict[str, tuple[Variant, list[Answer]]]) -> str:
    head = ["variant", "tool", "input", "cache write", "cache read", "output", "total", "USD", ""]
    return table(head, [row for variant, some in found.values() for row in rows(variant, some)])


def short(answer: Answer, truth: Figures) -> str:
    """For the overview: exact, or the factors of tokens and cost."""
    said = answer.figures
    if said is None:
        return UNREADABLE if answer.note.startswith(UNREADABLE) else answer.note
    if verdict(answer, truth) == EXACT:
        return EXACT
    tokens, wanted = said.tokens(), truth.tokens() or 0
    parts = [] if tokens is None or tokens == wanted else [times(tokens, wanted)]
    if money_differs(answer, truth):
        parts.append(f"{times(said.usd or 0, truth.usd or 0)} $")
    return ", ".join(parts) or "split differs"


def overview(found: dict[str, tuple[Variant, list[Answer]]]) -> str:
    tools = [answer.tool for answer in next(iter(found.values()))[1]]
    lines = [
        [name, *(short(answer, variant.truth) for answer in some)]
        for name, (variant, some) in found.items()
    ]
    return table(["variant", *tools], lines)


def section(found: dict[str, tuple[Variant, list[Answer]]]) -> str:
    how = (
        "The same session in many variants, compared with the agent's own total: `exact`, or the"
        " factor of the tokens and the dollars (`$`) that a tool reports. `-`: it does not read"
        " streams. Tools without costs, or with one token sum only, are compared by what they"
        " report."
    )
    return "\n\n".join(["## Totals against the agent's own", how, overview(found)])


def wrong(found: dict[str, tuple[Variant, list[Answer]]]) -> list[str]:
    every = ((name, answer, variant) for name, (variant, some) in found.items() for answer in some)
    mine = ((name, answer, variant) for name, answer, variant in every if answer.tool in STENOS)
    return [
        f"{name}: {answer.tool}: {verdict(answer, one.truth)}"
        for name, answer, one in mine
        if not exact(answer, one.truth)
    ]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the totals of steno and its peers with the agent's own."
    )
    parser.add_argument("--only", default="", help="only variants with this text in their name")
    parser.add_argument("--alone", action="store_true", help="steno only, without peers")
    parser.add_argument("--brief", action="store_true", help="print the overview only")
    parser.add_argument("--out", type=Path, help="Markdown page to put the overview into")
    return parser.parse_args()


def main() -> int:
    given = options()
    tools = [] if given.alone else peers()
    chosen = [variant for variant in variants() if given.only in variant.name]
    found = {variant.name: (variant, answers(variant, tools)) for variant in chosen}
    if not given.brief:
        print(details(found) + "\n")
    print(section(found))
    if given.out:
        save(given.out, section(found), "accuracy")
    faults_of_ours = wrong(found)
    for fault in faults_of_ours:
        print(f"WRONG {fault}", file=sys.stderr)
    return 1 if faults_of_ours else 0


if __name__ == "__main__":
    sys.exit(main())
