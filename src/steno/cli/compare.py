"""`steno compare`: compares the figures of two runs or sessions."""

from ..ledger.queries.compare import compare
from ..ledger.queries.runs import short_id
from ..views.compare import comparison_table
from .options import CommandParser
from .query_options import open_updated_ledger, write_result
from .terminal import detect_style

EXAMPLES = """examples:
  steno compare 3f9a21c0 81d4e0b7
  steno compare 3f9a 81d4 --json | jq '.rows[] | select(.figure == "cost_usd").ratio'

Difference and ratio compare B with A. An ID prefix is enough.
"""


def run(args: list[str]) -> int:
    """Run `steno compare` and return its exit code."""
    parser = CommandParser("compare", "Compare two runs or sessions.", EXAMPLES)
    parser.add_argument("a", metavar="A", help="run or session")
    parser.add_argument("b", metavar="B", help="run or session to compare with A")
    parser.add_output_format()
    parser.add_ledger()
    options = parser.parse_utf8_args(args)
    store = open_updated_ledger(options)
    figures, id_a, id_b = compare(store, options.a, options.b)
    write_result(
        options.form,
        lambda: comparison_table(
            figures, short_id(store, id_a), short_id(store, id_b), detect_style()
        ),
        lambda: [figure.as_json() for figure in figures],
        extra={"a": id_a, "b": id_b},
        leading_columns=("figure",),
    )
    return 0
