"""`steno run` with the real Claude Code and a scripted model: signals, files, ledger.

From command line to exit code; decisions after an attempt are in `test_task_real`.
"""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steno.process import process_tree, run_tag
from tests.support import claude
from tests.support.modelserver import Answer, Call, Hang, ModelServer, Step, call, say
from tests.support.program import ROOT, argv
from tests.workspace.test_changes import everything, run_git, write

LONG = 120.0
UNASKED = ("--permission-mode", "bypassPermissions")
SHELL = (
    "mkdir sub && printf made > sub/made.txt && rm doomed.txt && "
    "mv 'old name.txt' new.txt && chmod 755 tool.sh"
)
NEVER_ENDS = "while true; do read -t 1 x < /dev/zero; done"
pytestmark = pytest.mark.parametrize("version", claude.VERSIONS)


class Stage:
    """A project, a home, and a model that follows a script."""

    def __init__(self, folder: Path, version: str) -> None:
        self.work, self.home, self.data = (
            folder / "work",
            folder / "home",
            folder / "data" / "steno",
        )
        for made in (self.work, self.home):
            made.mkdir()
        self.program = claude.installed(version)
        self.server: ModelServer | None = None
        self.hosts: list[subprocess.Popen[bytes]] = []

    def serve(self, *steps: Step) -> ModelServer:
        self.server = ModelServer(*steps).__enter__()
        return self.server

    @property
    def environ(self) -> dict[str, str]:
        assert self.server is not None
        own = {
            "XDG_DATA_HOME": str(self.data.parent),
            "PYTHONPATH": str(ROOT / "src"),
            "TZ": "UTC",
            "NO_COLOR": "1",
        }
        return claude.clean_env(self.home, self.server.url) | {"CLAUDE_CODE_MAX_RETRIES": "0"} | own

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """An active `steno run`."""
        pipes: Any = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        command = argv("run", "--program", self.program, *UNASKED, *words)
        self.hosts.append(subprocess.Popen(command, cwd=self.work, env=self.environ, **pipes))
        return self.hosts[-1]

    def run(self, *words: str) -> tuple[int, str, str]:
        """A `steno run` to its end: its exit code, stdout and stderr."""
        host = self.start(*words)
        out, err = host.communicate(timeout=LONG)
        return host.returncode, out.decode(), err.decode()

    def steno(self, *words: str) -> "subprocess.CompletedProcess[bytes]":
        """Another command."""
        return subprocess.run(
            argv(*words),
            cwd=self.work,
            env=self.environ,
            capture_output=True,
            timeout=LONG,
            check=False,
        )

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """The rows that a command answers."""
        result: list[dict[str, Any]] = json.loads(
            self.steno(*words, "--json", "--no-import").stdout
        )["rows"]
        return result

    def taped(self) -> bytes:
        """What is on the tapes."""
        return b"".join(path.read_bytes() for path in sorted(self.data.rglob("*.steno")))

    def left(self) -> list[str]:
        """Living processes with the run tag of one of these stenos."""
        pids = {host.pid for host in self.hosts}
        return [
            process_tree.command_line_of(item.pid)
            for item in process_tree.list_processes()
            if pids & {result.steno_pid for result in run_tag.parse_run_tags(item.run_tags)}
        ]


@pytest.fixture
def stage(tmp_path: Path, version: str) -> Iterator[Stage]:
    result = Stage(tmp_path, version)
    yield result
    for host in result.hosts:
        if host.poll() is None:
            host.kill()
            host.communicate()
    until(lambda: not result.left())
    if result.server is not None:
        result.server.__exit__()


def until(what: Callable[[], object]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- files ---------------------------------------------------------------------------------------


def steps(folder: Path, noticed: Path | None) -> list[Answer]:
    """The model's changes. `noticed`: its command waits until a recording there shows them."""
    path = str(folder / "a.txt")
    names = ("doomed.txt", "old name.txt", "new.txt", "sub/made.txt", "tool.sh")
    waits = [
        f"until grep -q 'file.*{name}' {noticed}/tapes/*/*.steno; do sleep 0.05; done"
        for name in names
        if noticed
    ]
    return [
        call("Read", file_path=path),
        call("Edit", file_path=path, old_string="two", new_string="by the agent"),
        call(
            "Bash", command="; ".join((SHELL, *waits)), description="create, delete, rename, mode"
        ),
        call("Write", file_path=str(folder / "written.txt"), content="new\n"),
        say("All is done."),
    ]


def told(rows: list[dict[str, Any]]) -> list[tuple[str, str, str, str | None]]:
    """The compared fields. On a busy machine a late file event is listed without a call."""
    tools = {row["path"] for row in rows if row["source"] == "tool"}
    stored = [row for row in rows if row["call"] is not None or row["path"] not in tools]
    return sorted((row["path"], row["change"], row["source"], row["tool"]) for row in stored)


@pytest.mark.parametrize("how", ["git", "all"])
def test_w3_what_it_changed_is_known_and_can_be_undone(
    stage: Stage, version: str, how: str
) -> None:
    """Three sources, two attempts: each change with its call, each patch reverts its part."""
    for name, text in (
        ("a.txt", "one\ntwo\n"),
        ("doomed.txt", "doomed\n"),
        ("old name.txt", "old\n" * 40),
        ("tool.sh", "#!\n"),
    ):
        write(stage.work / name, text)
    run_git(stage.work, "init", "-q")
    run_git(stage.work, "add", "-A")
    run_git(stage.work, "commit", "-qm", "first")
    write(stage.work / "a.txt", "one\ntwo\nby a person\n")
    before, status = everything(stage.work), run_git(stage.work, "status", "--porcelain=v2")
    stage.serve(*steps(stage.work, stage.data if how == "all" else None))
    code, out, err = stage.run("--json", "--changes", how, "--max-turns", "3..30", "Work.")
    report = json.loads(out)
    assert (code, [attempt["verdict"] for attempt in report["attempts"]]) == (
        0,
        ["max_turns", "success"],
    ), err
    other = "filesystem" if how == "all" else "git"
    expected = [
        [
            ("a.txt", "modified", "tool", "Edit"),
            ("doomed.txt", "deleted", other, "Bash"),
            ("new.txt", "renamed", other, "Bash"),
            ("sub/made.txt", "created", other, "Bash"),
            ("tool.sh", "modified", other, "Bash"),
        ],
        [("written.txt", "created", "tool", "Write")],
    ]
    runs = [attempt["run_id"] for attempt in report["attempts"]]
    result = [stage.rows("diff", run) for run in runs]
    assert [told(rows) for rows in result] == expected
    assert {row["path"]: row["was"] for row in result[0] if row["was"]} == {
        "new.txt": "old name.txt"
    }
    assert told(stage.rows("diff")) == sorted(expected[0] + expected[1])  # of the task
    for run in reversed(runs):
        patch = stage.steno("diff", run, "--no-import", "--patch", "-")
        assert (patch.returncode, patch.stderr) == (0, b"")
        run_git(stage.work, "apply", "-R", "-", data=patch.stdout)
    assert everything(stage.work) == before
    assert run_git(stage.work, "status", "--porcelain=v2") == status


# -- signals -------------------------------------------------------------------------------------


def interrupted(stage: Stage, when: Callable[[], object], *words: str) -> dict[str, Any]:
    """A run that gets SIGINT in a given state: its report. No process is left."""
    host = stage.start("--json", *words, "Work.")
    until(when)
    host.send_signal(signal.SIGINT)
    out, err = host.communicate(timeout=LONG)
    assert host.returncode == 130, err
    assert stage.left() == []
    report: dict[str, Any] = json.loads(out)
    (row,) = stage.rows("runs")
    assert (row["run_id"], row["verdict"]) == (report["run_id"], report["verdict"])
    return report


def test_r4_an_interrupt_before_it_said_anything(stage: Stage, version: str) -> None:
    """The agent is started and has printed nothing."""
    stage.serve(Hang())
    marks = stage.data / "live"
    report = interrupted(
        stage,
        lambda: any(json.loads(path.read_bytes())["agent_pid"] for path in marks.glob("*.json")),
    )
    assert (report["verdict"], report["tokens"]["total"]) == ("interrupted", None)


def test_r4_an_interrupt_while_it_works(stage: Stage, version: str) -> None:
    """SIGINT during a request after a tool call: work, cost and the resume hint are reported."""
    shell = Answer((Call("Bash", {"command": "echo one > one.txt", "description": "a command"}),))
    server = stage.serve(shell, Hang())
    report = interrupted(stage, lambda: len(server.asked) == 2)
    assert (report["verdict"], report["requests"], report["tool_counts"]["Bash"]["calls"]) == (
        "interrupted",
        1,
        1,
    )
    assert report["tokens"]["total"] > 0
    assert (stage.work / "one.txt").exists()


def test_r4_an_interrupt_after_its_result(stage: Stage, version: str) -> None:
    """SIGINT after the answer, with background work: everything is stopped."""
    stage.serve(
        call("Bash", command=NEVER_ENDS, run_in_background=True, description="never ends"),
        say("It is started."),
    )
    report = interrupted(
        stage,
        lambda: b"It is started." in stage.taped() and rb"\"type\":\"result\"" in stage.taped(),
    )
    assert (report["verdict"], report["result"]) == ("background_task", "It is started.")


# -- a kill --------------------------------------------------------------------------------------


def test_l1_a_killed_steno_leaves_a_run_that_can_be_gone_on_with(
    stage: Stage, version: str
) -> None:
    """`steno runs` lists it with its cost; no process is left; --resume continues the session."""
    shell = Answer((Call("Bash", {"command": "echo one", "description": "a command"}),))
    server = stage.serve(shell, Hang(), say("All is done."))
    host = stage.start("Work.")
    until(lambda: len(server.asked) == 2)
    host.kill()
    host.communicate()
    until(lambda: not stage.left())
    listed = stage.steno("runs", "--json")
    (row,) = json.loads(listed.stdout)["rows"]
    assert f"run {row['run_id']} was lost: its steno process was killed" in listed.stderr.decode()
    assert (row["verdict"], row["requests"], row["cost"]["source"]) == ("no_result", 1, "computed")
    assert row["cost"]["usd"] > 0
    code, out, err = stage.run("--resume", row["run_id"][:14], "--json", "Go on.")
    report = json.loads(out)
    assert (code, report["verdict"], report["session_id"]) == (0, "success", row["session_id"]), err
    text = str(server.asked[2].body["messages"])
    assert all(words in text for words in ("Work.", "tool_result", "Go on."))
