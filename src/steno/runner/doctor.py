"""Checks of this machine: installed agents, what they can do, credentials, the ledger."""

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct

from .. import agents, pricing
from ..agents import (
    AGENTS,
    Agent,
    Backend,
    Capabilities,
    LaunchOptions,
    ProgramInfo,
    unknown_agent_message,
)
from ..agents.base import (
    NEWEST_PROGRAM,
    OPTION_FIELDS,
    accepted_options,
    build_environment,
    can_resume,
    option_support,
)
from ..config import MODEL_SIZES, Settings, SettingValue, load_settings
from ..errors import LedgerError, StenoError
from ..executables import find_executable
from ..installation import package_command
from ..ledger.queries.runs import recent_unknown_events
from ..ledger.store import (
    Store,
    default_ledger_path,
    ledger_exists,
    ledger_url,
    open_ledger,
    schema_version,
)
from ..process.child import RunOnce
from .backend_probe import choose_backend
from .program import find_program, inspect_program, version_of
from .setup import FallbackAgent

VERSION_TIMEOUT_SECONDS = 10.0  # for `--version`; known agents need up to 2 s
_PRINTED_VERSION = re.compile(r"\d+(?:\.\d+)+")


class TranscriptFolder(Struct, frozen=True):
    """A folder with an agent's transcripts."""

    path: str
    exists: bool
    readable: bool


class AgentInstallation(Struct, frozen=True):
    """One agent on this machine. `path` is None if it is not installed.

    `known` compares its version with the tested ones. `options` says who implements each option of
    a run: `agent`, `steno`, or `no` (refused).
    """

    agent: str
    path: str | None
    version: str | None
    known: str
    tested: tuple[str, ...]
    abilities: Capabilities
    cannot: tuple[str, ...]
    backends: tuple[str, ...]
    options: dict[str, str]
    sign_in: tuple[str, ...]
    folders: tuple[TranscriptFolder, ...]
    install: str


def inspect_agent(
    agent: Agent, environment: Mapping[str, str], program: str | None = None
) -> AgentInstallation:
    """Inspect one agent. `program` is its name or path, if it differs from the agent's name."""
    home = environment.get("HOME") or str(Path.home())
    path = find_executable(program or agent.name, environment.get("PATH"))
    version = None
    known = "absent"
    if path is not None:
        package = agent.installation.npm_package
        version = version_of(path, package) or _version_from_program(path)
        known = version_status(version, agent.installation.tested_versions)
    return AgentInstallation(
        agent=agent.name,
        path=path,
        version=version,
        known=known,
        tested=agent.installation.tested_versions,
        abilities=agent.capabilities,
        cannot=agent.launch.unsupported_options,
        backends=agent.launch.backends,
        options={option: option_support(agent, option) for option in OPTION_FIELDS},
        sign_in=_sign_in_sources(agent, environment, home),
        folders=tuple(
            _inspect_folder(folder) for folder in agent.transcripts.folders(environment, home)
        ),
        install=agent.installation.command,
    )


def inspect_all_agents(environment: Mapping[str, str]) -> list[AgentInstallation]:
    """Inspect every known agent."""
    return [inspect_agent(agent, environment) for agent in AGENTS.values()]


def _version_from_program(path: str) -> str | None:
    command = RunOnce((path, "--version"), os.sep, {"LC_ALL": "C"}, VERSION_TIMEOUT_SECONDS)
    code, out, _ = command.run()
    match = _PRINTED_VERSION.search(out.decode("utf-8", "replace")) if code == 0 else None
    return match[0] if match is not None else None


def version_status(version: str | None, tested: tuple[str, ...]) -> str:
    """tested, between (two tested versions), newer, older, or unknown."""
    if version is None or not tested:
        return "unknown"
    if version in tested:
        return "tested"
    numbers = _version_numbers(version)
    tested_numbers = sorted(_version_numbers(other) for other in tested)
    if numbers > tested_numbers[-1]:
        return "newer"
    return "older" if numbers < tested_numbers[0] else "between"


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def _sign_in_sources(agent: Agent, environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """API key variables that are set, and credential files that exist."""
    keys = [name for name in agent.launch.env_policy.api_key_names if environment.get(name)]
    files = [
        f"~/{name}" for name in agent.installation.credential_files if (Path(home) / name).exists()
    ]
    return (*keys, *files)


def _inspect_folder(path: str) -> TranscriptFolder:
    return TranscriptFolder(path, Path(path).is_dir(), os.access(path, os.R_OK | os.X_OK))


class SizedModel(Struct, frozen=True):
    """The model of one size, and the source of that name. None if there is none."""

    size: str
    model: str | None
    source: str


def sized_models(agent: Agent, settings: Settings) -> list[SizedModel]:
    """The agent's model of each size: from a settings file, else the built-in one."""
    built_in = dict(zip(MODEL_SIZES, agent.launch.models_by_size, strict=False))
    configured = settings.models_by_size.get(agent.name, {})
    return [
        SizedModel(size, *configured.get(size, (built_in.get(size), "default")))
        for size in MODEL_SIZES
    ]


def resolve_model(agent: Agent, setting: SettingValue, settings: Settings) -> str | None:
    """The model's name. StenoError for a size without a model."""
    size = setting.value
    if size not in MODEL_SIZES:
        return size  # type: ignore[no-any-return]  # a setting of type text: str or None
    models = {entry.size: entry.model for entry in sized_models(agent, settings)}
    model = models[size]
    if model is None:
        raise StenoError(
            f"{setting.source} {size}: no {size} model known for {agent.name}; "
            f'set it in steno.toml: [models.{agent.name}] {size} = "..."'
        )
    return model


class CapabilityCheck(Struct, frozen=True):
    """Checks whether an agent supports the requested options."""

    settings: Settings
    given_names: Collection[str]
    option_label: Callable[[str], str]
    add_note: Callable[[str], None]

    def check(self, agent: Agent, options: LaunchOptions) -> None:
        """StenoError for an option that neither the agent nor steno implements."""
        defaults = LaunchOptions()
        is_resumed = options.resume is not None or options.continue_
        for option, field in OPTION_FIELDS.items():
            if getattr(options, field) == getattr(defaults, field):
                continue
            if self._is_unsupported(agent, option):
                self.refuse_or_note(option, f"not supported by {agent.name}")
            elif is_resumed and field in agent.launch.new_session_options:
                self.refuse_or_note(
                    option, f"{agent.name} cannot change it when resuming a session"
                )

        for field in agent.launch.single_value_options:
            count = len(getattr(options, field))
            if count > 1:
                option = next(name for name, own in OPTION_FIELDS.items() if own == field)
                source = self.settings.source(option)
                raise StenoError(f"{source}: {agent.name} accepts only one, found {count}")

        mode = options.permission_mode
        modes = agent.launch.permission_modes
        if mode is not None and modes and mode not in modes:
            raise StenoError(
                f"{self.settings.source('permission_mode')} {mode}: "
                f"not a mode of {agent.name}; known: {', '.join(sorted(set(modes)))}"
            )

        # Budgets need usage figures, in the stream or in a session file.
        limits = [name for name in ("max_cost", "max_tokens") if self.settings[name] is not None]
        if limits and not agent.capabilities.context and agent.transcripts.pattern is None:
            sources = " and ".join(self.settings.source(name) for name in limits)
            self.add_note(
                f"{sources}: enforced between attempts only; "
                f"{agent.name} reports its usage at the end of a run"
            )

    def check_program(
        self, agent: Agent, options: LaunchOptions, program: str, info: ProgramInfo
    ) -> None:
        """StenoError for an option that this version of the agent's program lacks."""
        defaults = LaunchOptions()
        for option, field in OPTION_FIELDS.items():
            if getattr(options, field) == getattr(defaults, field):
                continue
            if option_support(agent, option) == "agent" and self._is_unsupported(
                agent, option, info
            ):
                version = f"{agent.name} {info.version or f'at {program}'}"
                name = agent.launch.option_names[field]
                self.refuse_or_note(option, f"not supported by {version}, which has no {name}")
        accepted = accepted_options(agent, options, info)
        command = agent.launch.build_command(accepted, program, info)
        for note in command.notes:
            self.add_note(note)
        if options.resume is not None and not can_resume(agent, options.resume, program, info):
            self.refuse_or_note("resume", f"{agent.name} cannot resume a session")
        if options.continue_:
            new = msgspec.structs.replace(accepted, continue_=False)
            if command == agent.launch.build_command(new, program, info):
                self.refuse_or_note("continue_", f"{agent.name} cannot resume a session")

    def _is_unsupported(
        self, agent: Agent, option: str, info: ProgramInfo = NEWEST_PROGRAM
    ) -> bool:
        support = option_support(agent, option, info)
        if option == "fallback_model" and self.settings["on_limit"] != "fallback":
            return support != "agent"  # for the agent's own fallback
        return support == "no"

    def refuse_or_note(self, option: str, reason: str) -> None:
        if option in self.given_names:
            raise StenoError(f"{self.option_label(option)}: {reason}")
        self.add_note(f"{self.settings.source(option)}: {option} ignored: {reason}")


class FallbackBuilder:
    """Prepares the fallback agents. StenoError for unknown or repeated names."""

    def __init__(
        self, settings: Settings, capability_check: CapabilityCheck, first: Agent, is_replay: bool
    ) -> None:
        self._settings = settings
        self._capability_check = capability_check
        self._agents: list[Agent] = []
        source = settings.source("fallback_agent")
        if is_replay:
            raise StenoError(
                f"{source}: the agent {agents.REPLAY_AGENT_NAME} takes no fallback agents"
            )
        for name in settings["fallback_agent"]:
            try:
                agent = agents.get_agent(name)
            except StenoError as error:
                raise StenoError(f"{source}: {error}") from None
            if agent is None or agent in (first, *self._agents):
                raise StenoError(f"{source} {name}: agent listed twice")
            self._agents.append(agent)

    def build(
        self, options: LaunchOptions, add_note: Callable[[str], None]
    ) -> tuple[FallbackAgent, ...]:
        """The installed fallback agents with their options."""
        ready = []
        for agent in self._agents:
            own = self._settings.for_fallback_agent(agent.name)
            own_options = self._fallback_options(agent, own, options)
            self._capability_check.check(agent, own_options)
            if options.extra:
                add_note(
                    f"agent arguments ({options.extra[0]} ...) are not passed to the fallback "
                    f"agent {agent.name}"
                )
            program = own["program"].value or agent.name
            env = build_environment(
                os.environ,
                agent.launch.env_policy,
                include_api_keys=not self._settings["no_api_key"],
                extra=self._settings["env"],
            )
            path = find_program(program, env)
            if path is None:
                add_note(
                    f"fallback agent ignored: {program} not found; "
                    f"install: {agent.installation.command}"
                )
            else:
                info = inspect_program(agent, path, os.environ, self._settings["env"])
                self._capability_check.check_program(agent, own_options, path, info)
                ready.append(
                    FallbackAgent(agent=agent.name, program=path, launch_options=own_options)
                )
        return tuple(ready)

    def _fallback_options(
        self, agent: Agent, own: Mapping[str, SettingValue], options: LaunchOptions
    ) -> LaunchOptions:
        model = resolve_model(agent, own["model"], self._settings)
        return msgspec.structs.replace(
            options,
            model=model,
            session_id=None,
            resume=None,
            fork=False,
            continue_=False,
            extra=(),
            fallback_model=None,
            backend=self._choose_backend(agent, own["backend"], model),
        )

    def _choose_backend(
        self, agent: Agent, setting: SettingValue, model: str | None
    ) -> Backend | None:
        """The fallback agent's model server. It is not probed in advance."""
        if setting.value is None:
            return None
        return choose_backend(
            setting.value,
            setting.source,
            agent,
            model,
            os.environ,
            lambda name: f"[agents.{agent.name}] {name} =",
        )


MIN_FREE_BYTES = 1 << 30  # a week of recordings and a large import need some hundred megabytes
RECENT_RUNS = 50  # runs whose unknown events are counted: enough to notice a new agent version
MAX_PRICE_AGE_DAYS = 180  # prices change a few times a year


class Finding(Struct, frozen=True):
    """The finding of a check. `level` is ok, note or problem; all but ok come with a remedy."""

    check: str
    level: str
    what: str
    remedy: str | None = None


class CheckContext(Struct):
    """Input of the checks. `settings` is set by the first one."""

    environment: Mapping[str, str]
    cwd: Path
    today: date
    ledger: str | None = None
    settings: Settings | None = None


Check = Callable[[CheckContext], Iterator[Finding]]


def run_checks(context: CheckContext) -> list[Finding]:
    """All findings, in the order of the checks."""
    return [finding for check in CHECKS for finding in check(context)]


# -- settings and agents ---------------------------------------------------------------------------


def check_settings(context: CheckContext) -> Iterator[Finding]:
    """Settings files are valid."""
    try:
        context.settings = load_settings(
            {}, context.environment, context.cwd, check_agent=unknown_agent_message
        )
    except StenoError as error:
        yield Finding("settings", "problem", str(error), "fix that file, or remove the setting")
        return
    yield Finding("settings", "ok", "valid")


def check_agents(context: CheckContext) -> Iterator[Finding]:
    """The default agent is installed; the others are optional."""
    default = context.settings["agent"] if context.settings is not None else "claude"
    program = context.settings["program"] if context.settings is not None else None
    for name, agent in AGENTS.items():
        is_default = name == default
        installation = inspect_agent(agent, context.environment, program if is_default else None)
        yield from _check_program(installation, is_default)
        yield from _check_transcript_folders(installation)
    for name, problem in AGENTS.problems.items():
        check = name.partition(".")[0]
        yield Finding(check, "problem", problem, "fix or uninstall the package that provides it")


def _check_program(installation: AgentInstallation, is_default: bool) -> Iterator[Finding]:
    agent = installation.agent
    if installation.path is None:
        text = "not installed; it is the default agent" if is_default else "not installed"
        level = "problem" if is_default else "note"
        yield Finding(agent, level, text, installation.install)
        return
    program = f"{installation.version or 'unknown version'} at {installation.path}"
    if installation.known in ("tested", "between"):
        yield Finding(agent, "ok", program)
    else:
        tested = installation.tested
        versions = f"tested: {tested[0]} to {tested[-1]}" if tested else "no tested version"
        remedy = "events of unknown kinds are possible: check `lines.unknown`, upgrade steno"
        yield Finding(agent, "note", f"{program}; {versions}", remedy)
    if installation.sign_in:
        yield Finding(agent, "ok", f"credentials: {', '.join(installation.sign_in)}")
    else:
        remedy = f"run {agent} once and sign in, or set its API key"
        yield Finding(agent, "note", "no credentials found", remedy)


def _check_transcript_folders(installation: AgentInstallation) -> Iterator[Finding]:
    for folder in installation.folders:
        if folder.exists and not folder.readable:
            what = f"cannot read transcripts: {folder.path}"
            remedy = f"make it readable: chmod u+rx {folder.path}"
            yield Finding(installation.agent, "problem", what, remedy)
        elif folder.exists:
            yield Finding(installation.agent, "ok", f"transcripts in {folder.path}")


# -- steno itself ----------------------------------------------------------------------------------


def check_ledger(context: CheckContext) -> Iterator[Finding]:
    """The ledger can be opened by this version, and its last runs have no unknown events."""
    location = ledger_url(context.ledger, context.environment)
    if not ledger_exists(location):
        what = f"not created yet: {location}"
        yield Finding("ledger", "note", what, "create it with steno ledger import or steno run")
        return
    try:
        store = open_ledger(location, read_only=True)
    except LedgerError as error:
        remedy = "use another one with --ledger, or recreate it: steno ledger rebuild"
        yield Finding("ledger", "problem", str(error), remedy)
        return
    try:
        is_file = "://" not in location
        size = f", {Path(location).stat().st_size / 1e6:,.1f} MB" if is_file else ""
        what = f"{store.name}: schema version {schema_version(store)}{size}"
        yield Finding("ledger", "ok", what)
        yield from _check_unknown_events(store)
    except LedgerError as error:
        yield Finding("ledger", "problem", str(error), "recreate it: steno ledger rebuild")
    finally:
        store.close()


def _check_unknown_events(store: Store) -> Iterator[Finding]:
    rows = recent_unknown_events(store, RECENT_RUNS)
    counts_by_agent: dict[str, list[int]] = {}
    latest_run: dict[str, str] = {}
    for agent, version, count, run in rows:
        if count:
            name = f"{agent or 'unknown'} {version or ''}".strip()
            counts_by_agent.setdefault(name, []).append(count)
            latest_run.setdefault(name, run)
    if not counts_by_agent:
        text = f"no unknown events in the last {len(rows)} runs" if rows else "no runs yet"
        yield Finding("events", "ok", text)
    for name, counts in counts_by_agent.items():
        what = (
            f"{name}: {sum(counts):,} events of unknown kinds "
            f"in {len(counts)} of the last {len(rows)} runs"
        )
        remedy = f"show them: steno show {latest_run[name]} --events; try a newer steno"
        yield Finding("events", "note", what, remedy)


def check_prices(context: CheckContext) -> Iterator[Finding]:
    """The price table is recent."""
    user_price_count = 0
    try:
        user_price_count = len(pricing.user_prices())
    except StenoError as error:
        yield Finding("prices", "problem", str(error), "fix that file")
    version, newest = pricing.price_table_info(context.today)
    own = f", {user_price_count} user-defined" if user_price_count else ""
    what = f"genai-prices {version}{own}"
    if newest is not None:
        what += f"; last change {newest}"
    age = (context.today - newest).days if newest is not None else 0
    if age > MAX_PRICE_AGE_DAYS:
        remedy = package_command("--upgrade", "genai-prices")
        yield Finding("prices", "note", f"{what}, {age} days ago", remedy)
    else:
        yield Finding("prices", "ok", what)


def check_disk(context: CheckContext) -> Iterator[Finding]:
    """The data folder is writable and has free space."""
    data_folder = default_ledger_path().parent
    folder = data_folder
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    what = f"{free / 1e9:,.1f} GB free at {folder}"
    other_folder = "set XDG_DATA_HOME to a writable folder"
    if not folder.is_dir():
        what = f"{data_folder}: cannot be created: {folder} is not a folder"
        yield Finding("disk", "problem", what, other_folder)
    elif free < MIN_FREE_BYTES:
        yield Finding(
            "disk", "problem", what, "free space, or delete old details: steno ledger prune"
        )
    elif not os.access(folder, os.W_OK):
        yield Finding("disk", "problem", f"{folder}: not writable", other_folder)
    else:
        yield Finding("disk", "ok", what)


CHECKS: tuple[Check, ...] = (check_settings, check_agents, check_ledger, check_prices, check_disk)
