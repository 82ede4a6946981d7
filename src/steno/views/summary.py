"""The figures of a card: tokens, cost, context. Each says where it comes from; what is not known is called unknown."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from ..report import (
    ADVISORY_PREFIXES,
    BackgroundTask,
    ChangedFile,
    Context,
    DeniedCall,
    LineCounts,
    Report,
    RequestRetry,
    Subagent,
    TaskReport,
    Tokens,
    ToolCallSummary,
)
from .formatting import (
    UNKNOWN,
    VERDICT_DISPLAY,
    call_target,
    format_count,
    format_duration,
    format_epoch,
    format_money,
    format_number,
    format_percent,
    format_time,
    strip_tag,
    verdict_colour,
)
from .layout import LABEL_COLUMNS, PageStyle, SectionRow, headline, render_section
from .sanitize import clean, pad, single_line, wrap
from .table import align_columns

GAUGE_COLUMNS = 20  # columns of the gauge on a wide page
COST_SOURCES = {
    "reported": "reported by the agent",
    "computed": "computed from the price table",
    "local": "on a model server of one's own",
}
WINDOW_SOURCES = {"reported": "as reported", "known": "known for this model", "assumed": "assumed"}
STATUS_COLOURS = {"Healthy": "green", "Wounded": "yellow", "CRITICAL": "red"}


def usage_section(report: Report, look: PageStyle, extra: Iterable[SectionRow] = ()) -> list[str]:
    """Tokens, cost and context as lines; `extra` rows stand below the cost."""
    found = render_section(look, "tokens", _token_rows(report))
    found += render_section(look, "cost", [*_cost_rows(report), *extra])
    return found + render_section(look, "context", _context_rows(report.context, look))


def _token_rows(report: Report) -> list[SectionRow]:
    tokens = report.tokens
    if tokens == Tokens():
        return [SectionRow(UNKNOWN)]
    if tokens.total == 0:
        return [SectionRow("0")]
    parts = (
        f"input {format_number(tokens.input)}",
        f"cache write {format_number(tokens.cache_write)}",
        f"cache read {format_number(tokens.cache_read)}",
        f"output {format_number(tokens.output)}"
        + (f" (reasoning {format_number(tokens.reasoning)})" if tokens.reasoning else ""),
    )
    rows = [
        SectionRow(
            f"{format_number(tokens.total)} in all · cache hit rate {format_percent(report.cache_hit_rate)}"
        ),
        SectionRow(" · ".join(parts)),
    ]
    if len(report.models) > 1:
        rows += [
            SectionRow(
                f"{name}: {format_money(model.cost_usd)}, output {format_number(model.output)}"
            )
            for name, model in report.models.items()
        ]
    return rows


def _cost_rows(report: Report) -> list[SectionRow]:
    cost = report.cost
    text = (
        UNKNOWN
        if cost.usd is None
        else f"{format_money(cost.usd)} {COST_SOURCES.get(cost.source, cost.source)}"
    )
    session = cost.session_usd
    if session is not None and (cost.usd is None or abs(session - cost.usd) > 1e-6):
        text += f" · the session so far {format_money(session)}"
    return [SectionRow(text)]


def _context_rows(context: Context, look: PageStyle) -> list[SectionRow]:
    if context.used is None or context.fraction is None:
        rows = [SectionRow(context.text)]
    else:
        most = "at most " if context.source == "upper_bound" else ""
        room = look.columns - LABEL_COLUMNS
        gauge = f"{_gauge(context.fraction, min(GAUGE_COLUMNS, room // 2))} {most}{format_percent(context.fraction)} used"
        texts = (
            [f"{gauge} · {context.text}"]
            if len(gauge) + len(context.text) + 3 <= room
            else [gauge, context.text]
        )
        rows = [SectionRow(text, STATUS_COLOURS.get(context.status or "", "")) for text in texts]
    facts = [f"peak {format_number(context.peak)}"] if context.peak is not None else []
    facts.append(
        f"window {format_number(context.limit)} ({WINDOW_SOURCES.get(context.limit_source, context.limit_source)})"
    )
    if context.compactions:
        facts.append(format_count(context.compactions, "compaction"))
    return [*rows, SectionRow(" · ".join(facts))]


def _gauge(fraction: float, columns: int) -> str:
    full = min(columns, round(fraction * columns))
    if fraction > 0 and not full:
        full = 1
    return "█" * full + "░" * (columns - full)


MAX_ROWS_PER_SECTION = 8  # of each kind: a card is a page, --tools and --files have the rest
CHANGE_COLOURS = {"created": "green", "deleted": "red"}
Item = TypeVar("Item")


def activity_section(report: Report, look: PageStyle) -> list[str]:
    """All that there is something to say about."""
    room = look.columns - LABEL_COLUMNS
    parts = (
        ("tools", _tool_rows(report.tools, room)),
        ("failed", _failure_rows(report.tools)),
        ("files", _file_rows(report.files)),
        ("refused", _denial_rows(report.denials)),
        ("subagents", _subagent_rows(report.subagents, {task.id for task in report.background})),
        ("background", _background_rows(report.background, {one.id for one in report.subagents})),
        ("retries", _retry_rows(report.retries)),
        ("limits", _rate_limit_rows(report)),
        ("lines", _bad_line_rows(report.lines, report.warnings)),
    )
    return [line for label, rows in parts for line in render_section(look, label, rows)]


def _limit_items(
    items: Sequence[Item], option: str = ""
) -> tuple[Sequence[Item], list[SectionRow]]:
    """The items that are shown, and a row on the others."""
    more = len(items) - MAX_ROWS_PER_SECTION
    note = f"and {more} more" + (f": {option}" if option else "")
    return items[:MAX_ROWS_PER_SECTION], [SectionRow(note, "dim")] if more > 0 else []


# -- calls ---------------------------------------------------------------------------------------------------


def _tool_rows(tools: list[ToolCallSummary], room: int) -> list[SectionRow]:
    by_name: dict[str, list[ToolCallSummary]] = {}
    for tool in tools:
        by_name.setdefault(tool.name, []).append(tool)
    shown, more = _limit_items(list(by_name.items()), "--tools")
    table = [
        [name, format_count(len(calls), "call"), _total_duration(calls), _failure_counts(calls)]
        for name, calls in shown
    ]
    return [
        SectionRow(line, max_lines=1) for line in align_columns(table, room, right_aligned=(1, 2))
    ] + more


def _total_duration(calls: Iterable[ToolCallSummary]) -> str:
    """The time of all calls together; with a mark where some of it is not known."""
    spans = [call.duration_ms for call in calls]
    known = [length for length in spans if length is not None]
    if not known:
        return "time unknown"
    return ("≥ " if len(known) < len(spans) else "") + format_duration(sum(known))


def _failure_counts(calls: Iterable[ToolCallSummary]) -> str:
    counts = {"failed": 0, "refused": 0, "without a result": 0}
    for call in calls:
        if call.denied:
            counts["refused"] += 1
        elif not call.ok:
            counts["without a result" if call.ok is None else "failed"] += 1
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _failure_rows(tools: list[ToolCallSummary]) -> list[SectionRow]:
    failed = [tool for tool in tools if tool.ok is False and not tool.denied]
    shown, more = _limit_items(failed, "--tools")
    return [
        SectionRow(f"{single_line(tool.name)}: {_error_text(tool)}", max_lines=2) for tool in shown
    ] + more


def _error_text(tool: ToolCallSummary) -> str:
    return single_line(strip_tag(tool.error or "")) or "no reason given"


def _file_rows(files: list[ChangedFile]) -> list[SectionRow]:
    shown, more = _limit_items(files, "--files")
    rows = []
    for file in shown:
        notes = [] if file.inside else ["outside the folder"]
        if file.source != "tool":
            notes.append(f"seen by {file.source}")
        note = f"  ({', '.join(notes)})" if notes else ""
        rows.append(
            SectionRow(
                f"{file.change:8}  {single_line(file.path)}{note}",
                CHANGE_COLOURS.get(file.change, ""),
                hanging_indent=10,
            )
        )
    return rows + more


def _denial_rows(denials: list[DeniedCall]) -> list[SectionRow]:
    told: dict[tuple[str, str, str, str], int] = {}
    for denial in denials:
        key = (
            denial.tool or "a tool",
            call_target(denial.input),
            denial.reason or "",
            denial.allow_rule or "",
        )
        told[key] = told.get(key, 0) + 1
    shown, more = _limit_items(list(told.items()))
    rows = []
    for (tool, what, reason, allow), times in shown:
        rows.append(
            SectionRow(f"{times} × " * (times > 1) + f"{tool}  {single_line(what)}", max_lines=2)
        )
        rows += [SectionRow("  " + single_line(reason), "dim", max_lines=2)] if reason else []
        rows += (
            [SectionRow(f"  allow: {single_line(allow)}", hanging_indent=4, max_lines=2)]
            if allow
            else []
        )
    return rows + more


# -- what went on beside it -------------------------------------------------------------------------------------


def _subagent_rows(subagents: list[Subagent], background: set[str]) -> list[SectionRow]:
    shown, more = _limit_items(subagents)
    rows = []
    for one in shown:
        name = " ".join(
            filter(
                None,
                (
                    one.type or "subagent",
                    f"“{single_line(one.description)}”" if one.description else None,
                ),
            )
        )
        status = _status_text(one.status or "status unknown") + (
            " in the background" if one.id in background else ""
        )
        cost = f", {format_money(one.cost_usd)}" if one.cost_usd is not None else ""
        rows.append(
            SectionRow(
                f"{name}: {status}, {format_number(one.tokens.total)} tokens{cost}",
                _status_style(one.status),
            )
        )
    return rows + more


def _background_rows(tasks: list[BackgroundTask], subagents: set[str]) -> list[SectionRow]:
    """Work in the background, except subagents, which are told of already."""
    shown, more = _limit_items([task for task in tasks if task.id not in subagents])
    rows = []
    for task in shown:
        name = single_line(" ".join(filter(None, (task.kind, task.description)))) or task.id
        rows.append(SectionRow(f"{name}: {_status_text(task.status)}", _status_style(task.status)))
    return rows + more


def _status_text(word: str) -> str:
    return "not seen to end" if word == "running" else word


def _status_style(word: str | None) -> str:
    return "yellow" if word == "running" else ""


def _retry_rows(retries: list[RequestRetry]) -> list[SectionRow]:
    kinds: dict[str, list[RequestRetry]] = {}
    for retry in retries:
        name = " ".join(
            filter(None, (str(retry.status) if retry.status is not None else None, retry.error))
        )
        kinds.setdefault(name or "reason unknown", []).append(retry)
    shown, more = _limit_items(list(kinds.items()))
    return [
        SectionRow(f"{len(notes)} × {single_line(kind)}, {_total_wait(notes)}")
        for kind, notes in shown
    ] + more


def _total_wait(notes: list[RequestRetry]) -> str:
    waits = [note.delay_ms for note in notes]
    known = [wait for wait in waits if wait is not None]
    if len(known) < len(waits):
        return "wait " + UNKNOWN
    return f"waited {format_duration(sum(known))}" + (" in all" if len(known) > 1 else "")


def _rate_limit_rows(report: Report) -> list[SectionRow]:
    limits = report.limits
    facts = [
        " ".join(filter(None, (limits.kind, limits.status))),
        f"{format_percent(limits.utilization)} used" if limits.utilization is not None else "",
        f"resets {format_epoch(limits.resets_at)}" if limits.resets_at is not None else "",
    ]
    text = " · ".join(filter(None, facts))
    return [SectionRow(text)] if text else []


def _bad_line_rows(lines: LineCounts, warnings: list[str]) -> list[SectionRow]:
    """Lines that were odd. Unknown kinds are a warning already, as a rule."""
    told = any("does not know" in warning for warning in warnings)
    facts = [
        f"{format_number(lines.malformed)} malformed" if lines.malformed else "",
        f"{format_number(lines.not_object)} not objects" if lines.not_object else "",
        f"{format_number(lines.unknown)} of unknown kinds" if lines.unknown and not told else "",
        "the last one cut" if lines.torn else "",
    ]
    text = ", ".join(filter(None, facts))
    return [SectionRow(f"of {format_number(lines.read)} lines: {text}", "yellow")] if text else []


MAX_ANSWER_LINES = 12  # enough to recognise an answer; --text gives all of it
MAX_WARNINGS = 8


def card(report: Report, look: PageStyle, extra: Iterable[SectionRow] = ()) -> list[str]:
    """The whole card, its groups apart by a blank line. `extra` rows stand below the cost."""
    groups = [
        _headline(report, look),
        _run_section(report, look),
        _answer_section(report, look),
        usage_section(report, look, extra),
        activity_section(report, look),
        render_section(
            look, "next", [SectionRow(report.hint, "bold", max_lines=6)] if report.hint else []
        ),
    ]
    found: list[str] = []
    for group in groups:
        if group and found:
            found.append("")
        found += group
    return found


def _headline(report: Report, look: PageStyle) -> list[str]:
    return headline(look, report.verdict, verdict_colour(report.verdict), _headline_text(report))


def _headline_text(report: Report) -> str:
    """The run's own words for how it ended, else ours."""
    if report.error and report.error.strip():
        return report.error.strip()
    told = _advisory_warning(report)
    return (
        told.partition(":")[2].strip()
        if told
        else VERDICT_DISPLAY.get(report.verdict, ("", "how it ended is not known"))[1]
    )


def _advisory_warning(report: Report) -> str | None:
    """The warning that the verdict rests on: it is in the headline and not said again."""
    if report.error or report.verdict not in ("interactive", "background_task", "permission"):
        return None
    return next(
        (warning for warning in report.warnings if warning.startswith(ADVISORY_PREFIXES)), None
    )


def _run_section(report: Report, look: PageStyle) -> list[str]:
    agent = " ".join(filter(None, (report.agent or "unknown agent", report.agent_version)))
    key = f"key: {report.api_key_source}" if report.api_key_source else None
    found = render_section(
        look,
        "agent",
        [SectionRow(" · ".join(filter(None, (agent, report.model or "model unknown", key))))],
    )
    found += render_section(look, "session", _optional_row(report.session_id))
    found += render_section(look, "folder", _optional_row(report.cwd))
    found += render_section(
        look,
        "started",
        _optional_row(format_time(report.started_at) if report.started_at is not None else None),
    )
    found += render_section(look, "run", [SectionRow(" · ".join(_run_facts(report)))])
    if report.evidence:
        shown = ", ".join(map(str, report.evidence[:12])) + (
            " …" if len(report.evidence) > 12 else ""
        )
        found += render_section(
            look,
            "evidence",
            [SectionRow(f"line{'s' if len(report.evidence) > 1 else ''} {shown} of the recording")],
        )
    return found + render_section(look, "warnings", _warning_rows(report))


def _optional_row(text: str | None) -> list[SectionRow]:
    return [SectionRow(text)] if text else []


def _run_facts(report: Report) -> list[str]:
    facts = [
        f"{format_count(report.turns, 'turn') if report.turns is not None else 'turns unknown'}"
    ]
    facts.append(format_count(report.requests, "request"))
    facts.append(
        format_duration(report.duration_ms) if report.duration_ms is not None else "time unknown"
    )
    if report.duration_api_ms is not None:
        facts[-1] += f" ({format_duration(report.duration_api_ms)} in requests)"
    if report.signal is not None:
        facts.append(f"ended by signal {report.signal}")
    elif report.exit_code is not None:
        facts.append(f"exit code {report.exit_code}")
    return facts


def _warning_rows(report: Report) -> list[SectionRow]:
    told = _advisory_warning(report)
    rows = [SectionRow(warning, "yellow") for warning in report.warnings if warning != told]
    more = len(rows) - MAX_WARNINGS
    return rows if more <= 0 else [*rows[:MAX_WARNINGS], SectionRow(f"and {more} more", "dim")]


def _answer_section(report: Report, look: PageStyle) -> list[str]:
    """What the agent said at the end, unless the headline says it already."""
    text = (report.result or report.text).strip("\r\n ")
    if not text and report.structured_output is not None:
        text = msgspec.json.format(msgspec.json.encode(report.structured_output), indent=2).decode(
            "utf-8"
        )
    if not text or text == (report.error or "").strip():
        return []
    room = look.columns - LABEL_COLUMNS
    head = text[: room * MAX_ANSWER_LINES * 4]
    wrapped = wrap(head, room)
    rows = [
        SectionRow(line, hanging_indent=0, max_lines=1)
        for line in islice(wrapped, MAX_ANSWER_LINES)
    ]
    if len(head) < len(text) or next(wrapped, None) is not None:
        rows.append(
            SectionRow(f"… cut here: all {format_number(len(text))} characters with --text", "dim")
        )
    return render_section(look, "answer", rows)


def task_summary(report: TaskReport, command: str | None, look: PageStyle) -> list[str]:
    """The lines of a task's end. The command stands on one line, however long, so that it can be copied."""
    found = card(report if command is None else _without_resume_hint(report), look)
    rows = _attempt_rows(report)
    if rows:
        found += ["", *render_section(look, "attempts", rows)]
    if command is not None:
        found += ["", look.paint(pad("continue", LABEL_COLUMNS), "dim") + clean(command)]
    return found


def _without_resume_hint(report: TaskReport) -> TaskReport:
    """Without a hint that says in the agent's own words what the command says in ours."""
    resumes = report.session_id is not None and report.session_id in (report.hint or "")
    return (
        msgspec.structs.replace(report, hint=None)
        if resumes or report.verdict == "permission"
        else report
    )


def _attempt_rows(report: TaskReport) -> list[SectionRow]:
    if len(report.attempts) < 2:
        return []
    found, mixed = [], len({attempt.agent for attempt in report.attempts}) > 1
    for number, attempt in enumerate(report.attempts, 1):
        turns = [format_count(attempt.turns, "turn")] if attempt.turns is not None else []
        whose = [attempt.agent or "unknown agent"] if mixed else []
        facts = [
            f"{number}. {attempt.verdict}",
            *whose,
            *turns,
            format_money(attempt.cost.usd),
            format_duration(attempt.duration_ms),
        ]
        found.append(
            SectionRow(
                f"{' · '.join(facts)}; then: {attempt.why}",
                verdict_colour(attempt.verdict),
                hanging_indent=3,
            )
        )
    return found
