"""What the price table said of models, kept in the user's cache: loading the table costs more than most reports.

It holds as long as the table is the same file. A cache that cannot be read or written is no loss, and is not mentioned.
"""

import os
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec import DecodeError, Struct, json

from ..codec.redact import redact
from .rates import PricePeriod

CACHE_FILE_NAME = (
    "prices-1.json"  # the number rises when what is kept changes its form or its meaning
)
MAX_CACHED_MODELS = 500  # models: agents name what they like
MAX_MODEL_NAME_CHARS = 200  # letters of a model's name


class PriceCache(Struct):
    """All of it; `table` is which table said so."""

    table: str
    models: dict[str, list[PricePeriod]] = {}


@cache
def load_cached_periods() -> dict[str, list[PricePeriod]]:
    """What is kept, by model; of another table than the one that is installed, nothing is."""
    with suppress(
        OSError, DecodeError, RuntimeError
    ):  # it is not there; it is damaged; there is no home
        found = json.decode(_cache_path().read_bytes(), type=PriceCache)
        if found.table == _table_fingerprint():
            return found.models
    return {}


def store_periods(model: str, periods: list[PricePeriod]) -> None:
    """Keep what the table said of one more model."""
    models = load_cached_periods()
    if (
        len(model) > MAX_MODEL_NAME_CHARS
        or len(models) >= MAX_CACHED_MODELS
        or not model.isascii()
        or redact(model) != model
        or not _table_fingerprint()
    ):
        return
    models[model] = periods
    with suppress(OSError, RuntimeError):
        place = _cache_path()
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = place.with_name(f"{CACHE_FILE_NAME}.{os.getpid()}")
        new.write_bytes(json.encode(PriceCache(_table_fingerprint(), models)))
        new.replace(place)


def _cache_path() -> Path:
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("steno", appauthor=False)) / CACHE_FILE_NAME


@cache
def _table_fingerprint() -> str:
    """Which table is installed: its file, its size and its time; "" where that cannot be told."""
    with suppress(OSError, ImportError, IndexError, TypeError):
        spec = find_spec("genai_prices")
        file = Path((spec.submodule_search_locations if spec is not None else [])[0], "data.py")  # type: ignore[index]
        about = file.stat()
        return f"{file} {about.st_size} {about.st_mtime_ns}"
    return ""
