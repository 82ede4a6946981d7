"""Hooks: event filters, placeholders, and commands that run without a shell."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from steno.errors import StenoError
from steno.process.process_tree import start_time_of
from steno.runner.hooks import (
    HOOK_EVENTS,
    PLACEHOLDERS,
    EventFilter,
    check_placeholders,
    fill_placeholders,
    parse_event_filter,
)
from tests.runner.test_watch import Place, begun, left
from tests.support.claude_lines import (
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
from tests.support.syncs import until

Done = subprocess.CompletedProcess[bytes]
EDITED = RECORDINGS / "claude/2.1.325/multi_tool_edit/stdout"
REFUSED = RECORDINGS / "claude/2.1.325/permission_denied/stdout"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- filters and placeholders --------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("patterns", "is_match"),
    [((), False), (("*.py",), False), (("/etc/*",), True), (("*.py", "/etc/*"), True)],
)
def test_a_file_outside_the_folder_needs_an_absolute_path(
    patterns: tuple[str, ...], is_match: bool
) -> None:
    values = {"path": "/etc/a.py", "name": "a.py"}
    assert EventFilter("file_change", patterns).matches(values) is is_match


def test_every_event_of_the_vocabulary_can_be_meant() -> None:
    assert {kind for kind in HOOK_EVENTS if parse_event_filter(kind).kind != kind} == set()
    assert {
        "started",
        "tool_call",
        "file_change",
        "result",
        "rate_limit",
        "exited",
        "end",
    } <= set(HOOK_EVENTS)


@pytest.mark.parametrize("text", ["", "toolcall", "result:", "usage:x", "tool_call:,"])
def test_what_means_nothing(text: str) -> None:
    with pytest.raises(StenoError):
        parse_event_filter(text)


def test_what_is_put_in_stays_one_argument() -> None:
    """Blanks, quotes, newlines, dollar signs: each argument stays what it is."""
    values = {"path": "/a b/$(rm -rf x);'\"\n.py", "tool": "--version"}
    argv = (
        "run",
        "{path}",
        "--file={path}:{tool}",
        "{relative}",
        "{{path}}",
        "{}",
        "{print $1}",
        '{"a":1}',
    )
    filled = (
        "run",
        values["path"],
        f"--file={values['path']}:--version",
        "",
        "{path}",
        "{}",
        "{print $1}",
        '{"a":1}',
    )
    assert fill_placeholders(argv, values) == filled
    check_placeholders(argv)
    with pytest.raises(StenoError, match=r"unknown placeholder \{pth\}"):
        check_placeholders(("run", "{pth}"))
    assert fill_placeholders(("{text}",), {"text": "a\0b"}) == ("ab",)


# -- the program -------------------------------------------------------------------------------


def watch(place: Place, data: bytes, event: str, command: str, *options: str) -> Done:
    """`steno watch` with one hook, whose output is on stderr; the stream passes unchanged."""
    done = place.run(data, "watch", "-q", "--on", event, command, *options)
    assert done.stdout == data
    return done


def test_a_command_for_each_changed_file(place: Place) -> None:
    """In the order of the changes."""
    command = "echo {change} {path} {relative} {name} {tool} {session_id}"
    done = watch(place, EDITED.read_bytes(), "file_change:*.py", command)
    session = "a7255377-a1f0-4c06-aa8b-64c98d60f162"
    assert done.stderr.decode().splitlines() == [
        f"modified /tmp/demo/project/src/app.py src/app.py app.py Edit {session}",
        f"created /tmp/demo/project/src/new.py src/new.py new.py Write {session}",
    ]
    assert done.returncode == 0


def test_the_event_is_on_stdin(place: Place) -> None:
    """As JSON, whole."""
    data = stream(*worked())
    done = watch(place, data, "tool_call", "cat")
    events = [
        line
        for line in place.run(data, "show", "--events").stdout.splitlines()
        if json.loads(line)["event"] == "tool_call"
    ]
    assert done.stderr.splitlines() == events


@pytest.mark.parametrize(
    ("event", "data", "output"),
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
def test_verdicts(place: Place, event: str, data: bytes, output: str) -> None:
    """`result` uses the verdict so far, `end` the final one; a repeated denial is one event."""
    done = watch(place, data, event, "echo {event} {verdict}")
    lines = done.stderr.decode().splitlines()
    assert [line.split()[0] for line in lines] == ([output.split()[0]] if output else [])
    if output and not event.startswith("permission_denied"):
        assert lines == [output]
    assert done.returncode == 0


def test_once(place: Place) -> None:
    """Only the first matching event; the stream is still passed to its end."""
    data = stream(*worked()) * 200
    done = place.run(data, "watch", "-q", "--once", "tool_call", "echo {tool}")
    assert (done.stdout, done.stderr, done.returncode) == (data, _first_tool(), 0)


def _first_tool() -> bytes:
    calls = [line for line in worked() if line["type"] == "assistant"]
    names = [
        block["name"]
        for line in calls
        for block in line["message"]["content"]
        if block["type"] == "tool_use"
    ]
    return str(names[0]).encode() + b"\n"


def test_several_hooks(place: Place) -> None:
    """Each with its own events."""
    done = watch(
        place, stream(*worked()), "started", "echo {model}", "--on", "end", "echo {verdict}"
    )
    assert done.stderr == b"claude-opus-5-5\nsuccess\n"


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 1)])
def test_a_command_that_fails(place: Place, options: tuple[str, ...], code: int) -> None:
    """It is reported, the others run, and with --strict the exit code is 1."""
    command = """sh -c 'echo "$0"; echo no >&2; exit 3' {name}"""
    done = watch(place, EDITED.read_bytes(), "file_change", command, *options)
    lines = done.stderr.decode().splitlines()
    names = [line for line in lines if line in ("app.py", "new.py", "nb.ipynb")]
    assert names == ["app.py", "new.py", "nb.ipynb"]
    assert (done.returncode, lines.count("no")) == (code, 3)
    assert done.stderr.count(b"exit code 3") == 3
    done = watch(place, EDITED.read_bytes(), "result", "no-such-program", *options)
    message = "command failed: no-such-program: No such file or directory"
    assert (done.returncode, message in done.stderr.decode()) == (code, True)


def test_a_command_that_fails_is_shortened(place: Place) -> None:
    """A placeholder can be a whole answer."""
    data = stream(init(), assistant({"type": "text", "text": "x" * 100_000}), result())
    done = watch(place, data, "text", "sh -c 'exit 3' {text}")
    assert (b"exit code 3" in done.stderr, len(done.stderr) < 400) == (True, True)


def test_names_that_look_like_options(place: Place) -> None:
    """A path is never taken for one."""
    change = {"type": "create", "filePath": "-rf", "content": "", "structuredPatch": []}
    lines = [
        init(cwd=""),
        assistant(call("t1", "Write", file_path="-rf", content="")),
        answer("t1", tool_use_result=change),
        result(),
    ]
    done = watch(place, stream(*lines), "file_change", "printf '%s %s %s' {path} {relative} {name}")
    assert done.stderr.split() == [str(place.folder / "-rf").encode(), b"./-rf", b"./-rf"]


def written(path: str, number: int) -> list[Any]:
    """The lines of a call that creates a file."""
    change = {"type": "create", "filePath": path, "content": "", "structuredPatch": []}
    made = call(f"t{number}", "Write", file_path=path, content="")
    return [assistant(made), answer(f"t{number}", tool_use_result=change)]


def test_commands_get_files_inside_the_folder_unless_asked(place: Place) -> None:
    """The current folder, if the stream names none; a relative path is never an absolute one."""
    paths = (str(place.folder / "a.py"), "b.py", "/etc/c.py", "../d.py")
    lines = [line for number, path in enumerate(paths) for line in written(path, number)]
    data = stream(init(cwd=""), *lines, result())
    command = "echo {name} <{relative}>"
    assert watch(place, data, "file_change", command).stderr.split() == [
        *(b"a.py", b"<a.py>", b"b.py", b"<b.py>")
    ]
    assert watch(place, data, "file_change:/etc/*", command).stderr.split() == [b"c.py", b"<>"]


def test_a_recording(place: Place, tmp_path: Path) -> None:
    """`steno logs -f` of a finished run: also events that a stream does not have."""
    path = tape(tmp_path / "run.steno", out(stream(*hello())), ended(0))
    hooks = ("--on", "exited", "echo {event} {code}", "--on", "end", "echo {verdict} {session_id}")
    done = place.run(b"", "logs", "-f", "--raw", str(path), *hooks)
    assert (done.returncode, done.stdout) == (0, stream(*hello()))
    assert done.stderr.decode().splitlines() == ["exited 0", f"success {SESSION}"]
    done = place.run(b"", "logs", "-f", str(path), "--on", "end", "false")
    assert done.returncode == 1


def test_an_active_run(place: Place) -> None:
    """Followed by its ID from another process to its end."""
    stream_ = place.start("watch", "-q", "--record")
    begun(stream_, stream(*worked()[:-1]))
    (mark,) = (place.data / "live").glob("*.json")
    log = place.run(b"", "logs", "--raw", mark.stem)  # without -f: the log so far
    assert (log.stdout, log.stderr, log.returncode) == (stream(*worked()[:-1]), b"", 0)
    hook = ("--on", "result", "echo {run_id} {verdict}")
    process = place.start("logs", "-f", "--raw", mark.stem, *hook, stdin=subprocess.DEVNULL)
    begun(stream_, stream(*worked()[-1:]))
    assert left(stream_) == (b"", b"")
    output, errors = process.communicate(timeout=60)
    assert output == stream(*worked())
    assert errors == f"{mark.stem} success\n".encode()


def test_steno_run(place: Place, tmp_path: Path) -> None:
    """Every attempt of a task."""
    path = tape(tmp_path / "run.steno", out(stream(*hello())), ended(0))
    replay = ("run", "--agent", "replay", "--recording", str(path), "--speed", "0", "--quiet")
    done = place.run(b"", *replay, "--on", "end", "echo {event} {verdict}", "hello")
    assert (done.returncode, done.stdout) == (0, b"Hello there.\n")
    assert done.stderr == b"end success\n"


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (("filechange", "echo"), "--on: unknown event 'filechange'; did you mean file_change?"),
        (("file_change", "echo {pth}"), "--on: unknown placeholder {pth}; known: event,"),
        (("usage:x", "echo"), "--on: usage:x: usage events take no filter"),
        (("result:", "echo"), "--on: result:: no pattern after the colon"),
        (("end", ""), "--on end: empty command"),
        (("end", "echo 'x"), """--on end: No closing quotation in "echo 'x\""""),
        (("end",), "--on: expected 2 arguments"),
    ],
)
@pytest.mark.parametrize("command", ["watch", "run", "logs"])
def test_wrong_use(place: Place, command: str, hook: tuple[str, ...], message: str) -> None:
    """One line, exit code 2, nothing started."""
    follow = ("-f",) if command == "logs" else ()
    done = place.run(stream(*hello()), command, *follow, "--on", *hook)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert message in done.stderr.decode()


def test_logs_needs_follow(place: Place) -> None:
    done = place.run(b"", "logs", "x", "--on", "end", "echo")
    message = b"steno: --on and --once need --follow; see: steno logs --help\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_the_help_names_every_event_and_placeholder(place: Place) -> None:
    text = place.run(b"", "watch", "--help").stdout.decode()
    assert [kind for kind in HOOK_EVENTS if f"  {kind}" not in text] == []
    assert [name for name in PLACEHOLDERS if f"{{{name}}}" not in text] == []


@pytest.mark.parametrize("closed", [False, True])
def test_commands_end_with_steno(place: Place, closed: bool) -> None:
    """Ctrl-C stops the running command, during the stream and after it."""
    process = place.start("watch", "-q", "--on", "started", "sh -c 'echo $$; exec sleep 60'")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(stream(*hello()))
    process.stdin.flush()
    pid = int(process.stderr.readline())
    if closed:
        process.stdin.close()
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == -signal.SIGINT
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    left(process)


def test_commands_end_with_a_killed_steno(place: Place) -> None:
    """The watchdog terminates the command, and what left its session."""
    command = "sh -c 'setsid sleep 61 & echo $$ $!; exec sleep 60'"
    process = place.start("watch", "-q", "--on", "started", command)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(stream(*hello()))
    process.stdin.flush()
    pids = [int(word) for word in process.stderr.readline().split()]
    process.kill()
    process.wait()
    until(lambda: [pid for pid in pids if start_time_of(pid) is not None] == [])
    left(process)
