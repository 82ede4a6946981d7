"""Process table for systems without /proc, by psutil: best effort."""

import os
from collections.abc import Iterator

import psutil

from .run_tag import RUN_TAG_VARIABLE, ProcessInfo

PSUTIL_ERRORS = (psutil.Error, OSError)


def iter_processes() -> Iterator[ProcessInfo]:
    """All readable processes, without zombies."""
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                yield ProcessInfo(
                    pid=process.pid,
                    parent_pid=process.ppid(),
                    sid=os.getsid(process.pid),
                    start_time=_start_time(process),
                    run_tags=_read_environ(process).get(RUN_TAG_VARIABLE, ""),
                )
        except PSUTIL_ERRORS:
            continue


def _read_environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except PSUTIL_ERRORS:  # macOS hides the environment of its own programs
        return {}


def _start_time(process: psutil.Process) -> int:
    return round(process.create_time() * 100)


def start_time_of(pid: int) -> int | None:
    """Start time in hundredths of a second since 1970."""
    try:
        process = psutil.Process(pid)
        return _start_time(process) if process.status() != psutil.STATUS_ZOMBIE else None
    except PSUTIL_ERRORS:
        return None


def command_line_of(pid: int) -> str:
    """The process's command line; "" if it is gone."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except PSUTIL_ERRORS:
        return ""


def is_own_process(pid: int) -> bool:
    """Whether the process runs as the current user."""
    try:
        return psutil.Process(pid).uids().real == os.getuid()
    except PSUTIL_ERRORS:
        return False
