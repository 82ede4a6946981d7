"""Takes the pictures of the documents: a made-up ledger, a real server, a real browser.

    python docs/images/generate.py [FOLDER]    write the pictures (default: this folder)

Needs the test tools (`make .venv/.test`) and Chromium. Nothing of the user's is read: home, ledger
and agents are in a temporary folder. Look at the pictures before committing them.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.support.browser import launch  # noqa: E402  # after the path
from tests.support.claude_lines import (  # noqa: E402
    Json,
    answer,
    assistant,
    call,
    failed,
    init,
    outcome,
    result,
    share,
    stream,
    system,
    text,
    usage,
    user,
)
from tests.support.scripted_place import Place  # noqa: E402

from steno.ledger.protocol import now_ms  # noqa: E402
from steno.ledger.rows import LIMIT_COLUMNS  # noqa: E402
from steno.ledger.store import open_ledger  # noqa: E402
from steno.recording.format import Header, Record, Recorder  # noqa: E402
from steno.report import RunOrigin  # noqa: E402

DAYS = 30
RUNS_PER_DAY = 8
DAY = 86_400.0
HOUR_MS = 3_600_000
SMALL = (1100, 560)
SHOWN = 2  # the second attempt of the newest task: subagents and a compaction
PROMPTS = (
    *("Fix the flaky test in the upload worker", "Port the importer to the new schema"),
    *("Write the changelog for 2.4", "Add retries to the payment client"),
    *("Explain why the cache misses after a deploy", "Rename Session to Conversation everywhere"),
    *("Update the dependencies", "Make the search page work without JavaScript"),
    *("Review the payment module", "Translate the onboarding texts", "Draft the release notes"),
)
PROJECTS = ("shop", "website", "billing", "mobile-app")
BRANCHES = ("main", "release", "fix/cache", "feature/search")
HOSTS = ("laptop", "build-1")
MODELS = ("claude-opus-5-5", "claude-opus-5-5", "claude-sonnet-4-5", "claude-haiku-4-5")
WINDOW = 200_000
FAILING_TEST = """============================= test session starts ==============================
collected 24 items

tests/test_upload.py .....F..................                            [100%]

=================================== FAILURES ===================================
____________________________ test_retry_after_reset ____________________________

    def test_retry_after_reset():
        worker = Worker(retries=2)
>       assert worker.upload(RESETS_ONCE) == "stored"
E       AssertionError: assert None == 'stored'

tests/test_upload.py:61: AssertionError
=========================== short test summary info ============================
FAILED tests/test_upload.py::test_retry_after_reset - AssertionError: assert N...
========================= 1 failed, 23 passed in 1.84s ========================="""
EDIT = {
    "old_string": "    except ConnectionError:\n        return None\n",
    "new_string": "    except ConnectionError:\n        return self.retry(job)\n",
}
PATCH = {
    "oldStart": 41,
    "oldLines": 5,
    "newStart": 41,
    "newLines": 5,
    "lines": [
        "     try:",
        "         return self.send(job)",
        "     except ConnectionError:",
        "-        return None",
        "+        return self.retry(job)",
    ],
}


class Story:
    """The lines of one run, each with its time, and what its requests add up to."""

    def __init__(self, rng: random.Random, number: int, cwd: str, model: str) -> None:
        self.rng = rng
        self.number = number
        self.cwd = cwd
        self.model = model
        self.session = f"{rng.getrandbits(32):08x}-1c5e-4b60-9a10-{number:012x}"
        self.at = 1.2
        self.lines: list[tuple[float, Json]] = []
        self.context = 18_000 + rng.randrange(6_000)
        self.totals = [0, 0, 0, 0]
        self.requests = 0
        self.add(init(cwd=cwd, model=model))

    def add(self, line: Json, seconds: float = 0.0) -> None:
        self.at += seconds
        self.lines.append((self.at, {**line, "session_id": self.session}))

    def think(self, *blocks: Json, grows: int = 2_400, parent: str | None = None) -> None:
        """A request to the model and its answer."""
        self.requests += 1
        write = grows + self.rng.randrange(1_500)
        output = 240 + self.rng.randrange(700)
        used = usage(4, write, self.context, output)
        if parent is None:
            self.context += write
        for index, value in enumerate((4, write, used["cache_read_input_tokens"], output)):
            self.totals[index] += value
        message = f"msg_{self.number}_{self.requests}"
        line = assistant(*blocks, message=message, used=used, parent=parent, model=self.model)
        self.add(line, 2 + self.rng.random() * 6)

    def end(self, words: str, **more: Any) -> None:
        """The result, with the sums of all requests at the prices of the model."""
        prices = {"claude-opus-5-5": (5, 6.25, 0.5, 25), "claude-sonnet-4-5": (3, 3.75, 0.3, 15)}
        rates = prices.get(self.model, (1, 1.25, 0.1, 5))
        cost = sum(part * rate for part, rate in zip(self.totals, rates, strict=True)) / 1e6
        models = {self.model: share(*self.totals, cost, WINDOW)}
        fields = {"num_turns": self.requests, "usage": usage(*self.totals), "modelUsage": models}
        times = {"duration_ms": int(self.at * 1000), "duration_api_ms": int(self.at * 700)}
        self.add(result(words, total_cost_usd=cost, **{**fields, **times, **more}), 0.1)


def look_around(story: Story) -> None:
    """Three calls at once."""
    names = ("src/upload.py", "src/retry.py", "tests/test_upload.py")
    ids = [f"r{story.number}_{index}" for index in range(3)]
    calls = [
        call(id_, "Read", file_path=f"{story.cwd}/{name}")
        for id_, name in zip(ids, names, strict=True)
    ]
    story.think(text("I'll look at the worker and its tests first."), *calls, grows=5_000)
    for id_ in ids:
        story.add(answer(id_, "import socket\n\n\nclass Worker:\n    ...\n"), 0.4)


def run_tests(story: Story, id_: str, is_green: bool) -> None:
    story.think(call(id_, "Bash", command="python -m pytest -q", description="Run the tests"))
    output = "24 passed in 1.79s" if is_green else f"Exit code 1\n{FAILING_TEST}"
    story.add(answer(id_, output, not is_green), 3.1)


def edit(story: Story, id_: str) -> None:
    path = f"{story.cwd}/src/upload.py"
    story.think(
        text("A reset drops the job. It has to go through `retry`, as other errors do."),
        call(id_, "Edit", file_path=path, **EDIT),
    )
    details = {"filePath": path, "structuredPatch": [PATCH], "userModified": False, **EDIT}
    story.add(answer(id_, "The file has been updated.", tool_use_result=details), 0.2)


def delegate(story: Story) -> None:
    """Two subagents at the same time."""
    ids = [f"s{story.number}_{index}" for index in range(2)]
    tasks = ("Find the callers of upload()", "Check the retry policy")
    calls = [
        call(id_, "Task", description=task, prompt=task, subagent_type="Explore")
        for id_, task in zip(ids, tasks, strict=True)
    ]
    story.think(*calls)
    for id_ in ids:
        story.think(call(f"{id_}g", "Bash", command="grep -rn 'upload(' src"), parent=id_)
        story.add(answer(f"{id_}g", "src/app.py:12: worker.upload(job)", parent=id_), 0.8)
    for id_ in ids:
        story.add(user([outcome(id_, [text("Two callers, both handle None.")])]), 2.5)


def compact(story: Story) -> None:
    """Fill the window, then compact it."""
    for index in range(7):
        id_ = f"f{story.number}_{index}"
        story.think(call(id_, "Read", file_path=f"{story.cwd}/src/part_{index}.py"), grows=22_000)
        story.add(answer(id_, "def part():\n    ...\n"), 0.5)
    sizes = {"trigger": "auto", "pre_tokens": story.context, "post_tokens": 14_200}
    story.add(system("compact_boundary", compact_metadata=sizes), 9.0)
    story.context = 14_200


def success(story: Story) -> None:
    look_around(story)
    run_tests(story, f"t{story.number}", is_green=False)
    if story.number % 3 == 0 or story.number == SHOWN:
        delegate(story)
    if story.number % 4 == 0 or story.number == SHOWN:
        compact(story)
    edit(story, f"e{story.number}")
    run_tests(story, f"u{story.number}", is_green=True)
    words = (
        "The test is stable now: a reset during an upload is retried.\n\n- `upload.py`: one line"
    )
    story.think(text(words))
    story.end(words)


def denied(story: Story) -> None:
    look_around(story)
    id_ = f"d{story.number}"
    story.think(call(id_, "Bash", command="git push origin release"))
    message = "This command requires approval"
    story.add(answer(id_, message, True, tool_use_result=f"Error: {message}"))
    story.think(text("I could not push: the command needs approval."))
    given = {"command": "git push origin release"}
    denial = {"tool_name": "Bash", "tool_use_id": id_, "tool_input": given}
    story.end("I could not push: the command needs approval.", permission_denials=[denial])


def overloaded(story: Story) -> None:
    look_around(story)
    words = "API Error: 529 Overloaded. This is a server-side issue, usually temporary."
    times = {"duration_ms": int((story.at + 20) * 1000)}
    story.add(failed(words, num_turns=story.requests, api_error_status=529, **times), 20.0)


def out_of_turns(story: Story) -> None:
    look_around(story)
    run_tests(story, f"t{story.number}", is_green=False)
    edit(story, f"e{story.number}")
    error = "Reached maximum number of turns (4)"
    story.end("", subtype="error_max_turns", is_error=True, errors=[error])


def question(story: Story) -> None:
    look_around(story)
    words = "There are two importers. Which of them should I port?"
    story.think(text(words))
    story.end(words)


STORIES = (success,) * 14 + (denied, overloaded, out_of_turns, question)


def write_run(folder: Path, number: int, rng: random.Random, started_at: float) -> None:
    """One recording; some tasks need a second attempt."""
    project = rng.choice(PROJECTS)
    cwd = f"/home/ada/code/{project}"
    tell = success if number == 0 else rng.choice(STORIES)
    prompt = rng.choice(PROMPTS) if number else PROMPTS[0]
    attempts = (overloaded, success) if number % 9 == 0 else (tell,)
    task = f"{rng.getrandbits(48):012x}"
    for attempt, one in enumerate(attempts, 1):
        story = Story(rng, number * 10 + attempt, cwd, rng.choice(MODELS))
        one(story)
        header = Header(
            agent="claude",
            agent_version="2.1.325",
            run_id=f"{rng.getrandbits(64):016x}",
            cwd=cwd,
            started_at=started_at,
            task=task,
            attempt=attempt,
            prompt=prompt,
            tags={"team": rng.choice(("web", "core"))},
            origin=RunOrigin(host=rng.choice(HOSTS), user="ada", branch=rng.choice(BRANCHES)),
        )
        with Recorder(folder / f"{number}-{attempt}.steno", header) as recorder:
            for at, line in story.lines:
                recorder.write(Record(at, "out", stream(line)))
            code = 1 if one in (overloaded, out_of_turns) else 0
            recorder.write(Record(story.at + 0.3, "exit", number=code))
        started_at += story.at + 30


def write_runs(folder: Path) -> None:
    rng = random.Random(7)
    now = time.time()
    for number in range(DAYS * RUNS_PER_DAY):
        age = (number + 0.4) / RUNS_PER_DAY * DAY * (1 + 0.02 * rng.random())
        write_run(folder, number, rng, now - min(age, (DAYS - 0.5) * DAY) - 300)


def fill(place: Place) -> Path:
    """A ledger of a month, with budgets and limits."""
    folder = place.folder / "recordings"
    folder.mkdir()
    write_runs(folder)
    ledger = place.data / "ledger.db"
    done = place.steno("ledger", "import", folder)
    assert done.returncode == 0, done.stderr
    for period, dollars in (("day", "12"), ("month", "160")):
        place.steno("budget", "set", period, dollars)
    with closing(open_ledger(str(ledger))) as store:
        now = now_ms()
        rows = [
            ("claude", "", "five_hour", now, 0.63, now + 2 * HOUR_MS, None, "statusline"),
            ("claude", "", "seven_day", now, 0.30, now + 72 * HOUR_MS, None, "statusline"),
        ]
        store.upsert("limits", LIMIT_COLUMNS, rows, "")
    return ledger


@contextmanager
def active_runs(place: Place, count: int) -> Iterator[None]:
    """Active runs until the end of the block."""
    story = Story(random.Random(3), 7, "/home/ada/code/shop", MODELS[0])
    look_around(story)
    story.think(call("live", "Bash", command="python -m pytest -q tests/test_upload.py"))
    started = []
    for number in range(count):
        lines = [{**line, "session_id": f"{number}{story.session[1:]}"} for _, line in story.lines]
        place.plan({"out": stream(*lines).decode(), "sleep": 600})
        started.append(place.start("run", PROMPTS[number], stderr=subprocess.DEVNULL))
        time.sleep(2)
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.communicate(timeout=60)


@contextmanager
def server(place: Place) -> Iterator[str]:
    process = place.start("serve", "--port", "0", "--no-import", "--no-token")
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().split()[-1].rstrip("/")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


class Camera:
    """Takes pictures of addresses; each name is a file in the folder."""

    def __init__(self, chromium: Any, folder: Path) -> None:
        self.chromium = chromium
        self.folder = folder

    def take(
        self,
        name: str,
        url: str,
        size: tuple[int, int] = (1280, 860),
        scheme: str = "light",
        is_whole: bool = False,
    ) -> None:
        width, height = size
        context = self.chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        tab = context.new_page()
        tab.goto(url)
        tab.wait_for_timeout(1500)
        tab.screenshot(path=str(self.folder / f"{name}.png"), full_page=is_whole, scale="css")
        context.close()


def run_ids(ledger: Path, where: str) -> list[str]:
    with closing(open_ledger(str(ledger), read_only=True)) as store:
        rows = store.query(f"SELECT id FROM runs WHERE {where} ORDER BY started_at DESC")
    return [str(row[0]) for row in rows]


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0]) if arguments else HERE
    with tempfile.TemporaryDirectory(prefix="steno-") as scratch, launch() as chromium:
        place = Place(Path(scratch))
        ledger = fill(place)
        camera = Camera(chromium, folder)
        usage_file = Path(scratch) / "usage.html"
        place.steno("usage", "--html", usage_file, "--last", "30d")
        camera.take("usage-report", usage_file.as_uri(), (1100, 700))
        run = run_ids(ledger, f"context_peak > 150000 AND prompt = '{PROMPTS[0]}'")[0]
        place.steno("export", run, "--output", f"{scratch}/run.html")
        camera.take("export", Path(scratch, "run.html").as_uri(), (1000, 800))
        failed_run = run_ids(ledger, "verdict = 'max_turns'")[0]
        with active_runs(place, 2), server(place) as url:
            camera.take("page-overview", f"{url}/", is_whole=True)
            camera.take("page-phone", f"{url}/", (390, 844))
            camera.take("page-run", f"{url}/runs/{run}", scheme="dark")
            camera.take("page-runs", f"{url}/runs", scheme="dark")
            camera.take("page-sessions", f"{url}/sessions", SMALL)
            camera.take("page-search", f"{url}/search?q=reset", SMALL)
            camera.take("page-tools", f"{url}/tools", SMALL)
            camera.take("page-files", f"{url}/runs/{run}/files", SMALL)
            camera.take("page-compare", f"{url}/compare?id={run}&id={failed_run}", SMALL)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
