"""A cache of prices on disk, because importing the price table costs more than most reports.

It is valid for one version of the table. If it can't be read or written, the table is used.
"""

from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec import DecodeError, Struct, json

from ..codec.redact import redact
from ..user_cache import cache_path, write_cache_file
from .rates import PricePeriod

CACHE_FILE_NAME = "prices-1.json"  # the number changes with the format
MAX_CACHED_MODELS = 500  # agents may report any name
MAX_MODEL_NAME_CHARS = 200


class PriceCache(Struct):
    table: str  # fingerprint of the table that the prices come from
    models: dict[str, list[PricePeriod]] = {}


@cache
def load_cached_periods() -> dict[str, list[PricePeriod]]:
    """Return the cached prices by model; empty if they come from another table."""
    with suppress(OSError, DecodeError, RuntimeError):  # missing, damaged, no home folder
        cached = json.decode(cache_path(CACHE_FILE_NAME).read_bytes(), type=PriceCache)
        if cached.table == _table_fingerprint():
            return cached.models
    return {}


def store_periods(model: str, periods: list[PricePeriod]) -> None:
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
        data = json.encode(PriceCache(_table_fingerprint(), models))
        write_cache_file(cache_path(CACHE_FILE_NAME), data)


@cache
def _table_fingerprint() -> str:
    """Return path, size and time of the installed table; empty if it can't be found."""
    with suppress(OSError, ImportError):
        spec = find_spec("genai_prices")
        for folder in (spec and spec.submodule_search_locations) or ():
            file = Path(folder, "data.py")
            stat = file.stat()
            return f"{file} {stat.st_size} {stat.st_mtime_ns}"
    return ""
