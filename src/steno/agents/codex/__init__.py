"""Codex: how it is started, and how to read what it prints and keeps. It never starts a process, opens a file or asks the time.

Token algebra. `input_tokens` includes `cached_input_tokens` and `cache_write_input_tokens`; `output_tokens` includes
`reasoning_output_tokens`: the disjoint counters are input - cached - written, written, cached, output. `turn.completed.usage`
sums all requests of the *thread*: of a new one that is the run, of a resumed or forked one it is everything since its
beginning. A run's own part is the sum of its `token_usage_record`s (in older versions of the `last_token_usage`s) in the
rollout; without the rollout the thread's sum is an upper bound, and a warning says so. The context is the last request's
input; the window is `model_context_window`. Neither model nor cost is in the stream; no cost is told at all.

Ends. Only turn.completed and turn.failed end a turn; `error` lines and items do not. A turn that has no end was interrupted.
Calls that were never carried out (unknown tools, patches that the sandbox forbids) are in the rollout, and as a line of
stderr, but not in the stream.

`lines` is the schema, `words` the tables, `reader` the stream, `rollout` the kept files, `alongside` a rollout beside a stream,
`kept` where they lie, `start` how it is started.
"""

from ...report import HintTemplates
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts
from ..detection import is_codex as looks_like
from .reader import CodexReader
from .start import (
    MODELS_BY_SIZE,
    PERMISSION_MODES,
    UNSUPPORTED_OPTIONS,
    build_command,
    encode_message,
    is_session_id,
    supports_schema,
)
from .tables import allow_rule, classify_exit, context_window
from .transcripts import is_transcript_line, scan_usage, transcript_folders, transcript_pattern

# Seen in the environment of a command that Codex 0.166.0 ran, and set by no person.
ENV_POLICY = EnvPolicy(
    drop=(
        "CODEX_APPLY_PATCH_PRESERVE_LINE_ENDINGS",
        "CODEX_CI",
        "CODEX_MANAGED_BY_NPM",
        "CODEX_MANAGED_PACKAGE_ROOT",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID",
        "CODEX_THREAD_ID",
        "CODEX_TOOL_CALL_ID",
        "CODEX_VERSION",
    ),
    defaults=(),
    api_key_names=("OPENAI_API_KEY", "CODEX_API_KEY"),
)

AGENT = Agent(
    name="codex",
    reader=CodexReader,
    context_window=context_window,
    allow_rule=allow_rule,
    looks_like=looks_like,
    is_session_id=is_session_id,
    capabilities=Capabilities(resume=True, json=True, schema=True, file_events=True),
    hints=HintTemplates(
        resume="codex exec resume {session} {prompt}",
        allow="--config {rules}",
        stream="--json",
    ),
    classify_exit=classify_exit,
    launch=Launch(
        build_command=build_command,
        encode_message=encode_message,
        env_policy=ENV_POLICY,
        unsupported_options=UNSUPPORTED_OPTIONS,
        backends=("ollama", "openai"),
        models_by_size=MODELS_BY_SIZE,
        permission_modes=PERMISSION_MODES,
        new_session_options=("system_prompt",),
        supports_schema=supports_schema,
    ),
    transcripts=Transcripts(
        is_line=is_transcript_line,
        folders=transcript_folders,
        scan_usage=scan_usage,
        pattern=transcript_pattern,
    ),
    installation=Installation(
        command="npm install -g @openai/codex",
        npm_package="@openai/codex",
        tested_versions=("0.166.0",),
        credential_files=(".codex/auth.json",),
    ),
)
