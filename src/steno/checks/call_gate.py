"""A policy before a single tool call: whether the call would break a rule."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Raw, Struct

from .. import event as ev
from ..agents.claude.tables import ROLE_EFFECT, TOOLS
from ..codec.decode import decoder
from ..report import ChangedFile, Report, ToolCallCounts, resolve_path
from .facts import RunFacts, call_fact
from .monitor import FILE_RULES, TOOL_RULES
from .policy import Policy
from .rules import RuleFinding, check_rule

GATE_RULES = (*TOOL_RULES, *FILE_RULES)
MAX_SHOWN_CHARS = 200


class _FileInput(Struct, gc=False):
    file_path: str | None = None
    notebook_path: str | None = None


_decode_file_input = decoder(_FileInput).decode


def refusal(policy: Policy, tool: str, tool_input: Raw, folder: str, cwd: str) -> str | None:
    """The reason why a call of Claude Code is refused: the rule, its value, the call.

    `folder` is the project's, to which the policy's paths are relative; `cwd` that of the call.
    Raises an exception of msgspec if the input of a tool that writes a file is malformed.
    """
    name, kind, role = TOOLS[tool]
    event = ev.ToolCall(
        line=0, session=None, parent=None, at=None, id="", name=name, kind=kind, input=tool_input
    )
    call = call_fact(event)
    facts = RunFacts(Report(tool_counts={name: ToolCallCounts(1)}), [call])
    for finding in _findings(policy, TOOL_RULES, facts):
        what = call.command if finding.rule == "forbid_commands" else name
        return _reason(finding, what or name)
    if role == ROLE_EFFECT and kind != "shell":
        fields = _decode_file_input(tool_input)
        named = fields.file_path or fields.notebook_path or ""
        expanded = os.path.expanduser(named)  # noqa: PTH111  # Path raises for an unknown user
        path = str(Path(cwd, expanded))
        for file in _files(path, folder):
            for finding in _findings(policy, FILE_RULES, RunFacts(Report(files=[file]))):
                return _reason(finding, file.path)
    return None


def _files(path: str, folder: str) -> list[ChangedFile]:
    """The file as it is named, and where symbolic links lead."""
    named = resolve_path(path, folder)
    real = resolve_path(os.path.realpath(named[1]), os.path.realpath(folder))
    return [
        ChangedFile(relative, absolute, "modified", inside)
        for relative, absolute, inside in dict.fromkeys((named, real))
    ]


def _findings(policy: Policy, names: Sequence[str], facts: RunFacts) -> list[RuleFinding]:
    return [
        finding
        for name in names
        if name in policy.rules
        for finding in check_rule(name, policy.rules[name], facts)
    ]


def _reason(finding: RuleFinding, what: str) -> str:
    shown = what if len(what) <= MAX_SHOWN_CHARS else f"{what[:MAX_SHOWN_CHARS]}..."
    values = ", ".join(map(str, finding.expected or ()))
    return f"refused by the rule {finding.rule} ({values}): {shown}"
