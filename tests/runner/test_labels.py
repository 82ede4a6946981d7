"""Labels and origin of a run reach the recording, the report and the ledger."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import steno
from steno.recording.format import RecordingFile
from tests.support.claude_lines import hello, stream
from tests.support.program import argv, environment
from tests.support.scripted_place import Place

TAGS = {"team": "core, one", "ticket": "A=1"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def stored_run(place: Place) -> dict[str, object]:
    done = place.steno("runs", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert isinstance(row, dict)
    return row


def test_name_and_tags_of_a_run_are_everywhere(place: Place) -> None:
    words = ("--name", "nightly", "--tag", "team=core, one", "--tag", "ticket=A=1")
    done = place.steno("run", "--json", *words, "Say it.")
    report = json.loads(done.stdout)
    assert (report["name"], report["tags"]) == ("nightly", TAGS)
    header = RecordingFile(place.tapes[0]).header
    assert header is not None
    assert (header.name, header.tags) == ("nightly", TAGS)
    row = stored_run(place)
    assert (row["name"], row["tags"]) == ("nightly", TAGS)
    shown = place.steno("show", str(row["run_id"])).stdout.decode().replace("\xa0", " ")
    assert "nightly" in shown
    assert "team=core, one · ticket=A=1" in shown


def test_a_rebuilt_ledger_knows_the_labels(place: Place) -> None:
    place.steno("run", "--name", "nightly", "--tag", "team=core", "Say it.")
    place.steno("ledger", "rebuild", "--yes")
    row = stored_run(place)
    assert (row["name"], row["tags"]) == ("nightly", {"team": "core"})


def test_tags_of_settings_and_options_are_merged(place: Place) -> None:
    (place.work / "steno.toml").write_text('tag = {team = "core", env = "dev"}\n')
    done = place.steno("run", "--json", "--tag", "env=ci", "Say it.", STENO_TAG="a=1,b=2")
    assert json.loads(done.stdout)["tags"] == {"team": "core", "env": "ci", "a": "1", "b": "2"}


@pytest.mark.parametrize("tag", ["team", "=x", "te am=x", "team=a\nb", "team=" + "x" * 201])
def test_an_invalid_tag_is_refused(place: Place, tag: str) -> None:
    done = place.steno("run", "--tag", tag, "Say it.")
    assert (done.returncode, place.calls) == (2, [])
    assert b"--tag: expected NAME=VALUE" in done.stderr


def test_a_secret_in_a_label_is_not_stored(place: Place) -> None:
    secret = "ghp_" + "a1B2" * 9
    place.steno("run", "--name", f"for {secret}", "--tag", f"key={secret}", "Say it.")
    assert secret.encode() not in place.tapes[0].read_bytes()
    assert secret not in json.dumps(stored_run(place))


def test_the_library_takes_labels(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.enter(monkeypatch)
    report = steno.run("Say it.", name="nightly", tag={"team": "core"})
    assert (report.name, report.tags) == ("nightly", {"team": "core"})
    with steno.Ledger() as ledger:
        (run,) = ledger.runs()
    assert (run.name, run.tags) == ("nightly", {"team": "core"})


def test_the_origin_of_a_run_is_everywhere(place: Place) -> None:
    (place.work / ".git").mkdir()
    (place.work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    config = '[remote "origin"]\n\turl = https://ada:s3cret@github.com/acme/app.git\n'
    (place.work / ".git" / "config").write_text(config)
    done = place.steno(
        "run", "--json", "--changes", "none", "Say it.", CHANGE_ID="7", JENKINS_URL="x"
    )
    origin = json.loads(done.stdout)["origin"]
    assert origin.pop("user")
    assert origin == {
        "host": os.uname().nodename,
        "repository": "github.com/acme/app",
        "branch": "main",
        "commit": None,
        "pull_request": "7",
    }
    row = stored_run(place)
    assert isinstance(row["origin"], dict)
    assert origin == {name: row["origin"][name] for name in origin}
    assert b"s3cret" not in place.tapes[0].read_bytes()
    shown = place.steno("show", str(row["run_id"])).stdout.decode().replace("\xa0", " ")
    assert "github.com/acme/app · main · pull request 7" in shown
    usage = json.loads(place.steno("usage", "branch", "--json", "--repository", "app").stdout)
    assert [(group["branch"], group["requests"]) for group in usage["rows"]] == [("main", 1)]


def watch(data: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        argv("watch", "--quiet", *words),
        input=stream(*hello()),
        capture_output=True,
        env=environment(data),
        check=False,
    )


def test_a_watched_run_has_labels(tmp_path: Path) -> None:
    done = watch(tmp_path, "--record", "--name", "piped", "--tag", "team=core")
    assert (done.returncode, done.stderr) == (0, b"")
    with steno.Ledger(tmp_path / "steno" / "ledger.db") as ledger:
        (run,) = ledger.runs()
        report = ledger.report(run.run_id)
    assert (run.name, run.tags) == ("piped", {"team": "core"})
    assert (report.name, report.tags) == ("piped", {"team": "core"})
    assert (run.host, report.origin.host) == (os.uname().nodename, os.uname().nodename)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--name", "x"), "--name needs --record"),
        (("--record", "--tag", "x"), "--tag x: expected NAME=VALUE"),
    ],
)
def test_watch_refuses_labels_that_it_cannot_keep(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = watch(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr.decode()
