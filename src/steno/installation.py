"""How this steno was installed, for hints: the command that adds an extra to this installation.

`pip install NAME` may change another environment, and an index has this version only after its
release: what was installed from a folder, a wheel or a repository is installed from there again.
"""

import sys
from pathlib import Path
from shlex import quote

DISTRIBUTION = "stenograph"  # `steno` on the package index is another project
PIPX_FILE = "pipx_metadata.json"  # in the environments of pipx, since 0.15
UV_TOOL_FILE = "uv-receipt.toml"  # in those of `uv tool`


def extra_command(extra: str, prefix: str = sys.prefix) -> str:
    """The command that adds an extra to the installation in an environment, for a POSIX shell."""
    is_editable, source = _source()
    receipt = Path(prefix) / UV_TOOL_FILE
    if receipt.is_file():
        extras = ",".join(sorted({*_uv_extras(receipt), extra}))
        editable = ["--editable"] if is_editable else []
        return _line("uv", "tool", "install", *editable, _with_extra(source, extras))
    editable = ["-e"] if is_editable else []
    return package_command(*editable, _with_extra(source, extra), prefix=prefix)


def package_command(*words: str, prefix: str = sys.prefix) -> str:
    """The command that installs packages into an environment."""
    folder = Path(prefix)
    if (folder / PIPX_FILE).is_file():
        return _line("pipx", "runpip", folder.name, "install", *words)
    return _line(*_pip_install(), *words)


def _line(*words: str) -> str:
    return " ".join(map(quote, words))


def _pip_install() -> list[str]:
    """The pip of this environment; uv creates environments without one."""
    from importlib.util import find_spec

    if find_spec("pip") is None:
        return ["uv", "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]


def _with_extra(source: str, extra: str) -> str:
    """A requirement with extras: of a name, a path, or a repository (`NAME @ git+URL`)."""
    name, at, url = source.partition(" @ ")
    return f"{name}[{extra}]{at}{url}"


def _source() -> tuple[bool, str]:
    """Whether the installation is editable, and the requirement that it was installed from."""
    from importlib.metadata import Distribution, PackageNotFoundError  # slow, for hints only

    try:
        text = Distribution.from_name(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:  # its folder is in PYTHONPATH
        return False, _checkout() or DISTRIBUTION
    return (False, DISTRIBUTION) if text is None else _direct_source(text)


def _direct_source(text: str) -> tuple[bool, str]:
    """The same by direct_url.json, as PEP 610 describes it."""
    import json

    try:
        origin = json.loads(text)
        url = origin["url"]
        repository = origin.get("vcs_info")
        is_editable = bool(origin.get("dir_info", {}).get("editable"))
        if repository:
            commit = repository.get("commit_id")
            url = f"{repository['vcs']}+{url}{f'@{commit}' if commit else ''}"
            return False, f"{DISTRIBUTION} @ {url}"
    except (ValueError, LookupError, AttributeError, TypeError):
        return False, DISTRIBUTION
    if not url.startswith("file://"):
        return False, f"{DISTRIBUTION} @ {url}"
    from urllib.parse import unquote, urlsplit

    path = unquote(urlsplit(url).path)
    return (is_editable, path) if Path(path).exists() else (False, DISTRIBUTION)


def _checkout() -> str | None:
    """The folder of the repository that this file is in."""
    folder = Path(__file__).resolve().parents[2]
    return str(folder) if (folder / "pyproject.toml").is_file() else None


def _uv_extras(path: Path) -> list[str]:
    """The extras that the tool has already: uv installs only those that are named."""
    import tomllib

    try:
        requirements = tomllib.loads(path.read_text("utf-8"))["tool"]["requirements"]
        return [
            str(extra)
            for requirement in requirements
            if requirement.get("name") == DISTRIBUTION
            for extra in requirement.get("extras", ())
        ]
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return []
