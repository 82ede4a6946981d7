"""steno is suspended (Ctrl-Z, SIGSTOP) for longer than a time limit, and continued."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.claude_lines import assistant, init, result, stream, text
from tests.support.program import argv, environment
from tests.support.syncs import write

LIMIT = 4.0
AGENT = """#!{python}
import pathlib, sys, time
sys.stdout.buffer.write({first!r})
sys.stdout.flush()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
sys.stdout.buffer.write({rest!r})
"""


@pytest.mark.parametrize("option", ["--silence", "--timeout"])
@pytest.mark.parametrize("moment", ["meanwhile", "afterwards"])
def test_suspended_time_does_not_count(tmp_path: Path, option: str, moment: str) -> None:
    """The agent works on meanwhile, or after that: no limit has been exceeded."""
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    first = stream(init(), assistant(text("Hello.")))
    script = AGENT.format(python=sys.executable, first=first, rest=stream(result("Done.")))
    program = write(tmp_path / "claude", script)
    program.chmod(0o755)
    words = ("run", "--raw", "--attempts", "1", "--cwd", cwd, "--program", program)
    child = subprocess.Popen(
        argv(*words, option, str(LIMIT), "--prompt", "Say hello."),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline()  # steno has read it
        child.send_signal(signal.SIGSTOP)
        time.sleep(LIMIT / 4)
        if moment == "meanwhile":
            (cwd / "go").touch()
        time.sleep(LIMIT * 1.25)
        child.send_signal(signal.SIGCONT)
        if moment == "afterwards":
            time.sleep(LIMIT / 16)
            (cwd / "go").touch()
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (b"Done." in out, child.returncode) == (True, 0)
