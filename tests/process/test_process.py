"""Start and stop processes: scripted agents that misbehave, and no process left behind."""

import hashlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from steno.errors import StenoError
from steno.process import (
    ChildProcess,
    GracePeriods,
    Orphan,
    ProcessCommand,
    ProcessLoop,
    process_tree,
    psutil_backend,
    run_tag,
    terminate_orphans,
)
from steno.process.event_loop import EventLoop
from steno.recording.format import Record

AGENTS = Path(__file__).parents[1] / "scripted_agents"
QUICK = GracePeriods(interrupt=0.4, terminate=0.4, kill=3.0, quiet=0.3, drain=1.0)
LOST = f"lost-{os.getpid()}"  # the run of a steno that gets killed; tests run side by side
LONG = 60.0  # no test may need it; the machine may be slow


def agent(
    name: str, *arguments: object, stdin: bytes | None = None, stdout: str = "pipe"
) -> ProcessCommand:
    """A scripted agent."""
    return ProcessCommand(
        (sys.executable, str(AGENTS / f"{name}.py"), *map(str, arguments)),
        stdin=stdin,
        stdout=stdout,
    )


def marked(run_id: str) -> list[run_tag.ProcessInfo]:
    """The living processes of a run."""
    return [
        item
        for item in process_tree.list_processes()
        if run_id in [result.run_id for result in run_tag.parse_run_tags(item.run_tags)]
    ]


def gone(pid: int) -> bool:
    """Whether a process is gone, or only waits to be waited for."""
    return process_tree.start_time_of(pid) is None


def wait_for(what: Callable[[], bool]) -> None:
    """Until it is so."""
    until = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert [
        item
        for item in process_tree.list_processes()
        if os.getpid() in [result.steno_pid for result in run_tag.parse_run_tags(item.run_tags)]
    ] == []
    assert marked(LOST) == []


@pytest.fixture
def loop() -> Iterator[ProcessLoop]:
    """A loop of our own."""
    with ProcessLoop() as loop:
        yield loop


class OutputLog:
    """Keeps the records of a run."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(self, record: Record) -> None:
        self.records.append(record)

    def on(self, code: str) -> bytes:
        """All that came on one stream."""
        return b"".join(record.data for record in self.records if record.code == code)

    def entries(self) -> list[tuple[str, bytes, int | None]]:
        """The records without their times, and without those of stderr; pieces of stdout in one."""
        out: list[tuple[str, bytes, int | None]] = []
        for record in self.records:
            if record.code == "out" and out and out[-1][0] == "out":
                out[-1] = ("out", out[-1][1] + record.data, None)
            elif record.code != "err":
                out.append((record.code, record.data, record.number))
        return out


def stop_when_ready(loop: ProcessLoop, child: ChildProcess, heard: OutputLog, why: str) -> None:
    """Let it say that it is ready, then stop it."""
    assert loop.run(loop.clock() + LONG, until=lambda: heard.on("out").endswith(b"\n"))
    child.stop(why)
    assert loop.run(loop.clock() + LONG)


# -- output --------------------------------------------------------------------------------------


def test_ticks_in_order(loop: ProcessLoop) -> None:
    """Output, then the exit, with times that never go back."""
    output = OutputLog()
    child = loop.start(agent("lines", 3, 20), output)
    assert loop.run(loop.clock() + LONG)
    assert output.on("out") == b"".join(b"%09dxxxxxxxxxx\n" % number for number in range(3))
    assert output.records[-1].code == "exit"
    times = [
        record.offset_seconds for record in output.records if record.offset_seconds is not None
    ]
    assert times == sorted(times)
    assert (child.exit_code, child.orphans, child.is_finished, loop.children) == (0, [], True, [])


@pytest.mark.parametrize("stdout", ["pipe", "file"])
def test_long_lines(loop: ProcessLoop, stdout: str) -> None:
    """Lines of 5 MB come whole, by pipe and by file."""
    output = OutputLog()
    loop.start(agent("lines", 4, 5_000_000, stdout=stdout), output)
    assert loop.run(loop.clock() + LONG)
    assert [len(line) for line in output.on("out").splitlines()] == [4_999_999] * 4
    assert output.entries()[-1] == ("exit", b"", 0)


def test_a_file_keeps_what_a_pipe_loses(loop: ProcessLoop) -> None:
    """An agent that drops what the pipe does not take loses nothing to a file."""
    by_pipe, by_file = OutputLog(), OutputLog()
    loop.start(agent("dropper"), by_pipe)
    loop.start(agent("dropper", stdout="file"), by_file)
    assert loop.run(loop.clock() + LONG)
    assert len(by_pipe.on("out")) < 3 << 20
    assert len(by_file.on("out")) == 3 << 20


def test_loud_stderr_does_not_block(loop: ProcessLoop) -> None:
    """200 MB of stderr, and stdout comes in between."""
    sizes = {"out": 0, "err": 0}
    order = []

    def count(record: Record) -> None:
        if record.code in sizes:
            sizes[record.code] += len(record.data)
        if record.code == "out":
            order.append((record.data, sizes["err"] >> 20))

    loop.start(agent("loud", 200), count)
    assert loop.run(loop.clock() + LONG)
    assert sizes == {"out": len("before\nbetween\nafter\n"), "err": 200 << 20}
    assert order[1][0] == b"between\n"
    assert 90 <= order[1][1] <= 110


def test_the_prompt_is_fed(loop: ProcessLoop) -> None:
    """A prompt of 20 MB goes in while its echo comes out: neither waits for the other."""
    prompt = os.urandom(1 << 20) * 20
    output = OutputLog()
    loop.start(agent("echo", stdin=prompt), output)
    assert loop.run(loop.clock() + LONG)
    assert hashlib.sha256(output.on("out")).digest() == hashlib.sha256(prompt).digest()


@pytest.mark.parametrize(
    ("name", "stdin"), [("deaf", b"x" * (1 << 20)), ("deaf", b""), ("echo", None), ("echo", b"")]
)
def test_a_prompt_that_the_agent_does_not_read(
    loop: ProcessLoop, name: str, stdin: bytes | None
) -> None:
    """An agent may exit before reading its prompt; no prompt means empty stdin."""
    output = OutputLog()
    loop.start(agent(name, stdin=stdin), output)
    assert loop.run(loop.clock() + LONG)
    assert output.entries() == [("exit", b"", 0)]


def test_closed_streams_are_not_the_end(loop: ProcessLoop) -> None:
    """An agent that closes its streams and keeps running is followed until it exits."""
    output = OutputLog()
    loop.start(agent("mute"), output)
    assert loop.run(loop.clock() + LONG)
    assert output.entries() == [("out", b"last words\n", None), ("exit", b"", 3)]
    assert (output.records[-1].offset_seconds or 0) > 0.25


def test_many_at_once(loop: ProcessLoop) -> None:
    """Fifty runs in one loop, each with its own records."""
    all_outputs = [OutputLog() for _ in range(50)]
    for number, output in enumerate(all_outputs):
        loop.start(agent("lines", 2, 20 + number), output)
    assert len(loop.children) == 50
    assert loop.run(loop.clock() + LONG)
    assert [len(output.on("out")) for output in all_outputs] == [
        2 * (20 + number) for number in range(50)
    ]
    assert {output.records[-1].number for output in all_outputs} == {0}


def test_where_a_process_has_no_descriptor(
    loop: ProcessLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pidfd an exit is noticed by looking."""
    monkeypatch.delattr(os, "pidfd_open")
    output = OutputLog()
    loop.start(agent("mute"), output)
    assert loop.run(loop.clock() + LONG)
    assert output.entries() == [("out", b"last words\n", None), ("exit", b"", 3)]


# -- a start that fails --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (
            ProcessCommand(("no-such-agent", "-p")),
            127,
            "steno: cannot start no-such-agent: No such file or directory\n",
        ),
        (
            ProcessCommand(("sh",), cwd="/no/such/folder"),
            126,
            "steno: cannot start in /no/such/folder: No such file or directory\n",
        ),
        (ProcessCommand(("/",)), 126, "steno: cannot start /: Permission denied\n"),
        (ProcessCommand(("sh", "a\0b")), 126, "steno: cannot start sh: embedded null byte\n"),
        (
            ProcessCommand(("sh", "x" * 3_000_000), stdout="file"),
            126,
            "steno: cannot start sh: Argument list too long\n",
        ),
    ],
)
def test_what_does_not_start(
    loop: ProcessLoop, command: ProcessCommand, code: int, text: str
) -> None:
    """Reported as by a shell, as stderr text and exit code."""
    output = OutputLog()
    child = loop.start(command, output)
    child.kill("killed")
    assert output.records == []
    assert loop.run(loop.clock() + LONG)
    assert [(record.code, record.data.decode(), record.number) for record in output.records] == [
        ("err", text, None),
        ("exit", "", code),
    ]
    child.stop("timeout")
    child.kill("killed")
    assert len(output.records) == 2


def test_a_run_needs_a_plain_id(loop: ProcessLoop) -> None:
    """The id is part of the run tag, where a colon is a separator."""
    with pytest.raises(StenoError, match=r"^invalid run id 'a:b': "):
        loop.start(agent("deaf"), OutputLog(), run_id="a:b")


# -- ends that we ask for ------------------------------------------------------------------------


def test_an_interrupt_is_enough(loop: ProcessLoop) -> None:
    """An agent that closes in order gets no second signal."""
    output = OutputLog()
    child = loop.start(agent("polite"), output)
    stop_when_ready(loop, child, output, "timeout")
    assert output.entries() == [
        ("out", b"ready\n", None),
        ("stop", b"timeout", signal.SIGINT),
        ("out", b"closing\n", None),
        ("exit", b"", 0),
    ]
    assert child.orphans == []


def test_a_wrapper_that_swallows_signals(loop: ProcessLoop) -> None:
    """The interrupt reaches the real program behind it."""
    output = OutputLog()
    child = loop.start(agent("wrapper"), output)
    stop_when_ready(loop, child, output, "interrupted")
    assert output.entries()[1:] == [
        ("stop", b"interrupted", signal.SIGINT),
        ("out", b"closing\n", None),
        ("exit", b"", 0),
    ]


def test_interrupt_terminate_kill(loop: ProcessLoop) -> None:
    """A process that ignores both is killed with its child; each signal is a record."""
    output = OutputLog()
    child = loop.start(agent("stubborn"), output, grace=QUICK)
    start = time.monotonic()
    stop_when_ready(loop, child, output, "stalled")
    assert time.monotonic() - start < LONG / 2
    assert output.entries() == [
        ("out", b"ready\n", None),
        ("stop", b"stalled", signal.SIGINT),
        ("stop", b"stalled", signal.SIGTERM),
        ("stop", b"stalled", signal.SIGKILL),
        ("exit", b"", -signal.SIGKILL),
    ]
    assert [(orphan.signal, "stubborn.py" in orphan.command) for orphan in child.orphans] == [
        (signal.SIGKILL, True)
    ]


def test_the_second_request_kills(loop: ProcessLoop) -> None:
    """Asking twice is asking once; `kill` does not wait for any grace."""
    output = OutputLog()
    child = loop.start(agent("stubborn"), output)
    loop.run(loop.clock() + LONG, until=lambda: output.on("out").endswith(b"\n"))
    start = time.monotonic()
    child.stop("interrupted")
    child.stop("timeout")
    child.kill("killed")
    assert loop.run(loop.clock() + LONG)
    assert output.entries()[1:] == [
        ("stop", b"interrupted", signal.SIGINT),
        ("stop", b"interrupted", signal.SIGKILL),
        ("exit", b"", -signal.SIGKILL),
    ]
    assert time.monotonic() - start < GracePeriods().interrupt


def test_a_kill_loses_no_output(loop: ProcessLoop, tmp_path: Path) -> None:
    """What the agent had printed before it was killed is read."""
    script = "head -c 50000 /dev/zero; : > printed; exec sleep 600"
    output = OutputLog()
    child = loop.start(ProcessCommand(("sh", "-c", script), cwd=str(tmp_path)), output)
    wait_for((tmp_path / "printed").exists)
    child.kill("killed")
    assert loop.run(loop.clock() + LONG)
    assert len(output.on("out")) == 50_000


@pytest.mark.parametrize("how", [(), ("bare",)])
def test_a_daemon_goes_with_its_agent(loop: ProcessLoop, how: tuple[str, ...]) -> None:
    """A child without group, session and environment is found: the tree is read before a signal."""
    output = OutputLog()
    # Long: a SIGTERM would end the daemon while the agent lives, which lists no orphan.
    grace = GracePeriods(interrupt=LONG, quiet=QUICK.quiet)
    child = loop.start(agent("daemon", "stay", *how), output, grace=grace)
    stop_when_ready(loop, child, output, "timeout")
    daemon = int(output.on("out"))
    assert gone(daemon)
    assert daemon in [orphan.pid for orphan in child.orphans]


def test_a_taker_of_ticks_may_stop_the_run(loop: ProcessLoop) -> None:
    """Also while the run is being stopped."""
    output = OutputLog()

    def stop(record: Record) -> None:
        output(record)
        if record.code in ("out", "stop"):
            child.stop("max_budget")

    child = loop.start(agent("polite"), stop)
    assert loop.run(loop.clock() + LONG)
    assert [record.data for record in output.records if record.code == "stop"] == [b"max_budget"]


def test_leaving_the_loop_kills() -> None:
    """Leaving the loop kills running children; a failed record callback gets no more calls."""

    def fail(record: Record) -> None:
        raise RuntimeError("the disk is full")

    def run() -> None:
        with ProcessLoop() as loop:
            children.append(loop.start(agent("stubborn"), fail))
            loop.run(loop.clock() + LONG)

    children: list[ChildProcess] = []
    with pytest.raises(RuntimeError, match="the disk is full"):
        run()
    assert children[0].exit_code == -signal.SIGKILL


# -- what outlives the agent ---------------------------------------------------------------------


@pytest.mark.parametrize("stdout", ["pipe", "file"])
@pytest.mark.parametrize("arguments", [(), ("chatter",)])
def test_a_grandchild_that_keeps_stdout_open(
    loop: ProcessLoop, arguments: tuple[str, ...], stdout: str
) -> None:
    """The run finishes soon after the agent's exit, not when the last writer has exited."""
    output = OutputLog()
    child = loop.start(agent("holder", *arguments, stdout=stdout), output, grace=QUICK)
    start = time.monotonic()
    assert loop.run(loop.clock() + LONG)
    took = time.monotonic() - start
    assert took < LONG / 4
    assert output.on("out").startswith(b"done\n")
    assert output.entries()[-1] == ("exit", b"", 0)
    assert [orphan.signal for orphan in child.orphans] == [signal.SIGTERM]
    assert ("sleep 600" in child.orphans[0].command) == (not arguments)


def test_a_daemon_is_found_by_its_mark(loop: ProcessLoop) -> None:
    """No parent, no group and no session leads to it. It is listed and ended."""
    output = OutputLog()
    child = loop.start(agent("daemon"), output, grace=QUICK)
    assert loop.run(loop.clock() + LONG)
    assert child.orphans == [Orphan(int(output.on("out")), "sleep 600", signal.SIGTERM)]
    assert gone(child.orphans[0].pid)


@pytest.mark.parametrize("stdout", ["pipe", "file"])
@pytest.mark.parametrize("kept", [1, 2])
def test_a_daemon_without_our_environment_is_found_by_the_stream_that_it_holds(
    loop: ProcessLoop, stdout: str, kept: int
) -> None:
    """Two concurrent runs each stop their own; a process with read-only access is left alone."""
    output, other = OutputLog(), OutputLog()
    child = loop.start(agent("daemon", "shed", kept, stdout=stdout), output, grace=QUICK)
    next_ = loop.start(agent("daemon", "shed", kept, stdout=stdout), other, grace=QUICK)
    if reader := os.fork():
        assert loop.run(loop.clock() + LONG)
    else:  # a worker of the program that we run in, in a session of its own
        os.setsid()
        time.sleep(LONG)
        os._exit(0)
    for run, message in ((child, output), (next_, other)):
        assert run.orphans == [Orphan(int(message.on("out")), "sleep 600", signal.SIGTERM)]
        assert gone(run.orphans[0].pid)
    assert not gone(reader)
    os.kill(reader, signal.SIGKILL)
    os.waitpid(reader, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="resource limits as tags are Linux only")
@pytest.mark.parametrize("mode", ["shed", "hidden"])
def test_a_daemon_whose_environment_cannot_be_read_is_found_by_its_limits(
    loop: ProcessLoop, mode: str
) -> None:
    """`env -i`, or ssh-agent as an ordinary user: no parent, no session, no stream, no tag."""
    output, other = OutputLog(), OutputLog()
    child = loop.start(agent("daemon", mode, stdin=b"go\n"), output, grace=QUICK)
    next_ = loop.start(agent("polite"), other, grace=QUICK)  # another run, not affected
    assert loop.run(loop.clock() + LONG, until=lambda: child.is_finished)
    daemon = int(output.on("out"))
    assert [(orphan.pid, orphan.signal) for orphan in child.orphans] == [(daemon, signal.SIGTERM)]
    assert gone(daemon)
    next_.kill("killed")
    assert loop.run(loop.clock() + LONG)
    assert next_.orphans == []


@pytest.mark.skipif(sys.platform != "linux", reason="resource limits as tags are Linux only")
def test_what_a_program_starts_before_it_is_tagged_is_tagged_too() -> None:
    """The first command of a shell script may start before steno has tagged the shell."""
    tag = run_tag.RunTag("r1", *process_tree.own_identity())
    limit_tag = run_tag.LimitTag(tag)
    script = "sh -c 'env -i setsid sleep 603 & wait' & wait"
    shell = subprocess.Popen(("sh", "-c", script))

    def tags() -> list[str]:
        found = {process.pid: process for process in process_tree.list_processes()}
        members = [found[shell.pid]]
        for member in members:
            members += [other for other in found.values() if other.parent_pid == member.pid]
        return [member.run_tags for member in members]

    try:
        wait_for(lambda: len(tags()) == 3)
        limit_tag.apply(shell.pid)
        assert tags() == [f"{limit_tag.text}{tag.pid_namespace}"] * 3
    finally:
        limit_tag.release()
        for process in process_tree.list_processes():
            if "sleep 603" in process_tree.command_line_of(process.pid):
                os.kill(process.pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="ssh-agent is not installed")
def test_a_real_ssh_agent_goes_with_its_agent(loop: ProcessLoop, tmp_path: Path) -> None:
    """It leaves session and streams, and hides its environment from ordinary users."""
    output = OutputLog()
    script = f"read go; env -i ssh-agent -a {tmp_path}/socket"
    child = loop.start(ProcessCommand(("sh", "-c", script), stdin=b"go\n"), output, grace=QUICK)
    assert loop.run(loop.clock() + LONG)
    assert [orphan.signal for orphan in child.orphans] == [signal.SIGTERM]
    assert str(child.orphans[0].pid).encode() in output.on("out")
    assert gone(child.orphans[0].pid)


def test_a_process_without_environment_is_found_by_its_session(
    loop: ProcessLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where limits cannot be set: its parent is gone, the first process of its session is not."""
    monkeypatch.setattr(run_tag.LimitTag, "apply", lambda self, pid: None)
    output = OutputLog()
    lost = "sh -c 'env -i sleep 601 >/dev/null 2>&1 & echo $!'; sleep 602"
    child = loop.start(ProcessCommand(("setsid", "--wait", "sh", "-c", lost)), output, grace=QUICK)
    assert loop.run(loop.clock() + LONG, until=lambda: output.on("out").endswith(b"\n"))
    pid = int(output.on("out"))
    wait_for(lambda: process_tree.command_line_of(pid) == "sleep 601")
    child.kill("killed")
    assert loop.run(loop.clock() + LONG)
    assert pid in [orphan.pid for orphan in child.orphans]
    assert all(gone(orphan.pid) for orphan in child.orphans)


def test_limit_tags_identify_the_owner() -> None:
    """The tag of a limit reads back as a tag of the run; other limits are none."""
    tag = run_tag.RunTag("a", 4_194_303, 2**33 - 1, "3", keep_orphans=True)
    number = run_tag.LimitTag(tag)
    status = b"Name:\tx\nNSpid:\t7\nNSpgid:\t7\n"
    line = b"Max file locks %d %d locks\n" % (number._soft_limit, run_tag.HARD_LIMIT)
    text = run_tag.decode_limit_tag(line, status)
    assert number.matches(text)
    own = run_tag.parse_run_tags(text)[0]
    assert (own.steno_pid, own.steno_start_time, own.keep_orphans) == (4_194_303, 2**33 - 1, True)
    assert own.pid_namespace == run_tag.pid_namespace()
    other = run_tag.LimitTag(tag)
    assert not other.matches(text)
    number.release()
    other.release()
    assert not number.matches(text)
    nested = run_tag.decode_limit_tag(line, b"\nNSpid:\t7\t1\n")
    assert run_tag.parse_run_tags(nested)[0].pid_namespace == "?"
    for plain in (b"", b"Max file locks unlimited unlimited locks", b"Max file locks 5 9 locks"):
        assert run_tag.decode_limit_tag(plain, status) == ""
    late = run_tag.LimitTag(run_tag.RunTag("a", 1, 2**33, "3"))
    assert late.text == ""


def test_a_reused_pid_is_never_hit() -> None:
    """Also if it is reused after the check: the signal goes to the process that was checked."""
    victim = subprocess.Popen(["sleep", "603"])
    found = process_tree.start_time_of(victim.pid)
    assert found is not None
    info = run_tag.ProcessInfo(victim.pid, os.getpid(), os.getsid(0), found, "")
    earlier = run_tag.ProcessInfo(victim.pid, os.getpid(), os.getsid(0), found - 1, "")
    assert not process_tree.send_signal(earlier, signal.SIGKILL)
    assert victim.poll() is None
    sent: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: sent.append(pid))
        assert process_tree.send_signal(info, signal.SIGTERM)
        assert (sent == []) == hasattr(os, "pidfd_open")
    victim.kill()
    victim.wait()
    assert not process_tree.send_signal(info, signal.SIGTERM)


def test_what_is_meant_to_stay_stays(loop: ProcessLoop) -> None:
    """It is listed, it runs on, and no sweep takes it while or after its steno lives."""
    output = OutputLog()
    child = loop.start(agent("daemon"), output, run_id=LOST, grace=QUICK, keep_orphans=True)
    assert loop.run(loop.clock() + LONG)
    daemon = int(output.on("out"))
    assert child.orphans == [Orphan(daemon, "sleep 600", None)]
    assert terminate_orphans(LOST) == []
    assert not gone(daemon)
    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: gone(daemon))


def test_a_kill_hurries_what_outlived_the_agent(loop: ProcessLoop) -> None:
    """Neither its silence nor its grace is waited for."""
    output = OutputLog()
    child = loop.start(
        agent("holder"), output, grace=GracePeriods(terminate=LONG, quiet=LONG, drain=LONG)
    )
    assert loop.run(loop.clock() + LONG, until=lambda: child.exit_code is not None)
    assert not child.is_finished
    child.kill("killed")
    assert loop.run(loop.clock() + LONG / 2)
    assert child.orphans == [Orphan(child.orphans[0].pid, "sleep 600", signal.SIGKILL)]
    assert output.entries() == [("out", b"done\n", None), ("exit", b"", 0)]


# -- a steno that was killed ---------------------------------------------------------------------


class Host:
    """A steno that runs the daemon agent, to be killed by SIGKILL as by the OOM killer."""

    def __init__(self, how: str) -> None:
        command = [
            sys.executable,
            str(AGENTS / "steno_host.py"),
            LOST,
            how,
            sys.executable,
            str(AGENTS / "daemon.py"),
            "stay",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.daemon = int(self.process.stdout.readline().split()[1])

    def kill(self) -> None:
        """It is gone when this returns."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """A steno, and its end."""
    result = Host(request.param)
    yield result
    result.kill()


@pytest.mark.parametrize("host", ["guarded"], indirect=True)
def test_nothing_outlives_a_killed_steno(host: Host) -> None:
    """The guard ends the agent, its tree and its daemon."""
    assert len(marked(LOST)) == 3
    host.kill()
    wait_for(lambda: marked(LOST) == [])
    assert gone(host.daemon)


@pytest.mark.parametrize("host", ["unguarded"], indirect=True)
def test_the_sweep_finds_what_no_guard_ended(host: Host) -> None:
    """A steno that starts ends what one without a guard has left, and nothing of one that lives."""
    assert terminate_orphans(LOST) == []
    before = {item.pid for item in marked(LOST)}
    host.kill()
    assert {item.pid for item in marked(LOST)} == before
    swept = terminate_orphans(LOST, QUICK)
    assert {orphan.pid for orphan in swept} == before
    assert host.daemon in before
    assert terminate_orphans(LOST) == []


def test_who_becomes_another_program_is_found(tmp_path: Path) -> None:
    """During exec the environment reads as empty; the process is found all the same."""
    script = tmp_path / "again.sh"
    script.write_text('#!/bin/sh\nsleep 0.002; exec "$0"\n', encoding="utf-8")
    script.chmod(0o755)
    changing = subprocess.Popen(
        [script], env={"PATH": os.environ["PATH"], run_tag.RUN_TAG_VARIABLE: f"{LOST}:1:2:3"}
    )
    try:
        wait_for(lambda: changing.pid in [item.pid for item in marked(LOST)])
        assert (
            sum(changing.pid not in [item.pid for item in marked(LOST)] for _ in range(1_500)) == 0
        )
    finally:
        changing.kill()
        changing.wait()
    wait_for(lambda: marked(LOST) == [])


def test_marks_can_be_read_back() -> None:
    """The tag of a nested run names both runs; invalid tags are skipped."""
    outer, inner = (
        run_tag.RunTag("a", 1, 2, "3"),
        run_tag.RunTag("b", 4, 5, "6", keep_orphans=True),
    )
    text = inner.encode(outer.encode())
    assert text == "a:1:2:3,b:4:5:6:keep"
    assert run_tag.parse_run_tags(text) == [outer, inner]
    assert run_tag.parse_run_tags("x,,a:b:c:d,a:1:2,a:1:2:3:other") == []


def test_a_run_within_a_run_belongs_to_both(
    loop: ProcessLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outer steno finds what an inner one started."""
    monkeypatch.setenv(run_tag.RUN_TAG_VARIABLE, "outer:1:2:3")
    output = OutputLog()
    loop.start(
        ProcessCommand(("sh", "-c", "echo $STENO_RUN"), env={"PATH": os.environ["PATH"]}),
        output,
        run_id="inner",
    )
    assert loop.run(loop.clock() + LONG)
    assert [item.run_id for item in run_tag.parse_run_tags(output.on("out").decode().strip())] == [
        "outer",
        "inner",
    ]


def test_other_systems_see_the_same(loop: ProcessLoop) -> None:
    """psutil, which serves where there is no /proc, finds the same people."""
    output = OutputLog()
    child = loop.start(agent("stubborn"), output, run_id="seen-twice")
    loop.run(loop.clock() + LONG, until=lambda: output.on("out").endswith(b"\n"))
    ours = {(item.pid, item.parent_pid, item.sid, item.run_tags) for item in marked("seen-twice")}
    theirs = [item for item in psutil_backend.iter_processes() if "seen-twice:" in item.run_tags]
    assert {(item.pid, item.parent_pid, item.sid, item.run_tags) for item in theirs} == ours
    assert len(ours) == 2
    for item in theirs:
        assert psutil_backend.start_time_of(item.pid) == item.start_time
        assert psutil_backend.command_line_of(item.pid) == process_tree.command_line_of(item.pid)
        assert psutil_backend.is_own_process(item.pid) is process_tree.is_own_process(item) is True
    child.kill("killed")
    assert loop.run(loop.clock() + LONG)
    assert [psutil_backend.start_time_of(item.pid) for item in theirs] == [None, None]
    assert (
        psutil_backend.command_line_of(theirs[0].pid),
        psutil_backend.is_own_process(theirs[0].pid),
    ) == (
        "",
        False,
    )


# -- clocks --------------------------------------------------------------------------------------


class Leap:
    """A clock that shows whatever it was set to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Leaping(selectors.DefaultSelector):
    """If nothing is ready, the timeout passes at once; the clock stands still until `leaps`."""

    def __init__(self, clock: Leap, leaps: bool = True) -> None:
        super().__init__()
        self.clock, self.leaps = clock, leaps

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if self.leaps else timeout)
        if self.leaps and not ready and timeout is not None:
            self.clock.now += timeout
        return ready


def test_timers_by_a_clock_that_leaps() -> None:
    """A day passes at once; the order is that of the times, cancelled ones never come."""
    clock = Leap()
    message: list[tuple[str, float]] = []
    with ProcessLoop(clock, Leaping(clock)) as loop:
        loop.call_later(86_400, lambda: message.append(("day", clock.now)))
        loop.call_at(1060.0, lambda: message.append(("minute", clock.now)))
        loop.call_at(1060.0, lambda: message.append(("the same minute", clock.now)))
        loop.call_later(30, lambda: message.append(("never", clock.now))).cancel()
        loop.call_soon(lambda: message.append(("soon", clock.now)))
        assert not loop.run(until=lambda: False, deadline=1000.0 + 2 * 86_400)
    assert message == [
        ("soon", 1000.0),
        ("minute", 1060.0),
        ("the same minute", 1060.0),
        ("day", 87_400.0),
    ]
    assert clock.now == 1000.0 + 2 * 86_400


def test_grace_by_a_clock_that_leaps() -> None:
    """An hour of grace takes no time in a test: all waits go through the selector."""
    clock = Leap()
    selector = Leaping(clock, leaps=False)
    output = OutputLog()
    with ProcessLoop(clock, selector) as loop:
        child = loop.start(
            agent("stubborn"),
            output,
            grace=GracePeriods(interrupt=3600.0, terminate=3600.0, kill=1e6),
        )
        assert loop.run(until=lambda: output.on("out").endswith(b"\n"))
        selector.leaps = True
        child.stop("timeout")
        assert loop.run()
    assert [
        (round(record.offset_seconds or 0, 3), record.number)
        for record in output.records
        if record.code == "stop"
    ] == [
        (0.0, signal.SIGINT),
        (3600.0, signal.SIGTERM),
        (7200.0, signal.SIGKILL),
    ]


class Suspended(selectors.DefaultSelector):
    """The process is stopped for 100 s in the first wait, whose time is over when it continues."""

    def __init__(self, clock: Leap) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.clock.now == Leap.now:
            self.clock.now += 100.0
            return []
        return super().select(timeout)


def test_after_a_suspension_a_pipe_is_read_before_a_timer_is_due() -> None:
    """Without a handler of SIGCONT: all but the second for which it would have waited counts."""
    clock = Leap()
    loop = EventLoop(clock, Suspended(clock))
    reader, writer = os.pipe()
    order: list[str] = []
    loop.watch(reader, lambda: order.append(os.read(reader, 9).decode()))
    loop.call_later(30.0, lambda: order.append("timer"))
    os.write(writer, b"output")
    loop.step()
    loop.step()
    assert (order, loop.suspended_seconds) == (["output", "timer"], 99.0)
    loop.close()
    os.close(reader)
    os.close(writer)


def test_soon_wakes_the_loop() -> None:
    """Another thread and a signal handler can reach a loop that waits for nothing else."""
    message: list[str] = []
    with ProcessLoop() as loop:
        threading.Timer(0.05, lambda: loop.call_soon(lambda: message.append("thread"))).start()
        assert loop.run(loop.clock() + LONG, until=lambda: message == ["thread"])
        before = signal.signal(
            signal.SIGUSR1, lambda number, frame: loop.call_soon(lambda: message.append("signal"))
        )
        try:
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            assert loop.run(loop.clock() + LONG, until=lambda: message == ["thread", "signal"])
        finally:
            signal.signal(signal.SIGUSR1, before)
    loop.close()


# -- many runs ------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_end_of_a_run_reads_no_older_process(
    loop: ProcessLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    stat_fields = process_tree._stat_fields

    def count(pid: int) -> list[bytes]:
        read.append(pid)
        return stat_fields(pid)

    monkeypatch.setattr(process_tree, "_stat_fields", count)
    older = [subprocess.Popen(["sleep", "60"]) for _ in range(5)]
    try:
        child = loop.start(ProcessCommand(("true",)), OutputLog())
        loop.run()
    finally:
        for process in older:
            process.kill()
            process.wait()
    assert child.pid is not None
    assert child.pid in read
    assert [pid for pid in read if pid < child.pid] == []


def test_pids_show_which_process_is_younger_until_they_can_have_wrapped() -> None:
    point = process_tree.StartPoint(pid=1000, forks=5000)
    highest = process_tree._pid_max()
    if highest:  # else this system has no /proc
        assert [point.is_before(pid, 5010) for pid in (999, 1000, 1001)] == [False, True, True]
    assert point.is_before(999, 5000 + highest)  # unknown: it has to be read
    assert point.is_before(999, 0)
    assert process_tree.StartPoint().is_before(1, 5000)


def test_loops_share_one_watchdog_and_survive_the_failure_of_one(loop: ProcessLoop) -> None:
    errors: list[Exception] = []
    failing = ProcessLoop(parent=loop, on_error=errors.append)
    other = ProcessLoop(parent=loop, on_error=errors.append)

    def fail(record: Record) -> None:
        raise ValueError(record.code)

    heard = OutputLog()
    failing.start(ProcessCommand(("true",)), fail)
    other.start(ProcessCommand(("echo", "hello")), heard)
    loop.run(until=lambda: not (failing.children or other.children))
    assert [str(error) for error in errors] == ["exit"]
    assert heard.entries() == [("out", b"hello\n", None), ("exit", b"", 0)]
    failing.close()
    assert loop._watchdog is not None  # until the loop itself is closed
