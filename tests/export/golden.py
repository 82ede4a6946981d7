"""Conversations as text and Markdown, kept in folders and compared as a whole.

A new case is a new folder below `tests/export/golden` with a file `source`, which names a recording
below `tests/recordings`. `python -m tests.export.golden` writes what the program makes of them, to
be checked by eye.
"""

import os
import time
from pathlib import Path

from steno.export.conversation import Conversation, read_conversation
from steno.export.markdown import markdown_page
from steno.export.text import transcript_lines
from steno.pricing import price
from steno.recording.open import open_recording
from steno.views.table import PageStyle
from tests.golden import ROOT

FOLDER = Path(__file__).parent / "golden"
CASES = sorted(path.parent for path in FOLDER.glob("*/source"))


def conversation(case: Path) -> Conversation:
    source = ROOT / (case / "source").read_text("utf-8").strip()
    return read_conversation(open_recording(source), price=price)


def rendered(case: Path) -> dict[str, str]:
    """What the files of a case should contain."""
    with conversation(case) as one:
        text = "\n".join(transcript_lines(one, PageStyle(80, 80)))
        return {"transcript.txt": f"{text}\n", "page.md": "".join(markdown_page(one))}


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    for case in CASES:
        for name, text in rendered(case).items():
            (case / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
