"""Find the outputs and transcripts of agents in a folder, by rules that are not steno's.

A file is an agent's if it has an object that only this agent writes. Formats of agents that steno
does not read have a name here too: such a file must be refused, never read as another agent's.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

Object = dict[str, Any]

MAX_BYTES = 64 << 20
# Where a recording may be: a source file of a program that quotes one is not one.
SUFFIXES = {".jsonl", ".ndjson", ".json", ".log", ".txt", ".out", ".gz", ".zst", ""}
SKIPPED_FOLDERS = {".git", "node_modules", "site-packages"}
SKIPPED_NAMES = re.compile(r"(?i)(package(-lock)?|tsconfig.*|.*schema.*|.*\.snap)\.json|readme.*")


class Found(Struct):
    """A file of an agent: `kind` is stream, document, transcript, subagent or part."""

    path: Path
    agent: str
    kind: str
    objects: list[Object]


def find(folder: Path) -> Iterator[Found]:
    """Yield every file below the folder that is an agent's."""
    for path in candidates(folder):
        objects = read_objects(path)
        if objects and (match := classify(objects)) is not None:
            yield Found(path, *match, objects)


def candidates(folder: Path) -> Iterator[Path]:
    """Files that may hold a recording, sorted."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if SKIPPED_FOLDERS.intersection(parts) or SKIPPED_NAMES.fullmatch(path.name):
            continue
        if path.suffix not in SUFFIXES or not path.is_file() or path.is_symlink():
            continue
        if 2 < path.stat().st_size <= MAX_BYTES and (path.suffix or is_json(path)):
            yield path


def is_json(path: Path) -> bool:
    """Whether a file without a suffix starts as JSON does: a script may quote some."""
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] in (b"{", b"[")


def read_objects(path: Path) -> list[Object]:
    """Every JSON object of a file: on lines, in arrays, in documents, between other text."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError):
            return []
    if b"\0" in data[:4096]:
        return []
    return list(objects_in(data.decode("utf-8-sig", "replace")))


def objects_in(text: str) -> Iterator[Object]:
    """The objects of a text that begin a line, those of arrays one by one."""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        line = text[position:end]
        start = position + len(line) - len(line.lstrip(" \t\r\0"))
        if text[start : start + 1] in ("{", "["):
            try:
                value, stop = decoder.raw_decode(text, start)
            except (ValueError, RecursionError):
                position = end + 1
                continue
            yield from flat(value)
            # Another object may follow on the same line.
            position = stop if text[stop : stop + 1] in ("{", "[") else text.find("\n", stop) + 1
            if position <= 0:
                return
            continue
        position = end + 1


def flat(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from flat(each)


# -- whose an object is --------------------------------------------------------------------------


def text_of(value: Object, key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def dict_of(value: Object, key: str) -> Object:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def owner(value: Object) -> tuple[str, str] | None:
    """The agent that alone writes such an object, and what kind of file it stands in."""
    kind = text_of(value, "type")
    for test in (codex, copilot, opencode, gemini, qwen, others, claude):
        if (match := test(value, kind)) is not None:
            return match
    return None


def codex(value: Object, kind: str) -> tuple[str, str] | None:
    if kind in ("thread.started", "turn.started", "turn.completed", "turn.failed") or (
        kind in ("item.started", "item.updated", "item.completed") and "item" in value
    ):
        return "codex", "stream"
    if kind in ("session_meta", "response_item", "event_msg", "turn_context", "compacted"):
        return ("codex", "transcript") if isinstance(value.get("payload"), dict) else None
    if {"id", "timestamp", "instructions"} <= value.keys() and not kind:
        return "codex", "old rollout"  # up to 0.31
    if value.get("record_type") == "state":
        return "codex", "old rollout"
    message = dict_of(value, "msg")
    if set(value) == {"id", "msg"} and text_of(message, "type"):
        return "codex", "old stream"  # `exec --json` up to 0.43
    return None


def copilot(value: Object, kind: str) -> tuple[str, str] | None:
    group = kind.partition(".")[0]
    groups = {"session", "assistant", "user", "tool", "model", "subagent", "hook", "system"}
    if "." in kind and group in groups and isinstance(value.get("data"), dict) and "id" in value:
        return "copilot", "stream" if kind == "assistant.message_delta" else "transcript"
    if kind == "result" and "exitCode" in value and "sessionId" in value:
        return "copilot", "stream"
    return None


def opencode(value: Object, kind: str) -> tuple[str, str] | None:
    if kind in ("step_start", "step_finish", "text", "tool_use", "error") and "sessionID" in value:
        return "opencode", "store" if "messageID" in value else "stream"
    info = dict_of(value, "info")
    if text_of(info, "id").startswith("ses_") and "messages" in value:
        return "opencode", "export"
    ids = (text_of(value, "sessionID"), text_of(value, "id"))
    if any(each.startswith("ses_") for each in ids) and (
        {"role", "projectID", "messageID"} & value.keys()
    ):
        return "opencode", "store"
    return None


def gemini(value: Object, kind: str) -> tuple[str, str] | None:
    if kind == "init" and "session_id" in value and "model" in value:
        return "gemini", "stream"
    if kind == "result" and "stats" in value and "status" in value:
        return "gemini", "stream"
    if not kind and "response" in value and "models" in dict_of(value, "stats"):
        return "gemini", "document"
    if "sessionId" in value and "projectHash" in value and not kind:
        return "gemini", "chat" if "messages" in value else "transcript"
    return None


def qwen(value: Object, kind: str) -> tuple[str, str] | None:
    if "qwen_code_version" in value:
        return "qwen", "stream"
    message = dict_of(value, "message")
    if "sessionId" in value and "parts" in message and kind in ("user", "assistant", "tool_result"):
        return "qwen", "transcript"
    return None


def others(value: Object, kind: str) -> tuple[str, str] | None:
    """Agents that steno does not read."""
    if kind == "session" and "cwd" in value and "version" in value and "id" in value:
        return "pi", "other"
    if kind in ("context.append_loop_event", "usage.record", "llm.request", "turn.prompt"):
        return "kimi", "other"
    if kind == "session_start" and "owner" in value:
        return "droid", "other"
    if "schema_version" in value and text_of(value, "schema_version").startswith("ATIF"):
        return "atif", "other"
    if "trajectory" in value and ("history" in value or "info" in value):
        return "swe-agent", "other"
    return None


def claude(value: Object, kind: str) -> tuple[str, str] | None:
    message = dict_of(value, "message")
    if kind == "system" and value.get("subtype") == "init" and "session_id" in value:
        return "claude", "stream"
    if kind == "result" and "session_id" in value and {"total_cost_usd", "num_turns"} & set(value):
        return "claude", "stream"
    if kind in ("user", "assistant") and message and "session_id" in value:
        return "claude", "stream"
    if kind in ("user", "assistant") and message and {"sessionId", "uuid"} <= value.keys():
        return "claude", "subagent" if value.get("agentId") else "transcript"
    if kind == "summary" and "leafUuid" in value:
        return "claude", "transcript"
    return None


def classify(objects: list[Object]) -> tuple[str, str] | None:
    """The agent of most objects that have one. A file that merely quotes some has none."""
    owners = Counter(match for value in objects if (match := owner(value)) is not None)
    if not owners:
        return None
    (agent, kind), _ = owners.most_common(1)[0]
    if (agent, "transcript") in owners and kind == "subagent":
        kind = "transcript"
    if agent == "copilot" and (agent, "stream") in owners:
        kind = "stream"
    return agent, kind
