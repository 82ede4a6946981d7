"""The conversation of a run, step by step: prompts, thinking, answers, tool calls with outputs.

Steps are built from the same events as the report. They are written to a temporary file while the
recording is read, so that memory holds no texts and a long run can be shown in slices.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from .. import event as ev
from ..agents import Agent
from ..analysis.cost import price_requests, zero_price
from ..analysis.list_price import PriceLookup
from ..analysis.live_state import call_target
from ..analysis.redact_report import redact_report
from ..analysis.usage import context_tokens, nano_to_usd, sum_tokens
from ..codec.decode import DECODE_ERRORS
from ..codec.redact import redact, redact_value
from ..recording.open import RecordingInput
from ..report import DeniedCall, Report
from .steps import MAX_SUMMARY_CHARS, Step, StepBuilder, StepFile, StepRequest, ToolUse

__all__ = ["Conversation", "Step", "ToolUse", "read_conversation"]


class Conversation:
    """The steps of a run, and its report. Close it to free the temporary file.

    Secrets are masked in the report and in every step it returns.
    """

    def __init__(
        self, report: Report, builder: StepBuilder, price: PriceLookup | None, prompt: str | None
    ) -> None:
        self.report = redact_report(report)
        self._price = price
        self._prompt = builder.first_prompt or prompt
        self._builder = builder
        builder.finish()
        first = None
        if prompt and not redact(builder.first_prompt or "").startswith(prompt):
            event = ev.UserMessage(0, None, None, report.started_at, "prompt", prompt)
            builder.add([event])
            first = len(builder.steps) - 1
        self._order = _reading_order(builder, first)
        self._numbers = {index: number for number, index in enumerate(self._order, 1)}
        self._sorted_lines = sorted(builder.lines)
        self._depths: dict[str | None, int] = {None: 0}  # of the steps of each parent
        self._denials: dict[str, DeniedCall] = {
            denial.id: denial for denial in report.denials if denial.id is not None
        }
        self._files: dict[str, list[StepFile]] = {}
        for file in report.files:
            for call in file.tools:
                self._files.setdefault(call, []).append(StepFile(redact(file.path), file.change))
        self._requests: dict[int, list[str]] = {}
        for key, index in builder.request_indexes.items():
            if key in builder.requests:
                self._requests.setdefault(index, []).append(key)

    @property
    def prompt(self) -> str | None:
        """The first prompt, without secrets."""
        return None if self._prompt is None else redact(self._prompt)

    def shareable_report(self) -> Report:
        """The report without the path it was read from."""
        return replace(self.report, source=None)

    def sizes(self) -> list[int]:
        """The size of each step in bytes, as stored."""
        return self._builder.steps.sizes()

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Step]:
        return self.slice(1, len(self))

    def slice(self, start: int, count: int) -> Iterator[Step]:
        """Up to `count` steps from the number `start`, which counts from 1."""
        start = max(1, start)
        for number in range(start, min(start + max(0, count), len(self) + 1)):
            yield self._step(number)

    def step_of_line(self, line: int) -> int | None:
        """The number of the step that a line of stdout belongs to, or of the one before it."""
        at = bisect_right(self._sorted_lines, line)
        if not at:
            return None
        return self._numbers[self._builder.lines[self._sorted_lines[at - 1]]]

    def step_of_call(self, call: str) -> int | None:
        """The number of the step of a tool call."""
        index = self._builder.index_by_call.get(call)
        return None if index is None else self._numbers[index]

    def evidence(self) -> dict[int, int | None]:
        """The lines that prove the verdict, each with the number of its step."""
        return {line: self.step_of_line(line) for line in self.report.evidence}

    def close(self) -> None:
        self._builder.steps.close()

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, number: int) -> Step:
        index = self._order[number - 1]
        stored = self._builder.steps.get(index)
        return Step(
            number=number,
            kind=stored.kind,
            line=stored.line,
            at=stored.at,
            depth=self._depth(stored.parent),
            parent=stored.parent,
            text=redact(stored.text),
            tool=None if stored.tool is None else self._tool(stored.tool),
            request=self._request(self._requests.get(index, [])),
            images=stored.images,
        )

    def _depth(self, parent: str | None) -> int:
        path: dict[str | None, None] = {}  # to the main thread, or to a parent that is known
        ancestor = parent
        while ancestor not in self._depths and ancestor not in path:
            path[ancestor] = None
            index = self._builder.index_by_call.get(ancestor or "")
            ancestor = None if index is None else self._builder.parents[index]
        depth = self._depths.get(ancestor, 0)
        for step in reversed(path):
            depth += 1
            self._depths[step] = depth
        return self._depths[parent]

    def _tool(self, tool: ToolUse) -> ToolUse:
        value = redact(tool.input)
        with suppress(*DECODE_ERRORS):
            value = redact_value(msgspec.json.decode(tool.input))
        denial = self._denials.get(tool.id)
        return replace(
            tool,
            name=redact(tool.name),
            input=value,
            summary=self._summarize(value),
            output=redact(tool.output),
            patch=redact(tool.patch),
            status=tool.status if denial is None else "denied",
            files=tuple(self._files.get(tool.id, ())),
            reason=denial.reason and redact(denial.reason) if denial is not None else None,
            allow_rule=denial.allow_rule and redact(denial.allow_rule) if denial else None,
        )

    def _summarize(self, tool_input: Any) -> str:
        """What a call works on, on one line; a path inside the run's folder relative to it."""
        target = call_target(tool_input).removeprefix(f"{self.report.cwd}/")
        return " ".join(target[: 2 * MAX_SUMMARY_CHARS].split())[:MAX_SUMMARY_CHARS]

    def _request(self, keys: list[str]) -> StepRequest | None:
        if not keys:
            return None
        requests = [self._builder.requests[key] for key in keys]
        price = zero_price if self.report.cost.source == "local" else self._price
        last = requests[-1]
        return StepRequest(
            model=last.model and redact(last.model),
            tokens=sum_tokens(requests),
            cost_usd=nano_to_usd(price_requests(requests, price)),
            context=context_tokens(last),
            is_lower_bound=not all(request.final for request in requests),
        )


def _reading_order(builder: StepBuilder, first: int | None) -> list[int]:
    """Indexes in the order of reading: a subagent's steps follow the call that started it."""
    children: dict[int | None, list[int]] = {}
    for index, parent in enumerate(builder.parents):
        call = builder.index_by_call.get(parent or "")
        children.setdefault(None if call == index else call, []).append(index)
    top = children.get(None, [])
    if builder.last_result is not None and builder.late_steps:
        late = set(builder.late_steps).intersection(top) - {first}
        before = top.index(builder.last_result)
        rest = [index for index in top[before:] if index not in late]
        top[before:] = [*sorted(late), *rest]
    if first is not None:
        top.remove(first)
        top.insert(0, first)
    order: list[int] = []
    pending = top[::-1]
    while pending:
        index = pending.pop()
        order.append(index)
        pending += children.pop(index, [])[::-1]
    # Calls that claim to be started by each other are never reached from the main thread.
    rest = sorted(index for group in children.values() for index in group if group is not top)
    return order + rest


def read_conversation(
    recording: RecordingInput,
    agent: Agent | None = None,
    input_format: str | None = None,
    price: PriceLookup | None = None,
    use_heuristics: bool = True,
) -> Conversation:
    """The conversation of a recording, transcript or stream, from `open_recording`."""
    builder = StepBuilder()
    parser = recording.read(agent, input_format, builder.add)
    parser.accumulator.facts.use_heuristics = use_heuristics
    report = parser.report(recording.name, price)
    prompt = parser.header.prompt if parser.header is not None else None
    return Conversation(report, builder, price, prompt)
