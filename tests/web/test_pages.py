"""The pages on both databases, and on a ledger without anything."""

import re
from pathlib import Path
from typing import Any

from steno.ledger.protocol import now_ms
from steno.report import VERDICTS
from tests.support.ledger_builder import HOUR, Book
from tests.support.scripted_place import Place
from tests.web.conftest import serving

ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)


def test_every_list_on_both_databases(book: Book, ledger_url: str, tmp_path: Path) -> None:
    """The figures are those of the ledger, whichever database it is in."""
    now = now_ms()
    session = book.session("s1", title="Fix the parser", first_at=now - HOUR, last_at=now)
    book.request(session, now - HOUR, cost_nano=1_500_000_000)
    book.text(session, now - HOUR, "Fix the parser", role="prompt")
    book.call(session, now - HOUR)
    book.run(
        "run1",
        session=session,
        started_at=now - HOUR,
        prompt="Fix the parser",
        verdict="api",
        error="Overloaded",
        cost_nano=1_500_000_000,
    )
    later: dict[str, Any] = {"session": session, "started_at": now, "prompt": "continue"}
    book.run("run2", task="task1", attempt=2, **later)
    book.insert("tasks", id="task1", prompt="Port the importer", attempts=2)
    with serving(Place(tmp_path / "place"), "--ledger", ledger_url) as page:
        overview = page.text("/")
        assert re.findall(r"<dt>Spent in 30 days</dt><dd>(.*?)</dd>", overview) == ["$1.50"]
        assert '<p class="why">Overloaded</p>' in overview
        assert "Port the importer</a>" in page.text("/runs")  # not "continue"
        for target in ("/runs", "/runs?sort=cost&verdict=failed", "/runs/run1"):
            assert "Fix the parser" in page.text(target)
        for target in ("/sessions", "/sessions?sort=cost", "/search?q=parser", "/sessions/s1"):
            assert "parser" in page.text(target)
        tools = page.text("/tools")
        assert "Bash" in tools
        assert ("Denied" in tools, "efused" in tools) == (True, False)  # the words of the CLI
        assert "its recording" in page.text("/runs/run1").lower()
        for part in ("files", "raw"):
            page.text(f"/runs/run1/{part}")
        assert page.get("/runs/run1/steps")[0] == 404


def test_the_cards_of_the_overview_add_up(book: Book, ledger_url: str, tmp_path: Path) -> None:
    """What has no row of its own is in a row for the others, or for an unknown project."""
    now = now_ms()
    for number in range(10):
        session = book.session(f"s{number}", project=f"/p/{number}", last_at=now)
        book.request(session, now, cost_nano=(20 - number) * 10**9)
    book.request(book.session("s", project=None, last_at=now), now, cost_nano=7 * 10**9)
    for number, verdict in enumerate([*VERDICTS][:10]):
        for copy in range(10 - number):
            book.run(f"run{number}-{copy}", started_at=now, verdict=verdict)
    with serving(Place(tmp_path / "place"), "--ledger", ledger_url) as page:
        overview = page.text("/")
    cells = [re.sub(r"<svg.*?</svg>|<.*?>", " ", row) for row in re.findall(ROW, overview)]
    rows = [" ".join(cell.split()) for cell in cells]
    assert rows[-10:] == [
        *(f"{number} ${20 - number}.00" for number in range(8)),
        "others $23.00",
        "unknown $7.00",
    ]
    (verdicts,) = re.findall(r"<h2>Verdicts.*?</section>", overview, re.DOTALL)
    counts = [int(count) for count in re.findall(r'<td class="num">(\d+)</td>', verdicts)]
    assert counts == [*range(10, 2, -1), 3]
    assert f'<span title="{", ".join([*VERDICTS][8:10])}">others</span>' in verdicts


def test_an_empty_ledger_says_what_to_run(tmp_path: Path) -> None:
    with serving(Place(tmp_path)) as page:
        for target in ("/", "/runs", "/sessions", "/tools", "/search?q=x"):
            text = page.text(target)
            assert "The ledger is empty" in text
            assert "steno ledger import" in text
