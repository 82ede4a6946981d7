"""The price cache: the same prices as the table, without loading it."""

import os
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot

from steno import pricing
from steno.event import Usage as Share
from steno.pricing import PROVIDERS, Rates, cost_of, price, price_periods, rates
from steno.units import NANO_PER_USD

OPUS = "claude-opus-5-5"
SHARE = Share(
    1, None, None, None, input=1_000, cache_write=500, cache_read=250, output=100, cache_write_1h=0
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that keeps them, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pricing.load_cached_periods.cache_clear()
    return tmp_path / "steno" / pricing.CACHE_FILE_NAME


def asked(place: Path, model: str) -> tuple[str, bool]:
    """What another program finds, and whether it loaded the table for it."""
    code = (
        "import sys; from steno.pricing import rates\n"
        f"print(rates({model!r}, None)); print('genai_prices' in sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(place.parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment, check=True
    )
    found, loaded = done.stdout.decode().splitlines()
    return found, loaded == "True"


def test_the_second_program_does_not_load_the_table(place: Path) -> None:
    first, again = asked(place, OPUS), asked(place, OPUS)
    assert (first[1], again) == (True, (first[0], False))
    assert first[0] == str(rates(OPUS, None))


def test_an_unknown_model_is_cached_too(place: Path) -> None:
    """Agents on a server of one's own would load it each time."""
    assert [asked(place, "qwen3-coder"), asked(place, "qwen3-coder")] == [
        ("None", True),
        ("None", False),
    ]


@pytest.mark.parametrize(
    "damage", ["", "{", '{"table": 1}', '{"table": "another", "models": {"claude-opus-5-5": []}}']
)
def test_an_unreadable_cache_is_ignored(place: Path, damage: str) -> None:
    place.parent.mkdir()
    place.write_text(damage)
    assert asked(place, OPUS) == (str(rates(OPUS, None)), True)
    assert asked(place, OPUS)[1] is False


def test_an_unwritable_cache_changes_no_price(place: Path) -> None:
    place.parent.write_text("a file in the way of a folder")
    assert asked(place, OPUS) == (str(rates(OPUS, None)), True)


@pytest.mark.parametrize("name", ["sk-ant-api03-" + "x" * 40, "é", "x" * 201, "\udcff"])
def test_names_that_are_not_kept(place: Path, name: str) -> None:
    """Secrets, letters of no model, and novels."""
    pricing.store_periods(name, [])
    assert not place.exists()


def test_what_others_may_read(place: Path) -> None:
    """A folder of the user's own, no temporary file, and at most so many models."""
    for number in range(pricing.MAX_CACHED_MODELS + 10):
        pricing.store_periods(f"m{number}", [])
    assert [path.name for path in place.parent.iterdir()] == [pricing.CACHE_FILE_NAME]
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert (
        len(msgspec.json.decode(place.read_bytes(), type=pricing.PriceCache).models)
        == pricing.MAX_CACHED_MODELS
    )


def dated() -> list[tuple[str, date]]:
    """Every model of the makers that we know whose price changed, and each day on which it did."""
    found = []
    for provider in get_snapshot().providers:
        for model in provider.models if provider.id in PROVIDERS.values() else ():
            starts = (
                [getattr(one.constraint, "start_date", None) for one in model.prices]
                if isinstance(model.prices, list)
                else []
            )
            found += [(model.id, day) for day in starts if day is not None]
    return found


def test_periods_are_those_of_the_table() -> None:
    """Before, on and after each price change, our rates give the table's price."""
    assert len(dated()) > 3
    compared = 0
    for model, start in dated():
        for day in (
            start - timedelta(days=400),
            start - timedelta(days=1),
            start,
            start + timedelta(days=1),
        ):
            at = datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
            known = rates(model, at)
            cost = cost_of(known, SHARE) if known is not None else None
            provider = next(
                (who for words, who in PROVIDERS.items() if model.startswith(words)), "anthropic"
            )
            usage = Usage(
                input_tokens=1_750, cache_write_tokens=500, cache_read_tokens=250, output_tokens=100
            )
            try:
                told = calc_price(
                    usage, model_ref=model, provider_id=provider, genai_request_timestamp=at
                )
            except (LookupError, ValueError):
                assert cost is None
                continue
            if cost is not None:
                assert (model, day, cost) == (model, day, round(told.total_price * NANO_PER_USD))
                compared += 1
    assert compared > 10


def test_a_request_beyond_the_tier_asks_the_table(place: Path) -> None:
    """Its price follows from the whole request."""
    tiered = next(
        model
        for model in ("gemini-2.5-pro", "claude-sonnet-4-5")
        if (known := rates(model, None)) and known.tier
    )
    known = rates(tiered, None)
    assert known is not None
    assert known.tier is not None
    large = Share(
        1,
        None,
        None,
        None,
        input=known.tier + 1,
        cache_write=0,
        cache_read=0,
        output=0,
        cache_write_1h=0,
    )
    assert cost_of(known, large) is None
    assert (price(tiered, large, None) or 0) > known.input * (known.tier + 1) // 1_000_000


def test_periods_begin_before_everything() -> None:
    (first, *_) = price_periods(OPUS)
    assert first.start is None
    assert isinstance(first.rates, Rates)
