"""The JSON output of the commands matches docs/reference/json.md: every field with its type.

Real commands over recordings of this repository. A field of the page that no output has is an error
too.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from steno import report
from steno.fleet.store import open_fleet
from steno.ledger.protocol import now_ms
from steno.ledger.rows import LIMIT_COLUMNS
from steno.ledger.store import open_ledger
from steno.team import approvals
from steno.team.roster import Member
from tests.support.claude_lines import assistant, init, stream, text
from tests.support.ledger_builder import HOUR, Book
from tests.support.scripted_place import Place, done_well

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "json.md"
RECORDINGS = ROOT / "tests" / "recordings"
EDITED = RECORDINGS / "claude" / "2.1.325" / "multi_tool_edit"
NEVER_HERE = {
    "outside[]",
    "problems[]",
    "files[]",
    "agents[].sign_in[]",
    "troubles[]",
}  # lists that have nothing to tell here
Spec = dict[str, str]  # the type of each field


def specs() -> dict[str, Spec]:
    """What the page says: the fields of each command."""
    found = {}
    for part in re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.M)[1:]:
        rows = re.findall(r"^([\w.,\[\] ]+): (\w+\??)(?:$|  )", part, re.M)
        if rows:
            found[part.partition("\n")[0]] = {
                name: kind.replace("?", " or null")
                for names, kind in rows
                for name in names.split(", ")
            }
    shared = {name: found.pop(name) for name in [*found] if not name.startswith("steno ")}
    return {command: dict(expanded(spec, shared)) for command, spec in found.items()}


def expanded(spec: Spec, shared: dict[str, Spec]) -> Iterator[tuple[str, str]]:
    """The fields, with those of a type that has its own section on the page one by one."""
    for name, kind in spec.items():
        if kind in shared:
            yield from ((f"{name}.{field}", type_) for field, type_ in shared[kind].items())
        else:
            yield name, kind


SPECS = specs()


# -- the outputs -------------------------------------------------------------------------------


class Asked:
    """A home with a ledger in it that has something of everything."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        kept = [
            RECORDINGS / "transcripts" / name
            for name in ("2.1.325", "codex-0.166.0", "qwen-0.15.10")
        ]
        self.say(
            "ledger",
            "import",
            *kept,
            EDITED,
            EDITED.parent / "permission_denied",
            RECORDINGS / "codex",
            codes=(0, 2),
        )
        self.say("budget", "set", "day", "5000")
        self.say("budget", "set", "month", "1", "--project", self.place.work)

    def say(self, *words: str | Path, codes: tuple[int, ...] = (0,)) -> bytes:
        """What a command prints."""
        done = self.place.steno(*words)
        assert done.returncode in codes, done.stderr
        return done.stdout

    def ask(self, *words: str | Path, codes: tuple[int, ...] = (0,)) -> list[Any]:
        """The JSON that it prints, line by line."""
        return [json.loads(line) for line in self.say(*words, "--json", codes=codes).splitlines()]

    def ask_about_a_secret(self) -> list[Any]:
        """What is found in a recording."""
        file = self.place.data / "tapes" / "2026-11" / "leak.steno"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("ghp_" + "a1B2" * 9)
        return self.ask("ledger", "secrets", codes=(1,))

    def ask_about_the_active_block(self) -> list[Any]:
        """A request of this moment is in the active block."""
        with closing(open_ledger(str(self.place.data / "ledger.db"))) as store:
            book = Book(store)
            book.request(book.session("active-now"), now_ms())
        return self.ask("usage", "block", "--no-import")

    def ask_about_limits(self) -> list[Any]:
        with closing(open_ledger(str(self.place.data / "ledger.db"))) as store:
            row = ("claude", "", "five_hour", now_ms(), 0.9, now_ms() + HOUR, "allowed", "event")
            store.upsert("limits", LIMIT_COLUMNS, [row], "")
        return self.ask("limits", "--no-import")

    def ask_for_repetitions(self) -> list[Any]:
        """Two runs as a baseline, and two that break rules."""
        words = ("repeat", "2", "--in-place", "--json")
        replayed = ("--", "--agent", "replay", "--recording", EDITED, "--speed", "0", "x")
        rules = ("--rule", 'allow_files=["src/"]', "--rule", "min_runs=3", "--baseline", "main")
        outputs = [
            self.say(*words, "--save-baseline", "main", *replayed),
            self.say(*words, *rules, *replayed, codes=(1,)),
        ]
        return [json.loads(output) for output in outputs]

    def ask_about_a_permission(self) -> list[Any]:
        with closing(open_ledger(str(self.place.data / "ledger.db"))) as store:
            request = approvals.ask(store, Member(id="@ada"), "Bash", {"command": "make"}, 60)
        asked = self.ask("team", "requests")
        return [*asked, *self.ask("team", "approve", request.id, "--deny", "--reason", "no")]

    def ask_about_a_fleet(self) -> dict[str, list[Any]]:
        """A batch while its first task runs, and what came of it."""
        tasks = self.place.work / "tasks.jsonl"
        tasks.write_text('{"prompt": "x", "model": "opus"}\n{"prompt": "y"}\n')
        self.place.plan({"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60})
        running = self.place.start("fleet", "batch", tasks, "--jobs", "1")
        try:
            while not running.poll() and not (self.place.data / "ledger.fleet.db").exists():
                time.sleep(0.1)
            with open_fleet(str(self.place.data / "ledger.db")) as fleet:
                fleet.pause("codex", time.time() + 3600, "rate limit met by x")
            while not (status := self.ask("fleet", "status"))[0]["batches"][0]["running"]:
                assert running.poll() is None
        finally:
            running.terminate()
            running.communicate()
        self.place.plan({"out": done_well()})
        self.say("fleet", "batch", tasks)
        rows = self.ask("fleet", "collect", "tasks")
        finished = self.ask("fleet", "status", "tasks")
        return {"steno fleet status": [*status, *finished], "steno fleet collect": rows}

    def ask_while_it_runs(self, *words: str) -> list[Any]:
        """The same while an agent is at work."""
        self.place.plan({"out": stream(init(), assistant(text("I begin."))).decode(), "sleep": 60})
        running = self.place.start("run", "x")
        try:
            while not (found := self.ask(*words))[0]["rows"]:
                assert running.poll() is None
            return found
        finally:
            running.terminate()
            running.communicate()
            self.place.plan({"out": done_well()})


def outputs(asked: Asked) -> dict[str, list[Any]]:
    """Real outputs, by the headings of the page."""
    work, here = asked.place.work, "--no-import"
    (work / "a.txt").write_text("a\n")
    (work / "__pycache__").mkdir()
    (asked.place.folder / "broken.jsonl").write_text("no recording\n")
    sessions = asked.ask("sessions", here)
    ids = sorted(sessions[0]["rows"], key=lambda row: -row["requests"])
    one, two = ids[0]["session_id"], ids[1]["session_id"]
    times, names = ("day", "week", "month"), ("project", "model", "agent", "session")
    kinds = (*times, *names, "host", "user", "repository", "branch", "tag")
    return {
        "steno usage": [
            *(answer for by in kinds for answer in asked.ask("usage", by, here)),
            *asked.ask("usage", here, "--breakdown"),
        ],
        "steno usage block": asked.ask_about_the_active_block(),
        "steno usage tool": asked.ask("usage", "tool", here),
        "steno limits": asked.ask_about_limits(),
        "steno runs": [*asked.ask("runs", here), *asked.ask("runs", here, "--top", "cost")],
        "steno sessions": sessions,
        "steno search": [
            *asked.ask("search", here, "the"),
            *asked.ask("search", here, "--tools", "the"),
        ],
        "steno compare": asked.ask("compare", one, two),
        "steno context": asked.ask("context", here, one),
        "steno export": [
            json.loads(asked.say("export", source, "--format", "json"))
            for source in (EDITED, EDITED.parent / "permission_denied")
        ],
        "steno check": asked.ask(
            "check",
            EDITED,
            *("--rule", 'allow_files=["src/"]', "--rule", "min_runs=2"),
            codes=(1,),
        ),
        "steno repeat": asked.ask_for_repetitions(),
        "steno trend": [
            *asked.ask("trend", here),
            *asked.ask("trend", here, "--by", "repeat"),
            *asked.ask("trend", here, "--by", "baseline"),
        ],
        "steno budget list": [
            *asked.ask("budget", "list", here),
            *asked.ask("budget", "check", here, codes=(0, 3)),
        ],
        "steno ledger sql": asked.ask("ledger", "sql", "SELECT id, turns FROM sessions LIMIT 2"),
        "steno diff": asked.ask("diff", EDITED),
        "steno ps": asked.ask_while_it_runs("ps"),
        "steno team roster": asked.ask_while_it_runs("team", "roster"),
        "steno team inbox": [
            *asked.ask("team", "say", "hello"),
            *asked.ask("team", "say", "--to", "@ada", "hello"),
        ],
        "steno team claims": [*asked.ask("team", "claim", "a.txt"), *asked.ask("team", "claims")],
        "steno team release": asked.ask("team", "release"),
        "steno team requests": asked.ask_about_a_permission(),
        **asked.ask_about_a_fleet(),
        "steno ledger prune": asked.ask("ledger", "prune", "--older-than", "1d"),
        "steno sync": [
            *asked.ask("sync", work, f"dir:{asked.place.folder / 'copy'}"),
            *asked.ask("sync", work, "cmd:false {path}", "--tries", "1", codes=(1,)),
        ],
        "steno ledger import": asked.ask(
            "ledger",
            "import",
            RECORDINGS / "gemini" / "0.61.0" / "tools_json",
            asked.place.folder / "broken.jsonl",
            codes=(0, 2),
        ),
        "steno ledger rebuild": asked.ask("ledger", "rebuild", codes=(0, 2)),
        "steno ledger secrets": asked.ask_about_a_secret(),
        "steno config": asked.ask("config"),
        "steno hooks": asked.ask("hooks", "status"),
        "steno doctor": asked.ask("doctor", codes=(0, 1)),
    }


# -- held against the page ---------------------------------------------------------------------


def fields(value: Any, spec: Spec, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field of an output by its path, down to what the page tells as one thing."""
    if path in spec:
        yield path, value
    told = any(name.startswith((f"{path}.", f"{path}[]")) or not path for name in spec)
    if isinstance(value, dict) and (told or path not in spec):
        for name, part in value.items():
            yield from fields(part, spec, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for part in value:
            yield from fields(part, spec, f"{path}[]")
    elif path not in spec and not isinstance(value, dict):
        yield path, value


def fits(value: Any, kind: str) -> bool:
    """Whether a value is of a type of the page."""
    if " or " in kind:
        return any(fits(value, one) for one in kind.split(" or "))
    if kind == "time":
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    if kind in ("Tokens", "Context"):
        return isinstance(value, dict) and tuple(value) == getattr(report, kind).__struct_fields__
    kinds: dict[str, Any] = {
        "str": str,
        "int": int,
        "float": int | float,
        "bool": bool,
        "object": dict,
        "null": type(None),
    }
    return kind == "any" or (
        isinstance(value, kinds[kind]) and (isinstance(value, bool) <= (kind == "bool"))
    )


@pytest.fixture(scope="module")
def printed() -> Iterator[dict[str, list[Any]]]:
    """The outputs of each command. The path of a socket is limited to about 100 bytes."""
    with TemporaryDirectory(prefix="steno-") as folder:
        yield outputs(Asked(Path(folder)))


def test_every_command_with_json_is_documented(printed: dict[str, list[Any]]) -> None:
    """A command whose help names --json is on the page."""
    assert set(SPECS) == set(printed)
    page = PAGE.read_text("utf-8")
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    for part in re.split(r"^## ", reference, flags=re.M)[1:]:
        if re.search(r"^  --json\b", part, re.M):
            assert f"{part.partition(chr(10))[0]}" in page, part[:40]


@pytest.mark.parametrize("command", SPECS)
def test_the_fields_are_those_of_the_page(command: str, printed: dict[str, list[Any]]) -> None:
    """By name and type; and every field of the page was seen."""
    spec, seen = SPECS[command], set()
    for value in printed[command]:
        for path, part in fields(value, spec):
            assert path in spec, f"{command}: {path} is not on the page: {part!r}"
            assert fits(part, spec[path]), f"{command}: {path} is {part!r}, and not {spec[path]}"
            seen.add(path)
    assert set(spec) - seen - NEVER_HERE == set()
