"""Which version of an agent a program is, as far as files tell it: starting it only to ask would cost a tenth of a second."""

import os
import re
import shutil
from pathlib import Path

import msgspec

NPM_PACKAGES = (
    "@anthropic-ai/claude-code", "@openai/codex", "@github/copilot", "@google/gemini-cli", "opencode-ai", "@qwen-code/qwen-code",
)  # fmt: skip
_VERSION_PATTERN = re.compile(r"\d+\.\d+\.\d+")


class _PackageJson(msgspec.Struct):
    name: str = ""
    version: str = ""


def version_of(program: str, path: str | None = None, package: str = "") -> str | None:
    """By the name of the file (its own installer) or by the package that it lies in (npm); None: neither tells.

    `package` is that of an agent that is none of ours.
    """
    found = shutil.which(program, path=path)
    if found is None:
        return None
    file = Path(os.path.realpath(found))
    if _VERSION_PATTERN.fullmatch(file.name):
        return file.name
    known = (*NPM_PACKAGES, package) if package else NPM_PACKAGES
    return next(filter(None, (_version_from_package_json(folder / "package.json", known) for folder in file.parents[:3])), None)


def _version_from_package_json(path: Path, known: tuple[str, ...]) -> str | None:
    try:
        package = msgspec.json.decode(path.read_bytes(), type=_PackageJson)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return package.version if package.name in known else None
