"""From what was asked for to a task that can be started: every check that must be made before anything is written.

What is wrong with the asking raises StenoError. What stands against the start itself, a missing program or a budget that
is used up, is a report with a verdict, like any other end. It starts no agent.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from .. import agents
from ..agents import Agent, Ask, Backend
from ..environment import surround
from ..process.child import NOT_FOUND, NOT_STARTED
from ..report import StenoError, TaskReport, Verdict
from ..settings import BY_NAME, Settings, load, meant
from ..supervise.decide import Policy
from ..supervise.place import run_id
from ..supervise.values import Budget, Clocks, Setup, Stand
from . import known, models, serving, worktree
from .fits import Fits
from .others import Others
from .shape import schema

CALL = (
    "session_id",
    "resume",
    "fork",
    "continue_",
    "cwd",
    "worktree",
    "tape",
    "speed",
    "args",
)  # what is asked this once, and never set
TEXTS = {"session_id": str, "resume": str, "cwd": str | os.PathLike, "tape": str | os.PathLike}
MODELS = ("model", "fallback_model")
NANO = 1e9
EXAMPLE = "123e4567-e89b-42d3-a456-426614174000"


class Prepared(Struct):
    """A task that can be started, or the report that says why it cannot. `notes` are for people."""

    setup: Setup
    settings: Settings
    refusal: TaskReport | None = None
    notes: list[str] = []


def prepared(prompt: Any, given: Mapping[str, Any], spell: Callable[[str], str] = str) -> Prepared:
    """Check all that was asked for. `given` are options by name; `spell` says how the asker calls them."""
    if not isinstance(prompt, str):
        raise StenoError(f"the prompt: expected a text, found {prompt!r}")
    for name in given:
        meant(name, [*BY_NAME, *CALL], f"no option is called {spell(name)}", spell)
    wanted = Wanted(prompt, given, spell)
    refusal = wanted.not_found() or wanted.spent()
    if refusal is None:
        wanted.branch_off()
        wanted.ask_server()
    return Prepared(wanted.setup(), wanted.settings, refusal, wanted.notes)


class Wanted:
    """What was asked for, checked step by step."""

    def __init__(self, prompt: str, given: Mapping[str, Any], spell: Callable[[str], str]) -> None:
        self.prompt, self.notes, self._spell = prompt, list[str](), spell
        self._given = {name for name, value in given.items() if value not in (None, False)}
        self._call = {name: given.get(name) for name in CALL}
        self._check_call()
        self.cwd = self._folder()
        own = {name: value for name, value in given.items() if name in BY_NAME}
        self.settings = load(own, os.environ, Path(self.cwd), spell, agents.unknown)
        self._replays = self.settings["agent"] == agents.REPLAY
        found = agents.named(self.settings["agent"], (agents.REPLAY,)) if not self._replays else None
        self.agent: Agent = found if found is not None else agents.CLAUDE
        fits = Fits(self.settings, self._given, spell, self.notes.append)
        self._fits, self._others = fits, Others(self.settings, fits, os.environ, _found)
        self._stand_by: tuple[Stand, ...] = ()
        self._absent: str | None = None
        self.task = run_id()
        self._models = {name: models.meant(self.agent, self.settings.values[name], self.settings) for name in MODELS}
        self._backend = self._server()
        self._cost: float | None = self.settings["max_cost"]
        self._program: str | None = None
        self._check()

    def _folder(self) -> str:
        given = self._call["cwd"]
        path = Path(given).expanduser().absolute() if given is not None else Path.cwd()
        if not path.is_dir():
            raise StenoError(f"{self._spell('cwd')} {given}: this is not a folder")
        folder = os.path.normpath(path)
        if not _is_text(folder):
            raise StenoError(f"{folder!r}: the name of this folder is not UTF-8: it could not be written down where it ran")
        return folder

    def _server(self) -> Backend | None:
        """The model server that was chosen. A recording that is played asks none."""
        given, where = self.settings["backend"], self.settings.source("backend")
        if self._replays and "backend" in self._given:
            raise StenoError(f"{where} {given}: a recording that is played asks no model")
        own = None if self._replays else given
        return serving.chosen(own, where, self.agent, self._models["model"], os.environ, self._spell)

    # -- wrong use -------------------------------------------------------------------------------------------------

    def _check_call(self) -> None:
        """What is asked this once: an empty text is a variable that a script forgot to set, and is not passed over."""
        for name, kinds in TEXTS.items():
            given = self._call[name]
            if given is not None and (not isinstance(given, kinds) or not str(given).strip()):
                raise StenoError(f"{self._spell(name)}: expected a text that is not empty, found {given!r}")
        extra, speed = self._call["args"], self._call["speed"]
        if extra is not None and (not isinstance(extra, list | tuple) or not all(isinstance(word, str) for word in extra)):
            raise StenoError(f"{self._spell('args')}: expected a list of words")
        if speed is not None and (isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 <= speed < float("inf")):
            raise StenoError(f"{self._spell('speed')} {speed}: expected a number that is not below 0")

    def _check(self) -> None:
        if not self.prompt.strip():
            raise StenoError("the prompt is empty")
        if not _is_text(self.prompt):
            raise StenoError("the prompt holds halves of letters (lone surrogates): it cannot be written as UTF-8")
        self._check_session()
        self._check_files()
        name = self._call["worktree"]
        if name is not None and not isinstance(name, str | bool):
            raise StenoError(f"{self._spell('worktree')}: expected a name, or True, found {name!r}")
        if isinstance(name, str) and name:
            worktree.check(name)
        if self.settings["on_limit"] == "fallback" and not (self.settings["fallback_model"] or self.settings["fallback_agent"]):
            needed = f"{self._spell('fallback_model')} NAME, or an agent: {self._spell('fallback_agent')} NAME"
            raise StenoError(f"{self._spell('on_limit')} fallback needs a model: {needed}")
        self._check_words()

    def _check_words(self) -> None:
        """What an agent has no words for cannot be asked of it, nor of one that may take over."""
        self._schema = schema(self.settings["json_schema"], self.settings.source("json_schema"))
        others = self._others.named(self.agent, self._replays)
        ask = self._ask()
        self._fits.check(self.agent, ask)
        self._check_tape()
        self._stand_by = self._others.stand_by(others, ask, self.notes.append)

    def _check_tape(self) -> None:
        """The agent `replay` plays a tape, and no other one does."""
        agent, tape, speed = self._spell("agent"), self._spell("tape"), self._call["speed"]
        if self._replays and not self._call["tape"]:
            raise StenoError(f"{agent} {agents.REPLAY} needs a tape to play: {tape} FILE")
        if not self._replays and (self._call["tape"] or speed is not None):
            raise StenoError(f"{tape if self._call['tape'] else self._spell('speed')} is for {agent} {agents.REPLAY}")

    def _check_session(self) -> None:
        """R5: one way to choose a session, and never two."""
        call, spell = self._call, self._spell
        ways = [spell(name) for name in ("session_id", "resume", "continue_") if call[name]]
        if len(ways) > 1:
            raise StenoError(f"{' and '.join(ways)} cannot be used together: each says which session it is")
        if call["fork"] and not call["resume"]:
            raise StenoError(f"{spell('fork')} needs {spell('resume')}: it goes on in a copy of that session")
        if call["session_id"] and "session_id" not in self.agent.cannot and not self.agent.is_session(call["session_id"]):
            told = f"expected an id that {self.agent.name} takes, such as {EXAMPLE}"
            raise StenoError(f"{spell('session_id')} {call['session_id']}: {told}")
        if call["resume"]:
            earlier = known.session(self.agent, call["resume"], self.settings["ledger"], spell("resume"))
            call["resume"] = earlier.id
            self._follow(earlier.folder)

    def _follow(self, folder: str | None) -> None:
        """A session that was named by its run goes on in its own folder: the agent finds it nowhere else."""
        if folder is not None and self._call["cwd"] is None and folder != self.cwd and Path(folder).is_dir():
            self.notes.append(f"the session belongs to {folder}: going on there")
            self.cwd = folder

    def _check_files(self) -> None:
        for name, right, what in (("add_dir", Path.is_dir, "folder"), ("mcp_config", Path.is_file, "file")):
            for text in self._paths(name):
                if not text.startswith("{") and not right(Path(text)):
                    raise StenoError(f"{self.settings.source(name)} {text}: there is no such {what}")

    def _paths(self, name: str) -> tuple[str, ...]:
        """The paths of a setting, from where they were given; JSON in place of a path stays."""
        given = [text.lstrip() for text in self.settings[name]]
        return tuple(text if text.startswith("{") else str(Path(text).expanduser().absolute()) for text in given)

    # -- what stands against the start -----------------------------------------------------------------------------

    def not_found(self) -> TaskReport | None:
        """The agent must be installed (A3)."""
        if self._replays:
            return None
        name = self.settings["program"] or self.agent.name
        own = surround(os.environ, self.agent.surroundings, keys=not self.settings["no_api_key"], more=self.settings["env"])
        self._program = _found(name, own)
        if self._program is not None:
            return None
        what, hint, code = _hindered(name, f"to install {self.agent.name}: {self.agent.install or 'see where it comes from'}")
        if self._stand_by:
            self._absent = f"{name} {what}"
            self.notes.append(f"{self._absent}; {hint}")
            return None
        report = self._refused("not_found" if code == NOT_FOUND else "subprocess", f"{name} {what}", hint)
        report.exit_code = None if code == NOT_FOUND else code
        return report

    def spent(self) -> TaskReport | None:
        """R9: what the ledger's budgets leave is the most that the task may cost. What costs nothing needs none."""
        if self._backend is not None and self._backend.local:
            return None
        budget = known.left(self.settings["ledger"], self.cwd, self.notes.append)
        if budget is None:
            return None
        rest, whose = (budget.limit_nano - budget.spent_nano) / NANO, f"a {budget.period}"
        whose += f" for {budget.project}" if budget.project else ""
        if rest <= 0:
            what = f"the budget of ${budget.limit_nano / NANO:,.2f} {whose} is used up: ${budget.spent_nano / NANO:,.2f} is spent"
            return self._refused("max_budget", what, f"raise it: steno budget set {budget.period} AMOUNT")
        if self._cost is None or rest < self._cost:
            self._cost = rest
            self.notes.append(f"at most ${rest:,.2f} is left of the budget for {whose}")
        return None

    def _refused(self, verdict: Verdict, error: str, hint: str) -> TaskReport:
        return TaskReport(agent=self.agent.name, cwd=self.cwd, verdict=verdict, error=error, hint=hint)

    def branch_off(self) -> None:
        """Where it was asked for: a worktree of its own."""
        name = self._call["worktree"]
        if name is None or name is False:
            return
        found = worktree.worktree(self.cwd, name if isinstance(name, str) and name else self.task)
        self.cwd = found.cwd
        self.notes.append(f"{'new worktree' if found.new else 'worktree'} {found.path} (branch {found.branch})")

    def ask_server(self) -> None:
        """What the model server tells of its model, where there is one."""
        model = self._models["model"]
        if self._backend is not None and model is not None:
            self._backend, note = serving.asked(self._backend, model)
            self.notes += [] if note is None else [note]

    # -- the task --------------------------------------------------------------------------------------------------

    def setup(self) -> Setup:
        """All of it, as a task is given it."""
        return Setup(
            ask=self._ask(),
            agent=agents.REPLAY if self._replays else self.agent.name,
            tape=None if self._call["tape"] is None else os.fspath(self._call["tape"]),
            speed=1.0 if self._call["speed"] is None else self._call["speed"],
            program=self._program,
            absent=self._absent,
            stand_by=self._stand_by,
            task=self.task,
            cwd=self.cwd,
            env=self.settings["env"],
            keys=not self.settings["no_api_key"],
            clocks=self._clocks(),
            policy=self._policy(),
            budget=Budget(cost=self._cost, tokens=self.settings["max_tokens"], warn_at=self.settings["warn_at"]),
            advise=not self.settings["no_advice"],
            changes="none" if self._replays else self.settings["changes"],  # a recording changes no file
            ledger=self.settings["ledger"],
        )

    def _ask(self) -> Ask:
        names = ("max_turns", "permission_mode", "allow", "deny", "system_prompt", "steer")
        call = self._call
        return Ask(
            prompt=self.prompt,
            session_id=call["session_id"],
            resume=call["resume"],
            fork=bool(call["fork"]),
            continue_=bool(call["continue_"]),
            add_dirs=self._paths("add_dir"),
            mcp_config=self._paths("mcp_config"),
            max_cost=self._cost,
            backend=self._backend,
            extra=tuple(call["args"] or ()),
            json_schema=self._schema,
            model=self._models["model"],
            fallback_model=self._models["fallback_model"],
            **{name: self.settings[name] for name in names},
        )

    def _clocks(self) -> Clocks:
        names = ("first_output", "silence", "after_result", "background", "timeout")
        return Clocks(tool=self.settings["tool_silence"], **{name: self.settings[name] for name in names})

    def _policy(self) -> Policy:
        names = ("attempts", "resume_on", "on_limit", "refresh_at")
        return Policy(fallback_model=self._models["fallback_model"], **{name: self.settings[name] for name in names})


def _is_text(text: str) -> bool:
    """Whether it can be written down: what came as bytes that are no letters cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _hindered(program: str, install: str) -> tuple[str, str, int]:
    """Why a program cannot be started: what is wrong with it, what to do, and the code that a shell has for it."""
    path = Path(program).expanduser()
    if os.sep not in program:
        return "is not there in PATH", install, NOT_FOUND
    if path.is_dir():
        return "is a folder", "give the program itself", NOT_STARTED
    if path.exists():
        return "cannot be executed", f"to make it a program: chmod +x {quote(str(path))}", NOT_STARTED
    return "is not there", install, NOT_FOUND


def _found(program: str, environ: Mapping[str, str]) -> str | None:
    """The whole path of a program, a word being looked for in the child's PATH; None if it is not there."""
    path = Path(program).expanduser() if os.sep in program else program
    found = shutil.which(path, path=environ.get("PATH", os.defpath))
    return None if found is None else str(Path(found).absolute())
