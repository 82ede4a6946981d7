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
    def run_options(self) -> dict[str, Any]:
        """The options as `steno run` takes them: of a parsed "off", None or nothing is left."""
        return {
            name: "off" if value is None or (name == "alert_at" and not value) else value
            for name, value in self.options.items()
        }

    @property
    def model(self) -> str | None:
        return self.options.get("model")


class RetryRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `steno fleet retry` gives a task besides another start."""

    allow: tuple[str, ...] = ()  # tools, from now on
    answer: str | None = None  # to the question that its last run ended with


class TaskResult(Struct, frozen=True):
    """What a finished task passes on."""

    name: str
    verdict: str
    text: str = ""
    cwd: str | None = None
    run: str | None = None
    session: str | None = None
