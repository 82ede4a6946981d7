"""A wheel in an environment of its own: no checkout, and nothing from the package index.

The dependencies are those of the environment of the tests; the distribution of steno is not.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from steno.installation import DISTRIBUTION
from tests.support import adapter_page, packages
from tests.support.program import ROOT

# An installer and a word after it, up to the end of the command.
INSTALL = re.compile(r"\b(?:pip|pipx|uv|uvx|poetry|pdm|conda)\b[^\n|;&#`]*")
WORD = re.compile(r"""["']?steno(?:\[[\w,]*\])?(?:[=<>~!@]=?[\w.]*)?["']?""")
INSTALLS = ("install", "add", "inject", "upgrade", "uvx", "run", "reinstall", "wheel", "download")


class CleanEnvironment:
    """A virtual environment with the dependencies, and without steno until it is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.bin = folder / "venv" / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", folder / "venv"], check=True, capture_output=True
        )
        site = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
        linked = folder / "dependencies"
        linked.mkdir()
        left_out = re.compile(rf".*{DISTRIBUTION}.*|steno.*|pip\b.*|.*\.pth")
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not left_out.fullmatch(path.name):
                (linked / path.name).symlink_to(path)
        Path(site, "dependencies.pth").write_text(f"{linked}\n")

    def run(self, *words: str | Path, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [self.bin / words[0], *words[1:]],
            input=stdin,
            capture_output=True,
            cwd=self.home,
            env={"PATH": f"{self.bin}{os.pathsep}{os.defpath}", "HOME": str(self.home)},
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def pip_install(self, *words: str | Path) -> None:
        options = ["--quiet", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
        self.run("python", "-m", "pip", "install", *options, *words)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    environment = CleanEnvironment(tmp_path_factory.mktemp("clean"))
    environment.pip_install("--no-deps", packages.build_wheel(environment.folder / "dist"))
    return environment


def test_the_example_is_installed_beside_a_wheel(clean: CleanEnvironment) -> None:
    """As documented; with --no-index, a requirement that is not met ends it."""
    clean.pip_install(ROOT / "examples" / "parrot")
    report = json.loads(clean.run("steno", "run", "--agent", "parrot", "--json", "Polly"))
    assert (report["verdict"], report["text"]) == ("success", "Polly! Polly!")
    clean.run("python", "-m", "pip", "uninstall", "-y", "steno-parrot")


def test_the_page_step_by_step(clean: CleanEnvironment) -> None:
    clean.pip_install(adapter_page.write_package(clean.folder / "package"))
    case = clean.home / "recordings" / "1.0" / "says"
    case.mkdir(parents=True)
    (case / "stdout").write_text(clean.run("parrot", stdin="hello"))
    clean.run("python", "-c", adapter_page.step_4())
    doctor = clean.run("steno", "doctor", "--agents", "--json", code=1)  # claude is missing
    assert "parrot" in {row["agent"] for row in json.loads(doctor)["agents"]}
    (*_, commands) = adapter_page.blocks("sh")
    (task,) = re.findall(r"^steno run --agent parrot \"(.*)\"$", commands, re.M)
    clean.run("steno", "run", "--agent", "parrot", task)
    assert (clean.home / "said.txt").read_text() == "Polly was here\n"
    shown = clean.run("steno", "show", "--json", stdin=clean.run("parrot", stdin="hi"))
    assert (json.loads(shown)["agent"], json.loads(shown)["verdict"]) == ("parrot", "success")
    again = ["run", "--agent", "parrot", "--resume", "parrot-0a1b2c3d", "continue"]
    clean.run("steno", *again, code=2)


def test_hints_are_for_this_installation(clean: CleanEnvironment) -> None:
    code = "from steno.installation import extra_command as c; print(c('web'))"
    (wheel,) = (clean.folder / "dist").glob("*.whl")
    hint = f"{clean.bin / 'python'} -m pip install '{wheel}[web]'"
    assert clean.run("python", "-c", code) == f"{hint}\n"


# -- hints by other installers ---------------------------------------------------------------------

RECEIPT = """\
[tool]
requirements = [{ name = "stenograph", extras = ["zstd"], editable = "/x" }]
"""


def hint(prefix: Path, origin: str | None) -> str:
    """What an installation in this environment, from this origin, would print."""
    folder = prefix / "site"
    info = folder / f"{DISTRIBUTION}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 1\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin)
    code = f"from steno.installation import extra_command as c; print(c('web', {str(prefix)!r}))"
    path = f"{folder}{os.pathsep}{ROOT / 'src'}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.rstrip("\n").replace(sys.executable, "python")


def test_hints_by_origin(tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    url = checkout.as_uri()
    origins = {
        None: "python -m pip install 'stenograph[web]'",
        f'{{"url": "{url}", "dir_info": {{"editable": true}}}}': (
            f"python -m pip install -e '{checkout}[web]'"
        ),
        f'{{"url": "{url}", "dir_info": {{}}}}': f"python -m pip install '{checkout}[web]'",
        '{"url": "https://x.example/s.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}': (
            "python -m pip install 'stenograph[web] @ git+https://x.example/s.git@abc'"
        ),
        '{"url": "file:///gone/stenograph-1-py3-none-any.whl", "archive_info": {}}': (
            "python -m pip install 'stenograph[web]'"
        ),
        "no JSON": "python -m pip install 'stenograph[web]'",
        "[]": "python -m pip install 'stenograph[web]'",
    }
    hints = {origin: hint(tmp_path / str(n), origin) for n, origin in enumerate(origins)}
    assert hints == origins


def test_hints_by_installer(tmp_path: Path) -> None:
    pipx = tmp_path / "venvs" / "stenograph"
    pipx.mkdir(parents=True)
    (pipx / "pipx_metadata.json").write_text("{}")
    assert hint(pipx, None) == "pipx runpip stenograph install 'stenograph[web]'"
    uv = tmp_path / "tools" / "stenograph"
    uv.mkdir(parents=True)
    (uv / "uv-receipt.toml").write_text(RECEIPT)
    assert hint(uv, None) == "uv tool install 'stenograph[web,zstd]'"


# -- the name on the package index -----------------------------------------------------------------


def tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = done.stdout.split("\0") if done.returncode == 0 else []
    skipped = ("tests/recordings/", "docs/images/", "benchmarks/results")
    return [ROOT / name for name in names if name and not name.startswith(skipped)]


def requested(text: str) -> list[str]:
    """The commands in a text that install the distribution `steno`."""
    return [
        command
        for command in INSTALL.findall(text)
        if set(INSTALLS) & set(command.split())
        and any(WORD.fullmatch(word) for word in command.split())
    ]


def test_commands_that_would_install_a_stranger_are_found() -> None:
    found = [
        "pip install steno",
        "pip install 'steno[web]'",
        "uvx steno show",
        "pipx install steno",
    ]
    assert [requested(f"run: {text}; x") for text in found] == [[text] for text in found]
    fine = ["pip install stenograph", "pip install .", "uvx --from . steno", "pipx run --help"]
    assert [requested(text) for text in fine[:2]] == [[], []]


def test_no_file_asks_for_the_distribution_of_others() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    wrong = []
    for path in tracked():
        if not path.is_file() or path == Path(__file__):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        wrong += [f"{path.name}: {command}" for command in requested(text)]
        if path.name == "pyproject.toml":
            project = tomllib.loads(text).get("project", {})
            needs = [*project.get("dependencies", ())]
            needs += [
                need
                for extra in project.get("optional-dependencies", {}).values()
                for need in extra
            ]
            wrong += [f"{path}: {need}" for need in needs if WORD.fullmatch(need.replace(" ", ""))]
    assert wrong == []
