"""Write a session as Claude Code does: stdout, transcript, subagents' files and recording.

Each `Dialect` is a version that counts or writes differently; the shapes are those of recordings
of that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.claude_dialects import DIALECTS
from tests.support.modelserver import Usage
from tests.support.session_files import CWD, File, Json, SessionFiles, dump, iso, stable_uuid
from tests.support.session_model import Case, Figures, Request, add, duration_ms, history


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


class ClaudeSession(SessionFiles):
    """The files of a case."""

    agent = "claude"

    def __init__(self, case: Case) -> None:
        self.dialect = DIALECTS[case.version]
        super().__init__(case, self.dialect.kinds, self.dialect.copies_on_resume)

    def message_id(self, run: int, place: int) -> str:
        return f"msg_01{stable_uuid(self.seed, run, place).replace('-', '')[:22]}"

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
            "contextWindow": 1_000_000 if model.startswith("claude-opus-5") else 200_000,
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

    def kept_before(self, run: int) -> Iterator[bytes]:
        """The totals of the session before, if its file has any."""
        stored = [n for n in history(self.runs, run) if self.runs[n].end != "kill"]
        if stored and self.dialect.has_cost_state:
            session = {"sessionId": self.session_id(self.session_of(stored[-1]))}
            yield dump({**self.cost_state(stored[-1]), **session}) + b"\n"


def doubled_cost(requests: Iterable[Request]) -> int:
    """The total of 1.0.72: first and final usage of each answer are added."""
    total = Figures()
    for request in requests:
        total = total.plus(request.figures()).plus(request.figures(output=1))
    return total.cost
