"""`steno usage --html`: charts and tables in one file, the figures those of the report."""

import re
import subprocess
import sys
from pathlib import Path

from steno.export.charts import (
    Sample,
    Series,
    Span,
    context_chart,
    nice_top,
    stacked_bars,
    timeline,
)
from steno.ledger.protocol import now_ms
from tests.support.ledger_builder import HOUR, Book


def test_the_figures_are_those_of_the_report(book: Book, ledger_url: str, tmp_path: Path) -> None:
    session = book.session("s1")
    at = now_ms() - HOUR
    book.request(session, at, model="claude-opus-5-5", cost_nano=2_500_000_000)
    book.request(session, at, model="<b>model</b>", cost_nano=500_000_000)
    target = tmp_path / "usage.html"
    args = ["usage", "--html", str(target), "--no-import", "--ledger", ledger_url]
    subprocess.run([sys.executable, "-m", "steno", *args], check=True, timeout=120)
    page = target.read_text("utf-8")
    assert re.findall(r"<dt>Cost</dt><dd>(.*?)</dd>", page) == ["$3.00"]
    assert "<b>model</b>" not in page
    assert page.count("&lt;b&gt;model&lt;/b&gt;") == 3  # tooltip, legend, table
    assert not re.search(r"(src|href)=(?!\"data:,\")", page)


def test_stacked_bars_add_up_and_group_small_series() -> None:
    series = [Series(f"m{index}", [float(index), 0.0]) for index in range(8)]
    chart = stacked_bars(["Mon", "Tue"], series, "{:g}".format, "cost")
    heights = [float(height) for height in re.findall(r'class="s\d".*?height="([\d.]+)"', chart)]
    assert re.findall(r"</i>(\w+)<", chart) == ["m7", "m6", "m5", "m4", "m3", "others"]
    assert round(sum(heights), 1) == round(28 / nice_top(28) * 100, 1)
    assert "Mon: 28\nm7 7\nm6 6\nm5 5\nm4 4\nm3 3\nothers 3" in chart


def test_charts_escape_names_and_stay_small() -> None:
    samples = [Sample(0.9, number % 100 == 0) for number in range(50_000)]
    drawn = context_chart(samples, [("critical", 0.95)], "<sample {}>".format)
    assert len(drawn) < 100_000
    assert "<sample" not in drawn
    spans = [Span("<tool>", at, at + 10, "<call>", "bad") for at in range(5_000)]
    drawn = timeline(spans, 6_000, "{:g}".format, "tools")
    assert len(drawn) < 150_000
    assert "<tool>" not in drawn
    assert "<call>" not in drawn


def test_parallel_calls_are_stacked() -> None:
    spans = [Span("Bash", 0, 10, "a"), Span("Bash", 5, 20, "b"), Span("Bash", 12, 15, "c")]
    rows = re.findall(r'<rect class="span " x="[\d.]+" y="(\d)"', timeline(spans, 20, str, "tools"))
    assert rows == ["0", "1", "0"]
