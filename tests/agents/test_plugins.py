"""Agents of other packages: found by their entry point, used like our own, and unable to take steno down."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import packages, program
from tests.support.program import Ended

RECORDINGS = packages.PARROT / "recordings" / "1.0"
CLAUDE = program.ROOT / "tests" / "recordings" / "claude" / "2.1.325" / "simple_success"


class Place:
    """A machine with the parrot installed, and steno's own data, all empty."""

    def __init__(self, folder: Path) -> None:
        self.data, self.site, self.work = folder / "data", folder / "site", folder / "work"
        for path in (self.data / "home", self.site, self.work):
            path.mkdir(parents=True)
        self.env = packages.usable(self.site)

    def add(self, name: str, point: str, code: str, module: str) -> None:
        """Install a package of one module, whose entry point is called `name`."""
        (self.site / f"{module}.py").write_text(code)
        packages.metadata(
            self.site, module.replace("_", "-"), "1", {"steno.agents": {name: f"{module}:{point}"}}
        )

    def steno(self, *words: str | Path) -> Ended:
        return program.steno(self.data, *words, cwd=self.work, timeout=120, **self.env)

    def json(self, *words: str | Path) -> Any:
        done = self.steno(*words)
        assert done.out, done.err
        return json.loads(done.out)


@pytest.fixture
def bare(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def place(bare: Place) -> Place:
    packages.install(packages.PARROT, bare.site)
    return bare


# -- it works everywhere -----------------------------------------------------------------------------------------------


def test_it_is_among_the_agents(place: Place) -> None:
    own = {one["agent"]: one for one in place.json("doctor", "--json")["agents"]}
    parrot = own["parrot"]
    assert (parrot["version"], parrot["known"], parrot["path"]) == (
        "1.0",
        "tested",
        str(place.site / "bin" / "parrot"),
    )
    assert len(own) == 7


def test_it_is_run_recorded_and_asked_for(place: Place) -> None:
    """The whole way: verdict, tokens, files, the ledger, its tape, and going on with its session."""
    done = place.json("run", "--agent", "parrot", "--json", "write said.txt: Polly was here")
    assert (done["verdict"], done["ok"], done["agent"], done["agent_version"], done["model"]) == (
        *("success", True, "parrot", "1.0", "grey"),
    )
    assert (done["tokens"]["input"], done["tokens"]["output"], done["context"]["limit"]) == (
        5,
        10,
        1_000,
    )
    assert [(file["path"], file["change"]) for file in done["files"]] == [("said.txt", "created")]
    assert (place.work / "said.txt").read_text() == "Polly was here\n"
    shown = place.json("show", "--json", done["run_id"])
    assert (shown["agent"], shown["tokens"]) == ("parrot", done["tokens"])
    assert [run["agent"] for run in place.json("runs", "--json")["rows"]] == ["parrot"]
    assert place.json("usage", "--json", "agent")["rows"][0]["agent"] == "parrot"
    again = place.json(
        "run", "--agent", "parrot", "--json", "--resume", done["run_id"][:12], "and again"
    )
    assert (again["session_id"], again["tokens"]["cache_read"]) == (done["session_id"], 3)


def test_its_tape_says_the_same(place: Place) -> None:
    done = place.json("run", "--agent", "parrot", "--json", "Polly")
    told = place.json("show", "--json", done["source"])
    assert (told["agent"], told["verdict"], told["text"], told["tokens"]) == (
        *("parrot", "success", "Polly! Polly!", done["tokens"]),
    )


@pytest.mark.parametrize("case", sorted(path.name for path in RECORDINGS.iterdir()))
def test_it_is_told_by_the_bytes(place: Place, case: str) -> None:
    """I1: as long as there are bytes."""
    wanted = json.loads((RECORDINGS / case / "expected.json").read_text())[0]
    found = place.json("show", "--json", RECORDINGS / case)
    if case == "wrong":  # it printed nothing to tell it by
        assert (found["agent"], found["verdict"]) == (None, wanted["verdict"])
    else:
        assert {**found, "source": None} == {**wanted, "source": None}


def test_the_version_of_one_from_npm_is_told_by_its_files(place: Place) -> None:
    """As of ours: it is not started only to be asked."""
    code = "import msgspec, steno_parrot\nAGENT = msgspec.structs.replace(steno_parrot.AGENT, name='jay', installation=msgspec.structs.replace(steno_parrot.AGENT.installation, npm_package='@birds/jay'))\n"
    place.add("jay", "AGENT", code, "jay_agent")
    package = place.site / "node_modules" / "@birds" / "jay"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@birds/jay", "version": "4.5.6"}')
    (package / "bin" / "jay").write_text("#!/bin/sh\nexit 1\n")
    (package / "bin" / "jay").chmod(0o755)
    (place.site / "bin" / "jay").symlink_to(package / "bin" / "jay")
    found = {one["agent"]: one["version"] for one in place.json("doctor", "--json")["agents"]}
    assert found["jay"] == "4.5.6"


def test_its_recordings_are_imported(place: Place) -> None:
    done = place.steno("ledger", "import", RECORDINGS / "repeats", RECORDINGS / "writes")
    assert done.code == 0, done.err
    assert sorted(run["agent"] for run in place.json("runs", "--json", "--no-import")["rows"]) == [
        "parrot",
        "parrot",
    ]


def test_its_settings_stand_in_a_file(place: Place) -> None:
    """Also where its package is broken: another agent runs all the same."""
    place.add("broken", "AGENT", "raise RuntimeError('no')\n", "broken_agent")
    (place.work / "steno.toml").write_text(
        '[agents.parrot]\nmodel = "blue"\n[models.broken]\nsmall = "x"\n'
    )
    assert place.json("run", "--agent", "parrot", "--json", "Polly")["verdict"] == "success"
    (place.work / "steno.toml").write_text("[agents.parot]\n")
    done = place.steno("run", "--agent", "parrot", "Polly")
    assert (done.code, "unknown agent 'parot'; did you mean parrot?" in done.err) == (2, True)


def test_what_it_has_no_words_for_is_said_before_it_starts(place: Place) -> None:
    done = place.steno("run", "--agent", "parrot", "--max-turns", "3", "Polly")
    assert (done.code, done.err.strip()) == (
        2,
        "steno: --max-turns: not supported by parrot",
    )


def test_its_own_tests_hold(place: Place) -> None:
    """The example's test, as its author would run it."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(packages.PARROT / "tests"),
    ]
    env = program.environment(place.data, {**place.env, "PYTHONDONTWRITEBYTECODE": "1"})
    done = subprocess.run(
        words,
        cwd=packages.PARROT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


# -- it takes nothing down ----------------------------------------------------------------------------------------------


def test_a_known_agent_does_not_pay_for_it(place: Place) -> None:
    """No entry point is looked for where the first line says whose it is."""
    code = f"import sys; from steno.cli import main; main(['show', {str(CLAUDE)!r}]); print(*sys.modules, file=sys.stderr)"
    env = program.environment(place.data, place.env)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert not {"importlib.metadata", "steno_parrot"} & set(done.stderr.split())


def test_looking_for_none_is_cheap(bare: Place) -> None:
    """Where no package names the group, Python's own machinery for it is not even loaded."""
    bare.add("other", "AGENT", "", "unrelated")
    metadata = next(bare.site.glob("*.dist-info")) / "entry_points.txt"
    metadata.write_text("[something.else]\nx = y:z\n")
    code = (
        "import sys; from steno.agents import AGENTS; assert len(AGENTS) == 6; print(*sys.modules)"
    )
    env = program.environment(bare.data, bare.env)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert "steno.agents.plugins" in done.stdout.split()
    assert "importlib.metadata" not in done.stdout.split()


BROKEN = {
    "raises": (
        "import nothing_of_this_name",
        "ModuleNotFoundError: No module named 'nothing_of_this_name'",
    ),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "wrong": (
        "AGENT = 'a word'",
        "expected a steno.agents.base.Agent, or a function that gives one; found str",
    ),
    "misnamed": (
        "from steno.agents.base import Agent\nAGENT = Agent(name='other', reader=None)",
        "the agent calls itself 'other': it must have the name of its entry point",
    ),
    "absent": ("", "AttributeError: module 'absent_agent' has no attribute 'AGENT'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_one_line(place: Place, name: str) -> None:
    """The others go on; whoever asks for it is told why it is not there."""
    code, why = BROKEN[name]
    place.add(name, "AGENT", code, f"{name}_agent")
    line = f"steno: agent {name} = {name}_agent:AGENT (package {name}-agent) is left out: {why}"
    done = place.steno("doctor", "--json")
    assert done.err.strip() == line
    assert [one["agent"] for one in json.loads(done.out)["agents"]][6:] == ["parrot"]
    refused = place.steno("run", "--agent", name, "Polly")
    assert (refused.code, refused.err.strip()) == (2, line)
    assert place.steno("run", "--agent", "parrot", "--quiet", "Polly").out == "Polly! Polly!\n"
    findings = place.json("doctor", "--json")["findings"]
    assert [one["what"] for one in findings if one["check"] == name] == [
        line.removeprefix("steno: ")
    ]


@pytest.mark.parametrize("name", ["claude", "codex", "replay"])
def test_a_name_of_ours_is_refused(bare: Place, name: str) -> None:
    bare.add(name, "AGENT", "raise SystemExit('loaded')", "thief")
    done = bare.steno("doctor", "--agents")
    line = f"steno: agent {name} = thief:AGENT (package thief) is left out: the name is taken by steno itself: "
    assert (done.code, done.err.strip()) == (0, line + "the package must choose another one")
    shown = bare.json("show", "--json", CLAUDE)
    assert (shown["agent"], shown["lines"]["unknown"]) == ("claude", 0)


def test_a_name_that_another_package_has_is_refused(place: Place) -> None:
    """The first by its name keeps it, on every machine."""
    place.add("parrot", "AGENT", "raise SystemExit('loaded')", "zz_thief")
    done = place.steno("doctor", "--json")
    assert "the name is taken by another package: the package must choose another one" in done.err
    assert len(done.err.splitlines()) == 1
    assert [one["agent"] for one in json.loads(done.out)["agents"]].count("parrot") == 1


def test_a_function_may_give_it(place: Place) -> None:
    code = "import msgspec\nfrom steno_parrot import AGENT\ndef make(): return msgspec.structs.replace(AGENT, name='macaw')\n"
    place.add("macaw", "make", code, "macaw_agent")
    program_ = str(place.site / "bin" / "parrot")
    done = place.json("run", "--agent", "macaw", "--program", program_, "--json", "Polly")
    assert (done["agent"], done["verdict"]) == ("macaw", "success")


FAILING = """
import msgspec
import steno_parrot

class Reader(steno_parrot.ParrotReader):
    def read(self, data, number, at=None):
        if b"says" in data:
            raise KeyError("says")
        return super().read(data, number, at)

def context_window(model):
    return 1 // 0

AGENT = msgspec.structs.replace(steno_parrot.AGENT, name="crow", reader=Reader, context_window=context_window)
"""


def test_one_that_fails_while_it_is_read_loses_only_that(place: Place) -> None:
    """The line is kept and counted as unknown, and what failed is told once."""
    place.add("crow", "AGENT", FAILING, "crow_agent")
    done = place.steno("show", "--json", "--agent", "crow", RECORDINGS / "repeats")
    report = json.loads(done.out)
    assert (
        report["agent"],
        report["verdict"],
        report["lines"]["unknown"],
        report["context"]["limit_source"],
    ) == (*("crow", "empty", 1, "assumed"),)
    assert done.err.strip().splitlines() == [
        "steno: agent crow: its `read` failed: KeyError: 'says'",
        "steno: agent crow: its `context_window` failed: ZeroDivisionError: integer division or modulo by zero",
    ]


def test_one_that_can_only_be_read(place: Place) -> None:
    """An agent needs no more than a name and a reader."""
    place.add(
        "owl",
        "AGENT",
        "import steno_parrot\nfrom steno.agents.base import Agent\nAGENT = Agent(name='owl', reader=steno_parrot.ParrotReader)\n",
        "owl",
    )
    assert (
        place.json("show", "--json", "--agent", "owl", RECORDINGS / "repeats")["verdict"]
        == "success"
    )
    done = place.steno("run", "--agent", "owl", "--program", "/bin/true", "Polly")
    line = "steno: agent owl: this agent can be read, and not started: it does not say how"
    assert (done.code, done.err.strip()) == (2, line)


def test_one_that_is_gone_leaves_its_runs(place: Place) -> None:
    """What the ledger holds of it stays; what would have to be read anew is told in one line."""
    tape = place.json("run", "--agent", "parrot", "--json", "Polly")["source"]
    next(place.site.glob("*.dist-info")).rename(place.site / "gone")
    assert [run["agent"] for run in place.json("runs", "--json")["rows"]] == ["parrot"]
    done = place.steno("ledger", "import", tape)
    assert (
        done.code,
        done.err.startswith(f"steno: {tape}: unknown agent 'parrot'; known:"),
    ) == (2, True)
    assert "3 events of kinds this version does not know" in place.steno("show", tape).out
    refused = place.steno("run", "--agent", "parrot", "Polly")
    assert refused.code == 2
    assert refused.err.startswith("steno: unknown agent 'parrot'; known: claude, codex,")
