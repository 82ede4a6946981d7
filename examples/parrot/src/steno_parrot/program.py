"""The program `parrot`: says what it hears on stdin, and tells what it does as JSON lines. It needs nothing but Python.

`write FILE: TEXT` as the prompt has it write that file, and `fail: WHY` has it fail.
"""

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    """Hear, do, say."""
    parser = argparse.ArgumentParser("parrot")
    parser.add_argument("--version", action="version", version="parrot 1.0")
    parser.add_argument("--model", default="grey")
    parser.add_argument("--resume", metavar="ID")
    options = parser.parse_args()
    session = options.resume or f"parrot-{secrets.token_hex(4)}"
    tell("wakes", version="1.0", session=session, model=options.model, cwd=str(Path.cwd()))
    prompt = sys.stdin.read().strip()
    word, _, rest = prompt.partition(" ")
    if word == "fail:":
        tell("sleeps", ok=False, why=rest)
        return 1
    if word == "write" and ":" in rest:
        write(*(part.strip() for part in rest.split(":", 1)))
    said = f"{prompt}! {prompt}!"
    tell("says", text=said)
    heard, remembered = len(prompt.split()), 3 if options.resume else 0
    tell(
        "sleeps",
        ok=True,
        used={"heard": heard + remembered, "remembered": remembered, "said": len(said.split())},
    )
    return 0


def write(name: str, text: str) -> None:
    """The one thing that it can do besides talking."""
    path = Path(name)
    new = not path.exists()
    path.write_text(text + "\n", "utf-8")
    tell("writes", call="w1", path=str(path.absolute()), created=new)


def tell(kind: str, **more: Any) -> None:
    """One line of JSON."""
    print(json.dumps({"parrot": kind, **more}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
