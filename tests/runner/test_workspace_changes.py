"""File changes besides those of tools: git before and after a run, file-system watching.

Output of real agents, real files, a real git. Each run is replayed from its recording with the
same report.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from steno import event as ev
from steno.agents import AGENTS, LaunchOptions
from steno.ledger.row_sink import LedgerRowSink
from steno.process import GracePeriods, ProcessLoop
from steno.recording.format import Header, Record, RecordingFile
from steno.recording.parse import RunParser
from steno.runner import workspace_observer
from steno.runner.setup import RunBudget, TaskSetup
from steno.runner.task import Task
from steno.workspace import git
from steno.workspace.changes import ChangeTracker
from tests.support.claude_lines import Json, answer, assistant, call, init, result, stream, text
from tests.support.scripted_place import Done, Place
from tests.support.tasks import carried, carry_out
from tests.workspace.test_changes import everything, run_git, write

CODEX = AGENTS["codex"]
ACTOR = Path(__file__).parents[1] / "scripted_agents" / "step_player.py"
QUICK = GracePeriods(interrupt=0.3, terminate=0.3, kill=3.0, quiet=0.3, drain=1.0)
PATCHED = "one\nby the agent\n"
# What the command of the agent does: everything that no tool tells.
WORK = (
    "mkdir made && printf new > 'made/a b.txt' && rm gone.txt"
    " && mv 'old name.txt' 'new name.txt' && chmod 755 tool.sh"
    " && printf '\\000\\001\\002' > pic.bin && echo noise > noise.log"
)
Step = tuple[str, Any]


def out(*lines: Json) -> Step:
    """Lines on stdout."""
    return ("out", stream(*lines).decode())


CHANGED = ("made/a b.txt", "gone.txt", "old name.txt", "new name.txt", "tool.sh", "pic.bin")


def edits(folder: Path, watched: Path | None = None) -> list[Step]:
    """The agent edits one file by a tool, and changes others by a command.

    `watched`: it goes on when a tape there tells of the change, however long that takes.
    """
    path, was = str(folder / "a.txt"), "one\ntwo\n"
    message = {
        "filePath": path,
        "oldString": "two",
        "newString": "by the agent",
        "originalFile": was,
        "structuredPatch": [],
    }
    return [
        out(
            init(cwd=str(folder)),
            assistant(
                call("t1", "Edit", file_path=path, old_string="two", new_string="by the agent")
            ),
        ),
        ("sh", f"printf '{PATCHED}' > a.txt"),
        *([("noticed", [str(watched), "a.txt"])] if watched is not None else []),
        out(
            answer("t1", tool_use_result=message),
            assistant(call("t2", "Bash", command="work"), message="msg_2"),
        ),
        ("sh", WORK),
        *[("noticed", [str(watched), name]) for name in CHANGED if watched is not None],
        out(answer("t2"), assistant(text("Done."), message="msg_3"), result()),
    ]


class Stage(Place):
    """A place whose agent follows a script, and works in a folder with files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -SE "{ACTOR}" "{folder}" "$@"\n'
        )
        write(self.work / "a.txt", "one\ntwo\n")
        write(self.work / "gone.txt", "bye\n")
        write(self.work / "old name.txt", "".join(f"line {number}\n" for number in range(40)))
        write(self.work / "tool.sh", "#!/bin/sh\n")
        (self.work / "pic.bin").write_bytes(bytes(range(256)))
        write(self.work / ".gitignore", "*.log\n")

    def repository(self) -> None:
        """Make the folder a repository with staged, modified and untracked files."""
        run_git(self.work, "init", "-q")
        run_git(self.work, "add", "-A")
        run_git(self.work, "commit", "-qm", "first")
        write(self.work / "staged.txt")
        run_git(self.work, "add", "staged.txt")
        write(self.work / "new before.txt")

    def script(self, *scripts: list[Step]) -> None:
        """What the agent does at each start."""
        for number, steps in enumerate(scripts):
            (self.folder / f"script-{number:03d}").write_text(json.dumps(steps))

    def changes(self, *words: str) -> Json:
        """What `steno diff` says."""
        results: Json = json.loads(self.steno("diff", "--json", "--no-import", *words).stdout)
        return results

    def rows(self, sql: str) -> list[Any]:
        """What the ledger answers."""
        with sqlite3.connect(self.data / "ledger.db") as ledger:
            return ledger.execute(sql).fetchall()

    def refs(self) -> list[str]:
        """The states that git keeps for us."""
        return (
            run_git(self.work, "for-each-ref", "--format=%(refname)", "refs/steno").decode().split()
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def short(found: Json) -> list[tuple[str, str, str, str | None]]:
    """What is compared of the list of changes."""
    return [(row["path"], row["change"], row["source"], row["tool"]) for row in found["rows"]]


def ended_well(done: Done) -> None:
    assert (done.returncode, done.stdout) == (0, b"Done.\n"), done.stderr


# -- git -----------------------------------------------------------------------------------------


def test_w3_a_run_in_a_repository_can_be_seen_and_undone(stage: Stage) -> None:
    """All sources in one list with their calls; the patch reverts it; index and branches stay."""
    stage.repository()
    stage.script(edits(stage.work))
    before, index = everything(stage.work), (stage.work / ".git" / "index").read_bytes()
    status = run_git(stage.work, "status", "--porcelain=v2", "-z")
    ended_well(stage.steno("run", "Do the work."))
    assert (stage.work / ".git" / "index").read_bytes() == index
    report = json.loads(stage.steno("show", "--json", str(stage.tapes[0])).stdout)
    assert [
        (file["path"], file["change"], file["source"], file["tools"]) for file in report["files"]
    ] == [
        ("a.txt", "modified", "tool", ["t1"]),
        ("gone.txt", "deleted", "git", ["t2"]),
        ("made/a b.txt", "created", "git", ["t2"]),
        ("old name.txt", "deleted", "git", ["t2"]),
        ("new name.txt", "created", "git", ["t2"]),
        ("pic.bin", "modified", "git", ["t2"]),
        ("tool.sh", "modified", "git", ["t2"]),
    ]
    results = stage.changes()
    assert (results["patch"], short(results)) == (
        "git",
        [
            ("a.txt", "modified", "tool", "Edit"),
            ("gone.txt", "deleted", "git", "Bash"),
            ("made/a b.txt", "created", "git", "Bash"),
            ("new name.txt", "renamed", "git", "Bash"),
            ("pic.bin", "modified", "git", "Bash"),
            ("tool.sh", "modified", "git", "Bash"),
        ],
    )
    by_path = {row["path"]: row for row in results["rows"]}
    assert (by_path["new name.txt"]["was"], by_path["pic.bin"]["binary"]) == ("old name.txt", True)
    assert (by_path["tool.sh"]["mode"], by_path["a.txt"]["added"]) == ("100644 → 100755", 1)
    assert run_git(stage.work, "branch", "--list").split() == [b"*", b"main"]
    patch = stage.steno("diff", "--no-import", "--patch", "-")
    assert (patch.returncode, patch.stderr) == (0, b"")
    run_git(stage.work, "apply", "-R", "-", data=patch.stdout)
    (stage.work / "noise.log").unlink()
    assert everything(stage.work) == before
    assert run_git(stage.work, "status", "--porcelain=v2", "-z") == status


def test_l5_what_git_keeps_goes_with_the_run(stage: Stage) -> None:
    """`steno ledger prune` lets go of the states of the runs that it takes, and of no others."""
    stage.repository()
    stage.script(edits(stage.work), [out(init(cwd=str(stage.work)), result())])
    ended_well(stage.steno("run", "Do the work."))
    stage.steno("run", "And once more.")
    older, newer = (row[0] for row in stage.rows("SELECT id FROM runs ORDER BY started_at"))
    assert stage.refs() == sorted(
        f"refs/steno/{run}/{at}" for run in (older, newer) for at in ("after", "before")
    )
    with sqlite3.connect(stage.data / "ledger.db") as ledger:
        ledger.execute("UPDATE runs SET started_at = 0, session = 'old' WHERE id = ?", (older,))
    message = stage.steno("ledger", "prune", "--older-than", "1y", "--json")
    assert json.loads(message.stdout)["dry_run"] is True
    assert len(stage.refs()) == 4
    assert stage.steno("ledger", "prune", "--older-than", "1y", "--yes").returncode == 0
    assert stage.refs() == [f"refs/steno/{newer}/after", f"refs/steno/{newer}/before"]


def test_l5_what_git_keeps_is_pruned_by_age_and_count(stage: Stage) -> None:
    """After each run; one that has not ended is kept, unless it is too old."""
    stage.repository()
    day = 86_400_000
    now = int(time.time() * 1000)
    ages = {"cc": 31, "aa": 2, "bb": 3, "dd": 4}  # the random part does not follow the time
    old, second, first, active = (
        f"{digits * 4}{now - days * day:011x}" for digits, days in ages.items()
    )
    tree = run_git(stage.work, "write-tree").decode().strip()
    for run in (old, second, first):
        run_git(stage.work, "update-ref", f"refs/steno/{run}/after", tree)
    for run in (old, second, first, active, "other"):
        run_git(stage.work, "update-ref", f"refs/steno/{run}/before", tree)
    stage.script(edits(stage.work))
    ended_well(stage.steno("run", "--undo-runs", "2", "Do the work."))
    ((run,),) = stage.rows("SELECT id FROM runs")
    kept = {ref.split("/")[2] for ref in stage.refs()}
    assert kept == {active, second, run, "other"}


@pytest.mark.parametrize("option", ["--undo-runs", "--undo-days"])
def test_what_git_keeps_can_be_switched_off(stage: Stage, option: str) -> None:
    """The report still has every change; what earlier runs left stays."""
    stage.repository()
    tree = run_git(stage.work, "write-tree").decode().strip()
    earlier = f"refs/steno/00000000{int(time.time() * 1000):011x}/after"
    run_git(stage.work, "update-ref", earlier, tree)
    stage.script(edits(stage.work))
    done = stage.steno("run", "--json", option, "off", "Do the work.")
    names = {Path(file["path"]).name for file in json.loads(done.stdout)["files"]}
    assert {"a.txt", "a b.txt", "new name.txt", "tool.sh", "pic.bin"} <= names
    assert stage.refs() == [earlier]


def test_each_attempt_has_states_of_its_own(stage: Stage) -> None:
    """Changes of the second attempt belong to that one only."""
    stage.repository()
    more = assistant(text("More to do."))
    first = [
        out(init(cwd=str(stage.work))),
        ("sh", "echo 1 > first.txt"),
        out(
            more, result(None, subtype="error_max_turns", is_error=True, errors=["Reached maximum"])
        ),
    ]
    second = [
        out(init(cwd=str(stage.work))),
        ("sh", "echo 2 > second.txt"),
        out(assistant(text("Done.")), result()),
    ]
    stage.script(first, second)
    ended_well(stage.steno("run", "--max-turns", "1..2", "Do the work."))
    item, two = (row[0] for row in stage.rows("SELECT id FROM runs ORDER BY started_at"))
    assert short(stage.changes(item)) == [("first.txt", "created", "git", None)]
    assert short(stage.changes(two)) == [("second.txt", "created", "git", None)]
    assert short(stage.changes()) == [
        ("first.txt", "created", "git", None),
        ("second.txt", "created", "git", None),
    ]
    patch = stage.steno("diff", "--no-import", "--patch", "-")
    run_git(stage.work, "apply", "-R", "-", data=patch.stdout)
    assert not {"first.txt", "second.txt"} & everything(stage.work).keys()


def test_nothing_is_kept_where_it_is_not_wanted(stage: Stage) -> None:
    """`--changes none`, also as a setting; tools are believed as ever."""
    stage.repository()
    stage.script(edits(stage.work))
    ended_well(stage.steno("run", "Do the work.", STENO_CHANGES="none"))
    assert stage.refs() == []
    assert short(stage.changes()) == [("a.txt", "modified", "tool", "Edit")]
    wrong = stage.steno("run", "--changes", "some", "Do the work.")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        b"steno: --changes: expected none, git or all, found 'some'\n",
    )


def slow_git(stage: Stage) -> None:
    """A git that never ends."""
    program = stage.folder / "bin" / "git"
    program.write_text(f"#!/bin/sh\necho $$ >> {stage.folder}/gits\nexec sleep 600\n")
    program.chmod(0o755)


def gits_left(stage: Stage) -> list[str]:
    pids = (stage.folder / "gits").read_text().split()
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_git_that_takes_too_long_holds_up_no_run(stage: Stage) -> None:
    """The run starts without a snapshot, with a recorded note and no ref left behind."""
    stage.repository()
    stage.script(edits(stage.work))
    slow_git(stage)
    done = stage.steno("run", "Do the work.")
    ended_well(done)
    assert workspace_observer.GIT_SNAPSHOT_FAILED in done.stderr.decode()
    assert workspace_observer.GIT_SNAPSHOT_FAILED in [
        tick.data.decode()
        for tick in RecordingFile(stage.tapes[0]).records()
        if tick.code == "note"
    ]
    assert (stage.folder / "gits").read_text().count("\n") == 1  # it is not asked a second time
    assert gits_left(stage) == []


def test_an_interrupt_while_git_is_waited_for(stage: Stage) -> None:
    """It is not lost: the run ends as interrupted."""
    stage.repository()
    stage.script([out(init(cwd=str(stage.work))), ("sleep", 600)])
    slow_git(stage)
    process = stage.start("run", "--json", "Do the work.")
    with process:
        while not (stage.folder / "gits").exists():
            assert process.poll() is None
        process.send_signal(2)
        stdout, _ = process.communicate(timeout=60)
    report = json.loads(stdout)
    assert (process.returncode, report["verdict"], len(report["attempts"])) == (
        130,
        "interrupted",
        1,
    )


def test_a_run_without_git(stage: Stage) -> None:
    """No warning if git is not installed."""
    stage.repository()
    stage.script(edits(stage.work))
    for name in ("sh", "printf", "mkdir", "rm", "mv", "chmod", "sleep"):
        results = subprocess.run(
            ["which", name], capture_output=True, text=True, check=True
        ).stdout.strip()
        (stage.folder / "bin" / name).symlink_to(results)
    done = stage.steno("run", "Do the work.", PATH=str(stage.folder / "bin"))
    ended_well(done)
    assert workspace_observer.GIT_SNAPSHOT_FAILED not in done.stderr.decode()
    assert short(stage.changes()) == [("a.txt", "modified", "tool", "Edit")]


def test_what_is_too_much_is_not_copied(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file that git does not have yet is not put into the user's repository."""
    stage.repository()
    monkeypatch.setattr(git, "MAX_SNAPSHOT_BYTES", 1000)
    assert git.snapshot(str(stage.work)) is not None
    (stage.work / "data.bin").write_bytes(os.urandom(2000))
    objects = run_git(stage.work, "count-objects", "-v")
    assert git.snapshot(str(stage.work)) is None
    assert run_git(stage.work, "count-objects", "-v") == objects
    write(stage.work / ".gitignore", "*.log\n*.bin\n")
    assert git.snapshot(str(stage.work)) is not None


# -- the file system -----------------------------------------------------------------------------


def test_w3_observed_changes_are_attributed_to_the_active_call(stage: Stage) -> None:
    """Also outside a repository. Ledger rows have the call; tool changes are listed once."""
    stage.script(edits(stage.work, stage.data))
    ended_well(stage.steno("run", "--changes", "all", "Do the work."))
    seen = {row[0]: row[1:] for row in stage.rows("SELECT path, change, source, call FROM changes")}
    assert seen == {
        "a.txt": ("modified", "tool", "t1"),
        "made/a b.txt": ("created", "filesystem", "t2"),
        "gone.txt": ("deleted", "filesystem", "t2"),
        "old name.txt": ("deleted", "filesystem", "t2"),
        "new name.txt": ("created", "filesystem", "t2"),
        "tool.sh": ("modified", "filesystem", "t2"),
        "pic.bin": ("modified", "filesystem", "t2"),
    }
    results = stage.changes()
    assert sorted(short(results)) == sorted(
        (path, change, source, "Edit" if call == "t1" else "Bash")
        for path, (change, source, call) in seen.items()
    )
    (tape,) = stage.tapes
    assert b"deleted gone.txt" in [
        tick.data for tick in RecordingFile(tape).records() if tick.code == "file"
    ]
    stage.steno("ledger", "rebuild", "--yes")
    assert {
        row[0]: row[1:] for row in stage.rows("SELECT path, change, source, call FROM changes")
    } == seen


def test_all_three_sources_are_one_list(stage: Stage) -> None:
    """Observed changes keep their call; git adds renames, modes and binaries; no ignored files."""
    stage.repository()
    stage.script(edits(stage.work, stage.data))
    ended_well(stage.steno("run", "--changes", "all", "Do the work."))
    results = stage.changes()
    assert sorted(short(results)) == [
        ("a.txt", "modified", "tool", "Edit"),
        ("gone.txt", "deleted", "filesystem", "Bash"),
        ("made/a b.txt", "created", "filesystem", "Bash"),
        ("new name.txt", "renamed", "filesystem", "Bash"),
        ("pic.bin", "modified", "filesystem", "Bash"),
        ("tool.sh", "modified", "filesystem", "Bash"),
    ]
    by_path = {row["path"]: row for row in results["rows"]}
    assert {row["call"] for path, row in by_path.items() if path != "a.txt"} == {"t2"}
    assert (by_path["new name.txt"]["was"], by_path["tool.sh"]["mode"]) == (
        "old name.txt",
        "100644 → 100755",
    )


def test_nothing_is_looked_at_unless_it_is_asked_for(stage: Stage) -> None:
    """Outside a repository and without an option, only tools are believed."""
    stage.script(edits(stage.work))
    ended_well(stage.steno("run", "Do the work."))
    assert [tick for tick in RecordingFile(stage.tapes[0]).records() if tick.code == "file"] == []
    assert short(stage.changes()) == [("a.txt", "modified", "tool", "Edit")]


def setup(stage: Stage, **more: Any) -> TaskSetup:
    return TaskSetup(
        launch_options=LaunchOptions(prompt="Do it.", max_turns=5),
        program=str(stage.program),
        cwd=str(stage.work),
        **{"grace": QUICK, **more},
    )


@pytest.mark.parametrize("how", ["git", "all"])
def test_l1_live_is_replay(stage: Stage, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`carry_out` compares each run with its recording: with file events, over two attempts."""
    monkeypatch.setenv("XDG_DATA_HOME", str(stage.home / "data"))
    stage.repository()
    turns = result(None, subtype="error_max_turns", is_error=True, errors=["Reached maximum"])
    first = [
        *edits(stage.work, stage.data if how == "all" else None)[:-1],
        out(answer("t2"), turns),
    ]
    stage.script(
        first, [out(init(cwd=str(stage.work))), ("sh", "echo x > late.txt"), out(result())]
    )
    results = carry_out(setup(stage, changes=how, budget=RunBudget(turns=30)))
    assert results.verdicts == ["max_turns", "success"]
    seen = {file.path: (file.change, file.source) for file in results.report.files}
    assert seen["a.txt"] == ("modified", "tool")
    who = "filesystem" if how == "all" else "git"
    assert (seen["gone.txt"], seen["late.txt"]) == (("deleted", who), ("created", who))
    calls = {file.path: file.tools for file in results.report.files}
    assert (calls["a.txt"], calls["gone.txt"], calls["late.txt"]) == (["t1"], ["t2"], [])


def test_reading_an_active_run_does_not_change_its_report() -> None:
    """Attribution can change later: here, when a second concurrent call is reported."""

    def told(look: bool) -> list[list[str]]:
        reading = RunParser()
        reading.begin_recording(Header(agent="claude", cwd="/work", started_at=0.0))
        for at, line in (
            (1.0, init(cwd="/work")),
            (2.0, assistant(call("t1", "Bash", command="a"))),
            (3.0, None),
        ):
            reading.add_events(
                reading.interpret_record(
                    Record(at, "file", b"created x")
                    if line is None
                    else Record(at, "out", stream(line))
                )
            )
            assert not look or reading.report() is not None
        late = assistant(call("t2", "Bash", command="b"), message="msg_2") | {
            "timestamp": "1970-01-01T00:00:02.500Z"
        }
        reading.add_events(reading.interpret_record(Record(3.1, "out", stream(late))))
        return [file.tools for file in reading.report().files]

    assert told(look=True) == told(look=False) == [[]]


def test_a_file_that_comes_and_goes_is_no_change(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file created and deleted again is only in the recording, not in report and ledger."""
    monkeypatch.setenv("XDG_DATA_HOME", str(stage.home / "data"))
    begun = out(init(cwd=str(stage.work)), assistant(call("t1", "Bash", command="work")))
    came, went = ("sh", "echo > draft.txt"), ("sh", "rm draft.txt")
    stage.script(
        [
            begun,
            came,
            ("noticed", [str(stage.data), "draft.txt"]),
            went,
            out(answer("t1"), result()),
        ]
    )
    with carried(setup(stage, changes="all")) as results:
        results.finish()
    assert results.report.files == []
    ticks = [
        tick.data
        for tick in RecordingFile(results.runs[0].recording_path or "").records()
        if tick.code == "file"
    ]
    assert (ticks[0], ticks[-1]) == (b"created draft.txt", b"deleted draft.txt")
    assert stage.rows("SELECT path FROM changes") == []


def test_other_tasks_continue_while_git_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop serves many: a slow repository holds up its own run and no other one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(stage.home / "data"))
    stage.repository()
    stage.script([out(init(), assistant(text("Done.")), result())])
    slow_git(stage)
    monkeypatch.setenv("PATH", f"{stage.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(workspace_observer, "GIT_TIMEOUT_SECONDS", 20.0)
    with ProcessLoop() as loop:
        held = Task(loop, setup(stage, changes="git"))
        held.start()
        other = Task(loop, setup(stage))
        other.start()
        loop.run(until=lambda: other.is_finished)
        assert (held.run, held.is_finished) == (None, False)
        for pid in (stage.folder / "gits").read_text().split():
            os.kill(int(pid), 9)
        loop.run(until=lambda: held.is_finished)
    assert held.report is not None
    assert held.report.verdict == "success"


def test_a_call_that_changes_several_files(stage: Stage) -> None:
    """Each is a row of its own, and booked twice it is the same row."""
    rows = [LedgerRowSink(CODEX, "s", 0, "r") for _ in range(2)]
    for item in rows:
        item.add([ev.ToolCall(1, "s", None, None, "c", "file_change", "file_edit")])
        item.add(
            [
                ev.FileChanged(2, "s", None, None, f"/p/{name}", "modified", "c")
                for name in ("a", "b", "c")
            ]
        )
    results = [(row.id, row.path, row.call) for row in rows[0].batch().changes]
    assert [(path, whose) for _, path, whose in results] == [
        ("/p/a", "c"),
        ("/p/b", "c"),
        ("/p/c", "c"),
    ]
    assert len({id_ for id_, _, _ in results}) == 3
    assert rows[0].batch().changes == rows[1].batch().changes


def test_the_one_call_that_runs() -> None:
    """With two possible calls none is named; reading calls and file tools don't count."""
    rows = LedgerRowSink(CODEX, "s", 0, "r")
    rows.add(
        [
            ev.ToolCall(1, "s", None, None, "edit", "Edit", "file_edit"),
            ev.ToolCall(1, "s", None, None, "r", "Read", "file_read"),
        ]
    )
    rows.add([seen("a")])
    rows.add([ev.ToolCall(2, "s", None, None, "one", "Bash", "shell"), seen("b")])
    rows.add([ev.ToolCall(3, "s", None, None, "two", "Bash", "shell"), seen("c")])
    rows.add([ev.ToolResult(4, "s", None, None, "one"), seen("d")])
    assert [(row.path, row.call) for row in rows.batch().changes] == [
        ("/p/a", "edit"),
        ("/p/b", "one"),
        ("/p/c", None),
        ("/p/d", "two"),
    ]


def test_a_file_event_before_the_line_of_its_tool() -> None:
    """A file event may precede the tool's own line: both become one change."""
    rows, changes = LedgerRowSink(CODEX, "s", 0, "r"), ChangeTracker("/p")
    at = datetime(2026, 11, 15, tzinfo=timezone.utc)
    for event in (
        ev.FileChanged(0, None, None, at, "/p/a", "created", None, "filesystem"),
        ev.ToolCall(1, "s", None, at + timedelta(milliseconds=90), "c", "Write", "file_write"),
        ev.ToolResult(2, "s", None, at + timedelta(milliseconds=90), "c"),
        ev.FileChanged(2, "s", None, at + timedelta(milliseconds=90), "/p/a", "created", "c"),
        ev.FileChanged(
            0, None, None, at + timedelta(milliseconds=200), "/p/a", "modified", None, "filesystem"
        ),
    ):
        rows.add([event])
        changes.add(event)
    assert [(row.path, row.change, row.source, row.call) for row in rows.batch().changes] == [
        ("/p/a", "created", "tool", "c")
    ]
    assert [
        (change.path, change.change, change.source, change.call) for change in changes.all_changes()
    ] == [("a", "created", "tool", "c")]


def seen(name: str) -> ev.FileChanged:
    """The disk shows that a file changed."""
    return ev.FileChanged(0, None, None, None, f"/p/{name}", "modified", None, "filesystem")


# -- a sync beside it ----------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", [False, True])
def test_a_sync_inside_a_run(stage: Stage, quiet: bool) -> None:
    """Tool and disk changes are listed at the end; nothing is shown with --quiet."""
    stage.script(edits(stage.work))
    there = stage.folder / "there"
    done = stage.steno(
        "run", *(["--quiet"] if quiet else []), "--sync", f"dir:{there}", "Do the work."
    )
    ended_well(done)
    changed = {"a.txt", "made/a b.txt", "new name.txt", "tool.sh", "pic.bin"}
    assert everything(there) == {
        name: results for name, results in everything(stage.work).items() if name in changed
    }
    assert (
        b"[steno] \xe2\x9c\x93 a.txt\n" in done.stderr,
        b"steno: sync: 5 copied" in done.stderr,
    ) == (not quiet, not quiet)
    assert not (quiet and done.stderr)


def test_a_sync_inside_a_run_takes_the_options_of_sync(stage: Stage) -> None:
    """Which files, and what is deleted; what is ignored is named."""
    stage.script(edits(stage.work), edits(stage.work))
    there = stage.folder / "there"
    for name in ("gone.txt", "pic.bin"):
        write(there / name, "old")
    words = ("run", "--sync", f"dir:{there}", "--delete", "--exclude", "*.bin", "--exclude", "made")
    done = stage.steno(*words, "Do the work.")
    ended_well(done)
    assert set(everything(there)) == {"a.txt", "new name.txt", "tool.sh", "pic.bin"}
    assert b"1 ignored: noise.log (" in done.stderr

    for name in ("made/a b.txt", "new name.txt"):
        (stage.work / name).unlink()
    (stage.work / "made").rmdir()
    write(stage.work / "gone.txt")
    write(stage.work / "old name.txt")
    done = stage.steno("run", "--sync", f"dir:{there}", "--no-ignore", "Do the work.")
    ended_well(done)
    assert "noise.log" in everything(there)
    assert b" ignored" not in done.stderr


def test_the_options_of_a_sync_need_one(stage: Stage) -> None:
    """A usage error, before the agent starts."""
    done = stage.steno("run", "--exclude", "*.bin", "Do the work.")
    assert (done.returncode, done.stderr) == (
        2,
        b"steno: --exclude needs --sync DEST; see: steno run --help\n",
    )


@pytest.mark.parametrize("quiet", [False, True])
def test_a_sync_inside_a_run_that_fails(stage: Stage, quiet: bool) -> None:
    """Reported also with --quiet, with an exit code."""
    stage.script(edits(stage.work))
    done = stage.steno(
        "run", *(["--quiet"] if quiet else []), "--sync", "cmd:sh -c 'exit 127'", "Do the work."
    )
    assert (done.returncode, done.stdout) == (1, b"Done.\n")
    assert b"\n[steno] \xe2\x9c\x97 a.txt: " in b"\n" + done.stderr
    assert b"steno: sync: 0 copied" in done.stderr
