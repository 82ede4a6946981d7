"""A task as it is queued, and its result. `steno fleet status` needs no more of a task file."""

from typing import Any

from msgspec import Struct


class TaskSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task as it is queued; paths are absolute."""

    prompt: str  # with depends_on: variables and results are not filled in yet
    name: str
    cwd: str
    repository: str | None = None
    commit: str | None = None
    worktree: str | bool = False
    policy: str | None = None
    tags: dict[str, str] = {}
    depends_on: list[str] = []
    vars: dict[str, str] = {}
    options: dict[str, Any] = {}  # those of `steno run`, by setting
    key: str = ""  # a hash of what the task file says, without the options of the command line

    @property
    def agent(self) -> str:
        return str(self.options.get("agent") or "claude")

    @property
    def model(self) -> str | None:
        return self.options.get("model")


class TaskResult(Struct, frozen=True):
    """What a finished task passes on."""

    name: str
    verdict: str
    text: str = ""
    cwd: str | None = None
    run: str | None = None
    session: str | None = None
