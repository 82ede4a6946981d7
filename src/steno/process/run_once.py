"""Run one command to completion and return its output. No shell; can be killed from a thread."""

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from select import poll
from signal import SIGKILL
from tempfile import TemporaryFile
from typing import IO

from .child import EXIT_NOT_FOUND

DEFAULT_TIMEOUT_SECONDS = 60.0  # git in a large repository is slow
EXIT_TIMEOUT = 124  # as in timeout(1)


class RunOnce:
    """A command. Its whole process group is killed with it."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        extra_env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        unset_env: Collection[str] = (),
    ) -> None:
        self._argv = list(argv)
        self._cwd = cwd
        self._timeout = timeout
        inherited = {name: value for name, value in os.environ.items() if name not in unset_env}
        self._env = inherited | dict(extra_env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def run(self) -> tuple[int, bytes, str]:
        """Exit code, stdout and stderr. 127: cannot be started; 124: timed out.

        Output goes to files: a pipe stays open as long as any background process of the command.
        """
        try:
            with TemporaryFile() as out, TemporaryFile() as err:
                return self._run(out, err)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            return EXIT_NOT_FOUND, b"", f"{self._argv[0]}: {reason}"

    def _run(self, out: IO[bytes], err: IO[bytes]) -> tuple[int, bytes, str]:
        process = subprocess.Popen(  # noqa: S603  # no shell; the caller's argv as it is
            self._argv,
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        self._process = process
        if self._is_killed:  # during the start
            self.kill()
        try:
            _wait_for_exit(process, self._timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait()
            return EXIT_TIMEOUT, b"", f"{self._argv[0]} timed out after {self._timeout:g} s"
        return process.returncode, _read_all(out), _read_all(err).decode("utf-8", "replace")

    def kill(self) -> None:
        """Kill the command and its process group."""
        self._is_killed = True
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, SIGKILL)


def _wait_for_exit(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait or raise TimeoutExpired. By pidfd if available: Popen.wait polls 20 times a second."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        process.wait(seconds)
        return
    try:
        ready = poll()
        ready.register(descriptor)
        ready.poll(seconds * 1000)
    finally:
        os.close(descriptor)
    process.wait(0)


def _read_all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
