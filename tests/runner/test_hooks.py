"""Commands for events: which events are meant, what a command is told, and that nothing of an agent's reaches a shell."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from steno.errors import StenoError
from steno.runner.hooks import (
    EVENT_KINDS,
    PLACEHOLDERS,
    EventFilter,
    check_placeholders,
    fill_placeholders,
    parse_event_filter,
)
from tests.runner.test_watch import Place, begun, left
from tests.script import (
    RECORDINGS,
    SESSION,
    answer,
    assistant,
    call,
    ended,
    failed,
    hello,
    init,
    out,
    result,
    stream,
    tape,
    worked,
)

EDITED = RECORDINGS / "claude/2.1.325/multi_tool_edit/stdout"
REFUSED = RECORDINGS / "claude/2.1.325/permission_denied/stdout"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- what is meant -------------------------------------------------------------------------------------------------


def test_patterns() -> None:
    """A name, and patterns apart by commas."""
    assert parse_event_filter("tool_call") == EventFilter("tool_call")
    assert parse_event_filter("tool_call:Bash, mcp__*") == EventFilter(
        "tool_call", ("Bash", "mcp__*")
    )
    assert EventFilter("file_change", ("*.py",)).matches(
        {"path": "/a/b.py", "relative": "b.py", "name": "b.py"}
    )
    assert EventFilter("file_change", ("src/*",)).matches(
        {"path": "/a/src/b.py", "relative": "src/b.py", "name": "b.py"}
    )
    assert not EventFilter("file_change", ("*.py",)).matches(
        {"path": "/a/b.pyc", "relative": "b.pyc", "name": "b.pyc"}
    )
    assert not EventFilter("tool_call", ("bash",)).matches({"tool": "Bash"})
    page = {"path": "/a/pages/[id].tsx", "relative": "pages/[id].tsx", "name": "[id].tsx"}
    assert EventFilter("file_change", ("pages/[id].tsx",)).matches(page)
    assert EventFilter("file_change", ("*/[*].tsx",)).matches(page)
    assert not EventFilter("file_change", ("pages/[id].tsx",)).matches({"relative": "pages/i.tsx"})
    assert not EventFilter("rate_limit", ("*",)).matches({})


def test_every_event_of_the_vocabulary_can_be_meant() -> None:
    assert {kind for kind in EVENT_KINDS if parse_event_filter(kind).kind != kind} == set()
    assert {
        "started",
        "tool_call",
        "file_change",
        "result",
        "rate_limit",
        "exited",
        "end",
    } <= EVENT_KINDS.keys()


@pytest.mark.parametrize("text", ["", "toolcall", "result:", "usage:x", "tool_call:,"])
def test_what_means_nothing(text: str) -> None:
    with pytest.raises(StenoError):
        parse_event_filter(text)


def test_what_is_put_in_stays_one_argument() -> None:
    """Blanks, quotes, newlines, dollar signs: each argument stays what it is."""
    told = {"path": "/a b/$(rm -rf x);'\"\n.py", "tool": "--version"}
    given = (
        "run",
        "{path}",
        "--file={path}:{tool}",
        "{relative}",
        "{{path}}",
        "{}",
        "{print $1}",
        '{"a":1}',
    )
    wanted = (
        "run",
        told["path"],
        f"--file={told['path']}:--version",
        "",
        "{path}",
        "{}",
        "{print $1}",
        '{"a":1}',
    )
    assert fill_placeholders(given, told) == wanted
    check_placeholders(given)
    with pytest.raises(StenoError, match=r"\{pth\} is not known"):
        check_placeholders(("run", "{pth}"))
    assert fill_placeholders(("{text}",), {"text": "a\0b"}) == ("ab",)


# -- the program ---------------------------------------------------------------------------------------------------


def test_a_command_for_each_changed_file(place: Place) -> None:
    """In the order of the changes."""
    words = (
        "on",
        "file_change:*.py",
        "--",
        "echo",
        "{change}",
        "{path}",
        "{relative}",
        "{name}",
        "{tool}",
        "{session_id}",
    )
    done = place.run(EDITED.read_bytes(), *words)
    session = "a7255377-a1f0-4c06-aa8b-64c98d60f162"
    assert done.stdout.decode().splitlines() == [
        f"modified /tmp/demo/project/src/app.py src/app.py app.py Edit {session}",
        f"created /tmp/demo/project/src/new.py src/new.py new.py Write {session}",
    ]
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_event_is_on_stdin(place: Place) -> None:
    """As JSON, whole."""
    data = stream(*worked())
    done = place.run(data, "on", "tool_call", "--", "cat")
    wanted = [
        line
        for line in place.run(data, "show", "--events").stdout.splitlines()
        if json.loads(line)["event"] == "tool_call"
    ]
    assert done.stdout.splitlines() == wanted


@pytest.mark.parametrize(
    ("what", "data", "said"),
    [
        ("result:success", stream(*worked()), "result success"),
        ("result:permission", REFUSED.read_bytes(), "result permission"),
        ("result:success", REFUSED.read_bytes(), ""),
        ("end", stream(init()), "end no_result"),
        ("end:api,network", stream(init(), failed("API Error: 500 broken")), "end api"),
        ("end:success", stream(init()), ""),
        ("permission_denied:Bash", REFUSED.read_bytes(), "permission_denied permission"),
    ],
)
def test_verdicts(place: Place, what: str, data: bytes, said: str) -> None:
    """A result is judged by what has been seen, the end by all of it; a refusal that is told three times is one."""
    done = place.run(data, "on", what, "--", "echo", "{event}", "{verdict}")
    told = done.stdout.decode().splitlines()
    assert [line.split()[0] for line in told] == ([said.split()[0]] if said else [])
    if said and not what.startswith("permission_denied"):
        assert told == [said]
    assert done.returncode == 0


def test_once(place: Place) -> None:
    """The first one that fits. The stream is still read to its end: whoever writes it must not fail."""
    process = place.start("on", "--once", "tool_call", "--", "echo", "{tool}")
    assert process.stdin is not None
    process.stdin.write(stream(*worked()) * 2000)
    assert left(process) == (_first_tool(), b"")
    assert process.returncode == 0


def _first_tool() -> bytes:
    calls = [line for line in worked() if line["type"] == "assistant"]
    names = [
        block["name"]
        for line in calls
        for block in line["message"]["content"]
        if block["type"] == "tool_use"
    ]
    return str(names[0]).encode() + b"\n"


def test_a_command_that_fails(place: Place) -> None:
    """It is told, the others run, and the exit code says so."""
    done = place.run(
        EDITED.read_bytes(),
        "on",
        "file_change",
        "--",
        "sh",
        "-c",
        'echo "$0"; echo no >&2; exit 3',
        "{name}",
    )
    assert done.stdout.decode().split() == ["app.py", "new.py", "nb.ipynb"]
    assert (done.returncode, done.stderr.count(b"no\n"), done.stderr.count(b"exit code 3")) == (
        1,
        3,
        3,
    )
    done = place.run(EDITED.read_bytes(), "on", "result", "--", "no-such-program")
    assert (done.returncode, b"no-such-program" in done.stderr) == (1, True)


def test_a_command_that_fails_is_told_in_a_line(place: Place) -> None:
    """What is put in can be a whole answer."""
    data = stream(init(), assistant({"type": "text", "text": "x" * 100_000}), result())
    done = place.run(data, "on", "text", "--", "sh", "-c", "exit 3", "{text}")
    assert (done.returncode, b"exit code 3" in done.stderr, len(done.stderr) < 400) == (
        1,
        True,
        True,
    )


def test_a_file_as_stdin(place: Place) -> None:
    with EDITED.open("rb") as file:
        process = place.start("on", "result", "--", "echo", "{verdict}", stdin=file)
        assert process.communicate(timeout=60)[0] == b"success\n"


def test_names_that_look_like_options(place: Place) -> None:
    """A path is never taken for one."""
    given = {"type": "create", "filePath": "-rf", "content": "", "structuredPatch": []}
    lines = [
        init(cwd=""),
        assistant(call("t1", "Write", file_path="-rf", content="")),
        answer("t1", tool_use_result=given),
        result(),
    ]
    done = place.run(
        stream(*lines),
        "on",
        "file_change",
        "--",
        "printf",
        "%s %s %s",
        "{path}",
        "{relative}",
        "{name}",
    )
    assert done.stdout.split() == [b"./-rf", b"./-rf", b"./-rf"]


def test_a_run_that_is_over(place: Place, tmp_path: Path) -> None:
    """By its tape: also what a pipe does not tell."""
    path = tape(tmp_path / "run.steno", out(stream(*hello())), ended(0))
    done = place.run(b"", "on", "--run", str(path), "exited", "--", "echo", "{event}", "{code}")
    assert (done.returncode, done.stdout) == (0, b"exited 0\n")
    done = place.run(
        b"", "on", "--run", str(path), "end", "--", "echo", "{verdict}", "{session_id}"
    )
    assert done.stdout.decode().split()[1] == SESSION


def test_a_run_that_goes_on(place: Place) -> None:
    """Followed by its id, from another process, while it goes on and to its end."""
    watch = place.start("watch", "-q", "--record")
    begun(watch, stream(*worked()[:-1]))
    (mark,) = (place.data / "live").glob("*.json")
    process = place.start(
        "on",
        "--run",
        mark.stem,
        "result",
        "--",
        "echo",
        "{run_id}",
        "{verdict}",
        stdin=subprocess.DEVNULL,
    )
    calls = place.start(
        "on",
        "--run",
        mark.stem,
        "--once",
        "started",
        "--",
        "echo",
        "{model}",
        stdin=subprocess.DEVNULL,
    )
    assert calls.communicate(timeout=60) == (
        b"claude-opus-5-5\n",
        b"",
    )  # it ends with the first, not with the run
    assert watch.poll() is None
    begun(watch, stream(*worked()[-1:]))
    assert left(watch) == (b"", b"")
    assert process.communicate(timeout=60) == (f"{mark.stem} success\n".encode(), b"")


@pytest.mark.parametrize(
    "words",
    [
        ("file_change",),
        ("file_change", "--"),
        ("filechange", "--", "echo"),
        ("file_change", "--", "echo", "{pth}"),
        ("usage:x", "--", "echo"),
        ("--run", "nothing", "end", "--", "echo"),
        ("--agent", "nobody", "end", "--", "echo"),
    ],
)
def test_wrong_use(place: Place, words: tuple[str, ...]) -> None:
    """One line, exit code 2, nothing started."""
    done = place.run(stream(*hello()), "on", *words)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_the_help_tells_every_event_and_every_word(place: Place) -> None:
    told = place.run(b"", "on", "--help").stdout.decode()
    assert [kind for kind in EVENT_KINDS if f"  {kind}" not in told] == []
    assert [word for word in PLACEHOLDERS if f"{{{word}}}" not in told] == []


def test_commands_end_with_it(place: Place) -> None:
    """Ctrl-C: what runs is ended too."""
    process = place.start("on", "started", "--", "sh", "-c", "echo $$; exec sleep 60")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(stream(*hello()))
    process.stdin.flush()
    pid = int(process.stdout.readline())
    process.send_signal(2)
    assert process.wait(30) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    left(process)
