"""Git configuration that an agent can write: nothing in it is run by steno.

Each plant is set off by the user's own git first, which shows that it is a real one.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from steno.errors import StenoError
from steno.runner.prepare import ensure_worktree
from steno.workspace import git
from steno.workspace.repository import clone_repository, fetch_repository, open_repository
from tests.workspace.test_changes import run_git, write

HOOKS = (
    *("post-index-change", "reference-transaction", "post-checkout", "pre-commit", "post-commit"),
    *("pre-auto-gc", "update", "post-update", "post-rewrite", "fsmonitor-watchman"),
)
ADD = ("add", "-A")
STATUS = ("status",)
WORKTREE = ("worktree", "add", "-q", "../theirs")


class Trap:
    """A repository, and a program that leaves a line behind when it runs."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "repo"
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.mkdir()
        self.log = folder / "log"
        self.program = folder / "program"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.log}\n')
        self.program.chmod(0o755)
        make_repository(self.repo)

    def config(self, *names: str, value: str | None = None, repo: Path | None = None) -> None:
        for name in names:
            run_git(repo or self.repo, "config", "--add", name, value or str(self.program))

    def plant(self, path: Path) -> None:
        """Put the program there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.program, path)

    def ran(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


def make_repository(folder: Path) -> None:
    write(folder / "a.txt", "one\n")
    write(folder / "sub" / "b.txt", "two\n")
    run_git(folder, "init", "-q")
    run_git(folder, *ADD)
    run_git(folder, "commit", "-qm", "first")


def filters(trap: Trap) -> None:
    write(trap.repo / ".gitattributes", "* filter=x\n")
    trap.config("filter.x.clean", "filter.x.smudge")


def process_filter(trap: Trap) -> None:
    write(trap.repo / ".gitattributes", "* filter=x\n")
    trap.config("filter.x.process")


def filter_in_info(trap: Trap) -> None:
    write(trap.repo / ".git" / "info" / "attributes", "* filter=x\n")
    trap.config("filter.x.clean", "filter.x.smudge")


def filter_in_attributes_file(trap: Trap) -> None:
    write(trap.elsewhere / "attributes", "* filter=x\n")
    trap.config("core.attributesFile", value=str(trap.elsewhere / "attributes"))
    trap.config("filter.x.clean", "filter.x.smudge")


def included_filter(trap: Trap) -> None:
    write(trap.repo / ".gitattributes", "* filter=x\n")
    write(trap.elsewhere / "config", f'[filter "x"]\n\tclean = {trap.program}\n')
    trap.config("include.path", value=str(trap.elsewhere / "config"))


def conditionally_included_filter(trap: Trap) -> None:
    write(trap.repo / ".gitattributes", "* filter=x\n")
    write(trap.elsewhere / "config", f'[filter "x"]\n\tclean = {trap.program}\n')
    trap.config("includeIf.gitdir:**.path", value=str(trap.elsewhere / "config"))


def filter_in_worktree_config(trap: Trap) -> None:
    write(trap.repo / ".gitattributes", "* filter=x\n")
    trap.config("extensions.worktreeConfig", value="true")
    write(trap.repo / ".git" / "config.worktree", f'[filter "x"]\n\tclean = {trap.program}\n')


def hooks(trap: Trap) -> None:
    for name in HOOKS:
        trap.plant(trap.repo / ".git" / "hooks" / name)


def hooks_elsewhere(trap: Trap) -> None:
    for name in HOOKS:
        trap.plant(trap.elsewhere / name)
    trap.config("core.hooksPath", value=str(trap.elsewhere))


def fsmonitor(trap: Trap) -> None:
    trap.config("core.fsmonitor")


def external_diff(trap: Trap) -> None:
    trap.config("diff.external")


def diff_driver(trap: Trap) -> None:
    write(trap.repo / ".gitattributes", "* diff=x\n")
    trap.config("diff.x.command")


def textconv(trap: Trap) -> None:
    write(trap.repo / ".gitattributes", "* diff=x\n")
    trap.config("diff.x.textconv")


def lazy_fetch(trap: Trap) -> None:
    """A blob is missing, and git would fetch it from the remote that the repository names."""
    trap.config("remote.x.url", value=f"ext::{trap.program}")
    trap.config("remote.x.promisor", "extensions.partialClone", value="true")
    run_git(trap.repo, "config", "extensions.partialClone", "x")
    trap.config("protocol.ext.allow", value="always")
    trap.config("core.repositoryFormatVersion", value="1")
    shutil.rmtree(trap.repo / ".git" / "objects" / "56")  # a.txt


def programs_of_remotes(trap: Trap) -> None:
    trap.config("core.sshCommand", "core.gitProxy", "core.askPass", "credential.helper")
    trap.config("core.alternateRefsCommand", "uploadpack.packObjectsHook", "remote.x.uploadpack")
    trap.config("remote.x.url", value=f"ext::{trap.program}")
    trap.config("protocol.ext.allow", value="always")


def pagers_and_editors(trap: Trap) -> None:
    trap.config("core.pager", "core.editor", "sequence.editor", "gpg.program", "gpg.ssh.program")
    trap.config("interactive.diffFilter", "merge.x.driver", "mergetool.x.cmd", "tar.x.command")
    trap.config(*(f"pager.{name}" for name in ("diff-tree", "ls-files", "config", "branch")))
    trap.config("commit.gpgSign", value="true")


def aliases(trap: Trap) -> None:
    names = ("ls-files", "diff-tree", "write-tree", "update-index", "update-ref", "config", "own")
    trap.config(*(f"alias.{name}" for name in names), value=f"!{trap.program}")


def inner_repository(trap: Trap, name: str) -> Path:
    inner = trap.repo / name
    make_repository(inner)
    write(inner / ".gitattributes", "* filter=x\n")
    trap.config("core.fsmonitor", "filter.x.clean", repo=inner)
    write(inner / "a.txt", "changed\n")
    for hook in HOOKS:
        trap.plant(inner / ".git" / "hooks" / hook)
    return inner


def submodule(trap: Trap) -> None:
    inner_repository(trap, "module")
    link = run_git(trap.repo / "module", "rev-parse", "HEAD").decode().strip()
    run_git(trap.repo, "update-index", "--add", "--cacheinfo", f"160000,{link},module")
    trap.ran()


def nested_repository(trap: Trap) -> None:
    inner_repository(trap, "nested")


def git_dir_elsewhere(trap: Trap) -> None:
    (trap.repo / ".git").rename(trap.elsewhere / "git")
    write(trap.repo / ".git", f"gitdir: {trap.elsewhere / 'git'}\n")
    write(trap.repo / ".gitattributes", "* filter=x\n")
    trap.config("filter.x.clean", "core.fsmonitor")


Plant = tuple[Callable[[Trap], None], tuple[str, ...] | None]
PLANTS: list[Plant] = [
    (filters, ADD),
    (process_filter, ADD),
    (filter_in_info, ADD),
    (filter_in_attributes_file, ADD),
    (included_filter, ADD),
    (conditionally_included_filter, ADD),
    (filter_in_worktree_config, ADD),
    (hooks, ADD),
    (hooks_elsewhere, WORKTREE),
    (fsmonitor, STATUS),
    (external_diff, ("diff",)),
    (diff_driver, ("diff",)),
    (textconv, ("diff",)),
    (lazy_fetch, ("cat-file", "-p", "HEAD:a.txt")),
    (programs_of_remotes, ("fetch", "x")),
    (pagers_and_editors, ("commit", "-am", "signed")),
    (aliases, ("own",)),
    (submodule, STATUS),
    (nested_repository, None),
    (git_dir_elsewhere, ADD),
]


def everything_of_steno(repo: Path) -> None:
    """Each function of ours that starts git."""
    cwd = str(repo)
    first = git.save_snapshot(cwd, "r1", "before")
    write(repo / "a.txt", "by the agent\n")
    write(repo / "new.txt")
    second = git.save_snapshot(cwd, "r1", "after")
    assert None not in (first, second)
    assert git.load_trees(cwd, "r1") == git.TreePair(str(first), str(second))
    trees = git.TreePair(str(first), str(second))
    assert {"a.txt", "new.txt"} <= {change.path for change in git.diff_trees(cwd, trees)}
    assert b"by the agent" in (git.diff_patch(cwd, trees) or b"")
    git.prune_snapshots(cwd, 1, 1)
    assert git.delete_snapshots(cwd, ["r1"]) == 1
    if not (repo / ".git" / "objects" / "56").exists() and (repo / ".git").is_dir():
        with pytest.raises(StenoError, match=r"unable to read .* of a.txt"):
            ensure_worktree(cwd, "made")
        assert not (repo.parent / "repo-worktrees" / "made").exists()
        return
    made = ensure_worktree(cwd, "made")
    assert Path(made.path, "sub", "b.txt").read_text() == "two\n"


@pytest.mark.parametrize(
    ("plant", "trigger"), PLANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_nothing_planted_runs(
    tmp_path: Path, plant: Callable[[Trap], None], trigger: tuple[str, ...] | None
) -> None:
    trap = Trap(tmp_path)
    plant(trap)
    write(trap.repo / "a.txt", "changed before\n")
    if trigger is not None:
        copy = tmp_path / "copy"
        shutil.copytree(trap.repo, copy, symlinks=True)
        env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        author = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(
            ["git", *author, *trigger],
            cwd=copy,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=30,
            check=False,
        )
        assert trap.ran() != [], "the plant is no plant"
    everything_of_steno(trap.repo)
    assert trap.ran() == []


def test_a_git_in_the_project_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An active environment in the project, or a relative folder, is in PATH."""
    trap = Trap(tmp_path)
    for folder in (trap.repo / ".venv" / "bin", trap.repo / "sub", trap.repo):
        trap.plant(folder / "git")
    link = tmp_path / "link"
    link.symlink_to(trap.repo / ".venv" / "bin")
    found = (str(trap.repo / ".venv" / "bin"), str(link), ".", "", "sub", os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(found))
    monkeypatch.chdir(trap.repo)
    everything_of_steno(trap.repo)
    assert trap.ran() == []


def test_a_fetch_runs_nothing_that_the_clone_configures(tmp_path: Path) -> None:
    """An agent in a worktree of the clone can write its configuration with `git config`."""
    trap = Trap(tmp_path)
    url = trap.repo.as_uri()
    clone = tmp_path / "clone"
    clone_repository(url, clone, 60)
    names = ("core.fsmonitor", "core.sshCommand", "core.gitProxy", "remote.origin.uploadpack")
    trap.config(*names, repo=clone)
    for name in HOOKS:
        trap.plant(clone / ".git" / "hooks" / name)
    write(trap.repo / "a.txt", "two\n")
    run_git(trap.repo, "commit", "-qam", "second")
    subprocess.run(["git", "-C", str(clone), "fetch", "-q"], capture_output=True, check=False)
    assert trap.ran() != []
    fetch_repository(url, clone, 60)
    assert trap.ran() == []
    second = (trap.repo / ".git" / "refs" / "heads").iterdir()
    with open_repository(str(clone)) as repository:
        assert repository is not None
        assert [git.has_commit(repository, head.read_text().strip()) for head in second] == [True]
    assert trap.ran() == []
