"""What an agent's file adds up to, counted independently of steno: a second, simple reader.

Like `tests/oracle.py`, which knows the verdicts of Claude Code's recordings, this shares no code
with steno and holds everything in memory. It takes the objects of a file in their order and knows
the formats of all agents: tokens, requests, calls and the texts of the main thread. `None` means
that the file does not say it. The algebra of each agent is the one that its own totals follow.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests import oracle

Object = dict[str, Any]

NAMES = ("input", "cache_write", "cache_read", "output")


class Counts(Struct):
    """Figures of one file; `texts` are what the agent said to the user, in order."""

    tokens: dict[str, int] | None = None
    requests: int | None = None
    calls: int = 0
    texts: list[str] = field(default_factory=list)
    cost: float | None = None
    files: list[str] | None = None


def number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def tokens(uncached: int, cache_write: int, cache_read: int, output: int) -> dict[str, int]:
    return dict(zip(NAMES, (uncached, cache_write, cache_read, output), strict=True))


def add(parts: Iterable[dict[str, int] | None]) -> dict[str, int] | None:
    """The sum of those that are known; None without any."""
    kept = [part for part in parts if part is not None]
    return {name: sum(part[name] for part in kept) for name in NAMES} if kept else None


def mapping(value: Any, *keys: str) -> Object:
    """The object at a path of keys, else an empty one."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Object]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def said(blocks: Any, kind: str = "text") -> list[str]:
    """The texts of content: a string, or a list of blocks and strings."""
    if isinstance(blocks, str):
        return [blocks]
    if not isinstance(blocks, list):
        return []
    texts = [b if isinstance(b, str) else b.get("text") for b in blocks if is_text(b, kind)]
    return [text for text in texts if isinstance(text, str)]


def is_text(block: Any, kind: str) -> bool:
    return isinstance(block, str) or (isinstance(block, dict) and block.get("type") == kind)


# -- Claude Code -----------------------------------------------------------------------------------


def claude_usage(usage: Object) -> dict[str, int]:
    return {
        name: number(usage.get(key)) for name, key in zip(NAMES, oracle.USAGE_KEYS, strict=True)
    }


def claude_requests(objects: list[Object]) -> list[dict[str, int] | None]:
    """Each message of the API once, by its id, with the figures of its largest output.

    Its blocks repeat it, with what it had used by then. None: a message without figures.
    """
    seen: dict[Any, dict[str, int] | None] = {}
    for index, value in enumerate(objects):
        message = mapping(value, "message")
        if value.get("type") != "assistant" or message.get("model") == "<synthetic>":
            continue
        key = message.get("id") or index
        usage = claude_usage(message["usage"]) if mapping(message, "usage") else None
        known = seen.get(key)
        if known is None or (usage is not None and usage["output"] >= known["output"]):
            seen[key] = usage
    return list(seen.values())


def claude_last_requests(objects: list[Object]) -> list[dict[str, int] | None]:
    """The last request of each subagent in the foreground: only its result has the figures."""
    outcomes = (mapping(value, "tool_use_result") for value in objects)
    usages = [
        claude_usage(mapping(outcome, "usage"))
        for outcome in outcomes
        if outcome.get("agentId") and outcome.get("status") == "completed"
    ]
    return [usage for usage in usages if any(usage.values())]


def claude_calls(objects: list[Object]) -> int:
    blocks = [
        block
        for value in objects
        if value.get("type") == "assistant"
        for block in items(mapping(value, "message").get("content"))
        if block.get("type") in ("tool_use", "server_tool_use")
    ]
    return len({block.get("id") or index for index, block in enumerate(blocks)})


def claude_texts(objects: list[Object]) -> list[str]:
    """What the main thread said; a failed request's text stands in a message of no model."""
    return [
        text
        for value in objects
        if value.get("type") == "assistant"
        and value.get("isSidechain") is not True
        and not value.get("parent_tool_use_id")
        and value.get("isApiErrorMessage") is not True
        and not (mapping(value, "message").get("model") == "<synthetic>" and "error" in value)
        for text in said(mapping(value, "message").get("content"))
    ]


def claude_transcript(objects: list[Object]) -> Counts:
    """The messages; from 2.1.309 on the session's own totals, which count more than messages."""
    requests = claude_requests(objects)
    states = [value for value in objects if value.get("type") == "cost-state"]
    models = mapping(states[-1], "modelUsage").values() if states else ()
    totals = [oracle.counts(model, oracle.MODEL_KEYS) for model in models]
    return Counts(
        tokens=add(totals or requests),
        requests=len(requests),
        calls=claude_calls(objects),
        texts=claude_texts(objects),
    )


def claude_stream(objects: list[Object]) -> Counts:
    """Each session by `tests/oracle.py`, which knows the totals of every version."""
    sessions: dict[Any, list[Object]] = {}
    for value in completed(objects):
        sessions.setdefault(value.get("session_id"), []).append(value)
    if None in sessions:  # lines without a session belong to those around them
        sessions = {None: completed(objects)}
    requests = claude_requests(objects) + claude_last_requests(objects)
    runs = [recording_of(each) for each in sessions.values()]
    known: list[Any] = [run.tokens() for run in runs if run.tokens()["total"] is not None]
    costs = [cost for cost, _ in (run.cost() for run in runs) if cost is not None]
    results = [value for value in objects if is_result(value)]
    if not results:  # in one cut short, each message counts with its last figures
        known = list(requests)
    elif not any(requests) and not any("modelUsage" in value for value in results):
        known = [claude_usage(v["usage"]) for v in results if mapping(v, "usage")][-1:]
    return Counts(
        tokens=add(known),
        requests=len(requests) or None,
        calls=claude_calls(objects),
        texts=claude_texts(objects),
        cost=round(sum(costs), 9) if costs and all(map(is_priced, results)) else None,
        files=sorted({path for run in runs for path, _ in run.files()}),
    )


def is_result(value: Object) -> bool:
    return value.get("type") == "result"


TOTALS = ("modelUsage", oracle.SINCE)


def is_priced(value: Object) -> bool:
    return isinstance(value.get("total_cost_usd"), int | float)


def completed(objects: list[Object]) -> list[Object]:
    """The lines with what every version prints and the oracle needs: ids, usage, a cost."""
    lines: list[Object] = json.loads(json.dumps(objects))
    for place, value in enumerate(lines):
        if is_result(value):
            if not is_priced(value):
                value["total_cost_usd"] = 0.0
            value["usage"] = {"output_tokens": 0} | mapping(value, "usage")
            value.update({key: mapping(value, key) for key in TOTALS if key in value})
        if mapping(value, "event", "message"):
            value["event"]["message"].setdefault("id", f"line {place}")
        if value.get("type") in ("assistant", "user"):
            standard: Object = {"id": f"line {place}", "model": "unknown"}
            message = value["message"] = standard | mapping(value, "message")
            message["usage"] = {"output_tokens": 0} | mapping(message, "usage")
            for index, block in enumerate(items(message.get("content"))):
                block.setdefault("id", f"line {place} block {index}")
                block.setdefault("input", {})
    return lines


def recording_of(objects: list[Object]) -> oracle.Recording:
    """The lines as the oracle reads them: a folder with one object per line."""
    with tempfile.TemporaryDirectory(prefix="steno-oracle-") as folder:
        lines = "".join(json.dumps(value) + "\n" for value in objects)
        Path(folder, "stdout").write_text(lines, "utf-8")
        Path(folder, "exit_code").write_text("0\n", "utf-8")
        return oracle.Recording(Path(folder))


# -- Codex -----------------------------------------------------------------------------------------


def codex_usage(usage: Object) -> dict[str, int]:
    read = number(usage.get("cached_input_tokens"))
    write = number(usage.get("cache_write_input_tokens"))
    whole = number(usage.get("input_tokens"))
    return tokens(max(whole - read - write, 0), write, read, number(usage.get("output_tokens")))


def codex_stream(objects: list[Object]) -> Counts:
    """The usage of a turn is the thread's so far: of each thread the last counts."""
    last: dict[str, dict[str, int]] = {}
    calls: dict[str, str] = {}
    texts = []
    thread = ""
    for index, value in enumerate(objects):
        kind = value.get("type")
        item = mapping(value, "item")
        item_kind = item.get("type") or item.get("item_type")
        if kind == "thread.started":
            thread = f"{index} {value.get('thread_id')}"
        elif kind == "turn.completed" and mapping(value, "usage"):
            last[thread] = codex_usage(mapping(value, "usage"))
        elif kind == "item.completed" and item_kind in ("agent_message", "assistant_message"):
            texts.append(item.get("text"))
        if item and item_kind in CODEX_CALLS and (item.get("id") or kind == "item.completed"):
            calls[f"{thread} {item.get('id') or index}"] = item_kind
    return Counts(
        tokens=add(last.values()),
        calls=len(calls),
        texts=[text for text in texts if isinstance(text, str)],
    )


CODEX_CALLS = {
    "command_execution",
    "file_change",
    "mcp_tool_call",
    "web_search",
    "collab_tool_call",
    "todo_list",
}
CODEX_CALL_ITEMS = {"function_call", "custom_tool_call", "local_shell_call", "web_search_call"}


def codex_transcript(objects: list[Object]) -> Counts:
    """The last total of the thread; each change of it is a request, and a smaller one a new start.

    A session whose file starts with lines of another one (a fork) has that one's total before it.
    """
    totals: list[dict[str, int]] = []
    for value in objects:
        info = mapping(value, "payload", "info")
        total = mapping(info, "total_token_usage")
        if mapping(value, "payload").get("type") == "token_count" and total:
            usage = codex_usage(total)
            if not totals or totals[-1] != usage:
                totals.append(usage)
    sums = [sum(total.values()) for total in totals]
    ends = [totals[i] for i in range(len(totals)) if sums[i + 1 : i + 2] < [sums[i]]]
    sent = [mapping(value, "payload") for value in objects if value.get("type") == "response_item"]
    calls = [payload for payload in sent if payload.get("type") in CODEX_CALL_ITEMS]
    return Counts(
        tokens=add(ends or codex_records(objects)),
        requests=len(totals or codex_records(objects)) or None,
        calls=len({call.get("call_id") or call.get("id") or id(call) for call in calls}),
        texts=codex_shown(objects) or codex_sent(sent),
    )


def codex_records(objects: list[Object]) -> list[dict[str, int]]:
    """The usage of each request, which newer versions write before the total."""
    records = [value for value in objects if value.get("type") == "token_usage_record"]
    return [codex_usage(mapping(value, "payload", "usage")) for value in records]


def codex_shown(objects: list[Object]) -> list[str]:
    payloads = [mapping(value, "payload") for value in objects if value.get("type") == "event_msg"]
    texts = [p.get("message") for p in payloads if p.get("type") == "agent_message"]
    return [text for text in texts if isinstance(text, str)]


def codex_sent(sent: list[Object]) -> list[str]:
    """The model's messages, of files without the events that show them."""
    return [
        text
        for payload in sent
        if payload.get("type") == "message" and payload.get("role") == "assistant"
        for text in said(payload.get("content"), "output_text")
    ]


# -- Copilot ---------------------------------------------------------------------------------------


def copilot(objects: list[Object]) -> Counts:
    """`session.usage_record` per request, else the sums of `session.shutdown`."""
    records = [mapping(v, "data") for v in objects if v.get("type") == "session.usage_record"]
    usages = [mapping(record, "usage") or record for record in records]
    ends = [value for value in objects if value.get("type") == "session.shutdown"]
    sums = [mapping(end, "data", "modelMetrics") for end in ends]
    metrics = next((each for each in reversed(sums) if each), {})
    starts = [
        mapping(value, "data")
        for value in objects
        if value.get("type") in ("tool.execution_start",)
    ]
    asked = [
        request
        for value in objects
        if value.get("type") == "assistant.message"
        for request in items(mapping(value, "data").get("toolRequests"))
    ]
    calls = {call.get("toolCallId") for call in (*starts, *asked)} - {None}
    texts = [
        mapping(value, "data").get("content")
        for value in objects
        if value.get("type") == "assistant.message"
        and not mapping(value, "data").get("parentToolCallId")
    ]
    if not usages:
        usages = [mapping(metric, "usage") for metric in metrics.values()]
    return Counts(
        tokens=add(copilot_usage(usage) for usage in usages),
        requests=len(records) or None,
        calls=len(calls),
        texts=[text for text in texts if isinstance(text, str) and text],
    )


def copilot_usage(usage: Object) -> dict[str, int]:
    read, write = number(usage.get("cacheReadTokens")), number(usage.get("cacheWriteTokens"))
    whole = number(usage.get("inputTokens"))
    return tokens(max(whole - read - write, 0), write, read, number(usage.get("outputTokens")))


# -- Gemini and Qwen -------------------------------------------------------------------------------


def gemini_stream(objects: list[Object]) -> Counts:
    ends = [mapping(value, "stats") for value in objects if value.get("type") == "result"]
    pieces: list[str] = []
    last = ""
    for value in objects:
        kind = f"{value.get('type')} {value.get('role')}"
        if kind == "message assistant" and isinstance(value.get("content"), str):
            if last == kind and value.get("delta") is True:
                pieces[-1] += value["content"]
            else:
                pieces.append(value["content"])
        last = kind
    calls = {value.get("tool_id") for value in objects if value.get("type") == "tool_use"}
    return Counts(
        tokens=add(gemini_stats(stats) for stats in ends if "input_tokens" in stats),
        requests=None,
        calls=len(calls),
        texts=pieces,
    )


def gemini_stats(stats: Object) -> dict[str, int]:
    """Thoughts are in the total only."""
    whole, read = number(stats.get("input_tokens")), number(stats.get("cached"))
    output = max(number(stats.get("total_tokens")) - whole, number(stats.get("output_tokens")))
    return tokens(whole - read, 0, read, output)


def gemini_chat(objects: list[Object]) -> Counts:
    """A chat file: one document, or a line for each message; later ones replace earlier ones."""
    messages: dict[Any, Object] = {}
    for value in objects:
        each = items(value.get("messages")) or items(mapping(value, "$set").get("messages"))
        for message in each or [value]:
            if message.get("type") in ("user", "gemini"):
                messages[message.get("id") or len(messages)] = message
    own = [message for message in messages.values() if message["type"] == "gemini"]
    counted = [mapping(message, "tokens") for message in own if mapping(message, "tokens")]
    return Counts(
        tokens=add(gemini_tokens(part) for part in counted),
        requests=len(counted) or None,
        calls=sum(len(items(message.get("toolCalls"))) for message in own),
        texts=[text for m in own for text in ["".join(gemini_parts(m.get("content")))] if text],
    )


def gemini_parts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in items(content) if isinstance(part.get("text"), str)]


def gemini_tokens(part: Object) -> dict[str, int]:
    """`tool` is the input that tools of the server added; the total has it too."""
    whole, read = number(part.get("input")) + number(part.get("tool")), number(part.get("cached"))
    return tokens(whole - read, 0, read, number(part.get("output")) + number(part.get("thoughts")))


def gemini_document(objects: list[Object]) -> Counts:
    models = mapping(objects[-1], "stats", "models")
    parts = [mapping(model, "tokens") for model in models.values()]
    return Counts(
        tokens=add(
            tokens(
                number(part.get("prompt")) - number(part.get("cached")),
                0,
                number(part.get("cached")),
                number(part.get("candidates")) + number(part.get("thoughts")),
            )
            for part in parts
        ),
        calls=number(mapping(objects[-1], "stats", "tools").get("totalCalls")),
        texts=[objects[-1]["response"]] if isinstance(objects[-1].get("response"), str) else [],
    )


def qwen_transcript(objects: list[Object]) -> Counts:
    """`usageMetadata` on each answer, as Google's API has it."""
    answers = [value for value in objects if value.get("type") == "assistant"]
    usages = [mapping(value, "usageMetadata") for value in answers]
    parts = [part for v in answers for part in items(mapping(v, "message").get("parts"))]
    texts = [
        "".join(
            part["text"]
            for part in items(mapping(value, "message").get("parts"))
            if isinstance(part.get("text"), str) and part.get("thought") is not True
        )
        for value in answers
    ]
    counted = [usage for usage in usages if usage]
    return Counts(
        tokens=add(qwen_usage(usage) for usage in counted),
        requests=len(counted) or None,
        calls=sum("functionCall" in part for part in parts),
        texts=[text for text in texts if text],
    )


def qwen_usage(usage: Object) -> dict[str, int]:
    whole = number(usage.get("promptTokenCount"))
    read = number(usage.get("cachedContentTokenCount"))
    total, output = number(usage.get("totalTokenCount")), number(usage.get("candidatesTokenCount"))
    return tokens(whole - read, 0, read, max(output, total - whole))


# -- OpenCode --------------------------------------------------------------------------------------


def opencode_stream(objects: list[Object]) -> Counts:
    parts = [(value.get("type"), mapping(value, "part")) for value in objects]
    return opencode_counts(
        [part for kind, part in parts if kind == "step_finish"],
        [part for kind, part in parts if kind == "tool_use"],
        [part.get("text") for kind, part in parts if kind == "text"],
    )


def opencode_counts(steps: list[Object], calls: list[Object], texts: list[Any]) -> Counts:
    usages = [mapping(step, "tokens") for step in steps]
    costs = [step.get("cost") for step in steps]
    numbers = [cost for cost in costs if isinstance(cost, int | float)]
    return Counts(
        tokens=add(opencode_usage(usage) for usage in usages if usage),
        requests=len(steps) or None,
        calls=len({call.get("callID") or id(call) for call in calls}),
        texts=[text for text in texts if isinstance(text, str)],
        cost=round(sum(numbers), 9) if any(numbers) else None,
    )


def opencode_usage(usage: Object) -> dict[str, int]:
    cache = mapping(usage, "cache")
    output = number(usage.get("output")) + number(usage.get("reasoning"))
    written, read = number(cache.get("write")), number(cache.get("read"))
    return tokens(number(usage.get("input")), written, read, output)


COUNTERS: dict[tuple[str, str], Callable[[list[Object]], Counts]] = {
    ("claude", "stream"): claude_stream,
    ("claude", "transcript"): claude_transcript,
    ("claude", "subagent"): claude_transcript,
    ("qwen", "stream"): claude_stream,
    ("qwen", "transcript"): qwen_transcript,
    ("codex", "stream"): codex_stream,
    ("codex", "transcript"): codex_transcript,
    ("copilot", "stream"): copilot,
    ("copilot", "transcript"): copilot,
    ("gemini", "stream"): gemini_stream,
    ("gemini", "document"): gemini_document,
    ("gemini", "chat"): gemini_chat,
    ("gemini", "transcript"): gemini_chat,
    ("opencode", "stream"): opencode_stream,
}


def count(agent: str, kind: str, objects: list[Object]) -> Counts | None:
    """The figures of a file, or None for a format that is not known here."""
    counter = COUNTERS.get((agent, kind))
    return None if counter is None else counter(objects)
