"""The board on the page of `steno serve`, on both databases."""

import re

from steno.fleet.rows import WorkerRow
from steno.fleet.store import open_fleet
from steno.ledger.store import open_ledger
from tests.support.fleet import FleetPlace
from tests.web.conftest import serving


def test_board_on_the_page(any_fleet: FleetPlace) -> None:
    place = any_fleet
    open_ledger(place.ledger).close()  # one that is named must exist
    with serving(place, "--ledger", place.ledger) as page:
        assert "No batches yet" in page.text("/fleet")
        file = place.tasks({"name": "a", "prompt": "1"}, {"name": "b", "prompt": "2\n@fail"})
        place.fleet("batch", file, "--jobs", "2", "--attempts", "1", code=1)
        place.fleet("spawn", "later <b>", "--name", "later")
        text = page.text("/fleet")
        rows = re.findall(
            r'<td class="main">(\w+)<small>.*?<td class="num">(\d+ of \d+)', text, re.S
        )
        assert rows == [("spawn", "0 of 1"), ("tasks", "1 of 2")]
        assert "invalid_request 1" in text
        assert "0 workers" in text
        with open_fleet(place.ledger) as store:
            for number, lease_ms in enumerate((60_000, -1)):
                worker = WorkerRow(f"w{number}", "host", 1, 2, 0, 0, lease_ms, "active")
                store.register_worker(worker)
        assert "1 worker · 1 not responding" in page.text("/fleet")
        assert '<a href="/fleet"' in page.text("/runs")
