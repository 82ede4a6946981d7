"""What an agent is: how to start it, read it and classify its end; its model server. Pure.

The key of a model server is passed in the agent's environment only, and is never the vendor's key.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from ..codec.decode import DECODE_ERRORS, iter_json_values
from ..errors import StenoError
from ..event import Event, Stderr
from ..report import AllowRule
from ..report import HintTemplates as HintTemplates  # re-exported for other packages

BACKEND_KINDS = ("ollama", "openai", "anthropic")
BACKEND_KEY_VARIABLE = "STENO_BACKEND_KEY"
PLACEHOLDER_KEY = "none"  # for servers without a key: the agents do not start without one
OLLAMA_DEFAULT_PORT = "11434"
LOCAL_DOMAIN_SUFFIXES = (".localhost", ".local", ".lan", ".internal", ".home.arpa", ".localdomain")


class Backend(Struct, frozen=True, kw_only=True):
    """A model server.

    `url` is its root for ollama and anthropic, and includes the path (usually /v1) for openai.
    `is_local`: its use is free of charge. `context_window` is the model's, if reported.
    """

    kind: str
    url: str
    key: str = PLACEHOLDER_KEY
    is_local: bool = True
    context_window: int | None = None

    @property
    def openai_url(self) -> str:
        """The base URL of its OpenAI-compatible API."""
        return f"{self.url}/v1" if self.kind == "ollama" else self.url


def parse_backend(
    value: str, model: str, host: str | None = None, key: str | None = None
) -> Backend:
    """Parse `ollama`, `ollama:URL`, `openai:URL` or `anthropic:URL`; `host` is OLLAMA_HOST."""
    from urllib.parse import urlsplit  # slow to import, not needed to read a recording

    kind, _, address = value.partition(":")
    url = (address or _ollama_url(host)).rstrip("/")
    if kind != "openai":
        url = url.removesuffix("/v1")
    elif not urlsplit(url).path:
        url += "/v1"
    # Ollama runs models with this suffix on its vendor's servers.
    is_cloud_model = kind == "ollama" and model.endswith(("-cloud", ":cloud"))
    return Backend(
        kind=kind,
        url=url,
        key=key or PLACEHOLDER_KEY,
        is_local=is_local_url(url) and not is_cloud_model,
    )


def _ollama_url(host: str | None) -> str:
    """Parse OLLAMA_HOST: a host, a port, or both, with or without a scheme."""
    scheme, _, rest = (host or "").rpartition("://")
    name, _, port = rest.partition("/")[0].rpartition(":")
    if not name and not port.isdigit():  # a host only
        name = port
        port = ""
    if name in ("", "0.0.0.0", "[::]"):  # noqa: S104  # compared with, not bound to
        name = "127.0.0.1"
    return f"{scheme or 'http'}://{name}:{port or OLLAMA_DEFAULT_PORT}"


def is_local_url(url: str) -> bool:
    """Whether a server is on this machine or in a private network."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    name = (urlsplit(url).hostname or "").lower()
    try:
        return not ip_address(name).is_global
    except ValueError:
        return "." not in name or name.endswith(LOCAL_DOMAIN_SUFFIXES)


# -- environment -----------------------------------------------------------------------------------


class EnvPolicy(Struct, frozen=True):
    """Changes to the inherited environment of an agent.

    `drop`: variables set by an outer session of the same agent. `defaults`: settings for unattended
    runs, unless the user set them. `api_key_names`: variables that `--no-api-key` removes.
    """

    drop: tuple[str, ...]
    defaults: tuple[tuple[str, str], ...]
    api_key_names: tuple[str, ...]


def build_environment(
    inherited: Mapping[str, str],
    policy: EnvPolicy,
    *,
    include_api_keys: bool = True,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment for a run; `extra` overrides everything else."""
    excluded = set(policy.drop)
    if not include_api_keys:
        excluded.update(policy.api_key_names)
    return {
        **dict(policy.defaults),
        **{name: value for name, value in inherited.items() if name not in excluded},
        **(extra or {}),
    }


# -- readers ---------------------------------------------------------------------------------------


class LineReader(Protocol):
    """Turns the lines of one run into events.

    `read` raises one of `DECODE_ERRORS` for a line of an unexpected shape; `read_lenient` never
    raises. `state` and `restore` let a later process continue where a growing file ended. A reader
    may also have a `feed` method, a fast path for many lines: see `sink`.
    """

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...

    def read_lenient(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...

    def state(self) -> bytes: ...

    def restore(self, state: bytes) -> None: ...


class EnrichingReader(LineReader, Protocol):
    """A reader that completes a stream with the session file that the agent wrote.

    `session` is the stream's session id; None if unknown or if the lines are those of a session
    file. `enrich` gets the lines of that file after the stream and returns only events that neither
    the stream nor `read_stderr` reported.
    """

    session: str | None

    def read_stderr(self, line: Stderr) -> list[Event]: ...

    def enrich(self, lines: Iterable[bytes]) -> list[Event]: ...


def read_objects_lenient(reader: LineReader, data: bytes, number: int) -> list[Event]:
    """Return the events of all JSON objects on a line; none if the line is not valid JSON."""
    try:
        return [
            event
            for value in iter_json_values(data)
            if value[:1] == b"{"
            for event in reader.read_lenient(value, number)
        ]
    except (ValueError, *DECODE_ERRORS):
        return []


# -- launch ----------------------------------------------------------------------------------------


class PermissionRelay(Struct, frozen=True):
    """An MCP server, and the tool of it that decides on calls that need permission."""

    server: str
    command: tuple[str, ...]
    timeout_seconds: float  # for the answer
    tool: str = "permission"


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """The options of a run, the same for all agents. None or empty: the agent's own default."""

    prompt: str = ""
    model: str | None = None
    session_id: str | None = None  # for a new session
    resume: str | None = None  # id of the session to continue
    fork: bool = False  # continue in a copy of that session
    continue_: bool = False  # continue the last session of the folder
    max_turns: int | None = None
    max_cost: float | None = None  # US dollars
    permission_mode: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    system_prompt: str | None = None
    add_dirs: tuple[str, ...] = ()
    mcp_config: tuple[str, ...] = ()
    fallback_model: str | None = None
    json_schema: str | None = None
    partial: bool = False  # stream partial messages
    steer: bool = False  # accept messages during the run
    permission_relay: "PermissionRelay | None" = None  # asks a person instead of denying calls
    backend: Backend | None = None  # replaces the vendor's server; requires `model`
    extra: tuple[str, ...] = ()  # arguments passed through unchanged


# Replaced in `argv` by the path of the schema file. No argument can contain a NUL.
SCHEMA_FILE_PLACEHOLDER = "\0schema"


def default_has_option(option: str) -> bool:
    """Assume the newest version, which has all options."""
    return True


class ProgramInfo(Struct, frozen=True):
    """What is known about an installed program before it starts.

    `has_option` says whether the program lists an option or subcommand, such as `--auto` or
    `fork`, in its help. The help is requested at the first question; without one, every option is
    assumed to exist.
    """

    version: str | None = None
    has_option: Callable[[str], bool] = default_has_option


NEWEST_PROGRAM = ProgramInfo()
EXAMPLE_SESSION_ID = "123e4567-e89b-42d3-a456-426614174000"


class LaunchCommand(Struct, frozen=True):
    """The command that starts an agent.

    `stdout` is "pipe" or "file". `env` is added to the inherited environment; secrets belong there
    and never in `argv`, which is recorded and visible to other users. `schema` is the content of a
    file whose path replaces SCHEMA_FILE_PLACEHOLDER in `argv`. `notes` are for people: what the
    program cannot do as requested.
    """

    argv: tuple[str, ...]
    stdin: bytes | None = None
    stdout: str = "pipe"
    env: tuple[tuple[str, str], ...] = ()
    schema: bytes | None = None
    notes: tuple[str, ...] = ()


class Capabilities(Struct, frozen=True, kw_only=True):
    """Features of an agent in unattended runs. True only if verified with a real run."""

    resume: bool = False  # continues an earlier session
    json: bool = False  # prints JSON while it runs
    partial: bool = False  # streams partial messages
    budget: bool = False  # has its own cost limit
    schema: bool = False  # answers in the form of a JSON schema
    context: bool = False  # its stream shows how full the context is
    cost: bool = False  # reports its cost
    file_events: bool = False  # reports the files it changed


# -- defaults --------------------------------------------------------------------------------------


def default_context_window(model: str) -> int | None:
    return None


def default_guesses_window(model: str, window: int) -> bool:
    return False


def default_allow_rule(tool: str, input_: Any, cwd: str | None, reason: str | None) -> str | None:
    return tool


def default_looks_like(line: dict[str, Any]) -> bool:
    """Never detect the agent by its lines: `--agent` is required to read them."""
    return False


def default_is_transcript_line(line: bytes) -> bool:
    return False


def default_transcript_folders(environment: Mapping[str, str], home: str) -> list[str]:
    return []


def default_scan_usage(lines: Iterable[bytes]) -> Iterator[Event]:
    return iter(())


def default_sessions_in(line: bytes) -> Iterable[str]:
    return ()


def default_build_command(options: LaunchOptions, program: str, info: ProgramInfo) -> LaunchCommand:
    raise StenoError("this agent cannot be started, only read: it defines no build_command")


def default_encode_message(text: str) -> bytes:
    """Send nothing: the agent accepts no messages during a run."""
    return b""


def default_is_session_id(text: str) -> bool:
    """Accept any single printable word that is not an option."""
    return text.isprintable() and text != "" and " " not in text and not text.startswith("-")


def default_classify_exit(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """Leave the exit code to the rules for all agents."""
    return None


def default_supports_schema(schema: Any, version: str | None) -> bool:
    return False


def default_read_stderr(line: Stderr) -> list[Event]:
    return []


# -- shared by several agents ----------------------------------------------------------------------

_UUID_PATTERN = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    """Whether a session id is a UUID in its usual notation."""
    return _UUID_PATTERN.fullmatch(text) is not None


def is_object_schema(schema: Any) -> bool:
    """Whether a JSON schema describes an object, the only form that a tool call can return."""
    return isinstance(schema, dict) and schema.get("type") == "object"


def option_args(*options: tuple[str, str | None]) -> list[str]:
    """`OPTION VALUE` for every option that has a value."""
    argv: list[str] = []
    for option, value in options:
        if value is not None:
            argv += [option, value]
    return argv


def repeated_args(*options: tuple[str, Iterable[str]]) -> list[str]:
    """`OPTION=VALUE` for every value: an option with a list would consume the words after it."""
    return [f"{option}={value}" for option, values in options for value in values]


def encode_prompt(prompt: str) -> bytes:
    """The prompt for stdin, with the bytes that were not UTF-8 on our command line restored."""
    return prompt.encode("utf-8", "surrogateescape")


# -- the agent -------------------------------------------------------------------------------------


class Launch(Struct, frozen=True, kw_only=True):
    """How to start an agent, and which options it accepts.

    `build_command` gets the options, the program's name or path, and what is known about it.
    `help_args` make the program print its options; empty: it is not asked. `option_names` are its
    names for those fields of LaunchOptions that some of its versions lack: a field whose option is
    missing in the help is not passed. `unsupported_options` are the fields that no version has an
    option for, `single_value_options` those that take one value only, `new_session_options` those
    that only work in a new session. `permission_modes` are the accepted modes (empty: any),
    `models_by_size` its small, medium and large model. `supports_schema` gets a JSON schema and the
    version, and returns whether the agent enforces the schema itself. `backends` are the kinds of
    model servers it can use: ollama, openai, anthropic. `shows_requests`: the stream shows the
    main thread's requests as they are made, so that steno can enforce a turn limit.
    `relays_permissions`: it can ask an MCP tool for permission instead of denying a call.
    """

    build_command: Callable[[LaunchOptions, str, ProgramInfo], LaunchCommand] = (
        default_build_command
    )
    help_args: tuple[str, ...] = ()
    option_names: dict[str, str] = {}
    encode_message: Callable[[str], bytes] = default_encode_message
    env_policy: EnvPolicy = EnvPolicy((), (), ())
    unsupported_options: tuple[str, ...] = ()
    single_value_options: tuple[str, ...] = ()
    new_session_options: tuple[str, ...] = ()
    permission_modes: tuple[str, ...] = ()
    models_by_size: tuple[str, ...] = ()
    supports_schema: Callable[[Any, str | None], bool] = default_supports_schema
    backends: tuple[str, ...] = ()
    shows_requests: bool = False
    relays_permissions: bool = False


class Transcripts(Struct, frozen=True, kw_only=True):
    """The session files that an agent writes.

    `is_line` distinguishes a transcript line from a stream line. `folders` gets the environment and
    the home folder. `scan_usage` yields only the events that a usage sum needs. `pattern` returns a
    glob, below one of the folders, for the files that complete the stream of a session; the agent's
    reader is then an `EnrichingReader`. `sessions_in` returns the sessions of subagents that a line
    names, whose files complete the stream, too. `auto_import`: import them by default.
    `has_own_request_ids`: the files name requests differently than the output, so that only their
    figures and times tell which are the same.
    `totals_marker`: bytes in lines with totals of the session; a recording keeps those of earlier
    runs, to subtract them. `totals_only`: nothing else of the files is needed, so a recording keeps
    only the last of them.
    `document_names`: a glob for the names of transcripts that are one JSON document; all files
    that end with .jsonl are transcripts.
    `call_identity`: what shows that a call in a transcript is one of the stream: its `message` and
    its place in it, its own `id` within the session, or only its `order` among those of its tool.
    """

    is_line: Callable[[bytes], bool] = default_is_transcript_line
    folders: Callable[[Mapping[str, str], str], list[str]] = default_transcript_folders
    scan_usage: Callable[[Iterable[bytes]], Iterator[Event]] = default_scan_usage
    pattern: Callable[[str], str] | None = None
    sessions_in: Callable[[bytes], Iterable[str]] = default_sessions_in
    auto_import: bool = True
    has_own_request_ids: bool = False
    totals_marker: bytes | None = None
    totals_only: bool = False
    document_names: str = ""
    call_identity: Literal["message", "id", "order"] = "message"


class Installation(Struct, frozen=True, kw_only=True):
    """How to install an agent, and what is known about its installations.

    `tested_versions` are the versions that recordings were made with. `credential_files` (below the
    home folder) exist if a user is signed in; they are never opened.
    """

    command: str = ""
    npm_package: str = ""
    tested_versions: tuple[str, ...] = ()
    credential_files: tuple[str, ...] = ()


class Agent(Struct, frozen=True, kw_only=True):
    """A program such as claude: how to start it and how to read its output.

    Only a name and a reader are required. `looks_like` returns whether a decoded line can be this
    agent's; `context_window` the window of a model; `guesses_window` whether a window that it
    reports is only its default for models it doesn't know; `allow_rule` the rule that would have
    allowed a denied call (tool, input, folder, reason), None if no rule would; `classify_exit` the
    verdict and message for an exit code without a result, given the lines of stderr; `read_stderr`
    the events of a line of stderr. `totals_omit_subagents`: the agent's figures leave out the
    requests of subagents, which only their own session files have.
    """

    name: str
    reader: Callable[[], LineReader]
    looks_like: Callable[[dict[str, Any]], bool] = default_looks_like
    read_stderr: Callable[[Stderr], list[Event]] = default_read_stderr
    is_session_id: Callable[[str], bool] = default_is_session_id
    context_window: Callable[[str], int | None] = default_context_window
    guesses_window: Callable[[str, int], bool] = default_guesses_window
    allow_rule: AllowRule = default_allow_rule
    classify_exit: Callable[[int, Sequence[str]], tuple[str, str] | None] = default_classify_exit
    totals_omit_subagents: bool = False
    capabilities: Capabilities = Capabilities()
    hints: HintTemplates = HintTemplates()
    launch: Launch = Launch()
    transcripts: Transcripts = Transcripts()
    installation: Installation = Installation()


# -- options ---------------------------------------------------------------------------------------

# Option names that users see, and the field of LaunchOptions for each.
OPTION_FIELDS = {
    "model": "model",
    "session_id": "session_id",
    "resume": "resume",
    "fork": "fork",
    "continue_": "continue_",
    "max_turns": "max_turns",
    "max_cost": "max_cost",
    "permission_mode": "permission_mode",
    "allow": "allow",
    "deny": "deny",
    "system_prompt": "system_prompt",
    "add_dirs": "add_dirs",
    "mcp_config": "mcp_config",
    "json_schema": "json_schema",
    "fallback_model": "fallback_model",
    "steer": "steer",
}
# Options that steno implements itself for agents without them.
EMULATED_OPTIONS = ("max_cost", "json_schema", "fallback_model")
SCHEMA_PROMPT_TEMPLATE = (
    "{prompt}\n\nYour final answer must be one JSON value that fits this JSON schema, "
    "and nothing else: no explanation, no code fence.\n{schema}"
)
# A prompt that continues another session.
HANDOVER_PROMPT = "[CONTEXT FROM PREVIOUS SESSION]\n{summary}\n\n[CURRENT TASK]\n{prompt}"


def option_support(agent: Agent, option: str, info: ProgramInfo = NEWEST_PROGRAM) -> str:
    """Return who implements an option: "agent", "steno", or "no" if a run with it is refused."""
    if accepts_field(agent, OPTION_FIELDS[option], info):
        return "agent"
    is_emulated = option in EMULATED_OPTIONS or (
        option == "max_turns" and agent.launch.shows_requests
    )
    return "steno" if is_emulated else "no"


def accepts_field(agent: Agent, field: str, info: ProgramInfo) -> bool:
    """Whether this version of the agent's program has an option for a field of LaunchOptions."""
    if field in agent.launch.unsupported_options:
        return False
    name = agent.launch.option_names.get(field)
    return name is None or info.has_option(name)


def can_resume(
    agent: Agent, session: str, program: str = "", info: ProgramInfo = NEWEST_PROGRAM
) -> bool:
    """Whether the agent continues a session: its command must say which.

    The command itself is asked, since one that ignores the option would start a new session.
    """
    if not accepts_field(agent, "resume", info):
        return False
    build = agent.launch.build_command
    command = build(LaunchOptions(prompt="-", resume=session), program or agent.name, info)
    new = build(LaunchOptions(prompt="-"), program or agent.name, info)
    return command != new and session in command_text(command)


def command_text(command: LaunchCommand) -> str:
    """All that a command passes to its program: arguments, stdin and variables."""
    stdin = (command.stdin or b"").decode("utf-8", "replace")
    return "\n".join((*command.argv, stdin, *(value for _, value in command.env)))


def accepted_options(agent: Agent, options: LaunchOptions, info: ProgramInfo) -> LaunchOptions:
    """The options without those that this version of the program lacks."""
    defaults = LaunchOptions()
    missing = {
        field: getattr(defaults, field)
        for field in agent.launch.option_names
        if getattr(options, field) != getattr(defaults, field)
        and not accepts_field(agent, field, info)
    }
    return msgspec.structs.replace(options, **missing) if missing else options


def add_schema_prompt(agent: Agent, options: LaunchOptions, info: ProgramInfo) -> LaunchOptions:
    """Move the JSON schema into the prompt if the agent does not support it natively."""
    if options.json_schema is None:
        return options
    schema = msgspec.json.decode(options.json_schema)
    if agent.launch.supports_schema(schema, info.version) and accepts_field(
        agent, "json_schema", info
    ):
        return options
    prompt = SCHEMA_PROMPT_TEMPLATE.format(prompt=options.prompt, schema=options.json_schema)
    return msgspec.structs.replace(options, prompt=prompt, json_schema=None)
