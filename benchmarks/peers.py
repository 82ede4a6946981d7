"""Install the peers, and ask each for its totals in a home directory of its own.

Run as `python -m benchmarks.peers` to install them below `.bench`. Peers that cannot be installed
are shown as "not installed".
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parent.parent
FOLDER = TOP / ".bench"
VENV, NPM = FOLDER / "venv", FOLDER / "npm"
PACKAGES = TOP / "requirements" / "peers.txt"
CCUSAGE = "ccusage@20.0.24"
LIMIT = 120.0  # seconds per answer, for peers that wait for a terminal or the network

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Figures:
    """Token counters and dollars; None if not reported. `total`: for tools with a sum only."""

    input: int | None = None
    cache_write: int | None = None
    cache_read: int | None = None
    output: int | None = None
    usd: float | None = None
    total: int | None = None

    def tokens(self) -> int | None:
        counts = (self.input, self.cache_write, self.cache_read, self.output)
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else self.total

    def __add__(self, other: Figures) -> Figures:
        pairs = {
            one.name: (getattr(self, one.name), getattr(other, one.name)) for one in fields(self)
        }
        return Figures(
            **{name: None if None in pair else sum(pair) for name, pair in pairs.items()}
        )


def figures(counts: Iterable[int | None], usd: float | None = None) -> Figures:
    """Figures from counters in the order of the fields."""
    fresh, written, read, output = counts
    return Figures(fresh, written, read, output, usd)


class Home(NamedTuple):
    """A separate home directory, with transcripts where the agent writes them."""

    path: Path

    def projects(self) -> Path:
        return self.path / ".claude" / "projects"

    def environment(self) -> dict[str, str]:
        """An environment with only PATH of the user's own."""
        quiet = {"DO_NOT_TRACK": "1", "NO_COLOR": "1", "TZ": "UTC", "LANG": "C.UTF-8"}
        alone = {
            "AGENTSVIEW_NO_DAEMON": "1",
            "AGENTSVIEW_DISABLE_UPDATE_CHECK": "1",
            "AGENTSVIEW_TELEMETRY_ENABLED": "0",
        }
        here = {"HOME": str(self.path), "CLAUDE_CONFIG_DIR": str(self.path / ".claude")}
        return {"PATH": os.environ.get("PATH", os.defpath), **quiet, **alone, **here}

    def run(self, command: Command, *fine: int) -> str:
        """Its stdout; raises for exit codes other than 0 and `fine`."""
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self.environment(),
            cwd=self.path,
            timeout=LIMIT,
        )
        if done.returncode not in fine:
            done.check_returncode()
        return done.stdout


class Peer(NamedTuple):
    """A tool: name, path of the program, and the function that asks it."""

    name: str
    program: Path | None
    ask: Callable[[Path, Home], Figures]

    def is_installed(self) -> bool:
        return self.program is not None and self.program.exists()


# --- asking


def ccusage(program: Path, home: Home) -> Figures:
    return ccusage_totals(json.loads(home.run([program, "daily", "--json", "--offline"])))


def ccusage_totals(answer: dict[str, Any]) -> Figures:
    totals, names = (
        answer["totals"],
        ("inputTokens", "cacheCreationTokens", "cacheReadTokens", "outputTokens"),
    )
    return figures((totals[name] for name in names), totals["totalCost"])


def claude_monitor(program: Path, home: Home) -> Figures:
    """Totals of the last eight days. Exits with 20 if no session is active."""
    command: Command = [
        program,
        "--view",
        "daily",
        "--once",
        "--output",
        "json",
        "--timezone",
        "UTC",
    ]
    history = json.loads(home.run(command, 20))["local_history"]
    return Figures(usd=history["total_cost_usd"], total=history["total_tokens"])


def claude_code_log(program: Path, home: Home) -> Figures:
    """One line of text per session, without costs."""
    total = Figures(0, 0, 0, 0)
    for number, folder in enumerate(sorted(home.projects().iterdir())):
        out = home.path / f"log-{number}.json"
        home.run([program, folder, "-o", out, "--no-cache"])
        for session in json.loads(out.read_text("utf-8"))["sessions"]:
            total += summary(session.get("token_summary") or "")
    return total


def summary(text: str) -> Figures:
    def count(name: str) -> int:
        found = re.search(rf"{name}: ([\d,]+)", text)
        return int(found[1].replace(",", "")) if found else 0

    return Figures(count("Input"), count("Cache Creation"), count("Cache Read"), count("Output"))


def agentsview(program: Path, home: Home) -> Figures:
    home.run([program, "sync"])
    command: Command = [
        program,
        "usage",
        "daily",
        "--all",
        "--json",
        "--offline",
        "--no-sync",
        "--agent",
        "claude",
    ]
    totals = json.loads(home.run(command))["totals"]
    cost = totals["totalCost"]
    usd = cost["microdollars"] / 1e6 if isinstance(cost, dict) else cost
    return Figures(
        totals["inputTokens"],
        totals["cacheCreationTokens"],
        totals["cacheReadTokens"],
        totals["outputTokens"],
        usd=usd,
    )


def native() -> Path | None:
    """The program behind npm's wrapper, from a package per platform."""
    return next(iter(sorted(NPM.glob("node_modules/@ccusage/*/bin/ccusage*"))), None)


def wrapper() -> Path:
    return NPM / "node_modules" / ".bin" / "ccusage"


def peers() -> list[Peer]:
    return [
        Peer("ccusage", native(), ccusage),
        Peer("claude-monitor", VENV / "bin" / "claude-monitor", claude_monitor),
        Peer("claude-code-log", VENV / "bin" / "claude-code-log", claude_code_log),
        Peer("agentsview", VENV / "bin" / "agentsview", agentsview),
    ]


# --- setting up


def attempt(command: Command) -> None:
    """Failures are shown as "not installed" later."""
    if shutil.which(str(command[0])):
        subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, check=False)


def set_up() -> None:
    python = VENV / "bin" / "python"
    attempt([sys.executable, "-m", "venv", VENV])
    names = (line.partition("#")[0].strip() for line in PACKAGES.read_text("utf-8").splitlines())
    for package in filter(None, names):
        attempt([python, "-m", "pip", "--disable-pip-version-check", "-q", "install", package])
    attempt(
        ["npm", "install", "--prefix", NPM, "--no-audit", "--no-fund", "--loglevel=error", CCUSAGE]
    )
    if program := native():
        program.chmod(0o755)  # npm's wrapper does this when it first starts it


def main() -> None:
    set_up()
    for peer in peers():
        print(f"{peer.name:16} {'installed' if peer.is_installed() else 'not installed'}")


if __name__ == "__main__":
    main()
