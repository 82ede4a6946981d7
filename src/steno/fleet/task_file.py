"""Read a file of tasks: JSONL, CSV or TOML. All of it is checked before anything is queued.

An error names the file, the line and the field, and the nearest known name.
"""

import csv
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..agents import REPLAY_AGENT_NAME, get_agent, unknown_agent_message
from ..config import FORMER_SETTING_NAMES, SETTINGS_BY_NAME, require_known_name
from ..config.files import toml_error_message
from ..errors import StenoError
from ..runner.handover import open_replay
from ..runner.prepare import TaskSetupBuilder, check_worktree_name
from .spec import TaskSpec
from .template import check_placeholders, fill_in

MAX_FILE_BYTES = 256 << 20
MAX_SUGGESTED_NAMES = 2000  # compared with a misspelt one
SECRET_FIELDS = ("env", "backend")  # values that messages don't show
# Settings that a task cannot have: they belong to the command.
COMMAND_SETTINGS = ("ledger", "exit_from", "feed", "quiet", "steer", "name", "tag")
FORMER_FIELDS = {former: name for name, former in FORMER_SETTING_NAMES.items()}
RENAMED_SETTINGS = {"resume_on": "retry"}  # as the option of `steno fleet batch`
SETTING_FIELDS = {
    RENAMED_SETTINGS.get(name, name): name
    for name in SETTINGS_BY_NAME
    if name not in COMMAND_SETTINGS
}
OWN_FIELDS = (
    "prompt",
    "prompt_file",
    "name",
    "cwd",
    "repository",
    "commit",
    "worktree",
    "policy",
    "tags",
    "depends_on",
    "vars",
    "args",
    "recording",
    "speed",
)
FIELDS = (*OWN_FIELDS, *SETTING_FIELDS)
FIELD_NAMES = {name: field for field, name in SETTING_FIELDS.items()}
WORKER_OPTIONS = ("deadline", "backend")  # a started batch may be past it; keys are the worker's
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TOML_TASK = re.compile(r"\s*\[\[\s*task\s*\]\]")
# In a CSV file, a cell of these is JSON, or words with spaces between them.
PATH_LIST_FIELDS = ("add_dirs", "add_dir", "mcp_config")  # a text is one path
LIST_FIELDS = (
    *("depends_on", "args"),
    *(
        field
        for field, name in SETTING_FIELDS.items()
        if isinstance(SETTINGS_BY_NAME[name].default, tuple) and field not in PATH_LIST_FIELDS
    ),
)
TABLE_FIELDS = ("vars", "tags", "env")  # FIELD.NAME is a column too
_WORD = re.compile(r"(?:\((?:[^()]|\([^()]*\))*\)|\S)+")  # Bash(make test) is one


class TaskDefaults(Struct, frozen=True, kw_only=True):
    """What the command line sets for all tasks of a file."""

    cwd: str
    options: dict[str, Any] = {}
    worktree: bool = False
    policy: str | None = None
    tags: dict[str, str] = {}


Table = dict[str, Any]


def read_tasks(path: str, data: bytes, defaults: TaskDefaults) -> list[TaskSpec]:
    """The tasks of a file. StenoError at the first mistake."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise StenoError(f"{path}:{line}: invalid UTF-8") from None
    readers = {
        ".jsonl": _read_jsonl,
        ".ndjson": _read_jsonl,
        ".csv": _read_csv,
        ".toml": _read_toml,
    }
    suffix = Path(path).suffix.lower()
    if suffix not in readers and path != "-":
        raise StenoError(f"{path}: expected a .jsonl, .csv or .toml file")
    reader = TaskReader(path, defaults)
    for line, table in readers.get(suffix, _read_jsonl)(path, text):
        reader.add(line, table)
    return reader.finish()


def single_task(
    prompt: str, name: str, defaults: TaskDefaults, option_label: Callable[[str], str]
) -> TaskSpec:
    """The task of `steno fleet spawn`: nothing in its prompt is a placeholder."""
    _check_name("--name", name)
    _check_prompt("prompt", prompt)
    _check_agent("--agent", defaults.options)
    if defaults.options.get("agent") == REPLAY_AGENT_NAME:
        raise StenoError(f"--agent {REPLAY_AGENT_NAME}: needs a recording; queue it with a batch")
    task = TaskSpec(
        prompt=prompt,
        name=name,
        cwd=defaults.cwd,
        worktree=defaults.worktree,
        policy=defaults.policy,
        tags=defaults.tags,
        options=defaults.options,
        key=_key({"name": name, "prompt": prompt}),
    )
    check_options(task, option_label)
    return task


def task_ids(batch: str, tasks: list[TaskSpec]) -> list[str]:
    """Ids that depend only on the batch and the tasks: the same file gives the same ids."""
    seen: dict[str, int] = {}
    ids = []
    for task in tasks:
        count = seen[task.key] = seen.get(task.key, 0) + 1
        digest = hashlib.sha256(f"{batch} {task.key} {count}".encode())
        ids.append(digest.hexdigest()[:19])
    return ids


# -- formats -------------------------------------------------------------------------------------


def _read_jsonl(path: str, text: str) -> Iterator[tuple[int, Table]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            table = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or "nested too deeply"
            column = getattr(error, "colno", 1)
            raise StenoError(f"{path}:{number}:{column}: invalid JSON: {reason}") from None
        if not isinstance(table, dict):
            raise StenoError(f"{path}:{number}: expected a JSON object, found {line[:60]!r}")
        yield number, table


def _read_csv(path: str, text: str) -> Iterator[tuple[int, Table]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    csv.field_size_limit(MAX_FILE_BYTES)
    header: list[str] = []
    line = 1
    try:
        for row in reader:
            if not header:
                header = [name.strip() for name in row]
                _check_header(path, header)
            elif any(row):
                if len(row) != len(header):
                    raise StenoError(
                        f"{path}:{line}: expected {len(header)} fields, found {len(row)}"
                    )
                yield line, _csv_table(f"{path}:{line}", header, row)
            line = reader.line_num + 1
    except csv.Error as error:
        raise StenoError(f"{path}:{reader.line_num}: invalid CSV: {error}") from None


def _check_header(path: str, header: list[str]) -> None:
    for name in header:
        field, key = _split_column(name)
        if not key:
            _require_field(name, f"{path}:1: unknown column {name!r}")
        elif field in header:
            raise StenoError(f"{path}:1: columns {field!r} and {name!r} cannot be combined")
        if header.count(name) > 1:
            raise StenoError(f"{path}:1: column {name!r} appears twice")


def _split_column(name: str) -> tuple[str, str]:
    """Field and key of a column such as vars.NAME; other columns have no key."""
    field, _, key = name.partition(".")
    return (field, key) if field in TABLE_FIELDS else (name, "")


def _csv_table(place: str, header: list[str], row: list[str]) -> Table:
    """The fields that are not empty; a variable may be."""
    table: Table = {}
    for name, text in zip(header, row, strict=True):
        field, key = _split_column(name)
        if key and (text or field == "vars"):
            table.setdefault(field, {})[key] = text
        elif not key and text:
            table[field] = _csv_value(place, field, text)
    return table


def _csv_value(place: str, field: str, text: str) -> Any:
    """The value of a cell; in one of a list or table, JSON or words with spaces between them."""
    if field == "worktree" and text in ("true", "false"):
        return text == "true"
    if field not in (*LIST_FIELDS, *PATH_LIST_FIELDS, *TABLE_FIELDS):
        return text
    # The configuration of MCP servers is a JSON object as text.
    if text.lstrip().startswith("[" if field in PATH_LIST_FIELDS else ("[", "{")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or "nested too deeply"
            raise StenoError(f"{place}: {field}: invalid JSON: {reason}") from None
    if field in ("allow", "deny"):
        return _WORD.findall(text)
    if field in ("depends_on", "tags"):
        return text.replace(",", " ").split()
    return text.split() if field in (*LIST_FIELDS, "env") else text


def _read_toml(path: str, text: str) -> Iterator[tuple[int, Table]]:
    import tomllib

    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise StenoError(toml_error_message(Path(path), text.encode(), str(error))) from None
    for name in document:
        require_known_name(name, ("task", "defaults"), f"{path}: unknown table [{name}]")
    tables = document.get("task", [])
    defaults = document.get("defaults", {})
    if not isinstance(tables, list) or not isinstance(defaults, dict):
        raise StenoError(f"{path}: expected [[task]] tables and one [defaults] table")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if _TOML_TASK.match(line)]
    for index, table in enumerate(tables):
        line = lines[index] if index < len(lines) else 1
        if not isinstance(table, dict):
            raise StenoError(f"{path}:{line}: expected a [[task]] table")
        yield line, {**defaults, **table}


# -- checks --------------------------------------------------------------------------------------


class TaskReader:
    """Checks tasks one by one, and their dependencies at the end."""

    def __init__(self, path: str, defaults: TaskDefaults) -> None:
        self._path = path
        self._defaults = defaults
        self._folder = Path.cwd() if path == "-" else Path(path).absolute().parent
        self._tasks: dict[str, TaskSpec] = {}
        self._lines: dict[str, int] = {}
        self._policies: set[str] = set()  # files that are valid
        self._recordings: set[str] = set()  # that can be replayed
        self._options_checked: set[str] = set()  # that the agent has

    def add(self, line: int, table: Table) -> None:
        """Add one task. StenoError if it is invalid."""
        place = f"{self._path}:{line}"
        for name in table:
            _require_field(name, f"{place}: unknown field {name!r}")
        table = {
            FORMER_FIELDS.get(name, name): value
            for name, value in table.items()
            if value is not None
        }
        name = self._name(place, line, table)
        variables = _text_table(place, "vars", table.get("vars", {}))
        needs = _names(place, table.get("depends_on", []))
        prompt = self._prompt(place, table)
        try:
            check_placeholders(prompt, variables, needs)
        except StenoError as error:
            raise StenoError(f"{place}: prompt: {error}") from None
        self._tasks[name] = TaskSpec(
            # The worker fills in variables and results at once: what it puts in is final.
            prompt=prompt if needs else fill_in(prompt, variables),
            name=name,
            cwd=self._folder_of(place, "cwd", table.get("cwd"), self._defaults.cwd),
            repository=self._repository(place, table),
            commit=_text(place, "commit", table.get("commit")),
            worktree=self._worktree(place, table),
            policy=self._policy(place, table),
            tags={**self._defaults.tags, **_tags(place, table.get("tags", {}))},
            depends_on=needs,
            vars=variables,
            options=self._options(place, table),
            key=_key({**table, "name": name, "prompt": prompt}),
        )
        self._check_options(place, self._tasks[name])
        self._lines[name] = line

    def finish(self) -> list[TaskSpec]:
        """All tasks, with dependencies that exist and have no cycle."""
        if not self._tasks:
            raise StenoError(f"{self._path}: no tasks")
        for name, task in self._tasks.items():
            place = f"{self._path}:{self._lines[name]}: depends_on"
            for need in task.depends_on:
                if need == name:
                    raise StenoError(f"{place}: {name!r} depends on itself")
                if need not in self._tasks:
                    known = list(self._tasks)[:MAX_SUGGESTED_NAMES]
                    require_known_name(need, known, f"{place}: no task named {need!r}")
        self._check_cycles()
        return list(self._tasks.values())

    def _check_cycles(self) -> None:
        done: set[str] = set()
        for start in self._tasks:
            path: list[str] = []
            stack = [(start, iter(self._tasks[start].depends_on))]
            while stack and start not in done:
                name, needs = stack[-1]
                if name not in path:
                    path.append(name)
                need = next((need for need in needs if need not in done), None)
                if need is None:
                    done.add(name)
                    path.pop()
                    stack.pop()
                elif need in path:
                    cycle = " -> ".join([*path[path.index(need) :], need])
                    place = f"{self._path}:{self._lines[name]}"
                    raise StenoError(f"{place}: depends_on: cycle: {cycle}")
                else:
                    stack.append((need, iter(self._tasks[need].depends_on)))

    def _check_options(self, place: str, task: TaskSpec) -> None:
        """Refuse what the agent or the replay cannot do; each combination is checked once."""
        key = _key({**task.options, "cwd": task.cwd})
        if key not in self._options_checked:
            try:
                check_options(task, lambda name: FIELD_NAMES.get(name, name))
            except StenoError as error:
                raise StenoError(f"{place}: {error}") from None
            self._options_checked.add(key)

    # -- fields ----------------------------------------------------------------------------------

    def _name(self, place: str, line: int, table: Table) -> str:
        name = _check_name(f"{place}: name", table.get("name", f"task-{len(self._tasks) + 1}"))
        if name in self._tasks:
            raise StenoError(f"{place}: name: {name!r} is used in line {self._lines[name]} too")
        return name

    def _prompt(self, place: str, table: Table) -> str:
        if ("prompt" in table) == ("prompt_file" in table):
            found = "both" if "prompt" in table else "neither"
            raise StenoError(f"{place}: prompt: give prompt or prompt_file, found {found}")
        if "prompt" in table:
            prompt = _text(place, "prompt", table["prompt"]) or ""
        else:
            prompt = self._read_prompt(place, _text(place, "prompt_file", table["prompt_file"]))
        _check_prompt(f"{place}: prompt", prompt)
        return prompt

    def _read_prompt(self, place: str, given: str | None) -> str:
        path = self._file(place, "prompt_file", given or "")
        try:
            return Path(path).read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise StenoError(f"{place}: prompt_file: {path}: not UTF-8") from None
        except OSError as error:
            raise StenoError(f"{place}: prompt_file: {path}: {error.strerror}") from None

    def _absolute(self, given: str) -> str:
        path = os.path.expanduser(given)  # noqa: PTH111  # an unknown user is no error here
        return os.path.normpath(self._folder / path)

    def _folder_of(self, place: str, field: str, given: Any, default: str) -> str:
        text = _text(place, field, given)
        if text is None:
            return default
        path = self._absolute(text)
        if not os.path.isdir(path):  # noqa: PTH112  # the text as it is
            raise StenoError(f"{place}: {field}: folder not found: {path}")
        return path

    def _repository(self, place: str, table: Table) -> str | None:
        text = _text(place, "repository", table.get("repository"))
        if text is None:
            if "commit" in table:
                raise StenoError(f"{place}: commit: needs repository")
            return None
        if "cwd" in table:
            raise StenoError(f"{place}: repository: cannot be combined with cwd")
        if text.startswith("-") or "\n" in text or "::" in text:
            raise StenoError(f"{place}: repository: expected a path or URL, found {text!r}")
        is_url = "://" in text or re.match(r"[\w.-]+@[\w.-]+:", text) is not None
        return text if is_url else self._folder_of(place, "repository", text, "")

    def _worktree(self, place: str, table: Table) -> str | bool:
        value = table.get("worktree", self._defaults.worktree)
        if isinstance(value, bool):
            return value
        message = f"{place}: worktree: expected true or a name, found {value!r}"
        if not isinstance(value, str):
            raise StenoError(message)
        try:
            check_worktree_name(value)
        except StenoError:
            raise StenoError(message) from None
        return value

    def _policy(self, place: str, table: Table) -> str | None:
        given = _text(place, "policy", table.get("policy"))
        if given is None:
            return self._defaults.policy
        path = self._file(place, "policy", given)
        if path not in self._policies:
            from ..checks.policy import load_policy

            try:
                load_policy(Path(path))
            except StenoError as error:
                raise StenoError(f"{place}: policy: {error}") from None
            self._policies.add(path)
        return path

    def _file(self, place: str, field: str, given: str) -> str:
        path = self._absolute(given)
        if not os.path.isfile(path):  # noqa: PTH113  # the text as it is
            raise StenoError(f"{place}: {field}: file not found: {path}")
        return path

    def _check_recording(self, place: str, path: str) -> None:
        """A recording, or a folder with the files of one run."""
        if path in self._recordings:
            return
        if not os.path.exists(path):  # noqa: PTH110  # the text as it is
            raise StenoError(f"{place}: recording: file not found: {path}")
        try:
            get_agent(open_replay(Path(path)).agent)
        except (StenoError, OSError) as error:
            raise StenoError(f"{place}: recording: {error}") from None
        self._recordings.add(path)

    def _resolve(self, place: str, field: str, value: Any) -> Any:
        """Paths of a setting are relative to the task file; JSON in place of one stays."""
        if field not in (*PATH_LIST_FIELDS, "json_schema"):
            return value
        if isinstance(value, tuple):
            return tuple(self._resolve(place, field, item) for item in value)
        if value.lstrip().startswith("{"):
            return value
        if field == "add_dirs":
            return self._folder_of(place, field, value, "")
        return self._file(place, field, value)

    def _options(self, place: str, table: Table) -> dict[str, Any]:
        own = {
            name: self._resolve(place, field, _setting(place, field, table[field]))
            for field, name in SETTING_FIELDS.items()
            if field in table
        }
        values = {**self._defaults.options, **own}
        _check_agent(f"{place}: agent", values)
        recording = _text(place, "recording", table.get("recording"))
        if recording is not None:
            values["recording"] = self._absolute(recording)
        if "speed" in table:
            values["speed"] = _number(place, "speed", table["speed"])
        if "args" in table:
            values["args"] = _texts(place, "args", table["args"])
        _check_replay(place, values)
        if recording is not None:
            self._check_recording(place, values["recording"])
        return values


def check_options(task: TaskSpec, option_label: Callable[[str], str]) -> None:
    """StenoError for options that cannot work together, or that the agent does not have."""
    options = task.run_options
    known = {name: value for name, value in options.items() if name not in WORKER_OPTIONS}
    TaskSetupBuilder("-", {**known, "cwd": task.cwd}, option_label)


def _check_name(label: str, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise StenoError(
            f"{label}: expected letters, digits, dots, dashes and underscores, found {name!r}"
        )
    return name


def _check_prompt(label: str, prompt: str) -> None:
    if not prompt.strip():
        raise StenoError(f"{label}: empty; give a task to work on")
    if any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise StenoError(f"{label}: contains unpaired surrogates")


def _check_agent(label: str, options: Mapping[str, Any]) -> None:
    agent = options.get("agent", REPLAY_AGENT_NAME)
    problem = None if agent == REPLAY_AGENT_NAME else unknown_agent_message(agent)
    if problem is not None:
        raise StenoError(f"{label}: {problem}")


def _check_replay(place: str, options: Mapping[str, Any]) -> None:
    """The agent `replay` needs a recording; other agents take none."""
    is_replay = options.get("agent") == REPLAY_AGENT_NAME
    if is_replay and "recording" not in options:
        raise StenoError(f"{place}: recording: missing; the agent {REPLAY_AGENT_NAME} needs one")
    for name, field in (("recording", "recording"), ("speed", "speed")):
        if name in options and not is_replay:
            raise StenoError(f'{place}: {field}: needs agent "{REPLAY_AGENT_NAME}"')


def _key(content: Table) -> str:
    data = json.dumps(content, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()


def _require_field(field: str, message: str) -> None:
    field = FORMER_FIELDS.get(field, field)
    new_name = RENAMED_SETTINGS.get(field)
    if new_name is not None:
        raise StenoError(f"{message}; did you mean {new_name}?")
    require_known_name(field, FIELDS, message)


def _setting(place: str, field: str, value: Any) -> Any:
    try:
        return SETTINGS_BY_NAME[SETTING_FIELDS[field]].parse(value)
    except ValueError as expected:
        found = "" if field in SECRET_FIELDS else f", found {value!r}"
        raise StenoError(f"{place}: {field}: expected {expected}{found}") from None


def _text(place: str, field: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise StenoError(f"{place}: {field}: expected text, found {value!r}")
    return value


def _number(place: str, field: str, value: Any) -> float:
    try:
        number = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise StenoError(f"{place}: {field}: expected a number >= 0, found {value!r}")
    return number


def _texts(place: str, field: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise StenoError(f"{place}: {field}: expected a list of texts, found {value!r}")
    return value


def _text_table(place: str, field: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise StenoError(f"{place}: {field}: expected a table of texts, found {value!r}")
    return {
        str(name): item if isinstance(item, str) else json.dumps(item)
        for name, item in value.items()
    }


def _tags(place: str, value: Any) -> dict[str, str]:
    from ..config.values import parse_tags

    try:
        return parse_tags(value)
    except ValueError as expected:
        raise StenoError(f"{place}: tags: expected {expected}, found {value!r}") from None


def _names(place: str, value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise StenoError(f"{place}: depends_on: expected names of tasks, found {value!r}")
    return list(dict.fromkeys(names))
