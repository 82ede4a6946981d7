"""Copilot: how to start it, and how to read its stream and its session files. Pure.

Tokens. The stream has none. The session file has a `session.usage_record` per request:
`inputTokens` includes `cacheReadTokens` and `cacheWriteTokens`, `outputTokens` includes
`reasoningTokens`. Disjoint counters: input - read - written, written, read, output. A resumed
session continues in the same file; the run is identified by the id of its prompt, which is in
both. Versions up to 1.0.92 have no such lines: `session.shutdown` has the sums per model, of the
process (1.0.60) or of the session (1.0.92). `maxPromptTokens` is the window. `cost` counts premium
requests, not dollars, and is ignored. The durations in the result are those of the whole session:
a run's own come from the times of its lines.

End of a run. `result.exitCode` is the exit code; without a result it was killed or did not start.
Denied calls do not change it. Copilot counts a command with a non-zero exit code as a success; here
the call failed.
"""

from ...report import HintTemplates
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts, is_uuid
from ..line_shapes import is_copilot
from .reader import SHUTDOWN_MARKER, CopilotReader
from .start import FLAG_MODES, INITIAL_MODES, MODE_ARGS, UNSUPPORTED_OPTIONS, build_command
from .tables import allow_rule, classify_exit
from .transcripts import is_transcript_line, transcript_folders, transcript_pattern

# Set by Copilot 1.0.102 in the environment of its commands.
ENV_POLICY = EnvPolicy(
    drop=(
        "COPILOT_AGENT_SESSION_ID",
        "COPILOT_CLI",
        "COPILOT_CLI_BINARY_VERSION",
        "COPILOT_CLI_RESOLVED_DIST_DIR",
        "COPILOT_LOADER_PID",
    ),
    defaults=(("COPILOT_AUTO_UPDATE", "false"),),
    api_key_names=(
        "COPILOT_GITHUB_TOKEN",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "COPILOT_PROVIDER_API_KEY",
        "COPILOT_PROVIDER_BEARER_TOKEN",
    ),
)

AGENT = Agent(
    name="copilot",
    reader=CopilotReader,
    allow_rule=allow_rule,
    looks_like=is_copilot,
    is_session_id=is_uuid,
    capabilities=Capabilities(resume=True, json=True, partial=True, file_events=True),
    hints=HintTemplates(
        resume="copilot --resume={session} -p {prompt}",
        allow="--allow-tool {rules}",
        stream="--output-format json",
    ),
    classify_exit=classify_exit,
    launch=Launch(
        build_command=build_command,
        env_policy=ENV_POLICY,
        unsupported_options=UNSUPPORTED_OPTIONS,
        backends=("ollama", "openai", "anthropic"),
        permission_modes=(*MODE_ARGS, *FLAG_MODES, *INITIAL_MODES),
    ),
    transcripts=Transcripts(
        is_line=is_transcript_line,
        folders=transcript_folders,
        pattern=transcript_pattern,
        totals_marker=SHUTDOWN_MARKER,
        call_identity="id",
    ),
    installation=Installation(
        command="npm install -g @github/copilot",
        npm_package="@github/copilot",
        tested_versions=("1.0.102",),
        credential_files=(".config/gh/hosts.yml",),
    ),
)
