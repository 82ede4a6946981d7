"""Commands of cmd: destinations: none is left after any signal to steno."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno.process import process_tree, run_tag
from steno.sync.destination_queue import pending_syncs
from tests.support.claude_lines import answer, assistant, call, init, stream
from tests.support.program import argv, environment, steno
from tests.support.syncs import until, write

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
# The command, a child of it, one in a session of its own, and one without parent or environment.
# It writes their pids and waits; ignoring SIGTERM is up to the first argument.
COMMAND = """
[ "$1" = polite ] || trap '' TERM
sleep 710 & echo $! >>"$2"
setsid sleep 711 & echo $! >>"$2"
sleep 0.3
(env -i setsid sh -c 'echo $$ >>"$1"; exec sleep 712' sh "$2" >/dev/null 2>&1 &)
echo $$ >>"$2"
wait
"""


class Commands:
    """A project whose files are copied by a command that never ends."""

    def __init__(self, project: Path, folder: Path, mode: str = "polite") -> None:
        write(project / "a", "x")
        script = write(folder / "command.sh", COMMAND)
        self._pids = folder / "pids"
        self.destination = f"cmd:sh {script} {mode} {self._pids}"

    def started(self) -> list[int]:
        """The pids, as soon as all four are running."""
        until(lambda: len(self._pids.read_text().split()) == 4)
        return [int(word) for word in self._pids.read_text().split()]

    def left(self) -> list[int]:
        pids = self._pids.read_text().split() if self._pids.exists() else []
        return [int(pid) for pid in pids if process_tree.start_time_of(int(pid)) is not None]

    def tidy(self) -> None:
        for pid in self.left():
            process_tree.send_signal(
                run_tag.ProcessInfo(pid, 0, 0, process_tree.start_time_of(pid) or 0, ""),
                signal.SIGKILL,
            )


@pytest.fixture
def commands(project: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Commands]:
    made = Commands(project, tmp_path, getattr(request, "param", "polite"))
    yield made
    made.tidy()


@pytest.mark.parametrize("commands", ["polite", "stubborn"], indirect=True)
@pytest.mark.parametrize("number", SIGNALS)
def test_sync_ends_its_commands(
    commands: Commands, project: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """It ends by the signal, and says what is left to copy."""
    child = subprocess.Popen(
        argv("sync", project, commands.destination),
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
    )
    commands.started()
    child.send_signal(number)
    _, stderr = child.communicate(timeout=60)
    assert commands.left() == []
    assert child.returncode == -number
    assert b"steno sync --pending" in stderr
    pending = pending_syncs(tmp_path / "steno" / "sync")
    assert [(sync.names_by_destination, sync.lost_owner) for sync in pending] == [
        ({0: ["a"]}, None)
    ]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("late", [False, True])
def test_watch_ends_its_commands(
    commands: Commands, project: Path, tmp_path: Path, number: signal.Signals, late: bool
) -> None:
    """While the stream runs, and after its end, when pending copies are finished."""
    child = subprocess.Popen(
        argv("watch", "--quiet", "--cwd", project, "--sync", commands.destination),
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    changed = assistant(call("t1", "Write", file_path=str(project / "a"), content="x"))
    child.stdin.write(stream(init(cwd=str(project)), changed, answer("t1")))
    child.stdin.flush()
    commands.started()
    if late:
        child.stdin.close()
        child.stdin = None
        time.sleep(0.5)
    child.send_signal(number)
    child.communicate(timeout=60)
    assert commands.left() == []
    assert child.returncode == -number
    assert len(pending_syncs(tmp_path / "steno" / "sync")) == 1


def test_a_killed_sync_leaves_no_command(commands: Commands, project: Path, tmp_path: Path) -> None:
    """The watchdog terminates them."""
    child = subprocess.Popen(
        argv("sync", project, commands.destination),
        env=environment(tmp_path),
        stderr=subprocess.DEVNULL,
    )
    commands.started()
    child.kill()
    child.wait()
    until(lambda: commands.left() == [])


@pytest.mark.parametrize("command", [("sync", "--pending"), ("ps",)])
def test_the_next_command_finds_what_no_watchdog_ended(
    commands: Commands, project: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """As for the processes of agents; what a finished sync has left is not touched."""
    env = environment(tmp_path)
    script = (
        "import sys; from steno.process import process_tree; from steno.cli import main;"
        "process_tree.WATCHDOG_SCRIPT = 'exit 0'; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, "sync", str(project), commands.destination],
        env=env,
        stderr=subprocess.DEVNULL,
    )
    started = commands.started()
    child.kill()
    child.wait()
    assert commands.left() == started
    shutil.rmtree(project)  # so that --pending starts nothing again
    done = steno(tmp_path, *command)
    assert commands.left() == []
    assert done.err.count("stopped a command of a killed sync:") == 4
    assert "stopped" not in steno(tmp_path, *command).err


def test_what_a_finished_command_leaves_running_is_its_own(project: Path, tmp_path: Path) -> None:
    """Such as the connection that ssh shares between commands."""
    write(project / "a", "x")
    script = write(tmp_path / "command.sh", 'sleep 713 >/dev/null & echo $! >"$1"\n')
    assert steno(tmp_path, "sync", project, f"cmd:sh {script} {tmp_path}/pid").code == 0
    pid = int((tmp_path / "pid").read_text())
    steno(tmp_path, "sync", project, f"dir:{tmp_path}/there")
    start_time = process_tree.start_time_of(pid)
    assert start_time is not None
    process_tree.send_signal(run_tag.ProcessInfo(pid, 0, 0, start_time, ""), signal.SIGKILL)
