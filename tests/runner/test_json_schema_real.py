"""JSON schemas and fallback agents, with the real programs on scripted models. Needs `make cli`.

A model that answers wrongly twice and then correctly; a Claude Code that is rate limited or signed
out, and a Codex that continues. All figures are those that the servers sent.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import event as ev
from steno.pricing import price
from tests.support import claude, completions, openai, program
from tests.support.completions import CompletionsServer
from tests.support.modelserver import Answer, Call, Fault, ModelServer, Step, Usage, limited, say
from tests.support.openai import ResponsesServer

NEWEST = "2.1.325"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
BOB = {"name": "Bob", "age": 4}
ONE = Usage(1_001, 0, 8_000, 61)
TWO = Usage(1_002, 0, 8_100, 62)
THREE = Usage(1_003, 0, 8_200, 63)
SCHEMA_ERROR = "$.age: 'four' is not of type 'integer'"
HELPER_USAGE = (completions.ASIDE.usage.input, completions.ASIDE.usage.output)
STENO_VARIABLES = ("HOME", "PATH", "LANG")  # steno sets its own


class Place:
    """A home, a working directory and a data directory, all empty."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.work = folder / "work"
        self.home = self.data / "home"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        (self.work / "schema.json").write_text(json.dumps(SCHEMA))

    def run(self, *args: str, **env: str) -> tuple[program.Ended, dict[str, Any]]:
        """The result of `steno run --json`, and its report."""
        env_ = {name: value for name, value in env.items() if name not in STENO_VARIABLES}
        result = program.steno(
            self.data, "run", "--json", *args, cwd=self.work, timeout=300, **env_
        )
        return result, json.loads(result.out)

    def configure_codex(self, url: str) -> None:
        """Point codex at the scripted model, by its configuration."""
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(
            f'model = "{openai.MODELS["codex"]}"\n'
            'model_provider = "scripted"\n'
            "[model_providers.scripted]\n"
            'name = "Scripted"\n'
            f'base_url = "{url}/v1"\n'
            'wire_api = "responses"\n'
            'env_key = "SCRIPTED_KEY"\n'
            "supports_websockets = false\n"
            "request_max_retries = 0\n"
            "stream_max_retries = 0\n"
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def answers(*texts: str) -> list[Step]:
    return [say(text, usage=usage) for text, usage in zip(texts, (ONE, TWO, THREE), strict=True)]


def tokens_of(report: dict[str, Any]) -> tuple[int, int, int]:
    """Input, cache reads and output."""
    return tuple(report["tokens"][name] for name in ("input", "cache_read", "output"))


def total(*usages: Usage) -> tuple[int, int, int]:
    """The sum of what the servers sent."""
    return tuple(
        sum(getattr(usage, name) for usage in usages) for name in ("input", "cache_read", "output")
    )


def assert_third_answer(place: Place, result: program.Ended, report: dict[str, Any]) -> None:
    """Two wrong answers, then a correct one: in the report, on stderr and in each recording."""
    assert (result.code, report["verdict"], report["structured_output"]) == (0, "success", BOB)
    assert [attempt["verdict"] for attempt in report["attempts"]] == [
        "no_result",
        "no_result",
        "success",
    ]
    assert f"({SCHEMA_ERROR}); requesting correction 2" in " ".join(result.err.split())
    recordings = sorted(place.data.rglob("*.steno"))
    assert sorted(
        (steno.read(recording).verdict, steno.read(recording).structured_output)
        for recording in recordings
    ) == [
        ("no_result", None),
        ("no_result", None),
        ("success", BOB),
    ]


# -- JSON schema -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", claude.VERSIONS)
def test_claude_answers_by_its_own_tool(place: Place, version: str) -> None:
    """Claude Code accepts a second plain-text answer as success; steno does not."""
    tool = [
        Answer((Call("StructuredOutput", value),), ONE)
        for value in ({"name": "Bob", "age": "four"}, BOB)
    ]
    steps = (
        say("Bob."),
        say("Bob, who is four."),
        say("Bob!"),
        say("Bob, as I said."),
        *tool,
        say("Done."),
    )
    with ModelServer(*steps) as server:
        env = claude.clean_env(place.home, server.url)
        result, report = place.run(
            "--program", claude.installed(version), "--json-schema", "schema.json", "Who?", **env
        )
        prompts = ["\n".join(request.texts()) for request in server.asked]
    assert (result.code, report["verdict"], report["structured_output"]) == (0, "success", BOB)
    assert [attempt["verdict"] for attempt in report["attempts"]] == [
        "no_result",
        "no_result",
        "success",
    ]
    assert sum(attempt["cost"]["usd"] for attempt in report["attempts"]) == pytest.approx(
        report["cost"]["usd"]
    )
    assert any("- no JSON in the answer" in prompt for prompt in prompts)


def test_codex_answers_by_the_services_own_format(place: Place) -> None:
    """Every request has the schema, also in a resumed thread; each one counts once."""
    with ResponsesServer(
        *answers("Bob is four.", '{"name": "Bob", "age": "four"}', json.dumps(BOB))
    ) as server:
        args = (
            "--agent",
            "codex",
            "--program",
            openai.installed("codex"),
            "--json-schema",
            "schema.json",
            "Who?",
        )
        result, report = place.run(
            *args, "--", *openai.settings("codex", server.url), SCRIPTED_KEY="sk-not-a-key"
        )
        formats = [request["text"]["format"] for request in server.requests]
    assert_third_answer(place, result, report)
    assert [(format_["type"], format_["strict"], format_["schema"]) for format_ in formats] == [
        ("json_schema", True, SCHEMA)
    ] * 3
    assert (tokens_of(report), report["requests"], report["cost"]["source"]) == (
        total(ONE, TWO, THREE),
        3,
        "computed",
    )


def test_codex_with_a_schema_that_is_not_strict(place: Place) -> None:
    """The service would reject it: it is added to the prompt."""
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    with ResponsesServer(say('```json\n{"age": 4, "more": 1}\n```', usage=ONE)) as server:
        args = (
            "--agent",
            "codex",
            "--program",
            openai.installed("codex"),
            "--json-schema",
            json.dumps(schema),
            "Who?",
        )
        result, report = place.run(
            *args, "--", *openai.settings("codex", server.url), SCRIPTED_KEY="sk-not-a-key"
        )
        (request,) = server.requests
    assert (result.code, report["structured_output"]) == (0, {"age": 4, "more": 1})
    assert "format" not in request.get("text", {})
    assert json.dumps(schema) in request["input"][-1]["content"][-1]["text"]


def test_copilot_without_schema_support(place: Place) -> None:
    with ResponsesServer(
        *answers("Bob.", '{"name": "Bob", "age": "four"}', f"```json\n{json.dumps(BOB)}\n```")
    ) as server:
        env = openai.clean_env("copilot", place.home, server.url)
        args = (
            "--agent",
            "copilot",
            "--program",
            openai.installed("copilot"),
            "--json-schema",
            "schema.json",
            "Who?",
        )
        result, report = place.run(*args, **env)
    assert_third_answer(place, result, report)
    assert (tokens_of(report), report["requests"]) == (total(ONE, TWO, THREE), 3)


@pytest.mark.parametrize("agent", completions.VERSIONS)
def test_other_agents_without_schema_support(place: Place, agent: str) -> None:
    """The schema is in the prompt, the JSON in a code block; corrections resume the session."""
    good = f"Here:\n```json\n{json.dumps(BOB)}\n```"
    texts = ["Bob is four.", '{"name": "Bob", "age": "four"}', good]
    model = () if agent == "qwen" else ("--model", completions.MODELS[agent])
    extra = ("--", "--auth-type", "openai") if agent == "qwen" else ()
    with CompletionsServer(*answers(*texts)) as server:
        env = completions.clean_env(agent, place.home, server.url)
        path = completions.installed(agent)
        result, report = place.run(
            "--agent",
            agent,
            "--program",
            path,
            *model,
            "--json-schema",
            "schema.json",
            "Who?",
            *extra,
            **env,
        )
        requests = json.dumps(server.requests)
    assert_third_answer(place, result, report)
    assert len({attempt["session_id"] for attempt in report["attempts"]}) == 1
    assert json.dumps(json.dumps(SCHEMA))[1:-1] in requests
    helper = (
        (HELPER_USAGE[0], 0, HELPER_USAGE[1])
        if tokens_of(report) != total(ONE, TWO, THREE)
        else (0, 0, 0)
    )
    assert tuple(a - b for a, b in zip(tokens_of(report), helper, strict=True)) == total(
        ONE, TWO, THREE
    )


# -- fallback agent ----------------------------------------------------------------------------


def costs(report: dict[str, Any]) -> list[float]:
    return [attempt["cost"]["usd"] for attempt in report["attempts"]]


@pytest.mark.parametrize("end", ["401", "limit"])
def test_from_claude_to_codex(place: Place, end: str) -> None:
    """The next agent gets a summary of the work, and the costs are added up."""
    refused = Fault(401, "authentication_error", "invalid x-api-key", {"x-should-retry": "false"})
    fault = refused if end == "401" else limited(2_000_000_000)
    work = Answer((Call("Bash", {"command": "echo half > half.txt", "description": "half"}),), ONE)
    with ModelServer(work, fault) as first, ResponsesServer(say("All done.", usage=TWO)) as second:
        place.configure_codex(second.url)
        (place.work / "steno.toml").write_text(
            f'[agents.codex]\nprogram = "{openai.installed("codex")}"\n'
        )
        env = {
            **claude.clean_env(place.home, first.url),
            "SCRIPTED_KEY": "sk-not-a-key",
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        args = (
            "--program",
            claude.installed(NEWEST),
            "--permission-mode",
            "bypassPermissions",
            "--on-limit",
            "fallback",
        )
        result, report = place.run(*args, "--fallback-agent", "codex", "Do the work.", **env)
        prompt = second.requests[-1]["input"][-1]["content"][-1]["text"]
    assert (place.work / "half.txt").read_text() == "half\n"
    verdict = "auth" if end == "401" else "rate_limit"
    assert (result.code, report["verdict"], report["agent"], report["result"]) == (
        0,
        "success",
        "codex",
        "All done.",
    )
    assert [(attempt["agent"], attempt["verdict"]) for attempt in report["attempts"]] == [
        ("claude", verdict),
        ("codex", "success"),
    ]
    assert prompt.startswith("[CONTEXT FROM PREVIOUS SESSION]\n")
    assert prompt.endswith("[CURRENT TASK]\nDo the work.")
    # Claude Code's price for its request, and the table's price for that of Codex.
    opus = (ONE.input * 4.0 + ONE.cache_read * 0.2 + ONE.output * 20.0) / 1e6
    usage = ev.Usage(
        1,
        None,
        None,
        None,
        input=TWO.input,
        cache_write=0,
        cache_read=TWO.cache_read,
        output=TWO.output,
    )
    gpt = price(openai.MODELS["codex"], usage, None)
    assert gpt is not None
    assert costs(report) == pytest.approx([opus, gpt / 1e9])
    assert report["cost"]["usd"] == pytest.approx(opus + gpt / 1e9)
    assert (tokens_of(report), report["cost"]["source"]) == (total(ONE, TWO), "computed")
    assert sorted(report["models"]) == sorted(["claude-opus-5-5", openai.MODELS["codex"]])
    assert "agent      codex 0.166.0" in result.err


def test_claude_not_found(place: Place) -> None:
    """Codex runs alone, with the prompt unchanged."""
    with ResponsesServer(say("All done.", usage=TWO)) as server:
        place.configure_codex(server.url)
        (place.work / "steno.toml").write_text(
            f'[agents.codex]\nprogram = "{openai.installed("codex")}"\n'
        )
        missing = str(place.work / "no-claude")
        result, report = place.run(
            "--program", missing, "--fallback-agent", "codex", "Do it.", SCRIPTED_KEY="sk-not-a-key"
        )
        prompt = server.requests[-1]["input"][-1]["content"][-1]["text"]
    assert (result.code, report["agent"], prompt) == (0, "codex", "Do it.")
    assert [attempt["verdict"] for attempt in report["attempts"]] == ["not_found", "success"]
    assert tokens_of(report) == total(TWO)
