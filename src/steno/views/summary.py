"""The summary of a run or task: verdict, answer, tokens, cost, context and activity."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from ..analysis.live_state import call_target
from ..codec.colours import strip_tag
from ..report import (
    VERDICT_MEANINGS,
    BackgroundTask,
    ChangedFile,
    DeniedCall,
    LineCounts,
    RateLimitStatus,
    Report,
    RequestRetry,
    RunOrigin,
    Subagent,
    TaskReport,
    Tokens,
    ToolCallSummary,
    advisory,
)
from .formatting import (
    UNKNOWN,
    clean,
    format_count,
    format_duration,
    format_epoch,
    format_hit_rate,
    format_money,
    format_number,
    format_overhead,
    format_percent,
    format_time,
    gauge,
    single_line,
    verdict_colour,
    wrap,
)
from .table import (
    CHANGE_COLOURS,
    CHARS_PER_COLUMN,
    HP_COLOURS,
    LABEL_COLUMNS,
    Column,
    PageStyle,
    SectionRow,
    headline,
    join_facts,
    render_section,
    render_table,
)

GAUGE_COLUMNS = 20
MAX_ANSWER_LINES = 12  # enough to recognise an answer
MAX_EVIDENCE_LINES = 12
MAX_ROWS_PER_SECTION = 8  # warnings, calls, files, ...
MIN_COST_DIFFERENCE = 1e-6  # dollars
COST_SOURCES = {
    "reported": "reported by the agent",
    "computed": "computed from the price table",
    "local": "on a local model server",
}
WINDOW_SOURCES = {"reported": "as reported", "known": "known for this model", "assumed": "assumed"}
TOOL_COLUMNS = (
    Column("tool", can_truncate=True),
    Column("calls", align_right=True),
    Column("time", align_right=True),
    Column("failures", can_truncate=True),
)
_ASSERTION = re.compile(r"E {2,}\S")  # of pytest
_SEPARATOR = re.compile(r"[=_*~#-]{4,}(?: .* [=_*~#-]{4,})?")
Item = TypeVar("Item")
NO_FACTS: Mapping[str, str] = {}


def card(
    report: Report,
    style: PageStyle,
    extra: Iterable[SectionRow] = (),
    facts: Mapping[str, str] = NO_FACTS,
    with_answer: bool = True,
    is_full: bool = False,
) -> list[str]:
    """The summary, its groups separated by blank lines.

    `extra` rows follow the cost, `facts` by label those of the run.
    """
    reason = verdict_reason(report)
    hint = [SectionRow(report.hint, "bold", max_lines=6)] if report.hint else []
    groups = [
        headline(style, report.verdict, verdict_colour(report.verdict), reason),
        _run_section(report, style, other_warnings(report), facts),
        _answer_section(report, style) if with_answer else [],
        _usage_section(report, style, extra, is_full),
        _activity_section(report, style),
        render_section(style, "next", hint),
    ]
    lines: list[str] = []
    for group in groups:
        if group and lines:
            lines.append("")
        lines += group
    return lines


def other_warnings(report: Report) -> list[str]:
    """The warnings without the one behind the verdict."""
    shown = advisory(report)
    return [text for text in report.warnings if text != shown]


def verdict_reason(report: Report) -> str:
    """Why the run got its verdict: its whole error, else the reason on one line."""
    if report.error and report.error.strip():
        return strip_tag(report.error).strip()
    return report.reason or VERDICT_MEANINGS["success"]


def task_summary(
    report: TaskReport, command: str | None, style: PageStyle, with_answer: bool = True
) -> list[str]:
    """The summary of a task. `command` resumes it and stays on one line, to be copied.

    Without the answer where it is printed above.
    """
    resumes = report.session_id is not None and report.session_id in (report.hint or "")
    shown = report
    if command is not None and (resumes or report.verdict == "permission"):
        # The hint gives the agent's own command for what `command` does.
        shown = msgspec.structs.replace(report, hint=None)
    run_id = {"run id": report.run_id} if report.run_id else NO_FACTS
    lines = card(shown, style, facts=run_id, with_answer=with_answer)
    if len(report.attempts) > 1:
        lines += ["", *render_section(style, "attempts", _attempt_rows(report))]
    if command is not None:
        lines += ["", style.paint("continue".ljust(LABEL_COLUMNS), "dim") + clean(command)]
    return lines


def _attempt_rows(report: TaskReport) -> list[SectionRow]:
    has_several_agents = len({attempt.agent for attempt in report.attempts}) > 1
    rows = []
    for number, attempt in enumerate(report.attempts, 1):
        facts = [
            f"{number}. {attempt.verdict}",
            (attempt.agent or "unknown agent") if has_several_agents else "",
            format_count(attempt.turns, "turn") if attempt.turns is not None else "",
            format_money(attempt.cost.usd),
            format_duration(attempt.duration_ms),
        ]
        text = f"{join_facts(facts)} → {attempt.why}"
        rows.append(SectionRow(text, verdict_colour(attempt.verdict), hanging_indent=3))
    return rows


# -- the run ------------------------------------------------------------------------------------


def _run_section(
    report: Report, style: PageStyle, warnings: list[str], more_facts: Mapping[str, str]
) -> list[str]:
    agent = " ".join(filter(None, (report.agent or "unknown agent", report.agent_version)))
    key = f"key: {report.api_key_source}" if report.api_key_source else None

    turns = "turns unknown" if report.turns is None else format_count(report.turns, "turn")
    duration = "time unknown"
    if report.duration_ms is not None:
        duration = format_duration(report.duration_ms)
    if report.duration_api_ms is not None:
        duration += f" ({format_duration(report.duration_api_ms)} in requests)"
    requests = "requests unknown"
    if report.requests is not None:
        requests = format_count(report.requests, "request")
    end = None
    if report.signal is not None:
        end = f"killed by signal {report.signal}"
    elif report.exit_code is not None:
        end = f"exit code {report.exit_code}"

    evidence = ""
    if report.evidence:
        noun = "line" if len(report.evidence) == 1 else "lines"
        numbers = ", ".join(map(str, report.evidence[:MAX_EVIDENCE_LINES]))
        more = " …" if len(report.evidence) > MAX_EVIDENCE_LINES else ""
        evidence = f"{noun} {numbers}{more} of the recording"

    facts = {
        "agent": join_facts((agent, report.model or "model unknown", key)),
        "name": report.name,
        "tags": join_facts([f"{name}={text}" for name, text in report.tags.items()]),
        "session": report.session_id,
        "folder": report.cwd,
        "git": _describe_origin(report.origin),
        "started": format_time(report.started_at) if report.started_at is not None else None,
        "run": join_facts((turns, requests, duration, end)),
        "evidence": evidence,
        **more_facts,
    }
    lines = []
    for label, text in facts.items():
        if text:
            lines += render_section(style, label, [SectionRow(text)])
    if warnings:
        shown, more_rows = _limit_items(warnings)
        rows = [*(SectionRow(warning, "yellow") for warning in shown), *more_rows]
        lines += render_section(style, "warnings", rows)
    return lines


def _describe_origin(origin: RunOrigin) -> str:
    account = "@".join(filter(None, (origin.user, origin.host)))
    commit = f"({origin.commit[:12]})" if origin.commit else None
    request = f"pull request {origin.pull_request}" if origin.pull_request else None
    checkout = " ".join(filter(None, (origin.branch, commit)))
    return join_facts((account, origin.repository, checkout, request))


def _limit_items(
    items: Sequence[Item], option: str = "--json"
) -> tuple[Sequence[Item], list[SectionRow]]:
    """The items to show, and a row on the rest with the option that prints them."""
    hidden = len(items) - MAX_ROWS_PER_SECTION
    more = [SectionRow(f"{hidden} more (use {option})", "dim")] if hidden > 0 else []
    return items[:MAX_ROWS_PER_SECTION], more


def _answer_section(report: Report, style: PageStyle) -> list[str]:
    """The final answer, unless the headline already shows it."""
    text = (report.result or report.text).strip("\r\n ")
    if not text and report.structured_output is not None:
        data = msgspec.json.encode(report.structured_output)
        text = msgspec.json.format(data, indent=2).decode("utf-8")
    if not text or text == (report.error or "").strip() or report.reason == f"asks: {text}":
        return []
    columns = style.columns - LABEL_COLUMNS
    head = text[: columns * MAX_ANSWER_LINES * CHARS_PER_COLUMN]
    wrapped = wrap(head, columns)
    rows = [
        SectionRow(line, hanging_indent=0, max_lines=1)
        for line in islice(wrapped, MAX_ANSWER_LINES)
    ]
    if len(head) < len(text) or next(wrapped, None) is not None:
        note = f"… truncated; use --text for all {format_number(len(text))} characters"
        rows.append(SectionRow(note, "dim"))
    return render_section(style, "answer", rows)


# -- tokens, cost, context ----------------------------------------------------------------------


def _usage_section(
    report: Report, style: PageStyle, extra: Iterable[SectionRow], is_full: bool
) -> list[str]:
    cost = report.cost
    cost_text = UNKNOWN
    if cost.usd is not None:
        cost_text = f"{format_money(cost.usd)} {COST_SOURCES.get(cost.source, cost.source)}"
    session = cost.session_usd
    if session is not None and (cost.usd is None or abs(session - cost.usd) > MIN_COST_DIFFERENCE):
        cost_text += f" · session total {format_money(session)}"

    # The gauge and the HP text, on one line where both fit; then peak and window.
    context = report.context
    texts = [context.text]
    colour = ""
    if context.used is not None and context.fraction is not None:
        columns = style.columns - LABEL_COLUMNS
        qualifier = "at most " if context.source == "upper_bound" else ""
        blocks = gauge(context.fraction, min(GAUGE_COLUMNS, columns // 2))
        used = f"{blocks} {qualifier}{format_percent(context.fraction)} used"
        joined = f"{used} · {context.text}"
        texts = [joined] if len(joined) <= columns else [used, context.text]
        colour = HP_COLOURS.get(context.status or "", "")
    facts = [f"peak {format_number(context.peak)}"] if context.peak is not None else []
    source = WINDOW_SOURCES.get(context.limit_source, context.limit_source)
    facts.append(f"window {format_number(context.limit)} ({source})")
    if context.compactions:
        facts.append(format_count(context.compactions, "compaction"))
    context_rows = [*(SectionRow(text, colour) for text in texts), SectionRow(join_facts(facts))]
    if context.overhead is not None:
        context_rows.append(SectionRow(format_overhead(msgspec.structs.asdict(context.overhead))))

    return [
        *render_section(style, "tokens", _token_rows(report, is_full)),
        *render_section(style, "cost", [SectionRow(cost_text), *extra]),
        *render_section(style, "context", context_rows),
    ]


def _token_rows(report: Report, is_full: bool) -> list[SectionRow]:
    tokens = report.tokens
    if tokens == Tokens():
        return [SectionRow(UNKNOWN)]
    if tokens.total == 0:
        return [SectionRow("0")]
    reasoning = f" (reasoning {format_number(tokens.reasoning)})" if tokens.reasoning else ""
    hour = f" ({format_number(report.cache_write_1h)} for 1 h)" if report.cache_write_1h else ""
    format_rate = format_hit_rate if is_full else format_percent
    hit_rate = format_rate(report.cache_hit_rate)
    parts = (
        f"input {format_number(tokens.input)}",
        f"cache write {format_number(tokens.cache_write)}{hour}",
        f"cache read {format_number(tokens.cache_read)}",
        f"output {format_number(tokens.output)}{reasoning}",
    )
    rows = [
        SectionRow(f"{format_number(tokens.total)} total · cache hit rate {hit_rate}"),
        SectionRow(join_facts(parts)),
    ]
    server_tools = (
        f"web searches {format_number(report.web_searches)}" if report.web_searches else None,
        f"web fetches {format_number(report.web_fetches)}" if report.web_fetches else None,
    )
    if any(server_tools):
        rows.append(SectionRow(join_facts(server_tools)))
    if len(report.models) > 1:
        for name, model in report.models.items():
            output = format_number(model.output)
            rows.append(SectionRow(f"{name}: {format_money(model.cost_usd)}, output {output}"))
    return rows


# -- activity -----------------------------------------------------------------------------------


def _activity_section(report: Report, style: PageStyle) -> list[str]:
    rows: dict[str, list[SectionRow]] = {}
    if report.tools:
        rows["tools"] = _tool_rows(report.tools, style.columns - LABEL_COLUMNS)
        rows["failed"] = _failure_rows(report.tools)
    if report.files:
        rows["files"] = _file_rows(report.files)
    if report.denials:
        rows["denied"] = _denial_rows(report.denials)
    if report.subagents:
        rows["subagents"] = _subagent_rows(
            report.subagents, {task.id for task in report.background}
        )
    if report.background:
        subagent_ids = {subagent.id for subagent in report.subagents}
        rows["background"] = _background_rows(
            [task for task in report.background if task.id not in subagent_ids]
        )
    if report.retries:
        rows["retries"] = _retry_rows(report.retries)
    if report.limits != RateLimitStatus():
        rows["limits"] = _rate_limit_rows(report.limits)
    if report.lines.malformed or report.lines.not_object or report.lines.torn:
        rows["lines"] = [_bad_lines_row(report.lines)]
    return [line for label in rows for line in render_section(style, label, rows[label])]


def _tool_rows(tools: list[ToolCallSummary], columns: int) -> list[SectionRow]:
    by_name: dict[str, list[ToolCallSummary]] = {}
    for tool in tools:
        by_name.setdefault(tool.name, []).append(tool)
    shown, more = _limit_items(list(by_name.items()), "--tools")
    cells = [
        [name, format_count(len(calls), "call"), _total_duration(calls), _failure_counts(calls)]
        for name, calls in shown
    ]
    lines = render_table(PageStyle(line_limit=columns), TOOL_COLUMNS, cells, header=False)
    return [SectionRow(line, max_lines=1) for line in lines] + more


def _total_duration(calls: Iterable[ToolCallSummary]) -> str:
    """The time of all calls; "≥" where some are unknown."""
    durations = [call.duration_ms for call in calls]
    known = [duration for duration in durations if duration is not None]
    if not known:
        return "time unknown"
    return ("≥ " if len(known) < len(durations) else "") + format_duration(sum(known))


def _failure_counts(calls: Iterable[ToolCallSummary]) -> str:
    counts = {"failed": 0, "denied": 0, "without result": 0}
    for call in calls:
        if call.denied:
            counts["denied"] += 1
        elif call.ok is None:
            counts["without result"] += 1
        elif not call.ok:
            counts["failed"] += 1
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def _failure_rows(tools: list[ToolCallSummary]) -> list[SectionRow]:
    failed = [tool for tool in tools if tool.ok is False and not tool.denied]
    shown, more = _limit_items(failed, "--tools")
    rows = []
    for tool in shown:
        error = _failure_text(strip_tag(tool.error or "")) or "no reason given"
        rows.append(SectionRow(f"{single_line(tool.name)}: {error}", max_lines=2))
    return rows + more


def _failure_text(error: str) -> str:
    """The error on one line, without lines of separators; of a failed pytest, the assertion."""
    lines = error.splitlines()
    found = next((line for line in lines if _ASSERTION.match(line)), None)
    if found is not None:
        return single_line(found[1:].strip())
    return single_line("\n".join(line for line in lines if not _SEPARATOR.fullmatch(line.strip())))


def _file_rows(files: list[ChangedFile]) -> list[SectionRow]:
    shown, more = _limit_items(files, "--files")
    rows = []
    for file in shown:
        notes = [] if file.inside else ["outside the folder"]
        if file.source != "tool":
            notes.append(f"source: {file.source}")
        note = f"  ({', '.join(notes)})" if notes else ""
        text = f"{file.change:8}  {single_line(file.path)}{note}"
        rows.append(SectionRow(text, CHANGE_COLOURS.get(file.change, ""), hanging_indent=10))
    return rows + more


def _denial_rows(denials: list[DeniedCall]) -> list[SectionRow]:
    counts: dict[tuple[str, str, str, str], int] = {}
    for denial in denials:
        key = (
            denial.tool or "unknown tool",
            call_target(denial.input),
            denial.reason or "",
            denial.allow_rule or "",
        )
        counts[key] = counts.get(key, 0) + 1
    shown, more = _limit_items(list(counts.items()))
    rows: list[SectionRow] = []
    for (tool, target, reason, rule), count in shown:
        times = f"{count} × " if count > 1 else ""
        rows.append(SectionRow(f"{times}{tool}  {single_line(target)}", max_lines=2))
        if reason:
            rows.append(SectionRow("  " + single_line(reason), "dim", max_lines=2))
        if rule:
            text = f"  allow: {single_line(rule)}"
            rows.append(SectionRow(text, hanging_indent=4, max_lines=2))
    return rows + more


def _subagent_rows(subagents: list[Subagent], background_ids: set[str]) -> list[SectionRow]:
    shown, more = _limit_items(subagents)
    rows = []
    for subagent in shown:
        name = subagent.type or "subagent"
        if subagent.description:
            name += f" “{single_line(subagent.description)}”"
        status = _status_text(subagent.status or "status unknown")
        if subagent.id in background_ids:
            status += " in the background"
        cost = f", {format_money(subagent.cost_usd)}" if subagent.cost_usd is not None else ""
        bound = "at least " if subagent.is_lower_bound else ""
        text = f"{name}: {status}, {bound}{format_number(subagent.tokens.total)} tokens{cost}"
        rows.append(SectionRow(text, _status_colour(subagent.status)))
    return rows + more


def _background_rows(tasks: list[BackgroundTask]) -> list[SectionRow]:
    shown, more = _limit_items(tasks)
    rows = []
    for task in shown:
        name = single_line(" ".join(filter(None, (task.kind, task.description)))) or task.id
        text = f"{name}: {_status_text(task.status)}"
        rows.append(SectionRow(text, _status_colour(task.status)))
    return rows + more


def _status_text(status: str) -> str:
    return "not finished" if status == "running" else status


def _status_colour(status: str | None) -> str:
    return "yellow" if status == "running" else ""


def _retry_rows(retries: list[RequestRetry]) -> list[SectionRow]:
    by_reason: dict[str, list[RequestRetry]] = {}
    for retry in retries:
        status = str(retry.status) if retry.status is not None else None
        reason = " ".join(filter(None, (status, retry.error))) or "reason unknown"
        by_reason.setdefault(reason, []).append(retry)
    shown, more = _limit_items(list(by_reason.items()))
    return [
        SectionRow(f"{len(group)} × {single_line(reason)}, {_total_wait(group)}")
        for reason, group in shown
    ] + more


def _total_wait(retries: list[RequestRetry]) -> str:
    known = [retry.delay_ms for retry in retries if retry.delay_ms is not None]
    if len(known) < len(retries):
        return "wait unknown"
    return f"waited {format_duration(sum(known))}" + (" in total" if len(known) > 1 else "")


def _rate_limit_rows(limits: RateLimitStatus) -> list[SectionRow]:
    facts = [" ".join(filter(None, (limits.kind, limits.status)))]
    if limits.utilization is not None:
        facts.append(f"{format_percent(limits.utilization)} used")
    if limits.resets_at is not None:
        facts.append(f"resets {format_epoch(limits.resets_at)}")
    text = join_facts(facts)
    return [SectionRow(text)] if text else []


def _bad_lines_row(lines: LineCounts) -> SectionRow:
    """Lines that could not be used; a warning of the report counts unknown kinds."""
    counts = []
    if lines.malformed:
        counts.append(f"{format_number(lines.malformed)} malformed")
    if lines.not_object:
        counts.append(f"{format_number(lines.not_object)} not JSON objects")
    if lines.torn:
        counts.append("last line truncated")
    text = f"{', '.join(counts)} ({format_count(lines.read, 'line')} read)"
    return SectionRow(text, "yellow")
