"""Write a seeded tree of transcripts in the format of Claude Code 2.1.197, and print its totals.

The tree has the layout of `~/.claude/projects`: a folder per project, a file per session, subagents
in separate files, and forks that begin with a copy of another session. A copied message counts
once. The text is made up.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import string
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.generate import AGENT_TASK, AGENT_TYPE, ANSWER, CALL, FAILURE, PROMPT, REPORT, START
from benchmarks.pool import SHARES, WORDS, Call, Pool, Text, encode, pool

OPUS, SONNET, HAIKU = "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5-20251001"
MODELS = {SONNET: 6.0, OPUS: 3.0, HAIKU: 1.0}
# Nano-dollars per token: input, cache write (5 minutes), cache write (1 hour), cache read, output.
PRICES = {
    SONNET: (3_000, 3_750, 6_000, 300, 15_000),
    OPUS: (5_000, 6_250, 10_000, 500, 25_000),
    HAIKU: (1_000, 1_250, 2_000, 100, 5_000),
}
PROJECTS, DAYS = 40, 120
FORK_SHARE, AGENT_SHARE, AGENTS = 0.015, 0.06, 3
HOUR_SHARE, PROMPT_SHARE, ERROR_SHARE = 0.3, 0.1, 0.002
FULL = 160_000  # context tokens before a compaction; larger requests cost more per token
SPREAD = 1.3
LETTERS = string.digits + string.ascii_letters

ASSISTANT = (
    b'{"parentUuid":%b,"isSidechain":%b,%b"message":{"model":"%b","id":"%b","type":"message",'
    b'"role":"assistant","content":[%b],"stop_reason":"%b","stop_sequence":null,"usage":%b,'
    b'"stop_details":null},"requestId":"%b","type":"assistant","uuid":"%b","timestamp":"%b",%b}\n'
)
USER = (
    b'{"parentUuid":%b,"isSidechain":%b,"promptId":"%b",%b"type":"user",'
    b'"message":{"role":"user","content":%b},"uuid":"%b","timestamp":"%b",%b%b}\n'
)
USAGE = (
    b'{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,'
    b'"output_tokens":%d,"server_tool_use":{"web_search_requests":0,"web_fetch_requests":0},'
    b'"service_tier":"standard",'
    b'"cache_creation":{"ephemeral_1h_input_tokens":%d,"ephemeral_5m_input_tokens":%d},'
    b'"inference_geo":"not_available","iterations":[],"speed":"standard"}'
)
TAIL = (
    b'"userType":"external","entrypoint":"cli","cwd":"%b","sessionId":"%b","version":"2.1.197",'
    b'"gitBranch":"%b"'
)
SYSTEM = (
    b'{"parentUuid":%b,"isSidechain":%b,%b"type":"system",%b,"isMeta":false,"timestamp":"%b",'
    b'"uuid":"%b",%b}\n'
)
SNAPSHOT = (
    b'{"type":"file-history-snapshot","messageId":"%b","snapshot":{"messageId":"%b",'
    b'"trackedFileBackups":{},"timestamp":"%b"},"isSnapshotUpdate":false}\n'
)
LAST = b'{"type":"last-prompt","lastPrompt":"%b","leafUuid":"%b","sessionId":"%b"}\n'
SYNTHETIC = b'"error":"server_error","isApiErrorMessage":true,'


@dataclass
class Spend:
    """Usage of one model."""

    requests: int = 0
    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    cache_write_1h: int = 0

    def add(self, other: Spend) -> None:
        self.requests += other.requests
        self.input += other.input
        self.cache_write += other.cache_write
        self.cache_read += other.cache_read
        self.output += other.output
        self.cache_write_1h += other.cache_write_1h

    def nano(self, model: str) -> int:
        brief = self.cache_write - self.cache_write_1h
        counts = (self.input, brief, self.cache_write_1h, self.cache_read, self.output)
        return sum(count * price for count, price in zip(counts, PRICES[model], strict=True))


@dataclass
class Totals:
    """Totals of the tree, each request counted once."""

    models: dict[str, Spend] = field(default_factory=dict)
    files: int = 0
    sessions: int = 0
    subagents: int = 0
    forks: int = 0
    repeated: int = 0
    lines: int = 0
    size: int = 0

    def plain(self) -> dict[str, Any]:
        total = Spend()
        for spend in self.models.values():
            total.add(spend)
        costs = {model: spend.nano(model) / 1e9 for model, spend in self.models.items()}
        nano = sum(spend.nano(model) for model, spend in self.models.items())
        return {**asdict(self), "tokens": asdict(total), "costs_usd": costs, "cost_usd": nano / 1e9}


class Place(NamedTuple):
    """A project: transcript folder, working directory and branch."""

    folder: Path
    cwd: bytes
    branch: bytes


class Message(NamedTuple):
    """One answer of the model; all its lines repeat these."""

    id: bytes
    request: bytes
    usage: bytes
    stop: bytes


class Chance:
    """Random choices and ids."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pool: Pool = pool(seed)
        self.kinds, self.weights = list(SHARES), list(SHARES.values())

    def uuid(self) -> bytes:
        digits = f"{self.rng.getrandbits(128):032x}"
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}".encode()
        )

    def id(self, prefix: str) -> bytes:
        return (prefix + "".join(self.rng.choices(LETTERS, k=22))).encode()

    def model(self) -> str:
        return self.rng.choices(list(MODELS), list(MODELS.values()))[0]

    def calls(self) -> list[Call]:
        kinds = self.rng.choices(self.kinds, self.weights, k=self.rng.choice((1, 1, 1, 2, 2, 3)))
        return [self.rng.choice(self.pool.calls[kind]) for kind in kinds]

    def words(self) -> list[Text]:
        thought = [self.rng.choice(self.pool.thoughts)] if self.rng.random() < 0.25 else []
        return thought + ([self.rng.choice(self.pool.texts)] if self.rng.random() < 0.6 else [])


class Thread:
    """One file being written: the lines of a session, or of a subagent in it."""

    def __init__(
        self,
        chance: Chance,
        totals: Totals,
        place: Place,
        now: float,
        agent: bytes = b"",
        session: bytes = b"",
    ) -> None:
        self.chance, self.rng, self.totals, self.place = chance, chance.rng, totals, place
        self.session, self.agent = session or chance.uuid(), agent
        self.model = HAIKU if agent else chance.model()
        self.aside = b"true" if agent else b"false"
        self.label = b'"agentId":"%b",' % agent if agent else b""
        self.tail = TAIL % (place.cwd, self.session, place.branch)
        self.hourly = self.rng.random() < HOUR_SHARE
        self.now, self.context, self.parent, self.turn_id = now, 20_000, b"null", chance.uuid()
        self.lines: list[bytes] = []
        self.size = 0

    # --- small parts

    def put(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line)

    def stamp(self, pause: float = 3.0) -> bytes:
        self.now += self.rng.random() * pause
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.now))
        return f"{second}.{int(self.now * 1000) % 1000:03}Z".encode()

    def link(self) -> tuple[bytes, bytes]:
        """The uuids of the line before and of this one."""
        before, uuid = self.parent, self.chance.uuid()
        self.parent = b'"%b"' % uuid
        return before, uuid

    def user(self, content: bytes, more: bytes = b"", pause: float = 3.0) -> None:
        before, uuid = self.link()
        head = (before, self.aside, self.turn_id, self.label, content, uuid)
        self.put(USER % (*head, self.stamp(pause), more, self.tail))

    def system(self, fields: bytes) -> None:
        before, uuid = self.link()
        self.put(SYSTEM % (before, self.aside, self.label, fields, self.stamp(), uuid, self.tail))

    # --- one message of the model

    def spend(self) -> Spend:
        written = self.rng.randrange(200, 6_000)
        hour = written if self.hourly else 0
        spend = Spend(
            1, self.rng.randrange(1, 12), written, self.context, self.rng.randrange(40, 2_000), hour
        )
        self.context += written
        self.totals.models.setdefault(self.model, Spend()).add(spend)
        return spend

    def message(self, stop: bytes) -> Message:
        spend = self.spend()
        counts = (spend.input, spend.cache_write, spend.cache_read, spend.output)
        usage = USAGE % (*counts, spend.cache_write_1h, spend.cache_write - spend.cache_write_1h)
        return Message(self.chance.id("msg_01"), self.chance.id("req_011C"), usage, stop)

    def block(self, message: Message, block: bytes) -> None:
        before, uuid = self.link()
        head = (
            before,
            self.aside,
            self.label,
            self.model.encode(),
            message.id,
            block,
            message.stop,
            message.usage,
        )
        self.put(ASSISTANT % (*head, message.request, uuid, self.stamp(), self.tail))

    def turn(self, words: list[Text], calls: list[Call]) -> None:
        """The blocks of a message, one line each, and the results of its tool calls."""
        message = self.message(b"tool_use" if calls else b"end_turn")
        for text in words:
            self.block(message, text.block)
        for call in calls:
            use = self.chance.id("toolu_01")
            self.block(message, CALL % (use, call.name, call.input))
            self.answer(use, call)

    def answer(self, use: bytes, call: Call) -> None:
        flag = b',"is_error":false' if call.name == b"Bash" else b""
        block = FAILURE % (call.content, use) if call.failed else ANSWER % (use, call.content, flag)
        result = b"" if self.agent else b'"toolUseResult":%b,' % call.result
        self.user(b"[%b]" % block, result + b'"sourceToolAssistantUUID":%b,' % self.parent)

    # --- rare events

    def prompt(self) -> None:
        """A prompt, with the snapshot that Claude Code writes."""
        self.turn_id = self.chance.uuid()
        words = json.loads(self.rng.choice(self.chance.pool.texts).block)["text"]
        self.user(encode(words), b'"permissionMode":"acceptEdits",', pause=900.0)
        uuid = self.parent.strip(b'"')
        self.put(SNAPSHOT % (uuid, uuid, self.stamp(0.1)))

    def compact(self) -> None:
        meta = (
            b'"compactMetadata":{"trigger":"auto","preTokens":%d,"postTokens":9000}' % self.context
        )
        self.system(
            b'"subtype":"compact_boundary","content":"Conversation compacted","level":"info",'
            + meta
        )
        summary = (
            "This session is being continued from a previous conversation.\n\nSummary:\n" + PROMPT
        )
        self.user(encode(summary), b'"isCompactSummary":true,')
        self.context = 9_000

    def fail(self) -> None:
        """An API error: a synthetic message without usage."""
        before, uuid = self.link()
        text = b'{"type":"text","text":"API Error: 529 Overloaded"}'
        head = (
            before,
            self.aside,
            self.label,
            b"<synthetic>",
            self.chance.uuid(),
            text,
            b"stop_sequence",
        )
        self.put(
            ASSISTANT
            % (
                *head,
                USAGE % ((0,) * 6),
                b"req_011CNone",
                uuid,
                self.stamp(),
                SYNTHETIC + self.tail,
            )
        )

    def step(self) -> None:
        if self.context > FULL:
            self.compact()
        chance = self.rng.random()
        if chance < ERROR_SHARE:
            self.fail()
        if chance > 1 - PROMPT_SHARE:
            self.turn([self.rng.choice(self.chance.pool.texts)], [])
            self.system(
                b'"subtype":"turn_duration","durationMs":%d' % self.rng.randrange(2_000, 400_000)
            )
            self.prompt()
        else:
            self.turn(self.chance.words(), self.chance.calls())

    def grow(self, limit: float) -> None:
        """Add lines until it has grown by `limit` bytes."""
        first = self.size
        self.prompt()
        while self.size - first < limit:
            self.step()
        self.turn([self.rng.choice(self.chance.pool.texts)], [])

    # --- subagents, forks, files

    def delegate(self, limit: float) -> Thread:
        """A call of a subagent; returns the subagent's thread."""
        agent = f"a{self.rng.getrandbits(64):016x}".encode()
        child = Thread(self.chance, self.totals, self.place, self.now, agent, self.session)
        message, use = self.message(b"tool_use"), self.chance.id("toolu_01")
        given = {"description": AGENT_TASK, "prompt": PROMPT, "subagent_type": AGENT_TYPE}
        self.block(message, CALL % (use, b"Task", encode(given)))
        child.grow(limit)
        self.now = child.now
        content = [{"type": "text", "text": REPORT}]
        done = {
            "status": "completed",
            "prompt": PROMPT,
            "agentId": agent.decode(),
            "agentType": AGENT_TYPE,
            "content": content,
        }
        result = encode({**done, "totalTokens": child.context, "totalToolUseCount": 7})
        self.answer(use, Call(b"Task", b"", encode(content), result, False, ()))
        return child

    def forked(self) -> Thread:
        """A new session that begins with a copy of this one."""
        fork = Thread(self.chance, self.totals, self.place, self.now + 3_600)
        fork.model, fork.context, fork.parent = self.model, self.context, self.parent
        for line in self.lines:
            fork.put(line.replace(self.session, fork.session))
        self.totals.forks += 1
        self.totals.repeated += len(fork.lines)
        return fork

    def file(self) -> Path:
        session = self.session.decode()
        if self.agent:
            return self.place.folder / session / "subagents" / f"agent-{self.agent.decode()}.jsonl"
        return self.place.folder / f"{session}.jsonl"

    def save(self) -> None:
        if not self.agent:
            self.put(LAST % (PROMPT.encode(), self.parent.strip(b'"'), self.session))
        path = self.file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(self.lines))
        totals = self.totals
        totals.files, totals.lines, totals.size = (
            totals.files + 1,
            totals.lines + len(self.lines),
            totals.size + self.size,
        )
        totals.subagents, totals.sessions = (
            totals.subagents + bool(self.agent),
            totals.sessions + (not self.agent),
        )


class Plan(NamedTuple):
    """A session to write: start, size in bytes, number of subagents, and whether to fork it."""

    place: Place
    start: float
    size: float
    agents: int
    forked: bool


def places(folder: Path, rng: random.Random) -> list[Place]:
    """The projects; as in Claude Code, the folder's name is the path with dashes."""
    names = [f"{one}-{other}" for one in WORDS for other in WORDS if one != other]
    paths = [f"/srv/code/{name}" for name in rng.sample(names, PROJECTS)]
    branches = ("main", "main", "develop", "fix/parser")
    return [
        Place(folder / path.replace("/", "-"), path.encode(), rng.choice(branches).encode())
        for path in paths
    ]


def plans(folder: Path, files: int, size: float, rng: random.Random) -> list[Plan]:
    """Sessions for this number of files, sorted by start, with log-normal sizes."""
    forks, agents = round(files * FORK_SHARE), round(files * AGENT_SHARE)
    count = max(files - forks - agents, 1)
    where = places(folder, rng)
    shares = [math.exp(rng.gauss(0, SPREAD)) for _ in range(count)]
    unit = size / (sum(shares) * files / count)
    starts = sorted(START - rng.random() * DAYS * 86_400 for _ in range(count))
    parents = [AGENTS] * (agents // AGENTS) + ([agents % AGENTS] if agents % AGENTS else [])
    spread = rng.sample([*parents, *[0] * (count - len(parents))], count)
    origins = set(rng.sample(range(count), min(forks, count)))
    rows = zip(starts, shares, spread, strict=True)
    return [
        Plan(rng.choice(where), start, share * unit, some, i in origins)
        for i, (start, share, some) in enumerate(rows)
    ]


def carry_out(plan: Plan, chance: Chance, totals: Totals, mean: float) -> None:
    thread = Thread(chance, totals, plan.place, plan.start)
    thread.grow(plan.size)
    for _ in range(plan.agents):
        thread.delegate(mean).save()
    if plan.forked:
        fork = thread.forked()
        fork.grow(mean)
        fork.save()
    thread.save()


def generate(folder: str | Path, megabytes: float, files: int = 2_000, seed: int = 7) -> Totals:
    """Write about this many megabytes (of 1,000,000 bytes) to the folder; returns the totals."""
    chance, totals = Chance(seed), Totals()
    size = megabytes * 1_000_000
    for plan in plans(Path(folder), files, size, chance.rng):
        carry_out(plan, chance, totals, size / files)
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a generated tree of transcripts; print its totals as JSON."
    )
    parser.add_argument("out", help="folder to write into, as ~/.claude/projects")
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    print(json.dumps(generate(given.out, given.megabytes, given.files, given.seed).plain()))


if __name__ == "__main__":
    main()
