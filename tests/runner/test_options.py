"""Options for all agents: each is passed on, enforced by steno, or refused before the start.

The agents are scripted programs that record their arguments; no table is trusted.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import steno
from steno import RunOptions
from steno.agents import AGENTS
from steno.agents.base import OPTION_FIELDS, Transcripts, option_support
from steno.errors import StenoError
from steno.runner.attempt import NO_LIVE_USAGE
from steno.runner.prepare import prepare_task
from tests.support.scripted_place import Json, Place

UUID = "0f0f0f0f-1111-4222-8333-444444444444"
SESSIONS = {"opencode": "ses_0123456789abcdef"}
SCHEMA = (
    '{"type":"object","properties":{"age":{"type":"integer"}},'
    '"required":["age"],"additionalProperties":false}'
)
SERVERS = '{"mcpServers":{"marked":{"command":"true"}}}'
# A value for each option, and the arguments expected for it; None: any change will do.
GIVEN: dict[str, tuple[Any, str | None]] = {
    "model": ("marked-model", "marked-model"),
    "session_id": (UUID, UUID),
    "resume": (UUID, UUID),
    "fork": (True, None),
    "continue_": (True, None),
    "max_turns": (7, "7"),
    "max_cost": (0.73, "0.73"),
    "permission_mode": ("plan", None),
    "allow": (["marked_allow"], "marked_allow"),
    "deny": (["marked_deny"], "marked_deny"),
    "system_prompt": ("Be marked.", "Be marked."),
    "add_dirs": (["marked_dir"], "marked_dir"),
    "mcp_config": ([SERVERS], "marked"),
    "json_schema": (SCHEMA, "schema"),
    "fallback_model": ("marked-model", "marked-model"),
    "steer": (True, None),
}
PAIRS = [(agent, option) for agent in AGENTS for option in OPTION_FIELDS]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """This very process is in the place."""
    result = Place(tmp_path)
    result.enter(monkeypatch)
    (result.work / "marked_dir").mkdir()
    result.plan({"out": ""})
    return result


def asked(place: Place, agent: str, option: str | None = None, **more: Any) -> RunOptions:
    """Arguments of the library call: an agent, an option, and what that option requires."""
    value: Any = {"agent": agent, "program": str(place.program), "attempts": 1, **more}
    if option in ("resume", "fork"):
        value["resume"] = SESSIONS.get(agent, UUID)
    if option is not None and option != "resume":
        value[option] = GIVEN[option][0]
    return value  # type: ignore[no-any-return]  # an option for each name of the table


def started(place: Place, agent: str, option: str | None = None) -> Json:
    """How the agent was started."""
    before = len(place.calls)
    place.plan(
        {"out": "", "unread": option == "steer"}
    )  # whoever takes messages keeps its stdin open
    steno.run("Do it.", **asked(place, agent, option))
    assert len(place.calls) > before
    return place.calls[before]


def heard(call: Json) -> list[str]:
    """All that the agent was given, without what differs from one start to the next."""
    return [
        word for word in (*call["argv"], call["prompt"]) if word.count("-") != 4 or word == UUID
    ]


def test_every_option_is_in_the_table() -> None:
    """A launch option missing in this table would be ignored silently."""
    from steno.agents import LaunchOptions

    assert set(GIVEN) == set(OPTION_FIELDS)
    # With tests of their own: tests/agents/test_backend.py, tests/web/test_permission_real.py.
    elsewhere = {"backend", "permission_relay"}
    assert (
        set(OPTION_FIELDS.values())
        == set(LaunchOptions.__struct_fields__) - {"prompt", "partial", "extra"} - elsewhere
    )
    for agent in AGENTS.values():
        assert set(agent.launch.unsupported_options) <= set(LaunchOptions.__struct_fields__)


@pytest.mark.parametrize(
    ("agent", "option"), PAIRS, ids=[f"{agent}-{option}" for agent, option in PAIRS]
)
def test_it_arrives_is_held_or_is_refused(place: Place, agent: str, option: str) -> None:
    who = option_support(AGENTS[agent], option)
    mark = GIVEN[option][1] if option != "resume" else SESSIONS.get(agent, UUID)
    if who == "no":
        with pytest.raises(StenoError, match=rf"^{option}: not supported by {agent}$"):
            steno.run("Do it.", **asked(place, agent, option))
        assert (place.calls, place.data.exists()) == ([], False)
    elif who == "agent":
        call = started(place, agent, option)
        if mark is not None:
            assert [word for word in call["argv"] if mark in word], call["argv"]
        else:
            assert heard(call) != heard(
                started(place, agent, "resume" if option == "fork" else None)
            )
    elif option == "json_schema":
        call = started(place, agent, option)
        assert SCHEMA in call["prompt"]
        assert SCHEMA not in " ".join(call["argv"])
    else:
        setup = prepare_task(
            "Do it.",
            asked(place, agent, option, on_limit="fallback", fallback_model="marked-model"),
        ).setup
        held = {
            "max_cost": setup.budget.cost,
            "max_turns": setup.budget.turns,
            "fallback_model": setup.policy.fallback_model,
        }
        assert held[option] == GIVEN[option][0]


@pytest.mark.parametrize(
    "agent",
    [agent for agent in AGENTS if option_support(AGENTS[agent], "fallback_model") == "steno"],
)
def test_a_fallback_model_without_its_use_is_refused(place: Place, agent: str) -> None:
    """Without `on_limit` it would be for the agent's own use, and these have none for it."""
    with pytest.raises(StenoError, match=rf"^fallback_model: not supported by {agent}$"):
        steno.run("Do it.", **asked(place, agent, "fallback_model"))
    assert place.calls == []


@pytest.mark.parametrize("agent", AGENTS)
def test_a_mode_that_the_agent_does_not_have_is_refused(place: Place, agent: str) -> None:
    """OpenCode would use its default agent, which may have more permissions."""
    with pytest.raises(
        StenoError, match=rf"^permission_mode plna: not a mode of {agent}; known: .*plan"
    ):
        steno.run("Do it.", **asked(place, agent, permission_mode="plna"))
    assert (place.calls, place.data.exists()) == ([], False)


def test_one_value_where_the_agent_takes_one(place: Place) -> None:
    """Qwen Code would glue two configurations together."""
    with pytest.raises(StenoError, match=r"^mcp_config: qwen accepts only one, found 2$"):
        steno.run("Do it.", **asked(place, "qwen", mcp_config=[SERVERS, SERVERS]))
    assert place.calls == []


def test_on_the_command_line_it_is_one_line(place: Place) -> None:
    done = place.steno(
        "run", "--agent", "codex", "--program", place.program, "--max-turns", "3", "Do it."
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"steno: --max-turns: not supported by codex\n"
    assert (place.calls, place.data.exists()) == ([], False)


def test_what_a_file_asks_of_all_agents_is_said_to_be_left_out(place: Place) -> None:
    """It is no reason to refuse a run, and none to keep silent."""
    file = place.work / "steno.toml"
    file.write_text("max_turns = 3\n", "utf-8")
    done = place.steno(
        "run", "--agent", "codex", "--program", place.program, "--attempts", "1", "Do it."
    )
    assert f"steno: {file}:1:1: max_turns ignored: not supported by codex\n" in done.stderr.decode()
    assert len(place.calls) == 1


def test_a_budget_that_cannot_be_watched_while_it_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent with usage neither in its stream nor in a session file."""
    given = asked(place, "codex", max_cost=1.0, max_tokens=1000)
    assert prepare_task("Do it.", given).notes == []
    monkeypatch.setitem(
        AGENTS._builtin, "codex", replace(AGENTS["codex"], transcripts=Transcripts())
    )
    assert prepare_task("Do it.", given).notes == [
        "max_cost and max_tokens: enforced between attempts only; "
        "codex reports its usage at the end of a run"
    ]
    assert prepare_task("Do it.", asked(place, "claude", max_cost=1.0)).notes == []


def test_a_budget_without_a_price(place: Place) -> None:
    """A stream without a model name: the cost is unknown during the run, with a warning."""
    tokens = {
        "total": 30,
        "input": 10,
        "output": 20,
        "reasoning": 0,
        "cache": {"read": 0, "write": 0},
    }
    parts: list[tuple[str, Json]] = [
        ("step_start", {}),
        ("text", {"text": "Done."}),
        ("step_finish", {"reason": "stop", "tokens": tokens, "cost": 0.001}),
    ]
    lines = [
        {"type": kind, "sessionID": SESSIONS["opencode"], "part": {"messageID": "m", **part}}
        for kind, part in parts
    ]
    place.plan({"out": "".join(json.dumps(line) + "\n" for line in lines)})
    report = steno.run("Do it.", **asked(place, "opencode", max_cost=1.0))
    assert (report.verdict, report.cost.usd) == ("success", 0.001)
    assert report.warnings == [
        "cost budget not enforced during the run: price unknown for a request"
    ]
    assert b"cost budget not enforced during the run" in place.tapes[0].read_bytes()


def test_a_budget_without_the_session_file(place: Place) -> None:
    """The usage of Codex is only in its session file."""
    lines = [
        {"type": "thread.started", "thread_id": UUID},
        {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "Yes."}},
        {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 20}},
    ]
    place.plan({"out": "".join(json.dumps(line) + "\n" for line in lines)})
    report = steno.run("Do it.", **asked(place, "codex", max_tokens=1000))
    assert NO_LIVE_USAGE in report.warnings
    assert NO_LIVE_USAGE.encode() in place.tapes[0].read_bytes()
    assert NO_LIVE_USAGE not in steno.run("Do it.", **asked(place, "codex")).warnings


def test_the_matrix_is_shown(place: Place) -> None:
    """`steno doctor --agents` says of each option who deals with it."""
    message = json.loads(place.steno("doctor", "--json").stdout)["agents"]
    assert {item["agent"]: item["options"] for item in message} == {
        name: {option: option_support(agent, option) for option in OPTION_FIELDS}
        for name, agent in AGENTS.items()
    }
    page = place.steno("doctor", "--agents", COLUMNS="120").stdout.decode().splitlines()
    (row,) = [line.split() for line in page if line.startswith("--max-turns")]
    assert row == [
        "--max-turns",
        *(
            {"claude": "agent", "qwen": "agent", "gemini": "steno", "opencode": "steno"}.get(
                name, "-"
            )
            for name in AGENTS
        ),
    ]


def test_a_system_prompt_for_a_resumed_session(place: Place) -> None:
    """Codex keeps the one that its session began with."""
    message = r"^system_prompt: codex cannot change it when resuming a session$"
    for more in ({"resume": UUID}, {"continue_": True}):
        with pytest.raises(StenoError, match=message):
            steno.run("Do it.", **asked(place, "codex", "system_prompt", **more))
    assert place.calls == []
