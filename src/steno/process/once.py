"""One command, run to its end, with its answer as bytes. It starts no shell, and it can be cut off from another thread."""

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from signal import SIGKILL

PATIENCE = 60.0  # seconds; git in a large repository takes long, and nothing may take for ever
NOT_THERE, TOO_LONG = 127, 124  # as a shell and `timeout` tell it


class Once:
    """A command that can be run, and cut off while it runs. Its whole process group is ended with it."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        more: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        without: Collection[str] = (),
    ) -> None:
        self._argv, self._cwd, self._patience = list(argv), cwd, patience
        self._environment = {name: value for name, value in os.environ.items() if name not in without} | dict(more or {})
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> tuple[int, bytes, str]:
        """Its exit code, stdout and stderr. 127: it cannot be started; 124: it did not end in time."""
        try:
            self._process = subprocess.Popen(  # noqa: S603  # no shell; the words are as they were given
                self._argv,
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            return NOT_THERE, b"", f"{self._argv[0]}: {getattr(problem, 'strerror', None) or problem}"
        try:
            out, err = self._process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.communicate()
            return TOO_LONG, b"", f"{self._argv[0]} did not end within {self._patience:.0f} s"
        return self._process.returncode, out, err.decode("utf-8", "replace")

    def kill(self) -> None:
        """End it at once, with all that it started in its group."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, SIGKILL)
