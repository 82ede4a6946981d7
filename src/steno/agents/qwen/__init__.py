"""Qwen Code: how to start it, and how to read its stream and its chat files. Pure.

Its stream has the format of Claude Code: Claude's reader reads it, and the events are corrected.

Tokens. `input_tokens` includes `cache_read_input_tokens`; cache writes are not reported (0);
`output_tokens` includes thoughts. One answer can be two messages with different ids: the first, the
text, reports 0 for everything, the second has the usage of the request. `result.usage` is the sum
over the *session*, with earlier runs and the requests of helpers (such as the one that updates its
memory), so it exceeds the sum of the messages. The json format has it per model in `stats`. There
is no cost. A run's own part is in the chat file, which has a telemetry line per request, helpers
included; without the chat the sum is an upper bound, and a warning says so. Messages in a chat use
the names of Google's API: `promptTokenCount` includes `cachedContentTokenCount`,
`candidatesTokenCount` includes `thoughtsTokenCount`. Stream and chat have no request ids in common,
so chats are imported only on request: otherwise recorded runs would be counted twice.

A request that failed for good appears as text of the model, "[API Error: 401 ...]", in a message
without usage, and the run ends with `success` and exit code 0; an empty answer, after its last
attempt, in one with usage. From 0.24 on, the result is an error with the text in `error.message`,
as for a run that its loop detection stopped, and the message can have usage; retries are lines of
the stream. At the turn limit there is no result, and the exit code is 53; at its limit of tool
calls or time it is 55.
"""

from ...report import HintTemplates
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts, is_uuid
from ..line_shapes import is_qwen
from ..typed_reader import allow_rule
from .reader import QwenReader
from .start import MODE_ALIASES, NATIVE_MODES, UNSUPPORTED_OPTIONS, build_command, classify_exit
from .transcripts import is_transcript_line, scan_usage, transcript_folders, transcript_pattern

AGENT = Agent(
    name="qwen",
    reader=QwenReader,
    allow_rule=allow_rule,
    looks_like=is_qwen,
    is_session_id=is_uuid,
    capabilities=Capabilities(
        resume=True, json=True, partial=True, schema=True, context=True, file_events=True
    ),
    hints=HintTemplates(
        resume="qwen --resume {session} -p {prompt}",
        turns="--max-session-turns N",
        allow="--allowed-tools {rules}",
        stream="-o stream-json",
    ),
    classify_exit=classify_exit,
    launch=Launch(
        build_command=build_command,
        env_policy=EnvPolicy(
            drop=("QWEN_CODE", "QWEN_CODE_IDE_SERVER_PORT", "QWEN_CODE_IDE_WORKSPACE_PATH"),
            # Without NO_RELAUNCH it restarts itself for more memory, and the first process waits.
            defaults=(("QWEN_TELEMETRY_ENABLED", "false"), ("QWEN_CODE_NO_RELAUNCH", "true")),
            api_key_names=(
                "OPENAI_API_KEY",
                "DASHSCOPE_API_KEY",
                "BAILIAN_CODING_PLAN_API_KEY",
                "OPENROUTER_API_KEY",
            ),
        ),
        unsupported_options=UNSUPPORTED_OPTIONS,
        backends=("ollama", "openai"),
        permission_modes=(*NATIVE_MODES, *MODE_ALIASES),
        single_value_options=("mcp_config",),
    ),
    transcripts=Transcripts(
        is_line=is_transcript_line,
        folders=transcript_folders,
        scan_usage=scan_usage,
        pattern=transcript_pattern,
        call_identity="id",
        has_own_request_ids=True,
    ),
    installation=Installation(
        command="npm install -g @qwen-code/qwen-code",
        npm_package="@qwen-code/qwen-code",
        tested_versions=("0.15.10", "0.24.4"),
        credential_files=(".qwen/oauth_creds.json",),
    ),
)
