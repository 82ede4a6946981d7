"""The state of a list in its URL: filters, time range, sort order, page. Each state has one URL."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from ..errors import StenoError
from ..ledger.queries.filters import (
    Filters,
    TimeZone,
    encode_tag,
    match_names,
    parse_time_range,
)
from ..report import VERDICTS

# Filters in the URL, and the fields of Filters that they set.
NAME_FILTERS = {
    "agent": "agents",
    "model": "models",
    "project": "projects",
    "host": "hosts",
    "branch": "branches",
}
TIME_SPANS = {"24h": "24 hours", "7d": "7 days", "30d": "30 days", "90d": "90 days", "all": "all"}
DEFAULT_SPAN = "30d"
VERDICT_CHOICES = ("failed", "running", *VERDICTS)
OTHER_NAMES = ("q", "by", "show")  # search text, and how the chart is drawn
ROWS_PER_PAGE = 50
MAX_PAGE = 1_000_000
MAX_TEXT_CHARS = 300
ID_PATTERN = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.:-]{0,199}")


class UrlError(StenoError):
    """A URL that the page does not understand."""


class UnknownIdError(StenoError):
    """A run or session that the ledger does not know."""


def check_id(text: str) -> str:
    """An ID of a run or session; UrlError for anything else, such as a path."""
    if ID_PATTERN.fullmatch(text) is None or ".." in text:
        raise UrlError("expected the ID of a run or session")
    return text


def check_number(text: str | None, name: str, default: int, maximum: int = MAX_PAGE) -> int:
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= maximum:
        raise UrlError(f"{name}: expected a number from 1 to {maximum:,}")
    return int(text)


class UrlState(Struct, frozen=True):
    """The parameters of a list; empty ones are left out of the URL."""

    path: str
    values: dict[str, str]
    sort: str = ""
    page: int = 1

    @property
    def span(self) -> str:
        return self.values.get("last", "" if "since" in self.values else DEFAULT_SPAN)

    @property
    def active(self) -> dict[str, str]:
        """The filters in use, without the time range and the search text."""
        names = (*NAME_FILTERS, "tag", "verdict", "session", "since", "until")
        return {name: self.values[name] for name in names if name in self.values}

    def url(self, path: str | None = None, **changes: Any) -> str:
        """The URL with some parameters changed; None or an empty text removes one."""
        state = {**self.values, "sort": self.sort, "page": "" if self.page == 1 else self.page}
        if changes.keys() - {"page"}:
            state["page"] = ""
        state.update(changes)
        query = urlencode([(name, value) for name, value in state.items() if value])
        return f"{path or self.path}?{query}" if query else path or self.path

    def filters(self, zone: TimeZone, now: int, choices: Mapping[str, list[str]]) -> Filters:
        """The filters of the query. UrlError for a time that can't be read."""
        span = self.span
        try:
            time_range = parse_time_range(
                zone,
                now,
                self.values.get("since"),
                self.values.get("until"),
                span if span not in ("", "all") else None,
            )
        except StenoError as error:
            raise UrlError(str(error).replace("--", "")) from None
        names = {
            field: match_names(self.values[name], choices.get(name, ())) or (self.values[name],)
            for name, field in NAME_FILTERS.items()
            if name in self.values
        }
        tags = (encode_tag(self.values["tag"]),) if "tag" in self.values else ()
        return Filters(time_range=time_range, tags=tags, **names)


def parse_state(path: str, query: Iterable[tuple[str, str]], sorts: Iterable[str]) -> UrlState:
    """Read the parameters of a list; unknown ones are ignored, the last of several counts."""
    known = (*NAME_FILTERS, "tag", "verdict", "session", "last", "since", "until", *OTHER_NAMES)
    given = dict(query)
    values = {name: _check_text(name, given[name]) for name in known if given.get(name)}
    sort = given.get("sort", "")
    if sort and sort not in sorts:
        raise UrlError(f"sort: expected one of {', '.join(sorts)}")
    if values.get("verdict", "failed") not in VERDICT_CHOICES:
        raise UrlError(f"verdict: expected one of {', '.join(VERDICT_CHOICES)}")
    if "session" in values:
        check_id(values["session"])
    return UrlState(path, values, sort, check_number(given.get("page"), "page", 1))


def _check_text(name: str, value: str) -> str:
    if len(value) > MAX_TEXT_CHARS or "\0" in value:
        raise UrlError(f"{name}: expected a text of up to {MAX_TEXT_CHARS} characters")
    return value.encode("utf-8", "replace").decode("utf-8").strip()
