"""Where and for whom a run is started: machine, user, git repository, pull request.

Git is not run, since a repository's configuration can name programs to start: HEAD, refs and the
remote are read from files. In CI, variables say what a detached checkout doesn't.
"""

import os
import re
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from ..codec.redact import repository_name
from ..report import RunOrigin

MAX_FILE_BYTES = 1 << 20
MAX_PACKED_REFS_BYTES = 64 << 20  # large repositories have a million refs
MAX_NAME_CHARS = 250
HEADS = "refs/heads/"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PULL_REQUEST = re.compile(r"(?:.*(?:/pull/|/pull-requests/|/merge_requests/|!))?(\d+)(?:/\w+)?")
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*(.*)')
_VARIABLE = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*(.*)")


class CiVariables(Struct, frozen=True, kw_only=True):
    """The variables of one CI system: templates, of which the first with a value counts."""

    marker: str  # a variable that is set only there
    repository: tuple[str, ...]
    branch: tuple[str, ...]
    commit: tuple[str, ...]
    pull_request: tuple[str, ...]
    user: tuple[str, ...] = ()


CI_SYSTEMS = (
    CiVariables(
        marker="GITHUB_ACTIONS",
        repository=("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}",),
        branch=("{GITHUB_HEAD_REF}", "{GITHUB_REF}"),
        commit=("{GITHUB_SHA}",),
        pull_request=("{GITHUB_REF}",),
        user=("{GITHUB_ACTOR}",),
    ),
    CiVariables(
        marker="GITLAB_CI",
        repository=("{CI_PROJECT_URL}", "{CI_REPOSITORY_URL}"),
        branch=("{CI_MERGE_REQUEST_SOURCE_BRANCH_NAME}", "{CI_COMMIT_BRANCH}"),
        commit=("{CI_COMMIT_SHA}",),
        pull_request=("{CI_MERGE_REQUEST_IID}",),
        user=("{GITLAB_USER_LOGIN}",),
    ),
    CiVariables(
        marker="BUILDKITE",
        repository=("{BUILDKITE_REPO}",),
        branch=("{BUILDKITE_BRANCH}",),
        commit=("{BUILDKITE_COMMIT}",),
        pull_request=("{BUILDKITE_PULL_REQUEST}",),
        user=("{BUILDKITE_BUILD_CREATOR}",),
    ),
    CiVariables(
        marker="CIRCLECI",
        repository=("{CIRCLE_REPOSITORY_URL}",),
        branch=("{CIRCLE_BRANCH}",),
        commit=("{CIRCLE_SHA1}",),
        pull_request=("{CIRCLE_PR_NUMBER}", "{CIRCLE_PULL_REQUEST}"),
        user=("{CIRCLE_USERNAME}",),
    ),
    CiVariables(
        marker="TF_BUILD",
        repository=("{BUILD_REPOSITORY_URI}",),
        branch=("{SYSTEM_PULLREQUEST_SOURCEBRANCH}", "{BUILD_SOURCEBRANCH}"),
        commit=("{BUILD_SOURCEVERSION}",),
        pull_request=(
            "{SYSTEM_PULLREQUEST_PULLREQUESTNUMBER}",
            "{SYSTEM_PULLREQUEST_PULLREQUESTID}",
        ),
        user=("{BUILD_REQUESTEDFOR}",),
    ),
    CiVariables(
        marker="BITBUCKET_BUILD_NUMBER",
        repository=("{BITBUCKET_GIT_HTTP_ORIGIN}",),
        branch=("{BITBUCKET_BRANCH}",),
        commit=("{BITBUCKET_COMMIT}",),
        pull_request=("{BITBUCKET_PR_ID}",),
    ),
    CiVariables(
        marker="TRAVIS",
        repository=("https://github.com/{TRAVIS_REPO_SLUG}",),
        branch=("{TRAVIS_PULL_REQUEST_BRANCH}", "{TRAVIS_BRANCH}"),
        commit=("{TRAVIS_COMMIT}",),
        pull_request=("{TRAVIS_PULL_REQUEST}",),
    ),
    CiVariables(
        marker="JENKINS_URL",
        repository=("{GIT_URL}",),
        branch=("{CHANGE_BRANCH}", "{BRANCH_NAME}", "{GIT_BRANCH}"),
        commit=("{GIT_COMMIT}",),
        pull_request=("{CHANGE_ID}",),
        user=("{CHANGE_AUTHOR}", "{BUILD_USER_ID}"),
    ),
    CiVariables(
        marker="DRONE",
        repository=("{DRONE_GIT_HTTP_URL}", "{DRONE_REMOTE_URL}"),
        branch=("{DRONE_SOURCE_BRANCH}", "{DRONE_BRANCH}"),
        commit=("{DRONE_COMMIT_SHA}",),
        pull_request=("{DRONE_PULL_REQUEST}",),
        user=("{DRONE_COMMIT_AUTHOR}",),
    ),
)


def collect_origin(cwd: str, environ: Mapping[str, str]) -> RunOrigin:
    """The origin of a run that is started in a folder, with these variables."""
    found = read_repository(cwd)
    from_ci = read_ci_variables(environ)
    user = from_ci.user or user_name(environ)
    if found.repository is not None and from_ci.repository not in (None, found.repository):
        from_ci = RunOrigin()  # the agent works in another repository than the CI job
    return RunOrigin(
        host=host_name(),
        user=user,
        repository=found.repository or from_ci.repository,
        branch=found.branch or from_ci.branch,
        commit=found.commit or from_ci.commit,
        pull_request=from_ci.pull_request,
    )


def host_name() -> str | None:
    return _one_line(os.uname().nodename)


def user_name(environ: Mapping[str, str]) -> str | None:
    """The account's name; in a container without accounts, what the environment says."""
    import pwd

    try:
        return _one_line(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return _one_line(environ.get("LOGNAME") or environ.get("USER"))


# -- CI --------------------------------------------------------------------------------------------


def read_ci_variables(environ: Mapping[str, str]) -> RunOrigin:
    """What the variables of the CI system say; empty elsewhere."""
    system = next((system for system in CI_SYSTEMS if environ.get(system.marker)), None)
    if system is None:
        return RunOrigin()
    url = _first_value(system.repository, environ)
    commit = _first_value(system.commit, environ) or ""
    request = _PULL_REQUEST.fullmatch(_first_value(system.pull_request, environ) or "")
    branches = (_branch_of(_first_value((name,), environ)) for name in system.branch)
    return RunOrigin(
        user=_one_line(_first_value(system.user, environ)),
        repository=repository_name(url) if url else None,
        branch=next(filter(None, branches), None),
        commit=commit if _COMMIT.fullmatch(commit) else None,
        pull_request=request[1] if request is not None else None,
    )


def _first_value(templates: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    for template in templates:
        names = re.findall(r"\{(\w+)\}", template)
        if all(environ.get(name) for name in names):
            return template.format_map({name: environ[name] for name in names})
    return None


def _branch_of(ref: str | None) -> str | None:
    """The branch of a ref or branch name; None for tags and merge refs."""
    if ref is None or (ref.startswith("refs/") and not ref.startswith(HEADS)):
        return None
    return _one_line(ref.removeprefix(HEADS).removeprefix("origin/"))


# -- git -------------------------------------------------------------------------------------------


def read_repository(cwd: str) -> RunOrigin:
    """Repository, branch and commit of a folder; empty outside of repositories."""
    try:
        root = find_repository_root(cwd)
        if root is None:
            return RunOrigin()
        folder = _git_folder(root)
        common = folder / (_read_text(folder / "commondir").strip() or ".")
        head = _read_text(folder / "HEAD").strip()
        config = _read_config(_read_text(common / "config"))
    except (OSError, ValueError):  # ValueError: a path with a NUL
        return RunOrigin()
    ref = head.removeprefix("ref: ") if head.startswith("ref: ") else None
    branch = _branch_of(ref) if ref is not None and ref.startswith(HEADS) else None
    if branch == ".invalid":  # refs in the reftable format
        branch = None
    commit = head if ref is None else _resolve_ref(folder, common, ref)
    url = _remote_url(config, branch)
    return RunOrigin(
        repository=repository_name(url) if url else None,
        branch=branch,
        commit=commit if commit is not None and _COMMIT.fullmatch(commit) else None,
    )


def find_repository_root(path: str) -> Path | None:
    """The nearest folder with a `.git`, at or above a path; None outside of repositories."""
    folders = (Path(path), *Path(path).parents)
    return next((folder for folder in folders if (folder / ".git").exists()), None)


def main_folder(root: str) -> str:
    """The folder that all worktrees of a repository share; outside of repositories, the same."""
    if not (Path(root) / ".git").exists():
        return root
    folder = _git_folder(Path(root))
    common = (folder / (_read_text(folder / "commondir").strip() or ".")).resolve()
    return str(common.parent if common.name == ".git" else common)


@lru_cache(maxsize=1024)
def repository_of(folder: str) -> str | None:
    """The repository of a folder on this machine, as far as its remote says; for many sessions."""
    return read_repository(folder).repository if folder[:1] == "/" else None


def _git_folder(root: Path) -> Path:
    """The folder `.git`, or the one that a file of that name points to (worktrees, submodules)."""
    path = root / ".git"
    if path.is_dir():
        return path
    return root / _read_text(path).strip().removeprefix("gitdir: ")


def _resolve_ref(folder: Path, common: Path, ref: str) -> str | None:
    if ".." in ref or not ref.startswith("refs/"):
        return None
    for place in (folder, common):
        text = _read_text(place / ref).strip()
        if text:
            return text
    packed = _read_text(common / "packed-refs", MAX_PACKED_REFS_BYTES)
    end = packed.find(f" {ref}\n")
    return packed[packed.rfind("\n", 0, end) + 1 : end]


def _read_text(path: Path, limit: int = MAX_FILE_BYTES) -> str:
    """The start of a regular file; empty if there is none. A named pipe is not waited for."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(limit).decode("utf-8", "replace") if is_regular else ""
    except OSError:  # a folder, too
        return ""


_GitConfig = dict[tuple[str, str, str], str]  # by section, subsection and name


def _read_config(text: str) -> _GitConfig:
    """The variables of a git configuration; the first value of each. Includes are not followed."""
    values: _GitConfig = {}
    section = ("", "")
    for line in text.splitlines():
        header = _SECTION.fullmatch(line)
        if header is not None:
            section = (header[1].lower(), re.sub(r"\\(.)", r"\1", header[2] or ""))
            line = header[3]
        variable = _VARIABLE.fullmatch(line)
        if variable is not None:
            value = re.sub(r"\s+[#;].*", "", variable[2]).strip().strip('"')
            values.setdefault((*section, variable[1].lower()), value)
    return values


def _remote_url(config: _GitConfig, branch: str | None) -> str | None:
    """The URL of `origin`, else of the branch's remote, else of the first remote."""
    remotes = {
        name: url
        for (section, name, key), url in config.items()
        if section == "remote" and key == "url"
    }
    tracked = config.get(("branch", branch or "", "remote"), "")
    return remotes.get("origin") or remotes.get(tracked) or next(iter(remotes.values()), None)


def _one_line(text: str | None) -> str | None:
    """A name without surprises; None if it is empty or has control characters."""
    name = (text or "").strip()[:MAX_NAME_CHARS]
    return name if name and name.isprintable() else None
