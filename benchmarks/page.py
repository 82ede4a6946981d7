"""Measure the page of `steno serve`: every page on a large ledger, and many browsers that listen.

The ledger has 100,000 made-up runs and one run of 50,000 events. Pages are requested one at a time
by a client on the same machine: CPU time of the server, and the median time of the whole answer.
Then 200 clients listen to a run in progress while one more never reads.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from benchmarks.command import Goal, finish, log, parser
from benchmarks.growth import generate
from benchmarks.measure import HOME, middle
from benchmarks.table import number, table
from steno.ledger.store import open_ledger
from steno.recording.format import Header, Record, Recorder

RUNS = 100_000
PAIRS = 12_500  # a call and its result: 4 events with text and usage
GOAL_MS = 150.0
CLIENTS = 200
SECONDS = 10.0
LONG_RUN = "00000long0000run"
TICKS = os.sysconf("SC_CLK_TCK")


def line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def pair(index: int) -> bytes:
    """A request with text and a call, and the result of the call."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 20_000 + index, "output_tokens": 90}
    content = [
        {"type": "text", "text": f"Step {index}: look at the next file."},
        {
            "type": "tool_use",
            "id": f"t{index}",
            "name": "Bash",
            "input": {"command": f"ls {index}"},
        },
    ]
    message = {"id": f"m{index}", "role": "assistant", "model": "claude-opus-5-5"}
    result = {"type": "tool_result", "tool_use_id": f"t{index}", "content": "a.py\nb.py\n" * 8}
    return line(
        {
            "type": "assistant",
            "session_id": "long",
            "message": {**message, "content": content, "usage": usage},
        }
    ) + line(
        {"type": "user", "session_id": "long", "message": {"role": "user", "content": [result]}}
    )


def long_recording(path: Path) -> None:
    now = time.time()
    header = Header(agent="claude", run_id=LONG_RUN, prompt="a long task", started_at=now - 9_000)
    begin = {"type": "system", "subtype": "init", "session_id": "long", "model": "claude-opus-5-5"}
    end = {"type": "result", "subtype": "success", "result": "Done.", "session_id": "long"}
    with Recorder(path, header) as recorder:
        recorder.write(Record(0.0, "out", line(begin)))
        for index in range(PAIRS):
            recorder.write(Record(index * 0.5, "out", pair(index)))
        recorder.write(Record(PAIRS * 0.5, "out", line(end)))
        recorder.write(Record(PAIRS * 0.5, "exit", number=0))


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "steno", *words]


def environment(folder: Path) -> dict[str, str]:
    data = {name: str(folder / name) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}", "TZ": "UTC", **data}


def start_server(ledger: str, env: dict[str, str]) -> tuple[subprocess.Popen[str], str, int]:
    words = command("serve", "--port", "0", "--no-token", "--ledger", ledger)
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=HOME, env=env)
    assert server.stdout is not None
    match = re.search(r"http://([\d.]+):(\d+)/", server.stdout.readline())
    assert match is not None
    return server, match[1], int(match[2])


# -- pages -----------------------------------------------------------------------------------------


def targets(ledger: str) -> dict[str, str]:
    store = open_ledger(ledger, read_only=True)
    rows = store.query("SELECT id, session FROM runs ORDER BY started_at DESC LIMIT 3")
    store.close()
    first, second = rows[1], rows[2]
    return {
        "overview, 30 days": "/",
        "overview, all": "/?last=all",
        "runs": "/runs",
        "runs, all": "/runs?last=all",
        "runs, all, failed": "/runs?last=all&verdict=failed",
        "runs, all, by cost": "/runs?last=all&sort=cost",
        "runs, all, one project": "/runs?last=all&project=%2Fsrv%2Fcode%2Fproject-7",
        "runs, all, page 1000": "/runs?last=all&page=1000",
        "sessions, all": "/sessions?last=all",
        "sessions, all, by cost": "/sessions?last=all&sort=cost",
        "tools, all": "/tools?last=all",
        "search, rare word": "/search?last=all&q=needle",
        "search, common phrase": "/search?last=all&q=%22Fix+the%22",
        "compare": f"/compare?id={first[0]}&id={second[0]}",
        "one run": f"/runs/{first[0]}",
        "its session": f"/sessions/{first[1]}",
        "run of 50,000 events": f"/runs/{LONG_RUN}",
        "its conversation, a slice": f"/runs/{LONG_RUN}/steps?from=20000",
        "its raw lines": f"/runs/{LONG_RUN}/raw?from=1000",
        "its files": f"/runs/{LONG_RUN}/files",
    }


def fetch(url: str) -> tuple[float, int]:
    """Milliseconds and bytes."""
    began = time.perf_counter()
    with urlopen(url, timeout=120) as response:
        size = len(response.read())
    return (time.perf_counter() - began) * 1000, size


@dataclass
class Measured:
    """Milliseconds of the first answer and of the later ones; server: CPU time, mean."""

    name: str
    first: float
    server: float
    median: float
    size: int


def measure_pages(base: str, ledger: str, pid: int, rounds: int) -> list[Measured]:
    pages = []
    for name, target in targets(ledger).items():
        first, size = fetch(base + target)
        before = cpu_seconds(pid)
        taken = [fetch(base + target)[0] for _ in range(rounds)]
        server = (cpu_seconds(pid) - before) / rounds * 1000
        page = Measured(name, first, server, middle(taken) or 0.0, size)
        pages.append(page)
        log(f"{name}: server {server:.0f} ms, median {page.median:.0f} ms, first {first:.0f} ms")
    return pages


# -- listeners -------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def listen(host: str, port: int, seen: dict[str, list[float]], end: float) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    while (left := end - time.monotonic()) > 0:
        try:
            data = await asyncio.wait_for(reader.readline(), left)
        except TimeoutError:
            break
        if data.startswith(b"id: "):
            seen.setdefault(data.decode(), []).append(time.monotonic())
    writer.close()


def start_talker(folder: Path, ledger: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """A run whose state changes all the time."""
    program = folder / "bin" / "claude"
    program.parent.mkdir()
    script = folder / "talker.py"
    script.write_text(
        "import time\nfrom benchmarks.page import line, pair\nimport sys\n"
        "begin = {'type': 'system', 'subtype': 'init', 'session_id': 'x', 'model': 'm'}\n"
        "sys.stdout.buffer.write(line(begin))\n"
        "for index in range(10_000):\n"
        "    sys.stdout.buffer.write(pair(index)); sys.stdout.flush(); time.sleep(0.1)\n"
    )
    program.write_text(f"#!/bin/sh\nPYTHONPATH={HOME} exec {sys.executable} {script}\n")
    program.chmod(0o755)
    return subprocess.Popen(
        command("run", "--ledger", ledger, "--quiet", "talk"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=env,
    )


async def measure_listeners(pid: int, host: str, port: int) -> tuple[float, list[float], int]:
    """Part of a core, the delay of each event in seconds after the first listener, events."""
    deaf = socket.create_connection((host, port))  # never reads
    deaf.sendall(f"GET /live HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    seen: dict[str, list[float]] = {}
    began, before = time.monotonic(), cpu_seconds(pid)
    end = began + SECONDS
    await asyncio.gather(*(listen(host, port, seen, end) for _ in range(CLIENTS)))
    used = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    deaf.close()
    complete = [sorted(times) for times in list(seen.values())[1:-1]]  # all were connected
    delays = [at - times[0] for times in complete for at in times]
    missing = sum(CLIENTS - len(times) for times in complete)
    log(f"{len(complete)} events to {CLIENTS} clients, {missing} missing, {used:.2f} of a core")
    return used, sorted(delays), missing


def section(pages: list[Measured], goals: list[Goal], rounds: int, delays: list[float]) -> str:
    rows = [
        [
            page.name,
            number(page.server, 0, " ms"),
            number(page.median, 0, " ms"),
            number(page.first, 0, " ms"),
            number(page.size / 1024, 0, " KB"),
        ]
        for page in pages
    ]
    place = f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs"
    intro = (
        f"{time.strftime('%Y-%m-%d')}, {place}, SQLite. {RUNS:,} runs and one of 50,000 events; "
        f"{rounds} requests for each page, one at a time, on a machine that is shared: CPU time of "
        "the server (mean), time of the whole answer (median), and of the first answer. The long "
        "conversation is read at its first request and kept. Delay: after the first of the "
        f"{CLIENTS} listeners has an event, p50 {delays[len(delays) // 2] * 1000:.1f} ms, p99 "
        f"{delays[len(delays) * 99 // 100] * 1000:.1f} ms."
    )
    head = ["page", "server CPU", "answer", "first", "size"]
    aims = table(["goal", "target", "measured", ""], [goal.cells() for goal in goals])
    return f"## The page\n\n{intro}\n\n{aims}\n\n{table(head, rows)}"


def main() -> int:
    options = parser((__doc__ or "").partition("\n")[0], rounds=15)
    options.add_argument("--runs", type=int, default=RUNS, help="runs in the ledger")
    options.add_argument("--folder", help="keep and reuse the ledger in this folder")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ledger = str(Path(given.folder or scratch) / f"page-{given.runs}.db")
        env = environment(folder)
        if not Path(ledger).exists():
            generate(ledger, given.runs)
            long_recording(Path(ledger).with_suffix(".steno"))
            words = command("ledger", "import", str(Path(ledger).with_suffix(".steno")))
            subprocess.run([*words, "--ledger", ledger], check=True, cwd=HOME, env=env)
        server, host, port = start_server(ledger, env)
        talker = None
        try:
            time.sleep(5)  # the first refresh: names for filters, index of the search
            pages = measure_pages(f"http://{host}:{port}", ledger, server.pid, given.rounds)
            talker = start_talker(folder, ledger, env)
            time.sleep(3)
            used, delays, missing = asyncio.run(measure_listeners(server.pid, host, port))
        finally:
            for process in (talker, server):
                if process is not None:
                    process.send_signal(signal.SIGINT)
                    process.wait(timeout=60)
    goals = [
        Goal("slowest page, server time", max(page.server for page in pages), GOAL_MS, " ms"),
        Goal(f"{CLIENTS} listeners, part of a core", used, 1.0, ""),
        Goal("events that a listener missed", float(missing), 0.0, ""),
        Goal("delay by a listener that does not read, p99", delays[-len(delays) // 100], 0.5, " s"),
    ]
    return finish(given, section(pages, goals, given.rounds, delays), "page", goals)


if __name__ == "__main__":
    raise SystemExit(main())
