"""`steno agents`: which agents are here, of which version, and what each can do. It looks and prints; it starts no run."""

import argparse
import os

import msgspec

from ..agents.base import OPTION_FIELDS
from ..runner.installed import AgentInstallation, inspect_all_agents
from ..views.table import Cell, Column, render_table
from .options import CommandParser
from .terminal import detect_style, print_json, print_lines

EXAMPLES = """examples:
  steno agents                      which agents are here, and what each can do
  steno agents --json | jq -r '.agents[] | select(.path) | .agent'

`tested` says whether recordings of that version are among the tests: yes, between (two that are), newer, older.
What an agent can do without a person: resume a session; tell what it does as JSON; tell pieces of an answer as they come
(partial); be given a budget in dollars; answer in the shape of a JSON schema; tell how full its context is; tell its cost;
tell which files it changed (files). --json also tells which kinds of model servers `steno run --backend` leads it to.

Below that, the options of `steno run` and who deals with each: the agent itself, steno (which watches the cost, checks the
answer against the schema, and starts again with another model), or nobody (-): a run with that option is refused before
anything is started. Clocks, attempts and --max-tokens are steno's with every agent.
"""
ABILITY_COLUMNS = {
    "resume": "resume", "json": "json", "partial": "partial", "budget": "budget", "schema": "schema", "context": "context",
    "cost": "cost", "file_events": "files",
}  # fmt: skip


def run(words: list[str]) -> int:
    """Carry out `steno agents` and return its exit code."""
    options = _parse_args(words)
    found = inspect_all_agents(os.environ)
    if options.form == "json":
        print_json(msgspec.json.encode({"schema": "steno.agents/1", "agents": found}))
    else:
        print_lines(_render(found))
    return 0


def _parse_args(words: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        "agents", "Tell which agents are here, of which version, and what each can do.", EXAMPLES
    )
    parser.add_argument(
        "--json", dest="form", action="store_const", const="json", help="one JSON object"
    )
    parser.add_debug()
    return parser.parse_args(words)


def _render(found: list[AgentInstallation]) -> list[str]:
    columns = [
        Column("agent"),
        Column("version"),
        Column("tested"),
        *(Column(name) for name in ABILITY_COLUMNS.values()),
    ]
    rows = [_row(one) for one in found]
    missing = [
        f"to install {one.agent}: {one.install}"
        for one in found
        if one.path is None and one.install
    ]
    return [
        *render_table(detect_style(), columns, rows),
        "",
        *_options_table(found),
        *(["", *missing] if missing else []),
    ]


def _options_table(found: list[AgentInstallation]) -> list[str]:
    """Who deals with each option of a run."""
    columns = [Column("option"), *(Column(one.agent) for one in found)]
    words = {"no": "-"}
    rows: list[list[Cell | str]] = [
        [
            "--" + name.rstrip("_").replace("_", "-"),
            *(words.get(one.options[name], one.options[name]) for one in found),
        ]
        for name in OPTION_FIELDS
    ]
    return render_table(detect_style(), columns, rows)


def _row(one: AgentInstallation) -> list[Cell | str]:
    style = "" if one.path is not None else "dim"
    version = "not installed" if one.path is None else one.version or "unknown"
    tested = {"tested": "yes", "absent": "-"}.get(one.known, one.known)
    able = ["yes" if getattr(one.abilities, name) else "-" for name in ABILITY_COLUMNS]
    return [Cell(text, style) for text in (one.agent, version, tested, *able)]
