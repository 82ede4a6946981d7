"""Model sizes: small, medium and large name each agent's own models, from files or built in."""

import json
from pathlib import Path

import pytest

from steno.agents import AGENTS
from steno.config import MODEL_SIZES
from steno.errors import StenoError
from steno.runner.prepare import prepare_task
from tests.support.scripted_place import Place

NAMED = '[models.opencode]\nsmall = "scripted/mini"\n\n[models.claude]\nsmall = "my-haiku"\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """This very process is in the place."""
    found = Place(tmp_path)
    found.enter(monkeypatch)
    return found


def model(place: Place, agent: str, given: str, name: str = "model") -> str | None:
    """The model that the agent would be started with."""
    setup = prepare_task(
        "Do it.", {"agent": agent, "program": str(place.program), name: given}
    ).setup
    found: str | None = getattr(setup.launch_options, name)
    return found


@pytest.mark.parametrize("agent", AGENTS)
def test_a_size_is_known_or_asked_for(place: Place, agent: str) -> None:
    """Three names that differ, or one line that says where to name it; a name passes as it is."""
    if AGENTS[agent].launch.models_by_size:
        assert [model(place, agent, size) for size in MODEL_SIZES] == list(
            AGENTS[agent].launch.models_by_size
        )
        assert len(set(AGENTS[agent].launch.models_by_size)) == len(MODEL_SIZES)
    else:
        with pytest.raises(StenoError) as problem:
            model(place, agent, "large")
        told = (
            f"model large: no large model known for {agent}; "
            f'set it in steno.toml: [models.{agent}] large = "..."'
        )
        assert str(problem.value) == told
    assert model(place, agent, "some-model") == "some-model"


def test_a_file_names_it(place: Place) -> None:
    """The project's file beats the user's, which beats the default; a size works as any model."""
    mine = Path(place.environ["XDG_CONFIG_HOME"], "steno", "steno.toml")
    mine.write_text('[models.claude]\nsmall = "older"\nlarge = "mine"\n', "utf-8")
    (place.work / "steno.toml").write_text(NAMED, "utf-8")
    assert [model(place, "claude", size) for size in MODEL_SIZES] == ["my-haiku", "sonnet", "mine"]
    assert model(place, "opencode", "small") == "scripted/mini"
    assert model(place, "claude", "large", "fallback_model") == "mine"


def test_it_reaches_the_agent(place: Place) -> None:
    (place.work / "steno.toml").write_text(NAMED + '[agents.claude]\nmodel = "small"\n', "utf-8")
    assert place.steno("run", "Do it.").returncode == 0
    assert place.steno("run", "--model", "large", "Do it.").returncode == 0
    assert place.steno("run", "Do it.", STENO_MODEL="opus-x").returncode == 0
    words = [call["argv"][call["argv"].index("--model") + 1] for call in place.calls]
    assert words == ["my-haiku", "opus", "opus-x"]


def test_config_shows_them_and_where_each_comes_from(place: Place) -> None:
    file = place.work / "steno.toml"
    file.write_text(NAMED, "utf-8")
    told = json.loads(place.steno("config", "--json").stdout)["models"]
    assert told["claude"] == {
        "small": {"value": "my-haiku", "source": f"{file}:5:1"},
        "medium": {"value": "sonnet", "source": "default"},
        "large": {"value": "opus", "source": "default"},
    }
    assert told["opencode"]["large"] == {"value": None, "source": "default"}
    page = place.steno("config").stdout.decode().splitlines()
    (row,) = [line.split() for line in page if line.startswith("models.opencode.small")]
    assert row == ["models.opencode.small", f"{file}:2:1", "scripted/mini"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models = 1\n", ":1:1: expected a table for each agent, such as [models.codex]"),
        (
            "[models.codex]\nhuge = 'x'\n",
            ":2:1: unknown model size 'huge'; expected small, medium, large",
        ),
        ("[models.codex]\nsmall = 3\n", ":2:1: expected non-empty text, found 3"),
    ],
)
def test_errors_in_a_settings_file_name_their_position(place: Place, text: str, told: str) -> None:
    file = place.work / "steno.toml"
    file.write_text(text, "utf-8")
    done = place.steno("run", "Do it.")
    assert (done.returncode, done.stderr.decode()) == (2, f"steno: {file}{told}\n")
    assert place.calls == []
