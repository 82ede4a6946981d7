"""A package as an installer leaves it, in a folder of its own: its modules, its metadata, its programs. Nothing is downloaded.

A real `pip install` needs a build backend, which not every Python has at hand; what it leaves behind is this.
"""

import os
import shutil
import sys
import tomllib
from pathlib import Path

from .program import ROOT

PARROT = ROOT / "examples" / "parrot"


def install(source: Path, target: Path) -> dict[str, str]:
    """Install a project with a `src` folder, by its own pyproject.toml; returns the variables that make it usable."""
    project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
    for package in (source / "src").iterdir():
        shutil.copytree(
            package,
            target / package.name,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name, value in project.get("scripts", {}).items():
        module, _, function = value.partition(":")
        path = target / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        path.chmod(0o755)
    points = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    metadata(target, project["name"], project["version"], points)
    return usable(target)


def metadata(target: Path, name: str, version: str, points: dict[str, dict[str, str]]) -> None:
    """What tells Python of a package and its entry points."""
    folder = target / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in own.items())
        for group, own in points.items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(sections))


def usable(target: Path) -> dict[str, str]:
    """The variables with which a steno of this checkout finds what was installed there."""
    return {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{target}",
        "PATH": f"{target / 'bin'}{os.pathsep}{os.defpath}",
    }
