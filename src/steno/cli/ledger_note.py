"""`steno note`: write something down beside a run or a session; `steno show ID` tells it. Secrets are masked first."""

from ..ledger.queries import runs as asks
from ..ledger.timestamps import now_ms
from .options import CommandParser
from .query_options import open_updated_ledger
from .terminal import print_lines

EXAMPLES = """examples:
  steno note 3f9a21c0 "flaky: the network was down"
  steno note 3f9a21c0 approved by Ada

The beginning of an id is enough. `steno show ID` shows the notes below the card.
"""


def run(words: list[str]) -> int:
    """Carry out `steno note` and return its exit code."""
    parser = CommandParser("note", "Write a note beside a run or a session.", EXAMPLES)
    parser.add_argument("id", metavar="ID", help="the run or session")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="what to note")
    parser.add_ledger(can_import=False)
    options = parser.parse_utf8_args(words)
    store = open_updated_ledger(options)
    table, id_ = asks.get_by_prefix(store, options.id)
    asks.add_note(store, table, id_, now_ms(), " ".join(options.text))
    print_lines([f"noted beside {'run' if table == 'runs' else 'session'} {id_}"])
    return 0
