"""`steno doctor`: checks this machine's setup, and lists the agents with their capabilities."""

import argparse
import os
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ..agents.base import OPTION_FIELDS
from ..runner.doctor import AgentInstallation, CheckContext, Finding, inspect_all_agents, run_checks
from ..views.formatting import clean, pad
from ..views.table import Cell, Column, PageStyle, render_table
from .commands import EXIT_FAILED
from .options import CommandParser
from .terminal import detect_style, print_json, print_lines

LEVEL_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("FAIL", "red")}
CAPABILITY_COLUMNS = {
    "resume": "resume",
    "json": "json",
    "partial": "partial",
    "budget": "budget",
    "schema": "schema",
    "context": "context",
    "cost": "cost",
    "file_events": "files",
}
EXAMPLES = """examples:
  steno doctor                check the setup
  steno doctor --agents       list the agents, their capabilities and the run options they support
  steno doctor --json | jq '.findings[] | select(.level == "problem")'
  steno doctor --json | jq -r '.agents[] | select(.path) | .agent'

Checks the settings, the agents (program, version, sign-in, transcripts), the ledger and unknown
events of its latest runs, the age of the price table, and the disk. For a sign-in it prints the
name of the variable or file, never its content. The exit code is 1 if there is a problem, else 0;
notes are not problems.

--agents: `tested` is yes if steno's tests include this version; otherwise newer, older, or between
two tested versions. The capabilities: resume a session; JSON output; partial answers; a budget in
dollars; a JSON schema for the answer; context usage; cost; changed files. The second table lists
the options of `steno run` and who implements each: the agent, steno, or neither (-): a run with
that option is refused before it starts. Timeouts, attempts and --max-tokens are always steno's.
"""


def run(args: list[str]) -> int:
    """Run `steno doctor` and return its exit code."""
    options = _parse_args(args)
    if options.agents and options.form is None:
        print_lines(_agent_tables(inspect_all_agents(os.environ)))
        return 0
    today = datetime.now(timezone.utc).date()
    findings = run_checks(CheckContext(os.environ, Path.cwd(), today, options.ledger))
    problem_count = sum(finding.level == "problem" for finding in findings)
    if options.form == "json":
        report = {
            "schema": "steno.doctor/1",
            "ok": not problem_count,
            "findings": findings,
            "agents": inspect_all_agents(os.environ),
        }
        print_json(msgspec.json.encode(report))
    else:
        style = detect_style()
        print_lines([line for finding in findings for line in _finding_lines(finding, style)])
        plural = "" if problem_count == 1 else "s"
        print_lines([f"{problem_count or 'no'} problem{plural} found"])
    return EXIT_FAILED if problem_count else 0


def _parse_args(args: list[str]) -> argparse.Namespace:
    parser = CommandParser("doctor", "Check this machine's setup and suggest fixes.", EXAMPLES)
    parser.add_argument(
        "--agents",
        action="store_true",
        help="list the agents, their capabilities and the run options they support",
    )
    parser.add_json("print findings and agents as one JSON object")
    parser.add_ledger(can_import=False)
    return parser.parse_args(args)


def _finding_lines(finding: Finding, style: PageStyle) -> list[str]:
    mark, colour = LEVEL_MARKS[finding.level]
    lines = [f"{style.paint(pad(mark, 5), colour)}  {pad(finding.check, 9)} {clean(finding.what)}"]
    if finding.remedy is not None:
        lines.append(f"{' ' * 17}-> {clean(finding.remedy)}")
    return lines


# -- the tables of --agents --------------------------------------------------------------------


def _agent_tables(agents: list[AgentInstallation]) -> list[str]:
    columns = [
        Column("agent"),
        Column("version"),
        Column("tested"),
        *(Column(name) for name in CAPABILITY_COLUMNS.values()),
    ]
    install_hints = [
        f"to install {agent.agent}: {agent.install}"
        for agent in agents
        if agent.path is None and agent.install
    ]
    return [
        *render_table(detect_style(), columns, [_agent_row(agent) for agent in agents]),
        "",
        *_options_table(agents),
        *(["", *install_hints] if install_hints else []),
    ]


def _agent_row(agent: AgentInstallation) -> list[Cell | str]:
    style = "" if agent.path is not None else "dim"
    version = "not installed" if agent.path is None else agent.version or "unknown"
    tested = {"tested": "yes", "absent": "-"}.get(agent.known, agent.known)
    flags = ["yes" if getattr(agent.abilities, name) else "-" for name in CAPABILITY_COLUMNS]
    return [Cell(text, style) for text in (agent.agent, version, tested, *flags)]


def _options_table(agents: list[AgentInstallation]) -> list[str]:
    columns = [Column("option"), *(Column(agent.agent) for agent in agents)]
    rows: list[list[Cell | str]] = []
    for name in OPTION_FIELDS:
        support = [agent.options[name] for agent in agents]
        option = "--" + name.rstrip("_").replace("_", "-")
        rows.append([option, *("-" if value == "no" else value for value in support)])
    return render_table(detect_style(), columns, rows)
