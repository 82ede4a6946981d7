"""Completion scripts, run in the shells that are installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steno.agents import AGENTS
from steno.cli.commands import COMMANDS, LEDGER_COMMANDS
from steno.config import SETTINGS

OPTIONS = {"--log" if setting.name == "feed" else setting.option for setting in SETTINGS}
ASK = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_steno
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str) -> str:
    """What `steno completion` prints."""
    words = [sys.executable, "-m", "steno", "completion", shell]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, in a file."""
    path = tmp_path_factory.mktemp("bash") / "steno.bash"
    path.write_text(script("bash"))
    return path


def complete(path: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", path, *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
class TestBash:
    """Real bash."""

    def test_commands(self, bash: Path) -> None:
        assert complete(bash, "steno", "") == [*COMMANDS, "--help", "--version"]
        assert complete(bash, "steno", "re") == ["repeat", "replay"]

    def test_options(self, bash: Path) -> None:
        """Of the command that stands there, and of no other that begins like it."""
        assert complete(bash, "steno", "run", "--max-") == [
            "--max-turns",
            "--max-cost",
            "--max-tokens",
            "--max-wait",
        ]
        assert set(complete(bash, "steno", "run", "--")) >= OPTIONS
        assert "--failed" in complete(bash, "steno", "runs", "--")
        assert "--failed" not in complete(bash, "steno", "run", "--")

    def test_ledger_commands(self, bash: Path) -> None:
        assert complete(bash, "steno", "ledger", "") == [*LEDGER_COMMANDS]
        assert "--older-than" in complete(bash, "steno", "ledger", "prune", "--")
        assert "--older-than" not in complete(bash, "steno", "ledger", "import", "--")
        assert complete(bash, "steno", "ledger", "import", "") == []

    def test_help(self, bash: Path) -> None:
        assert complete(bash, "steno", "help", "us") == ["usage"]

    def test_words_of_an_option(self, bash: Path) -> None:
        assert complete(bash, "steno", "run", "--agent", "") == [*AGENTS, "replay"]
        assert complete(bash, "steno", "run", "--on-limit", "fa") == ["fail", "fallback"]
        assert complete(bash, "steno", "run", "--model", "") == ["small", "medium", "large"]
        assert complete(bash, "steno", "watch", "--exit-from", "") == ["verdict"]
        assert complete(bash, "steno", "watch", "--on", "file") == ["file_change"]
        assert complete(bash, "steno", "show", "--only", "tool") == ["tool_call", "tool_result"]

    def test_words_after_an_equals_sign(self, bash: Path) -> None:
        """bash makes three words of --agent=co."""
        assert complete(bash, "steno", "run", "--agent", "=") == [*AGENTS, "replay"]
        assert complete(bash, "steno", "run", "--agent", "=", "co") == ["codex", "copilot"]

    def test_words_without_an_option(self, bash: Path) -> None:
        assert complete(bash, "steno", "budget", "") == ["list", "set", "remove", "check"]
        assert complete(bash, "steno", "completion", "") == ["bash", "zsh", "fish"]

    def test_files_are_left_to_bash(self, bash: Path) -> None:
        assert (
            complete(bash, "steno", "show", "") == complete(bash, "steno", "run", "--cwd", "") == []
        )
        told = subprocess.run(
            ["bash", "-c", f"source {bash}; complete -p steno"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout == "complete -o bashdefault -o default -F _steno steno\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell: str, tmp_path: Path) -> None:
    """Every command and every option is in it; where the shell is here, it can read it."""
    text = script(shell)
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", text)
    for option in OPTIONS:
        assert (option if shell == "zsh" else f"-l {option[2:]} ") in text
    if shutil.which(shell) is None:
        assert "shells" not in os.environ.get("STENO_REQUIRE", ""), (
            f"there is no {shell}, and STENO_REQUIRE asks for it"
        )
        pytest.skip(f"there is no {shell} here")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_wrong_use_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "steno", "completion", "tcsh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
