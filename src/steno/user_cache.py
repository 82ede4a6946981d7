"""Files in the user's cache directory."""

import os
from pathlib import Path


def cache_path(name: str) -> Path:
    """The path of a file; RuntimeError if the user has no home folder."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("steno", appauthor=False)) / name


def write_cache_file(path: Path, data: bytes) -> None:
    """Write a file as a whole: another process sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
