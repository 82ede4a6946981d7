"""An agent that answers each message on stdin, and exits at "done", at EOF, and on SIGINT."""

import json
import os
import signal
import sys

from tests import script


def say(*lines: object) -> None:
    os.write(1, script.stream(*lines))  # type: ignore[arg-type]  # objects


def on_interrupt(number: int, frame: object) -> None:
    result = script.failed(
        None, subtype="error_during_execution", terminal_reason="aborted_streaming"
    )
    say(script.user([script.text("[Request interrupted by user]")]), result)
    os._exit(0)


signal.signal(signal.SIGINT, on_interrupt)
say(script.init())
is_steered = "--input-format" in sys.argv
for number, line in enumerate(sys.stdin if is_steered else [sys.stdin.read()], 1):
    prompt = json.loads(line)["message"]["content"][0]["text"] if is_steered else line
    message, call = f"msg_{number}", f"toolu_{number}"
    say(script.assistant(script.text(f"I heard: {prompt}"), message=message))
    if "work" in prompt:
        say(script.assistant(script.call(call, "Bash", command="sleep 600"), message=message))
        signal.pause() if not is_steered else None
    if "limit" in prompt:
        resets = {"status": "rejected", "resetsAt": 4102444800, "rateLimitType": "five_hour"}
        say({"type": "rate_limit_event", "rate_limit_info": resets, "session_id": script.SESSION})
        say(script.failed("You've hit your limit", api_error="usage_limit_reached"))
        sys.exit(1)
    if "done" in prompt:
        break
say(script.result("Done."))
