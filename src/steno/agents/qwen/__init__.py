"""Qwen Code: how to start it, and how to read what it prints and keeps. It never opens a file or asks the time.

Its stream has Claude Code's shape, and is read by that reader first; what differs is put right after it.

Token algebra. `input_tokens` includes `cache_read_input_tokens`, nothing is said of cache writes (0), and thoughts are in
`output_tokens`. One answer of the model can be two messages, with one id each: the first, its text, then says 0 of
everything, and the second tells what the request used. `result.usage` sums over the *session*, what earlier runs used and
requests of helpers included (the one that keeps its memory): more than the messages show. The json format names them in
`stats`, model by model. There is no cost. A run's own part is told by the chat that it keeps: that has a line of telemetry
for each request, also of helpers; without the chat the sum is an upper bound, and a warning says so. The chat's messages
tell requests under the names of Google's API: `promptTokenCount` includes `cachedContentTokenCount`,
`candidatesTokenCount` includes `thoughtsTokenCount`. No name of a request is the same in the stream and in the chat, so chats
are imported only when somebody names them: else what was recorded would count twice.

A request that failed for good is told as if the model had said it, "[API Error: 401 ...]", in a message that used nothing,
and the run ends with `success` and exit code 0. At the limit of turns there is no result, and the exit code is 53.

`reader` is the stream, `chats` what it keeps, `alongside` a chat beside a stream, `names` the tables, `start` how it is started.
"""

from ...report import HintTemplates
from .. import detection as tell
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts
from .reader import QwenReader
from .start import (
    MODE_ALIASES,
    NATIVE_MODES,
    UNSUPPORTED_OPTIONS,
    build_command,
    classify_exit,
    encode_message,
    is_session_id,
)
from .transcripts import (
    allow_rule,
    context_window,
    is_transcript_line,
    scan_usage,
    transcript_folders,
    transcript_pattern,
)

AGENT = Agent(
    name="qwen",
    reader=QwenReader,
    context_window=context_window,
    allow_rule=allow_rule,
    looks_like=tell.is_qwen,
    is_session_id=is_session_id,
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
        encode_message=encode_message,
        env_policy=EnvPolicy(
            drop=("QWEN_CODE", "QWEN_CODE_IDE_SERVER_PORT", "QWEN_CODE_IDE_WORKSPACE_PATH"),
            # It starts itself a second time, for more memory, and the first process only waits; with this it is one process.
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
        auto_import=False,
    ),
    installation=Installation(
        command="npm install -g @qwen-code/qwen-code",
        npm_package="@qwen-code/qwen-code",
        tested_versions=("0.15.10",),
        credential_files=(".qwen/oauth_creds.json",),
    ),
)
