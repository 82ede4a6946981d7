"""Short commands that steno itself needs an answer from, such as git. It waits for them, but not for long."""

import os
import subprocess

PATIENCE = 60.0  # seconds: a checkout of a large repository takes long, and none takes for ever


def ask(argv: tuple[str, ...], cwd: str) -> tuple[int, str, str]:
    """What a command answers: its exit code, stdout and stderr. 127: it is not there; 124: it did not end in time."""
    try:
        done = subprocess.run(  # noqa: S603  # no shell; the words are ours
            argv,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"{argv[0]} did not end within {PATIENCE:.0f} s"
    except OSError as problem:
        return 127, "", f"{argv[0]}: {problem.strerror or problem}"
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
