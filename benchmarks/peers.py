"""Sets up the peers in a folder of their own, and asks each for its totals; never lets one see the user's home.

Run as `python -m benchmarks.peers` to set them up below `.bench`. A peer that cannot be had is left out: whoever asks
for it is told "not installed".
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
LIMIT = 120.0  # seconds for one answer: a peer that waits for a terminal or a network would wait for ever

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Figures:
    """Four counters and dollars; None where a tool does not say. `total` is for one that gives only the sum."""

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
    """From the counters in the order of their names."""
    fresh, written, read, output = counts
    return Figures(fresh, written, read, output, usd)


class Home(NamedTuple):
    """A home of its own for one question: the transcripts lie where the agent would have left them."""

    path: Path

    def projects(self) -> Path:
        return self.path / ".claude" / "projects"

    def environment(self) -> dict[str, str]:
        """Nothing of the user's but the way to programs."""
        quiet = {"DO_NOT_TRACK": "1", "NO_COLOR": "1", "TZ": "UTC", "LANG": "C.UTF-8"}
        alone = {
            "AGENTSVIEW_NO_DAEMON": "1",
            "AGENTSVIEW_DISABLE_UPDATE_CHECK": "1",
            "AGENTSVIEW_TELEMETRY_ENABLED": "0",
        }
        here = {"HOME": str(self.path), "CLAUDE_CONFIG_DIR": str(self.path / ".claude")}
        return {"PATH": os.environ.get("PATH", os.defpath), **quiet, **alone, **here}

    def run(self, command: Command, *fine: int) -> str:
        """What it prints; an exit code other than 0 and those that are fine raises."""
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
    """A tool: its name, where its program should be, how to ask it."""

    name: str
    program: Path | None
    ask: Callable[[Path, Home], Figures]

    def there(self) -> bool:
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
    """It tells the sum of the last eight days, and dollars to four places; it exits with 20 when nobody is at work now."""
    asked: Command = [program, "--view", "daily", "--once", "--output", "json", "--timezone", "UTC"]
    history = json.loads(home.run(asked, 20))["local_history"]
    return Figures(usd=history["total_cost_usd"], total=history["total_tokens"])


def claude_code_log(program: Path, home: Home) -> Figures:
    """It gives a line of text for each session, and no money."""
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
    asked: Command = [
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
    totals = json.loads(home.run(asked))["totals"]
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
    """The program that npm's wrapper starts: it comes in a package for each system."""
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
    """What fails here is shown as "not installed" later."""
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
        print(f"{peer.name:16} {'there' if peer.there() else 'not installed'}")


if __name__ == "__main__":
    main()
