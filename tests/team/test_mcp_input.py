"""The input of `steno mcp` is bounded, and other calls delay no permission."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steno.ledger.store import open_ledger
from steno.team.mcp_input import MAX_MESSAGE_BYTES, MessageLines
from tests.support.scripted_place import Place

HUGE = b"x" * MAX_MESSAGE_BYTES
SHORT = b'{"jsonrpc":"2.0","id":9,"method":"ping"}\n'


def too_long(id_: str, size: int) -> bytes:
    name = f"message too long: {size:,} bytes (maximum {MAX_MESSAGE_BYTES:,})"
    call = f'"method":"tools/call","params":{{"name":"{name}","arguments":{{}}}}'
    return f'{{"jsonrpc":"2.0","id":{id_},{call}}}\n'.encode()


@pytest.mark.parametrize(
    ("start", "end", "id_"),
    [
        (b'{"method":"tools/call","params":{"a":"', b'"},"jsonrpc":"2.0","id":7}', "7"),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"', b'"}}', "7"),
        (b'{"id": "a-1", "params": {"a": "', b'"}}', '"a-1"'),
        # The ID of a nested value is not that of the message.
        (b'{"params":{"a":"', b'","id":5}}', None),
        (b'{"jsonrpc":"2.0","id":7,"params":{"a":"', b'","id":5}}', "7"),
        (b'{"method":"notifications/x","params":{"a":"', b'"},"jsonrpc":"2.0"}', None),
        (b"", b"", None),
    ],
)
def test_a_message_that_is_too_long_is_answered(start: bytes, end: bytes, id_: str | None) -> None:
    line = start + HUGE + end + b"\n"
    lines = MessageLines(io.BytesIO(SHORT + line + SHORT))
    replaced = [] if id_ is None else [too_long(id_, len(line))]
    assert list(iter(lines.read, b"")) == [SHORT, *replaced, SHORT]


def test_the_limit_is_exact_and_the_end_may_be_missing() -> None:
    full = HUGE[1:] + b"\n"
    assert list(iter(MessageLines(io.BytesIO(full)).read, b"")) == [full]
    assert list(iter(MessageLines(io.BytesIO(HUGE[1:])).read, b"")) == [HUGE[1:]]
    assert list(iter(MessageLines(io.BytesIO(HUGE)).read, b"")) == []


class Server:
    """A relay, spoken to by lines."""

    def __init__(self, place: Place) -> None:
        self.ledger = place.data / "ledger.db"
        self.process = place.start("mcp", "--permission-timeout", "0.2s", stdin=subprocess.PIPE)
        hello = {"protocolVersion": "2025-03-26", "capabilities": {}}
        self.send(id=0, method="initialize", params={**hello, "clientInfo": client()})
        assert self.reply()["id"] == 0
        self.send(method="notifications/initialized")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        self.write(json.dumps({**message, "jsonrpc": "2.0"}).encode() + b"\n")

    def call(self, id_: int, tool: str, **arguments: Any) -> None:
        self.send(method="tools/call", params={"name": tool, "arguments": arguments}, id=id_)

    def reply(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def peak_megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def client() -> dict[str, str]:
    return {"name": "test", "version": "1"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    opened = Server(Place(tmp_path))
    yield opened
    opened.process.communicate(timeout=60)


def test_100_megabytes_cost_neither_memory_nor_the_next_answer(server: Server) -> None:
    server.write(b'{"method":"tools/call","params":{"name":"permission","arguments":{"input":[')
    for _ in range(100):
        server.write(b"1," * 500_000)
    server.write(b'1]}},"jsonrpc":"2.0","id":1}\n')
    server.call(2, "permission", tool_name="Bash", input={"command": "ls"})
    replies = {reply["id"]: reply["result"] for reply in (server.reply(), server.reply())}
    assert replies[1]["isError"] is True
    assert "message too long: 100,000,1" in replies[1]["content"][0]["text"]
    assert '"behavior":"deny"' in replies[2]["content"][0]["text"]
    if sys.platform == "linux":
        assert server.peak_megabytes() < 300


def test_a_busy_relay_still_answers_permissions(server: Server) -> None:
    """A permission that is asked for after many other calls does not wait for them."""
    count = 300
    for number in range(1, count + 1):
        server.call(number, "say", text="x")
    server.call(count + 1, "permission", tool_name="Bash", input={"command": "ls"})
    ids = {server.reply()["id"] for _ in range(count + 1)}
    assert ids == set(range(1, count + 2))
    with closing(open_ledger(str(server.ledger), read_only=True)) as store:
        ((later,),) = store.query(
            "SELECT count(*) FROM messages WHERE at > (SELECT asked_at FROM permission_requests)"
        )
    assert later > 10  # 0 to 2 where they share the threads
