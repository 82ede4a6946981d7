"""Notifications through apprise, received by a real HTTP server on loopback."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steno.codec.redact import redact_service_url
from steno.event import Alert
from steno.export.notification import budget_message, run_message
from steno.installation import extra_command
from steno.report import ChangedFile, Cost, Report, Tokens
from tests.support.claude_lines import assistant, init, result, share, stream, text, usage
from tests.support.inbox import Inbox, serving
from tests.support.scripted_place import NEWEST, Place

PASSWORD = "sup3rs3cret-topic"


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    received = Inbox()
    with serving(received):
        yield received


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def url(inbox: Inbox) -> str:
    return f"json://user:{PASSWORD}@127.0.0.1:{inbox.port}/{PASSWORD}"


def messages(inbox: Inbox) -> list[dict[str, Any]]:
    return [json.loads(body) for body in inbox.bodies]


def test_a_failed_run(inbox: Inbox, place: Place) -> None:
    place.plan({"recording": str(NEWEST / "permission_denied")})
    done = place.steno("run", "--notify", url(inbox), "--name", "nightly", "hi")
    assert done.returncode == 3
    (message,) = messages(inbox)
    assert (message["title"], message["type"]) == ("steno: permission (nightly)", "failure")
    reason, facts, hint, *_ = message["message"].splitlines()
    assert reason == "2 calls denied (Write, Bash)"
    assert facts.startswith("claude, $0.0221, 42.2k tokens, ")
    assert hint.startswith("next: ")
    assert inbox.paths == [f"/{PASSWORD}"]
    stored = [path.read_bytes() for path in place.home.rglob("*") if path.is_file()]
    printed = [done.stdout, done.stderr, *stored]
    assert not any(PASSWORD.encode() in data for data in printed)


@pytest.mark.parametrize(
    ("notify_on", "verdicts"),
    [
        ("failure", []),
        ("always", ["success"]),
        ("budget", []),
        ("failure,always", ["success"]),
        ("none", []),
    ],
)
def test_when_a_successful_run_notifies(
    inbox: Inbox, place: Place, notify_on: str, verdicts: list[str]
) -> None:
    """The URLs of the environment and the file; the agent does not get the variable."""
    done = place.steno("run", "hi", STENO_NOTIFY=url(inbox), STENO_NOTIFY_ON=notify_on)
    assert done.returncode == 0
    titles = [message["title"].split()[1] for message in messages(inbox)]
    assert titles == verdicts
    assert PASSWORD not in json.dumps(place.calls)


def test_a_budget(inbox: Inbox, place: Place) -> None:
    """While the run is active: the agent waits until the first message is there."""
    used = usage(3, 1001, 20000, 101)
    first = stream(init(), assistant(text("working"), used=used)).decode()
    place.plan({"out": first, "sleep": 60})
    settings = f'notify = ["{url(inbox)}"]\nnotify_on = ["budget"]\n'
    (place.work / "steno.toml").write_text(settings)
    with place.start("run", "--json", "--max-tokens", "25k", "--timeout", "50", "hi") as process:
        deadline = time.monotonic() + 40
        while not inbox.bodies and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
    (message,) = messages(inbox)
    assert (message["title"], message["type"]) == ("steno: budget", "failure")
    assert message["message"] == "token budget 84% used (21.1k of 25.0k tokens; alert at 80%)"


def test_an_exhausted_budget(inbox: Inbox, place: Place) -> None:
    lines = (init(), assistant(text("working"), used=usage(3, 1001, 20000, 101)))
    place.plan({"out": stream(*lines).decode(), "sleep": 60})
    words = ("--notify-on", "budget", "--attempts", "1", "--max-tokens", "20k")
    done = place.steno("run", "--notify", url(inbox), *words, "hi")
    assert done.returncode == 3
    assert messages(inbox)[-1]["title"].startswith("steno: max_budget (")


def test_a_watched_stream(inbox: Inbox, place: Place) -> None:
    source = (NEWEST / "permission_denied" / "stdout").read_bytes()
    done = place.steno("watch", "--quiet", "--notify", url(inbox), stdin=source)
    assert (done.returncode, done.stdout, done.stderr) == (0, source, b"")
    (message,) = messages(inbox)
    assert message["title"] == "steno: permission"
    good = stream(init(), assistant(text("Done.")), result(modelUsage={"m": share()}))
    place.steno("watch", "--quiet", "--notify", url(inbox), stdin=good)
    assert len(inbox.bodies) == 1


def test_an_agent_that_is_not_installed(inbox: Inbox, place: Place) -> None:
    done = place.steno("run", "--program", "no-such-agent", "--notify", url(inbox), "hi")
    assert done.returncode == 127
    (message,) = messages(inbox)
    assert message["title"] == "steno: not_found"


# -- failures --------------------------------------------------------------------------------------


def test_a_failing_service_is_a_warning(inbox: Inbox, place: Place) -> None:
    """The exit code stays; other services get the message; the URL is not printed."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"json://127.0.0.1:{unused.getsockname()[1]}/{PASSWORD}"
        words = ("--notify-on", "always", "--notify", dead, "--notify", url(inbox))
        done = place.steno("run", "--quiet", *words, "hi")
    reason = "failed: not accepted or not reachable"
    text_ = f"steno: notification to json://[redacted] {reason}\n"
    assert (done.returncode, done.stderr.decode()) == (0, text_)
    assert len(inbox.bodies) == 1


def test_a_slow_service_does_not_hold_the_run(inbox: Inbox, place: Place) -> None:
    inbox.delay = 60.0
    started = time.monotonic()
    done = place.steno("run", "--quiet", "--notify-on", "always", "--notify", url(inbox), "hi")
    assert (done.returncode, b"notification" in done.stderr) == (0, True)
    assert time.monotonic() - started < 25


@pytest.mark.parametrize("command", ["run", "watch"])
def test_wrong_use(place: Place, command: str) -> None:
    """Messages have no secrets."""
    for wrong, expected in (
        (f"nosuch://{PASSWORD}", "--notify nosuch://[redacted]: not a valid URL of a notific"),
        (PASSWORD, "--notify: expected the URL of a notification service, such as ntfy://TOPIC"),
    ):
        words = [command, "--notify", wrong, *(["hi"] if command == "run" else [])]
        done = place.steno(*words, stdin=b"")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert done.stderr.decode().startswith(f"steno: {expected}")
        assert PASSWORD.encode() not in done.stderr
    assert place.calls == []


def test_a_service_of_the_settings_does_not_stop_a_stream(place: Place) -> None:
    (place.work / "steno.toml").write_text(f'notify = ["nosuch://{PASSWORD}"]\n')
    source = (NEWEST / "simple_success" / "stdout").read_bytes()
    done = place.steno("watch", "--quiet", stdin=source)
    assert (done.returncode, done.stdout) == (0, source)
    assert b"--notify nosuch://[redacted]: not a valid URL" in done.stderr


def test_the_settings_are_shown_without_secrets(place: Place) -> None:
    (place.work / "steno.toml").write_text(f'notify = ["slack://{PASSWORD}/x", "ntfy://a"]\n')
    shown = place.steno("config").stdout.decode()
    assert "slack://[redacted], ntfy://[redacted]" in shown
    values = json.loads(place.steno("config", "--json").stdout)["settings"]["notify"]["value"]
    assert values == ["slack://[redacted]", "ntfy://[redacted]"]


def test_a_missing_package_is_named_before_the_run(place: Place) -> None:
    """An environment in which apprise cannot be found."""
    hook = place.folder / "hidden" / "sitecustomize.py"
    hook.parent.mkdir()
    hook.write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'apprise':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    root = Path(__file__).parents[2] / "src"
    more: dict[str, Any] = {"PYTHONPATH": f"{hook.parent}{os.pathsep}{root}"}
    done = place.steno("run", "--notify", "ntfy://topic", "hi", **more)
    text_ = f"steno: --notify needs apprise; install: {extra_command('notify')}\n"
    assert (done.returncode, done.stderr.decode(), place.calls) == (2, text_, [])


# -- texts -----------------------------------------------------------------------------------------


def test_the_text_of_a_message() -> None:
    report = Report(
        agent="claude",
        run_id="0192",
        verdict="timeout",
        error="timed out\x1b[31m, GITHUB_TOKEN='hunter2abc'",
        hint="steno run --resume x",
        cwd="/srv",
        duration_ms=61_000,
        tokens=Tokens(total=1234),
        cost=Cost(0.5, "reported"),
        files=[ChangedFile("a", "/a", "modified", True)],
    )
    assert run_message(report) == (
        "steno: timeout (0192)",
        "timed out, GITHUB_TOKEN='[redacted]'\n"
        "claude, $0.5000, 1.23k tokens, 1 min 1 s, 1 file changed\n"
        "next: steno run --resume x\nrun: 0192\nfolder: /srv",
        True,
    )
    alert = Alert(0, None, None, None, "cost", 0.8, 4.0, 5.0)
    assert budget_message(alert, "a").title == "steno: budget (a)"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("slack://a/b/c", "slack://[redacted]"),
        ("mailto://user:pass@host", "mailto://[redacted]"),
        ("hunter2", "[redacted]"),
        ("a b://c", "[redacted]"),
    ],
)
def test_urls_are_shown_by_their_kind(url: str, shown: str) -> None:
    assert redact_service_url(url) == shown
