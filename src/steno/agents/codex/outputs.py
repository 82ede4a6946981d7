"""What a call returned, without the header that Codex writes in front of it for the model. Pure.

Shell calls have had three forms. Up to 0.63: JSON inside a string, {"output", "metadata":
{"exit_code", "duration_seconds"}}. From 0.72: lines such as "Exit code: 0" and "Wall time: 1.1
seconds", then "Output:" and the text; `exec_command` has other lines, MCP tools only the time. In
code mode: a list of parts whose first is such a header, and a command's result as JSON in the next.
Patches kept the first form until 0.115.
"""

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.json import encode

from ...codec.decode import DECODE_ERRORS, Amount, decode_lenient, decode_raw, decoder, text_of
from ...event import NO_JSON

_HEADER_LINES = (
    r"Chunk ID: \S+",
    r"Wall time:? (?P<seconds>\d+(?:\.\d+)?) seconds?",
    r"(?:Exit code:|Process exited with code) (?P<code>-?\d{1,10})",
    r"Process running with session ID \S+",
    r"(?:Original token count|Total output lines): \d+",
    r"Warning: truncated output \(original token count: \d+\)",
    r"Script (?P<script>completed|failed|terminated|running with cell ID \S+)",
)
_HEADER_LINE_PATTERN = re.compile("|".join(_HEADER_LINES))
_MAX_HEADER_LINES = 8
# 0.115 begins with the command, which may have several lines.
_COMMAND_PATTERN = re.compile(r"Command: .{0,65536}?\n(?=Chunk ID: \S+\n)", re.S)
_ABORTED_TEXT = "aborted by user"  # follows the wall time, without "Output:"
_ABORTED_PATTERN = re.compile(r"aborted by user after (?P<seconds>\d+(?:\.\d+)?)s")


class CallOutput(Struct, frozen=True):
    """The output of a call: `content` as it is shown, its text, and what its header said.

    `is_failed`: the header says that a script failed. `is_running`: the command has not ended.
    """

    content: Raw
    text: str
    exit_code: int | None = None
    duration_ms: int | None = None
    is_failed: bool = False
    is_running: bool = False


class _Metadata(Struct, gc=False):
    exit_code: int | None = None
    duration_seconds: Amount | None = None


class _WrappedOutput(Struct, gc=False):
    """The first form, and the result of a command in code mode."""

    output: str | None = None
    metadata: _Metadata | None = None
    exit_code: int | None = None
    wall_time_seconds: Amount | None = None
    content: Raw = NO_JSON
    success: bool | None = None


class _Header(Struct):
    exit_code: int | None = None
    seconds: float | None = None
    script: str = ""
    is_running: bool = False
    length: int = 0  # of the header in the text


def parse_output(data: Raw) -> CallOutput:
    """The output of a call in any of its forms; a text without a header stays as it is."""
    value = decode_raw(data)
    if isinstance(value, str):
        return _parse_text(value, data)
    if isinstance(value, list) and value:
        return _parse_parts(value, data)
    if isinstance(value, dict):
        wrapped = decode_lenient(data, _WrappedOutput)
        # {"content", "success"}: seen in public files of 2025.
        if isinstance(value.get("content"), str | list):
            inner = parse_output(wrapped.content)
            return msgspec.structs.replace(
                inner, is_failed=inner.is_failed or wrapped.success is False
            )
        output = _unwrap(value, wrapped)
        if output is not None:
            return output
    return CallOutput(data, text_of(data))


def _parse_text(text: str, data: Raw) -> CallOutput:
    if text.startswith("{"):
        output = _parse_json_text(text)
        if output is not None:
            return output
    header = _parse_header(text)
    if header is None:
        aborted = _ABORTED_PATTERN.fullmatch(text)
        seconds = float(aborted["seconds"]) if aborted is not None else None
        return CallOutput(data, text, duration_ms=_to_ms(seconds))
    return _with_header(header, _text_output(text[header.length :]))


def _parse_json_text(text: str) -> CallOutput | None:
    """The first form; None if the text is something else, such as the answer of a tool."""
    data = text.encode("utf-8", "surrogatepass")
    try:
        value = decoder(dict[str, Raw]).decode(data)
    except DECODE_ERRORS:
        return None
    return _unwrap(value, decode_lenient(data, _WrappedOutput))


def _unwrap(fields: dict[str, Any], wrapped: _WrappedOutput) -> CallOutput | None:
    """The output in an object; None unless the object says how a command ended."""
    if wrapped.output is None:
        return None
    metadata = wrapped.metadata
    if metadata is not None and fields.keys() == {"output", "metadata"}:
        seconds = metadata.duration_seconds
        code = metadata.exit_code
    elif "wall_time_seconds" in fields:
        seconds = wrapped.wall_time_seconds
        code = wrapped.exit_code
    else:
        return None
    if code is None and seconds is None:
        return None
    output = _text_output(wrapped.output)
    return msgspec.structs.replace(output, exit_code=code, duration_ms=_to_ms(seconds))


def _parse_parts(parts: list[Any], data: Raw) -> CallOutput:
    """A list of parts, of which the first may be a header, or begin with one."""
    text = parts[0].get("text") if isinstance(parts[0], dict) else None
    first = text if isinstance(text, str) else ""
    header = _parse_header(first)
    if header is None:
        return CallOutput(data, text_of(data))
    rest = parts[1:]
    if len(first) > header.length:
        rest = [{**parts[0], "text": first[header.length :]}, *rest]
    if len(rest) == 1 and isinstance(rest[0], dict) and isinstance(rest[0].get("text"), str):
        text = rest[0]["text"]
        inner = _parse_json_text(text) if text.startswith("{") else None
        return _with_header(header, inner or _text_output(text))
    content = Raw(encode(rest))
    return _with_header(header, CallOutput(content, text_of(content)))


def _parse_header(text: str) -> _Header | None:
    """The lines in front of an output; None if the text does not begin with such a header."""
    header = _Header()
    command = _COMMAND_PATTERN.match(text)
    start = at = command.end() if command is not None else 0
    for _ in range(_MAX_HEADER_LINES):
        end = text.find("\n", at)
        line = text[at:] if end < 0 else text[at:end]
        after = len(text) if end < 0 else end + 1
        if line == "Output:" and at > start:
            header.length = after
            return header
        if line == _ABORTED_TEXT and at > start and end < 0:
            header.length = at
            return header
        match = _HEADER_LINE_PATTERN.fullmatch(line)
        if match is None or end < 0:
            return None
        if match["code"] is not None:
            header.exit_code = int(match["code"])
        if match["seconds"] is not None:
            header.seconds = float(match["seconds"])
        header.script = match["script"] or header.script
        header.is_running = header.is_running or " running with " in line
        at = after
    return None


def _with_header(header: _Header, output: CallOutput) -> CallOutput:
    """The output with what its header says, unless the output says it itself."""
    own = output.duration_ms
    return msgspec.structs.replace(
        output,
        exit_code=header.exit_code if output.exit_code is None else output.exit_code,
        duration_ms=_to_ms(header.seconds) if own is None else own,
        is_failed=header.script in ("failed", "terminated"),
        is_running=header.is_running,
    )


def _text_output(text: str) -> CallOutput:
    return CallOutput(Raw(encode(text)), text)


def _to_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


# -- success and failure ---------------------------------------------------------------------------

_FAILED_PATTERN = re.compile(
    r"\A(?:unsupported (?:custom tool )?call|failed (?:to|in) |err: |error: |tool call error"
    r"|exec_command failed |apply_patch verification failed|invalid agent id )"
    r"|rejected|approval policy is never|aborted by user",
    re.I,
)
_OUTPUT_HEAD_CHARS = 400  # the part of an output that says why a call failed


def is_failed(name: str, output: CallOutput) -> bool:
    """Whether a call failed. Only commands and patches have an exit code."""
    if output.exit_code is not None:
        return output.exit_code != 0
    if output.is_failed or _FAILED_PATTERN.search(output.text[:_OUTPUT_HEAD_CHARS]):
        return True
    # Every output of a command that ran has a header with its time.
    return name == "exec_command" and output.duration_ms is None and not output.is_running


_PATCHED_FILES_HEADING = "Success. Updated the following files:\n"


def parse_patched_files(output: str) -> list[tuple[str, str]]:
    """The files in the output of an applied patch, each with A, M or D; empty for other output."""
    head, _, listing = output.partition(_PATCHED_FILES_HEADING)
    if len(head) > _OUTPUT_HEAD_CHARS:
        return []  # printed by a command
    return [(path, letter) for letter, path in re.findall(r"(?m)^([AMD]) (.+)$", listing)]
