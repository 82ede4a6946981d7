"""The templates of the page: filters for figures and times, every text made safe.

Jinja escapes HTML in all values. Before that, control characters and marks that change the
direction of text are shown as escapes, as on the terminal.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup

from ..analysis.usage import nano_to_usd
from ..codec.colours import strip_tag
from ..export.html import template_environment
from ..ledger.protocol import now_ms
from ..ledger.queries.filters import TimeZone
from ..views.formatting import (
    clean_lines,
    format_cents,
    format_compact,
    format_count,
    format_duration,
    format_money,
    format_number,
    format_percent,
)
from ..views.ps import activity
from ..views.runs import cost_text
from .pages import verdict_kind
from .run_page import context_meter
from .security import AccessPolicy

NONE_TEXT = Markup('<span class="none">–</span>')
MAX_TITLE_CHARS = 200
MAX_STEP_CHARS = 20_000  # of one text in a conversation; the rest is in the raw lines
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def create_environment(
    zone: TimeZone, versions: Mapping[str, str], policy: AccessPolicy
) -> Environment:
    """The environment; `versions` of static files are part of their URLs."""
    environment = template_environment(MAX_STEP_CHARS)
    environment.loader = ChoiceLoader([PackageLoader("steno.web"), PackageLoader("steno.export")])
    environment.finalize = _finalize
    environment.filters.update(
        cents=format_cents,
        nano=lambda nano: format_cents(nano_to_usd(nano)),
        exact=format_money,
        compact=_optional(format_compact),
        number=_optional(format_number),
        duration=_optional(format_duration),
        percent=_optional(format_percent),
        count=format_count,
        ago=format_ago,
        when=lambda at: None if at is None else f"{zone.to_local(at):%Y-%m-%d %H:%M:%S}",
        day=lambda at: None if at is None else f"{zone.to_local(at):%b %-d, %H:%M}",
        title=first_line,
        base=lambda path: PurePosixPath(path).name if path else None,
        kind=verdict_kind,
        query=urlencode,
        activity=activity,
        cost=cost_text,
        patch_kind=patch_kind,
        plain_error=lambda text: strip_tag(text or ""),
    )
    environment.globals.update(
        static=lambda name: f"/static/{name}?v={versions[name]}",
        context_meter=context_meter,
        zone_name=zone.name,
        dash=NONE_TEXT,
        allow_actions=policy.allow_actions,
    )
    return environment


def _finalize(value: Any) -> Any:
    """Every value that a template prints: unknown ones as a dash, texts without control codes."""
    if value is None:
        return NONE_TEXT
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean_lines(value)
    return value


def _optional(format_value: Callable[[Any], str]) -> Callable[[Any], str | None]:
    return lambda value: None if value is None else format_value(value)


def format_ago(at: int | None) -> str | None:
    """The age of a time in its largest unit."""
    if at is None:
        return None
    seconds = timedelta(milliseconds=now_ms() - at).total_seconds()
    if seconds < 0:
        return "in the future"
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def first_line(text: str | None) -> str:
    """The first line of a text that is not blank, cut to a sensible length."""
    line = next((line for line in (text or "").splitlines() if line.strip()), "").strip()
    return line if len(line) <= MAX_TITLE_CHARS else f"{line[:MAX_TITLE_CHARS]}…"


def patch_kind(line: str) -> str:
    """The class of a line of a patch."""
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file")):
        return "head"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")
