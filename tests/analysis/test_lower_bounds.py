"""Figures that leave out a request say so."""

import json
from pathlib import Path

import pytest

import steno
from tests.support.claude_lines import (
    SESSION,
    assistant,
    hello,
    init,
    out,
    stop,
    stream,
    tape,
    text,
)

LIMIT = (
    "tokens, cost and requests are a lower bound: a request may have been in progress when steno "
    "stopped the agent, and is in no figure"
)
COMPACTION = (
    "tokens, cost and requests are a lower bound: those of 1 compaction are not in a transcript"
)


@pytest.mark.parametrize("why", ["max_turns: turn limit reached (1)", "max_budget"])
def test_a_limit_that_was_enforced_during_a_request(tmp_path: Path, why: str) -> None:
    begun = stream(init(), assistant(text("First.")))
    found = steno.read(tape(tmp_path / "cut.steno", out(begun), stop(why)))
    assert LIMIT in found.warnings
    found = steno.read(tape(tmp_path / "done.steno", out(stream(*hello())), stop(why)))
    assert LIMIT not in found.warnings


def test_a_transcript_leaves_out_the_request_of_a_compaction() -> None:
    head = {"sessionId": SESSION, "version": "2.1.126", "isSidechain": False, "uuid": "u"}
    message = assistant(text("Hi."), stop_reason="end_turn")["message"]
    said = {**head, "type": "assistant", "message": message}
    metadata = {"trigger": "auto", "preTokens": 21105}
    compact = {**head, "type": "system", "subtype": "compact_boundary", "compactMetadata": metadata}
    totals = {"type": "cost-state", "sessionId": SESSION, "totalCostUSD": 0.1, "modelUsage": {}}
    lines = [said, compact, {**said, "message": {**message, "id": "msg_2"}}]
    assert COMPACTION in steno.read(_bytes(lines)).warnings
    assert COMPACTION not in steno.read(_bytes([*lines, totals])).warnings
    assert COMPACTION not in steno.read(_bytes(lines[:1])).warnings


def _bytes(lines: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
