"""`steno top` in a real terminal: driven by its keys at 80 and 120 columns, screens compared."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from steno.installation import extra_command
from steno.ledger.protocol import now_ms
from steno.ledger.rows import LIMIT_COLUMNS
from steno.ledger.store import open_ledger
from tests.support.claude_lines import assistant, call, init, stream, text
from tests.support.scripted_place import Place
from tests.support.tmux import Terminal, require_tmux
from tests.views.test_rendering import PAYLOAD, is_safe

ROOT = Path(__file__).parents[2]
RECORDINGS = {
    "Fix the [red]price[/red]": ROOT / "src/steno/demo/finished",
    "Remove the build": ROOT / "tests/recordings/claude/2.1.325/permission_denied",
}
HOUR = 3_600_000


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Two finished runs, a limit and a budget. The path of a socket must be short."""
    with TemporaryDirectory(prefix="steno-") as folder:
        place = Place(Path(folder))
        for prompt, recording in RECORDINGS.items():
            words = ("--agent", "replay", "--recording", recording, "--speed", "0", prompt)
            assert place.steno("run", "--quiet", *words).returncode in (0, 3)
        place.steno("budget", "set", "day", "5")
        with closing(open_ledger(str(place.data / "ledger.db"))) as store:
            now = now_ms()
            # Half an hour more than shown: the test may take some minutes.
            reset = now + 3 * HOUR + HOUR // 2
            row = ("claude", "", "five_hour", now, 0.37, reset, None, "statusline")
            store.upsert("limits", LIMIT_COLUMNS, [row], "")
        yield place


def open_top(place: Place, folder: Path, columns: int) -> Terminal:
    require_tmux()
    command = [sys.executable, "-m", "steno", "top"]
    return Terminal(folder, command, place.environ, columns)


def masked(lines: list[str]) -> list[str]:
    """Without what differs from run to run: ids, times; without empty lines."""
    masks = {
        r"\b[0-9a-f]{8}(?=  )": "IDENTITY",
        r"\d\d:\d\d:\d\d": "HH:MM:SS",
        r"3 h \d+ min": "3 h MM min",
        r" [\d.]+ m?s  ": " TIME  ",
        r"\d\d-\d\d \d\d:\d\d": "MM-DD HH:MM",
        r"(?<=\S) {2,}": "  ",  # the width of a column is that of its longest time
    }
    found = []
    for line in lines:
        for pattern, mask in masks.items():
            line = re.sub(pattern, mask, line)
        found.append(line.rstrip())
    return [line for line in found if line]


LIST_80 = [
    " steno top · 0 active · 2 runs today · 1 failed · $0.14 today · HH:MM:SS",
    " claude 5 hours ████░░░░░░ 37% resets in 3 h MM min",
    " budget day █░░░░░░░░░ 3% of $5.00",
    " id  state  time  cost  context  activity",
    " IDENTITY  permission  TIME  $0.0221  █░░ 2%  2 calls denied (Write, Bash)",
    " IDENTITY  success  TIME  $0.1183  █░░ 2%  Fix the [red]price[/red]",
    " / filter  s stop  r resume  ? help  q quit",
]
LIST_120 = [
    LIST_80[0],
    " claude 5 hours ████░░░░░░ 37% resets in 3 h MM min · budget day █░░░░░░░░░ 3% of $5.00",
    " id  state  when  time  cost  context  agent  project  activity",
    " IDENTITY  permission  MM-DD HH:MM  TIME  $0.0221  █░░ 2%  claude  /tmp/demo/project"
    "  2 calls denied (Write, Bash)",
    " IDENTITY  success  MM-DD HH:MM  TIME  $0.1183  █░░ 2%  claude  /tmp/demo/project"
    "  Fix the [red]price[/red]",
    LIST_80[-1],
]


@pytest.mark.parametrize(("columns", "wanted"), [(80, LIST_80), (120, LIST_120)])
def test_the_list(place: Place, tmp_path: Path, columns: int, wanted: list[str]) -> None:
    with open_top(place, tmp_path, columns) as terminal:
        lines = terminal.wait(lambda screen: "Fix the [red]price" in screen and "q quit" in screen)
        assert masked(lines) == wanted
        terminal.press("/")
        terminal.press("build")
        lines = masked(terminal.wait(lambda screen: "price" not in screen))
        found = [line.split()[-3:] for line in lines if "IDENTITY" in line]
        assert found == [["denied", "(Write,", "Bash)"]]  # its prompt has the word
        terminal.press("Escape")
        terminal.wait("price")
        terminal.press("?")
        terminal.wait("Keys of a run")
        terminal.press("x")
        terminal.wait(lambda screen: "Keys of a run" not in screen)
        terminal.press("q")
        terminal.wait("exit code 0")


def test_one_run_page_by_page(place: Place, tmp_path: Path) -> None:
    with open_top(place, tmp_path, 80) as terminal:
        terminal.wait("[red]price")
        terminal.press("j", "Enter")
        terminal.wait("agent reports success")
        lines = terminal.wait("q back")
        assert lines[-1].strip() == "1 summary  2 conversation  3 tools  4 files  5 context  q back"
        terminal.press("2")
        assert any("1 prompt" in line for line in terminal.wait("Fix the"))
        terminal.press("3")
        tools = [line.split()[:2] for line in terminal.wait("result")[1:7]]
        assert tools == [
            ["tool", "result"],
            ["Read", "ok"],
            ["Bash", "failed"],
            ["Edit", "ok"],
            ["Write", "ok"],
            ["Bash", "ok"],
        ]
        terminal.press("4")
        files = "\n".join(terminal.wait("modified"))
        assert re.search(r"modified +prices.py", files)
        assert re.search(r"created +test_more.py", files)
        terminal.press("G")
        terminal.wait("+")
        terminal.press("5")
        terminal.wait("98% HP")
        terminal.press("q")
        terminal.wait("/ filter")


def test_stop_and_resume_ask_first(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="steno-") as folder:
        place = Place(Path(folder))
        begin = init(cwd=str(place.work))
        lines = (begin, assistant(call("t1", "Bash", command="make test")))
        place.plan({"out": stream(*lines).decode(), "sleep": 60})
        running = place.start("run", "Fix the build")
        try:
            with open_top(place, tmp_path, 120) as terminal:
                terminal.wait("Bash make test")
                terminal.press("Enter")
                terminal.wait("q back")
                terminal.press("2")
                terminal.wait("2 Bash make test")
                terminal.press("q")
                terminal.wait("q quit")
                terminal.press("r")
                terminal.wait("steno run --agent claude --resume")
                terminal.press("x", "s")
                terminal.wait("y: stop, any other key: cancel")
                terminal.press("n")
                terminal.wait(lambda screen: "any other key" not in screen)
                assert running.poll() is None
                terminal.press("s")
                terminal.wait("y: stop")
                terminal.press("y")
                terminal.wait("Stopping.")
                terminal.press("x")
                assert running.wait(30) == 130
                terminal.wait("interrupted")
                place.plan({"out": stream(begin, assistant(text("Once more."))).decode()})
                terminal.press("r")
                terminal.wait('in the background with the prompt "continue"?')
                terminal.press("y")
                terminal.wait("Resuming: the new run")
                terminal.press("x")
                terminal.wait("no_result")
                assert place.calls[-1]["prompt"] == "continue"
        finally:
            running.kill()
            running.communicate()


def test_without_a_terminal_a_plain_table_with_hostile_text(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="steno-") as folder:
        place = Place(Path(folder))
        assert b"No runs yet" in place.steno("top").stdout
        place.plan({"out": stream(init(), assistant(text(PAYLOAD))).decode()})
        place.steno("run", "--quiet", f"[bold]{PAYLOAD}".replace("\0", ""))
        for words in ((), ("--once",)):
            done = place.steno("top", *words, COLUMNS="80")
            assert (done.returncode, done.stderr) == (0, b"")
            lines = done.stdout.decode().splitlines()
            assert all(is_safe(line) for line in lines)
            assert lines[0].startswith("steno top · 0 active · ")
            assert "[bold]" in lines[-1] or "no_result" in lines[-1]
        with open_top(place, tmp_path, 80) as terminal:
            terminal.wait("no_result")
            terminal.press("Enter")
            terminal.wait("q back")
            terminal.press("2")
            terminal.wait("1 prompt")
            terminal.press("q")
            terminal.wait("q quit")
            terminal.press("q")
            terminal.wait("exit code 0")


def test_without_textual_the_error_names_the_extra(place: Place) -> None:
    code = (
        "import sys; sys.modules['textual'] = None\n"
        "from steno.cli import top\n"
        "top.is_terminal = lambda stream: True\n"
        "from steno.cli import main; sys.exit(main(['top']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=place.environ, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert extra_command("tui") in done.stderr.decode()
