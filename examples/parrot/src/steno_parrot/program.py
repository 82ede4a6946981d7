"""The program `parrot`: repeats what it reads from stdin, and prints JSON lines.

The prompt `write FILE: TEXT` makes it write that file, `fail: REASON` makes it fail.
"""

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser("parrot")
    parser.add_argument("--version", action="version", version="parrot 1.0")
    parser.add_argument("--model", default="grey")
    parser.add_argument("--resume", metavar="ID")
    options = parser.parse_args()
    session = options.resume or f"parrot-{secrets.token_hex(4)}"
    emit("wakes", version="1.0", session=session, model=options.model, cwd=str(Path.cwd()))
    prompt = sys.stdin.read().strip()
    command, _, rest = prompt.partition(" ")
    if command == "fail:":
        emit("sleeps", ok=False, why=rest)
        return 1
    if command == "write" and ":" in rest:
        write(*(part.strip() for part in rest.split(":", 1)))
    answer = f"{prompt}! {prompt}!"
    emit("says", text=answer)
    remembered = 3 if options.resume else 0
    used = {
        "heard": len(prompt.split()) + remembered,
        "remembered": remembered,
        "said": len(answer.split()),
    }
    emit("sleeps", ok=True, used=used)
    return 0


def write(name: str, text: str) -> None:
    path = Path(name)
    new = not path.exists()
    path.write_text(text + "\n", "utf-8")
    emit("writes", call="w1", path=str(path.absolute()), created=new)


def emit(kind: str, **fields: Any) -> None:
    print(json.dumps({"parrot": kind, **fields}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
