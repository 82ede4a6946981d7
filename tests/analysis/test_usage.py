"""Tokens, cost and context: worked figures for the rules M1 to M9 and their pitfalls."""

import math
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.report import Context, Cost, ModelSummary, Report, Subagent, Tokens
from tests.support.claude_lines import (
    MODEL,
    RECORDINGS,
    REQUEST_COST,
    SESSION,
    Json,
    answer,
    assistant,
    call,
    delta,
    failed,
    init,
    opened,
    report,
    result,
    share,
    stream,
    system,
    text,
    usage,
)

HELPER = "claude-haiku-5-5"


def run_of(*requests: tuple[int, int, int]) -> Report:
    """A run of these requests with a result that sums them, as newer versions do."""
    lines = [
        assistant(text("Step."), message=f"msg_{index}", used=usage(*request))
        for index, request in enumerate(requests)
    ]
    given, write, read = (sum(column) for column in zip(*requests, strict=True))
    sums: Json = {
        "usage": usage(given, write, read, 101),
        "modelUsage": {MODEL: share(given, write, read)},
    }
    return report(init(), *lines, result(num_turns=len(requests), **sums))


# -- M1: spend -----------------------------------------------------------------------------------

WORKED = [
    ((9, 12871, 36391, 510), 49781, 0.739),
    ((10, 1067, 51013, 895), 52985, 0.979),
    ((3, 8999, 14981, 456), 24439, 0.625),
]


@pytest.mark.parametrize(("counters", "total", "rate"), WORKED)
def test_m1_worked_figures(counters: tuple[int, int, int, int], total: int, rate: float) -> None:
    told = report(result(usage=usage(*counters), modelUsage={MODEL: share(*counters)}))
    seen = report(init(), assistant(text("Hi."), used=usage(*counters)))
    for found in (told, seen):
        tokens = found.tokens
        assert (
            tokens.input,
            tokens.cache_write,
            tokens.cache_read,
            tokens.output,
            tokens.total,
        ) == (*counters, total)
        assert found.cache_hit_rate is not None
        assert round(found.cache_hit_rate, 3) == rate


def test_m1_no_input_has_no_hit_rate() -> None:
    assert report(init(), failed()).cache_hit_rate is None


def test_m1_reasoning_is_a_part_of_output() -> None:
    used = {**usage(output=101), "output_tokens_details": {"thinking_tokens": 60}}
    assert report(init(), assistant(text("Hi."), used=used)).tokens == Tokens(
        3, 1001, 20000, 101, 60, 21105
    )


def test_m1_cache_counters_that_are_left_out_are_zero() -> None:
    found = report(init(), assistant(text("Hi."), used={"input_tokens": 30, "output_tokens": 4}))
    assert found.tokens == Tokens(30, 0, 0, 4, None, 34)


def test_m1_usage_of_a_result_is_used_if_messages_have_none() -> None:
    line = assistant(text("Hi."))
    del line["message"]["usage"]
    end = result(usage={"input_tokens": 1423, "output_tokens": 512})
    del end["modelUsage"]
    found = report(init(), line, end)
    assert (found.tokens.input, found.tokens.output, found.tokens.total) == (1423, 512, 1935)


# -- M2: each message once -----------------------------------------------------------------------


def test_m2_four_blocks_of_one_message_are_one_request() -> None:
    blocks = (
        [assistant(text("One."))] * 2
        + [assistant(call("toolu_1", "Bash"))]
        + [assistant(text("Two."))]
    )
    found = report(init(), *blocks, result())
    assert (found.requests, found.tokens.total) == (1, 21105)


def test_m2_the_sum_over_messages_agrees_with_the_result() -> None:
    found = run_of((3, 1001, 20000), (3, 1002, 20000), (3, 1003, 20000))
    assert (found.requests, found.tokens) == (3, Tokens(9, 3006, 60000, 101, 0, 63116))
    assert [note for note in found.warnings if "account" in note] == []


@pytest.mark.parametrize(
    "case", ["2.1.325/multi_tool_edit", "2.1.325/input_stream_json", "2.0.37/input_stream_json"]
)
def test_m2_a_run_that_is_there_twice_counts_once(case: str) -> None:
    data = (RECORDINGS / "claude" / case / "stdout").read_bytes()
    once, twice = steno.read(data), steno.read(data + data)
    for name in (
        "verdict",
        "result",
        "turns",
        "requests",
        "tokens",
        "cost",
        "models",
        "context",
        "duration_ms",
    ):
        assert getattr(twice, name) == getattr(once, name), name
    many = data.count(b'"type":"result"')
    duplicates = "1 duplicate result" if many == 1 else f"{many} duplicate results"
    assert twice.warnings == [*once.warnings, f"{duplicates} ignored (repeated stream?)"]


def test_m2_results_without_a_name_are_each_their_own() -> None:
    found = report(
        init(), assistant(text("Hi.")), result(), assistant(text("Hi."), message="msg_2"), result()
    )
    named = report(
        init(),
        *(line for n in "ab" for line in (assistant(text("Hi."), message=n), result(uuid=n))),
    )
    assert (found.turns, named.turns, found.warnings) == (2, 2, named.warnings)
    assert not any("once more" in note for note in found.warnings)


# -- M3: context ---------------------------------------------------------------------------------


def test_m3_four_requests_fill_the_window_once() -> None:
    found = run_of(*[(3, 8885, 22239)] * 4)
    assert (found.tokens.input, found.tokens.cache_write, found.tokens.cache_read) == (
        12,
        35540,
        88956,
    )
    assert sum((12, 35540, 88956)) == 124508
    assert (found.context.used, found.context.source, found.context.peak) == (
        31127,
        "measured",
        31127,
    )


def test_m3_the_last_request_counts_and_the_peak_is_kept() -> None:
    found = run_of((3, 1000, 90000), (3, 1000, 40000))
    assert (found.context.used, found.context.peak) == (41003, 91003)


def test_m3_only_a_result_of_one_turn_is_exact() -> None:
    context = report(result(num_turns=1)).context
    assert (context.used, context.source) == (21004, "measured")


def test_m3_only_a_result_of_several_turns_is_an_upper_bound() -> None:
    sums = (12, 35540, 88956)
    context = report(
        result(num_turns=4, usage=usage(*sums, 9), modelUsage={MODEL: share(*sums, 9)})
    ).context
    assert (context.used, context.source) == (124508, "upper_bound")


def test_m3_a_compaction_sets_the_context_to_its_post_figure() -> None:
    boundary = system(
        "compact_boundary",
        compact_metadata={"trigger": "auto", "pre_tokens": 21105, "post_tokens": 2517},
    )
    context = report(init(), assistant(text("Hi.")), boundary, result()).context
    assert (context.used, context.source, context.peak, context.compactions) == (
        2517,
        "measured",
        21004,
        1,
    )


def test_m3_a_compaction_without_a_figure_leaves_it_unknown() -> None:
    boundary = system(
        "compact_boundary", compact_metadata={"trigger": "manual", "pre_tokens": 21105}
    )
    context = report(init(), assistant(text("Hi.")), boundary, result()).context
    assert (context.used, context.text, context.source) == (None, "HP unknown", "unknown")
    assert (context.peak, context.compactions) == (21004, 1)


def test_m3_a_request_after_a_compaction_is_measured_again() -> None:
    boundary = system("compact_boundary", compact_metadata={"trigger": "auto", "post_tokens": 2517})
    after = assistant(text("On we go."), message="msg_2", used=usage(3, 900, 5000))
    context = report(init(), assistant(text("Hi.")), boundary, after, result()).context
    assert (context.used, context.peak, context.compactions) == (5903, 21004, 1)


# -- M4: the window ------------------------------------------------------------------------------


def test_m4_a_helper_listed_first_is_not_the_main_model() -> None:
    models = {HELPER: share(1, 0, 0, 1, 0.000001, 200_000), MODEL: share(window=1_000_000)}
    context = report(init(), assistant(text("Hi.")), result(modelUsage=models)).context
    assert (context.limit, context.limit_source) == (1_000_000, "reported")


def test_m4_a_helper_listed_first_in_a_lone_result() -> None:
    models = {HELPER: share(1, 0, 0, 1, 0.000001, 200_000), MODEL: share(window=1_000_000)}
    assert report(result(modelUsage=models)).context.limit == 1_000_000


def test_m4_a_helper_with_more_input_is_not_the_main_model() -> None:
    """The main model is the one with the most output."""
    models = {HELPER: share(90_000, 0, 0, 20, 0.05), MODEL: share(3, 0, 0, 101, 0.01)}
    assert report(result(modelUsage=models)).model == MODEL


@pytest.mark.parametrize(
    ("model", "window", "source"),
    [
        ("my-own-model", 200_000, "assumed"),
        ("my-own-model", 131_072, "reported"),
        ("us.anthropic.claude-next-1", 200_000, "reported"),
    ],
)
def test_m4_a_window_that_is_only_the_programs_default(
    model: str, window: int, source: str
) -> None:
    context = report(result(modelUsage={model: share(window=window)})).context
    assert (context.limit, context.limit_source) == (window, source)


def test_m4_the_suffix_is_in_the_totals_but_not_in_the_message() -> None:
    models = {"claude-sonnet-4-6[1m]": share(window=1_000_000)}
    lines = [init(model="claude-sonnet-4-6[1m]"), assistant(text("Hi."), model="claude-sonnet-4-6")]
    context = report(*lines, result(modelUsage=models)).context
    assert (context.limit, context.limit_source) == (1_000_000, "reported")


@pytest.mark.parametrize(
    ("model", "limit", "source"),
    [
        ("claude-sonnet-4-6[1m]", 1_000_000, "known"),
        ("claude-sonnet-4-6", 200_000, "known"),
        ("claude-opus-5-5", 1_000_000, "known"),
        ("my-own-model[1m]", 1_000_000, "known"),
        ("my-own-model", 200_000, "assumed"),
    ],
)
def test_m4_without_totals_the_model_name_decides(model: str, limit: int, source: str) -> None:
    context = report(
        init(model=model), assistant(text("Hi."), model=model.removesuffix("[1m]"))
    ).context
    assert (context.limit, context.limit_source, context.used) == (limit, source, 21004)


# -- M5: scales ----------------------------------------------------------------------------------


def test_m5_the_text_of_the_rule() -> None:
    context = run_of((3, 8885, 22239)).context
    assert context == Context(
        used=31127,
        limit=1_000_000,
        fraction=0.031127,
        hp=96.8873,
        status="Healthy",
        text="97% HP [31k/1000k] — Healthy",
        peak=31127,
        source="measured",
        limit_source="reported",
        compactions=0,
    )


@pytest.mark.parametrize(
    ("used", "hp", "status"),
    [
        (0, 100, "Healthy"),
        (99_999, 50.0005, "Healthy"),
        (100_000, 50, "Wounded"),
        (149_999, 25.0005, "Wounded"),
        (150_000, 25, "CRITICAL"),
        (200_000, 0, "CRITICAL"),
        (250_000, 0, "CRITICAL"),
    ],
)
def test_m5_statuses_at_their_borders(used: int, hp: float, status: str) -> None:
    context = report(
        init(model="x"), assistant(text("Hi."), used=usage(used, 0, 0), model="x")
    ).context
    assert context.hp is not None
    assert (context.status, math.isclose(context.hp, hp, abs_tol=1e-9)) == (status, True)


def test_m5_nothing_known() -> None:
    context = report(init()).context
    assert (context.used, context.hp, context.fraction, context.status, context.text) == (
        None,
        None,
        None,
        None,
        "HP unknown",
    )


# -- M7: cost ------------------------------------------------------------------------------------


def resumed(own: Json, so_far: Json, **more: Any) -> Json:
    """The result of a version that counts over resumed runs and says what is new."""
    total = sum(entry["costUSD"] for entry in so_far.values())
    since = {
        "model_usage_since_last_result": own,
        "modelUsage": so_far,
        "total_cost_usd": total,
        "result_index": 0,
    }
    return result(**{**since, **more})


@pytest.mark.parametrize("models", [{}, None])
def test_m7_a_cost_without_tokens_is_warned_of(models: Json | None) -> None:
    end = failed("Prompt is too long", total_cost_usd=0.0026178, modelUsage=models)
    assert report(init(), end).warnings == ["the agent reports a cost of $0.002618 but no tokens"]
    assert report(init(), failed("Prompt is too long", modelUsage=models)).warnings == []


def test_m7_cumulative_cost_is_booked_once() -> None:
    first = resumed({MODEL: share()}, {MODEL: share()})
    second = resumed({MODEL: share()}, {MODEL: share(6, 2002, 40000, 202, 0.022074)})
    runs = [report(init(), assistant(text("Hi.")), end) for end in (first, second)]
    assert [run.cost for run in runs] == [
        Cost(0.011037, "reported", 0.011037),
        Cost(0.011037, "reported", 0.022074),
    ]
    assert [run.tokens.total for run in runs] == [21105, 21105]


def test_m7_cost_per_process_is_taken_as_it_is() -> None:
    runs = [report(init(), assistant(text("Hi.")), result()) for _ in range(2)]
    assert [run.cost for run in runs] == [Cost(0.011037, "reported")] * 2


def test_m7_several_results_of_one_process_add_up() -> None:
    second = assistant(text("Again."), message="msg_2")
    later = resumed({MODEL: share()}, {MODEL: share(6, 2002, 40000, 202, 0.022074)}, result_index=1)
    found = report(
        init(),
        assistant(text("Hi.")),
        resumed({MODEL: share()}, {MODEL: share()}),
        init(),
        second,
        later,
    )
    assert found.cost == Cost(0.022074, "reported", 0.022074)
    assert found.models[MODEL] == ModelSummary(6, 2002, 40000, 202, 0.022074, 1_000_000, 128000)
    assert (found.tokens.total, found.turns) == (42210, 2)


def test_m7_several_results_without_the_new_part_are_cumulative() -> None:
    second = assistant(text("Again."), message="msg_2")
    later = result(
        modelUsage={MODEL: share(6, 2002, 40000, 202, 0.022074)}, total_cost_usd=0.022074
    )
    found = report(init(), assistant(text("Hi.")), result(), init(), second, later)
    assert (found.cost, found.tokens.total) == (Cost(0.022074, "reported"), 42210)


def test_m7_the_json_format_of_a_resumed_run_is_priced_from_its_usage() -> None:
    stats: Json = {"subagent_stats": {"spawned": 0}, "result_index": 0}
    end = result(
        modelUsage={MODEL: share(6, 2002, 40000, 202, 0.022074)}, total_cost_usd=0.022074, **stats
    )
    found = report(end)
    assert (found.cost, found.tokens.total) == (Cost(0.011037, "computed", 0.022074), 21105)
    assert any("earlier runs" in note for note in found.warnings)


@pytest.mark.parametrize("stats", [{"result_index": 1}, {"subagent_stats": {"spawned": 1}}])
def test_m7_totals_of_a_document_that_may_include_earlier_runs_are_an_upper_bound(
    stats: Json,
) -> None:
    models = {MODEL: share(6, 2002, 40000, 202, 0.022074)}
    found = report(
        result(**{"modelUsage": models, "total_cost_usd": 0.022074, "result_index": 0, **stats})
    )
    assert found.cost == Cost(0.022074, "reported", 0.022074)
    assert [note[:41] for note in found.warnings] == ["tokens and cost are an upper bound: the a"]


def test_m7_totals_that_the_requests_make_up_include_no_earlier_run() -> None:
    stats: Json = {"subagent_stats": {"spawned": 1}, "result_index": 0}
    found = report(init(), assistant(text("Hi.")), result(**stats))
    assert (found.cost, found.warnings) == (Cost(0.011037, "reported", 0.011037), [])


def test_m7_a_failed_run_does_not_repeat_the_cost_of_its_session() -> None:
    stats: Json = {"subagent_stats": {"spawned": 0}, "result_index": 0, "api_error_status": 500}
    models = {MODEL: share(6, 2002, 40000, 202, 0.022074)}
    found = report(init(), failed("500", modelUsage=models, total_cost_usd=0.022074, **stats))
    assert (found.cost, found.tokens.total) == (Cost(0.0, "computed", 0.022074), 0)


def test_m7_the_copied_messages_of_a_fork_were_counted_in_another_file(tmp_path: Path) -> None:
    """The session file of a fork starts with the totals of its own run."""
    models = {MODEL: share(6, 2002, 40000, 202, 0.022074)}
    end = result(modelUsage=models, total_cost_usd=0.022074, result_index=1)
    totals = {"type": "cost-state", "totalCostUSD": 0.022074, "modelUsage": models}
    at = "2026-11-16T16:14:{}.000Z"
    lines = [
        {"type": "queue-operation", "sessionId": SESSION, "timestamp": at.format(38)},
        {**assistant(text("Hi.")), "timestamp": at.format(28)},
        {**assistant(text("Again."), message="msg_2"), "timestamp": at.format(39)},
        totals,
    ]
    folder = tmp_path / "sessions/-tmp-demo"
    folder.mkdir(parents=True)
    (tmp_path / "stdout").write_bytes(stream(end))
    (folder / f"{SESSION}.jsonl").write_bytes(stream(*lines))
    assert [note[:35] for note in steno.read(tmp_path).warnings] == [
        "tokens and cost are an upper bound:"
    ]
    (folder / f"{SESSION}.jsonl").write_bytes(stream(lines[0], *lines[2:]))
    found = steno.read(tmp_path)
    assert (found.cost, found.warnings) == (Cost(0.022074, "reported", 0.022074), [])


# A cost and a window that the agent guesses, as its 2.1.325 marks them.
GUESSED: Json = {"costBasis": "unknown", "contextWindow": 1_000_000, "maxOutputTokens": 32_000}


def test_m7_a_guess_of_the_agent_is_not_reported() -> None:
    model = "nobody-knows-1"
    end = result(modelUsage={model: {**share(), **GUESSED}})
    found = report(init(model=model), assistant(text("Hi."), model=model), end)
    assert found.cost == Cost(None, "unknown")
    assert found.models[model] == ModelSummary(3, 1001, 20000, 101)
    assert (found.context.limit, found.context.limit_source) == (200_000, "assumed")


def test_m7_a_model_with_a_guessed_cost_has_our_price() -> None:
    """The reported part of another model stays as it is."""
    other = "claude-haiku-4-5"
    models = {MODEL: {**share(cost=77.0), **GUESSED}, other: share(1, 0, 0, 1, 0.5)}
    found = report(init(), assistant(text("Hi.")), result(modelUsage=models, total_cost_usd=77.5))
    assert found.cost == Cost(0.511037, "computed")


def test_m7_a_killed_run_is_priced_from_its_messages() -> None:
    found = report(init(), assistant(text("Hi."), used=usage(output=101), stop_reason="end_turn"))
    assert found.cost == Cost(REQUEST_COST, "computed")
    assert found.models == {MODEL: ModelSummary(3, 1001, 20000, 101, REQUEST_COST)}


def test_m7_a_streamed_message_is_priced_at_its_true_output() -> None:
    assert report(init(), opened(), assistant(text("Hi.")), delta(101)).cost == Cost(
        REQUEST_COST, "computed"
    )


def test_m7_a_price_from_an_unfinished_message_is_called_a_lower_bound() -> None:
    found = report(init(), assistant(text("Hi.")))
    assert (found.cost.usd, found.cost.source) == (0.009037, "computed")
    assert any("lower bound" in note for note in found.warnings)


def test_m7_requests_after_the_last_result_are_added() -> None:
    late = assistant(text("More."), message="msg_2", used=usage(output=101), stop_reason="end_turn")
    found = report(init(), assistant(text("Hi.")), result(), late)
    assert (found.cost, found.tokens.total) == (Cost(0.022074, "computed"), 42210)


def test_m7_an_unknown_model_has_no_price() -> None:
    model = "nobody-knows-1"
    found = report(init(model=model), assistant(text("Hi."), model=model, stop_reason="end_turn"))
    assert (found.cost, found.models[model].cost_usd) == (Cost(None, "unknown"), None)


def test_m7_one_unknown_price_makes_the_sum_unknown() -> None:
    other = assistant(text("Hm."), message="msg_2", model="nobody-knows-1")
    assert report(init(), assistant(text("Hi.")), other).cost == Cost(None, "unknown")


def test_m7_a_run_that_asked_nothing_costs_what_the_agent_says() -> None:
    assert report(init(), failed()).cost == Cost(0.0, "reported")


@pytest.mark.parametrize("left_out", [["total_cost_usd"], ["total_cost_usd", "modelUsage"]])
def test_m7_a_result_without_its_total_is_priced_all_the_same(left_out: list[str]) -> None:
    end = {name: value for name, value in result().items() if name not in left_out}
    lone = report(init(), end)
    whole = report(
        init(), assistant(text("Hi."), used=usage(output=101), stop_reason="end_turn"), end
    )
    assert (lone.cost.usd, whole.cost.usd) == (REQUEST_COST, REQUEST_COST)


def test_m7_a_result_that_cannot_be_priced_is_unknown_and_never_zero() -> None:
    end = result(usage=usage(output=101))
    del end["total_cost_usd"], end["modelUsage"]
    assert report(end).cost == Cost(None, "unknown")


def test_m7_sums_are_exact_to_the_nano_dollar() -> None:
    parts = [0.1, 0.2, 0.000000001]
    ends = [
        resumed({MODEL: share(cost=part)}, {MODEL: share(cost=0.3)}, result_index=n)
        for n, part in enumerate(parts)
    ]
    assert report(init(), *ends).cost.usd == 0.300000001


def test_m7_models_that_do_not_add_up_are_reported() -> None:
    wrong = report(init(), assistant(text("Hi.")), result(total_cost_usd=0.02))
    right = report(init(), assistant(text("Hi.")), result())
    assert [note for note in wrong.warnings if "add up" in note] == [
        "model costs add up to $0.011037, but the reported total is $0.020000"
    ]
    assert right.warnings == []


def test_m7_an_hour_in_the_cache_costs_more() -> None:
    def cost(hour: int) -> float | None:
        return report(
            init(),
            assistant(text("Hi."), used=usage(output=101, hour=hour), stop_reason="end_turn"),
        ).cost.usd

    assert (cost(0), cost(500), cost(1001)) == (0.011037, 0.012537, 0.01404)


def test_m7_each_model_has_its_share() -> None:
    helper = share(1, 0, 0, 1, 0.000001, 200_000)
    end = result(modelUsage={HELPER: helper, MODEL: share()}, total_cost_usd=0.011038)
    found = report(init(), assistant(text("Hi.")), end)
    assert found.models == {
        HELPER: ModelSummary(1, 0, 0, 1, 0.000001, 200_000, 128000),
        MODEL: ModelSummary(3, 1001, 20000, 101, 0.011037, 1_000_000, 128000),
    }
    assert (found.tokens.total, found.cost.usd, found.warnings) == (21107, 0.011038, [])


# -- M9: subagents -------------------------------------------------------------------------------


def with_subagent(*end: Json) -> Report:
    task = call("toolu_1", "Task", description="Look", subagent_type="Explore")
    return report(
        init(),
        assistant(task, used=usage(output=101), stop_reason="tool_use"),
        assistant(
            text("a"),
            message="msg_2",
            parent="toolu_1",
            used=usage(output=101),
            stop_reason="tool_use",
        ),
        assistant(
            text("b"),
            message="msg_3",
            parent="toolu_1",
            used=usage(output=101),
            stop_reason="end_turn",
        ),
        answer(
            "toolu_1",
            "b",
            tool_use_result={"status": "completed", "agentId": "a1", "agentType": "Explore"},
        ),
        assistant(text("Done."), message="msg_4", used=usage(output=101), stop_reason="end_turn"),
        *end,
    )


def test_m9_a_subagent_is_rolled_up_under_its_call() -> None:
    found = with_subagent()
    assert found.subagents == [
        Subagent(
            "toolu_1",
            "Explore",
            "Look",
            Tokens(6, 2002, 40000, 202, None, 42210),
            0.022074,
            "completed",
        )
    ]
    assert (found.tokens.total, found.cost) == (84420, Cost(0.044148, "computed"))


def test_m9_a_subagent_is_in_the_total_once() -> None:
    end = result(
        usage=usage(6, 2002, 40000, 202),
        modelUsage={MODEL: share(12, 4004, 80000, 404, 0.044148)},
        total_cost_usd=0.044148,
        num_turns=2,
    )
    found = with_subagent(end)
    assert (found.tokens.total, found.cost) == (84420, Cost(0.044148, "reported"))
    assert (found.context.used, found.subagents[0].tokens.total) == (21004, 42210)
    assert found.warnings == []


def test_m9_a_subagents_compaction_is_not_the_main_threads() -> None:
    boundary = system(
        "compact_boundary", parent_tool_use_id="toolu_1", compact_metadata={"post_tokens": 2517}
    )
    task = assistant(call("toolu_1", "Task", description="Look"))
    assert report(init(), task, boundary, result()).context.used == 21004


def test_m9_two_subagents_are_distinguished() -> None:
    calls = assistant(
        call("toolu_1", "Task", description="One"), call("toolu_2", "Agent", description="Two")
    )
    one = assistant(text("a"), message="msg_2", parent="toolu_1", used=usage(1, 0, 0, 1))
    two = assistant(text("b"), message="msg_3", parent="toolu_2", used=usage(2, 0, 0, 2))
    found = report(init(), calls, two, one)
    assert [(sub.id, sub.description, sub.tokens.total) for sub in found.subagents] == [
        ("toolu_1", "One", 2),
        ("toolu_2", "Two", 4),
    ]


def test_m7_an_empty_account_is_none_where_requests_were_seen() -> None:
    """Cut off in its first request, a run ends with an account of 0: $0 would be wrong (V9)."""
    cut = failed(None, subtype="error_during_execution", terminal_reason="aborted_streaming")
    found = report(init(), assistant(text("I be"), used=usage(3, 1001, 20_000, 1)), cut)
    tokens = found.tokens
    assert (tokens.input, tokens.cache_write, tokens.cache_read, tokens.output) == (
        3,
        1001,
        20_000,
        1,
    )
    assert (found.verdict, found.cost.source) == ("interrupted", "computed")
    assert found.cost.usd is not None
    assert found.cost.usd > 0
    assert sum(model.cost_usd or 0 for model in found.models.values()) == found.cost.usd
    assert [
        warning for warning in found.warnings if warning.startswith("the agent reported zero usage")
    ] == found.warnings


def test_m7_an_account_of_nothing_stays_where_nothing_was_asked() -> None:
    found = report(init(), failed(api_error_status=401))
    assert (found.tokens.total, found.cost, found.warnings) == (0, Cost(0.0, "reported", None), [])
