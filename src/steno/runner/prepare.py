"""Prepare a task: check options and settings, find the program, apply budgets, create a worktree.

A worktree lives beside its repository, since agents don't write below `.git` without permission. It
is created or reused, and removed only with `steno repeat --remove-worktrees`.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct

from .. import agents
from ..agents import Backend, LaunchOptions
from ..agents.base import EXAMPLE_SESSION_ID, PermissionRelay, build_environment
from ..analysis.context import UNKNOWN_CONTEXT
from ..analysis.facts import Judgement
from ..config import SETTINGS_BY_NAME, Settings, load_settings, require_known_name
from ..config.files import new_run_id
from ..config.values import deadline_at, turn_limits
from ..errors import StenoError
from ..executables import own_command
from ..installation import extra_command
from ..ledger.store import ledger_location
from ..process.child import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from ..report import TaskReport, Verdict
from ..units import NANO_PER_USD
from ..workspace.git import add_worktree, has_commit, remove_worktree
from ..workspace.repository import GitError, Repository, open_repository, path_in_repository
from .backend_probe import choose_backend, probe_backend
from .doctor import CapabilityCheck, FallbackBuilder, resolve_model
from .json_schema import load_json_schema
from .ledger_writer import resolve_session, tightest_budget
from .program import find_program, inspect_program
from .retry_policy import RetryPolicy
from .setup import MAX_PERMISSION_SECONDS, FallbackAgent, RunBudget, TaskSetup, Timeouts

_WORKTREE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Worktree(Struct, frozen=True):
    """A git worktree, and the folder in it that corresponds to the current one."""

    path: str
    cwd: str
    branch: str
    is_new: bool


def check_worktree_name(name: str) -> None:
    """StenoError if this is no valid name of a worktree."""
    if not _WORKTREE_NAME.fullmatch(name) or name.endswith((".", ".lock")) or ".." in name:
        raise StenoError(
            f"--worktree={name}: expected a name of letters, digits, dots, dashes and underscores"
        )


def ensure_worktree(cwd: str, name: str, commit: str | None = None) -> Worktree:
    """The worktree of that name for the repository of `cwd`, created at `commit` or HEAD."""
    with open_repository(cwd) as repository:
        if repository is None:
            raise StenoError(f"--worktree: {cwd}: not a git repository, or not yours")
        path = _worktree_path(repository, name)
        is_new = not (path / ".git").exists()
        if is_new:
            try:
                add_worktree(repository, path, f"steno/{name}", commit or "HEAD")
            except (GitError, OSError) as error:
                if commit is not None and not has_commit(repository, commit):
                    raise StenoError(f"commit {commit}: not found in {cwd}") from None
                raise StenoError(f"--worktree: {cwd}: {error}") from None
        inner = path / path_in_repository(cwd)
    return Worktree(str(path), str(inner if inner.is_dir() else path), f"steno/{name}", is_new)


def discard_worktree(cwd: str, name: str) -> None:
    """Delete the worktree of that name with its branch and everything in it."""
    with open_repository(cwd) as repository:
        if repository is not None:
            remove_worktree(repository, _worktree_path(repository, name), f"steno/{name}")


def _worktree_path(repository: Repository, name: str) -> Path:
    # Inside a worktree: use the main repository, so that all worktrees are siblings.
    common = repository.common_dir
    root = common.parent if common.name == ".git" else repository.top
    return root.with_name(f"{root.name}-worktrees") / name


# Options of one run that cannot be set in a file.
RUN_ONLY_OPTIONS = (
    "session_id",
    "resume",
    "fork",
    "continue_",
    "cwd",
    "worktree",
    "recording",
    "speed",
    "args",
)
TEXT_OPTION_TYPES = {
    "session_id": str,
    "resume": str,
    "cwd": str | os.PathLike,
    "recording": str | os.PathLike,
}
# Of recorded and queued tasks of earlier versions, and of programs that were written for them.
FORMER_OPTION_NAMES = {"tape": "recording", "add_dir": "add_dirs"}
MODEL_OPTIONS = ("model", "fallback_model")


class PreparedTask(Struct):
    """A task ready to start, or a report that says why it can't. `notes` are for people."""

    setup: TaskSetup
    settings: Settings
    refusal: TaskReport | None = None
    notes: list[str] = []


def prepare_task(
    prompt: Any, options: Mapping[str, Any], option_label: Callable[[str], str] = str
) -> PreparedTask:
    """Check prompt and options. `option_label` gives an option's name in messages."""
    if not isinstance(prompt, str):
        raise StenoError(f"prompt: expected a string, found {prompt!r}")
    options = {FORMER_OPTION_NAMES.get(name, name): value for name, value in options.items()}
    for name in options:
        require_known_name(
            name,
            [*SETTINGS_BY_NAME, *RUN_ONLY_OPTIONS],
            f"unknown option {option_label(name)}",
            option_label,
        )
    builder = TaskSetupBuilder(prompt, options, option_label)
    refusal = builder.check_program() or builder.check_budgets()
    if refusal is None:
        builder.prepare_worktree_and_backend()
    return PreparedTask(builder.build(), builder.settings, refusal, builder.notes)


class TaskSetupBuilder:
    """Checks the options step by step, and builds the setup."""

    def __init__(
        self, prompt: str, options: Mapping[str, Any], option_label: Callable[[str], str]
    ) -> None:
        self.prompt = prompt
        self.notes: list[str] = []
        self._option_label = option_label
        self._given_names = {name for name, value in options.items() if value not in (None, False)}
        self._run_only_options = {name: options.get(name) for name in RUN_ONLY_OPTIONS}
        self._check_run_only_options()
        self.cwd = self._resolve_cwd()
        own = {name: value for name, value in options.items() if name in SETTINGS_BY_NAME}
        self.settings = load_settings(
            own, os.environ, Path(self.cwd), option_label, agents.unknown_agent_message
        )
        self.notes += self.settings.notes
        self._deadline: float | None = None
        if self.settings["deadline"] is not None:
            self._deadline = self._resolve_deadline(self.settings["deadline"])
        self._is_replay = self.settings["agent"] == agents.REPLAY_AGENT_NAME
        self.agent = agents.CLAUDE
        if not self._is_replay:
            given = agents.get_agent(self.settings["agent"], (agents.REPLAY_AGENT_NAME,))
            self.agent = given or agents.CLAUDE
        self._fallback_agents: tuple[FallbackAgent, ...] = ()
        self._not_found_reason: str | None = None
        self.task_id = new_run_id()
        self._models = {
            name: resolve_model(self.agent, self.settings.values[name], self.settings)
            for name in MODEL_OPTIONS
        }
        self._backend: Backend | None = None
        if self.settings["backend"] is not None:
            self._backend = self._choose_backend(self.settings["backend"])
        self._max_cost: float | None = self.settings["max_cost"]
        self._program_path: str | None = None
        self._json_schema: str | None = None
        self._paths: dict[str, tuple[str, ...]] = {}
        self._capability_check = CapabilityCheck(
            self.settings, self._given_names, option_label, self.notes.append
        )
        self._check_values()
        self._check_capabilities()

    def _resolve_cwd(self) -> str:
        given = self._run_only_options["cwd"]
        path = Path(given).expanduser().absolute() if given is not None else Path.cwd()
        if not path.is_dir():
            raise StenoError(f"{self._option_label('cwd')} {given}: not a folder")
        folder = os.path.normpath(path)
        if not _is_utf8_encodable(folder):
            raise StenoError(f"{folder!r}: folder names must be valid UTF-8")
        return folder

    def _resolve_deadline(self, value: float | str) -> float:
        now = time.time()
        at = deadline_at(value, now)
        if at <= now:
            raise StenoError(f"{self.settings.source('deadline')} {value}: this time has passed")
        return at

    def _choose_backend(self, backend: str) -> Backend | None:
        source = self.settings.source("backend")
        if self._is_replay and "backend" in self._given_names:
            raise StenoError(f"{source} {backend}: a replay uses no model server")
        if self._is_replay:
            return None
        return choose_backend(
            backend,
            source,
            self.agent,
            self._models["model"],
            os.environ,
            self._option_label,
        )

    # -- wrong use -------------------------------------------------------------------------------

    def _check_run_only_options(self) -> None:
        """Check types. An empty text is an error: probably an unset variable of a script."""
        for name, kinds in TEXT_OPTION_TYPES.items():
            value = self._run_only_options[name]
            if value is not None and (not isinstance(value, kinds) or not str(value).strip()):
                raise StenoError(
                    f"{self._option_label(name)}: expected a non-empty text, found {value!r}"
                )
        extra = self._run_only_options["args"]
        if extra is not None and (
            not isinstance(extra, list | tuple)
            or not all(isinstance(argument, str) for argument in extra)
        ):
            raise StenoError(f"{self._option_label('args')}: expected a list of strings")
        speed = self._run_only_options["speed"]
        if speed is not None and (
            isinstance(speed, bool)
            or not isinstance(speed, int | float)
            or not 0 <= speed < float("inf")
        ):
            raise StenoError(f"{self._option_label('speed')} {speed}: expected a number >= 0")

    def _check_values(self) -> None:
        if not self.prompt.strip():
            raise StenoError("the prompt is empty; give a task to work on")
        if not _is_utf8_encodable(self.prompt):
            raise StenoError("the prompt contains unpaired surrogates")
        self._check_session()
        for name, exists, kind in (
            ("add_dirs", Path.is_dir, "folder"),
            ("mcp_config", Path.is_file, "file"),
        ):
            # JSON in place of a path stays.
            values = [value.lstrip() for value in self.settings[name]]
            self._paths[name] = tuple(
                value if value.startswith("{") else str(Path(value).expanduser().absolute())
                for value in values
            )
            for path in self._paths[name]:
                if not path.startswith("{") and not exists(Path(path)):
                    raise StenoError(f"{self.settings.source(name)} {path}: {kind} not found")
        worktree = self._run_only_options["worktree"]
        if worktree is not None and not isinstance(worktree, str | bool):
            raise StenoError(
                f"{self._option_label('worktree')}: expected a name or True, found {worktree!r}"
            )
        if isinstance(worktree, str) and worktree:
            check_worktree_name(worktree)
        settings = self.settings
        has_fallback = settings["fallback_model"] or settings["fallback_agent"]
        if settings["on_limit"] == "fallback" and not has_fallback:
            label = self._option_label
            raise StenoError(
                f"{label('on_limit')} fallback needs {label('fallback_model')} NAME "
                f"or {label('fallback_agent')} NAME"
            )

    def _check_capabilities(self) -> None:
        """Check that the agent, and each fallback agent, supports the options."""
        settings = self.settings
        if settings["json_schema"] is not None:
            self._json_schema = load_json_schema(
                settings["json_schema"], settings.source("json_schema")
            )
        fallback_builder: FallbackBuilder | None = None
        if settings["fallback_agent"]:
            fallback_builder = FallbackBuilder(
                settings, self._capability_check, self.agent, self._is_replay
            )
        options = self._launch_options()
        self._capability_check.check(self.agent, options)
        if settings["permission_relay"]:
            self._check_permission_relay()

        # The agent `replay` needs a recording; other agents take none.
        replay = f"{self._option_label('agent')} {agents.REPLAY_AGENT_NAME}"
        recording = self._run_only_options["recording"]
        if self._is_replay and not recording:
            raise StenoError(f"{replay} needs a recording: {self._option_label('recording')} FILE")
        if not self._is_replay and (recording or self._run_only_options["speed"] is not None):
            option = self._option_label("recording" if recording else "speed")
            raise StenoError(f"{option} needs {replay}")

        if fallback_builder is not None:
            self._fallback_agents = fallback_builder.build(options, self.notes.append)

    def _check_permission_relay(self) -> None:
        source = self.settings.source("permission_relay")
        names = (self.settings["agent"], *self.settings["fallback_agent"])
        for name in names:
            agent = None if self._is_replay else agents.get_agent(name)
            if agent is None or not agent.launch.relays_permissions:
                self._capability_check.refuse_or_note(
                    "permission_relay", f"not supported by {name}"
                )
        if find_spec("mcp") is None:
            raise StenoError(f"{source} needs the package mcp: {extra_command('mcp')}")

    def _permission_relay(self) -> PermissionRelay | None:
        if not self.settings["permission_relay"]:
            return None
        timeout = min(self.settings["permission_timeout"] or inf, MAX_PERMISSION_SECONDS)
        command = own_command("mcp", "--permission-timeout", f"{timeout:g}")
        return PermissionRelay("steno", tuple(command), timeout)

    def _extra_env(self) -> dict[str, str]:
        """The variables for the agent; with a relay, also where its MCP server finds the ledger."""
        env: dict[str, str] = self.settings["env"]
        location = self.settings["ledger"]
        if not self.settings["permission_relay"] or location is None:
            return env
        url = location if "://" in location else ledger_location(location)
        return {"STENO_LEDGER": url, **env}

    def _check_session(self) -> None:
        """Allow one way to choose a session, and resolve the one to resume."""
        options = self._run_only_options
        label = self._option_label
        chosen = [label(name) for name in ("session_id", "resume", "continue_") if options[name]]
        if len(chosen) > 1:
            raise StenoError(f"{' and '.join(chosen)} cannot be combined: choose one session")
        if options["fork"] and not options["resume"]:
            raise StenoError(f"{label('fork')} needs {label('resume')}: it copies that session")
        session_id = options["session_id"]
        if (
            session_id
            and "session_id" not in self.agent.launch.unsupported_options
            and not self.agent.is_session_id(session_id)
        ):
            raise StenoError(
                f"{label('session_id')} {session_id}: not a session id of {self.agent.name}; "
                f"expected for example {EXAMPLE_SESSION_ID}"
            )
        if options["resume"]:
            session = resolve_session(
                self.agent, options["resume"], self.settings["ledger"], label("resume")
            )
            options["resume"] = session.id
            self._move_to_session_folder(session.folder)

    def _move_to_session_folder(self, folder: str | None) -> None:
        """Resume a session in its own folder: the agent finds it only there."""
        if (
            folder is not None
            and self._run_only_options["cwd"] is None
            and folder != self.cwd
            and Path(folder).is_dir()
        ):
            self.notes.append(f"resuming in the session's folder: {folder}")
            self.cwd = folder

    # -- refusals --------------------------------------------------------------------------------

    def check_program(self) -> TaskReport | None:
        """Find the agent's program; a report if it is missing and there is no fallback."""
        if self._is_replay:
            return None
        name = self.settings["program"] or self.agent.name
        env = build_environment(
            os.environ,
            self.agent.launch.env_policy,
            include_api_keys=not self.settings["no_api_key"],
            extra=self.settings["env"],
        )
        self._program_path = find_program(name, env)
        if self._program_path is not None:
            info = inspect_program(self.agent, self._program_path, os.environ, self.settings["env"])
            self._capability_check.check_program(
                self.agent, self._launch_options(), self._program_path, info
            )
            return None
        command = self.agent.installation.command
        install = f"install: {command}" if command else f"install {self.agent.name} first"
        error, hint, code = _explain_missing_program(name, install)
        if self._fallback_agents:
            self._not_found_reason = error
            self.notes.append(f"{error}; {hint}")
            return None
        is_missing = code == EXIT_NOT_FOUND
        report = self._refusal("not_found" if is_missing else "subprocess", error, hint)
        report.exit_code = None if is_missing else code
        return report

    def check_budgets(self) -> TaskReport | None:
        """Limit the task's cost to the tightest ledger budget; a report if that is used up."""
        if self._backend is not None and self._backend.is_local:
            return None  # no cost
        budget = tightest_budget(self.settings["ledger"], self.cwd, self.notes.append)
        if budget is None:
            return None
        remaining = (budget.limit_nano - budget.spent_nano) / NANO_PER_USD
        project = f" for {budget.project}" if budget.project else ""
        if remaining <= 0:
            spent = budget.spent_nano / NANO_PER_USD
            limit = budget.limit_nano / NANO_PER_USD
            error = f"budget per {budget.period}{project} used up: ${spent:,.2f} of ${limit:,.2f}"
            hint = f"raise it: steno budget set {budget.period} AMOUNT"
            return self._refusal("max_budget", error, hint)
        if self._max_cost is None or remaining < self._max_cost:
            self._max_cost = remaining
            self.notes.append(f"${remaining:,.2f} left in the budget per {budget.period}{project}")
        return None

    def _refusal(self, verdict: Verdict, error: str, hint: str) -> TaskReport:
        report = TaskReport(
            agent=self.agent.name,
            name=self.settings["name"],
            tags=self.settings["tag"],
            cwd=self.cwd,
            context=UNKNOWN_CONTEXT,
        )
        Judgement(verdict, error, hint).apply_to(report)
        return report

    def prepare_worktree_and_backend(self) -> None:
        """Create or reuse a requested worktree; ask a model server for its context window."""
        name = self._run_only_options["worktree"]
        if name is not None and name is not False:
            worktree = ensure_worktree(self.cwd, self.task_id if name in (True, "") else name)
            self.cwd = worktree.cwd
            kind = "new worktree" if worktree.is_new else "worktree"
            self.notes.append(f"{kind} {worktree.path} (branch {worktree.branch})")
        model = self._models["model"]
        if self._backend is not None and model is not None:
            self._backend, note = probe_backend(self._backend, model)
            if note is not None:
                self.notes.append(note)

    # -- setup -----------------------------------------------------------------------------------

    def build(self) -> TaskSetup:
        """The setup of the task."""
        settings = self.settings
        recording = self._run_only_options["recording"]
        speed = self._run_only_options["speed"]
        return TaskSetup(
            launch_options=self._launch_options(),
            agent=agents.REPLAY_AGENT_NAME if self._is_replay else self.agent.name,
            replay_path=None if recording is None else os.fspath(recording),
            replay_speed=1.0 if speed is None else speed,
            program=self._program_path,
            not_found_reason=self._not_found_reason,
            fallback_agents=self._fallback_agents,
            task_id=self.task_id,
            name=settings["name"],
            tags=settings["tag"],
            cwd=self.cwd,
            extra_env=self._extra_env(),
            pass_api_keys=not settings["no_api_key"],
            timeouts=Timeouts(**{name: settings[name] for name in Timeouts.__struct_fields__}),
            policy=RetryPolicy(
                attempts=settings["attempts"],
                resume_on=settings["resume_on"],
                on_limit=settings["on_limit"],
                refresh_at=settings["refresh_at"],
                fallback_model=self._models["fallback_model"],
                max_wait=settings["max_wait"],
                deadline=self._deadline,
            ),
            budget=RunBudget(
                cost=self._max_cost,
                tokens=settings["max_tokens"],
                turns=turn_limits(settings["max_turns"])[1],
                warn_at=settings["warn_at"],
            ),
            alert_at=settings["alert_at"],
            use_heuristics=not settings["no_advice"],
            changes="none" if self._is_replay else settings["changes"],  # a replay changes nothing
            undo_days=settings["undo_days"],
            undo_runs=settings["undo_runs"],
            ledger=settings["ledger"],
        )

    def _launch_options(self) -> LaunchOptions:
        names = ("permission_mode", "allow", "deny", "system_prompt", "steer")
        options = self._run_only_options
        return LaunchOptions(
            prompt=self.prompt,
            session_id=options["session_id"],
            resume=options["resume"],
            fork=bool(options["fork"]),
            continue_=bool(options["continue_"]),
            add_dirs=self._paths["add_dirs"],
            mcp_config=self._paths["mcp_config"],
            max_turns=turn_limits(self.settings["max_turns"])[0],
            max_cost=self._max_cost,
            backend=self._backend,
            extra=tuple(options["args"] or ()),
            json_schema=self._json_schema,
            permission_relay=self._permission_relay(),
            model=self._models["model"],
            fallback_model=self._models["fallback_model"],
            **{name: self.settings[name] for name in names},
        )


def _is_utf8_encodable(text: str) -> bool:
    """False for undecodable bytes, which Python represents by lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _explain_missing_program(program: str, install: str) -> tuple[str, str, int]:
    """Why a program cannot be started: error, hint, and a shell's exit code for it."""
    if os.sep not in program:
        return f"{program} not found in PATH", install, EXIT_NOT_FOUND
    path = Path(program).expanduser()
    if path.is_dir():
        return f"{program} is a folder", "give the path of the program", EXIT_NOT_EXECUTABLE
    if path.exists():
        hint = f"make it executable: chmod +x {quote(str(path))}"
        return f"{program} is not executable", hint, EXIT_NOT_EXECUTABLE
    return f"{program} not found", f"check the path, or {install}", EXIT_NOT_FOUND
