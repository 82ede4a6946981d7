"""The format of recording files: a header line, then one record per line, all JSON. Pure.

A record is `[seconds since the start or null, code, data]`:

    out, err   bytes of stdout or stderr (a string; {"b64": ...} if they are not UTF-8)
    file, git  a file change seen on disk or by git: "created src/a.py"
    stop       steno stopped the agent: {"why": ..., "signal": ...}
    in         bytes sent to the agent's stdin while it ran
    left       a process that outlived the agent: "PID SIGNAL COMMAND", with - as the signal if it
               was left running
    note       a decision of steno with its reason: "resume: ..."
    checked    the result of the JSON schema check: {"value": ...} or {"wrong": [...]}
    kept       lines of the agent's own transcript, read after it exited
    exit       the exit code, negative for a signal, null if the process never started
    end        the recording was closed properly; without it, it is truncated

Version 1 stays readable forever.
"""

from typing import Any

import msgspec
from msgspec import Struct

from ..codec.decode import DECODE_ERRORS

RECORDING_SCHEMA = "steno.tape/1"
BYTE_PAYLOAD_CODES = ("out", "err", "file", "git", "in", "left", "note", "checked", "kept")
MAX_EXIT_CODE = 1 << 53  # the largest integer that JSON numbers hold exactly


class BackendInfo(Struct, frozen=True, kw_only=True):
    """The model server used instead of the vendor's.

    `local`: usage is free; `window`: the model's context window as reported by the server.
    """

    kind: str
    url: str
    local: bool = False
    window: int | None = None


class Header(Struct, kw_only=True):
    """What was started, without secrets. `started_at`: seconds since 1970, None if unknown.

    `backend` is set if the agent used another model server than its vendor's; `task`, `attempt` and
    `prompt` (its beginning) if the run is part of a task. `played`: the agent was a replayed
    recording, whose times and ids belong to another run.
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
        """A prefix that makes the ids of a replayed recording unique to this run, else empty."""
        return self.run_id or "" if self.played else ""


class Record(Struct, frozen=True):
    """One record. `offset_seconds`: time since the start, None if unknown."""

    offset_seconds: float | None
    code: str
    data: bytes = b""
    number: int | None = None


_header_decoder = msgspec.json.Decoder(Header)
_record_decoder = msgspec.json.Decoder(tuple[float | None, str, Any])


def parse_header(line: bytes) -> Header | None:
    """The header on the first line of a recording file; None if the line is not a header."""
    try:
        header = _header_decoder.decode(line)
    except DECODE_ERRORS:
        return None
    return header if header.schema == RECORDING_SCHEMA and b'"schema"' in line else None


def parse_record(line: bytes) -> Record | None:
    """The record on a line; None if the line is truncated or not a record."""
    try:
        offset_seconds, code, data = _record_decoder.decode(line)
        return Record(offset_seconds, code, *_parse_payload(data))
    except (*DECODE_ERRORS, ValueError):
        return None


def _parse_payload(data: Any) -> tuple[bytes, int | None]:
    if isinstance(data, str):
        return data.encode("utf-8"), None
    if isinstance(data, int):
        if abs(data) > MAX_EXIT_CODE:
            raise ValueError("exit code out of range")
        return b"", data
    if isinstance(data, dict):
        if isinstance(data.get("b64"), str):
            from base64 import b64decode

            return b64decode(data["b64"], validate=True), None
        signal = data.get("signal")
        return str(data.get("why", "")).encode("utf-8"), signal if isinstance(signal, int) else None
    return b"", None


def encode_record(record: Record) -> bytes:
    """The record as a line with its newline."""
    payload: Any = None
    if record.code in BYTE_PAYLOAD_CODES:
        try:
            payload = record.data.decode("utf-8")
        except UnicodeDecodeError:
            from base64 import b64encode

            payload = {"b64": b64encode(record.data).decode("ascii")}
    elif record.code == "stop":
        payload = {"why": record.data.decode("utf-8"), "signal": record.number}
    elif record.code == "exit":
        payload = record.number
    return msgspec.json.encode((record.offset_seconds, record.code, payload)) + b"\n"
