"""Copilot: how it is started, and how to read what it prints and keeps. It never starts a process, opens a file or asks the time.

Token algebra. The stream tells no tokens at all. The file that it keeps of a session tells each request by a
`session.usage_record`: `inputTokens` includes `cacheReadTokens` and `cacheWriteTokens`, `outputTokens` includes
`reasoningTokens`; the disjoint counters are input - read - written, written, read, output. A resumed session goes on in the
same file: the run is told by the id of its prompt, which stands in both. `maxPromptTokens` is the window. `cost` counts
premium requests, not dollars, and is not read. The times of the result count over the whole session: a run's own are taken
from the times of its lines.

Ends. `result.exitCode` is the exit code; without a result it was killed, or did not start. Refused calls do not change it.
A command that ends with a code other than 0 is a success to Copilot, and a failed call here.

`lines` is the schema, `words` the tables and the permission rules, `reader` both kinds of lines, `kept` the files, `start`
how it is started.
"""

from ...report import HintTemplates
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts
from ..detection import is_copilot as looks_like
from .reader import (
    CopilotReader,
    is_transcript_line,
    scan_usage,
    transcript_folders,
    transcript_pattern,
)
from .start import (
    FLAG_MODES,
    INITIAL_MODES,
    MODE_ARGS,
    UNSUPPORTED_OPTIONS,
    build_command,
    encode_message,
    is_session_id,
)
from .tables import allow_rule, classify_exit, context_window

# Seen in the environment of a command that Copilot 1.0.102 ran, and set by no person.
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
    context_window=context_window,
    allow_rule=allow_rule,
    looks_like=looks_like,
    is_session_id=is_session_id,
    capabilities=Capabilities(resume=True, json=True, partial=True, file_events=True),
    hints=HintTemplates(
        resume="copilot --resume={session} -p {prompt}",
        allow="--allow-tool {rules}",
        stream="--output-format json",
    ),
    classify_exit=classify_exit,
    launch=Launch(
        build_command=build_command,
        encode_message=encode_message,
        env_policy=ENV_POLICY,
        unsupported_options=UNSUPPORTED_OPTIONS,
        backends=("ollama", "openai", "anthropic"),
        permission_modes=(*MODE_ARGS, *FLAG_MODES, *INITIAL_MODES),
    ),
    transcripts=Transcripts(
        is_line=is_transcript_line,
        folders=transcript_folders,
        scan_usage=scan_usage,
        pattern=transcript_pattern,
    ),
    installation=Installation(
        command="npm install -g @github/copilot",
        npm_package="@github/copilot",
        tested_versions=("1.0.102",),
        credential_files=(".config/gh/hosts.yml",),
    ),
)
