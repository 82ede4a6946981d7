"""The same run has the same words and figures in `ps`, `top`, `runs`, JSON, page and library."""

import csv
import html
import io
import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec import Struct

import steno
from steno.tui import snapshot
from steno.views.formatting import format_compact, format_money
from steno.views.table import Cell
from tests.support.claude_lines import assistant, call, init, result, stream, text
from tests.support.scripted_place import NEWEST, Json, Place
from tests.web.conftest import serving

DEADLINE_SECONDS = 30.0
QUESTION = stream(
    init(), assistant(text("I looked around.")), result("Two are here.\nWhich one?", num_turns=1)
).decode()
WORKING = {
    "out": stream(init(), assistant(call("c1", "Bash", command="make test"))).decode(),
    "sleep": 60,
    "interrupted": 130,
}
SERVER_ERROR = (
    "API Error: 500 Internal server error. This is a server-side issue, usually temporary — try "
    "again in a moment. If it persists, check your inference gateway (127.0.0.1:18002)."
)


class Seen(Struct, frozen=True):
    """What a place says of a run; texts as they are printed."""

    state: str
    reason: str | None
    cost: str
    tokens: str | None = None


FINISHED: dict[str, tuple[Json, Seen]] = {
    "well": (
        {"recording": str(NEWEST / "multi_tool_edit")},
        Seen("success", None, "$0.0821", "148k"),
    ),
    "denied": (
        {"recording": str(NEWEST / "permission_denied")},
        Seen("permission", "2 calls denied (Write, Bash)", "$0.0221", "42.2k"),
    ),
    "question": ({"out": QUESTION}, Seen("interactive", "asks: Which one?", "$0.0110", "21.1k")),
    "failure": (
        {"recording": str(NEWEST / "api_500_exhausted")},
        Seen("api", SERVER_ERROR, "$0.00", "0"),
    ),
    "stopped": (
        WORKING,
        Seen("interrupted", "interrupted (Ctrl-C or steno stop)", "$0.009037", "21.0k"),
    ),
}


class Runs:
    """A place with a run of each kind, by name; the last one is still active."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ledger = str(place.folder / "ledger.db")
        options = ("run", "--quiet", "--attempts", "1", "--ledger", self.ledger)
        for name, (step, _) in FINISHED.items():
            place.plan(step)
            process = place.start(*options, "--name", name, f"do {name}")
            if step is WORKING:
                self.wait_for_call()
                assert place.steno("stop", self.active()["run_id"]).returncode == 0
            process.communicate(timeout=DEADLINE_SECONDS)
        self.process = place.start(*options, "do active")
        self.wait_for_call()

    def active(self) -> Json:
        rows = json.loads(self.text("ps", "--json"))["rows"]
        return dict(rows[0]) if rows else {}

    def wait_for_call(self) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.active().get("tool") != "Bash":
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def text(self, *words: str) -> str:
        options = [] if words[0] in ("ps", "show") else ["--no-import"]
        done = self.place.steno(*words, *options, "--ledger", self.ledger, COLUMNS="500")
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def rows(self) -> dict[str, Json]:
        return {row["name"]: row for row in json.loads(self.text("runs", "--json"))["rows"]}


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with TemporaryDirectory(prefix="steno-") as folder:
        runs = Runs(Place(Path(folder)))
        yield runs
        runs.place.steno("stop", runs.active()["run_id"])
        runs.process.communicate(timeout=DEADLINE_SECONDS)


EXPECTED = {name: seen for name, (_, seen) in FINISHED.items()}


def amounts(total: int | None, usd: float | None) -> tuple[str, str]:
    return format_money(usd), format_compact(total)


def test_json_csv_and_library(runs: Runs) -> None:
    rows = runs.rows()
    listed = {
        name: Seen(
            row["verdict"], row["reason"], *amounts(row["tokens"]["total"], row["cost"]["usd"])
        )
        for name, row in rows.items()
        if name is not None
    }
    assert listed == EXPECTED
    with closing(io.StringIO(runs.text("runs", "--csv"))) as file:
        table = {row["name"]: row for row in csv.DictReader(file)}
    assert {name: table[name]["reason"] or None for name in EXPECTED} == {
        name: seen.reason for name, seen in EXPECTED.items()
    }
    with steno.Ledger(runs.ledger) as ledger:
        found = {run.name: run for run in ledger.runs()}
        reports = {name: ledger.report(found[name].run_id) for name in EXPECTED}
    for name, seen in EXPECTED.items():
        run, report = found[name], reports[name]
        shown = json.loads(runs.text("show", run.run_id, "--json"))
        assert (shown["verdict"], shown["reason"]) == (seen.state, seen.reason)
        assert Seen(run.state, run.reason, *amounts(run.tokens.total, run.cost.usd)) == seen
        figures = amounts(report.tokens.total, report.cost.usd)
        assert Seen(report.verdict, report.reason, *figures) == seen


def test_tables(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """`steno runs` and `steno top`: the columns that both have are equal for all runs."""
    runs.place.enter(monkeypatch)
    names = [column.name for column in snapshot.COLUMNS]
    top = {}
    for run in snapshot.load_snapshot(runs.ledger).runs:
        texts = [cell.text if isinstance(cell, Cell) else cell for cell in run.cells]
        top[run.run_id[:8]] = dict(zip(names, texts, strict=True))
    short_ids = {row["run_id"][:8]: name for name, row in runs.rows().items()}
    lines = [re.split(r" {2,}", line) for line in runs.text("runs").splitlines()[1:]]
    finished = [cells for cells in lines if short_ids.get(cells[0])]
    assert len(finished) == len(EXPECTED)
    for short, *cells in finished:
        name = short_ids[short]
        seen, row = EXPECTED[name], top[short]
        assert (row["state"], row["cost"]) == (seen.state, seen.cost)
        assert {seen.state, seen.cost, seen.tokens, row["time"], row["activity"]} <= {*cells}
        assert row["activity"] == (seen.reason or name)


def test_page(runs: Runs) -> None:
    rows = {row["run_id"]: name for name, row in runs.rows().items() if name is not None}
    with serving(runs.place) as page:
        listed = {}
        for part in page.text("/runs?last=all").split('<tr data-href="/runs/')[1:]:
            state, cost, tokens = (
                re.findall(pattern, part)[0]
                for pattern in (
                    r'<span class="verdict \w+">(.*?)</span>',
                    r'<td class="num">(.*?)</td>',
                    r'<td class="num opt">(.*?)</td>',
                )
            )
            reason = re.findall(r'<p class="why">(.*?)</p>', part)
            name = rows.get(part.partition('"')[0])
            listed[name] = Seen(state, html.unescape(reason[0]) if reason else None, cost, tokens)
        del listed[None]
        assert listed == EXPECTED
        for id_, name in rows.items():
            text_ = html.unescape(page.text(f"/runs/{id_}"))
            shown = EXPECTED[name].reason or "the run finished, and the agent reports success"
            assert re.findall(r'<span id="reason">(.*?)</span>', text_) == [shown]
            assert f"<dd>{EXPECTED[name].cost}</dd>" in text_


def test_an_active_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no verdict and no reason yet; `ps`, `top` and the page show the same."""
    state = runs.active()
    (row,) = [row for row in runs.rows().values() if row["run_id"] == state["run_id"]]
    assert (row["verdict"], row["ok"], row["reason"], state["state"]) == (*[None] * 3, "running")
    assert f"{state['run_id'][:8]}  " in runs.text("runs", "--verdict", "running")
    expected = [format_money(state["cost_usd"]), "2%", "Bash make test"]
    ps = re.split(r" {2,}", runs.text("ps").splitlines()[1])
    assert [ps[-5], ps[-4][-2:], ps[-3]] == expected
    runs.place.enter(monkeypatch)
    cells = snapshot.load_snapshot(runs.ledger).runs[0].cells
    texts = [cell.text if isinstance(cell, Cell) else cell for cell in cells]
    assert [texts[1], texts[4], texts[5][-2:], texts[-1]] == ["running", *expected]
    with serving(runs.place) as page:
        (item,) = re.findall(r"<li data-href.*?</li>", page.text("/"), re.DOTALL)
    shown = re.findall(r"<span[^>]*>([^<]*)</span>", item)
    assert [shown[0], shown[2], shown[1]] == ["running", expected[0], expected[2]]
    assert re.findall(r"(\d+%)</span>", item) == ["2%"]
