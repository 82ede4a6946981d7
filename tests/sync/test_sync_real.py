"""A real Claude Code with a scripted model, piped through `steno watch --sync`."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import claude
from tests.support.filestore import FileStore
from tests.support.modelserver import Answer, Call, ModelServer, call, once, say
from tests.support.program import argv, environment, steno

LONG = 120.0
SOON = 10.0  # seconds; milliseconds on an idle machine
CELL: dict[str, Any] = {
    "cell_type": "code",
    "id": "c1",
    "metadata": {},
    "outputs": [],
    "execution_count": None,
    "source": ["print(1)\n"],
}
NOTEBOOK: dict[str, Any] = {
    "cells": [CELL],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
SHELL = "mkdir -p sub && printf made > sub/made.txt && rm doomed.txt && mv old.txt 'new name.txt'"


class Stage:
    """A project, a copy of it, and a real agent whose output goes through `steno watch`."""

    def __init__(self, folder: Path, version: str) -> None:
        self.project, self.there, self.data = folder / "proj", folder / "there", folder / "data"
        self.home = folder / "home"
        for made in (self.project, self.home):
            made.mkdir()
        for name, text in (
            ("doomed.txt", "doomed"),
            ("old.txt", "old"),
            ("denied.txt", "never touch\n"),
        ):
            (self.project / name).write_text(text)
        (self.project / "nb.ipynb").write_text(json.dumps(NOTEBOOK))
        self.version = version
        self.raw = bytearray()
        self.out = b""
        self.told: dict[str, float] = {}  # time of each call's result
        self.seen: dict[
            tuple[str, bytes | None], float
        ] = {}  # time of each content at the destination
        self.looks = False  # the model waits for its edits at the destination
        self._over = threading.Event()

    def steps(self) -> list[Answer]:
        """The model's answers; each waits until the last edit is at the destination."""
        path = str(self.project / "a.txt")
        return [
            call("Write", file_path=path, content="one\n"),
            self.seen_first(
                b"one\n", call("Edit", file_path=path, old_string="one", new_string="two")
            ),
            self.seen_first(b"two\n", call("Read", file_path=str(self.project / "nb.ipynb"))),
            call(
                "NotebookEdit",
                notebook_path=str(self.project / "nb.ipynb"),
                cell_id="c1",
                new_source="print(2)\n",
            ),
            call("Edit", file_path=path, old_string="not in there", new_string="failed edit"),
            call("Read", file_path=str(self.project / "denied.txt")),
            call(
                "Edit",
                file_path=str(self.project / "denied.txt"),
                old_string="never",
                new_string="denied edit",
            ),
            call("Bash", command=SHELL, description="create, delete, rename"),
            Answer(
                (Call("Edit", {"file_path": path, "old_string": "two", "new_string": "three"}),)
            ),
            say("All is done."),
        ]

    def seen_first(self, content: bytes, answer: Answer) -> Answer:
        """An answer that waits until the destination has this content of `a.txt`."""
        return once(lambda: not self.looks or ("a.txt", content) in self.seen, answer)

    def agent(self, server: ModelServer) -> "subprocess.Popen[bytes]":
        """The real program, in the project."""
        rules = {"permissions": {"deny": ["Edit(denied.txt)"]}}
        flags = (
            "--permission-mode",
            "acceptEdits",
            "--allowedTools",
            "Bash",
            "NotebookEdit",
            "--settings",
            json.dumps(rules),
        )
        words = [
            claude.installed(self.version),
            "-p",
            "Work.",
            "--output-format",
            "stream-json",
            "--verbose",
            *flags,
        ]
        env = claude.clean_env(self.home, server.url)
        return subprocess.Popen(
            words, cwd=self.project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )

    def run(self, *options: str) -> tuple[int, str]:
        """Run the agent through `steno watch`: exit code and stderr."""
        with ModelServer(*self.steps()) as server:
            agent = self.agent(server)
            watch = subprocess.Popen(
                argv("watch", *options),
                env=environment(self.data),
                cwd=self.project,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            threads = [
                threading.Thread(target=self._pump, args=(agent, watch)),
                threading.Thread(target=self._look),
            ]
            for thread in threads:
                thread.start()
            self.out, err = _read(watch)
            self._over.set()
            for thread in threads:
                thread.join(LONG)
            agent.wait(LONG)
        return watch.returncode, err

    def _pump(self, agent: "subprocess.Popen[bytes]", watch: "subprocess.Popen[bytes]") -> None:
        """Pass the agent's lines to steno, and note the time of each result."""
        assert agent.stdout is not None
        assert watch.stdin is not None
        for line in agent.stdout:
            self.raw += line
            watch.stdin.write(line)
            watch.stdin.flush()
            for result in results(line):
                self.told[result] = time.monotonic()
        watch.stdin.close()
        agent.stdout.close()

    def _look(self) -> None:
        """Poll the destination a few hundred times a second."""
        names = (
            "a.txt",
            "nb.ipynb",
            "sub/made.txt",
            "doomed.txt",
            "old.txt",
            "new name.txt",
            "denied.txt",
        )
        while not self._over.is_set():
            for name in names:
                try:
                    found: bytes | None = (self.there / name).read_bytes()
                except FileNotFoundError:
                    found = None
                self.seen.setdefault((name, found), time.monotonic())
            time.sleep(0.002)

    def late(self, result: str, name: str, content: bytes | None) -> float:
        """Seconds from a call's result to its content at the destination; may be negative."""
        return self.seen[name, content] - self.told[result]


def _read(watch: "subprocess.Popen[bytes]") -> tuple[bytes, str]:
    """Read stdout and stderr to their ends."""
    assert watch.stdout is not None
    assert watch.stderr is not None
    err: list[bytes] = []
    stderr = watch.stderr
    thread = threading.Thread(target=lambda: err.append(stderr.read()))
    thread.start()
    out = watch.stdout.read()
    thread.join(LONG)
    watch.wait(LONG)
    watch.stdout.close()
    watch.stderr.close()
    return out, b"".join(err).decode()


def results(line: bytes) -> list[str]:
    """The calls whose results are in a line."""
    content: Any = (json.loads(line).get("message") or {}).get("content")
    return (
        [block["tool_use_id"] for block in content if block.get("type") == "tool_result"]
        if isinstance(content, list)
        else []
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(params=claude.VERSIONS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """Each tested version."""
    claude.installed(request.param)
    return Stage(tmp_path, request.param)


def test_everything_it_changes_is_there_at_once(stage: Stage) -> None:
    """The stream is unchanged, each edit arrives, failed and refused edits never do."""
    stage.looks = True
    assert steno(stage.data, "sync", stage.project, f"dir:{stage.there}").code == 0
    code, err = stage.run("--quiet", "--sync", f"dir:{stage.there}", "--delete", "--strict")
    assert code == 0
    assert "✗" not in err
    assert stage.out == bytes(stage.raw)
    assert tree(stage.there) == tree(stage.project)
    assert sorted(tree(stage.there)) == [
        "a.txt",
        "denied.txt",
        "nb.ipynb",
        "new name.txt",
        "sub/made.txt",
    ]
    calls = list(stage.told)
    assert len(calls) == 9
    notebook = (stage.project / "nb.ipynb").read_bytes()
    assert b"print(2)" in notebook
    late = {
        "Write": stage.late(calls[0], "a.txt", b"one\n"),
        "Edit": stage.late(calls[1], "a.txt", b"two\n"),
        "NotebookEdit": stage.late(calls[3], "nb.ipynb", notebook),
        "Bash, created": stage.late(calls[7], "sub/made.txt", b"made"),
        "Bash, deleted": stage.late(calls[7], "doomed.txt", None),
        "Bash, renamed": stage.late(calls[7], "new name.txt", b"old"),
        "last Edit": stage.late(calls[8], "a.txt", b"three\n"),
    }
    told = ", ".join(f"{what} {seconds * 1000:+.0f}" for what, seconds in late.items())
    sys.stdout.write(
        f"{stage.version}: ms from a tool's result to its content at the destination: {told}\n"
    )
    assert max(late.values()) < SOON
    contents = {content for name, content in stage.seen if name == "a.txt"}
    assert contents == {None, b"one\n", b"two\n", b"three\n"}
    assert {content for name, content in stage.seen if name == "denied.txt"} == {b"never touch\n"}


def test_a_server_with_conflicts(stage: Stage) -> None:
    """Over HTTP with two conflicts: in the end server and project are equal."""
    with FileStore() as store:
        store.conflicts = 2
        code, err = stage.run(
            "--quiet", "--sync", store.url, "--final-pass", "--strict", "--delete"
        )
        assert store.contents() == tree(stage.project)
        assert store.statuses("PUT").count(409) == 2
    assert (code, stage.out) == (0, bytes(stage.raw))
    assert "✗" not in err


def test_a_server_that_forbids_it_delays_no_byte(stage: Stage) -> None:
    """The stream is unchanged; the failure is reported, with --strict by the exit code too."""
    with FileStore() as store:
        store.fail = 403
        code, err = stage.run("--quiet", "--sync", store.url, "--strict", "--exclude", "*.ipynb")
        assert store.contents() == {}
    assert (code, stage.out) == (1, bytes(stage.raw))
    assert "[steno] ✗ a.txt: HTTP 403 Forbidden" in err
    assert "nb.ipynb" not in err


def test_without_us_it_does_the_same(stage: Stage, tmp_path: Path) -> None:
    """Lines, calls, files and requests equal those of a run without steno."""
    plain = Stage(made(tmp_path / "plain"), stage.version)
    with ModelServer(*plain.steps()) as server:
        agent = plain.agent(server)
        out = agent.communicate(timeout=LONG)[0]
        alone = len(server.asked)
    stage.run("--quiet", "--sync", f"dir:{stage.there}")
    assert [shape(line) for line in stage.out.splitlines()] == [
        shape(line) for line in out.splitlines()
    ]
    assert tree(stage.project) == tree(plain.project)
    assert alone == len(plain.steps())


def made(folder: Path) -> Path:
    """Create the folder."""
    folder.mkdir()
    return folder


def shape(line: bytes) -> tuple[Any, ...]:
    """What two equal runs share: kinds and calls, not ids, times and paths."""
    value: Any = json.loads(line)
    content = (value.get("message") or {}).get("content")
    blocks = content if isinstance(content, list) else []
    return (
        value["type"],
        value.get("subtype"),
        [(block.get("type"), block.get("name"), block.get("is_error")) for block in blocks],
    )
