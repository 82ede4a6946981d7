"""`steno mcp`: serves steno's knowledge of a run and of the others to an agent, as MCP tools."""

from ..errors import StenoError
from ..installation import extra_command
from ..ledger.store import ledger_exists, open_ledger
from ..runner.run_registry import get_active_run
from ..runner.setup import MAX_PERMISSION_SECONDS
from ..team.roster import own_run
from .options import CommandParser, duration_type

EXAMPLES = """examples:
  claude mcp add steno -- steno mcp
  steno run --mcp-config '{"mcpServers":{"steno":{"command":"steno","args":["mcp"]}}}' \\
    --allow mcp__steno "fix the failing test"

Serves on stdin and stdout, for an agent that starts it. Tools: status (own context, cost and
budget), roster, say, inbox, claim, release, claims, search. The agent's run is found by the
environment that `steno run` sets. It needs the extra `mcp`.
`steno run --permission-relay` starts it by itself.
"""


def run(args: list[str]) -> int:
    """Run `steno mcp` until its input ends, and return its exit code."""
    parser = CommandParser(
        "mcp", "Serve status, messages, claims and search to an agent.", EXAMPLES
    )
    parser.add_argument(
        "--run", metavar="ID", help="run of the agent (default: the one that started this command)"
    )
    parser.add_argument(
        "--permission-timeout",
        type=lambda text: duration_type(text) or MAX_PERMISSION_SECONDS,
        metavar="TIME",
        help="also serve the tool `permission`, which asks a person; time limit for the answer",
    )
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    try:
        from ..team.mcp_server import TeamServer
    except ModuleNotFoundError as error:
        package = (error.name or "mcp").partition(".")[0]
        raise StenoError(
            f"the MCP server needs the package {package}: {extra_command('mcp')}"
        ) from None
    run_id = options.run or own_run()
    location = options.ledger or _ledger_of(run_id)
    open_ledger(location).close()  # creates or migrates it
    TeamServer(location, run_id, options.permission_timeout).serve()
    return 0


def _ledger_of(run_id: str | None) -> str | None:
    """The ledger file that the run is written to; a server's URL has no password here."""
    info = get_active_run(run_id) if run_id is not None else None
    location = info.ledger if info is not None else None
    is_file = location is not None and "://" not in location and ledger_exists(location)
    return location if is_file else None
