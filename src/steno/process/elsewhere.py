"""What `kin` asks of a system that has no /proc, by psutil: best effort, as far as the system tells at all."""

import os
from collections.abc import Iterator

import psutil

from .kin import Kin
from .mark import NAME

GONE = (psutil.Error, OSError)


def people() -> Iterator[Kin]:
    """Every living process that can be looked at."""
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                pid = process.pid
                yield Kin(pid, process.ppid(), os.getsid(pid), _born(process), _environment(process).get(NAME, ""))
        except GONE:
            continue


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except GONE:  # macOS tells nobody the environment of its own programs
        return {}


def _born(process: psutil.Process) -> int:
    return round(process.create_time() * 100)


def born(pid: int) -> int | None:
    """When it was born, in hundredths of a second since 1970."""
    try:
        process = psutil.Process(pid)
        return _born(process) if process.status() != psutil.STATUS_ZOMBIE else None
    except GONE:
        return None


def command(pid: int) -> str:
    """Its command line."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except GONE:
        return ""


def mine(pid: int) -> bool:
    """Whether it runs as the same user as we do."""
    try:
        return psutil.Process(pid).uids().real == os.getuid()
    except GONE:
        return False
