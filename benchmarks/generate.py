"""Write a seeded stream in the format of Claude Code's stream-json, and print its totals.

The text is made up. The usage of the last line is the sum over all requests, so that the totals of
a reader can be compared with those that `generate` returns.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from benchmarks.pool import ROOT, SHARES, Call, Deltas, Pool, Text, encode, pool

Kind = Literal["blocks", "partial"]

MAIN, SUB = "claude-opus-5-5", "claude-sonnet-5-5"
PRICES = {MAIN: (4.0, 5.0, 0.2, 20.0), SUB: (2.0, 2.5, 0.1, 10.0)}
START = 1_794_700_800.0
RESERVE = 2_600
SUBAGENT_SHARE, RETRY_SHARE = 0.012, 0.002
AGENT_TYPE, AGENT_TASK = "general-purpose", "Look for other callers"
PROMPT, REPORT = "Find every caller and list the files.", "Found 3 callers in 2 files."
TOOLS = (
    "Task",
    "Bash",
    "Edit",
    "Glob",
    "Grep",
    "NotebookEdit",
    "Read",
    "WebFetch",
    "WebSearch",
    "Write",
)

ASSISTANT = (
    b'{"type":"assistant","message":{"model":"%b","id":"%b","type":"message","role":"assistant",'
    b'"content":[%b],"stop_reason":null,"stop_sequence":null,"usage":%b,"context_management":null},'
    b'"parent_tool_use_id":%b,%b"session_id":"%b","uuid":"%b","timestamp":"%b",'
    b'"request_id":"%b"%b}\n'
)
USER = (
    b'{"type":"user","message":{"role":"user","content":[%b]},"parent_tool_use_id":%b,%b'
    b'"session_id":"%b","uuid":"%b","timestamp":"%b"%b%b}\n'
)
USAGE = (
    b'{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,'
    b'"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":0},'
    b'"output_tokens":1,"service_tier":"standard","inference_geo":"not_available"}'
)
CALL = b'{"type":"tool_use","id":"%b","name":"%b","input":%b}'
ANSWER = b'{"tool_use_id":"%b","type":"tool_result","content":%b%b}'
FAILURE = b'{"type":"tool_result","content":%b,"is_error":true,"tool_use_id":"%b"}'
META = (
    b',"tool_result_meta":[{"id":"%b","permission_decision":{"decision":"accept",'
    b'"source":"config","reason_type":"mode"}}]'
)
DELTA = (
    b'{"type":"stream_event","event":%b,"session_id":"%b","parent_tool_use_id":null,'
    b'"uuid":"%b","api_message_id":"%b"}\n'
)
OPENING = (
    b'{"type":"message_start","message":{"model":"%b","id":"%b","type":"message",'
    b'"role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":%b}}'
)
CLOSING = (
    b'{"type":"message_delta","delta":{"stop_reason":"%b","stop_sequence":null},'
    b'"usage":{"input_tokens":%d,"cache_creation_input_tokens":%d,'
    b'"cache_read_input_tokens":%d,"output_tokens":%d}}'
)


@dataclass
class Usage:
    """Four counters of tokens."""

    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

    def add(self, other: Usage) -> None:
        self.input += other.input
        self.cache_write += other.cache_write
        self.cache_read += other.cache_read
        self.output += other.output

    def cost(self, model: str) -> float:
        counts = (self.input, self.cache_write, self.cache_read, self.output)
        return sum(count * price for count, price in zip(counts, PRICES[model], strict=True)) / 1e6


@dataclass
class Totals:
    """Totals of a stream; `tokens` and `cost_usd` include subagents, `main` does not."""

    main: Usage = field(default_factory=Usage)
    models: dict[str, Usage] = field(default_factory=dict)
    requests: int = 0
    tools: int = 0
    errors: int = 0
    subagents: int = 0
    retries: int = 0
    events: int = 0
    size: int = 0

    def tokens(self) -> Usage:
        total = Usage()
        for usage in self.models.values():
            total.add(usage)
        return total

    def cost_usd(self) -> float:
        return sum(usage.cost(model) for model, usage in self.models.items())

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "tokens": asdict(self.tokens()), "cost_usd": self.cost_usd()}


class Voice(NamedTuple):
    """The main loop or a subagent, as the JSON fragments by which they differ."""

    model: str
    parent: bytes = b"null"
    agent: bytes = b""
    tail: bytes = b""


class Message(NamedTuple):
    """One answer of the model; all its blocks repeat these."""

    id: bytes
    request: bytes
    usage: bytes
    spent: Usage


class Use(NamedTuple):
    """A tool call under way."""

    id: bytes
    call: Call


SPEAKER = Voice(MAIN)


class Stream:
    """A stream being written: file, random numbers, clock and totals."""

    def __init__(self, file: BinaryIO, seed: int, kind: Kind) -> None:
        self.file, self.partial = file, kind == "partial"
        self.rng = random.Random(seed)
        self.pool: Pool = pool(seed)
        self.names, self.weights = list(SHARES), list(SHARES.values())
        self.totals = Totals(models={MAIN: Usage()})
        self.now, self.context, self.serial = START, 20_000, 0
        self.session = self.uuid()

    # --- small parts

    def put(self, line: bytes) -> None:
        self.file.write(line)
        self.totals.events += 1
        self.totals.size += len(line)

    def uuid(self) -> bytes:
        digits = f"{self.rng.getrandbits(128):032x}"
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}".encode()
        )

    def id(self, prefix: bytes) -> bytes:
        self.serial += 1
        return b"%b_01%022d" % (prefix, self.serial)

    def stamp(self) -> bytes:
        self.now += self.rng.random() * 2
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.now))
        return f"{second}.{int(self.now * 1000) % 1000:03}Z".encode()

    def system(self, subtype: str, **fields: object) -> None:
        head = {"type": "system", "subtype": subtype, **fields}
        self.put(
            encode({**head, "session_id": self.session.decode(), "uuid": self.uuid().decode()})
            + b"\n"
        )

    # --- one message of the model

    def spend(self, voice: Voice) -> Usage:
        written = self.rng.randrange(200, 6_000)
        spent = Usage(
            self.rng.randrange(1, 12), written, self.context, self.rng.randrange(40, 2_000)
        )
        self.context = 20_000 if self.context > 180_000 else self.context + written
        self.totals.models.setdefault(voice.model, Usage()).add(spent)
        if voice is SPEAKER:
            self.totals.main.add(spent)
        self.totals.requests += 1
        return spent

    def message(self, voice: Voice) -> Message:
        spent = self.spend(voice)
        usage = USAGE % (spent.input, spent.cache_write, spent.cache_read, spent.cache_write)
        return Message(self.id(b"msg"), self.id(b"req"), usage, spent)

    def block(self, voice: Voice, message: Message, block: bytes) -> None:
        head = (voice.model.encode(), message.id, block, message.usage, voice.parent, voice.agent)
        self.put(
            ASSISTANT
            % (*head, self.session, self.uuid(), self.stamp(), message.request, voice.tail)
        )

    def event(self, message: Message, event: bytes) -> None:
        self.put(DELTA % (event, self.session, self.uuid(), message.id))

    def streamed(
        self, message: Message, index: int, start: bytes, deltas: Deltas, block: bytes
    ) -> None:
        """A block in deltas; like Claude Code, with the whole block before the stop."""
        self.event(
            message,
            b'{"type":"content_block_start","index":%d,"content_block":%b}' % (index, start),
        )
        for delta in deltas:
            self.event(
                message, b'{"type":"content_block_delta","index":%d,"delta":%b}' % (index, delta)
            )
        self.block(SPEAKER, message, block)
        self.event(message, b'{"type":"content_block_stop","index":%d}' % index)

    def say(self, voice: Voice, message: Message, index: int, text: Text) -> None:
        if self.partial and voice is SPEAKER:
            self.streamed(message, index, text.start, text.deltas, text.block)
        else:
            self.block(voice, message, text.block)

    def use(self, voice: Voice, message: Message, index: int, call: Call) -> Use:
        use = Use(self.id(b"toolu"), call)
        block = CALL % (use.id, call.name, call.input)
        if self.partial and voice is SPEAKER:
            self.streamed(message, index, CALL % (use.id, call.name, b"{}"), call.deltas, block)
        else:
            self.block(voice, message, block)
        self.totals.tools += 1
        return use

    def answer(self, voice: Voice, use: Use) -> None:
        call = use.call
        self.totals.errors += call.failed
        flag = b',"is_error":false' if call.name == b"Bash" else b""
        block = (
            FAILURE % (call.content, use.id)
            if call.failed
            else ANSWER % (use.id, call.content, flag)
        )
        result = b',"tool_use_result":' + call.result if voice is SPEAKER else b""
        self.user(voice, block, result + META % use.id)

    def user(self, voice: Voice, block: bytes, rest: bytes) -> None:
        head = (block, voice.parent, voice.agent, self.session, self.uuid(), self.stamp())
        self.put(USER % (*head, rest, voice.tail))

    # --- one turn

    def words(self) -> list[Text]:
        """The blocks of a message before its tool calls: thinking, text, both or none."""
        thought = [self.rng.choice(self.pool.thoughts)] if self.rng.random() < 0.25 else []
        return thought + ([self.rng.choice(self.pool.texts)] if self.rng.random() < 0.6 else [])

    def draw(self, count: int) -> list[Call]:
        kinds = self.rng.choices(self.names, self.weights, k=count)
        return [self.rng.choice(self.pool.calls[kind]) for kind in kinds]

    def open(self, voice: Voice, message: Message) -> None:
        if self.partial and voice is SPEAKER:
            self.system("status", status="requesting")
            self.event(message, OPENING % (voice.model.encode(), message.id, message.usage))

    def close(self, voice: Voice, message: Message, reason: bytes) -> None:
        if self.partial and voice is SPEAKER:
            spent = message.spent
            counts = (reason, spent.input, spent.cache_write, spent.cache_read, spent.output)
            self.event(message, CLOSING % counts)
            self.event(message, b'{"type":"message_stop"}')

    def turn(self, voice: Voice, words: list[Text], calls: list[Call]) -> None:
        """One message of the model with its tool results, some of them between its blocks."""
        message = self.message(voice)
        self.open(voice, message)
        for index, text in enumerate(words):
            self.say(voice, message, index, text)
        early = self.rng.random() < 0.3
        waiting = list(self.uses(voice, message, calls, len(words), early))
        self.close(voice, message, b"tool_use" if calls else b"end_turn")
        self.rng.shuffle(waiting)
        for use in waiting:
            self.answer(voice, use)

    def uses(
        self, voice: Voice, message: Message, calls: list[Call], first: int, early: bool
    ) -> Iterator[Use]:
        """Write the calls; yields those without a result yet."""
        for index, call in enumerate(calls, first):
            use = self.use(voice, message, index, call)
            if early and index < first + len(calls) - 1:
                self.answer(voice, use)
            else:
                yield use

    def usual(self, voice: Voice) -> None:
        """A turn of two to four blocks, at least one of them a tool."""
        words = self.words()
        count = max(self.rng.choice((2, 2, 3, 3, 3, 4)) - len(words), 1)
        self.turn(voice, words, self.draw(count))

    # --- rare events

    def delegate(self) -> None:
        """A foreground subagent: the Task call, its own turns, and its report."""
        given = {"description": AGENT_TASK, "prompt": PROMPT, "subagent_type": AGENT_TYPE}
        content = [{"type": "text", "text": REPORT}]
        result = {"status": "completed", "agentType": AGENT_TYPE, "content": content}
        call = Call(b"Task", encode(given), encode(content), encode(result), False, ())
        message = self.message(SPEAKER)
        self.open(SPEAKER, message)
        use = self.use(SPEAKER, message, 0, call)
        self.close(SPEAKER, message, b"tool_use")
        self.subagent(use)
        self.answer(SPEAKER, use)

    def subagent(self, use: Use) -> None:
        agent, parent = f"a{self.rng.getrandbits(64):016x}", use.id.decode()
        names: dict[str, object] = {"task_id": agent, "tool_use_id": parent}
        tail = f',"subagent_type":"{AGENT_TYPE}","task_description":"{AGENT_TASK}"'.encode()
        voice = Voice(SUB, encode(parent), b'"agent_id":%b,' % encode(agent), tail)
        self.totals.subagents += 1
        self.system(
            "task_started", **names, task_type="local_agent", is_backgrounded=False, prompt=PROMPT
        )
        self.user(voice, encode({"type": "text", "text": PROMPT}), b"")
        for _ in range(self.rng.randrange(2, 7)):
            self.usual(voice)
            self.system("task_progress", **names, description="Reading", last_tool_name="Read")
        self.system(
            "task_updated", **names, patch={"status": "completed", "end_time": int(self.now * 1000)}
        )
        self.system(
            "task_notification", **names, status="completed", output_file="", summary=REPORT
        )

    def retry(self) -> None:
        for attempt in range(1, self.rng.randrange(2, 4)):
            self.totals.retries += 1
            delay = {"attempt": attempt, "max_retries": 10, "retry_delay_ms": 1_000 * attempt}
            self.system("api_retry", **delay, error_status=529, error="overloaded")

    def step(self) -> None:
        chance = self.rng.random()
        if chance < SUBAGENT_SHARE:
            self.delegate()
        else:
            if chance < SUBAGENT_SHARE + RETRY_SHARE:
                self.retry()
            self.usual(SPEAKER)

    # --- first and last line

    def init(self) -> None:
        names: dict[str, object] = {"cwd": ROOT, "tools": TOOLS, "mcp_servers": [], "model": MAIN}
        more = {
            "permissionMode": "bypassPermissions",
            "slash_commands": ["compact"],
            "apiKeySource": "none",
        }
        rest = {"output_style": "default", "agents": [AGENT_TYPE], "skills": [], "plugins": []}
        self.system(
            "init", **names, **more, claude_code_version="2.1.325", **rest, fast_mode_state="off"
        )

    def result(self, text: str) -> None:
        """As in Claude Code, the first key of this line is not `type`."""
        totals, by_model = self.totals, model_usage(self.totals.models)
        ms = int((self.now - START) * 1000)
        head = {
            "duration_api_ms": ms // 2,
            "stop_reason": "end_turn",
            "session_id": self.session.decode(),
        }
        cost = {
            "total_cost_usd": totals.cost_usd(),
            "usage": api_usage(totals.main),
            "modelUsage": by_model,
        }
        end = {
            "permission_denials": [],
            "terminal_reason": "completed",
            "is_error": False,
            "subtype": "success",
        }
        turns = {"num_turns": totals.tools + 1, "api_error_status": None, "result": text}
        tail = {
            "type": "result",
            "duration_ms": ms,
            "uuid": self.uuid().decode(),
            "result_index": 0,
        }
        last = {"model_usage_since_last_result": by_model}
        self.put(encode({**head, **cost, **end, **turns, **tail, **last}) + b"\n")

    def write(self, limit: int) -> None:
        self.init()
        self.turn(SPEAKER, [self.pool.texts[0]], [self.pool.small])
        while self.totals.size < limit - RESERVE:
            self.step()
        words = self.pool.texts[0]
        self.turn(SPEAKER, [words], [])
        self.result(json.loads(words.block)["text"])


def api_usage(usage: Usage) -> dict[str, Any]:
    counts = {"input_tokens": usage.input, "cache_creation_input_tokens": usage.cache_write}
    more = {"cache_read_input_tokens": usage.cache_read, "output_tokens": usage.output}
    kinds = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": usage.cache_write}
    return {
        **counts,
        **more,
        "service_tier": "standard",
        "cache_creation": kinds,
        "speed": "standard",
    }


def model_usage(models: dict[str, Usage]) -> dict[str, dict[str, Any]]:
    return {model: one_model(model, usage) for model, usage in models.items()}


def one_model(model: str, usage: Usage) -> dict[str, Any]:
    return {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "cacheReadInputTokens": usage.cache_read,
        "cacheCreationInputTokens": usage.cache_write,
        "webSearchRequests": 0,
        "costUSD": usage.cost(model),
        "contextWindow": 1_000_000,
        "maxOutputTokens": 128_000,
        "thinkingTokens": 0,
        "canonicalModel": model,
        "provider": "firstParty",
        "costBasis": "list",
    }


def generate(path: str | Path, megabytes: float, seed: int = 7, kind: Kind = "blocks") -> Totals:
    """Write about this many megabytes (of 1,000,000 bytes); returns the totals."""
    with open(path, "wb", buffering=1 << 20) as file:
        stream = Stream(file, seed, kind)
        stream.write(int(megabytes * 1_000_000))
    return stream.totals


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a generated stream; print its totals as JSON."
    )
    parser.add_argument("out")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--kind", choices=("blocks", "partial"), default="blocks")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    print(json.dumps(generate(given.out, given.megabytes, given.seed, given.kind).plain()))


if __name__ == "__main__":
    main()
