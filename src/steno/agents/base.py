"""The environment that an agent is started in (R2), as a function of ours. Pure: it reads no environment by itself.

An agent that is started from within another one must not take itself for a part of it, and one that runs without a
person must neither update itself nor talk to anybody but the model. What a person has set stands.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta, Struct

from ..codec.decode import DECODE_ERRORS, iter_json_values
from ..errors import StenoError
from ..event import Event, Stderr
from ..report import HintTemplates
from .backend import Backend

EventHead = tuple[int, str | None, str | None, datetime | None]  # line, session, parent, at
Instant = Annotated[datetime, Meta(tz=True)]  # a time without a zone can't be compared with others
_UUID_PATTERN = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    return _UUID_PATTERN.fullmatch(text) is not None


class EnvPolicy(Struct, frozen=True):
    """What one agent needs: names that only its own parent session sets, settings, and the names of its keys."""

    drop: tuple[str, ...]
    defaults: tuple[tuple[str, str], ...]
    api_key_names: tuple[str, ...]


# Seen in the environment of a command that Claude Code 2.1.197 and 2.1.325 ran, and set by no person. CLAUDECODE is the
# marker itself; the others would tie the new session to the old one, or name the old one as its parent.
CLAUDE_ENV_POLICY = EnvPolicy(
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
    api_key_names=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
    ),  # the sign-in of a subscription is not among them
)


def build_environment(
    inherited: Mapping[str, str],
    agent: EnvPolicy,
    *,
    include_api_keys: bool = True,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment for a run. `keys` False withholds the agent's keys; `more` is added last and wins."""
    without = {*agent.drop, *(() if include_api_keys else agent.api_key_names)}
    return {
        **dict(agent.defaults),
        **{name: value for name, value in inherited.items() if name not in without},
        **(extra or {}),
    }


class LineReader(Protocol):
    """Turns lines into events.

    `read` raises one of `decode.MISFIT` on a line of an odd shape, and `salvage` never raises. One that can read many lines
    at once by a shorter way has a `dictate` beside them: see `scribe`.
    `state` and `go_on` carry what joins lines over to another time: a file that grew is read on from where it ended.
    """

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...

    def state(self) -> bytes: ...

    def restore(self, state: bytes) -> None: ...


class EnrichingReader(LineReader, Protocol):
    """A reader that also understands, after the stream, the file that the agent kept of the same session.

    `session` is the stream's, None where it has none or these are the lines of such a file; `hear` tells what a line of
    stderr means: what the file says once more is told once.
    """

    session: str | None

    def read_stderr(self, line: Stderr) -> list[Event]: ...

    def enrich(self, lines: Iterable[bytes]) -> list[Event]: ...


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """What is asked of an agent, in words that hold for all of them. None or empty: the agent's own default."""

    prompt: str = ""
    model: str | None = None
    session_id: str | None = None  # of a new session
    resume: str | None = None  # an earlier session to go on with
    fork: bool = False  # go on in a copy of it
    continue_: bool = False  # go on with the last session of the folder
    max_turns: int | None = None
    max_cost: float | None = None  # dollars
    permission_mode: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    system_prompt: str | None = None
    add_dirs: tuple[str, ...] = ()
    mcp_config: tuple[str, ...] = ()
    fallback_model: str | None = None
    json_schema: str | None = None
    partial: bool = False  # pieces of an answer as they come
    steer: bool = False  # messages can be sent while it runs
    backend: Backend | None = (
        None  # a model server in place of its maker's; `model` is always given with it
    )
    extra: tuple[str, ...] = ()  # the agent's own arguments, as given


SCHEMA_FILE_PLACEHOLDER = "\0schema"  # stands in a command line for the path of the file that holds the schema; no word can hold a NUL


class LaunchCommand(Struct, frozen=True):
    """How an agent is started for an Ask: its command line, what it reads from stdin, where its stdout goes, and variables.

    `env` is added to the environment that it inherits. What is secret belongs there, never into the command line, which
    everybody on the machine can read and which stands in the tape. `schema` is what must stand in a file of its own, whose
    path takes the place of IN_A_FILE.
    """

    argv: tuple[str, ...]
    stdin: bytes | None = None
    stdout: str = "pipe"
    env: tuple[tuple[str, str], ...] = ()
    schema: bytes | None = None


class Capabilities(Struct, frozen=True, kw_only=True):
    """What an agent can do without a person, for those who choose one. True only where it was seen."""

    resume: bool = False  # goes on with an earlier session
    json: bool = False  # tells what it does as JSON while it runs
    partial: bool = False  # pieces of an answer as they come
    budget: bool = False  # an option of its own for the most it may cost
    schema: bool = False  # answers in the shape of a JSON schema
    context: bool = False  # its stream tells how full its window is
    cost: bool = False  # tells what it cost
    file_events: bool = False  # tells which files it changed


# -- what an agent that says nothing of something is taken for ---------------------------------------------------------


def default_context_window(model: str) -> int | None:
    """No model's window is known."""
    return None


def default_allow_rule(tool: str, given: Any, cwd: str | None) -> str:
    """What would allow a refused call: its tool."""
    return tool


def default_looks_like(line: dict[str, Any]) -> bool:
    """No line is told by itself: whoever reads it must say whose it is."""
    return False


def default_is_transcript_line(line: bytes) -> bool:
    """It keeps no transcripts."""
    return False


def default_transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """It keeps nothing in files."""
    return []


def default_scan_usage(lines: Iterable[bytes]) -> Iterator[Event]:
    """There are no transcripts."""
    return iter(())


def default_build_command(
    ask: LaunchOptions, program: str, version: str | None = None
) -> LaunchCommand:
    """What it printed can be read; it cannot be started from here."""
    raise StenoError("this agent can be read, and not started: it does not say how")


def default_encode_message(text: str) -> bytes:
    """It takes no messages while it runs."""
    return b""


def default_is_session_id(text: str) -> bool:
    """A session can be called by any word."""
    return text.isprintable() and text != "" and " " not in text and not text.startswith("-")


def default_classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """An exit code that says nothing but its sign: the rules for every agent hold."""
    return None


def default_supports_schema(schema: Any, version: str | None) -> bool:
    """It has no way of its own to answer in the shape of a schema."""
    return False


def is_object_schema(schema: Any) -> bool:
    """Whether a schema asks for an object: what an agent's tool takes, and no other."""
    return isinstance(schema, dict) and schema.get("type") == "object"


def default_read_stderr(line: Stderr) -> list[Event]:
    """A line of stderr that means nothing but its words."""
    return []


def read_objects_lenient(reader: LineReader, data: bytes, number: int) -> list[Event]:
    """The events of every object on a line, as far as each can be read; none where it is torn or no JSON."""
    try:
        return [
            event
            for value in iter_json_values(data)
            if value[:1] == b"{"
            for event in reader.read_lenient(value, number)
        ]
    except (ValueError, *DECODE_ERRORS):
        return []


class Launch(Struct, frozen=True, kw_only=True):
    """How an agent is started, and which options it takes.

    `build_command` gets the program's name or path and its version where known. `unsupported_options`
    names the fields of LaunchOptions the agent has no option for; `single_value_options` those of which it
    takes one value only; `new_session_options` those that only work in a new session. `permission_modes`
    lists the accepted modes (empty: any), `models_by_size` its small, medium and large model.
    `supports_schema` says whether that version answers in the form of a JSON schema by itself; `backends`
    lists the kinds of model servers it can be pointed at: ollama, openai, anthropic.
    """

    build_command: Callable[[LaunchOptions, str, str | None], LaunchCommand] = default_build_command
    encode_message: Callable[[str], bytes] = default_encode_message
    env_policy: EnvPolicy = EnvPolicy((), (), ())
    unsupported_options: tuple[str, ...] = ()
    single_value_options: tuple[str, ...] = ()
    new_session_options: tuple[str, ...] = ()
    permission_modes: tuple[str, ...] = ()
    models_by_size: tuple[str, ...] = ()
    supports_schema: Callable[[Any, str | None], bool] = default_supports_schema
    backends: tuple[str, ...] = ()


class Transcripts(Struct, frozen=True, kw_only=True):
    """The session files an agent writes itself.

    `is_line` tells a transcript line from a stream line. `folders` gets the environment and the home folder.
    `scan_usage` reads only what a usage sum needs. `pattern` is a glob, below one of the folders, for the
    files of one session that complete its stream; the agent's reader is then an `EnrichingReader`.
    `auto_import`: imported without being asked, because runs recorded by steno have the same ids there.
    """

    is_line: Callable[[bytes], bool] = default_is_transcript_line
    folders: Callable[[Mapping[str, str], str], list[str]] = default_transcript_folders
    scan_usage: Callable[[Iterable[bytes]], Iterator[Event]] = default_scan_usage
    pattern: Callable[[str], str] | None = None
    auto_import: bool = True


class Installation(Struct, frozen=True, kw_only=True):
    """How to install an agent, and what is known about its installations.

    `tested_versions` are the versions that recordings were made with. `credential_files` (below the home
    folder) exist when a user is signed in; they are never opened.
    """

    command: str = ""
    npm_package: str = ""
    tested_versions: tuple[str, ...] = ()
    credential_files: tuple[str, ...] = ()


class Agent(Struct, frozen=True, kw_only=True):
    """A program such as claude: how to start it and how to read its output.

    Only a name and a reader are required. `looks_like` says whether a decoded line can be this agent's;
    `context_window` returns a model's window; `allow_rule` the rule that would have allowed a denied call;
    `classify_exit` the verdict and message for an exit code without a result, given stderr; `read_stderr`
    the events a line of stderr stands for.
    """

    name: str
    reader: Callable[[], LineReader]
    looks_like: Callable[[dict[str, Any]], bool] = default_looks_like
    read_stderr: Callable[[Stderr], list[Event]] = default_read_stderr
    is_session_id: Callable[[str], bool] = default_is_session_id
    context_window: Callable[[str], int | None] = default_context_window
    allow_rule: Callable[[str, Any, str | None], str] = default_allow_rule
    classify_exit: Callable[[int, Sequence[str]], tuple[str, str] | None] = default_classify_exit
    capabilities: Capabilities = Capabilities()
    hints: HintTemplates = HintTemplates()
    launch: Launch = Launch()
    transcripts: Transcripts = Transcripts()
    installation: Installation = Installation()


# The fields of an Ask that people fill, by the names of their options.
OPTION_FIELDS = {
    "model": "model", "session_id": "session_id", "resume": "resume", "fork": "fork", "continue_": "continue_",
    "max_turns": "max_turns", "max_cost": "max_cost", "permission_mode": "permission_mode", "allow": "allow", "deny": "deny",
    "system_prompt": "system_prompt", "add_dir": "add_dirs", "mcp_config": "mcp_config", "json_schema": "json_schema",
    "fallback_model": "fallback_model", "steer": "steer",
}  # fmt: skip
# What steno holds where the agent does not: it watches the cost, checks the answer, and starts again with another model.
EMULATED_OPTIONS = ("max_cost", "json_schema", "fallback_model")
SCHEMA_PROMPT_TEMPLATE = (
    "{prompt}\n\nYour final answer must be one JSON value that fits this JSON schema, and nothing else: no explanation, no "
    "code fence.\n{schema}"
)


def option_support(agent: Agent, option: str) -> str:
    """`agent`: it takes the option itself; `steno`: steno holds it; `no`: a run with it is refused."""
    if OPTION_FIELDS[option] not in agent.launch.unsupported_options:
        return "agent"
    return "steno" if option in EMULATED_OPTIONS else "no"


def add_schema_prompt(agent: Agent, ask: LaunchOptions, version: str | None) -> LaunchOptions:
    """What is asked, with the schema in the prompt where the agent has no way of its own for it."""
    if ask.json_schema is None or agent.launch.supports_schema(
        msgspec.json.decode(ask.json_schema), version
    ):
        return ask
    prompt = SCHEMA_PROMPT_TEMPLATE.format(prompt=ask.prompt, schema=ask.json_schema)
    return msgspec.structs.replace(ask, prompt=prompt, json_schema=None)
