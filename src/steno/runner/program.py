"""An agent's installed program: where it is, its version, and the options that its help lists.

The version is read from file names and package files: starting a program takes from a tenth of a
second to several seconds. The help is requested only for an option that some versions lack, once
per version, and kept in the user's cache directory.
"""

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from ..agents import Agent, ProgramInfo
from ..agents.base import build_environment
from ..codec.colours import strip_colours
from ..executables import find_executable
from ..private_files import cache_path, write_cache_file
from ..process.child import RunOnce

HELP_TIMEOUT_SECONDS = 30.0  # Gemini needs up to 22 s if its files are not in the disk cache
# A program of unknown version may be a launcher that stays the same in an update; a help that could
# not be read may be readable later.
UNCERTAIN_MAX_AGE_SECONDS = 86_400.0
CACHE_FOLDER_NAME = "help"
_VERSION_PATTERN = re.compile(r"\d+\.\d+\.\d+")
_OPTION_PATTERN = re.compile(r"--?[A-Za-z][\w-]*")
# The start of a line, such as `  -m, --model`. Deeper lines continue a description.
_COMMAND_PATTERN = re.compile(r"^ {2,4}([a-z][a-z-]*) {2,}\S", re.MULTILINE)
_OPTION_LINE_PATTERN = re.compile(r"^ {0,10}(-[\w-]+(?:(?:, *|/| )-[\w-]+)*)", re.MULTILINE)


class _PackageJson(Struct):
    name: str = ""
    version: str = ""


class CachedHelp(Struct):
    """The options in a program's help; None if it could not be read. `at` is the time of that."""

    options: list[str] | None
    at: float


_known_help: dict[str, CachedHelp] = {}  # by key; also without a writable cache directory


def find_program(program: str, environ: Mapping[str, str]) -> str | None:
    """The absolute path of a program, searched in the PATH of `environ`; None if not found."""
    # Not by Path: it would turn ./NAME, a file of this folder, into a name to search for.
    name = os.path.expanduser(program)  # noqa: PTH111
    path = find_executable(name, environ.get("PATH", os.defpath))
    return None if path is None else str(Path(path).absolute())


def version_of(program: str, npm_package: str, search_path: str | None = None) -> str | None:
    """The version by file name (own installers) or by package.json (npm); None if unknown."""
    path = find_executable(program, search_path)
    if path is None:
        return None
    file = Path(os.path.realpath(path))
    if _VERSION_PATTERN.fullmatch(file.name):
        return file.name
    for folder in file.parents[:3] if npm_package else ():
        try:
            data = (folder / "package.json").read_bytes()
            package = msgspec.json.decode(data, type=_PackageJson)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if package.version and package.name == npm_package:
            return package.version
    return None


def inspect_program(
    agent: Agent,
    program: str,
    inherited: Mapping[str, str],
    extra_env: Mapping[str, str] | None = None,
) -> ProgramInfo:
    """The version of a program, and a function that looks for options in its help."""
    env = build_environment(
        inherited, agent.launch.env_policy, include_api_keys=False, extra=extra_env
    )
    path = find_program(program, env)
    if path is None:
        return ProgramInfo()
    version = version_of(path, agent.installation.npm_package)
    if not agent.launch.help_args:
        return ProgramInfo(version)
    argv = (path, *agent.launch.help_args)

    def has_option(option: str) -> bool:
        options = _help_options(argv, version, env)
        return options is None or option in options

    return ProgramInfo(version, has_option)


def parse_help(text: str) -> list[str] | None:
    """The options and subcommands that a help text lists; None if it is no help text."""
    text = strip_colours(text)
    lines = _OPTION_LINE_PATTERN.findall(text)
    options = {option for line in lines for option in _OPTION_PATTERN.findall(line)}
    if "--help" not in options:
        return None
    return sorted(options.union(_COMMAND_PATTERN.findall(text)))


def _help_options(
    argv: tuple[str, ...], version: str | None, env: Mapping[str, str]
) -> list[str] | None:
    """The options in the help, from the cache if possible; None if unknown."""
    try:
        stat = Path(argv[0]).stat()
    except OSError:
        return None
    parts = (*argv, str(stat.st_size), str(stat.st_mtime_ns), version or "")
    key = sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    now = time.time()
    entry = _known_help.get(key) or _read_cache(key)
    if entry is not None:
        is_certain = version is not None and entry.options is not None
        if is_certain or 0 <= now - entry.at < UNCERTAIN_MAX_AGE_SECONDS:
            _known_help[key] = entry
            return entry.options
    entry = CachedHelp(_request_help(argv, env), now)
    _known_help[key] = entry
    _write_cache(key, entry)
    return entry.options


def _request_help(argv: tuple[str, ...], env: Mapping[str, str]) -> list[str] | None:
    env = {**env, "LC_ALL": "C", "NO_COLOR": "1"}
    code, out, err = RunOnce(argv, os.sep, env, HELP_TIMEOUT_SECONDS, unset_env=os.environ).run()
    if code != 0:
        return None
    return parse_help(f"{out.decode('utf-8', 'replace')}\n{err}")  # OpenCode prints it to stderr


def _read_cache(key: str) -> CachedHelp | None:
    with suppress(OSError, RuntimeError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(_cache_path(key).read_bytes(), type=CachedHelp)
    return None


def _write_cache(key: str, entry: CachedHelp) -> None:
    with suppress(OSError, RuntimeError):
        write_cache_file(_cache_path(key), msgspec.json.encode(entry))


def _cache_path(key: str) -> Path:
    return cache_path(f"{CACHE_FOLDER_NAME}/{key[:32]}.json")
