"""Events in, one report out: the fold of a run. Pure: no clock, no disk, no prices of its own.

`add` takes each event once; `close` ends the fold. What it keeps grows with the number of calls
and requests and with the text of the answer, never with the size of tool results.
"""

import posixpath
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from . import events as ev
from . import meter
from .decode import text_of, values
from .report import (
    Background,
    Cost,
    Denial,
    File,
    Limits,
    Lines,
    Model,
    Report,
    RetryNote,
    Subagent,
    Tokens,
    Tool,
    ToolCount,
)
from .verdict import Facts, judge

ERROR_KEPT = 500  # characters of a failed call's answer: enough to read why; the tape holds the whole
STDERR_KEPT = 50  # last lines of stderr that can end up in an error text


class Price(Protocol):
    """Nano-dollars of what a model was used for at a time; None when the price is not known."""

    def __call__(self, model: str, share: Any, at: datetime | None) -> int | None: ...


class Dialect(Protocol):
    """What the fold must ask the agent: a model's window, and how a rule that allows a call is written."""

    @property
    def name(self) -> str: ...

    @property
    def window(self) -> Callable[[str], int | None]: ...

    @property
    def allow_rule(self) -> Callable[[str, Any, str | None], str]: ...


class Request(Struct, gc=False):
    """One API message, told by any number of lines (M2)."""

    line: int
    parent: str | None
    at: datetime | None
    model: str | None = None
    input: int | None = None
    cache_write: int | None = None
    cache_read: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_write_1h: int | None = None
    final: bool = False

    def merge(self, usage: ev.Usage) -> None:
        """Take over what a later line knows better; a counter only ever grows."""
        self.model = self.model or usage.model
        self.input = _larger(self.input, usage.input)
        self.cache_write = _larger(self.cache_write, usage.cache_write)
        self.cache_read = _larger(self.cache_read, usage.cache_read)
        self.output = _larger(self.output, usage.output)
        self.reasoning = _larger(self.reasoning, usage.reasoning)
        self.cache_write_1h = _larger(self.cache_write_1h, usage.cache_write_1h)
        self.final = self.final or usage.final

    @property
    def occupancy(self) -> int | None:
        """What the window held when this request was sent (M3)."""
        return meter.total((self.input, self.cache_write, self.cache_read))


def _larger(known: int | None, told: int | None) -> int | None:
    if known is None or (told is not None and told > known):
        return told
    return known


class Fold:
    """The running report of one run."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.started: ev.Started | None = None
        self.api_key_source: str | None = None
        self.session: str | None = None
        self.first_at: datetime | None = None
        self.last_at: datetime | None = None
        self.text: list[str] = []
        self.partial: list[str] = []
        self.calls: dict[str, Tool] = {}
        self.pending: dict[str, Raw] = {}
        self.requests: dict[str, Request] = {}
        self.main: Request | None = None
        self.compacted: ev.Compaction | None = None
        self.compactions = 0
        self.peak: int | None = None
        self.files: dict[str, File] = {}
        self.denials: dict[str, Denial] = {}
        self.denied_at: dict[str, int] = {}
        self.subagents: dict[str, Subagent] = {}
        self.background: dict[str, Background] = {}
        self.task_calls: dict[str, str] = {}  # task id -> call id
        self.retries: list[RetryNote] = []
        self.limits = Limits()
        self.results: list[ev.Result] = []
        self.account: ev.CostState | None = None
        self.facts = Facts()
        self.orphans = 0
        self.unknown = 0
        self._on: dict[type[ev.Event], Callable[[Any], None]] = {
            ev.Text: self._on_text,
            ev.ToolCall: self._on_call,
            ev.ToolResult: self._on_result,
            ev.Usage: self._on_usage,
            ev.Partial: self._on_partial,
            ev.Started: self._on_started,
            ev.UserMessage: self._on_user,
            ev.Retry: self._on_retry,
            ev.RateLimit: self._on_limit,
            ev.Compaction: self._on_compaction,
            ev.PermissionDenied: self._on_denied,
            ev.TaskStarted: self._on_task,
            ev.TaskEnded: self._on_task_end,
            ev.Failure: self._on_failure,
            ev.Result: self._on_agent_result,
            ev.CostState: self._on_cost,
            ev.FileChanged: self._on_file,
            ev.Stderr: self._on_stderr,
            ev.StopRequested: self._on_stop,
            ev.Exited: self._on_exit,
            ev.Malformed: self._on_malformed,
            ev.Unknown: self._on_unknown,
        }

    def add(self, event: ev.Event) -> None:
        """Take in one event. Kinds that change no figure (hooks, notices, thinking) only count for time."""
        if event.at is not None:
            if self.first_at is None:
                self.first_at = event.at
            self.last_at = event.at
        take = self._on.get(event.__class__)
        if take is not None:
            take(event)

    # -- what the model says and does ---------------------------------------------------------------

    def _on_text(self, event: ev.Text) -> None:
        if event.parent is None:
            self.text.append(event.text)
            self.partial.clear()
            self.facts.last_message = event.message

    def _on_partial(self, event: ev.Partial) -> None:
        if event.parent is None:
            self.partial.append(event.text)

    def _on_call(self, event: ev.ToolCall) -> None:
        if event.id in self.calls:
            return
        self.calls[event.id] = Tool(
            event.id, event.name, event.kind, None, None, False, event.at, None, event.parent, event.background
        )
        self.pending[event.id] = event.input
        if event.parent is None:
            self.facts.last_message = event.message
            if event.name in ("AskUserQuestion", "ExitPlanMode"):
                self.facts.asked = (event.id, event.message, event.line)
        if event.background:
            self._launch(event.id, event.kind, None, event.line)

    def _on_result(self, event: ev.ToolResult) -> None:
        call = self.calls.get(event.id)
        if call is None:
            self.orphans += 1
            return
        self.pending.pop(event.id, None)
        if call.ok is not None:
            return
        call.ok = not event.is_error
        if event.is_error:
            call.error = text_of(event.content)[:ERROR_KEPT]
        if event.at is not None and call.started_at is not None:
            spent = event.at - call.started_at
            call.duration_ms = max(0, round(spent.total_seconds() * 1000))

    def _on_usage(self, event: ev.Usage) -> None:
        key = event.message if event.message is not None else f"line {event.line}"
        request = self.requests.get(key)
        if request is None:
            request = Request(event.line, event.parent, event.at)
            self.requests[key] = request
        request.merge(event)
        if event.parent is None:
            self.main = request
            self.facts.last_message = event.message
            self.facts.last_stop = event.stop_reason
            used = request.occupancy
            if used is not None and (self.peak is None or used > self.peak):
                self.peak = used

    # -- what the agent says about the run ------------------------------------------------------------

    def _on_started(self, event: ev.Started) -> None:
        if self.started is None:
            self.started = event
        self.api_key_source = self.api_key_source or event.api_key_source
        self.session = event.session or self.session

    def _on_user(self, event: ev.UserMessage) -> None:
        if event.kind == "interrupted" and event.parent is None:
            self.facts.interrupted = event.line
        elif event.parent is None and event.kind == "prompt":
            self.facts.interrupted = None

    def _on_retry(self, event: ev.Retry) -> None:
        self.retries.append(RetryNote(event.attempt, event.status, event.error, event.delay_ms))

    def _on_limit(self, event: ev.RateLimit) -> None:
        self.limits = Limits(event.status, event.resets_at, event.kind, event.utilization)
        self.facts.limit_line = event.line

    def _on_compaction(self, event: ev.Compaction) -> None:
        self.compactions += 1
        if event.parent is None:
            self.compacted, self.main = event, None

    def _on_denied(self, event: ev.PermissionDenied) -> None:
        key = event.call or f"line {event.line} {len(self.denials)}"
        call = self.calls.get(key)
        known = self.denials.get(key)
        if known is None:
            known = self.denials[key] = Denial(event.tool or (call.name if call else None), event.call)
            self.denied_at[key] = event.line
            known.input = _plain(self.pending.get(key))
        if event.input is not ev.NO_JSON:
            known.input = _plain(event.input)
        known.reason = known.reason or event.reason
        if call is not None:
            call.denied = True

    def _on_failure(self, event: ev.Failure) -> None:
        if event.parent is None:
            self.facts.failure = event

    def _on_agent_result(self, event: ev.Result) -> None:
        self.results.append(event)
        self.session = event.session or self.session

    def _on_cost(self, event: ev.CostState) -> None:
        self.account = event
        self.session = event.session or self.session

    def _on_stderr(self, event: ev.Stderr) -> None:
        self.facts.stderr.append(event.text)
        del self.facts.stderr[:-STDERR_KEPT]

    def _on_stop(self, event: ev.StopRequested) -> None:
        if self.facts.stop is None:
            self.facts.stop = event

    def _on_exit(self, event: ev.Exited) -> None:
        self.facts.exited = event

    def _on_malformed(self, event: ev.Malformed) -> None:
        if len(self.facts.plain) < STDERR_KEPT:
            self.facts.plain.append(event.head)

    def _on_unknown(self, event: ev.Unknown) -> None:
        self.unknown += 1

    # -- work beside the main thread, and files -------------------------------------------------------

    def _on_task(self, event: ev.TaskStarted) -> None:
        call = event.call or event.task
        self.task_calls[event.task] = call
        if event.kind == "subagent":
            known = self.subagents.setdefault(call, Subagent(call, status="running"))
            known.type = known.type or event.agent_type
            known.description = known.description or event.description
        if event.background:
            tool = self.calls.get(call)
            if tool is not None:
                tool.background = True
            self._launch(call, event.kind, event.description, event.line)
        elif call in self.background:
            known_task = self.background[call]
            known_task.description = known_task.description or event.description

    def _launch(self, call: str, kind: str | None, description: str | None, line: int) -> None:
        task = self.background.get(call)
        if task is None:
            task = self.background[call] = Background(call, kind)
            self.facts.launches[call] = line
        task.description = task.description or description

    def _on_task_end(self, event: ev.TaskEnded) -> None:
        call = event.call or self.task_calls.get(event.task, event.task)
        status = event.status or "completed"
        if call in self.background and self.background[call].status in ("running", "killed"):
            self.background[call].status = status
        if call in self.subagents:
            self.subagents[call].status = status

    def _on_file(self, event: ev.FileChanged) -> None:
        cwd = self.started.cwd if self.started is not None else None
        absolute = posixpath.normpath(posixpath.join(cwd or "", event.path))
        known = self.files.get(absolute)
        if known is None:
            inside = cwd is not None and (absolute + "/").startswith(cwd.rstrip("/") + "/")
            path = posixpath.relpath(absolute, cwd) if inside and cwd is not None else absolute
            known = self.files[absolute] = File(path, absolute, event.change, inside, [], event.source)
        elif event.change == "deleted" or known.change == "deleted":
            known.change = event.change
        if event.call is not None and event.call not in known.tools:
            known.tools.append(event.call)

    # -- the end --------------------------------------------------------------------------------------

    def close(self, lines: Lines, price: Price | None = None) -> Report:
        """The report of everything taken in. Can be called again while the run goes on."""
        lines.unknown = self.unknown
        report = Report(agent=self.dialect.name, lines=lines, source=None)
        self._about(report)
        self._said(report)
        self._count(report, price)
        self._listed(report, price)
        verdict = judge(self._ending(report))
        verdict.into(report)
        return report

    def _about(self, report: Report) -> None:
        started = self.started
        if started is not None:
            report.agent_version, report.model, report.cwd = started.agent_version, started.model, started.cwd
        if report.model is None:
            report.model = next((r.model for r in self.requests.values() if r.parent is None and r.model), None)
        report.session_id = self.session
        report.api_key_source = self.api_key_source
        report.started_at = self.first_at
        exited = self.facts.exited
        if exited is not None:
            report.exit_code = exited.code
            report.signal = -exited.code if exited.code is not None and exited.code < 0 else None

    def _said(self, report: Report) -> None:
        result = self.result
        report.text = "\n".join(self.text)
        if self.partial and result is None:
            report.text = "\n".join(filter(None, (report.text, "".join(self.partial))))
        if result is not None:
            report.result, report.subtype = result.text, result.subtype
            report.terminal_reason, report.stop_reason = result.terminal_reason, result.stop_reason
            report.structured_output = _plain(result.structured_output)
        elif self.facts.last_stop != "unknown":
            report.stop_reason = self.facts.last_stop
        report.complete = result is not None and not report.lines.torn

    @property
    def result(self) -> ev.Result | None:
        """The result that counts: the last one that is not an empty echo (E4)."""
        for result in reversed(self.results):
            if not _is_echo(result):
                return result
        return self.results[-1] if self.results else None

    def _count(self, report: Report, price: Price | None) -> None:
        report.requests = len(self.requests)
        report.turns = _turns(self.results)
        booked = meter.own_part(self.results, report.model) if self.results else self._account()
        late = self._late()
        report.tokens = self._tokens(booked, late, report.warnings)
        report.cache_hit_rate = meter.cache_hit_rate(report.tokens)
        report.models = self._models(booked, late, price)
        report.cost = self._cost(booked, late, price, report)
        report.warnings += booked.warnings
        report.context = self._context(report)
        self._durations(report, booked)

    def _account(self) -> meter.Booked:
        """A transcript's own running account, where it keeps one; its session is the whole run."""
        if self.account is None:
            return meter.Booked()
        return meter.Booked(self.account.models, self.account.cost_nano, self.account.cost_nano)

    def _late(self) -> list[Request]:
        """Requests that no account covers: all of them without a result, else those after the last one."""
        if self.account is not None and not self.results:
            return []
        last = self.results[-1].line if self.results else -1
        return [request for request in self.requests.values() if request.line > last]

    def _tokens(self, booked: meter.Booked, late: list[Request], warnings: list[str]) -> Tokens:
        if not self.results and self.account is None:
            return self._from_requests(warnings)
        usages = [result.usage for result in self.results if result.usage is not None]
        if booked.models is None and len(self.requests) > 0:
            return self._from_requests(warnings)
        shares: list[Any] = list((booked.models or {}).values())
        told, used = meter.tokens_of(shares).total, meter.tokens_of(usages).total
        if booked.usage_only or not shares or (told is not None and used is not None and told < used):
            if shares and not booked.usage_only:
                warnings.append(f"modelUsage counts fewer tokens ({told:,}) than usage ({used:,}): usage is taken")
            shares = usages
        return meter.tokens_of([*shares, *late])

    def _from_requests(self, warnings: list[str]) -> Tokens:
        requests = list(self.requests.values())
        if not requests:
            return Tokens()
        self._take_last_output()
        open_ = sum(1 for request in requests if not request.final)
        if open_ and not self.results:
            warnings.append(f"output tokens are a lower bound: {open_} of {len(requests)} requests never told their final count")
        return meter.tokens_of(requests)

    def _take_last_output(self) -> None:
        """Before modelUsage existed, a result's usage was its last request's: its output is the final one."""
        if self.main is not None and self.results and self.results[-1].usage is not None:
            usage = self.results[-1].usage
            if (usage.input, usage.cache_write, usage.cache_read) == (
                self.main.input,
                self.main.cache_write,
                self.main.cache_read,
            ):
                self.main.output = _larger(self.main.output, usage.output)

    def _models(self, booked: meter.Booked, late: list[Request], price: Price | None) -> dict[str, Model]:
        models = {
            name: Model(share.input, share.cache_write, share.cache_read, share.output,
                        meter.dollars(share.cost_nano), share.context_window, share.max_output)
            for name, share in (booked.models or {}).items()
        }  # fmt: skip
        if models or booked.usage_only:
            return models
        by_name: dict[str, list[Request]] = {}
        for request in self.requests.values():
            by_name.setdefault(request.model or "unknown", []).append(request)
        for name, requests in by_name.items():
            sums = meter.tokens_of(requests)
            cost = meter.dollars(_priced(requests, price)) if not self.results else None
            models[name] = Model(sums.input, sums.cache_write, sums.cache_read, sums.output, cost)
        return models

    def _cost(self, booked: meter.Booked, late: list[Request], price: Price | None, report: Report) -> Cost:
        session = meter.dollars(booked.session_nano)
        if booked.usage_only:
            nano = _usage_price(self.results, report.model, price)
            return Cost(meter.dollars(nano), "unknown" if nano is None else "computed", session)
        if booked.cost_nano is not None and not late:
            return Cost(meter.dollars(booked.cost_nano), "reported", session)
        if not late:
            return Cost(session_usd=session)
        rest = _priced(late, price)
        nano = rest if booked.cost_nano is None and not self.results else meter.plus(booked.cost_nano, rest)
        if nano is None and booked.cost_nano is not None:
            report.warnings.append(f"{len(late)} requests after the last result have no known price; they are not in the cost")
            return Cost(meter.dollars(booked.cost_nano), "reported", session)
        return Cost(meter.dollars(nano), "unknown" if nano is None else "computed", session)

    def _context(self, report: Report) -> Any:
        models = self.results[-1].models if self.results else None
        limit, limit_source = self._limit(models or {}, report.model)
        used: int | None = None
        source = "measured"
        if self.main is not None:
            used = self.main.occupancy
        elif self.compacted is not None:
            used = self.compacted.after
        elif not self.requests and self.results and self.results[-1].usage is not None:
            usage = self.results[-1].usage
            used = meter.total((usage.input, usage.cache_write, usage.cache_read)) or None
            source = "measured" if self.results[-1].turns == 1 else "upper_bound"
        return meter.context(used, limit, limit_source, source, self.peak, self.compactions)

    def _limit(self, models: dict[str, ev.ModelUsage], model: str | None) -> tuple[int | None, str]:
        key = meter.main_model(models, self.main.model if self.main is not None and self.main.model else model)
        if key is None:
            key = meter.main_model(models, model)
        share = models.get(key or "")
        if share is not None and share.context_window:
            return share.context_window, "reported"
        known = self.dialect.window(model or key or "")
        return (known, "known") if known is not None else (None, "assumed")

    def _durations(self, report: Report, booked: meter.Booked) -> None:
        if self.results:
            report.duration_ms = meter.total(result.duration_ms for result in self.results)
            report.duration_api_ms = None if booked.earlier else self.results[-1].duration_api_ms
        elif self.first_at is not None and self.last_at is not None:
            report.duration_ms = max(0, round((self.last_at - self.first_at).total_seconds() * 1000))

    def _listed(self, report: Report, price: Price | None) -> None:
        report.tools = list(self.calls.values())
        for tool in report.tools:
            count = report.tool_counts.setdefault(tool.name, ToolCount())
            count.calls += 1
            count.errors += tool.ok is False
        report.files = list(self.files.values())
        report.denials = list(self.denials.values())
        for denial in report.denials:
            denial.allow_rule = self.dialect.allow_rule(denial.tool or "", denial.input, report.cwd)
        report.subagents = list(self.subagents.values())
        self._roll_up(report, price)
        report.background = list(self.background.values())
        report.retries, report.limits = self.retries, self.limits
        if self.orphans:
            report.warnings.append(f"{self.orphans} tool results came without their call")
        if self.unknown:
            report.warnings.append(f"{self.unknown} events of kinds this version does not know")

    def _roll_up(self, report: Report, price: Price | None) -> None:
        """Each subagent's requests, under the call that started it (M9)."""
        mine: dict[str, list[Request]] = {}
        for request in self.requests.values():
            if request.parent is not None:
                mine.setdefault(self.task_calls.get(request.parent, request.parent), []).append(request)
        for call, requests in mine.items():
            if call not in self.subagents:
                self.subagents[call] = Subagent(call)
                report.subagents.append(self.subagents[call])
            subagent = self.subagents[call]
            subagent.tokens = meter.tokens_of(requests)
            if all(request.final for request in requests):
                subagent.cost_usd = meter.dollars(_priced(requests, price))

    def _ending(self, report: Report) -> Facts:
        facts = self.facts
        facts.report, facts.result = report, self.result
        facts.ended_by_model = self.main is not None and facts.last_stop == "end_turn"
        later = {tool.name: index for index, tool in enumerate(report.tools) if tool.ok}
        order = {tool.id: index for index, tool in enumerate(report.tools)}
        facts.refused = [
            (denial, self.denied_at[key])
            for key, denial in self.denials.items()
            if later.get(denial.tool or "", -1) <= order.get(key, len(order))
        ]
        return facts


def _is_echo(result: ev.Result) -> bool:
    """A result that only repeats the end of a turn: a success that says nothing."""
    silent = not result.text and result.structured_output is ev.NO_JSON
    return silent and not result.is_error and result.subtype == "success" and result.local_command is None


def _turns(results: list[ev.Result]) -> int | None:
    """The run's turns: each result counts its own, except before modelUsage existed, when the count went on."""
    if not results:
        return None
    if results[-1].models is None:
        return results[-1].turns
    return meter.total(result.turns for result in results)


def _priced(requests: list[Request], price: Price | None) -> int | None:
    if price is None or not requests:
        return None
    return meter.total(price(r.model, r, r.at) if r.model else None for r in requests)


def _usage_price(results: list[ev.Result], model: str | None, price: Price | None) -> int | None:
    last = results[-1]
    name = meter.main_model(last.models or {}, model)
    if price is None or name is None or last.usage is None:
        return None
    return price(name, last.usage, last.at)


def _plain(data: Raw | None) -> Any:
    """JSON as plain Python values; None where there is none."""
    for value in values(bytes(data)) if data is not None else ():
        return msgspec.json.decode(value)
    return None
