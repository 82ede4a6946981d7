"""A real PostgreSQL server for the tests: started once, on a socket in a temporary folder.

Started by root, it runs as `postgres` or `nobody`. If it or psycopg is missing, `missing` is the
reason, and the tests are skipped unless STENO_REQUIRE names `postgres`.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "60",
}
STAYS = ("PATH", "LANG", "LC_ALL")


def program(name: str) -> str | None:
    """Where one of PostgreSQL's programs is; pg_ctl starts the others from beside it."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def missing() -> str | None:
    """Why there can be no PostgreSQL here."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    absent = [name for name in ("initdb", "pg_ctl") if program(name) is None]
    return f"PostgreSQL is not installed: no {', '.join(absent)}" if absent else None


def _user() -> pwd.struct_passwd | None:
    """Who runs it: ourselves, unless we are root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _call(user: pwd.struct_passwd | None, *words: str | Path) -> None:
    identity = (
        {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    )
    settings = {name: value for name, value in os.environ.items() if name in STAYS}
    done = subprocess.run(
        [str(word) for word in words],
        env=settings,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
        **identity,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")


@contextmanager
def server() -> Iterator[str]:
    """Yield a running server, in a folder with a short path: socket names are limited."""
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    data, log = folder / "data", folder / "log"
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        folder.chmod(0o755)
        _call(
            user,
            str(program("initdb")),
            "-D",
            data,
            "-U",
            "steno",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        )
        given = " ".join(
            f"-c {name}='{value}'"
            for name, value in {**SETTINGS, "unix_socket_directories": str(folder)}.items()
        )
        _call(user, str(program("pg_ctl")), "-D", data, "-l", log, "-o", given, "-w", "start")
        try:
            yield str(folder)
        finally:
            _call(user, str(program("pg_ctl")), "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def restart(place: str) -> None:
    """Stop the server as an administrator does, and start it again with the same options."""
    data, log = f"{place}/data", f"{place}/log"
    command = (str(program("pg_ctl")), "-D", data, "-l", log, "-m", "fast", "-w", "restart")
    _call(_user(), *command)


def url(place: str, database: str = "postgres") -> str:
    """The URL of one of the server's databases."""
    return f"postgresql://steno@/{database}?host={place}"


def fresh(place: str, name: str) -> str:
    """The URL of a new, empty database."""
    import psycopg

    with psycopg.connect(url(place), autocommit=True) as base:
        base.execute(f'CREATE DATABASE "{name}"'.encode())
    return url(place, name)
