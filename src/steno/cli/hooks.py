"""`steno hooks`: `run` is what Claude Code's hooks call, with JSON on stdin.

A check imports as little as possible: Claude Code waits for it before each tool call (70 ms of CPU
time, of which Python takes 11 ms). Claude Code takes exit code 2 for a refusal. An error of steno
must not refuse anything, so it ends with 1: Claude Code shows the line on stderr and continues.
"""

import os
import sys
from pathlib import Path

from msgspec import Raw, Struct, json

from ..errors import StenoError
from .bounded_input import read_bounded
from .commands import EXIT_FAILED
from .terminal import print_error, print_json

MAX_INPUT_BYTES = 64 << 20  # the content of a written file is part of it
LOCK_SECONDS = 20.0
TRANSCRIPT_SUFFIX = ".jsonl"


class HookInput(Struct):
    """The fields of Claude Code's JSON that are used."""

    hook_event_name: str = ""
    cwd: str = ""
    transcript_path: str | None = None
    agent_transcript_path: str | None = None  # of a subagent
    tool_name: str = ""
    tool_input: Raw = Raw(b"{}")


def run(args: list[str]) -> int:
    """Run `steno hooks` and return its exit code."""
    if args[:1] == ["run"]:
        return _run_hook(args[1:])
    from .hooks_setup import run_setup

    return run_setup(args)


def _run_hook(args: list[str]) -> int:
    """Record the session, or with `--policy FILE` check a tool call. Never raises."""
    is_gate = "--policy" in args
    try:
        hook = json.decode(read_bounded(sys.stdin.fileno(), MAX_INPUT_BYTES), type=HookInput)
        if is_gate:
            _check_call(hook, args[args.index("--policy") + 1])
        else:
            _record(hook)
    except Exception as error:
        text = str(error) or type(error).__name__
        problem = "the policy was not checked" if is_gate else "the session was not recorded"
        print_error(f"hooks: {problem}: {text}")
        if not is_gate or "--fail-closed" not in args:
            return EXIT_FAILED
        _print_refusal(f"refused: the policy could not be checked: {text}")
    return 0


def _check_call(hook: HookInput, policy_path: str) -> None:
    from ..checks.call_gate import refusal
    from ..checks.policy import load_policy

    policy = load_policy(Path(policy_path))
    folder = os.environ.get("CLAUDE_PROJECT_DIR") or hook.cwd
    if not hook.tool_name:
        raise StenoError("no tool_name in the JSON of the hook")
    reason = refusal(policy, hook.tool_name, hook.tool_input, folder, hook.cwd or folder)
    if reason is not None:
        _print_refusal(f"{reason} [steno, {Path(policy_path).name}]")


def _print_refusal(reason: str) -> None:
    decision = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }
    print_json(json.encode({"hookSpecificOutput": decision}))


def _record(hook: HookInput) -> None:
    """Import what is new in the session's transcripts."""
    from ..ledger.importer import import_sources
    from ..ledger.protocol import LockPolicy
    from ..ledger.store import open_ledger

    paths = [path for path in (hook.transcript_path, hook.agent_transcript_path) if path]
    paths = [path for path in paths if _is_transcript(path)]
    if not paths:
        return  # nothing was written yet
    store = open_ledger(locks=LockPolicy(LOCK_SECONDS))
    try:
        for problem in import_sources(store, paths).troubles:
            print_error(f"hooks: {problem}")
    finally:
        store.close()


def _is_transcript(path: str) -> bool:
    return path.endswith(TRANSCRIPT_SUFFIX) and Path(path).is_file()
