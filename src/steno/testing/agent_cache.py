"""Runs of agents for tests: recorded once, then read from a folder of recordings.

An entry is a folder `<prompt>-<key>/<agent version>/<repetition>` with the report, the recordings
of all attempts, and the files that the agent changed.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..agents import AGENTS
from ..api.run import run
from ..config import load_settings
from ..config.files import list_recordings
from ..errors import StenoError
from ..private_files import temporary_folder
from ..report import TaskReport
from ..runner.program import find_program, version_of

REPORT_NAME = "report.json"
FILES_NAME = "files"
UNKNOWN_VERSION = "unknown"
MAX_RESTORED_BYTES = 32 << 20  # of files that the agent changed
MAX_NAME_CHARS = 40
# The agent did not come to an answer: not a result to keep.
UNRECORDED_VERDICTS = (
    *("not_found", "auth", "billing", "rate_limit", "api", "network"),
    *("interrupted", "killed"),
)
IGNORED_FOLDERS = {".git", "__pycache__"}


class NotRecordedError(StenoError):
    """There is no recording for a prompt, and agents must not be started."""


class AgentCache(Struct, frozen=True):
    """A folder of recorded runs. `is_live`: run agents; `is_refresh`: also for known prompts."""

    folder: Path
    is_live: bool = False
    is_refresh: bool = False

    def run(
        self, prompt: str, cwd: Path, key: "RunKey", budget: float | None, options: dict[str, Any]
    ) -> tuple[TaskReport, bool]:
        """The report of a run in `cwd`, and whether the agent was started for it.

        A recorded run leaves the files in `cwd` as the agent did. `budget` limits its cost.
        """
        version = installed_version(options, cwd)
        entry = None if self.is_refresh else self._find(key, version)
        is_started = entry is None
        if entry is None:
            if not self.is_live and not self.is_refresh:
                raise NotRecordedError(self._miss(key, version))
            limits = {} if budget is None else {"max_cost": budget}
            report = run(prompt, **{"cwd": cwd, **limits, **options})
            if report.verdict in UNRECORDED_VERDICTS:
                return report, is_started
            entry = self._store(key, version or UNKNOWN_VERSION, report, cwd)
        else:
            _restore_files(entry / FILES_NAME, cwd)
        return _load_report(entry), is_started

    def _find(self, key: "RunKey", version: str | None) -> Path | None:
        """The entry of the installed version; if the agent is not installed, the latest entry."""
        if version is not None:
            entry = self._entry(key, version)
            return entry if (entry / REPORT_NAME).is_file() else None
        reports = self._recorded(key)
        return max(reports, key=lambda path: path.stat().st_mtime_ns).parent if reports else None

    def _entry(self, key: "RunKey", version: str) -> Path:
        return self.folder / key.name / version / str(key.repetition)

    def _recorded(self, key: "RunKey") -> list[Path]:
        return list((self.folder / key.name).glob(f"*/{key.repetition}/{REPORT_NAME}"))

    def _miss(self, key: "RunKey", version: str | None) -> str:
        others = sorted(path.parent.parent.name for path in self._recorded(key))
        known = f" with {version}, only with {', '.join(others)}" if others else ""
        return (
            f"no recorded run of this prompt{known} in {self.folder / key.name}; "
            "to run the agent: pytest --steno-live"
        )

    def _store(self, key: "RunKey", version: str, report: TaskReport, cwd: Path) -> Path:
        """Write an entry as a whole: with several workers, another may write the same one."""
        entry = self._entry(key, version)
        entry.parent.mkdir(parents=True, exist_ok=True)
        runs = {attempt.run_id for attempt in report.attempts}
        with temporary_folder(str(self.folder)) as draft_name:
            draft = Path(draft_name, "entry")
            draft.mkdir()
            for path in map(Path, list_recordings()):
                if path.stem in runs:
                    shutil.copyfile(path, draft / path.name)
            _keep_files(report, cwd, draft / FILES_NAME)
            (draft / REPORT_NAME).write_bytes(msgspec.json.format(report.to_json()) + b"\n")
            if entry.exists():
                entry.rename(Path(draft_name, "old"))
            draft.rename(entry)
        return entry


def installed_version(options: Mapping[str, Any], cwd: Path) -> str | None:
    """The version of the agent that would run, from its files; None if it is not installed."""
    given = {name: os.fspath(options[name]) for name in ("agent", "program") if options.get(name)}
    settings = load_settings(given, os.environ, cwd)
    agent = AGENTS.get(settings["agent"])
    if agent is None:
        return UNKNOWN_VERSION  # a replayed recording, or an agent that `run` will not know
    path = find_program(settings["program"] or agent.name, os.environ)
    if path is None:
        return None
    return version_of(path, agent.installation.npm_package) or UNKNOWN_VERSION


# -- keys ----------------------------------------------------------------------------------------


class RunKey(Struct, frozen=True):
    """The name of a recorded run, and which repetition of a test it is for."""

    name: str
    repetition: int


def run_key(
    prompt: str, options: Mapping[str, Any], folder: Path, with_files: bool, repetition: int
) -> RunKey:
    """The key of a prompt with its options; `with_files`: and the files in `folder`."""
    values = {name: _plain(value, str(folder)) for name, value in sorted(options.items())}
    files = _file_hashes(folder) if with_files else []
    text = json.dumps([prompt.replace(str(folder), "."), values, files], sort_keys=True)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    words = re.sub(r"[^a-z0-9]+", "-", prompt.lower())[:MAX_NAME_CHARS].strip("-")
    return RunKey(f"{words or 'prompt'}-{digest}", repetition)


def _plain(value: Any, folder: str) -> Any:
    """A value as JSON; a path below the test's temporary folder is the same in every session."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item, folder) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, folder) for item in value]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value).replace(folder, ".")


def _file_hashes(folder: Path) -> list[list[str]]:
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - IGNORED_FOLDERS)
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file():
                digest = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
                found.append([str(path.relative_to(folder)), digest])
    return found


# -- files ---------------------------------------------------------------------------------------


def _keep_files(report: TaskReport, cwd: Path, target: Path) -> None:
    """Keep the files that the agent wrote below its folder; StenoError if they are too large."""
    size = 0
    for file in report.files:
        source = cwd / file.path
        is_kept = (
            file.inside and source.is_file() and source.resolve().is_relative_to(cwd.resolve())
        )
        if not is_kept:
            continue
        size += source.stat().st_size
        if size > MAX_RESTORED_BYTES:
            raise StenoError(f"the agent wrote more than {MAX_RESTORED_BYTES >> 20} MB of files")
        copy = target / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def _restore_files(source: Path, cwd: Path) -> None:
    """Write the kept files; those that the agent deleted are in the report."""
    report = _load_report(source.parent)
    for file in report.files:
        if file.inside and file.change == "deleted":
            (cwd / file.path).unlink(missing_ok=True)
    if source.is_dir():
        shutil.copytree(source, cwd, dirs_exist_ok=True)


def _load_report(entry: Path) -> TaskReport:
    path = entry / REPORT_NAME
    try:
        report = msgspec.json.decode(path.read_bytes(), type=TaskReport)
    except (OSError, msgspec.MsgspecError) as error:
        raise StenoError(f"{path}: not a recorded run ({error}); delete its folder") from None
    recording = entry / f"{report.run_id}.steno"
    return msgspec.structs.replace(report, source=str(recording) if recording.exists() else None)
