"""An agent that cannot resume a session, whatever it declares: each attempt gets the whole task."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_plugins import Place

Json = dict[str, Any]

AGENT = """
from msgspec import Struct
from steno import event as ev
from steno.agents.base import Agent, Capabilities, Launch, LaunchCommand, encode_prompt
from steno.codec.decode import decode_lenient, decoder

class Line(Struct):
    magpie: str = ""
    session: str | None = None
    text: str | None = None
    error: bool = False

class Reader:
    def __init__(self):
        self._session = None

    def read(self, data, number, at=None):
        line = decoder(Line).decode(data)
        self._session = line.session or self._session
        head = (number, self._session, None, at)
        if line.magpie == "starts":
            return [ev.Started(*head)]
        kind, errors = ("error", (line.text,)) if line.error else ("success", ())
        used = {"input": 5, "cache_write": 0, "cache_read": 0, "output": 3}
        return [
            ev.Usage(*head, message="m", model="m", final=True, **used),
            ev.Text(*head, "m", line.text),
            ev.Result(
                *head, subtype=kind, is_error=line.error, text=line.text, errors=errors, turns=1
            ),
        ]

    read_lenient = read

    def state(self):
        return b""

    def restore(self, state):
        pass

def build_command(options, program, info):
    return LaunchCommand((program, *options.extra), encode_prompt(options.prompt))

AGENT = Agent(
    name="magpie",
    reader=Reader,
    looks_like=lambda line: "magpie" in line,
    capabilities=Capabilities(resume=%s),
    launch=Launch(build_command=build_command, unsupported_options=%r),
)
"""
# Prints the next of the answers, and notes what it was asked.
PROGRAM = """#!{python}
import json, sys
from pathlib import Path
folder = Path({folder!r})
number = len(list(folder.glob("asked-*")))
(folder / f"asked-{{number}}").write_text(sys.stdin.read())
answers = json.loads((folder / "answers").read_text())
answer = answers[min(number, len(answers) - 1)]
print(json.dumps({{"magpie": "starts", "session": f"magpie-{{number}}"}}))
print(json.dumps({{"magpie": "ends", **answer}}))
sys.exit(1 if answer.get("error") else 0)
"""
DONE = {"text": "I did it."}
BROKEN = {"text": "API Error: 500 internal error", "error": True}
FULL = {"text": "prompt is too long: 210000 tokens > 200000 maximum", "error": True}
SCHEMA = '{"type": "object", "required": ["n"]}'
DECLARED: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing": ("False", ()),
    "that it can": ("True", ()),
    "that it cannot": ("False", ("resume", "fork", "continue_")),
}


def magpie(place: Place, declared: str, *answers: Json) -> None:
    place.add("magpie", "AGENT", AGENT % DECLARED[declared], "magpie_agent")
    (place.data / "answers").write_text(json.dumps(answers))
    program = place.site / "bin" / "magpie"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(place.data)))
    program.chmod(0o755)


def asked(place: Place) -> list[str]:
    return [path.read_text() for path in sorted(place.data.glob("asked-*"))]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("declared", DECLARED)
def test_a_retry_is_the_whole_task(place: Place, declared: str) -> None:
    magpie(place, declared, BROKEN, DONE)
    report = place.json("run", "--agent", "magpie", "--json", "Fix the parser.")
    assert asked(place) == ["Fix the parser."] * 2
    assert [attempt["session_id"] for attempt in report["attempts"]] == ["magpie-0", "magpie-1"]
    assert ", from the beginning: the agent cannot resume" in report["attempts"][0]["why"]


def test_a_handover_needs_no_summary_of_it(place: Place) -> None:
    magpie(place, "nothing", FULL, DONE)
    place.json("run", "--agent", "magpie", "--json", "Fix the parser.")
    first, second = asked(place)
    assert first == "Fix the parser."
    assert second.startswith("[CONTEXT FROM PREVIOUS SESSION]\n")
    assert second.endswith("\n\n[CURRENT TASK]\nFix the parser.")


def test_a_correction_comes_with_the_task(place: Place) -> None:
    magpie(place, "nothing", DONE, {"text": '{"n": 1}'})
    place.json("run", "--agent", "magpie", "--json", "--json-schema", SCHEMA, "Count.")
    first, second = asked(place)
    assert first.startswith("Count.\n")
    assert second.startswith("Count.\n")
    assert "Answer again, with the corrected JSON" in second


@pytest.mark.parametrize("declared", DECLARED)
def test_a_session_to_resume_is_refused(place: Place, declared: str) -> None:
    magpie(place, declared, BROKEN)
    done = place.steno("run", "--agent", "magpie", "--attempts", "1", "Fix the parser.")
    assert "--resume" not in done.err  # no command to continue that would not
    for option in (["--resume", "magpie-0"], ["--continue"]):
        done = place.steno("run", "--agent", "magpie", *option, "continue")
        reason = {"that it cannot": "not supported by magpie"}.get(
            declared, "magpie cannot resume a session"
        )
        assert (done.code, done.err) == (2, f"steno: {option[0]}: {reason}\n")
    assert asked(place) == ["Fix the parser."]
