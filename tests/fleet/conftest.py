"""A scripted fleet, in SQLite and in PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import FleetPlace, fleet_place, require_dbos


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[FleetPlace]:
    """A fleet in SQLite."""
    require_dbos()
    with fleet_place(tmp_path / "place") as place:
        yield place


@pytest.fixture
def any_fleet(tmp_path: Path, ledger_url: str) -> Iterator[FleetPlace]:
    """A fleet on each database."""
    require_dbos()
    with fleet_place(tmp_path / "place", ledger_url) as place:
        yield place
