"""Resumes a session in the background, for the page and the full screen."""

import os
import subprocess
from pathlib import Path

from ..agents import get_agent
from ..agents.base import can_resume
from ..errors import StenoError
from ..executables import absolute_search_path, own_command
from ..ledger.store import ledger_url

DEFAULT_PROMPT = "continue"


def resume_in_background(
    session: str | None, agent: str | None, folder: str | None, ledger: str | None, prompt: str
) -> None:
    """Start `steno run --resume` in the folder of the session. StenoError says why it can't."""
    if session is None:
        raise StenoError("no session to resume")
    known = get_agent(agent)
    if known is not None and not can_resume(known, session):
        raise StenoError(f"{agent} cannot resume a session; run the task again")
    if folder is None or not Path(folder).is_dir():
        raise StenoError(f"its folder is not on this machine: {folder or 'unknown'}")
    argv = own_command("run", "--resume", session)
    argv += ["--agent", agent] if agent else []
    url = ledger_url(ledger)
    location = url if "://" in url else str(Path(url).absolute())
    argv += ["--ledger", location, f"--prompt={prompt.strip() or DEFAULT_PROMPT}"]
    subprocess.Popen(  # noqa: S603  # our own program; the prompt is one argument
        argv,
        cwd=folder,
        # The user has not chosen this folder: nothing may run a program of it by its name.
        env={**os.environ, "PATH": absolute_search_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
