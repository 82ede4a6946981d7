"""An agent that follows a plan: each start takes the next step of PLAN (JSON).

Each start is recorded in `calls` beside the plan. A step: `out` (text for stdout), `recording` (a
folder with the stdout, stderr and exit code to replay), `err`, `exit`, `sleep` (seconds before the
exit), `deaf` (ignore signals), `unread` (do not read the prompt), `write` (a file to create),
`interrupted` (the exit code after SIGINT). `--help` prints the file `help` beside the plan, if
there is one.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

plan = Path(sys.argv[1])
if sys.argv[-1] == "--help":
    try:
        print(plan.with_name("help").read_text("utf-8"))
    except FileNotFoundError:
        sys.exit(2)
    with plan.with_name("help_calls").open("a", encoding="utf-8") as file:
        file.write(" ".join(sys.argv[2:]) + "\n")
    sys.exit(0)
calls = plan.with_name("calls")
number = len(calls.read_text("utf-8").splitlines()) if calls.exists() else 0
steps = json.loads(plan.read_text("utf-8"))
step = steps[min(number, len(steps) - 1)]
prompt = "" if step.get("unread") else sys.stdin.buffer.read().decode("utf-8", "replace")
call = {"argv": sys.argv[2:], "prompt": prompt, "cwd": str(Path.cwd()), "env": dict(os.environ)}
with calls.open("a", encoding="utf-8") as file:
    file.write(json.dumps(call) + "\n")

out = step.get("out", "").encode()
err = step.get("err", "").encode()
code = step.get("exit", 0)
if "recording" in step:
    folder = Path(step["recording"])
    out = (folder / "stdout").read_bytes()
    code = int((folder / "exit_code").read_text() or 0)
    err = (folder / "stderr").read_bytes() if (folder / "stderr").exists() else b""
if step.get("deaf"):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(step.get("interrupted", 0)))
if "write" in step:
    Path(step["write"]).write_text("made by the agent\n", "utf-8")
os.write(2, err)
view = memoryview(out)
while view:
    view = view[os.write(1, view) :]
time.sleep(step.get("sleep", 0))
sys.exit(code)
