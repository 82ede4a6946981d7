"""What an agent is, as values: how it is asked, how it is started, how its lines are read. It knows no agent in particular."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from ..decode import DECODE_ERRORS, iter_json_values
from ..environment import EnvPolicy
from ..event import Event, Stderr
from ..report import HintTemplates, StenoError
from .backend import Backend


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
    backend: Backend | None = None  # a model server in place of its maker's; `model` is always given with it
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


def default_build_command(ask: LaunchOptions, program: str, version: str | None = None) -> LaunchCommand:
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
        return [event for value in iter_json_values(data) if value[:1] == b"{" for event in reader.read_lenient(value, number)]
    except (ValueError, *DECODE_ERRORS):
        return []


class Agent(Struct, frozen=True):
    """A program such as claude: how to read it.

    `keeps` tells a line of a transcript from one of its stream; `folders` says below which folders it keeps its transcripts,
    given the environment and the home folder; `usages` reads of a transcript only what was asked of the model, for those who
    want nothing but the sums. `start` says how it is started with a program of that name or path, of that version where it is
    known; `message` writes what it takes while it runs;
    `install` says how to get it; `is_session` tells whether a word can be the id of one of its sessions.

    `sizes` are the names of its small, medium and large model, where they are known; `modes` the permission modes that it
    takes, its own words and those of all agents, empty for any; `single` are fields of an Ask of which it takes one value
    only, `at_first` those that hold only from the beginning of a session; `shapes` says whether it answers in the shape of a
    schema by itself, in that version.

    `cannot` names the fields of an Ask that it has no words for; `abilities` says what it can do; `wording` how a person
    writes what a hint suggests; `package` and `tested` are its npm package and the versions that recordings were made of.
    `exits` is the verdict's word and the message for an exit code without a result, given what stands on stderr; `heard`
    are the events that a line of stderr means besides its words. `beside` is the pattern of the files that it keeps of a
    session, below one of its folders, where they tell what its stream does not: its reader is a `Keeper` then. `credentials`
    are files below the home folder that are there when it is signed in; nobody here opens them. `imported`: its transcripts
    are read unasked, because what a recorded run tells again has the same names there. `backends` are the kinds of model
    servers that `start` can lead it to: ollama, openai, anthropic.

    Only a name and a reader are needed; what is left out, the agent does not have.
    """

    name: str
    reader: Callable[[], LineReader]
    context_window: Callable[[str], int | None] = default_context_window
    allow_rule: Callable[[str, Any, str | None], str] = default_allow_rule
    looks_like: Callable[[dict[str, Any]], bool] = default_looks_like
    is_transcript_line: Callable[[bytes], bool] = default_is_transcript_line
    transcript_folders: Callable[[Mapping[str, str], str], list[str]] = default_transcript_folders
    scan_usage: Callable[[Iterable[bytes]], Iterator[Event]] = default_scan_usage
    build_command: Callable[[LaunchOptions, str, str | None], LaunchCommand] = default_build_command
    encode_message: Callable[[str], bytes] = default_encode_message
    env_policy: EnvPolicy = EnvPolicy((), (), ())
    install_command: str = ""
    is_session_id: Callable[[str], bool] = default_is_session_id
    unsupported_options: tuple[str, ...] = ()
    capabilities: Capabilities = Capabilities()
    hint_templates: HintTemplates = HintTemplates()
    npm_package: str = ""
    tested_versions: tuple[str, ...] = ()
    classify_exit: Callable[[int, Sequence[str]], tuple[str, str] | None] = default_classify_exit
    read_stderr: Callable[[Stderr], list[Event]] = default_read_stderr
    transcript_pattern: Callable[[str], str] | None = None
    credential_files: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    auto_import: bool = True
    models_by_size: tuple[str, ...] = ()
    permission_modes: tuple[str, ...] = ()
    single_value_options: tuple[str, ...] = ()
    new_session_options: tuple[str, ...] = ()
    supports_schema: Callable[[Any, str | None], bool] = default_supports_schema
