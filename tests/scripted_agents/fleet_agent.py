"""An agent that does what lines of its prompt say, and notes each start and end in FOLDER/log.

`@sleep S`, `@cost USD` (default 0.01), `@say TEXT`, `@fail`, `@fail-unless FILE`, `@limit FILE S`
(a rate limit that resets in S seconds, unless FILE exists, which it creates), `@spend USD` (a
request of about that cost each 0.2 s, until stopped), `@die FILE` (kill the parent process, unless
FILE exists), `@await FILE` (until it exists), `@needs TOOL` (call it: denied unless allowed),
`@idle` (do nothing of this in a resumed session, and claim success), `@ask TEXT` (end with a
question, unless the prompt has an answer). It keeps a session file below HOME as Claude Code
does.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
argv = sys.argv[2:]
MODEL = "claude-opus-5-5"


def option(name: str) -> str | None:
    return argv[argv.index(name) + 1] if name in argv else None


def note(**fields: object) -> None:
    line = json.dumps({"time": time.time(), "pid": os.getpid(), **fields}) + "\n"
    file = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, line.encode())
    os.close(file)


def emit(**line: object) -> None:
    os.write(1, (json.dumps({"session_id": session, **line}) + "\n").encode())


def usage(output: int = 101) -> dict[str, object]:
    return {
        "input_tokens": 3,
        "cache_creation_input_tokens": 1001,
        "cache_read_input_tokens": 20000,
        "output_tokens": output,
    }


def message(number: int, text: str, output: int = 101) -> None:
    inner = {
        "model": MODEL,
        "id": f"msg_{os.getpid()}_{number}",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "usage": usage(output),
    }
    emit(type="assistant", message=inner, parent_tool_use_id=None)


denials: list[dict[str, object]] = []


def use(tool: str, is_allowed: bool) -> None:
    """Call a tool; without permission, as Claude Code denies it."""
    call = {"type": "tool_use", "id": f"toolu_{os.getpid()}", "name": tool, "input": {}}
    inner = {"model": MODEL, "id": f"msg_{os.getpid()}", "type": "message", "role": "assistant"}
    emit(type="assistant", message={**inner, "content": [call], "usage": usage()})
    text = "Done." if is_allowed else f"Claude requested permissions to use {tool}."
    block = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
    content = [{**block, "is_error": not is_allowed}]
    emit(type="user", message={"role": "user", "content": content})
    if not is_allowed:
        denials.append({"tool_name": tool, "tool_use_id": call["id"], "tool_input": {}})


def finish(text: str, cost: float, is_error: bool = False, **more: object) -> None:
    note(what="end", session=session, error=is_error)
    emit(
        type="result",
        subtype="success",
        is_error=is_error,
        result=text,
        num_turns=1,
        duration_ms=1,
        duration_api_ms=1,
        total_cost_usd=cost,
        usage=usage(),
        modelUsage={},
        permission_denials=denials,
        **more,
    )
    sys.exit(1 if is_error else 0)


if argv[-1:] == ["--help"]:
    sys.exit(2)
if argv[-1:] == ["--version"]:
    print("2.1.325 (Claude Code)")
    sys.exit(0)
data = sys.stdin.buffer.read()
prompt = data.decode()
resumed = option("--resume")
session = resumed or option("--session-id") or "none"
digest = hashlib.sha256(data).hexdigest()
commands = [line.split() for line in prompt.splitlines() if line.startswith("@")]
told = {"sha": digest, "prompt": prompt[:400]}
note(what="start", session=session, resumed=bool(resumed), cwd=str(Path.cwd()), **told)
kept = Path(os.environ["HOME"], ".claude", "projects", "fleet", f"{session}.jsonl")
kept.parent.mkdir(parents=True, exist_ok=True)
with kept.open("a") as file:
    file.write("{}\n")
signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
emit(
    type="system",
    subtype="init",
    cwd=str(Path.cwd()),
    tools=[],
    mcp_servers=[],
    model=MODEL,
    permissionMode="default",
    apiKeySource="none",
    claude_code_version="2.1.325",
)
cost = 0.01
answer = f"sha {digest[:12]}"
is_list = "--allowedTools" in argv
allowed = argv[argv.index("--allowedTools") + 1 :] if is_list else []  # up to the next option
if resumed and ["@idle"] in commands:
    commands, answer = [], "I did it."
for name, *rest in commands:
    if name == "@sleep":
        time.sleep(float(rest[0]))
    elif name == "@await":
        while not Path(rest[0]).exists():
            time.sleep(0.05)
    elif name == "@cost":
        cost = float(rest[0])
    elif name == "@needs":
        use(rest[0], rest[0] in allowed)
    elif name == "@ask" and "\nThe answer: " not in prompt:
        answer = " ".join(rest)
    elif name == "@ask":
        answer = prompt.partition("\nThe answer: ")[2].partition("\n")[0]
    elif name == "@say":
        answer = " ".join(rest)
    elif name == "@write":
        Path(rest[0]).write_text(" ".join(rest[1:]) + "\n")
    elif name == "@die" and not Path(rest[0]).exists():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    elif name == "@fail" or (name == "@fail-unless" and not Path(rest[0]).exists()):
        finish("API Error: 400 broken on purpose", cost, True, api_error_status=400)
    elif name == "@limit" and not Path(rest[0]).exists():
        Path(rest[0]).touch()
        reset = int(time.time() + float(rest[1]))
        info = {"status": "rejected", "resetsAt": reset, "rateLimitType": "five_hour"}
        emit(type="rate_limit_event", rate_limit_info=info)
        finish("You've hit your 5-hour limit", 0.0, True, api_error_status=429)
    elif name == "@spend":
        for number in range(1000):
            message(number, "working", int(float(rest[0]) / 25e-6))  # dollars per output token
            time.sleep(0.2)
message(1000, answer)
finish(answer, cost)
