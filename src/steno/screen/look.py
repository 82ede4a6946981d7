"""How a page is to look: its width and its colours. Values only; it never asks a terminal and never prints."""

from msgspec import Struct

STYLE_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# Letters that an ASCII terminal gets in place of ours, each as wide as the one it stands for.
ASCII_FALLBACKS = str.maketrans({"█": "#", "░": ".", "·": "-", "…": "~", "—": "-", "─": "-", "×": "x", "≥": ">"})
ASCII_FALLBACKS |= dict(zip(map(ord, "▏▎▍▌▋▊▉▁▂▃▄▅▆▇┄│┤└▼"), "-----==__.-=+*-|+ v", strict=True))
MIN_COLUMNS = 40  # columns: below this nothing is laid out differently any more


class PageStyle(Struct, frozen=True):
    """`columns` is the width of a page; `limit` that of a table's line, None where it may run on (a file, a pipe)."""

    columns: int = 80
    line_limit: int | None = None
    has_colour: bool = False

    def paint(self, text: str, style: str) -> str:
        """Clean text in a style such as "red" or "bold red"; as it is where there are no colours."""
        codes = ";".join(STYLE_CODES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if self.has_colour and codes and text else text
