"""Terminal output: sanitizing, measuring and wrapping; summaries, tables, timelines."""

import unicodedata
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steno
from steno import event as ev
from steno.analysis.live_state import call_target
from steno.recording.parse import RunParser
from steno.report import (
    BackgroundTask,
    ChangedFile,
    Context,
    Cost,
    DeniedCall,
    LineCounts,
    ModelSummary,
    RateLimitStatus,
    Report,
    RequestRetry,
    Subagent,
    Tokens,
    ToolCallSummary,
)
from steno.views import formatting, show
from steno.views.formatting import clean, pad, single_line, truncate, truncate_start, width, wrap
from steno.views.summary import card
from steno.views.table import (
    PageStyle,
    SectionRow,
    headline,
    join_facts,
    render_section,
    titled_rule,
)
from steno.views.timeline import Timeline
from tests.support.claude_lines import (
    REFUSED,
    failed,
    hello,
    init,
    named,
    recorded,
    report,
    result,
    spread,
    stream,
    text,
    worked,
)

# -- hostile text -------------------------------------------------------------------------------

HOSTILE = [
    *range(0x20),
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),
]
HOSTILE += [
    0x061C,
    0x180E,
    0x200B,
    0x200E,
    0x200F,
    0x2028,
    0x2029,
    0x2060,
    0xFEFF,
    0xFFF9,
    0xFFFA,
    0xFFFB,
    0xE0001,
    0xE0041,
]
PAYLOAD = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H\r\nsuccess\u202e\u2028\u0085\x9b31m\u2066x\x08\x00\x7f"


def is_safe(line: str) -> bool:
    """Whether a line has no control, bidirectional or otherwise unsafe characters."""
    return not any(
        unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or ord(letter) in HOSTILE
        for letter in line
    )


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("one\ntwo", "one\\x0atwo"),
        ("over\rwritten", "over\\x0dwritten"),
        ("tab\there", "tab\\x09here"),
        ("\x9b2J", "\\x9b2J"),
        ("\x85", "\\x85"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\u2066\u2069", "\\u2066\\u2069"),
        ("\ud83d alone", "\\ud83d alone"),
        ("\udcff", "\\udcff"),
        ("\ufefftext", "\\ufefftext"),
        ("\U000e0041", "\\U000e0041"),
        ("\x7f\x00", "\\x7f\\x00"),
    ],
)
def test_hostile_characters_are_written_out(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


@pytest.mark.parametrize("number", HOSTILE[:: max(1, len(HOSTILE) // 400)] + HOSTILE[-20:])
def test_every_hostile_character_is_gone(number: int) -> None:
    assert is_safe(clean(f"a{chr(number)}b"))


def test_all_of_them_at_once() -> None:
    assert is_safe(clean("".join(map(chr, HOSTILE))))


@pytest.mark.parametrize(
    "harmless",
    [
        "plain",
        "naïve — ✓",
        "漢字かな",
        "👩‍👩‍👧 ❤️",
        "e\u0301",
        "a\u00a0b\u3000c",
        "\ue0b0",
        "soft\u00adhyphen",
        "نام",
    ],
)
def test_harmless_text_stays_as_it_is(harmless: str) -> None:
    assert clean(harmless) == harmless


@given(st.text(st.characters(exclude_categories=())))
def test_cleaning_leaves_nothing_hostile_and_is_done_once(any_text: str) -> None:
    cleaned = clean(any_text)
    assert is_safe(cleaned)
    assert clean(cleaned) == cleaned


# -- width --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "columns"),
    [
        ("", 0),
        ("abc", 3),
        ("naïve", 5),
        ("漢字", 4),
        ("ｆｕｌｌ", 8),
        ("👍", 2),
        ("e\u0301", 1),
        ("\u200d", 0),
        ("❤\ufe0f", 1),
        ("…—·", 3),
    ],
)
def test_width(shown: str, columns: int) -> None:
    assert width(shown) == columns


@pytest.mark.parametrize(
    ("whole", "columns", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("漢字漢字", 7, "漢字漢…"),
        ("漢字漢字", 6, "漢字…"),
        ("abc", 1, "…"),
    ],
)
def test_cut(whole: str, columns: int, shown: str) -> None:
    assert truncate(whole, columns) == shown


def test_tail() -> None:
    assert [
        truncate_start("/a/path", 7),
        truncate_start("/a/path", 5),
        truncate_start("漢字", 3),
    ] == ["/a/path", "…path", "…字"]


def test_pad() -> None:
    assert [pad("漢", 4), pad("7", 3, right=True), pad("longer", 4)] == ["漢  ", "  7", "lon…"]


def test_flat() -> None:
    assert single_line("  one\r\n\ttwo   three\u2028 ") == "one two three\\u2028"


def test_wrap_keeps_indentation_and_paragraphs() -> None:
    assert list(wrap("def f():\n    return 1  # two  blanks\n\nend", 20)) == [
        "def f():",
        "    return 1  # two",
        "blanks",
        "",
        "end",
    ]


def test_wrap_breaks_words_that_are_too_long() -> None:
    assert list(wrap("ab " + "x" * 12 + " cd", 5)) == ["ab xx", "xxxxx", "xxxxx", "cd"]


def test_wrap_counts_what_is_taken_of_the_first_line() -> None:
    assert list(wrap("one two three", 9, 4)) == ["one", "two three"]


def test_wrap_never_hangs_on_a_letter_wider_than_the_line() -> None:
    assert "".join(wrap("漢字", 1)) == "漢字"


@given(st.text(st.characters(exclude_categories=())), st.integers(3, 30), st.integers(-3, 1))
def test_wrapped_lines_fit_and_are_clean(any_text: str, columns: int, used: int) -> None:
    lines = list(wrap(any_text, columns, used))
    assert all(is_safe(line) for line in lines)
    assert width(lines[0]) <= columns - used
    assert all(width(line) <= columns for line in lines[1:])


# -- formatting ---------------------------------------------------------------------------------


def test_missing_values_are_unknown() -> None:
    assert {
        formatting.format_number(None),
        formatting.format_money(None),
        formatting.format_duration(None),
        formatting.format_percent(None),
    } == {"unknown"}


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [
        (0.0, "$0.00"),
        (0.0000123, "$0.000012"),
        (0.011037, "$0.0110"),
        (2.70671, "$2.7067"),
        (1234.5, "$1,234.50"),
    ],
)
def test_money(dollars: float, shown: str) -> None:
    assert formatting.format_money(dollars) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (59_940, "59.9 s"),
        (59_999, "1 min 0 s"),
        (3_600_000, "1 h 0 min"),
    ],
)
def test_span(milliseconds: int, shown: str) -> None:
    assert formatting.format_duration(milliseconds) == shown


@pytest.mark.parametrize("seconds", [10**18, -(10**18), 2**63])
def test_a_time_that_no_calendar_has(seconds: int) -> None:
    assert formatting.format_epoch(seconds) == f"{seconds} s after 1970"


@pytest.mark.parametrize(
    ("tool_input", "shown"),
    [
        ({"command": "ls", "description": "List"}, "ls"),
        ({"file_path": "/a", "content": "x"}, "/a"),
        ({"url": "https://example.org"}, "https://example.org"),
        ({"todos": []}, '{"todos":[]}'),
        ({}, ""),
        (None, ""),
        ([1], "[1]"),
    ],
)
def test_what_a_call_is_about(tool_input: object, shown: str) -> None:
    assert call_target(tool_input) == shown


def test_every_verdict_has_a_colour_and_a_sentence() -> None:
    from steno.report import VERDICT_MEANINGS, VERDICTS

    assert set(formatting.VERDICT_COLOURS) == set(VERDICT_MEANINGS) == set(VERDICTS)


# -- summary ------------------------------------------------------------------------------------


def test_the_summary_of_a_run_that_worked() -> None:
    assert card(report(*worked()), PageStyle()) == [
        "success  the run finished, and the agent reports success",
        "",
        "agent      claude 2.1.325 · claude-opus-5-5 · key: ANTHROPIC_API_KEY",
        "session    11111111-2222-4333-8444-555555555555",
        "folder     /srv/project",
        "run        4 turns · 5 requests · 120 ms (18 ms in requests)",
        "evidence   line 11 of the recording",
        "",
        "answer     All is done — naïvely ✓",
        "",
        "tokens     105,549 total · cache hit rate 95.2 %",
        "           input 19 · cache write 5,015 · cache read 100,000 · output 515",
        "cost       $0.0555 reported by the agent",
        "context    █░░░░░░░░░░░░░░░░░░░ 2.1 % used · 98% HP [21k/1000k] — Healthy",
        "           peak 21,008 · window 1,000,000 (as reported)",
        "",
        "tools      Write  1 call  time unknown",
        "           Bash   1 call  time unknown",
        "           Task   1 call  time unknown",
        "files      created   notes.txt",
        "subagents  Explore “Look around”: completed, at least 21,012 tokens",
    ]


def test_the_summary_of_a_run_that_was_refused() -> None:
    found = card(report(*REFUSED), PageStyle())
    assert found[0].startswith("permission  1 call")
    assert found[-8:] == [
        "denied     Bash  rm -rf build",
        "             It needs approval.",
        "             allow: Bash(rm -rf build)",
        "background shell: completed",
        "retries    1 × 529 overloaded, waited 500 ms",
        f"limits     allowed · 50.0 % used · resets {formatting.format_epoch(1800000000)}",
        "",
        "next       to allow it: --allowedTools 'Bash(rm -rf build)'",
    ]
    assert "           peak 21,004 · window 1,000,000 (as reported) · 1 compaction" in found


def test_an_error_is_said_once() -> None:
    found = card(report(init(), failed("API Error: 529 overloaded")), PageStyle())
    assert found[0] == "api  API Error: 529 overloaded"
    assert sum("529" in line for line in found) == 1
    assert "tokens     0" in found


def test_unknown_figures_are_called_unknown() -> None:
    assert card(Report(), PageStyle()) == [
        "no_result  the recording ends without a complete result",
        "",
        "agent      unknown agent · model unknown",
        "run        turns unknown · 0 requests · time unknown",
        "",
        "tokens     unknown",
        "cost       unknown",
        "context    HP unknown",
        "           window unknown (assumed)",
    ]


def test_a_long_answer_is_cut_with_a_note() -> None:
    found = card(report(init(), result("\n".join(f"line {n}" for n in range(100)))), PageStyle())
    begin = found.index("answer     line 0")
    assert found[begin + 11 : begin + 14] == [
        "           line 11",
        "           … truncated; use --text for all 789 characters",
        "",
    ]


def test_an_answer_of_megabytes_costs_nothing() -> None:
    found = card(report(init(), result("x" * 5_000_000)), PageStyle())
    assert "           … truncated; use --text for all 5,000,000 characters" in found


def test_structured_output_is_an_answer() -> None:
    found = card(report(init(), result("", structured_output={"n": 3})), PageStyle())
    assert found[found.index("answer     {") :][:3] == [
        "answer     {",
        '             "n": 3',
        "           }",
    ]


def test_the_session_total_is_shown_when_it_differs() -> None:
    found = card(Report(cost=Cost(0.5, "computed", 1.25)), PageStyle())
    assert "cost       $0.5000 computed from the price table · session total $1.2500" in found


def test_many_failures_are_cut_with_a_note() -> None:
    calls = [
        ToolCallSummary(f"t{n}", "Bash", "shell", False, f"<tool_use_error>no {n}</tool_use_error>")
        for n in range(11)
    ]
    found = card(Report(tools=calls), PageStyle())
    begin = found.index("failed     Bash: no 0")
    assert found[begin + 7 : begin + 9] == [
        "           Bash: no 7",
        "           3 more (use --tools)",
    ]
    assert "tools      Bash  11 calls  time unknown  11 failed" in found


def test_an_upper_bound_is_no_measure() -> None:
    context = Context(
        150_000,
        200_000,
        0.75,
        25.0,
        "CRITICAL",
        "25% HP [150k/200k] — CRITICAL",
        None,
        "upper_bound",
        "assumed",
    )
    found = card(Report(context=context), PageStyle())
    assert "context    ███████████████░░░░░ at most 75.0 % used" in found
    assert "           window 200,000 (assumed)" in found


def hostile_report() -> Report:
    """A report with a hostile payload in every text field."""
    x = PAYLOAD
    return Report(
        source=x,
        agent="claude",
        agent_version=x,
        model=x,
        session_id=x,
        run_id=x,
        cwd=x,
        api_key_source=x,
        error=x,
        hint=x,
        warnings=[x, f"permission: {x}"],
        text=x,
        result=x + "漢字" * 99,
        evidence=list(range(99)),
        signal=9,
        started_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
        turns=1,
        duration_ms=1,
        tokens=Tokens(1, 2, 3, 4, 5, 10),
        models={x: ModelSummary(), x * 2: ModelSummary()},
        cost=Cost(1.0, x, 2.0),
        context=Context(1, 2, 0.5, 50.0, x, x, 1, x, x, 3),
        tools=[
            ToolCallSummary(x, x, x, False, x),
            ToolCallSummary(x + "1", x, x, None),
            ToolCallSummary(x + "2", "漢" * 40, x, False, x, True),
        ],
        files=[ChangedFile(x, x, x, False, [x], x)],
        denials=[DeniedCall(x, x, {x: x}, x, x), DeniedCall(None, None, {"command": x})],
        subagents=[Subagent("s", x, x, status=x)],
        background=[BackgroundTask(x, x, x, x), BackgroundTask("b")],
        retries=[RequestRetry(1, 429, x, 5), RequestRetry(None, None, None, None)],
        limits=RateLimitStatus(x, 10**18, x, 0.5),
        lines=LineCounts(9, 1, 2, 3, 4, True),
    )


@pytest.mark.parametrize("path", spread(recorded(200_000), 40), ids=named)
def test_summaries_of_real_runs_keep_to_their_page(path: Path) -> None:
    found = steno.read(path.parent)
    for columns in (40, 80):
        lines = card(found, PageStyle(columns, columns))
        assert all(is_safe(line) and width(line) <= columns for line in lines)
        assert lines[0].startswith(found.verdict)


@pytest.mark.parametrize("columns", [40, 41, 63, 80, 200])
def test_a_hostile_report_stays_inside_its_page(columns: int) -> None:
    style = PageStyle(columns, columns)
    found = hostile_report()
    pages = [
        card(found, style, [SectionRow(PAYLOAD)]),
        show.tools_table(found, style),
        show.files_table(found, style),
        [
            show.runs_header(style),
            show.run_line(found, style, PAYLOAD),
            titled_rule(style, PAYLOAD),
        ],
    ]
    for line in (line for page in pages for line in page):
        assert is_safe(line), line
        assert width(line) <= columns, line


LABELS = {
    *("agent", "session", "folder", "started", "run", "evidence", "warnings", "answer"),
    *("tokens", "cost", "context", "tools", "failed", "files", "denied", "subagents"),
    *("background", "retries", "limits", "lines", "next"),
}


def test_a_hostile_report_forges_no_part() -> None:
    labels = {
        line.split(" ")[0]
        for line in card(hostile_report(), PageStyle())[6:]
        if line[:1] not in ("", " ")
    }
    assert labels <= LABELS


def test_colours_come_from_us_alone() -> None:
    style = PageStyle(80, 80, has_colour=True)
    for line in card(hostile_report(), style):
        bare = line
        for code in (
            "\x1b[2m",
            "\x1b[0m",
            "\x1b[1m",
            "\x1b[31m",
            "\x1b[32m",
            "\x1b[33m",
            "\x1b[36m",
            "\x1b[1;31m",
            "\x1b[1;33m",
        ):
            bare = bare.replace(code, "")
        assert is_safe(bare)
    assert (
        card(report(*hello()), style)[0]
        == "\x1b[1;32msuccess\x1b[0m  the run finished, and the agent reports success"
    )


# -- parts, tables, timelines -------------------------------------------------------------------


def test_a_part_with_nothing_to_say_is_none() -> None:
    assert render_section(PageStyle(), "files", []) == []


def test_lines_break_between_facts() -> None:
    facts = join_facts(["3 turns", None, "2 requests", "", "exit code 0"])
    assert render_section(PageStyle(40), "run", [SectionRow(facts)]) == [
        "run        3 turns · 2 requests ·",
        "             exit code 0",
    ]


def test_a_reason_that_repeats_the_verdict_continues_it() -> None:
    assert headline(PageStyle(), "interrupted", "yellow", "interrupted (Ctrl-C)") == [
        "interrupted (Ctrl-C)"
    ]
    assert headline(PageStyle(), "api", "red", "apiary is down") == ["api  apiary is down"]


def test_a_row_is_cut_after_its_lines() -> None:
    assert render_section(PageStyle(40), "next", [SectionRow("word " * 30, max_lines=2)]) == [
        "next       word word word word word word",
        "             word word word word word …",
    ]


def test_the_table_of_tools() -> None:
    error = "Claude requested permissions to use this tool, but you haven't granted it yet."
    assert show.tools_table(report(*REFUSED), PageStyle()) == [
        "id       name  kind   result     time  error",
        f"toolu_1  Bash  shell  denied  unknown  {error}",
    ]
    assert show.tools_table(report(*REFUSED), PageStyle(40, 40)) == [
        "id       name  result     time  error",
        "toolu_1  Bash  denied  unknown  Claude …",
    ]


def test_the_table_of_files() -> None:
    assert show.files_table(report(*worked()), PageStyle()) == [
        "path       change   where   by",
        "notes.txt  created  inside  toolu_1",
    ]


def test_totals_count_what_is_not_known_apart() -> None:
    totals = show.RunTotals()
    for found in (report(*hello()), report(*hello()), Report()):
        totals.add(found)
    assert totals.lines(PageStyle()) == [
        "3 runs: 2 success, 1 no_result",
        "cost $0.0221 (unknown for 1 run)",
        "tokens 42,210 (unknown for 1 run)",
    ]


def timeline(data: bytes, style: PageStyle | None = None) -> list[str]:
    shown = Timeline(style or PageStyle())
    lines = [shown.line(event) for event in RunParser().events(data.splitlines(keepends=True))]
    return [line for line in lines if line is not None]


def test_the_timeline_says_each_thing_once() -> None:
    assert timeline(stream(*REFUSED)) == [
        "                1  started   claude-opus-5-5 in /srv/project",
        "                3  call      Bash: rm -rf build",
        "                5  denied    Bash: It needs approval.",
        "                7  compacted auto 21,105 to 2,517 tokens",
        "               10  task      completed: done",
        "               11  retry     1 of 10: 529 overloaded, waiting 500 ms",
        "               12  limit     usage allowed, 50.0 % used",
        "               13  text      I may not.",
        "               14  result    success, turns 2, 120 ms, $0.0110",
    ]


def test_the_timeline_indents_subagents() -> None:
    assert "                8    text      I see one file." in timeline(stream(*worked()))


def test_times_are_relative_to_the_first() -> None:
    shown = Timeline(PageStyle())
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    call = ev.ToolCall(1, None, None, start, "t", "Bash", "shell")
    answer = ev.ToolResult(2, None, None, start + timedelta(seconds=1.5), "t", True)
    assert [shown.line(call), shown.line(answer)] == [
        "   +0.000s      1  call      Bash:",
        "   +1.500s      2  failed    Bash, 1.5 s:",
    ]


@pytest.mark.parametrize("columns", [40, 80])
def test_a_hostile_timeline_stays_inside_its_lines(columns: int) -> None:
    x = PAYLOAD
    events: list[ev.Event] = [
        ev.Started(1, x, None, None, x, x, x),
        ev.UserMessage(1, x, None, None, "prompt", x),
        ev.Text(1, x, x, None, x, x),
        ev.ToolCall(1, x, x, None, x, x, x, x),
        ev.ToolResult(1, x, x, None, "other", True),
        ev.Retry(1, x, None, None, 1, 2, 3, x, 4),
        ev.RateLimit(1, x, None, None, x, 1, x, 0.5),
        ev.Compaction(1, x, None, None, x),
        ev.PermissionDenied(1, x, None, None, "c", x, x),
        ev.TaskStarted(1, x, None, None, x, None, x, x, x),
        ev.TaskEnded(1, x, None, None, x, None, x, x),
        ev.Failure(1, x, None, None, x, 5, x),
        ev.Result(1, x, None, None, x, True, x, (x,)),
        ev.FileChanged(1, x, None, None, x, x),
        ev.Stderr(0, None, None, None, x),
        ev.StopRequested(0, None, None, None, x),
        ev.Exited(0, None, None, None, None),
        ev.Malformed(1, None, None, None, x),
        ev.Unknown(1, None, None, None, x, b""),
    ]
    shown = Timeline(PageStyle(columns, columns))
    lines = [shown.line(event) for event in events]
    for line in lines:
        assert line is not None
        assert is_safe(line), line
        assert width(line) <= columns, line


def test_views_return_lines_and_never_print(capsys: pytest.CaptureFixture[str]) -> None:
    card(steno.read(stream(init(), result(), text("x"))), PageStyle())
    assert capsys.readouterr() == ("", "")


PYTEST_OUTPUT = """Exit code 1
============================= test session starts ==============================
collected 1 item
=================================== FAILURES ===================================
__________________________________ test_price __________________________________
    def test_price():
>       assert price(2) == 5
E       assert 4 == 5
E        +  where 4 = price(2)
=========================== short test summary info ============================
FAILED test_shop.py::test_price - assert 4 == 5
"""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (PYTEST_OUTPUT, "Bash: assert 4 == 5"),
        ("----------\nno such file\n__________", "Bash: no such file"),
        ("<tool_use_error>not read yet</tool_use_error>", "Bash: not read yet"),
        ("==== 1 failed ====\n", "Bash: no reason given"),
    ],
)
def test_the_failure_of_a_call_is_what_went_wrong(error: str, shown: str) -> None:
    call = ToolCallSummary("c1", "Bash", "shell", ok=False, error=error)
    lines = card(Report(verdict="success", ok=True, tools=[call]), PageStyle(80))
    (failed,) = [line for line in lines if line.startswith("failed ")]
    assert failed.split(None, 1)[1] == shown


def test_an_open_question_is_shown_once() -> None:
    report = Report(verdict="interactive", text="Which one?", result="Which one?")
    assert [line for line in card(report, PageStyle(80)) if "Which one?" in line] == [
        "interactive  asks: Which one?"
    ]
