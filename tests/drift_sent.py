"""What the model server sent in a recording, by its truth.json: see `drift_truth`."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steno import event as ev
from steno.pricing import price

Counts = tuple[int, ...]
Answer = dict[str, Any]  # with key, model, `complete` and the usage sent; old recordings have none
COUNTERS = ("input", "cache_write", "cache_read", "output")
KEYS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
HELPER = "notools"  # the key of a request without tools, as for a title: some figures omit these
HELPER_OUTPUT = 2  # tokens of each such answer


class Sent(Struct):
    """What the server sent: the figures that count as right, with some helper requests or none."""

    totals: list[Counts]
    requests: set[int]
    costs: list[float]
    answers: list[Answer]
    is_one_run: bool = True


def load(folder: Path) -> Any:
    return msgspec.json.decode((folder / "truth.json").read_bytes())


def sent_in_run(truth: dict[str, Any]) -> Sent:
    numbers = {truth[name] for name in ("requests", "sent", "begun") if truth.get(name) is not None}
    cost = (truth.get("agent") or {}).get("own_cost")
    return sent_of(truth, truth.get("answers_sent") or [], numbers, cost)


def sent_of(truth: Any, answers: list[Answer], numbers: set[int], cost: float | None) -> Sent:
    """`truth` has the tokens of all requests and those without helpers."""
    bare, every = counts(truth["tokens_nohelp"]), counts(truth["tokens_all"])
    # At least one: a helper of OpenCode may have 1 token of output.
    helpers = max((every[3] - bare[3]) // HELPER_OUTPUT, int(every != bare))
    requests = {number - n for number in numbers for n in range(helpers + 1)}
    totals, prices = possible(answers)
    known = [] if cost is None else [cost]
    return Sent([bare, every, *totals], requests, known + prices, answers)


def sent_in_session(folder: Path, truth: dict[str, Any]) -> Sent:
    """All runs of the session so far: a transcript has them all."""
    so_far = truth.get("session_so_far")
    if so_far is None:
        runs = [load(other) for other in with_same_transcripts(folder)]
        if len(runs) == 1:
            return sent_in_run(truth)
        sent = sent_of(added(runs), [], {sum(run["sent"] for run in runs)}, None)
    else:
        start = "-".join(folder.name.split("-")[:2])
        paths = [path for run in so_far["runs"] for path in folder.parent.glob(f"{start}*-{run}")]
        runs = [load(path) for path in paths]
        is_complete = len(runs) == len(so_far["runs"])
        answers = [one for run in runs for one in run["answers_sent"]] if is_complete else []
        sent = sent_of(so_far, answers, {so_far["sent"]}, so_far["cost_by_the_agent"])
        # A fork has a copy of the session before it, which may go on without it.
        session = truth["agent"]["session_id"]
        own = [run for run in runs if run["agent"]["session_id"] == session]
        sent.totals.append(counts(added(own)["tokens_nohelp"]))
        sent.requests.add(sum(run["sent"] for run in own))
        sent.costs.append(sum(run["agent"]["own_cost"] or 0 for run in own))
    sent.is_one_run = False
    return sent


def with_same_transcripts(folder: Path) -> list[Path]:
    """The recordings with the same transcripts: they have all of their runs."""
    own = transcripts(folder)
    return [other for other in folder.parent.iterdir() if transcripts(other) == own]


def transcripts(folder: Path) -> set[bytes]:
    return {path.read_bytes() for path in (folder / "session-files").rglob("*.jsonl")}


def added(runs: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    return {
        name: {counter: sum(run[name][counter] for run in runs) for counter in COUNTERS}
        for name in ("tokens_all", "tokens_nohelp")
    }


def counts(tokens: dict[str, Any]) -> Counts:
    return tuple(tokens[name] for name in COUNTERS)


def counts_of(answer: Answer) -> Counts:
    return tuple((answer["final"] or {}).get(key) or 0 for key in KEYS)


def add(parts: Iterable[Counts]) -> Counts:
    return tuple(map(sum, zip((0, 0, 0, 0), *parts, strict=True)))


def possible(answers: list[Answer]) -> tuple[list[Counts], list[float]]:
    """Tokens and dollars by the price list, with every choice of helpers and cut answers."""
    optional = [one for one in answers if one["key"] == HELPER or not one["complete"]]
    always = [one for one in answers if one not in optional]
    sums, prices = [], []
    for n in range(len(optional) + 1) if answers else ():
        for some in combinations(optional, n):
            sums.append(add(map(counts_of, (*always, *some))))
            costs = [list_price(one) for one in (*always, *some)]
            prices += [] if None in costs else [sum(cost or 0 for cost in costs) / 1e9]
    return sums, prices


def list_price(answer: Answer) -> int | None:
    figures = dict(zip(COUNTERS, counts_of(answer), strict=True))
    return price(answer["model"], ev.ModelUsage(**figures), None)
