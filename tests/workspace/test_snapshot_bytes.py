"""Snapshots have the bytes on disk, whatever git would convert; and no secrets."""

import os
from pathlib import Path

import pytest

from steno.workspace import git
from steno.workspace.ignore_rules import looks_secret
from tests.workspace.test_changes import everything, run_git, write

RAW_APPLY = (
    *("-c", "core.autocrlf=false", "-c", "filter.upper.clean=", "-c", "filter.upper.smudge="),
    *("apply", "-R", "-"),
)


def commit(folder: Path, *options: str) -> None:
    """Commit everything as a git with these options."""
    given = [word for option in options for word in ("-c", option)]
    if not (folder / ".git").exists():
        run_git(folder, "init", "-q")
    run_git(folder, *given, "add", "-A")
    run_git(folder, *given, "commit", "-qm", "first")


def undo(folder: Path, before: str | None, *apply: str) -> None:
    """Take the second snapshot and undo the changes with git."""
    after = git.snapshot(str(folder))
    assert before is not None
    assert after is not None
    patch = git.diff_patch(str(folder), git.TreePair(before, after))
    run_git(folder, *apply, data=patch)


@pytest.mark.parametrize("name", ["autocrlf", "text=auto", "working-tree-encoding", "ident"])
def test_converted_files_are_stored_as_they_are(tmp_path: Path, name: str) -> None:
    """Unchanged files in a repository that stores them in another form."""
    folder = tmp_path / "repo"
    text = "eins\r\nzwei $Id$\r\n"
    data = text.encode("utf-16-le" if name == "working-tree-encoding" else "utf-8")
    options = ["core.autocrlf=true"] if name == "autocrlf" else []
    attribute = {"working-tree-encoding": "text working-tree-encoding=UTF-16LE"}.get(name, name)
    write(folder / ".gitattributes", "" if options else f"*.txt {attribute}\n")
    (folder / "a.txt").write_bytes(data)
    (folder / "b.txt").write_bytes(data)
    commit(folder, *options)
    if name == "ident":
        (folder / "a.txt").unlink()
        run_git(folder, "checkout", "a.txt")
        assert b"$Id: " in (folder / "a.txt").read_bytes()
    if options:
        run_git(folder, "config", "core.autocrlf", "true")
    files = everything(folder)
    before = git.snapshot(str(folder))
    assert run_git(folder, "cat-file", "blob", f"{before}:a.txt") == files["a.txt"][0]
    (folder / "a.txt").write_bytes(files["a.txt"][0] + "drei\r\n".encode("utf-16-le"))
    undo(folder, before, "-c", "core.attributesFile=/dev/null", *raw_apply(folder))
    assert everything(folder) == files


def raw_apply(folder: Path) -> tuple[str, ...]:
    """Apply without conversion: attributes of the repository's own folder win."""
    write(folder / ".git" / "info" / "attributes", "* -text !ident !working-tree-encoding\n")
    return RAW_APPLY


def test_a_filter_of_the_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git-lfs does: the user's own git stores another form, of the same length here."""
    home = tmp_path / "home"
    write(
        home / ".gitconfig",
        f'[filter "upper"]\n\tclean = "touch {tmp_path}/ran; tr a-z A-Z"\n\tsmudge = tr A-Z a-z\n',
    )
    monkeypatch.setenv("HOME", str(home))
    folder = tmp_path / "repo"
    write(folder / ".gitattributes", "*.bin filter=upper\n")
    write(folder / "a.bin", "content\n")
    write(folder / "b.bin", "other\n")
    commit(folder, "filter.upper.clean=tr a-z A-Z", "filter.upper.smudge=tr A-Z a-z")
    assert run_git(folder, "show", "HEAD:a.bin") == b"CONTENT\n"
    files = everything(folder)
    before = git.snapshot(str(folder))
    assert run_git(folder, "cat-file", "blob", f"{before}:b.bin") == b"other\n"
    write(folder / "a.bin", "changed\n")
    undo(folder, before, *RAW_APPLY)
    assert everything(folder) == files
    assert not (tmp_path / "ran").exists()


def test_too_large_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged files of a filter stay as git has them, and the snapshot is still taken."""
    folder = tmp_path / "repo"
    write(folder / ".gitattributes", "*.bin filter=upper\n")
    path = write(folder / "a.bin", "content\n" * 1000)
    os.utime(path, (1e9, 1e9))  # git distrusts the time of a file as young as its index
    commit(folder, "filter.upper.clean=tr a-z A-Z")
    monkeypatch.setattr(git, "MAX_SNAPSHOT_BYTES", 1000)
    before = git.snapshot(str(folder))
    assert run_git(folder, "cat-file", "blob", f"{before}:a.bin").startswith(b"CONTENT\n")


def test_what_replaces_a_file(tmp_path: Path) -> None:
    """Folders, links, FIFOs and unmerged files; a file that cannot be read costs only itself."""
    folder = tmp_path / "repo"
    for name in ("file", "folder/in", "pipe", "link", "deep/er/x"):
        write(folder / name, f"{name}\n")
    commit(folder)
    for name in ("file", "pipe", "link", "folder/in", "deep/er/x"):
        (folder / name).unlink()
    (folder / "folder").rmdir()
    write(folder / "folder", "now a file\n")
    write(folder / "file" / "in", "now a folder\n")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("folder")
    (folder / "deep" / "er").rmdir()
    write(tmp_path / "outside" / "x", "not ours\n")
    (folder / "deep" / "er").symlink_to(tmp_path / "outside")
    (folder / "nested").mkdir()
    run_git(folder / "nested", "init", "-q")
    write(folder / "unreadable").chmod(0)
    tree = git.snapshot(str(folder))
    listed = run_git(folder, "ls-tree", "-r", "--name-only", str(tree)).decode().split()
    assert set(listed) - {"unreadable"} == {"folder", "file/in", "link", "deep/er"}


def test_secrets_that_git_does_not_have_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    write(folder / "a.txt")
    write(folder / "tracked.env", "A=1\n")
    commit(folder)
    write(folder / "tracked.env", "A=2\n")
    write(folder / "sub" / ".env", "KEY=x\n")
    write(folder / "deploy", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    write(folder / "notes.txt", "A key begins with -----BEGIN RSA PRIVATE KEY-----\n")
    write(folder / ".env.example", "KEY=\n")
    before = git.snapshot(str(folder))
    listed = run_git(folder, "ls-tree", "-r", "--name-only", str(before)).decode().split()
    assert listed == [".env.example", "a.txt", "notes.txt", "tracked.env"]
    assert run_git(folder, "cat-file", "blob", f"{before}:tracked.env") == b"A=2\n"
    objects = run_git(folder, "cat-file", "--batch-all-objects", "--batch")
    assert b"KEY=x" not in objects
    assert b"OPENSSH" not in objects


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "a/.env.local", "prod.env", ".envrc", "id_rsa", "x/id_ed25519", "server.key"),
        *("cert.pem", "store.p12", ".netrc", ".npmrc", ".pgpass", "credentials", ".aws/config"),
        *("credentials.json", "client_secret.json", "secrets.yaml", "service-account-x.json"),
        *("terraform.tfstate", "prod.tfvars", ".docker/config.json", "auth.json", "KEY.PEM"),
    ],
)
def test_names_of_secrets(path: str) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize(
    "path",
    [
        *(".env.example", ".env.sample", "secrets.py", "environment.ts", "keys.go", "id_rsa.pub"),
        *("credentials_test.py", "token.c", "src/password_reset.html", "config.json", "monkey"),
    ],
)
def test_names_of_ordinary_files(path: str) -> None:
    assert not looks_secret(path)


def test_ignored_files_of_the_user_and_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`core.excludesFile`, also the default one, and `.git/info/exclude` are respected."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    folder = tmp_path / "repo"
    write(folder / "a.txt")
    commit(folder)
    write(folder / ".git" / "info" / "exclude", "*.one\n")
    write(tmp_path / ".config" / "git" / "ignore", "*.two\n")
    for name in ("x.one", "x.two", "x.three"):
        write(folder / name)
    assert names(folder) == ["a.txt", "x.three"]
    write(tmp_path / "mine", "*.three\n")
    write(tmp_path / ".gitconfig", "[core]\n\texcludesFile = ~/mine\n")
    assert names(folder) == ["a.txt", "x.two"]


def names(folder: Path) -> list[str]:
    tree = git.snapshot(str(folder))
    return run_git(folder, "ls-tree", "-r", "--name-only", str(tree)).decode().split()


@pytest.mark.parametrize("how", ["split index", "index v4", "sha256", "sparse", "worktree"])
def test_forms_of_a_repository(tmp_path: Path, how: str) -> None:
    """What steno stores can be read by the user's git, and only changes differ."""
    folder = tmp_path / "repo"
    write(folder / "a.txt", "one\n")
    write(folder / "sub" / ".gitattributes", "*.txt text\n")
    write(folder / "sub" / "b.txt", "two\n")
    form = ("--object-format=sha256",) if how == "sha256" else ()
    run_git(folder, "init", "-q", *form)
    commit(folder)
    if how == "split index":
        run_git(folder, "update-index", "--split-index")
    elif how == "index v4":
        run_git(folder, "update-index", "--index-version", "4")
    elif how == "sparse":
        run_git(folder, "sparse-checkout", "set", "--cone", "--sparse-index", "other")
    elif how == "worktree":
        run_git(folder, "worktree", "add", "-q", "../tree")
        folder = tmp_path / "tree"
    before = git.save_snapshot(str(folder), "r1", "before")
    assert before == run_git(folder, "rev-parse", "HEAD^{tree}").decode().strip()
    write(folder / "a.txt", "three\n")
    after = git.save_snapshot(str(folder), "r1", "after")
    trees = git.load_trees(str(folder), "r1")
    assert trees == git.TreePair(str(before), str(after))
    run_git(folder, "pack-refs", "--all")
    found = git.diff_trees(str(folder), git.TreePair(str(before), str(after)))
    assert [change.path for change in found] == ["a.txt"]
    assert git.delete_snapshots(str(folder), ["r1"]) == 1
    assert run_git(folder, "for-each-ref", "refs/steno") == b""
    run_git(folder, "fsck", "--strict")
