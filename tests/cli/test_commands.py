"""The command line, as real processes: what goes to stdout, what to stderr, and the exit code."""

import errno
import gzip
import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

import steno
from steno import event
from steno.cli.stream_options import EventFile
from steno.installation import extra_command
from steno.recording.format import Header, Record
from steno.views.formatting import width
from tests.golden import ROOT
from tests.support.claude_lines import (
    MODEL,
    REFUSED,
    SESSION,
    answer,
    assistant,
    call,
    folder,
    hello,
    init,
    out,
    result,
    share,
    stream,
    tape,
    text,
    worked,
)
from tests.support.program import steno as run_steno
from tests.views.test_rendering import PAYLOAD, is_safe

HELLO, WORKED = stream(*hello()), stream(*worked())
PLAIN = (
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "STENO_DEBUG",
    "PYTHONUNBUFFERED",
)  # what a test sets itself, or not at all
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in PLAIN} | {
    "TZ": "UTC",
    "PYTHONIOENCODING": "utf-8",
}
Done = subprocess.CompletedProcess[bytes]


def run(
    *words: str | Path, stdin: bytes = b"", cwd: Path | None = None, **environment: str
) -> Done:
    command = [sys.executable, "-m", "steno", *map(str, words)]
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        env=ENVIRONMENT | environment,
        cwd=cwd,
        timeout=60,
        check=False,
    )


def shown(done: Done) -> list[str]:
    """The lines on stdout of a command that had nothing to complain about."""
    assert (done.stderr, done.returncode) == (b"", 0)
    return done.stdout.decode().splitlines()


def refused(done: Done) -> str:
    """The one line on stderr of a command that was used wrongly."""
    assert (done.stdout, done.returncode) == (b"", 2)
    (line,) = done.stderr.decode().splitlines()
    return line


@pytest.fixture
def hello_file(tmp_path: Path) -> Path:
    path = tmp_path / "hello.jsonl"
    path.write_bytes(HELLO)
    return path


@pytest.fixture
def worked_file(tmp_path: Path) -> Path:
    path = tmp_path / "worked.jsonl"
    path.write_bytes(WORKED)
    return path


# -- the program -------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",), ("help", "help")])
def test_help_names_every_command(words: tuple[str, ...]) -> None:
    from steno.cli.commands import COMMANDS

    lines = shown(run(*words))
    assert lines[0] == "usage: steno COMMAND [OPTIONS]"
    assert all(any(line.split()[:1] == [name] for line in lines) for name in COMMANDS)


@pytest.mark.parametrize("word", ["--version", "version"])
def test_version(word: str) -> None:
    assert shown(run(word)) == [f"steno {steno.__version__}"]


def test_help_lists_the_commands_in_groups() -> None:
    lines = shown(run("--help"))
    groups = [line[:-1] for line in lines if re.fullmatch(r"[A-Z][a-z]+:", line)]
    assert groups == ["Run", "Fleet", "Inspect", "Spend", "Data", "Setup", "Options"]


@pytest.mark.parametrize("command", ["show", "run", "ledger import"])
def test_help_of_a_command(command: str) -> None:
    assert shown(run("help", *command.split())) == shown(run(*command.split(), "--help"))


@pytest.mark.parametrize("word", ["--help", "-h", "help", "--version", "version", ""])
def test_help_imports_nothing_heavy(word: str) -> None:
    code = (
        f"import sys; from steno.cli import main; main({[word] if word else []}); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, check=True
    )
    assert not {"msgspec", "argparse", "click", "rich", "genai_prices"} & set(
        done.stderr.decode().split()
    )


def test_a_summary_imports_only_what_it_needs(hello_file: Path) -> None:
    """Prices are kept after their first use: only that loads the table."""
    run("show", hello_file)
    code = (
        f"import sys; from steno.cli import main; main(['show', {str(hello_file)!r}]); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, check=True
    )
    heavy = {
        "click",
        "rich",
        "genai_prices",
        "typing_extensions",
        "inspect",
        "dataclasses",
        "zstandard",
        "gzip",
    }
    assert not heavy & set(done.stderr.decode().split())


def test_an_unknown_command(tmp_path: Path) -> None:
    assert refused(run("frobnicate")) == "steno: unknown command 'frobnicate'; see: steno --help"
    assert refused(run("usag")) == "steno: unknown command 'usag'; did you mean usage?"
    assert refused(run("prune")) == "steno: unknown command 'prune'; did you mean ledger prune?"
    assert refused(run("--frob")) == "steno: unknown option --frob; see: steno --help"
    assert refused(run("--versoin")) == "steno: unknown option --versoin; did you mean --version?"
    assert (
        refused(run("/dev/null"))
        == "steno: unknown command '/dev/null'; to read a recording: steno show /dev/null"
    )


def test_an_unknown_ledger_command() -> None:
    assert refused(run("ledger", "prun")) == "steno: unknown command 'prun'; did you mean prune?"
    assert (
        refused(run("ledger", "frob")) == "steno: unknown command 'frob'; see: steno ledger --help"
    )
    assert (
        refused(run("ledger", "--frob")) == "steno: unknown option --frob; see: steno ledger --help"
    )


def test_an_unknown_option_suggests_the_closest(hello_file: Path) -> None:
    assert (
        refused(run("show", "--jsn", hello_file))
        == "steno: unknown option --jsn; did you mean --json?"
    )
    assert (
        refused(run("runs", "--formt=x")) == "steno: unknown option --formt; see: steno runs --help"
    )


def test_the_installed_program_is_the_same(hello_file: Path) -> None:
    program = Path(sys.executable).with_name("steno")
    if not program.exists():
        pytest.skip("the program is not installed beside this Python")
    done = subprocess.run(
        [program, "show", hello_file], capture_output=True, env=ENVIRONMENT, check=False
    )
    assert shown(done) == shown(run("show", hello_file))


# -- the summary ---------------------------------------------------------------------------------


def test_the_summary(hello_file: Path) -> None:
    assert shown(run("show", hello_file)) == [
        "success  the run finished, and the agent reports success",
        "",
        "agent      claude 2.1.325 · claude-opus-5-5 · key: ANTHROPIC_API_KEY",
        f"session    {SESSION}",
        "folder     /srv/project",
        "run        1 turn · 1 request · 120 ms (18 ms in requests)",
        "evidence   line 3 of the recording",
        "",
        "answer     Hello there.",
        "",
        "tokens     21,105 total · cache hit rate 95.2 %",
        "           input 3 · cache write 1,001 · cache read 20,000 · output 101",
        "cost       $0.0110 reported by the agent",
        "context    █░░░░░░░░░░░░░░░░░░░ 2.1 % used · 98% HP [21k/1000k] — Healthy",
        "           peak 21,004 · window 1,000,000 (as reported)",
    ]


def test_every_way_in_gives_the_same_summary(tmp_path: Path, hello_file: Path) -> None:
    (tmp_path / "packed.gz").write_bytes(gzip.compress(HELLO))
    (tmp_path / "packed.zst").write_bytes(zstandard.compress(HELLO))
    (tmp_path / "array.json").write_bytes(json.dumps(hello()).encode())
    tape(tmp_path / "run.tape", out(HELLO), header=Header(agent="claude"))
    whole = shown(run("show", hello_file))
    for name in ("packed.gz", "packed.zst", "array.json", "run.tape"):
        assert shown(run("show", tmp_path / name)) == whole
    assert shown(run("show", "-", stdin=HELLO)) == whole
    assert shown(run("show", stdin=HELLO)) == whole
    assert shown(run("show", stdin=gzip.compress(HELLO))) == whole


def test_a_folder_with_stdout_is_one_recording(tmp_path: Path) -> None:
    lines = shown(run("show", folder(tmp_path / "run", HELLO, code=0)))
    assert lines[5] == "run        1 turn · 1 request · 120 ms (18 ms in requests) · exit code 0"


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_the_summary_keeps_to_the_width(tmp_path: Path, columns: int) -> None:
    path = tmp_path / "run"
    path.write_bytes(stream(*REFUSED))
    lines = shown(run("show", path, COLUMNS=str(columns)))
    assert max(map(width, lines)) <= columns


def test_advice_can_be_switched_off() -> None:
    asking = stream(init(), assistant(text("Shall I?")), result("Shall I?"))
    assert shown(run("show", stdin=asking))[0] == "interactive  asks: Shall I?"
    assert shown(run("show", "--no-advice", stdin=asking))[0].startswith("success  ")


def test_prices_stand_below_the_cost(hello_file: Path) -> None:
    lines = shown(run("show", "--prices", hello_file))
    begin = lines.index("cost       $0.0110 reported by the agent")
    assert lines[begin + 1] == "           by the price table $0.0110"
    assert re.fullmatch(r" {11}cache reads saved \$0\.0\d+", lines[begin + 2])


def test_a_computed_cost_is_shown_once() -> None:
    """It is the one by the price table already."""
    recording = ROOT / "copilot" / "1.0.102" / "tools_kept"
    lines = shown(run("show", "--prices", recording))
    begin = lines.index("cost       $0.0115 computed from the price table")
    assert lines[begin + 1].startswith("           cache reads saved $")
    assert not any("by the price table" in line for line in lines)


def test_prices_where_the_models_have_only_a_part_of_the_tokens(tmp_path: Path) -> None:
    """What cache reads saved is the same figure as in the ledger."""
    path = tmp_path / "result.json"
    path.write_bytes(stream(result(modelUsage={MODEL: share(0, 0, 0, 101)})))
    lines = shown(run("show", "--prices", path))
    begin = next(number for number, line in enumerate(lines) if line.startswith("cost  "))
    assert lines[begin + 1 : begin + 3] == [
        "           by the price table unknown",
        "           cache reads saved $0.0760",
    ]
    ledger = str(tmp_path / "ledger.db")
    assert run("ledger", "import", path, "--ledger", ledger).returncode == 0
    usage = json.loads(run("usage", "--json", "--ledger", ledger).stdout)
    assert usage["total"]["cost"]["saved_usd"] == pytest.approx(0.076)


@pytest.mark.parametrize(
    ("case", "source"),
    [
        ("claude/2.1.325/multi_tool_edit", "reported"),
        ("transcripts/codex-0.166.0/sandbox", "reported"),
        ("transcripts/2.1.325/multi_tool_edit", "known"),
        ("claude/2.1.325/model_my-custom-model", "assumed"),
    ],
)
def test_the_source_of_the_window_has_one_word(case: str, source: str, tmp_path: Path) -> None:
    """In the report, and in the session of the same run."""
    ledger = str(tmp_path / "ledger.db")
    assert run("ledger", "import", ROOT / case, "--ledger", ledger).returncode == 0
    sessions = json.loads(run("sessions", "--json", "--ledger", ledger).stdout)["rows"]
    reports = run("show", "--json", ROOT / case).stdout.splitlines()
    assert [row["context"]["limit_source"] for row in sessions] == [source]
    assert {json.loads(line)["context"]["limit_source"] for line in reports} == {source}


def test_prices_of_an_unknown_model(tmp_path: Path) -> None:
    run_ = stream(
        init(model="own-model"),
        assistant(text("Hi."), model="own-model"),
        result(modelUsage={}, total_cost_usd=None),
    )
    lines = shown(run("show", "--prices", stdin=run_))
    begin = lines.index("cost       unknown")
    assert lines[begin + 1 : begin + 3] == [
        "           by the price table unknown",
        "           saved by cache reads: unknown",
    ]


def test_a_failed_run_is_shown_with_success(tmp_path: Path) -> None:
    done = run("show", folder(tmp_path / "run", b"", code=-9))
    assert shown(done)[0] == "killed by SIGKILL before a result (exit code -9)"


# -- colour and letters ------------------------------------------------------------------------


def on_terminal(
    *words: str | Path, columns: int = 100, environment: dict[str, str] | None = None
) -> str:
    """What a person sees on a terminal: stdout and stderr together."""
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "steno", *map(str, words)]
    with subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=ENVIRONMENT | {"TERM": "xterm"} | (environment or {}),
    ) as child:
        os.close(slave)
        seen = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError as problem:  # Linux says EIO when the last writer has gone
                if problem.errno != errno.EIO:
                    raise
                break
            if not data:
                break
            seen += data
        os.close(master)
        child.wait(timeout=60)
    return seen.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_its_own_width(worked_file: Path) -> None:
    seen = on_terminal("show", worked_file, columns=44)
    assert seen.startswith("\x1b[1;32msuccess\x1b[0m  ")
    bare = re.sub(r"\x1b\[[0-9;]+m", "", seen)
    assert "\x1b" not in bare
    assert max(map(width, bare.splitlines())) <= 44


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}]
)
def test_colours_can_be_switched_off(hello_file: Path, environment: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal("show", hello_file, environment=environment)


def test_colours_can_be_forced(hello_file: Path) -> None:
    assert b"\x1b[1;32msuccess\x1b[0m" in run("show", hello_file, FORCE_COLOR="1").stdout
    assert b"\x1b" not in run("show", hello_file).stdout
    assert b"\x1b[" in run("show", hello_file, FORCE_COLOR="1", NO_COLOR="").stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_letters_that_the_terminal_lacks(worked_file: Path, encoding: str) -> None:
    done = run("show", worked_file, PYTHONIOENCODING=encoding)
    lines = done.stdout.decode(encoding).splitlines()
    assert (done.stderr, done.returncode) == (b"", 0)
    assert "context    #................... 2.1 % used - 98% HP [21k/1000k] - Healthy" in lines
    assert any(
        line.startswith("answer     All is done - na") and "\\u2713" in line for line in lines
    )


def test_stdin_of_a_terminal_is_not_read() -> None:
    assert on_terminal("show") == (
        "steno: nothing to read: give a file or folder, or pipe a recording to stdin; "
        "see: steno show --help\n"
    )


def test_long_work_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "steno", "show"]
    lines = stream(init(), *[assistant(text("x" * 1000))] * 1500)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave, env=ENVIRONMENT
    ) as child:
        assert child.stdin is not None
        child.stdin.write(lines)
        child.stdin.flush()
        time.sleep(1.5)
        child.communicate(lines + stream(result()), timeout=60)
    os.close(slave)
    seen = os.read(master, 65536).decode()
    os.close(master)
    assert re.fullmatch(r"(\r\x1b\[Ksteno: 0 of 1 read, [\d.,]+ MB, [\d.,]+ MB/s)+\r\x1b\[K", seen)


# -- hostile text ------------------------------------------------------------------------------

HOSTILE_RUN = stream(
    init(model=PAYLOAD, cwd="/srv/" + PAYLOAD),
    assistant(
        text(PAYLOAD),
        call("toolu_1", "Bash", command=PAYLOAD),
        call("toolu_2", PAYLOAD, file_path=PAYLOAD),
    ),
    answer("toolu_1", PAYLOAD, True),
    assistant(call("toolu_3", "Write", file_path="/srv/" + PAYLOAD)),
    answer("toolu_3", "ok", tool_use_result={"type": "create", "filePath": "/srv/" + PAYLOAD}),
    {"type": PAYLOAD, "subtype": PAYLOAD},
    b"not json " + PAYLOAD.replace("\n", "").encode(),
    result(PAYLOAD, is_error=True, subtype="error_during_execution", errors=[PAYLOAD]),
)


@pytest.mark.parametrize("view", ["--summary", "--tools", "--files", "--timeline"])
def test_hostile_text_is_harmless(tmp_path: Path, view: str) -> None:
    path = tmp_path / PAYLOAD.replace("\x00", "").replace("\n", "")
    path.write_bytes(HOSTILE_RUN)
    done = run("show", view, path, path, COLUMNS="60")
    assert done.returncode == 0
    for line in (done.stdout + done.stderr).decode().split("\n"):
        assert is_safe(line), line
    assert done.stderr.decode().count("\n") == 2


@pytest.mark.parametrize("view", ["--json", "--events"])
def test_json_moves_no_cursor_and_means_the_same(tmp_path: Path, view: str) -> None:
    path = tmp_path / "run"
    path.write_bytes(HOSTILE_RUN)
    lines = run("show", view, path).stdout.decode().split("\n")[:-1]
    assert all(map(is_safe, lines))
    values = (
        [steno.read(str(path)).to_json()]
        if view == "--json"
        else map(msgspec.json.encode, steno.events(str(path)))
    )
    assert [json.loads(line) for line in lines] == [json.loads(value) for value in values]
    assert all(map(is_safe, on_terminal("show", view, path).split("\n")))


def test_events_are_escaped_where_their_file_is_a_terminal(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    events, path = list(steno.events(stream(assistant(text(PAYLOAD))))), tmp_path / "events"
    for where in (str(slave), str(path)):
        file = EventFile(where)
        file.put(events)
        assert file.finish() is None
    seen = os.read(master, 65536).decode()
    assert is_safe(re.sub("[\r\n]", "", seen))
    assert [json.loads(line) for line in seen.splitlines()] == [
        json.loads(msgspec.json.encode(event)) for event in events
    ]
    assert path.read_bytes() == b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    os.close(master)


def test_a_patch_is_cleaned_for_a_terminal_and_raw_for_a_program(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    told = {
        "type": "create",
        "filePath": "/srv/project/a.txt",
        "content": "a\x1b[2Jb\n",
        "structuredPatch": [],
    }
    written = assistant(
        call("toolu_1", "Write", file_path="/srv/project/a.txt", content="a\x1b[2Jb\n")
    )
    path.write_bytes(
        stream(init(), written, answer("toolu_1", "ok", tool_use_result=told), result("Done."))
    )
    assert b"\n+a\x1b[2Jb\n" in run("diff", path, "--patch", "-").stdout
    assert "\n+a\\x1b[2Jb\n" in on_terminal(
        "diff", path, "--patch", "-", environment={"NO_COLOR": "1"}
    )


def test_text_is_cleaned_for_a_terminal_and_raw_for_a_program(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(stream(init(), assistant(text("a\x1b[2Jb\n\tc")), result("")))
    assert run("show", "--text", path).stdout == b"a\x1b[2Jb\n\tc\n"
    assert on_terminal("show", "--text", path) == "a\\x1b[2Jb\n    c\n"


# -- views -------------------------------------------------------------------------------------


def test_json_is_one_report_a_line_and_nothing_else(hello_file: Path, worked_file: Path) -> None:
    lines = shown(run("show", "--json", hello_file, worked_file, COLUMNS="40", FORCE_COLOR="1"))
    assert lines == [steno.read(str(path)).to_json().decode() for path in (hello_file, worked_file)]


def test_json_is_whole_when_unbuffered(tmp_path: Path) -> None:
    big = stream(init(), result("x" * 3_000_000))
    done = run("show", "--json", stdin=big, PYTHONUNBUFFERED="1")
    assert len(json.loads(done.stdout)["result"]) == 3_000_000


def test_json_is_pure_when_lines_are_malformed() -> None:
    done = run("show", "--json", stdin=b"garbage\n" + HELLO)
    assert json.loads(done.stdout)["lines"]["malformed"] == 1
    assert done.stderr == b"steno: skipping malformed line 1: garbage\n"


def test_events_are_streamed_as_json(worked_file: Path) -> None:
    lines = shown(run("show", "--events", worked_file))
    assert lines == [
        msgspec.json.encode(event).decode() for event in steno.events(str(worked_file))
    ]


def selected(path: Path, *kinds: str) -> list[str]:
    """The events of these kinds as JSON lines."""
    return [
        line
        for line in (msgspec.json.encode(event).decode() for event in steno.events(str(path)))
        if json.loads(line)["event"] in kinds
    ]


def test_events_of_some_kinds(tmp_path: Path, worked_file: Path) -> None:
    """From files, a folder and stdin; --json, which they are anyway, changes nothing."""
    wanted = selected(worked_file, "tool_call", "tool_result")
    only = ("show", "--events", "--only")
    assert len(wanted) > 1
    assert shown(run(*only, "tool_call,tool_result", worked_file)) == wanted
    assert shown(run(*only, "tool_result, tool_call,", "--json", worked_file)) == wanted
    assert shown(run(*only, "tool_call,tool_result", stdin=worked_file.read_bytes())) == wanted
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        shutil.copy(worked_file, folder / name)
    assert shown(run(*only, "tool_call,tool_result", folder)) == wanted * 2
    assert shown(run(*only, "retry", worked_file)) == []


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--events", "--only", "tool_cal"), "found 'tool_cal'; did you mean tool_call?"),
        (("--events", "--only", "text,ToolResult"), "found 'ToolResult'; did you mean tool_result"),
        (("--events", "--only", "file-change"), "did you mean file_change?"),
        (("--events", "--only", "0"), "found '0'; see: steno show --help"),
        (("--events", "--only", ""), "found ''"),
        (("--events", "--only", ","), "found ','"),
        (("--only", "text"), "--only needs --events; see: steno show --help"),
        (("--json", "--only", "text"), "--only needs --events"),
        (("--timeline", "--json"), "--timeline: not allowed with --json"),
    ],
)
def test_kinds_that_do_not_exist_are_refused(args: tuple[str, ...], error: str) -> None:
    message = refused(run("show", *args, "x"))
    assert error in message
    if "found" in error:
        assert f"--only: expected one of {', '.join(event.EVENT_KINDS)}; found" in message


def test_events_come_while_the_agent_still_works() -> None:
    command = [sys.executable, "-m", "steno", "show", "--events"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(stream(init()))
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["event"] == "started"
        child.stdin.close()
        assert child.wait(timeout=60) == 0


def test_events_take_no_memory_that_grows(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("no way here to ask for the most memory a process had")
    line = stream(assistant(text("x" * 2000), message="m"))
    sizes = []
    for count in (2_000, 40_000):
        path = tmp_path / f"{count}.jsonl"
        path.write_bytes(line * count)
        code = (
            "import re, sys; from steno.cli import main; "
            f"main(['show', '--events', {str(path)!r}]); "
            "status = open('/proc/self/status').read(); "
            "print(re.search(r'VmHWM:\\s+(\\d+)', status)[1], file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, check=True
        )
        assert done.stdout.count(b"\n") >= count
        sizes.append(int(done.stderr))
    assert sizes[1] < sizes[0] + 4_000  # kilobytes, where the second file has 80 MB more


def test_tools(worked_file: Path) -> None:
    assert shown(run("show", "--tools", worked_file)) == [
        "id       name   kind        result     time",
        "toolu_1  Write  file_write  ok      unknown",
        "toolu_2  Bash   shell       ok      unknown",
        "toolu_3  Task   subagent    ok      unknown",
    ]


def test_files(worked_file: Path) -> None:
    assert shown(run("show", "--files", worked_file)) == [
        "path       change   where   by",
        "notes.txt  created  inside  toolu_1",
    ]


def test_timeline(tmp_path: Path) -> None:
    start = Header(agent="claude", started_at=1_800_000_000.0)
    ticks = [
        Record(after, "out", stream(line))
        for after, line in (
            (0.5, init()),
            (1.0, assistant(call("toolu_1", "Bash", command="make\ntest"))),
            (3.25, answer("toolu_1", "no rule", True)),
            (4.0, result("Done.")),
        )
    ]
    path = tape(tmp_path / "tape", *ticks, Record(4.5, "exit", number=0), header=start)
    assert shown(run("show", "--timeline", path)) == [
        f"   +0.000s      1  started   {MODEL} in /srv/project",
        "   +0.500s      2  call      Bash: make test",
        "   +2.750s      3  failed    Bash, 2.2 s: no rule",
        "   +3.500s      4  result    success, turns 1, 120 ms, $0.0110",
        "   +4.000s         exit      code 0",
    ]


def test_text(worked_file: Path) -> None:
    assert shown(run("show", "--text", worked_file)) == [
        "I will write it.",
        "All is done — naïvely ✓",
    ]
    assert shown(run("show", "--text", stdin=stream(init(), result("Only this.")))) == [
        "Only this."
    ]


@pytest.mark.parametrize("view", ["--tools", "--files", "--timeline", "--text", "--summary"])
def test_one_view_at_a_time(hello_file: Path, view: str) -> None:
    assert refused(run("show", "--json", view, hello_file)) == (
        f"steno: {view}: not allowed with --json; see: steno show --help"
    )


def test_wrong_use(hello_file: Path) -> None:
    assert (
        refused(run("show", "--frob", hello_file))
        == "steno: unknown option --frob; see: steno show --help"
    )
    assert refused(run("show", "--prices", "--json", hello_file)) == (
        "steno: --prices needs the summary and cannot be used with --json; see: steno show --help"
    )
    assert refused(run("show", "--agent", "nobody", hello_file)) == (
        "steno: unknown agent 'nobody'; known: claude, codex, copilot, gemini, opencode, qwen"
    )


def test_the_agent_can_be_named(hello_file: Path) -> None:
    assert shown(run("show", "--agent", "claude", hello_file)) == shown(run("show", hello_file))


@pytest.mark.parametrize("view", ["--summary", "--json", "--tools", "--files", "--text"])
def test_the_exit_code_can_be_the_verdicts(tmp_path: Path, hello_file: Path, view: str) -> None:
    limited, refused_ = tmp_path / "limited", tmp_path / "refused"
    limited.write_bytes(stream(init(), result("API Error: 429 rate limit", is_error=True)))
    refused_.write_bytes(stream(*REFUSED))

    def code(*sources: Path) -> int:
        return run("show", view, "--exit-from", "verdict", *sources).returncode

    assert (code(hello_file), code(refused_), code(limited)) == (0, 3, 75)
    assert (code(hello_file, refused_), code(limited, refused_, hello_file)) == (3, 75)
    assert code(limited, tmp_path / "gone") == 2
    assert run("show", view, limited).returncode == 0


@pytest.mark.parametrize("view", ["--events", "--timeline"])
def test_the_exit_code_needs_a_report(hello_file: Path, view: str) -> None:
    assert refused(run("show", view, "--exit-from", "verdict", hello_file)) == (
        f"steno: --exit-from needs a report and cannot be used with {view}; see: steno show --help"
    )


def test_options_and_sources_in_any_order(hello_file: Path, worked_file: Path) -> None:
    assert shown(run("show", hello_file, "--json", worked_file)) == shown(
        run("show", "--json", hello_file, worked_file)
    )


def test_a_name_that_looks_like_an_option(tmp_path: Path) -> None:
    (tmp_path / "--json").write_bytes(HELLO)
    assert shown(run("show", "--", "--json", cwd=tmp_path))[0].startswith("success")


def test_help_of_show_has_examples_and_every_option() -> None:
    text_ = "\n".join(shown(run("show", "--help")))
    assert "examples:" in text_
    for option in (
        "--json",
        "--events",
        "--tools",
        "--files",
        "--timeline",
        "--text",
        "--summary",
        "--prices",
        "--agent",
        "--no-advice",
    ):
        assert option in text_


# -- several sources ---------------------------------------------------------------------------


def test_a_few_sources_get_a_summary_each(hello_file: Path, worked_file: Path) -> None:
    lines = shown(run("show", hello_file, worked_file, COLUMNS="80"))
    rules = [line for line in lines if line.startswith("── ")]
    assert [line.strip("─ ")[-12:] for line in rules] == ["/hello.jsonl", "worked.jsonl"]
    assert sum(line.startswith("success  ") for line in lines) == 2


def test_many_sources_get_a_line_each(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_bytes(HELLO)
    folder(tmp_path / "last", b"", code=-9)
    lines = shown(run("show", tmp_path))
    assert lines == [
        "verdict                cost       tokens  context         time  source",
        *(
            f"success             $0.0110       21,105    2.1 %       120 ms  {tmp_path}/{n}.jsonl"
            for n in range(4)
        ),
        f"killed              unknown      unknown  unknown      unknown  {tmp_path}/last",
        "",
        "5 runs: 4 success, 1 killed",
        "cost $0.0441 (unknown for 1 run)",
        "tokens 84,420 (unknown for 1 run)",
    ]
    assert sum(line.startswith("── ") for line in shown(run("show", "--summary", tmp_path))) == 5
    assert len(shown(run("show", "--json", tmp_path))) == 5
    narrow = shown(run("show", tmp_path, COLUMNS="40"))
    assert max(map(width, narrow)) <= 40
    assert narrow[1].endswith("/0.jsonl") or narrow[1].endswith("0.jsonl")


@pytest.mark.parametrize("command", ["show", "export", "check"])
def test_files_of_a_folder_that_are_no_recordings_are_listed(tmp_path: Path, command: str) -> None:
    (tmp_path / "run.jsonl").write_bytes(HELLO)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("no recording\n")
    done = run(command, tmp_path, *["--rule", "max_cost=1"] * (command == "check"))
    names = [f"{tmp_path}/{number}.txt (text)" for number in range(3)]
    skipped = "steno: skipped 5 files that are not recordings"
    assert done.stderr.decode() == f"{skipped}: {', '.join(names)}, 2 more\n"
    assert done.returncode == 0


def test_one_bad_source_does_not_hide_the_others(
    tmp_path: Path, hello_file: Path, worked_file: Path
) -> None:
    done = run("show", "--json", hello_file, tmp_path / "gone", worked_file)
    assert done.returncode == 2
    assert done.stderr.decode() == f"steno: {tmp_path}/gone: no such file or folder\n"
    assert [json.loads(line)["source"] for line in done.stdout.splitlines()] == [
        str(hello_file),
        str(worked_file),
    ]


# -- sources that cannot be read ---------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    assert (
        refused(run("show", tmp_path / "gone")) == f"steno: {tmp_path}/gone: no such file or folder"
    )


@pytest.mark.parametrize("words", [("show", ""), ("show", "--", ""), ("ledger", "import", "")])
def test_an_empty_name_is_not_the_folder_we_are_in(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A variable that is not set."""
    (tmp_path / "a.jsonl").write_bytes(HELLO)
    done = (
        run(*words, "--ledger", tmp_path / "ledger.db", cwd=tmp_path)
        if words[0] == "ledger"
        else run(*words, cwd=tmp_path)
    )
    command = " ".join(word for word in words if word not in ("", "--"))
    assert refused(done) == f"steno: '': empty file name; see: steno {command} --help"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (None, "expected a path, bytes, a binary file or lines, found NoneType"),
        (5, "expected a path, bytes, a binary file or lines, found int"),
        ([1, 2], "expected lines of bytes or text, found int"),
        ("", "'': empty file name"),
    ],
)
def test_what_is_no_source_at_all(given: Any, wrong: str) -> None:
    with pytest.raises(steno.SourceError, match=re.escape(wrong)):
        steno.read(given)
    with pytest.raises(steno.SourceError, match=re.escape(wrong)):
        list(steno.events(given))


def test_bytes_of_any_kind() -> None:
    for given in (bytearray(HELLO), memoryview(HELLO)):
        assert steno.read(given).to_json() == steno.read(HELLO).to_json()


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    assert refused(run("show", tmp_path)).startswith(
        f"steno: {tmp_path}: no recordings in this folder"
    )


def test_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01" + bytes(range(256)))
    assert refused(run("show", path)).startswith(
        f"steno: {path}: binary data; expected an agent's output"
    )


CUT = "only part of it could be read: truncated gzip file; download or compress it again"


@pytest.mark.parametrize("view", ["--json", "--events", "--timeline"])
def test_a_packed_file_that_is_cut_is_shown_as_far_as_it_goes(tmp_path: Path, view: str) -> None:
    gz = tmp_path / "cut.gz"
    gz.write_bytes(gzip.compress(WORKED)[:-20])
    for done in (run("show", view, gz), run("show", view, stdin=gz.read_bytes())):
        assert done.returncode == 0
        name = gz if f"{gz}".encode() in done.stderr else "stdin"
        assert done.stderr.decode() == f"steno: {name}: {CUT}\n"
        assert b"I will write it." in done.stdout


def test_a_report_of_a_packed_file_that_is_cut_says_so(tmp_path: Path) -> None:
    gz, zst = tmp_path / "cut.gz", tmp_path / "cut.zst"
    noise = random.Random(5).randbytes(200_000).hex().encode()
    whole = stream(
        *(line for number in range(3000) for line in hello()[:2]), noise, result("Done.")
    )
    gz.write_bytes(gzip.compress(whole)[:-2000])
    zst.write_bytes(zstandard.compress(whole)[:-2000])
    for path, kind in ((gz, "gzip"), (zst, "zstd")):
        found = steno.read(path)
        assert (found.verdict, found.complete, found.lines.torn) == ("no_result", False, True)
        assert (
            f"only part of it could be read: truncated {kind} file; download or compress it again"
            in found.warnings
        )
        assert found.text.startswith("Hello there.\nHello there.\n")


def test_what_follows_a_packed_file_does_not_hide_it(tmp_path: Path) -> None:
    for name, packed in (("a.gz", gzip.compress(WORKED)), ("a.zst", zstandard.compress(WORKED))):
        (tmp_path / name).write_bytes(packed + b"junk, and more junk")
        found = steno.read(tmp_path / name)
        assert (found.verdict, found.text, found.complete) == (
            "success",
            steno.read(WORKED).text,
            False,
        )
        assert found.warnings[0].startswith(
            f"only part of it could be read: damaged {'gzip' if name == 'a.gz' else 'zstd'}: "
        )


def test_packed_files_of_which_nothing_is_left(tmp_path: Path) -> None:
    gz, zst = tmp_path / "cut.gz", tmp_path / "cut.zst"
    gz.write_bytes(gzip.compress(WORKED)[:12])
    zst.write_bytes(zstandard.compress(WORKED)[:-20])
    assert (
        refused(run("show", gz))
        == f"steno: {gz}: truncated gzip file; download or compress it again"
    )
    assert refused(run("show", zst)).startswith(f"steno: {zst}: ")


def test_an_import_names_a_packed_file_once(tmp_path: Path) -> None:
    gz = tmp_path / "s.jsonl.gz"
    gz.write_bytes(
        gzip.compress(
            b'{"type":"user","sessionId":"s","uuid":"u",'
            b'"message":{"role":"user","content":"hi"}}\n' * 999
        )[:-9]
    )
    done = run("ledger", "import", gz, "--ledger", tmp_path / "ledger.db")
    assert (
        done.stderr.decode() == f"steno: {gz}: truncated gzip file; download or compress it again\n"
    )


def test_a_file_that_cannot_be_read() -> None:
    if not Path("/proc/self/mem").exists():
        pytest.skip("no file here that can be opened and not read")
    assert (
        refused(run("show", "/proc/self/mem"))
        == "steno: /proc/self/mem: cannot be read: Input/output error"
    )


def test_a_file_without_permission(hello_file: Path) -> None:
    """Root may read everything: a test run by root drops its rights first, after the imports."""
    hello_file.chmod(0)
    down = "os.setuid(65534) if os.geteuid() == 0 else None"
    needed = "os, sys, locale, gettext, steno.cli.show, steno.cli.show_views, steno.views.summary"
    code = f"import {needed}; {down}; sys.exit(steno.cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "show", str(hello_file)]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=False)
    assert refused(done) == f"steno: {hello_file}: cannot be read: Permission denied"


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.jsonl"
    Path(os.fsdecode(path)).write_bytes(HELLO)
    assert (
        json.loads(run("show", "--json", os.fsdecode(path)).stdout)["source"]
        == f"{tmp_path}/\ufffd.jsonl"
    )


def test_stdin_is_closed() -> None:
    done = subprocess.run(
        f"{sys.executable} -m steno show - <&-",
        shell=True,
        capture_output=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert refused(done) == "steno: stdin is closed; give a file or folder"


# -- odd lines ---------------------------------------------------------------------------------


def test_malformed_lines_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(stream(init(), b"\x1b[31mwarning\x1b[0m", *hello()[1:], b"x" * 500))
    done = run("show", path)
    assert done.stderr.decode().splitlines() == [
        "steno: skipping malformed line 2: \\x1b[31mwarning\\x1b[0m",
        "steno: skipping malformed line 5: " + "x" * 200,
    ]
    assert "lines      2 malformed (5 lines read)" in done.stdout.decode().splitlines()
    assert done.returncode == 0


@pytest.mark.parametrize("view", ["--json", "--events", "--timeline"])
def test_malformed_lines_are_reported_up_to_a_limit(
    tmp_path: Path, hello_file: Path, view: str
) -> None:
    path = tmp_path / "odd"
    path.write_bytes(HELLO + b"garbage\n" * 25 + b'{"type":"assist')
    done = run("show", view, path, hello_file)
    lines = done.stderr.decode().splitlines()
    assert lines[0] == f"steno: {path}: skipping malformed line 4: garbage"
    assert lines[20:] == [
        f"steno: ... and 5 more malformed lines in {path}",
        f"steno: {path}: the last line is incomplete",
    ]


# -- ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["--summary", "--json", "--events", "--timeline"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_quiet(tmp_path: Path, view: str, unbuffered: str) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(HELLO + stream(assistant(text("y" * 500))) * 2000)
    command = [sys.executable, "-m", "steno", "show", view, *[str(path)] * 200]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT | {"PYTHONUNBUFFERED": unbuffered},
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline()
        child.stdout.close()
        assert (child.stderr.read(), child.wait(timeout=60)) == (b"", 141)


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("show", "--help"), ("--help",)])
def test_a_full_disk_is_reported(words: tuple[str, ...]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "steno", *words]
        done = subprocess.run(
            command, input=HELLO, stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    assert (done.stderr, done.returncode) == (
        b"steno: cannot write to stdout: No space left on device\n",
        74,
    )


@pytest.mark.parametrize("words", ["config", "doctor"])
def test_a_working_directory_that_is_gone(tmp_path: Path, words: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'rmdir "$PWD"; exec {sys.executable} -m steno {words}'
    done = subprocess.run(
        command, shell=True, capture_output=True, env=ENVIRONMENT, cwd=gone, check=False
    )
    told = b"steno: the working directory was deleted; change to an existing one\n"
    assert (done.stdout, done.stderr, done.returncode) == (b"", told, 2)


def test_stdout_is_closed() -> None:
    done = subprocess.run(
        f"{sys.executable} -m steno --help >&-",
        shell=True,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        check=False,
    )
    assert (done.stderr, done.returncode) == (
        b"steno: cannot write to stdout: stdout is closed\n",
        74,
    )


def test_ctrl_c_is_quiet() -> None:
    command = [sys.executable, "-m", "steno", "show", "--events"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(HELLO)
        child.stdin.flush()
        assert child.stdout.readline()  # it is at work now
        while child.poll() is None:  # Python does not hear of one that comes just before it waits
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=5)
        assert (child.returncode, child.stderr.read()) == (130, b"")


BROKEN = """from steno import cli
from steno.cli import show_views
show_views.SourcePrinter._summary = lambda *_: 1 / 0
raise SystemExit(cli.main())
"""


def broken(*words: str, **environment: str) -> Done:
    """A steno with a bug in it."""
    command = [sys.executable, "-c", BROKEN, *words]
    return subprocess.run(
        command, input=HELLO, capture_output=True, env=ENVIRONMENT | environment, check=False
    )


@pytest.mark.parametrize(
    ("does", "told", "code"),
    [
        ("open('/no/such/file')", "/no/such/file: No such file or directory", 2),
        ("__import__('os').listxattr(b'/no/such')", "/no/such: No such file or directory", 2),
        ("__import__('os').kill(1 << 22, 0)", "No such process", 2),
        ("__import__('os').write(99, b'x')", "cannot write to stdout: Bad file descriptor", 74),
    ],
)
def test_what_the_system_refuses_is_called_what_it_is(does: str, told: str, code: int) -> None:
    command = [sys.executable, "-c", BROKEN.replace("1 / 0", does), "show", "-"]
    done = subprocess.run(command, input=HELLO, capture_output=True, env=ENVIRONMENT, check=False)
    assert (done.stdout, done.stderr.decode(), done.returncode) == (b"", f"steno: {told}\n", code)


def test_a_bug_is_one_line() -> None:
    done = broken("show", "-")
    message = (
        b"steno: internal error: -: ZeroDivisionError: division by zero; run again with --debug\n"
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"", message, 70)


@pytest.mark.parametrize(
    ("words", "debug"), [(("show", "--debug"), ""), (("--debug", "show"), ""), (("show",), "1")]
)
def test_the_traceback_only_for_those_who_ask(words: tuple[str, ...], debug: str) -> None:
    done = broken(*words, STENO_DEBUG=debug)
    lines = done.stderr.decode().splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "steno: internal error: -: ZeroDivisionError: division by zero"
    assert done.returncode == 70


def test_format_overrides_what_the_bytes_say(tmp_path: Path) -> None:
    """--format stream or json, where the bytes would be detected as something else."""
    array = tmp_path / "array.json"
    array.write_bytes(b'[{"type":"result","subtype":"success","result":"Yes."}]\n')
    document = tmp_path / "document.json"
    document.write_bytes(b'{"type":"result",\n"subtype":"success","result":"Yes."}\n')
    told = run("show", "--json", array, document).stdout.splitlines()
    lines = run("show", "--json", "--format", "stream", array).stdout.splitlines()
    whole = run("show", "--json", "--format", "json", document).stdout.splitlines()
    assert [json.loads(line)["result"] for line in told] == ["Yes.", "Yes."]
    assert [json.loads(line)["lines"]["not_object"] for line in lines] == [1]
    assert [json.loads(line)["result"] for line in whole] == ["Yes."]
    assert run("show", "--format", "xml", array).returncode == 2


def test_zstd_without_its_package(tmp_path: Path) -> None:
    """The message names the missing extra."""
    packed = tmp_path / "run.zst"
    packed.write_bytes(zstandard.compress(HELLO))
    code = (
        "import sys; sys.modules['zstandard'] = None; "
        "from steno.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "show", str(packed)]
    done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=False)
    hint = f"compressed with zstd; install support: {extra_command('zstd')}"
    assert refused(done) == f"steno: {packed}: {hint}"


# -- files that are no recordings ------------------------------------------------------------------


@pytest.mark.parametrize("view", ["--summary", "--json", "--events", "--timeline", "--tools"])
@pytest.mark.parametrize(
    "content",
    ['import os\n\nx = {\n  "type": "a"}\n', '{"a": 1}\n{"a": 2}\n', '{\n  "name": "x"\n}\n'],
    ids=["source", "other lines", "other document"],
)
def test_a_file_that_is_no_recording(tmp_path: Path, content: str, view: str) -> None:
    """One line and exit code 2, in every view."""
    path = tmp_path / "app.py"
    path.write_text(content)
    done = run_steno(tmp_path, "show", view, path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"steno: {path}: not a recording; expected ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("content", ["", "\n\n", '{"type":"system","subt', "Welcome!\n"])
def test_a_file_that_can_be_a_recording(tmp_path: Path, content: str) -> None:
    """Nothing printed, a torn line, and any text of an agent that is named."""
    path = tmp_path / "run.jsonl"
    path.write_text(content)
    agent = ["--agent", "claude"] if "Welcome" in content else []
    done = run_steno(tmp_path, "show", "--json", *agent, path)
    assert (done.code, json.loads(done.out)["ok"]) == (0, False)
