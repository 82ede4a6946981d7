"""Gemini CLI: how to start it, and how to read its stream, json format and chat files. Pure.

Tokens. The stream has no figures per request, only sums over the process in its result, in total
and per model. `input_tokens` includes `cached`; `input` does not. Cache writes are not reported and
count as 0. `output_tokens` excludes the model's thoughts: where `total_tokens` exceeds input plus
output, the rest is thoughts and added to the output. The json format has separate figures: prompt =
input + cached, output = candidates + thoughts. Figures start at 0 in every process, also after
--resume. Chat files have figures per request: `input` includes `cached`, `output` excludes
`thoughts`.

An answer arrives in pieces (`delta`) that form one text until another kind of line follows. A new
turn of the model starts after its tool results. The exit code of a failed request is its HTTP
status modulo 256.

A run stopped by its loop detection or by a hook ends with a success. The warning or the failed call
before it shows the reason; in the json format, a hook's stop is on stderr only.
"""

from ...report import HintTemplates
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts, is_uuid
from ..line_shapes import is_gemini
from ..typed_reader import allow_rule
from .reader import GeminiReader
from .start import (
    MODE_ALIASES,
    MODELS_BY_SIZE,
    NATIVE_MODES,
    OPTION_NAMES,
    UNSUPPORTED_OPTIONS,
    build_command,
)
from .tables import classify_exit, context_window, read_stderr
from .transcripts import is_transcript_line, scan_usage, transcript_folders, transcript_pattern

AGENT = Agent(
    name="gemini",
    reader=GeminiReader,
    context_window=context_window,
    allow_rule=allow_rule,
    looks_like=is_gemini,
    is_session_id=is_uuid,
    capabilities=Capabilities(resume=True, json=True, partial=True),
    hints=HintTemplates(
        resume="gemini --resume {session} -p {prompt}",
        allow="--allowed-tools {rules}",
        stream="-o stream-json",
    ),
    classify_exit=classify_exit,
    read_stderr=read_stderr,
    launch=Launch(
        build_command=build_command,
        shows_requests=True,
        help_args=("--help",),
        option_names=OPTION_NAMES,
        env_policy=EnvPolicy(
            drop=(
                "GEMINI_CLI",
                "GEMINI_CLI_IDE_SERVER_PORT",
                "GEMINI_CLI_IDE_AUTH_TOKEN",
                "GEMINI_CLI_IDE_WORKSPACE_PATH",
            ),
            # Without NO_RELAUNCH it restarts itself, and its first process swallows signals.
            defaults=(("GEMINI_CLI_NO_RELAUNCH", "true"), ("GEMINI_TELEMETRY_ENABLED", "false")),
            api_key_names=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ),
        unsupported_options=UNSUPPORTED_OPTIONS,
        models_by_size=MODELS_BY_SIZE,
        permission_modes=(*NATIVE_MODES, *MODE_ALIASES),
    ),
    transcripts=Transcripts(
        is_line=is_transcript_line,
        folders=transcript_folders,
        scan_usage=scan_usage,
        pattern=transcript_pattern,
        document_names="session-*.json",  # up to 0.36 or so; seen in 0.27.0
        call_identity="id",
    ),
    installation=Installation(
        command="npm install -g @google/gemini-cli",
        npm_package="@google/gemini-cli",
        tested_versions=("0.61.0",),
        credential_files=(".gemini/oauth_creds.json",),
    ),
)
