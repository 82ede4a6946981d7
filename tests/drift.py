"""Run many versions of the real agents on the scripted model and compare steno with its log.

    python -m tests.drift                          the newest and older versions of each agent
    python -m tests.drift claude=2.1.290 codex     one version, and those of one agent

Installs each version with npm below .drift, runs every situation with `steno run`, and checks the
report: tokens, requests, cost, context, files and verdict must equal what the server sent, or be
unknown. The figures of the answers are primes, so that a wrong sum cannot equal the right one.
`--out FILE` writes the result as JSON, from which the table in docs/reference/agents.md is made; if
agents are named, it keeps the results of the other versions. The exit code is 1 if a figure is
wrong or a version can't be installed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from steno import event as ev
from steno.pricing import price
from tests.support import openai
from tests.support.all_agents import Place, RunResult, Server, shell, write
from tests.support.modelserver import Answer, Call, Fault, Step, Text, Usage, say

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".drift"
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "copilot": "@github/copilot",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
    "qwen": "@qwen-code/qwen-code",
}
# Versions that differ in options or output from the ones before and after them.
OLDER = {
    "claude": (
        *("1.0.60", "2.0.10", "2.0.70", "2.1.100", "2.1.250", "2.1.290", "2.1.310", "2.1.325"),
        "2.1.326",
    ),
    "codex": ("0.80.0", "0.115.0", "0.142.0", "0.166.0"),
    "copilot": ("1.0.60", "1.0.75", "1.0.92"),
    "gemini": ("0.27.0", "0.39.0", "0.45.2"),
    "opencode": ("1.2.27", "1.15.13", "1.17.19"),
    "qwen": ("0.12.0", "0.15.10", "0.21.10"),
}
NODE = "22"  # the newest Qwen Code needs it; the others run on it too
# The usage of the first, second and third answer: primes, each above twice the sum of those before.
# The sum of some answers, of which some count twice, is that of no others.
INPUTS = (1_009, 2_129, 6_599)
CACHE_WRITES = (211, 449, 1_399)
CACHE_READS = (2_003, 4_211, 13_063)
OUTPUTS = (53, 113, 349)
# Not repetitive: some agents stop a model that repeats itself.
LONG_ANSWER = " ".join(str(number * 7919) for number in range(40_000)) + " the end."


Reports = list[dict[str, Any]]  # of the runs of a situation so far


class Run(Struct):
    """One `steno run`: what the model sends, and the verdict that follows."""

    steps: tuple[Step, ...]
    verdict: str = "success"
    files: tuple[str, ...] = ()
    text: str | None = None  # the whole answer
    words: tuple[str, ...] = ()


class Result(Struct):
    """What was wrong or unknown in one situation: the checks by name, with a text."""

    situation: str
    wrong: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    cost: float | None = None
    list_cost: float | None = None  # of the main thread
    list_cost_of_all: float | None = None


Situation = Callable[[Place, Reports], Iterator[Run]]


class VersionResult(Struct):
    """The situations that were tried with one version.

    `price_factor`: the agent's own prices, if it reports a cost, as a multiple of the list prices.
    """

    agent: str
    version: str
    price_factor: float = 1.0
    situations: list[Result] = field(default_factory=list)


# -- situations ----------------------------------------------------------------------------------


def figures(agent: str, number: int) -> Usage:
    """The usage of the n-th answer. Only Anthropic's API reports cache writes in every version."""
    index = number - 1
    writes = CACHE_WRITES[index] if agent == "claude" else 0
    return Usage(INPUTS[index], writes, CACHE_READS[index], OUTPUTS[index])


def shell_call(agent: str, version: str, command: str) -> Call:
    if agent == "claude":
        return Call("Bash", {"command": command, "description": "run it"})
    if agent == "codex" and version_tuple(version) < (0, 150):
        return Call("shell_command", {"command": command})
    return shell(agent, command)


def write_call(agent: str, path: Path, text: str) -> Call:
    if agent == "claude":
        return Call("Write", {"file_path": str(path), "content": text})
    return write(agent, path, text)


def answer(place: Place, reports: Reports) -> Iterator[Run]:
    yield Run((say("All is well.", usage=figures(place.agent, 1)),), text="All is well.")


def work(place: Place, reports: Reports) -> Iterator[Run]:
    agent = place.agent
    yield Run(
        (
            Answer(
                (Text("First."), shell_call(agent, place.version, "echo hello > made.txt")),
                figures(agent, 1),
            ),
            Answer((write_call(agent, place.work / "new.txt", "hello\n"),), figures(agent, 2)),
            say("Both are made.", usage=figures(agent, 3)),
        ),
        files=("made.txt", "new.txt"),
        text="Both are made.",
    )


def resumed(place: Place, reports: Reports) -> Iterator[Run]:
    agent = place.agent
    yield Run((say("First task done.", usage=figures(agent, 1)),))
    yield Run(
        (
            Answer((shell_call(agent, place.version, "echo two > two.txt"),), figures(agent, 2)),
            say("Second task done.", usage=figures(agent, 3)),
        ),
        files=("two.txt",),
        text="Second task done.",
        words=("--resume", reports[-1]["session_id"] or "unknown"),
    )


def long_answer(place: Place, reports: Reports) -> Iterator[Run]:
    yield Run((say(LONG_ANSWER, usage=figures(place.agent, 1)),), text=LONG_ANSWER)


def question(place: Place, reports: Reports) -> Iterator[Run]:
    agent = place.agent
    yield Run(
        (
            Answer((shell_call(agent, place.version, "ls"),), figures(agent, 1)),
            say("Which of the two shall I delete?", usage=figures(agent, 2)),
        ),
        verdict="interactive",
    )


def wrong_key(place: Place, reports: Reports) -> Iterator[Run]:
    kind = "authentication_error" if place.agent == "claude" else "UNAUTHENTICATED"
    yield Run((Fault(401, kind, "Incorrect API key provided.", RETRY_NOW),), verdict="auth")


def overflow(place: Place, reports: Reports) -> Iterator[Run]:
    text = {
        "claude": "prompt is too long: 250000 tokens > 200000 maximum",
        "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed "
        "(1048576).",
    }.get(
        place.agent,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "130000 tokens.",
    )
    kind = "INVALID_ARGUMENT" if place.agent == "gemini" else "invalid_request_error"
    yield Run((Fault(400, kind, text, RETRY_NOW),), verdict="context_full")


RETRY_NOW = {"retry-after-ms": "1", "retry-after": "0"}
SITUATIONS: dict[str, Situation] = {
    "answer": answer,
    "work": work,
    "resumed": resumed,
    "long answer": long_answer,
    "question": question,
    "wrong key": wrong_key,
    "overflow": overflow,
}
# OpenCode compacts and asks again, without end, if the service keeps refusing the prompt.
NOT_TRIED = {("opencode", "overflow")}
FAULTS = ("wrong key", "overflow")  # nothing is sent that has a cost


# -- comparison with the server ------------------------------------------------------------------


def compare(place: Place, run: Run, server: Server, result: RunResult) -> Result:
    """Check a report against what the server sent."""
    report = result.report
    found = Result("")
    if report["verdict"] != run.verdict:
        reason = (report["error"] or "no error").strip().splitlines()[0][:120]
        found.wrong["verdict"] = f"{report['verdict']} ({reason}), not {run.verdict}"
    if run.text is not None and report["result"] != run.text:
        found.wrong["verdict"] = f"answer of {len(report['result'] or '')} characters"
    sent = [step for step in run.steps if isinstance(step, Answer)]
    if not sent:
        return found
    answers = [(model, step.usage) for model, step in server.sent if isinstance(step, Answer)]
    sums = possible_sums([step.usage for step in sent], [usage for _, usage in answers])
    for name in ("input", "cache_write", "cache_read", "output"):
        values = [getattr(usage, name) for usage in sums]
        check_sum(found, "tokens", report["tokens"][name], values, f"{name} ")
    check_sum(found, "requests", report["requests"], [len(sent) + i for i in range(len(sums))])
    last = sent[-1].usage
    used = last.input + last.cache_write + last.cache_read
    is_bound = report["context"]["source"] == "upper_bound"
    check(found, "context", "used", None if is_bound else report["context"]["used"], (used, used))
    found.cost = report["cost"]["usd"]
    model = answers[0][0]
    found.list_cost = cost_of(place, report, [(model, step.usage) for step in sent])
    found.list_cost_of_all = cost_of(place, report, answers)
    paths = sorted(file["path"] for file in report["files"])
    # A tool that this version lacks creates no file.
    created = sorted(name for name in run.files if (place.work / name).exists())
    if paths != created:
        found.wrong["files"] = f"{paths}, not {created}"
    return found


def check(
    found: Result, name: str, part: str, value: float | None, expected: tuple[float, float]
) -> None:
    """Note a value that is unknown, or outside of what is expected."""
    least, most = expected
    if value is None:
        if name not in found.unknown:
            found.unknown.append(name)
    elif not least - 1e-7 <= value <= most + 1e-7:
        found.wrong[name] = f"{part} {value}, not {least}" + (f" to {most}" if most > least else "")


def check_sum(
    found: Result, name: str, value: int | None, possible: list[int], part: str = ""
) -> None:
    """Note a sum that is unknown, or none of the possible ones."""
    if value is None:
        if name not in found.unknown:
            found.unknown.append(name)
    elif value not in possible:
        expected = " or ".join(map(str, dict.fromkeys(possible)))
        found.wrong[name] = f"{part}{value}, not {expected}"


def possible_sums(main: list[Usage], answers: list[Usage]) -> list[Usage]:
    """The usage of the main thread, and of all requests up to each of the others.

    Requests beside the main thread, such as for a title, may end after the result.
    """
    others = list(answers)
    for usage in main:
        if usage in others:
            others.remove(usage)
    return [add_usage([*main, *others[:count]]) for count in range(len(others) + 1)]


def add_usage(usages: list[Usage]) -> Usage:
    parts = [(usage.input, usage.cache_write, usage.cache_read, usage.output) for usage in usages]
    return Usage(*(sum(column) for column in zip(*parts, strict=True)))


def cost_of(place: Place, report: dict[str, Any], answers: list[tuple[str, Usage]]) -> float | None:
    """Dollars for what the server sent; None if a model has no known price."""
    if place.agent == "opencode":  # the prices in its settings, per million tokens
        return sum(use.input + 2 * use.output + use.cache_read / 10 for _, use in answers) / 1e6
    costs = [
        price(model or report["model"] or "", event_of(usage), None) for model, usage in answers
    ]
    known = [cost for cost in costs if cost is not None]
    return sum(known) / 1e9 if len(known) == len(costs) else None


def event_of(usage: Usage) -> ev.Usage:
    return ev.Usage(
        *(0, None, None, None),
        input=usage.input,
        cache_write=usage.cache_write,
        cache_read=usage.cache_read,
        output=usage.output,
        cache_write_1h=0,
    )


# -- versions ------------------------------------------------------------------------------------


def version_tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split("."))


def newest(agent: str) -> str:
    command = ("npm", "view", PACKAGES[agent], "version")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def install(name: str, package: str, version: str) -> Path:
    """Install a version unless it is there; return the folder of its programs."""
    folder = FOLDER / f"{name}-{version}"
    programs = folder / "node_modules" / ".bin"
    if not programs.exists():
        command = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder)
        try:
            subprocess.run((*command, f"{package}@{version}"), check=True)
        except subprocess.CalledProcessError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return programs


def try_version(agent: str, version: str) -> VersionResult:
    """Run every situation with one version."""
    program = install(agent, PACKAGES[agent], version) / agent
    # A model that the version knows: it decides which tools there are.
    openai.MODELS["codex"] = "gpt-5.5" if version_tuple(version) > (0, 150) else "gpt-5-codex"
    found = VersionResult(agent, version)
    for name, runs in SITUATIONS.items():
        if (agent, name) in NOT_TRIED:
            continue
        folder = Path(tempfile.mkdtemp(prefix="steno-drift-"))
        try:
            result = _try_situation(Place(f"{agent} {version}", folder, program=str(program)), runs)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        result.situation = name
        if name == "answer" and agent == "claude" and result.cost and result.list_cost:
            found.price_factor = round(result.cost / result.list_cost, 4)
        if name not in FAULTS and (result.cost is None or result.list_cost is not None):
            # A factor of its own prices is measured, with the helper requests in it.
            margin = 0.0 if found.price_factor == 1 else 0.005
            least = (result.list_cost or 0.0) * found.price_factor * (1 - margin)
            most = (result.list_cost_of_all or 0.0) * found.price_factor * (1 + margin)
            check(result, "cost", "usd", result.cost, (least, most))
        found.situations.append(result)
        _print_line(agent, version, result)
    return found


def _try_situation(place: Place, runs: Situation) -> Result:
    found = Result("")
    reports: Reports = []
    subprocess.run(("git", "init", "-q", place.work), check=True)
    for run in runs(place, reports):
        with place.start(*run.steps, words=run.words) as active:
            try:
                ended = active.finish()
            except (subprocess.TimeoutExpired, ValueError, AssertionError) as error:
                found.wrong["verdict"] = f"no report: {str(error)[:200]}"
                return found
            reports.append(ended.report)
            part = compare(place, run, active.server, ended)
        found.wrong |= part.wrong
        found.cost = part.cost  # of the last run
        found.list_cost = part.list_cost
        found.list_cost_of_all = part.list_cost_of_all
        found.unknown += [name for name in part.unknown if name not in found.unknown]
    return found


def _print_line(agent: str, version: str, result: Result) -> None:
    text = "right"
    if result.unknown:
        text = f"unknown: {', '.join(result.unknown)}"
    if result.wrong:
        text = "WRONG " + "; ".join(f"{name}: {why}" for name, why in result.wrong.items())
    print(f"{agent:9} {version:10} {result.situation:12} {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.drift", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("agents", nargs="*", metavar="AGENT[=VERSION]", help="default: all")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON")
    options = parser.parse_args()
    node = install("node", "node", NODE)
    os.environ["PATH"] = f"{node}{os.pathsep}{os.environ['PATH']}"
    results = []
    missing = []
    for word in options.agents or PACKAGES:
        agent, _, version = word.partition("=")
        versions = [version] if version else [*OLDER[agent], newest(agent)]
        for each in dict.fromkeys(versions):
            try:
                results.append(try_version(agent, each))
            except subprocess.CalledProcessError as error:
                missing.append(f"{agent} {each}")
                print(f"{agent:9} {each:10} not installed: {error}", flush=True)
    if options.out is not None:
        _write(results, options.out, keep_others=bool(options.agents))
    wrong = [one for result in results for one in result.situations if one.wrong]
    print(f"{len(results)} versions, {len(wrong)} situations with a wrong figure")
    return 1 if wrong or missing else 0


def _write(results: list[VersionResult], path: Path, keep_others: bool) -> None:
    """Write what was right, sorted by version, and with `keep_others` what the file has already."""
    earlier = msgspec.json.decode(path.read_bytes()) if keep_others and path.exists() else []
    rows = {
        (row["agent"], version_tuple(row["version"])): row
        for row in (*earlier, *map(_table_row, results))
    }
    in_order = [rows[key] for key in sorted(rows)]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(in_order), indent=1) + b"\n")


def _table_row(result: VersionResult) -> dict[str, Any]:
    situations = [
        {"situation": one.situation, "wrong": one.wrong, "unknown": one.unknown}
        for one in result.situations
    ]
    return {"agent": result.agent, "version": result.version, "situations": situations}


if __name__ == "__main__":
    sys.exit(main())
