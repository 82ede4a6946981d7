"""An agent that only talks: lines of Claude Code's stream at a steady rate, each with the time it was written; costs little.

Run with TALK_GO (a file that will say when to begin, in nanoseconds of the steady clock), TALK_LINES and TALK_RATE (lines a
second) in its environment. It imports nothing that takes time, as there are hundreds of it.
"""

import os
import time

SESSION = b"00000000-0000-4000-8000-%012d" % os.getpid()
TAIL = (
    b'"parent_tool_use_id":null,"session_id":"'
    + SESSION
    + b'","uuid":"00000000-0000-4000-9000-%012d"}\n'
)
INIT = (
    b'{"type":"system","subtype":"init","cwd":"/srv/project","tools":["Bash","Read","Edit","Write"],"mcp_servers":[],'
    b'"model":"claude-opus-5-5","permissionMode":"default","apiKeySource":"none","claude_code_version":"2.1.325","session_id":"'
    + SESSION
    + b'"}\n'
)
USAGE = (
    b'"stop_reason":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":1001,"cache_read_input_tokens":20000,'
    b'"cache_creation":{"ephemeral_5m_input_tokens":1001,"ephemeral_1h_input_tokens":0},"output_tokens":1,'
    b'"service_tier":"standard"}},'
)
MESSAGE = b'{"type":"assistant","message":{"model":"claude-opus-5-5","id":"msg_%d","type":"message","role":"assistant","content":['
WORDS = (
    b"Now look at how the next part of it is put together, and whether the tests still say what they should. "
    * 3
)
TEXT = MESSAGE + b'{"type":"text","text":"%d ' + WORDS + b'"}],' + USAGE + TAIL
CALL = (
    MESSAGE
    + b'{"type":"tool_use","id":"toolu_%d","name":"Bash","input":{"command":"make test","description":"Run the tests"}}],'
    + USAGE
    + TAIL
)
ANSWER = (
    b'{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_%d","type":"tool_result","content":"'
    + WORDS
    + b'","is_error":false}]},"tool_use_result":{"stdout":"'
    + WORDS
    + b'","stderr":"","interrupted":false,"isImage":false},'
    + TAIL
)
RESULT = (
    b'{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":1,"duration_ms":1,"duration_api_ms":1,"session_id":"'
    + SESSION
    + b'","total_cost_usd":0.01}\n'
)


def line(number: int) -> bytes:
    """A text with the time, a call, its answer; and so on."""
    turn = number // 3
    if number % 3 == 0:
        return TEXT % (turn, time.monotonic_ns(), number)
    return CALL % (turn, turn, number) if number % 3 == 1 else ANSWER % (turn, number)


def main() -> None:
    lines, pause = int(os.environ["TALK_LINES"]), 1_000_000_000 // int(os.environ["TALK_RATE"])
    os.write(1, INIT)
    while not os.path.exists(os.environ["TALK_GO"]):
        if os.getppid() == 1:
            return  # nobody is left to talk to
        time.sleep(0.1)
    with open(os.environ["TALK_GO"]) as go:
        start = int(go.read()) + os.getpid() * 7_919_333 % pause  # they do not all speak at once
    for number in range(lines):
        left = start + number * pause - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)
        os.write(1, line(number))
    os.write(1, RESULT)


main()
