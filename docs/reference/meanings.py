"""Descriptions for the reference pages: fields of the report, keywords of the library."""

REPORT_FIELDS: dict[str, dict[str, str]] = {
    "Report": {
        "schema": "Version of this format; it changes when a field is removed or changes meaning.",
        "source": "Input: a path, or `stdin`, `bytes`, `stream`, `lines`.",
        "agent": "Name of the agent; null if it could not be detected.",
        "agent_version": "Version reported by the agent. Claude Code 1.0.100 does not report it.",
        "model": "Model of the main thread as announced at the start, else that of the first "
        "request.",
        "session_id": "The agent's conversation. Several runs can belong to one session.",
        "run_id": "Id given by steno; only in recordings made by steno.",
        "name": "Name of the run (`--name`).",
        "tags": "Labels of the run (`--tag`).",
        "setup": "What the agent had loaded, by name; only Claude Code reports it.",
        "origin": "Where and for whom it was started, as far as known.",
        "cwd": "Working directory of the agent.",
        "api_key_source": "The agent's label for the source of its key. Never the key itself.",
        "verdict": "How the run ended; see [verdicts](verdicts.md).",
        "ok": "The verdict is `success` and there is no advisory warning.",
        "succeeded": "Weaker: exit code 0 with some output (exit code unknown: a complete "
        "recording without errors).",
        "error": "Error message, in the agent's words if available; at most 4,096 characters.",
        "reason": "Why the run did not succeed, on one line, as in lists and on the page: the "
        "error, the open question (`asks: ...`), the denied calls, or the meaning of the verdict. "
        "Null if `ok`.",
        "error_category": "`rate_limit`, `auth`, `api`, `interactive`, `background-task`, "
        "`subprocess`, `timeout`, or null.",
        "hint": "Suggested next step.",
        "evidence": "Lines of stdout that the verdict is based on.",
        "warnings": "Doubts about a figure or the verdict. Advisory warnings start with "
        "`interactive-hang:`, `background-task:` or `permission:`.",
        "text": "Text blocks of the main thread, joined with newlines; without subagents.",
        "result": "Final text of the last result; empty echoes are skipped.",
        "structured_output": "Value requested with a JSON schema. With `steno run --json-schema` "
        "it matches the schema or is null; otherwise it is whatever the agent returned.",
        "subtype": "The result's own `subtype`; often `success` for failed runs.",
        "terminal_reason": "The agent's own reason for stopping, if its version reports one.",
        "stop_reason": "Why the model's last answer ended; null if the agent does not print it.",
        "exit_code": "Exit code of the process if known; negative for a signal.",
        "signal": "Number of that signal, positive.",
        "complete": "A result was seen and the last line is not truncated.",
        "turns": "Turns as counted by the agent, summed over its results (1.0.x: the last one). "
        "Not the number of requests.",
        "requests": "Requests to the model; each message counts once. "
        "Null if only their sum is known.",
        "started_at": "Time of the first event that has one.",
        "duration_ms": "Sum of the durations in the results; without a result, the time from the "
        "first to the last event.",
        "duration_api_ms": "Time spent in requests according to the agent; null if the figure "
        "includes earlier runs of the session.",
        "tokens": "Token usage.",
        "cache_hit_rate": "cache_read / (input + cache_write + cache_read).",
        "cache_write_1h": "Part of the cache writes that is cached for an hour, if reported.",
        "web_searches": "Web searches by the model's vendor, as reported by the agent's results.",
        "web_fetches": "Web pages fetched by the model's vendor, likewise.",
        "service_tier": "Service tier of the last result, such as `standard`.",
        "cost": "Cost of the run.",
        "models": "Usage by model name.",
        "context": "Context window usage.",
        "tools": "All tool calls, in order.",
        "tool_counts": "Calls and errors by tool name.",
        "files": "Changed files, as far as tool results or a recording show them.",
        "denials": "Denied calls, each once.",
        "subagents": "Subagents that were started.",
        "background": "Background work.",
        "retries": "Failed requests that were retried.",
        "limits": "Last known state of the account's usage limit.",
        "lines": "Counts of input lines.",
    },
    "TaskReport": {
        "task_id": "Id of the task.",
        "attempts": "Runs of the task, in order; empty if none was started.",
    },
    "Attempt": {  # "= Report": the same as in Report
        "run_id": "= Report",
        "session_id": "= Report",
        "verdict": "= Report",
        "tokens": "= Report",
        "cost": "= Report",
        "turns": "= Report",
        "duration_ms": "= Report",
        "why": "Decision after the attempt, with the reason.",
        "agent": "Agent of this attempt; differs after a fallback.",
    },
    "Tokens": {
        "input": "Input tokens neither read from nor written to the cache.",
        "cache_write": "Input tokens written to the cache.",
        "cache_read": "Input tokens read from the cache.",
        "output": "Output tokens, including reasoning.",
        "reasoning": "Part of `output` that is reasoning, if reported.",
        "total": "input + cache_write + cache_read + output.",
    },
    "Cost": {
        "usd": "This run's own cost in dollars. Null is unknown; 0 is free.",
        "source": "`reported` by the agent, `computed` (entirely or partly) from the price table, "
        "`local` (0: a local model server), or `unknown`.",
        "session_usd": "Cost of the session so far, if the agent counts per session.",
    },
    "ModelSummary": {
        "input": "= Tokens",
        "cache_write": "= Tokens",
        "cache_read": "= Tokens",
        "output": "= Tokens",
        "cost_usd": "Cost of this model.",
        "context_window": "Window size reported by the agent or the local model server.",
        "max_output": "Maximum output reported by the agent.",
        "web_searches": "Web searches of this model, if reported.",
    },
    "Context": {
        "used": "Input, cache writes and cache reads of the main thread's last request; after a "
        "compaction, the size after it; without a request, the agent's own count.",
        "limit": "Window size of the main thread's model.",
        "fraction": "used / limit.",
        "hp": "100 - 100 * fraction, at least 0.",
        "status": "`Healthy` above 50 hp, `Wounded` above 25, else `CRITICAL`.",
        "text": "Text form, such as `97% HP [31k/1000k] — Healthy`, or `HP unknown`.",
        "peak": "Highest usage seen in the main thread.",
        "source": "`measured`, `upper_bound` (only a sum over several requests is known) or "
        "`unknown`.",
        "limit_source": "`reported` by the agent or model server, `known` for this model, or "
        "`assumed` (200,000).",
        "compactions": "Number of compactions.",
        "overhead": "The parts of the context before the first prompt, if the agent reported them: "
        "Claude Code does after the prompt `/context`.",
    },
    "ContextOverhead": {
        "system_prompt": "The agent's system prompt.",
        "tools": "Built-in and MCP tools, without those that are loaded on demand.",
        "memory_files": "Project notes such as `CLAUDE.md`.",
        "agents": "Descriptions of subagents.",
        "skills": "Descriptions of skills.",
        "other": "Kinds that steno doesn't know.",
    },
    "ToolCallSummary": {
        "id": "Id of the call.",
        "name": "Name of the tool, as used by the model.",
        "kind": "shell, file_read, file_write, file_edit, search, subagent, web, notebook, todo, "
        "mcp, or other.",
        "ok": "Whether the call succeeded; null without a result.",
        "error": "First 500 characters of the error.",
        "denied": "The call was denied.",
        "started_at": "Time of the call, if known.",
        "duration_ms": "Time from call to result, if known.",
        "parent": "Call of the subagent it belongs to; null in the main thread.",
        "background": "The call ran in the background.",
    },
    "ToolCallCounts": {
        "calls": "Number of calls.",
        "errors": "Calls that failed or were denied.",
    },
    "ChangedFile": {
        "path": "Relative to `cwd` if inside it, else absolute.",
        "absolute": "Absolute path without `..` and `.`.",
        "change": "`created`, `modified` or `deleted`.",
        "inside": "Whether the path is inside `cwd`. Symbolic links are not followed.",
        "tools": "Ids of the calls that changed it.",
        "source": "`tool`: from a tool result; `filesystem`: seen on disk during the run; `git`: "
        "from comparing the states before and after.",
    },
    "DeniedCall": {
        "tool": "Name of the tool.",
        "id": "Id of the call.",
        "input": "Input of the call.",
        "reason": "Reason given by the agent.",
        "allow_rule": "Narrowest rules that permit the call, by spaces; null if no rule does.",
    },
    "Subagent": {
        "id": "Call that started it.",
        "type": "Type of subagent.",
        "description": "Short description of its task.",
        "tokens": "Usage, as far as the stream shows it; included in the total of the run.",
        "cost_usd": "Computed cost, if the final usage of all its requests is known.",
        "status": "`running`, `completed`, `failed`, `stopped`, `killed`, or null if unknown.",
        "is_lower_bound": "Whether the stream shows only a part of its tokens.",
    },
    "BackgroundTask": {
        "id": "Call that started it.",
        "kind": "`shell` or `subagent`.",
        "description": "Short description.",
        "status": "`running` until its end is seen, then `completed`, `failed`, `stopped` or "
        "`killed`.",
    },
    "RequestRetry": {
        "attempt": "Number of the attempt, from 1.",
        "status": "HTTP status; null for a failed connection.",
        "error": "The agent's name for the error.",
        "delay_ms": "Wait before the retry.",
    },
    "RateLimitStatus": {
        "status": "Status reported by the agent, such as `rejected`.",
        "resets_at": "Reset time in seconds since 1970.",
        "kind": "Type of limit, such as `five_hour`.",
        "utilization": "Used fraction.",
    },
    "AgentSetup": {
        "skills": "Names of skills.",
        "agents": "Names of subagents that can be started.",
        "plugins": "Names of plugins.",
        "slash_commands": "Names of slash commands.",
    },
    "RunOrigin": {
        "host": "Name of the machine.",
        "user": "Name of the account; in CI, of the person who started the job.",
        "repository": "Git remote as host/path, the same for all its URLs, without credentials.",
        "branch": "Git branch at the start; null for a detached checkout outside of CI.",
        "commit": "Commit that was checked out at the start.",
        "pull_request": "Number of the pull or merge request, in CI.",
    },
    "LineCounts": {
        "read": "Lines of stdout, or elements of an array.",
        "blank": "Blank lines.",
        "malformed": "Lines that are not JSON; skipped.",
        "not_object": "JSON lines that are not objects; skipped.",
        "unknown": "Events of unknown kinds; kept unchanged.",
        "torn": "The last line or the recording is truncated.",
    },
}

# Keywords of `run` and `stream` that are not settings.
RUN_KEYWORDS = {
    "cwd": "working directory (default: the current one)",
    "session_id": "id of the new session, a UUID",
    "resume": "session to resume: its id, or a prefix of a run id",
    "fork": "with `resume`: continue in a copy of the session",
    "continue_": "resume the last session of the folder (`continue` is a Python keyword)",
    "worktree": "run in a separate git worktree: its name, or True",
    "recording": "recording for the agent `replay`: a file or folder",
    "speed": "replay speed factor; 0: no waiting",
    "args": "arguments passed to the agent unchanged, as after `--` on the command line",
}
SCOPE_KEYWORDS = {
    "last": "period up to now: 24h, 7d, 2w, 3m, or a timedelta",
    "since": "start of the range: a day (2026-11-01), a time, today, yesterday, an age (3d), "
    "or a date or datetime",
    "until": "end of the range (inclusive)",
    "project": "folder, or name of a folder",
    "model": "model name or part of it",
    "agent": "agent name",
    "host": "machine",
    "user": "user",
    "repository": "git repository: host/path, or part of it",
    "branch": "git branch",
    "tag": "label: `name=value`, `name` (any value), a list of these (all required), or a dict",
}
