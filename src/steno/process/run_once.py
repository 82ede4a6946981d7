"""One command, run to its end, with its answer as bytes. It starts no shell, and it can be cut off from another thread."""

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from select import poll
from signal import SIGKILL
from tempfile import TemporaryFile
from typing import IO

DEFAULT_TIMEOUT_SECONDS = (
    60.0  # seconds; git in a large repository takes long, and nothing may take for ever
)
EXIT_NOT_FOUND, EXIT_TIMEOUT = 127, 124  # as a shell and `timeout` tell it


class RunOnce:
    """A command that can be run, and cut off while it runs. Its whole process group is ended with it."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        extra_env: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        unset_env: Collection[str] = (),
    ) -> None:
        self._argv, self._cwd, self._timeout = list(argv), cwd, timeout
        self._env = {
            name: value for name, value in os.environ.items() if name not in unset_env
        } | dict(extra_env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def run(self) -> tuple[int, bytes, str]:
        """Its exit code, stdout and stderr. 127: it cannot be started; 124: it did not end in time.

        It prints into files: a pipe would stay open as long as anything that it left running.
        """
        try:
            with TemporaryFile() as out, TemporaryFile() as err:
                return self._run(out, err)
        except (OSError, ValueError) as problem:
            return (
                EXIT_NOT_FOUND,
                b"",
                f"{self._argv[0]}: {getattr(problem, 'strerror', None) or problem}",
            )

    def _run(self, out: IO[bytes], err: IO[bytes]) -> tuple[int, bytes, str]:
        process = self._process = subprocess.Popen(  # noqa: S603  # no shell; the words are as they were given
            self._argv,
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        if self._is_killed:  # while it was started
            self.kill()
        try:
            _wait_for_exit(process, self._timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            process.wait()
            return EXIT_TIMEOUT, b"", f"{self._argv[0]} did not end within {self._timeout:.0f} s"
        return process.returncode, _read_all(out), _read_all(err).decode("utf-8", "replace")

    def kill(self) -> None:
        """End it at once, with all that it started in its group."""
        self._is_killed = True
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, SIGKILL)


def _wait_for_exit(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait for its end; TimeoutExpired. Where the system tells of it, at once: Python itself looks 20 times a second."""
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
