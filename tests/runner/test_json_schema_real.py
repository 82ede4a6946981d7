"""Answers in a shape, and agents that take over, with the real programs against scripted models. Needs `make cli`.

A model that answers twice as it should not, and then as it should; a Claude Code that is limited or signed out, and a Codex that
goes on. Every figure is what the servers gave out.
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
ONE, TWO, THREE = Usage(1_001, 0, 8_000, 61), Usage(1_002, 0, 8_100, 62), Usage(1_003, 0, 8_200, 63)
WRONG = "$.age: 'four' is not of type 'integer'"
ASIDE = (completions.ASIDE.usage.input, completions.ASIDE.usage.output)
OWN = ("HOME", "PATH", "LANG")  # of a clean environment: steno brings its own


class Place:
    """A home, a folder to work in, and steno's own data, all empty."""

    def __init__(self, folder: Path) -> None:
        self.data, self.work = folder / "data", folder / "work"
        self.home = self.data / "home"
        self.home.mkdir(parents=True)
        self.work.mkdir()
        (self.work / "schema.json").write_text(json.dumps(SCHEMA))

    def run(self, *words: str, **env: str) -> tuple[program.Ended, dict[str, Any]]:
        """How `steno run --json` ended, and its report."""
        own = {name: value for name, value in env.items() if name not in OWN}
        done = program.steno(self.data, "run", "--json", *words, cwd=self.work, timeout=300, **own)
        return done, json.loads(done.out)

    def configure_codex(self, url: str) -> None:
        """Lead a codex without arguments of its own to the scripted model."""
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(
            f'model = "{openai.MODELS["codex"]}"\nmodel_provider = "scripted"\n[model_providers.scripted]\nname = "Scripted"\n'
            f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "SCRIPTED_KEY"\nsupports_websockets = false\n'
            "request_max_retries = 0\nstream_max_retries = 0\n"
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def answers(*texts: str) -> list[Step]:
    return [say(text, usage=usage) for text, usage in zip(texts, (ONE, TWO, THREE), strict=True)]


def spent(report: dict[str, Any]) -> tuple[int, int, int]:
    """Input, cache reads and output."""
    return tuple(report["tokens"][name] for name in ("input", "cache_read", "output"))


def given(*usages: Usage) -> tuple[int, int, int]:
    """What the server gave out."""
    return tuple(
        sum(getattr(one, name) for one in usages) for name in ("input", "cache_read", "output")
    )


def held(place: Place, done: program.Ended, report: dict[str, Any]) -> None:
    """Twice wrong, then right: as a report, as lines for people, and as what each tape tells by itself."""
    assert (done.code, report["verdict"], report["structured_output"]) == (0, "success", BOB)
    assert [one["verdict"] for one in report["attempts"]] == ["no_result", "no_result", "success"]
    assert f"({WRONG}): correction 2 of 3 is asked for" in done.err
    tapes = sorted(place.data.rglob("*.steno"))
    assert sorted(
        (steno.read(tape).verdict, steno.read(tape).structured_output) for tape in tapes
    ) == [
        ("no_result", None),
        ("no_result", None),
        ("success", BOB),
    ]


# -- a schema ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", claude.VERSIONS)
def test_claude_answers_by_its_own_tool(place: Place, version: str) -> None:
    """An answer in words gets one nudge of its own and then counts as success there; here it does not."""
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
        done, report = place.run(
            "--program", claude.installed(version), "--json-schema", "schema.json", "Who?", **env
        )
        prompts = ["\n".join(request.texts()) for request in server.asked]
    assert (done.code, report["verdict"], report["structured_output"]) == (0, "success", BOB)
    assert [one["verdict"] for one in report["attempts"]] == ["no_result", "no_result", "success"]
    assert sum(one["cost"]["usd"] for one in report["attempts"]) == pytest.approx(
        report["cost"]["usd"]
    )
    assert any("- there is no JSON in the answer" in prompt for prompt in prompts)


def test_codex_answers_by_the_services_own_format(place: Place) -> None:
    """The schema reaches the service with every request, also where the thread goes on; each request counts once."""
    with ResponsesServer(
        *answers("Bob is four.", '{"name": "Bob", "age": "four"}', json.dumps(BOB))
    ) as server:
        words = (
            "--agent",
            "codex",
            "--program",
            openai.installed("codex"),
            "--json-schema",
            "schema.json",
            "Who?",
        )
        done, report = place.run(
            *words, "--", *openai.settings("codex", server.url), SCRIPTED_KEY="sk-not-a-key"
        )
        formats = [request["text"]["format"] for request in server.requests]
    held(place, done, report)
    assert [(one["type"], one["strict"], one["schema"]) for one in formats] == [
        ("json_schema", True, SCHEMA)
    ] * 3
    assert (spent(report), report["requests"], report["cost"]["source"]) == (
        given(ONE, TWO, THREE),
        3,
        "computed",
    )


def test_codex_with_a_schema_that_is_not_strict(place: Place) -> None:
    """The service would refuse it: it goes into the prompt."""
    loose = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    with ResponsesServer(say('```json\n{"age": 4, "more": 1}\n```', usage=ONE)) as server:
        words = (
            "--agent",
            "codex",
            "--program",
            openai.installed("codex"),
            "--json-schema",
            json.dumps(loose),
            "Who?",
        )
        done, report = place.run(
            *words, "--", *openai.settings("codex", server.url), SCRIPTED_KEY="sk-not-a-key"
        )
        (request,) = server.requests
    assert (done.code, report["structured_output"]) == (0, {"age": 4, "more": 1})
    assert "format" not in request.get("text", {})
    assert json.dumps(loose) in request["input"][-1]["content"][-1]["text"]


def test_copilot_has_none_of_its_own(place: Place) -> None:
    with ResponsesServer(
        *answers("Bob.", '{"name": "Bob", "age": "four"}', f"```json\n{json.dumps(BOB)}\n```")
    ) as server:
        env = openai.clean_env("copilot", place.home, server.url)
        words = (
            "--agent",
            "copilot",
            "--program",
            openai.installed("copilot"),
            "--json-schema",
            "schema.json",
            "Who?",
        )
        done, report = place.run(*words, **env)
    held(place, done, report)
    assert (spent(report), report["requests"]) == (given(ONE, TWO, THREE), 3)


@pytest.mark.parametrize("agent", completions.VERSIONS)
def test_others_have_none_of_their_own_or_a_poor_one(place: Place, agent: str) -> None:
    """The schema is in the prompt, the JSON in a fenced block, and the session goes on with each correction."""
    good = f"Here:\n```json\n{json.dumps(BOB)}\n```"
    texts = ["Bob is four.", '{"name": "Bob", "age": "four"}', good]
    model = () if agent == "qwen" else ("--model", completions.MODELS[agent])
    extra = ("--", "--auth-type", "openai") if agent == "qwen" else ()
    with CompletionsServer(*answers(*texts)) as server:
        env = completions.clean_env(agent, place.home, server.url)
        path = completions.installed(agent)
        done, report = place.run(
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
        asked = json.dumps(server.requests)
    held(place, done, report)
    assert len({one["session_id"] for one in report["attempts"]}) == 1
    assert json.dumps(json.dumps(SCHEMA))[1:-1] in asked
    aside = (ASIDE[0], 0, ASIDE[1]) if spent(report) != given(ONE, TWO, THREE) else (0, 0, 0)
    assert tuple(a - b for a, b in zip(spent(report), aside, strict=True)) == given(ONE, TWO, THREE)


# -- another agent -------------------------------------------------------------------------------------------------


def costs(report: dict[str, Any]) -> list[float]:
    return [one["cost"]["usd"] for one in report["attempts"]]


@pytest.mark.parametrize("end", ["401", "limit"])
def test_from_claude_to_codex(place: Place, end: str) -> None:
    """After work was done: the next agent is told of it, and the costs of both are one sum."""
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
        words = (
            "--program",
            claude.installed(NEWEST),
            "--permission-mode",
            "bypassPermissions",
            "--on-limit",
            "fallback",
        )
        done, report = place.run(*words, "--fallback-agent", "codex", "Do the work.", **env)
        told = second.requests[-1]["input"][-1]["content"][-1]["text"]
    assert (place.work / "half.txt").read_text() == "half\n"
    verdict = "auth" if end == "401" else "rate_limit"
    assert (done.code, report["verdict"], report["agent"], report["result"]) == (
        0,
        "success",
        "codex",
        "All done.",
    )
    assert [(one["agent"], one["verdict"]) for one in report["attempts"]] == [
        ("claude", verdict),
        ("codex", "success"),
    ]
    assert told.startswith("[CONTEXT FROM PREVIOUS SESSION]\n")
    assert told.endswith("[CURRENT TASK]\nDo the work.")
    # Claude's own price for the request that it made, and the table's for Codex's.
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
    assert (spent(report), report["cost"]["source"]) == (given(ONE, TWO), "computed")
    assert sorted(report["models"]) == sorted(["claude-opus-5-5", openai.MODELS["codex"]])
    assert "agent      codex 0.166.0" in done.err


def test_a_claude_that_is_not_there(place: Place) -> None:
    """Codex does it alone, with the prompt as it is."""
    with ResponsesServer(say("All done.", usage=TWO)) as server:
        place.configure_codex(server.url)
        (place.work / "steno.toml").write_text(
            f'[agents.codex]\nprogram = "{openai.installed("codex")}"\n'
        )
        missing = str(place.work / "no-claude")
        done, report = place.run(
            "--program", missing, "--fallback-agent", "codex", "Do it.", SCRIPTED_KEY="sk-not-a-key"
        )
        told = server.requests[-1]["input"][-1]["content"][-1]["text"]
    assert (done.code, report["agent"], told) == (0, "codex", "Do it.")
    assert [one["verdict"] for one in report["attempts"]] == ["not_found", "success"]
    assert spent(report) == given(TWO)
