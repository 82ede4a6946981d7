"""Format measurements as Markdown tables and insert them into a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    return "–" if value is None else f"{value:,.{digits}f}{unit}"


def row(cells: Sequence[str], widths: Sequence[int]) -> str:
    rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "| " + " | ".join([cells[0].ljust(widths[0]), *rest]) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned table: first column left, the others right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(row(line, widths) for line in (head, rule, *rows))


def placed(page: str, section: str, name: str = "read") -> str:
    """The page with the section of this name replaced or appended."""
    first, last = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    marked = f"{first}\n{section}\n{last}"
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if begin and end:
        return before + marked + after
    if begin:
        raise ValueError(f"the page has {first} but no {last}")
    return f"{page.rstrip()}\n\n{marked}\n".lstrip()


def save(path: Path, section: str, name: str = "read") -> None:
    page = path.read_text("utf-8") if path.exists() else "# Benchmarks\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(placed(page, section, name), "utf-8")
