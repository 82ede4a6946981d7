"""Write sessions as Codex, Gemini, Copilot and Qwen do; the shapes are those of recordings.

Each class also says which requests its stdout shows (`shown`: with all figures of the run,
`summed`: in a total over the session, `outputs`: with their output alone).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.support.session_files import CWD, File, Json, Key, SessionFiles, dump, iso, stable_uuid
from tests.support.session_model import Case, Figures, Kinds, Request, add, duration_ms, history

GPT = "gpt-5"
GEMINI = "gemini-2.5-pro"
CODER = "coder"  # has no price
STREAM = ("stream",)
KINDS = {
    ("codex", "0.166.0"): Kinds(GPT, formats=STREAM, has_cache_write=False),
    ("codex", "0.80.0"): Kinds(GPT, formats=STREAM, has_cache_write=False, can_fork=False),
    ("gemini", "0.61.0"): Kinds(
        GEMINI, formats=("stream", "json"), has_cache_write=False, can_fork=False
    ),
    ("copilot", "1.0.102"): Kinds(GPT, formats=STREAM, can_fork=False),
    ("copilot", "1.0.79"): Kinds(GPT, formats=STREAM, can_fork=False),
    ("copilot", "1.0.92"): Kinds(GPT, formats=STREAM, ends=("result",), can_fork=False),
    ("qwen", "0.24.4"): Kinds(
        *(CODER, CODER),
        formats=("stream", "verbose"),
        extra=("helper",),
        has_cache_write=False,
        can_fork=False,
    ),
}


class OtherSession(SessionFiles):
    """What the four have in common."""

    knows_model = True  # stdout names the model
    folder = "sessions"

    def __init__(self, case: Case) -> None:
        super().__init__(case, KINDS[(case.agent, case.version)])

    def shown(self, run: int) -> set[Key]:
        return set()

    def summed(self, run: int) -> set[Key]:
        return set()

    def outputs(self, run: int) -> set[Key]:
        return set()

    def in_file(self, run: int) -> set[Key]:
        return self.keys(run)

    def on_tape(self, run: int) -> set[Key]:
        """The requests that its recording lists one by one."""
        return self.in_file(run)

    def file_lines(self, run: int) -> Iterator[Json]:
        raise NotImplementedError

    def file_head(self, session: int) -> Iterator[Json]:
        yield from ()

    def file_name(self, session: int) -> str:
        return f"{self.session_id(session)}.jsonl"

    def transcript(self, session: int) -> File:
        lines = [*self.file_head(session)]
        lines += [line for run in self.sessions[session] for line in self.file_lines(run)]
        data = tuple(dump(line) + b"\n" for line in lines)
        path = f"{self.folder}/{self.file_name(session)}"
        return File(path, data, self.end_ms(self.sessions[session][-1]))

    def kept_after(self, run: int) -> Iterator[bytes]:
        """The first line of the file, totals in earlier lines, and what is new since the start."""
        if not self.stdout(run):
            return  # nothing names the session
        session = self.session_of(run)
        runs = self.sessions[session]
        first = next(iter([*self.file_head(session), *self.file_lines(runs[0])]))
        earlier = [line for n in runs if n < run for line in self.file_lines(n)]
        own = [line for line in self.file_lines(run) if line != first]
        for line in (first, *(line for line in earlier if self.is_total(line)), *own):
            yield dump(line) + b"\n"

    def is_total(self, line: Json) -> bool:
        return False

    def lines_out(self, *lines: Json) -> tuple[bytes, ...]:
        return tuple(dump(line) + b"\n" for line in lines)

    def has_ended(self, run: int) -> bool:
        return self.runs[run].end == "result"

    def of(self, key: Key) -> Request:
        return self.runs[key[0]].requests[key[1]]

    def total(self, keys: set[Key]) -> Figures:
        return add(self.of(key).figures() for key in keys)


# -- Codex -----------------------------------------------------------------------------------------


class CodexSession(OtherSession):
    """stdout has the thread's total so far; the rollout each request."""

    agent = "codex"
    knows_model = False

    def summed(self, run: int) -> set[Key]:
        return self.chain(run) if self.has_ended(run) else set()

    def stdout(self, run: int) -> tuple[bytes, ...]:
        thread = self.session_id(self.session_of(run))
        said = {"id": "item_0", "type": "agent_message", "text": f"words {run}"}
        lines: list[Json] = [
            {"type": "thread.started", "thread_id": thread},
            {"type": "turn.started"},
            {"type": "item.completed", "item": said},
        ]
        if self.has_ended(run):
            usage = self._usage(self.total(self.chain(run)))
            lines.append({"type": "turn.completed", "usage": usage})
        return self.lines_out(*lines)

    def _usage(self, total: Figures) -> Json:
        usage = {
            "input_tokens": total.input + total.cache_read,
            "cached_input_tokens": total.cache_read,
            "cache_write_input_tokens": 0,
            "output_tokens": total.output,
            "reasoning_output_tokens": 0,
        }
        if self.version.startswith("0.80"):
            del usage["cache_write_input_tokens"]
        return usage

    def file_name(self, session: int) -> str:
        at = iso(self.starts[self.sessions[session][0]])[:19].replace(":", "-")
        return f"rollout-{at}-{self.session_id(session)}.jsonl"

    def file_head(self, session: int) -> Iterator[Json]:
        first = self.sessions[session][0]
        meta: Json = {"id": self.session_id(session), "timestamp": iso(self.starts[first])}
        meta |= {"cwd": CWD, "originator": "codex_exec", "cli_version": self.version}
        origin = self.runs[first].origin
        if origin is not None:
            meta["forked_from_id"] = self.session_id(self.session_of(origin))
        yield self._line(self.starts[first], "session_meta", meta)

    def _line(self, at: int, kind: str, payload: Json) -> Json:
        return {"timestamp": iso(at), "type": kind, "payload": payload}

    def file_lines(self, run: int) -> Iterator[Json]:
        start = self.starts[run]
        turn = stable_uuid(self.seed, run, "turn")
        earlier = {key for number in history(self.runs, run) for key in self.keys(number)}
        if not self.version.startswith("0.80"):
            yield self._line(start, "event_msg", {"type": "task_started", "turn_id": turn})
        yield self._line(start, "turn_context", {"turn_id": turn, "cwd": CWD, "model": GPT})
        said = {"type": "user_message", "message": f"do thing {run}"}
        yield self._line(start, "event_msg", said)
        words = {"type": "agent_message", "message": f"words {run}"}
        yield self._line(start, "event_msg", words)
        if earlier and self.version.startswith("0.80"):  # repeats the last count
            yield self._count(start, earlier, max(earlier))
        for place, at in enumerate(self.times(run)):
            earlier = earlier | {(run, place)}
            if not self.version.startswith("0.80"):
                yield self._line(at, "token_usage_record", self._record(run, place, turn, earlier))
            yield self._count(at, earlier, (run, place))
        if self.has_ended(run) and not self.version.startswith("0.80"):
            end = {"type": "task_complete", "turn_id": turn}
            yield self._line(self.end_ms(run), "event_msg", end)

    def _record(self, run: int, place: int, turn: str, counted: set[Key]) -> Json:
        thread = self.session_id(self.session_of(run))
        return {
            "thread_id": thread,
            "turn_id": turn,
            "response_id": f"resp_{stable_uuid(self.seed, run, place).replace('-', '')[:24]}",
            "usage": self._usage(self.of((run, place)).figures()),
            "turn_token_usage": self._usage(self.total(counted & self.keys(run))),
            "thread_token_usage": self._usage(self.total(counted)),
        }

    def _count(self, at: int, counted: set[Key], last: Key) -> Json:
        info = {
            "total_token_usage": self._usage(self.total(counted)),
            "last_token_usage": self._usage(self.of(last).figures()),
            "model_context_window": 258_400,
        }
        return self._line(at, "event_msg", {"type": "token_count", "info": info})


# -- Gemini ----------------------------------------------------------------------------------------


class GeminiSession(OtherSession):
    """stdout has the run's totals per model; the chat each request."""

    agent = "gemini"

    def on_tape(self, run: int) -> set[Key]:
        return set()

    def shown(self, run: int) -> set[Key]:
        return self.keys(run) if self.has_ended(run) else set()

    def stdout(self, run: int) -> tuple[bytes, ...]:
        session = self.session_id(self.session_of(run))
        if self.runs[run].format == "json":
            return (self._document(run, session),) if self.has_ended(run) else ()
        start, end = iso(self.starts[run]), iso(self.end_ms(run))
        said = {"type": "message", "timestamp": start}
        lines: list[Json] = [
            {"type": "init", "timestamp": start, "session_id": session, "model": GEMINI},
            {**said, "role": "user", "content": f"do thing {run}"},
            {**said, "role": "assistant", "content": "words", "delta": True},
        ]
        if self.has_ended(run):
            total = self.total(self.keys(run))
            counted = {
                "total_tokens": total.input + total.cache_read + total.output,
                "input_tokens": total.input + total.cache_read,
                "output_tokens": total.output,
                "cached": total.cache_read,
                "input": total.input,
            }
            stats: Json = {**counted, "duration_ms": duration_ms(self.runs[run]), "tool_calls": 0}
            stats["models"] = {GEMINI: counted}
            lines.append({"type": "result", "timestamp": end, "status": "success", "stats": stats})
        return self.lines_out(*lines)

    def _document(self, run: int, session: str) -> bytes:
        total = self.total(self.keys(run))
        api = {"totalRequests": len(self.keys(run)), "totalErrors": 0, "totalLatencyMs": 100}
        tokens = {
            "input": total.input,
            "prompt": total.input + total.cache_read,
            "candidates": total.output,
            "total": total.input + total.cache_read + total.output,
            "cached": total.cache_read,
            "thoughts": 0,
            "tool": 0,
        }
        stats = {"models": {GEMINI: {"api": api, "tokens": tokens}}, "tools": {"totalCalls": 0}}
        document = {"session_id": session, "response": "words", "stats": stats}
        return json.dumps(document, indent=2).encode() + b"\n"

    def file_name(self, session: int) -> str:
        at = iso(self.starts[self.sessions[session][0]])[:16].replace(":", "-")
        return f"session-{at}-{self.session_id(session)[:8]}.jsonl"

    def file_head(self, session: int) -> Iterator[Json]:
        at = iso(self.starts[self.sessions[session][0]])
        head = {"sessionId": self.session_id(session), "projectHash": "40792ba4f84160376c08"}
        yield {**head, "startTime": at, "lastUpdated": at, "kind": "main"}

    def file_lines(self, run: int) -> Iterator[Json]:
        start = iso(self.starts[run])
        prompt = {"id": stable_uuid(self.seed, run, "prompt"), "timestamp": start, "type": "user"}
        yield {**prompt, "content": [{"text": f"do thing {run}"}]}
        yield {"$set": {"lastUpdated": start}}
        for place, at in enumerate(self.times(run)):
            message = self._message(run, place, at)
            yield message
            yield {"$set": {"lastUpdated": iso(at)}}
            if self.of((run, place)).blocks > 1:  # again, with the results of its calls
                yield message

    def _message(self, run: int, place: int, at: int) -> Json:
        usage = self.of((run, place)).usage
        tokens = {
            "input": usage.input + usage.cache_read,
            "output": usage.output,
            "cached": usage.cache_read,
            "thoughts": 0,
            "tool": 0,
            "total": usage.input + usage.cache_read + usage.output,
        }
        return {
            "id": stable_uuid(self.seed, run, place),
            "timestamp": iso(at),
            "type": "gemini",
            "content": "words",
            "thoughts": [],
            "tokens": tokens,
            "model": GEMINI,
        }


# -- Copilot ---------------------------------------------------------------------------------------


class CopilotSession(OtherSession):
    """stdout has no tokens (1.0.79: output only); the events have them, or a total at the end."""

    agent = "copilot"

    @property
    def has_records(self) -> bool:
        return self.version == "1.0.102"

    def outputs(self, run: int) -> set[Key]:
        return set() if self.has_records else self.keys(run)

    def is_total(self, line: Json) -> bool:
        return bool(line["type"] == "session.shutdown")

    def in_file(self, run: int) -> set[Key]:
        return self.keys(run) if self.has_records or self.has_ended(run) else set()

    def file_name(self, session: int) -> str:
        return f"{self.session_id(session)}/events.jsonl"

    def _event(self, kind: str, at: int, data: Json, *name: object) -> Json:
        identity = stable_uuid(self.seed, kind, *name)
        return {"type": kind, "data": data, "id": identity, "timestamp": iso(at), "parentId": None}

    def _message(self, run: int, place: int, at: int) -> Json:
        data: Json = {
            "messageId": stable_uuid(self.seed, run, place),
            "model": GPT,
            "content": "words",
            "toolRequests": [],
            "turnId": str(place),
            "apiCallId": self._call_id(run, place),
        }
        if not self.has_records:
            data["outputTokens"] = self.of((run, place)).usage.output
        return self._event("assistant.message", at, data, run, place)

    def _call_id(self, run: int, place: int) -> str:
        return f"resp_{stable_uuid(self.seed, run, place, 'call')[:12]}"

    def stdout(self, run: int) -> tuple[bytes, ...]:
        start = self.starts[run]
        tools = self._event("session.tools_updated", start, {"model": GPT}, run)
        lines = [tools, self._prompt(run)]
        lines += [self._message(run, place, at) for place, at in enumerate(self.times(run))]
        if self.has_ended(run):
            usage = {"premiumRequests": 0, "totalApiDurationMs": 50, "sessionDurationMs": 90}
            result = {"type": "result", "timestamp": iso(self.end_ms(run)), "exitCode": 0}
            session = self.session_id(self.session_of(run))
            lines.append({**result, "sessionId": session, "usage": usage})
        return self.lines_out(*lines)

    def _prompt(self, run: int) -> Json:
        prompt = {
            "content": f"do thing {run}",
            "interactionId": stable_uuid(self.seed, run, "turn"),
        }
        return self._event("user.message", self.starts[run], prompt, run)

    def file_lines(self, run: int) -> Iterator[Json]:
        start = self.starts[run]
        session = self.session_id(self.session_of(run))
        is_first = run == self.sessions[self.session_of(run)][0]
        data: Json = {"context": {"cwd": CWD}, "selectedModel": GPT}
        if is_first:
            data |= {"sessionId": session, "version": 1, "copilotVersion": self.version}
            data |= {"producer": "copilot-agent", "startTime": iso(start)}
        yield self._event("session.start" if is_first else "session.resume", start, data, run)
        yield self._prompt(run)
        for place, at in enumerate(self.times(run)):
            if self.has_records:
                yield self._event("session.usage_record", at, self._record(run, place), run, place)
            yield self._message(run, place, at)
        if self.has_ended(run):
            yield self._event("session.shutdown", self.end_ms(run), self._shutdown(run), run)

    def _tokens(self, total: Figures) -> Json:
        return {
            "inputTokens": total.input + total.cache_read + total.cache_write,
            "outputTokens": total.output,
            "cacheReadTokens": total.cache_read,
            "cacheWriteTokens": total.cache_write,
        }

    def _record(self, run: int, place: int) -> Json:
        usage = self._tokens(self.of((run, place)).figures())
        return {"usage": {"model": GPT, **usage, "apiCallId": self._call_id(run, place)}}

    def _shutdown(self, run: int) -> Json:
        """1.0.92 and 1.0.102 count over the session, 1.0.79 the process."""
        keys = self.keys(run) if self.version == "1.0.79" else self.chain(run)
        requests = {"count": len(keys), "cost": 0}
        metrics = {GPT: {"requests": requests, "usage": self._tokens(self.total(keys))}}
        if self.has_records:
            return {"accountingSnapshot": {"modelMetrics": metrics}}
        return {"shutdownType": "routine", "modelMetrics": metrics, "currentModel": GPT}


# -- Qwen ------------------------------------------------------------------------------------------


class QwenSession(OtherSession):
    """The result has the session's total so far, with helpers of earlier runs."""

    agent = "qwen"

    def on_tape(self, run: int) -> set[Key]:
        return set()

    def shown(self, run: int) -> set[Key]:
        if self.runs[run].format == "verbose" and not self.has_ended(run):
            return set()
        return self.keys(run, "main")

    def summed(self, run: int) -> set[Key]:
        if not self.has_ended(run):
            return set()
        # A helper may end after the result (0.15.10) or before it (0.23.3).
        late = {key for key in self.keys(run, "helper") if self.of(key).blocks > 1}
        return self.chain(run) - late

    def file_name(self, session: int) -> str:
        return f"chats/{self.session_id(session)}.jsonl"

    def _usage(self, total: Figures) -> Json:
        return {
            "input_tokens": total.input + total.cache_read,
            "output_tokens": total.output,
            "cache_read_input_tokens": total.cache_read,
            "total_tokens": total.input + total.cache_read + total.output,
        }

    def stdout(self, run: int) -> tuple[bytes, ...]:
        session = self.session_id(self.session_of(run))
        lines: list[Json] = [
            {
                "type": "system",
                "subtype": "init",
                "uuid": session,
                "session_id": session,
                "cwd": CWD,
                "model": CODER,
                "permission_mode": "yolo",
                "qwen_code_version": self.version,
            }
        ]
        for _, place in sorted(self.keys(run, "main")):
            lines += self._assistant(run, place, session)
        if self.has_ended(run):
            lines.append(
                {
                    "type": "result",
                    "subtype": "success",
                    "uuid": stable_uuid(self.seed, run, "result"),
                    "session_id": session,
                    "is_error": False,
                    "duration_ms": duration_ms(self.runs[run]),
                    "num_turns": len(self.keys(run, "main")),
                    "result": "words",
                    "usage": self._usage(self.total(self.summed(run))),
                    "permission_denials": [],
                }
            )
        if self.runs[run].format == "stream":
            return self.lines_out(*lines)
        return (dump(lines) + b"\n",) if self.has_ended(run) else ()

    def _assistant(self, run: int, place: int, session: str) -> Iterator[Json]:
        """Each block is a message of its own; the last one has the usage."""
        request = self.of((run, place))
        for block in range(request.blocks):
            identity = stable_uuid(self.seed, run, place, block)
            is_last = block == request.blocks - 1
            message = {
                "id": identity,
                "type": "message",
                "role": "assistant",
                "model": CODER,
                "content": [{"type": "text", "text": "words"}],
                "stop_reason": None,
                "usage": self._usage(request.figures() if is_last else Figures()),
            }
            line = {"type": "assistant", "uuid": identity, "session_id": session}
            yield {**line, "parent_tool_use_id": None, "message": message}

    def file_lines(self, run: int) -> Iterator[Json]:
        session = self.session_id(self.session_of(run))
        common = {"sessionId": session, "cwd": CWD, "version": self.version}
        parts = {"role": "user", "parts": [{"text": f"do thing {run}"}]}
        start = {"uuid": stable_uuid(self.seed, run, "prompt"), "timestamp": iso(self.starts[run])}
        yield {**common, **start, "type": "user", "message": parts}
        for place, at in enumerate(self.times(run)):
            yield {**common, **self._telemetry(run, place, at)}
            if self.of((run, place)).kind == "main":
                yield {**common, **self._answer(run, place, at)}

    def _telemetry(self, run: int, place: int, at: int) -> Json:
        usage = self.of((run, place)).usage
        event: Json = {
            "event.name": "qwen-code.api_response",
            "event.timestamp": iso(at),
            "response_id": f"chatcmpl-{stable_uuid(self.seed, run, place)[:8]}",
            "model": CODER,
            "status_code": 200,
            "duration_ms": 40,
            "input_token_count": usage.input + usage.cache_read,
            "output_token_count": usage.output,
            "cached_content_token_count": usage.cache_read,
            "thoughts_token_count": 0,
        }
        if self.of((run, place)).kind == "helper":
            event["subagent_name"] = "managed-auto-memory-extractor"
        line = {"uuid": stable_uuid(self.seed, run, place, "telemetry"), "timestamp": iso(at)}
        line |= {"type": "system", "subtype": "ui_telemetry"}
        return {**line, "systemPayload": {"uiEvent": event}}

    def _answer(self, run: int, place: int, at: int) -> Json:
        usage = self.of((run, place)).usage
        counts = {
            "promptTokenCount": usage.input + usage.cache_read,
            "candidatesTokenCount": usage.output,
            "thoughtsTokenCount": 0,
            "totalTokenCount": usage.input + usage.cache_read + usage.output,
            "cachedContentTokenCount": usage.cache_read,
        }
        line = {"uuid": stable_uuid(self.seed, run, place, "answer"), "timestamp": iso(at)}
        message = {"role": "model", "parts": [{"text": "words"}]}
        line |= {"type": "assistant", "model": CODER}
        return {**line, "message": message, "usageMetadata": counts}


CLASSES: dict[str, type[OtherSession]] = {
    "codex": CodexSession,
    "gemini": GeminiSession,
    "copilot": CopilotSession,
    "qwen": QwenSession,
}
