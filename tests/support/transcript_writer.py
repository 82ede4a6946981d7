"""Write transcripts in the format of Claude Code, for tests of the import."""

import json
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 10, 9, 0, tzinfo=timezone.utc)


class Transcript:
    """A session's transcript; 3 input, 1,000 cache write and 20,000 read tokens per request."""

    def __init__(self, session: str, model: str = "claude-sonnet-4-6", start: int = 0) -> None:
        self.session, self.model = session, model
        self.lines: list[dict[str, Any]] = []
        self.at = START + timedelta(minutes=start)

    def add(self, kind: str, message: dict[str, Any] | None, **more: Any) -> None:
        """Add a line, of any type."""
        self.at += timedelta(seconds=1)
        self.lines.append(
            {
                "parentUuid": None,
                "isSidechain": False,
                "cwd": "/home/ada/engine",
                "sessionId": self.session,
                "version": "2.1.197",
                "type": kind,
                **({} if message is None else {"message": message}),
                "uuid": str(
                    uuid.uuid5(uuid.NAMESPACE_URL, f"{self.session} {len(self.lines)} {self.at}")
                ),
                "timestamp": self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                **more,
            }
        )

    def prompt(self, text: str) -> None:
        """Add a user prompt."""
        self.add("user", {"role": "user", "content": text})

    def _say(self, message: str, block: dict[str, Any], output: int) -> None:
        usage = {
            "input_tokens": 3,
            "cache_creation_input_tokens": 1000,
            "cache_read_input_tokens": 20000,
            "output_tokens": output,
        }
        said = {
            "id": message,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [block],
            "usage": usage,
        }
        self.add("assistant", said, requestId=f"req_{message}")

    def answer(self, message: str, output: int = 100, blocks: int = 1, text: str = "done") -> None:
        """Add a message of the model with some text blocks."""
        for _ in range(blocks):
            self._say(message, {"type": "text", "text": text}, output)

    def call(self, message: str, call: str, name: str, given: dict[str, Any]) -> None:
        """Add a tool call."""
        self._say(message, {"type": "tool_use", "id": call, "name": name, "input": given}, 50)

    def result(self, call: str, text: str = "ok", error: bool = False) -> None:
        """Add a tool result."""
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}
        self.add(
            "user",
            {"role": "user", "content": [block]},
            toolUseResult={"stdout": text, "stderr": ""},
        )

    def fork(self, session: str) -> "Transcript":
        """A new session that begins with a copy of this one, as the agent makes it."""
        other = Transcript(session, self.model)
        other.at = self.at
        other.lines = [{**line, "sessionId": session} for line in self.lines]
        return other

    def line(self, place: int) -> bytes:
        """A line of the file."""
        return json.dumps(self.lines[place], separators=(",", ":")).encode() + b"\n"

    def write(self, folder: Path) -> str:
        """Write the file, named after the session; returns its path."""
        path = folder / f"{self.session}.jsonl"
        path.write_bytes(b"".join(self.line(place) for place in range(len(self.lines))))
        return str(path)


def tree(folder: Path, sessions: int, answers: int) -> Path:
    """A folder of transcripts; every tenth session is a fork of the one before."""
    folder.mkdir(parents=True)
    before: Transcript | None = None
    for number in range(sessions):
        name = str(uuid.UUID(int=number))
        one = (
            before.fork(name)
            if before is not None and number % 10 == 9
            else Transcript(name, start=number * 7)
        )
        one.prompt(f"do thing {number}")
        for turn in range(answers):
            one.call(
                f"msg_{number}_{turn}",
                f"call_{number}_{turn}",
                ("Bash", "Read", "Edit")[turn % 3],
                {"command": f"ls {turn}"},
            )
            one.result(f"call_{number}_{turn}", "x" * 200, turn % 7 == 6)
        one.answer(f"msg_{number}_end")
        one.write(folder)
        before = one
    return folder
