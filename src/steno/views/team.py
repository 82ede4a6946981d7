"""Messages, claims, active runs and permission requests, from the rows of `--json`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from .formatting import format_duration, single_line, wrap
from .live import format_clock
from .table import HP_COLOURS, Cell, Column, PageStyle, render_table

Rows = Sequence[Mapping[str, Any]]
HEALTH_COLOURS = {"active": "green", "idle": "dim", "stalled": "red", "unknown": "yellow"}
INDENT = "    "
SHORT_ID_LENGTH = 8
ROSTER_COLUMNS = (
    Column("id"),
    Column("name", drop_priority=3, can_truncate=True),
    Column("agent", drop_priority=5),
    Column("health"),
    Column("context", align_right=True),
    Column("state", drop_priority=4),
    Column("silent", align_right=True, drop_priority=6),
    Column("host", drop_priority=7, can_truncate=True),
    Column("project", drop_priority=2, can_truncate=True, keep_end=True),
)
CLAIM_COLUMNS = (
    Column("path", can_truncate=True, keep_end=True),
    Column("owner"),
    Column("state"),
    Column("left", align_right=True, drop_priority=2),
    Column("repository", drop_priority=1, can_truncate=True, keep_end=True),
)


def _short(id_: str) -> str:
    return id_ if id_.startswith("@") else id_[:SHORT_ID_LENGTH]


def _left_ms(until: str) -> float:
    return max(
        0.0, (datetime.fromisoformat(until) - datetime.now(timezone.utc)).total_seconds() * 1e3
    )


def roster_table(rows: Rows, style: PageStyle) -> list[str]:
    """One line per run."""
    cells = [
        [
            row["run_id"][:SHORT_ID_LENGTH],
            row["name"] or "",
            row["agent"] or "",
            Cell(row["health"], HEALTH_COLOURS.get(row["health"], "")),
            Cell(
                "unknown" if row["hp"] is None else f"{row['hp']:.0f}% HP",
                HP_COLOURS.get(row["hp_status"] or "", ""),
            ),
            " ".join(filter(None, (row["state"], row["tool"]))),
            "" if row["silence_s"] is None else format_clock(row["silence_s"]),
            row["host"] or "",
            row["project"] or "",
        ]
        for row in rows
    ]
    return render_table(style, ROSTER_COLUMNS, cells)


def claims_table(rows: Rows, style: PageStyle) -> list[str]:
    """One line per claim, in the order in which they were asked for."""
    cells = [
        [
            row["path"],
            _short(row["owner"]),
            Cell("held", "green")
            if row["held"]
            else Cell(f"waiting ({row['position']} before)", "yellow"),
            format_duration(_left_ms(row["expires_at"])),
            row["repository"],
        ]
        for row in rows
    ]
    return render_table(style, CLAIM_COLUMNS, cells)


def message_lines(rows: Rows, style: PageStyle) -> Iterator[str]:
    """Each message with its sender; its text is wrapped and safe for a terminal."""
    for row in rows:
        to = "all" if row["to"] is None else "you"
        at = datetime.fromisoformat(row["at"]).astimezone()
        yield style.paint(f"{at:%H:%M:%S}  {single_line(_short(row['from']))} to {to}", "bold")
        for line in wrap(row["text"], style.columns - len(INDENT)):
            yield f"{INDENT}{line}".rstrip()


def request_lines(rows: Rows, style: PageStyle) -> Iterator[str]:
    """Each request with what is known of its input: a person decides by it."""
    for row in rows:
        run = row["name"] or _short(row["run_id"] or "") or "unknown run"
        state = f"{format_duration(_left_ms(row['expires_at']))} left"
        if not row["open"]:
            state = row["decision"] or "expired"
        head = f"{row['id']}  {single_line(row['tool'])}  {single_line(run)}  {state}"
        yield style.paint(head, "bold" if row["open"] else "dim")
        for line in wrap(row["input"], style.columns - len(INDENT)):
            yield f"{INDENT}{line}".rstrip()
        if row["input_chars"] > len(row["input"]):
            yield f"{INDENT}(cut: the input has {row['input_chars']:,} characters)"
        if row["reason"]:
            yield f"{INDENT}reason: {single_line(row['reason'])}"
