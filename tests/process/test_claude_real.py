"""The real Claude Code, run by our loop with a scripted model. Needs `make cli`."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno
from steno.process import ChildProcess, GracePeriods, ProcessCommand, ProcessLoop, process_tree
from steno.process import run_tag as mark
from steno.recording.format import Record, record_to_events
from tests.support import claude
from tests.support.modelserver import Answer, Call, Fault, ModelServer, Usage, call, say

LONG = 120.0  # seconds; a run takes about two
FIRST, SECOND = Usage(3, 1001, 20_000, 101), Usage(5, 1002, 21_000, 102)
STDOUT = {"2.1.197": "file", "2.1.325": "pipe"}  # older ones were seen to lose the end on a pipe

pytestmark = pytest.mark.parametrize("version", claude.VERSIONS)


class Run:
    """A run of the real program, read while it goes on."""

    def __init__(
        self,
        loop: ProcessLoop,
        folder: Path,
        version: str,
        server: ModelServer,
        *flags: str,
        prompt: bytes | None = None,
    ) -> None:
        home, self.work = folder / "home", folder / "work"
        home.mkdir()
        self.work.mkdir()
        self.reading, self.ticks = steno.RunParser(input_format="stream"), list[Record]()
        said = () if prompt is not None else ("Do the work.",)
        argv = (
            claude.installed(version),
            "-p",
            *said,
            "--output-format",
            "stream-json",
            "--verbose",
            *flags,
        )
        command = ProcessCommand(
            argv, str(self.work), claude.clean_env(home, server.url), prompt, STDOUT[version]
        )
        self.child: ChildProcess = loop.start(
            command, self._take, grace=GracePeriods(interrupt=20.0)
        )

    def _take(self, tick: Record) -> None:
        self.ticks.append(tick)
        if tick.code == "out":
            self.reading.feed(tick.data)
        elif tick.code != "err":
            self.reading.add_events(record_to_events(tick, None))
        if tick.code == "exit":
            self.reading.close()

    @property
    def out(self) -> bytes:
        """All of stdout so far."""
        return b"".join(tick.data for tick in self.ticks if tick.code == "out")

    @property
    def report(self) -> steno.Report:
        """What it adds up to so far."""
        return self.reading.report()


@pytest.fixture
def loop() -> Iterator[ProcessLoop]:
    """A loop of our own; afterwards nothing is left of what it started."""
    with ProcessLoop() as loop:
        yield loop
    assert [
        one
        for one in process_tree.list_processes()
        if os.getpid() in [found.steno_pid for found in mark.parse_run_tags(one.run_tags)]
    ] == []


def test_a_simple_run(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    """It succeeds, and the figures are the model's."""
    with ModelServer(say("All is well.", usage=FIRST)) as server:
        run = Run(loop, tmp_path, version, server)
        assert loop.run(loop.clock() + LONG)
        report = run.report
        assert (report.verdict, report.text, report.exit_code, report.agent_version) == (
            "success",
            "All is well.",
            0,
            version,
        )
        tokens = report.tokens
        assert (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output) == (
            3,
            1001,
            20_000,
            101,
        )
        assert report.context.used == 3 + 1001 + 20_000
        assert run.child.orphans == []
        assert [request.step for request in server.asked] == [0]
        assert any("Do the work." in text for text in server.asked[0].texts())


def test_a_large_prompt_goes_by_stdin(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    """More than an argument can hold reaches the model whole."""
    prompt = "Repeat after me. " + "word " * 60_000 + "END OF PROMPT"
    with ModelServer(say("I will.", usage=FIRST)) as server:
        run = Run(loop, tmp_path, version, server, prompt=prompt.encode())
        assert loop.run(loop.clock() + LONG)
        assert run.report.verdict == "success"
        assert any(prompt in text for text in server.asked[0].texts())


def test_a_large_answer_is_not_cut(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    """Versions up to 2.1.197 lose unread pipe output at exit; output to a file is complete."""
    answer = "A long story. " * 200_000
    with ModelServer(say(answer, usage=FIRST)) as server:
        run = Run(loop, tmp_path, version, server)
        assert loop.run(loop.clock() + LONG)
    report = run.report
    assert (report.verdict, report.complete, report.lines.torn) == ("success", True, False)
    assert report.result is not None
    assert report.result.strip() == answer.strip()


def test_a_tool_call(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    """A command is run where it should be, and two requests are counted once each."""
    command = Call("Bash", {"command": "echo made > made.txt", "description": "make a file"})
    with ModelServer(Answer((command,), FIRST), say("It is made.", usage=SECOND)) as server:
        run = Run(loop, tmp_path, version, server, "--dangerously-skip-permissions")
        assert loop.run(loop.clock() + LONG)
        report = run.report
        assert (run.work / "made.txt").read_text() == "made\n"
        assert (report.verdict, report.text, report.requests) == ("success", "It is made.", 2)
        assert [(tool.name, tool.kind, tool.ok) for tool in report.tools] == [
            ("Bash", "shell", True)
        ]
        tokens = report.tokens
        assert (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output) == (
            8,
            2003,
            41_000,
            203,
        )
        assert report.context.used == 5 + 1002 + 21_000
        assert "tool_result" in str(server.asked[1].body["messages"])


def test_a_rejected_key(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    """It calls itself a success; it is none."""
    fault = Fault(401, "authentication_error", "invalid x-api-key", {"x-should-retry": "false"})
    with ModelServer(fault) as server:
        run = Run(loop, tmp_path, version, server)
        assert loop.run(loop.clock() + LONG)
    assert (run.report.verdict, run.report.subtype, run.report.exit_code) == ("auth", "success", 1)


def test_no_credit(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    fault = Fault(400, "invalid_request_error", "Your credit balance is too low.")
    with ModelServer(fault) as server:
        run = Run(loop, tmp_path, version, server)
        assert loop.run(loop.clock() + LONG)
    assert (run.report.verdict, run.report.exit_code) == ("billing", 1)


def test_a_full_window(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    with ModelServer(say("So I", stop="model_context_window_exceeded")) as server:
        run = Run(loop, tmp_path, version, server)
        assert loop.run(loop.clock() + LONG)
    assert (run.report.verdict, run.report.exit_code) == ("context_full", 1)


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"])
def test_a_hook_that_halts_the_run(
    loop: ProcessLoop, tmp_path: Path, version: str, event: str
) -> None:
    """It exits with 0 and calls itself a success."""
    command = """echo '{"continue": false, "stopReason": "not today"}'"""
    hooks = {event: [{"hooks": [{"type": "command", "command": command}]}]}
    flags = ("--dangerously-skip-permissions", "--settings", json.dumps({"hooks": hooks}))
    first = say("Done.") if event == "Stop" else call("Bash", command="true", description="Run")
    with ModelServer(first, say("Done.")) as server:
        run = Run(loop, tmp_path, version, server, *flags)
        assert loop.run(loop.clock() + LONG)
        assert len(server.asked) == (event != "UserPromptSubmit")
    report = run.report
    assert (report.verdict, report.subtype, report.exit_code) == ("stopped", "success", 0)


def test_a_hook_that_denies_a_call(loop: ProcessLoop, tmp_path: Path, version: str) -> None:
    hook = {"type": "command", "command": "echo no >&2; exit 2"}
    settings = {"hooks": {"PreToolUse": [{"hooks": [hook]}]}}
    flags = ("--dangerously-skip-permissions", "--settings", json.dumps(settings))
    asked = call("Bash", command="true", description="Run")
    with ModelServer(asked, say("It was denied.")) as server:
        run = Run(loop, tmp_path, version, server, *flags)
        assert loop.run(loop.clock() + LONG)
    assert run.report.verdict == "permission"
    assert [denial.tool for denial in run.report.denials] == ["Bash"]


def test_an_interrupt_while_the_stream_stalls(
    loop: ProcessLoop, tmp_path: Path, version: str
) -> None:
    """One signal is enough, within its grace, and nothing is left."""
    with ModelServer(say("Thinking about it. " * 5, usage=FIRST, stall_after=4)) as server:
        run = Run(loop, tmp_path, version, server, "--include-partial-messages")
        assert loop.run(
            loop.clock() + LONG, until=lambda: b"text_delta" in run.out or run.child.is_finished
        )
        run.child.stop("stalled")
        assert loop.run(loop.clock() + LONG)
    assert [(tick.data, tick.number) for tick in run.ticks if tick.code == "stop"] == [
        (b"stalled", signal.SIGINT)
    ]
    assert (run.report.verdict, run.child.orphans) == ("stalled", [])


def test_a_command_in_a_session_of_its_own_ends_with_the_run(
    loop: ProcessLoop, tmp_path: Path, version: str
) -> None:
    """Killing the agent also kills its command, which is in another process group."""
    command = "echo $$ > pid.txt; while true; do read -t 1 x < /dev/zero; done"
    with ModelServer(
        call("Bash", command=command, description="never ends"), say("Done.")
    ) as server:
        run = Run(loop, tmp_path, version, server, "--dangerously-skip-permissions")
        pid = run.work / "pid.txt"
        until = loop.clock() + LONG
        while not (pid.exists() and pid.read_text()) and loop.clock() < until:
            loop.step(loop.clock() + 0.1)
        shell = int(pid.read_text())
        assert os.getsid(shell) != run.child.pid
        run.child.kill("killed")
        assert loop.run(loop.clock() + LONG)
    assert process_tree.start_time_of(shell) is None
    assert shell in [orphan.pid for orphan in run.child.orphans]
    assert (run.child.exit_code, run.report.verdict) == (-signal.SIGKILL, "killed")
