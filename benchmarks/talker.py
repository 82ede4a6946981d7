"""An agent that prints lines of Claude Code's stream at a steady rate, each with its time.

Environment: TALK_GO (a file with the start time in nanoseconds of the monotonic clock; waits for
it), TALK_LINES, TALK_RATE (lines per second). It imports little, because hundreds run at once.
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
    b'{"type":"system","subtype":"init","cwd":"/srv/project",'
    b'"tools":["Bash","Read","Edit","Write"],"mcp_servers":[],"model":"claude-opus-5-5",'
    b'"permissionMode":"default","apiKeySource":"none","claude_code_version":"2.1.325",'
    b'"session_id":"' + SESSION + b'"}\n'
)
USAGE = (
    b'"stop_reason":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":1001,'
    b'"cache_read_input_tokens":20000,"cache_creation":{"ephemeral_5m_input_tokens":1001,'
    b'"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}},'
)
MESSAGE = (
    b'{"type":"assistant","message":{"model":"claude-opus-5-5","id":"msg_%d","type":"message",'
    b'"role":"assistant","content":['
)
WORDS = 3 * (
    b"Next, check how the other part of the module is built, and whether its tests still cover all "
    b"cases. "
)
TEXT = MESSAGE + b'{"type":"text","text":"%d ' + WORDS + b'"}],' + USAGE + TAIL
CALL = (
    MESSAGE
    + b'{"type":"tool_use","id":"toolu_%d","name":"Bash",'
    + b'"input":{"command":"make test","description":"Run the tests"}}],'
    + USAGE
    + TAIL
)
ANSWER = (
    b'{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_%d",'
    b'"type":"tool_result","content":"'
    + WORDS
    + b'","is_error":false}]},"tool_use_result":{"stdout":"'
    + WORDS
    + b'","stderr":"","interrupted":false,"isImage":false},'
    + TAIL
)
RESULT = (
    b'{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":1,'
    b'"duration_ms":1,"duration_api_ms":1,"session_id":"' + SESSION + b'","total_cost_usd":0.01}\n'
)


def line(number: int) -> bytes:
    """In turn: a text with the time, a tool call, its result."""
    turn = number // 3
    if number % 3 == 0:
        return TEXT % (turn, time.monotonic_ns(), number)
    return CALL % (turn, turn, number) if number % 3 == 1 else ANSWER % (turn, number)


def main() -> None:
    lines, pause = int(os.environ["TALK_LINES"]), 1_000_000_000 // int(os.environ["TALK_RATE"])
    os.write(1, INIT)
    while not os.path.exists(os.environ["TALK_GO"]):
        if os.getppid() == 1:
            return  # the reader is gone
        time.sleep(0.1)
    with open(os.environ["TALK_GO"]) as go:
        start = int(go.read()) + os.getpid() * 7_919_333 % pause  # spread over time
    for number in range(lines):
        left = start + number * pause - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)
        os.write(1, line(number))
    os.write(1, RESULT)


main()
