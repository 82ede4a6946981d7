"""Signals that end a command, and ending by one."""

import os
import signal
from contextlib import suppress
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_by_signal(number: int) -> NoReturn:
    """Terminate by a signal, without a core dump; SystemExit with its code if it is blocked."""
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    raise SystemExit(128 + number)
