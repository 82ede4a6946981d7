"""Agents of other packages: discovery by entry point, use, and isolation of their failures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import steno
from tests import golden
from tests.support import packages, program
from tests.support.program import Ended

RECORDINGS = packages.PARROT / "recordings" / "1.0"
CLAUDE = program.ROOT / "tests" / "recordings" / "claude" / "2.1.325" / "simple_success"


class Place:
    """A site folder for packages, and empty data and work folders."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.site = folder / "site"
        self.work = folder / "work"
        for path in (self.data / "home", self.site, self.work):
            path.mkdir(parents=True)
        self.env = packages.usable(self.site)

    def add(self, name: str, point: str, code: str, module: str) -> None:
        """Install a package with one module and an entry point called `name`."""
        (self.site / f"{module}.py").write_text(code)
        packages.metadata(
            self.site, module.replace("_", "-"), "1", {"steno.agents": {name: f"{module}:{point}"}}
        )

    def steno(self, *args: str | Path) -> Ended:
        return program.steno(self.data, *args, cwd=self.work, timeout=120, **self.env)

    def json(self, *args: str | Path) -> Any:
        done = self.steno(*args)
        assert done.out, done.err
        return json.loads(done.out)


@pytest.fixture
def bare(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def place(bare: Place) -> Place:
    packages.install(packages.PARROT, bare.site)
    return bare


# -- use -------------------------------------------------------------------------------------------


def test_doctor_lists_it(place: Place) -> None:
    agents = {row["agent"]: row for row in place.json("doctor", "--json")["agents"]}
    parrot = agents["parrot"]
    assert (parrot["version"], parrot["known"], parrot["path"]) == (
        "1.0",
        "tested",
        str(place.site / "bin" / "parrot"),
    )
    assert len(agents) == 7


def test_run_show_ledger_and_resume(place: Place) -> None:
    done = place.json("run", "--agent", "parrot", "--json", "write said.txt: Polly was here")
    assert done["verdict"] == "success"
    assert done["ok"] is True
    assert (done["agent"], done["agent_version"], done["model"]) == ("parrot", "1.0", "grey")
    assert (done["tokens"]["input"], done["tokens"]["output"]) == (5, 10)
    assert done["context"]["limit"] == 1_000
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


def test_the_recording_gives_the_same_report(place: Place) -> None:
    done = place.json("run", "--agent", "parrot", "--json", "Polly")
    report = place.json("show", "--json", done["source"])
    assert (report["agent"], report["verdict"]) == ("parrot", "success")
    assert (report["text"], report["tokens"]) == ("Polly! Polly!", done["tokens"])


@pytest.mark.parametrize("case", sorted(path.name for path in RECORDINGS.iterdir()))
def test_it_is_detected_by_its_lines(place: Place, case: str) -> None:
    """I1."""
    (expected,) = golden.expected(RECORDINGS / case)
    report = place.json("show", "--json", RECORDINGS / case)
    if case == "wrong":  # no output, so nothing to detect
        assert (report["agent"], report["verdict"]) == (None, expected["verdict"])
    else:
        assert golden.comparable(msgspec.convert(report, steno.Report)) == expected


NPM_AGENT = """
from msgspec.structs import replace
from steno_parrot import AGENT as PARROT

installation = replace(PARROT.installation, npm_package="@birds/jay")
AGENT = replace(PARROT, name="jay", installation=installation)
"""


def test_the_version_of_an_npm_package_is_read_from_its_files(place: Place) -> None:
    """The program is not started for it."""
    place.add("jay", "AGENT", NPM_AGENT, "jay_agent")
    package = place.site / "node_modules" / "@birds" / "jay"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@birds/jay", "version": "4.5.6"}')
    (package / "bin" / "jay").write_text("#!/bin/sh\nexit 1\n")
    (package / "bin" / "jay").chmod(0o755)
    (place.site / "bin" / "jay").symlink_to(package / "bin" / "jay")
    versions = {row["agent"]: row["version"] for row in place.json("doctor", "--json")["agents"]}
    assert versions["jay"] == "4.5.6"


def test_its_recordings_are_imported(place: Place) -> None:
    done = place.steno("ledger", "import", RECORDINGS / "repeats", RECORDINGS / "writes")
    assert done.code == 0, done.err
    assert sorted(run["agent"] for run in place.json("runs", "--json", "--no-import")["rows"]) == [
        "parrot",
        "parrot",
    ]


def test_its_settings_in_a_file(place: Place) -> None:
    """Settings for a broken agent do not affect the others."""
    place.add("broken", "AGENT", "raise RuntimeError('no')\n", "broken_agent")
    (place.work / "steno.toml").write_text(
        '[agents.parrot]\nmodel = "blue"\n[models.broken]\nsmall = "x"\n'
    )
    assert place.json("run", "--agent", "parrot", "--json", "Polly")["verdict"] == "success"
    (place.work / "steno.toml").write_text("[agents.parot]\n")
    done = place.steno("run", "--agent", "parrot", "Polly")
    assert done.code == 2
    assert "unknown agent 'parot'; did you mean parrot?" in done.err


def test_unsupported_options_are_refused(place: Place) -> None:
    done = place.steno("run", "--agent", "parrot", "--max-turns", "3", "Polly")
    assert (done.code, done.err) == (2, "steno: --max-turns: not supported by parrot\n")


def test_its_own_tests_pass(place: Place) -> None:
    pytest_args = ["-q", "-p", "no:cacheprovider", str(packages.PARROT / "tests")]
    env = program.environment(place.data, {**place.env, "PYTHONDONTWRITEBYTECODE": "1"})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *pytest_args],
        cwd=packages.PARROT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


# -- isolation -------------------------------------------------------------------------------------


def test_plugins_are_not_loaded_for_a_builtin_agent(place: Place) -> None:
    recording = CLAUDE.with_name("api_401")  # without tokens to price: the table has such an import
    code = (
        f"import sys; from steno.cli import main; main(['show', {str(recording)!r}]);"
        " print(*sys.modules, file=sys.stderr)"
    )
    env = program.environment(place.data, place.env)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert not {"importlib.metadata", "steno_parrot"} & set(done.stderr.split())


def test_discovery_without_plugins_does_not_import_importlib_metadata(bare: Place) -> None:
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
        "expected a steno.agents.base.Agent or a function that returns one, got str",
    ),
    "misnamed": (
        "from steno.agents.base import Agent\nAGENT = Agent(name='other', reader=None)",
        "the agent's name is 'other', its entry point's 'misnamed'",
    ),
    "absent": ("", "AttributeError: module 'absent_agent' has no attribute 'AGENT'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_package_is_reported_in_one_line(place: Place, name: str) -> None:
    """The other agents still work."""
    code, message = BROKEN[name]
    place.add(name, "AGENT", code, f"{name}_agent")
    line = f"steno: agent {name} = {name}_agent:AGENT (package {name}-agent) ignored: {message}"
    done = place.steno("doctor", "--json")
    assert done.err.strip() == line
    assert [row["agent"] for row in json.loads(done.out)["agents"]][6:] == ["parrot"]
    refused = place.steno("run", "--agent", name, "Polly")
    assert (refused.code, refused.err.strip()) == (2, line)
    assert place.steno("run", "--agent", "parrot", "--quiet", "Polly").out == "Polly! Polly!\n"
    findings = place.json("doctor", "--json")["findings"]
    assert [row["what"] for row in findings if row["check"] == name] == [
        line.removeprefix("steno: ")
    ]


@pytest.mark.parametrize("name", ["claude", "codex", "replay"])
def test_a_reserved_name_is_refused(bare: Place, name: str) -> None:
    bare.add(name, "AGENT", "raise SystemExit('loaded')", "thief")
    done = bare.steno("doctor", "--agents")
    line = (
        f"steno: agent {name} = thief:AGENT (package thief) ignored: "
        "the name is used by steno itself; choose another name\n"
    )
    assert (done.code, done.err) == (0, line)
    shown = bare.json("show", "--json", CLAUDE)
    assert (shown["agent"], shown["lines"]["unknown"]) == ("claude", 0)


def test_a_name_of_another_package_is_refused(place: Place) -> None:
    """The first package in alphabetical order keeps the name, on every machine."""
    place.add("parrot", "AGENT", "raise SystemExit('loaded')", "zz_thief")
    done = place.steno("doctor", "--json")
    assert done.err == (
        "steno: agent parrot = zz_thief:AGENT (package zz-thief) ignored: "
        "the name is used by another package; choose another name\n"
    )
    assert [row["agent"] for row in json.loads(done.out)["agents"]].count("parrot") == 1


def test_the_entry_point_can_be_a_function(place: Place) -> None:
    code = (
        "import msgspec\n"
        "from steno_parrot import AGENT\n"
        "def make(): return msgspec.structs.replace(AGENT, name='macaw')\n"
    )
    place.add("macaw", "make", code, "macaw_agent")
    program_ = str(place.site / "bin" / "parrot")
    done = place.json("run", "--agent", "macaw", "--program", program_, "--json", "Polly")
    assert (done["agent"], done["verdict"]) == ("macaw", "success")


FAILING = """
import steno_parrot
from msgspec.structs import replace

class Reader(steno_parrot.ParrotReader):
    def read(self, data, number, at=None):
        if b"says" in data:
            raise KeyError("says")
        return super().read(data, number, at)

def context_window(model):
    return 1 // 0

PARROT = steno_parrot.AGENT
AGENT = replace(PARROT, name="crow", reader=Reader, context_window=context_window)
"""


def test_failing_functions_are_reported_once(place: Place) -> None:
    """A line that the reader fails on is counted as unknown."""
    place.add("crow", "AGENT", FAILING, "crow_agent")
    done = place.steno("show", "--json", "--agent", "crow", RECORDINGS / "repeats")
    report = json.loads(done.out)
    assert (report["agent"], report["verdict"]) == ("crow", "empty")
    assert report["lines"]["unknown"] == 1
    assert report["context"]["limit_source"] == "assumed"
    assert done.err.strip().splitlines() == [
        "steno: agent crow: `read` failed: KeyError: 'says'",
        "steno: agent crow: `context_window` failed: "
        "ZeroDivisionError: integer division or modulo by zero",
    ]


def test_an_agent_with_only_a_name_and_a_reader(place: Place) -> None:
    """It can be read but not started."""
    code = (
        "from steno_parrot import ParrotReader\n"
        "from steno.agents.base import Agent\n"
        "AGENT = Agent(name='owl', reader=ParrotReader)\n"
    )
    place.add("owl", "AGENT", code, "owl")
    report = place.json("show", "--json", "--agent", "owl", RECORDINGS / "repeats")
    assert report["verdict"] == "success"
    done = place.steno("run", "--agent", "owl", "--program", "/bin/true", "Polly")
    line = (
        "steno: agent owl: this agent cannot be started, only read: it defines no build_command\n"
    )
    assert (done.code, done.err) == (2, line)


def test_runs_of_an_uninstalled_agent_stay_in_the_ledger(place: Place) -> None:
    """Its recordings can no longer be imported."""
    recording = place.json("run", "--agent", "parrot", "--json", "Polly")["source"]
    next(place.site.glob("*.dist-info")).rename(place.site / "gone")
    assert [run["agent"] for run in place.json("runs", "--json")["rows"]] == ["parrot"]
    done = place.steno("ledger", "import", recording)
    assert done.code == 2
    assert done.err.startswith(f"steno: {recording}: unknown agent 'parrot'; known:")
    assert "3 events of kinds this version does not know" in place.steno("show", recording).out
    refused = place.steno("run", "--agent", "parrot", "Polly")
    assert refused.code == 2
    assert refused.err.startswith("steno: unknown agent 'parrot'; known: claude, codex,")
