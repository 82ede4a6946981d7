"""An agent that can be talked to: it answers each message on stdin, and closes at "done", at the end, and when interrupted."""

import json
import os
import signal
import sys

from tests import script


def say(*lines: object) -> None:
    os.write(1, script.stream(*lines))  # type: ignore[arg-type]


def interrupted(number: int, frame: object) -> None:
    zero = script.failed(
        None, subtype="error_during_execution", terminal_reason="aborted_streaming"
    )
    say(script.user([script.text("[Request interrupted by user]")]), zero)
    os._exit(0)


signal.signal(signal.SIGINT, interrupted)
say(script.init())
steered = "--input-format" in sys.argv
for number, line in enumerate(sys.stdin if steered else [sys.stdin.read()], 1):
    words = json.loads(line)["message"]["content"][0]["text"] if steered else line
    message, call = f"msg_{number}", f"toolu_{number}"
    say(script.assistant(script.text(f"I heard: {words}"), message=message))
    if "work" in words:
        say(script.assistant(script.call(call, "Bash", command="sleep 600"), message=message))
        signal.pause() if not steered else None
    if "limit" in words:
        resets = {"status": "rejected", "resetsAt": 4102444800, "rateLimitType": "five_hour"}
        say({"type": "rate_limit_event", "rate_limit_info": resets, "session_id": script.SESSION})
        say(script.failed("You've hit your limit", api_error="usage_limit_reached"))
        sys.exit(1)
    if "done" in words:
        break
say(script.result("Done."))
