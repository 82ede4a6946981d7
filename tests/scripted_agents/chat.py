"""An agent that answers each message on stdin, and exits at "done", at EOF, and on SIGINT."""

import json
import os
import signal
import sys
import time

from tests.support import claude_lines


def say(*lines: object) -> None:
    os.write(1, claude_lines.stream(*lines))  # type: ignore[arg-type]  # objects


def on_interrupt(number: int, frame: object) -> None:
    result = claude_lines.failed(
        None, subtype="error_during_execution", terminal_reason="aborted_streaming"
    )
    say(claude_lines.user([claude_lines.text("[Request interrupted by user]")]), result)
    os._exit(0)


signal.signal(signal.SIGINT, on_interrupt)
say(claude_lines.init())
is_steered = "--input-format" in sys.argv
for number, line in enumerate(sys.stdin if is_steered else [sys.stdin.read()], 1):
    prompt = json.loads(line)["message"]["content"][0]["text"] if is_steered else line
    message, call = f"msg_{number}", f"toolu_{number}"
    say(claude_lines.assistant(claude_lines.text(f"I heard: {prompt}"), message=message))
    if "work" in prompt:
        say(
            claude_lines.assistant(
                claude_lines.call(call, "Bash", command="sleep 600"), message=message
            )
        )
        signal.pause() if not is_steered else None
    if "limit" in prompt:
        resets = {
            "status": "rejected",
            "resetsAt": int(time.time()) + 1200,
            "rateLimitType": "five_hour",
        }
        say(
            {
                "type": "rate_limit_event",
                "rate_limit_info": resets,
                "session_id": claude_lines.SESSION,
            }
        )
        say(claude_lines.failed("You've hit your limit", api_error="usage_limit_reached"))
        sys.exit(1)
    if "done" in prompt:
        break
say(claude_lines.result("Done."))
