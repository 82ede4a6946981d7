"""`steno.testing`: the built-in agents keep the contract, and violations are detected."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steno import event as ev
from steno import testing
from steno.agents import AGENTS
from steno.agents.base import Agent, LaunchCommand, LaunchOptions
from steno.errors import SourceError
from steno.testing.checks import CHECKS, check_figures
from tests.golden import ROOT

FOLDERS = [folder for name in AGENTS for folder in sorted((ROOT / name).iterdir())]
PARROT = Path(__file__).parents[2] / "examples" / "parrot"


def launching(agent: Agent, **changes: Any) -> Agent:
    """The agent with other launch settings."""
    launch = msgspec.structs.replace(agent.launch, **changes)
    return msgspec.structs.replace(agent, launch=launch)


@pytest.mark.parametrize(
    "folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}"
)
def test_our_own_agents_keep_the_contract(folder: Path) -> None:
    count = testing.check(AGENTS[folder.parent.name], folder)
    assert count == len(list(folder.glob("*/stdout"))) > 0


def test_all_our_agents_have_recordings() -> None:
    assert {folder.parent.name for folder in FOLDERS} == set(AGENTS)


def test_a_folder_without_recordings_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no recordings below this folder"):
        testing.cases(tmp_path)


# -- violations --------------------------------------------------------------------------------


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The example agent, which keeps the contract."""
    monkeypatch.syspath_prepend(str(PARROT / "src"))
    import steno_parrot  # type: ignore[import-not-found]  # on the path set above

    agent: Agent = steno_parrot.AGENT
    return agent


def changed(agent: Agent, change: Callable[[list[ev.Event], bytes, int], list[ev.Event]]) -> Agent:
    """The agent with a reader whose events are changed."""
    base: Any = agent.reader

    class Reader(base):  # type: ignore[misc]  # a base that is only known at run time
        def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
            return change(super().read(data, number, at), data, number)

        def read_lenient(
            self, data: bytes, number: int, at: datetime | None = None
        ) -> list[ev.Event]:
            return change(super().read_lenient(data, number, at), data, number)

    return msgspec.structs.replace(agent, reader=Reader)


def case(name: str) -> testing.Case:
    return testing.Case(PARROT / "recordings" / "1.0" / name, name)


def test_the_example_keeps_it(parrot: Agent) -> None:
    assert testing.check(parrot, PARROT / "recordings") == 6


def test_negative_counters(parrot: Agent) -> None:
    def negative(events: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [
            msgspec.structs.replace(event, input=-4) if isinstance(event, ev.Usage) else event
            for event in events
        ]

    with pytest.raises(
        AssertionError, match=r"repeats: report: tokens: negative counters: input -4"
    ):
        testing.check_case(changed(parrot, negative), case("repeats"))


def test_reasoning_beyond_output(parrot: Agent) -> None:
    def deep(events: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [
            msgspec.structs.replace(event, reasoning=99) if isinstance(event, ev.Usage) else event
            for event in events
        ]

    messages = list(check_figures(changed(parrot, deep), case("repeats").folder))
    assert messages == ["reasoning (99) exceeds output (8), which must include it"]


def test_a_line_that_is_swallowed(parrot: Agent) -> None:
    """An unknown line must give an event: an empty list loses it."""

    def swallow(events: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [event for event in events if not isinstance(event, ev.Unknown)]

    messages = testing.violations(changed(parrot, swallow), case("repeats"))
    assert messages == [
        "repeats: a line of an unknown kind must give one `Unknown` event, but gave 0"
    ]


def test_a_reader_that_raises(parrot: Agent) -> None:
    def strict(events: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        if any(isinstance(event, ev.Unknown) for event in events):
            raise KeyError("parrot")
        return events

    messages = testing.violations(changed(parrot, strict), case("repeats"))
    assert any(
        "read raised KeyError: 'parrot'; allowed: decode.DECODE_ERRORS." in message
        for message in messages
    )


def test_a_reader_that_depends_on_something_else(parrot: Agent) -> None:
    """Events must not depend on the number of calls or on the time."""
    calls = iter(range(10_000))

    def counted(events: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [
            msgspec.structs.replace(event, text=f"{next(calls)}")
            if isinstance(event, ev.Text)
            else event
            for event in events
        ]

    messages = testing.violations(changed(parrot, counted), case("repeats"))
    assert sum("the report differs: text is" in message for message in messages) == 5
    assert any("the report differs from expected.json: text is" in text for text in messages)


def test_lines_that_belong_to_others(parrot: Agent, tmp_path: Path) -> None:
    """Lines must not be detected as a built-in agent's, and looks_like must accept them."""
    folder = tmp_path / "case"
    folder.mkdir()
    line = b'{"parrot":"wakes","type":"thread.started","thread_id":"x"}'
    (folder / "stdout").write_bytes(line + b"\n")
    messages = testing.violations(parrot, testing.Case(folder, "mine"))
    assert messages == [
        'mine: a line is detected as one of codex: {"parrot": "wakes", "type": "thread.started", '
        '"thread_id": "x"}'
    ]
    blind = msgspec.structs.replace(parrot, looks_like=lambda line: False)
    messages = testing.violations(blind, case("repeats"))
    assert [message.partition(" lines, such as")[0] for message in messages] == [
        "repeats: looks_like accepts none of the first 3"
    ]


STARTS: dict[str, tuple[Callable[[LaunchOptions, str, str | None], LaunchCommand], str]] = {
    "shell": (
        lambda options, program, version: LaunchCommand(
            ("sh", "-c", f"{program} '{options.prompt}'")
        ),
        "the command uses a shell",
    ),
    "no prompt": (
        lambda options, program, version: LaunchCommand((program,)),
        "the prompt is neither on stdin nor an argument of its own",
    ),
    "no words": (
        # A str in place of a tuple, on purpose.
        lambda options, program, version: LaunchCommand(program),  # type: ignore[arg-type]
        "argv must be a tuple of strings",
    ),
    "no session": (
        lambda options, program, version: LaunchCommand(
            (program, options.model or "", *options.extra), options.prompt.encode()
        ),
        "resume: the option changes nothing in the command; an option that the agent does not have "
        "belongs in `unsupported_options`\n"
        "  resume: '123e4567-e89b-42d3-a456-426614174000' is missing in the command",
    ),
    "another session": (
        lambda options, program, version: LaunchCommand(
            (program, options.model or "", "--last" * bool(options.resume), *options.extra),
            options.prompt.encode(),
        ),
        "resume: '123e4567-e89b-42d3-a456-426614174000' is missing in the command",
    ),
    "no model": (
        lambda options, program, version: LaunchCommand((program,), options.prompt.encode()),
        "model: 'steno-testing-model' is missing in the command",
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_starts(parrot: Agent, name: str) -> None:
    start, message = STARTS[name]
    with pytest.raises(AssertionError, match=message):
        testing.check_start(launching(parrot, build_command=start))


def test_a_key_in_the_command_line(parrot: Agent) -> None:
    import os

    def leaky(options: LaunchOptions, program: str, version: str | None) -> LaunchCommand:
        return LaunchCommand((program, "--key", os.environ["PARROT_KEY"]), options.prompt.encode())

    with pytest.raises(AssertionError, match="argv contains a key"):
        testing.check_start(launching(parrot, build_command=leaky))
    assert "PARROT_KEY" not in os.environ


def test_an_unknown_option(parrot: Agent) -> None:
    with pytest.raises(
        AssertionError, match="`unsupported_options` contains unknown options: max_turn"
    ):
        testing.check_start(
            launching(parrot, unsupported_options=(*parrot.launch.unsupported_options, "max_turn"))
        )


def test_a_backend_whose_key_is_in_the_command_line(parrot: Agent) -> None:
    def leaky(options: LaunchOptions, program: str, version: str | None) -> LaunchCommand:
        argv = [program, options.model or "", *options.extra]
        if options.backend is not None:
            argv += [options.backend.url, options.backend.key]
        return LaunchCommand(tuple(argv), options.prompt.encode())

    with pytest.raises(AssertionError, match="backend ollama: argv contains a key"):
        testing.check_start(launching(parrot, build_command=leaky, backends=("ollama",)))


def test_a_session_id_that_it_rejects(parrot: Agent) -> None:
    strict = msgspec.structs.replace(parrot, is_session_id=lambda text: text.isdigit())
    with pytest.raises(
        AssertionError,
        match="is_session_id rejects 'parrot-0a1b2c3d', which the agent itself returned",
    ):
        testing.check_start(strict, ("parrot-0a1b2c3d",))


def test_every_check_has_a_docstring() -> None:
    assert all(check.__doc__ for check in CHECKS)
