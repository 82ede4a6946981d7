"""Settings: which value stands, where it comes from, and what a wrong one gets."""

import json
import os
import subprocess
import sys
from datetime import datetime
from datetime import time as clock_time
from pathlib import Path
from typing import Any

import pytest

from steno.config import SETTINGS, Settings, load_settings
from steno.config import values as kinds
from steno.errors import StenoError
from steno.runner.retry_policy import RetryPolicy
from steno.runner.setup import RunBudget, Timeouts


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, with nothing in it."""
    for name in [name for name in os.environ if name.startswith("STENO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    (tmp_path / "home" / "config" / "steno").mkdir(parents=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The root of a repository."""
    root = tmp_path / "home" / "project"
    (root / ".git").mkdir(parents=True)
    return root


def user_file(text: str) -> Path:
    path = Path(os.environ["XDG_CONFIG_HOME"], "steno", "steno.toml")
    path.write_text(text, "utf-8")
    return path


def project_file(project: Path, text: str) -> Path:
    path = project / "steno.toml"
    path.write_text(text, "utf-8")
    return path


def found(cwd: Path, given: dict[str, Any] | None = None, **environ: str) -> Settings:
    return load_settings(
        given or {},
        {"HOME": os.environ["HOME"], **environ},
        cwd,
        lambda name: "--" + name.replace("_", "-"),
    )


# -- defaults ------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_supervisor(project: Path) -> None:
    """One truth: the table tells what happens when nothing is set."""
    settings = found(project)
    names = ("first_output", "silence", "after_result", "background", "timeout")
    assert (
        Timeouts(tool_silence=settings["tool_silence"], **{name: settings[name] for name in names})
        == Timeouts()
    )
    policy = ("attempts", "resume_on", "on_limit", "fallback_model", "refresh_at")
    assert RetryPolicy(**{name: settings[name] for name in policy}) == RetryPolicy()
    assert (
        RunBudget(
            cost=settings["max_cost"], tokens=settings["max_tokens"], warn_at=settings["warn_at"]
        )
        == RunBudget()
    )
    assert {settings.source(setting.name) for setting in SETTINGS} == {"default"}


# -- precedence ----------------------------------------------------------------------------------


def test_option_beats_environment_beats_project_beats_user(project: Path) -> None:
    """Each layer taken away shows the next."""
    mine = user_file("max_turns = 1\n")
    ours = project_file(project, "\n\nmax_turns = 2\n")
    steps = [
        (found(project, {"max_turns": "4"}, STENO_MAX_TURNS="3"), 4, "--max-turns"),
        (found(project, STENO_MAX_TURNS="3"), 3, "STENO_MAX_TURNS"),
        (found(project), 2, f"{ours}:3:1"),
    ]
    for settings, value, source in steps:
        assert (settings["max_turns"], settings.source("max_turns")) == (value, source)
    ours.unlink()
    settings = found(project)
    assert (settings["max_turns"], settings.source("max_turns")) == (1, f"{mine}:1:1")
    mine.unlink()
    assert (found(project)["max_turns"], found(project).source("max_turns")) == (None, "default")


def test_an_empty_variable_is_not_set(project: Path) -> None:
    assert found(project, STENO_MODEL="").source("model") == "default"


def test_what_is_said_of_an_agent_beats_what_is_said_of_all_in_the_same_file(project: Path) -> None:
    user_file('[agents.claude]\nmodel = "mine"\nprogram = "claude-mine"\n')
    ours = project_file(project, 'model = "ours"\n')
    settings = found(project)
    assert (settings["model"], settings["program"]) == ("ours", "claude-mine")
    project_file(
        project,
        'model = "ours"\n[agents.claude]\nmodel = "claude-ours"\n[agents.other]\nmodel = "x"\n',
    )
    settings = found(project)
    assert (settings["model"], settings.source("model")) == ("claude-ours", f"{ours}:3:1")


def test_variables_for_the_agent_come_from_everywhere(project: Path) -> None:
    user_file('env = {A = "user", B = "user"}\n')
    project_file(project, '[env]\nB = "project"\nC = "project"\n')
    settings = found(project, {"env": ["C=option", "D=a=b"]})
    assert settings["env"] == {"A": "user", "B": "project", "C": "option", "D": "a=b"}


def test_paths_in_a_file_are_relative_to_it(project: Path) -> None:
    lines = ('add_dirs = ["lib", "/srv"]', "mcp_config = '{\"mcpServers\": {}}'")
    text = "\n".join((*lines, "[agents.claude]", 'program = "bin/claude"', ""))
    project_file(project, text)
    (project / "deep").mkdir()
    settings = found(project / "deep")
    assert settings["add_dirs"] == (str(project / "lib"), "/srv")
    assert settings["mcp_config"] == ('{"mcpServers": {}}',)
    assert settings["program"] == str(project / "bin/claude")


def test_how_far_up_a_projects_file_is_looked_for(tmp_path: Path, project: Path) -> None:
    """To the root of the repository, else to the home folder; outside of both nowhere but here."""
    home = tmp_path / "home"
    (home / "steno.toml").write_text("max_turns = 7\n")
    (project / "a" / "b").mkdir(parents=True)
    assert (
        found(project / "a" / "b")["max_turns"] is None
    )  # the repository ends before the home folder
    project_file(project, "max_turns = 8\n")
    assert found(project / "a" / "b")["max_turns"] == 8
    (home / "plain" / "deep").mkdir(parents=True)
    assert found(home / "plain" / "deep")["max_turns"] == 7
    outside = tmp_path / "outside" / "deep"
    outside.mkdir(parents=True)
    (tmp_path / "outside" / "steno.toml").write_text("max_turns = 9\n")
    assert found(outside)["max_turns"] is None
    assert found(outside.parent)["max_turns"] == 9


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_turns 3\n", ":1:11: Expected '=' after a key in a key/value pair"),
        ("max_turns = 3\nmodel = \n", ":2:9: Invalid value"),
        ('model = "x', ":1:11: Unterminated string"),
        ("max_turn = 3\n", ":1:1: unknown setting 'max_turn'; did you mean max_turns?"),
        (
            "[agents.claude]\n  modle = 'x'\n",
            ":2:3: unknown agent setting 'modle'; did you mean model?",
        ),
        ("program = 'x'\n", ":1:1: program is an agent setting: put it below [agents.claude]"),
        ("ledger = 'x'\n", ":1:1: ledger can't be set in a file: use --ledger or STENO_LEDGER"),
        ("[env]\nA = 1\n", ':2:1: expected text in quotes, such as A = "1"'),
        (
            'model = "x"\nenv = { B = "b", A = true }\n',
            ':2:1: expected text in quotes, such as A = "1"',
        ),
        ("models = 3\n", ":1:1: expected a table for each agent, such as [models.codex]"),
        ("agents = 3\n", ":1:1: expected a table for each agent, such as [agents.claude]"),
        (
            "\n max_turns = 'many'\n",
            ":2:2: expected a whole number above 0, such as 20, or a range such as 10..30, "
            "found 'many'",
        ),
        (
            "silence = -1\n",
            ":1:1: expected a duration above 0, such as 90 (seconds), 10m or 1h30m, or off, "
            "found -1",
        ),
        ("quiet = 'perhaps'\n", ":1:1: expected true or false, found 'perhaps'"),
        ("on_limit = 'give up'\n", ":1:1: expected wait, fail or fallback, found 'give up'"),
        (
            "[env]\n'A B' = '1'\n",
            ":1:1: expected NAME=VALUE, with a name of letters, digits and underscores",
        ),
        ("allow = [1]\n", ":1:1: expected a list of words, found [1]"),
    ],
)
def test_an_invalid_file_is_reported_with_line_and_column(
    project: Path, text: str, told: str
) -> None:
    path = project_file(project, text)
    with pytest.raises(StenoError) as problem:
        found(project)
    assert str(problem.value) == f"{path}{told}"


def test_a_file_that_is_no_text(project: Path) -> None:
    path = project / "steno.toml"
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(StenoError) as problem:
        found(project)
    assert str(problem.value) == f"{path}:2:6: invalid UTF-8"


def test_a_file_that_cannot_be_read(project: Path) -> None:
    """A file that even root can't read: the start of a process's memory."""
    (project / "steno.toml").symlink_to("/proc/self/mem")
    with pytest.raises(StenoError, match=r"steno\.toml: cannot be read: Input/output error"):
        found(project)


def test_a_wrong_variable_and_a_wrong_option(project: Path) -> None:
    with pytest.raises(StenoError) as problem:
        found(project, STENO_MAX_COST="-1")
    assert (
        str(problem.value)
        == "STENO_MAX_COST: expected an amount in dollars above 0, such as 5 or 0.50, found '-1'"
    )
    with pytest.raises(StenoError) as problem:
        found(project, {"refresh_at": "2"})
    assert (
        str(problem.value)
        == "--refresh-at: expected a fraction between 0 and 1, such as 0.8 or 80%, found '2'"
    )
    with pytest.raises(StenoError) as problem:
        found(project, {"max_turn": 2})
    assert str(problem.value) == "unknown option --max-turn; did you mean --max-turns?"


def test_a_secret_is_not_printed(project: Path) -> None:
    with pytest.raises(StenoError) as problem:
        found(project, {"env": ["sk-ant-0123456789abcdef"]})
    assert "0123456789" not in str(problem.value)


# -- parsers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (kinds.parse_count, "200k", 200_000),
        (kinds.parse_count, "1.5M", 1_500_000),
        (kinds.parse_count, "1_000", 1000),
        (kinds.parse_dollars, "$12.50", 12.5),
        (kinds.parse_duration, "1h30m", 5400.0),
        (kinds.parse_duration, "90", 90.0),
        (kinds.parse_duration, 0.5, 0.5),
        (kinds.parse_duration, "off", None),
        (kinds.parse_duration, False, None),
        (kinds.parse_turns, 20, 20),
        (kinds.parse_turns, "20", 20),
        (kinds.parse_turns, " 10..30 ", "10..30"),
        (kinds.parse_turns, "30..30", "30..30"),
        (kinds.parse_deadline, "20s", 20.0),
        (kinds.parse_deadline, 90, 90.0),
        (kinds.parse_deadline, "off", None),
        (kinds.parse_deadline, "9:05", "9:05"),
        (kinds.parse_deadline, "2030-01-31 18:30", "2030-01-31 18:30"),
        (kinds.parse_deadline, datetime(2030, 1, 31, 18, 30), "2030-01-31T18:30:00"),
        (kinds.parse_deadline, clock_time(18, 30), "18:30:00"),
        (kinds.parse_fraction, "80%", 0.8),
        (kinds.parse_fraction, 1, 1.0),
        (kinds.parse_fractions, "0.95, 70%,0.8", (0.7, 0.8, 0.95)),
        (kinds.parse_fractions, [0.9, "50%"], (0.5, 0.9)),
        (kinds.parse_fractions, 0.9, (0.9,)),
        (kinds.parse_fractions, "off", ()),
        (kinds.parse_fractions, False, ()),
        (kinds.parse_bool, "yes", True),
        (kinds.parse_bool, "0", False),
        (kinds.parse_words, "Read, Bash(a, b) ,Edit", ("Read", "Bash(a, b)", "Edit")),
        (kinds.parse_words, ["Read", "Edit,Write"], ("Read", "Edit", "Write")),
        (kinds.subset_of("a", "b"), "a,b", ("a", "b")),
        (kinds.subset_of("a", "b"), "none", ()),
    ],
)
def test_what_people_write(kind: kinds.ValueParser, given: Any, value: Any) -> None:
    assert kind(given) == value


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *(
            (kinds.parse_count, given)
            for given in ("0", "-3", "1.5", "k", "", True, 2.0, "inf", "1e400")
        ),
        *((kinds.parse_dollars, given) for given in ("0", "nan", "inf", "much", None, True)),
        *((kinds.parse_duration, given) for given in ("0", "-1s", "5 m", "", True, None, "nan")),
        *(
            (kinds.parse_turns, given)
            for given in ("0", "..", "10..", "..30", "30..10", "1..2..3", "a..b", None, True, 1.5)
        ),
        *(
            (kinds.parse_deadline, given)
            for given in ("0", "25:00", "18:60", "2030-01-31", "soon", "", None, True)
        ),
        *((kinds.parse_fraction, given) for given in ("0", "1.1", "101%", "%", None)),
        *(
            (kinds.parse_fractions, given)
            for given in ("", ",", "0.8,2", "off,0.8", [], None, [None])
        ),
        *((kinds.parse_text, given) for given in ("", "  ", 3, None)),
        (kinds.subset_of("a"), "b"),
        (kinds.parse_env, ["=x"]),
        (kinds.parse_env, {"A": 1}),
        (kinds.parse_paths, [""]),
    ],
)
def test_what_is_refused(kind: kinds.ValueParser, given: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        kind(given)


def test_a_deadline_is_the_next_such_time() -> None:
    """In local time; a time of day is within the next 24 hours, a date and time is what it is."""
    now = datetime(2026, 11, 16, 12, 0).timestamp()
    for text, wanted in (
        ("12:01", datetime(2026, 11, 16, 12, 1)),
        ("9:05", datetime(2026, 11, 17, 9, 5)),
        ("12:00:00", datetime(2026, 11, 17, 12, 0)),
        ("2030-01-31T18:30", datetime(2030, 1, 31, 18, 30)),
    ):
        assert kinds.deadline_at(text, now) == wanted.timestamp()
    assert kinds.deadline_at(20.0, now) == now + 20
    assert kinds.deadline_at("1970-01-02T00:00Z", now) == 86_400


# -- steno config --------------------------------------------------------------------------------


def config(*words: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "steno", "config", *words]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )


def test_config_shows_each_value_and_its_source(project: Path) -> None:
    path = project_file(project, 'max_turns = 20\n[env]\nAPI_KEY = "sk-ant-0123456789abcdef"\n')
    done = config(cwd=project, STENO_MODEL="opus", STENO_MODLE="opus")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert rows["max_turns"] == [f"{path}:1:1", "20"]
    assert rows["model"] == ["STENO_MODEL", "opus"]
    assert rows["env"] == [f"{path}:2:1", "API_KEY=[redacted]"]
    assert rows["silence"] == ["default", "360"]
    assert set(rows) >= {setting.name for setting in SETTINGS}
    assert done.stderr == "steno: STENO_MODLE: unknown setting, ignored\n"


def test_config_as_json(project: Path) -> None:
    path = project_file(project, 'allow = ["Edit"]\n')
    done = config("--json", "--cwd", str(project), cwd=project.parent)
    value = json.loads(done.stdout)
    assert value["files"] == [str(path)]
    assert list(value["settings"]) == [setting.name for setting in SETTINGS]
    assert value["settings"]["allow"] == {"value": ["Edit"], "source": f"{path}:1:1"}
    assert value["settings"]["timeout"] == {"value": None, "source": "default"}


def test_config_with_a_broken_file(project: Path) -> None:
    path = project_file(project, "x\n")
    done = config(cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"steno: {path}:1:2: Expected '=' after a key in a key/value pair\n"


def test_former_names_are_accepted_with_a_note(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "steno.toml").write_text('add_dir = ["lib"]\n')
    settings = load_settings({}, {}, tmp_path)
    assert settings["add_dirs"] == (str(tmp_path / "lib"),)
    assert settings.notes == [f"{tmp_path}/steno.toml:1:1: add_dir is now called add_dirs"]
    settings = load_settings({}, {"STENO_ADD_DIR": "/srv"}, tmp_path)
    assert settings["add_dirs"] == ("/srv",)
    assert settings.notes[1:] == ["STENO_ADD_DIR is now called STENO_ADD_DIRS"]
