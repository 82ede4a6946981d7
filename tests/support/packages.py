"""Install a package into a folder as pip would: modules, metadata and programs.

A real `pip install` needs a build backend, which may be missing.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from .program import ROOT

PARROT = ROOT / "examples" / "parrot"


def install(source: Path, target: Path) -> dict[str, str]:
    """Install a project with a `src` folder; return the variables that make it usable."""
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
        lines = (f"#!{sys.executable}", "import sys", f"from {module} import {function}")
        path.write_text("\n".join((*lines, f"sys.exit({function}())", "")))
        path.chmod(0o755)
    points = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    metadata(target, project["name"], project["version"], points)
    return usable(target)


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        timeout=240,
        check=True,
    )
    (path,) = folder.glob("*.whl")
    return path


def metadata(target: Path, name: str, version: str, points: dict[str, dict[str, str]]) -> None:
    """Write the metadata of a package with its entry points."""
    folder = target / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in own.items())
        for group, own in points.items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(sections))


def usable(target: Path) -> dict[str, str]:
    """The variables with which this checkout's steno finds the installed package."""
    return {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{target}",
        "PATH": f"{target / 'bin'}{os.pathsep}{os.defpath}",
    }
