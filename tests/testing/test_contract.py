"""`steno.testing`: our own agents keep the contract on every recording, and whoever breaks it is caught."""

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
    found = testing.check(AGENTS[folder.parent.name], folder)
    assert found == len(list(folder.glob("*/stdout"))) > 0


def test_all_our_agents_have_recordings() -> None:
    assert {folder.parent.name for folder in FOLDERS} == set(AGENTS)


def test_a_folder_without_recordings_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no recording below this folder"):
        testing.cases(tmp_path)


# -- whoever breaks it is caught ---------------------------------------------------------------------------------------


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The example, which keeps the contract."""
    monkeypatch.syspath_prepend(str(PARROT / "src"))
    import steno_parrot  # type: ignore[import-not-found]

    agent: Agent = steno_parrot.AGENT
    return agent


def changed(agent: Agent, change: Callable[[list[ev.Event], bytes, int], list[ev.Event]]) -> Agent:
    """The agent with a reader whose events are changed before they are handed on."""
    own: Any = agent.reader

    class Reader(own):  # type: ignore[misc]
        def read(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
            return change(super().read(data, number, at), data, number)

        def salvage(self, data: bytes, number: int, at: datetime | None = None) -> list[ev.Event]:
            return change(super().salvage(data, number, at), data, number)

    return msgspec.structs.replace(agent, reader=Reader)


def case(name: str) -> testing.Case:
    return testing.Case(PARROT / "recordings" / "1.0" / name, name)


def test_the_example_keeps_it(parrot: Agent) -> None:
    assert testing.check(parrot, PARROT / "recordings") == 6


def test_counters_below_nought(parrot: Agent) -> None:
    def negative(found: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [
            msgspec.structs.replace(one, input=-4) if isinstance(one, ev.Usage) else one
            for one in found
        ]

    with pytest.raises(
        AssertionError, match=r"repeats: its report: tokens: a counter is negative: input -4"
    ):
        testing.check_case(changed(parrot, negative), case("repeats"))


def test_reasoning_beyond_output(parrot: Agent) -> None:
    def deep(found: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [
            msgspec.structs.replace(one, reasoning=99) if isinstance(one, ev.Usage) else one
            for one in found
        ]

    told = list(check_figures(changed(parrot, deep), case("repeats").folder))
    assert told == ["reasoning (99) is a part of output (8), and more than that"]


def test_a_line_that_is_swallowed(parrot: Agent) -> None:
    """What is not known must be told: an empty list is a line lost."""

    def swallow(found: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [one for one in found if not isinstance(one, ev.Unknown)]

    told = testing.violations(changed(parrot, swallow), case("repeats"))
    assert told == [
        "repeats: a line of a kind that nobody knows must be one `Unknown`; 0 were counted"
    ]


def test_a_reader_that_raises(parrot: Agent) -> None:
    def strict(found: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        if any(isinstance(one, ev.Unknown) for one in found):
            raise KeyError("parrot")
        return found

    told = testing.violations(changed(parrot, strict), case("repeats"))
    assert any(
        "read raised KeyError: 'parrot'; only decode.MISFIT may be raised." in one for one in told
    )


def test_a_reader_that_depends_on_something_else(parrot: Agent) -> None:
    """Live is replay: not on how often it was called, not on the time."""
    calls = iter(range(10_000))

    def counted(found: list[ev.Event], data: bytes, number: int) -> list[ev.Event]:
        return [
            msgspec.structs.replace(one, text=f"{next(calls)}") if isinstance(one, ev.Text) else one
            for one in found
        ]

    told = testing.violations(changed(parrot, counted), case("repeats"))
    assert sum("its report differs: text is" in one for one in told) == 5
    assert any("expected.json does not hold: text is" in one for one in told)


def test_lines_that_belong_to_others(parrot: Agent, tmp_path: Path) -> None:
    """Sniffing: nobody takes them for those of a built-in agent, and its own test knows them."""
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "stdout").write_bytes(b'{"parrot":"wakes","type":"thread.started"}\n')
    told = testing.violations(parrot, testing.Case(folder, "mine"))
    assert told == [
        'mine: its line would be taken for one of codex: {"parrot": "wakes", "type": "thread.started"}'
    ]
    blind = msgspec.structs.replace(parrot, looks_like=lambda line: False)
    told = testing.violations(blind, case("repeats"))
    assert [one.partition(" lines, such as")[0] for one in told] == [
        "repeats: looks_like knows none of its first 3"
    ]


STARTS: dict[str, tuple[Callable[[LaunchOptions, str, str | None], LaunchCommand], str]] = {
    "shell": (
        lambda ask, program, version: LaunchCommand(("sh", "-c", f"{program} '{ask.prompt}'")),
        "it is started by a shell",
    ),
    "no prompt": (
        lambda ask, program, version: LaunchCommand((program,)),
        "the prompt is neither on stdin nor one whole word of argv",
    ),
    "no words": (
        lambda ask, program, version: LaunchCommand(program),  # type: ignore[arg-type]
        "argv must be a tuple of words",
    ),
    "no model": (
        lambda ask, program, version: LaunchCommand((program,), ask.prompt.encode()),
        "model was asked for and is nowhere",
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_starts(parrot: Agent, name: str) -> None:
    start, told = STARTS[name]
    with pytest.raises(AssertionError, match=told):
        testing.check_start(launching(parrot, build_command=start))


def test_a_key_in_the_command_line(parrot: Agent) -> None:
    import os

    def leaky(ask: LaunchOptions, program: str, version: str | None) -> LaunchCommand:
        return LaunchCommand((program, "--key", os.environ["PARROT_KEY"]), ask.prompt.encode())

    with pytest.raises(AssertionError, match="a key from the environment is in argv"):
        testing.check_start(launching(parrot, build_command=leaky))
    assert "PARROT_KEY" not in os.environ


def test_a_word_that_nobody_asks(parrot: Agent) -> None:
    with pytest.raises(AssertionError, match="`cannot` names what nobody asks: max_turn"):
        testing.check_start(
            launching(parrot, unsupported_options=(*parrot.launch.unsupported_options, "max_turn"))
        )


def test_a_backend_whose_key_is_told_to_all(parrot: Agent) -> None:
    def leaky(ask: LaunchOptions, program: str, version: str | None) -> LaunchCommand:
        words = [program, ask.model or "", *ask.extra]
        if ask.backend is not None:
            words += [ask.backend.url, ask.backend.key]
        return LaunchCommand(tuple(words), ask.prompt.encode())

    with pytest.raises(
        AssertionError, match="for the backend ollama: a key from the environment is in argv"
    ):
        testing.check_start(launching(parrot, build_command=leaky, backends=("ollama",)))


def test_a_session_that_it_would_not_know_again(parrot: Agent) -> None:
    strict = msgspec.structs.replace(parrot, is_session_id=lambda text: text.isdigit())
    with pytest.raises(
        AssertionError, match="is_session does not know 'parrot-0a1b2c3d', which it returned itself"
    ):
        testing.check_start(strict, ("parrot-0a1b2c3d",))


def test_every_check_has_its_sentence() -> None:
    assert all(check.__doc__ for check in CHECKS)
