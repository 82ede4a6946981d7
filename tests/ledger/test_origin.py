"""Runs and sessions by host, user, repository, branch and tag."""

import json
import os
from pathlib import Path

import pytest
from msgspec import to_builtins

import steno
from steno.ledger.importer import import_sources
from steno.ledger.queries.filters import TimeRange, TimeZone, resolve_filters
from steno.ledger.queries.runs import list_runs, runs_where
from steno.ledger.queries.search import parse_query, search_texts
from steno.ledger.queries.sessions import list_sessions, sessions_where
from steno.ledger.queries.usage import usage_report
from steno.ledger.store import Store
from steno.recording.format import Header
from steno.report import RunOrigin
from tests.support.claude_lines import assistant, ended, init, out, result, stream, tape, text

ORIGIN = RunOrigin(
    host="alpha",
    user="ada",
    repository="github.com/acme/app",
    branch="main",
    commit="0123456789abcdef0123456789abcdef01234567",
    pull_request="7",
)
ALPHA = "11111111-1111-4111-8111-111111111111"
BETA = "22222222-2222-4222-8222-222222222222"


def record(folder: Path, run: str, session: str, **header: object) -> None:
    lines = stream(
        init(session_id=session),
        {**assistant(text(f"Hello {run}."), message=f"msg_{run}"), "session_id": session},
        result("Done.", session_id=session),
    )
    head = Header(agent="claude", run_id=run, cwd="/work/app", started_at=1_790_000_000.0)
    for field, value in header.items():
        setattr(head, field, value)
    tape(folder / f"{run}.steno", out(lines), ended(0), header=head)


@pytest.fixture
def filled(store: Store, tmp_path: Path) -> Store:
    tags = {"team": "core", "ticket": "A-1"}
    record(tmp_path, "run-a", ALPHA, origin=ORIGIN, name="nightly", tags=tags)
    other = RunOrigin(host="beta", user="bob", repository="gitlab.com/acme/web", branch="dev")
    record(tmp_path, "run-b", BETA, origin=other, tags={"team": "Core"})
    record(tmp_path, "run-c", "33333333-3333-4333-8333-333333333333")
    assert import_sources(store, [str(tmp_path)]).runs == 3
    return store


@pytest.mark.parametrize(
    ("scope", "runs"),
    [
        ({"host": "alpha"}, {"run-a"}),
        ({"user": "bob"}, {"run-b"}),
        ({"repository": "acme/app"}, {"run-a"}),
        ({"branch": "main"}, {"run-a"}),
        ({"tag": ["team=core"]}, {"run-a"}),
        ({"tag": ["team=Core"]}, {"run-b"}),
        ({"tag": ["team"]}, {"run-a", "run-b"}),
        ({"tag": ["team=core", "ticket=A-1"]}, {"run-a"}),
        ({"tag": ["team=cor"]}, set()),
        ({"host": "gamma"}, set()),
        ({"host": "alpha", "branch": "dev"}, set()),
    ],
)
def test_filters_of_runs_sessions_usage_and_search(
    filled: Store, scope: dict[str, object], runs: set[str]
) -> None:
    filters = resolve_filters(filled, TimeRange(), **scope)  # type: ignore[arg-type]
    found = list_runs(filled, runs_where(filters, [], False, None))
    assert {run.id for run in found} == runs
    sessions = list_sessions(filled, sessions_where(filters))
    assert {session.id for session in sessions} == {run.session for run in found}
    usage = usage_report(filled, "day", TimeZone("UTC"), filters)
    assert usage.total.requests == len(runs)
    hits, count = search_texts(filled, parse_query("Hello"), filters, None, None)
    assert ({hit.run for hit in hits}, count) == (runs, len(runs))


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("host", {"alpha", "beta", None}),
        ("user", {"ada", "bob", None}),
        ("repository", {"github.com/acme/app", "gitlab.com/acme/web", None}),
        ("branch", {"main", "dev", None}),
        ("tag", {"team=core", "ticket=A-1", "team=Core", None}),
    ],
)
def test_usage_by_origin(filled: Store, by: str, keys: set[str | None]) -> None:
    usage = usage_report(filled, by, TimeZone("UTC"), resolve_filters(filled, TimeRange()))
    assert {row.key for row in usage.rows} == keys
    assert all(row.totals.requests == 1 for row in usage.rows)
    by_day = usage_report(filled, "day", TimeZone("UTC"), resolve_filters(filled, TimeRange()))
    assert usage.total == by_day.total


def test_a_run_in_json(filled: Store) -> None:
    filters = resolve_filters(filled, TimeRange(), host="alpha")
    (run,) = list_runs(filled, runs_where(filters, [], False, None))
    row = run.as_json()
    assert (row["name"], row["tags"]) == ("nightly", {"team": "core", "ticket": "A-1"})
    assert (row["origin"], run.origin) == (to_builtins(ORIGIN), ORIGIN)


def transcript(folder: Path, **fields: object) -> Path:
    message = {
        "id": "msg_1",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Hi."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 5},
    }
    line = {
        "sessionId": ALPHA,
        "version": "2.1.0",
        "type": "assistant",
        "message": message,
        "uuid": "u1",
        "timestamp": "2026-11-01T10:00:00Z",
        **fields,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{ALPHA}.jsonl"
    path.write_text(json.dumps(line) + "\n")
    return path


@pytest.mark.parametrize("requests_only", [False, True])
def test_a_transcript_knows_its_branch_and_folder(
    store: Store, tmp_path: Path, requests_only: bool
) -> None:
    work = tmp_path / "app"
    (work / ".git").mkdir(parents=True)
    (work / ".git" / "HEAD").write_text("ref: refs/heads/later\n")
    (work / ".git" / "config").write_text('[remote "origin"]\n\turl = git@github.com:acme/app\n')
    path = transcript(tmp_path / "elsewhere", gitBranch="main", cwd=str(work))
    import_sources(store, [str(path)], requests_only=requests_only)
    (session,) = list_sessions(store, sessions_where(resolve_filters(store, TimeRange())))
    assert session.origin == RunOrigin(repository="github.com/acme/app", branch="main")
    assert steno.read(path).origin.branch == "main"


def test_a_detached_head_is_no_branch(tmp_path: Path) -> None:
    path = transcript(tmp_path, gitBranch="HEAD", cwd="/work/app")
    assert steno.read(path).origin == RunOrigin()


def test_a_transcript_of_this_user_is_of_this_machine(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    path = transcript(tmp_path / "claude" / "projects" / "x", gitBranch="main", cwd="/work/app")
    import_sources(store, [str(path)])
    (session,) = list_sessions(store, sessions_where(resolve_filters(store, TimeRange())))
    assert (session.host, session.branch) == (os.uname().nodename, "main")
    assert session.user is not None
