"""`steno serve`: shows the ledger and active runs in a browser."""

import argparse
import errno
import os
import socket
import sys
import traceback
from pathlib import Path

from ..config.files import data_folder
from ..errors import LedgerError, StenoError
from ..executables import absolute_search_path
from ..installation import extra_command
from ..ledger.queries.filters import TimeZone
from ..ledger.store import Store, check_named_ledger
from ..private_files import create_private_folder, temporary_folder
from .options import CommandParser, number_type
from .query_options import import_new, open_waiting_ledger
from .terminal import print_error, print_lines

EXAMPLES = """examples:
  steno serve                         on http://127.0.0.1:8737; prints the address with a token
  steno serve --port 0 --open         on a free port; opens the browser
  steno serve --allow-actions         also stop, message, annotate and resume runs
  steno serve --host 0.0.0.0          for other machines
  ssh -L 8737:localhost:8737 HOST     the page of another machine, through a tunnel

The page reads the ledger and the recordings of active runs; nothing leaves the machine. It needs
the extra `web`. Without --no-import, new transcripts are imported
every minute. Stop it with Ctrl-C.
"""
DEFAULT_PORT = 8737
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
USER_TIMEOUT_MS = 20_000  # the kernel drops a connection whose browser does not read


def run(args: list[str]) -> int:
    """Run `steno serve` until it is interrupted, and return its exit code."""
    options = _parse_args(args)
    try:
        from ..web import app, ledger_access, security, server
    except ModuleNotFoundError as error:
        raise StenoError(
            f"the page needs the package {error.name}: {extra_command('web')}"
        ) from None
    zone = TimeZone(options.timezone)
    check_named_ledger(options.ledger)
    open_waiting_ledger(options.ledger).close()  # creates or migrates it
    listener = _listen(options.host, options.port)
    token = None if options.no_token else _load_token(options.new_token)
    policy = security.access_policy(options.host, token, options.allow_actions)
    access = ledger_access.LedgerAccess(options.ledger, None if options.no_import else _import)
    site = app.Site(access, policy, zone, _report_error)
    address = _address(options.host, listener.getsockname()[1])
    url = address if token is None else f"{address}?token={token}"
    print_lines([f"steno serves the ledger on {url}"])
    if token is None:
        can = "read all runs" + (", stop and resume them" if options.allow_actions else "")
        print_lines([f"no token: every user and program of this machine can {can}"])
    sys.stdout.flush()
    with temporary_folder() as folder:
        if options.open:
            _open_browser(Path(folder), url)
        server.serve(site, listener)
    return 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("serve", "Show the ledger and active runs in a browser.", EXAMPLES)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=number_type("a port from 0 to 65535", 0, 65535, whole=True),
        default=DEFAULT_PORT,
        metavar="N",
        help=f"port to listen on (default: {DEFAULT_PORT}); 0 picks a free one",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--allow-actions",
        action="store_true",
        help="allow stopping, messaging, annotating and resuming runs (default: read-only)",
    )
    parser.add_argument(
        "--new-token",
        action="store_true",
        help="replace the token; addresses, bookmarks and programs with the old one stop working",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="require no token: every user and program of this machine, agents too, can open the "
        "page, and use its actions with --allow-actions",
    )
    parser.add_timezone()
    parser.add_ledger()
    options = parser.parse_utf8_args(args)
    if options.no_token and options.new_token:
        parser.error("--no-token and --new-token exclude each other")
    if options.no_token and options.host not in LOOPBACK_HOSTS:
        parser.error(f"--no-token is for {', '.join(LOOPBACK_HOSTS)}; {options.host} needs a token")
    return options


def _load_token(is_new: bool) -> str:
    from ..web.security import load_token

    folder = data_folder()
    try:
        create_private_folder(folder)
        return load_token(folder, is_new)
    except OSError as error:
        raise StenoError(f"{folder}: the token cannot be written: {error.strerror}") from None


def _open_browser(folder: Path, url: str) -> None:
    """Open the address by a file that leads to it: other users see the browser's command line."""
    import webbrowser

    from ..web.security import refresh_page, write_private_file

    page = folder / "open.html"
    write_private_file(page, refresh_page(url))
    os.environ["PATH"] = absolute_search_path()  # it looks for a browser by its name
    webbrowser.open(page.as_uri())


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. StenoError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        cause = (error.strerror or str(error)).partition(" (while")[
            0
        ]  # the rest repeats the address
        reason = f"cannot listen on this address: {cause}"
        if error.errno == errno.EADDRINUSE:
            reason = "the port is in use; choose another with --port, or any with --port 0"
        elif error.errno == errno.EACCES:
            reason = "ports below 1024 need permission; choose another with --port"
        raise StenoError(f"{host}:{port}: {reason}") from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    return listener


def _address(host: str, port: int) -> str:
    name = host if ":" not in host else f"[{host}]"
    return f"http://{name}:{port}/"


def _import(store: Store) -> None:
    """Import what agents wrote, and recover runs whose steno was killed."""
    from ..runner.run_registry import lost_runs, recover_runs

    try:
        if lost_runs():
            recover_runs(store)
        import_new(store)
    except LedgerError as error:
        print_error(f"new transcripts were not imported: {error}")


def _report_error(error: Exception) -> None:
    if isinstance(error, StenoError):
        print_error(str(error))
        return
    print_error(f"internal error: {type(error).__name__}: {error}")
    traceback.print_exception(error)
