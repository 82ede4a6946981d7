"""Claude Code: how to start it, and how to read its stream and its session files. Pure.

Tokens. Four disjoint counters: input_tokens, cache_creation_input_tokens, cache_read_input_tokens,
output_tokens; thinking is part of the output. One API message is printed as several `assistant`
lines with one block each, all with the usage of the message's *start*: its output is a lower bound
(often 1) unless the line has a stop_reason. `result.usage` sums the requests of one turn of the
main loop (1.0.100: only its last request); `modelUsage` and `total_cost_usd` sum over the process,
subagents and helper calls included, and since 2.1.277 over all resumed runs of the session.
`model_usage_since_last_result` is the new part, in streams since 2.1.309. Without it, the last
`cost-state` line of the transcript before the run has the totals that it continued from.
"""

from ...report import HintTemplates
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts, is_uuid
from ..line_shapes import is_claude
from .permissions import allow_rule
from .reader import ClaudeReader
from .start import (
    MODELS_BY_SIZE,
    OPTION_NAMES,
    PERMISSION_MODES,
    build_command,
    encode_message,
    supports_schema,
)
from .tables import context_window, guesses_window
from .transcripts import (
    COST_STATE_MARKER,
    is_transcript_line,
    scan_usage,
    transcript_folders,
    transcript_pattern,
)

__all__ = ["AGENT", "ENV_POLICY", "ClaudeReader"]

# Set by Claude Code 2.1.197 and 2.1.325 in the environment of its commands. CLAUDECODE marks a
# nested session; the others would attach the new session to the outer one.
ENV_POLICY = EnvPolicy(
    drop=(
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SESSION_ATTENDED",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_EFFORT",
        "CLAUDE_PID",
        "AI_AGENT",
    ),
    defaults=(("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")),
    # Without the token of a subscription, CLAUDE_CODE_OAUTH_TOKEN: it is always passed on.
    api_key_names=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
)

AGENT = Agent(
    name="claude",
    reader=ClaudeReader,
    context_window=context_window,
    guesses_window=guesses_window,
    allow_rule=allow_rule,
    looks_like=is_claude,
    is_session_id=is_uuid,
    capabilities=Capabilities(
        resume=True,
        json=True,
        partial=True,
        budget=True,
        schema=True,
        context=True,
        cost=True,
        file_events=True,
    ),
    hints=HintTemplates(
        resume="claude --resume {session} -p {prompt}",
        turns="--max-turns N",
        allow="--allowedTools {rules}",
        stream="--output-format stream-json --verbose",
    ),
    launch=Launch(
        build_command=build_command,
        help_args=("--help",),
        option_names=OPTION_NAMES,
        encode_message=encode_message,
        env_policy=ENV_POLICY,
        backends=("ollama", "anthropic"),
        permission_modes=PERMISSION_MODES,
        models_by_size=MODELS_BY_SIZE,
        supports_schema=supports_schema,
        relays_permissions=True,
    ),
    transcripts=Transcripts(
        is_line=is_transcript_line,
        folders=transcript_folders,
        scan_usage=scan_usage,
        pattern=transcript_pattern,
        totals_marker=COST_STATE_MARKER,
        totals_only=True,
    ),
    installation=Installation(
        command="npm install -g @anthropic-ai/claude-code",
        npm_package="@anthropic-ai/claude-code",
        tested_versions=("1.0.100", "2.0.37", "2.1.50", "2.1.197", "2.1.325"),
        credential_files=(".claude/.credentials.json",),
    ),
)
