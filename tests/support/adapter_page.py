"""The agent of the page "Add an agent", as the package that a reader would have at its end."""

import re
from pathlib import Path

from .program import ROOT

PAGE = ROOT / "docs" / "howto" / "add-an-agent.md"
PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "page-parrot"
version = "1.0"
dependencies = ["stenograph"]

[project.scripts]
parrot = "steno_parrot.program:main"

[tool.hatch.build.targets.wheel]
packages = ["src/steno_parrot"]

"""


def blocks(language: str) -> list[str]:
    """The page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


def write_package(folder: Path) -> Path:
    """Steps 1 to 3: the entry point, the reader, and how it is started; the program is ours."""
    module = folder / "src" / "steno_parrot"
    module.mkdir(parents=True)
    (entry_point,) = blocks("toml")
    (folder / "pyproject.toml").write_text(PYPROJECT + entry_point)
    reader, launch, _ = blocks("python")
    (module / "__init__.py").write_text(reader + launch)
    program = ROOT / "examples" / "parrot" / "src" / "steno_parrot" / "program.py"
    (module / "program.py").write_bytes(program.read_bytes())
    return folder


def step_4() -> str:
    """The checks, with the recordings in this folder; there is one."""
    *_, checks = blocks("python")
    path = '"examples/parrot/src"'
    lines = [line for line in checks.splitlines() if path not in line]
    return "\n".join(lines).replace("examples/parrot/recordings", "recordings").replace("6", "1")
