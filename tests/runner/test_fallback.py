"""Fallback agents (R11): when they take over, their prompt, and the merged report.

Scripted `claude` and `codex` that each follow a plan; real ones: test_json_schema_real.py.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.agents.base import HANDOVER_PROMPT
from steno.cli.run import resume_command
from steno.errors import StenoError
from steno.recording.format import RecordingFile
from steno.report import Attempt, Cost, TaskReport, Tokens
from steno.runner.prepare import prepare_task
from steno.runner.retry_policy import VERDICT_PHRASES
from tests.support.claude_lines import (
    REQUEST_COST,
    assistant,
    call,
    failed,
    init,
    result,
    stream,
    text,
)
from tests.support.scripted_place import PLAYED, Done, Json, Place

THREAD = "01a1df9a-26d6-7761-ac7e-18408fe4415a"
SIGNED_OUT = stream(init(), failed("Not logged in · Please run /login")).decode()
NO_CREDIT = stream(init(), failed("API Error: 429 insufficient_quota: check your plan")).decode()
UNPAID = stream(init(), failed("API Error: 402 Payment Required", api_error_status=402)).decode()
LIMITED = stream(
    init(),
    failed("You've hit your 5-hour limit · resets 3pm (UTC)", api_error="usage_limit_reached"),
).decode()
HALF = stream(
    init(),
    assistant(text("The parser is half done.")),
    assistant(call("toolu_1", "Write", file_path="/srv/project/parser.py", content="x\n")),
    {
        "type": "user",
        "session_id": init()["session_id"],
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "written"}],
        },
        "tool_use_result": {
            "type": "create",
            "filePath": "/srv/project/parser.py",
            "content": "x\n",
        },
    },
    result("You've hit your 5-hour limit", is_error=True, api_error="usage_limit_reached"),
).decode()
DONE = stream(init(), assistant(text("Done.")), result()).decode()


def codex(words: str = "Codex did it.", failure: str | None = None) -> str:
    """What `codex exec --json` prints."""
    end = {
        "type": "turn.completed",
        "usage": {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": 10},
    }
    if failure is not None:
        end = {"type": "turn.failed", "error": {"message": failure}}
    output = {
        "type": "item.completed",
        "item": {"id": "item_0", "type": "agent_message", "text": words},
    }
    first: list[Json] = [{"type": "thread.started", "thread_id": THREAD}, {"type": "turn.started"}]
    return stream(*first, *([output] if failure is None else []), end).decode()


class Both(Place):
    """A place with a `codex` beside the `claude`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.second = folder / "second"
        self.second.mkdir()
        self.codex = folder / "bin" / "codex"
        self.codex.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{PLAYED}" "{self.second / "plan"}" "$@"\n'
        )
        self.codex.chmod(0o755)
        self.plans([{"out": DONE}], [{"out": codex()}])
        self.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.defpath}"

    def plans(self, first: list[Json], second: list[Json]) -> None:
        """What each does at each of its starts."""
        self.plan(*first)
        (self.second / "plan").write_text(json.dumps(second), "utf-8")

    @property
    def then(self) -> list[Json]:
        """Every start of codex."""
        path = self.second / "calls"
        return (
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            if path.exists()
            else []
        )

    def run(self, *words: str) -> tuple[Done, Json]:
        """A task with codex standing by, and its report."""
        done = self.steno("run", "--json", "--fallback-agent", "codex", *words, "Mend the parser.")
        return done, json.loads(done.stdout) if done.stdout else {}


@pytest.fixture
def place(tmp_path: Path) -> Both:
    return Both(tmp_path)


@pytest.fixture
def inside(place: Both, monkeypatch: pytest.MonkeyPatch) -> Both:
    """This very process is in the place: for the library."""
    place.enter(monkeypatch)
    return place


def attempts(report: Json) -> list[tuple[str, str, str]]:
    return [(item["agent"], item["verdict"], item["why"]) for item in report["attempts"]]


def notes(path: Path) -> list[str]:
    return [tick.data.decode() for tick in RecordingFile(path).records() if tick.code == "note"]


# -- when ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "verdict", "words"),
    [
        (SIGNED_OUT, "auth", ()),
        (NO_CREDIT, "billing", ()),
        (UNPAID, "billing", ()),
        (LIMITED, "rate_limit", ("--on-limit", "fallback")),
    ],
    ids=["signed out", "out of credit", "not paid", "limited"],
)
def test_the_next_agent_continues(
    place: Both, printed: str, verdict: str, words: tuple[str, ...]
) -> None:
    """With the same prompt, since no work was done; the decision is logged and recorded."""
    place.plans([{"out": printed, "exit": 1}], [{"out": codex()}])
    done, report = place.run(*words)
    why = f"{VERDICT_PHRASES[verdict]}; switching to codex"
    assert (done.returncode, report["verdict"], report["agent"], report["result"]) == (
        0,
        "success",
        "codex",
        "Codex did it.",
    )
    assert attempts(report) == [("claude", verdict, why), ("codex", "success", "done")]
    assert ([item["prompt"] for item in place.calls], [item["prompt"] for item in place.then]) == (
        ["Mend the parser."],
    ) * 2
    assert why in done.stderr.decode()
    assert sorted(note for path in place.tapes for note in notes(path)) == [
        f"fallback: {why}",
        "stopped: done",
    ]
    page = done.stderr.decode()
    assert "agent      codex" in page
    assert "1. " + verdict + " · claude" in page


def test_an_agent_that_is_not_installed(place: Both) -> None:
    """An attempt without a process; the next attempt's recording has the reason."""
    place.program.unlink()
    done, report = place.run()
    why = "agent not found; switching to codex"
    assert (done.returncode, report["agent"]) == (0, "codex")
    assert attempts(report) == [("claude", "not_found", why), ("codex", "success", "done")]
    assert (report["attempts"][0]["run_id"], report["tokens"]["total"]) == (None, 110)
    assert report["started_at"] is not None
    assert notes(place.tapes[0]) == [f"fallback: {why}", "stopped: done"]
    assert (
        "claude not found in PATH; install: npm install -g @anthropic-ai/claude-code"
        in done.stderr.decode()
    )


def test_a_limit_is_waited_for_where_nothing_else_is_said(inside: Both) -> None:
    """Only `--on-limit fallback` passes a limit on."""
    inside.plans([{"out": LIMITED, "exit": 1}], [{"out": codex()}])
    report = steno.run("Mend it.", fallback_agent="codex", on_limit="fail")
    assert (report.verdict, [item.agent for item in report.attempts], inside.then) == (
        "rate_limit",
        ["claude"],
        [],
    )


def test_the_model_comes_before_the_agent(inside: Both) -> None:
    """Where both are named, the same agent with another model is tried first."""
    inside.plans([{"out": LIMITED, "exit": 1}], [{"out": codex()}])
    report = steno.run(
        "Mend it.", fallback_agent=["codex"], on_limit="fallback", fallback_model="small"
    )
    assert [(item.agent, item.why) for item in report.attempts] == [
        ("claude", "rate limited; switching to haiku"),
        ("claude", "rate limited; switching to codex"),
        ("codex", "done"),
    ]


@pytest.mark.parametrize("kind", ["done", "failed"])
def test_failures_that_another_agent_would_share_are_not_passed_on(place: Both, kind: str) -> None:
    place.plans(
        [
            {
                "out": DONE
                if kind == "done"
                else stream(init(), failed("API Error: 400 bad", api_error_status=400)).decode()
            }
        ],
        [],
    )
    _, report = place.run()
    assert report["verdict"] == ("success" if kind == "done" else "invalid_request")
    assert place.then == []


def test_when_the_last_one_cannot_either(place: Both) -> None:
    """The last one says how it ended, and nothing goes round in circles."""
    place.plans(
        [{"out": SIGNED_OUT, "exit": 1}], [{"out": codex(failure="401 Unauthorized"), "exit": 1}]
    )
    done, report = place.run()
    assert (done.returncode, report["verdict"], report["agent"]) == (77, "auth", "codex")
    assert (len(place.calls), len(place.then)) == (1, 1)


# -- what it is told -----------------------------------------------------------------------------


def test_the_work_so_far_is_handed_over(place: Both) -> None:
    """R10: last text and changed files go into the prompt; the report covers both agents."""
    place.plans([{"out": HALF, "exit": 1}], [{"out": codex()}])
    _, report = place.run("--on-limit", "fallback")
    (message,) = [item["prompt"] for item in place.then]
    head, _, task = message.partition("[CURRENT TASK]\n")
    assert task == "Mend the parser."
    assert (
        "The parser is half done." in head,
        "- created" in head,
        head.startswith(HANDOVER_PROMPT[:31]),
    ) == (True, True, True)
    assert [file["absolute"] for file in report["files"]] == ["/srv/project/parser.py"]
    assert (report["session_id"], report["attempts"][0]["session_id"]) == (
        THREAD,
        init()["session_id"],
    )
    assert report["attempts"][0]["cost"]["usd"] == REQUEST_COST


def test_each_agent_gets_its_own(place: Both) -> None:
    """A size is everybody's; a program, a model's name and own arguments are the first one's."""
    place.plans([{"out": SIGNED_OUT, "exit": 1}], [{"out": codex()}])
    (place.work / "steno.toml").write_text('[models.codex]\nlarge = "big"\n', "utf-8")
    place.run("--model", "large", "--permission-mode", "plan")
    words = place.then[0]["argv"]
    assert (words[words.index("--model") + 1], words[words.index("--sandbox") + 1]) == (
        "big",
        "read-only",
    )
    argv = place.calls[0]["argv"]
    assert (argv[argv.index("--model") + 1], argv[argv.index("--permission-mode") + 1]) == (
        "opus",
        "plan",
    )
    done = place.steno(
        "run",
        "--model",
        "opus-9",
        "--fallback-agent",
        "codex",
        "Mend it.",
        "--",
        "--settings",
        "x.json",
    )
    assert ("--model" in place.then[1]["argv"], "--settings" in place.then[1]["argv"]) == (
        False,
        False,
    )
    message = "steno: agent arguments (--settings ...) are not passed to the fallback agent codex\n"
    assert message in done.stderr.decode()


def test_a_files_program_and_model_of_that_agent(place: Both) -> None:
    place.codex.rename(place.folder / "bin" / "my-codex")
    place.plans([{"out": SIGNED_OUT, "exit": 1}], [{"out": codex()}])
    (place.work / "steno.toml").write_text(
        '[agents.codex]\nprogram = "my-codex"\nmodel = "named"\n', "utf-8"
    )
    place.run("--model", "opus-9")
    words = place.then[0]["argv"]
    assert words[words.index("--model") + 1] == "named"


def test_a_schema_goes_with_the_task(place: Both) -> None:
    """The next agent's answer is held against it as well."""
    schema = (
        '{"type": "object", "properties": {"age": {"type": "integer"}}, '
        '"required": ["age"], "additionalProperties": false}'
    )
    place.plans(
        [{"out": SIGNED_OUT, "exit": 1}], [{"out": codex("four")}, {"out": codex('{"age": 4}')}]
    )
    done = place.steno("run", "--fallback-agent", "codex", "--json-schema", schema, "How old?")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"age": 4})
    assert ["--output-schema" in item["argv"] for item in place.then] == [True, True]
    assert [item["argv"][-3:-1] for item in place.then][1] == ["resume", THREAD]


def test_the_resume_command_is_that_of_the_last_agent() -> None:
    """Its session is known to that agent only."""
    parts = (Tokens(), Cost(), None, None, "why")
    tried = [
        Attempt("a", "s1", "auth", *parts, agent="claude"),
        Attempt("b", THREAD, "max_turns", *parts, agent="codex"),
    ]
    report = TaskReport(agent="codex", session_id=THREAD, verdict="api", requests=1, attempts=tried)
    value: dict[str, Any] = {
        "model": "opus-9",
        "program": "/bin/claude",
        "args": ["--x"],
        "fallback_agent": ["codex"],
    }
    value |= {"on_limit": "fallback", "timeout": 60.0}
    assert (
        resume_command(report, value)
        == f"steno run --resume {THREAD} --agent codex --timeout 60.0 continue"
    )
    assert "--model large" in str(resume_command(report, {**value, "model": "large"}))


# -- wrong use -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fallback-agent", "cursor"], "--fallback-agent: unknown agent 'cursor'; known: "),
        (
            ["--fallback-agent", "claude"],
            "--fallback-agent claude: agent listed twice",
        ),
        (
            ["--fallback-agent", "codex,codex"],
            "--fallback-agent codex: agent listed twice",
        ),
        (
            ["--fallback-agent", "codex", "--max-turns", "3"],
            "--max-turns: not supported by codex",
        ),
        (["--fallback-agent", "codex", "--steer"], "--steer: not supported by codex"),
        (
            ["--fallback-agent", "opencode", "--model", "large"],
            "--model large: no large model known for opencode; set it",
        ),
        (
            ["--fallback-agent", "codex", "--permission-mode", "auto"],
            "--permission-mode auto: not a mode of codex; known: ",
        ),
        (
            ["--agent", "replay", "--recording", "x", "--fallback-agent", "codex"],
            "--fallback-agent: the agent replay takes no fallback agents",
        ),
    ],
)
def test_what_the_next_agent_cannot_do_is_said_before_the_first_starts(
    place: Both, words: list[str], told: str
) -> None:
    done = place.steno("run", *words, "Mend it.")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, b"", 1)
    assert done.stderr.decode().startswith(f"steno: {told}")
    assert (place.calls, place.then, place.data.exists()) == ([], [], False)


def test_a_fallback_agent_that_is_not_installed(inside: Both) -> None:
    """A note; the first agent runs. If that one is missing too, nothing is started."""
    inside.codex.unlink()
    requested = prepare_task("Mend it.", {"fallback_agent": ["codex"]})
    assert (requested.notes, requested.setup.fallback_agents, requested.refusal) == (
        ["fallback agent ignored: codex not found; install: npm install -g @openai/codex"],
        (),
        None,
    )
    inside.program.unlink()
    report = steno.run("Mend it.", fallback_agent=["codex"])
    assert (report.verdict, report.agent, inside.data.exists()) == ("not_found", "claude", False)


def test_a_limit_needs_someone_to_fall_back_on(inside: Both) -> None:
    with pytest.raises(
        StenoError,
        match=r"^on_limit fallback needs fallback_model NAME or fallback_agent NAME$",
    ):
        steno.run("Mend it.", on_limit="fallback")
