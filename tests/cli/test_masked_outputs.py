"""What is printed or written about runs contains no secret, in any form (L5).

A recording and a transcript have a sample of every format wherever an agent can write something:
prompt, answer, command, output, error, file, model, header. Recordings keep the agent's own output,
so the commands that print it as it is are not listed here: `logs`, `replay` and `show FILE`.
"""

import json
import re
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from steno.cli import main
from steno.codec.redact import MASK
from steno.ledger.store import open_ledger
from tests.support.scripted_place import Place
from tests.support.secrets import JOINED, KEY, RUN, SESSION, import_secrets, leaked
from tests.support.tmux import Terminal, require_tmux
from tests.web.conftest import serving

ALL_BROKEN = (
    *("--rule", 'verdict="success"', "--rule", 'forbid_tools=["*"]'),
    *("--rule", 'forbid_commands=["."]', "--rule", 'forbid_files=["**"]'),
    *("--rule", "max_repeated_calls=0", "--rule", "max_repeated_failures=0"),
)
GROUPINGS = ("day", "model", "session", "repository", "branch", "tag", "tool", "block")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place whose ledger has both."""
    place = Place(tmp_path_factory.mktemp("masked"))
    store = open_ledger(str(place.folder / "ledger.db"))
    import_secrets(store, place.folder)
    store.close()
    return place


def sources(folder: Path) -> list[str]:
    """A run and a session of the ledger, and their files."""
    return [RUN, SESSION, str(folder / "run.steno"), str(folder / f"{SESSION}.jsonl")]


def commands(folder: Path) -> Iterator[tuple[list[str], int]]:
    """Commands, and the exit codes they have."""
    for source in sources(folder):
        for form in ("html", "md", "json", "ndjson"):
            yield ["export", source, "--format", form], 0
    yield ["export", RUN, "--format", "html", "--full"], 0
    yield ["show", SESSION, "--transcript", "--full"], 0
    for source in sources(folder)[:2]:
        for view in ("--summary", "--json", "--text", "--tools", "--files"):
            yield ["show", source, view], 0
        yield ["context", source], 0
    for source in (RUN, *sources(folder)[2:]):
        outputs = (("--junit", "-"), ("--sarif", "-"), ("--markdown", "-"), ("--github",))
        for words in ((), ("--json",), *outputs):
            yield ["check", source, *ALL_BROKEN, *words], 1
        for words in outputs:
            yield ["check", source, *words], 1  # by its verdict
    yield ["diff", RUN, "--list"], 0
    yield ["compare", RUN, SESSION, "--json"], 0
    yield ["diff", "--all", "--list", "--json"], 0
    yield ["top", "--once"], 0
    yield ["ps", "--json"], 0
    yield ["ledger", "sql", "SELECT * FROM runs"], 0
    for words in (("--json",), ("--csv",), ()):
        yield ["runs", "--no-import", *words], 0
        yield ["sessions", "--no-import", *words], 0
        for by in GROUPINGS:
            yield ["usage", by, "--no-import", *words], 0
    yield ["usage", "--html", "-", "--no-import"], 0
    yield ["export", "--format", "csv", "--no-import"], 0
    yield ["export", "--format", "parquet", "--no-import"], 0


def test_l5_every_output_is_masked(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    summary = place.folder / "summary.md"
    monkeypatch.setenv("STENO_LEDGER", str(place.folder / "ledger.db"))
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.setenv("COLUMNS", "2000")  # no column is cut
    monkeypatch.chdir(place.folder)
    found = {}
    masked = set()
    for command, code in commands(place.folder):
        if "--github" in command:
            monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
        else:
            monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        assert main(command) == code, (command, capfdbinary.readouterr())
        printed = b"\n".join(capfdbinary.readouterr()).decode("utf-8", "replace")
        if secrets := leaked(printed):
            found[tuple(command)] = secrets
        if MASK in printed:
            masked.add(command[0])
    assert found == {}
    assert masked >= {"export", "show", "check", "runs", "sessions", "usage", "top"}
    text = summary.read_text()
    assert (leaked(text), MASK in unescape(text)) == ([], True)


def test_l5_findings_have_no_part_of_a_secret(place: Place) -> None:
    """Commands are joined to one line and cut: that must not hide a secret from the masks."""
    place.plan({"out": ""})
    for padding in range(60, 82):
        line = {"command": f"{'x' * padding} {KEY}\nENV DB_PASSWORD letmein15"}
        call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": line}
        message = {"id": "m1", "role": "assistant", "content": [call]}
        (place.folder / "one.jsonl").write_text(
            json.dumps({"type": "assistant", "session_id": "s", "uuid": "u", "message": message})
            + "\n"
        )
        done = place.steno("check", place.folder / "one.jsonl", *ALL_BROKEN, "--json")
        assert done.returncode == 1
        (finding,) = [
            one
            for one in json.loads(done.stdout)["runs"][0]["findings"]
            if one["rule"] == "forbid_commands"
        ]
        assert "ghp_" not in finding["message"]
        assert "letmein" not in finding["message"]


MAX_PAGES = 60
SUBJECT_PARTS = ("", "/steps", "/files", "/raw")
LINK = re.compile(r"""(?:href|src|action|data-[a-z-]+)=["'](/[^"'#]*)""")


def test_l5_every_page_is_masked(place: Place) -> None:
    """The pages of the run and the session, and others that can be reached from them."""
    with serving(place) as page:
        subjects = (f"/runs/{RUN}", f"/sessions/{SESSION}")
        waiting = [f"{name}{part}" for name in subjects for part in SUBJECT_PARTS]
        waiting += ["/?last=all", "/runs?last=all", "/sessions?last=all", "/tools?last=all"]
        waiting += [f"/compare?id={RUN}&id={SESSION}", "/search?q=redacted"]
        wanted = set(waiting)
        bodies: dict[str, str] = {}
        while waiting and len(bodies) < MAX_PAGES:
            target = waiting.pop(0)
            if target in bodies or target.startswith(("/static", "/live")):
                continue
            status, _, data = page.get(target)
            assert status == 200 or (target not in wanted and status < 500), target
            body = data.decode("utf-8", "replace")
            bodies[target] = unescape(body)
            waiting += [unescape(link) for link in LINK.findall(body)]
        assert {name: leaked(text) for name, text in bodies.items() if leaked(text)} == {}
        assert sum(MASK in text for text in bodies.values()) >= 10


def test_l5_every_screen_of_top_is_masked(place: Place, tmp_path: Path) -> None:
    require_tmux()
    environ = {**place.environ, "STENO_LEDGER": str(place.folder / "ledger.db")}
    command = [sys.executable, "-m", "steno", "top"]
    screens = []
    with Terminal(tmp_path, command, environ, columns=200, rows=100) as terminal:
        screens += terminal.wait("q quit")
        terminal.press("Enter")
        screens += terminal.wait("q back")
        for key, seen in (("2", "1 prompt"), ("3", "result"), ("4", "modified"), ("1", "evidence")):
            terminal.press(key)
            screens += terminal.wait(seen)
            terminal.press("G")
            screens += terminal.wait("q back")
    text = "\n".join(screens)
    # A line that is too long is cut or wrapped: not even a part of the key may be there.
    assert (leaked(text), "ghp_" in text, MASK in text) == ([], False, True)


def test_l5_the_status_line_has_nothing_of_names_and_paths(place: Place) -> None:
    names = ("cwd", "session_name", "transcript_path", "output_style", "session_id", "version")
    status = {
        **dict.fromkeys(names, JOINED),
        "workspace": {"project_dir": JOINED, "current_dir": JOINED},
        "model": {"id": JOINED, "display_name": "Opus"},
        "cost": {"total_cost_usd": 1},
    }
    done = place.steno("statusline", stdin=json.dumps(status).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Opus" in done.stdout
    assert leaked(done.stdout.decode()) == []
