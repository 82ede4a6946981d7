"""Codex: how to start it, and how to read its stream and its session files (rollouts). Pure.

Tokens. `input_tokens` includes `cached_input_tokens` and `cache_write_input_tokens`;
`output_tokens` includes `reasoning_output_tokens`. Disjoint counters: input - cached - written,
written, cached, output. `turn.completed.usage` is the sum over all requests of the *thread*: for a
new thread that is the run, for a resumed or forked one it includes earlier runs (not up to 0.58). A
run's own part is the sum of its requests in the rollout, see `totals`; without the rollout the
stream's sum is an upper bound, and a warning says so. The context is the input of the last request;
the window is `model_context_window`. The stream names no model; neither reports a cost.

End of a turn. Only turn.completed and turn.failed end a turn; `error` lines and items do not. A
turn without an end was interrupted. Calls that were never executed (unknown tools, patches denied
by the sandbox) are in the rollout and on stderr, but not in the stream.

Versions up to 0.42 have another stream, see `older_stream`; the forms of rollouts since 2025-06 are
in `wire` and `outputs`.
"""

from ...report import HintTemplates
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts, is_uuid
from ..line_shapes import is_codex
from .collab import threads_in
from .reader import CodexReader
from .start import (
    MODELS_BY_SIZE,
    OPTION_NAMES,
    PERMISSION_MODES,
    UNSUPPORTED_OPTIONS,
    build_command,
    supports_schema,
)
from .tables import allow_rule, classify_exit, context_window, guesses_window
from .transcripts import is_transcript_line, scan_usage, transcript_folders, transcript_pattern

# Set by Codex 0.166.0 in the environment of its commands.
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
    guesses_window=guesses_window,
    allow_rule=allow_rule,
    looks_like=is_codex,
    is_session_id=is_uuid,
    capabilities=Capabilities(resume=True, json=True, schema=True, file_events=True),
    hints=HintTemplates(
        resume="codex exec resume {session} {prompt}",
        allow="--config {rules}",
        stream="--json",
    ),
    classify_exit=classify_exit,
    totals_omit_subagents=True,
    launch=Launch(
        build_command=build_command,
        help_args=("exec", "--help"),
        option_names=OPTION_NAMES,
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
        sessions_in=threads_in,
        document_names="rollout-*.json",  # of the first versions, in TypeScript
        call_identity="order",
    ),
    installation=Installation(
        command="npm install -g @openai/codex",
        npm_package="@openai/codex",
        tested_versions=("0.166.0",),
        credential_files=(".codex/auth.json",),
    ),
)
