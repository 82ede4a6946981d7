"""Runs of real programs, alternately outside and inside of steno: usage is the server's log.

`make cli` installs the versions of CI; others run if they are installed below `.drift` or the
folder that STENO_DRIFT names (`npm install --prefix .drift/claude-2.1.327 ...`).
"""

import json
import os
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple

import steno
from steno import agents
from steno.agents import LaunchOptions
from steno.agents.base import ProgramInfo
from steno.event import ModelUsage
from steno.ledger.importer import import_sources
from steno.ledger.rebuild import rebuild
from steno.ledger.store import Store, open_ledger
from steno.pricing import price
from steno.units import NANO_PER_USD
from tests import postgres
from tests.one_truth import totals
from tests.support import agent_programs, completions, program
from tests.support.all_agents import BYPASS_MODES, Place, Server, shell
from tests.support.modelserver import Answer, Call, Text, Usage
from tests.support.session_model import COUNTERS

IN_CI = (
    *("claude 2.1.325", "claude 2.1.197", "codex 0.166.0", "copilot 1.0.102"),
    *("gemini 0.61.0", "qwen 0.24.4"),
)
IF_INSTALLED = ("claude 2.1.327", "claude 2.1.126", "claude 2.0.59", "claude 1.0.72")
DRIFT = Path(os.environ.get("STENO_DRIFT") or agent_programs.ROOT / ".drift")
RUNS = 4  # outside, inside, outside, inside
NO_CACHE_WRITES = ("gemini", "qwen")
FIGURES = (*COUNTERS, "requests", "cost")
ROUNDING = {"cost": 100}  # nano-dollars
_numbers = count()


def installed(name: str) -> str:
    """The path of a program, or a skip that says what is missing."""
    agent, _, version = name.partition(" ")
    if name in IN_CI:
        return agent_programs.installed(agent, version)
    path = DRIFT / f"{agent}-{version}" / "node_modules" / ".bin" / agent
    if not path.exists():
        pytest.skip(f"{name} is not installed in {path.parents[2]}")
    return str(path)


def steps(agent: str) -> Iterator[Answer]:
    """A call and an answer for each run; no two requests have the same figures."""
    for number in range(2 * RUNS):
        write = 0 if agent in NO_CACHE_WRITES else 211 + 31 * number
        usage = Usage(1_009 + 97 * number, write, 2_003 + 13 * number, 53 + 7 * number)
        if number % 2:
            yield Answer((Text(f"Done {number}."),), usage)
        elif agent == "claude":
            yield Answer((Text("Go."), Call("Bash", {"command": "true"})), usage)
        else:
            yield Answer((shell(agent, "true"),), usage)


class AlternatePlace(Place):
    """Runs on one server, so that no message id occurs twice."""

    server: Server

    def inside(self, session: str | None) -> str:
        words = () if session is None else ("--resume", session)
        argv = program.argv(
            *("run", "--json", "--agent", self.agent, "--program", self.path),
            *(*self._options(words), "Do it.", *self._agent_args(self.server.url)),
        )
        env = program.environment(self.data, self._env(self.server.url))
        return str(json.loads(self._call(argv, b"", env))["session_id"])

    def outside(self, session: str | None) -> str:
        agent = agents.AGENTS[self.agent]
        options = LaunchOptions(
            prompt="Do it.",
            model=completions.MODELS["gemini"] if self.agent == "gemini" else None,
            resume=session,
            permission_mode=BYPASS_MODES.get(self.agent, "bypassPermissions"),
            extra=self._agent_args(self.server.url)[1:],
        )
        info = ProgramInfo(version=self.version)
        command = agent.launch.build_command(options, self.path, info)
        env = {**program.environment(self.data), **self._env(self.server.url), **dict(command.env)}
        found = steno.read(self._call(command.argv, command.stdin or b"", env), agent=self.agent)
        assert found.session_id is not None
        return found.session_id

    def _call(self, argv: Sequence[str], given: bytes, env: dict[str, str]) -> bytes:
        done = subprocess.run(
            argv,
            input=given,
            capture_output=True,
            cwd=self.work,
            env=env,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (argv, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def usage(self) -> dict[str, int]:
        done = self.ask("usage", "--json")
        assert done.code == 0, done.err
        total = json.loads(done.out)["total"]
        tokens = {name: total["tokens"][name] or 0 for name in COUNTERS}
        cost = round((total["cost"]["usd"] or 0) * NANO_PER_USD)
        return {**tokens, "requests": total["requests"], "cost": cost}

    def sources(self) -> list[str]:
        folders = agents.AGENTS[self.agent].transcripts.folders({}, str(self.home))
        files = [path for folder in folders for path in Path(folder).rglob("*.jsonl")]
        return sorted(map(str, [*files, *self.data.rglob("*.steno")]))


def sent(server: Server, with_helpers: bool) -> dict[str, int]:
    """What the server's log adds up to; helpers are requests without tools."""
    answers = [
        (model, answer)
        for model, answer in server.sent
        if isinstance(answer, Answer) and (with_helpers or answer in server.steps)
    ]
    tokens = {name: sum(getattr(answer.usage, name) for _, answer in answers) for name in COUNTERS}
    costs = [price(model, ModelUsage(*astuple(answer.usage)), None) for model, answer in answers]
    return {**tokens, "requests": len(answers), "cost": sum(cost or 0 for cost in costs)}


def wrong(
    server: Server, got: dict[str, int], names: Collection[str]
) -> dict[str, tuple[int, int, int]]:
    """Figures outside of the log: helpers are in no file of a run outside of steno."""
    low, high = sent(server, with_helpers=False), sent(server, with_helpers=True)
    return {
        name: (low[name], high[name], got[name])
        for name in names
        if not low[name] - ROUNDING.get(name, 0) <= got[name] <= high[name] + ROUNDING.get(name, 0)
    }


def open_places(tmp_path: Path) -> Iterator[tuple[str, Store]]:
    """A new ledger on each database that there is."""
    with closing(open_ledger(str(tmp_path / "reverse.db"))) as store:
        yield "SQLite", store
    if postgres.missing() is None:
        with postgres.server() as place:
            url = postgres.fresh(place, f"reverse_{next(_numbers)}")
            with closing(open_ledger(url)) as store:
                yield "PostgreSQL", store


@pytest.mark.parametrize("name", [*IN_CI, *IF_INSTALLED])
def test_alternate_runs(name: str, tmp_path: Path) -> None:
    place = AlternatePlace(name, tmp_path, program=installed(name))
    # 1.0.72 reports twice the cost, and Qwen's model has no price.
    names = FIGURES if name not in ("claude 1.0.72", "qwen 0.24.4") else FIGURES[:-1]
    session: str | None = None
    found: dict[str, Any] = {}
    with place.serve(*steps(place.agent)) as server:
        place.server = server
        for number in range(RUNS):
            session = place.inside(session) if number % 2 else place.outside(session)
            found[f"after run {number}"] = wrong(server, place.usage(), names)
    for database, store in open_places(tmp_path):
        for path in reversed(place.sources()):
            import_sources(store, [path])
        found[f"{database} in reverse"] = wrong(server, totals(store), names)
        rebuild(store)
        found[f"{database} rebuilt"] = wrong(server, totals(store), names)
    assert {step: figures for step, figures in found.items() if figures} == {}
