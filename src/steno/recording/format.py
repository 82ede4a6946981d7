"""Ticks and the header of a tape, as lines of JSON. Pure: `tape` writes and reads the file.

A tick is `[seconds since the start or null, code, data]`, one JSON array per line:

    out, err   bytes of stdout or stderr (a string; {"b64": ...} where they are no UTF-8)
    file       a change of a file that was seen: "created src/a.py"
    stop       we asked the agent to end: {"why": ..., "signal": ...}
    in         bytes that we sent to the agent's stdin while it ran
    left       a process that outlived the agent: "PID SIGNAL COMMAND", - for a signal where it was left running
    note       what we decided, and why: "resume: ..."
    checked    how the answer stands to the schema that was asked for: JSON, {"value": ...} or {"wrong": [...]}
    kept       lines of a file that the agent keeps of its session, read after it ended
    exit       the process is gone: its exit code, negative for a signal, null if it never started
    end        the recording was closed in order; a tape without it was cut

Version 1 stays readable for ever.
"""

from typing import Any

import msgspec
from msgspec import Struct

from ..codec.decode import DECODE_ERRORS

RECORDING_SCHEMA = "steno.tape/1"
BYTE_PAYLOAD_CODES = (
    "out",
    "err",
    "file",
    "git",
    "in",
    "left",
    "note",
    "checked",
    "kept",
)  # codes whose payload is bytes


class BackendInfo(Struct, frozen=True, kw_only=True):
    """The model server that the agent was led to. `local`: it costs no fee; `window` is the model's, as the server tells it."""

    kind: str
    url: str
    local: bool = False
    window: int | None = None


class Header(Struct, kw_only=True):
    """What was started, without secrets. `started_at` is in seconds since 1970, None if not known.

    `backend` is there where the agent was led to another model server than its maker's; `task`, `attempt` and `prompt` (its
    beginning) where the run is part of a task. `played`: the agent was a recording, and what it says of times and names is of
    another run.
    """

    schema: str = RECORDING_SCHEMA
    agent: str | None = None
    agent_version: str | None = None
    run_id: str | None = None
    argv: list[str] | None = None
    cwd: str | None = None
    started_at: float | None = None
    task: str | None = None
    attempt: int | None = None
    prompt: str | None = None
    backend: BackendInfo | None = None
    played: bool = False

    def id_namespace(self) -> str:
        """What makes names that a recording repeats into names of this run; nothing where the agent was one."""
        return self.run_id or "" if self.played else ""


class Record(Struct, frozen=True):
    """One thing that came in. `after` is in seconds since the start, None where no time is known."""

    offset_seconds: float | None
    code: str
    data: bytes = b""
    number: int | None = None


_header_decoder = msgspec.json.Decoder(Header)
_record_decoder = msgspec.json.Decoder(tuple[float | None, str, Any])


def parse_header(line: bytes) -> Header | None:
    """The header of a tape, or None if the line is not one."""
    try:
        header = _header_decoder.decode(line)
    except DECODE_ERRORS:
        return None
    return header if header.schema == RECORDING_SCHEMA and b'"schema"' in line else None


def parse_record(line: bytes) -> Record | None:
    """One tick of a tape, or None if the line is cut or not a tick."""
    try:
        after, code, data = _record_decoder.decode(line)
        return Record(after, code, *_parse_payload(data))
    except (*DECODE_ERRORS, ValueError):
        return None


def _parse_payload(data: Any) -> tuple[bytes, int | None]:
    if isinstance(data, str):
        return data.encode("utf-8"), None
    if isinstance(data, int):
        if abs(data) > 1 << 53:
            raise ValueError("no exit code is so long")
        return b"", data
    if isinstance(data, dict):
        if isinstance(data.get("b64"), str):
            from base64 import b64decode

            return b64decode(data["b64"], validate=True), None
        signal = data.get("signal")
        return str(data.get("why", "")).encode("utf-8"), signal if isinstance(signal, int) else None
    return b"", None


def encode_record(tick: Record) -> bytes:
    """One tick as a line."""
    payload: Any = None
    if tick.code in BYTE_PAYLOAD_CODES:
        try:
            payload = tick.data.decode("utf-8")
        except UnicodeDecodeError:
            from base64 import b64encode

            payload = {"b64": b64encode(tick.data).decode("ascii")}
    elif tick.code == "stop":
        payload = {"why": tick.data.decode("utf-8"), "signal": tick.number}
    elif tick.code == "exit":
        payload = tick.number
    return msgspec.json.encode((tick.offset_seconds, tick.code, payload)) + b"\n"
