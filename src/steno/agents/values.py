"""What an agent is, as values: how it is asked, how it is started, how its lines are read. It knows no agent in particular."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from ..decode import MISFIT, values
from ..environment import Surroundings
from ..event import Event, Stderr
from ..report import StenoError, Wording
from .backend import Backend


class LineReader(Protocol):
    """Turns lines into events.

    `read` raises one of `decode.MISFIT` on a line of an odd shape, and `salvage` never raises. One that can read many lines
    at once by a shorter way has a `dictate` beside them: see `scribe`.
    `state` and `go_on` carry what joins lines over to another time: a file that grew is read on from where it ended.
    """

    def read(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...

    def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[Event]: ...

    def state(self) -> bytes: ...

    def go_on(self, state: bytes) -> None: ...


class Keeper(LineReader, Protocol):
    """A reader that also understands, after the stream, the file that the agent kept of the same session.

    `session` is the stream's, None where it has none or these are the lines of such a file; `hear` tells what a line of
    stderr means: what the file says once more is told once.
    """

    session: str | None

    def hear(self, line: Stderr) -> list[Event]: ...

    def beside(self, lines: Iterable[bytes]) -> list[Event]: ...


class Ask(Struct, frozen=True, kw_only=True):
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


IN_A_FILE = "\0schema"  # stands in a command line for the path of the file that holds the schema; no word can hold a NUL


class Start(Struct, frozen=True):
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


class Abilities(Struct, frozen=True, kw_only=True):
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


def no_window(model: str) -> int | None:
    """No model's window is known."""
    return None


def the_tool(tool: str, given: Any, cwd: str | None) -> str:
    """What would allow a refused call: its tool."""
    return tool


def nobody(line: dict[str, Any]) -> bool:
    """No line is told by itself: whoever reads it must say whose it is."""
    return False


def kept_nowhere(line: bytes) -> bool:
    """It keeps no transcripts."""
    return False


def no_folders(environment: Mapping[str, str], home: str) -> list[str]:
    """It keeps nothing in files."""
    return []


def no_usages(lines: Iterable[bytes]) -> Iterator[Event]:
    """There are no transcripts."""
    return iter(())


def not_started(ask: Ask, program: str, version: str | None = None) -> Start:
    """What it printed can be read; it cannot be started from here."""
    raise StenoError("this agent can be read, and not started: it does not say how")


def no_message(text: str) -> bytes:
    """It takes no messages while it runs."""
    return b""


def any_word(text: str) -> bool:
    """A session can be called by any word."""
    return text.isprintable() and text != "" and " " not in text and not text.startswith("-")


def unsaid(code: int, errors: Sequence[str]) -> tuple[str, str] | None:
    """An exit code that says nothing but its sign: the rules for every agent hold."""
    return None


def unshaped(schema: Any, version: str | None) -> bool:
    """It has no way of its own to answer in the shape of a schema."""
    return False


def an_object(schema: Any) -> bool:
    """Whether a schema asks for an object: what an agent's tool takes, and no other."""
    return isinstance(schema, dict) and schema.get("type") == "object"


def unheard(line: Stderr) -> list[Event]:
    """A line of stderr that means nothing but its words."""
    return []


def salvaged(reader: LineReader, data: bytes, number: int) -> list[Event]:
    """The events of every object on a line, as far as each can be read; none where it is torn or no JSON."""
    try:
        return [event for value in values(data) if value[:1] == b"{" for event in reader.salvage(value, number)]
    except (ValueError, *MISFIT):
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
    window: Callable[[str], int | None] = no_window
    allow_rule: Callable[[str, Any, str | None], str] = the_tool
    looks_like: Callable[[dict[str, Any]], bool] = nobody
    keeps: Callable[[bytes], bool] = kept_nowhere
    folders: Callable[[Mapping[str, str], str], list[str]] = no_folders
    usages: Callable[[Iterable[bytes]], Iterator[Event]] = no_usages
    start: Callable[[Ask, str, str | None], Start] = not_started
    message: Callable[[str], bytes] = no_message
    surroundings: Surroundings = Surroundings((), (), ())
    install: str = ""
    is_session: Callable[[str], bool] = any_word
    cannot: tuple[str, ...] = ()
    abilities: Abilities = Abilities()
    wording: Wording = Wording()
    package: str = ""
    tested: tuple[str, ...] = ()
    exits: Callable[[int, Sequence[str]], tuple[str, str] | None] = unsaid
    heard: Callable[[Stderr], list[Event]] = unheard
    beside: Callable[[str], str] | None = None
    credentials: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    imported: bool = True
    sizes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    at_first: tuple[str, ...] = ()
    shapes: Callable[[Any, str | None], bool] = unshaped
