"""Fields of Claude Code that reach events and report: setup, server tools, cache, uuids."""

import steno
from steno import event as ev
from steno.report import AgentSetup
from steno.views.summary import card
from steno.views.table import PageStyle
from tests.support.claude_lines import (
    MODEL,
    Json,
    answer,
    assistant,
    call,
    init,
    report,
    result,
    share,
    stream,
    text,
    usage,
    user,
)


def events(*lines: Json) -> list[ev.Event]:
    return list(steno.events(stream(*lines)))


def test_what_the_agent_loaded_is_listed() -> None:
    loaded = init(
        skills=["debug", "loop"],
        agents=["Explore"],
        plugins=[{"name": "authoring", "path": "builtin", "source": "authoring@builtin"}],
        slash_commands=["compact"],
    )
    (started,) = (event for event in events(loaded) if isinstance(event, ev.Started))
    assert (started.skills, started.agents) == (("debug", "loop"), ("Explore",))
    assert (started.plugins, started.slash_commands) == (("authoring",), ("compact",))
    assert report(loaded, assistant(text("Hi.")), result()).setup == AgentSetup(
        skills=("debug", "loop"),
        agents=("Explore",),
        plugins=("authoring",),
        slash_commands=("compact",),
    )


def test_a_setup_in_a_later_line_or_of_a_wrong_type() -> None:
    assert report(init(), init(skills=["debug"]), result()).setup == AgentSetup(skills=("debug",))
    assert report(init(skills="debug", plugins=[1]), result()).setup == AgentSetup()


def test_web_searches_fetches_and_tier_of_all_results() -> None:
    server = {"web_search_requests": 2, "web_fetch_requests": 1}
    used = {**usage(output=101), "server_tool_use": server, "service_tier": "priority"}
    models = {MODEL: {**share(), "webSearchRequests": 2}}
    one = result(usage=used, modelUsage=models)
    found = report(init(), assistant(text("Hi.")), one)
    assert (found.web_searches, found.web_fetches) == (2, 1)
    assert (found.service_tier, found.models[MODEL].web_searches) == ("priority", 2)
    (event,) = (event for event in events(one) if isinstance(event, ev.Result))
    assert (event.web_searches, event.web_fetches, event.service_tier) == (2, 1, "priority")


def test_the_summary_shows_server_tools_and_hour_writes() -> None:
    server = {"web_search_requests": 2, "web_fetch_requests": 0}
    used = {**usage(output=101, hour=600), "server_tool_use": server}
    shown = "\n".join(card(report(init(), assistant(text("Hi.")), result(usage=used)), PageStyle()))
    shown = shown.replace("\xa0", " ")
    assert "cache write 1,001 (600 for 1 h)" in shown
    assert "web searches 2\n" in shown


def test_unknown_counts_are_unknown() -> None:
    found = report(init(), assistant(text("Hi.")), result())
    assert (found.web_searches, found.web_fetches, found.service_tier) == (None, None, None)


def test_cache_writes_for_an_hour_are_part_of_the_tokens() -> None:
    message = assistant(text("Hi."), used=usage(hour=600), stop_reason="end_turn")
    for lines in ((init(), message), (init(), message, result(usage=usage(output=101, hour=600)))):
        found = report(*lines)
        assert (found.tokens.cache_write, found.cache_write_1h) == (1001, 600)


def test_a_truncated_glob_says_so() -> None:
    output = {"filenames": ["a.py"], "durationMs": 12, "numFiles": 1, "truncated": True}
    lines = (
        assistant(call("t1", "Glob", pattern="*.py")),
        answer("t1", "a.py", tool_use_result=output),
    )
    (event,) = (event for event in events(*lines) if isinstance(event, ev.ToolResult))
    assert isinstance(event.output, ev.ToolResultDetails)
    assert (event.output.truncated, event.output.duration_ms) == (True, 12)


def test_messages_have_the_agents_id() -> None:
    lines = (init(uuid="u0"), user("Do it.", uuid="u1"), assistant(text("Hi."), uuid="u2"))
    found = events(*lines)
    assert [event.uuid for event in found if isinstance(event, ev.Started)] == ["u0"]
    assert [event.uuid for event in found if isinstance(event, ev.UserMessage)] == ["u1"]
    ((used, said),) = zip(
        (event for event in found if isinstance(event, ev.Usage)),
        (event for event in found if isinstance(event, ev.Text)),
        strict=True,
    )
    assert (used.uuid, used.message) == ("u2", said.message)


def test_a_new_field_of_a_result_is_unknown_and_kept() -> None:
    """(I4)"""
    models = {MODEL: {**share(), "colour": "red"}}
    line = result(mood="good", usage={**usage(output=101), "weight": 3}, modelUsage=models)
    found = [event for event in events(line) if isinstance(event, ev.Unknown)]
    names = ["mood", "usage.weight", "modelUsage.colour"]
    assert [event.kind for event in found] == [f"result field {name}" for name in names]
    assert all(b'"mood":' in event.raw for event in found)
    judged = report(init(), assistant(text("Hi.")), line)
    assert (judged.verdict, judged.lines.unknown) == ("success", 3)
