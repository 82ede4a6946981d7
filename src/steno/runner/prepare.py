"""A git worktree for a run, beside its repository: what the agent changes there touches nobody else's files.

It makes one, or finds the one of that name again; it never removes one. Not below `.git`: agents do not write there unasked.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from .. import agents
from ..agents import Agent, Backend, LaunchOptions
from ..agents.base import build_environment
from ..config import SETTINGS_BY_NAME, Settings, load_settings, require_known_name
from ..config.data_dir import new_run_id
from ..errors import StenoError
from ..event import NANO_PER_USD
from ..process.child import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from ..process.run_once import RunOnce
from ..report import TaskReport, Verdict
from . import backend_probe as serving
from . import capability_check as models
from . import ledger_lookup as known
from .capability_check import CapabilityCheck, FallbackBuilder
from .json_schema import load_json_schema
from .retry_policy import RetryPolicy
from .setup import FallbackAgent, RunBudget, TaskSetup, Timeouts

_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Worktree(Struct, frozen=True):
    """Where it is, the folder to run in, its branch, and whether it is new."""

    path: str
    cwd: str
    branch: str
    is_new: bool


def check_worktree_name(name: str) -> None:
    """StenoError if this cannot be the name of a worktree."""
    if not _NAME_PATTERN.fullmatch(name) or name.endswith((".", ".lock")) or ".." in name:
        raise StenoError(
            f"--worktree={name}: expected a name of letters, digits, dots, dashes and underscores"
        )


def ensure_worktree(cwd: str, name: str) -> Worktree:
    """The worktree of that name for the repository that `cwd` lies in."""
    top, inside = (
        _git_output(cwd, "rev-parse", "--show-toplevel"),
        _git_output(cwd, "rev-parse", "--show-prefix"),
    )
    main = Path(_git_output(cwd, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    root = (
        main.parent if main.name == ".git" else Path(top)
    )  # worktrees of a worktree stand beside the first
    path, branch = root.with_name(f"{root.name}-worktrees") / name, f"steno/{name}"
    new = not (path / ".git").exists()
    if new:
        known = _run_git(cwd, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}")[0] == 0
        _git_output(
            cwd,
            "worktree",
            "add",
            "--quiet",
            *((str(path), branch) if known else ("-b", branch, str(path))),
        )
    within = path / inside
    return Worktree(str(path), str(within if within.is_dir() else path), branch, new)


def _git_output(cwd: str, *words: str) -> str:
    code, out, err = _run_git(cwd, *words)
    if code != 0:
        told = err.strip().splitlines()[-1:] or [f"git {words[0]} failed with exit code {code}"]
        raise StenoError(f"--worktree: {cwd}: {told[0].removeprefix('fatal: ')}")
    return os.fsdecode(out).strip()


def _run_git(cwd: str, *words: str) -> tuple[int, bytes, str]:
    return RunOnce(("git", *words), cwd, {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}).run()


RUN_ONLY_OPTIONS = (
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
TEXT_OPTION_TYPES = {
    "session_id": str,
    "resume": str,
    "cwd": str | os.PathLike,
    "tape": str | os.PathLike,
}
MODEL_OPTIONS = ("model", "fallback_model")
EXAMPLE_SESSION_ID = "123e4567-e89b-42d3-a456-426614174000"


class PreparedTask(Struct):
    """A task that can be started, or the report that says why it cannot. `notes` are for people."""

    setup: TaskSetup
    settings: Settings
    refusal: TaskReport | None = None
    notes: list[str] = []


def prepare_task(
    prompt: Any, given: Mapping[str, Any], spell: Callable[[str], str] = str
) -> PreparedTask:
    """Check all that was asked for. `given` are options by name; `spell` says how the asker calls them."""
    if not isinstance(prompt, str):
        raise StenoError(f"the prompt: expected a text, found {prompt!r}")
    for name in given:
        require_known_name(
            name,
            [*SETTINGS_BY_NAME, *RUN_ONLY_OPTIONS],
            f"no option is called {spell(name)}",
            spell,
        )
    wanted = TaskSetupBuilder(prompt, given, spell)
    refusal = wanted.check_program() or wanted.check_budgets()
    if refusal is None:
        wanted.create_worktree()
        wanted.probe_backend()
    return PreparedTask(wanted.build(), wanted.settings, refusal, wanted.notes)


class TaskSetupBuilder:
    """What was asked for, checked step by step."""

    def __init__(self, prompt: str, given: Mapping[str, Any], spell: Callable[[str], str]) -> None:
        self.prompt, self.notes, self._option_label = prompt, list[str](), spell
        self._given_names = {name for name, value in given.items() if value not in (None, False)}
        self._run_only_options = {name: given.get(name) for name in RUN_ONLY_OPTIONS}
        self._check_run_only_options()
        self.cwd = self._resolve_cwd()
        own = {name: value for name, value in given.items() if name in SETTINGS_BY_NAME}
        self.settings = load_settings(
            own, os.environ, Path(self.cwd), spell, agents.unknown_agent_message
        )
        self._is_replay = self.settings["agent"] == agents.REPLAY_AGENT_NAME
        found = (
            agents.get_agent(self.settings["agent"], (agents.REPLAY_AGENT_NAME,))
            if not self._is_replay
            else None
        )
        self.agent: Agent = found if found is not None else agents.CLAUDE
        fits = CapabilityCheck(self.settings, self._given_names, spell, self.notes.append)
        self._capability_check, self._fallback_builder = (
            fits,
            FallbackBuilder(self.settings, fits, os.environ, _find_program),
        )
        self._fallback_agents: tuple[FallbackAgent, ...] = ()
        self._not_found_reason: str | None = None
        self.task_id = new_run_id()
        self._models = {
            name: models.resolve_model(self.agent, self.settings.values[name], self.settings)
            for name in MODEL_OPTIONS
        }
        self._backend = self._choose_backend()
        self._max_cost: float | None = self.settings["max_cost"]
        self._program_path: str | None = None
        self._check_all()

    def _resolve_cwd(self) -> str:
        given = self._run_only_options["cwd"]
        path = Path(given).expanduser().absolute() if given is not None else Path.cwd()
        if not path.is_dir():
            raise StenoError(f"{self._option_label('cwd')} {given}: this is not a folder")
        folder = os.path.normpath(path)
        if not _is_utf8_encodable(folder):
            raise StenoError(
                f"{folder!r}: the name of this folder is not UTF-8: it could not be written down where it ran"
            )
        return folder

    def _choose_backend(self) -> Backend | None:
        """The model server that was chosen. A recording that is played asks none."""
        given, where = self.settings["backend"], self.settings.source("backend")
        if self._is_replay and "backend" in self._given_names:
            raise StenoError(f"{where} {given}: a recording that is played asks no model")
        own = None if self._is_replay else given
        return serving.choose_backend(
            own, where, self.agent, self._models["model"], os.environ, self._option_label
        )

    # -- wrong use -------------------------------------------------------------------------------------------------

    def _check_run_only_options(self) -> None:
        """What is asked this once: an empty text is a variable that a script forgot to set, and is not passed over."""
        for name, kinds in TEXT_OPTION_TYPES.items():
            given = self._run_only_options[name]
            if given is not None and (not isinstance(given, kinds) or not str(given).strip()):
                raise StenoError(
                    f"{self._option_label(name)}: expected a text that is not empty, found {given!r}"
                )
        extra, speed = self._run_only_options["args"], self._run_only_options["speed"]
        if extra is not None and (
            not isinstance(extra, list | tuple) or not all(isinstance(word, str) for word in extra)
        ):
            raise StenoError(f"{self._option_label('args')}: expected a list of words")
        if speed is not None and (
            isinstance(speed, bool)
            or not isinstance(speed, int | float)
            or not 0 <= speed < float("inf")
        ):
            raise StenoError(
                f"{self._option_label('speed')} {speed}: expected a number that is not below 0"
            )

    def _check_all(self) -> None:
        if not self.prompt.strip():
            raise StenoError("the prompt is empty")
        if not _is_utf8_encodable(self.prompt):
            raise StenoError(
                "the prompt holds halves of letters (lone surrogates): it cannot be written as UTF-8"
            )
        self._check_session()
        self._check_files()
        name = self._run_only_options["worktree"]
        if name is not None and not isinstance(name, str | bool):
            raise StenoError(
                f"{self._option_label('worktree')}: expected a name, or True, found {name!r}"
            )
        if isinstance(name, str) and name:
            check_worktree_name(name)
        if self.settings["on_limit"] == "fallback" and not (
            self.settings["fallback_model"] or self.settings["fallback_agent"]
        ):
            needed = f"{self._option_label('fallback_model')} NAME, or an agent: {self._option_label('fallback_agent')} NAME"
            raise StenoError(f"{self._option_label('on_limit')} fallback needs a model: {needed}")
        self._check_capabilities()

    def _check_capabilities(self) -> None:
        """What an agent has no words for cannot be asked of it, nor of one that may take over."""
        self._json_schema = load_json_schema(
            self.settings["json_schema"], self.settings.source("json_schema")
        )
        others = self._fallback_builder.resolve_agents(self.agent, self._is_replay)
        ask = self._launch_options()
        self._capability_check.check(self.agent, ask)
        self._check_replay()
        self._fallback_agents = self._fallback_builder.build(others, ask, self.notes.append)

    def _check_replay(self) -> None:
        """The agent `replay` plays a tape, and no other one does."""
        agent, tape, speed = (
            self._option_label("agent"),
            self._option_label("tape"),
            self._run_only_options["speed"],
        )
        if self._is_replay and not self._run_only_options["tape"]:
            raise StenoError(
                f"{agent} {agents.REPLAY_AGENT_NAME} needs a tape to play: {tape} FILE"
            )
        if not self._is_replay and (self._run_only_options["tape"] or speed is not None):
            raise StenoError(
                f"{tape if self._run_only_options['tape'] else self._option_label('speed')} is for {agent} {agents.REPLAY_AGENT_NAME}"
            )

    def _check_session(self) -> None:
        """R5: one way to choose a session, and never two."""
        call, spell = self._run_only_options, self._option_label
        ways = [spell(name) for name in ("session_id", "resume", "continue_") if call[name]]
        if len(ways) > 1:
            raise StenoError(
                f"{' and '.join(ways)} cannot be used together: each says which session it is"
            )
        if call["fork"] and not call["resume"]:
            raise StenoError(
                f"{spell('fork')} needs {spell('resume')}: it goes on in a copy of that session"
            )
        if (
            call["session_id"]
            and "session_id" not in self.agent.launch.unsupported_options
            and not self.agent.is_session_id(call["session_id"])
        ):
            told = f"expected an id that {self.agent.name} takes, such as {EXAMPLE_SESSION_ID}"
            raise StenoError(f"{spell('session_id')} {call['session_id']}: {told}")
        if call["resume"]:
            earlier = known.resolve_session(
                self.agent, call["resume"], self.settings["ledger"], spell("resume")
            )
            call["resume"] = earlier.id
            self._move_to_session_folder(earlier.folder)

    def _move_to_session_folder(self, folder: str | None) -> None:
        """A session that was named by its run goes on in its own folder: the agent finds it nowhere else."""
        if (
            folder is not None
            and self._run_only_options["cwd"] is None
            and folder != self.cwd
            and Path(folder).is_dir()
        ):
            self.notes.append(f"the session belongs to {folder}: going on there")
            self.cwd = folder

    def _check_files(self) -> None:
        for name, right, what in (
            ("add_dir", Path.is_dir, "folder"),
            ("mcp_config", Path.is_file, "file"),
        ):
            for text in self._absolute_paths(name):
                if not text.startswith("{") and not right(Path(text)):
                    raise StenoError(
                        f"{self.settings.source(name)} {text}: there is no such {what}"
                    )

    def _absolute_paths(self, name: str) -> tuple[str, ...]:
        """The paths of a setting, from where they were given; JSON in place of a path stays."""
        given = [text.lstrip() for text in self.settings[name]]
        return tuple(
            text if text.startswith("{") else str(Path(text).expanduser().absolute())
            for text in given
        )

    # -- what stands against the start -----------------------------------------------------------------------------

    def check_program(self) -> TaskReport | None:
        """The agent must be installed (A3)."""
        if self._is_replay:
            return None
        name = self.settings["program"] or self.agent.name
        own = build_environment(
            os.environ,
            self.agent.launch.env_policy,
            include_api_keys=not self.settings["no_api_key"],
            extra=self.settings["env"],
        )
        self._program_path = _find_program(name, own)
        if self._program_path is not None:
            return None
        what, hint, code = _explain_missing_program(
            name,
            f"to install {self.agent.name}: {self.agent.installation.command or 'see where it comes from'}",
        )
        if self._fallback_agents:
            self._not_found_reason = f"{name} {what}"
            self.notes.append(f"{self._not_found_reason}; {hint}")
            return None
        report = self._refusal(
            "not_found" if code == EXIT_NOT_FOUND else "subprocess", f"{name} {what}", hint
        )
        report.exit_code = None if code == EXIT_NOT_FOUND else code
        return report

    def check_budgets(self) -> TaskReport | None:
        """R9: what the ledger's budgets leave is the most that the task may cost. What costs nothing needs none."""
        if self._backend is not None and self._backend.is_local:
            return None
        budget = known.tightest_budget(self.settings["ledger"], self.cwd, self.notes.append)
        if budget is None:
            return None
        rest, whose = (budget.limit_nano - budget.spent_nano) / NANO_PER_USD, f"a {budget.period}"
        whose += f" for {budget.project}" if budget.project else ""
        if rest <= 0:
            what = f"the budget of ${budget.limit_nano / NANO_PER_USD:,.2f} {whose} is used up: ${budget.spent_nano / NANO_PER_USD:,.2f} is spent"
            return self._refusal(
                "max_budget", what, f"raise it: steno budget set {budget.period} AMOUNT"
            )
        if self._max_cost is None or rest < self._max_cost:
            self._max_cost = rest
            self.notes.append(f"at most ${rest:,.2f} is left of the budget for {whose}")
        return None

    def _refusal(self, verdict: Verdict, error: str, hint: str) -> TaskReport:
        return TaskReport(
            agent=self.agent.name, cwd=self.cwd, verdict=verdict, error=error, hint=hint
        )

    def create_worktree(self) -> None:
        """Where it was asked for: a worktree of its own."""
        name = self._run_only_options["worktree"]
        if name is None or name is False:
            return
        found = ensure_worktree(self.cwd, name if isinstance(name, str) and name else self.task_id)
        self.cwd = found.cwd
        self.notes.append(
            f"{'new worktree' if found.is_new else 'worktree'} {found.path} (branch {found.branch})"
        )

    def probe_backend(self) -> None:
        """What the model server tells of its model, where there is one."""
        model = self._models["model"]
        if self._backend is not None and model is not None:
            self._backend, note = serving.probe_backend(self._backend, model)
            self.notes += [] if note is None else [note]

    # -- the task --------------------------------------------------------------------------------------------------

    def build(self) -> TaskSetup:
        """All of it, as a task is given it."""
        return TaskSetup(
            launch_options=self._launch_options(),
            agent=agents.REPLAY_AGENT_NAME if self._is_replay else self.agent.name,
            replay_path=None
            if self._run_only_options["tape"] is None
            else os.fspath(self._run_only_options["tape"]),
            replay_speed=1.0
            if self._run_only_options["speed"] is None
            else self._run_only_options["speed"],
            program=self._program_path,
            not_found_reason=self._not_found_reason,
            fallback_agents=self._fallback_agents,
            task_id=self.task_id,
            cwd=self.cwd,
            extra_env=self.settings["env"],
            pass_api_keys=not self.settings["no_api_key"],
            timeouts=self._timeouts(),
            policy=self._retry_policy(),
            budget=RunBudget(
                cost=self._max_cost,
                tokens=self.settings["max_tokens"],
                warn_at=self.settings["warn_at"],
            ),
            use_heuristics=not self.settings["no_advice"],
            changes="none"
            if self._is_replay
            else self.settings["changes"],  # a recording changes no file
            ledger=self.settings["ledger"],
        )

    def _launch_options(self) -> LaunchOptions:
        names = ("max_turns", "permission_mode", "allow", "deny", "system_prompt", "steer")
        call = self._run_only_options
        return LaunchOptions(
            prompt=self.prompt,
            session_id=call["session_id"],
            resume=call["resume"],
            fork=bool(call["fork"]),
            continue_=bool(call["continue_"]),
            add_dirs=self._absolute_paths("add_dir"),
            mcp_config=self._absolute_paths("mcp_config"),
            max_cost=self._max_cost,
            backend=self._backend,
            extra=tuple(call["args"] or ()),
            json_schema=self._json_schema,
            model=self._models["model"],
            fallback_model=self._models["fallback_model"],
            **{name: self.settings[name] for name in names},
        )

    def _timeouts(self) -> Timeouts:
        names = ("first_output", "silence", "after_result", "background", "timeout")
        return Timeouts(
            tool_silence=self.settings["tool_silence"],
            **{name: self.settings[name] for name in names},
        )

    def _retry_policy(self) -> RetryPolicy:
        names = ("attempts", "resume_on", "on_limit", "refresh_at")
        return RetryPolicy(
            fallback_model=self._models["fallback_model"],
            **{name: self.settings[name] for name in names},
        )


def _is_utf8_encodable(text: str) -> bool:
    """Whether it can be written down: what came as bytes that are no letters cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _explain_missing_program(program: str, install: str) -> tuple[str, str, int]:
    """Why a program cannot be started: what is wrong with it, what to do, and the code that a shell has for it."""
    path = Path(program).expanduser()
    if os.sep not in program:
        return "is not there in PATH", install, EXIT_NOT_FOUND
    if path.is_dir():
        return "is a folder", "give the program itself", EXIT_NOT_EXECUTABLE
    if path.exists():
        return (
            "cannot be executed",
            f"to make it a program: chmod +x {quote(str(path))}",
            EXIT_NOT_EXECUTABLE,
        )
    return "is not there", install, EXIT_NOT_FOUND


def _find_program(program: str, environ: Mapping[str, str]) -> str | None:
    """The whole path of a program, a word being looked for in the child's PATH; None if it is not there."""
    path = Path(program).expanduser() if os.sep in program else program
    found = shutil.which(path, path=environ.get("PATH", os.defpath))
    return None if found is None else str(Path(found).absolute())
