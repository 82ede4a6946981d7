"""What Gemini CLI and its fork, Qwen Code, have in common: rules, modes, exit codes. Pure."""

from typing import Any

# Verdicts for the exit codes of fatal errors; the run has no result then.
EXIT_CODE_VERDICTS = {
    41: "auth",
    42: "subprocess",
    44: "subprocess",
    52: "subprocess",
    53: "max_turns",
    54: "subprocess",
}


def allow_rule(tool: str, input_: Any, cwd: str | None) -> str:
    """The narrowest rule for --allowed-tools that would have allowed a denied call."""
    command = input_.get("command") if isinstance(input_, dict) else None
    if tool == "run_shell_command" and isinstance(command, str):
        return f"{tool}({command})"
    return tool


def approval_mode(mode: str | None, aliases: dict[str, str]) -> str | None:
    """The agent's own name for a permission mode."""
    return None if mode is None else aliases.get(mode, mode)
