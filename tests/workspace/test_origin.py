"""Where a run is started: git files, remotes without credentials, CI variables."""

import os
import subprocess
from pathlib import Path

import pytest

from steno.codec.redact import repository_name
from steno.report import RunOrigin
from steno.workspace.origin import collect_origin, read_ci_variables, read_repository

SHA = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "github.com/acme/app"


def git(folder: Path, *words: str) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.com",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.com",
    }
    done = subprocess.run(
        ("git", *words), cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "feature/x")
    git(folder, "remote", "add", "upstream", "https://example.com/other/app")
    git(folder, "remote", "add", "origin", "https://ada:s3cret@GitHub.com/acme/app.git")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


# -- remotes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://github.com/acme/app.git", REPOSITORY),
        ("https://ada:s3cret@GitHub.com/acme/app/", REPOSITORY),
        ("https://x-access-token:ghs_0123456789abcdefghij@github.com/acme/app", REPOSITORY),
        ("https://github.com/acme/app.git?token=s3cret#x", REPOSITORY),
        ("git@github.com:acme/app.git", REPOSITORY),
        ("github.com:acme/app", REPOSITORY),
        ("ssh://git@github.com:22/acme/app.git", REPOSITORY),
        ("git://github.com/acme/app", REPOSITORY),
        ("https://git.acme.dev:8443/a/b/c.git", "git.acme.dev:8443/a/b/c"),
        ("/srv/git/app.git", "/srv/git/app"),
        ("file:///srv/git/app.git", "/srv/git/app"),
        ("", None),
        ("../app", None),
        ("ext::sh -c touch% /tmp/x", None),
    ],
)
def test_all_urls_of_a_repository_have_one_name(remote: str, name: str | None) -> None:
    assert repository_name(remote) == name


# -- git files -------------------------------------------------------------------------------------


def test_a_checkout_is_read_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", "")
    (checkout / "inner").mkdir()
    assert read_repository(str(checkout / "inner")) == RunOrigin(
        repository=REPOSITORY, branch="feature/x", commit=commit
    )


def test_packed_refs_a_worktree_and_a_detached_head(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    git(checkout, "pack-refs", "--all")
    packed = RunOrigin(repository=REPOSITORY, branch="feature/x", commit=commit)
    assert read_repository(str(checkout)) == packed
    worktree = checkout.parent / "tree"
    git(checkout, "worktree", "add", "-q", "-b", "other", str(worktree))
    assert read_repository(str(worktree)) == RunOrigin(
        repository=REPOSITORY, branch="other", commit=commit
    )
    git(checkout, "checkout", "-q", "--detach")
    assert read_repository(str(checkout)) == RunOrigin(repository=REPOSITORY, commit=commit)


def test_a_repository_without_commit_and_remote(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    assert read_repository(str(tmp_path)) == RunOrigin(branch="main")


def test_nothing_in_a_repository_is_run_or_followed(checkout: Path, tmp_path: Path) -> None:
    """A pipe is not waited for, and a ref that leaves the repository is not read."""
    secret = tmp_path / "secret"
    secret.write_text(SHA)
    (checkout / ".git" / "HEAD").write_text("ref: refs/heads/../../../../secret\n")
    assert read_repository(str(checkout)).commit is None
    (checkout / ".git" / "HEAD").unlink()
    (checkout / ".git" / "HEAD").symlink_to(secret.with_name("missing"))
    (checkout / ".git" / "config").unlink()
    os.mkfifo(checkout / ".git" / "config")
    assert read_repository(str(checkout)) == RunOrigin()


@pytest.mark.parametrize(
    "head", [b"", b"\xff\xfe", b"ref: ", b"ref: refs/heads/a\x1b[2J", b"x" * 99]
)
def test_a_damaged_head_is_no_branch(checkout: Path, head: bytes) -> None:
    (checkout / ".git" / "HEAD").write_bytes(head)
    assert read_repository(str(checkout)) == RunOrigin(repository=REPOSITORY)


def test_outside_of_repositories(tmp_path: Path) -> None:
    assert read_repository(str(tmp_path / "missing")) == RunOrigin()


# -- CI --------------------------------------------------------------------------------------------

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "acme/app",
    "GITHUB_REF": "refs/pull/12/merge",
    "GITHUB_HEAD_REF": "feature/x",
    "GITHUB_SHA": SHA,
    "GITHUB_ACTOR": "ada",
}
PULL_REQUEST = RunOrigin(
    user="ada", repository=REPOSITORY, branch="feature/x", commit=SHA, pull_request="12"
)


@pytest.mark.parametrize(
    ("environ", "origin"),
    [
        (GITHUB, PULL_REQUEST),
        (
            {**GITHUB, "GITHUB_REF": "refs/heads/v12", "GITHUB_HEAD_REF": ""},
            RunOrigin(user="ada", repository=REPOSITORY, branch="v12", commit=SHA),
        ),
        (
            {**GITHUB, "GITHUB_REF": "refs/tags/v12", "GITHUB_HEAD_REF": ""},
            RunOrigin(user="ada", repository=REPOSITORY, commit=SHA),
        ),
        (
            {
                "GITLAB_CI": "true",
                "CI_PROJECT_URL": "https://gitlab.com/acme/app",
                "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "feature/x",
                "CI_MERGE_REQUEST_IID": "12",
                "CI_COMMIT_SHA": SHA,
                "GITLAB_USER_LOGIN": "ada",
            },
            RunOrigin(
                user="ada",
                repository="gitlab.com/acme/app",
                branch="feature/x",
                commit=SHA,
                pull_request="12",
            ),
        ),
        (
            {
                "BUILDKITE": "true",
                "BUILDKITE_REPO": "git@github.com:acme/app.git",
                "BUILDKITE_BRANCH": "main",
                "BUILDKITE_COMMIT": "HEAD",
                "BUILDKITE_PULL_REQUEST": "false",
            },
            RunOrigin(repository=REPOSITORY, branch="main"),
        ),
        (
            {
                "CIRCLECI": "true",
                "CIRCLE_REPOSITORY_URL": "git@github.com:acme/app.git",
                "CIRCLE_BRANCH": "feature/x",
                "CIRCLE_SHA1": SHA,
                "CIRCLE_PULL_REQUEST": "https://github.com/acme/app/pull/12",
                "CIRCLE_USERNAME": "ada",
            },
            PULL_REQUEST,
        ),
        (
            {
                "TF_BUILD": "True",
                "BUILD_REPOSITORY_URI": "https://github.com/acme/app",
                "BUILD_SOURCEBRANCH": "refs/pull/12/merge",
                "SYSTEM_PULLREQUEST_SOURCEBRANCH": "refs/heads/feature/x",
                "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER": "12",
                "BUILD_SOURCEVERSION": SHA,
                "BUILD_REQUESTEDFOR": "ada",
            },
            PULL_REQUEST,
        ),
        (
            {
                "JENKINS_URL": "https://ci.acme.dev/",
                "GIT_URL": "https://github.com/acme/app.git",
                "GIT_BRANCH": "origin/feature/x",
                "GIT_COMMIT": SHA,
                "CHANGE_ID": "12",
                "CHANGE_AUTHOR": "ada",
            },
            PULL_REQUEST,
        ),
        ({"CI": "true"}, RunOrigin()),
    ],
)
def test_variables_of_ci_systems(environ: dict[str, str], origin: RunOrigin) -> None:
    assert read_ci_variables(environ) == origin


def test_ci_completes_a_detached_checkout(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    git(checkout, "checkout", "-q", "--detach")
    origin = collect_origin(str(checkout), GITHUB)
    assert origin == RunOrigin(
        host=os.uname().nodename,
        user="ada",
        repository=REPOSITORY,
        branch="feature/x",
        commit=commit,
        pull_request="12",
    )


def test_another_repository_in_a_ci_job_is_not_that_of_the_job(checkout: Path) -> None:
    git(checkout, "checkout", "-q", "--detach")
    origin = collect_origin(str(checkout), {**GITHUB, "GITHUB_REPOSITORY": "acme/tools"})
    assert (origin.user, origin.repository) == ("ada", REPOSITORY)
    assert (origin.branch, origin.pull_request) == (None, None)
