"""Write a session as Claude Code does: stdout, transcript, subagents' files and recording.

Each `Dialect` is a version that counts or writes differently; the shapes are those of recordings
of that version.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msgspec import Struct

from steno.recording.format import Header, Record, Recorder
from tests.support.modelserver import Usage
from tests.support.session_model import (
    Case,
    Figures,
    Kinds,
    Request,
    add,
    duration_ms,
    history,
    sessions,
    start_times,
)

START_MS = 1_793_610_000_000  # 2026-11-02 09:00 UTC
CWD = "/srv/project"
Json = dict[str, Any]


class Dialect(Struct, frozen=True):
    """What one version writes. `totals`: of a process or of the session so far."""

    kinds: Kinds
    totals: str = "process"
    has_models: bool = True  # modelUsage
    has_since: bool = False  # model_usage_since_last_result
    has_cost_state: bool = False
    is_stream_final: bool = False  # the usage in stdout has the output
    is_transcript_final: bool = True
    agents: str = "folder"  # where subagents' files are: folder, beside, inline
    copies_on_resume: bool = False  # a new session id, with the messages so far
    has_ids: bool = True  # stdout has uuids


OPUS = "claude-opus-5-5"
SONNET = "claude-sonnet-4-6"
SONNET_4 = "claude-sonnet-4-20250514"
HAIKU = "claude-haiku-4-5-20251001"
HAIKU_3 = "claude-3-5-haiku-20241022"
ALL_ENDS = ("result", "kill", "term", "interrupt")
DIALECTS = {
    "1.0.72": Dialect(
        Kinds(SONNET_4, HAIKU_3, extra=("helper", "sub"), can_fork=False),
        has_models=False,
        is_stream_final=True,
        agents="inline",
        copies_on_resume=True,
        has_ids=False,
    ),
    "2.0.59": Dialect(
        Kinds(SONNET, HAIKU, extra=("helper", "sub", "warmup", "compact")),
        is_stream_final=True,
        agents="beside",
    ),
    "2.1.30": Dialect(
        Kinds(SONNET, HAIKU, extra=("helper", "sub", "compact")), is_transcript_final=False
    ),
    "2.1.126": Dialect(Kinds(SONNET, HAIKU, extra=("sub", "compact", "lost"), has_web=True)),
    "2.1.290": Dialect(
        Kinds(OPUS, HAIKU, extra=("sub", "compact", "helper"), has_web=True), "session"
    ),
    "2.1.327": Dialect(
        Kinds(
            *(OPUS, HAIKU),
            ends=ALL_ENDS,
            extra=("sub", "compact", "lost", "helper"),
            has_web=True,
        ),
        "session",
        has_since=True,
        has_cost_state=True,
    ),
    "2.1.327 unpriced": Dialect(
        Kinds("nobody-knows-it", HAIKU, extra=("sub", "compact")),
        "session",
        has_since=True,
        has_cost_state=True,
    ),
}
MESSAGES = ("main", "sub", "warmup", "aborted")  # kinds that some file shows


class File(Struct, frozen=True):
    """A file of a witness: its path in the folder, its lines and when it was last written."""

    path: str
    lines: tuple[bytes, ...]
    at_ms: int


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def iso(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stable_uuid(*parts: object) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, " ".join(map(str, parts))))


def usage_json(usage: Usage, web: int, output: int) -> Json:
    return {
        **usage.end(),
        "output_tokens": output,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": 0,
        },
        "server_tool_use": {"web_search_requests": web, "web_fetch_requests": 0},
    }


class ClaudeSession:
    """The files of a case."""

    def __init__(self, case: Case) -> None:
        self.runs = case.runs
        self.dialect = DIALECTS[case.version]
        self.version = case.version.partition(" ")[0]
        self.sessions = sessions(case.runs, self.dialect.copies_on_resume)
        self.starts = start_times(case.runs, START_MS)
        # Of this case alone: equal cases have equal ids.
        self.seed = stable_uuid(repr(case.runs), case.version)

    # -- names -----------------------------------------------------------------------------------

    def session_of(self, run: int) -> int:
        return next(n for n, session in enumerate(self.sessions) if run in session)

    def session_id(self, session: int) -> str:
        return stable_uuid(self.seed, "session", session)

    def message_id(self, run: int, place: int) -> str:
        return f"msg_01{stable_uuid(self.seed, run, place).replace('-', '')[:22]}"

    def witnesses(self) -> list[str]:
        names = [f"out{number}" for number in range(len(self.runs)) if self.stdout(number)]
        names += [f"tape{number}" for number in range(len(self.runs))]
        for number in range(len(self.sessions)):
            names.append(f"file{number}")
            if self.agent_files(number):
                names.append(f"agents{number}")
        return names

    def files(self, witness: str) -> list[File]:
        kind = witness.rstrip("0123456789")
        number = int(witness[len(kind) :])
        if kind == "file":
            return [self.transcript(number)]
        if kind == "agents":
            return self.agent_files(number)
        if kind == "tape":
            return [self.recording(number)]
        at_ms = self.end_ms(number) + self.runs[number].file_delay_ms
        return [File(f"out/{number}.jsonl", self.stdout(number), at_ms)]

    def end_ms(self, run: int) -> int:
        return self.starts[run] + duration_ms(self.runs[run])

    # -- totals ----------------------------------------------------------------------------------

    def stored(self, run: int) -> tuple[Request, ...]:
        """The requests that a later process continues from: none after SIGKILL (2.1.327)."""
        end = self.runs[run].end
        if end == "kill":
            return ()
        return tuple(request for request in self.runs[run].requests if request.kind != "aborted")

    def total(self, run: int, is_stored: bool = False) -> list[Request]:
        """What the agent's totals at the end of a run count."""
        own = self.stored(run) if is_stored else self.runs[run].requests
        if self.dialect.totals == "process":
            return list(own)
        earlier = history(self.runs, run)
        return [*(request for number in earlier for request in self.stored(number)), *own]

    def shares(self, requests: Iterable[Request]) -> Json:
        by_model: dict[str, list[Request]] = {}
        for request in requests:
            by_model.setdefault(request.model, []).append(request)
        return {model: self._share(model, of_model) for model, of_model in by_model.items()}

    def _share(self, model: str, requests: list[Request]) -> Json:
        total = add(request.figures() for request in requests)
        is_known = model != "nobody-knows-it"
        return {
            "inputTokens": total.input,
            "outputTokens": total.output,
            "cacheReadInputTokens": total.cache_read,
            "cacheCreationInputTokens": total.cache_write,
            "webSearchRequests": sum(request.web for request in requests),
            "costUSD": total.cost / 1e9 if is_known else total.input * 5e-6,
            "contextWindow": 200_000,
            "maxOutputTokens": 32_000,
            **({"costBasis": "list" if is_known else "unknown"} if self.dialect.has_since else {}),
        }

    def cost_usd(self, requests: list[Request]) -> float:
        if not self.dialect.has_models:
            return doubled_cost(requests) / 1e9
        return sum(float(share["costUSD"]) for share in self.shares(requests).values())

    # -- stdout ----------------------------------------------------------------------------------

    def stdout(self, run: int) -> tuple[bytes, ...]:
        lines = list(self.stream(run))
        if self.runs[run].format == "stream":
            return tuple(dump(line) + b"\n" for line in lines)
        if lines[-1]["type"] != "result":
            return ()  # a document is printed at the end
        lines[-1].pop("model_usage_since_last_result", None)
        if self.runs[run].format == "json":
            return (dump(lines[-1]) + b"\n",)
        return (dump(lines) + b"\n",)

    def stream(self, run: int) -> Iterator[Json]:
        session = self.session_id(self.session_of(run))
        yield {
            "type": "system",
            "subtype": "init",
            "cwd": CWD,
            "session_id": session,
            "tools": ["Bash", "Task"],
            "model": self.dialect.kinds.model,
            "apiKeySource": "ANTHROPIC_API_KEY",
            "claude_code_version": self.version,
            "uuid": stable_uuid(self.seed, run, "init"),
        }
        for line in self.conversation(run, is_stream=True):
            yield {**line, "session_id": session}
        if self.runs[run].end in ("result", "interrupt"):
            yield self._result(run, session)

    def _result(self, run: int, session: str) -> Json:
        one = self.runs[run]
        main = [request for request in one.requests if request.kind == "main"]
        total = self.total(run)
        interrupted = one.end == "interrupt"
        line: Json = {
            "type": "result",
            "subtype": "error_during_execution" if interrupted else "success",
            "is_error": interrupted,
            "duration_ms": duration_ms(one),
            "duration_api_ms": duration_ms(one),
            "num_turns": len(main),
            "session_id": session,
            "total_cost_usd": self.cost_usd(total),
            "usage": self._main_usage(main),
            "permission_denials": [],
            "uuid": stable_uuid(self.seed, run, "result"),
        }
        if not interrupted:
            line["result"] = "done"
        if self.dialect.has_models:
            line["modelUsage"] = self.shares(total)
        if self.dialect.has_since:
            line["model_usage_since_last_result"] = self.shares(one.requests)
        if self.dialect.totals == "session":
            line["result_index"] = 0
        return line

    def _main_usage(self, main: list[Request]) -> Json:
        total = add(request.figures() for request in main)
        usage = Usage(total.input, total.cache_write, total.cache_read, total.output)
        if not self.dialect.has_models:  # 1.0.72 adds the first and the final usage
            counters = (2 * total.input, 2 * total.cache_write, 2 * total.cache_read)
            usage = Usage(*counters, total.output + len(main))
        return usage_json(usage, sum(request.web for request in main), usage.output)

    # -- the conversation, in both forms -----------------------------------------------------------

    def conversation(self, run: int, is_stream: bool) -> Iterator[Json]:
        """The lines of the main thread and, in stdout, of subagents."""
        at = self.starts[run]
        yield from self._prompt(run, at) if not is_stream else ()
        requests = self.runs[run].requests
        for place, request in enumerate(requests):
            at += request.ms
            if request.kind == "compact":
                yield from self._compaction(run, place, at, is_stream)
            if request.kind not in ("main", "sub", "aborted"):
                continue
            if request.kind == "sub" and not self._shows_subagent(run, place, is_stream):
                continue
            yield from self._message(run, place, at, is_stream)
        if not is_stream and self.dialect.has_cost_state and self.runs[run].end != "kill":
            yield self.cost_state(run)

    def _shows_subagent(self, run: int, place: int, is_stream: bool) -> bool:
        if not is_stream:
            return self.dialect.agents == "inline"
        request = self.runs[run].requests[place]
        is_background = request.agent == 1 and self.dialect.has_since
        return is_background or self.is_call(run, place)

    def is_call(self, run: int, place: int) -> bool:
        """Whether it calls a tool: all but the last request of each thread."""
        requests = self.runs[run].requests
        thread = (requests[place].kind, requests[place].agent)
        return any((other.kind, other.agent) == thread for other in requests[place + 1 :])

    def task_call(self, run: int, agent: int) -> str:
        return f"toolu_{stable_uuid(self.seed, run, 'task', agent)[:12]}"

    def _prompt(self, run: int, at: int) -> Iterator[Json]:
        if self.version >= "2":
            yield {"type": "queue-operation", "operation": "enqueue", "timestamp": iso(at)}
        yield {
            "type": "user",
            "message": {"role": "user", "content": f"do thing {run}"},
            "uuid": stable_uuid(self.seed, run, "prompt"),
            "timestamp": iso(at),
        }

    def _compaction(self, run: int, place: int, at: int, is_stream: bool) -> Iterator[Json]:
        name = "compact_metadata" if is_stream else "compactMetadata"
        keys = ("pre_tokens", "post_tokens") if is_stream else ("preTokens", "postTokens")
        yield {
            "type": "system",
            "subtype": "compact_boundary",
            name: {"trigger": "auto", **dict(zip(keys, (23_000, 100), strict=True))},
            "uuid": stable_uuid(self.seed, run, place, "compact"),
            **({} if is_stream else {"timestamp": iso(at), "content": "Conversation compacted"}),
        }

    def _message(self, run: int, place: int, at: int, is_stream: bool) -> Iterator[Json]:
        request = self.runs[run].requests[place]
        is_sub = request.kind == "sub"
        own_call = f"toolu_{stable_uuid(self.seed, run, place)[:12]}"
        calls: list[tuple[str, str, Json]] = [(own_call, "Bash", {"command": "ls"})]
        if not is_sub and place == self._first_main(run):
            calls += [
                (self.task_call(run, agent), "Task", {"description": "look", "prompt": "look"})
                for agent in self.agents_of(run)
            ]
        if not self.is_call(run, place):
            calls = []
        blocks: list[Json] = [{"type": "text", "text": "words"}] * (request.blocks if calls else 1)
        blocks += [{"type": "tool_use", "id": c, "name": n, "input": i} for c, n, i in calls]
        is_final = self.dialect.is_stream_final if is_stream else self.dialect.is_transcript_final
        output = request.usage.output if is_final and request.kind != "aborted" else 1
        for index, block in enumerate(blocks):
            message = {
                "model": request.model,
                "id": self.message_id(run, place),
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": ("tool_use" if calls else "end_turn") if is_final else None,
                "stop_sequence": None,
                "usage": usage_json(request.usage, request.web, output),
            }
            identity = stable_uuid(self.seed, run, place, index)
            yield self._line("assistant", message, run, place, at, is_stream, identity)
        for call, _, _ in calls:
            result = {"tool_use_id": call, "type": "tool_result", "content": "ok"}
            message = {"role": "user", "content": [result]}
            identity = stable_uuid(self.seed, run, place, call)
            yield self._line("user", message, run, place, at, is_stream, identity)

    def _first_main(self, run: int) -> int:
        return [request.kind for request in self.runs[run].requests].index("main")

    def agents_of(self, run: int) -> list[int]:
        requests = self.runs[run].requests
        return sorted({request.agent for request in requests if request.kind == "sub"})

    def _line(
        self,
        kind: str,
        message: Json,
        run: int,
        place: int,
        at: int,
        is_stream: bool,
        identity: str,
    ) -> Json:
        request = self.runs[run].requests[place]
        is_sub = request.kind == "sub"
        request_id = f"req_{stable_uuid(self.seed, run, place, 'request')[:20]}"
        if is_stream:
            line: Json = {"type": kind, "message": message}
            line["parent_tool_use_id"] = self.task_call(run, request.agent) if is_sub else None
            if self.dialect.has_ids:
                line["uuid"] = identity
            if self.dialect.has_since:
                line["timestamp"] = iso(at)
                line |= {"request_id": request_id} if kind == "assistant" else {}
            return line
        line = {"parentUuid": None, "isSidechain": is_sub, "message": message}
        line |= {"requestId": request_id} if kind == "assistant" else {}
        return line | {"type": kind, "uuid": identity, "timestamp": iso(at)}

    # -- transcripts -----------------------------------------------------------------------------

    def cost_state(self, run: int) -> Json:
        total = self.total(run, is_stored=True)
        shares = self.shares(total)
        for share in shares.values():
            del share["contextWindow"], share["maxOutputTokens"]
        return {
            "type": "cost-state",
            "totalCostUSD": self.cost_usd(total),
            "modelUsage": shares,
            "hasUnknownModelCost": "nobody-knows-it" in shares,
        }

    def transcript(self, session: int) -> File:
        runs = self.sessions[session]
        lines = [self._copied(line, runs[0]) for line in self._copies(runs[0])]
        lines += [line for run in runs for line in self.conversation(run, is_stream=False)]
        common = {"cwd": CWD, "sessionId": self.session_id(session), "version": self.version}
        data = tuple(dump({**line, **common}) + b"\n" for line in lines)
        return File(f"projects/{self.session_id(session)}.jsonl", data, self.end_ms(runs[-1]))

    def _copies(self, run: int) -> Iterator[Json]:
        """What the file of a fork, or of a resumed session of 1.0.72, begins with."""
        first = self.runs[run]
        if not (first.is_fork or self.dialect.copies_on_resume):
            return
        if self.version >= "2":
            at = iso(self.starts[run])
            yield {"type": "queue-operation", "operation": "dequeue", "timestamp": at}
        for number in history(self.runs, run):
            for line in self.conversation(number, is_stream=False):
                if line["type"] in ("user", "assistant") and not line.get("isSidechain"):
                    yield line

    def _copied(self, line: Json, run: int) -> Json:
        if not self.dialect.copies_on_resume:
            return line
        copy = {name: value for name, value in line.items() if name != "requestId"}
        copy["uuid"] = stable_uuid(line["uuid"], run)
        return {**copy, "timestamp": iso(self.starts[run])}

    def agent_files(self, session: int) -> list[File]:
        return [
            file for run in self.sessions[session] for file in self._agent_files_of(run, session)
        ]

    def _agent_files_of(self, run: int, session: int) -> Iterator[File]:
        requests = self.runs[run].requests
        if self.dialect.agents == "inline":
            return
        for agent in self.agents_of(run):
            yield self._agent_file(run, session, f"sub{agent}", ("sub", agent))
        for place, request in enumerate(requests):
            if request.kind == "warmup":
                yield self._agent_file(run, session, f"warmup{place}", ("warmup", place))

    def _agent_file(self, run: int, session: int, name: str, thread: tuple[str, int]) -> File:
        agent = f"a{stable_uuid(self.seed, run, name).replace('-', '')[:16]}"
        session_id = self.session_id(session)
        folder = f"{session_id}/subagents" if self.dialect.agents == "folder" else "."
        if thread[0] == "warmup" and self.runs[run].origin is not None:
            session_id = stable_uuid(self.seed, run, "before the resume")  # 2.0.59
        common = {"cwd": CWD, "sessionId": session_id, "version": self.version, "agentId": agent}
        at = self.starts[run]
        word = {"role": "user", "content": "Warmup" if thread[0] == "warmup" else "look"}
        first = {"type": "user", "isSidechain": True, "message": word, "timestamp": iso(at)}
        lines: list[Json] = [{**first, "uuid": stable_uuid(self.seed, run, name)}]
        for place, request in enumerate(self.runs[run].requests):
            at += request.ms
            key = place if request.kind == "warmup" else request.agent
            if (request.kind, key) == thread:
                lines += self._message(run, place, at, is_stream=False)
        data = tuple(dump({**line, **common, "isSidechain": True}) + b"\n" for line in lines)
        path = str(Path("projects") / folder / f"agent-{agent}.jsonl")
        return File(path, data, self.end_ms(run))

    # -- recordings ------------------------------------------------------------------------------

    def recording(self, run: int) -> File:
        return File(f"recordings/{stable_uuid(self.seed, 'run', run)}.steno", (), self.end_ms(run))

    def write_recording(self, run: int, path: Path) -> None:
        """As `steno run` writes it: with the totals of the session before, if its file has any."""
        origin = self.runs[run].origin
        header = Header(
            agent="claude",
            run_id=path.stem,
            cwd=CWD,
            argv=["claude", "-p", "do it"],
            started_at=self.starts[run] / 1000,
            resumes=origin is not None,
        )
        end = duration_ms(self.runs[run]) / 1000
        with Recorder(path, header) as recorder:
            if origin is not None and self.dialect.has_cost_state:
                kept = [n for n in [*history(self.runs, run)] if self.runs[n].end != "kill"]
                if kept:
                    session = {"sessionId": self.session_id(self.session_of(kept[-1]))}
                    line = dump({**self.cost_state(kept[-1]), **session})
                    recorder.write(Record(0.0, "kept", line + b"\n"))
            for line in self.stdout(run):
                recorder.write(Record(end, "out", line))
            recorder.write(Record(end, "exit", number=0 if self.runs[run].end == "result" else 1))


def doubled_cost(requests: Iterable[Request]) -> int:
    """The total of 1.0.72: first and final usage of each answer are added."""
    total = Figures()
    for request in requests:
        total = total.plus(request.figures()).plus(request.figures(output=1))
    return total.cost
