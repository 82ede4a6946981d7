"""Bars, sparklines, tables, plots and search results; JSON and CSV output."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.export.tables import as_csv, as_json
from steno.ledger.results import ContextSample, SearchHit
from steno.report import Tokens
from steno.views.context import plot
from steno.views.formatting import (
    bar,
    clean,
    downsample,
    format_compact,
    format_hit_rate,
    gauge,
    sparkline,
    width,
)
from steno.views.search import search_results
from steno.views.table import ASCII_FALLBACKS, Cell, Column, PageStyle, render_table
from tests.views.test_rendering import PAYLOAD, is_safe


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (None, "unknown"),
        (0, "0"),
        (999, "999"),
        (1000, "1.00k"),
        (12_345, "12.3k"),
        (123_456, "123k"),
        (999_499, "999k"),
        (999_500, "1.00M"),
        (4_560_000, "4.56M"),
        (10**9, "1.00G"),
        (10**15, "1,000T"),
        (-1500, "-1.50k"),
    ],
)
def test_numbers_in_few_letters(figure: int | None, text: str) -> None:
    assert format_compact(figure) == text


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 10, ""),
        (10, 10, "████"),
        (20, 10, "████"),
        (5, 10, "██"),
        (0.001, 10, "▏"),
        (3, 10, "█▎"),
        (5, 0, ""),
        (-1, 10, ""),
    ],
)
def test_bars(part: float, whole: float, shown: str) -> None:
    assert bar(part, whole, 4) == shown


def test_gauges_and_sparklines() -> None:
    assert (gauge(0, 4), gauge(0.01, 4), gauge(0.5, 4), gauge(2, 4)) == (
        "░░░░",
        "█░░░",
        "██░░",
        "████",
    )
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert (sparkline([]), sparkline([0, 0]), sparkline([5])) == ("", "▁▁", "█")
    assert downsample([1, 9, 2, 3, 8], 2) == [9, 8]
    assert sparkline(range(100), 10) == "▁▂▃▄▄▅▆▇██"


def test_pictures_have_ascii_letters_of_the_same_width() -> None:
    picture = "".join(bar(step, 64, 8) for step in range(65)) + "▁▂▃▄▅▆▇█┄│└▼░─→"
    assert picture.translate(ASCII_FALLBACKS).isascii()
    assert len(picture.translate(ASCII_FALLBACKS)) == len(picture)


# -- tables -------------------------------------------------------------------------------------

COLUMNS = (
    Column("id"),
    Column("cost", True),
    Column("extra", drop_priority=1),
    Column("path", drop_priority=2, can_truncate=True, keep_end=True),
)


def test_a_table_drops_columns_to_fit() -> None:
    rows: list[list[Cell | str]] = [
        ["abc", "$1.00", "something", "/a/long/path/to/a/file"],
        ["de", Cell("$10.00", "red"), "", "/b"],
    ]
    assert render_table(PageStyle(), COLUMNS, rows, [["total", "$11.00", "", ""]]) == [
        "id       cost  extra      path",
        "abc     $1.00  something  /a/long/path/to/a/file",
        "de     $10.00             /b",
        "─" * 48,
        "total  $11.00",
    ]
    assert (
        render_table(PageStyle(line_limit=40), COLUMNS, rows)[1]
        == "abc   $1.00  something  …/path/to/a/file"
    )
    assert render_table(PageStyle(line_limit=22), COLUMNS, rows)[1] == "abc   $1.00  something"
    assert render_table(PageStyle(line_limit=15), COLUMNS, rows)[1] == "abc   $1.00"
    assert render_table(PageStyle(has_colour=True), COLUMNS, rows)[2].startswith(
        "de   \x1b[31m$10.00\x1b[0m"
    )


def test_columns_are_dropped_before_text_gets_too_narrow() -> None:
    columns = (
        Column("key", can_truncate=True, min_columns=12),
        Column("first", drop_priority=1),
        Column("second", drop_priority=2),
    )
    rows = [["a-long-key-1", "x", "y"]]
    assert render_table(PageStyle(line_limit=22), columns, rows)[1] == "a-long-key-1  x"
    assert render_table(PageStyle(line_limit=10), columns, rows)[1] == "a-long-ke…"


def test_a_table_without_header() -> None:
    columns = (
        Column("a", can_truncate=True),
        Column("b", can_truncate=True),
        Column("", align_right=True),
    )
    rows = [["short", "x" * 50, "1"], ["漢字", "", "22"]]
    assert render_table(PageStyle(line_limit=25), columns, rows, header=False) == [
        "short  " + "x" * 13 + "…   1",
        "漢字                   22",
    ]


def test_empty_columns_are_hidden() -> None:
    assert render_table(PageStyle(), COLUMNS, [["a", "b", "", ""]]) == ["id  cost", "a      b"]
    assert render_table(PageStyle(), COLUMNS, []) == ["id  cost  extra  path"]


@given(
    st.lists(st.tuples(*[st.text(max_size=60)] * 4), min_size=1, max_size=4), st.integers(40, 120)
)
def test_tables_are_safe_and_keep_to_their_width(rows: list[tuple[str, ...]], limit: int) -> None:
    columns = (
        Column("a", can_truncate=True),
        Column("b", True, 1),
        Column("c", drop_priority=2, can_truncate=True),
        Column("d", drop_priority=3),
    )
    for line in render_table(PageStyle(limit, limit), columns, [list(row) for row in rows]):
        assert is_safe(line)
        assert width(line) <= limit


# -- context plot -------------------------------------------------------------------------------


def points(*figures: int) -> list[ContextSample]:
    return [
        ContextSample(at, "m", used, 1000, used < 300 and at > 0) for at, used in enumerate(figures)
    ]


def test_a_plot_with_thresholds_and_compactions() -> None:
    lines = plot(points(100, 500, 980, 200), PageStyle(60), 10)
    assert lines == [
        "100% │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▆▆▆▆▆▆▆▆┄┄┄┄┄┄┄┄ critical 95 %",
        "     │                ████████",
        "     │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄████████┄┄┄┄┄┄┄┄ refresh 80 %",
        "     │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄████████┄┄┄┄┄┄┄┄ warn 70 %",
        "     │                ████████",
        " 50% │        ████████████████",
        "     │        ████████████████",
        "     │        ████████████████",
        "     │        ████████████████████████",
        "     │████████████████████████████████",
        "   0 └────────────────────────────────",
        "                              ▼",
    ]


def test_the_axis_ends_above_what_was_used() -> None:
    """A small part of a large window fills the plot; thresholds above it are not shown."""
    assert plot(points(5, 12, 20), PageStyle(60), 4) == [
        "2.0% │                ████████",
        "     │        ▃▃▃▃▃▃▃▃████████",
        "1.0% │        ████████████████",
        "     │████████████████████████",
        "   0 └────────────────────────",
        "      " + "        ▼       ▼",
    ]
    assert [
        plot(points(used), PageStyle(60), 4)[0][:4] for used in (20, 21, 51, 150, 215, 501, 801)
    ] == ["2.0%", "5.0%", " 10%", " 20%", " 30%", " 60%", "100%"]


@pytest.mark.parametrize("many", [1, 2, 30, 31, 500, 9999])
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_plot_of_any_length_keeps_to_the_page(many: int, columns: int) -> None:
    for line in plot(points(*(at * 7919 % 2000 for at in range(many))), PageStyle(columns)):
        assert width(line) <= columns


# -- search results -----------------------------------------------------------------------------


def test_hits_are_marked_also_across_lines() -> None:
    text = "word " * 12 + "needle in\nthe\thay " + PAYLOAD
    begin = text.index("needle")
    hit = SearchHit(
        5, "0123456789", None, f"/p{PAYLOAD}", "tool", text, [(begin, begin + 17)], tool="Bash"
    )
    plain = search_results([hit, hit], PageStyle(68), lambda at: f"at {at}")
    assert plain[0].startswith("at 5 · 01234567 · tool Bash · /p\\x1b]0;")
    assert [plain[1][-6:], plain[2][:12]] == ["needle", "  in the hay"]
    assert all(is_safe(line) for line in plain)
    coloured = search_results([hit], PageStyle(68, has_colour=True), lambda at: "")
    assert coloured[1].endswith("\x1b[1;33mneedle\x1b[0m")
    assert coloured[2].startswith("  \x1b[1;33min the hay\x1b[0m")


# -- JSON and CSV -------------------------------------------------------------------------------


def test_json_is_one_object() -> None:
    assert json.loads(as_json([{"tokens": Tokens(1)}], 1, {"x": None})) == {
        "rows": [
            {
                "tokens": {
                    "input": 1,
                    "cache_write": None,
                    "cache_read": None,
                    "output": None,
                    "reasoning": None,
                    "total": None,
                }
            }
        ],
        "total": 1,
        "x": None,
    }


def test_csv_is_flat_and_guarded() -> None:
    rows = [
        {
            "day": "2026-11-15",
            "tokens": {"input": 5, "deep": {"x": -1}},
            "ok": True,
            "none": None,
            "list": [1, "a"],
        },
        {"day": "=cmd|' /C calc'!A0", "more": -0.5, "tokens": {"input": "-x"}},
    ]
    assert as_csv(rows) == (
        b"day,tokens_input,tokens_deep_x,ok,none,list,more\r\n"
        b'2026-11-15,5,-1,true,,"[1,""a""]",\r\n'
        b"'=cmd|' /C calc'!A0,'-x,,,,,-0.5\r\n"
    )
    assert (
        as_csv([{"usd": 5.4e-05, "many": 1e22, "some": 0.25}])
        == b"usd,many,some\r\n0.000054,10000000000000000000000,0.25\r\n"
    )
    assert as_csv([], ["a", "=b"]) == b"a,'=b\r\n"


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.text()), min_size=1))
def test_csv_comes_back_as_it_was(rows: list[dict[str, str]]) -> None:
    """Except for the apostrophe before a formula and escaped control characters."""
    data = as_csv(rows, "abc").decode()
    head, *found = list(csv.reader(io.StringIO(data, newline=""), strict=True))
    assert head == ["a", "b", "c"]
    for row, cells in zip(rows, found, strict=True):
        for name, cell in zip("abc", cells, strict=True):
            lines = row.get(name, "").replace("\x00", "").replace("\r\n", "\n").split("\n")
            wanted = "\n".join("\t".join(map(clean, line.split("\t"))) for line in lines)
            guarded = wanted.startswith(("=", "+", "-", "@", "\t"))
            assert cell == ("'" + wanted if guarded else wanted)


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(None, "unknown"), (0.7, "70.0 %"), (0.701, "70.1 % (efficient)")],
)
def test_a_cache_hit_rate_above_70_percent_is_efficient(rate: float | None, shown: str) -> None:
    assert format_hit_rate(rate) == shown
