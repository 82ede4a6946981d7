"""Disks that are small or can only be read, where the system lets one be mounted; else a visible skip."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size: str = "256k") -> Iterator[Path]:
    """A disk that is soon full."""
    path.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def seal(disk: Path) -> None:
    """Nothing can be written on it from now on."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on it."""
    with (disk / "full").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
