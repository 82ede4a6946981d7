"""Options that not all versions of a program have: its own help is asked, once per version."""

import json
from pathlib import Path

import pytest

import steno
from steno.agents import AGENTS, LaunchOptions, ProgramInfo
from steno.agents.base import accepted_options, add_schema_prompt, option_support
from steno.errors import StenoError
from steno.runner import program
from tests.support.scripted_place import Place

UUID = "123e4567-e89b-42d3-a456-426614174000"
# As printed by Gemini 0.27.0: without --session-id.
GEMINI_HELP = """\
Usage: gemini [options] [command]

Commands:
  gemini mcp                   Manage MCP servers

Options:
  -m, --model                     Model  [string]
  -r, --resume                    Resume a previous session; see
                                  --list-sessions  [string]
  -o, --output-format             The format  [choices: "text", "json"]
  -h, --help                      Show help  [boolean]
"""
CODEX_HELP = """\
Commands:
  resume  Resume a previous session by id or pick the most recent with --last

Options:
  -c, --config <key=value>
          Override a value, as --set did
      --json
          Print events to stdout as JSONL

  -h, --help
          Print help (see a summary with '-h')
"""
CLAUDE_HELP = """\
Options:
  --allowedTools, --allowed-tools <tools...>  Comma or space-separated list of tool names
  -h, --help                                  Display help for command
  --system-prompt-snapshot <mode>             What a resumed session does with its prompt
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    result = Place(tmp_path)
    result.enter(monkeypatch)
    return result


def set_help(place: Place, text: str) -> None:
    (place.folder / "help").write_text(text, "utf-8")


def help_calls(place: Place) -> list[str]:
    path = place.folder / "help_calls"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def without(*missing: str) -> ProgramInfo:
    """A program without some options."""
    return ProgramInfo("1.2.3", lambda option: option not in missing)


# -- the help ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            GEMINI_HELP,
            ["--help", "--model", "--output-format", "--resume", "-h", "-m", "-o", "-r"],
        ),
        (CODEX_HELP, ["--config", "--help", "--json", "-c", "-h", "resume"]),
        (
            CLAUDE_HELP,
            ["--allowed-tools", "--allowedTools", "--help", "--system-prompt-snapshot", "-h"],
        ),
        ("\x1b[1mOptions\x1b[0m\n  \x1b[2m-h, --help\x1b[0m  show help\n", ["--help", "-h"]),
        ('{"type":"system"}\n', None),  # the program ignores --help
        ("", None),
    ],
)
def test_options_of_a_help_text(text: str, options: list[str] | None) -> None:
    assert program.parse_help(text) == options


def test_it_is_asked_once_per_version(place: Place) -> None:
    set_help(place, GEMINI_HELP)
    words = ("run", "--agent", "gemini", "--program", place.program, "--attempts", "1", "x")
    for _ in range(2):
        place.steno(*words)
    assert help_calls(place) == ["--help"]
    assert ["--session-id" in call["argv"] for call in place.calls] == [False, False]
    # Another version in the same place.
    place.program.write_text(place.program.read_text("utf-8") + "# updated\n")
    set_help(place, GEMINI_HELP + "      --session-id                The session\n")
    place.steno(*words)
    assert help_calls(place) == ["--help"] * 2
    assert "--session-id" in place.calls[-1]["argv"]


def test_without_a_help_the_newest_version_is_assumed(place: Place) -> None:
    steno.run("x", agent="gemini", program=str(place.program), attempts=1)
    assert "--session-id" in place.calls[0]["argv"]
    entries = [json.loads(path.read_bytes()) for path in place.home.rglob("help/*.json")]
    assert [entry["options"] for entry in entries] == [None]


def test_a_program_that_does_not_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "HELP_TIMEOUT_SECONDS", 0.2)
    path = place.folder / "bin" / "gemini"
    path.write_text("#!/bin/sh\nsleep 600\n")
    path.chmod(0o755)
    info = program.inspect_program(AGENTS["gemini"], str(path), place.environ)
    assert info.has_option("--anything")


def test_an_agent_without_help_is_not_asked(place: Place) -> None:
    set_help(place, GEMINI_HELP)
    info = program.inspect_program(AGENTS["qwen"], str(place.program), place.environ)
    assert (info.has_option("--anything"), help_calls(place)) == (True, [])


# -- what is missing -----------------------------------------------------------------------------


def test_a_missing_option_is_refused_before_the_start(place: Place) -> None:
    set_help(place, GEMINI_HELP)
    with pytest.raises(StenoError) as caught:
        steno.run("x", agent="gemini", program=str(place.program), session_id=UUID)
    assert str(caught.value) == (
        f"session_id: not supported by gemini at {place.program}, which has no --session-id"
    )
    set_help(place, CODEX_HELP)
    done = place.steno(
        *("run", "--agent", "codex", "--program", place.program),
        *("--resume", UUID, "--fork", "x"),
    )
    assert (done.returncode, done.stderr.decode()) == (
        2,
        f"steno: --fork: not supported by codex at {place.program}, which has no fork\n",
    )
    assert place.calls == []


def test_a_budget_is_kept_by_steno_itself(place: Place) -> None:
    """Claude Code before 2.0.30 has no --max-budget-usd."""
    set_help(place, CLAUDE_HELP)
    report = steno.run("x", program=str(place.program), max_cost=0.000001, attempts=1)
    assert "--max-budget-usd" not in place.calls[0]["argv"]
    assert option_support(AGENTS["claude"], "max_cost", without("--max-budget-usd")) == "steno"
    assert report.requests == 1


def test_a_schema_becomes_part_of_the_prompt() -> None:
    options = LaunchOptions(prompt="x", json_schema='{"type": "object"}')
    claude = AGENTS["claude"]
    assert add_schema_prompt(claude, options, ProgramInfo("2.1.325")) == options
    changed = add_schema_prompt(claude, options, ProgramInfo("2.1.325", lambda option: False))
    assert (changed.json_schema, changed.prompt.startswith("x\n\nYour final answer")) == (
        None,
        True,
    )


def test_only_the_missing_options_are_dropped() -> None:
    options = LaunchOptions(prompt="x", session_id=UUID, max_cost=1.0, partial=True, model="m")
    info = without("--max-budget-usd", "--include-partial-messages", "--model")
    assert accepted_options(AGENTS["claude"], options, info) == LaunchOptions(
        prompt="x", session_id=UUID, model="m"
    )


@pytest.mark.parametrize(("has", "added"), [(True, True), (False, False)])
def test_the_prompt_snapshot_of_claude(has: bool, added: bool) -> None:
    """2.1.270 and later need it for a system prompt in a resumed session."""
    options = LaunchOptions(prompt="x", resume=UUID, system_prompt="Be brief.")
    info = ProgramInfo("2.1.290", lambda option: has)
    argv = AGENTS["claude"].launch.build_command(options, "claude", info).argv
    assert ("--system-prompt-snapshot" in argv) == added


@pytest.mark.parametrize(
    ("missing", "option"),
    [
        ((), "--auto"),
        (("--auto",), "--dangerously-skip-permissions"),
        (("--auto", "--dangerously-skip-permissions"), None),
    ],
)
def test_how_opencode_approves_calls(missing: tuple[str, ...], option: str | None) -> None:
    """1.18, 1.15 and 1.2."""
    options = LaunchOptions(prompt="x", permission_mode="yolo")
    command = AGENTS["opencode"].launch.build_command(options, "opencode", without(*missing))
    assert command.argv[4:] == (() if option is None else (option,))
    assert len(command.notes) == (option is None)


def test_a_note_is_shown_before_the_start(place: Place) -> None:
    set_help(place, "Options:\n  -h, --help  show help\n")
    done = place.steno(
        *("run", "--agent", "opencode", "--program", place.program),
        *("--permission-mode", "yolo", "x"),
    )
    assert (
        "steno: permission mode yolo: this version of opencode cannot approve calls by itself"
        in done.stderr.decode()
    )


def test_a_program_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a path it is that file, without one only PATH counts, as in a shell."""
    file = tmp_path / "agent"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ("./agent", "~/agent", "agent")
    found = [program.find_program(name, {"PATH": "/usr/bin"}) for name in names]
    assert found == [str(file), str(file), None]
