"""The expected facts of a recorded Claude Code run, computed independently of steno.

A simple second reader of a recording folder (`stdout`, `exit_code`), for comparison with steno:
one `json.loads` per line, everything in memory, no shared code. `facts(folder)` returns a dict;
as a program it prints a JSON line per folder (or per `<version>/<scenario>` below it). It ignores
transcripts, the command and the folder's name, and computes no prices: costs are those that the
agent reported. `None` means not reported.
Codes such as V5 and M3 name rules of behaviour; where a rule leaves a case open, a comment
gives the choice.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Counts = dict[str, int]

COUNTERS = ("input", "cache_write", "cache_read", "output")
USAGE_KEYS = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)
MODEL_KEYS = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
SINCE = "model_usage_since_last_result"
WRITERS = {"Write", "Edit", "MultiEdit", "NotebookEdit"}

KILLED = {
    143: "SIGTERM",
    129: "SIGHUP",
    137: "SIGKILL",
    -15: "SIGTERM",
    -1: "SIGHUP",
    -9: "SIGKILL",
}
LIMITS = {"error_max_turns": "max_turns", "error_max_budget_usd": "max_budget"}
BY_STATUS = {401: "auth", 403: "auth", 429: "rate_limit"}  # other 4xx: invalid_request; 5xx: api
BY_LABEL = {
    "authentication_failed": "auth",
    "rate_limit": "rate_limit",
    "billing_error": "billing",
    "invalid_request": "invalid_request",
}
CUT_SHORT = {"stopped", "killed"}
ENDED = {"completed", "failed", "stopped", "killed"}
ASKING = {"AskUserQuestion", "ExitPlanMode"}
# Tools of every session. "X is disabled for this session" about one of these means a deny rule;
# about TodoWrite or AskUserQuestion, it is the default tool set.
CORE = {"Bash", "Read", "Write", "Edit", "NotebookEdit", "WebFetch", "WebSearch", "Task", "Agent"}
REMOVED = re.compile(
    r"No such tool available: (\w+)(\. \1 (is disabled for this|exists but is not enabled)|<|$)"
)
REFUSED = re.compile(
    r"^(Error: )?(Claude requested permissions to |Permission to use \S+ has been denied"
    r"|This command requires approval|Tool permission request failed"
    r"|Cannot write to .* while in plan mode|PreToolUse:\w+ hook error)"
)
LAUNCHED = re.compile(r"running in background with ID: ([\w-]+)")
WAITING = re.compile(r"(?i)waiting on|still waiting|continuing|in progress|in the background")
NETWORK = re.compile(
    r"(?i)ECONN\w+|connection (dropped|refused|reset|error)|unable to connect|timed out"
)
LIMITED = re.compile(r"(?i)(?<!\d)429(?!\d)|rate[ -]limit|(usage|session|weekly) limit")
AUTH = re.compile(
    r"(?i)(?<!\d)40[13](?!\d)|unauthorized|authentication|auth error|ANTHROPIC_API_KEY"
)


def clean(text: str) -> str:
    """Lone surrogates cannot be written as UTF-8: U+FFFD stands for each."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def counts(usage: Event | None, keys: tuple[str, ...] = USAGE_KEYS) -> Counts:
    return {name: (usage or {}).get(key) or 0 for name, key in zip(COUNTERS, keys, strict=True)}


def inputs(usage: Event | None) -> int:
    return sum(counts(usage).values()) - counts(usage)["output"]


def blocks(event: Event, kind: str) -> list[Event]:
    message = event.get("message")  # a string on permission_denied events
    content = message.get("content") if isinstance(message, dict) else None
    return (
        [block for block in content if block.get("type") == kind]
        if isinstance(content, list)
        else []
    )


def is_model(event: Event) -> bool:
    """An assistant event that a real request produced."""
    return event.get("type") == "assistant" and event["message"].get("model") != "<synthetic>"


def is_main(event: Event) -> bool:
    return not event.get("parent_tool_use_id")


class Recording:
    """One folder, read whole; each method answers one question about it."""

    def __init__(self, folder: Path) -> None:
        self.case = f"{folder.parent.name}/{folder.name}"
        self.stdout = (folder / "stdout").read_bytes()
        self.exit_code = int((folder / "exit_code").read_text())
        self.events, self.malformed, self.torn = self.read_lines()
        self.results = self.of("result")
        # E4: the last result that is not an empty echo of an earlier one.
        solid = [r for r in self.results if r.get("result") != "" or r.get("num_turns")]
        self.result: Event = (solid or self.results or [{}])[-1]
        self.last: Event = self.results[-1] if self.results else {}
        self.since: list[Event] = [r[SINCE] for r in self.results if SINCE in r]
        self.use: dict[str, Event] = {}  # tool calls by id, in order of call
        self.answer: dict[
            str, tuple[Event, Event]
        ] = {}  # each one's tool_result block, and its event
        self.asked_last: list[str] = []  # the calls of the last main-thread message
        self.pair_calls()
        self.requests = self.read_requests()

    def read_lines(self) -> tuple[list[Event], int, bool]:
        """A line that is not JSON is malformed, or torn if it is the last without a newline."""
        events: list[Event] = []
        malformed, torn = 0, False
        lines = self.stdout.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line) if line.strip() else []
                events += [
                    e
                    for e in (value if isinstance(value, list) else [value])
                    if isinstance(e, dict)
                ]
            except ValueError:
                torn = number == len(lines)
                malformed += not torn
        return events, malformed, torn

    def of(self, kind: str, subtype: str | None = None) -> list[Event]:
        return [
            e for e in self.events if e.get("type") == kind and subtype in (None, e.get("subtype"))
        ]

    def pair_calls(self) -> None:
        last_id = ""
        for event in self.events:
            for use in blocks(event, "tool_use") if is_model(event) else []:
                self.use.setdefault(use["id"], use)
            if is_model(event) and is_main(event):
                same, last_id = event["message"]["id"] == last_id, event["message"]["id"]
                self.asked_last = self.asked_last if same else []
                self.asked_last += [use["id"] for use in blocks(event, "tool_use")]
            for block in blocks(event, "tool_result"):
                self.answer.setdefault(block["tool_use_id"], (block, event))

    def read_requests(self) -> dict[str, Counts]:
        """Each real API message once, with the largest output seen (M2)."""
        seen: dict[str, Counts] = {}
        streaming = ""
        for event in self.events:
            inner = event.get("event", {})
            if inner.get("type") == "message_start":
                streaming = inner["message"]["id"]
            delta = inner.get("type") == "message_delta" and streaming in seen
            if delta or is_model(event):
                usage = counts(inner["usage"] if delta else event["message"].get("usage"))
                known = seen.setdefault(streaming if delta else event["message"]["id"], usage)
                known["output"] = max(known["output"], usage["output"])
            self.read_last_request(event, seen)
        return seen

    def read_last_request(self, event: Event, seen: dict[str, Counts]) -> None:
        """The last answer of a subagent in the foreground: its call's result has its usage."""
        outcome = event.get("tool_use_result")
        if not isinstance(outcome, dict) or outcome.get("status") != "completed":
            return
        usage = counts(outcome.get("usage"))
        if outcome.get("agentId") and sum(usage.values()):
            seen["last of " + blocks(event, "tool_result")[0]["tool_use_id"]] = usage

    def text(self) -> str:
        """E5. A synthetic API error is no text; old versions show it only in the failed result."""
        failed = [r.get("result") for r in self.results if r.get("is_error") is True]
        said = [
            (e, block["text"])
            for e in self.of("assistant")
            if is_main(e)
            for block in blocks(e, "text")
        ]
        flags = ("error", "is_api_error_message")
        kept = [
            t
            for e, t in said
            if is_model(e) or not (t in failed or any(e.get(flag) for flag in flags))
        ]
        return clean("\n".join(kept))

    def turns(self) -> int | None:
        """Per result since 2.0.37; before (no modelUsage) each result counts the whole history."""
        turns = [r.get("num_turns") or 0 for r in self.results]
        return None if not turns else sum(turns) if "modelUsage" in self.last else turns[-1]

    def tokens(self) -> dict[str, int | None]:
        """The usage of this run: from modelUsage, else the messages, else result.usage."""
        models = [
            m for part in self.since or [self.last.get("modelUsage") or {}] for m in part.values()
        ]
        each = [counts(model, MODEL_KEYS) for model in models]
        reported = counts(self.last.get("usage"))
        if not each and self.requests:
            each = [dict(usage) for usage in self.requests.values()]
            if all(
                each[-1][name] == reported[name] for name in COUNTERS[:3]
            ):  # 1.0.100: the last request's
                each[-1]["output"] = max(each[-1]["output"], reported["output"])
        if not each and not self.results:
            return dict.fromkeys((*COUNTERS, "total"))
        spent = {name: sum(usage[name] for usage in each or [reported]) for name in COUNTERS}
        return {**spent, "total": sum(spent.values())}

    def asked(self) -> int | None:
        """Requests; a result alone shows one if it took one turn and its models used no more."""
        total = self.tokens()["total"]
        if self.requests or not total:
            return len(self.requests)
        alone = sum(counts(self.last.get("usage")).values()) == total
        return 1 if alone and [r.get("num_turns") for r in self.results] == [1] else None

    def cost(self) -> tuple[float | None, float | None]:
        """The cost of this run, and of the session so far: it is cumulative in 2.1.325."""
        if not self.results:
            return None, None
        total = round(self.last["total_cost_usd"], 9)
        own = sum(model["costUSD"] for part in self.since for model in part.values())
        return (round(own, 9) if self.since else total), total

    def context(self) -> tuple[int | None, str]:
        """M3: the window after the last main-thread request, or what a later compaction left."""
        used, known = None, False
        for event in self.events:
            if is_model(event) and is_main(event):
                used, known = inputs(event["message"].get("usage")), True
            elif event.get("subtype") == "compact_boundary":
                used, known = event.get("compact_metadata", {}).get("post_tokens"), True
        if known:
            return used, "unknown" if used is None else "measured"
        used = inputs(self.last.get("usage")) or None
        # One turn is one request; without modelUsage (1.0.100), result.usage is the last request.
        single = self.last.get("num_turns") == 1 or "modelUsage" not in self.last
        return used, "unknown" if used is None else "measured" if single else "upper_bound"

    def limit(self) -> int | None:
        """M4: contextWindow of the main thread's last model, or init's, or the dearest."""
        entries = [item for r in self.results for item in (r.get("modelUsage") or {}).items()]
        models = {name.removesuffix("[1m]"): model for name, model in entries}
        names = [e["message"]["model"] for e in reversed(self.events) if is_model(e) and is_main(e)]
        names += [str(event.get("model")) for event in self.of("system", "init")]
        names = names or sorted(models, key=lambda name: -models[name]["costUSD"])
        known = [models[n.removesuffix("[1m]")] for n in names if n.removesuffix("[1m]") in models]
        return known[0].get("contextWindow") if known else None

    def ok(self, call: str) -> bool | None:
        return self.answer[call][0].get("is_error") is not True if call in self.answer else None

    def words(self, call: str) -> str:
        """The text of a tool result, whose content may be a string, an array of parts or null."""
        content = self.answer[call][0].get("content") if call in self.answer else None
        return (
            content
            if isinstance(content, str)
            else "\n".join(p.get("text", "") for p in content or [])
        )

    def detail(self, call: str) -> Event:
        """`tool_use_result`: an object on success, else a string, a list or nothing."""
        value = self.answer[call][1].get("tool_use_result") if call in self.answer else None
        return value if isinstance(value, dict) else {}

    def files(self) -> list[list[str]]:
        """W2: only successful tool results; one entry per path, with its first change."""
        changes: dict[str, str] = {}
        for call in (c for c, use in self.use.items() if use["name"] in WRITERS and self.ok(c)):
            path = (
                self.use[call]["input"].get("file_path") or self.use[call]["input"]["notebook_path"]
            )
            made = self.detail(call).get("type") == "create" or self.words(call).startswith(
                "File created"
            )
            changes.setdefault(path, "created" if made else "modified")
        return sorted([clean(path), change] for path, change in changes.items())

    def denials(self) -> list[list[str]]:
        """V8, each call once, in order. An interrupted call ("User rejected ...") is ignored."""
        found: dict[str, str] = {}
        for event in self.events:
            if event.get("subtype") == "permission_denied":
                found.setdefault(event["tool_use_id"], event["tool_name"])
            for meta in event.get("tool_result_meta") or []:
                if (meta.get("permission_decision") or {}).get("decision") == "reject":
                    found.setdefault(meta["id"], self.use[meta["id"]]["name"])
            for call in (block["tool_use_id"] for block in blocks(event, "tool_result")):
                name, words = self.use.get(call, {}).get("name", ""), self.words(call)
                removed = name in CORE and REMOVED.search(words)
                if not self.ok(call) and (removed or REFUSED.search(words)):
                    found.setdefault(call, name)
            for denial in event.get("permission_denials") or []:
                found.setdefault(denial["tool_use_id"], denial["tool_name"])
        return [[name, call] for call, name in found.items()]

    def stuck(self) -> list[str]:
        """Tools that were refused and not once successful afterwards."""
        place = {call: number for number, call in enumerate(self.use)}
        done = {use["name"]: place[call] for call, use in self.use.items() if self.ok(call)}
        return [name for name, call in self.denials() if done.get(name, -1) < place.get(call, 0)]

    def background(self) -> tuple[int, dict[str, str]]:
        """The number of background tasks, and the unfinished ones: {task id: call id}."""
        # task_started alone is no proof: 2.1.50 prints it for synchronous subagents too.
        started = [e for e in self.of("system", "task_started") if e.get("is_backgrounded") is True]
        launched: dict[str, str] = {
            event["task_id"]: event.get("tool_use_id", "") for event in started
        }
        for call, use in self.use.items():
            detail, named = self.detail(call), LAUNCHED.search(self.words(call))
            task = detail.get("backgroundTaskId") or (
                detail.get("isAsync") and detail.get("agentId")
            )
            if self.ok(call) and (task or named or use["input"].get("run_in_background") is True):
                launched[task or (named.group(1) if named else call)] = call
        ended = {e["task_id"]: e.get("status") for e in self.of("system", "task_notification")}
        ended |= {e["task_id"]: e["patch"].get("status") for e in self.of("system", "task_updated")}
        for task in list(launched)[: sum("origin" in result for result in self.results)]:
            ended.setdefault(task, "completed")  # a turn of its own answers its end
        return len(launched), {
            task: c for task, c in launched.items() if ended.get(task) not in ENDED
        }

    def cut_short(self) -> list[str]:
        """Background tasks that were stopped after the last result."""
        after = self.events[self.events.index(self.results[-1]) :]
        return [
            event["task_id"]
            for event in after
            if event.get("subtype") == "task_notification" and event["status"] in CUT_SHORT
        ]

    def interrupted(self) -> str:
        if str(self.result.get("terminal_reason")).startswith("aborted_"):
            return f"terminal_reason {self.result['terminal_reason']}"
        marks = [block["text"] for event in self.of("user") for block in blocks(event, "text")]
        marks = [mark for mark in marks if mark.startswith("[Request interrupted by user")]
        return marks[0] if marks else "SIGINT" if self.exit_code in (130, -2) else ""

    def halted(self) -> str:
        """Why a hook stopped the run; empty if none did."""
        notices = self.of("system", "informational")
        if any(event.get("prevent_continuation") is True for event in notices):
            return "prevent_continuation"
        if self.result.get("terminal_reason") in ("hook_stopped", "stop_hook_prevented"):
            return "terminal_reason"
        asked = [event["message"] for event in self.of("assistant")]
        if "terminal_reason" in self.result or self.result.get("result") != "" or not asked:
            return ""
        if "stop_reason" in self.result:
            return "stop_reason tool_use" if self.result["stop_reason"] == "tool_use" else ""
        if not any(block.get("type") == "tool_use" for block in asked[-1]["content"]):
            return ""
        # An empty message is not printed, but its prompt is in the usage.
        shown = {message["id"]: message["usage"]["cache_read_input_tokens"] for message in asked}
        is_all = sum(shown.values()) == self.result["usage"]["cache_read_input_tokens"]
        return "no answer after a tool result" if is_all else ""

    def failure(self) -> tuple[str, str]:
        """The verdict of a failed result: structured fields first, the error text last (V2, V3)."""
        text = self.result.get("result") or " ".join(map(str, self.result.get("errors") or []))
        status = self.result.get("api_error_status")
        labels = [
            str(e.get("error")) for e in self.of("assistant") if is_main(e) and not is_model(e)
        ]
        if not (self.of("system", "init") or self.requests or self.result.get("num_turns")):
            return "subprocess", f"failed at start, no request was made: {text[:90]}"
        if self.result.get("terminal_reason") == "prompt_too_long" or text.startswith(
            ("Prompt is too long", "API Error: The model has reached its context window limit")
        ):
            return "context_full", "prompt is too long"
        if "refusal" in [event["message"].get("stop_reason") for event in self.of("assistant")]:
            return "refused", "stop_reason refusal"
        if labels[-1:] == ["billing_error"]:
            return "billing", "assistant.error billing_error"
        if text.startswith("API Error: 404 "):
            return "invalid_request", "404 in the text"
        if not text and self.result.get("is_error") is False:
            return "empty", "nothing came out, and nothing failed"
        if isinstance(status, int):
            word = "api" if status >= 500 else "invalid_request"
            return BY_STATUS.get(status, word), f"api_error_status {status}"
        if self.result.get("api_error") == "connection_failed" or NETWORK.search(text):
            return "network", f"no answer from the server: {text[:90]}"
        word = "rate_limit" if LIMITED.search(text) else "auth" if AUTH.search(text) else "api"
        return BY_LABEL.get(
            "".join(labels[-1:]), word
        ), f"assistant.error {labels}, error text: {text[:90]}"

    def verdict(self) -> tuple[str, str]:
        """The word and why, in the order of V7."""
        subtype = str(self.result.get("subtype"))
        if self.exit_code in KILLED:
            return "killed", f"{KILLED[self.exit_code]}, exit {self.exit_code}"
        if mark := self.interrupted():
            return "interrupted", mark
        if why := self.halted():
            return "stopped", why
        if not self.stdout.strip() and self.exit_code:
            return "subprocess", f"nothing on stdout, exit {self.exit_code}"
        if not self.results:
            return "no_result", "the stream holds no result"
        if subtype in LIMITS:
            return LIMITS[subtype], f"subtype {subtype}"
        if self.result.get("is_error") is True or subtype.startswith("error_"):
            return self.failure()
        return (
            ("subprocess", "a good result, yet a bad exit code")
            if self.exit_code
            else self.advisory()
        )

    def advisory(self) -> tuple[str, str]:
        """V5, V6, V8, then empty and success: the run ended well, but did it do the work?"""
        words, turns = self.result.get("result") or "", self.turns() or 0
        if any(self.use[call]["name"] in ASKING and not self.ok(call) for call in self.asked_last):
            return "interactive", "the last message asked the user, and nobody answered"
        worked = self.files() or any(use["name"] == "Bash" for use in self.use.values())
        if words.rstrip().endswith("?") and (turns == 1 or not worked):
            return "interactive", "final text ends with ? after " + (
                "one turn" if turns == 1 else "no work"
            )
        launches, pending = self.background()
        if pending or (not launches and WAITING.search(words) and turns < 2):
            return "background_task", f"not seen to end: {', '.join(pending) or 'by its own words'}"
        if cut := self.cut_short():
            return "background_task", f"stopped after the result: {', '.join(cut)}"
        if stuck := self.stuck():
            return "permission", f"refused and never allowed later: {', '.join(stuck)}"
        if self.requests and not {words, self.text()} - {"", "(no content)"}:
            return "empty", "the model was asked and nothing came out"
        return (
            "success",
            "result without error" if words else "finished local command with an empty result",
        )

    def facts(self) -> dict[str, Any]:
        (verdict, why), (cost, session), (used, source) = (
            self.verdict(),
            self.cost(),
            self.context(),
        )
        words, text, pending = self.result.get("result"), self.text(), self.background()[1]
        out: dict[str, Any] = {"case": self.case, "verdict": verdict, "why": clean(why)}
        out |= {
            "ok": verdict == "success",
            "succeeded": not self.exit_code and bool((words or text).strip()),
        }
        out |= {"complete": bool(self.results) and not self.torn, "exit_code": self.exit_code}
        out |= {"signal": -self.exit_code if self.exit_code < 0 else None}
        out |= {key: self.result.get(key) for key in ("subtype", "terminal_reason", "stop_reason")}
        out |= {"result": None if words is None else clean(words)}
        out |= {"structured_output": self.result.get("structured_output")}
        out |= {"text_sha1": hashlib.sha1(text.encode()).hexdigest()}
        out |= {"turns": self.turns(), "requests": self.asked(), "tokens": self.tokens()}
        out |= {
            "cost_usd": cost,
            "session_usd": session,
            "context_used": used,
            "context_limit": self.limit(),
        }
        out |= {"context_source": source, "compactions": len(self.of("system", "compact_boundary"))}
        out |= {"tools": [[call, use["name"], self.ok(call)] for call, use in self.use.items()]}
        retries = len(self.of("system", "api_retry"))
        out |= {"files": self.files(), "denials": self.denials(), "retries": retries}
        out |= {"background_open": list(pending), "background_open_calls": list(pending.values())}
        return out | {"malformed": self.malformed, "torn": self.torn}


def facts(folder: Path) -> dict[str, Any]:
    """Everything the report of this recording must say, as one flat dict."""
    return Recording(folder).facts()


if __name__ == "__main__":
    for root in map(Path, sys.argv[1:]):
        below = sorted(found.parent for found in root.glob("*/*/stdout"))
        for each_folder in below or [root]:
            print(json.dumps(facts(each_folder), ensure_ascii=False))
