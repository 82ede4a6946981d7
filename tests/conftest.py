"""Fixtures that several tests share: a ledger's URL on each database."""

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from steno.cli.commands import CI_VARIABLES
from steno.ledger.store import Store, open_ledger
from tests import postgres
from tests.support.ledger_builder import Book

_numbers = count()

# A slow machine fails no test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# What commands print is compared exactly, also where the tests themselves run in a CI system.
for _name in CI_VARIABLES:
    os.environ.pop(_name, None)

# A background shell may ignore signals, and every child process inherits that.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(
            _signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL
        )


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is kept of prices is kept elsewhere than with whoever runs the tests."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def postgres_place() -> Iterator[str]:
    """A running PostgreSQL; without one, a skip, or a failure if STENO_REQUIRE requires it."""
    absent = postgres.missing()
    if absent is not None:
        if "postgres" in os.environ.get("STENO_REQUIRE", ""):
            pytest.fail(f"{absent}, and STENO_REQUIRE asks for it")
        pytest.skip(absent)
    with postgres.server() as place:
        yield place


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger can be made, on each of the databases in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return postgres.fresh(request.getfixturevalue("postgres_place"), f"ledger_{next(_numbers)}")


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store]:
    """A new ledger, open."""
    opened = open_ledger(ledger_url)
    yield opened
    opened.close()


@pytest.fixture
def book(store: Store) -> Book:
    """A new ledger, to be written row by row."""
    return Book(store)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder to work in."""
    (tmp_path / "proj").mkdir()
    return tmp_path / "proj"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Where files go."""
    return tmp_path / "there"
