"""A batch with the real Claude Code and a scripted model: worktrees, results, a summary."""

import re
import subprocess
from pathlib import Path
from typing import Any

from tests.support import claude
from tests.support.fleet import FleetPlace, fleet_place, require_dbos
from tests.support.modelserver import ModelServer, Request, Step, call, say
from tests.workspace.test_changes import run_git, write

COUNT = 20


class WriterModel(ModelServer):
    """Writes the file that a task asks for, then answers; any other prompt gets a summary."""

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, Step]:
        number, step = super().take(path, headers, body)
        return number, self.answer(body) if body.get("tools") else step

    def answer(self, body: dict[str, Any]) -> Step:
        text = "\n".join(Request("", {}, body, None).texts())
        match = re.search(r"write note (\d+) below (\S+)", text)
        if match is None or "<result" in text:
            return say(f"{text.count('<result task=')} results, the last one: {'note 19' in text}")
        has_written = any(
            block.get("type") == "tool_result"
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        )
        if has_written:
            return say(f"wrote note {match[1]}")
        return call("Bash", command=f"printf 'note {match[1]}' > note.txt")


def test_batch_of_real_agents(tmp_path: Path) -> None:
    require_dbos()
    program = claude.installed(claude.VERSIONS[-1])
    with fleet_place(tmp_path / "place") as place, WriterModel(say("ok")) as server:
        prepare(place, program, server.url)
        file = place.tasks(
            *(
                {"name": f"note-{n}", "prompt": f"write note {n} below {place.work}"}
                for n in range(COUNT)
            )
        )
        words = ("--jobs", "4", "--worktree", "--permission-mode", "bypassPermissions")
        done = run_long(place, "fleet", "batch", file.name, *words)
        assert done.returncode == 0, done.stderr.decode()
        rows = place.rows("tasks")
        assert {row["verdict"] for row in rows.values()} == {"success"}
        folders = {row["cwd"] for row in rows.values()}
        assert len(folders) == COUNT
        for number in range(COUNT):
            row = rows[f"note-{number}"]
            assert row["text"] == f"wrote note {number}"
            assert Path(row["cwd"], "note.txt").read_text() == f"note {number}"
        assert not (place.work / "note.txt").exists()
        summary = run_long(place, "fleet", "pipe", "tasks", "--wait", "--", "summarise the notes")
        assert summary.stdout.decode() == f"{COUNT} results, the last one: True\n"
        assert place.verdicts() == {"success": COUNT + 1}


def prepare(place: FleetPlace, program: str, url: str) -> None:
    """The real program in place of the scripted one, and a repository to work in."""
    place.program.unlink()
    place.program.symlink_to(program)
    place.environ |= {
        **claude.clean_env(place.home, url),
        "PATH": place.environ["PATH"],
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    run_git(place.work, "init", "--quiet")
    write(place.work / "README.md", "a project\n")
    run_git(place.work, "add", ".")
    run_git(place.work, "commit", "--quiet", "-m", "start")


def run_long(place: FleetPlace, *words: str) -> "subprocess.CompletedProcess[bytes]":
    process = place.start(*words)
    out, err = process.communicate(timeout=500)
    return subprocess.CompletedProcess(words, process.returncode, out, err)
