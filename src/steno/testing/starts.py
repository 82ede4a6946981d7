"""What must hold of the command lines that an agent builds: no shell, no secrets, nothing that was asked left out."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from ..agents.backend import Backend
from ..agents.values import Agent, LaunchCommand, LaunchOptions, default_build_command

PROGRAM = "/opt/some where/program"
PROMPT = "-x; rm -rf \"$HOME\" `id` $(id) 'quoted'\nsecond line \u2028 \U0001f99c"
SECRET = "sk-steno-testing-secret"  # noqa: S105  # opens nothing
SHELLS = ("sh", "bash", "dash", "zsh", "cmd", "cmd.exe", "powershell")
MODEL, SERVER, BACKEND_LABEL = "steno-testing-model", "http://127.0.0.1:9/steno-testing", "the backend"
# What a word of the asking must be found in, for an agent that does not list it in `cannot`.
EXPECTED_VALUES = {
    "model": MODEL,
    "system_prompt": "steno testing: the system prompt",
    "add_dirs": ("/steno testing/folder",),
    "extra": ("--steno-testing", "an argument; of its own"),
}


def start_violations(agent: Agent, sessions: tuple[str, ...] = ()) -> list[str]:
    """What does not hold, a sentence each. An agent that cannot be started has nothing to keep."""
    if agent.build_command is default_build_command:
        return []
    return list(_find_violations(agent, sessions))


def _find_violations(agent: Agent, sessions: tuple[str, ...]) -> Iterator[str]:
    strange = [name for name in agent.unsupported_options if name not in LaunchOptions.__struct_fields__]
    if strange:
        yield f"`cannot` names what nobody asks: {', '.join(strange)}"
    asks = {"a prompt": LaunchOptions(prompt=PROMPT)}
    asks |= {
        name: msgspec.structs.replace(LaunchOptions(prompt=PROMPT), **{name: value}) for name, value in EXPECTED_VALUES.items() if _supports(agent, name)
    }
    if sessions and agent.capabilities.resume:
        asks["resume"] = LaunchOptions(prompt=PROMPT, resume=sessions[0])
        yield from (f"is_session does not know {session!r}, which it returned itself" for session in _unknown_sessions(agent, sessions))
    for kind in agent.backends:
        asks[f"{BACKEND_LABEL} {kind}"] = LaunchOptions(prompt=PROMPT, model=MODEL, backend=Backend(kind=kind, url=SERVER, key=SECRET))
    for what, ask in asks.items():
        with _secrets_in_environment(agent):
            try:
                start = agent.build_command(ask, PROGRAM, None)
                again = agent.build_command(ask, PROGRAM, None)
            except Exception as problem:
                yield f"start raised {type(problem).__name__} for {what}: {problem}"
                continue
        yield from (f"for {what}: {wrong}" for wrong in _argv_violations(start, ask))
        if start != again:
            yield f"for {what}: two starts of the same differ: it must depend on what is asked alone"
        yield from _missing_values(start, what, ask)


def _supports(agent: Agent, name: str) -> bool:
    return name not in agent.unsupported_options


def _unknown_sessions(agent: Agent, sessions: tuple[str, ...]) -> list[str]:
    return [session for session in sessions if not agent.is_session_id(session)]


def _argv_violations(start: LaunchCommand, ask: LaunchOptions) -> Iterator[str]:
    words = start.argv
    if not isinstance(words, tuple) or not words or not all(isinstance(word, str) for word in words):
        yield f"argv must be a tuple of words, found {words!r}"
        return
    if words[0] != PROGRAM:
        yield f"argv must begin with the program that it was given, found {words[0]!r}"
    if any(os.path.basename(word) in SHELLS for word in words[:3]) and "-c" in words:  # noqa: PTH119
        yield f"it is started by a shell: {words!r}"
    if any("\x00" in word for word in words):
        yield "a word of argv holds a NUL: no system starts that"
    if start.stdout not in ("pipe", "file"):
        yield f"stdout goes to 'pipe' or 'file', not to {start.stdout!r}"
    if SECRET in " ".join(words):
        yield "a key from the environment is in argv, where every user of the machine can read it"
    if PROMPT.encode() not in (start.stdin or b"") and PROMPT not in words and not _has_prompt_as_json(start.stdin or b""):
        yield "the prompt is neither on stdin nor one whole word of argv"


def _has_prompt_as_json(stdin: bytes) -> bool:
    """Whether the prompt stands in JSON on stdin."""
    return msgspec.json.encode(PROMPT)[1:-1] in stdin


def _missing_values(start: LaunchCommand, what: str, ask: LaunchOptions) -> Iterator[str]:
    wanted = EXPECTED_VALUES.get(what, ask.resume if what == "resume" else ())
    if what.startswith(BACKEND_LABEL):
        wanted = (MODEL, SERVER)
        if not any(SECRET in value for _, value in start.env):
            yield f"{what}: its key is not in the start's `env`"
    said = "\n".join((*start.argv, (start.stdin or b"").decode("utf-8", "replace"), *(value for _, value in start.env)))
    for word in (wanted,) if isinstance(wanted, str) else wanted or ():
        if word not in said and msgspec.json.encode(word).decode()[1:-1] not in said:
            yield f"{what} was asked for and is nowhere in the start; what it has no words for belongs into `cannot`"


@contextmanager
def _secrets_in_environment(agent: Agent) -> Iterator[None]:
    """The agent's keys in the environment, where `start` must not look for them."""
    before = {name: os.environ.get(name) for name in agent.env_policy.api_key_names}
    os.environ.update(dict.fromkeys(before, SECRET))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
