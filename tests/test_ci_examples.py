"""The GitHub action and the examples for GitLab, cron and git, executed with the real Claude Code.

What cannot run offline is left out: `uses:` steps of the action, and the installation in
`before_script` of the GitLab job, whose syntax is checked. Needs `make cli`.
"""

import fcntl
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from steno.cli.commands import COMMANDS
from tests.support import packages
from tests.support.agent_programs import search_path
from tests.support.claude import clean_env, installed
from tests.support.modelserver import Hang, ModelServer, Step, call, say
from tests.test_planted_modules import plant

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")  # as GitHub and GitLab start it
HOSTILE = "say \"hi\"; $(touch pwned) `touch pwned` '; touch pwned; '\n--help ${HOME} %s \\n done"
Done = subprocess.CompletedProcess[str]


class Machine:
    """A machine with steno, the real agent and its own home, on a scripted model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.work = self.home / "project"
        self.bin = folder / "bin"
        self.temp = folder / "runner temp"  # with a space, as on some machines
        for path in (self.work, self.bin, self.temp):
            path.mkdir(parents=True)
        self.script("steno", f'exec "{sys.executable}" -P -m steno "$@"')
        self.program = installed("2.1.325")
        self.model: ModelServer | None = None

    def script(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    @property
    def environ(self) -> dict[str, str]:
        url = self.model.url if self.model is not None else "http://127.0.0.1:9"
        return clean_env(self.home, url) | {
            "PATH": f"{self.bin}:{search_path(self.program)}",
            "LOGNAME": "someone",
            "GIT_AUTHOR_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@example.org",
        }

    def serve(self, *steps: Step) -> ModelServer:
        self.model = ModelServer(*steps)
        return self.model

    def run(self, words: list[str], folder: Path | None = None, **environ: str) -> Done:
        return subprocess.run(
            words,
            cwd=folder or self.work,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def git(self, *words: str) -> str:
        done = self.run(["git", *words])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def prompts(self) -> str:
        """The texts of the first request."""
        assert self.model is not None
        return "\n".join(self.model.asked[0].texts())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# -- GitHub --------------------------------------------------------------------------------------


class ActionRun:
    """Runs the steps of the action in order, as a runner would."""

    def __init__(self, machine: Machine, **inputs: str) -> None:
        self.machine = machine
        defaults = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
        assert set(inputs) <= set(defaults)
        self.values = {f"inputs.{name}": text for name, text in (defaults | inputs).items()}
        self.values["runner.temp"] = str(machine.temp)
        names = ("OUTPUT", "PATH", "ENV", "STATE", "STEP_SUMMARY")
        self.files = {name: machine.folder / name for name in names}
        self.ran: list[str] = []
        self.uploads: list[Path] = []
        self.code = 0
        self.log = ""
        for step in STEPS:
            if self._is_selected(str(step.get("if", ""))):
                self._run_step(step)

    def _is_selected(self, condition: str) -> bool:
        parts = [part for part in condition.split(" && ") if part]
        if self.code and "always()" not in parts:
            return False
        rest = [part.removesuffix(" != ''") for part in parts if part != "always()"]
        return all(self.values.get(name, "") != "" for name in rest)

    def expand(self, text: str) -> str:
        return EXPRESSION.sub(lambda match: self.values.get(match[1], ""), str(text))

    def _run_step(self, step: dict[str, Any]) -> None:
        self.ran.append(step["name"])
        if "uses" in step:
            paths = self.expand(step["with"]["path"]).splitlines()
            self.uploads = [path for path in map(Path, paths) if path.exists()]
            return
        for path in self.files.values():
            path.touch()
        self.files["OUTPUT"].write_text("")
        added = self.files["PATH"].read_text().splitlines()
        environ = {
            **{f"GITHUB_{name}": str(path) for name, path in self.files.items()},
            "RUNNER_TEMP": str(self.machine.temp),
            "GITHUB_WORKSPACE": str(self.machine.work),
            "PATH": ":".join([*reversed(added), self.machine.environ["PATH"]]),
            "PIP_NO_DEPS": "1",  # a test must not need the package index
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **{name: self.expand(text) for name, text in step.get("env", {}).items()},
        }
        script = self.machine.folder / "step.sh"
        script.write_text(step["run"])
        folder = self.machine.work / self.expand(step.get("working-directory", "."))
        done = self.machine.run([*BASH, str(script)], folder, **environ)
        self.log += done.stdout + done.stderr
        self.code = self.code or done.returncode
        for line in self.files["OUTPUT"].read_text().splitlines():
            name, _, value = line.partition("=")
            self.values[f"steps.{step.get('id')}.outputs.{name}"] = value

    @property
    def outputs(self) -> dict[str, str]:
        return {name: self.expand(one["value"]) for name, one in ACTION["outputs"].items()}


def test_no_input_is_part_of_a_script() -> None:
    assert [step["name"] for step in STEPS if "${{" in step.get("run", "")] == []
    workflow = yaml.safe_load((EXAMPLES / "github" / "agent.yml").read_text("utf-8"))
    steps = workflow["jobs"]["agent"]["steps"]
    assert [step for step in steps if "${{" in step.get("run", "")] == []
    (own,) = [step for step in steps if step.get("id") == "steno"]
    assert set(own["with"]) <= set(ACTION["inputs"])
    assert "steno-policy.toml" in own["with"]["policy"]


def test_the_action_reports_a_success(machine: Machine) -> None:
    """Also in a checkout full of modules that none of its steps may import."""
    plant(machine.work, machine.folder / "mark")
    (machine.work / "Makefile").write_text("test:\n\tenv >variables\n")
    with machine.serve(
        call("Write", file_path=str(machine.work / "a.txt"), content="x"),
        call("Bash", command="make test", description="a step"),
        say("Done."),
    ):
        run = ActionRun(machine, prompt=HOSTILE, allow="Write\nBash(make test)\n", package="")
    assert run.code == 0, run.log
    assert not (machine.folder / "mark").exists()
    variables = re.findall(r"(?m)^GITHUB_(\w+)=", (machine.work / "variables").read_text())
    assert set(variables) & set(run.files) == {"STEP_SUMMARY"}
    assert HOSTILE in machine.prompts()
    assert list(machine.folder.rglob("pwned")) == []
    outputs = run.outputs
    assert (outputs["verdict"], float(outputs["cost"]) > 0) == ("success", True)
    report = json.loads(Path(outputs["report"]).read_bytes())
    assert [file["path"] for file in report["files"]] == ["a.txt"]
    assert "Done." in Path(outputs["html"]).read_text("utf-8")
    assert [path.name for path in run.uploads] == ["report.json", "run.html"]
    assert "success" in run.files["STEP_SUMMARY"].read_text("utf-8")
    assert run.ran == [step["name"] for step in STEPS if step["name"] != "Install steno"]


def test_the_action_fails_by_the_policy_and_still_uploads(machine: Machine) -> None:
    (machine.work / "policy.toml").write_text('forbid_commands = ["git push"]\n')
    # No second answer: only the policy ends the run.
    with machine.serve(call("Bash", command="git push", description="a step"), Hang()):
        run = ActionRun(machine, prompt="go", allow="Bash", policy="policy.toml", package="")
    assert (run.code, run.outputs["verdict"]) == (3, "policy")
    assert [path.name for path in run.uploads] == ["report.json", "run.html"]
    assert "| ran: git push |" in run.files["STEP_SUMMARY"].read_text("utf-8")


def test_the_action_says_what_is_wrong_with_an_input(machine: Machine) -> None:
    run = ActionRun(machine, prompt="go", **{"max-cost": "much", "package": ""})
    assert (run.code, run.outputs["verdict"], run.outputs["cost"]) == (2, "", "")
    assert "steno: --max-cost: " in run.log
    assert "Export the conversation" not in run.ran


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.build_wheel(tmp_path_factory.mktemp("dist"))


def test_the_action_installs_a_wheel(machine: Machine, wheel: Path) -> None:
    """Without its dependencies, so that nothing is downloaded: only the installed files count."""
    machine.script("steno", "echo the old one >&2; exit 9")
    plant(machine.work, machine.folder / "mark")
    (machine.work / "dist").mkdir()
    shutil.copy(wheel, machine.work / "dist")
    run = ActionRun(machine, prompt="go", package=f"dist/{wheel.name}", artifact="")
    assert not (machine.folder / "mark").exists()
    venv = machine.temp / "steno-venv"
    assert (venv / "bin" / "steno").exists(), run.log
    assert len(list(venv.rglob("testing/pytest_plugin.py"))) == 1
    assert "the old one" not in run.log  # the installed one is first in PATH
    assert "Upload report and conversation" not in run.ran


def test_a_package_is_no_option_of_pip(machine: Machine) -> None:
    run = ActionRun(machine, prompt="go", package="--help")
    assert (run.code != 0, "Usage:" in run.log, run.ran[0]) == (True, False, "Install steno")
    assert "Run the agent" not in run.ran


USES = re.compile(r"\buses: *([^\s#]+)")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}|\./.*")


def test_what_others_publish_is_pinned() -> None:
    """Actions by their commit, our package by the action's, what the tests need by a range."""
    assert ACTION["inputs"]["package"]["default"] == "action"
    folders = (ROOT / ".github", ROOT / "docs", EXAMPLES)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    for path in (ROOT / "action.yml", ROOT / "README.md", *files):
        if path.suffix in (".yml", ".md"):
            names = USES.findall(path.read_text("utf-8"))
            assert [name for name in names if not PINNED.fullmatch(name)] == [], path
    for path in (ROOT / "requirements").iterdir():
        for line in path.read_text("utf-8").splitlines():
            requirement = line.partition("#")[0].strip()
            assert re.fullmatch(r"|[\w-]+(>=[\d.]+,<[\d.]+|==[\d.]+)", requirement), line


# -- GitLab --------------------------------------------------------------------------------------

JOB: dict[str, Any] = yaml.safe_load((EXAMPLES / "gitlab" / "agent.gitlab-ci.yml").read_text())[
    "agent"
]
POLICY = 'verdict = "success"\nforbid_commands = ["git push"]\n'


@pytest.mark.parametrize(("command", "code"), [("make test", 0), ("make test; git push", 3)])
def test_the_gitlab_job(machine: Machine, command: str, code: int) -> None:
    (machine.work / "steno-policy.toml").write_text(POLICY)
    (machine.work / "Makefile").write_text("test:\n\ttrue\n")
    with machine.serve(call("Bash", command=command, description="a step"), say("Done.")):
        variables = JOB["variables"] | {"PROMPT": HOSTILE}
        done = machine.run([*BASH, "-c", "\n".join(JOB["script"])], **variables)
    assert done.returncode == code, done.stderr
    assert HOSTILE in machine.prompts()
    assert list(machine.folder.rglob("pwned")) == []
    for path in [*JOB["artifacts"]["paths"], JOB["artifacts"]["reports"]["junit"]]:
        assert (machine.work / path).stat().st_size > 0
    assert ("<failure" in (machine.work / "report.xml").read_text()) == bool(code)


def test_the_installation_of_the_gitlab_job_is_a_valid_script() -> None:
    script = "\n".join(JOB["before_script"])
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0
    assert all(f"steno {word} " in "\n".join(JOB["script"]) for word in ("run", "export", "check"))
    assert {"run", "export", "check"} <= set(COMMANDS)


# -- cron ----------------------------------------------------------------------------------------


@pytest.fixture
def nightly(machine: Machine) -> Iterator[list[str]]:
    """The command of the crontab, in a repository; `mail` records what it gets."""
    (line,) = [
        line
        for line in (EXAMPLES / "cron" / "crontab").read_text().splitlines()
        if line[:1].isdigit()
    ]
    assert "%" not in line  # cron would end the line there
    machine.script(
        "mail", f'printf "%s\\n" "$@" >"{machine.folder}/mail"\ncat >>"{machine.folder}/mail"'
    )
    machine.git("init", "-q")
    machine.git("commit", "-q", "--allow-empty", "-m", "first")
    yield ["/bin/sh", "-c", line.split(maxsplit=5)[5]]
    assert machine.git("status", "--porcelain") == ""  # the agent worked elsewhere


def test_cron_sends_no_mail_after_a_success(machine: Machine, nightly: list[str]) -> None:
    with machine.serve(call("Bash", command="echo x >new.txt", description="a step"), say("Done.")):
        done = machine.run(nightly, machine.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "update the dependencies" in machine.prompts()
    assert not (machine.folder / "mail").exists()
    (new,) = machine.home.rglob("new.txt")  # in a worktree of its own
    assert not new.is_relative_to(machine.work)


def test_cron_sends_a_mail_after_a_failure(machine: Machine, nightly: list[str]) -> None:
    with machine.serve(say("Which dependencies?")):
        done = machine.run(nightly, machine.folder)
    assert (done.stdout, done.stderr) == ("", "")
    lines = (machine.folder / "mail").read_text().splitlines()
    assert lines[:3] == ["-s", "steno: nightly run failed (exit code 3)", "someone"]
    assert any("interactive" in line for line in lines)


def test_cron_runs_one_at_a_time(machine: Machine, nightly: list[str]) -> None:
    with (
        machine.serve(say("Done.")) as model,
        (machine.work / ".git" / "steno-nightly.lock").open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = machine.run(nightly, machine.folder)
    assert (done.returncode, done.stdout, done.stderr, model.requests) == (0, "", "", [])
    assert not (machine.folder / "mail").exists()


# -- git -----------------------------------------------------------------------------------------


@pytest.fixture
def repository(machine: Machine) -> Machine:
    """A repository with the hook, installed as its comment says."""
    machine.git("init", "-q")
    text = (EXAMPLES / "git-hook" / "pre-commit").read_text()
    (words,) = [line[1:].strip() for line in text.splitlines() if line.startswith("#   cp ")]
    (machine.work / "examples").symlink_to(EXAMPLES)
    assert machine.run(["sh", "-c", words]).returncode == 0
    (machine.work / "examples").unlink()
    (machine.work / "a.txt").write_text("one $(touch pwned)\n")
    machine.git("add", "a.txt")
    return machine


def test_the_hook_lets_a_reviewed_commit_pass(repository: Machine) -> None:
    with repository.serve(say("OK")):
        done = repository.run(["git", "commit", "-q", "-m", "first"])
    assert done.returncode == 0, done.stderr
    assert "+one $(touch pwned)" in repository.prompts()
    assert list(repository.folder.rglob("pwned")) == []
    assert repository.git("log", "--format=%s") == "first"


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ([say("REJECT: one is not two")], "forbid_text"),
        ([say("I have nothing to add.")], "match_text"),
        ([call("Bash", command="touch x", description="a step"), say("OK")], "allow_tools"),
    ],
)
def test_the_hook_refuses_a_commit(repository: Machine, steps: list[Step], rule: str) -> None:
    with repository.serve(*steps):
        done = repository.run(["git", "commit", "-q", "-m", "first"])
    assert done.returncode == 1
    assert rule in done.stderr
    hint = "pre-commit: the review did not pass; to commit anyway: git commit --no-verify\n"
    assert done.stderr.endswith(hint)
    assert repository.run(["git", "rev-parse", "-q", "--verify", "HEAD"]).returncode == 1
    assert not (repository.work / "x").exists()
    repository.git("commit", "-q", "--no-verify", "-m", "anyway")
