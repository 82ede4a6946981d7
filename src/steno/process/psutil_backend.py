"""What `kin` asks of a system that has no /proc, by psutil: best effort, as far as the system tells at all."""

import os
from collections.abc import Iterator

import psutil

from .process_table import RUN_TAG_VARIABLE, ProcessInfo

PSUTIL_ERRORS = (psutil.Error, OSError)


def iter_processes() -> Iterator[ProcessInfo]:
    """Every living process that can be looked at."""
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                pid = process.pid
                yield ProcessInfo(
                    pid,
                    process.ppid(),
                    os.getsid(pid),
                    _start_time(process),
                    _read_environ(process).get(RUN_TAG_VARIABLE, ""),
                )
        except PSUTIL_ERRORS:
            continue


def _read_environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except PSUTIL_ERRORS:  # macOS tells nobody the environment of its own programs
        return {}


def _start_time(process: psutil.Process) -> int:
    return round(process.create_time() * 100)


def start_time_of(pid: int) -> int | None:
    """When it was born, in hundredths of a second since 1970."""
    try:
        process = psutil.Process(pid)
        return _start_time(process) if process.status() != psutil.STATUS_ZOMBIE else None
    except PSUTIL_ERRORS:
        return None


def command_line_of(pid: int) -> str:
    """Its command line."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except PSUTIL_ERRORS:
        return ""


def is_own_process(pid: int) -> bool:
    """Whether it runs as the same user as we do."""
    try:
        return psutil.Process(pid).uids().real == os.getuid()
    except PSUTIL_ERRORS:
        return False
