"""Answers with a JSON schema: finding the JSON, validating it, requesting corrections.

With scripted agents; those of the real programs are in test_shape_real.py.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import steno
from steno import event as ev
from steno.agents.base import LaunchOptions
from steno.agents.codex.start import supports_schema as strict
from steno.errors import StenoError
from steno.installation import extra_command
from steno.recording.format import RecordingFile
from steno.runner.json_schema import AnswerSchema, SchemaCheck, SchemaCheckResult, iter_json_in_text
from steno.runner.retry_policy import MAX_SCHEMA_CORRECTIONS, RetryPolicy
from steno.runner.setup import RunBudget, TaskSetup
from tests.support.claude_lines import (
    RECORDINGS,
    assistant,
    err,
    init,
    out,
    result,
    stream,
    tape,
    text,
)
from tests.support.scripted_place import Done, Json, Place

SCHEMA: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CLOSED: Json = {"type": "object", "additionalProperties": False}
BOB: Json = {"name": "Bob", "age": 4}
GOOD, WRONG, WORDS = json.dumps(BOB), '{"name": "Bob", "age": "four"}', "Bob is four."
NO_JSON = "no JSON in the answer"
NO_AGE = "$.age: 'four' is not of type 'integer'"


def lines(words: str, **more: Any) -> str:
    """A run that answers so."""
    return stream(init(), assistant(text(words)), result(words, **more)).decode()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    results = Place(tmp_path)
    (results.work / "schema.json").write_text(json.dumps(SCHEMA), "utf-8")
    return results


def ask(place: Place, *answers: str, words: tuple[str, ...] = ()) -> tuple[Done, list[Json]]:
    """Run it with such answers; what it printed, and the prompts."""
    place.plan(*({"out": lines(answer)} for answer in answers))
    done = place.steno("run", "--json-schema", "schema.json", *words, "Who is it?")
    return done, place.calls


# -- the JSON in an answer -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        (GOOD, [BOB, BOB]),
        (f"  {GOOD}\n", [BOB, BOB]),
        (f"Here it is:\n```json\n{GOOD}\n```\nThat is all.", [BOB, BOB]),
        (f"```\n[1]\n```\nor rather\n~~~json\n{GOOD}\n~~~", [BOB, [1]]),
        (f"So it is {GOOD}, as far as I see.", [BOB]),
        ("[1, 2]", [[1, 2], [1, 2]]),
        ("three", []),
        ("```json\n{broken\n```", []),
        ("", []),
        ("{" * 10_000, []),
    ],
)
def test_where_the_json_is(answer: str, values: list[Any]) -> None:
    """All of it, else a fenced block, the last first, else what stands between brackets."""
    assert list(iter_json_in_text(answer)) == values


@pytest.mark.parametrize(
    ("given", "answer", "checked"),
    [
        (None, GOOD, SchemaCheckResult(BOB)),
        (None, f"```json\n{WRONG}\n```\nno:\n```json\n{GOOD}\n```", SchemaCheckResult(BOB)),
        (BOB, "whatever", SchemaCheckResult(BOB)),
        (
            {"name": "Bob"},
            "whatever",
            SchemaCheckResult(None, ("$: 'age' is a required property",)),
        ),
        (None, WRONG, SchemaCheckResult(None, (NO_AGE,))),
        (
            None,
            '{"age": "four", "name": 3}',
            SchemaCheckResult(None, (NO_AGE, "$.name: 3 is not of type 'string'")),
        ),
        (None, WORDS, SchemaCheckResult(None, (NO_JSON,))),
        (None, " ", SchemaCheckResult(None, ("no answer",))),
    ],
)
def test_whether_it_fits(given: Any, answer: str, checked: SchemaCheckResult) -> None:
    assert AnswerSchema(json.dumps(SCHEMA)).check(given, answer) == checked


def test_faults_are_bounded() -> None:
    """The agent gets enough errors to fix the answer, and no more."""
    shape = AnswerSchema('{"type": "array", "items": {"type": "integer"}}')
    wrong = shape.check(None, json.dumps(["x" * 5_000] * 25)).errors
    assert (len(wrong), wrong[-1], max(map(len, wrong)) < 400) == (11, "15 more", True)


def test_an_inner_part_is_named() -> None:
    shape = AnswerSchema(
        '{"properties": {"files": {"items": {"$ref": "#/$defs/path"}}}, '
        '"$defs": {"path": {"type": "string"}}}'
    )
    assert shape.check(None, '{"files": ["a", 2]}').errors == (
        "$.files[1]: 2 is not of type 'string'",
    )


@pytest.mark.parametrize(
    ("schema", "own"),
    [
        (SCHEMA, True),
        ({**SCHEMA, "required": ["name"]}, False),
        ({**SCHEMA, "additionalProperties": True}, False),
        ({"type": "array", "items": SCHEMA}, False),
        ({**SCHEMA, "properties": {"name": {"type": "object"}, "age": {}}}, False),
        ({**SCHEMA, "properties": {"name": {"enum": [{"properties": {}}]}, "age": CLOSED}}, True),
    ],
)
def test_codex_takes_strict_schemas_only(schema: Json, own: bool) -> None:
    """The service refuses all others: those go into the prompt."""
    assert strict(schema, "0.166.0") is own


# -- wrong use -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("nowhere.json", "--json-schema nowhere.json: cannot be read: No such file or directory"),
        (".", "--json-schema .: cannot be read: Is a directory"),
        ("{", "--json-schema: invalid JSON: Input data was truncated"),
        (
            '{"type": "x"}',
            "--json-schema: invalid JSON schema: "
            "$.type: 'x' is not valid under any of the given schemas",
        ),
        ('{"pattern": "("}', "--json-schema: invalid JSON schema: $.pattern: '(' is not a 'regex'"),
        ('{"$ref": "#/$defs/x"}', "--json-schema: unresolvable reference: '/$defs/x'"),
        (
            '{"items": {"$ref": "http://x.test/a"}}',
            "--json-schema: unresolvable reference: 'http://x.test/a'",
        ),
        (
            '{"$schema": "http://x.test/draft"}',
            "--json-schema: unknown version of JSON schema: 'http://x.test/draft'",
        ),
        ('{"$schema": [1]}', "--json-schema: unknown version of JSON schema: [1]"),
        ("list.json", "--json-schema list.json: expected a JSON schema (an object), found list"),
        ("bytes.json", "--json-schema bytes.json: not UTF-8"),
    ],
)
def test_a_bad_schema_is_one_line_and_nothing_else(place: Place, schema: str, told: str) -> None:
    (place.work / "list.json").write_text("[]")
    (place.work / "bytes.json").write_bytes(b"\xff{}")
    done = place.steno("run", "--json-schema", schema, "Who is it?")
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", f"steno: {told}\n")
    assert (place.calls, place.data.exists()) == ([], False)


def test_the_extra_is_not_there(place: Place) -> None:
    """One line that says what to install, before anything starts."""
    (place.folder / "blocked").mkdir()
    (place.folder / "blocked" / "jsonschema.py").write_text("raise ImportError('blocked')")
    done = place.steno(
        "run", "--json-schema", "schema.json", "Who?", PYTHONPATH=str(place.folder / "blocked")
    )
    message = (
        "steno: --json-schema schema.json: JSON schemas need the package jsonschema: "
        f"{extra_command('schema')}\n"
    )
    assert (done.returncode, done.stderr.decode(), place.calls) == (2, message, [])
    assert place.steno("run", "Who?", PYTHONPATH=str(place.folder / "blocked")).returncode == 0


def test_it_is_loaded_only_where_it_is_used() -> None:
    import subprocess

    code = "import sys, steno.cli.run, steno.runner.task; print('jsonschema' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        == b"False\n"
    )


# -- what is done with an answer -----------------------------------------------------------------


def test_an_answer_that_fits_is_printed_as_json(place: Place) -> None:
    done, calls = ask(place, f"```json\n{GOOD}\n```")
    assert (done.returncode, json.loads(done.stdout), done.stdout.count(b"\n")) == (0, BOB, 1)
    assert calls[0]["argv"][calls[0]["argv"].index("--json-schema") + 1] == json.dumps(SCHEMA)


def test_the_agents_own_value_is_the_answer(place: Place) -> None:
    """Whatever its text says."""
    place.plan({"out": lines("It is done.", structured_output=BOB)})
    done = place.steno("run", "--json", "--json-schema", json.dumps(SCHEMA), "Who is it?")
    report = json.loads(done.stdout)
    assert (report["verdict"], report["structured_output"], report["result"]) == (
        "success",
        BOB,
        "It is done.",
    )


def test_wrong_twice_then_right(place: Place) -> None:
    """Each correction resumes the session with the errors, and is recorded and shown."""
    done, calls = ask(place, WORDS, WRONG, GOOD, words=("--json",))
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["ok"], report["structured_output"]) == (
        0,
        "success",
        True,
        BOB,
    )
    whys = [
        f"the answer doesn't match the schema ({NO_JSON}); requesting correction 1 of 3",
        f"the answer doesn't match the schema ({NO_AGE}); requesting correction 2 of 3",
        "done",
    ]
    assert [(item["verdict"], item["why"]) for item in report["attempts"]] == list(
        zip(["no_result", "no_result", "success"], whys, strict=True)
    )
    assert [
        f"- {fault}\n" in call["prompt"]
        for fault, call in zip((NO_JSON, NO_AGE), calls[1:], strict=True)
    ] == [True, True]
    assert ["--resume" in call["argv"] for call in calls] == [False, True, True]
    assert all(why in done.stderr.decode() for why in whys[:2])
    notes = [
        [tick.data.decode() for tick in RecordingFile(path).records() if tick.code == "note"]
        for path in place.tapes
    ]
    assert sorted(note for (note,) in notes) == sorted(
        [f"resume: {whys[0]}", f"resume: {whys[1]}", "stopped: done"]
    )


def test_the_tape_tells_the_same(place: Place) -> None:
    """Live is replay: what did not fit is no success when it is read again."""
    ask(place, WRONG, GOOD)
    read = sorted(
        (steno.read(path).verdict, steno.read(path).structured_output) for path in place.tapes
    )
    assert read == [("no_result", None), ("success", BOB)]


def test_it_never_fits(place: Place) -> None:
    """After three corrections: no_result, with the reason."""
    done, calls = ask(place, WRONG, words=("--json",))
    report = json.loads(done.stdout)
    assert (len(calls), MAX_SCHEMA_CORRECTIONS, done.returncode) == (4, 3, 3)
    assert (report["verdict"], report["ok"], report["structured_output"]) == (
        "no_result",
        False,
        None,
    )
    assert report["error"] == f"the answer does not match the JSON schema: {NO_AGE}"
    assert report["evidence"] == [3]
    assert (
        report["attempts"][-1]["why"] == "the answer doesn't match the schema after 3 corrections"
    )


def test_what_does_not_fit_is_not_printed(place: Place) -> None:
    done, _ = ask(place, WRONG)
    assert (done.returncode, done.stdout) == (3, b"")


def test_an_agents_own_value_that_does_not_fit_is_none(place: Place) -> None:
    """A version with a laxer check than ours does not slip through."""
    place.plan({"out": lines("Done.", structured_output={"name": "Bob"})})
    report = json.loads(place.steno("run", "--json", "--json-schema", "schema.json", "Who?").stdout)
    assert (report["verdict"], report["structured_output"]) == ("no_result", None)


def test_a_question_is_no_answer(place: Place) -> None:
    """An answer that is a question leads to a request for the JSON."""
    done, calls = ask(place, "Which Bob do you mean?", GOOD)
    assert (done.returncode, json.loads(done.stdout), len(calls)) == (0, BOB, 2)


def test_a_failure_is_not_looked_at(place: Place) -> None:
    """There is no answer to hold against anything: the failure is the verdict."""
    place.plan({"recording": str(RECORDINGS / "claude" / "2.1.325" / "api_401")})
    done = place.steno("run", "--json-schema", "schema.json", "Who?")
    assert (done.returncode, done.stdout, len(place.calls)) == (77, b"", 1)


def test_a_budget_ends_the_corrections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.tasks import carry_out

    place = Place(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    place.plan({"out": lines(WRONG)})
    value = LaunchOptions(prompt="Who?", json_schema=json.dumps(SCHEMA))
    done = carry_out(
        TaskSetup(
            launch_options=value,
            program=str(place.program),
            cwd=str(place.work),
            budget=RunBudget(cost=0.001),
        )
    )
    assert (done.verdicts, done.whys) == (
        ["no_result"],
        ["cost budget of the task exhausted"],
    )


def test_without_a_session_it_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt is sent again with the errors."""
    from tests.support.tasks import carry_out

    place = Place(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    nameless = {**assistant(text(WRONG)), "session_id": None}, {**result(WRONG), "session_id": None}
    place.plan({"out": stream(*nameless).decode()}, {"out": lines(GOOD)})
    value = LaunchOptions(prompt="Who?", json_schema=json.dumps(SCHEMA))
    done = carry_out(
        TaskSetup(
            launch_options=value,
            program=str(place.program),
            cwd=str(place.work),
            policy=RetryPolicy(attempts=1),
        )
    )
    assert done.verdicts == ["no_result", "success"]
    prompt = place.calls[1]["prompt"]
    assert (prompt.startswith("Who?\n\nYour answer does not fit"), NO_AGE in prompt) == (True, True)


def test_from_a_file_and_in_python(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """In steno.toml the path is the file's; the library takes the schema as a mapping."""
    (place.work / "steno.toml").write_text('json_schema = "schema.json"\n', "utf-8")
    below = place.work / "below"
    below.mkdir()
    place.plan({"out": lines(GOOD)})
    (place.work / ".git").mkdir()
    assert json.loads(place.steno("run", "Who?", cwd=below).stdout) == BOB
    for name, value in place.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.folder)
    report = steno.run("Who?", json_schema=SCHEMA)
    assert (report.structured_output, report.verdict) == (BOB, "success")
    with pytest.raises(StenoError, match=r"^json_schema: invalid JSON schema"):
        steno.run("Who?", json_schema={"type": 3})


# -- the tape ------------------------------------------------------------------------------------


def test_a_tick_that_is_no_json_is_kept(tmp_path: Path) -> None:
    """Nothing in the data ever aborts reading (I3)."""
    from steno.recording.format import Record

    broken = tape(
        tmp_path / "t.steno",
        out(stream(init(), result("x"))),
        err(b""),
        Record(None, "checked", b"{no"),
    )
    assert [event.kind for event in steno.events(broken) if isinstance(event, ev.Unknown)] == [
        "record checked"
    ]
    odd = tape(
        tmp_path / "u.steno",
        out(stream(init(), result("x"))),
        Record(None, "checked", b'{"wrong": [3, "a"]}'),
    )
    assert [event.wrong for event in steno.events(odd) if isinstance(event, ev.SchemaChecked)] == [
        ("a",)
    ]


def test_the_file_for_an_agent_goes_away() -> None:
    """Codex reads the schema from a file, which is deleted after the run."""
    from steno.agents.base import SCHEMA_FILE_PLACEHOLDER, LaunchCommand

    shaping = SchemaCheck(json.dumps(SCHEMA))
    words = shaping.build_argv(LaunchCommand(("codex", SCHEMA_FILE_PLACEHOLDER), schema=b"{}"))
    path = Path(words[1])
    assert (words[0], path.read_bytes()) == ("codex", b"{}")
    shaping.close()
    assert not path.exists()
