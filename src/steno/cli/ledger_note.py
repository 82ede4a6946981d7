"""`steno ledger note`: attaches a note to a run or session. Secrets in it are redacted."""

from ..ledger.queries import runs as queries
from ..ledger.timestamps import now_ms
from .options import CommandParser
from .query_options import open_updated_ledger
from .terminal import print_lines

EXAMPLES = """examples:
  steno ledger note 3f9a21c0 "flaky: the network was down"
  steno ledger note 3f9a21c0 approved by Ada

An ID prefix is enough. `steno show ID` prints the notes below the summary.
"""


def run(args: list[str]) -> int:
    """Run `steno ledger note` and return its exit code."""
    parser = CommandParser("ledger note", "Attach a note to a run or session.", EXAMPLES)
    parser.add_argument("id", metavar="ID", help="run or session")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="text of the note")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(args)
    store = open_updated_ledger(options)
    table, id_ = queries.get_by_prefix(store, options.id)
    queries.add_note(store, table, id_, now_ms(), " ".join(options.text))
    print_lines([f"note added to {'run' if table == 'runs' else 'session'} {id_}"])
    return 0
