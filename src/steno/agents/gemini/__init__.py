"""Gemini CLI: how to start it, and how to read what it prints and keeps. It never opens a file or asks the time.

Token algebra. The stream tells no request: only the result has figures, summed over the process, for all models and for
each. `input_tokens` includes `cached`, and `input` is what is left without it; nothing is said of cache writes, so they
are 0. `output_tokens` leaves out the model's thoughts; where `total_tokens` is more than input and output, the rest is
thoughts, and output here. The json format names them: prompt = input + cached, candidates + thoughts = output. Figures
begin afresh with every process, also after --resume. The chats that it keeps tell each request: `input` with `cached`,
`output` without `thoughts`.

An answer comes in pieces (`delta`), which are one text until something else comes. A new turn of the model begins after
the answers of its tools. The exit code of a failed request is its HTTP status modulo 256.

`reader` are the lines of the stream, `document` is the json format, `chats` what it keeps, `alongside` a chat beside a stream,
`ends` what exit codes and errors mean, `names` the tables, `start` how it is started.
"""

from ...report import HintTemplates
from .. import detection as tell
from ..base import Agent, Capabilities, EnvPolicy, Installation, Launch, Transcripts
from .reader import GeminiReader
from .start import (
    MODE_ALIASES,
    MODELS_BY_SIZE,
    NATIVE_MODES,
    UNSUPPORTED_OPTIONS,
    build_command,
    encode_message,
    is_session_id,
)
from .tables import allow_rule, classify_exit, context_window, read_stderr
from .transcripts import is_transcript_line, scan_usage, transcript_folders, transcript_pattern

AGENT = Agent(
    name="gemini",
    reader=GeminiReader,
    context_window=context_window,
    allow_rule=allow_rule,
    looks_like=tell.is_gemini,
    is_session_id=is_session_id,
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
        encode_message=encode_message,
        env_policy=EnvPolicy(
            drop=(
                "GEMINI_CLI",
                "GEMINI_CLI_IDE_SERVER_PORT",
                "GEMINI_CLI_IDE_AUTH_TOKEN",
                "GEMINI_CLI_IDE_WORKSPACE_PATH",
            ),
            # It starts itself a second time and its first process swallows signals; with this it is one process.
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
    ),
    installation=Installation(
        command="npm install -g @google/gemini-cli",
        npm_package="@google/gemini-cli",
        tested_versions=("0.61.0",),
        credential_files=(".gemini/oauth_creds.json",),
    ),
)
