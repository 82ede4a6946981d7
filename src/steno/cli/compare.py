"""`steno compare`: two runs or sessions side by side. It parses and prints; the ledger answers."""

from ..ledger.queries.compare import compare
from ..views.compare import comparison_table
from .options import CommandParser
from .query_options import open_updated_ledger, write_result
from .terminal import detect_style

EXAMPLES = """examples:
  steno compare 3f9a21c0 81d4e0b7     what the second did otherwise
  steno compare 3f9a 81d4 --json | jq '.rows[] | select(.figure == "cost_usd").ratio'

Difference and ratio are of B against A. The beginning of an id is enough.
"""


def run(words: list[str]) -> int:
    """Carry out `steno compare` and return its exit code."""
    parser = CommandParser(
        "compare", "Put the figures of two runs or sessions side by side.", EXAMPLES
    )
    parser.add_argument("a", metavar="A", help="a run or session")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_utf8_args(words)
    figures, one, two = compare(open_updated_ledger(options), options.a, options.b)
    write_result(
        options.form,
        lambda: comparison_table(figures, one[:8], two[:8], detect_style()),
        lambda: [figure.as_json() for figure in figures],
        extra={"a": one, "b": two},
        leading_columns=("figure",),
    )
    return 0
