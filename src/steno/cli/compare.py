"""`steno compare`: two runs or sessions side by side. It parses and prints; the ledger answers."""

from ..ledger.ask.compare import compared
from ..screen.sides import sides
from .asked import opened, write
from .options import Parser
from .terminal import look

EXAMPLES = """examples:
  steno compare 3f9a21c0 81d4e0b7     what the second did otherwise
  steno compare 3f9a 81d4 --json | jq '.rows[] | select(.figure == "cost_usd").ratio'

Difference and ratio are of B against A. The beginning of an id is enough.
"""


def run(words: list[str]) -> int:
    """Carry out `steno compare` and return its exit code."""
    parser = Parser("compare", "Put the figures of two runs or sessions side by side.", EXAMPLES)
    parser.add_argument("a", metavar="A", help="a run or session")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_forms()
    parser.add_ledger()
    options = parser.given(words)
    figures, one, two = compared(opened(options), options.a, options.b)
    write(
        options.form,
        lambda: sides(figures, one[:8], two[:8], look()),
        lambda: [figure.as_json() for figure in figures],
        more={"a": one, "b": two},
        names=("figure",),
    )
    return 0
