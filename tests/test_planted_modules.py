"""A folder full of modules and programs that an agent has planted: nothing of it runs as steno.

Every name that Python or steno could import is there, the programs that steno starts by name, and
packages that announce plugins. PATH and PYTHONPATH have entries that are relative to the folder.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from steno.executables import own_python_path
from tests.support.claude_lines import assistant, init, result, stream, text
from tests.support.scripted_place import Place
from tests.support.tmux import Terminal, require_tmux
from tests.web.conftest import serving

ROOT = Path(__file__).parents[1]
PROGRAMS = ("steno", "claude", "git", "less", "node", "python3", "sh", "env", "bwrap")
ENTRY_POINTS = "[steno.agents]\nevil = evil:AGENT\n[steno.commands]\nevil = evil:run\n"
LONG = 30.0


def plant(folder: Path, mark: Path) -> None:
    """Everything that could be run by its name; each leaves a line in `mark`."""
    # Not by `open`, which does not exist yet when Python imports `encodings`.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    code = f"import posix\nfile = posix.open({str(mark)!r}, {flags}, 0o600)\n"
    code += "posix.write(file, ('module ' + __name__ + '\\n').encode())\n"
    names = {*sys.stdlib_module_names, *packages_distributions(), "sitecustomize", "evil"}
    for name in names - {"steno"}:
        (folder / f"{name}.py").write_text(code)
    (folder / "steno").mkdir()
    for name in ("__init__", "__main__", "cli"):
        (folder / "steno" / f"{name}.py").write_text(code)
    (folder / "evil-1.0.dist-info").mkdir()
    (folder / "evil-1.0.dist-info" / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
    (folder / "evil-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "bin").mkdir()
    programs = [folder / "bin" / name for name in PROGRAMS]
    programs += [folder / name for name in PROGRAMS if name != "steno"]
    for path in programs:
        path.write_text(f"#!/bin/sh\necho program {path.name} >>{mark}\n")
        path.chmod(0o755)


class PlantedPlace(Place):
    """A finished run in a folder in which everything was planted afterwards."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # -I: what an agent written in Python imports is its own matter.
        script = self.program.read_text().replace(sys.executable + '"', sys.executable + '" -I')
        self.program.write_text(script)
        self.mark = folder / "mark"
        self.hostile = folder / "hostile"
        self.hostile.mkdir()
        lines = (init(cwd=str(self.hostile)), assistant(text("Done.")), result("Done."))
        self.plan({"out": stream(*lines).decode()})
        done = self.steno("run", "--changes=none", "start", cwd=self.hostile)
        assert done.returncode == 0, done.stderr
        plant(self.hostile, self.mark)
        self.environ["PATH"] = f":.:bin:{self.environ['PATH']}"
        self.environ["PYTHONPATH"] = ":."

    @property
    def ran(self) -> str:
        return self.mark.read_text() if self.mark.exists() else ""

    def wait_for_resumed(self, calls: int) -> None:
        """Until the agent was started once more than that; and nothing planted ran."""
        deadline = time.monotonic() + LONG
        while len(self.calls) <= calls and not self.ran:
            assert time.monotonic() < deadline, "not resumed"
            time.sleep(0.05)
        assert (self.ran, self.calls[-1]["cwd"]) == ("", str(self.hostile))
        assert "--resume" in self.calls[-1]["argv"]


@pytest.fixture(scope="module")
def planted() -> Iterator[PlantedPlace]:
    """The path of a socket must be short."""
    with TemporaryDirectory(prefix="steno-") as folder:
        yield PlantedPlace(Path(folder))


@pytest.fixture
def place(planted: PlantedPlace) -> PlantedPlace:
    planted.mark.unlink(missing_ok=True)
    return planted


def test_the_plants_are_real(place: PlantedPlace) -> None:
    """What steno did before ran them: `-m` in the folder, and a program by its name."""
    for command in ([sys.executable, "-m", "steno", "--version"], ["git", "status"]):
        subprocess.run(command, cwd=place.hostile, env=place.environ, check=False)
    ran = place.ran.splitlines()
    assert "program git" in ran
    assert any(line.startswith("module ") for line in ran)


def test_resume_from_the_page(place: PlantedPlace) -> None:
    ledger = ("--ledger", str(place.data / "ledger.db"))
    row = json.loads(place.steno("runs", "--json", *ledger).stdout)["rows"][0]
    target = f"/runs/{row['run_id']}"
    calls = len(place.calls)
    with serving(place, "--allow-actions", *ledger) as page:
        match = re.search(r'name="csrf" value="([\w-]+)"', page.text(target))
        assert match is not None
        own = {"Origin": page.url, "Content_Type": "application/x-www-form-urlencoded"}
        form = f"csrf={match[1]}&text=again".encode()
        assert page.get(f"{target}/resume", "POST", form, **own)[0] == 303
        place.wait_for_resumed(calls)


def test_resume_from_top(place: PlantedPlace, tmp_path: Path) -> None:
    require_tmux()
    calls = len(place.calls)
    with Terminal(tmp_path, place.command("top"), place.environ, 120) as terminal:
        terminal.wait("success")
        terminal.press("r")
        terminal.wait("in the background")
        terminal.press("y")
        place.wait_for_resumed(calls)


def run_setting(place: PlantedPlace, command: str, payload: Mapping[str, object]) -> str:
    """Run a command of the settings as Claude Code does: by a shell, in the project."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        input=json.dumps({"cwd": str(place.hostile), **payload}).encode(),
        cwd=place.hostile,
        env={**place.environ, "PYTHONPATH": ""},
        capture_output=True,
        timeout=LONG,
        check=True,
    )
    assert place.ran == ""
    return done.stdout.decode()


@pytest.fixture(params=["in PATH", "not in PATH"])
def commands(request: pytest.FixtureRequest, place: PlantedPlace) -> Iterator[dict[str, str]]:
    """The commands that are written into the settings from within the folder."""
    link = place.folder / "bin" / "steno"
    if request.param == "in PATH":
        link.symlink_to(Path(sys.executable).with_name("steno"))
    policy = place.folder / "policy.toml"
    policy.write_text('forbid_tools = ["WebFetch"]\n')
    own = [sys.executable, "-P", "-E", "-m", "steno"]  # the folder is only the current one
    for words in (
        ("hooks", "install", "--policy", str(policy), "--yes"),
        ("statusline", "--install", "--yes"),
    ):
        subprocess.run(
            [*own, *words], cwd=place.hostile, env=place.environ, capture_output=True, check=True
        )
    settings = json.loads((place.home / ".claude" / "settings.json").read_text())
    hooks = {event: group[0]["hooks"][0]["command"] for event, group in settings["hooks"].items()}
    yield {**hooks, "statusline": settings["statusLine"]["command"]}
    link.unlink(missing_ok=True)


def test_hooks_and_status_line(place: PlantedPlace, commands: dict[str, str]) -> None:
    call = {"hook_event_name": "PreToolUse", "tool_name": "WebFetch", "tool_input": {}}
    assert '"deny"' in run_setting(place, commands["PreToolUse"], call)
    assert run_setting(place, commands["Stop"], {"hook_event_name": "Stop"}) == ""
    model = {"model": {"id": "claude-opus-5-5", "display_name": "Opus"}}
    assert run_setting(place, commands["statusline"], model) != ""
    for command in commands.values():
        program = shlex.split(command)[0]
        assert Path(program).is_absolute()
        assert not program.startswith(str(place.hostile))


def test_the_watchdog_imports_nothing_of_the_folder(place: PlantedPlace) -> None:
    path = [str(ROOT / "src"), "", "."]
    script = "import sys; from steno.executables import own_python_path as path; "
    script += f"sys.path[:0] = {path!r}; print(path())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=place.hostile, capture_output=True, check=True
    )
    folders = done.stdout.decode().strip().split(os.pathsep)
    assert str(ROOT / "src") in folders
    assert [folder for folder in folders if not Path(folder).is_absolute()] == []
    assert str(place.hostile) not in folders
    assert set(own_python_path().split(os.pathsep)) <= set(sys.path)


# -- every child that is our interpreter ---------------------------------------------------------

# Where else `sys.executable` may be, and why it is safe there.
INTERPRETERS = {
    "executables.py": "own_command adds ISOLATED_PYTHON",
    "runner/handover.py": "its arguments are REPLAY_ARGS, which begin with -P",
    "installation.py": "the text of a hint: it starts no child",
}


def test_every_child_with_our_interpreter_is_isolated() -> None:
    """A new one uses `own_command`, or has -P as its first option."""
    source = ROOT / "src" / "steno"
    for path in source.rglob("*.py"):
        text = path.read_text("utf-8")
        uses = len(re.findall(r"\bsys\.executable\b", text))
        name = str(path.relative_to(source))
        if name not in INTERPRETERS:
            assert uses == len(re.findall(r'\[sys\.executable, "-P", ', text)), name
        for before in text.split('"-m", "steno"')[:-1]:
            assert before.endswith(('"-P", ', "*ISOLATED_PYTHON, ")), name


SHELL_PYTHON = re.compile(r"python3?(?:\.exe)?\"? +(?!-I )(?:-\S+ +)*-(?:m|c)?(?= |$)")
SHOWN = ("action.yml", "examples", "docs/howto", "README.md", "src/steno/cli")


@pytest.mark.parametrize("place_name", SHOWN)
def test_commands_that_we_show_are_isolated(place_name: str) -> None:
    """They run in projects: in CI, by cron, in git hooks."""
    top = ROOT / place_name
    files = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    for path in files:
        if path.suffix in (".yml", ".md", ".py", ".toml", "") and "recordings" not in path.parts:
            found = SHELL_PYTHON.findall(path.read_text("utf-8"))
            assert found == [], path
