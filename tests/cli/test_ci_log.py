"""Nothing that an agent wrote is a command for the CI system that reads what steno prints."""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.cli.ci_log import LogGuard
from tests.support.claude_lines import (
    answer,
    assistant,
    call,
    ended,
    err,
    init,
    out,
    result,
    stream,
    tape,
    text,
)
from tests.support.scripted_place import Place
from tests.workspace.test_changes import run_git

COMMANDS = (
    "::error::owned",
    "::set-output name=a::owned",
    "##[set-output name=a]owned",
    "##vso[task.setvariable variable=a]owned",
    "##teamcity[setParameter name='a' value='owned']",
)
HOSTILE = "\n".join(f"{one}\r{one}\n \t\u2003{one}\nx {one}" for one in COMMANDS)
# White space in .NET: StreamReader.ReadLine splits lines, String.TrimStart trims them.
DOTNET_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def executed(log: bytes) -> list[str]:
    """The lines that a runner takes for commands: GitHub's two parsers, Azure's and TeamCity's."""
    lines = re.split("\r\n|\r|\n", log.decode("utf-8-sig", "replace"))
    return [
        line
        for line in lines
        if line.lstrip(DOTNET_SPACE).startswith("::") or re.search(r"##(vso|teamcity)?\[", line)
    ]


# -- the guard -------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    (
        *(":", "::", "#", "##", "[", "##[", "vso", "{", '"', "\\", "a", " ", "\r", "\n", "é"),
        *("\ufeff", *DOTNET_SPACE, *COMMANDS),
    )
)


@given(st.lists(PIECES, max_size=30).map("".join), st.lists(st.integers(0, 200), max_size=8))
def test_no_command_in_any_pieces(log: str, cuts: list[int]) -> None:
    data = log.encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    guard = LogGuard()
    pieces = (data[start:end] for start, end in pairwise(places))
    shown = b"".join(map(guard.protect, pieces))
    assert executed(shown) == []
    assert shown == LogGuard().protect(data)
    assert len(shown) - len(data) <= 6 * (data.count(b"[") + data.count(b":"))
    if not executed(data):
        assert shown == data


@given(st.lists(st.sampled_from((*COMMANDS, "\\", '"', "\n", "é")), max_size=8).map("".join))
def test_json_keeps_its_value(value: str) -> None:
    for indent in (None, 2):
        line = json.dumps({"text": value, "list": [value]}, ensure_ascii=False, indent=indent)
        assert json.loads(LogGuard().protect(line.encode())) == json.loads(line)


# -- every command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A run whose every text contains commands, as a file and in the ledger."""
    place = Place(tmp_path_factory.mktemp("ci"))
    lines = (
        init(model=HOSTILE, cwd=str(place.work)),
        assistant(text(HOSTILE), call("c1", HOSTILE, command=HOSTILE, file_path=HOSTILE)),
        answer("c1", HOSTILE, is_error=True),
        assistant(text(HOSTILE)),
        HOSTILE.encode(),
        result(HOSTILE, is_error=True, subtype="error_during_execution", errors=[HOSTILE]),
    )
    records = (out(stream(*lines)), err(HOSTILE.encode()), ended(1))
    tape(place.work / "run.steno", *records)
    place.plan({"out": stream(*lines).decode(), "err": HOSTILE, "exit": 1})
    done = place.steno("run", "--name", COMMANDS[2], "--tag", f"a={COMMANDS[2]}", HOSTILE)
    assert done.returncode == 1, done.stderr
    return place


SOURCE = "run.steno"
EVERY_COMMAND = (
    *(("run", *words, "hi") for words in ((), ("--json",), ("--raw",))),
    *(("show", SOURCE, f"--{view}") for view in ("summary", "text", "events", "timeline")),
    *(("show", SOURCE, *words) for words in (("--transcript",), ("--json",), ("--junit", "-"))),
    ("check", SOURCE, "--rule", 'forbid_commands=["."]'),
    *(("export", SOURCE, "--format", form) for form in ("html", "md", "ndjson")),
    *(("logs", "ID", *words) for words in ((), ("--raw",), ("--json",))),
    ("replay", SOURCE, "--no-wait"),
    *(("runs", *words) for words in ((), ("--json",), ("--csv",))),
    ("usage", "session"),
    ("search", "owned"),
    ("top", "--once"),
    ("ledger", "sql", "SELECT * FROM runs"),
)


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_no_command_reaches_the_log(place: Place, words: tuple[str, ...]) -> None:
    (run,) = json.loads(place.steno("runs", "--last", "1", "--json").stdout)["rows"]
    given_words = [run["run_id"] if word == "ID" else word for word in words]
    done = place.steno(*given_words, GITHUB_ACTIONS="true")
    assert b"Traceback" not in done.stderr
    assert b"usage: steno" not in done.stderr, done.stderr
    assert executed(done.stdout) == executed(done.stderr) == []


def test_a_stream_passes_without_commands(place: Place) -> None:
    recording = place.work / SOURCE
    agent = place.steno("replay", recording, "--no-wait").stdout
    assert executed(agent)
    plain = place.steno("watch", "--quiet", stdin=agent)
    assert plain.stdout == agent
    done = place.steno("watch", stdin=agent, GITHUB_ACTIONS="true")
    assert executed(done.stdout) == executed(done.stderr) == []
    values = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
    expected = [line for line in agent.splitlines() if line.startswith(b"{")]
    assert list(map(json.loads, values)) == list(map(json.loads, expected))


@pytest.mark.parametrize("variable", ["GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"])
def test_only_a_log_of_a_ci_system_is_changed(place: Place, variable: str) -> None:
    """The answer of a run: as it is in a file, and in a pipe outside of such a system."""
    words = ("show", SOURCE, "--text")
    exact = place.steno(*words).stdout
    assert executed(exact)
    environ = {**place.environ, variable: "true"}
    with (place.folder / "file").open("wb") as file:
        subprocess.run(place.command(*words), stdout=file, cwd=place.work, env=environ, check=False)
    assert (place.folder / "file").read_bytes() == exact
    done = subprocess.run(
        place.command(*words), capture_output=True, cwd=place.work, env=environ, check=False
    )
    assert executed(done.stdout) == []
    assert done.stdout.replace(b" ", b"") == exact.replace(b" ", b"")


def test_own_annotations_are_commands(place: Place) -> None:
    summary = str(place.folder / "summary.md")
    for words in (
        ("check", SOURCE, "--rule", 'verdict="success"'),
        ("show", SOURCE),
        ("run", "hi"),
    ):
        done = place.steno(*words, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=summary)
        found = executed(done.stdout + b"\n" + done.stderr)
        assert found != []
        assert [line for line in found if not re.match("::(error|warning) ", line)] == []
        assert [line for line in found if line.count("::") < 2] == []


def test_a_patch_is_not_changed_but_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    run_git(place.work, "init", "-q")
    place.plan({"out": "", "write": "new.txt"})
    assert place.steno("run", "--changes", "git", "hi").returncode != 0
    words = ("diff", "--patch", "-")
    patch = place.steno(*words).stdout
    assert place.steno(*words, GITHUB_ACTIONS="true").stdout == patch != b""
    (place.work / "new.txt").unlink()
    place.program.write_text("#!/bin/sh\necho '##[error]x' >new.txt\n")
    place.steno("run", "--changes", "git", "hi")
    assert b"##[error]x" in place.steno(*words).stdout
    done = place.steno(*words, GITHUB_ACTIONS="true")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"steno: --patch -: the patch contains a command of this CI")
